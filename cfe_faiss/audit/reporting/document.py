"""A report as plain data, and its texts and tables from sections.toml, filled with the numbers of one audit.

The page, report.json and report.csv write the same data in three ways. ``in_files`` of a class has its fields in JSON.
"""

import math
import string
import tomllib
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, ClassVar, Self

from cfe_faiss.audit.reporting.formats import number, plural, show

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


@dataclass(frozen=True, slots=True)
class Table:
    """A table with one sentence on how to read it.

    Attributes
    ----------
    id
        Unique in the report.
    caption, reading
        Its content; how to read one line of it.
    columns, rows
        Every row has a value for every key of the columns and their intervals; None if it is not defined.
    limit
        Number of rows on the page; the files hold all of them.
    notes
        Sentences below it.
    group
        Key of a column that becomes headings between the rows. Rows of one heading are adjacent. Empty for none.
    """

    in_files: ClassVar = "id", "caption", "columns", "rows"

    id: str
    caption: str
    reading: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    limit: int = 60
    notes: tuple[str, ...] = ()
    group: str = ""

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
class Neighbourhood:
    """Drawing of a node and its neighbours.

    Attributes
    ----------
    style
        Number of its predicted class among the classes of the drawing.
    neighbours
        Clockwise.
    edges
        Pairs of positions in ``neighbours`` that are connected.
    """

    style: int
    neighbours: tuple[Neighbour, ...]
    edges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a case: its row, the user's name for it, its predicted and true class by name (None: not known).

    ``surroundings`` and ``neighbourhood`` describe its neighbours in the graph; empty and None without a graph.
    """

    in_files: ClassVar = "name", "predicted", "true", "surroundings", "row", "neighbours"

    row: int
    name: str
    predicted: str
    true: str | None
    surroundings: str = ""
    neighbourhood: Neighbourhood | None = None

    @property
    def neighbours(self) -> tuple[Neighbour, ...]:
        """Its drawn neighbours."""
        return () if self.neighbourhood is None else self.neighbourhood.neighbours


@dataclass(frozen=True, slots=True)
class Case:
    """The file of one pair.

    Attributes
    ----------
    place
        Rank among the pairs shown, from 1.
    similarity
        With as many digits as are known.
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

    in_files: ClassVar = "place", "similarity", "rank", "agreement", "sides", "differences"

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
        Sentences for the first page: limits of the data.
    findings
        Its results, a sentence each, with the number of cases.
    missing
        Why there is nothing to show; empty if there is something.
    tables, cases
        Its tables, some of them drawn, and its case files.
    limits
        Effects of selection and assumptions on its numbers, and questions that they cannot answer.
    measures
        The numbers that conditions can be about.
    is_open
        Whether it is shown in full on the screen, above the details.
    """

    in_files: ClassVar = "id", "title", "findings", "limits", "missing", "tables", "cases"

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


_Values = Mapping[str, Any]
_SENTENCES = "named", "described", "undetermined", "findings", "limits"
_NONE: _Values = MappingProxyType({})


class Wording:
    """Texts of one audit. Subclasses give its words and say what it has."""

    @property
    def words(self) -> _Values:
        """Words of the audit by their names in sections.toml."""
        raise NotImplementedError

    def has(self, need: str) -> bool:
        """Return whether the audit has something that a text or a section needs."""
        raise NotImplementedError

    def place_of(self, row: _Values) -> tuple[str | None, str]:
        """Return attribute and group of a row as conditions name them."""
        raise NotImplementedError

    def say(self, key: str, values: _Values = _NONE, **more: Any) -> str:
        """Return a sentence of sections.toml, ``says.<key>``, filled with values."""
        part, _, name = key.partition(".")
        return self._fill(texts()["says"][part][name], {**values, **more})

    def table(
        self, name: str, rows: Iterable[_Values], values: _Values = _NONE, columns: Iterable[Column] = ()
    ) -> Table:
        """Return a table of sections.toml with rows, and with further columns behind its own."""
        text, rows = texts()["tables"][name], tuple(rows)
        kept = [column for column in text["columns"] if self._holds(column, values)]
        return Table(
            id=self._fill(text.get("id", name), values),
            caption=self._fill(text["caption"], values),
            reading=self._fill(text["reading"], values),
            columns=(*(self._column(column, rows, values) for column in kept), *columns),
            rows=rows,
            limit=text.get("limit", 60),
            notes=self.sentences(text.get("notes", ()), values),
            group=text.get("group", ""),
        )

    def section(
        self,
        name: str,
        values: _Values = _NONE,
        *,
        missing: str = "",
        tables: Mapping[str, Iterable[_Values]] | Iterable[Table] = (),
        cases: Iterable[Case] = (),
        measured: Iterable[_Values] = (),
        **sentences: Iterable[str],
    ) -> Section:
        """Return a section of sections.toml.

        Parameters
        ----------
        name, values
            Its name, and the numbers in its texts.
        missing
            Name of the reason why it is empty, see ``missing`` in sections.toml.
        tables
            Rows of tables by name, or tables.
        cases
            Case files.
        measured
            Rows with the numbers that conditions can be about.
        sentences
            Sentences behind the sentences of sections.toml, by the field of :class:`Section`.
        """
        text = texts()["sections"][name]
        empty = Section(name, text["title"], self._fill(text["purpose"], values), is_open=text.get("is_open", False))
        if missing:
            return replace(empty, missing=self._fill(texts()["missing"][missing], values))
        if isinstance(tables, Mapping):
            tables = [self.table(name, rows, values) for name, rows in tables.items()]
        parts: dict[str, Any] = {
            part: (*self.sentences(text.get(part, ()), values), *sentences.get(part, ()))
            for part in {*_SENTENCES, *sentences}
        }
        measures = tuple(measure for row in measured for measure in self._measures(name, row))
        headline = self._fill(text.get("headline", ""), values)
        return replace(empty, headline=headline, tables=tuple(tables), cases=tuple(cases), measures=measures, **parts)

    def _measures(self, section: str, row: _Values) -> Iterator[Measure]:
        """Yield the numbers of a row that conditions can be about."""
        attribute, group = self.place_of(row)
        for metric, text in texts()["metrics"].items():
            key, of_ranked = text["key"], text.get("ranked", False)
            undecided = "favourable" in text["needs"] and not self.has("favourable")
            if text["section"] != section or undecided or (of_ranked and attribute is None):
                continue
            bounds = (f"{key}_low", f"{key}_high") if f"{key}_low" in row else ("low", "high")
            value = math.nan if row[key] is None else float(row[key])
            unjudged = "the group is not ranked" if of_ranked and not row["ranked"] else ""
            low, high = (row.get(bound) for bound in bounds)
            yield Measure(metric, attribute, group, value, row[text["n"]], low, high, unjudged)

    def missing_need(self, name: str) -> str:
        """Return the first need of a section that the audit does not meet; empty if it meets all."""
        return next((need for need in texts()["sections"][name].get("needs", ()) if not self.has(need)), "")

    def _fill(self, text: str, values: _Values) -> str:
        words = ChainMap(dict(values), dict(self.words))
        return _Formatter(words["person"], words["people"]).vformat(text, (), words)

    def _holds(self, entry: Any, values: _Values) -> bool:
        """Return whether an entry appears: it has no condition, or the condition holds."""
        condition = entry.get("when", "") if isinstance(entry, Mapping) else ""
        name = condition.removeprefix("not ")
        return not name or bool(values[name] if name in values else self.has(name)) == (name == condition)

    def sentences(self, entries: Sequence[Any], values: _Values) -> tuple[str, ...]:
        """Return the sentences of sections.toml that apply, filled with values."""
        kept = ({"text": entry} if isinstance(entry, str) else entry for entry in entries if self._holds(entry, values))
        rows = ((entry["text"], row) for entry in kept for row in (values[entry["each"]] if "each" in entry else ({},)))
        return tuple(self._fill(text, {**values, **row}) for text, row in rows)

    def _column(self, text: Mapping[str, Any], rows: Sequence[_Values], values: _Values) -> Column:
        fields = {name: part for name, part in text.items() if name != "when"}
        if "plot" in fields:
            fields["plot"] = _plot(fields["plot"], rows, values)
        return Column(**fields | {"title": self._fill(text["title"], values)})


class _Formatter(string.Formatter):
    """Formats numbers by their kinds and counts by their nouns, and shortens texts."""

    def __init__(self, person: str, people: str) -> None:
        self._nouns = person, people

    def format_field(self, value: Any, format_spec: str) -> Any:
        if format_spec.startswith("#"):
            return plural(value, *((format_spec[1:],) if format_spec[1:] else self._nouns))
        return show(value) if not format_spec else str(value) if format_spec == "raw" else number(value, format_spec)


@cache
def texts() -> dict[str, Any]:
    """Return the content of sections.toml."""
    return tomllib.loads(files("cfe_faiss.audit.reporting").joinpath("sections.toml").read_text(encoding="utf-8"))


def _plot(text: Mapping[str, Any], rows: Sequence[_Values], values: _Values) -> Plot:
    guides = [values[guide] if isinstance(guide, str) else guide for guide in text.get("guides", ())]
    known = tuple(float(guide) for guide in guides if guide is not None)
    marks = {name: text[name] for name in ("expected", "before") if name in text}
    if "ticks" in text:
        return Plot(tuple(text["ticks"]), known, **marks)
    low, high = text.get("clip", (-math.inf, math.inf))
    numbers = [min(max(row[key], low), high) for row in rows for key in text["around"] if row[key] is not None]
    return Plot.around([*numbers, *text.get("also", ())], known, **marks)
