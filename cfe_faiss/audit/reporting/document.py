"""A report as plain data: the page, report.json and report.csv are three ways to write the same numbers."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from cfe_faiss.audit.reporting.drawings import Neighbourhood, Plot

Kind: TypeAlias = Literal[
    "text", "long", "side", "count", "share", "score", "signed", "points", "number", "p-value", "similarity", "flag"
]
"""How a column is written for readers, see :func:`cfe_faiss.audit.reporting.formats.written`."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    key
        Its name in the rows, in report.json and in report.csv.
    title
        Its heading on the page.
    kind
        What its values are.
    interval
        Keys of the bounds of its confidence interval.
    n
        Key of the number of cases behind its values.
    plot
        Chart of its values and intervals, drawn beside them.
    level
        Confidence of its intervals in words, where it is not that of the report.
    """

    key: str
    title: str
    kind: Kind = "text"
    interval: tuple[str, str] | None = None
    n: str | None = None
    plot: Plot | None = None
    level: str = ""

    @property
    def is_value(self) -> bool:
        """Whether it holds measured numbers, rather than names or counts of cases."""
        return self.kind not in ("text", "long", "side", "flag")


@dataclass(frozen=True, slots=True)
class Table:
    """A table with one sentence on how to read it.

    Attributes
    ----------
    id
        Unique in the report.
    caption, reading
        What it shows; how to read one line of it.
    columns, rows
        Every row has a value for every key of the columns, their intervals included; None where it is not defined.
    limit
        Rows shown on the page, 0 to leave the table out of it; the files hold all of them.
    notes
        Sentences below it.
    group
        Key of a column that becomes headings between the rows; its rows stand together. Empty for none.
    """

    id: str
    caption: str
    reading: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    limit: int = 60
    notes: tuple[str, ...] = ()
    group: str = ""

    def __post_init__(self) -> None:
        needed = [key for column in self.columns for key in (column.key, *(column.interval or ()))]
        for row in self.rows:
            lacking = [key for key in needed if key not in row]
            if lacking:
                raise KeyError(f"the table {self.id!r} lacks {lacking} in a row of {list(row)}")

    @property
    def charts(self) -> list[Column]:
        """Columns that are drawn."""
        return [column for column in self.columns if column.plot]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a case: its row, what the user calls it, its predicted and true class by name (None: not known).

    ``surroundings`` and ``neighbourhood`` describe its neighbours in the graph; empty and None without a graph.
    """

    node: int
    name: str
    predicted: str
    true: str | None
    surroundings: str
    neighbourhood: Neighbourhood | None


@dataclass(frozen=True, slots=True)
class Case:
    """The file of one pair.

    Attributes
    ----------
    place
        Among the pairs shown, from 1.
    similarity
        With as many digits as are known.
    rank
        Among all pairs of nodes with different predicted classes, in words.
    sides
        The two people.
    differences
        Decisions, true classes, and the attributes in which they differ, largest difference first.
    agreement
        In how many attributes they agree, in words.
    legend
        Number and name of every class that is drawn; empty without drawings.
    """

    place: int
    similarity: str
    rank: str
    sides: tuple[Side, Side]
    differences: Table
    agreement: str
    legend: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """Number that conditions can be about: a metric of a group of an attribute, of n cases.

    ``unjudged`` says why no condition can judge the number; empty where one can.
    """

    metric: str
    attribute: str | None
    group: str
    value: float
    n: int
    low: float | None = None
    high: float | None = None
    unjudged: str = ""

    @classmethod
    def of(cls, metric: str, attribute: str | None, group: str, row: Mapping[str, Any], key: str, n: str) -> "Measure":
        """Return the number that a row of a table holds under ``key``, and its interval where it has one."""
        bounds = (f"{key}_low", f"{key}_high") if f"{key}_low" in row else ("low", "high")
        value = math.nan if row[key] is None else float(row[key])
        return cls(metric, attribute, group, value, row[n], row.get(bounds[0]), row.get(bounds[1]))


@dataclass(frozen=True, slots=True)
class Section:
    """Section of the report.

    Attributes
    ----------
    id, title
        Its anchor and its heading.
    purpose
        The question that it answers.
    headline
        Its answer in a sentence, shown while it is collapsed; empty for none.
    named
        Sentences for the first page: findings that survive the correction for the number of tests.
    described
        Sentences for the first page: numbers without a test.
    undetermined
        Sentences for the first page: what the data cannot tell.
    findings
        Its results, a sentence each, with the number of cases.
    missing
        Why there is nothing to show; empty where there is.
    tables, cases
        Its tables, some of them drawn, and its case files.
    limits
        What selection and assumptions do to its numbers, and what they cannot say.
    measures
        The numbers that conditions can be about.
    is_open
        Whether it is shown in full on the screen, above the details.
    """

    id: str
    title: str
    purpose: str
    headline: str = ""
    named: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    missing: str = ""
    tables: tuple[Table, ...] = ()
    cases: tuple[Case, ...] = ()
    limits: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()
    is_open: bool = False
