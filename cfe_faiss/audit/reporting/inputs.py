"""Inputs of a report, checked once, and the description of its subject."""

import hashlib
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.audit.evidence import attributes_of, sensitive_of
from cfe_faiss.audit.groups import Bins
from cfe_faiss.audit.intervals import normal_quantile, share_columns
from cfe_faiss.audit.model_comparison import Models, as_models
from cfe_faiss.audit.reporting.document import Wording, texts
from cfe_faiss.audit.reporting.formats import group_name, join_words, list_first, plural, show
from cfe_faiss.base.checks import UNKNOWN, as_count
from cfe_faiss.base.versions import find_version
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.graph import Graph

COMMAND = "Command to rerun"
"""Name of the fact that may differ between equal audits."""

_PACKAGES = ("cfe-faiss", "faiss-cpu", "numpy", "scipy", "scikit-learn", "torch", "torch_geometric", "pandas")
_NAMES = 40
"""Names in one line, and characters of each, at most."""
_Result = TypeVar("_Result")


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
class Inputs(Wording):
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
        The rows of the index, ascending, (m,) int64.
    labels, truth
        Predicted and true class of each audited row, (m,) int32; -1 if unknown. ``truth`` is None without any.
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

    @property
    def sensitive_bins(self) -> Bins:
        """How numbers among the sensitive attributes are cut."""
        bins = self.settings.bins
        return {name: bins[name] for name in self.sensitive if name in bins} if isinstance(bins, Mapping) else bins

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
    if len(members.ids) < 2:
        raise ValueError(f"finder must search among two nodes or more, got {len(members.ids)}")
    if finder.attributes is None:  # by number, "feature 0", if the data has no names; none without data
        rows = np.arange(len(finder.labels))
        unnamed = Attributes({}, rows) if finder.data is None else as_attributes(finder.data)
        finder = replace(finder, attributes=unnamed)
    attributes = attributes_of(finder).take(members.ids)
    _check_texts(attributes)
    names = tuple(attributes.known("sensitive", name) for name in sensitive_of(finder, sensitive))
    truth = None if finder.truth is None else finder.truth[members.ids]
    selected = [None] if favourable is None else finder.class_numbers("favourable", favourable).tolist()
    if len(selected) > 1:
        raise ValueError(f"favourable must be one class, got {favourable!r}")
    return Inputs(
        finder,
        attributes,
        names,
        members.ids,
        members.labels,
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


def scope(inputs: Inputs) -> tuple[str, ...]:
    """Return sentences that describe the audit to readers who know neither the data nor the model."""
    finder, removed = inputs.finder, inputs.finder.removed
    total, count = len(finder.labels), len(inputs.nodes)
    part = ("" if count == total else f"{count:,} of ") + plural(total, inputs.words["person"], inputs.words["people"])
    values = {
        "data": inputs.subject.data,
        "model": inputs.subject.model,
        "part": part,
        "names": join_words(map(show, inputs.sensitive)) if inputs.sensitive else "",
        "features": finder.vectors.shape[1],
        "graph": "" if finder.graph is None else " and the connections",
        "without": "" if removed is None else f", without {join_words(map(show, removed.attributes))}",
    }
    shares = {"selected": inputs.labels == inputs.favourable} if inputs.has("favourable") else {}
    if inputs.truth is not None:
        shares["right"] = (inputs.truth == inputs.labels)[inputs.truth != UNKNOWN]
        values["judged"] = len(shares["right"])
    for name, hits in shares.items():
        found = share_columns(name, hits.sum(), len(hits), inputs.settings.confidence)
        values |= {column: float(value) for column, value in found.items()}
    return inputs.sentences(texts()["scope"]["sentences"], values)


def facts(inputs: Inputs) -> dict[str, str]:
    """Return the known facts about the subject by name."""
    finder, subject, graph, removed = inputs.finder, inputs.subject, inputs.finder.graph, inputs.finder.removed
    sizes = np.bincount(inputs.labels[inputs.labels >= 0], minlength=len(inputs.class_names))
    classes = [f"{show(name, _NAMES)} {size:,}" for name, size in zip(inputs.class_names, sizes, strict=True) if size]
    known = 0 if inputs.truth is None else int((inputs.truth >= 0).sum())
    people, person = inputs.words["people"], inputs.words["person"]
    favourable = None if inputs.favourable is None else show(inputs.class_names[inputs.favourable], _NAMES)
    found = {
        "Data": inputs.subject.data,
        "Model": inputs.subject.model,
        f"Audited {people}": f"{len(inputs.nodes):,} of {len(finder.labels):,}",
        "Connections": "" if graph is None else _connections(finder, graph),
        "Predicted classes": ", ".join(classes),
        "Favourable class": favourable or "none was named; each class is reported in turn",
        "True classes": f"known for {plural(known, person, people)}" if known else "not known",
        f"Attributes ({len(inputs.attributes):,})": list_first(_shorten(inputs.attributes), _NAMES),
        "Sensitive attributes": join_words(_shorten(inputs.sensitive)) if inputs.sensitive else "none named",
        "Left out of the similarity": "" if removed is None else join_words(_shorten(removed.attributes)),
        "Correlated columns that remain in it": ""
        if removed is None
        else ", ".join(f"{show(proxy.column, _NAMES)} ({proxy.strength:.2f})" for proxy in removed.proxies[:8]),
        "Seed": "not given" if subject.seed is None else str(subject.seed),
        COMMAND: subject.command or "not given",
        "Versions": ", ".join(f"{name} {text}" for name, text in versions().items()),
        "SHA-256 of the predictions": digest(finder.labels),
        "SHA-256 of the vectors": digest(finder.vectors),
    }
    if graph is not None:
        weights = [] if graph.weights is None else [graph.weights]
        found["SHA-256 of the connections"] = digest(graph.indptr, graph.indices, *weights)
    for name, labels in list((inputs.models or {}).items())[1:]:
        found[f"SHA-256 of the predictions of {show(name, _NAMES)}"] = digest(labels)
    found |= {f"SHA-256 of {show(name, 60)}": text for name, text in subject.files.items()}
    return {name: text for name, text in found.items() if text}


def _shorten(names: "Sequence[str] | Attributes") -> list[str]:
    return [show(name, _NAMES) for name in names]


def _connections(finder: EvidenceFinder, graph: Graph) -> str:
    count = f"{graph.num_edges:,}, directed" if graph.directed else f"{graph.num_edges // 2:,}"
    unused = "".join(f"; {name} for the model only" for name in finder.model_only)
    return count + (unused if graph.weights is None else ", by weight")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect the numbers."""
    found = {name: find_version(name) for name in _PACKAGES}
    return {"Python": platform.python_version()} | {name: text for name, text in found.items() if text}


def digest(*arrays: NDArray[Any]) -> str:
    r"""Return the SHA-256 of arrays: of the dtype ("<f4"), the shape and the bytes of each, in C order.

    Examples
    --------
    >>> digest(np.array([1, 2], np.int32)) == hashlib.sha256(b"<i4 (2,)" + b"\1\0\0\0\2\0\0\0").hexdigest()
    True
    """
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype.str} {array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()
