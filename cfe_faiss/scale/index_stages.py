"""Stages from KS vectors to the shards of an index, the evidence of every node, and pairs.

For the most similar pairs, the rows of the index are divided into groups of neighbouring lists.
Each group has a tree in files. All trees have sketches along the same directions, so that any two
can be joined (:mod:`cfe_faiss.search.join`). A task joins one group with itself and with half of
the other groups, and needs few sketches. If the evidence of the nodes holds k pairs, the worst of
the k best is a lower bound for the similarity of every result.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN, as_labels, as_unit_rows
from cfe_faiss.base.extras import extra
from cfe_faiss.base.temporary import release
from cfe_faiss.coarse.partitions import nearest_numbers, spherical_kmeans, training_rows
from cfe_faiss.files.format import write_index
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.rows.metric import PADDING
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.scale.job_files import Settings, Task
from cfe_faiss.scale.sharded import (
    INDEX,
    MANIFEST,
    ShardedEvidenceIndex,
    owners_of,
    shard_of,
    write_manifest,
)
from cfe_faiss.scale.tasks import Stage
from cfe_faiss.search.exact import (
    NOTHING,
    Found,
    Scan,
    Threshold,
    all_pairs,
    find_best,
    run_until_full,
    scans_of,
)
from cfe_faiss.search.join import JoinBlocks, directions_of, join_blocks_along
from cfe_faiss.search.tiles import slices, tiles_between

_NODES = 1 << 17  # nodes of one part of a table
GROUP_ROWS = 1 << 17
"""Largest number of rows in a group.

A resumed job needs the same value, so it depends on no memory or workers.
"""
_SAMPLE = 1 << 16
"""Smallest number of rows from which directions are computed, if there are as many."""
_PAIR_BYTES = 200  # per pair, while pairs are sorted and written
_PAIRS = 1 << 20  # largest number of pairs in one write
_EVIDENCE = ("node", "evidence", "similarity")
_PAIR = ("source", "target", "similarity")
_ARRAYS = tuple(
    field.name for field in fields(JoinBlocks) if field.name not in ("snapshot", "largest")
)


def stages(settings: Settings) -> list[Stage]:
    """Return the stages from KS vectors to evidence."""
    return [
        Stage("train", 1, train, ("vectors",)),
        Stage("assign", settings.blocks, assign, ("vectors", "train")),
        Stage("place", 1, place, ("train", "assign")),
        Stage("shard", settings.shards, shard, ("vectors", "train", "assign", "place")),
        Stage("join", 1, join, ("shard", "place")),
        Stage("tune", 1, tune, ("shard", "join")),
        Stage("evidence", settings.shards, evidence, ("shard", "join", "tune")),
    ]


def pair_stages(settings: Settings) -> list[Stage]:
    """Return the stages from evidence to pairs."""
    if not settings.pairs and settings.threshold is None:
        return []
    groups = -(-settings.n // GROUP_ROWS)
    index = ("shard", "join")
    evidence = ("evidence",) if settings.pairs else ()
    reads = ("groups", "sketch", *index)
    of_pairs = [
        Stage("groups", 1, partial(cut_into_groups, groups=groups), (*index, *evidence)),
        Stage("sketch", groups, partial(sketch, groups=groups), ("groups", *index)),
    ]
    if settings.pairs:
        of_pairs.append(Stage("pairs", groups, partial(pairs, groups=groups), reads))
        of_pairs.append(Stage("top", 1, partial(top, groups=groups), ("pairs",)))
    if settings.threshold is not None:
        run = partial(above, groups=groups, threshold=settings.threshold)
        of_pairs.append(Stage("above", groups, run, reads))
    return of_pairs


def train(task: Task) -> None:
    """Write the centroids of all lists that ``IndexEvidenceIVF.train`` computes."""
    settings = task.settings
    cp = IndexEvidenceIVF(settings.d, settings.nlist).cp
    sample = training_rows(settings.n, settings.nlist, cp, cp.seed)
    X = _vectors_of(task, np.arange(settings.n) if sample is None else sample.astype(np.int64))
    task.write(
        centroids=spherical_kmeans(X, settings.nlist, np.ones(len(X), np.float32), cp, cp.seed)
    )


def assign(task: Task) -> None:
    """Write the list of each vector of a block."""
    centroids = np.asarray(task.read("train", 0, "centroids"))
    task.write(lists=nearest_numbers(_vectors(task, task.block), centroids))


def place(task: Task) -> None:
    """Write the shard of each list.

    The last shards have none if fewer lists than shards hold vectors.
    """
    settings = task.settings
    sizes = np.zeros(settings.nlist, np.int64)
    for lists in task.read_blocks("assign", "lists"):
        sizes += np.bincount(lists, minlength=settings.nlist)
    shards = min(settings.shards, int(np.count_nonzero(sizes)))
    owners = owners_of(np.asarray(task.read("train", 0, "centroids")), sizes, shards)
    task.write(owners=owners.astype(np.int32))


def shard(task: Task) -> None:
    """Write the index file of a shard."""
    owners = task.read("place", 0, "owners")
    parts = []
    for block, lists in enumerate(task.read_blocks("assign", "lists")):
        rows = np.flatnonzero(owners[lists] == task.block)
        parts.append((rows + task.settings.rows(block)[0], lists[rows]))
    ids, lists = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if not len(ids):
        return
    labels = as_labels(
        "labels", np.asarray(task.inputs["labels"].array()[ids]), len(ids), unknown=True
    )
    centroids = np.array(task.read("train", 0, "centroids"))[None]
    index = shard_of(centroids, lists, _vectors_of(task, ids), labels, ids)
    write_index(index, task.new(_shard_path(task.folder, task.block)), overwrite=True)


def _shard_path(folder: Path, number: int) -> Path:
    return folder / INDEX / f"shard-{number:06d}.index"


def join(task: Task) -> None:
    """Write the list of shards."""
    shards = int(task.read("place", 0, "owners").max()) + 1
    path = task.new(task.folder / INDEX / MANIFEST)
    write_manifest(path.parent, [_shard_path(task.folder, number) for number in range(shards)])


def tune(task: Task) -> None:
    """Write the nprobe for the job's recall."""
    index = open_index(task)
    recall = task.settings.recall
    task.write(
        nprobe=np.array(
            [index.nlist if recall is None else index.nprobe_for(recall, task.settings.k)]
        )
    )


def evidence(task: Task) -> None:
    """Write the evidence of the vectors of a shard, as a search for all vectors has it."""
    index = open_index(task)
    k = task.settings.k
    results = np.empty(0, np.int64), np.empty((0, k), np.float32), np.empty((0, k), np.int64)
    if task.block < len(index.shards):
        nprobe = int(task.read("tune", 0, "nprobe")[0])
        results = index.search_shard(task.block, k, nprobe, memory=task.memory // 2)
    task.write_table(evidence_table(*results))


def evidence_table(
    ids: NDArray[np.int64], D: NDArray[np.float32], I: NDArray[np.int64]
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the evidence of nodes by ascending node, without padding: (n,), D and I."""
    order = np.argsort(ids, kind="stable")
    for first in range(0, max(len(order), 1), _NODES):
        part = order[first : first + _NODES]
        row, rank = np.nonzero(I[part] >= 0)
        yield {
            "node": ids[part[row]],
            "evidence": I[part[row], rank],
            "rank": (rank + 1).astype(np.int32),
            "similarity": D[part[row], rank],
        }


def _vectors(task: Task, block: int) -> NDArray[np.float32]:
    """Return the KS vectors of a block, as an index stores them."""
    stored = task.read("vectors", block, "X")
    X = as_unit_rows("X", stored)
    release(stored)
    return X


def _vectors_of(task: Task, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the KS vectors of some nodes in their order; reads each block once."""
    X = np.empty((len(rows), task.settings.d), np.float32)
    blocks = rows // task.settings.block_rows
    order = np.argsort(blocks, kind="stable")
    borders = np.searchsorted(blocks[order], np.arange(task.settings.blocks + 1))
    for block in range(task.settings.blocks):
        places = order[borders[block] : borders[block + 1]]
        if len(places):
            X[places] = _vectors(task, block)[rows[places] - task.settings.rows(block)[0]]
    return X


# --- the index of a job ---------------------------------------------------------------------------


def open_index(task: Task) -> ShardedEvidenceIndex:
    """Return the current index of a job, opened once for all tasks of a worker."""
    status = (task.folder / INDEX / MANIFEST).stat()
    return _open(task.folder / INDEX, status.st_ino, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _open(folder: Path, *_: int) -> ShardedEvidenceIndex:
    return ShardedEvidenceIndex.open(folder)


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
    snapshot = open_index(task).storage()
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
    return scans_of(tiles_between(blocks.snapshot, _by_label(blocks), _by_label(others)))


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
