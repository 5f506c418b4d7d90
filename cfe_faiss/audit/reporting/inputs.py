"""Inputs of a report, checked once."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes, as_attributes, grades_of
from cfe_faiss.audit.groups import (
    Bins,
    attributes_of_finder,
    groupings,
    persons_of,
    sensitive_of,
    with_truth,
)
from cfe_faiss.audit.intervals import normal_quantile
from cfe_faiss.audit.model_comparison import Models, as_models
from cfe_faiss.audit.reporting.document import Section, group_name, show, singular
from cfe_faiss.base.checks import UNKNOWN, Int32s, Ints, as_count
from cfe_faiss.data.roles import selective_classes
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.rows.metric import measure_of

_Result = TypeVar("_Result")
Need: TypeAlias = Literal[
    "sensitive",
    "favourable",
    "unfavourable",
    "truth",
    "selective",
    "models",
    "model",
    "probabilities",
    "graph",
]
"""Attribute of :class:`Inputs` or of its finder that a section or a condition needs."""


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
        The plural noun for the audited rows, for example "applicants"; by default "people", with
        ``person`` "rows", with a graph "nodes".
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
    reference: Mapping[str, Any] | None = None
    better: Mapping[str, Any] | None = None
    person: Any = None
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("k", "pairs", "cases"):
            as_count(name, getattr(self, name))
        normal_quantile(self.confidence)  # checks it
        if self.cases > self.pairs:
            raise ValueError(
                f"cases must be at most pairs, got cases={self.cases}, pairs={self.pairs}"
            )


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
        Predicted and true class of each audited row, (m,) int32. A true class may be -1, unknown;
        ``truth`` is None without any, or if only one decision shows it.
    selective
        Names of the decisions that alone show the true class, such as "granted"; see
        :func:`cfe_faiss.data.roles.selective_classes`.
    class_names
        Names of class 0, 1, ...
    favourable
        The classes that count as selected, together; empty if none was named.
    settings, subject
        Settings of the audit, and the names in it, all of them filled in.
    models
        Predicted class of every row of the finder by each model, the finder's own first; None
        without others.
    results
        Results that several sections use, by the function that computes them.
    show_step
        Shows in the progress bar which step a long section has reached.
    """

    finder: EvidenceFinder
    attributes: Attributes
    sensitive: tuple[str, ...]
    nodes: Ints
    labels: Int32s
    truth: Int32s | None
    selective: tuple[str, ...]
    class_names: tuple[str, ...]
    favourable: tuple[int, ...]
    settings: Settings
    subject: Subject
    models: Models | None = None
    results: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False, compare=False)
    show_step: Callable[[str], None] = field(default=lambda step: None, repr=False, compare=False)

    def once(self, compute: "Callable[[Inputs], _Result]") -> _Result:
        """Return the result of a function of these inputs, computed once."""
        if compute not in self.results:
            self.results[compute] = compute(self)
        result: _Result = self.results[compute]
        return result

    def has(self, need: Need) -> bool:
        """Return whether the inputs or their finder have what a section or a condition needs."""
        known = getattr(self, need) if hasattr(self, need) else getattr(self.finder, need)
        return known is not None and not (isinstance(known, Sequence) and not known)

    @cached_property
    def words(self) -> Mapping[str, Any]:
        """Words and settings in the sentences of all sections."""
        people = self.subject.people
        selected = " or ".join(f"“{show(name)}”" for name in self.favourable_names)
        return {
            "people": show(people),
            "People": show(people[:1].upper() + people[1:]),
            "person": show(singular(people)),
            "persons": show(people if self.settings.person is None else "people"),
            "everyone": self.everyone,
            "level": f"{100 * self.settings.confidence:g}%",
            "favourable_class": selected or "each class",
            "selective": [show(name) for name in self.selective],
            "sensitive": [show(name) for name in self.sensitive],
            "k": self.settings.k,
            "bins": self.settings.bins,
            "pairs": self.settings.pairs,
            "metric": self.finder.metric,
            "measure": measure_of(self.finder.metric),
            "scale": self.finder.scale,
            "where": self.settings.where,
        }

    @cached_property
    def persons(self) -> Ints:
        """Person of every row of the finder, (n,)."""
        return persons_of(self.finder, self.settings.person)

    @property
    def everyone(self) -> str:
        """Name of the group of all rows."""
        return f"all {self.subject.people}"

    def group(self, row: Mapping[str, Any]) -> str:
        """Return the name of the group of a row with the columns "feature" and "value"."""
        return (
            self.everyone if row["feature"] == "all" else group_name(row["feature"], row["value"])
        )

    def placed(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row with attribute and group as conditions name them."""
        if "place" in row:
            return row
        is_everyone = row["feature"] == "all"
        attribute, place = (None, self.everyone) if is_everyone else (row["feature"], row["value"])
        return {**row, "attribute": attribute, "place": place}

    def positions(self, nodes: Ints) -> Ints:
        """Return the positions of audited rows in :attr:`nodes`."""
        return np.searchsorted(self.nodes, nodes)

    @cached_property
    def groups(self) -> Attributes:
        """Group of each audited row by sensitive attribute.

        Numbers are cut by all rows, as in every audit.
        """
        found = groupings(
            attributes_of_finder(self.finder),
            self.nodes,
            self.sensitive,
            self.settings.bins,
            with_missing=False,
        )
        return Attributes(
            {one.name: (one.codes.astype(np.int32), tuple(one.values)) for one in found}, self.nodes
        )

    @property
    def options(self) -> dict[str, Any]:
        """Arguments that most audits share."""
        return {"bins": self.settings.bins, "intersections": self.crossed}

    @property
    def unfavourable(self) -> list[int]:
        """The predicted classes other than the favourable ones, ascending.

        Empty if none was named.
        """
        others = [
            int(label)
            for label in np.unique(self.labels)
            if label not in (UNKNOWN, *self.favourable)
        ]
        return others if self.favourable else []

    @property
    def favourable_names(self) -> list[str]:
        """Names of the favourable classes."""
        return [self.class_names[label] for label in self.favourable]

    def reword(self, text: str) -> str:
        """Return a sentence of an audit, which says "nodes", in the words of the report."""
        return re.sub(
            r"\bnode(s?)\b", lambda noun: self.words["people" if noun[1] else "person"], text
        )

    @property
    def crossed(self) -> list[tuple[str, str]]:
        """All pairs of sensitive attributes."""
        return list(combinations(self.sensitive, 2))

    @property
    def attributes_and_pairs(self) -> list[str]:
        """Names of the sensitive attributes and of their intersections."""
        return [*self.sensitive, *(" & ".join(names) for names in self.crossed)]


def check_inputs(
    finder: EvidenceFinder,
    sensitive: Sequence[str] | None,
    favourable: int | str | Sequence[int | str] | None,
    settings: Settings,
    subject: Subject = Subject(),
    compare: Mapping[str, Any] | None = None,
    truth_favourable: int | str | Sequence[int | str] | None = None,
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
        raise ValueError(
            f"finder must search among two nodes or more with a predicted class, got {len(nodes)}"
        )
    # by number, "feature 0", if the data has no names; none without data
    if finder.attributes is None:
        rows = np.arange(len(finder.labels))
        unnamed = Attributes({}, rows) if finder.data is None else as_attributes(finder.data)
        finder = replace(finder, attributes=unnamed)
    attributes = attributes_of_finder(finder).take(nodes)
    _check_texts(attributes)
    names = tuple(attributes.known("sensitive", name) for name in sensitive_of(finder, sensitive))
    selected = (
        () if favourable is None else tuple(finder.class_numbers("favourable", favourable).tolist())
    )
    if settings.better is not None:
        grades_of(attributes, settings.better)  # checks it
        if not selected:
            raise ValueError(
                f"better must come with favourable, or it has no effect, got {settings.better!r}"
            )
    persons_of(finder, settings.person)  # checks it
    if settings.person is not None and finder.links is not None:
        raise ValueError(
            "person must be left out for links, whose tests count those that share an end as "
            f"dependent, got {settings.person!r}"
        )
    for argument in ("reference", "person"):
        if getattr(settings, argument) is not None and not names:
            raise ValueError(
                f"{argument} must come with sensitive attributes, or it has no effect, got none"
            )
    finder = with_truth(finder, selected, truth_favourable)
    labels = members.labels[members.labels != UNKNOWN]
    truth = None if finder.truth is None else finder.truth[nodes]
    selective = [] if truth is None else selective_classes(labels, truth != UNKNOWN)
    return Inputs(
        finder,
        attributes,
        names,
        nodes,
        labels,
        None if truth is None or selective or (truth == UNKNOWN).all() else truth,
        tuple(finder.class_name(label) for label in selective),
        tuple(finder.class_name(label) for label in range(finder.class_count)),
        selected,
        settings,
        _complete(subject, finder, settings),
        None if compare is None else as_models(finder, compare, "compare"),
    )


def _complete(subject: Subject, finder: EvidenceFinder, settings: Settings) -> Subject:
    """Return the subject with the names that the user has not given."""
    name = getattr(finder.data, "name", None)  # may be a column of a table
    data = subject.data or (name if isinstance(name, str) and name else "data without a name")
    model = subject.model or (
        "given predictions" if finder.model is None else type(finder.model).__name__
    )
    is_people = finder.noun == "row" and settings.person is None
    people = subject.people or ("people" if is_people else f"{finder.noun}s")
    title = subject.title or f"Audit: {data}, {model}"
    return replace(subject, title=title, data=data, model=model, people=people)


def _check_texts(attributes: Attributes) -> None:
    """Raise ValueError if a name or a value holds a lone surrogate, which no file can."""
    for name in attributes:
        values = attributes[name].values if attributes[name].numbers is None else ()
        try:
            "".join([name, *map(str, values)]).encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                "attributes must hold Unicode texts, got the surrogate "
                f"{error.object[error.start]!r} in {name!r}"
            ) from None


# --- declarations of sections ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """Metric of a condition.

    Attributes
    ----------
    key, n
        Keys of the number and of its cases in ``Section.measured``.
    needs
        Requirements, see :meth:`Inputs.has`.
    is_ranked
        Whether it is defined for groups that can be ranked only.
    is_count
        Whether it is a whole number.
    """

    key: str
    n: str
    needs: tuple[Need, ...] = ()
    is_ranked: bool = False
    is_count: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Place of a section in the report.

    Attributes
    ----------
    name
        Its id. Its template is ``templates/sections/NAME.txt.j2``.
    numbers
        The function of its numbers. A section of words alone has none.
    needs
        Requirements, see :meth:`Inputs.has`; the section says which of them is not met first.
    is_open
        Whether the page shows it in full, above the details.
    is_optional
        Whether it is left out if a need is not met.
    metrics
        The metrics that it measures, by their names in conditions.
    """

    name: str
    numbers: Callable[[Inputs], Section] = lambda inputs: Section()
    needs: tuple[Need, ...] = ()
    is_open: bool = False
    is_optional: bool = False
    metrics: Mapping[str, Metric] = field(default_factory=dict)
