"""Search in an inverted file: rank the lists for each query, scan the nearest, and go on while a row is incomplete."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss._native import Blocks, ListScan, ReadWriteLock, Searcher, SingleSearch
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.derived import derived, once
from cfe_faiss.base.threads import num_threads, run
from cfe_faiss.coarse.class_centroids import WORTH_CLUSTERS, Ranking, Routes, nearest_lists
from cfe_faiss.lists.codecs import FLAT
from cfe_faiss.lists.storage import Storage
from cfe_faiss.lists.topk import PADDING, empty_heaps
from cfe_faiss.search import batch, grouping
from cfe_faiss.search.batch import Places, Wanted
from cfe_faiss.search.element import Element, Sample, faster, usable, worth_blocks
from cfe_faiss.search.engine import Calibration, Plan
from cfe_faiss.search.exact import Results, padded
from cfe_faiss.search.grouping import Groups, Queries
from cfe_faiss.search.pq_codes import Screening
from cfe_faiss.search.taken_over import Before, TakenOver

_CHUNK = 256
_WIDER = 4  # times as many lists, if those before did not hold enough
_MOST_BYTES = 1 << 24  # of a row: products of more do not fit into 32 bits
_EVERYTHING = np.empty(0, bool)


@dataclass(frozen=True)
class InvertedLists:
    """The lists of all partitions; valid while the index lives and until it changes.

    Attributes
    ----------
    storage
        The rows, in the lists of the first partition.
    centroids
        Of all partitions, (partitions, nlist, d).
    references
        Storage rows in the lists of the other partitions, one list after the other, ((partitions - 1) * n,) int32.
    reference_starts
        Where each of those lists begins and, last, their end, ((partitions - 1) * nlist + 1,) int64.
    ranking
        What lists are ranked by for the evidence of a query's class; None for routing to the nearest centroids.
    screening
        For screening vectors by their codes, unless all lists are probed; None where vectors have none.
    in_memory
        Whether the rows are in memory, not mapped from a file.
    calibrations
        Lists probed for a recall, by (k, recall, whether in groups, whether rows are completed); see
        :mod:`cfe_faiss.search.recall`.
    kept
        Blocks of all lists, by what they hold, once they were made; None where they take too much memory.
    own_groups
        The groups of all rows, after they were all searched.
    before
        What is taken over from before the index changed. It is the state's, too, and let go once blocks are made anew,
        so that the old ones are freed.
    """

    storage: Storage
    centroids: NDArray[np.float32]
    references: NDArray[np.int32]
    reference_starts: NDArray[np.int64]
    ranking: Ranking | None
    screening: Screening | None
    in_memory: bool
    calibrations: dict[tuple[int, float, bool, bool], Calibration] = field(default_factory=dict)
    kept: dict[Element, Blocks | None] = field(default_factory=dict)
    own_groups: dict[str, Groups] = field(default_factory=dict)
    before: Before = field(default_factory=Before)

    @property
    def routes(self) -> Routes | None:
        """The means that lists are ranked by; None for routing to the nearest centroids."""
        return None if self.ranking is None else self.ranking.routes

    @derived
    def number(self) -> int:
        """How many lists there are in all partitions together."""
        return len(self.centroids) * len(self.centroids[0])

    @derived
    def places(self) -> Places:
        """The rows of all lists."""
        storage = self.storage
        starts = np.concatenate([storage.starts, storage.n + self.reference_starts[1:]])
        return Places(starts, self.references, self.reference_starts)

    def scanned(self, nprobe: int) -> float:
        """Return about how many rows a query meets."""
        return float(min(nprobe, self.number) * self.storage.n / self.centroids.shape[1])

    def group(self, queries: Queries, routes: Routes) -> Groups:
        """Return the groups of queries; kept where they are all rows, in order of lists."""
        if queries.order is None:
            return grouping.group(queries, routes)
        return once(self.own_groups, "all rows", lambda: grouping.group(queries, routes))

    @derived
    def element(self) -> Element:
        """What the numbers of blocks for many queries are to be: what a sample of the rows is searched faster with."""
        kinds = self._usable
        if len(kinds) == 1 or self.ranking is None:
            return kinds[0]
        before = self.before.taken_over
        if before is not None and before.element is not None:
            return before.element
        sample = Sample(self.storage, self.ranking)
        return faster(*(sample.seconds(self._blocks_of(sample, kind)) for kind in kinds))

    @derived
    def alone_by_blocks(self) -> bool:
        """Whether a sample of the rows, as single queries, is searched clearly faster in blocks of bytes than without.

        Blocks of floats save a single query too little.
        """
        before = self.before.taken_over
        if before is not None and before.alone_by_blocks is not None:
            return before.alone_by_blocks
        if self.ranking is None or not self._may_keep or "byte" not in self._usable:
            return False
        sample = Sample(self.storage, self.ranking)
        blocks = self._blocks_of(sample, "byte")
        return worth_blocks(sample.seconds_alone(None), sample.seconds_alone(blocks))

    @property
    def _usable(self) -> tuple[Element, ...]:
        if self.storage.d >= _MOST_BYTES:
            return ("float",)
        return usable(batch.bytes_of_all(self.storage.d, self.places, "float"), batch.MEMORY)

    @property
    def _may_keep(self) -> bool:
        """Whether blocks of all lists may be kept: of vectors in memory that are in one list each."""
        one_partition = self.places.rows == self.storage.n
        in_groups = self.ranking is not None and self.screening is None
        return self.in_memory and in_groups and one_partition and self.storage.codec == FLAT

    def _blocks_of(self, sample: Sample, element: Element) -> Blocks:
        return batch.blocks_of(self.storage, self.places, element, wanted=sample.wanted(len(self.places.starts) - 1))

    @property
    def blocks(self) -> Blocks | None:
        """Blocks of all lists: made for the first grouped search, and kept where they take little memory."""
        return self._all_blocks(self.element) if self._may_keep else None

    def _all_blocks(self, element: Element) -> Blocks | None:
        return once(self.kept, element, lambda: self._new_blocks(element))

    def _new_blocks(self, element: Element) -> Blocks | None:
        blocks = batch.all_blocks(self.storage, self.places, element)
        before = self.before.taken_over
        if element == "byte" or before is None or before.blocks is None:  # its blocks are for single queries
            self.before.let_go()
            vars(self).pop("single", None)  # with blocks of before
        return blocks

    @derived
    def single(self) -> Searcher | None:
        """What searches queries that are each ranked alone; None where codes of a quantizer or centroids decide."""
        if self.ranking is None or self.screening is not None:
            return None
        storage = self.storage
        blocks, changed = self._blocks_for_one()
        partitions = self.references, self.reference_starts
        return Searcher(storage.native, *partitions, self.ranking.native, storage.margin, blocks, changed)

    def _blocks_for_one(self) -> tuple[Blocks | None, NDArray[np.bool_]]:
        """Return blocks, where one query is searched faster by them, and which lists have changed since, (nlist,)."""
        if not self.alone_by_blocks:
            return None, _EVERYTHING
        before = self.before.taken_over
        if before is not None and before.blocks is not None:
            return before.blocks, before.not_in_blocks
        return self._all_blocks("byte"), _EVERYTHING

    def taken_over(self, lists: NDArray[np.int64]) -> TakenOver | None:
        """Return what an index takes over after some of its lists have changed."""
        nlist, made = len(self.storage.starts) - 1, vars(self)
        if self.ranking is None or self.number > nlist or nlist >= WORTH_CLUSTERS:  # clusters are of all lists
            return None
        centroids, changed = self.ranking.made()
        unchanged = np.zeros(nlist, np.bool_)
        before = self.before.taken_over or TakenOver(None, None, self.kept.get("byte"), unchanged, None, unchanged)
        element = made.get("element", before.element)
        alone_by_blocks = made.get("alone_by_blocks", before.alone_by_blocks)
        blocks = None if alone_by_blocks is False else before.blocks  # nothing but single queries would search them
        return TakenOver(element, alone_by_blocks, blocks, before.not_in_blocks, centroids, changed).after(lists)

    @derived
    def _scan(self) -> ListScan:
        return ListScan(self.storage.native, self.references, self.reference_starts)

    def single_search(self, lock: ReadWriteLock) -> SingleSearch | None:
        """Return what searches one query, for whoever is inside of the lock; None where :attr:`single` is."""
        single = self.single if self.storage.n else None
        return None if single is None else SingleSearch(lock, single)

    def probe(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        width: int,
        nprobe: int,
        complete: bool,
        allowed: NDArray[np.bool_],
    ) -> Results:
        """Return D, I of unit queries from the ``nprobe`` lists that each is routed to, (nq, width).

        With ``complete``, and where :attr:`single` searches, the search of a row goes on until it is complete.
        """
        single, nprobe = self.single, min(nprobe, self.number)
        if single is not None:
            D, I = np.empty((len(X), width), np.float32), np.empty((len(X), width), np.int64)
            single.search(X, labels, nprobe, complete, allowed, D, I, 1, None)
            return D, I
        D, I = empty_heaps(len(X), width)
        if self.ranking is None:
            lists = nearest_lists(X, self.centroids, nprobe)
        else:
            lists = self.ranking.lists(X, labels, nprobe)
        if self.screening is not None and nprobe < self.number:
            kept = self.screening.kept(width, self.storage.n)
            self._scan.scan_codes(self.screening.codes, X, labels, lists, allowed, kept, D, I)
        else:
            self._scan.scan(X, labels, lists, allowed, self.storage.margin, D, I)
        _native.sort_heaps(D, I)
        return D, I


def search(
    lists: InvertedLists,
    queries: Queries,
    k: int,
    made: Plan,
    *,
    complete: bool,
    progress: str | None = None,
) -> Results:
    """Search queries as planned, in groups or each alone, among some storage rows.

    With ``complete``, the search of a row goes on in four times as many lists until it holds min(k, eligible) results;
    those that are left then are searched alone.
    """
    width = min(k, lists.storage.n)
    # What threads write soon is not written here first; no step writes the rows of queries with an unknown label.
    D, I = np.empty((len(queries), width), np.float32), np.empty((len(queries), width), np.int64)
    unknown = queries.labels == UNKNOWN
    D[unknown], I[unknown] = PADDING, -1
    for nprobe, pending in _shares(lists, queries, made):
        _search_share(lists, Wanted(queries, pending, nprobe, D, I), made, complete, progress)
    return padded(D, I, k)


def _shares(lists: InvertedLists, queries: Queries, made: Plan) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each number of lists that is probed, and the queries that probe so many; a group probes its largest."""
    pending = np.arange(len(queries)) if queries.order is None else queries.order
    if made.calibration is None:
        yield made.nprobe, pending
        return
    probes = made.calibration.of(queries.labels)
    if made.batched and lists.routes is not None:
        groups = lists.group(queries, lists.routes)
        largest = np.maximum.reduceat(probes[groups.order], groups.starts[:-1]) if len(groups) else probes[:0]
        probes[groups.order] = np.repeat(largest, np.diff(groups.starts))
    for nprobe in np.unique(probes).tolist():
        yield nprobe, pending[probes[pending] == nprobe]


def _search_share(lists: InvertedLists, wanted: Wanted, made: Plan, complete: bool, progress: str | None) -> None:
    queries, pending, nprobe, D, I = wanted.queries, wanted.pending, wanted.nprobe, wanted.D, wanted.I
    allowed = made.allowed
    mask = _EVERYTHING if allowed is None else allowed
    if made.batched and len(pending):
        _search_in_groups(lists, wanted, made, progress)
        # After all lists there is nothing more to find: a damaged vector in a mapped file (NaN) never is.
        widen = complete and nprobe < lists.number
        pending = _incomplete(lists.storage, queries.labels, allowed, pending, I) if widen else pending[:0]
        nprobe *= _WIDER
    while len(pending):
        _search_alone(lists, Wanted(queries, pending, nprobe, D, I), complete, mask, progress)
        widen = complete and nprobe < lists.number and lists.single is None
        pending = _incomplete(lists.storage, queries.labels, allowed, pending, I) if widen else pending[:0]
        nprobe *= _WIDER


def _search_in_groups(lists: InvertedLists, wanted: Wanted, made: Plan, progress: str | None) -> None:
    """Search the pending queries list by list."""
    assert lists.routes is not None  # lists are ranked by their members of other classes
    rows = lists.storage, lists.places, lists.routes
    kept = lists.blocks if made.memory >= batch.MEMORY and made.allowed is None else None
    if kept is not None:
        batch.search_kept(*rows, kept, wanted, lists.group(wanted.chosen, lists.routes), progress)
    else:
        batch.search_in_parts(*rows, wanted, made, lists.element, progress)


def _search_alone(
    lists: InvertedLists, wanted: Wanted, complete: bool, mask: NDArray[np.bool_], progress: str | None
) -> None:
    """Search each pending query in the lists that are nearest to it, in chunks on all threads."""
    queries, pending, nprobe = wanted.queries, wanted.pending, wanted.nprobe

    def probe(cut: slice) -> None:
        chosen = pending[cut]
        X, labels = queries.fetch(chosen), queries.labels[chosen]
        wanted.D[chosen], wanted.I[chosen] = lists.probe(X, labels, wanted.D.shape[1], nprobe, complete, mask)

    work = float(len(pending)) * lists.storage.d * (lists.number + lists.scanned(nprobe))
    size = max(1, min(_CHUNK, -(-len(pending) // num_threads(work))))
    cuts = [slice(start, start + size) for start in range(0, len(pending), size)]
    run(probe, cuts, work=work, progress=progress)


def _incomplete(
    storage: Storage,
    labels: NDArray[np.int32],
    allowed: NDArray[np.bool_] | None,
    queries: NDArray[np.int64],
    I: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return those of the queries whose rows of I hold less than there is."""
    short_of_any: NDArray[np.bool_] = I[:, -1] < 0
    if not short_of_any.any():
        return queries[:0]
    queries = queries[short_of_any[queries]]
    wanted = np.minimum(storage.eligible(labels[queries], allowed), I.shape[1])
    short: NDArray[np.bool_] = (I[queries] >= 0).sum(axis=1) < wanted
    return queries[short]
