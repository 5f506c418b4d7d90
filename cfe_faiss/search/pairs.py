"""Pairs of stored rows: the best ones, and all at or above a threshold.

All pairs are compared (:mod:`cfe_faiss.search.exact`), or most of them are skipped by a similarity
join (:mod:`cfe_faiss.search.join`) if that is estimated to be faster. If a row may be in few pairs
only, they are chosen greedily, most similar first. So is the evidence of queries under such a
limit.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cfe_faiss.base.checks import Bools, Ints
from cfe_faiss.base.threads import derived
from cfe_faiss.rows.metric import make_results
from cfe_faiss.search import exact, tiles
from cfe_faiss.search.conditions import Conditions
from cfe_faiss.search.exact import NOTHING, Found, Scan, Threshold
from cfe_faiss.search.join import BYTES_PER_ROW, JoinBlocks, join_blocks_of
from cfe_faiss.search.query import Queries, Results
from cfe_faiss.search.tiles import estimate_work

# Below this number of multiplications, comparing all pairs is faster than building a tree.
_WORTH_BLOCKS = 1 << 32
_SAMPLE = 1 << 12
"""Rows that are compared with each other to estimate the k-th best similarity."""
_GROWTH = 2.0
"""Growth of the distance of the threshold from 1 if fewer than k pairs reach it."""
_LEAST_GAP = 1 / 64
"""Least distance of the threshold from 1 that grows."""
_FIRST = 1 << 10
_MOST = 1 << 20
"""Number of pairs in the first batch, and in the largest."""

Find = Callable[[int, Bools], Found]
"""Returns some best pairs among the free nodes, best first."""


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
            return exact.find_best(self._all(free), k, work=self.work, progress=progress)
        best = exact.find_best(self._filter(blocks.neighbours(), free), k)
        floor = self._estimate(k, free)
        while True:
            if len(best[2]) == k:
                floor = max(floor, float(best[2][-1]))
            if floor < -1 or blocks.cost(floor) > self.work:
                return exact.find_best(self._all(free), k, best, progress=progress)
            best = exact.find_best(
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
            return exact.find_best(
                self._above(threshold, free), number, floor=threshold, work=self.work
            )

        return [iter([self._choose(find_free, np.iinfo(np.int64).max)])]

    def _choose(self, find_best: Find, wanted: int) -> Found:
        """Return pairs of ids, each id in as many pairs as the conditions allow.

        ``find_best`` returns the best pairs of the free rows, as ids.
        """
        snapshot = self.queries.snapshot
        most = np.full(snapshot.n, self.queries.uses)

        def find(number: int, free: Bools) -> Found:
            source, target, scores = find_best(number, free)
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
            return exact.all_pairs(self.queries.snapshot)
        pairs = tiles.pairs_by_conditions(self.queries.snapshot, self.queries.conditions, free)
        return exact.scans_of(pairs.blocks, once=True)

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
        scores = exact.find_best(self._filter(exact.all_pairs(snapshot, rows), free), wanted)[2]
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


# --- greedy choice --------------------------------------------------------------------------------


def greedy(find: Find, capacity: Ints, wanted: int) -> Found:
    """Choose pairs, best first, such that no node exceeds its capacity.

    Parameters
    ----------
    find
        Function that returns pairs of positions, (p,) each.
    capacity
        Maximum number of pairs of each node, by position, (n,) int64.
    wanted
        Maximum number of pairs.

    Returns
    -------
    Found
        The chosen pairs in the order of ``find``.

    Notes
    -----
    Pairs are requested in batches, among nodes with remaining capacity. The first new pair of a
    batch is always chosen, so the loop ends. Batches grow, so it ends soon.
    """
    left = capacity.copy()
    size = len(capacity)
    chosen = NOTHING
    number = max(_FIRST, min(_MOST, 4 * wanted))
    while len(chosen[2]) < wanted:
        free = left > 0
        again = free[chosen[0]] & free[chosen[1]]
        most = number + int(again.sum())
        found = find(most, free)
        known = chosen[0][again] * size + chosen[1][again]
        new = np.flatnonzero(~np.isin(found[0] * size + found[1], known))
        taken = new[_take(found[0][new], found[1][new], left, wanted - len(chosen[2]))]
        picked = found[0][taken], found[1][taken], found[2][taken]
        one, other, scores = (
            np.concatenate(parts) for parts in zip(*[chosen, picked], strict=True)
        )
        chosen = one, other, scores
        if len(found[2]) < most:
            break
        number = min(2 * number, _MOST)
    return chosen


def _take(source: Ints, target: Ints, left: Ints, wanted: int) -> Ints:
    """Return the chosen pairs, in order, and reduce the capacity ``left`` of their nodes."""
    taken = []
    nodes = np.union1d(source, target)
    remaining = dict(zip(nodes.tolist(), left[nodes].tolist(), strict=True))
    for place, (a, b) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        if remaining[a] and remaining[b]:
            remaining[a] -= 1
            remaining[b] -= 1
            taken.append(place)
            if len(taken) == wanted:
                break
    left[nodes] = list(remaining.values())
    return np.array(taken, np.int64)


def search_greedily(queries: Queries, progress: str | None) -> Results:
    """Return the evidence D, I of queries under conditions that limit how often a row is used.

    Ties: first query first, then smaller id.
    """
    snapshot = queries.snapshot
    nq = len(queries)
    capacity = np.concatenate([np.full(nq, queries.k), np.full(snapshot.n, queries.uses)])

    def find(number: int, free: Bools) -> Found:
        free_queries = replace(queries.among(free[nq:]), usable=queries.usable & free[:nq])
        query, found, scores = exact.find_best(
            exact.scans_of_queries(free_queries),
            number,
            work=estimate_work(snapshot, nq),
            progress=progress,
            select=exact.select_directed,
        )
        return query, nq + snapshot.members.rows_of(found), scores

    most = min(nq * queries.k, int(capacity[nq:].sum()))
    query, place, scores = greedy(find, capacity, most)
    D, I = make_results(nq, queries.k)
    order = np.argsort(query, kind="stable")
    query = query[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    D[query, rank] = scores[order]
    I[query, rank] = snapshot.row_ids[place[order] - nq]
    return D, I
