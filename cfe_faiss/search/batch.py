"""Many queries: list by list, so that what is near each other is routed, read and multiplied together.

Queries of one list are taken in small groups (:mod:`cfe_faiss.search.grouping`). The mean of a group is routed to the
lists whose other-class members are near (:mod:`cfe_faiss.coarse.class_centroids`), and all of the group is compared
with the rows of these lists, in blocks of sixteen (``native/core/blocks.h``).
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import Blocks, GroupedSearcher
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import native_progress, num_native_threads, num_threads, product, run
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.lists.storage import Storage
from cfe_faiss.search import grouping
from cfe_faiss.search.element import Element
from cfe_faiss.search.engine import Plan
from cfe_faiss.search.grouping import Groups, Queries

MEMORY = 1 << 31
"""Bytes for copies of vectors, unless the caller says otherwise."""

ROWS_OF_BLOCK = 16

_PER_QUERY = 1 << 12  # multiplications in the time that a query takes beside its products
_STATISTICS = 6  # words for each row of bytes
_PREFIX = 64  # dimensions that are compared first: the length of the others may then tell enough
_WORTH_ROTATING = 1 << 16  # rows; among fewer, to rotate the queries takes more than it saves
_SAMPLE = 1 << 14  # rows tell the principal directions
_LONGEST_TAIL = 0.5  # of the squared lengths may come after the prefix


@dataclass(frozen=True, slots=True)
class Places:
    """The lists of all partitions: of the first one, those of the storage; of the others, references to its rows.

    Attributes
    ----------
    starts
        Where each list begins among the rows of all lists and, last, their end, (lists + 1,) int64.
    references, reference_starts
        Storage rows of the later lists, int32, and where each of these begins and, last, their end, int64.
    """

    starts: NDArray[np.int64]
    references: NDArray[np.int32]
    reference_starts: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """How many rows all lists have together."""
        return int(self.starts[-1])

    def first_partition(self, nlist: int) -> "Places":
        """Return the lists of the first partition alone."""
        return Places(self.starts[: nlist + 1], self.references[:0], self.reference_starts[:0])


def bytes_of_block(d: int, element: Element) -> int:
    """Return how much memory a block takes at most: its words, labels, and where its rows are."""
    words = -(-d // 4) + _STATISTICS if element == "byte" else d
    return ROWS_OF_BLOCK * 4 * (words + 2) + 12


def bytes_of_all(d: int, places: Places, element: Element) -> int:
    """Return how much memory the blocks of all lists take at most."""
    return int((-(-np.diff(places.starts) // ROWS_OF_BLOCK)).sum()) * bytes_of_block(d, element)


def all_blocks(storage: Storage, places: Places, element: Element) -> Blocks | None:
    """Return blocks of all lists, to be kept; None where that is too much."""
    return blocks_of(storage, places, element) if bytes_of_all(storage.d, places, element) <= MEMORY else None


def blocks_of(
    storage: Storage,
    places: Places,
    element: Element,
    *,
    wanted: NDArray[np.bool_] | None = None,
    allowed: NDArray[np.bool_] | None = None,
) -> Blocks:
    """Make blocks of the allowed rows, (n,), of the wanted ones of all lists, (lists,)."""
    everything = np.empty(0, np.bool_)
    rotation = np.empty((0, storage.d), np.float32)
    if element == "byte" and storage.d >= 2 * _PREFIX:
        chosen = np.ones(len(places.starts) - 1, np.bool_) if wanted is None else wanted
        if int(np.diff(places.starts)[chosen].sum()) >= _WORTH_ROTATING:
            rotation = _rotation(storage, places, np.flatnonzero(chosen))
    return Blocks(
        storage.native,
        element,
        storage.margin,
        places.references,
        places.reference_starts,
        everything if wanted is None else wanted,
        everything if allowed is None else allowed,
        rotation,
        _PREFIX,
        num_threads(float(places.rows) * storage.d),
    )


def _rotation(storage: Storage, places: Places, lists: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the principal directions of the rows of some lists, of a sample of them; none if it does not pay."""
    few = max(1, round(len(lists) * min(1.0, _SAMPLE / places.rows)))
    nlist = len(storage.starts) - 1
    parts = []
    for j in lists[np.unique(np.linspace(0, len(lists) - 1, few).astype(np.int64))].tolist():
        if j < nlist:
            rows = np.arange(storage.starts[j], storage.starts[j + 1])
        else:
            cut = slice(*places.reference_starts[j - nlist : j - nlist + 2])
            rows = places.references[cut].astype(np.int64)
        rows = rows[storage.labels[rows] != UNKNOWN]
        if len(rows):
            X = storage.rows(rows)[0]
            with np.errstate(invalid="ignore", over="ignore"):  # rows of a damaged file may hold anything
                parts.append(X - X.mean(axis=0))
    directions, tail = directions_of(np.concatenate(parts) if parts else np.empty((0, storage.d), np.float32))
    return directions if tail <= _LONGEST_TAIL else directions[:0]


def directions_of(X: NDArray[np.float32]) -> tuple[NDArray[np.float32], float]:
    """Return the principal directions of rows, (d, d), and the share of their squares after the prefix."""
    with np.errstate(invalid="ignore", over="ignore"):
        squares = product(X.T, X).astype(np.float64)
    if not np.isfinite(squares).all():
        return np.empty((0, X.shape[1]), np.float32), math.inf
    values, directions = np.linalg.eigh(squares)
    tail = float(values[:-_PREFIX].sum() / max(values.sum(), np.finfo(np.float64).tiny))
    return np.ascontiguousarray(directions[:, ::-1], np.float32), tail


def _shards(places: Places, wanted: NDArray[np.bool_], of_block: int, memory: int) -> list[slice]:
    """Cut the lists into runs whose blocks take about so many bytes; a run holds at least one list."""
    sizes = np.where(wanted, np.diff(places.starts), 0)
    end = np.cumsum(-(-sizes // ROWS_OF_BLOCK) * of_block)
    cuts, first = [], 0
    while first < len(sizes):
        before = end[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(end, before + memory, side="right")))
        cuts.append(slice(first, last))
        first = last
    return cuts


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be found: the evidence of some queries, in the lists nearest to the mean of each query's group.

    Attributes
    ----------
    queries
        All queries, nq of them.
    pending
        Which of them are to be searched, (m,) int64.
    nprobe
        Lists that each group probes.
    D, I
        Where results are written, (nq, k) both: rows that may be short, and those of unknown label stay as they are.
    """

    queries: Queries
    pending: NDArray[np.int64]
    nprobe: int
    D: NDArray[np.float32]
    I: NDArray[np.int64]

    @property
    def chosen(self) -> Queries:
        """The pending queries."""
        return self.queries.chosen(self.pending)

    def rows(self, groups: Groups) -> NDArray[np.int64]:
        """Return the rows of D and I of the pending queries, in the order of their groups."""
        return groups.order if len(self.pending) == len(self.queries) else self.pending[groups.order]

    def work(self, storage: Storage, places: Places) -> float:
        """Return about how many multiplications are done in the time that it takes."""
        scanned = min(self.nprobe, len(places.starts)) * places.rows / len(places.starts)
        return float(len(self.pending)) * (storage.d * scanned + _PER_QUERY)


def search_kept(
    storage: Storage,
    places: Places,
    routes: Routes,
    blocks: Blocks,
    wanted: Wanted,
    groups: Groups,
    progress: str | None,
) -> None:
    """Search in kept blocks of all lists of an index with one partition.

    ``groups``, of the pending queries, are halved by the core (``native/core/grouped.h``). Results are exact for the
    lists that are probed.
    """
    queries, tasks = wanted.queries, groups.tasks()
    with native_progress(progress, len(tasks)) as report:
        GroupedSearcher(storage.native, routes.native, blocks).search(
            queries.X,
            queries.rows,
            queries.labels,
            wanted.rows(groups),
            groups.starts,
            groups.labels,
            np.array([0, *(task.stop for task in tasks)]),
            wanted.nprobe,
            wanted.D,
            wanted.I,
            threads=num_native_threads(wanted.work(storage, places)),
            progress=report,
        )


def search_in_parts(
    storage: Storage,
    places: Places,
    routes: Routes,
    wanted: Wanted,
    made: Plan,
    element: Element,
    progress: str | None,
) -> None:
    """Search among the rows that are allowed, in blocks that are made here, of some lists at a time.

    They take no more than the plan's memory at once. Results are exact for the lists that are probed.
    """
    if wanted.nprobe >= len(routes.means):
        places = places.first_partition(routes.nlist)
    deduplicate, queries = places.rows > storage.n, wanted.chosen
    groups, lists = grouping.routed(routes, queries, wanted.nprobe)
    rows = wanted.rows(groups)

    def scan(task: slice, blocks: Blocks, resume: bool) -> None:
        cut, starts = groups.of_task(task)
        chosen = groups.order[cut]
        X, labels = queries.fetch(chosen), queries.labels[chosen]
        found = rows[cut], wanted.D, wanted.I
        blocks.search(X, labels, starts, lists[task], *found, deduplicate=deduplicate, resume=resume)

    probed = np.zeros(len(places.starts) - 1, np.bool_)
    probed[lists[lists >= 0]] = True
    for shard in _shards(places, probed, bytes_of_block(storage.d, element), made.memory):
        here = np.zeros_like(probed)
        here[shard] = probed[shard]
        blocks = blocks_of(storage, places, element, wanted=here, allowed=made.allowed)
        run(
            partial(scan, blocks=blocks, resume=shard.start > 0),
            groups.tasks(),
            work=wanted.work(storage, places),
            progress=progress,
            blas=False,
        )
