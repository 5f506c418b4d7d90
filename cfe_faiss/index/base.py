"""Mixin with the methods common to all evidence indexes.

It precedes the FAISS class in the bases.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import (
    Change,
    FaissLists,
    Reading,
    ReadWriteLock,
    Table,
    Writing,
    call_steps,
    commit,
)
from cfe_faiss.base.checks import (
    Array,
    Bytes,
    Floats,
    Int32s,
    Ints,
    as_array,
    as_count,
    check_shape,
)
from cfe_faiss.base.threads import num_threads
from cfe_faiss.base.values import LabelKeys, as_ids, as_labels
from cfe_faiss.index.answering import AnsweringMixin
from cfe_faiss.index.parameters import as_numeric, written
from cfe_faiss.rows import codecs, ids_and_labels
from cfe_faiss.rows.faiss_functions import Step, emptying, setting, stock_bytes, stock_from
from cfe_faiss.rows.ids_and_labels import LabelEncoder
from cfe_faiss.rows.metric import as_rows, faiss_metric, lengths
from cfe_faiss.rows.snapshot import GuardedSnapshot, Members, Snapshot, UnknownIdError, read_only
from cfe_faiss.search.conditions import selected_rows
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import NO_ROWS

Arrays = dict[str, Array]


class Transaction:
    """Changes of the rows of an index, for ``with index.changing() as transaction``.

    Each is one atomic commit.

    Only ids are checked; the caller checks all other arguments. ``also`` are further steps of the
    same commit, such as ``setting(owner, name, value)``. They keep the data of an owner consistent
    with its index: both change, or neither.
    """

    def __init__(self, index: EvidenceMixin) -> None:
        self._index = index
        self._lists = index._faiss_lists()

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot."""
        return self._index.snapshot()

    def new_ids(self, ids: ArrayLike | None, n: int) -> Ints:
        """Return n new ids, checked to be distinct and not in the index; default: the next ids."""
        ids_and_labels.check_unchanged(self._index.ntotal, len(self._index._table))
        return self._index.new_ids(self._lists, ids, n)

    def encode(self, labels: ArrayLike, n: int) -> tuple[Int32s, list[Step]]:
        """Return the codes of n labels, -1 or None if unknown, and the steps that keep new ones."""
        encoder = self._index.label_encoder()
        return encoder("labels", labels, n, unknown=True), self._index._keeping(encoder)

    def insert(
        self, X: Floats, labels: Int32s, ids: ArrayLike | None, also: Sequence[Step] = ()
    ) -> None:
        """Add vectors as the index stores them."""
        new = self.new_ids(ids, len(X))
        if not self._index.is_trained:
            raise ValueError(
                "the index must be trained before vectors are added: call train(x) first"
            )
        self._index._replace_rows(self._lists, NO_ROWS, X, labels, new, also)

    def append(
        self,
        codes: Bytes,
        labels: Int32s,
        ids: ArrayLike | None,
        lists: Int32s,
        vectors: Floats | None = None,
        also: Sequence[Step] = (),
    ) -> None:
        """Add codes to their ``lists``, (partitions, n).

        ``vectors`` are required if the index stores them.
        """
        new = self.new_ids(ids, len(codes))
        index: Any = self._index  # an inverted file
        index._replace_codes(self._lists, NO_ROWS, (codes, new, lists, vectors), labels, also)

    def replace(
        self, old_ids: Ints, X: Floats, labels: Int32s | None, ids: Ints, also: Sequence[Step] = ()
    ) -> None:
        """Remove the rows with the ids ``old_ids`` and add vectors with ``ids``, in one commit.

        ``ids`` are stored only if they are in ``old_ids``. Without labels, vector i gets the label
        of ``old_ids[i]``.
        """
        for distinct in (old_ids, ids):
            ids_and_labels.distinct_ids(distinct, len(distinct), 0)
        rows = self.snapshot.find(old_ids)
        if labels is None:
            labels = self.snapshot.labels[rows]
        if not np.array_equal(ids, old_ids):
            new = ids[~np.isin(ids, old_ids)]
            self.new_ids(new, len(new))
        self._index._replace_rows(self._lists, rows, X, labels, ids, also)

    def remove(self, rows: Ints, also: Sequence[Step] = ()) -> None:
        """Remove rows, (m,), in strictly ascending order."""
        no_vectors = np.empty((0, self._index.d), np.float32)
        self._index._replace_rows(
            self._lists, rows, no_vectors, np.empty(0, np.int32), NO_ROWS, also
        )

    def relabel(self, rows: Ints, labels: Int32s, also: Sequence[Step] = ()) -> None:
        """Replace the labels of rows, (m,), in strictly ascending order."""
        self._index._relabel(rows, labels, also)


class EvidenceMixin(AnsweringMixin):
    """Storage, changes and copies of an evidence index, on top of its FAISS base class.

    FAISS's lists store vectors and ids; ``_table`` stores labels and references. All other data is
    derived from these two on first use and cached until the next change:
    :class:`cfe_faiss.rows.snapshot.Snapshot`.

    Readers hold the read lock and get a snapshot: ``with index.holding() as snapshot``. Writers
    hold the write lock and get a :class:`Transaction`: ``with index.changing() as transaction``. It
    prepares the new data separately and commits it by one call of the core, which no interrupt and
    no other thread can interleave.
    """

    # FAISS rejects attributes that the class does not define, so each has a default here.
    # Held by the reader that builds the snapshot.
    _deriving: ReadWriteLock = None  # type: ignore[assignment]
    refusal: str = ""  # why the index is read-only; empty if it is not
    origins: tuple[Path, ...] = ()  # first file read or written, and the last file written
    _table: Table = None  # type: ignore[assignment]
    # labels that the codes of the rows stand for; None if they are the labels
    label_keys: LabelKeys | None = None
    # deferred checks of the file, run on first use of the rows
    _unchecked: Callable[[], None] | None = None
    _longest: float = 0.0  # bounds the lengths of the vectors, for other metrics than cosine

    # Attributes of the FAISS base class.
    ntotal: int
    is_trained: bool
    train: Any
    sa_code_size: Any
    sa_decode: Any

    # --- implemented by each kind of index --------------------------------------------------------

    @abstractmethod
    def _new_snapshot(self) -> Snapshot:
        """Return a new snapshot of the index."""

    @abstractmethod
    def _faiss_lists(self) -> FaissLists:
        """Return FAISS's lists as an object of the core."""

    @abstractmethod
    def _replace_rows(
        self,
        lists: FaissLists,
        rows: Ints,
        X: Floats,
        labels: Int32s,
        ids: Ints,
        also: Sequence[Step],
    ) -> None:
        """Remove distinct rows, (r,), and add vectors as stored with checked ids.

        ``also`` is part of the commit.
        """

    @abstractmethod
    def _relabel(self, rows: Ints, labels: Int32s, also: Sequence[Step]) -> None:
        """Replace the labels of storage rows, (m,), in strictly ascending order."""

    @abstractmethod
    def _emptying(self) -> list[Step]:
        """Return the steps that remove every vector."""

    def _emptying_by(self, steps: list[Step], table: Table) -> list[Step]:
        """Return the steps that remove every vector from FAISS's part and from the table."""
        values = {"_table": table, "_longest": 0.0, "label_keys": None}
        return [
            *self._forgetting(),
            *steps,
            *(setting(self, name, value) for name, value in values.items()),
        ]

    @abstractmethod
    def parts(self) -> tuple[Any, dict[str, Any], Arrays]:
        """Return the index for FAISS to write, and all data that FAISS does not store."""

    @abstractmethod
    def restore(
        self,
        stock: Any,
        parameters: dict[str, Any],
        arrays: Arrays,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Take over a stock index, and restore the parameters and arrays of :meth:`parts`.

        The stock index keeps its memory; this object, made by ``__new__``, calls FAISS's
        constructor here.
        """

    # --- metric -----------------------------------------------------------------------------------

    @property
    def metric_type(self) -> int:
        """FAISS's constant of the metric; ValueError refuses another one."""
        return faiss_metric(self._metric)

    @metric_type.setter
    def metric_type(self, value: int) -> None:
        if value != self.metric_type:
            raise ValueError(
                f"metric_type must stay {self.metric_type}, that of metric {self.metric!r}, got "
                f"{value!r}"
            )

    def _lengthening(self, X: Floats) -> list[Step]:
        """Return the steps that keep the bound of the lengths of vectors, before some are added."""
        if self._metric == "cosine" or not len(X):
            return []
        return [setting(self, "_longest", max(self._longest, float(lengths(X).max())))]

    # --- storage ----------------------------------------------------------------------------------

    def _set_up(self, table: Table) -> None:
        """Initialise the attributes of a new index."""
        self._longest = 0.0
        self._lock = ReadWriteLock()
        self._deriving = ReadWriteLock()
        self._table = table
        self._state = None
        self.refusal = ""
        self.checks = None
        self.label_keys = None

    def holding(self) -> Reading[Snapshot]:
        """Return a context manager that holds the read lock and returns the snapshot.

        The snapshot does not change inside of it.

        It is for the package: code of a user must not run inside, as it may wait for a thread that
        needs the lock.
        """
        return self._lock.reading(self.snapshot)

    def snapshot(self) -> Snapshot:
        """Return the current snapshot; the caller holds the lock."""
        ids_and_labels.check_unchanged(self.ntotal, len(self._table))
        state = self._state
        if state is not None and self._unchecked is None and self._is_current(state):
            return state
        with self._deriving.writing():
            check = self._unchecked
            if check is not None:
                check()
                self._unchecked = None
            state = self._state
            if state is None or not self._is_current(state):
                self._state = state = self._new_snapshot()
                Derived.of(state)
            return state

    def _is_current(self, snapshot: Snapshot) -> bool:
        return True

    def reading(self) -> AbstractContextManager[Snapshot]:
        """Return a context manager that returns :meth:`storage`.

        It holds no lock while the block runs.
        """
        return nullcontext(self.storage())

    def storage(self) -> Snapshot:
        """Return the stored rows, read-only, without a lock. They keep the index alive.

        Arrays that were read stay valid after changes. Reading more rows after a change raises
        RuntimeError.
        """
        with self.holding() as snapshot:
            fields = {
                field.name: getattr(snapshot, field.name) for field in dataclasses.fields(snapshot)
            }
            return GuardedSnapshot(**fields, unchanged=self._unchanged)

    @contextmanager
    def _unchanged(self, snapshot: Snapshot) -> Iterator[None]:
        """Hold the read lock; raise RuntimeError if the rows have changed since ``snapshot``."""
        with self.holding() as current:
            if current.native is not snapshot.native:
                raise RuntimeError(
                    "the index has changed since storage() was called; call it again"
                )
            yield

    def members(self) -> Members:
        """Return the ids in ascending order, and the storage row and label of each."""
        with self.holding() as snapshot:
            members = snapshot.members
            return dataclasses.replace(
                members, labels=read_only(snapshot.decode(members.labels))[0]
            )

    @property
    def label_names(self) -> Array:
        """Known labels of the vectors in ascending order, (c,): int64, booleans or objects."""
        with self.holding() as snapshot:
            return snapshot.label_names

    def label_encoder(self) -> LabelEncoder:
        """Return an encoder of labels of new rows."""
        return LabelEncoder(self.label_keys, lambda: self.snapshot().class_counts[0])

    def _keeping(self, encoder: LabelEncoder) -> list[Step]:
        """Return the steps that keep the labels that an encoder has seen."""
        return (
            [] if encoder.table is self.label_keys else [setting(self, "label_keys", encoder.table)]
        )

    # --- changes ----------------------------------------------------------------------------------

    def new_ids(self, lists: FaissLists, ids: ArrayLike | None, n: int) -> Ints:
        """Return n new ids, checked to be distinct and not in the index; default: the next ids."""
        return ids_and_labels.new_ids(self._table, lists, ids, n)

    def changing(self) -> Writing[Transaction]:
        """Return a context manager that holds the write lock and returns a :class:`Transaction`.

        Raise RuntimeError if the index is read-only.
        """
        if self.refusal:
            raise RuntimeError(self.refusal)
        return self._lock.writing(partial(Transaction, self))

    def _forgetting(self, lists: Ints | None = None) -> list[Step]:
        """Return the steps that drop derived data, perhaps of some lists only."""
        return [setting(self, "_state", None)]

    def _commit(
        self,
        change: Change,
        lists: FaissLists,
        new: tuple[Any, Any, Any, Any],
        before: list[Step],
        undo: list[Step],
        after: list[Step],
    ) -> None:
        steps = self._forgetting(change.lists()) + before
        commit(self._table, change, lists, *new, steps, undo, after, num_threads())

    def add_with_labels(
        self, x: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None
    ) -> None:
        """Add vectors with the classes that the model predicts for them.

        Parameters
        ----------
        x
            Vectors, (n, d); L2-normalised on the way in, in a copy. A zero vector stays zero.
        labels
            Predicted class of each, (n,): integers in 0..2**63-1, texts or booleans, in a sequence,
            array, tensor or column of a table. An index keeps the kinds of its first labels.
        ids
            Id of each, (n,) distinct integers >= 0 that are not in the index yet; by default the
            integers after the largest stored id, or from 0.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid or the index is not trained. The index is then unchanged.
        """
        self._add(as_rows("x", x, self.d, self.metric), labels, ids)

    def add_with_ids(self, x: ArrayLike, ids: ArrayLike, numeric_type: int = faiss.Float32) -> None:
        """Add vectors of unknown class: they are stored, but are no evidence until relabelled.

        Parameters and errors are as in :meth:`add_with_labels`; ``numeric_type`` is FAISS's: the
        type to which values are rounded first.
        """
        self._add(as_rows("x", as_numeric(x, numeric_type), self.d, self.metric), None, ids)

    def add(self, x: ArrayLike, numeric_type: int = faiss.Float32) -> None:
        """Add vectors of unknown class with default ids, after the largest stored id.

        See :meth:`add_with_ids`.
        """
        self._add(as_rows("x", as_numeric(x, numeric_type), self.d, self.metric), None, None)

    def _add(self, X: Floats, labels: ArrayLike | None, ids: ArrayLike | None) -> None:
        """Add unit vectors; ``labels`` None stands for unknown classes."""
        with self.changing() as transaction:
            encoder = self.label_encoder()
            codes = (
                ids_and_labels.unknown_labels(len(X))
                if labels is None
                else encoder("labels", labels, len(X))
            )
            transaction.insert(X, codes, ids, self._keeping(encoder))

    def relabel(self, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Assign new classes to stored vectors, for example from another model.

        The clustering does not change.

        Parameters
        ----------
        labels
            New classes, one for each of ``ids``, (n,), as in :meth:`add_with_labels`; -1 or a
            missing value for "unknown".
        ids
            Stored ids, (n,); by default all of them, in ascending order.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid. The index is then unchanged.
        """
        with self.changing() as transaction:
            encoder = self.label_encoder()
            changed = ids_and_labels.relabelled_rows(transaction.snapshot, labels, ids, encoder)
            transaction.relabel(*changed, self._keeping(encoder))

    def update_vectors(self, ids: ArrayLike, x: ArrayLike, labels: ArrayLike | None = None) -> None:
        """Replace stored vectors. Ids stay, and so do classes unless ``labels`` are given.

        Results equal the results after :meth:`remove_ids` and :meth:`add_with_labels` of the same
        vectors. A new vector of an exact index takes the row of the old one; in lists it follows
        the rows of its class. A change of r vectors costs O(r + the size of the lists that they
        leave and enter). Training again makes lists that fit the new vectors; see :meth:`drift`.

        Parameters
        ----------
        ids
            Distinct stored ids, (n,).
        x
            Their new vectors, (n, d); for cosine L2-normalised in a copy, where a zero vector stays
            zero.
        labels
            Their new classes, (n,), as in :meth:`relabel`; by default each vector keeps its class.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or an id is not stored. The index is then unchanged.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> index = cfe.IndexEvidenceFlat(2)
        >>> index.add_with_labels([[1, 0], [0, 1], [0.6, 0.8]], [0, 1, 1])
        >>> index.update_vectors([1], [[2, 0]])
        >>> index.search_evidence([[1, 0]], [0], k=2)[1]
        array([[1, 2]])
        """
        row_ids = as_ids("ids", ids)
        X = as_rows("x", x, self.d, self.metric)
        check_shape("x", X, (len(row_ids), self.d), "one vector per id")
        with self.changing() as transaction:
            codes, steps = (None, []) if labels is None else transaction.encode(labels, len(X))
            transaction.replace(row_ids, X, codes, row_ids, steps)

    def drift(self) -> float:
        """Return the share of vectors that fit another list better than their list.

        0.0 for an index without lists.
        """
        return 0.0

    def remove_ids(self, x: Any) -> int:
        """Remove vectors and return their number.

        Parameters
        ----------
        x
            Same types as ``sel`` of :class:`EvidenceParameters`: ids (unknown ids are ignored), a
            mask of the stored vectors in ascending order of their ids, or a ``faiss.IDSelector``.

        Raises
        ------
        TypeError, ValueError
            If ``x`` has another type. The index is then unchanged.
        """
        x = self.without_callbacks(x, "x")
        with self.changing() as transaction:
            rows = selected_rows(x, transaction.snapshot, "x")
            if len(rows):
                transaction.remove(rows)
        return len(rows)

    def reset(self) -> None:
        """Remove all vectors; a trained index stays trained."""
        with self.changing():
            call_steps(self._emptying(), [])

    def merge_from(self, otherIndex: Any, add_id: int = 0) -> None:
        """Move all vectors of another index into this one, which empties the other.

        Parameters
        ----------
        otherIndex
            Evidence index (its labels are kept) or stock index with inverted lists or an id map
            (labels are unknown), with the same dimension and metric. For "cosine" a stock index may
            have any metric, as its vectors are normalised.
        add_id
            Offset added to the ids of the other index. The sums must not be in this index yet.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid. Both indexes are then unchanged.
        """
        self.check_compatible_for_merge(otherIndex)
        indexes = [one for one in (self, otherIndex) if isinstance(one, EvidenceMixin)]
        with ExitStack() as locks:
            for index in sorted(indexes, key=id):  # one global lock order prevents deadlocks
                locks.enter_context(index.changing())
            if isinstance(otherIndex, EvidenceMixin):
                other = otherIndex.snapshot()
                X, ids = other.copied(np.arange(other.n))
                labels = other.decode(other.labels)
                emptied = otherIndex._emptying()
            else:
                X, ids = ids_and_labels.stock_contents(otherIndex)
                labels = ids_and_labels.unknown_labels(len(X))
                emptied = emptying(otherIndex)
            shifted = self._merged_ids(ids, as_count("add_id", add_id, 0))
            # Decoding and encoding keeps the code of a row; normalising in between might change it.
            rows = (
                X
                if self._has_codec_of(otherIndex)
                else as_rows("otherIndex's vectors", X, self.d, self.metric)
            )
            encoder = self.label_encoder()
            codes = encoder("otherIndex's labels", labels, len(X), unknown=True)
            self._insert_merged(
                otherIndex, rows, codes, shifted, [*self._keeping(encoder), *emptied]
            )

    def _insert_merged(
        self, other: Any, X: Floats, labels: Int32s, ids: Ints, also: Sequence[Step]
    ) -> None:
        """Add the vectors of another index, in the order of its rows."""
        Transaction(self).insert(X, labels, ids, also)

    def _merged_ids(self, ids: Ints, add_id: int) -> Ints:
        """Return the ids in this index of merged vectors with these ids."""
        return as_ids("ids", ids + add_id)

    def check_compatible_for_merge(self, otherIndex: Any) -> None:
        """Raise the error of :meth:`merge_from` unless ``otherIndex`` can be merged."""
        if otherIndex is self or getattr(otherIndex, "d", None) != self.d:
            raise ValueError(
                f"otherIndex must be another index of {self.d} dimensions, got {otherIndex!r}"
            )
        if not isinstance(otherIndex, EvidenceMixin):
            ids_and_labels.check_stock(otherIndex)
            if self.metric == "cosine":  # which normalises any vectors
                return
        if (
            self.metric_type != otherIndex.metric_type
            or getattr(otherIndex, "metric", self.metric) != self.metric
        ):
            other = getattr(otherIndex, "metric", None) or f"metric_type {otherIndex.metric_type}"
            raise ValueError(
                f"otherIndex must have metric {self.metric!r}, as this index, got {other}"
            )

    def _has_codec_of(self, other: Any) -> bool:
        if not isinstance(other, EvidenceMixin):
            return False
        one = self.snapshot()
        two = other.snapshot()
        return bool(
            one.codec == two.codec != codecs.FLAT and np.array_equal(one.levels, two.levels)
        )

    # --- reconstruction ---------------------------------------------------------------------------

    def reconstruct_batch(self, key: ArrayLike, x: Any = None, **_: Any) -> Floats:
        """Return the stored vectors with the ids ``key``, (n, d) float32."""
        with self.holding() as snapshot:
            X = np.array(snapshot.rows(snapshot.find(key, name="key"))[0])
        return written("x", X, x)

    def reconstruct(self, key: int, x: Any = None, **_: Any) -> Floats:
        """Return the stored vector with the id ``key``, (d,) float32."""
        number = as_count("key", key, np.iinfo(np.int64).min)
        if number < 0:
            raise UnknownIdError(f"key must be at least 0, got {number}")
        return written("x", self.reconstruct_batch([number])[0], x)

    def reconstruct_n(self, n0: int = 0, ni: int = -1, x: Any = None, **_: Any) -> Floats:
        """Return the vectors with the ids n0 to n0 + ni - 1, by default to the last vector."""
        n0 = as_count("n0", n0, 0)
        ni = as_count("ni", ni, -1)
        return self.reconstruct_batch(np.arange(n0, self.ntotal if ni == -1 else n0 + ni), x)

    # --- copies -----------------------------------------------------------------------------------

    def to_stock(self) -> Any:
        """Return a plain FAISS index: a copy without labels and supplementary partitions."""
        with self._lock.reading():
            self._check_mapped()
            return stock_from(stock_bytes(self._in_memory()))

    def _in_memory(self) -> Any:
        """Return an index that FAISS can write: this one, or a copy of a mapped one."""
        return self

    def class_index(self, label: int | str) -> Any:
        """Return a plain FAISS index of this kind with copies of the rows of one class.

        That of an exact index is a ``faiss.IndexIDMap2``.

        Parameters
        ----------
        label
            Class. A class without vectors gives an empty index.

        Raises
        ------
        TypeError, ValueError
            If ``label`` is invalid.
        """
        labels = as_labels("label", [label], 1)
        with self.holding() as snapshot:
            return self._stock_of(snapshot, int(snapshot.encode("label", labels)[0]))

    def _stock_of(self, snapshot: Snapshot, label: int) -> Any:
        """Return a plain FAISS index with the rows of a class, for holders of the read lock."""
        stock = self.to_stock()
        stock.remove_ids(snapshot.ids()[snapshot.labels != label])
        return stock

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for ``pickle`` and ``copy``: FAISS's bytes, and all other data."""
        with self._lock.reading():
            stock, parameters, arrays = self.parts()
            return {
                "this": stock_bytes(stock).tobytes(),
                "parameters": parameters,
                "arrays": arrays,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state of :meth:`__getstate__`; raise ValueError if it is not valid."""
        stock = stock_from(np.frombuffer(state["this"], np.uint8))
        self.restore(
            stock,
            state["parameters"],
            {name: array.copy() for name, array in state["arrays"].items()},
        )
        self.snapshot().check()

    def add_sa_codes(self, codes: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Add vectors of unknown class, given as codes of ``sa_encode``.

        Parameters
        ----------
        codes
            (n, sa_code_size()) uint8, from this index or one with the same codec.
        ids
            As in :meth:`add_with_labels`.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid. The index is then unchanged.
        """
        array = as_array("codes", codes)
        size = self.sa_code_size()
        if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != size:
            raise ValueError(
                f"codes must be uint8 of shape (n, {size}), got {array.dtype} of shape "
                f"{array.shape}"
            )
        X = as_rows("codes", self.sa_decode(np.ascontiguousarray(array)), self.d, self.metric)
        self._add(X, None, ids)

    # --- unsupported: would lose labels -----------------------------------------------------------

    def _refused(self, name: str, instead: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__}.{name} would lose labels: {instead}")
