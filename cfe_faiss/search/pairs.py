"""Pairs of stored rows: the best ones, and all at or above a threshold.

All pairs are compared (:mod:`cfe_faiss.search.exact`), or most of them are skipped by a similarity
join (:mod:`cfe_faiss.search.join`) if that is estimated to be faster. If a row may be in few pairs
only, they are chosen greedily (:mod:`cfe_faiss.search.greedy`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from cfe_faiss.base.arrays import Bools
from cfe_faiss.base.derived import derived
from cfe_faiss.search import exact, greedy, tiles
from cfe_faiss.search.conditions import Conditions
from cfe_faiss.search.exact import Found, Scan, Threshold
from cfe_faiss.search.join import BYTES_PER_ROW, JoinBlocks, join_blocks_of
from cfe_faiss.search.query import Queries

# Below this number of multiplications, comparing all pairs is faster than building a tree.
_WORTH_BLOCKS = 1 << 32
_SAMPLE = 1 << 12
"""Rows that are compared with each other to estimate the k-th best similarity."""
_GROWTH = 2.0
"""Growth of the distance of the threshold from 1 if fewer than k pairs reach it."""
_LEAST_GAP = 1 / 64
"""Least distance of the threshold from 1 that grows."""


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
        """JoinBlocks of the join; None if it is not worth its memory, or its bounds do not hold."""
        snapshot = self.queries.snapshot
        if snapshot.metric != "cosine":
            return None
        fits = self.memory is None or BYTES_PER_ROW * snapshot.n <= self.memory
        return join_blocks_of(snapshot) if fits and self.work > _WORTH_BLOCKS else None

    def best(self, k: int, progress: str | None) -> Found:
        """Return the k best pairs, best first."""
        if self.queries.uses is None:
            return self._best_of(k, None, progress)
        find = partial(self._best_of, progress=progress)
        return greedy.pairs(find, self.queries.snapshot, self.queries.uses, k)

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

        every_pair = np.iinfo(np.int64).max
        return [
            iter([greedy.pairs(find_free, self.queries.snapshot, self.queries.uses, every_pair)])
        ]

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
