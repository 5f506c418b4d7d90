"""Global evidence: the most similar pairs of different classes; groups of near duplicates.

All pairs are compared (:mod:`cfe_faiss.search.exact`), or most of them are skipped by a similarity
join (:mod:`cfe_faiss.search.join`) if that is estimated to be faster.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.base.checks import Array, Bools, Floats, Ints, as_count, require
from cfe_faiss.base.text import format_measure, summary
from cfe_faiss.base.threads import derived
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.searching import EvidenceIndex, check_index
from cfe_faiss.rows.metric import (
    Metric,
    as_threshold,
    flipped,
    is_distance,
    measure_of,
    measured,
    score_at,
)
from cfe_faiss.search import tiles
from cfe_faiss.search.conditions import Conditions
from cfe_faiss.search.exact import (
    NOTHING,
    Find,
    Found,
    Scan,
    Threshold,
    all_pairs,
    find_best,
    greedy,
    run_until_full,
    scans_of,
    select_best,
)
from cfe_faiss.search.join import BYTES_PER_ROW, JoinBlocks, join_blocks_of
from cfe_faiss.search.query import Effort, Queries, Query

# Below this number of multiplications, comparing all pairs is faster than building a tree.
_WORTH_BLOCKS = 1 << 32
_SAMPLE = 1 << 12
"""Rows that are compared with each other to estimate the k-th best similarity."""
_GROWTH = 2.0
"""Growth of the distance of the threshold from 1 if fewer than k pairs reach it."""
_LEAST_GAP = 1 / 64
"""Least distance of the threshold from 1 that grows."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Pairs:
    """Pairs of vectors with different labels, most similar first, each unordered pair once.

    Attributes
    ----------
    source, target
        Ids, (n,) int64, ``source < target``.
    similarity
        KS of each pair, (n,) float32, descending; for an index with metric "ip" or "l2", its inner
        product, or its squared distance, ascending. Ties: smaller ids first.
    missing
        Under constraints: number of index nodes left out for a missing value, by attribute.
    metric
        Metric of the index.
    """

    source: Ints
    target: Ints
    similarity: Floats
    missing: Mapping[str, int] = field(default_factory=dict)
    metric: Metric = "cosine"

    def __len__(self) -> int:
        return len(self.similarity)

    def __repr__(self) -> str:
        ends = measured(self.similarity[[0, -1][: len(self)]], self.metric)
        text = pairs_text(len(self), ends, measure_of(self.metric))
        return f"Pairs({text}{missing_text(self.missing)})"


def pairs_text(count: int, ends: Array, measure: str) -> str:
    """Format the number of pairs and the range of a measure, given its first and last value."""
    if count == 0:
        return "0 pairs"
    first, last = (format_measure(measure, value) for value in ends[[0, -1]])
    return (
        f"1 pair, {measure} {first}"
        if count == 1
        else f"{count:,} pairs, {measure} {first} to {last}"
    )


def missing_text(missing: Mapping[str, int]) -> str:
    """Format the numbers of nodes left out for missing values as the end of a ``repr``."""
    said = ", ".join(f"{count:,} without {name}" for name, count in missing.items())
    return f", left out: {said}" if said else ""


# --- comparing all pairs, or joining them ---------------------------------------------------------


@dataclass(frozen=True)
class CandidatePairs:
    """Candidate pairs: all pairs of stored rows, or the pairs that meet conditions.

    ``queries`` are all stored rows. ``memory`` limits the sketches of a join, in bytes. In the
    methods, ``free`` is a mask of the rows that a pair may contain, (n,) bool; None for all
    rows.
    """

    queries: Queries
    memory: int | None = None

    @derived
    def work(self) -> float:
        """Estimated number of multiplications to compare all pairs."""
        snapshot = self.queries.snapshot
        conditions = self.queries.conditions
        if conditions is None:
            return len(snapshot.by_label) ** 2 / 2 * snapshot.d
        return tiles.estimate_pairs_work(snapshot, conditions)

    @derived
    def blocks(self) -> JoinBlocks | None:
        """Blocks of the join; None if it is not worth its memory, or its bounds do not hold."""
        snapshot = self.queries.snapshot
        if snapshot.metric != "cosine":
            return None
        fits = self.memory is None or BYTES_PER_ROW * snapshot.n <= self.memory
        return join_blocks_of(snapshot) if fits and self.work > _WORTH_BLOCKS else None

    def best(self, k: int, progress: str | None) -> Found:
        """Return the k best pairs, best first."""
        if self.queries.uses is None:
            return self._best_of(k, None, progress)
        return self._choose(partial(self._best_of, progress=progress), k)

    def _best_of(self, k: int, free: Bools | None, progress: str | None) -> Found:
        """Compare all pairs, or run similarity joins if they are estimated to be faster.

        The threshold of the join is the k-th best known pair, from sibling blocks, or an estimate
        from a sample of rows, if that is higher. It is lowered until k pairs reach it.
        """
        blocks = self.blocks
        if blocks is None:
            return find_best(self._all(free), k, work=self.work, progress=progress)
        best = find_best(self._filter(blocks.neighbours(), free), k)
        floor = self._estimate(k, free)
        while True:
            if len(best[2]) == k:
                floor = max(floor, float(best[2][-1]))
            if floor < -1 or blocks.cost(floor) > self.work:
                return find_best(self._all(free), k, best, progress=progress)
            best = find_best(
                self._filter(blocks.scans(), free), k, best, floor=floor, progress=progress
            )
            if len(best[2]) == k and best[2][-1] >= floor:
                return best
            floor = 1 - _GROWTH * max(1 - floor, _LEAST_GAP)

    def above(self, threshold: float) -> list[Iterator[Found]]:
        """Return iterators over all pairs at or above a threshold, in parts."""
        if self.queries.uses is None:
            return [find(lambda: threshold) for find in self._above(threshold, None)]

        def find_free(number: int, free: Bools) -> Found:
            return find_best(self._above(threshold, free), number, floor=threshold, work=self.work)

        return [iter([self._choose(find_free, np.iinfo(np.int64).max)])]

    def _choose(self, search: Find, wanted: int) -> Found:
        """Return pairs of ids, each id in as many pairs as the conditions allow.

        ``search`` returns the best pairs of the free rows, as ids.
        """
        snapshot = self.queries.snapshot
        most = np.full(snapshot.n, self.queries.uses)

        def find(number: int, free: Bools) -> Found:
            source, target, scores = search(number, free)
            return snapshot.members.rows_of(source), snapshot.members.rows_of(target), scores

        source, target, scores = greedy(find, most, min(wanted, int(most.sum()) // 2))
        return snapshot.row_ids[source], snapshot.row_ids[target], scores

    def _above(self, threshold: float, free: Bools | None) -> list[Scan]:
        """Return scans of all pairs of a threshold, by the join if it seems to be faster."""
        if self.blocks is None or self.blocks.cost(threshold) > self.work:
            return self._all(free)
        return self._filter(self.blocks.scans(), free)

    def _all(self, free: Bools | None) -> list[Scan]:
        """Return scans that compare all pairs."""
        if self.queries.conditions is None:
            return all_pairs(self.queries.snapshot)
        pairs = tiles.pairs_by_conditions(self.queries.snapshot, self.queries.conditions, free)
        return scans_of(pairs.blocks, once=True)

    def _estimate(self, k: int, free: Bools | None) -> float:
        """Estimate a similarity, from a sample of rows, that k to 4 k pairs reach.

        -infinity if it holds too few.
        """
        snapshot = self.queries.snapshot
        rows = snapshot.by_label
        if len(rows) > _SAMPLE:
            rows = rows[np.sort(np.random.default_rng(0).choice(len(rows), _SAMPLE, replace=False))]
        share = (len(rows) / len(snapshot.by_label)) ** 2
        wanted = math.ceil(2 * k * share) + 2
        scores = find_best(self._filter(all_pairs(snapshot, rows), free), wanted)[2]
        return float(scores[-1]) if len(scores) == wanted else -math.inf

    def _filter(self, scans: list[Scan], free: Bools | None) -> list[Scan]:
        """Filter the scans' pairs by the conditions and by ``free``."""
        conditions = self.queries.conditions
        if conditions is None:
            return scans
        return [partial(self._filter_scan, conditions, free, scan) for scan in scans]

    def _filter_scan(
        self, conditions: Conditions, free: Bools | None, find: Scan, threshold: Threshold
    ) -> Iterator[Found]:
        members = self.queries.snapshot.members
        for source, target, scores in find(threshold):
            rows = members.rows[np.searchsorted(members.ids, [source, target])]
            allowed: Bools = (
                np.ones(len(scores), bool) if free is None else free[rows[0]] & free[rows[1]]
            )
            allowed[allowed] = conditions.allow(*rows[:, allowed])
            yield source[allowed], target[allowed], scores[allowed]


# --- searches -------------------------------------------------------------------------------------


def global_evidence(  # noqa: PLR0913
    index: EvidenceIndex,
    k: int,
    *,
    exact: bool | None = None,
    per_node: bool = False,
    nprobe: int | None = None,
    recall: float | None = None,
    memory: int | None = None,
    where: Constraints | None = None,
    attributes: Any = None,
    graph: Any = None,
    progress: bool = False,
) -> Pairs:
    """Return the k most similar pairs with different labels (paper, Problem 2, generalised to k).

    Parameters
    ----------
    index
        A flat or IVF evidence index.
    k
        Number of pairs, >= 1. Fewer are returned if the index has fewer.
    exact
        True, the default without ``nprobe`` and ``recall``, returns the exact k best pairs. False
        searches the evidence of each vector in the index, and more of it for vectors that may still
        have a pair among the k best. It misses the pairs that the index search misses.
    per_node
        True runs the paper's Algorithm 3 instead: each vector contributes only its best evidence.
    nprobe, recall
        Instead of ``exact=True``: effort of each vector's search, as in ``search_evidence``.
    memory
        Limit in bytes, >= 1, for copies of vectors, and for the sketches of the join (see Notes).
    where
        :class:`cfe_faiss.Constraints` that the pairs must meet. The search is then exact. With
        ``per_node=True``, each vector contributes its best evidence under the constraints.
    attributes
        Attributes that the constraints use, for every id of the index: a pandas DataFrame (indexed
        by id), a polars DataFrame, PyG Data, or a mapping from names to arrays (row i for id i).
    graph
        Graph that the constraints use, with ids as nodes, as for :func:`cfe_faiss.ks_vectors`.
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    Pairs
        Best first.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    An exact search takes n**2 / 2 * d multiplications and O(k) memory; or, if estimated to be
    faster and ``memory`` allows it, a similarity join that skips most pairs by upper bounds, with
    280 bytes of memory per vector.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels([[1, 0], [0.8, 0.6], [0, 1], [0.6, 0.8]], [0, 1, 0, 0])
    >>> pairs = cfe.global_evidence(index, k=2)
    >>> pairs.source, pairs.target
    (array([1, 0]), array([3, 1]))
    >>> where = cfe.Constraints(antiexact="age")
    >>> cfe.global_evidence(index, k=2, where=where, attributes={"age": [30, 41, 41, 41]}).target
    array([1])
    """
    check_index(index)
    k = as_count("k", k)
    effort = Effort.of(nprobe, recall, bool(exact), memory)
    _check_where(where, attributes, graph)
    if where is not None and (exact is False or nprobe is not None or recall is not None):
        raise ValueError(
            "exact=False, nprobe and recall must be left out with where: such a search is exact"
        )
    if exact is None and nprobe is None and recall is None:
        effort = effort._replace(exact=True)
    query = Query(1, where=where, attributes=attributes, graph=graph)
    if per_node:
        return _find_best_of_each(index, k, query, effort, progress)
    if where is None and not effort.exact:
        return _as_pairs(_search_pairs(index, k, effort, progress), index)
    with index.holding() as snapshot:
        queries = query.bind(snapshot)
        pairs = CandidatePairs(queries, effort.memory).best(k, "Comparing" if progress else None)
    return _as_pairs(pairs, index, queries.missing)


def _as_pairs(
    found: Found, index: EvidenceIndex, missing: Mapping[str, int] | None = None
) -> Pairs:
    """Return pairs, best first, from their scores."""
    return Pairs(*found[:2], flipped(found[2], index.metric), missing or {}, index.metric)


def _check_where(where: Constraints | None, attributes: Any, graph: Any) -> None:
    for name, given in (("attributes", attributes), ("graph", graph)):
        if where is None and given is not None:
            raise ValueError(f"{name} must be left out without where, as it has no effect then")


def evidence_pairs(
    index: EvidenceIndex,
    threshold: float,
    *,
    block: int = 1 << 20,
    where: Constraints | None = None,
    attributes: Any = None,
    graph: Any = None,
) -> Iterator[Pairs]:
    """Yield all pairs with different labels and a similarity of at least ``threshold``, in blocks.

    Parameters
    ----------
    index
        A flat or IVF evidence index. It must not change during the iteration.
    threshold
        Lowest similarity, in [-1, 1]; for an index with metric "ip" or "l2", any inner product, or
        the largest squared distance.
    block
        Maximum number of pairs per block, >= 1. Memory holds about one block.
    where, attributes, graph
        As in :func:`global_evidence`. With ``ratio`` or ``replace=False``, all pairs are chosen and
        held in memory before the first block is yielded.

    Returns
    -------
    Iterator of Pairs
        Non-empty blocks. Each block is sorted best first; the blocks are in no order. Each
        unordered pair occurs in one block, once.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    RuntimeError
        While iterating, if the index has changed.

    Notes
    -----
    As in :func:`global_evidence` with ``exact=True``, a similarity join skips pairs that provably
    are below the threshold, if that is estimated to be faster than comparing all pairs.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels([[1, 0], [0.8, 0.6], [0, 1], [0.6, 0.8]], [0, 1, 0, 0])
    >>> for pairs in cfe.evidence_pairs(index, threshold=0.7):
    ...     print(pairs.source, pairs.target, pairs.similarity.round(2))
    [1 0] [3 1] [0.96 0.8 ]
    """
    check_index(index)
    threshold = as_threshold("threshold", threshold, index.metric)
    block = as_count("block", block)
    _check_where(where, attributes, graph)
    query = Query(where=where, attributes=attributes, graph=graph)
    with index.holding() as snapshot:
        candidates = CandidatePairs(query.bind(snapshot))
    return _stream(index, candidates, score_at(threshold, index.metric), block)


def _stream(
    index: EvidenceIndex, candidates: CandidatePairs, threshold: float, block: int
) -> Iterator[Pairs]:
    """Run all scans in parallel until a block is full. Resume them for the next block."""
    with _holding_unchanged(index, candidates):
        pending = candidates.above(threshold)
    while pending:
        with _holding_unchanged(index, candidates):
            pairs, pending = run_until_full(pending, block, candidates.work)
        for part in tiles.slices(len(pairs[2]), block):
            yield _as_pairs(
                (pairs[0][part], pairs[1][part], pairs[2][part]), index, candidates.queries.missing
            )


@contextmanager
def _holding_unchanged(index: EvidenceIndex, candidates: CandidatePairs) -> Iterator[None]:
    """Hold the read lock; RuntimeError if the index has changed since it was bound."""
    with index.holding() as snapshot:
        if snapshot is not candidates.queries.snapshot:
            raise RuntimeError("the index has changed while its pairs were iterated over")
        yield


def _find_best_of_each(
    index: EvidenceIndex, k: int, query: Query, effort: Effort, progress: bool
) -> Pairs:
    with index.holding() as snapshot:
        queries = query.bind(snapshot)
        if queries.uses is not None:
            raise ValueError("replace=False and ratio must be left out with per_node=True")
        D, I = index.answer_on(queries.snapshot, queries, effort, progress)
        ids = queries.snapshot.members.ids
    found = I[:, 0] >= 0
    scores = flipped(D[found, 0], index.metric)
    return _as_pairs(select_best([(ids[found], I[found, 0], scores)], k), index, queries.missing)


def _search_pairs(index: EvidenceIndex, k: int, effort: Effort, progress: bool) -> Found:
    """Increase the depth of each search until its last result is below the k-th best pair."""
    with index.holding() as snapshot:
        everything = ids = snapshot.members.ids
        depth = min(4, k)
        best = NOTHING
        while len(ids):
            query = Query(depth, ids=None if ids is everything else ids)
            D, I = index.answer_on(snapshot, query, effort, progress)
            S = flipped(D, index.metric)
            row, place = np.nonzero(I >= 0)
            best = select_best(
                [best, select_best([(ids[row], I[row, place], S[row, place])], k)], k
            )
            if depth == k:
                break
            could_hold_more = I[:, -1] >= 0
            if len(best[2]) == k:
                could_hold_more &= S[:, -1] >= best[2][-1]
            ids = ids[could_hold_more]
            depth = min(4 * depth, k)
        return best


# --- groups of near duplicates, by complete linkage -----------------------------------------------

_MOST_PAIRS = 1 << 26
_MOST_LINKED_ROWS = 1 << 13
"""Rows of one component; its matrix of distances takes 512 MiB."""
_TOO_MANY = "threshold must be one of nearer rows, got {!r} with more than {}"


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Rows of a store that are all near duplicates of each other.

    Attributes
    ----------
    ids
        Ids of the rows, at least two, in the order in which they were added.
    representative
        Id of the medoid: the row with the largest sum of similarities to the others.
    similarity
        Least similarity of two rows; for metric "l2" the largest squared distance.
    """

    ids: list[str]
    representative: str
    similarity: float

    __repr__ = summary

    def __len__(self) -> int:
        return len(self.ids)


def duplicate_groups(
    ids: NDArray[np.object_], X: Floats, metric: Metric, threshold: float
) -> list[DuplicateGroup]:
    """Return the groups of rows of complete linkage, cut at a threshold of D, the largest first.

    Only pairs at the threshold are compared: SciPy links the connected components of their graph.

    Raises
    ------
    TypeError, ValueError
        If the metric has no such threshold, or too many rows are linked for the memory.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # 0.2 s, half of the import of a store
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial.distance import squareform

    n = len(X)
    index = IndexEvidenceFlat(X.shape[1], metric)
    index.add_with_labels(X, np.arange(n))
    parts = []
    count = 0
    for block in evidence_pairs(index, threshold):
        count += len(block)
        require(count <= _MOST_PAIRS, _TOO_MANY.format(threshold, f"{_MOST_PAIRS:,} pairs"))
        parts.append((block.source, block.target, flipped(block.similarity, metric)))
    if not parts:
        return []
    source, target, scores = map(np.concatenate, zip(*parts, strict=True))
    graph = coo_array((np.ones(count, bool), (source, target)), shape=(n, n))
    component = connected_components(graph, directed=False)[1]
    linked = f"{_MOST_LINKED_ROWS:,} rows that are linked by pairs"
    require(np.bincount(component).max() <= _MOST_LINKED_ROWS, _TOO_MANY.format(threshold, linked))
    order = np.argsort(component[source], kind="stable")
    groups = []
    for pairs in np.split(order, np.flatnonzero(np.diff(component[source[order]])) + 1):
        rows, places = np.unique([source[pairs], target[pairs]], return_inverse=True)
        away = scores[pairs].max() - scores[pairs].astype(np.float64)
        cut = float(scores[pairs].max()) - score_at(threshold, metric)
        distances = np.full((len(rows), len(rows)), 2 * cut + 1)  # farther than the cut
        np.fill_diagonal(distances, 0)
        first, second = places.reshape(2, -1)
        distances[first, second] = away
        distances[second, first] = away
        cluster_of = fcluster(linkage(squareform(distances), "complete"), cut, "distance")
        for number in np.flatnonzero(np.bincount(cluster_of) > 1):
            members = np.flatnonzero(cluster_of == number)
            inside = distances[np.ix_(members, members)]
            score = float(scores[pairs].max() - inside.max())
            groups.append(
                DuplicateGroup(
                    ids[rows[members]].tolist(),
                    ids[rows[members[inside.sum(axis=1).argmin()]]],
                    -score if is_distance(metric) else score,
                )
            )
    groups.sort(key=len, reverse=True)
    return groups
