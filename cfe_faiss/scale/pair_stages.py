"""Stages to the most similar pairs of a sharded index, each task with few sketches.

The rows of the index are divided into groups of neighbouring lists. Each group has a tree in files.
All trees have sketches along the same directions, so that any two can be joined
(:mod:`cfe_faiss.search.join`). A task joins one group with itself and with half of the other
groups. If the evidence of the nodes holds k pairs, the worst of the k best is a lower bound for the
similarity of every result.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.extras import extra
from cfe_faiss.base.temporary import release
from cfe_faiss.rows.metric import PADDING
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.scale.index_stages import open_index
from cfe_faiss.scale.inputs import Settings, Task
from cfe_faiss.scale.sharded import owners_of
from cfe_faiss.scale.tasks import Stage
from cfe_faiss.search.exact import (
    NOTHING,
    Found,
    Scan,
    Threshold,
    all_pairs,
    find_best,
    pairs_between,
    run_until_full,
)
from cfe_faiss.search.join import JoinBlocks, directions_of, join_blocks_along
from cfe_faiss.search.tiles import slices

GROUP_ROWS = 1 << 17
"""Largest number of rows in a group.

A resumed job needs the same value, so it depends on no memory or workers.
"""
_SAMPLE = (
    1 << 16
)  # smallest number of rows from which directions are computed, if there are as many
_PAIR_BYTES = 200  # per pair, while pairs are sorted and written
_PAIRS = 1 << 20  # largest number of pairs in one write
_EVIDENCE = ("node", "evidence", "similarity")
_PAIR = ("source", "target", "similarity")
_ARRAYS = tuple(
    field.name for field in fields(JoinBlocks) if field.name not in ("snapshot", "largest")
)


def stages(settings: Settings) -> list[Stage]:
    """Return the stages from evidence to pairs."""
    if not settings.pairs and settings.threshold is None:
        return []
    groups = -(-settings.n // GROUP_ROWS)
    index = ("shard", "join")
    evidence = ("evidence",) if settings.pairs else ()
    reads = ("groups", "sketch", *index)
    pair_stages = [
        Stage("groups", 1, partial(cut_into_groups, groups=groups), (*index, *evidence)),
        Stage("sketch", groups, partial(sketch, groups=groups), ("groups", *index)),
    ]
    if settings.pairs:
        pair_stages.append(Stage("pairs", groups, partial(pairs, groups=groups), reads))
        pair_stages.append(Stage("top", 1, partial(top, groups=groups), ("pairs",)))
    if settings.threshold is not None:
        run = partial(above, groups=groups, threshold=settings.threshold)
        pair_stages.append(Stage("above", groups, run, reads))
    return pair_stages


# --- trees ----------------------------------------------------------------------------------------


def cut_into_groups(task: Task, groups: int) -> None:
    """Write the order of the lists by groups, directions, and a bound for the best pairs."""
    index = open_index(task)
    snapshot = index.storage()
    sizes = np.diff(snapshot.starts)
    owners = owners_of(index.centroids()[0], sizes, min(groups, int(np.count_nonzero(sizes))))
    rows = np.arange(0, snapshot.n, max(1, snapshot.n // _SAMPLE))
    directions = directions_of(snapshot, rows[snapshot.labels[rows] != UNKNOWN])
    best = (
        _best_in(task, "evidence", task.settings.shards, _EVIDENCE)[2]
        if task.settings.pairs
        else np.empty(0)
    )
    floor = best[-1] if len(best) == task.settings.pairs > 0 else -math.inf
    task.write(
        lists=np.argsort(owners, kind="stable"), directions=directions, floor=np.array([floor])
    )


def _best_in(task: Task, stage: str, files: int, columns: tuple[str, str, str]) -> Found:
    """Return the most similar pairs in the tables of a stage."""
    paths = [task.path(stage, number, "parquet") for number in range(files)]
    return find_best([partial(pairs_in, path, columns) for path in paths], task.settings.pairs)


def pairs_in(path: Path, columns: tuple[str, str, str], threshold: Threshold) -> Iterator[Found]:
    """Yield the pairs of a file at or above a threshold: two ids and a similarity."""
    with extra("store"):
        import pyarrow.parquet as pq
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=list(columns)):
            source, target, similarity = (batch.column(name).to_numpy() for name in columns)
            chosen = np.flatnonzero(similarity >= threshold())
            yield source[chosen], target[chosen], similarity[chosen]


def sketch(task: Task, groups: int) -> None:
    """Write the tree of a group."""
    index = open_index(task)
    snapshot = index.storage()
    borders = snapshot.n * task.block // groups, snapshot.n * (task.block + 1) // groups
    rows = _rows_between(snapshot, task.read("groups", 0, "lists"), *borders)
    rows = rows[snapshot.labels[rows] != UNKNOWN]
    blocks = (
        join_blocks_along(snapshot, rows, np.asarray(task.read("groups", 0, "directions")))
        if len(rows)
        else None
    )
    if blocks is None:
        task.write(rows=rows[:0])
        return
    task.write(
        largest=np.array([blocks.largest]), **{name: getattr(blocks, name) for name in _ARRAYS}
    )


def _rows_between(
    snapshot: Snapshot, lists: NDArray[np.int64], first: int, stop: int
) -> NDArray[np.int64]:
    """Return the rows at positions ``first`` to ``stop - 1`` of ``lists``, ascending."""
    sizes = np.diff(snapshot.starts)[lists]
    ends = np.cumsum(sizes)
    shifts = snapshot.starts[lists] - (ends - sizes)
    taken = np.diff(np.clip(ends, first, stop), prepend=first)
    return np.sort(np.arange(first, stop) + np.repeat(shifts, taken))


# --- pairs of groups ------------------------------------------------------------------------------


def _joins(task: Task, groups: int) -> Iterator[tuple[JoinBlocks, JoinBlocks | None]]:
    """Yield the group of a task with None, for itself, and with each of its partners.

    Trees are mapped from files.
    """
    snapshot = open_index(task).storage()
    blocks = _read(task, snapshot, task.block)
    if blocks is None:
        return
    yield blocks, None
    for partner in partners_of(task.block, groups):
        others = _read(task, snapshot, partner)
        if others is not None:
            yield blocks, others
            release(*(getattr(others, name) for name in _ARRAYS))


def partners_of(number: int, groups: int) -> list[int]:
    """Return the groups that a task joins with its own.

    Each two groups are joined once, and tasks do equal work.
    """
    last = groups // 2 if groups % 2 or number < groups // 2 else groups // 2 - 1
    return [(number + step) % groups for step in range(1, last + 1)]


def _read(task: Task, snapshot: Snapshot, number: int) -> JoinBlocks | None:
    """Return the tree of a group, mapped; None if the group has no rows."""
    if not len(task.read("sketch", number, "rows")):
        return None
    arrays = {name: task.read("sketch", number, name) for name in _ARRAYS}
    return JoinBlocks(snapshot, largest=float(task.read("sketch", number, "largest")[0]), **arrays)


def _scans(blocks: JoinBlocks, others: JoinBlocks | None, threshold: float) -> list[Scan]:
    """Return scans for pairs at or above a threshold: joins or full comparisons, by estimated cost.

    Without ``others``, the pairs are within the blocks.
    """
    rows = len(blocks.rows)
    pairs_to_compare = rows * (rows / 2 if others is None else len(others.rows))
    if blocks.cost(threshold, others) <= pairs_to_compare * blocks.snapshot.d:
        return blocks.scans(others, threshold)
    if others is None:
        return all_pairs(blocks.snapshot, _by_label(blocks))
    return pairs_between(blocks.snapshot, _by_label(blocks), _by_label(others))


def _by_label(blocks: JoinBlocks) -> NDArray[np.int64]:
    return blocks.rows[np.argsort(blocks.labels, kind="stable")]


# --- pairs ----------------------------------------------------------------------------------------


def pairs(task: Task, groups: int) -> None:
    """Write the candidates for the best pairs from the joins of a group."""
    k = task.settings.pairs
    floor = float(task.read("groups", 0, "floor")[0])
    best = NOTHING
    for blocks, others in _joins(task, groups):
        if others is None and floor == -math.inf:  # no lower bound is known
            best = find_best(blocks.neighbours(), k)
            floor = float(PADDING)
        least = max(floor, float(best[2][-1])) if len(best[2]) == k else floor
        best = find_best(_scans(blocks, others, least), k, best, floor=least)
    _write(task, [best])


def top(task: Task, groups: int) -> None:
    """Write the most similar pairs of all nodes, exactly."""
    _write(task, [_best_in(task, "pairs", groups, _PAIR)])


def above(task: Task, groups: int, threshold: float) -> None:
    """Write all pairs at or above the threshold from the joins of a group."""
    _write(task, _pairs_above(task, groups, float(np.float32(threshold))))


def _pairs_above(task: Task, groups: int, threshold: float) -> Iterator[Found]:
    """Yield all pairs of the joins of a group in parts."""
    size = max(1, min(_PAIRS, task.memory // _PAIR_BYTES))
    for blocks, others in _joins(task, groups):
        pending = [find(lambda: threshold) for find in _scans(blocks, others, threshold)]
        while pending:
            best, pending = run_until_full(pending, size)
            for part in slices(len(best[2]), size):
                yield best[0][part], best[1][part], best[2][part]


def _write(task: Task, pairs_found: Iterable[Found]) -> None:
    parts = chain([NOTHING], pairs_found)  # an empty part tells the types if there is no other
    task.write_table(dict(zip(_PAIR, part, strict=True)) for part in parts)
