"""The files of an index in shards: ordinary index files, and ``shards.json``, which names those that belong together.

Who changes the shards in a folder keeps other writers out (:func:`writing`) and writes files of new names. When they
are complete and synced, a ``shards.json`` that names them takes the place of the old one, in one moment; then the files
that it does not name are removed. Who has them mapped goes on reading them.
"""

import json
import secrets
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from re import fullmatch
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import ListChecks
from cfe_faiss.files.format import read_header, read_index
from cfe_faiss.files.lock import alone_in
from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import is_ours, path_within
from cfe_faiss.files.regular import open_regular
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.scale.manifest import Manifest

MANIFEST = "shards.json"
INDEX = "index"
"""The folder of the shards in that of a job."""
_PREPARED = f"{MANIFEST}.new"
_FORMAT, _VERSION = "cfe_faiss shards", 2  # lists of version 1 have no checksum
_PARAMETERS = ("d", "nlist", "theta", "weighted", "complete", "routing", "nprobe")
_OWN = r"shard-[0-9a-f]{8}-[0-9]{4,}\.index"
_SHARD = rf"{_OWN}|shard-[0-9]{{6}}\.index"  # the second as a job names them
_TEMPORARY = rf"\.{_OWN}\.[0-9a-f]{{16}}\.tmp"  # of killed writers, where files need a name


@dataclass(frozen=True, slots=True, eq=False)
class Shards:
    """The shards in a folder, opened.

    Attributes
    ----------
    folder
        Where the files lie.
    manifest
        What ``shards.json`` says of them.
    indexes
        Each shard, mapped from its file.
    sizes
        How many vectors each list has, (nlist,).
    owners
        Which shard holds each list, (nlist,); any for a list without vectors.
    quantizer, centroids
        The centroids, which each file holds and all shards have in common: as FAISS has them, and (1, nlist, d).
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
        """The file of each shard."""
        return [self.folder / entry["file"] for entry in self.manifest["shards"]]

    @property
    def ntotal(self) -> int:
        """How many vectors all of them hold."""
        return int(self.sizes.sum())

    def checks(self) -> tuple[list[ListChecks], NDArray[np.int64]]:
        """Return what checks the lists of each shard, and the shard of each list, (nlist,)."""
        unknown = ListChecks("", np.empty(0, np.uint32))
        parts = [unknown if shard.checks is None else shard.checks[0][0] for shard in self.indexes]
        return parts, self.owners.astype(np.int64)

    def labels(self) -> NDArray[np.int32]:
        """Return the labels of all rows in order of their lists, (n,)."""
        joined = np.empty(self.ntotal, np.int32)
        for number, shard in enumerate(self.indexes):
            joined[self.rows(number)] = shard.storage().labels
        return joined

    def rows(self, number: int) -> NDArray[np.int64]:
        """Return which rows, in order of the lists of all shards, are those of one shard, in its own order."""
        return np.flatnonzero(np.repeat(self.owners == number, self.sizes))


def folder_of(path: Path) -> Path:
    """Return the folder of the shards of an index, given it or the folder of the job that made the index."""
    return path / INDEX if Manifest.exists(path) and not (path / MANIFEST).exists() else path


def read(folder: Path, known: Shards | None = None) -> Shards:
    """Open the shards in a folder; those that are ``known`` stay open.

    Raises
    ------
    FileNotFoundError
        If the folder, its list of shards or a shard is missing.
    ValueError
        If one of them is damaged, of another version, or does not belong to the others.
    """
    while True:
        manifest = _read_manifest(folder)
        try:
            return opened(folder, manifest, known)
        except FileNotFoundError:  # perhaps others have taken their place since
            if _read_manifest(folder) == manifest:
                raise


def opened(folder: Path, manifest: dict[str, Any], known: Shards | None = None) -> Shards:
    """Open the shards of a manifest that was checked; errors as of :func:`read`."""
    before = {} if known is None else {_key(entry): n for n, entry in enumerate(known.manifest["shards"])}
    indexes = tuple(
        known.indexes[before[_key(entry)]] if known and _key(entry) in before else _read_shard(folder, entry)
        for entry in manifest["shards"]
    )
    quantizer, centroids = _centroids_of(indexes[0], known)
    _check_same(folder, manifest["parameters"], indexes, centroids)
    for index in indexes:
        if index.own_fields:  # it has just been read, and does not share them yet
            index.share_centroids(quantizer, centroids)
    sizes = _sizes_of(folder, indexes)
    return Shards(folder, manifest, indexes, sizes.sum(axis=0), sizes.argmax(axis=0), quantizer, centroids)


def warn_of_unchecked(shards: Shards) -> None:
    """Warn if damage in the vectors of a shard would not be noticed."""
    old = [path.name for path, shard in zip(shards.paths, shards.indexes, strict=True) if shard.checks is None]
    if old:
        warnings.warn(
            f"{len(old)} shards in {shards.folder} are not checked when they are read: {old[0]} was written by version "
            "0.2, without a checksum for each list; write_shards writes them anew",
            stacklevel=3,
        )


def is_current(shards: Shards) -> bool:
    """Return whether the folder still holds these shards."""
    return _read_manifest(shards.folder) == shards.manifest


# --- writing ----------------------------------------------------------------------------------------------------------


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder, and remove the files that ``shards.json`` does not name, before and after."""
    with alone_in(folder):
        before = {path.name for path in folder.iterdir()}
        _remove_unnamed(folder, before)
        try:
            yield
        finally:
            _remove_unnamed(folder, before)


def new_paths(folder: Path, shards: int) -> list[Path]:
    """Return paths of new files for so many shards."""
    token = secrets.token_hex(4)
    return [folder / f"shard-{token}-{number:04d}.index" for number in range(shards)]


def write_manifest(folder: Path, paths: Sequence[Path]) -> None:
    """Let a folder hold these shards in place of those that it holds."""
    with new_file(folder / MANIFEST, overwrite=True) as file:
        file.write(manifest_of(paths))


def prepared_manifest(folder: Path, paths: Sequence[Path]) -> tuple[Path, dict[str, Any]]:
    """Write a manifest under another name, from which it can be renamed; return its path, and what it says."""
    content = manifest_of(paths)
    with new_file(folder / _PREPARED, overwrite=True) as file:
        file.write(content)
    return folder / _PREPARED, _parsed(folder, content)


def manifest_of(paths: Sequence[Path]) -> bytes:
    """Return what a folder says of its shards, given their files."""
    first = read_index(paths[0], faiss.IO_FLAG_MMAP)
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "parameters": {name: getattr(first, name) for name in _PARAMETERS},
        "shards": [{"file": path.name, **_identity(path)} for path in paths],
    }
    return json.dumps(content | {"crc32": _sum_of(content)}, indent=1).encode()


def _sum_of(content: dict[str, Any]) -> int:
    """Return the CRC-32 of what a list of shards says besides its own checksum."""
    return zlib.crc32(json.dumps({**content, "crc32": None}, sort_keys=True).encode())


def _remove_unnamed(folder: Path, before: set[str]) -> None:
    """Remove the shards that the manifest does not name; without a manifest those that were not there before."""
    try:
        named = {entry["file"] for entry in _read_manifest(folder)["shards"]}
    except (FileNotFoundError, ValueError):
        named = before
    for path in list(folder.iterdir()):
        left = fullmatch(_TEMPORARY, path.name) or (fullmatch(rf"{_SHARD}|{_PREPARED}", path.name) and is_ours(path))
        if path.name not in named and left:
            with suppress(OSError):
                path.unlink()


# --- reading ----------------------------------------------------------------------------------------------------------


def _read_manifest(folder: Path) -> dict[str, Any]:
    with open_regular(folder / MANIFEST) as file:
        return _parsed(folder, file.read())


def _parsed(folder: Path, content: bytes) -> dict[str, Any]:
    try:
        manifest = json.loads(content)
        kind, version = manifest["format"], manifest["version"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(folder, f"{MANIFEST} does not list shards: {error!r}") from error
    if kind != _FORMAT or version not in (1, _VERSION):
        raise ValueError(
            f"{folder / MANIFEST} has format {kind!r}, version {version}; this cfe_faiss reads versions 1 to {_VERSION}"
        )
    if version == _VERSION and manifest.get("crc32") != _sum_of(manifest):
        raise _damaged(folder, f"the checksum of {MANIFEST} does not match")
    try:
        checked = {name: manifest["parameters"][name] for name in _PARAMETERS}
        shards = [{name: shard[name] for name in ("file", "size", "crc32")} for shard in manifest["shards"]]
    except (KeyError, TypeError) as error:
        raise _damaged(folder, f"{MANIFEST} is not complete: {error!r}") from error
    if not shards:
        raise _damaged(folder, f"{MANIFEST} names no shard")
    for number, shard in enumerate(shards):
        path_within(folder, shard["file"], f"{folder / MANIFEST}, shard {number},")
    return {"parameters": checked, "shards": shards}


def _read_shard(folder: Path, entry: dict[str, Any]) -> IndexEvidenceIVF:
    path = folder / entry["file"]
    expected, got = {name: entry[name] for name in ("size", "crc32")}, _identity(path)
    if got != expected:
        raise _damaged(folder, f"{path.name} is not the shard that was written: expected {expected}, got {got}")
    index = read_index(path, faiss.IO_FLAG_MMAP)
    if type(index) is not IndexEvidenceIVF or index.partitions > 1:
        raise _damaged(folder, f"{path.name} must be an IndexEvidenceIVF of one partition, got {index!r}")
    return index


def _identity(path: Path) -> dict[str, int]:
    """Return what tells a shard from another file of its name: its size and the checksum of its vectors."""
    return {"size": path.stat().st_size, "crc32": read_header(path)["payload"]["crc32"]}


def _key(entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.values())


def _centroids_of(index: IndexEvidenceIVF, known: Shards | None) -> tuple[Any, NDArray[np.float32]]:
    """Return the centroids of an index, as FAISS has them and as an array: those of ``known``, if they are equal."""
    centroids = index.centroids()
    if known is not None and np.array_equal(centroids, known.centroids):
        return known.quantizer, known.centroids
    quantizer = faiss.IndexFlatIP(index.d)
    quantizer.add(centroids[0])
    return quantizer, centroids


def _check_same(
    folder: Path, parameters: dict[str, Any], shards: Sequence[IndexEvidenceIVF], centroids: NDArray[np.float32]
) -> None:
    for shard in shards:
        wrong = next((name for name in _PARAMETERS if getattr(shard, name) != parameters[name]), None)
        if wrong is not None:
            raise _damaged(
                folder, f"{wrong} is {getattr(shard, wrong)} in a shard and {parameters[wrong]} in {MANIFEST}"
            )
        if shard.centroids() is not centroids and not np.array_equal(shard.centroids(), centroids):
            raise _damaged(folder, "its shards have different centroids")


def _sizes_of(folder: Path, shards: Sequence[IndexEvidenceIVF]) -> NDArray[np.int64]:
    """Return how many vectors each list has in each shard, (shards, nlist)."""
    sizes = np.array([np.diff(shard.storage().starts) for shard in shards])
    if (np.count_nonzero(sizes, axis=0) > 1).any():
        raise _damaged(folder, f"list {np.argmax(np.count_nonzero(sizes, axis=0) > 1)} lies in several shards")
    return sizes


def _damaged(folder: Path, why: str) -> ValueError:
    return ValueError(f"the shards in {folder} are damaged: {why}")
