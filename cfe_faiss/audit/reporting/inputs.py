"""What a report is made from, checked once."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes import Attributes, as_attributes
from cfe_faiss.audit.evidence import true_classes
from cfe_faiss.audit.groups import Bins
from cfe_faiss.audit.reporting.formats import listed, plural, shown
from cfe_faiss.checks import UNKNOWN, as_count, as_number
from cfe_faiss.constraints import Constraints
from cfe_faiss.finder import EvidenceFinder


@dataclass(frozen=True, slots=True)
class Settings:
    """How an audit is run; the arguments of :func:`cfe_faiss.audit.report` of these names."""

    k: int
    pairs: int
    cases: int
    bins: Bins
    confidence: float
    where: Constraints | None = None
    people: str = ""

    def __post_init__(self) -> None:
        for name in ("k", "pairs", "cases"):
            as_count(name, getattr(self, name))
        if not 0 < as_number("confidence", self.confidence, 0, 1) < 1:
            raise ValueError(f"confidence must lie strictly between 0 and 1, got {self.confidence!r}")
        if self.cases > self.pairs:
            raise ValueError(f"cases must be at most pairs, got cases={self.cases}, pairs={self.pairs}")


@dataclass(frozen=True, slots=True)
class Inputs:
    """A graph, a model's predictions for it, and what is to be audited.

    Attributes
    ----------
    finder, data, model
        As given.
    every
        Attributes as they were given.
    attributes
        Of the audited nodes, row i those of ``nodes[i]``.
    sensitive
        Names of attributes.
    nodes
        The audited nodes, ascending, (m,) int64: those of the index.
    labels, truth
        Predicted and true class of each audited node, (m,) int32; -1 where not known. Without any: None.
    class_names
        Of class 0, 1, ...
    favourable
        The class that counts as selected; None where none was named.
    settings
        How to audit.
    """

    finder: EvidenceFinder
    data: Any
    model: Callable[..., Any] | None
    every: Attributes
    attributes: Attributes
    sensitive: tuple[str, ...]
    nodes: NDArray[np.int64]
    labels: NDArray[np.int32]
    truth: NDArray[np.int32] | None
    class_names: tuple[str, ...]
    favourable: int | None
    settings: Settings

    def class_name(self, label: int) -> str:
        """Return the name of a class."""
        return self.class_names[label]

    def node_name(self, node: int) -> str:
        """Return what the user calls a node, or its number."""
        names = getattr(self.data, "node_ids", None)
        return str(node) if names is None else shown(names[node])

    def places(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of audited nodes among :attr:`nodes`."""
        found: NDArray[np.int64] = np.searchsorted(self.nodes, nodes)
        return found

    @property
    def people(self) -> str:
        """The plural noun for the rows: the user's; else "nodes" with a graph and "people" without."""
        return self.settings.people or ("people" if self.finder.graph is None else "nodes")

    @property
    def person(self) -> str:
        """The singular of :attr:`people`."""
        return "person" if self.people == "people" else self.people.removesuffix("s")

    def count(self, n: int) -> str:
        """Return a count of people: "1,200 applicants"."""
        return plural(n, self.person, self.people)

    def worded(self, text: str) -> str:
        """Return a sentence of an audit, which speaks of nodes, in the words of the report."""
        return re.sub(r"\bnodes\b", self.people, re.sub(r"\bnode\b", self.person, text))

    @property
    def crossed(self) -> list[tuple[str, str]]:
        """Every two sensitive attributes, to be crossed."""
        return list(combinations(self.sensitive, 2))

    @property
    def level(self) -> str:
        """The confidence in words: "95%"."""
        return f"{100 * self.settings.confidence:g}%"


def checked(
    finder: EvidenceFinder,
    data: Any,
    sensitive: Sequence[str],
    model: Callable[..., Any] | None,
    features: Any,
    favourable: int | str | None,
    settings: Settings,
) -> Inputs:
    """Return the inputs of a report.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as :func:`cfe_faiss.audit.report` describes it.
    """
    if isinstance(sensitive, str):
        raise TypeError(f"sensitive must be a sequence of names, got {sensitive!r}")
    if model is not None and not callable(model):
        raise TypeError(f"model must be callable as model(x, edge_index), got {type(model).__name__}")
    members = finder.index.members()
    if len(members.ids) < 2:
        raise ValueError(f"finder must search among two nodes or more, got {len(members.ids)}")
    every = as_attributes(_features(finder, data, features))
    attributes = every.take(members.ids)
    names = tuple(dict.fromkeys(attributes.known("sensitive", name) for name in sensitive))
    truth = None
    if getattr(data, "y", None) is not None:
        truth = true_classes(data.y, members)
        truth = truth if (truth != UNKNOWN).any() else None
    classes = _class_names(data, finder, truth)
    return Inputs(
        finder,
        data,
        model,
        every,
        attributes,
        names,
        members.ids,
        members.labels,
        truth,
        classes,
        _favourable(favourable, classes),
        settings,
    )


def _features(finder: EvidenceFinder, data: Any, features: Any) -> Any:
    for source in (features, finder.attributes, getattr(data, "attributes", None)):
        if source is not None:
            return source
    return data


def _class_names(data: Any, finder: EvidenceFinder, truth: NDArray[np.int32] | None) -> tuple[str, ...]:
    count = 1 + max(int(finder.labels.max(initial=0)), -1 if truth is None else int(truth.max(initial=0)))
    given = list(getattr(data, "class_names", None) or finder.class_names or [])
    return tuple(str(given[c]) if c < len(given) else f"class {c}" for c in range(max(count, len(given))))


def _favourable(favourable: int | str | None, classes: tuple[str, ...]) -> int | None:
    if favourable is None:
        return None
    if isinstance(favourable, str):
        if favourable not in classes:
            raise ValueError(f"favourable must be one of {listed(map(repr, classes))}, got {favourable!r}")
        return classes.index(favourable)
    label = as_count("favourable", favourable, 0)
    if label >= len(classes):
        raise ValueError(f"favourable must lie in 0..{len(classes) - 1}, got {label}")
    return label
