"""Ranking: the lists of each of many queries, by what :mod:`cfe_faiss.index.routing` keeps of them.

Means of lists are kept in columns, 16 side by side, so that eight queries meet them in one pass over the dimensions;
what they score stays in cache until the best are chosen.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.index import meet, select
from cfe_faiss.index.codes import float_pointer, label_pointer
from cfe_faiss.index.meet import LANES
from cfe_faiss.index.scan import NOWHERE
from cfe_faiss.jit import kernel

_AT_ONCE = 8  # queries that meet a block of columns together
_MOST = 1 / 2  # of all lists have an entry of a label: then a column for each list takes less than to leave out some

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Labels = NDArray[np.int32]
Flags = NDArray[np.bool_]


class Columns(NamedTuple):
    """Means of lists, and means without one label, in blocks of 16.

    Attributes
    ----------
    means
        (blocks, d, 16) float32.
    lists, filled
        The list that each column is of, -1 for none, (blocks, 16) int64; and whether it holds anything, (blocks, 16).
    labels, starts
        The blocks of ``labels[i]`` are ``starts[i]:starts[i + 1]``, (c,) int32 and (c + 1,) int64. The blocks before
        these are of all lists with all labels, in their order.
    whole
        Whether the blocks of a label are of all lists, too, (c,) bool.
    """

    means: Floats
    lists: Ints
    filled: Flags
    labels: Labels
    starts: Ints
    whole: Flags

    @classmethod
    def of(
        cls,
        means: Floats,
        filled: Flags,
        labels: Labels,
        starts: Ints,
        entry_lists: Ints,
        entry_means: Floats,
        entry_filled: Flags,
    ) -> "Columns":
        """Put means side by side; the arrays are those of :class:`cfe_faiss.index.routing.Routes`."""
        everything = np.arange(len(means))
        whole = np.diff(starts) >= _MOST * len(means)
        parts = [_blocks(means, everything, filled)]
        for i in range(len(labels)):
            entries = slice(starts[i], starts[i + 1])
            lists, own, own_filled = entry_lists[entries], entry_means[entries], entry_filled[entries]
            if whole[i]:
                own_lists, (own, own_filled) = lists, (means.copy(), filled.copy())
                own[own_lists], own_filled[own_lists] = entry_means[entries], entry_filled[entries]
                lists = everything
            parts.append(_blocks(own, lists, own_filled))
        sizes = [len(blocks) for blocks, _, _ in parts]
        blocks, lists, has = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return cls(blocks, lists, has, labels, np.cumsum(sizes), whole)

    @property
    def width(self) -> int:
        """As many scores as a query has: the number of lists, and up to a multiple of 16."""
        return int(LANES * self.starts[0])


def _blocks(means: Floats, lists: Ints, filled: Flags) -> tuple[Floats, Ints, Flags]:
    """Return means, (m, d), of lists, (m,), as blocks; what is added to whole blocks is of no list."""
    number, d = -(-len(means) // LANES), means.shape[1]
    rows = np.zeros((number * LANES, d), np.float32)
    of_lists, of_filled = np.full(number * LANES, -1), np.zeros(number * LANES, bool)
    rows[: len(means)], of_lists[: len(means)], of_filled[: len(means)] = means, lists, filled
    columns = np.ascontiguousarray(rows.reshape(number, LANES, d).transpose(0, 2, 1))
    return columns, of_lists.reshape(number, LANES), of_filled.reshape(number, LANES)


@kernel
def rank(
    X: Floats,
    labels_q: Labels,
    means: Floats,
    lists: Ints,
    filled: Flags,
    labels: Labels,
    starts: Ints,
    whole: Flags,
    best: Ints,
) -> None:
    """Write the nearest lists of each query, (nq, nprobe), nearest first, -1 for none.

    Queries are in the order of their labels; the other arrays are those of :class:`Columns`. Time: nq x lists x d, and
    for choosing nq x lists.
    """
    nprobe, total = best.shape[1], LANES * starts[0]
    S, out = np.empty((_AT_ONCE, total), np.float32), np.empty(LANES, np.float32)
    counting, memory = nprobe <= select.LARGEST_K, select.room(_AT_ONCE, total, nprobe)
    done = np.zeros(_AT_ONCE, np.bool_)
    for first in range(0, X.shape[0], _AT_ONCE):
        last = min(first + _AT_ONCE, X.shape[0])
        _score(X[first:last], labels_q[first:last], means, lists, filled, labels, starts, whole, S, out)
        if counting:
            select.best(S[: last - first], best[first:last], done, memory)
        for r in range(last - first):
            if done[r]:
                continue
            order = np.argsort(-S[r], kind="mergesort")
            for place in range(nprobe):
                best[first + r, place] = order[place] if S[r, order[place]] > NOWHERE else -1


@kernel
def all_scores(
    X: Floats,
    labels_q: Labels,
    means: Floats,
    lists: Ints,
    filled: Flags,
    labels: Labels,
    starts: Ints,
    whole: Flags,
    S: Floats,
) -> None:
    """Write how near each query is to each list, (nq, width), -inf where nothing is; arguments are those of `rank`."""
    out = np.empty(LANES, np.float32)
    for first in range(0, X.shape[0], _AT_ONCE):
        some = slice(first, min(first + _AT_ONCE, X.shape[0]))
        _score(X[some], labels_q[some], means, lists, filled, labels, starts, whole, S[some], out)


@kernel
def _score(
    X: Floats,
    labels_q: Labels,
    means: Floats,
    lists: Ints,
    filled: Flags,
    labels: Labels,
    starts: Ints,
    whole: Flags,
    S: Floats,
    out: Floats,
) -> None:
    """Write the scores of at most eight queries; ``out`` is room for 16 numbers."""
    nq, d, common = X.shape[0], X.shape[1], starts[0]
    first, last_label = 0, np.searchsorted(labels, labels_q[nq - 1])
    one = nq > 0 and labels_q[0] == labels_q[nq - 1]
    if not (one and _has(labels, last_label, labels_q[0]) and whole[last_label]):
        _multiply(X, 0, nq, means, filled, 0, common, S)
    while first < nq:
        last = first + 1
        while last < nq and labels_q[last] == labels_q[first]:
            last += 1
        i = np.searchsorted(labels, labels_q[first])
        if _has(labels, i, labels_q[first]):
            if whole[i]:
                _multiply(X, first, last, means, filled, starts[i], common, S)
            else:
                for q in range(first, last):
                    for b in range(starts[i], starts[i + 1]):
                        x, block = X.ctypes.data + 4 * d * q, means.ctypes.data + 4 * LANES * d * b
                        meet.products_1(label_pointer(x), label_pointer(block), d, out.ctypes, 0)
                        for lane in range(LANES):
                            if lists[b, lane] >= 0:
                                S[q, lists[b, lane]] = out[lane] if filled[b, lane] else -np.inf
        first = last


@kernel
def _has(labels: Labels, i: int, label: int) -> bool:
    return bool(i < labels.shape[0] and labels[i] == label)


@kernel
def _multiply(
    X: Floats, first: int, last: int, means: Floats, filled: Flags, start: int, blocks: int, S: Floats
) -> None:
    """Write the scores of the queries ``first:last`` for as many blocks from ``start`` on."""
    d, width = X.shape[1], S.shape[1]
    together = last - first == _AT_ONCE
    for q in range(first, first + 1 if together else last):
        x = label_pointer(X.ctypes.data + 4 * d * q)
        for b in range(blocks):
            block = label_pointer(means.ctypes.data + 4 * LANES * d * (start + b))
            scores = float_pointer(S.ctypes.data + 4 * (width * q + LANES * b))
            if together:
                meet.products_8(x, block, d, scores, width)
            else:
                meet.products_1(x, block, d, scores, width)
    some = filled[start : start + blocks].reshape(-1)
    for q in range(first, last):
        for j in range(width):
            S[q, j] = S[q, j] if some[j] else -np.inf
