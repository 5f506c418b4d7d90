"""Inputs of a report, checked once, and its texts and tables from sections.toml, filled with words and numbers."""

import math
import re
import string
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.audit.evidence import attributes_of, sensitive_of
from cfe_faiss.audit.groups import Bins, groupings
from cfe_faiss.audit.intervals import normal_quantile
from cfe_faiss.audit.model_comparison import Models, as_models
from cfe_faiss.audit.reporting.document import Case, Column, Measure, Plot, Section, Table, texts
from cfe_faiss.audit.reporting.formats import group_name, number, plural, show
from cfe_faiss.base.checks import UNKNOWN, as_count
from cfe_faiss.finder import EvidenceFinder

_Result = TypeVar("_Result")
_Values = Mapping[str, Any]
_SENTENCES = "named", "described", "undetermined", "findings", "limits"
_NONE: _Values = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Subject:
    """Names of the data and the model in the report; every text is shown as given.

    Attributes
    ----------
    title
        Title of the report; by default made of data and model.
    data, model
        Their names; by default ``data.name`` and the class of the model.
    command
        The command that makes the report again.
    seed
        Seed of the split and the training.
    files
        SHA-256 of the files that were read, by name.
    people
        The plural noun for the audited rows, for example "applicants"; by default "people", or "nodes" with a graph.
    """

    title: str = ""
    data: str = ""
    model: str = ""
    command: str = ""
    seed: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    people: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an audit; the arguments of :func:`cfe_faiss.audit.report` of these names."""

    k: int
    pairs: int
    cases: int
    bins: Bins
    confidence: float
    where: Constraints | None = None

    def __post_init__(self) -> None:
        for name in ("k", "pairs", "cases"):
            as_count(name, getattr(self, name))
        normal_quantile(self.confidence)  # checks it
        if self.cases > self.pairs:
            raise ValueError(f"cases must be at most pairs, got cases={self.cases}, pairs={self.pairs}")


@dataclass(frozen=True)
class Inputs:
    """Data, a model's predictions for it, and the scope of an audit.

    Attributes
    ----------
    finder
        The finder under audit.
    attributes
        Attributes of the audited rows; row i belongs to ``nodes[i]``.
    sensitive
        Names of attributes.
    nodes
        The rows of the index with a predicted class, ascending, (m,) int64.
    labels, truth
        Predicted and true class of each audited row, (m,) int32. A true class may be -1, unknown; ``truth`` is
        None without any.
    class_names
        Names of class 0, 1, ...
    favourable
        The class that counts as selected; None if none was named.
    settings, subject
        Settings of the audit, and the names in it, all of them filled in.
    models
        Predicted class of every row of the finder by each model, the finder's own first; None without others.
    results
        Results that several sections use, by the function that computes them.
    """

    finder: EvidenceFinder
    attributes: Attributes
    sensitive: tuple[str, ...]
    nodes: NDArray[np.int64]
    labels: NDArray[np.int32]
    truth: NDArray[np.int32] | None
    class_names: tuple[str, ...]
    favourable: int | None
    settings: Settings
    subject: Subject
    models: Models | None = None
    results: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, compute: "Callable[[Inputs], _Result]") -> _Result:
        """Return the result of a function of these inputs, computed once."""
        if compute not in self.results:
            self.results[compute] = compute(self)
        result: _Result = self.results[compute]
        return result

    def has(self, need: str) -> bool:
        """Return whether these inputs or their finder have something that a section or a condition needs."""
        known = getattr(self, need) if hasattr(self, need) else getattr(self.finder, need)
        return known is not None and not (isinstance(known, Sequence) and not known)

    @property
    def by_distance(self) -> str:
        """Unit of the distance by which rows are compared; empty if they are compared by similarity."""
        if self.finder.metric != "l2":
            return ""
        return "standard deviations" if self.finder.scale is not None else "the units of the vectors"

    @property
    def compared(self) -> str:
        """Sentence that says how two rows are compared."""
        finder, people = self.finder, self.subject.people
        if finder.metric == "cosine":
            return f"The similarity of two {people} is the cosine of their vectors, 1 at most."
        if finder.metric == "ip":
            return f"The similarity of two {people} is the inner product of their vectors."
        text = f"Two {people} are compared by the Euclidean distance of their vectors."
        if finder.scale is None:
            return text
        weights = [f"{show(name)} × {weight:g}" for name, weight in finder.scale.items()]
        text = f"Two {people} are compared by distance, in standard deviations: different categories are one apart, "
        text += "and so are a missing and a known value."
        return text + (f" Weights: {', '.join(weights)}." if weights else "")

    def nearness(self, value: float) -> str:
        """Return a similarity or distance as the page shows it, with its unit."""
        if not self.by_distance:
            return number(value, "similarity")
        return f"{number(value, 'distance')} {self.by_distance}"

    def at_least(self, value: float | None) -> str:
        """Return a threshold of a comparison of models in words."""
        if value is None:
            return ""
        if self.by_distance:
            return f"a distance of at most {self.nearness(value)}"
        return f"a similarity of at least {self.nearness(value)}"

    @cached_property
    def words(self) -> Mapping[str, Any]:
        """Words of the report: nouns for the rows, the confidence, and the favourable class in quotes."""
        people = self.subject.people
        selected = "each class" if self.favourable is None else f"“{show(self.class_names[self.favourable])}”"
        return {
            "people": people,
            "People": people.capitalize(),
            "person": "person" if people == "people" else people.removesuffix("s"),
            "level": f"{100 * self.settings.confidence:g}%",
            "class": selected,
            "k": self.settings.k,
            "bins": self.settings.bins,
            "closest": self.settings.pairs,
            "compared": self.compared,
        }

    @property
    def everyone(self) -> str:
        """Name of the group of all rows."""
        return f"all {self.words['people']}"

    def group(self, row: Mapping[str, Any]) -> str:
        """Return the name of the group of a row with the columns "feature" and "value"."""
        return self.everyone if row["feature"] == "all" else group_name(row["feature"], row["value"])

    def place_of(self, row: Mapping[str, Any]) -> tuple[str | None, str]:
        """Return attribute and group of a row as conditions name them."""
        if "place" in row:
            return row["attribute"], row["place"]
        return (None, self.everyone) if row["feature"] == "all" else (row["feature"], row["value"])

    def node_name(self, node: int) -> str:
        """Return the user's id of a row, or its number."""
        return show(self.finder.names([node]).tolist()[0])

    def positions(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of audited rows in :attr:`nodes`."""
        found: NDArray[np.int64] = np.searchsorted(self.nodes, nodes)
        return found

    @cached_property
    def groups(self) -> Attributes:
        """Group of each audited row by sensitive attribute. Numbers are cut by all rows, as in every audit."""
        attributes = attributes_of(self.finder)
        found = groupings(attributes, self.nodes, self.sensitive, self.settings.bins, with_missing=False)
        return Attributes({one.name: (one.codes.astype(np.int32), tuple(one.values)) for one in found}, self.nodes)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments that most audits share."""
        return {"bins": self.settings.bins, "intersections": self.crossed}

    @property
    def unfavourable(self) -> list[int]:
        """The predicted classes other than the favourable one, ascending; empty if none was named."""
        others = [int(label) for label in np.unique(self.labels) if label not in (UNKNOWN, self.favourable)]
        return [] if self.favourable is None else others

    def reword(self, text: str) -> str:
        """Return a sentence of an audit, which says "nodes", in the words of the report."""
        people, person = self.words["people"], self.words["person"]
        return re.sub(r"\bnodes\b", people, re.sub(r"\bnode\b", person, text))

    @property
    def crossed(self) -> list[tuple[str, str]]:
        """All pairs of sensitive attributes."""
        return list(combinations(self.sensitive, 2))

    @property
    def attributes_and_pairs(self) -> list[str]:
        """Names of the sensitive attributes and of their intersections."""
        return [*self.sensitive, *(" & ".join(names) for names in self.crossed)]

    # --- its texts and tables, from sections.toml ---------------------------------------------------------------------

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


def check_inputs(
    finder: EvidenceFinder,
    sensitive: Sequence[str] | None,
    favourable: int | str | None,
    settings: Settings,
    subject: Subject = Subject(),
    compare: Mapping[str, Any] | None = None,
) -> Inputs:
    """Return the inputs of a report.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as :func:`cfe_faiss.audit.report` describes it.
    """
    members = finder.index.members()
    nodes = members.ids[members.labels != UNKNOWN]
    if len(nodes) < 2:
        raise ValueError(f"finder must search among two nodes or more with a predicted class, got {len(nodes)}")
    if finder.attributes is None:  # by number, "feature 0", if the data has no names; none without data
        rows = np.arange(len(finder.labels))
        unnamed = Attributes({}, rows) if finder.data is None else as_attributes(finder.data)
        finder = replace(finder, attributes=unnamed)
    attributes = attributes_of(finder).take(nodes)
    _check_texts(attributes)
    names = tuple(attributes.known("sensitive", name) for name in sensitive_of(finder, sensitive))
    truth = None if finder.truth is None else finder.truth[nodes]
    selected = [None] if favourable is None else finder.class_numbers("favourable", favourable).tolist()
    if len(selected) > 1:
        raise ValueError(f"favourable must be one class, got {favourable!r}")
    return Inputs(
        finder,
        attributes,
        names,
        nodes,
        members.labels[members.labels != UNKNOWN],
        None if truth is None or (truth == UNKNOWN).all() else truth,
        tuple(finder.class_name(label) for label in range(finder.class_count)),
        selected[0],
        settings,
        _complete(subject, finder),
        None if compare is None else as_models(finder, compare, "compare"),
    )


def _complete(subject: Subject, finder: EvidenceFinder) -> Subject:
    """Return the subject with the names that the user has not given."""
    name = getattr(finder.data, "name", None)  # may be a column of a table
    data = subject.data or (name if isinstance(name, str) and name else "data without a name")
    model = subject.model or ("given predictions" if finder.model is None else type(finder.model).__name__)
    people = subject.people or ("people" if finder.graph is None else "nodes")
    title = subject.title or f"Audit: {data}, {model}"
    return replace(subject, title=title, data=data, model=model, people=people)


def _check_texts(attributes: Attributes) -> None:
    """Raise ValueError if a name or a value holds a lone surrogate, which no file can."""
    for name in attributes:
        values = attributes[name].values if attributes[name].numbers is None else ()
        try:
            "".join([name, *map(str, values)]).encode()
        except UnicodeEncodeError as error:
            bad = error.object[error.start]
            raise ValueError(f"attributes must hold Unicode texts, got the surrogate {bad!r} in {name!r}") from None


class _Formatter(string.Formatter):
    """Formats numbers by their kinds and counts by their nouns, and shortens texts."""

    def __init__(self, person: str, people: str) -> None:
        self._nouns = person, people

    def format_field(self, value: Any, format_spec: str) -> Any:
        if format_spec.startswith("#"):
            return plural(value, *((format_spec[1:],) if format_spec[1:] else self._nouns))
        return show(value) if not format_spec else str(value) if format_spec == "raw" else number(value, format_spec)


def _plot(text: Mapping[str, Any], rows: Sequence[_Values], values: _Values) -> Plot:
    guides = [values[guide] if isinstance(guide, str) else guide for guide in text.get("guides", ())]
    known = tuple(float(guide) for guide in guides if guide is not None)
    marks = {name: text[name] for name in ("expected", "before") if name in text}
    if "ticks" in text:
        return Plot(tuple(text["ticks"]), known, **marks)
    low, high = text.get("clip", (-math.inf, math.inf))
    numbers = [min(max(row[key], low), high) for row in rows for key in text["around"] if row[key] is not None]
    return Plot.around([*numbers, *text.get("also", ())], known, **marks)
