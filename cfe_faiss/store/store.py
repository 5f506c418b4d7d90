"""Documents with string ids, predicted classes, metadata and texts over an evidence index."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import ReadWriteLock
from cfe_faiss.checks import UNKNOWN, as_array, as_count, as_unit_rows
from cfe_faiss.index.base import EvidenceMixin
from cfe_faiss.index.factory import index_factory
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.ivf_base import automatic_nlist
from cfe_faiss.index.kinds import EvidenceIndex
from cfe_faiss.lists.faiss_functions import setting
from cfe_faiss.lists.id_map import UnknownIdError
from cfe_faiss.search import exact
from cfe_faiss.store import disk, searching, tables
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
)

_TRAINING_VECTORS = 39
"""Vectors that each list should have for its centroid: FAISS's own least number."""


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
        names = checked_labels("class_names", class_names, len(class_names))
        self._set_up(index, Table().with_classes(names), 0)

    def _set_up(self, index: Any, table: Table, next_key: int) -> None:
        self._lock = ReadWriteLock()
        self._index = index
        self._table = table
        self._next_key = next_key
        # Ids that a change has not taken in, or that have gone, may be left here: a key that is not in the table is
        # no row's.
        self._keys: dict[str, int] = dict(zip(table.ids.tolist(), table.keys.tolist(), strict=True))

    # --- what is stored ---------------------------------------------------------------------------------------------

    @property
    def d(self) -> int:
        """Length of the vectors."""
        return int(self._index.d)

    @property
    def index(self) -> Any:
        """The evidence index below, to be read and set up (``nprobe``) only: its ids are numbers of the store's own."""
        return self._index

    @property
    def ids(self) -> list[str]:
        """The ids of all rows, in the order that they were added."""
        return self._table.ids.tolist()  # type: ignore[no-any-return]

    @property
    def class_names(self) -> tuple[str | int, ...]:
        """The known classes, in the order that they came."""
        return self._table.class_names

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __contains__(self, id_: object) -> bool:
        if not isinstance(id_, str):
            return False
        with self._lock.reading():
            return bool(self._rows_of([id_])[0] >= 0)

    def __repr__(self) -> str:
        names = self.class_names
        return f"EvidenceStore(d={self.d}, rows={len(self):,}, classes={len(names)}, index={self._index!r})"

    def _rows_of(self, ids: list[str]) -> NDArray[np.int64]:
        """Return the row of each id, -1 where there is none; for whoever is inside of the lock."""
        find = self._keys.get
        return self._table.rows_of(np.array([find(one, -1) for one in ids], np.int64))

    def _known_rows_of(self, ids: list[str]) -> NDArray[np.int64]:
        rows = self._rows_of(ids)
        if min(rows.tolist(), default=0) < 0:
            raise UnknownIdError(f"ids must be in the store, got {ids[int(np.argmin(rows))]!r}, which is not")
        return rows

    def _mask(self, where: Any) -> Mask | None:
        return mask_of(where, self._table, self._rows_of)

    # --- changing it ------------------------------------------------------------------------------------------------

    def train(self, vectors: Any) -> None:
        """Train an index that has lists."""
        X = as_vectors("vectors", vectors, self.d)
        with self._lock.writing():
            self._index.train(X)

    def add(self, ids: Any, vectors: Any, labels: Any = None, metadata: Any = None, documents: Any = None) -> None:
        """Add rows."""
        self._put(ids, vectors, labels, (metadata, documents), replace=False)

    def upsert(self, ids: Any, vectors: Any, labels: Any = None, metadata: Any = None, documents: Any = None) -> None:
        """Add rows, in place of those with the same ids."""
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
            old = self._rows_of(names)
            stored = old >= 0
            if not replace and stored.any():
                raise ValueError(f"ids must not be in the store yet, got {names[int(np.argmax(stored))]!r}, which is")
            if names:
                table = self._table.with_classes(classes)
                rows = NewRows(names, table.numbers_of(classes), metadata, documents)
                self._insert(table, rows, X, old[stored])

    def _insert(self, table: Table, rows: NewRows, X: NDArray[np.float32], old: NDArray[np.int64]) -> None:
        """Add rows in place of old ones: all at once, for whoever is inside of the lock."""
        self._sweep()
        self._train_by(X)
        keys = np.arange(self._next_key, self._next_key + len(X))
        self._next_key += len(X)
        gone = self._table.keys[old]
        after = table.without(old).with_rows(keys, rows)
        by_id = dict(zip(rows.ids, keys.tolist(), strict=True))
        replaced = [(self._keys.__setitem__, (one, by_id[one])) for one in self._table.ids[old].tolist()]
        self._keys.update((one, key) for one, key in by_id.items() if one not in self._keys)
        index = self._index
        with index._changing():
            lists = index._faiss_lists()
            new = index._new_ids(lists, keys, len(X))
            index._insert(lists, X, rows.labels, new, [setting(self, "_table", after), *replaced])
        if len(gone):
            index.remove_ids(gone)

    def _sweep(self) -> None:
        """Remove from the index what an interrupted change has left there."""
        if self._index.ntotal != len(self._table):
            stored = self._index.members().ids
            self._index.remove_ids(np.setdiff1d(stored, self._table.keys))

    def _train_by(self, X: NDArray[np.float32]) -> None:
        index = self._index
        if index.is_trained:
            return
        needed = _TRAINING_VECTORS * (index.nlist or automatic_nlist(len(X)))
        if len(X) < needed:
            raise ValueError(
                f"the first rows train {index!r} and must be at least {needed}, got {len(X)}: call train(vectors) "
                "first, or add more rows at once"
            )
        index.train(X)

    def delete(self, ids: Any = None, *, where: Any = None) -> int:
        """Remove rows; return how many."""
        if (ids is None) == (where is None):
            raise TypeError("delete takes either ids or where")
        names = [] if ids is None else checked_ids(ids)
        with self._lock.writing():
            mask = None if where is None else self._mask(where)
            if where is not None:
                rows = np.arange(len(self._table)) if mask is None else np.flatnonzero(mask)
            else:
                rows = np.unique(self._rows_of(names))
                rows = rows[rows >= 0]
            if len(rows):
                self._remove(rows)
        return len(rows)

    def _remove(self, rows: NDArray[np.int64]) -> None:
        self._sweep()
        after, gone, index = self._table.without(rows), self._table.keys[rows], self._index
        names = self._table.ids[rows].tolist()
        with index._changing():
            stored = index._snapshot().storage.row_ids
            gone_rows = np.isin(stored, gone)
            index._remove(gone_rows, stored[~gone_rows], [setting(self, "_table", after)])
        for one in names:
            self._keys.pop(one, None)

    def relabel(self, ids: Any, labels: Any = None) -> None:
        """Give rows new classes."""
        if isinstance(ids, Mapping):
            if labels is not None:
                raise TypeError("labels must be left out where ids is a mapping from ids to classes")
            ids, labels = list(ids), list(ids.values())
        names = None if ids is None else checked_ids(ids)
        if names is not None:
            check_distinct(names)
        with self._lock.writing():
            rows = np.arange(len(self._table)) if names is None else self._known_rows_of(names)
            classes = checked_labels("labels", labels, len(rows))
            if len(rows):
                table = self._table.with_classes(classes)
                self._relabel(table, rows, table.numbers_of(classes))

    def _relabel(self, table: Table, rows: NDArray[np.int64], numbers: NDArray[np.int32]) -> None:
        self._sweep()
        after, index = table.with_labels(rows, numbers), self._index
        with index._changing():
            labels = after.labels[index._snapshot().members.places]
            index._relabel(labels, [setting(self, "_table", after)])

    # --- searching it -----------------------------------------------------------------------------------------------

    def search(self, xq: Any, k: int = 10, where: Any = None, *, with_vectors: bool = False) -> Any:
        """Return the k most similar rows."""
        k, (X, single) = as_count("k", k), self._queries("xq", xq)
        with self._lock.reading():
            D, I = searching.search(self._index, self._table, X, k, self._mask(where))
            found = [self._hits(*one, with_vectors) for one in zip(D, I, strict=True)]
        return found[0] if single else found

    def evidence(
        self, id_or_vector: Any, k: int = 10, label: Any = None, where: Any = None, *, with_vectors: bool = False
    ) -> Any:
        """Return the k most similar rows of other classes."""
        k = as_count("k", k)
        names = _as_ids(id_or_vector)
        vectors, single = (
            (None, isinstance(id_or_vector, str)) if names else self._queries("id_or_vector", id_or_vector)
        )
        with self._lock.reading():
            asked = self._of_ids(names or []) if vectors is None else _of_vectors(vectors)
            labels = self._labels_of(asked, label, single)
            mask = self._mask(where)
            if label is None or vectors is not None:
                D, I = searching.evidence(self._index, self._table, asked.X, labels, k, mask)
            else:  # an id that is given another class may find itself
                D, I = searching.evidence(self._index, self._table, asked.X, labels, k + 1, mask)
                D, I = _without(asked.keys, D, I)
            found = [self._hits(d, i, with_vectors) for d, i in zip(D, I, strict=True)]
        return found[0] if single else found

    def _of_ids(self, names: list[str]) -> "_Asked":
        table, rows = self._table, self._known_rows_of(names)
        keys = table.keys[rows]
        return _Asked(searching.vectors_of(self._index, keys), keys, table.labels[rows])

    def _labels_of(self, asked: "_Asked", label: Any, single: bool) -> NDArray[np.int32]:
        """Return the class number of each query: that of ``label``, or else its own."""
        labels = asked.labels
        if label is not None:
            given = [self._table.class_number(one) for one in _given_labels(label, len(labels), single)]
            labels = np.array(given, np.int32) if UNKNOWN not in given else np.where(np.array(given) < 0, labels, given)
        if UNKNOWN in labels.tolist():
            name = "a vector" if asked.keys[np.argmin(labels)] < 0 else "an id that is not classified"
            raise ValueError(f"label must be given for {name}: the predicted class that evidence differs from")
        return labels

    def _queries(self, name: str, xq: Any) -> tuple[NDArray[np.float32], bool]:
        array = as_array(name, xq)
        single = array.ndim == 1
        return as_unit_rows(name, array[None] if single else array, self.d), single

    def _hits(self, D: NDArray[np.float32], I: NDArray[np.int64], with_vectors: bool) -> Hits:
        if I[-1] < 0:
            D, I = D[I >= 0], I[I >= 0]
        table = self._table
        rows = table.keys.searchsorted(I)
        return Hits(
            table.ids[rows].tolist(),
            D,
            table.class_of(rows),
            table.metadata_of(rows),
            table.documents[rows].tolist(),
            searching.vectors_of(self._index, I) if with_vectors else None,
        )

    # --- reading it -------------------------------------------------------------------------------------------------

    def get(self, ids: Any = None, *, where: Any = None, skip_missing: bool = False) -> Rows:
        """Return rows as they are stored."""
        if ids is not None and where is not None:
            raise TypeError("get takes either ids or where")
        names = None if ids is None else checked_ids(ids)
        with self._lock.reading():
            table = self._table
            if names is None:
                mask = self._mask(where)
                rows = np.arange(len(table)) if mask is None else np.flatnonzero(mask)
            elif skip_missing:
                rows = self._rows_of(names)
                rows = rows[rows >= 0]
            else:
                rows = self._known_rows_of(names)
            return self._rows(rows)

    def _rows(self, rows: NDArray[np.int64]) -> Rows:
        table = self._table
        return Rows(
            table.ids[rows].tolist(),
            searching.vectors_of(self._index, table.keys[rows]),
            table.class_of(rows),
            table.metadata_of(rows),
            table.documents[rows].tolist(),
        )

    def count(self, where: Any = None) -> int:
        """Return how many rows a filter selects."""
        with self._lock.reading():
            mask = self._mask(where)
            return len(self._table) if mask is None else int(np.count_nonzero(mask))

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
        """Return a store of the rows of a table."""
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
        """Add the rows of a table, in place of those with the same ids."""
        self.upsert(*tables.rows_of(table, Columns(id, vector, label, document)))

    def to_arrow(self) -> Any:
        """Return all rows as a ``pyarrow.Table``."""
        with self._lock.reading():
            rows, names = self._rows(np.arange(len(self._table))), self._table.class_names
        return tables.to_arrow(rows, str if names and isinstance(names[0], str) else int)

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return all rows as a polars DataFrame."""
        import polars as pl

        return pl.from_arrow(self.to_arrow())

    # --- files ------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the store into a directory."""
        with self._lock.reading():
            disk.write(path, self._index, self._table, self._next_key)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, mmap: bool = False) -> Self:
        """Read a store from its directory."""
        store = cls.__new__(cls)
        store._set_up(*disk.read(path, mmap))
        return store


@dataclass(frozen=True)
class _Asked:
    """Queries: unit rows (nq, d), and the key and class number of each; -1 of a vector that is not in the store."""

    X: NDArray[np.float32]
    keys: NDArray[np.int64]
    labels: NDArray[np.int32]


def _of_vectors(X: NDArray[np.float32]) -> _Asked:
    return _Asked(X, np.full(len(X), -1), np.full(len(X), UNKNOWN, np.int32))


def _without(own: NDArray[np.int64], D: NDArray[np.float32], I: NDArray[np.int64]) -> exact.Results:
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
