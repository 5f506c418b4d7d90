"""One index in several files: each shard holds some of its lists, and all shards have the same centroids.

A shard is an ordinary file of an ``IndexEvidenceIVF`` whose other lists are empty, so that ``read_index`` and stock
FAISS open it by itself. Opened together, all of them are one mapped index: each list is read where it lies.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import FaissLists, Table
from cfe_faiss.checks import as_count
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.files.format import read_header, read_index, write_index
from cfe_faiss.files.new_file import new_file
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.index.state import ListsState
from cfe_faiss.lists.faiss_functions import raw, total
from cfe_faiss.search.grouping import Queries
from cfe_faiss.search.plan import SearchArguments, plan

_FORMAT, _VERSION = "cfe_faiss shards", 1
MANIFEST = "shards.json"
_PARAMETERS = ("d", "nlist", "theta", "weighted", "complete", "routing", "nprobe")


class ShardedEvidenceIndex(IndexEvidenceIVF):
    """An inverted file whose lists lie in several files, mapped into memory as one index; made by :meth:`open`.

    It does what an ``IndexEvidenceIVF`` that is mapped from one file does, with the same results to the last bit:
    searches of evidence at an ``nprobe``, at a recall, exact and certified, pairs, ranges, plain FAISS searches. The
    system reads what is searched, so the files together may be larger than memory; what is held of each vector is its
    label and, after the first search of stored vectors, its place among the ids (28 bytes). It cannot be changed;
    ``write_index`` writes it into one file. Pickled, it is a path, and is opened again there.

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
    ...     D, I = sharded.search_members([7], k=5, nprobe=3)
    >>> bool((I == index.search_members([7], k=5, nprobe=3)[1]).all())
    True
    """

    # FAISS refuses to set an attribute whose name the class does not know, so each has a value here.
    _folder: Path = Path()
    _shards: tuple[IndexEvidenceIVF, ...] = ()
    _owners: NDArray[np.intp] = np.empty(0, np.intp)  # which shard holds each list, (nlist,)

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("a ShardedEvidenceIndex is made by open(path), from files that write_shards has written")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open the shards in a folder as one index.

        Parameters
        ----------
        path
            Folder that :func:`write_shards` has written.

        Returns
        -------
        ShardedEvidenceIndex
            Read-only. O(n) time for the labels; vectors and ids are read when they are searched.

        Raises
        ------
        FileNotFoundError
            If the folder, its list of shards or a shard is missing.
        ValueError
            If one of them is damaged, of another version, or does not belong to the others.
        """
        folder = Path(path).resolve()
        manifest = _read_manifest(folder / MANIFEST)
        index = cls.__new__(cls)
        index._open(folder, manifest, [_read_shard(folder, shard) for shard in manifest["shards"]])
        return index

    @property
    def shards(self) -> tuple[IndexEvidenceIVF, ...]:
        """The index of each shard, mapped from its file."""
        return self._shards

    def _open(self, folder: Path, manifest: dict[str, Any], shards: Sequence[IndexEvidenceIVF]) -> None:
        first, parameters = shards[0], manifest["parameters"]
        sizes = _sizes_of(folder, parameters, shards)
        settings = {name: parameters[name] for name in ("theta", "weighted", "complete", "routing")}
        IndexEvidenceIVF.__init__(self, parameters["d"], parameters["nlist"], **settings)
        self._take_centroids(first.centroids())
        self.nprobe = parameters["nprobe"]
        self._folder, self._shards, self._owners = folder, tuple(shards), sizes.argmax(axis=0)
        pointers = faiss.InvertedListsPtrVector()
        for shard in shards:
            pointers.push_back(shard.invlists)
        stacked = faiss.HStackInvertedLists(pointers.size(), pointers.data())
        stacked.this.disown()
        raw.IndexIVF_replace_invlists(self, stacked, True)
        labels = _in_list_order([shard.storage().labels for shard in shards], sizes)
        self._set_up(Table(sizes.sum(axis=0), 0, 0, self.code_size, labels, None, None))
        function, arguments = total(self, int(sizes.sum()))
        function(*arguments)
        if self.routing == "evidence":
            self._from_file = Routes.merged([shard.routes() for shard in shards], self._owners)
        self._refusal = (
            f"the index is mapped from the shards in {folder} and cannot be changed; write_index makes a copy"
        )

    def _worked_out(self) -> ListsState:
        routes = self._from_file
        state = super()._worked_out()
        self._from_file = routes  # nothing else can make it without reading every vector
        return state

    def _faiss_lists(self) -> FaissLists:
        return FaissLists(
            size=(self._of_shard, (raw.InvertedLists_list_size,)),
            codes=(self._of_shard, (raw.InvertedLists_get_codes,)),
            ids=(self._of_shard, (raw.InvertedLists_get_ids,)),
            resize=None,
            numbered=True,
        )

    def search_shard(
        self, number: int, k: int, nprobe: int, *, memory: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Return the evidence of the vectors of one shard, with the bits of a search of all stored vectors.

        Parameters
        ----------
        number
            Of the shard, 0 to the number of shards less 1.
        k, nprobe, memory
            As in :meth:`search_members`.

        Returns
        -------
        ids
            Of the shard's vectors, (m,), in order of their lists.
        D, I
            Their evidence, (m, k) both.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        number, k = as_count("number", number, 0), as_count("k", k)
        if number >= len(self._shards):
            raise ValueError(f"number must be below {len(self._shards)}, the number of shards, got {number}")
        arguments = SearchArguments.of(nprobe, None, False, memory)
        with self._lock.reading():
            state = self._snapshot()
            starts = state.storage.starts
            rows = np.flatnonzero(np.repeat(self._owners == number, np.diff(starts)))
            lists = self._searcher(state)
            made = plan(lists, state.storage.n, k, arguments, nprobe)  # as for all of them
            D, I = self._carried_out(state, Queries.of_rows(state.storage, rows), k, made, None)
            return state.storage.row_ids[rows], D, I

    def _of_shard(self, function: Callable[..., Any], number: int) -> Any:
        return function(self._shards[self._owners[number]].invlists, number)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).open, (self._folder,)

    def __repr__(self) -> str:
        return (
            f"ShardedEvidenceIndex(d={self.d}, nlist={self.nlist}, shards={len(self._shards)}, nprobe={self.nprobe}, "
            f"ntotal={self.ntotal})"
        )


def write_shards(index: IndexEvidenceIVF, path: str | os.PathLike[str], shards: int) -> None:
    """Write an inverted file into several files, each with some of its lists.

    Lists that are near each other go into the same shard, and shards hold about as many vectors each, so that most
    queries need few of them. A folder that holds shards already has them replaced at once, when all new ones are
    complete; a write that is interrupted leaves the old ones.

    Parameters
    ----------
    index
        Trained, with one partition; from memory or mapped.
    path
        Folder; made if it does not exist.
    shards
        How many files, 1 to the number of lists that hold vectors.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    OSError
        If a file cannot be written.

    Notes
    -----
    Takes memory for a copy of one shard.
    """
    if not isinstance(index, IndexEvidenceIVF):
        raise TypeError(f"index must be an IndexEvidenceIVF, got {type(index).__name__}")
    if index.partitions > 1:
        raise ValueError(f"index must have one partition, got {index.partitions}: references do not cross files")
    number, folder = as_count("shards", shards), Path(path).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    token, before = secrets.token_hex(4), set(folder.glob("shard-*.index"))
    with _removed_on_error(folder, f"shard-{token}-*.index"), index._lock.reading():
        state = index._snapshot()
        sizes = np.diff(state.storage.starts)
        filled = int(np.count_nonzero(sizes))
        if number > filled:
            raise ValueError(f"shards must be at most the {filled} lists that hold vectors, got {number}")
        owners = owners_of(state.centroids[0], sizes, number)
        names = []
        for shard in range(number):
            names.append(f"shard-{token}-{shard:04d}.index")
            write_index(_part(index, state, owners == shard), folder / names[-1])
    with new_file(folder / MANIFEST) as file:
        file.write(manifest_of([folder / name for name in names]))
    for path_before in before:
        path_before.unlink(missing_ok=True)


@contextmanager
def _removed_on_error(folder: Path, pattern: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for path in folder.glob(pattern):
            path.unlink()
        raise


def manifest_of(paths: Sequence[Path]) -> bytes:
    """Return what a folder says of its shards, given their files."""
    first = read_index(paths[0], faiss.IO_FLAG_MMAP)
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "parameters": {name: getattr(first, name) for name in _PARAMETERS},
        "shards": [{"file": path.name, **_identity(path)} for path in paths],
    }
    return json.dumps(content, indent=1).encode()


def _part(index: IndexEvidenceIVF, state: ListsState, wanted: NDArray[np.bool_]) -> IndexEvidenceIVF:
    """Return a copy of an index in which the lists that are not wanted, (nlist,), are empty."""
    storage, nlist = state.storage, len(wanted)
    part = IndexEvidenceIVF(
        index.d, nlist, theta=index.theta, weighted=index.weighted, complete=index.complete, routing=index.routing
    )
    part.nprobe = index.nprobe
    part._take_centroids(state.centroids)
    lists = np.repeat(np.arange(nlist, dtype=np.int32), np.diff(storage.starts))
    rows = np.flatnonzero(wanted[lists])
    X, ids = storage.rows(rows)
    codes = np.ascontiguousarray(X).view(np.uint8)
    part._append(part._faiss_lists(), codes, None, storage.labels[rows], ids, lists[rows][None], [])
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


def _in_list_order(labels: Sequence[NDArray[np.int32]], sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the labels of all rows in order of their lists, given those of each shard and its sizes of lists."""
    joined = np.empty(int(sizes.sum()), np.int32)
    starts = np.cumsum(sizes.sum(axis=0)) - sizes.sum(axis=0)
    for own, of_shard in zip(labels, sizes, strict=True):
        first = np.cumsum(of_shard) - of_shard
        joined[np.repeat(starts - first, of_shard) + np.arange(len(own))] = own
    return joined


def _sizes_of(folder: Path, parameters: dict[str, Any], shards: Sequence[IndexEvidenceIVF]) -> NDArray[np.int64]:
    """Return how many vectors each list has in each shard, (shards, nlist), after the shards were compared."""
    centroids = shards[0].centroids()
    for shard in shards:
        wrong = next((name for name in _PARAMETERS if getattr(shard, name) != parameters[name]), None)
        if wrong is not None:
            raise _damaged(
                folder, f"{wrong} is {getattr(shard, wrong)} in a shard and {parameters[wrong]} in {MANIFEST}"
            )
        if not np.array_equal(shard.centroids(), centroids):
            raise _damaged(folder, "its shards have different centroids")
    sizes = np.array([np.diff(shard.storage().starts) for shard in shards])
    if (np.count_nonzero(sizes, axis=0) > 1).any():
        raise _damaged(folder, f"list {np.argmax(np.count_nonzero(sizes, axis=0) > 1)} lies in several shards")
    return sizes


def _identity(path: Path) -> dict[str, int]:
    """Return what tells a shard from another file of its name: its size and the checksum of its vectors."""
    return {"size": path.stat().st_size, "crc32": read_header(path)["payload"]["crc32"]}


def _read_shard(folder: Path, entry: dict[str, Any]) -> IndexEvidenceIVF:
    path = folder / entry["file"]
    expected, got = {name: entry[name] for name in ("size", "crc32")}, _identity(path)
    if got != expected:
        raise _damaged(folder, f"{path.name} is not the shard that was written: expected {expected}, got {got}")
    index = read_index(path, faiss.IO_FLAG_MMAP)
    if type(index) is not IndexEvidenceIVF or index.partitions > 1:
        raise _damaged(folder, f"{path.name} must be an IndexEvidenceIVF of one partition, got {index!r}")
    return index


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(path.read_bytes())
        kind, version = manifest["format"], manifest["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path.parent, f"{path.name} does not list shards: {error!r}") from error
    if kind != _FORMAT or version != _VERSION:
        raise ValueError(f"{path} has format {kind!r}, version {version}; this cfe_faiss reads version {_VERSION}")
    try:
        checked = {name: manifest["parameters"][name] for name in _PARAMETERS}
        shards = [{"file": Path(s["file"]).name, "size": s["size"], "crc32": s["crc32"]} for s in manifest["shards"]]
    except (KeyError, TypeError) as error:
        raise _damaged(path.parent, f"{path.name} is not complete: {error!r}") from error
    if not shards:
        raise _damaged(path.parent, f"{path.name} names no shard")
    return {"parameters": checked, "shards": shards}


def _damaged(folder: Path, why: str) -> ValueError:
    return ValueError(f"the shards in {folder} are damaged: {why}")
