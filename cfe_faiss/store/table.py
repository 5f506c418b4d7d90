"""The rows of a store: what is kept of each besides its vector. A table never changes; a change makes a new one."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.derived import derived
from cfe_faiss.store.columns import Column, values_of
from cfe_faiss.store.growing import appended, objects
from cfe_faiss.store.results import Label, Metadata
from cfe_faiss.store.values import are_flat, copied

ID, LABEL, DOCUMENT = "$id", "$label", "$document"
"""What filters call the columns that are no metadata."""
_MOST_COLUMNS = 16
"""Columns that are kept for filters: each takes memory, and time in every change."""


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows to be added: their ids, class numbers, metadata and texts."""

    ids: list[str]
    labels: NDArray[np.int32]
    metadata: list[Metadata]
    documents: list[str | None]


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a store, in the order that they were added.

    Attributes
    ----------
    class_names
        Names of the classes: class number c is ``class_names[c]``.
    keys
        Id of each row in the index, (n,) int64, ascending. None is used twice.
    ids, metadata, documents
        Id, metadata and text of each row, (n,) objects.
    labels
        Class number of each row, or -1, (n,) int32.
    columns
        The last columns that filters have asked for, by name, 16 at most; changes keep them up to date.
    is_flat
        Whether no metadata has a list or mapping in it, so that a plain copy is one of all of it.
    """

    class_names: tuple[str | int, ...] = ()
    keys: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    ids: NDArray[np.object_] = field(default_factory=lambda: objects([]))
    labels: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    metadata: NDArray[np.object_] = field(default_factory=lambda: objects([]))
    documents: NDArray[np.object_] = field(default_factory=lambda: objects([]))
    columns: dict[str, Column] = field(default_factory=dict)
    is_flat: bool = True

    def __len__(self) -> int:
        return len(self.keys)

    # --- classes ----------------------------------------------------------------------------------------------------

    @derived
    def _class_numbers(self) -> dict[str | int, int]:
        return {name: number for number, name in enumerate(self.class_names)}

    def class_number(self, label: Label) -> int:
        """Return the number of a class, -1 for None; ValueError that names the known ones if there is no such class."""
        if label is None:
            return UNKNOWN
        number = self._class_numbers.get(label)
        if number is None:
            known = ", ".join(map(repr, self.class_names[:20])) or "there is none yet"
            raise ValueError(f"label must be a known class ({known}), got {label!r}")
        return number

    def with_classes(self, labels: list[Label]) -> "Table":
        """Return the same rows with more class names: those that are new among ``labels``."""
        new = [name for name in dict.fromkeys(labels) if name is not None and name not in self._class_numbers]
        if not new:
            return self
        names = self.class_names + tuple(new)
        odd = next((name for name in new if type(name) is not type(names[0])), None)
        if odd is not None:
            raise TypeError(f"labels must all be texts or all be integers, got {odd!r} where {names[0]!r} is a class")
        return replace(self, class_names=names)

    def numbers_of(self, labels: list[Label]) -> NDArray[np.int32]:
        """Return the number of each class, -1 for None; all are known."""
        numbers = self._class_numbers
        return np.array([UNKNOWN if name is None else numbers[name] for name in labels], np.int32)

    def class_of(self, rows: NDArray[np.int64]) -> list[Label]:
        """Return the classes of some rows."""
        names = (*self.class_names, None)
        return [names[number] for number in self.labels[rows].tolist()]

    # --- rows -------------------------------------------------------------------------------------------------------

    def rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each key, -1 for one that no row has."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        rows = self.keys.searchsorted(keys)
        missing = self.keys.take(rows, mode="clip") != keys
        rows[missing] = -1
        return rows

    def known_rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row of each key; all are in the table."""
        first = self._first_key
        return self.keys.searchsorted(keys) if first is None else keys - first

    @derived
    def _first_key(self) -> int | None:
        """The key of the first row if the others follow without a gap, as long as no row was removed; else None."""
        first = int(self.keys[0]) if len(self.keys) else 0
        return first if len(self.keys) and self.keys[-1] - first == len(self.keys) - 1 else None

    def metadata_of(self, rows: NDArray[np.int64]) -> list[Metadata]:
        """Return copies of the metadata of some rows."""
        some = self.metadata[rows].tolist()
        return [one.copy() for one in some] if self.is_flat else [copied(one) for one in some]

    def column(self, name: str) -> Column:
        """Return a column for filters: of a metadata key, or ``ID``, ``LABEL`` or ``DOCUMENT``; O(n) the first time."""
        found = self.columns.pop(name, None)
        if found is None:
            everything = NewRows(self.ids.tolist(), self.labels, self.metadata.tolist(), self.documents.tolist())
            found = Column.of(self._values(name, everything))
        self.columns[name] = found  # as the last one that was asked for
        for oldest in list(self.columns)[:-_MOST_COLUMNS]:  # a copy: other threads ask, too
            self.columns.pop(oldest, None)
        return found

    def _values(self, name: str, rows: NewRows) -> list[Any]:
        if name == LABEL:
            names = (*self.class_names, None)
            return [names[number] for number in rows.labels.tolist()]
        if name == ID:
            return rows.ids
        return rows.documents if name == DOCUMENT else values_of(rows.metadata, name)

    # --- changes ----------------------------------------------------------------------------------------------------

    def without(self, gone: NDArray[np.int64]) -> "Table":
        """Return a table without some rows; O(n)."""
        if not len(gone):
            return self
        keep = np.ones(len(self), bool)
        keep[gone] = False
        kept = {name: column.kept(keep) for name, column in self.columns.items()}
        return Table(
            self.class_names,
            self.keys[keep],
            self.ids[keep],
            self.labels[keep],
            self.metadata[keep],
            self.documents[keep],
            {name: column for name, column in kept.items() if column is not None},
            self.is_flat,
        )

    def with_rows(self, keys: NDArray[np.int64], rows: NewRows) -> "Table":
        """Return a table with more rows at its end, whose keys are higher than all others."""
        columns = {name: column.with_rows(self._values(name, rows)) for name, column in self.columns.items()}
        return Table(
            self.class_names,
            appended(self.keys, keys),
            appended(self.ids, objects(rows.ids)),
            appended(self.labels, rows.labels),
            appended(self.metadata, objects(rows.metadata)),
            appended(self.documents, objects(rows.documents)),
            columns,
            self.is_flat and are_flat(rows.metadata),
        )

    def with_labels(self, rows: NDArray[np.int64], labels: NDArray[np.int32]) -> "Table":
        """Return a table in which some rows have other classes; O(n)."""
        changed = self.labels.copy()
        changed[rows] = labels
        columns = {name: column for name, column in self.columns.items() if name != LABEL}
        return replace(self, labels=changed, columns=columns)
