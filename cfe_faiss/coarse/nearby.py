"""Nearby: the lists of a few queries, by what :mod:`cfe_faiss.coarse.class_centroids` keeps of them.

A single query finds the means of lists in no cache. So it looks at panels of them (:mod:`cfe_faiss.search.panels`),
which are a quarter of their size, and then reads those that may be among the best. Where there are very many lists, it
looks at those of the nearest regions only.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.coarse.ranking import MOST, NOWHERE
from cfe_faiss.jit import kernel
from cfe_faiss.lists.codecs import float_pointer, label_pointer
from cfe_faiss.lists.scan import NO_ID, offer, product, row_at, screening_error, sort_heaps
from cfe_faiss.search import meet, panels, select
from cfe_faiss.search.meet import FACTS, LANES, QUERY_FACTS
from cfe_faiss.search.panels import AS_QUERY, encode

_WORTH_BYTES = 32  # dimensions; in fewer of them a panel's facts take as much as its rows
_WORTH_LOOKING = 256  # lists
_SLACK = 8  # times the error of one product: what is rounded are q·c, q·x', the norms, and what is compared
_LINE = 64  # bytes of a cache line
_NOT_MET = np.iinfo(np.int64).min

# Where lists are compared by regions, at least so many of these, and so many lists for each that is wanted: to compare
# these takes about as long as to scan one.
_REGIONS = 4
_LISTS_FOR_EACH = 64

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.int32]
Labels = NDArray[np.int32]
Flags = NDArray[np.bool_]


class Nearby(NamedTuple):
    """Means of lists, and means without one label, in panels: one region after the other, or all as one region.

    A run of panels holds the means of one region, or all that a label has an entry for.

    Attributes
    ----------
    region_means, borders
        What a query is compared with of each region, (regions, d), and where its lists begin among those of all
        regions and, last, their end, (regions + 1,).
    regions, lanes
        The region of each list and its lane, numbered over the runs before those of labels, (lists,) both.
    labels, entries
        Those of Routes: labels, (c,), and where the entries of each begin and, last, their end, (c + 1,).
    runs
        The runs of ``labels[i]`` begin with ``runs[i]``, (c,). The runs before are of all lists with all labels.
    whole
        Whether the runs of a label are of all lists, too, a run for each region, (c,) bool; else there is one, of what
        the label has entries for.
    centres, spread, starts
        Mean of each run, (runs, d); largest error and length of a row, (runs, 2); and first panel, (runs + 1,).
    P, facts, rows
        The panels, as from :func:`panels.pack`; and the row of each lane, (panels, 16), among all means and then all
        entries.
    lists
        The list of each row, (lists + entries,).
    """

    region_means: Floats
    borders: Ints
    regions: Ints
    lanes: Ints
    labels: Labels
    entries: Ints
    runs: Ints
    whole: Flags
    centres: Floats
    spread: Floats
    starts: Ints
    P: Words
    facts: Words
    rows: Ints
    lists: Ints

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
        region_means: Floats,
        borders: Ints,
        order: Ints,
    ) -> "Nearby":
        """Pack means; region r has the lists ``order[borders[r]:borders[r + 1]]``, the others are those of Routes."""
        total, whole = len(means), np.diff(starts) >= MOST * len(means)
        rows_of_runs = [order[first:last] for first, last in pairwise(borders)]
        runs = np.empty(len(labels), np.int64)
        for i in range(len(labels)):
            runs[i] = len(rows_of_runs)
            rows = np.arange(starts[i], starts[i + 1]) + total
            if whole[i]:
                of_lists = np.arange(total)
                of_lists[entry_lists[starts[i] : starts[i + 1]]] = rows
                rows_of_runs += [of_lists[order[first:last]] for first, last in pairwise(borders)]
            else:
                rows_of_runs.append(rows)
        stacked, known = np.concatenate([means, entry_means]), np.concatenate([filled, entry_filled])
        packed = _packed(stacked, known, total, rows_of_runs)
        first_panels, sizes = packed[2], np.diff(borders)
        regions, lanes = np.empty((2, total), np.int64)
        regions[order] = np.repeat(np.arange(len(sizes)), sizes)
        lanes[order] = np.arange(total) + np.repeat(LANES * first_panels[: len(sizes)] - borders[:-1], sizes)
        lists = np.concatenate([np.arange(total), entry_lists])
        return cls(region_means, borders, regions, lanes, labels, starts, runs, whole, *packed, lists)


def _packed(
    means: Floats, filled: Flags, lists: int, rows_of_runs: list[Ints]
) -> tuple[Floats, Floats, Ints, Words, Words, Ints]:
    """Return centres, spread, starts, P, facts and rows of :class:`Nearby`."""
    d, in_bytes = means.shape[1], in_panels_of_bytes(means.shape[1], lists)
    sizes = np.array([len(rows) for rows in rows_of_runs])
    rows, edges = np.concatenate(rows_of_runs), np.append(0, np.cumsum(sizes))
    starts = np.append(0, np.cumsum(-(-sizes // LANES)))
    X, centres = means[rows], np.zeros((len(sizes), d), np.float32)
    if in_bytes:
        X = panels.centre(X, edges, centres)
    P, facts, addresses, lane_rows = panels.room_for(int(starts[-1]), d, in_bytes)
    panels.pack(
        X,
        rows,
        np.where(filled, 0, UNKNOWN).astype(np.int32),
        np.zeros(len(means), np.int64),
        np.arange(len(means)),
        in_bytes,
        P.shape[1],
        0.0,
        edges,
        0,
        P,
        facts,
        addresses,
        lane_rows,
    )
    of_panels = facts.view(np.float32)[:, 2:4].max(axis=2)
    spread = np.array([of_panels[first:last].max(axis=0, initial=0) for first, last in pairwise(starts)])
    return centres, spread, starts, P, facts, lane_rows


@kernel
def in_panels_of_bytes(d: int, lists: int) -> bool:
    """Return whether panels of means hold bytes: among few lists, these leave too many open."""
    return bool(meet.HAS_BYTES and d >= _WORTH_BYTES and lists >= _WORTH_LOOKING)


@kernel
def rank_few(X: Floats, labels_q: Labels, means: Floats, entry_means: Floats, nearby: Nearby, best: Ints) -> None:
    """Write the nearest lists of each unit query, (nq, nprobe), nearest first, -1 for none.

    Only the lists of the nearest regions are compared with a query, and all of them exactly: panels decide what is not
    worth a product.
    """
    (total, d), number, nprobe = means.shape, nearby.P.shape[1], best.shape[1]
    in_bytes = in_panels_of_bytes(d, total)
    words, about = np.empty(number, np.int32), np.zeros(QUERY_FACTS, np.float32)
    tops, met = np.empty(LANES * nearby.P.shape[0], np.float32), np.empty(nearby.P.shape[0], np.int64)
    peaks = np.empty(-(-select.PEAKS_FOR_EACH * nprobe // LANES) * LANES, np.float32)
    places = np.empty(tops.shape[0] + LANES, np.int32)
    D, I = np.empty((1, nprobe), np.float32), np.empty((1, nprobe), np.int64)
    for q in range(X.shape[0]):
        scale, length, error = encode(X[q], in_bytes, words)
        about[0], about[1], about[2] = length / scale, error / scale, np.float32(1) / scale
        if in_bytes:
            for w in range(number):
                words[w] ^= AS_QUERY
        filled, loosest = _meet(X[q], labels_q[q], words, about, nprobe, nearby, tops, met)
        margin = 2 * (loosest + _SLACK * screening_error(d) * about[0])
        m = select.near_best(tops[: LANES * filled], nprobe, margin, peaks, places)
        for c in range(m):
            places[c] = nearby.rows[met[places[c] // LANES], places[c] % LANES]
        D[:], I[:] = NOWHERE, NO_ID
        _keep_best(X[q], places[:m], means, entry_means, nearby.lists, D[0], I[0])
        sort_heaps(D, I)
        best[q] = I[0]


@kernel
def _meet(
    x: Floats, label: int, words: Words, about: Floats, nprobe: int, nearby: Nearby, tops: Floats, met: Ints
) -> tuple[int, np.float32]:
    """Write what the lists of the nearest regions score at most, and which panels were met; see :func:`_meet_run`."""
    regions = nearby.borders.shape[0] - 1
    order, offsets = np.empty(regions, np.int64), np.empty(regions, np.int64)
    count = _nearest_regions(x, nearby, nprobe, order, offsets)
    i, first_run, filled, loosest = np.searchsorted(nearby.labels, label), 0, 0, np.float32(0)
    has_entries = bool(i < nearby.labels.shape[0] and nearby.labels[i] == label)
    if has_entries and nearby.whole[i]:
        has_entries, first_run = False, nearby.runs[i]
    for r in order[:count]:
        offsets[r] = LANES * (filled - nearby.starts[r])
        filled, bound = _meet_run(x, words, about, first_run + r, nearby, filled, tops, met)
        loosest = max(loosest, bound)
    if has_entries:
        place = LANES * filled
        filled, bound = _meet_run(x, words, about, nearby.runs[i], nearby, filled, tops, met)
        loosest = max(loosest, bound)
        first = nearby.regions.shape[0]
        for j in nearby.lists[first + nearby.entries[i] : first + nearby.entries[i + 1]]:
            # Of a list, its entry counts; of one in another region, nothing.
            offset = offsets[nearby.regions[j]]
            tops[place if offset == _NOT_MET else nearby.lanes[j] + offset] = -np.inf
            place += 1
    return filled, loosest


@kernel
def _nearest_regions(x: Floats, nearby: Nearby, nprobe: int, order: Ints, offsets: Ints) -> int:
    """Write the regions nearest to a query that have enough lists, nearest first; return how many.

    ``offsets`` become 0 for these, and ``_NOT_MET`` for others.
    """
    d, number = x.shape[0], nearby.borders.shape[0] - 1
    offsets[:] = _NOT_MET
    nearness, means = np.zeros(number, np.float32), nearby.region_means.ctypes.data
    if number > 1:
        for r in range(number):
            nearness[r] = product(x, row_at(means, r, d))
    lists, regions = 0, 0
    while regions < number and (regions < _REGIONS or lists < _LISTS_FOR_EACH * nprobe):
        nearest = -1
        for r in range(number):
            if offsets[r] == _NOT_MET and (nearest < 0 or nearness[r] > nearness[nearest]):
                nearest = r
        order[regions], offsets[nearest] = nearest, 0
        regions += 1
        lists += nearby.borders[nearest + 1] - nearby.borders[nearest]
    return regions


@kernel
def _meet_run(
    x: Floats, words: Words, about: Floats, run: int, nearby: Nearby, filled: int, tops: Floats, met: Ints
) -> tuple[int, np.float32]:
    """Write what the lanes of a run score at most, after ``filled`` panels that were met, and which panels these are.

    Returns
    -------
    How many panels were met now, and by how much that may be too much: in units of the query's scale, as the scores.
    """
    number, in_bytes = nearby.P.shape[1], in_panels_of_bytes(x.shape[0], nearby.regions.shape[0])
    peaks, own = np.empty(LANES, np.float32), np.full(1, UNKNOWN - 1, np.int32)
    about[3] = product(x, nearby.centres[run]) * about[2] if in_bytes else np.float32(0)
    for p in range(nearby.starts[run], nearby.starts[run + 1]):
        y = label_pointer(nearby.P.ctypes.data + 4 * LANES * number * p)
        facts = label_pointer(nearby.facts.ctypes.data + 4 * LANES * FACTS * p)
        top = float_pointer(tops.ctypes.data + 4 * LANES * filled)
        if in_bytes:
            meet.raise_bytes_1(words.ctypes, y, number, facts, own.ctypes, about.ctypes, peaks.ctypes, 0, top, 0)
        else:
            meet.raise_floats_1(words.ctypes, y, number, facts, own.ctypes, about.ctypes, peaks.ctypes, 0, top, 0)
        met[filled] = p
        filled += 1
    return filled, nearby.spread[run, 0] * about[0] + nearby.spread[run, 1] * about[1]


@kernel
def _keep_best(x: Floats, rows: Words, means: Floats, entry_means: Floats, lists: Ints, D: Floats, I: Ints) -> None:
    """Offer the lists of some rows, among all means and then all entries, to a heap of the nearest."""
    d, total = means.shape[1], means.shape[0]
    of_lists, of_entries = means.ctypes.data, entry_means.ctypes.data - 4 * d * total
    for row in rows:
        address = (of_lists if row < total else of_entries) + 4 * d * row
        for offset in range(0, 4 * d, _LINE):
            meet.prefetch(address + offset)
    for row in rows:
        s = product(x, row_at(of_lists if row < total else of_entries, row, d))
        offer(D, I, s, lists[row])
