"""Files of an index in shards: ordinary index files, and ``shards.json``, which lists the current shards.

A writer keeps other writers out of the folder (:func:`writing`), and writes files with new names. When they are
complete and synced, a new ``shards.json`` replaces the old one at once. Then files that it does not list are removed.
Processes that have the old files mapped can still read them.
"""

import json
import math
import secrets
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from re import fullmatch
from typing import Any, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import ListChecks
from cfe_faiss.base.checks import as_count
from cfe_faiss.base.values import LabelKeys
from cfe_faiss.files import records
from cfe_faiss.files.format import read_header, read_index, write_file
from cfe_faiss.files.outputs import check_not_mapped, check_owner, is_one_of, is_ours, path_within
from cfe_faiss.files.regular import alone_in
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.rows.faiss_functions import flat_index
from cfe_faiss.rows.metric import METRICS
from cfe_faiss.scale.manifest import Manifest

MANIFEST = "shards.json"
INDEX = "index"
"""Folder of the shards in the folder of a job."""
PARAMETERS = ("theta", "weighted", "complete", "routing", "metric")
_PREPARED = f"{MANIFEST}.new"
_VERSION = 2  # lists of version 1 have no checksum
_OWN = r"shard-[0-9a-f]{8}-[0-9]{4,}\.index"
_SHARD = rf"{_OWN}|shard-[0-9]{{6}}\.index"  # the second pattern is that of a job
_TEMPORARY = rf"\.{_OWN}\.[0-9a-f]{{16}}\.tmp"  # of killed writers, where files need a name

_VALUES = {
    **dict.fromkeys(("d", "nlist", "nprobe"), records.integer(1)),
    **dict.fromkeys(("weighted", "complete"), records.one_of([False, True])),
    "theta": records.number(1e-3, math.pi / 2),
    "routing": records.one_of(["evidence", "nearest"]),
    "metric": records.one_of(METRICS),
}
_ENTRY = {"file": records.text(_SHARD, "the name of a shard"), "size": records.integer(0), "crc32": records.CHECKSUM}
_FORM = {"parameters": _VALUES, "shards": [_ENTRY], "crc32": records.CHECKSUM}
_OLD_VALUES = {name: form for name, form in _VALUES.items() if name != "metric"} | {"metric?": _VALUES["metric"]}
_FORMS = {1: {"parameters": _OLD_VALUES, "shards": [_ENTRY], "crc32?": records.CHECKSUM}, _VERSION: _FORM}
_RECORD = records.Record(MANIFEST, "cfe_faiss shards", _FORMS)

Relabelling = tuple[NDArray[np.int64], NDArray[np.int32]]
"""Rows of a shard, ascending, and their new labels."""
Rows = tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.int64]]
"""Vectors as stored, their labels and their ids."""


@dataclass(frozen=True, slots=True, eq=False)
class Shards:
    """Open shards of a folder.

    Attributes
    ----------
    folder
        Folder of the files.
    manifest
        Content of ``shards.json``.
    indexes
        Each shard, mapped from its file.
    sizes
        Number of vectors in each list, (nlist,).
    owners
        Shard of each list, (nlist,); any for an empty list.
    quantizer, centroids
        Centroids, which all shards share: as a FAISS index, and as an array, (1, nlist, d).
    """

    folder: Path
    manifest: dict[str, Any]
    indexes: tuple[IndexEvidenceIVF, ...]
    sizes: NDArray[np.int64]
    owners: NDArray[np.intp]
    quantizer: Any
    centroids: NDArray[np.float32]

    @property
    def paths(self) -> list[Path]:
        """File of each shard."""
        return [self.folder / entry["file"] for entry in self.manifest["shards"]]

    @property
    def ntotal(self) -> int:
        """Number of vectors in all shards."""
        return int(self.sizes.sum())

    def checks(self) -> tuple[list[ListChecks], NDArray[np.int64]]:
        """Return the checks of the lists of each shard, and the shard of each list, (nlist,)."""
        unknown = ListChecks("", np.empty(0, np.uint32))
        parts = [unknown if shard.checks is None else shard.checks[0][0] for shard in self.indexes]
        return parts, self.owners.astype(np.int64)

    def labels(self) -> NDArray[np.int32]:
        """Return the labels of all rows in the order of the lists, (n,)."""
        joined = np.empty(self.ntotal, np.int32)
        for number, shard in enumerate(self.indexes):
            joined[self.rows(number)] = shard.storage().labels
        return joined

    def label_keys(self) -> LabelKeys | None:
        """Return the labels that the codes in all shards stand for; None if these are the labels in each shard."""
        tables = [shard.label_keys for shard in self.indexes if shard.label_keys is not None]
        if tables:
            others = [shard.storage().class_counts[0] for shard in self.indexes if shard.label_keys is None]
            tables += [LabelKeys.of_codes(codes) for codes in others if len(codes)]
        try:
            return LabelKeys.union(tables)
        except ValueError as error:
            raise _damage(self.folder, str(error)) from error

    def rows(self, number: int) -> NDArray[np.int64]:
        """Return the rows of one shard in its own order, as rows of all shards in the order of the lists."""
        return np.flatnonzero(np.repeat(self.owners == number, self.sizes))

    def is_current(self) -> bool:
        """Return whether the folder still holds these shards."""
        return _read_manifest(self.folder) == self.manifest


# --- reading ----------------------------------------------------------------------------------------------------------


def folder_of(path: Path) -> Path:
    """Return the folder of the shards of an index, given that folder or the folder of the job that made the index.

    ValueError if the folder of the index is a link.
    """
    is_job = Manifest.exists(path) and not (path / MANIFEST).exists()
    return path_within(path, INDEX, f"the job in {path}") if is_job else path


def read(folder: Path, known: Shards | None = None) -> Shards:
    """Open the shards in a folder; shards that are ``known`` stay open.

    Raises
    ------
    FileNotFoundError
        If the folder, ``shards.json`` or a shard is missing.
    ValueError
        If a file is damaged, of another version, or does not match the others.
    """
    while True:
        manifest = _read_manifest(folder)
        try:
            return open_shards(folder, manifest, known)
        except FileNotFoundError:  # unless a writer has replaced the shards meanwhile
            if _read_manifest(folder) == manifest:
                raise


def open_shards(folder: Path, manifest: dict[str, Any], known: Shards | None = None) -> Shards:
    """Open the shards of a checked manifest; errors as of :func:`read`."""
    entries = [] if known is None else known.manifest["shards"]
    indexes = tuple(
        known.indexes[entries.index(entry)] if known and entry in entries else _read_shard(folder, entry)
        for entry in manifest["shards"]
    )
    centroids = indexes[0].centroids()
    if known is not None and np.array_equal(centroids, known.centroids):
        quantizer, centroids = known.quantizer, known.centroids
    else:
        quantizer = flat_index(indexes[0].d, indexes[0].metric_type)
        quantizer.add(centroids[0])
        centroids = centroids.view()
    for index in indexes:
        for name, value in manifest["parameters"].items():
            if getattr(index, name) != value:
                raise _damage(folder, f"{name} is {getattr(index, name)} in a shard and {value} in {MANIFEST}")
        if index.centroids() is not centroids:  # opened just now
            if not np.array_equal(index.centroids(), centroids):
                raise _damage(folder, "its shards have different centroids")
            index.share_centroids(quantizer, centroids)
    sizes = np.array([np.diff(shard.storage().starts) for shard in indexes])
    holders = np.count_nonzero(sizes, axis=0)
    if (holders > 1).any():
        raise _damage(folder, f"list {np.argmax(holders > 1)} lies in several shards")
    return Shards(folder, manifest, indexes, sizes.sum(axis=0), sizes.argmax(axis=0), quantizer, centroids)


def warn_of_unchecked(shards: Shards) -> None:
    """Warn if the vectors of a shard have no checksums."""
    old = [path.name for path, shard in zip(shards.paths, shards.indexes, strict=True) if shard.checks is None]
    if old:
        warnings.warn(
            f"{len(old)} shards in {shards.folder} are not checked when they are read: {old[0]} was written by version "
            "0.2, without a checksum for each list; write_shards adds checksums",
            stacklevel=3,
        )


def _read_manifest(folder: Path, record: records.Record = _RECORD) -> dict[str, Any]:
    content = record.read(folder)
    shards = content["shards"]
    if content["version"] == _VERSION and content["crc32"] != _checksum_of(content):
        raise _damage(folder, f"the checksum of {record.name} does not match")
    if not shards:
        raise _damage(folder, f"{record.name} names no shard")
    for number, shard in enumerate(shards):
        path_within(folder, shard["file"], f"{folder / record.name}, shard {number},")
    # Earlier versions had no other metric.
    return {"parameters": {"metric": "cosine", **content["parameters"]}, "shards": shards}


def _read_shard(folder: Path, entry: dict[str, Any]) -> IndexEvidenceIVF:
    path = folder / entry["file"]
    actual = _entry_of(path)
    if actual != entry:
        raise _damage(folder, f"{path.name} is not the shard that was written: expected {entry}, got {actual}")
    index = read_index(path, faiss.IO_FLAG_MMAP)
    if type(index) is not IndexEvidenceIVF or index.partitions > 1:
        raise _damage(folder, f"{path.name} must be an IndexEvidenceIVF of one partition, got {index!r}")
    return index


def _entry_of(path: Path) -> dict[str, Any]:
    """Return the entry of a shard in ``shards.json``: its name, its size and the checksum of its vectors."""
    return {"file": path.name, "size": path.stat().st_size, "crc32": read_header(path)["payload"]["crc32"]}


def _damage(folder: Path, why: str) -> ValueError:
    return ValueError(f"the shards in {folder} are damaged: {why}")


# --- writing ----------------------------------------------------------------------------------------------------------


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder; remove files that ``shards.json`` does not list, before and after."""
    with alone_in(folder):
        before = {path.name for path in folder.iterdir()}
        _remove_unlisted(folder, before)
        try:
            yield
        finally:
            _remove_unlisted(folder, before)


def prepare_manifest(folder: Path, paths: Sequence[Path]) -> tuple[Path, dict[str, Any]]:
    """Write a list of shards under another name, to be renamed; return its path and content."""
    record = replace(_RECORD, name=_PREPARED)
    write_manifest(folder, paths, record)
    return folder / _PREPARED, _read_manifest(folder, record)


def write_manifest(folder: Path, paths: Sequence[Path], record: records.Record = _RECORD) -> None:
    """Write the list of these shards, the content of ``shards.json``."""
    first = read_index(paths[0], faiss.IO_FLAG_MMAP)
    content: dict[str, Any] = {
        "parameters": {name: getattr(first, name) for name in _VALUES},
        "shards": [_entry_of(path) for path in paths],
    }
    content["crc32"] = _checksum_of({"format": record.kind, "version": _VERSION, **content})
    record.write(folder, _VERSION, content, folder / MANIFEST)


def _checksum_of(content: dict[str, Any]) -> int:
    """Return the CRC-32 of a list of shards without its own checksum."""
    return zlib.crc32(json.dumps({**content, "crc32": None}, sort_keys=True).encode())


def _new_paths(folder: Path, shards: int) -> list[Path]:
    token = secrets.token_hex(4)
    return [folder / f"shard-{token}-{number:04d}.index" for number in range(shards)]


def _remove_unlisted(folder: Path, before: set[str]) -> None:
    """Remove shards that ``shards.json`` does not list; without that file, remove files that are not in ``before``."""
    try:
        listed = {entry["file"] for entry in _read_manifest(folder)["shards"]}
    except (FileNotFoundError, ValueError):
        listed = before
    for path in list(folder.iterdir()):
        left = fullmatch(_TEMPORARY, path.name) or (fullmatch(rf"{_SHARD}|{_PREPARED}", path.name) and is_ours(path))
        if path.name not in listed and left:
            with suppress(OSError):
                path.unlink()


# --- splitting --------------------------------------------------------------------------------------------------------


def write_shards(index: IndexEvidenceIVF, path: str | PathLike[str], shards: int, *, overwrite: bool = False) -> None:
    """Write an inverted file into several files, each with some of its lists.

    Neighbouring lists go into the same shard, and shards hold about equally many vectors, so most queries need few
    shards. Shards that the folder already holds are replaced at once when all new files are complete. An interrupted
    write leaves the old ones.

    Parameters
    ----------
    index
        Trained index with one partition; from memory, or mapped from one file or from shards.
    path
        Folder, created if it does not exist.
    shards
        Number of files, 1 to the number of lists that hold vectors.
    overwrite
        Whether to replace a file ``shards.json`` that this package has not written.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described; if there is a foreign ``shards.json``, and ``overwrite`` is False; or if
        another object than ``index`` maps the shards in the folder.
    OSError
        If a file cannot be written.

    Notes
    -----
    Takes memory for a copy of one shard. Waits while another process or thread changes the shards in the folder.
    """
    if not getattr(index, "has_lists", False) or index.stores_codes:
        raise TypeError(f"index must be an IndexEvidenceIVF, got {type(index).__name__}")
    if index.partitions > 1:
        raise ValueError(f"index must have one partition, got {index.partitions}: references do not cross files")
    number, folder = as_count("shards", shards), Path(path).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    check_owner(folder / MANIFEST, overwrite=overwrite)
    if not is_one_of(folder, index.origins):
        check_not_mapped(folder.iterdir())
    with writing(folder):
        paths = _new_paths(folder, number)
        with index.holding() as snapshot:
            sizes = np.diff(snapshot.starts)
            filled = int(np.count_nonzero(sizes))
            if number > filled:
                raise ValueError(f"shards must be at most the {filled} lists that hold vectors, got {number}")
            owners = owners_of(snapshot.centroids[0], sizes, number)
            lists = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
            for shard, file in enumerate(paths):
                rows = np.flatnonzero(owners[lists] == shard)
                X, ids = snapshot.rows(rows)
                part = empty_index(snapshot.centroids, **{name: getattr(index, name) for name in PARAMETERS})
                part.nprobe = index.nprobe
                part.take_label_keys(index.label_keys)
                append_rows(part, (X, snapshot.labels[rows], ids), lists[rows])
                write_file(part, file, like=folder / MANIFEST)
        write_manifest(folder, paths)
    index.origins = (*index.origins[:1], folder)


def empty_index(centroids: NDArray[np.float32], **parameters: Any) -> IndexEvidenceIVF:
    """Return an index with given centroids, (1, nlist, d), and without vectors."""
    _, nlist, d = centroids.shape
    index = IndexEvidenceIVF(d, nlist, **parameters)
    index.take_centroids(centroids)
    return index


def append_rows(index: IndexEvidenceIVF, rows: Rows, lists: NDArray[np.int32]) -> None:
    """Append vectors, as stored, to given lists of an index of one partition."""
    X, labels, ids = rows
    vectors = np.ascontiguousarray(X)
    with index.changing() as transaction:
        transaction.append(vectors.view(np.uint8), labels, ids, lists[None], vectors=vectors)


def owners_of(centroids: NDArray[np.float32], sizes: NDArray[np.int64], shards: int) -> NDArray[np.intp]:
    """Return the shard of each list, (nlist,), given the number of vectors in each list.

    Halves the lists along their principal direction until there are enough shards with about equally many vectors. Each
    shard gets at least one list that holds vectors.
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


# --- changes ----------------------------------------------------------------------------------------------------------


def relabelled_rows(shards: Shards, before: NDArray[np.int32], after: NDArray[np.int32]) -> dict[int, Relabelling]:
    """Return the changed rows of each shard and their new labels, given the labels of all rows, (n,)."""
    changed = before != after
    lists = np.searchsorted(np.cumsum(shards.sizes), np.flatnonzero(changed), side="right")
    relabellings = {}
    for number in np.unique(shards.owners[lists]).tolist():
        rows = shards.rows(number)
        places = np.flatnonzero(changed[rows])
        relabellings[number] = places, after[rows[places]]
    return relabellings


def write_relabelled(shards: Shards, relabellings: Mapping[int, Relabelling], table: LabelKeys | None) -> list[Path]:
    """Write shards with new labels into new files, one at a time in memory; return the files of all shards."""
    paths = shards.paths
    new_paths = _new_paths(shards.folder, len(paths))
    for number, (rows, labels) in relabellings.items():
        index = cast(IndexEvidenceIVF, read_index(paths[number]))
        index.take_label_keys(table)
        with index.changing() as transaction:
            transaction.relabel(rows, labels)
        write_file(index, new_paths[number], like=paths[number])
        del index  # before the next one is read
        paths[number] = new_paths[number]
    return paths
