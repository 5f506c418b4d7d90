"""Conditions on the two nodes of a pair, for the argument ``where=``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

import numpy as np

from cfe_faiss.base.checks import as_count, as_number, check_distinct
from cfe_faiss.base.values import as_labels, as_values, distinct

Range: TypeAlias = tuple[float, float]
Permitted: TypeAlias = Range | frozenset[Any]

_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, repr=False)
class Constraints:
    """Conditions on pairs in addition to different classes: on both nodes, or the evidence.

    The names follow MatchIt [1]_ and DiCE [2]_. A search under constraints is exact and complete:
    it returns the best pairs that meet the conditions, and a short row means that no more exist.

    Parameters
    ----------
    exact
        Attributes in which both nodes have the same value.
    antiexact
        Attributes in each of which they have different values.
    caliper
        By numeric attribute: largest difference of the values, in the unit of the attribute; a
        negative number is the least difference. Differences are computed in float64, without a
        tolerance.
    std_caliper
        The same in standard deviations of the attribute (n - 1 in the denominator) over all nodes
        of the index.
    permitted
        By attribute: permitted values of the evidence, as a closed range ``(low, high)`` (a tuple
        of two numbers; ``-np.inf`` and ``np.inf`` leave a side open), or as a collection of values
        (a list or set).
    target
        Predicted class or classes of the evidence, by number, or (with an ``EvidenceFinder`` with
        class names) by name; a number is a name if all class names are whole numbers.
    max_changed
        Largest number of attributes in which the nodes differ, of all attributes of the table.
    min_hops
        Least distance of the nodes in the graph, >= 2; 2 excludes neighbours. Without a path the
        distance is infinite. Paths ignore the direction of edges.
    common_neighbors
        False: the nodes have no common neighbour. The direction of edges is ignored.
    ratio
        Largest number of pairs per node. Pairs are chosen greedily by similarity (ties: smaller ids
        first), and only if neither node has reached the limit. In a search for given queries, it
        limits how often each evidence is used over all queries; ties go to the query that comes
        first.
    replace
        False is ``ratio=1``: matching without replacement.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, would have no effect, or contradicts another one. Errors
        that depend on the table (unknown attributes, a caliper of texts) are raised in the search.

    Notes
    -----
    *Pairs have no direction* in ``top_pairs``, ``global_evidence`` and ``evidence_pairs``: there,
    ``permitted`` and ``target`` must hold together for at least one of the two nodes, in the role
    of the evidence.

    *Missing values.* A node with a missing value in an attribute of ``exact``, ``antiexact``,
    ``caliper`` or ``std_caliper`` is in no pair. A node with a missing value in an attribute of
    ``permitted`` is no evidence. Results count these nodes (``missing``). For ``max_changed`` a
    missing value differs from every other value.

    References
    ----------
    .. [1] Ho, Imai, King and Stuart, "MatchIt: Nonparametric Preprocessing for Parametric Causal
       Inference", Journal of Statistical Software 42(8), 2011: exact, antiexact, caliper,
       std.caliper, replace; ratio is its reuse.max; the greedy choice is nearest neighbour matching
       with m.order="closest".
    .. [2] Mothilal, Sharma and Tan, "Explaining Machine Learning Classifiers through Diverse
       Counterfactual Explanations", FAT* 2020: permitted_range.

    Examples
    --------
    >>> Constraints(exact="sex", caliper={"age": 5}, replace=False)
    Constraints(exact=('sex',), caliper={'age': 5.0}, replace=False)
    >>> Constraints(exact=["sex"], permitted={"income": (0, 5000)}).describe()
    ['the same sex', 'evidence with income from 0 to 5,000']
    """

    exact: Sequence[str] = ()
    antiexact: Sequence[str] = ()
    caliper: Mapping[str, float] = field(default_factory=dict)
    std_caliper: Mapping[str, float] = field(default_factory=dict)
    permitted: Mapping[str, Any] = field(default_factory=dict)
    target: int | str | Sequence[int | str] | None = None
    max_changed: int | None = None
    min_hops: int | None = None
    common_neighbors: bool = True
    ratio: int | None = None
    replace: bool = True

    def __post_init__(self) -> None:
        checked = {
            "exact": _names("exact", self.exact),
            "antiexact": _names("antiexact", self.antiexact),
            "caliper": _limits("caliper", self.caliper),
            "std_caliper": _limits("std_caliper", self.std_caliper),
            "permitted": {
                name: _values(f"permitted[{name!r}]", values)
                for name, values in _mapping("permitted", self.permitted).items()
            },
            "target": _classes(self.target),
            "max_changed": None
            if self.max_changed is None
            else as_count("max_changed", self.max_changed, 0),
            "min_hops": None if self.min_hops is None else as_count("min_hops", self.min_hops, 2),
            "common_neighbors": _flag("common_neighbors", self.common_neighbors),
            "ratio": None if self.ratio is None else as_count("ratio", self.ratio),
            "replace": _flag("replace", self.replace),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._check_agreement()

    def _check_agreement(self) -> None:
        for name in self.antiexact:
            if name in self.exact:
                raise ValueError(
                    f"exact and antiexact must not name the same attribute, got {name!r} in both"
                )
        for argument in ("caliper", "std_caliper"):
            for name, limit in getattr(self, argument).items():
                if name in self.exact:
                    raise ValueError(
                        f"{argument} must not name an attribute of exact, got {name!r} in both"
                    )
                if name in self.antiexact and limit <= 0:
                    why = (
                        "no two different values are 0 apart"
                        if limit == 0
                        else "antiexact has no effect then"
                    )
                    raise ValueError(
                        f"{argument} of {name!r} must be above 0 beside antiexact ({why}), got "
                        f"{limit:g}"
                    )
        least = len(self.antiexact)
        if self.max_changed is not None and self.max_changed < least:
            raise ValueError(
                f"max_changed must be at least {least}, the number of antiexact, got "
                f"{self.max_changed}"
            )
        if not self.replace and self.ratio not in (None, 1):
            raise ValueError(f"ratio must be 1 (or left out) with replace=False, got {self.ratio}")

    def __bool__(self) -> bool:
        return bool(self._changed_fields())

    def __repr__(self) -> str:
        texts = (f"{name}={value!r}" for name, value in self._changed_fields().items())
        return f"Constraints({', '.join(texts)})"

    def _changed_fields(self) -> dict[str, Any]:
        """Return the arguments that differ from their defaults."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: value
            for name, value in values.items()
            if value is not None and value is not True and value != () and value != {}
        }

    @property
    def uses(self) -> int | None:
        """Largest number of pairs per node; None for any number."""
        return self.ratio if self.replace else 1

    @property
    def needs_graph(self) -> bool:
        """Whether any condition is on the graph."""
        return self.min_hops is not None or not self.common_neighbors

    @property
    def compares(self) -> bool:
        """Whether any condition is on both nodes of a pair, not on the evidence alone."""
        return self.needs_graph or self.max_changed is not None or bool(self.compared())

    def compared(self) -> dict[str, str]:
        """Return the attributes that both nodes must have, and the first argument with each."""
        named: dict[str, str] = {}
        for argument in ("exact", "antiexact", "caliper", "std_caliper"):
            for name in getattr(self, argument):
                named.setdefault(name, argument)
        return named

    def named(self) -> dict[str, str]:
        """Return the attributes in the conditions, and the first argument with each."""
        compared = self.compared()
        return compared | {name: "permitted" for name in self.permitted if name not in compared}

    def describe(self) -> list[str]:
        """Return each condition in words."""
        phrases = [f"the same {name}" for name in self.exact] + [
            f"different {name}" for name in self.antiexact
        ]
        for limits, unit in ((self.caliper, ""), (self.std_caliper, " standard deviations")):
            for name, limit in limits.items():
                phrases.append(
                    f"{name} at {'least' if limit < 0 else 'most'} {abs(limit):,.15g}{unit} apart"
                )
        for name, values in self.permitted.items():
            if isinstance(values, tuple):
                phrases.append(f"evidence with {name} from {values[0]:,.15g} to {values[1]:,.15g}")
            else:
                phrases.append(f"evidence with {name} {' or '.join(sorted(map(str, values)))}")
        if self.target is not None:
            classes = map(str, self.target)  # type: ignore[arg-type]
            phrases.append(f"evidence of class {' or '.join(classes)}")
        if self.max_changed is not None:
            phrases.append(
                f"at most {self.max_changed} attribute{'s' * (self.max_changed != 1)} different"
            )
        if self.min_hops is not None:
            phrases.append(f"at least {self.min_hops} hops apart")
        if not self.common_neighbors:
            phrases.append("no neighbour in common")
        if self.uses is not None:
            phrases.append(f"each node in at most {self.uses} pair{'s' * (self.uses != 1)}")
        return phrases


def _names(argument: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Iterable) or isinstance(names, Mapping):
        raise TypeError(f"{argument} must be names of attributes, got {value!r}")
    listed = tuple(names)
    _check_texts(f"{argument} must be names of attributes", listed)
    check_distinct(f"{argument} must name each attribute once", listed)
    return listed


def _mapping(argument: str, value: Any) -> Mapping[str, Any]:
    expectation = f"{argument} must be a mapping from names of attributes"
    if not isinstance(value, Mapping):
        raise TypeError(f"{expectation}, got {value!r}")
    _check_texts(expectation, value)
    return value


def _check_texts(expectation: str, values: Iterable[Any]) -> None:
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{expectation}, got {value!r}")


def _limits(argument: str, value: Any) -> dict[str, float]:
    return {
        name: as_number(f"{argument}[{name!r}]", limit, -_LARGEST, _LARGEST)
        for name, limit in _mapping(argument, value).items()
    }


def _values(argument: str, values: Any) -> Permitted:
    if isinstance(values, tuple):
        if len(values) != 2:
            raise ValueError(
                f"{argument} must be a range (low, high) or a list of values, got {values!r}"
            )
        low, high = (as_number(argument, bound, -np.inf, np.inf) for bound in values)
        if low > high:
            raise ValueError(
                f"{argument} must be a range (low, high) with low <= high, got {values!r}"
            )
        return low, high
    listed = values.tolist() if hasattr(values, "tolist") else values
    single = isinstance(listed, str) or not isinstance(listed, Iterable)
    chosen = frozenset([listed] if single else listed)
    if not chosen:
        raise ValueError(f"{argument} must hold at least one value, got {values!r}")
    for each in chosen:
        if each is None or each != each:
            raise ValueError(
                f"{argument} must hold values (a missing one is never permitted), got {each!r}"
            )
    return chosen


def _classes(value: Any) -> tuple[int | str, ...] | None:
    if value is None:
        return None
    single = isinstance(value, str) or not isinstance(value, Iterable)
    classes = as_values("target", [value] if single else value).reshape(-1)
    labels = as_labels("target", classes, len(classes))
    if not len(labels):
        raise ValueError(f"target must hold at least one class, got {value!r}")
    return tuple(labels[distinct(labels)[0]].tolist())


def _flag(argument: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{argument} must be True or False, got {value!r}")
    return bool(value)
