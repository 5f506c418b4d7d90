"""Stages from KS vectors to the shards of an evidence index, and to the evidence of every node."""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_labels, as_unit_rows
from cfe_faiss.base.temporary import release
from cfe_faiss.coarse.kmeans import nearest_numbers, spherical_kmeans, training_rows
from cfe_faiss.files.format import write_index
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.scale.inputs import Settings, Task
from cfe_faiss.scale.manifest import Manifest
from cfe_faiss.scale.sharded import INDEX, MANIFEST, ShardedEvidenceIndex, owners_of, shard_of, write_manifest
from cfe_faiss.scale.tasks import Stage

_NODES = 1 << 17  # nodes of one part of a table


def stages(settings: Settings, manifest: Manifest) -> list[Stage]:
    """Return the stages from KS vectors to evidence; stages of shards are known after "place"."""
    found = [
        Stage("train", 1, train, ("vectors",)),
        Stage("assign", settings.blocks, assign, ("vectors", "train")),
        Stage("place", 1, place, ("train", "assign")),
    ]
    for placed in manifest.of_stage("place"):
        shards = placed.result["shards"]
        found.append(Stage("shard", shards, shard, ("vectors", "train", "assign", "place")))
        found.append(Stage("join", 1, join, ("shard", "place")))
        for joined in manifest.of_stage("join"):
            found.append(Stage("evidence", shards, partial(evidence, **joined.result), ("shard", "join")))
    return found


def train(task: Task) -> None:
    """Write the centroids of all lists, as ``IndexEvidenceIVF.train`` computes them from all vectors."""
    settings = task.settings
    cp = IndexEvidenceIVF(settings.d, settings.nlist).cp
    sample = training_rows(settings.n, settings.nlist, cp, cp.seed)
    X = _vectors_of(task, np.arange(settings.n) if sample is None else sample.astype(np.int64))
    task.write(centroids=spherical_kmeans(X, settings.nlist, np.ones(len(X), np.float32), cp, cp.seed))


def assign(task: Task) -> None:
    """Write the list of each vector of a block."""
    centroids = np.asarray(task.read("train", 0, "centroids"))
    task.write(lists=nearest_numbers(_vectors(task, task.block), centroids))


def place(task: Task) -> Mapping[str, Any]:
    """Write the shard of each list."""
    settings = task.settings
    sizes = np.zeros(settings.nlist, np.int64)
    for lists in task.read_blocks("assign", "lists"):
        sizes += np.bincount(lists, minlength=settings.nlist)
    shards = min(settings.shards, int(np.count_nonzero(sizes)))
    owners = owners_of(np.asarray(task.read("train", 0, "centroids")), sizes, shards)
    task.write(owners=owners.astype(np.int32))
    return {"shards": shards}


def shard(task: Task) -> Mapping[str, Any]:
    """Write the index file of a shard."""
    settings = task.settings
    owners, lists, rows = task.read("place", 0, "owners"), [], []
    for block, of_block in enumerate(task.read_blocks("assign", "lists")):
        own = np.flatnonzero(owners[of_block] == task.block)
        rows.append(own + settings.rows(block)[0])
        lists.append(np.asarray(of_block[own]))
    ids = np.concatenate(rows)
    labels = as_labels("labels", np.asarray(task.inputs["labels"].array()[ids]), len(ids), unknown=True)
    centroids = np.array(task.read("train", 0, "centroids"))[None]
    index = shard_of(centroids, np.concatenate(lists), _vectors_of(task, ids), labels, ids)
    write_index(index, task.new(_shard_path(task.folder, task.block)), overwrite=True)
    return {"vectors": len(ids)}


def _shard_path(folder: Path, number: int) -> Path:
    return folder / INDEX / f"shard-{number:06d}.index"


def join(task: Task) -> Mapping[str, Any]:
    """Write the list of shards; return the nprobe for the job's recall."""
    settings = task.settings
    shards = int(np.asarray(task.read("place", 0, "owners")).max()) + 1
    path = task.new(task.folder / INDEX / MANIFEST)
    write_manifest(path.parent, [_shard_path(task.folder, number) for number in range(shards)])
    index = ShardedEvidenceIndex.open(path.parent)
    return {"nprobe": index.nlist if settings.recall is None else index.nprobe_for(settings.recall, settings.k)}


def evidence(task: Task, nprobe: int) -> Mapping[str, Any]:
    """Write the evidence of the vectors of a shard, with the results of a search for all vectors."""
    ids, D, I = open_index(task).search_shard(task.block, task.settings.k, nprobe, memory=task.memory // 2)
    return {"nodes": len(ids), "rows": task.write_table(evidence_table(ids, D, I))}


def evidence_table(
    ids: NDArray[np.int64], D: NDArray[np.float32], I: NDArray[np.int64]
) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield the evidence of nodes, (n,), D and I, (n, k), in one part or more, by ascending node, without padding."""
    order = np.argsort(ids, kind="stable")
    for first in range(0, max(len(order), 1), _NODES):
        some = order[first : first + _NODES]
        row, rank = np.nonzero(I[some] >= 0)
        nodes, found, similarity = ids[some][row], I[some][row, rank], D[some][row, rank]
        yield {"node": nodes, "evidence": found, "rank": (rank + 1).astype(np.int32), "similarity": similarity}


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


# --- the index of a job -----------------------------------------------------------------------------------------------


def open_index(task: Task) -> ShardedEvidenceIndex:
    """Return the current index of a job, opened once for all tasks of a worker."""
    folder = task.folder / INDEX
    files = sorted((file.name, file.stat()) for file in os.scandir(folder))
    return _open(folder, tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files))


@lru_cache(maxsize=1)
def _open(folder: Path, _: tuple[Any, ...]) -> ShardedEvidenceIndex:
    return ShardedEvidenceIndex.open(folder)
