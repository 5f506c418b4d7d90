"""From KS vectors in blocks to shards of an evidence index, and to the evidence of every node."""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_labels, as_unit_rows
from cfe_faiss.base.temporary import release
from cfe_faiss.coarse.kmeans import nearest_numbers, spherical_kmeans, training_rows
from cfe_faiss.files.format import write_index
from cfe_faiss.files.new_file import new_file
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.index.transaction import Transaction
from cfe_faiss.scale import tables
from cfe_faiss.scale.shard_files import INDEX, MANIFEST, manifest_of
from cfe_faiss.scale.sharded import ShardedEvidenceIndex
from cfe_faiss.scale.splitting import owners_of
from cfe_faiss.scale.work import Work


def vectors(work: Work, block: int) -> NDArray[np.float32]:
    """Return the KS vectors of a block, as an index stores them."""
    stored = work.read("vectors", block, "X")
    X = as_unit_rows("X", stored)
    release(stored)
    return X


def train(work: Work, _: int) -> Mapping[str, Any]:
    """Write the centroids of all lists: those that ``IndexEvidenceIVF.train`` finds of all vectors."""
    settings = work.settings
    cp = IndexEvidenceIVF(settings.d, settings.nlist).cp
    chosen = training_rows(settings.n, settings.nlist, cp, cp.seed)
    rows = np.arange(settings.n) if chosen is None else chosen.astype(np.int64)
    X = _gathered(work, rows)
    centroids = spherical_kmeans(X, settings.nlist, np.ones(len(X), np.float32), cp, cp.seed)
    work.write("train", 0, centroids=centroids)
    return {}


def assign(work: Work, block: int) -> Mapping[str, Any]:
    """Write the list of each vector of a block."""
    centroids = np.asarray(work.read("train", 0, "centroids"))
    work.write("assign", block, lists=nearest_numbers(vectors(work, block), centroids))
    return {}


def place(work: Work, _: int) -> Mapping[str, Any]:
    """Write which shard holds each list."""
    settings = work.settings
    sizes = np.zeros(settings.nlist, np.int64)
    for block in range(settings.blocks):
        sizes += np.bincount(work.read("assign", block, "lists"), minlength=settings.nlist)
    shards = min(settings.shards, int(np.count_nonzero(sizes)))
    owners = owners_of(np.asarray(work.read("train", 0, "centroids")), sizes, shards)
    work.write("place", 0, owners=owners.astype(np.int32))
    return {"shards": shards}


def shard(work: Work, number: int) -> Mapping[str, Any]:
    """Write the index file of a shard."""
    settings = work.settings
    owners, lists, rows = work.read("place", 0, "owners"), [], []
    for block in range(settings.blocks):
        of_block = work.read("assign", block, "lists")
        own = np.flatnonzero(owners[of_block] == number)
        rows.append(own + settings.rows(block)[0])
        lists.append(np.asarray(of_block[own]))
    ids = np.concatenate(rows)
    labels = as_labels("labels", np.asarray(work.inputs["labels"].array()[ids]), len(ids), unknown=True)
    index = IndexEvidenceIVF(settings.d, settings.nlist)
    index.take_centroids(np.array(work.read("train", 0, "centroids"))[None])
    codes = _gathered(work, ids).view(np.uint8)
    Transaction(index).append(codes, labels, ids, np.concatenate(lists)[None])
    write_index(index, work.new(shard_path(work.folder, number)), overwrite=True)
    return {"vectors": len(ids)}


def shard_path(folder: Path, number: int) -> Path:
    """Return where the file of a shard lies."""
    return folder / INDEX / f"shard-{number:06d}.index"


def join(work: Work, _: int) -> Mapping[str, Any]:
    """Write which shards belong together, and how many lists are probed for the recall that is wanted."""
    settings = work.settings
    shards = int(np.asarray(work.read("place", 0, "owners")).max()) + 1
    path = work.new(work.folder / INDEX / MANIFEST)
    with new_file(path, overwrite=True) as file:
        file.write(manifest_of([shard_path(work.folder, number) for number in range(shards)]))
    index = ShardedEvidenceIndex.open(path.parent)
    recall = settings.recall
    return {"nprobe": index.nlist if recall is None else index.nprobe_for(recall, settings.k)}


def evidence(work: Work, number: int, nprobe: int) -> Mapping[str, Any]:
    """Write the evidence of the vectors of a shard, as if all were searched at once."""
    index = opened(work)
    ids, D, I = index.search_shard(number, work.settings.k, nprobe, memory=work.memory // 2)
    path = work.new(work.path("evidence", number, "parquet"))
    tables.write(path, tables.evidence_schema(), tables.evidence_batches(ids, D, I))
    return {"nodes": len(ids), "rows": int((I >= 0).sum())}


def _gathered(work: Work, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the vectors of some nodes, in their order; each block is read once."""
    X = np.empty((len(rows), work.settings.d), np.float32)
    blocks = rows // work.settings.block_rows
    order = np.argsort(blocks, kind="stable")
    borders = np.searchsorted(blocks[order], np.arange(work.settings.blocks + 1))
    for block in range(work.settings.blocks):
        places = order[borders[block] : borders[block + 1]]
        if len(places):
            X[places] = vectors(work, block)[rows[places] - work.settings.rows(block)[0]]
    return X


def opened(work: Work) -> ShardedEvidenceIndex:
    """Return the index of a job as it is, opened once for all tasks of a worker."""
    folder = work.folder / INDEX
    return _opened(folder, _state_of(folder))


def is_index(folder: Path) -> bool:
    """Return whether the folder of a job holds an index that can be opened, whoever has written it."""
    try:
        ShardedEvidenceIndex.open(folder / INDEX)
    except (FileNotFoundError, ValueError):
        return False
    return True


@lru_cache(maxsize=1)
def _opened(folder: Path, _: tuple[Any, ...]) -> ShardedEvidenceIndex:
    return ShardedEvidenceIndex.open(folder)


def _state_of(folder: Path) -> tuple[Any, ...]:
    """Return what tells the files in a folder from those that were there before."""
    files = sorted((file.name, file.stat()) for file in os.scandir(folder))
    return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files)
