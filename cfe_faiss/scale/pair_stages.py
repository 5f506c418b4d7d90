"""The most similar pairs of a sharded index, in tasks that each hold the sketches of few of its vectors.

The rows of the index are cut into groups of neighbouring lists. Each group has a tree of its own, in files; all trees
have sketches along the same directions, so that any two can be joined (:mod:`cfe_faiss.search.join`). A task joins one
group with itself and with half of the others. Where the evidence of the nodes holds enough pairs, the worst of the k
best of them is a similarity below which no task needs to look.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.temporary import release
from cfe_faiss.lists.snapshot import Snapshot
from cfe_faiss.lists.topk import PADDING
from cfe_faiss.scale import tables
from cfe_faiss.scale.index_stages import opened
from cfe_faiss.scale.sharded import ShardedEvidenceIndex
from cfe_faiss.scale.splitting import owners_of
from cfe_faiss.scale.work import Settings, Stage, Work
from cfe_faiss.search.exact import NOTHING, Found, Scan, all_pairs, best_of, pairs_between, slices, until_full
from cfe_faiss.search.join import Blocks, blocks_along, directions_of

GROUP_ROWS = 1 << 17
"""Rows of a group, at most. It must be the same whenever a job is resumed, whatever its memory and workers are."""
_SAMPLE = 1 << 16  # rows of which directions are found, at least, if there are so many
_PAIR_BYTES = 200  # of a pair that is found, while pairs are sorted and written
_PAIRS = 1 << 20  # written at once, at most
_FIRST_GAP = 1 / 64  # the first guess of how far the worst of the k best pairs is from 1
_EVIDENCE, _PAIR = ("node", "evidence", "similarity"), ("source", "target", "similarity")
_ARRAYS = tuple(field.name for field in fields(Blocks) if field.name not in ("storage", "largest"))


def stages(settings: Settings, shards: int) -> list[Stage]:
    """Return the stages from an index of so many shards, and the evidence of its nodes, to pairs."""
    if not settings.pairs and settings.threshold is None:
        return []
    groups, index = -(-settings.n // GROUP_ROWS), ("shard", "join")
    reads, evidence = ("groups", "sketch", *index), ("evidence",) if settings.pairs else ()
    found = [
        Stage("groups", 1, partial(cut_into_groups, groups=groups, shards=shards), (*index, *evidence)),
        Stage("sketch", groups, partial(sketch, groups=groups), ("groups", *index)),
    ]
    if settings.pairs:
        found.append(Stage("pairs", groups, partial(pairs, groups=groups), reads))
        found.append(Stage("top", 1, partial(top, groups=groups), ("pairs",)))
    if settings.threshold is not None:
        found.append(Stage("above", groups, partial(above, groups=groups), reads))
    return found


# --- the trees --------------------------------------------------------------------------------------------------------


def cut_into_groups(work: Work, _: int, groups: int, shards: int) -> Mapping[str, Any]:
    """Write the lists in the order in which they are cut into groups, directions, and where the best pairs begin."""
    index = opened(work)
    storage = index.storage()
    sizes = np.diff(storage.starts)
    owners = owners_of(index.centroids()[0], sizes, min(groups, int(np.count_nonzero(sizes))))
    rows = np.arange(0, storage.n, max(1, storage.n // _SAMPLE))
    directions = directions_of(storage, rows[storage.labels[rows] != UNKNOWN])
    floor = np.array([_worst_of_best(work, shards)]) if work.settings.pairs else np.empty(0)
    work.write("groups", 0, lists=np.argsort(owners, kind="stable"), directions=directions, floor=floor)
    return {}


def _worst_of_best(work: Work, shards: int) -> float:
    """Return the similarity of the k-th best pair in the evidence of all nodes; -inf where it holds fewer."""
    k, files = work.settings.pairs, [work.path("evidence", number, "parquet") for number in range(shards)]
    best = best_of([partial(tables.pairs_in, path, _EVIDENCE) for path in files], k)[2]
    return float(best[-1]) if len(best) == k else -math.inf


def sketch(work: Work, number: int, groups: int) -> Mapping[str, Any]:
    """Write the tree of a group."""
    index = opened(work)
    storage = index.storage()
    borders = storage.n * number // groups, storage.n * (number + 1) // groups
    rows = _rows_between(storage, work.read("groups", 0, "lists"), *borders)
    rows = rows[storage.labels[rows] != UNKNOWN]
    blocks = blocks_along(storage, rows, np.asarray(work.read("groups", 0, "directions"))) if len(rows) else None
    if blocks is None:
        work.write("sketch", number, rows=rows[:0])
    else:
        arrays = {name: getattr(blocks, name) for name in _ARRAYS}
        work.write("sketch", number, largest=np.array([blocks.largest]), **arrays)
    return {"rows": 0 if blocks is None else len(blocks.rows)}


def _rows_between(storage: Snapshot, lists: NDArray[np.int64], first: int, stop: int) -> NDArray[np.int64]:
    """Return the storage rows in places ``first`` to ``stop - 1`` of those of some lists in their order; ascending."""
    sizes = np.diff(storage.starts)[lists]
    ends = np.cumsum(sizes)
    begins = ends - sizes
    taken = np.flatnonzero((ends > first) & (begins < stop))
    shifts = storage.starts[lists[taken]] - begins[taken]
    spans = zip(shifts, np.maximum(begins[taken], first), np.minimum(ends[taken], stop), strict=True)
    return np.sort(np.concatenate([np.arange(low, high) + shift for shift, low, high in spans]))


# --- pairs of groups --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Joined:
    """A group that is joined with others, one at a time; the trees are mapped from their files."""

    work: Work
    index: ShardedEvidenceIndex  # holds what the storage of all groups refers to
    own: Blocks
    partners: list[int]

    @classmethod
    def of(cls, work: Work, number: int, groups: int) -> Self | None:
        """Return what a task joins; None if its group is empty."""
        index = opened(work)
        own = _read(work, index.storage(), number)
        return None if own is None else cls(work, index, own, partners_of(number, groups))

    def _others(self) -> Iterator[Blocks | None]:
        """Yield what the group is joined with: None for itself."""
        yield None
        for partner in self.partners:
            others = _read(self.work, self.own.storage, partner)
            if others is not None:
                yield others
                release(*(getattr(others, name) for name in _ARRAYS))

    def _effort(self, others: Blocks | None) -> float:
        """Return about how many multiplications it takes to compare all pairs."""
        rows = len(self.own.rows)
        return (rows / 2 if others is None else len(others.rows)) * rows * self.own.storage.d

    def scans(self, others: Blocks | None, threshold: float) -> list[Scan]:
        """Return what finds the pairs at or above a threshold, whichever is estimated to be faster."""
        if self.own.cost(threshold, others) <= self._effort(others):
            return self.own.scans(others, threshold)
        rows = _by_label(self.own)
        if others is None:
            return all_pairs(self.own.storage, rows)
        return pairs_between(self.own.storage, rows, _by_label(others))

    def is_worth_joining(self, threshold: float) -> bool:
        """Return whether joins are estimated to be faster than to compare all pairs."""
        totals = np.sum([(self.own.cost(threshold, others), self._effort(others)) for others in self._others()], axis=0)
        return bool(totals[0] <= totals[1])

    def best(self, k: int, floor: float, best: Found = NOTHING) -> Found:
        """Return the k best of all pairs at or above a similarity, and of those found before."""
        for others in self._others():
            least = max(floor, float(best[2][-1])) if len(best[2]) == k else floor
            best = best_of(self.scans(others, least), k, best, floor=least)
        return best

    def best_of_all(self, k: int) -> Found:
        """Return the k best of all pairs, where nothing is known of how similar they are."""
        best, gap = best_of(self.own.neighbours(), k), _FIRST_GAP
        while gap <= 2:
            floor = max(1 - gap, float(best[2][-1])) if len(best[2]) == k else 1 - gap
            if not self.is_worth_joining(floor):
                break
            best = self.best(k, floor, best)
            if len(best[2]) == k and best[2][-1] >= floor:
                return best
            gap *= 2
        return self.best(k, float(PADDING), best)

    def above(self, threshold: float) -> Iterator[Found]:
        """Yield all pairs at or above a threshold, some at a time."""
        size = max(1, min(_PAIRS, self.work.memory // _PAIR_BYTES))
        for others in self._others():
            pending = [find(lambda: threshold) for find in self.scans(others, threshold)]
            while pending:
                found, pending = until_full(pending, size)
                for part in slices(len(found[2]), size):
                    yield found[0][part], found[1][part], found[2][part]


def partners_of(number: int, groups: int) -> list[int]:
    """Return which groups a task joins with its own: of any two, one or the other, so that all have as much to do."""
    last = groups // 2 if groups % 2 or number < groups // 2 else groups // 2 - 1
    return [(number + step) % groups for step in range(1, last + 1)]


def _read(work: Work, storage: Snapshot, number: int) -> Blocks | None:
    """Return the tree of a group, mapped; None if it has no rows."""
    if not len(work.read("sketch", number, "rows")):
        return None
    arrays = {name: work.read("sketch", number, name) for name in _ARRAYS}
    return Blocks(storage, largest=float(work.read("sketch", number, "largest")[0]), **arrays)


def _by_label(blocks: Blocks) -> NDArray[np.int64]:
    return blocks.rows[np.argsort(blocks.labels, kind="stable")]


# --- pairs ------------------------------------------------------------------------------------------------------------


def pairs(work: Work, number: int, groups: int) -> Mapping[str, Any]:
    """Write those pairs of a group, with itself and some others, that may be among the best."""
    k, floor, joined = work.settings.pairs, float(work.read("groups", 0, "floor")[0]), _Joined.of(work, number, groups)
    if joined is None:
        best = NOTHING
    elif floor == -math.inf:
        best = joined.best_of_all(k)
    else:
        best = joined.best(k, floor)
    return _write(work, "pairs", number, iter([best]))


def top(work: Work, _: int, groups: int) -> Mapping[str, Any]:
    """Write the most similar pairs of all nodes, exactly."""
    files = [work.path("pairs", number, "parquet") for number in range(groups)]
    best = best_of([partial(tables.pairs_in, path, _PAIR) for path in files], work.settings.pairs)
    return _write(work, "top", 0, iter([best]))


def above(work: Work, number: int, groups: int) -> Mapping[str, Any]:
    """Write all pairs of a group, with itself and some others, at or above the threshold."""
    joined = _Joined.of(work, number, groups)
    found: Iterator[Found] = iter(())
    if joined is not None and work.settings.threshold is not None:
        found = joined.above(float(np.float32(work.settings.threshold)))
    return _write(work, "above", number, found)


def _write(work: Work, stage: str, number: int, found: Iterator[Found]) -> Mapping[str, Any]:
    path = work.new(work.path(stage, number, "parquet"))
    return {"pairs": tables.write(path, tables.pairs_schema(), map(tables.pairs_batch, found))}
