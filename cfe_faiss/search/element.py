"""Choice of the element type of the blocks, float or byte, by timing both on a sample of the rows.

A byte is a quarter of a float, and VNNI multiplies 4 bytes at a time. But byte blocks give bounds, and rows whose bound
does not decide are scored again from the vectors. With few dimensions or with similarities close to each other, many
rows are scored again, and floats are faster. This depends on the processor and the data, so it is measured before the
first blocks are built, in some milliseconds. Batched search compares float with byte blocks; single queries compare
the stored vectors with byte blocks, in few and in many lists. The choice does not change results.
"""

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Literal

import numpy as np

from cfe_faiss import _native
from cfe_faiss._native import Blocks, ClassCentroids, ListScan, Searcher
from cfe_faiss.base.arrays import Bools, Floats, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.coarse.class_centroids import ranked
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.blocks import Element
from cfe_faiss.search.grouping import arranged

RowSource = Literal["float", "byte", "mixed"]
"""Rows that single queries read: stored vectors, byte blocks, or byte blocks from :data:`MANY_LISTS` lists on."""

MANY_LISTS = 32
_GROUPS, _QUERIES, _K = 6, 16, 10
# Float blocks do best with few lists, byte blocks with many. The faster type at 96 lists is nearly as fast at other
# numbers of lists. The rows of 96 lists also exceed the cache of a core, as in a real search.
_NPROBE = 96
_ALONE = 8  # time every 8th query as a single query
# Byte blocks pay in many lists, where thresholds exclude most rows. In few lists, converting the query costs more.
_FEW = 8
_REPEATS = 5
_IN_BLOCKS = np.empty(0, np.bool_)
_WORTH_MEMORY = 0.9  # blocks must reduce the time of a single query to this share


class Sample:
    """Groups of stored vectors as queries, with the lists that each group probes.

    Attributes
    ----------
    X, labels
        Queries, (nq, d), and their labels, (nq,). A group has one list and one label.
    starts
        First query of each group, followed by the number of queries, (groups + 1,).
    lists
        Probed lists of each group, (groups, nprobe).
    """

    def __init__(self, snapshot: Snapshot, centroids: ClassCentroids) -> None:
        self._snapshot, self._centroids = snapshot, centroids
        rows, sizes = _group_rows(snapshot)
        self.X = np.ascontiguousarray(snapshot.rows(rows)[0]) if len(rows) else np.empty((0, snapshot.d), np.float32)
        self.labels = snapshot.labels[rows]
        self.starts = np.append(0, np.cumsum(sizes)).astype(np.int64)
        means = arranged(self.X, np.arange(len(self.X)), self.starts, snapshot.native.metric)[1]
        nlist, nprobe = len(snapshot.starts) - 1, min(_NPROBE, len(centroids))
        self.lists = ranked(centroids, nlist, means, self.labels[self.starts[:-1]], nprobe)
        self._alone = self.X[::_ALONE].copy(), self.labels[::_ALONE].copy()

    @cached_property
    def _lists_alone(self) -> Ints:
        """The lists that each single query probes at most, (queries, nprobe)."""
        nlist = len(self._snapshot.starts) - 1
        return ranked(self._centroids, nlist, *self._alone, min(_NPROBE, nlist))

    def wanted(self, lists: int, *, alone: bool = False) -> Bools:
        """Return a mask, (lists,), of the lists that some group or, with ``alone``, some single query probes."""
        probed, wanted = self._lists_alone if alone else self.lists, np.zeros(lists, np.bool_)
        wanted[probed[probed >= 0]] = True
        return wanted

    def seconds(self, blocks: Blocks) -> float:
        """Return the shortest time of a search of all groups in the blocks, in seconds on one thread."""
        D, I = _results(len(self.X))
        found, rows = (np.arange(len(self.X)), D, I), (self.X, self.labels, self.starts, self.lists)
        deduplicate = len(self._snapshot.references) > 0
        return _least(partial(blocks.search, *rows, *found, deduplicate=deduplicate))

    def seconds_alone(self, blocks: Blocks | None) -> tuple[float, float]:
        """Return the shortest times of the single queries in few and in many lists, in seconds.

        Queries read the blocks of the probed lists, or the stored vectors. The index must have one partition.
        """
        nlist = len(self._snapshot.starts) - 1
        not_in_blocks = _IN_BLOCKS if blocks is None else ~self.wanted(nlist, alone=True)
        searcher = searcher_of(self._snapshot, self._centroids, blocks, not_in_blocks)
        D, I = _results(len(self._alone[0]))

        def seconds(nprobe: int) -> float:
            lists = min(nprobe, nlist)
            return _least(lambda: searcher.search(*self._alone, lists, False, np.empty(0, np.bool_), D, I))

        return seconds(_FEW), seconds(_NPROBE)


def searcher_of(
    snapshot: Snapshot,
    centroids: ClassCentroids,
    blocks: Blocks | None,
    not_in_blocks: Bools = _IN_BLOCKS,
    least_lists: int = 1,
) -> Searcher:
    """Return a searcher of all lists. Lists missing from the blocks are read from the rows.

    So are all lists of a query that probes fewer than ``least_lists``.
    """
    lists = ListScan(snapshot.native, snapshot.references, snapshot.reference_starts)
    return Searcher(lists, centroids, snapshot.margin, blocks, not_in_blocks, least_lists)


def _results(nq: int) -> tuple[Floats, Ints]:
    return np.empty((nq, _K), np.float32), np.empty((nq, _K), np.int64)


def _least(search: Callable[[], object]) -> float:
    """Return the time of the fastest of ``_REPEATS`` searches, in seconds."""
    times = []
    for _ in range(_REPEATS):
        begin = time.perf_counter()
        search()
        times.append(time.perf_counter() - begin)
    return min(times)


def _group_rows(snapshot: Snapshot) -> tuple[Ints, list[int]]:
    """Return rows in groups of one list and label, spread over the index, and the group sizes."""
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
    """Return the usable element types: bytes need processor support, floats must fit into ``most`` bytes."""
    if not _native.has_bytes():
        return ("float",)
    return ("float", "byte") if bytes_of_floats <= most else ("byte",)


def faster(seconds_of_floats: float, seconds_of_bytes: float) -> Element:
    """Return the element type for batched search, from the times of the sample with both."""
    return "float" if seconds_of_floats < seconds_of_bytes else "byte"


def worth_blocks(seconds_without: tuple[float, float], seconds_with: tuple[float, float]) -> RowSource:
    """Return the rows that single queries read, from the times of the sample without and with byte blocks."""
    few, many = (b <= _WORTH_MEMORY * a for a, b in zip(seconds_without, seconds_with, strict=True))
    return "float" if not many else "byte" if few else "mixed"
