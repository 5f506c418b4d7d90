"""Whether queries are compared with floats or bytes: which is faster on the rows of an index, found by trying both.

Bytes are four times as short and, with VNNI, multiplied four at a time, but a bound has to be worked out for each row,
and the more rows it leaves open the less it saves: with few dimensions, or where similarities crowd together, floats
are faster. That depends on the processor and on the data, so it is measured, in some milliseconds, before the first
blocks are made: once for many queries, in blocks of floats or of bytes, and once for single ones, with the vectors
themselves or with blocks of bytes. Results do not depend on it: what bytes leave open is scored from the vectors.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss._native import Blocks, ClassCentroids, Searcher
from cfe_faiss.base.checks import UNKNOWN, as_unit_rows
from cfe_faiss.coarse.class_centroids import ranked
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.blocks import Element

_GROUPS, _QUERIES, _K = 6, 16, 10
# Floats are at their best in few lists, bytes in many: what is faster in this number is not far behind in others. So
# many rows do not stay in the cache of a core, either.
_NPROBE = 96
_ALONE, _NPROBE_ALONE = 8, 8  # every eighth of the queries is searched alone, in so many lists
_REPEATS = 3
_WORTH_MEMORY = 0.9  # of the time of a single query without blocks


class Sample:
    """Some groups of stored vectors as queries, and the lists that they probe.

    Attributes
    ----------
    X, labels
        Queries, (nq, d), and their labels, (nq,); each group is of one list and label.
    starts
        First query of each group and, last, the number of queries, (groups + 1,).
    lists
        Of each group, (groups, nprobe).
    """

    def __init__(self, snapshot: Snapshot, centroids: ClassCentroids) -> None:
        self._snapshot, self._centroids = snapshot, centroids
        rows, sizes = _group_rows(snapshot)
        self.X = np.ascontiguousarray(snapshot.rows(rows)[0]) if len(rows) else np.empty((0, snapshot.d), np.float32)
        self.labels = snapshot.labels[rows]
        self.starts = np.append(0, np.cumsum(sizes)).astype(np.int64)
        firsts = self.starts[:-1]
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.nan_to_num(np.add.reduceat(self.X, firsts, axis=0)) if len(firsts) else self.X
        means = as_unit_rows("means of groups", sums)
        nlist, nprobe = len(snapshot.starts) - 1, min(_NPROBE, len(centroids))
        self.lists = ranked(centroids, nlist, means, self.labels[firsts], nprobe)

    def wanted(self, lists: int) -> NDArray[np.bool_]:
        """Return which of all lists a group probes, (lists,)."""
        wanted = np.zeros(lists, np.bool_)
        wanted[self.lists[self.lists >= 0]] = True
        return wanted

    def seconds(self, blocks: Blocks) -> float:
        """Return how long a search of all groups in blocks takes at least, on one thread."""
        D, I = _results(len(self.X))
        found, rows = (np.arange(len(self.X)), D, I), (self.X, self.labels, self.starts, self.lists)
        deduplicate = len(self._snapshot.references) > 0
        return _least(partial(blocks.search, *rows, *found, deduplicate=deduplicate))

    def seconds_alone(self, blocks: Blocks | None) -> float:
        """Return how long single queries take at least, in blocks of the wanted lists, or with the vectors themselves.

        The index has one partition.
        """
        snapshot, nlist = self._snapshot, len(self._snapshot.starts) - 1
        not_in_blocks = np.empty(0, np.bool_) if blocks is None else ~self.wanted(nlist)
        searcher = searcher_of(snapshot, self._centroids, blocks, not_in_blocks)
        X, labels = self.X[::_ALONE].copy(), self.labels[::_ALONE].copy()
        options = min(_NPROBE_ALONE, nlist), False, np.empty(0, np.bool_)
        return _least(partial(searcher.search, X, labels, *options, *_results(len(X)), 1, None))


def searcher_of(
    snapshot: Snapshot, centroids: ClassCentroids, blocks: Blocks | None, not_in_blocks: NDArray[np.bool_]
) -> Searcher:
    """Return what searches queries that are each ranked alone; it reads lists that are not in the blocks."""
    partitions = snapshot.references, snapshot.reference_starts
    return Searcher(snapshot.native, *partitions, centroids, snapshot.margin, blocks, not_in_blocks)


def _results(nq: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    return np.empty((nq, _K), np.float32), np.empty((nq, _K), np.int64)


def _least(search: Callable[[], None]) -> float:
    """Return the seconds of the fastest of some searches."""
    times = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        search()
        times.append(time.perf_counter() - begin)
    return min(times)


def _group_rows(snapshot: Snapshot) -> tuple[NDArray[np.int64], list[int]]:
    """Return rows in groups of one list and label, from lists all over the index, and how many each group has."""
    filled = np.flatnonzero(np.diff(snapshot.starts))
    parts = []
    for j in filled[np.unique(np.linspace(0, len(filled) - 1, min(_GROUPS, len(filled))).astype(np.int64))].tolist():
        first, last = snapshot.starts[j : j + 2].tolist()
        labels = snapshot.labels[first:last]
        label = labels[len(labels) // 2]
        own = first + np.flatnonzero(labels == label)[:_QUERIES]
        if label != UNKNOWN:
            parts.append(own)
    return np.concatenate([np.empty(0, np.int64), *parts]), [len(part) for part in parts]


def usable(bytes_of_floats: int, most: int) -> tuple[Element, ...]:
    """Return what blocks may hold at all: bytes where the processor multiplies them, floats where there is room."""
    if not _native.has_bytes():
        return ("float",)
    return ("float", "byte") if bytes_of_floats <= most else ("byte",)


def faster(seconds_of_floats: float, seconds_of_bytes: float) -> Element:
    """Return what blocks for many queries are to hold, by how long the sample takes with each."""
    return "float" if seconds_of_floats < seconds_of_bytes else "byte"


def worth_blocks(seconds_without: float, seconds_with: float) -> bool:
    """Return whether single queries are to have blocks of bytes, by how long the sample takes without and with them."""
    return seconds_with <= _WORTH_MEMORY * seconds_without
