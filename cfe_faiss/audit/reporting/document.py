"""A report as plain data: sections, tables with charts, and case files.

The page, report.json and report.csv write the same data in three ways. ``in_files`` of a class names its fields in
JSON.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

from cfe_faiss.audit.reporting.formats import is_undefined

Row: TypeAlias = Mapping[str, Any]
"""A line of a table: plain values by name, None if not defined; see ``formats.rows_of``."""

STYLES = 6
"""Number of classes that look different in a drawing."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Chart in a column of a table: each row has a dot for its number and a line for its interval.

    Attributes
    ----------
    ticks
        Numbers above the chart, ascending; the first and the last are the ends of the scale.
    guides
        Numbers of the dashed lines.
    expected, before
        Keys of numbers drawn as an upright bar and as a square; empty for none.
    """

    ticks: tuple[float, ...]
    guides: tuple[float, ...] = ()
    expected: str = ""
    before: str = ""

    @classmethod
    def around(cls, numbers: Iterable[float | None], guides: tuple[float, ...] = (), **keys: str) -> Self:
        """Return a chart whose scale holds all numbers and guides.

        Examples
        --------
        >>> Plot.around([0.72, None, 1.1], (0.8, 1.0)).ticks
        (0.7, 0.8, 0.9, 1.0, 1.1)
        """
        known = [number for number in (*numbers, *guides) if number is not None and math.isfinite(number)] or [0, 1]
        low, high = min(known), max(known)
        rough = (high - low or 1) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        return cls(tuple(round(step * i, 10) for i in range(first, max(last, first + 1) + 1)), guides, **keys)


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
        Kind of its values: "text", "long", "flag", or a kind of :func:`cfe_faiss.audit.reporting.formats.number`.
    interval
        Keys of the bounds of its confidence interval.
    n
        Key of the number of cases behind its values.
    plot
        Chart of its values and intervals, in the next cell.
    """

    in_files: ClassVar = "key", "title", "kind"

    key: str
    title: str
    kind: str = "text"
    interval: tuple[str, str] | None = None
    n: str | None = None
    plot: Plot | None = None

    @property
    def is_value(self) -> bool:
        """Whether it holds measured numbers, rather than names."""
        return self.kind not in ("text", "long", "side", "flag")

    def bounds(self, row: Mapping[str, Any]) -> tuple[float | None, float | None]:
        """Return the interval in a row; None without one."""
        return (None, None) if self.interval is None else (row[self.interval[0]], row[self.interval[1]])


def low_high(key: str) -> tuple[str, str]:
    """Return the keys of the bounds of an interval, as most audits name them."""
    return f"{key}_low", f"{key}_high"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with one sentence on how to read it.

    Attributes
    ----------
    id
        Unique in the report.
    columns, rows
        Every row has a value for every key of the columns and their intervals; None if it is not defined.
    limit
        Number of rows on the page; the files hold all of them.
    group
        Key of a column that becomes headings between the rows. Rows of one heading are adjacent. Empty for none.
    caption, reading, notes
        Its content, how to read one line, and sentences below it, from the template.
    """

    in_files: ClassVar = "id", "caption", "columns", "rows"

    id: str
    columns: tuple[Column, ...]
    rows: Sequence[Row]
    limit: int = 60
    group: str = ""
    caption: str = ""
    reading: str = ""
    notes: tuple[str, ...] = ()

    @property
    def charts(self) -> list[Column]:
        """Columns that are drawn."""
        return [column for column in self.columns if column.plot]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Neighbour of a node: its name, the number of its predicted class, and whether the other node has it, too."""

    in_files: ClassVar = "name", "style", "shared"

    name: str
    style: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a case: a person, and in a graph also the neighbours.

    Attributes
    ----------
    row, name
        Its row, and the user's name for it.
    predicted, true
        Its predicted and true class by name; None if not known.
    surroundings
        Its neighbours in words; empty without a graph.
    style
        Number of its predicted class among the classes of the drawing.
    neighbours
        Its drawn neighbours, clockwise.
    edges
        Pairs of positions in ``neighbours`` that are connected.
    """

    in_files: ClassVar = "name", "predicted", "true", "surroundings", "row", "neighbours"

    row: int
    name: str
    predicted: str
    true: str | None
    surroundings: str = ""
    style: int = 0
    neighbours: tuple[Neighbour, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """The file of one pair.

    Attributes
    ----------
    place
        Rank among the pairs shown, from 1.
    similarity, distance
        One of them, with as many digits as are known; the other one is None.
    rank
        Rank among all pairs of nodes with different predicted classes, in words.
    sides
        The two people.
    differences
        Decisions, true classes, and the attributes in which they differ, largest difference first.
    agreement
        Number of attributes in which they agree, in words.
    legend
        Number and name of every class that is drawn; empty without drawings.
    """

    in_files: ClassVar = "place", "similarity", "distance", "rank", "agreement", "sides", "differences"

    place: int
    similarity: str | None
    distance: str | None
    rank: str
    sides: tuple[Side, Side]
    differences: Table
    agreement: str
    legend: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Measure:
    """Number that conditions can be about: a metric of a group of an attribute, of n cases.

    ``unjudged`` says why no condition can judge the number; empty if one can.
    """

    metric: str
    attribute: str | None
    group: str
    value: float
    n: int
    low: float | None = None
    high: float | None = None
    unjudged: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Section of the report: numbers, and the words that its template makes of them.

    Attributes
    ----------
    values
        Numbers and names in its sentences.
    tables, cases
        Its tables, some of them drawn, and its case files.
    measured
        Rows with the numbers that conditions can be about.
    limits
        Effects of selection and assumptions on its numbers, and questions that they cannot answer.
    missing
        Why there is nothing to show; empty if there is something. A function of numbers names a macro, in the template
        of the section or in ``missing.txt.j2``, which says it.
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
        Sentences for the first page: limits of the data.
    findings
        Its results, a sentence each, with the number of cases.
    measures
        The numbers that conditions can be about.
    is_open
        Whether it is shown in full on the screen, above the details.
    """

    in_files: ClassVar = "id", "title", "findings", "limits", "missing", "tables", "cases"

    values: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    cases: Sequence[Case] = ()
    measured: Sequence[Row] = ()
    limits: Sequence[str] = ()
    missing: str = ""
    id: str = ""
    title: str = ""
    purpose: str = ""
    headline: str = ""
    named: tuple[str, ...] = ()
    described: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    measures: tuple[Measure, ...] = ()
    is_open: bool = False


def as_json(value: Any) -> Any:
    """Return a part of the report as JSON has it: of a record the fields that its class names in ``in_files``."""
    if hasattr(value, "in_files"):
        return {name: as_json(getattr(value, name)) for name in value.in_files}
    if isinstance(value, Mapping):
        return {key: as_json(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(part) for part in value]
    return None if is_undefined(value) else value
