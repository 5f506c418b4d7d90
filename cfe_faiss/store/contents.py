"""Contents of a store: an index and the table of its rows, which change together.

The core replaces the table in the same call that changes the index, so neither an interrupt nor an
error separates the two. Callers hold the store's lock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from itertools import filterfalse
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import call_steps
from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Bytes, Floats, Int32s, Ints, as_labels
from cfe_faiss.base.threads import derived
from cfe_faiss.base.values import NOT_STORED, LabelKeys, as_objects, distinct
from cfe_faiss.index.ivf_base import automatic_nlist
from cfe_faiss.rows.faiss_functions import Step, setting
from cfe_faiss.rows.ids_and_labels import relabelled_rows, unknown_labels
from cfe_faiss.rows.snapshot import UnknownIdError
from cfe_faiss.search.query import Effort, Query, Results, Rules
from cfe_faiss.store.values import Label, Metadata

T = TypeVar("T", bound=np.generic)
Mask = Bools

REMOVED = -2
"""Label of a removed row, which stays in the arrays of a table until they are compacted."""
MISSING: Any = type("Missing", (), {"__repr__": lambda _: "no value"})()
"""Value of a key that a row does not have."""
ID = "$id"
LABEL = "$label"
DOCUMENT = "$document"
"""Names that filters use for the columns besides metadata."""
_ARRAYS = ("keys", "labels", "ids", "metadata", "documents")
_MAX_COLUMNS = 16
"""Columns kept for filters. Each takes memory, and time in every change."""
_MAX_REMOVED = 32
"""Removed rows that a small table may keep.

A large one keeps at most as many removed rows as stored ones.
"""
_TRAINING_VECTORS = 39
"""FAISS's least number of training vectors per list."""

Kind = IntEnum(
    "Kind",
    "NO_VALUE NULL BOOLEAN NUMBER TEXT LIST MAPPING DATETIME ZONED DATE TIME DURATION BYTES",
    start=0,
)
"""Kinds of values, in the order of ``KINDS``."""
KINDS: tuple[str, ...] = (
    "no value",
    "None",
    "True and False",
    "numbers",
    "texts",
    "lists",
    "mappings",
    "datetimes",
    "datetimes with a time zone",
    "dates",
    "times",
    "durations",
    "bytes",
)
_KIND_OF = {
    type(MISSING): Kind.NO_VALUE,
    type(None): Kind.NULL,
    bool: Kind.BOOLEAN,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    Decimal: Kind.NUMBER,
    str: Kind.TEXT,
    list: Kind.LIST,
    dict: Kind.MAPPING,
    datetime: Kind.DATETIME,
    date: Kind.DATE,
    time: Kind.TIME,
    timedelta: Kind.DURATION,
    bytes: Kind.BYTES,
}
_HASHABLE = frozenset(_KIND_OF) - {bool, list, dict}


# --- columns of filters ---------------------------------------------------------------------------


def kind_of(value: Any) -> Kind:
    """Return the kind of a value."""
    kind = _KIND_OF[type(value)]
    return Kind.ZONED if kind is Kind.DATETIME and value.tzinfo is not None else kind


def key_of(value: Any) -> Any:
    """Return a hashable key, equal for equal values only: True differs from 1.

    The order of a mapping is ignored.
    """
    kind = type(value)
    if kind is list:
        return kind, tuple(map(key_of, value))
    if kind is dict:
        return kind, frozenset((key, key_of(item)) for key, item in value.items())
    return (kind, value) if kind is bool else value


def float_holds(number: float) -> bool:
    """Return whether float64 represents a number exactly: any float, and integers up to 2**53.

    No decimal.
    """
    return type(number) is float or (type(number) is int and -(1 << 53) <= number <= 1 << 53)


class Values:
    """Distinct values, numbered in the order of their first occurrence. It only grows.

    Values of a failed change stay in it unused.

    Attributes
    ----------
    values
        The value of each number; number 0 is always ``MISSING``.
    """

    def __init__(self) -> None:
        self.values: list[Any] = [MISSING]
        self._codes: dict[Any, int] = {MISSING: 0}
        self._kinds: Bytes = np.zeros(1, np.uint8)
        self._numbers: Array = np.full(1, math.nan)

    def encode(self, values: Sequence[Any]) -> Int32s:
        """Return the number of each value, (n,). A new value gets the next number."""
        keys = values if set(map(type, values)) <= _HASHABLE else list(map(key_of, values))
        for key, value in zip(keys, values, strict=True):
            if key not in self._codes:
                self.values.append(value)
                self._codes[key] = len(self.values) - 1
        return np.fromiter(map(self._codes.__getitem__, keys), np.int32, len(keys))

    def code(self, value: Any) -> int | None:
        """Return the number of a value, or None if the value is unknown."""
        return self._codes.get(key_of(value))

    @property
    def kinds(self) -> Bytes:
        """Kind of each value, as a position in ``KINDS``, (m,)."""
        new = self.values[len(self._kinds) :]
        if new:
            self._kinds = append(self._kinds, np.array(list(map(kind_of, new)), np.uint8))
        return self._kinds

    @property
    def numbers(self) -> Array:
        """Numbers as float64, or as objects if float64 does not represent them all.

        NaN for other values, (m,).
        """
        new = [
            value if kind_of(value) is Kind.NUMBER else math.nan
            for value in self.values[len(self._numbers) :]
        ]
        if new:
            dtype = np.float64 if all(map(float_holds, new)) else object
            self._numbers = np.concatenate([self._numbers, np.array(new, dtype)])
        return self._numbers


@dataclass(frozen=True, eq=False)
class Column:
    """The values of all rows under one key.

    Each distinct value is stored once; a column holds one number per row.

    Attributes
    ----------
    version
        Version of the table.
    codes
        Number of each row's value, (n,) int32.
    dictionary
        The values, which the next version of the column extends.
    labels
        Class number of each row, (n,) int32; ``REMOVED`` marks removed rows.
    """

    version: object
    codes: Int32s
    dictionary: Values
    labels: Int32s

    @derived
    def used(self) -> Mask:
        """Whether any row has the value, (m,)."""
        used = np.zeros(len(self.dictionary.values), bool)
        used[self.codes[self.labels != REMOVED]] = True
        return used

    @derived
    def kinds(self) -> frozenset[int]:
        """Kinds of the values in use."""
        return frozenset(self.dictionary.kinds[: len(self.used)][self.used].tolist())


def values_of(metadata: Sequence[Metadata], key: str) -> list[Any]:
    """Return the value of a key in each mapping; "a.b" is b in a, unless a key is "a.b"."""
    if "." not in key:
        return [mapping.get(key, MISSING) for mapping in metadata]
    return [_value_at(mapping, key) for mapping in metadata]


def _value_at(metadata: Metadata, key: str) -> Any:
    if key in metadata:
        return metadata[key]
    value: Any = metadata
    for part in key.split("."):
        if type(value) is not dict or part not in value:
            return MISSING
        value = value[part]
    return value


def append(array: NDArray[T], more: NDArray[T]) -> NDArray[T]:
    """Return ``array`` followed by ``more``, (n + m,): a view of a larger array with spare room.

    Amortised O(m).

    Views share their memory, so append only to the newest of them. After a failed change the next
    one overwrites the spare room, which no view shows.
    """
    n = len(array)
    m = len(more)
    room: Any = array.base
    shares = (
        isinstance(room, np.ndarray) and room.dtype == array.dtype and room.strides == array.strides
    )
    if not shares or room.ctypes.data != array.ctypes.data or len(room) < n + m:
        room = np.empty(n + m + (n + m) // 2 if n else m, array.dtype)
        room[:n] = array
    room[n : n + m] = more
    view: NDArray[T] = room[: n + m]
    return view


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Classes:
    """Names of the classes: class number c is ``names[c]``."""

    names: tuple[str | int, ...] = ()

    @derived
    def _keys(self) -> LabelKeys:
        return LabelKeys.of_names(as_objects(self.names))

    def number(self, label: Label) -> int:
        """Return the number of a class, -1 for None.

        ValueError lists the known classes if it is not one of them.
        """
        number = UNKNOWN if label is None else self._keys.code_of(label)
        if number is None or number == NOT_STORED:
            names = ", ".join(map(repr, self.names[:20])) or "there is none yet"
            raise ValueError(f"label must be a known class ({names}), got {label!r}")
        return number

    def numbers(self, labels: list[Label]) -> Int32s:
        """Return the number of each class, -1 for None."""
        return np.array(list(map(self.number, labels)), np.int32)

    def extend(self, labels: list[Label]) -> "Classes":
        """Return these classes followed by the new ones among ``labels``.

        TypeError for classes of another kind.
        """
        values = as_objects(labels)
        new = values[self._keys.find("labels", values) == NOT_STORED]
        return Classes((*self.names, *new[np.sort(distinct(new)[0])])) if len(new) else self


Change = tuple["Table", list[Step]]
"""A new table, and the steps for the time when it replaces the old one.

They write into memory that both share.
"""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a store, in the order in which they were added.

    A change makes a new table that shares most memory.

    Removed rows stay in the arrays, marked by their label, until they outnumber the others. So a
    change takes time in proportion to the rows that it changes.

    Attributes
    ----------
    classes
        Names of the classes.
    keys
        Id of each row in the index, (n,) int64, ascending. No key is used twice.
    labels
        Class number of each row, -1 for an unclassified and ``REMOVED`` for a removed one, (n,)
        int32.
    ids, metadata, documents
        Id, metadata and text of each row, (n,) objects.
    removed
        Number of removed rows.
    columns
        The columns that filters used last, by name, 16 at most, shared by the versions of a table.
        A filter extends the column of an earlier version by the rows that were added since.

    Notes
    -----
    The rows are Python objects and not a table of Arrow, by measurement with 100,000 rows. A search
    takes 100 us. The ids, metadata and texts of its 10 hits take 17 us, from a table of Arrow 65 us
    in one chunk, and 1.3 ms in 20 chunks, as changes leave them. The filter ``{"lang": "de"}``
    takes 20 us by the numbers of a column and 1.2 ms by Arrow; a filter by three values takes 0.1
    and 0.7 ms.
    """

    classes: Classes = field(default_factory=Classes)
    keys: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    labels: Int32s = field(default_factory=lambda: np.empty(0, np.int32))
    ids: NDArray[np.object_] = field(default_factory=lambda: as_objects([]))
    metadata: NDArray[np.object_] = field(default_factory=lambda: as_objects([]))
    documents: NDArray[np.object_] = field(default_factory=lambda: as_objects([]))
    removed: int = 0
    columns: dict[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, classes: Classes, keys: Ints, labels: Int32s, *columns: Sequence[Any]) -> "Table":
        """Return a table of keys, class numbers, ids, metadata and texts."""
        ids, metadata, documents = map(as_objects, columns)
        return cls(classes, keys, labels, ids, metadata, documents)

    def __len__(self) -> int:
        return len(self.keys) - self.removed

    @derived
    def version(self) -> object:
        """Object that differs from that of every other version of the table."""
        return object()

    @derived
    def rows(self) -> Ints:
        """Positions of the stored rows, ascending."""
        return np.flatnonzero(self.labels != REMOVED)

    def find(self, keys: Ints) -> Ints:
        """Return the row of each key, -1 for an unknown or a removed one."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        rows = self.keys.searchsorted(keys)
        last = np.minimum(rows, len(self.keys) - 1)
        rows[(self.keys[last] != keys) | (self.labels[last] == REMOVED)] = -1
        return rows

    def column(self, name: str) -> Column:
        """Return the column of a metadata key, or of ``ID``, ``LABEL`` or ``DOCUMENT``.

        O(n) for a new one.
        """
        # A column is popped while it is extended: another thread makes its own meanwhile.
        column = self.columns.pop(name, None)
        if column is None or column.version is not self.version:
            column = self._encoded(name, column)
        self.columns[name] = column  # the most recent one
        # other threads change the dict: iterate over a copy
        for oldest in list(self.columns)[:-_MAX_COLUMNS]:
            self.columns.pop(oldest, None)
        return column

    def _encoded(self, name: str, earlier: Column | None) -> Column:
        if name == LABEL:
            dictionary = Values()
            codes = dictionary.encode([*self.classes.names, None])[np.maximum(self.labels, UNKNOWN)]
            return Column(self.version, codes, dictionary, self.labels)
        # a long history of values
        if earlier is None or len(earlier.dictionary.values) > 2 * len(self) + 1024:
            earlier = Column(self.version, np.empty(0, np.int32), Values(), self.labels)
        n = len(earlier.codes)
        if name in (ID, DOCUMENT):
            values = (self.ids if name == ID else self.documents)[n:].tolist()
        else:
            values = values_of(self.metadata[n:].tolist(), name)
        codes = append(earlier.codes, earlier.dictionary.encode(values))
        return Column(self.version, codes, earlier.dictionary, self.labels)

    # --- changes ----------------------------------------------------------------------------------

    def with_rows(self, new: "Table") -> "Table":
        """Return a table with the rows of another one, of higher keys, at its end."""
        arrays: dict[str, Any] = {
            name: append(getattr(self, name), getattr(new, name)) for name in _ARRAYS
        }
        return replace(self, classes=new.classes, **arrays)

    def without(self, rows: Ints) -> Change:
        """Remove rows, (m,), each once."""
        removed = self.removed + len(rows)
        if removed > len(self.keys) - removed + _MAX_REMOVED:
            keep = self.labels != REMOVED
            keep[rows] = False
            return self.only(keep), []
        return replace(self, removed=removed), [
            _writing(self.labels, rows, np.full(len(rows), REMOVED, np.int32))
        ]

    def only(self, rows: Array) -> "Table":
        """Return a table with copies of some rows, positions or (n,) bool; O(n)."""
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return Table(self.classes, **arrays)

    def with_labels(self, rows: Ints, labels: Int32s, classes: Classes) -> Change:
        """Give rows, (m,), other classes."""
        return replace(self, classes=classes), [_writing(self.labels, rows, labels)]

    def with_metadata(self, rows: Ints, metadata: list[Metadata]) -> Change:
        """Give rows, (m,), other metadata."""
        steps = [_writing(self.metadata, rows, as_objects(metadata))]
        for name, column in self.columns.items():
            if name not in (ID, LABEL, DOCUMENT):
                codes = column.dictionary.encode(values_of(metadata, name))
                is_stored = rows < len(column.codes)
                steps.append(_writing(column.codes, rows[is_stored], codes[is_stored]))
        return replace(self), steps


def _writing(array: Array, rows: Ints, values: Array) -> Step:
    """Return the step ``array[rows] = values``.

    NumPy writes values of the array's type without taking memory.
    """
    return array.__setitem__, (rows, values)


# --- index and rows -------------------------------------------------------------------------------


class Contents:
    """An index and a table.

    Attributes
    ----------
    index
        An evidence index, whose ids are the keys of the table.
    table
        The rows.
    next_key
        The key of the next new row; no key is used twice.
    """

    def __init__(self, index: Any, table: Table, next_key: int) -> None:
        self.index = index
        self.table = table
        self.next_key = next_key
        self._changes = 0  # rows added, replaced, removed or relabelled so far
        self._measured: dict[int, tuple[int, int]] = {}  # by k: lists, and changes at that time
        # Key of each id. An id is stored if the table has its key.
        self._keys: dict[str, int] = dict(zip(table.ids.tolist(), table.keys.tolist(), strict=True))

    def rows_of(self, ids: list[str]) -> Ints:
        """Return the row of each id, -1 for an unknown one."""
        find = self._keys.get
        return self.table.find(np.array([find(name, -1) for name in ids], np.int64))

    def known_rows_of(self, ids: list[str]) -> Ints:
        """Return the row of each id; UnknownIdError names the first unknown one."""
        rows = self.rows_of(ids)
        if min(rows.tolist(), default=0) < 0:
            raise UnknownIdError(
                f"ids must be in the store, got {ids[int(np.argmin(rows))]!r}, which is not"
            )
        return rows

    def vectors_of(self, keys: Ints) -> Floats:
        """Return the vectors of some keys, (n, d)."""
        with self.index.holding() as snapshot:
            members = snapshot.members
            vectors: Floats
            vectors, ids = snapshot.copied(
                members.rows.take(members.ids.searchsorted(keys), mode="clip")
            )
        if not np.array_equal(ids, keys):
            raise _changed_elsewhere()
        return vectors

    # --- searches: exact with a filter ------------------------------------------------------------

    def search(self, X: Floats, k: int, mask: Mask | None, rules: Rules | None = None) -> Results:
        """Return the k nearest rows of unit queries, of any class: similarities D, keys I."""
        rules = rules or Rules("any")
        query = Query(k, X=X, labels=unknown_labels(len(X)), rules=rules)
        if mask is not None or not self.index.has_lists or not rules.take_one_search:
            return self._search_exactly(query, mask)
        # The index probes ``nprobe`` lists, or more where those hold too few rows. Rows of other
        # lists may be as near as the last result, so an exact search decides between equal rows.
        D, I = self.index.answer(replace(query, k=query.k + 1), Effort())
        tied = (D[:, -2] == D[:, -1]) & (I[:, -1] >= 0)
        D = D[:, :-1]
        I = I[:, :-1]
        if tied.any():
            tied_query = replace(query, X=X[tied], labels=unknown_labels(int(tied.sum())))
            D[tied], I[tied] = self._search_exactly(tied_query, None)
        return D, I

    def evidence(self, query: Query, mask: Mask | None, effort: Effort) -> Any:
        """Return the evidence of unit vectors of class numbers: similarities D, keys I, or -1."""
        if mask is not None:
            return self._search_exactly(query, mask)
        if query.rules is not None:
            return self.index.answer(query, effort)
        nprobe, recall, exact, memory = effort[:4]  # search_evidence has a fast path for one query
        return self.index.search_evidence(
            query.X, query.labels, query.k, nprobe, recall=recall, exact=exact, memory=memory
        )

    def lists_at(self, recall: float, k: int) -> int:
        """Return the number of lists with a recall@k, before a change.

        Measured anew when a tenth of the rows has changed: after each change, the index itself
        would measure it in the next search.
        """
        lists, changes = self._measured.get(k, (0, -1))
        if changes < 0 or self._changes - changes > len(self.table) // 10:
            lists = self.index.nprobe_for(recall, k)
            self._measured[k] = lists, self._changes
        return lists

    def _search_exactly(self, query: Query, mask: Mask | None) -> Results:
        with self.index.holding() as snapshot:
            queries = query.bind(snapshot)
            if mask is not None:
                stored = mask[self.table.rows] if self.table.removed else mask
                if len(stored) != snapshot.n:
                    raise _changed_elsewhere()
                queries.allowed = stored[snapshot.members.places]
            results: Results = self.index.answer_on(snapshot, queries, Effort(exact=True))
        return results

    # --- changes ----------------------------------------------------------------------------------

    def new_rows(
        self,
        ids: list[str],
        labels: list[Label],
        metadata: list[Metadata],
        documents: list[str | None],
    ) -> Table:
        """Return the rows that :meth:`insert` adds."""
        keys = np.arange(self.next_key, self.next_key + len(ids))
        classes = self.table.classes.extend(labels)
        return Table.of(classes, keys, classes.numbers(labels), ids, metadata, documents)

    def insert(self, new: Table, X: Floats, old: Ints) -> None:
        """Add new rows with vectors X, at least one, in place of the rows ``old``."""
        self._train_by(X)
        self.next_key += len(X)
        self._changes += len(X)
        after, steps = self.table.with_rows(new).without(old)
        key_of = dict(zip(new.ids.tolist(), new.keys.tolist(), strict=True))
        steps.append(setting(self, "table", after))
        with self.index.changing() as transaction:
            if not len(old):
                self._keys.update(key_of)  # no id is stored before the table has its key
                transaction.insert(X, new.labels, new.keys, steps)
                return
            # Each id has an entry before the change, which then takes no memory; no row has the key
            # -1.
            self._keys.update(dict.fromkeys(filterfalse(self._keys.__contains__, key_of), -1))
            steps.append((self._keys.update, (key_of,)))
            transaction.replace(self.table.keys[old], X, new.labels, new.keys, steps)

    def _train_by(self, X: Floats) -> None:
        """Train an index that needs it by the first rows added."""
        index = self.index
        if index.is_trained:
            return
        needed = _TRAINING_VECTORS * (index.nlist or automatic_nlist(len(X)))
        if len(X) < needed:
            raise ValueError(
                f"the first rows train {index!r} and must be at least {needed}, got {len(X)}: call "
                "train(vectors) first, or add more rows at once"
            )
        index.train(X)

    def remove(self, rows: Ints) -> None:
        """Remove rows, (m,), each once."""
        names = self.table.ids[rows].tolist()
        self._changes += len(rows)
        after, steps = self.table.without(rows)
        with self.index.changing() as transaction:
            stored = np.sort(transaction.snapshot.find(self.table.keys[rows]))
            transaction.remove(stored, [*steps, setting(self, "table", after)])
        for name in names:
            self._keys.pop(name, None)

    def relabel(self, rows: Ints, labels: list[Label]) -> None:
        """Give rows, (m,), other classes."""
        self._changes += len(rows)
        classes = self.table.classes.extend(labels)
        numbers = classes.numbers(labels)
        after, steps = self.table.with_labels(rows, numbers, classes)
        with self.index.changing() as transaction:
            changed = relabelled_rows(
                transaction.snapshot, numbers, self.table.keys[rows], as_labels
            )
            transaction.relabel(*changed, [*steps, setting(self, "table", after)])

    def describe(self, rows: Ints, metadata: list[Metadata]) -> None:
        """Give rows, (m,), other metadata."""
        after, steps = self.table.with_metadata(rows, metadata)
        with self.index.changing():
            call_steps([*steps, setting(self, "table", after)], [])


def _changed_elsewhere() -> RuntimeError:
    return RuntimeError(
        "the index of the store was changed by other means than the methods of the store"
    )
