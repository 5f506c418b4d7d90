"""Rows of a store without their vectors. A change makes a new table that shares most of its memory with the old one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.derived import derived
from cfe_faiss.base.values import NOT_STORED, LabelKeys, distinct
from cfe_faiss.rows.faiss_functions import Step
from cfe_faiss.store.columns import GONE, Column, Values, append, objects, values_of
from cfe_faiss.store.values import Label, Metadata, copy_metadata

ID, LABEL, DOCUMENT = "$id", "$label", "$document"
"""Names that filters use for the columns besides metadata."""
_ARRAYS = ("keys", "labels", "ids", "metadata", "documents")
_MOST_COLUMNS = 16
"""Columns kept for filters. Each takes memory, and time in every change."""
_MOST_GONE = 32
"""Removed rows that a small table may keep; a large one keeps at most as many removed rows as stored ones."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Names of the classes: class number c is ``names[c]``."""

    names: tuple[str | int, ...] = ()

    @derived
    def _keys(self) -> LabelKeys:
        return LabelKeys.of_names(objects(self.names))

    def number(self, label: Label) -> int:
        """Return the number of a class, -1 for None; ValueError lists the known classes if it is not one of them."""
        number = UNKNOWN if label is None else self._keys.code_of(label)
        if number is None or number == NOT_STORED:
            known = ", ".join(map(repr, self.names[:20])) or "there is none yet"
            raise ValueError(f"label must be a known class ({known}), got {label!r}")
        return number

    def numbers(self, labels: list[Label]) -> NDArray[np.int32]:
        """Return the number of each class, -1 for None."""
        return np.array(list(map(self.number, labels)), np.int32)

    def extend(self, labels: list[Label]) -> "Classes":
        """Return these classes followed by the new ones among ``labels``; TypeError for classes of another kind."""
        given = objects(labels)
        new = given[self._keys.find("labels", given) == NOT_STORED]
        return Classes((*self.names, *new[np.sort(distinct(new)[0])])) if len(new) else self


Change = tuple["Table", list[Step]]
"""A new table, and the steps that write into memory shared with the old one: run them when the new one replaces it."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of a store, in the order in which they were added.

    Removed rows stay in the arrays, marked by their label, until they outnumber the others. So a change takes time in
    proportion to the rows that it changes.

    Attributes
    ----------
    classes
        Names of the classes.
    keys
        Id of each row in the index, (n,) int64, ascending. No key is used twice.
    labels
        Class number of each row, -1 for an unclassified and ``GONE`` for a removed one, (n,) int32.
    ids, metadata, documents
        Id, metadata and text of each row, (n,) objects.
    gone
        Number of removed rows.
    columns
        The columns that filters used last, by name, 16 at most; changes keep them up to date.
    """

    classes: Classes = field(default_factory=Classes)
    keys: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    labels: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    ids: NDArray[np.object_] = field(default_factory=lambda: objects([]))
    metadata: NDArray[np.object_] = field(default_factory=lambda: objects([]))
    documents: NDArray[np.object_] = field(default_factory=lambda: objects([]))
    gone: int = 0
    columns: dict[str, Column] = field(default_factory=dict)

    @classmethod
    def of(
        cls, classes: Classes, keys: NDArray[np.int64], labels: NDArray[np.int32], *columns: Sequence[Any]
    ) -> "Table":
        """Return a table of keys, class numbers, ids, metadata and texts."""
        ids, metadata, documents = map(objects, columns)
        return cls(classes, keys, labels, ids, metadata, documents)

    def __len__(self) -> int:
        return len(self.keys) - self.gone

    @derived
    def rows(self) -> NDArray[np.int64]:
        """Positions of the stored rows, ascending."""
        return np.flatnonzero(self.labels != GONE)

    def find(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each key, -1 for an unknown or a removed one."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        rows = self.keys.searchsorted(keys)
        last = np.minimum(rows, len(self.keys) - 1)
        rows[(self.keys[last] != keys) | (self.labels[last] == GONE)] = -1
        return rows

    def classes_of(self, rows: NDArray[np.int64]) -> list[Label]:
        """Return the classes of some rows."""
        names = self.classes.names
        return [None if number == UNKNOWN else names[number] for number in self.labels[rows].tolist()]

    def metadata_of(self, rows: NDArray[np.int64]) -> list[Metadata]:
        """Return copies of the metadata of some rows."""
        return list(map(copy_metadata, self.metadata[rows]))

    def column(self, name: str) -> Column:
        """Return the column of a metadata key, or of ``ID``, ``LABEL`` or ``DOCUMENT``; O(n) for a new one."""
        found = self.columns.pop(name, None) or self._encoded(name)
        self.columns[name] = found  # the most recent one
        for oldest in list(self.columns)[:-_MOST_COLUMNS]:  # other threads change the dict: iterate over a copy
            self.columns.pop(oldest, None)
        return found

    def _encoded(self, name: str) -> Column:
        dictionary = Values()
        if name == LABEL:
            codes = dictionary.encode([*self.classes.names, None])[np.maximum(self.labels, UNKNOWN)]
        else:
            codes = dictionary.encode(self.values(name))
        return Column(codes, dictionary, self.labels)

    def values(self, name: str) -> list[Any]:
        """Return the values of a column other than ``LABEL``, of removed rows, too."""
        if name in (ID, DOCUMENT):
            return list(self.ids if name == ID else self.documents)
        return values_of(self.metadata.tolist(), name)

    # --- changes ----------------------------------------------------------------------------------------------------

    def with_classes(self, labels: list[Label]) -> "Table":
        """Return the same rows with the new classes among ``labels``."""
        return replace(self, classes=self.classes.extend(labels))

    def with_rows(self, new: "Table") -> "Table":
        """Return a table with the rows of another one at its end, whose keys are higher than all others."""
        arrays: dict[str, Any] = {name: append(getattr(self, name), getattr(new, name)) for name in _ARRAYS}
        columns = self._next_columns()
        for name, column in columns.items():
            codes = append(column.codes, column.dictionary.encode(new.values(name)))
            columns[name] = Column(codes, column.dictionary, arrays["labels"])
        return replace(self, columns=columns, **arrays)

    def without(self, rows: NDArray[np.int64]) -> Change:
        """Remove rows, (m,), each once."""
        gone = self.gone + len(rows)
        if gone > len(self.keys) - gone + _MOST_GONE:
            keep = self.labels != GONE
            keep[rows] = False
            return self.only(keep), []
        steps = [_writing(self.labels, rows, np.full(len(rows), GONE, np.int32))] if len(rows) else []
        return replace(self, gone=gone, columns=self._next_columns()), steps

    def only(self, rows: NDArray[Any]) -> "Table":
        """Return a table of some rows, as positions or as (n,) bool, that shares no memory with this one; O(n)."""
        arrays: dict[str, Any] = {name: getattr(self, name)[rows] for name in _ARRAYS}
        columns = {
            name: Column(column.codes[rows], column.dictionary, arrays["labels"])
            for name, column in self._next_columns().items()
        }
        return replace(self, gone=0, columns=columns, **arrays)

    def with_labels(self, rows: NDArray[np.int64], labels: NDArray[np.int32]) -> Change:
        """Give rows, (m,), other classes."""
        return replace(self, columns=self._next_columns()), [_writing(self.labels, rows, labels)]

    def with_metadata(self, rows: NDArray[np.int64], metadata: list[Metadata]) -> Change:
        """Give rows, (m,), other metadata."""
        steps, columns = [_writing(self.metadata, rows, objects(metadata))], self._next_columns()
        for name, column in columns.items():
            if name not in (ID, DOCUMENT):
                steps.append(_writing(column.codes, rows, column.dictionary.encode(values_of(metadata, name))))
        return replace(self, columns=columns), steps

    def _next_columns(self) -> dict[str, Column]:
        """Return the columns that the next table keeps: a long history of values is dropped, and classes are new."""
        most = 2 * len(self) + 1024
        return {
            name: replace(column)  # without values derived from the rows before the change
            for name, column in self.columns.items()
            if name != LABEL and len(column.dictionary.values) <= most
        }


def _writing(array: NDArray[Any], rows: NDArray[np.int64], values: NDArray[Any]) -> Step:
    """Return the step ``array[rows] = values``. NumPy writes values of the array's type without taking memory."""
    return array.__setitem__, (rows, values)
