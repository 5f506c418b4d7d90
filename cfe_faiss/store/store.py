"""Documents with string ids, predicted classes, metadata and texts over an evidence index."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import ReadWriteLock
from cfe_faiss.base.checks import UNKNOWN, as_array, as_count, as_unit_rows
from cfe_faiss.index.base import EvidenceMixin
from cfe_faiss.index.factory import index_factory
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.kinds import EvidenceIndex
from cfe_faiss.search.query import Results
from cfe_faiss.store import disk, searching, tables
from cfe_faiss.store.contents import Contents
from cfe_faiss.store.filters import Mask, mask_of
from cfe_faiss.store.results import Hits, Label, Rows
from cfe_faiss.store.table import NewRows, Table
from cfe_faiss.store.tables import Columns, as_vectors
from cfe_faiss.store.values import (
    as_class,
    check_distinct,
    checked_documents,
    checked_ids,
    checked_labels,
    checked_metadata,
    listed,
)


class EvidenceStore:
    """Documents with string ids, predicted classes, metadata and texts over an evidence index.

    It finds the documents that are most similar to a vector, and the *counterfactual evidence* of a document: the most
    similar ones that the classifier puts in another class. Similarity is the cosine: vectors are L2-normalised on the
    way in. Filters are exact, however many rows they leave.

    Any number of threads may search while one changes the store. A change takes place wholly or not at all, also where
    it is interrupted or memory runs out; who reads sees the rows as they were before it or as they are after it.

    Parameters
    ----------
    d
        Length of the vectors.
    index
        What searches them: None for the exact :class:`cfe_faiss.IndexEvidenceFlat`; a description that
        :func:`cfe_faiss.index_factory` takes; or an empty evidence index, trained or not, which is the store's own from
        then on. An index with lists is trained by :meth:`train`, or else by the rows that are added first, which must
        be at least 39 for each list then.
    class_names
        Classes that are known beforehand, texts or integers, in the order of their numbers; others follow as rows come
        with them. All are texts, or all are integers.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> store = cfe.EvidenceStore(2)
    >>> store.add(
    ...     ["a", "b", "c", "d"],
    ...     [[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]],
    ...     labels=["spam", "ham", "spam", None],
    ...     metadata=[{"lang": "de"}, {"lang": "en"}, {"lang": "de"}, {"lang": "en"}],
    ... )
    >>> store.search([1.0, 0.1], k=2).ids
    ['a', 'b']
    >>> store.evidence("a", k=2).ids
    ['b']
    >>> store.evidence("d", k=2, label="ham", where={"lang": "de"}).ids
    ['c', 'a']
    """

    def __init__(self, d: int, index: EvidenceIndex | str | None = None, class_names: Any = ()) -> None:
        d = as_count("d", d)
        if index is None:
            index = IndexEvidenceFlat(d)
        elif isinstance(index, str):
            index = index_factory(d, index)
        if not isinstance(index, EvidenceMixin):
            raise TypeError(f"index must be an evidence index, a description of one or None, got {index!r}")
        if index.d != d or index.ntotal:
            raise ValueError(f"index must be an empty evidence index of {d} dimensions, got {index!r}")
        names = listed("class_names", class_names)
        names = checked_labels("class_names", names, len(names))
        self._set_up(Contents(index, Table().with_classes(names), 0))

    def _set_up(self, contents: Contents) -> None:
        self._lock = ReadWriteLock()
        self._contents = contents
        self._origins: tuple[Path, ...] = ()  # where it was first read from or saved to, and where it was last saved

    # --- what is stored ---------------------------------------------------------------------------------------------

    @property
    def d(self) -> int:
        """Length of the vectors."""
        return self._contents.d

    @property
    def index(self) -> Any:
        """The evidence index below, to be read and set up (``nprobe``) only: its ids are numbers of the store's own."""
        return self._contents.index

    @property
    def ids(self) -> list[str]:
        """The ids of all rows, in the order that they were added."""
        return self._contents.table.ids.tolist()  # type: ignore[no-any-return]

    @property
    def class_names(self) -> tuple[str | int, ...]:
        """The known classes, in the order that they came."""
        return self._contents.table.class_names

    def __len__(self) -> int:
        return len(self._contents.table)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __contains__(self, id_: object) -> bool:
        if not isinstance(id_, str):
            return False
        with self._lock.reading():
            return bool(self._contents.rows_of([id_])[0] >= 0)

    def __repr__(self) -> str:
        names = self.class_names
        return f"EvidenceStore(d={self.d}, rows={len(self):,}, classes={len(names)}, index={self._contents.index!r})"

    def _mask(self, where: Any) -> Mask | None:
        return mask_of(where, self._contents.table, self._contents.rows_of)

    # --- changing it ------------------------------------------------------------------------------------------------

    def train(self, vectors: Any) -> None:
        """Cluster vectors into the lists of an index that has lists, before rows are added.

        Parameters
        ----------
        vectors
            Vectors like those to be added, (n, d), at least one for each list; 39 or more are better.

        Raises
        ------
        TypeError, ValueError
            If they are not as described, or the store holds rows already.
        """
        X = as_vectors("vectors", vectors, self.d)
        with self._lock.writing():
            self._contents.index.train(X)

    def add(self, ids: Any, vectors: Any, labels: Any = None, metadata: Any = None, documents: Any = None) -> None:
        """Add rows whose ids are new.

        Parameters
        ----------
        ids
            n distinct texts.
        vectors
            Vectors, (n, d): an array, a tensor, lists, or a column of lists of Arrow, polars or pandas. L2-normalised
            in a copy; a vector of zeros stays so, and its similarity to everything is 0.
        labels
            The predicted class of each, texts or integers; None for one that is not classified yet, and instead of all
            of them. Rows without a class are found by :meth:`search`, and are never evidence.
        metadata
            A mapping for each, or None. Keys are texts, values what JSON can say: texts, finite numbers, True, False,
            None, and lists and mappings of these. A tuple is stored as a list, a scalar of NumPy as one of Python.
        documents
            The text of each, or None.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; it names the id, and in metadata the key. If an id is stored already, or
            the index needs more rows to be trained. Nothing is added then.
        RuntimeError
            If the store was loaded with ``mmap=True``.
        """
        self._put(ids, vectors, labels, (metadata, documents), replace=False)

    def upsert(self, ids: Any, vectors: Any, labels: Any = None, metadata: Any = None, documents: Any = None) -> None:
        """Add rows; one whose id is stored takes the place of the old row, of which nothing is left.

        In the order of :attr:`ids` the new rows are the last.

        Parameters
        ----------
        ids, vectors, labels, metadata, documents
            As in :meth:`add`, but for ids that may be stored.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            As in :meth:`add`; nothing is changed then.

        Notes
        -----
        O(n) of a batch of new rows; where rows are replaced, the others are moved together in memory.
        """
        self._put(ids, vectors, labels, (metadata, documents), replace=True)

    def _put(self, ids: Any, vectors: Any, labels: Any, texts: tuple[Any, Any], *, replace: bool) -> None:
        names = checked_ids(ids)
        check_distinct(names)
        X = as_vectors("vectors", vectors, self.d)
        if len(X) != len(names):
            raise ValueError(f"vectors must have shape ({len(names)}, {self.d}), one for each id, got {X.shape}")
        classes = checked_labels("labels", labels, len(names))
        metadata, documents = checked_metadata(texts[0], names), checked_documents(texts[1], names)
        with self._lock.writing():
            old = self._contents.rows_of(names)
            stored = old >= 0
            if not replace and stored.any():
                raise ValueError(f"ids must not be in the store yet, got {names[int(np.argmax(stored))]!r}, which is")
            if names:
                table = self._contents.table.with_classes(classes)
                rows = NewRows(names, table.numbers_of(classes), metadata, documents)
                self._contents.insert(table, rows, X, old[stored])

    def delete(self, ids: Any = None, *, where: Any = None) -> int:
        """Remove rows; return how many.

        Parameters
        ----------
        ids
            Their ids; those that are not stored are passed over.
        where
            In place of ids: a filter, see :meth:`search`.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or both or none are given; nothing is removed then.
        RuntimeError
            If the store was loaded with ``mmap=True``.
        """
        if (ids is None) == (where is None):
            raise TypeError("delete takes either ids or where")
        names = [] if ids is None else checked_ids(ids)
        with self._lock.writing():
            mask = None if where is None else self._mask(where)
            if where is not None:
                rows = np.arange(len(self._contents.table)) if mask is None else np.flatnonzero(mask)
            else:
                rows = np.unique(self._contents.rows_of(names))
                rows = rows[rows >= 0]
            if len(rows):
                self._contents.remove(rows)
        return len(rows)

    def relabel(self, ids: Any, labels: Any = None) -> None:
        """Give rows new classes, as after another model has predicted them; vectors stay where they are.

        Parameters
        ----------
        ids
            Distinct ids of rows; None for all of them, in the order of :attr:`ids`. Or a mapping from ids to classes.
        labels
            The new class of each, None for "not classified"; left out where ``ids`` is a mapping.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or an id is not stored; nothing is changed then.
        RuntimeError
            If the store was loaded with ``mmap=True``.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> store = cfe.EvidenceStore(2)
        >>> store.add(["a", "b"], [[1, 0], [1, 1]], ["spam", "spam"])
        >>> store.relabel({"b": "ham"})
        >>> store.evidence("a", k=1).labels
        ['ham']
        """
        if isinstance(ids, Mapping):
            if labels is not None:
                raise TypeError("labels must be left out where ids is a mapping from ids to classes")
            ids, labels = list(ids), list(ids.values())
        names = None if ids is None else checked_ids(ids)
        if names is not None:
            check_distinct(names)
        with self._lock.writing():
            rows = np.arange(len(self._contents.table)) if names is None else self._contents.known_rows_of(names)
            classes = checked_labels("labels", labels, len(rows))
            if len(rows):
                table = self._contents.table.with_classes(classes)
                self._contents.relabel(table, rows, table.numbers_of(classes))

    # --- searching it -----------------------------------------------------------------------------------------------

    def search(self, xq: Any, k: int = 10, where: Any = None, *, with_vectors: bool = False) -> Any:
        """Return the k rows that are most similar to each query, whatever their class is.

        Parameters
        ----------
        xq
            A query, (d,), or several, (nq, d).
        k
            Rows wanted for each, >= 1.
        where
            Which rows may be found. One of

            - a mapping of conditions that must all hold: ``{"lang": "de"}`` (equal), ``{"lang": ["de", "en"]}`` (one
              of), or operators, ``{"year": {"$gte": 2020, "$lt": 2024}}``: ``$eq``, ``$ne``, ``$in``, ``$nin``,
              ``$gt``, ``$gte``, ``$lt``, ``$lte``, ``$exists`` (True or False) and ``$contains`` (an element of a list,
              a part of a text). In place of operators, a function of the value, which is called once for each different
              one. ``{"$and": [...]}``, ``{"$or": [...]}`` and ``{"$not": {...}}`` combine mappings. A
              key is one of the metadata ("a.b" is b in the mapping a), or ``"$id"``, ``"$label"`` (the predicted
              class), ``"$document"`` (the text);
            - a mask, (n,) booleans in the order of :attr:`ids`;
            - a sequence of ids; those that are not stored select nothing;
            - a function of the metadata of a row, which returns whether the row may be found. It is called for each row
              and must not use the store.

            A key that a row does not have counts as None.
        with_vectors
            Whether to return the vectors, too.

        Returns
        -------
        Hits or list of Hits
            What was found, best first; equal similarity: in the order they were added. A list where ``xq`` has two
            dimensions. Fewer than k where the filter leaves fewer.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described. A filter with an unknown operator, or one that compares values with
            those of another kind only (a text with numbers), is named.

        Notes
        -----
        With a filter the search is exact, for every kind of index, and compares the rows that it leaves: O(nq * n * d)
        at most. Without one it is the index's own search: exact for the exact index, with ``store.index.nprobe`` lists
        for others.
        """
        k, (X, single) = as_count("k", k), self._queries("xq", xq)
        with self._lock.reading():
            D, I = searching.search(self._contents.index, self._contents.table, X, k, self._mask(where))
            found = [self._hits(*one, with_vectors) for one in zip(D, I, strict=True)]
        return found[0] if single else found

    def evidence(
        self, id_or_vector: Any, k: int = 10, label: Any = None, where: Any = None, *, with_vectors: bool = False
    ) -> Any:
        """Return the counterfactual evidence: the k most similar rows that the classifier puts in another class.

        Parameters
        ----------
        id_or_vector
            An id or several, which take their vectors and classes from the store; or a vector, (d,), or several,
            (nq, d).
        k
            Rows wanted for each, >= 1.
        label
            The predicted class of the query, or of each, (nq,). It must be given for vectors and for rows that are not
            classified; for others it takes the place of their own class.
        where, with_vectors
            As in :meth:`search`.

        Returns
        -------
        Hits or list of Hits
            As in :meth:`search`; all have a class, and another one than the query. A list for several queries.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; if an id is not stored, a class is needed and missing, or not known: the
            message names the known ones.

        Notes
        -----
        With a filter exact, for every kind of index. Without one the index's own ``search_evidence``: exact for the
        exact index, with ``store.index.nprobe`` lists for others.
        """
        k = as_count("k", k)
        names = _as_ids(id_or_vector)
        vectors, single = (
            (None, isinstance(id_or_vector, str)) if names else self._queries("id_or_vector", id_or_vector)
        )
        with self._lock.reading():
            asked = self._of_ids(names or []) if vectors is None else _Asked(vectors)
            labels = self._labels_of(asked, label, single)
            mask = self._mask(where)
            if label is None or asked.keys is None:
                D, I = searching.evidence(self._contents.index, self._contents.table, asked.X, labels, k, mask)
            else:  # an id that is given another class may find itself
                D, I = searching.evidence(self._contents.index, self._contents.table, asked.X, labels, k + 1, mask)
                D, I = _without(asked.keys, D, I)
            found = [self._hits(d, i, with_vectors) for d, i in zip(D, I, strict=True)]
        return found[0] if single else found

    def _of_ids(self, names: list[str]) -> _Asked:
        table, rows = self._contents.table, self._contents.known_rows_of(names)
        keys = table.keys[rows]
        return _Asked(searching.vectors_of(self._contents.index, keys), keys, table.labels[rows])

    def _labels_of(self, asked: _Asked, label: Any, single: bool) -> NDArray[np.int32]:
        """Return the class number of each query: that of ``label``, or else its own."""
        own, n = asked.labels, len(asked.X)
        if label is None:
            labels = own
        else:
            given = [self._contents.table.class_number(one) for one in _given_labels(label, n, single)]
            labels = np.array(given, np.int32)
            if UNKNOWN in given and own is not None:
                labels = np.where(labels == UNKNOWN, own, labels)
        if labels is None or UNKNOWN in labels.tolist():
            name = "a vector" if own is None else "an id that is not classified"
            raise ValueError(f"label must be given for {name}: the predicted class that evidence differs from")
        return labels

    def _queries(self, name: str, xq: Any) -> tuple[NDArray[np.float32], bool]:
        array = as_array(name, xq)
        single = array.ndim == 1
        return as_unit_rows(name, array[None] if single else array, self.d), single

    def _hits(self, D: NDArray[np.float32], I: NDArray[np.int64], with_vectors: bool) -> Hits:
        if I[-1] < 0:
            D, I = D[I >= 0], I[I >= 0]
        table = self._contents.table
        rows = table.known_rows_of(I)
        return Hits(
            table.ids[rows].tolist(),
            D,
            table.class_of(rows),
            table.metadata_of(rows),
            table.documents[rows].tolist(),
            searching.vectors_of(self._contents.index, I) if with_vectors else None,
        )

    # --- reading it -------------------------------------------------------------------------------------------------

    def get(self, ids: Any = None, *, where: Any = None, skip_missing: bool = False) -> Rows:
        """Return rows as they are stored.

        Parameters
        ----------
        ids
            Their ids, in the order wanted; None for all rows, in the order of :attr:`ids`.
        where
            In place of ids: a filter, see :meth:`search`.
        skip_missing
            Whether to leave out ids that are not stored, instead of raising an error.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or an id is not stored.
        """
        if ids is not None and where is not None:
            raise TypeError("get takes either ids or where")
        names = None if ids is None else checked_ids(ids)
        with self._lock.reading():
            table = self._contents.table
            if names is None:
                mask = self._mask(where)
                rows = np.arange(len(table)) if mask is None else np.flatnonzero(mask)
            elif skip_missing:
                rows = self._contents.rows_of(names)
                rows = rows[rows >= 0]
            else:
                rows = self._contents.known_rows_of(names)
            return self._rows(rows)

    def _rows(self, rows: NDArray[np.int64]) -> Rows:
        table = self._contents.table
        return Rows(
            table.ids[rows].tolist(),
            searching.vectors_of(self._contents.index, table.keys[rows]),
            table.class_of(rows),
            table.metadata_of(rows),
            table.documents[rows].tolist(),
        )

    def count(self, where: Any = None) -> int:
        """Return how many rows a filter selects (see :meth:`search`); all of them by default."""
        with self._lock.reading():
            mask = self._mask(where)
            return len(self._contents.table) if mask is None else int(np.count_nonzero(mask))

    # --- tables -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_arrow(
        cls,
        table: Any,
        *,
        id: str = "id",  # noqa: A002 - the name of the column
        vector: str = "vector",
        label: str = "label",
        document: str = "document",
        index: EvidenceIndex | str | None = None,
    ) -> Self:
        """Return a store of the rows of a table.

        Parameters
        ----------
        table
            A table of pyarrow, pandas, polars, DuckDB or any other that has ``__arrow_c_stream__``.
        id, vector, label, document
            Names of the columns with ids (texts), vectors (lists of numbers), predicted classes (texts or integers)
            and texts; the latter two may be missing under these names. All other columns are metadata, where null is
            left out; the index of a pandas table is none, unless it has a name.
        index
            As in :class:`EvidenceStore`.

        Raises
        ------
        ImportError
            If pyarrow is missing, with the ``pip install`` that brings it.
        TypeError, ValueError
            If the table has not these columns, or holds what cannot be stored (dates, for example: cast them to text).
        """
        rows = tables.rows_of(table, Columns(id, vector, label, document))
        store = cls(tables.length_of(vector, rows[1]), index)
        store.add(*rows)
        return store

    def upsert_table(
        self,
        table: Any,
        *,
        id: str = "id",  # noqa: A002 - the name of the column
        vector: str = "vector",
        label: str = "label",
        document: str = "document",
    ) -> None:
        """Add the rows of a table, in place of those with the same ids.

        Parameters and errors are those of :meth:`from_arrow`; nothing is changed where there is an error.
        """
        self.upsert(*tables.rows_of(table, Columns(id, vector, label, document)))

    def to_arrow(self) -> Any:
        """Return all rows as a ``pyarrow.Table``.

        Its columns are id, vector (unit vectors, a fixed-size list of float32), label, document and one for each key
        of the metadata. A key with the name of another column is called "label (metadata)"; a missing one is null.
        Values that no one Arrow type holds are written as JSON.

        Raises
        ------
        ImportError
            If pyarrow is missing, with the ``pip install`` that brings it.
        """
        with self._lock.reading():
            rows, names = self._rows(np.arange(len(self._contents.table))), self._contents.table.class_names
        return tables.to_arrow(rows, str if names and isinstance(names[0], str) else int)

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame, with the columns of :meth:`to_arrow`."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return all rows as a polars DataFrame, with the columns of :meth:`to_arrow`."""
        import polars as pl

        return pl.from_arrow(self.to_arrow())

    # --- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the store into a directory: the index, the rows as Parquet, and a manifest with checksums.

        The directory changes from the old store to the new one in one moment, when all files are written and synced.
        A writer that is killed leaves the old store. A store that was loaded with ``mmap=True`` from the directory
        keeps the old files until it is released.

        Parameters
        ----------
        path
            A new or empty directory, or that of a store, which is replaced.
        overwrite
            Whether to write into a directory of other files. Of these only a ``manifest.json`` is replaced.

        Raises
        ------
        ImportError
            If pyarrow is missing, with the ``pip install`` that brings it.
        OSError
            If it cannot be written.
        ValueError
            If the directory holds other files, and ``overwrite`` is False; or if its store is mapped by another object
            than one that was loaded from it.
        """
        with self._lock.reading():
            disk.write(path, self._contents, overwrite=overwrite, origins=self._origins)
            self._origins = (*self._origins[:1], Path(path).resolve())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> Self:
        """Read a store that :meth:`save` wrote.

        Parameters
        ----------
        path
            Its directory.
        mmap
            Whether to leave the vectors in their file, from which the system reads what is searched. Such a store
            cannot be changed, and its vectors are not checked.

        Raises
        ------
        FileNotFoundError
            If there is no such directory.
        ImportError
            If pyarrow is missing, with the ``pip install`` that brings it.
        ValueError
            If it is not the directory of a store, is damaged, or is of another format version.
        """
        store = cls.__new__(cls)
        store._set_up(Contents(*disk.read(path, mmap)))
        store._origins = (Path(path).resolve(),)
        return store


@dataclass(frozen=True)
class _Asked:
    """Queries: unit rows (nq, d), and of those that are in the store key and class number, (nq,)."""

    X: NDArray[np.float32]
    keys: NDArray[np.int64] | None = None
    labels: NDArray[np.int32] | None = None


def _without(own: NDArray[np.int64], D: NDArray[np.float32], I: NDArray[np.int64]) -> Results:
    """Return D, I, (nq, k + 1), without the query's own key in each row, or else without its last: (nq, k)."""
    drop = own[:, None] == I
    drop[:, -1] |= ~drop.any(axis=1)
    shape = len(I), I.shape[1] - 1
    return D[~drop].reshape(shape), I[~drop].reshape(shape)


def _as_ids(values: Any) -> list[str] | None:
    """Return values as ids if they are one text or a sequence of texts, else None."""
    if isinstance(values, str):
        return [values]
    if isinstance(values, list | tuple) and values and isinstance(values[0], str):
        return checked_ids(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "UO" and values.ndim == 1:
        return checked_ids(values)
    return None


def _given_labels(label: Any, n: int, single: bool) -> list[Label]:
    if isinstance(label, str) or not hasattr(label, "__iter__"):
        return [as_class("label", label)] * n
    if single:
        raise TypeError(f"label must be one class for one query, got {label!r}")
    return checked_labels("label", label, n)
