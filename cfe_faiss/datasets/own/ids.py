"""The users' own names of nodes, and the numbers 0..n-1 that stand for them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.datasets.own.table import Column, Table, as_texts


@dataclass(frozen=True)
class Ids:
    """Names of n nodes; node v has the name ``names[v]``.

    Attributes
    ----------
    names
        (n,), distinct: int64 where all are written as integers, else texts (object).
    column
        The column that holds them, in every file; None where nodes go by their number.
    """

    names: NDArray[Any]
    column: str | None = None
    _numbers: dict[str, int] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def of_rows(cls, n: int) -> "Ids":
        """Return the names of nodes that go by their number."""
        return cls(np.arange(n))

    @classmethod
    def of_column(cls, table: Table, name: str) -> "Ids":
        """Return the names that a column of a table holds.

        Raises
        ------
        ValueError
            If there is no such column, a row has no name, or two have the same.
        """
        texts = as_texts(table.column(name))
        numbers: dict[str, int] = {}
        for row, text in enumerate(texts):
            if not text:
                raise ValueError(f"{table.path}, {table.place(row)}: no {name}")
            first = numbers.setdefault(text, row)
            if first != row:
                raise ValueError(f"{table.path}, {table.place(row)}: {name} {text!r} again, as in {table.place(first)}")
        return cls(_as_integers(texts), name, numbers)

    def find(self, texts: Iterable[str]) -> NDArray[np.int64]:
        """Return the number of each name, (m,); -1 for unknown ones."""
        if self.column is None:
            return np.array([_row_number(text, len(self.names)) for text in texts], np.int64)
        return np.array([self._numbers.get(text, UNKNOWN) for text in texts], np.int64)

    def rows(self, table: Table) -> NDArray[np.int64]:
        """Return the node that each row of a table is about, (rows,), each once at most.

        By the column of the names; where nodes go by their number, or the file has no header, row i is node i.

        Raises
        ------
        ValueError
            If a name is unknown, missing or occurs twice, or there is no such column, or another number of rows.
        """
        if self.column is None or not table.has_header:
            if len(table) != len(self):
                raise ValueError(f"{table.path} must hold a row for each of {len(self):,} nodes, got {len(table):,}")
            return np.arange(len(self))
        found = self.known(table, self.column)
        order = np.argsort(found, kind="stable")
        again = order[1:][np.diff(found[order]) == 0]
        if len(again):
            row = int(again.min())
            first = int(np.argmax(found == found[row]))
            raise ValueError(
                f"{table.path}, {table.place(row)}: {self.column} {str(self.names[found[row]])!r} again, "
                f"as in {table.place(first)}"
            )
        return found

    def known(self, table: Table, column: str) -> NDArray[np.int64]:
        """Return the node that each field of a column names, (rows,).

        Raises
        ------
        ValueError
            If there is no such column, or a name is missing or unknown.
        """
        texts = as_texts(table.column(column))
        found = self.find(texts)
        if (found < 0).any():
            row = int(np.argmax(found < 0))
            expected = f"in 0..{len(self) - 1}" if self.column is None else f"the {self.column} of a node"
            got = f"got {texts[row]!r}" if texts[row] else "got none"
            raise ValueError(f"{table.path}, {table.place(row)}: {column} must be {expected}, {got}")
        return found

    def expect_all(self, table: Table, rows: NDArray[np.int64]) -> None:
        """Raise ValueError unless each node has its row."""
        absent = np.setdiff1d(np.arange(len(self)), rows)
        if len(absent):
            raise ValueError(
                f"{table.path} must hold every node, got no row for {len(absent):,} of {len(self):,}, "
                f"such as {self.column} {str(self.names[absent[0]])!r}"
            )


def _row_number(text: str, n: int) -> int:
    """Return a number in 0..n-1 that is written as an integer, or like one ("3.0"); -1 for another text."""
    whole, _, rest = text.partition(".")
    number = int(whole) if whole.isdecimal() and len(whole) < 19 and not rest.strip("0") else UNKNOWN
    return number if number < n else UNKNOWN


def _as_integers(texts: list[str]) -> NDArray[Any]:
    """Return integers where every text is one as it would be written, so that none changes its look; else texts."""
    try:
        numbers = np.array([int(text) for text in texts], np.int64)
    except (ValueError, OverflowError):
        return np.array(texts, object)
    same = all(str(number) == text for number, text in zip(numbers.tolist(), texts, strict=True))
    return numbers if same else np.array(texts, object)


def aligned(ids: Ids, table: Table, column: Column) -> list[str]:
    """Return the texts of a column by node, "" for nodes without a row."""
    texts = [""] * len(ids)
    for node, text in zip(ids.rows(table).tolist(), as_texts(column), strict=True):
        texts[node] = text
    return texts
