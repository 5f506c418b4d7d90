"""Inputs of a report, checked once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.audit.evidence import attributes_of, sensitive_of
from cfe_faiss.audit.groups import Bins
from cfe_faiss.audit.reporting.formats import plural, shown
from cfe_faiss.base.checks import UNKNOWN, as_count, as_number
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
        As given; data and model are the finder's.
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
    model: Any
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
        return shown(self.finder.names([node]).tolist()[0])

    def places(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of audited nodes among :attr:`nodes`."""
        found: NDArray[np.int64] = np.searchsorted(self.nodes, nodes)
        return found

    @property
    def sensitive_bins(self) -> Bins:
        """How numbers among the sensitive attributes are cut."""
        bins = self.settings.bins
        return {name: bins[name] for name in self.sensitive if name in bins} if isinstance(bins, Mapping) else bins

    @property
    def unfavourable(self) -> list[int]:
        """The predicted classes other than the favourable one, ascending; empty where none was named."""
        others = [int(label) for label in np.unique(self.labels) if label not in (UNKNOWN, self.favourable)]
        return [] if self.favourable is None else others

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
    finder: EvidenceFinder, sensitive: Sequence[str] | None, favourable: int | str | None, settings: Settings
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
    if finder.attributes is None:
        finder = replace(finder, attributes=_without_names(finder))
    attributes = attributes_of(finder).take(members.ids)
    _check_texts(attributes)
    names = tuple(attributes.known("sensitive", name) for name in sensitive_of(finder, sensitive))
    truth = None if finder.truth is None else finder.truth[members.ids]
    selected = None if favourable is None else finder.class_numbers("favourable", favourable)
    if selected is not None and len(selected) > 1:
        raise ValueError(f"favourable must be one class, got {favourable!r}")
    return Inputs(
        finder,
        finder.data,
        finder.model,
        attributes,
        names,
        members.ids,
        members.labels,
        None if truth is None or (truth == UNKNOWN).all() else truth,
        tuple(finder.class_name(label) for label in range(finder.class_count)),
        None if selected is None else int(selected[0]),
        settings,
    )


def _check_texts(attributes: Attributes) -> None:
    """Raise ValueError where a name or a value holds a lone surrogate, which no file can."""
    for name in attributes:
        values = attributes[name].values if attributes[name].numbers is None else ()
        try:
            "".join([name, *map(str, values)]).encode()
        except UnicodeEncodeError as error:
            bad = error.object[error.start]
            raise ValueError(f"attributes must hold Unicode texts, got the surrogate {bad!r} in {name!r}") from None


def _without_names(finder: EvidenceFinder) -> Attributes:
    """Return attributes by number, "feature 0", where the data has no names; none where there is no data."""
    return Attributes({}, np.arange(len(finder.labels))) if finder.data is None else as_attributes(finder.data)
