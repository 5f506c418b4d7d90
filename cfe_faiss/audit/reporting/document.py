"""A report as plain data: sections, tables with charts, and case files.

Numbers and texts as readers see them.

The page, report.json and report.csv write the same data in three ways. ``in_files`` of a class
names its fields in JSON.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from cfe_faiss.base.checks import is_missing
from cfe_faiss.base.extras import pd

LONGEST = 120
"""Characters of a value that the page shows."""
MINUS = "\N{MINUS SIGN}"


def show(value: object, longest: int = LONGEST) -> str:
    r"""Return a text for the page: shortened in the middle, without invisible characters.

    Examples
    --------
    >>> show("a" * 100 + "b", 10)
    'aaaaa…aaaab (101 characters)'
    >>> show("tab\tnul\x00 \ufffe")
    'tab nul� �'
    """
    text = str(value)
    if len(text) > longest:
        tail = longest // 2
        text = f"{text[: longest - tail]}…{text[len(text) - tail :]} ({len(text):,} characters)"
    return visible(re.sub(r"[\t\n\r]", " ", text))


def with_article(noun: str) -> str:
    """Return a noun behind "a" or "an".

    Examples
    --------
    >>> with_article("applicant"), with_article("user"), with_article("uninsured patient")
    ('an applicant', 'a user', 'an uninsured patient')
    """
    return f"{'an' if re.match('(?!uni(?!n)|use|eu)[aeiou]', noun, re.IGNORECASE) else 'a'} {noun}"


def singular(nouns: str) -> str:
    """Return one of several, in regular English.

    Examples
    --------
    >>> singular("people"), singular("loans"), singular("companies"), singular("businesses")
    ('person', 'loan', 'company', 'business')
    """
    if nouns == "people":
        return "person"
    return re.sub(r"(ss|x|ch|sh)es$|(?<!s)s$", r"\1", re.sub(r"ies$", "y", nouns))


def visible(value: object) -> str:
    """Return a text without invisible characters; line ends stay."""
    # XML 1.0 forbids control characters, lone surrogates, U+FFFE and U+FFFF; formatting characters
    # can reverse a text.
    text = str(value)
    hidden = {
        character
        for character in set(text)
        if unicodedata.category(character) in ("Cc", "Cs", "Cf")
    }
    return text.translate(
        dict.fromkeys(map(ord, (hidden | {"\ufffe", "\uffff"}) - {"\n"}), "\ufffd")
    )


def group_name(attribute: object, value: object) -> str:
    """Return the name of a group, or of an intersection of groups.

    Examples
    --------
    >>> group_name("sex", "f"), group_name("sex & age", "f & 18-35")
    ('sex = f', 'sex = f, age = 18-35')
    """
    names = str(attribute).split(" & ")
    values = str(value).split(" & ")
    if len(names) != len(values):
        names = [str(attribute)]
        values = [str(value)]
    return ", ".join(f"{show(name)} = {show(one)}" for name, one in zip(names, values, strict=True))


def number(value: float | None, kind: str) -> str:
    """Return a number of a kind.

    Kinds: "count"; "share" in per cent; "score" and "signed" with three decimals; differences of
    shares in percentage "points", without a sign as a "gap"; "similarity" with six decimals, 1 only
    for equal vectors; "distance", 0 only for equal ones; "number" and "side" in the unit of an
    attribute; "p-value", and "q" with its sign of equality.

    Examples
    --------
    >>> [number(value, "share") for value in (0.1234, 0.99999, 1.0, 0.0004, float("nan"))]
    ['12.3%', '> 99.9%', '100%', '< 0.1%', 'not defined']
    >>> number(-0.5, "signed"), number(0.0412, "points"), number(0.0412, "gap")
    ('−0.500', '+4.1 points', '4.1 points')
    >>> number(-0.00004, "signed"), number(-0.00004, "points")
    ('+0.000', '+0.0 points')
    >>> [number(value, "similarity") for value in (0.75, 1 - 1e-12, 1.0)]
    ['0.750000', '> 0.999999', '1']
    >>> [number(value, "number") for value in (12500.0, 12440.25, 0.30710003, 0.00001234, -2)]
    ['12,500', '12,440', '0.3071', '0.00001234', '−2']
    >>> number(0.0312, "p-value"), number(1e-9, "q")
    ('0.031', 'q < 0.001')
    """
    if value is None or math.isnan(value):
        return "not defined"
    return _KINDS[kind](value).replace("-", MINUS)


def _share(value: float) -> str:
    if 0 < value < 0.0005:
        return "< 0.1%"
    if 0.9995 <= value < 1:
        return "> 99.9%"
    return f"{100 * value:.0f}%" if value in (0, 1) else f"{100 * value:.1f}%"


def _similarity(value: float) -> str:
    text = f"{value:.6f}" if value < 0.9999995 else "> 0.999999"
    return "1" if value == 1 else text


def _format_in_unit(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == round(value) or abs(value) >= 1000:
        return f"{value:z,.0f}"
    return np.format_float_positional(float(f"{value:.4g}"), trim="-")


_KINDS: dict[str, Callable[[float], str]] = {
    "count": "{:,.0f}".format,
    "share": _share,
    "score": "{:z.3f}".format,
    "signed": "{:+z.3f}".format,
    "points": lambda value: f"{100 * value:+z.1f} points",
    "+points": lambda value: f"{100 * value:+z.1f}",
    "gap": lambda value: f"{100 * value:z.1f} points",
    "number": _format_in_unit,
    "side": _format_in_unit,
    "p-value": lambda value: "< 0.001" if value < 0.001 else f"{value:.3f}",
    "q": lambda value: "q < 0.001" if value < 0.001 else f"q = {value:.3f}",
    "similarity": _similarity,
    "distance": _format_in_unit,
}


def show_value(value: Any, kind: str) -> str:
    """Return a value of a table as the page shows it."""
    if kind == "flag":
        return {None: "unknown", True: "yes", False: "no"}[value]
    if kind in ("text", "long") or isinstance(value, str):
        return show("" if value is None else value, 300 if kind == "long" else LONGEST)
    return "–" if is_undefined(value) else number(value, kind)


def interval(bounds: tuple[float | None, float | None], kind: str) -> str:
    """Return an interval; empty if there is none.

    Examples
    --------
    >>> interval((0.1, 0.25), "share"), interval((-0.02, 0.04), "points")
    ('10.0%–25.0%', '−2.0 to +4.0 points')
    """
    if is_undefined(bounds[0]) or is_undefined(bounds[1]):
        return ""
    low, high = (show_value(bound, kind) for bound in bounds)
    return (
        f"{low.removesuffix(' points')} to {high}"
        if kind in ("signed", "points")
        else f"{low}–{high}"
    )


def is_undefined(value: object) -> bool:
    """Return whether there is no number."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def join_words(words: Iterable[str], link: str = "and") -> str:
    """Return words as a sentence lists them.

    Examples
    --------
    >>> join_words(["a"]), join_words(["a", "b"], "or"), join_words(["a", "b", "c"])
    ('a', 'a or b', 'a, b and c')
    """
    names = list(words)
    return f"{', '.join(names[:-1])} {link} {names[-1]}" if len(names) > 1 else "".join(names)


def first_lines(text: str, most: int, others: str) -> str:
    r"""Return the first lines, and how many others there are.

    Examples
    --------
    >>> first_lines("a\nb\nc\n", 1, "below.")
    'a\n2 more are below.'
    """
    lines = [line for line in text.split("\n") if line.strip()]
    left = len(lines) - most
    if left > 0:
        lines[most:] = [f"{left:,} more {'is' if left == 1 else 'are'} {others}"]
    return "\n".join(lines)


def list_first(words: Iterable[str], most: int, separator: str = ", ") -> str:
    """Return the first words, and the number of the others.

    Examples
    --------
    >>> list_first("abcd", 2)
    'a, b and 2 more'
    """
    names = list(words)
    return separator.join(names[:most]) + (
        f" and {len(names) - most:,} more" if len(names) > most else ""
    )


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> plural(1, "pair"), plural(1200, "pair"), plural(2, "class", "classes")
    ('1 pair', '1,200 pairs', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"


def rows_of(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return one mapping of plain Python values per line; None for missing values."""
    return [
        {str(name): to_python(value) for name, value in line.items()}
        for line in frame.to_dict("records")
    ]


def to_python(value: Any) -> Any:
    """Return a scalar of NumPy or pandas as one of Python.

    None for missing values, NaN and infinity.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if is_missing(value) else str(value)


Row: TypeAlias = Mapping[str, Any]
"""A line of a table: plain values by name, None if not defined; see :func:`rows_of`."""

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
    def around(
        cls, numbers: Iterable[float | None], guides: tuple[float, ...] = (), **keys: str
    ) -> Self:
        """Return a chart whose scale holds all numbers and guides.

        Examples
        --------
        >>> Plot.around([0.72, None, 1.1], (0.8, 1.0)).ticks
        (0.7, 0.8, 0.9, 1.0, 1.1)
        """
        finite_numbers = [
            number for number in (*numbers, *guides) if number is not None and math.isfinite(number)
        ] or [0, 1]
        low = min(finite_numbers)
        high = max(finite_numbers)
        rough = (high - low or 1) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
        first = math.floor(low / step + 1e-9)
        last = math.ceil(high / step - 1e-9)
        return cls(
            tuple(round(step * i, 10) for i in range(first, max(last, first + 1) + 1)),
            guides,
            **keys,
        )


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
        Kind of its values: "text", "long", "flag", or a kind of
        :func:`cfe_faiss.audit.reporting.document.number`.
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
        return (
            (None, None)
            if self.interval is None
            else (row[self.interval[0]], row[self.interval[1]])
        )


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
        Every row has a value for every key of the columns and their intervals; None if it is not
        defined.
    limit
        Number of rows on the page; the files hold all of them.
    group
        Key of a column that becomes headings between the rows. Rows of one heading are adjacent.
        Empty for none.
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
    """Neighbour of a node: name, predicted class, and whether the other node has it, too."""

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
class CaseFile:
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

    in_files: ClassVar = (
        "place",
        "similarity",
        "distance",
        "rank",
        "agreement",
        "sides",
        "differences",
    )

    place: int
    similarity: str | None
    distance: str | None
    rank: str
    sides: tuple[Side, Side]
    differences: Table
    agreement: str
    legend: tuple[tuple[int, str], ...]


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
        Rows with the numbers that conditions can be about, and the ``attribute`` and ``place`` of
        each.
    limits
        Effects of selection and assumptions on its numbers, and questions that they cannot answer.
    missing
        Why there is nothing to show; empty if there is something. A function of numbers names a
        macro, in the template of the section or in ``missing.txt.j2``, which says it.
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
    is_open
        Whether it is shown in full on the screen, above the details.
    """

    in_files: ClassVar = "id", "title", "findings", "limits", "missing", "tables", "cases"

    values: Mapping[str, Any] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    cases: Sequence[CaseFile] = ()
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
    is_open: bool = False


def as_json(value: Any) -> Any:
    """Return a part of the report as JSON: of a record the fields named in ``in_files``."""
    if hasattr(value, "in_files"):
        return {name: as_json(getattr(value, name)) for name in value.in_files}
    if isinstance(value, Mapping):
        return {key: as_json(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(part) for part in value]
    return None if is_undefined(value) else value
