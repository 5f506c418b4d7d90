"""Stages from KS vectors to the shards of an evidence index, and to the evidence of every node."""

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_labels, as_unit_rows
from cfe_faiss.base.temporary import release
from cfe_faiss.coarse.partitions import nearest_numbers, spherical_kmeans, training_rows
from cfe_faiss.files.format import write_index
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.scale.inputs import Settings, Task
from cfe_faiss.scale.sharded import (
    INDEX,
    MANIFEST,
    ShardedEvidenceIndex,
    owners_of,
    shard_of,
    write_manifest,
)
from cfe_faiss.scale.tasks import Stage

_NODES = 1 << 17  # nodes of one part of a table


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
    if task.block < len(index.shards):
        nprobe = int(task.read("tune", 0, "nprobe")[0])
        results = index.search_shard(task.block, k, nprobe, memory=task.memory // 2)
    else:
        results = np.empty(0, np.int64), np.empty((0, k), np.float32), np.empty((0, k), np.int64)
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
