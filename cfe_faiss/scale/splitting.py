"""Splitting an index into shards: lists that are near each other go into the same one."""

from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_count
from cfe_faiss.files.format import write_index
from cfe_faiss.files.outputs import check_not_mapped, check_owner, is_one_of
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.index.transaction import Transaction
from cfe_faiss.lists.snapshot import Snapshot
from cfe_faiss.scale import shard_files


def write_shards(index: IndexEvidenceIVF, path: str | PathLike[str], shards: int, *, overwrite: bool = False) -> None:
    """Write an inverted file into several files, each with some of its lists.

    Lists that are near each other go into the same shard, and shards hold about as many vectors each, so that most
    queries need few of them. A folder that holds shards already has them replaced at once, when all new ones are
    complete; a write that is interrupted leaves the old ones.

    Parameters
    ----------
    index
        Trained, with one partition; from memory or mapped, from one file or from shards.
    path
        Folder; made if it does not exist.
    shards
        How many files, 1 to the number of lists that hold vectors.
    overwrite
        Whether to replace a file ``shards.json`` that this package has not written.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described; if there is another ``shards.json``, and ``overwrite`` is False; or if
        another object than ``index`` maps the shards in the folder.
    OSError
        If a file cannot be written.

    Notes
    -----
    Takes memory for a copy of one shard. Waits while another process or thread changes the shards in the folder.
    """
    if not isinstance(index, IndexEvidenceIVF):
        raise TypeError(f"index must be an IndexEvidenceIVF, got {type(index).__name__}")
    if index.partitions > 1:
        raise ValueError(f"index must have one partition, got {index.partitions}: references do not cross files")
    number, folder = as_count("shards", shards), Path(path).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    check_owner(folder / shard_files.MANIFEST, overwrite=overwrite)
    if not is_one_of(folder, index.origins):
        check_not_mapped(folder.iterdir())
    with shard_files.writing(folder):
        paths = shard_files.new_paths(folder, number)
        with index.reading():
            snapshot = index.snapshot()
            sizes = np.diff(snapshot.starts)
            filled = int(np.count_nonzero(sizes))
            if number > filled:
                raise ValueError(f"shards must be at most the {filled} lists that hold vectors, got {number}")
            owners = owners_of(snapshot.centroids[0], sizes, number)
            for shard, file in enumerate(paths):
                write_index(_part(index, snapshot, owners == shard), file)
        shard_files.write_manifest(folder, paths)
    index.origins = (*index.origins[:1], folder)


def _part(index: IndexEvidenceIVF, snapshot: Snapshot, wanted: NDArray[np.bool_]) -> IndexEvidenceIVF:
    """Return a copy of an index in which the lists that are not wanted, (nlist,), are empty."""
    nlist = len(wanted)
    part = IndexEvidenceIVF(
        index.d, nlist, theta=index.theta, weighted=index.weighted, complete=index.complete, routing=index.routing
    )
    part.nprobe = index.nprobe
    part.take_centroids(snapshot.centroids)
    lists = np.repeat(np.arange(nlist, dtype=np.int32), np.diff(snapshot.starts))
    rows = np.flatnonzero(wanted[lists])
    X, ids = snapshot.rows(rows)
    codes = np.ascontiguousarray(X).view(np.uint8)
    Transaction(part).append(codes, snapshot.labels[rows], ids, lists[rows][None])
    return part


def owners_of(centroids: NDArray[np.float32], sizes: NDArray[np.int64], shards: int) -> NDArray[np.intp]:
    """Return the shard of each list, (nlist,), given how many vectors each holds.

    Lists are halved along their principal direction until there are enough
    shards, each with about as many vectors; each shard gets at least one list that holds vectors.
    """
    owners = np.zeros(len(centroids), np.intp)
    runs = [(np.arange(len(centroids)), shards)]
    done = 0
    while runs:
        lists, number = runs.pop()
        if number == 1:
            owners[lists] = done
            done += 1
            continue
        X = centroids[lists].astype(np.float64)
        direction = np.linalg.eigh(np.cov(X.T, aweights=sizes[lists] + 1e-9).reshape(X.shape[1], -1))[1][:, -1]
        lists = lists[np.argsort(X @ direction, kind="stable")]
        left = number // 2
        filled = np.flatnonzero(sizes[lists])
        wanted = sizes[lists].sum() * left / number
        cut = int(np.searchsorted(np.cumsum(sizes[lists]), wanted)) + 1
        cut = min(max(cut, filled[left - 1] + 1), filled[len(filled) - (number - left)])
        runs += [(lists[cut:], number - left), (lists[:cut], left)]
    return owners
