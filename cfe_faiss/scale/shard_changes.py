"""Changes of an index in shards: which shards change, and how; each is read into memory, changed and written anew."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_labels, as_unit_rows
from cfe_faiss.coarse.kmeans import nearest_numbers
from cfe_faiss.files.format import read_index, write_index
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.index.transaction import Transaction
from cfe_faiss.lists import id_map
from cfe_faiss.lists.snapshot import Members
from cfe_faiss.scale.shard_files import Shards, new_paths
from cfe_faiss.scale.splitting import owners_of

Checked = tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int64]]
"""Unit vectors, their labels and their ids."""
Edit = Callable[[IndexEvidenceIVF], None]
"""What changes a shard in memory."""


def write_changed(shards: Shards, edits: Mapping[int, Edit]) -> list[Path]:
    """Write the shards that change into new files, one after the other, and return the files of all."""
    paths = shards.paths
    fresh = new_paths(shards.folder, len(paths))
    for number, edit in edits.items():
        index = cast(IndexEvidenceIVF, read_index(paths[number]))
        edit(index)
        write_index(index, fresh[number])
        del index  # before the next one is read
        paths[number] = fresh[number]
    return paths


# --- adding -----------------------------------------------------------------------------------------------------------


def checked_blocks(blocks: Iterable[Any], d: int, first: int) -> Iterator[Checked]:
    """Yield the blocks (x, labels) or (x, labels, ids) that a caller hands in, as they are stored.

    Where no ids are given, vectors get their number, counted from ``first``.
    """
    for number, block in enumerate(_iterable(blocks, "(x, labels) or (x, labels, ids)")):
        with _naming(number):
            if not isinstance(block, tuple | list) or len(block) not in (2, 3):
                raise TypeError(f"blocks must be tuples (x, labels) or (x, labels, ids), got {_described(block)}")
            x, labels, ids = block if len(block) == 3 else (*block, None)
            X = as_unit_rows("x", x, d)
            checked = X, as_labels("labels", labels, len(X)), id_map.distinct_ids(ids, len(X), first)
        first += len(X)
        yield checked


@dataclass(frozen=True, slots=True)
class NewVectors:
    """Vectors to be added, in a file: block after block, each in order of the shards.

    Attributes
    ----------
    file
        What holds them.
    record
        The type of one: its vector, id, label and list.
    counts
        How many vectors of each block go into each shard, (blocks, shards).
    ids
        Of all of them, (n,).
    """

    file: BinaryIO
    record: np.dtype[Any]
    counts: NDArray[np.int64]
    ids: NDArray[np.int64]

    def edits(self) -> dict[int, Edit]:
        """Return what adds the vectors to their shards."""
        touched = np.flatnonzero(self.counts.any(axis=0)).tolist()
        return {number: partial(self._add_to, number) for number in touched}

    def _add_to(self, number: int, index: IndexEvidenceIVF) -> None:
        firsts = (np.cumsum(self.counts) - self.counts.reshape(-1)).reshape(self.counts.shape)
        for first, count in zip(firsts[:, number].tolist(), self.counts[:, number].tolist(), strict=True):
            if count:
                records = self._read(first, count)
                codes = np.ascontiguousarray(records["x"]).view(np.uint8)
                ids, labels, lists = (np.ascontiguousarray(records[name]) for name in ("id", "label", "list"))
                Transaction(index).append(codes, labels, ids, lists[None])

    def _read(self, first: int, count: int) -> NDArray[Any]:
        records = np.empty(count, self.record)
        self.file.seek(first * self.record.itemsize)
        cast(Any, self.file).readinto(records.view(np.uint8))
        return records


def sorted_into(
    file: BinaryIO, blocks: Iterable[Checked], shards: Shards, centroids: NDArray[np.float32]
) -> NewVectors:
    """Write vectors into a file, each block in order of the shards that hold their nearest lists."""
    homes, number = _homes(shards, centroids), len(shards.indexes)
    d = centroids.shape[1]
    record = np.dtype([("x", np.float32, (d,)), ("id", np.int64), ("label", np.int32), ("list", np.int32)])
    counts, all_ids = [], [np.empty(0, np.int64)]
    for X, labels, ids in blocks:
        lists = nearest_numbers(X, centroids)
        order = np.argsort(homes[lists], kind="stable")
        records = np.empty(len(X), record)
        for name, column in (("x", X), ("id", ids), ("label", labels), ("list", lists)):
            records[name] = column[order]
        file.write(records.view(np.uint8).data)
        counts.append(np.bincount(homes[lists], minlength=number))
        all_ids.append(ids)
    return NewVectors(file, record, np.array(counts, np.int64).reshape(-1, number), np.concatenate(all_ids))


def _homes(shards: Shards, centroids: NDArray[np.float32]) -> NDArray[np.intp]:
    """Return the shard of each list, (nlist,); one without vectors goes to the shard of the nearest list that has some.

    Where no list has any, all are distributed as if each had one.
    """
    filled, homes = shards.sizes > 0, shards.owners.copy()
    if not filled.any():
        return owners_of(centroids, np.ones(len(centroids), np.int64), len(shards.indexes))
    if not filled.all():
        homes[~filled] = homes[filled][nearest_numbers(centroids[~filled], centroids[filled])]
    return homes


# --- relabelling and removing -----------------------------------------------------------------------------------------


def relabelled(labels: NDArray[np.int32], members: Members, blocks: Iterable[Any]) -> NDArray[np.int32]:
    """Return the labels of all rows, (n,), after those of blocks (labels, ids) were given to members."""
    result = labels.copy()
    for number, block in enumerate(_iterable(blocks, "(labels, ids)")):
        with _naming(number):
            if not isinstance(block, tuple | list) or len(block) != 2:
                raise TypeError(f"blocks must be tuples (labels, ids), got {_described(block)}")
            id_map.relabel_rows(result, members, *block)
    return result


def relabellings(shards: Shards, before: NDArray[np.int32], labels: NDArray[np.int32]) -> dict[int, Edit]:
    """Return what gives shards the labels of all rows, (n,), where they are others than before."""

    def relabel(number: int, index: IndexEvidenceIVF) -> None:
        Transaction(index).relabel(labels[shards.rows(number)])

    return {number: partial(relabel, number) for number in _touched(shards, before != labels)}


def removals(shards: Shards, gone: NDArray[np.bool_]) -> dict[int, Edit]:
    """Return what removes the marked ones of all rows, (n,), from their shards."""

    def remove(number: int, index: IndexEvidenceIVF) -> None:
        of_shard = gone[shards.rows(number)]
        Transaction(index).remove(of_shard)

    return {number: partial(remove, number) for number in _touched(shards, gone)}


def _touched(shards: Shards, rows: NDArray[np.bool_]) -> list[int]:
    """Return the shards that hold one of the marked rows, (n,)."""
    lists = np.searchsorted(np.cumsum(shards.sizes), np.flatnonzero(rows), side="right")
    return [int(number) for number in np.unique(shards.owners[lists])]


# --- blocks -----------------------------------------------------------------------------------------------------------


def _iterable(blocks: Iterable[Any], of: str) -> Iterable[Any]:
    if not isinstance(blocks, Iterable):
        raise TypeError(f"blocks must be an iterable of {of}, got {type(blocks).__name__}")
    return blocks


@contextmanager
def _naming(number: int) -> Iterator[None]:
    """Note in an error which block it is about."""
    try:
        yield
    except (TypeError, ValueError) as error:
        error.add_note(f"in block {number} of blocks, counted from 0")
        raise


def _described(block: Any) -> str:
    return f"{len(block)} values" if isinstance(block, tuple | list) else type(block).__name__
