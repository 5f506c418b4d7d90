"""An index in several files: each shard holds some lists, and all share the centroids.

A shard is an ordinary file of an ``IndexEvidenceIVF`` whose other lists are empty, so
``read_index`` and stock FAISS can open a single shard. Opened together, the shards are one mapped
index. ``shards.json`` lists the current shards.

A writer keeps other writers out of the folder (:func:`_writing`), and writes files with new names.
When they are complete and synced, a new ``shards.json`` replaces the old one at once. Then files
that it does not list are removed. Processes that have the old files mapped can still read them.
"""

import json
import math
import os
import re
import secrets
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import FaissLists, ListChecks, ReadWriteLock, Table, call_steps
from cfe_faiss.base.checks import Floats, Int32s, Ints, as_count
from cfe_faiss.base.values import LabelKeys
from cfe_faiss.coarse.routes import Routes, SecondLevel
from cfe_faiss.files import forms
from cfe_faiss.files.format import read_header, read_index, write_file
from cfe_faiss.files.outputs import (
    Record,
    check_not_mapped,
    check_owner,
    is_one_of,
    moving,
    new_version,
    path_within,
    sync_folder,
)
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.rows.faiss_functions import (
    Step,
    flat_index,
    get_list_functions,
    pointer_to,
    replacing_lists,
    setting,
    total,
)
from cfe_faiss.rows.ids_and_labels import relabelled_rows
from cfe_faiss.rows.metric import METRICS
from cfe_faiss.scale.job_files import Manifest
from cfe_faiss.search.answer import search
from cfe_faiss.search.query import Effort, Queries

MANIFEST = "shards.json"
INDEX = "index"
"""Folder of the shards in the folder of a job."""
# The second pattern is that of a job.
_SHARD = r"shard-[0-9a-f]{8}-[0-9]{4,}\.index|shard-[0-9]{6}\.index"
_PREPARED = f"{MANIFEST}.new"
_VERSION = 2  # lists of version 1 have no checksum

_SETTINGS = {
    "theta": forms.number(1e-3, math.pi / 2),
    **dict.fromkeys(("weighted", "complete"), forms.BOOLEAN),
    "routing": forms.one_of(["evidence", "nearest"]),
    "metric": forms.one_of(METRICS),
}
_VALUES = {**dict.fromkeys(("d", "nlist", "nprobe"), forms.integer(1)), **_SETTINGS}
_ENTRY = {
    "file": forms.text(_SHARD, "the name of a shard"),
    "size": forms.NATURAL,
    "crc32": forms.CHECKSUM,
}
_FORM = {"parameters": _VALUES, "shards": [_ENTRY], "crc32": forms.CHECKSUM}
_OLD_VALUES = {name: form for name, form in _VALUES.items() if name != "metric"} | {
    "metric?": _VALUES["metric"]
}
_FORMS = {
    1: {"parameters": _OLD_VALUES, "shards": [_ENTRY], "crc32?": forms.CHECKSUM},
    _VERSION: _FORM,
}
_RECORD = Record(MANIFEST, "cfe_faiss shards", _FORMS)


class ShardedEvidenceIndex(IndexEvidenceIVF):
    """Inverted file in several files, mapped into memory as one index; created by :meth:`open`.

    It works like an ``IndexEvidenceIVF`` mapped from one file, with the same results, bit for bit:
    evidence searches at an ``nprobe``, at a recall, exact and certified, pairs, ranges, and plain
    FAISS searches. Searches read only the pages they need, so the files together may exceed memory.
    Each vector takes 28 bytes of memory: its label and, after the first search of stored vectors,
    its entry in the id map. The first read of a list verifies its checksum; a damaged list raises a
    ValueError that names the file. ``write_index`` writes the index into one file. A pickle holds
    the path, and opens it again.

    The index is read-only: other vectors need another run of a :class:`cfe_faiss.scale.Job`, or
    :func:`write_shards`. Only :meth:`relabel` changes it, as models change. It changes the files
    and the index together, and writes only shards with changed labels, one at a time in memory. The
    change is atomic: an error, an interrupt or a killed process leaves the index as before. Other
    processes that have the folder open keep their shards until they open it again or relabel it.
    Writers wait for each other.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> from cfe_faiss.scale import ShardedEvidenceIndex, write_shards
    >>> X = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    >>> index = cfe.IndexEvidenceIVF(8, nlist=20)
    >>> index.train(X)
    >>> index.add_with_labels(X, np.arange(500) % 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_shards(index, folder, 4)
    ...     sharded = ShardedEvidenceIndex.open(folder)
    ...     D, I = sharded.search_stored([7], k=5, nprobe=3)
    >>> bool((I == index.search_stored([7], k=5, nprobe=3)[1]).all())
    True
    """

    # FAISS refuses to set an attribute whose name the class does not know, so each has a value
    # here.
    _files: "_Shards" = None  # type: ignore[assignment]
    # A thread would wait for its own lock of the folder.
    _relabelling: ReadWriteLock = None  # type: ignore[assignment]

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError(
            "a ShardedEvidenceIndex is made by open(path), from files that write_shards has written"
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open the shards in a folder as one index.

        Parameters
        ----------
        path
            Folder written by :func:`write_shards`, or folder of a job, to open the job's index.

        Returns
        -------
        ShardedEvidenceIndex
            O(n) time for the labels; vectors and ids are read when they are searched.

        Raises
        ------
        FileNotFoundError
            If the folder, its list of shards or a shard is missing.
        ValueError
            If a file is damaged, of another version, or does not match the others.
        """
        folder = Path(path).resolve()
        if Manifest.exists(folder) and not (folder / MANIFEST).exists():
            folder = path_within(folder, INDEX, f"the job in {folder}")
        shards = _read(folder)
        unchecked = [
            path
            for path, shard in zip(shards.paths, shards.indexes, strict=True)
            if shard.checks is None
        ]
        if unchecked:
            warnings.warn(
                f"{len(unchecked)} shards in {folder} are not checked when they are read: "
                f"{unchecked[0].name} was written by version 0.2, without a checksum for each "
                "list; write_shards adds checksums",
                stacklevel=2,
            )
        return cls._of(shards)

    @classmethod
    def _of(cls, shards: "_Shards") -> Self:
        index = cls.__new__(cls)
        parameters = shards.parameters
        settings = {name: parameters[name] for name in _SETTINGS}
        IndexEvidenceIVF.__init__(index, parameters["d"], parameters["nlist"], **settings)
        index.take_centroids(shards.centroids)
        index.nprobe = parameters["nprobe"]
        index.origins = (shards.folder,)
        index._relabelling = ReadWriteLock()
        index._files = shards
        call_steps(index._steps_to(shards), [])
        index.refusal = (
            f"the index is mapped from the shards in {shards.folder}, of which only relabel "
            "changes something: run a cfe_faiss.scale.Job with the new vectors, or change an index "
            "in memory and write it by write_shards"
        )
        return index

    @property
    def shards(self) -> tuple[IndexEvidenceIVF, ...]:
        """Index of each shard, mapped from its file."""
        return self._files.indexes

    def _steps_to(self, shards: "_Shards") -> list[Step]:
        """Return the steps that replace the index by these shards.

        Allocations come before the steps.
        """
        pointers = faiss.InvertedListsPtrVector()
        for shard in shards.indexes:
            pointers.push_back(shard.invlists)
        stacked = faiss.HStackInvertedLists(pointers.size(), pointers.data())
        labels = np.empty(int(shards.sizes.sum()), np.int32)
        for number, shard in enumerate(shards.indexes):
            labels[shards.rows(number)] = shard.storage().labels
        unknown = ListChecks("", np.empty(0, np.uint32))
        checks = [
            unknown if shard.checks is None else shard.checks[0][0] for shard in shards.indexes
        ]
        routes = None
        if self.routing == "evidence":
            parts = [shard.routes() for shard in shards.indexes]
            clusters = (
                SecondLevel.of(shards.centroids)
                if self.metric == "cosine"
                else SecondLevel.none(self.d)
            )
            routes = Routes.merged(parts, shards.owners, clusters)
        return [
            *replacing_lists(self, stacked),
            *self._forgetting(),
            setting(self, "_files", shards),
            setting(self, "checks", (checks, shards.owners.astype(np.int64))),
            setting(self, "label_keys", shards.label_keys()),
            setting(self, "_table", Table(shards.sizes, 0, 0, self.code_size, labels, None, None)),
            setting(self, "_from_file", routes),
            setting(self, "_longest", max(shard.storage().longest for shard in shards.indexes)),
            total(self, len(labels)),
        ]

    def _faiss_lists(self) -> FaissLists:
        of_shards = [pointer_to(shard.invlists) for shard in self._files.indexes]
        lists = [of_shards[owner] for owner in self._files.owners.tolist()]

        def of_its_shard(function: Callable[..., Any], number: int) -> Any:
            return function(lists[number], number)

        size, codes, ids = ((of_its_shard, (function,)) for function in get_list_functions)
        return FaissLists(size=size, codes=codes, ids=ids, resize=None, numbered=True)

    def search_shard(
        self, number: int, k: int, nprobe: int, *, memory: int | None = None
    ) -> tuple[Ints, Floats, Ints]:
        """Return the evidence of the vectors of one shard, as a search of all vectors has it.

        Parameters
        ----------
        number
            Number of the shard, from 0.
        k, nprobe, memory
            As in :meth:`search_stored`.

        Returns
        -------
        ids
            Ids of the shard's vectors, (m,), in the order of their lists.
        D, I
            Their evidence, both (m, k).

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        number = as_count("number", number, 0)
        k = as_count("k", k)
        effort = Effort.of(nprobe, memory=memory)
        with self.holding() as snapshot:
            shards = self._files
            if number >= len(shards.indexes):
                raise ValueError(
                    f"number must be below {len(shards.indexes)}, the number of shards, got "
                    f"{number}"
                )
            rows = shards.rows(number)
            queries = Queries.of_rows(snapshot, rows, k)
            # as in a search of all stored rows
            D, I = search(queries, self.resolve_effort(effort), nq=snapshot.n)
            return snapshot.row_ids[rows], D, I

    def relabel(self, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Change labels of stored vectors; arguments and errors as of ``IndexEvidenceIVF.relabel``.

        Only shards with changed labels are written. RuntimeError if the folder holds another index
        now.
        """
        folder = self._files.folder
        with self._relabelling.writing(), _writing(folder):
            current = self._of(_read(folder))  # other processes may have relabelled it
            shards = current._files
            before, now = ({**one.parameters, "nprobe": None} for one in (self._files, shards))
            if before != now or not np.array_equal(self._files.centroids, shards.centroids):
                raise RuntimeError(
                    f"the shards in {folder} are those of another index now; open them again"
                )
            snapshot = current.storage()
            encoder = current.label_encoder()
            rows, new_codes = relabelled_rows(snapshot, labels, ids, encoder)
            codes = snapshot.labels.copy()
            codes[rows] = new_codes
            steps = []
            if not np.array_equal(snapshot.labels, codes):
                paths = _write_relabelled(shards, snapshot.labels, codes, encoder.table)
                write_manifest(folder, paths, _PREPARED)
                shards = _read(folder, _PREPARED)
                steps.append(moving(folder / _PREPARED, folder / MANIFEST))
            steps += self._steps_to(shards)
            if self.direct_map.type != faiss.DirectMap.NoMap:
                steps += self._mapping(
                    lambda: np.concatenate([shard.storage().row_ids for shard in shards.indexes])
                )
            with self._lock.writing():
                call_steps(steps, [])
            sync_folder(folder)

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            type(self).open,
            (self._files.folder,),
            {"nprobe": self.nprobe, "complete": self.complete},
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return (
            f"ShardedEvidenceIndex(d={self.d}, nlist={self.nlist}, shards={len(self.shards)}, "
            f"nprobe={self.nprobe}, ntotal={self.ntotal})"
        )


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Shards:
    """Open shards of a folder.

    Attributes
    ----------
    folder, parameters
        Folder of the files, and settings of the index.
    paths, indexes
        File of each shard, and the index mapped from it. All of them share one array of centroids.
    sizes
        Number of vectors in each list, (nlist,).
    owners
        Shard of each list, (nlist,); any for an empty list.
    """

    folder: Path
    parameters: Mapping[str, Any]
    paths: tuple[Path, ...]
    indexes: tuple[IndexEvidenceIVF, ...]
    sizes: Ints
    owners: NDArray[np.intp]

    @property
    def centroids(self) -> Floats:
        """Centroids of all shards, (1, nlist, d)."""
        return self.indexes[0].centroids()

    def label_keys(self) -> LabelKeys | None:
        """Return the labels that the codes in all shards stand for.

        None if these are the labels in each shard.
        """
        tables = [shard.label_keys for shard in self.indexes if shard.label_keys is not None]
        if tables:
            others = [
                shard.storage().class_counts[0]
                for shard in self.indexes
                if shard.label_keys is None
            ]
            tables += [LabelKeys.of_codes(codes) for codes in others if len(codes)]
        try:
            return LabelKeys.union(tables)
        except ValueError as error:
            raise _damage(self.folder, str(error)) from error

    def rows(self, number: int) -> Ints:
        """Return the rows of one shard as rows of all shards, in the order of the lists."""
        return np.flatnonzero(np.repeat(self.owners == number, self.sizes))


def _read(folder: Path, name: str = MANIFEST) -> _Shards:
    """Open the shards that a list names; errors as of :meth:`ShardedEvidenceIndex.open`."""
    while True:
        content = _read_manifest(folder, name)
        try:
            return _open(folder, content)
        except FileNotFoundError:  # unless a writer has replaced the shards meanwhile
            if _read_manifest(folder, name) == content:
                raise


def _open(folder: Path, content: Mapping[str, Any]) -> _Shards:
    parameters = {"metric": "cosine", **content["parameters"]}  # version 1 had no other metric
    paths = tuple(folder / entry["file"] for entry in content["shards"])
    indexes: list[IndexEvidenceIVF] = []
    for path, entry in zip(paths, content["shards"], strict=True):
        actual = _entry_of(path)
        if actual != entry:
            raise _damage(
                folder,
                f"{path.name} is not the shard that was written: expected {entry}, got {actual}",
            )
        index = read_index(path, faiss.IO_FLAG_MMAP)
        if type(index) is not IndexEvidenceIVF or index.partitions > 1:
            raise _damage(
                folder, f"{path.name} must be an IndexEvidenceIVF of one partition, got {index!r}"
            )
        for name, value in parameters.items():
            if getattr(index, name) != value:
                raise _damage(
                    folder, f"{name} is {getattr(index, name)} in a shard and {value} in {MANIFEST}"
                )
        if not indexes:
            centroids = index.centroids().view()
            quantizer = flat_index(index.d, index.metric_type)
            quantizer.add(centroids[0])
        elif not np.array_equal(index.centroids(), centroids):
            raise _damage(folder, "its shards have different centroids")
        index.share_centroids(quantizer, centroids)
        indexes.append(index)
    sizes = np.array([np.diff(shard.storage().starts) for shard in indexes])
    holders = np.count_nonzero(sizes, axis=0)
    if (holders > 1).any():
        raise _damage(folder, f"list {np.argmax(holders > 1)} lies in several shards")
    return _Shards(
        folder, parameters, paths, tuple(indexes), sizes.sum(axis=0), sizes.argmax(axis=0)
    )


def _read_manifest(folder: Path, name: str = MANIFEST) -> dict[str, Any]:
    content = replace(_RECORD, name=name).read(folder)
    if content["version"] == _VERSION and content["crc32"] != _checksum_of(content):
        raise _damage(folder, f"the checksum of {name} does not match")
    if not content["shards"]:
        raise _damage(folder, f"{name} names no shard")
    for number, shard in enumerate(content["shards"]):
        path_within(folder, shard["file"], f"{folder / name}, shard {number},")
    return content


def _entry_of(path: Path) -> dict[str, Any]:
    """Return the entry of a shard in ``shards.json``: name, size and checksum."""
    return {
        "file": path.name,
        "size": path.stat().st_size,
        "crc32": read_header(path)["payload"]["crc32"],
    }


def _damage(folder: Path, why: str) -> ValueError:
    return ValueError(f"the shards in {folder} are damaged: {why}")


# --- writing --------------------------------------------------------------------------------------


def write_shards(
    index: IndexEvidenceIVF, path: str | os.PathLike[str], shards: int, *, overwrite: bool = False
) -> None:
    """Write an inverted file into several files, each with some of its lists.

    Neighbouring lists go into the same shard, and shards hold about equally many vectors, so most
    queries need few shards. Shards that the folder already holds are replaced at once when all new
    files are complete. An interrupted write leaves the old ones.

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
        If an argument is not as described; if there is a foreign ``shards.json``, and ``overwrite``
        is False; or if another object than ``index`` maps the shards in the folder.
    OSError
        If a file cannot be written.

    Notes
    -----
    Takes memory for a copy of one shard. Waits while another process or thread changes the shards
    in the folder.
    """
    if not getattr(index, "has_lists", False) or index.stores_codes:
        raise TypeError(f"index must be an IndexEvidenceIVF, got {type(index).__name__}")
    if index.partitions > 1:
        raise ValueError(
            f"index must have one partition, got {index.partitions}: references do not cross files"
        )
    number = as_count("shards", shards)
    folder = Path(path).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    check_owner(folder / MANIFEST, overwrite=overwrite)
    if not is_one_of(folder, index.origins):
        check_not_mapped(folder.iterdir())
    with _writing(folder):
        paths = _new_paths(folder, number)
        with index.holding() as snapshot:
            sizes = np.diff(snapshot.starts)
            filled = int(np.count_nonzero(sizes))
            if number > filled:
                raise ValueError(
                    f"shards must be at most the {filled} lists that hold vectors, got {number}"
                )
            owners = owners_of(snapshot.centroids[0], sizes, number)
            lists = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
            settings = {name: getattr(index, name) for name in _SETTINGS}
            for shard, file in enumerate(paths):
                rows = np.flatnonzero(owners[lists] == shard)
                X, ids = snapshot.rows(rows)
                part = shard_of(
                    snapshot.centroids, lists[rows], X, snapshot.labels[rows], ids, **settings
                )
                part.nprobe = index.nprobe
                part.take_label_keys(index.label_keys)
                write_file(part, file, like=folder / MANIFEST)
        write_manifest(folder, paths)
    index.origins = (*index.origins[:1], folder)


def shard_of(
    centroids: Floats, lists: Int32s, X: Floats, labels: Int32s, ids: Ints, **settings: Any
) -> IndexEvidenceIVF:
    """Return an index with given centroids, (1, nlist, d), and vectors in given lists."""
    index = IndexEvidenceIVF(centroids.shape[2], centroids.shape[1], **settings)
    index.take_centroids(centroids)
    vectors = np.ascontiguousarray(X)
    with index.changing() as transaction:
        transaction.append(vectors.view(np.uint8), labels, ids, lists[None], vectors=vectors)
    return index


def owners_of(centroids: Floats, sizes: Ints, shards: int) -> NDArray[np.intp]:
    """Return the shard of each list, (nlist,), given the number of vectors in each list.

    Halves the lists along their principal direction until there are enough shards with about
    equally many vectors. Each shard gets at least one list that holds vectors.
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
        direction = np.linalg.eigh(
            np.cov(X.T, aweights=sizes[lists] + 1e-9).reshape(X.shape[1], -1)
        )[1][:, -1]
        lists = lists[np.argsort(X @ direction, kind="stable")]
        lower = number // 2
        filled = np.flatnonzero(sizes[lists])
        half = sizes[lists].sum() * lower / number
        cut = int(np.searchsorted(np.cumsum(sizes[lists]), half)) + 1
        cut = min(max(cut, filled[lower - 1] + 1), filled[len(filled) - (number - lower)])
        runs += [(lists[cut:], number - lower), (lists[:cut], lower)]
    return owners


def _write_relabelled(
    shards: _Shards, before: Int32s, after: Int32s, table: LabelKeys | None
) -> list[Path]:
    """Write shards with changed labels into new files, one at a time in memory.

    Return the files of all shards.

    ``before`` and ``after`` are the labels of all rows in the order of the lists, (n,).
    """
    paths = list(shards.paths)
    new_paths = _new_paths(shards.folder, len(paths))
    for number, path in enumerate(shards.paths):
        rows = shards.rows(number)
        changed = np.flatnonzero(before[rows] != after[rows])
        if len(changed):
            index: Any = read_index(path)
            index.take_label_keys(table)
            with index.changing() as transaction:
                transaction.relabel(changed, after[rows[changed]])
            write_file(index, new_paths[number], like=path)
            del index  # before the next one is read
            paths[number] = new_paths[number]
    return paths


def write_manifest(folder: Path, paths: Sequence[Path], name: str = MANIFEST) -> None:
    """Write the list of these shards, the content of ``shards.json``."""
    first = read_index(paths[0], faiss.IO_FLAG_MMAP)
    content: dict[str, Any] = {
        "parameters": {name: getattr(first, name) for name in _VALUES},
        "shards": [_entry_of(path) for path in paths],
    }
    content["crc32"] = _checksum_of({"format": _RECORD.kind, "version": _VERSION, **content})
    replace(_RECORD, name=name).write(folder, _VERSION, content, folder / MANIFEST)


def _checksum_of(content: dict[str, Any]) -> int:
    """Return the CRC-32 of a list of shards without its own checksum."""
    return zlib.crc32(json.dumps({**content, "crc32": None}, sort_keys=True).encode())


def _new_paths(folder: Path, shards: int) -> list[Path]:
    token = secrets.token_hex(4)
    return [folder / f"shard-{token}-{number:04d}.index" for number in range(shards)]


def _writing(folder: Path) -> AbstractContextManager[None]:
    """Keep other writers out of a folder.

    Remove files that ``shards.json`` does not list, before and after.
    """
    return new_version(
        folder,
        rf"{_SHARD}|{re.escape(_PREPARED)}",
        lambda: {entry["file"] for entry in _read_manifest(folder)["shards"]},
    )
