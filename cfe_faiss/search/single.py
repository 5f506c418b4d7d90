"""A few queries, each in one compiled call: routed, scanned and put in order in the calling thread.

What an index has lies behind ``places``: the address and the length of each array of ``probing.Lists``, in its order.
Arrays themselves would each be taken apart for every call.
"""

import numpy as np
from numba import carray
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss._native import ListScan
from cfe_faiss.checks import UNKNOWN, as_unit_row, is_label
from cfe_faiss.coarse.nearby import Nearby, in_panels_of_bytes, rank_few
from cfe_faiss.jit import kernel
from cfe_faiss.lists.codecs import FLAT, bool_pointer, double_pointer, float_pointer, int_pointer, label_pointer
from cfe_faiss.lists.scan import NO_ID, PADDING, sort_heaps
from cfe_faiss.search.meet import FACTS, LANES
from cfe_faiss.search.panels import turn, words_of
from cfe_faiss.search.sweep import scan_groups

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Labels = NDArray[np.int32]

_EVERYTHING = np.empty(0, bool)


@kernel
def _route(X: Floats, labels_q: Labels, places: Ints, lists: Ints) -> None:
    """Write the lists of a few queries, (nq, nprobe): none for one with an unknown label.

    Where ``lists`` has as many columns as there are lists in all, or more, the first partition's lists are written,
    which hold every row.
    """
    d, nlist, total, entries = X.shape[1], places[1] - 1, places[3], places[5]
    if lists.shape[1] >= total:
        for j in range(lists.shape[1]):
            lists[:, j] = j if j < nlist else -1
    else:
        regions, labels, runs, number = places[9] - 1, places[15], places[23], places[29]
        nearby = Nearby(
            carray(float_pointer(places[6]), (places[7], d)),
            carray(int_pointer(places[8]), (regions + 1,)),
            carray(int_pointer(places[10]), (total,)),
            carray(int_pointer(places[12]), (total,)),
            carray(label_pointer(places[14]), (labels,)),
            carray(int_pointer(places[16]), (labels + 1,)),
            carray(int_pointer(places[18]), (labels,)),
            carray(bool_pointer(places[20]), (labels,)),
            carray(float_pointer(places[22]), (runs, d)),
            carray(float_pointer(places[24]), (runs, 2)),
            carray(int_pointer(places[26]), (runs + 1,)),
            carray(label_pointer(places[28]), (number, words_of(d, in_panels_of_bytes(d, total)), LANES)),
            carray(label_pointer(places[30]), (number, FACTS, LANES)),
            carray(int_pointer(places[32]), (number, LANES)),
            carray(int_pointer(places[34]), (total + entries,)),
        )
        means = carray(float_pointer(places[2]), (total, d))
        rank_few(X, labels_q, means, carray(float_pointer(places[4]), (entries, d)), nearby, lists)
    for q in range(X.shape[0]):
        if labels_q[q] == UNKNOWN:
            lists[q] = -1


def search_lists(
    X: Floats,
    labels_q: Labels,
    places: Ints,
    scan: ListScan,
    slack: float,
    allowed: NDArray[np.bool_],
    lists: Ints,
    D: Floats,
    I: Ints,
) -> bool:
    """Route a few queries, scan their lists and sort what was found; return whether all rows are full.

    ``lists``, (nq, nprobe), are written; the other arguments are those of :meth:`ListScan.scan`.
    """
    _route(X, labels_q, places, lists)
    D[:], I[:] = PADDING, NO_ID
    scan.scan(X, labels_q, lists, allowed, slack, D, I)
    _native.sort_heaps(D, I)
    return bool((I[:, -1] >= 0).all())


@kernel
def search_panels(X: Floats, labels_q: Labels, places: Ints, slack: float, lists: Ints, D: Floats, I: Ints) -> bool:
    """Do what :func:`search_lists` does among all rows, by panels of all lists of one partition; for float32.

    The panels' arrays follow those of the index in ``places``.
    """
    d, total, number = X.shape[1], places[3], places[55]
    head = carray(int_pointer(places[64]), (1,))[0]
    turned, blur = X, 0.0
    if places[63]:
        turned = turn(X, carray(float_pointer(places[62]), (d, d)))
        blur = carray(double_pointer(places[66]), (1,))[0]
    _route(X, labels_q, places, lists)
    D[:] = PADDING
    I[:] = NO_ID
    scan_groups(
        X,
        turned,
        head,
        blur,
        True,
        labels_q,
        np.arange(X.shape[0] + 1),
        lists,
        carray(int_pointer(places[50]), (places[51],)),
        carray(float_pointer(places[52]), (total, d)),
        carray(label_pointer(places[54]), (number, words_of(d, True), LANES)),
        carray(label_pointer(places[56]), (number, FACTS, LANES)),
        carray(int_pointer(places[58]), (number, LANES)),
        carray(int_pointer(places[60]), (number, LANES)),
        FLAT,
        carray(float_pointer(places[46]), (2, places[47] // 2)),
        slack,
        False,
        D,
        I,
    )
    sort_heaps(D, I)
    return bool((I[:, -1] >= 0).all())


@kernel
def _unit(X: Floats, label: int, nprobe: int) -> tuple[bool, Floats, Labels, Ints]:
    """Return whether a query as it was handed in, (1, d), may be searched, and the arguments of :func:`_route`."""
    unit = np.empty_like(X)
    fine = is_label(label) and as_unit_row(X[0], unit[0])
    return fine, unit, np.full(1, label, np.int32), np.empty((1, nprobe), np.int64)


def search_lists_of_one(
    X: Floats, label: int, nprobe: int, places: Ints, scan: ListScan, slack: float, D: Floats, I: Ints
) -> bool:
    """Do what :func:`search_lists` does for one query as it was handed in, (1, d), among all rows.

    Return False, too, where the query or its label is to be refused.
    """
    fine, unit, labels, lists = _unit(X, label, nprobe)
    return fine and search_lists(unit, labels, places, scan, slack, _EVERYTHING, lists, D, I)


@kernel
def search_panels_of_one(X: Floats, label: int, nprobe: int, places: Ints, slack: float, D: Floats, I: Ints) -> bool:
    """Do what :func:`search_lists_of_one` does, by the panels of :func:`search_panels`."""
    fine, unit, labels, lists = _unit(X, label, nprobe)
    return fine and search_panels(unit, labels, places, slack, lists, D, I)
