"""An index in several files: each shard holds some of its lists, and all shards share the centroids.

A shard is an ordinary file of an ``IndexEvidenceIVF`` whose other lists are empty, so ``read_index`` and stock FAISS
can open a single shard. Opened together, the shards are one mapped index.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import FaissLists, ReadWriteLock, Table, call_steps
from cfe_faiss.base.checks import as_count
from cfe_faiss.coarse.class_centroids import Routes, SecondLevel
from cfe_faiss.files.new_file import moving, sync_folder
from cfe_faiss.index.ivf import IndexEvidenceIVF
from cfe_faiss.rows import id_map
from cfe_faiss.rows.faiss_functions import Step, get_list_functions, pointer_to, replacing_lists, setting, total
from cfe_faiss.rows.label_keys import LabelEncoder
from cfe_faiss.scale import shards as shard_files
from cfe_faiss.scale.shards import Relabelling, Shards
from cfe_faiss.search.answer import search
from cfe_faiss.search.query import Effort, Queries


class ShardedEvidenceIndex(IndexEvidenceIVF):
    """Inverted file in several files, mapped into memory as one index; created by :meth:`open`.

    It works like an ``IndexEvidenceIVF`` mapped from one file, with the same results, bit for bit: evidence searches at
    an ``nprobe``, at a recall, exact and certified, pairs, ranges, and plain FAISS searches. Searches read only the
    pages they need, so the files together may exceed memory. Each vector takes 28 bytes of memory: its label and, after
    the first search of stored vectors, its entry in the id map. The first read of a list verifies its checksum; a
    damaged list raises a ValueError that names the file. ``write_index`` writes the index into one file. A pickle
    holds the path, and opens it again.

    :meth:`relabel` changes the files and the index together. Only changed shards are written, one at a time in memory.
    The change is atomic: an error, an interrupt or a killed process leaves the index as before. Other processes that
    have the folder open keep their shards until they open it again or relabel it. Writers wait for each other. The
    index is read-only otherwise: other vectors need another run of a :class:`cfe_faiss.scale.Job`, or
    :func:`write_shards`.

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

    # FAISS refuses to set an attribute whose name the class does not know, so each has a value here.
    _files: Shards = None  # type: ignore[assignment]
    _changes: ReadWriteLock = None  # type: ignore[assignment] # a thread would wait for its own lock of the folder

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("a ShardedEvidenceIndex is made by open(path), from files that write_shards has written")

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
        shards = shard_files.read(shard_files.folder_of(Path(path).resolve()))
        shard_files.warn_of_unchecked(shards)
        parameters = shards.manifest["parameters"]
        settings = {name: parameters[name] for name in shard_files.PARAMETERS}
        index = cls.__new__(cls)
        IndexEvidenceIVF.__init__(index, parameters["d"], parameters["nlist"], **settings)
        index.take_centroids(shards.centroids)
        index.nprobe = parameters["nprobe"]
        index._files, index.origins = shards, (shards.folder,)
        index._changes = ReadWriteLock()
        call_steps(index._steps_to(shards), [])
        index.refusal = (
            f"the index is mapped from the shards in {shards.folder}, of which only relabel changes something: run a "
            "cfe_faiss.scale.Job with the new vectors, or change an index in memory and write it by write_shards"
        )
        return index

    @property
    def shards(self) -> tuple[IndexEvidenceIVF, ...]:
        """Index of each shard, mapped from its file."""
        return self._files.indexes

    def _steps_to(self, shards: Shards) -> list[Step]:
        """Return the steps that replace the index by these shards. Allocations come before the steps."""
        pointers = faiss.InvertedListsPtrVector()
        for shard in shards.indexes:
            pointers.push_back(shard.invlists)
        stacked = faiss.HStackInvertedLists(pointers.size(), pointers.data())
        routes = None
        if self.routing == "evidence":
            parts = [shard.routes() for shard in shards.indexes]
            clusters = SecondLevel.of(shards.centroids) if self.metric == "cosine" else SecondLevel.none(self.d)
            routes = Routes.merged(parts, shards.owners, clusters)
        return [
            *replacing_lists(self, stacked),
            *self._forgetting(),
            setting(self, "_files", shards),
            setting(self, "checks", shards.checks()),
            setting(self, "label_keys", shards.label_keys()),
            setting(self, "_table", Table(shards.sizes, 0, 0, self.code_size, shards.labels(), None, None)),
            setting(self, "_from_file", routes),
            setting(self, "_longest", max(shard.storage().longest for shard in shards.indexes)),
            total(self, shards.ntotal),
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
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Return the evidence of the vectors of one shard, bit for bit as in a search of all stored vectors.

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
        number, k = as_count("number", number, 0), as_count("k", k)
        effort = Effort.of(nprobe, memory=memory)
        with self.holding() as snapshot:
            shards = self._files
            if number >= len(shards.indexes):
                raise ValueError(f"number must be below {len(shards.indexes)}, the number of shards, got {number}")
            rows = shards.rows(number)
            queries = Queries.of_rows(snapshot, rows, k)
            D, I = search(queries, self.resolve_effort(effort), nq=snapshot.n)  # as in a search of all stored rows
            return snapshot.row_ids[rows], D, I

    # --- new labels ------------------------------------------------------------------------------------------------

    def relabel(self, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Change labels of stored vectors; arguments and errors as of ``IndexEvidenceIVF.relabel``.

        Only shards with changed labels are written.
        """
        with self._change_alone():
            snapshot = self.storage()
            encoder = self.label_encoder()
            codes = id_map.relabelled(snapshot, labels, ids, encoder)
            self._rewrite(shard_files.relabelled_rows(self._files, snapshot.labels, codes), encoder)

    @contextmanager
    def _change_alone(self) -> Iterator[None]:
        """Keep other writers out, and open the shards that they have changed since."""
        folder = self._files.folder
        with self._changes.writing(), shard_files.writing(folder):
            if not self._files.is_current():
                shards = shard_files.read(folder, self._files)
                self._check_same(shards)
                steps = self._steps_to(shards)
                with self._lock.writing():
                    call_steps([*steps, *self._steps_to_map(shards)], [])
            yield

    def _check_same(self, shards: Shards) -> None:
        before, now = ({**one.manifest["parameters"], "nprobe": None} for one in (self._files, shards))
        if before != now or not np.array_equal(self._files.centroids, shards.centroids):
            raise RuntimeError(f"the shards in {shards.folder} are those of another index now; open them again")

    def _rewrite(self, changed: Mapping[int, Relabelling], encoder: LabelEncoder) -> None:
        """Relabel shards in the folder and in this index at once."""
        if not changed:
            return
        before = self._files
        paths = shard_files.write_relabelled(before, changed, encoder.table)
        prepared, manifest = shard_files.prepare_manifest(before.folder, paths)
        after = shard_files.open_shards(before.folder, manifest, before)
        move = moving(prepared, before.folder / shard_files.MANIFEST)
        steps = self._steps_to(after)
        with self._lock.writing():
            call_steps([move, *steps, *self._steps_to_map(after)], [])
        sync_folder(before.folder)

    def _steps_to_map(self, shards: Shards) -> list[Step]:
        """Return the steps that rebuild FAISS's direct map, if there is one."""
        if self.direct_map.type == faiss.DirectMap.NoMap:
            return []
        return self._mapping(lambda: np.concatenate([shard.storage().row_ids for shard in shards.indexes]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).open, (self._files.folder,), {"nprobe": self.nprobe, "complete": self.complete}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return (
            f"ShardedEvidenceIndex(d={self.d}, nlist={self.nlist}, shards={len(self.shards)}, nprobe={self.nprobe}, "
            f"ntotal={self.ntotal})"
        )
