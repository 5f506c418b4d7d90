"""Refused people who are at least as good as a granted person in every column whose direction is known."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attribute, Attributes
from cfe_faiss.audit.evidence import attributes_of, check_finder, known_rows
from cfe_faiss.audit.tables import Bools, Floats, Ints, TableResult
from cfe_faiss.base.checks import as_count
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.results import PairEvidence

_BLOCK = 1 << 25
"""Comparisons of a refused with a granted person at once."""
_LEAST_Z = 3.0
"""Least z value of a coefficient that shows a direction."""

_LIMITS = (
    "A refused person of a pair is at least as good in the columns named in `better`, not in all respects.",
    "Directions are an assumption of whoever names them, or the sign of the decisions' dependence on a column.",
)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Dominated(TableResult):
    """Result of :func:`dominated`.

    Attributes
    ----------
    table
        One line per pair of ``pairs``, nearest first: ``refused`` and ``granted`` (ids), the other columns of
        :meth:`PairEvidence.to_frame`, and for each column of ``better`` the values of both sides.
    pairs
        The nearest pairs; ``source`` is the refused and ``target`` the granted person.
    count
        Number of all such pairs.
    refused, judged
        Number of refused people in at least one such pair, and of refused people whose columns are all known.
    better
        The better end of each column: "high", "low", or the values from worst to best.
    estimated
        Whether the directions are the signs of the decisions' dependence, as none were named.
    unknown
        Number of people left out because a column is missing.
    limits
        Limits of the numbers, in sentences.
    """

    pairs: PairEvidence
    count: int
    refused: int
    judged: int
    better: Mapping[str, Any]
    estimated: bool
    unknown: int

    def __repr__(self) -> str:
        return (
            f"Dominated({self.count:,} pairs; {self.refused:,} of {self.judged:,} refused are at least as good as "
            f"a granted one in {', '.join(self.better)})"
        )


def dominated(
    finder: EvidenceFinder,
    *,
    unfavourable: Any,
    better: Mapping[str, Any] | None = None,
    k: int = 100,
    nodes: ArrayLike | None = None,
) -> Dominated:
    """Find pairs whose refused person is at least as good as the granted one in every column of ``better``.

    Such pairs need no weighing of advantages against disadvantages. All are counted; the nearest are shown.

    Parameters
    ----------
    finder
        Its searched rows are compared. It must know their attributes.
    unfavourable
        The class that counts as refused, or a collection of classes; names or numbers. All others count as granted.
    better
        By column: "high" or "low", the better end of a number; or all values of the column, from worst to best.
        Default: the direction in which decisions depend on each number, see :func:`learned_directions`.
    k
        Number of pairs in the table, >= 1.
    nodes
        Ids of the rows to compare, or a mask. By default all searched rows.

    Returns
    -------
    Dominated
        Exact. O(r g c) time for r refused and g granted people and c columns, besides the search of the nearest pairs.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or no column has a known direction.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> people = {"income": [30, 40, 50, 60], "debt": [9, 1, 8, 2]}
    >>> X = np.column_stack(list(people.values()))
    >>> finder = cfe.EvidenceFinder.from_vectors(X, ["yes", "no", "yes", "no"], features=people)
    >>> found = dominated(finder, unfavourable="no", better={"income": "high", "debt": "low"}, k=1)
    >>> found
    Dominated(3 pairs; 2 of 2 refused are at least as good as a granted one in income, debt)
    >>> found.table[["refused", "granted", "refused_income", "granted_income"]]
       refused  granted  refused_income  granted_income
    0        3        2            60.0            50.0
    """
    check_finder(finder)
    attributes = attributes_of(finder)
    rows = known_rows(finder, nodes)
    bad = finder.class_numbers("unfavourable", unfavourable)
    refused = np.isin(finder.labels[rows], bad)
    estimated = better is None
    if better is None:
        better = learned_directions(finder, rows, refused)
        if not better:
            raise ValueError("better must be given: the decisions depend on no column in one direction")
    grades = grades_of(attributes, better)[:, attributes.rows(rows)]
    is_known = ~np.isnan(grades).any(axis=0)
    count, worse_treated = count_pairs(grades[:, is_known & refused], grades[:, is_known & ~refused])
    pairs = _nearest(finder, rows, refused, dict(zip(better, grades, strict=True)), as_count("k", k))
    frame = replace(pairs, finder=replace(finder, attributes=attributes.select(better))).to_frame(attributes=True)
    names = {column: _side_name(column) for column in frame.columns}
    return Dominated(
        table=frame.rename(columns=names),
        pairs=pairs,
        count=count,
        refused=worse_treated,
        judged=int((is_known & refused).sum()),
        better=dict(better),
        estimated=estimated,
        unknown=int((~is_known).sum()),
        limits=_LIMITS,
    )


def learned_directions(finder: EvidenceFinder, rows: Ints, refused: Bools) -> dict[str, str]:
    """Return the better end of each number on which decisions depend in one direction.

    The direction is the sign of the coefficient in a logistic regression of the decisions on all numbers that are not
    sensitive, standardised, if the coefficient is at least 3 standard errors from 0 and the correlation has its sign.
    Numbers with two values are codes, which have no better end.

    Parameters
    ----------
    finder
        Knows the attributes.
    rows, refused
        Row numbers, and whether each was refused, (n,).
    """
    from sklearn.linear_model import LogisticRegression

    attributes = attributes_of(finder)
    places = attributes.rows(rows)
    numbers: dict[str, Floats] = {}
    for name, attribute in attributes.items():
        if attribute.numbers is None or name in finder.sensitive or len(attribute.values) <= 2:
            continue
        values = attribute.numbers[places].astype(np.float64)
        spread = np.nanstd(values) if not np.isnan(values).all() else 0.0
        if np.isfinite(spread) and spread > 0:
            numbers[name] = np.nan_to_num((values - np.nanmean(values)) / spread)
    if not numbers or refused.all() or not refused.any():
        return {}
    X = np.column_stack(list(numbers.values()))
    model = LogisticRegression(C=1e3, max_iter=1000).fit(X, refused)
    chance = model.predict_proba(X)[:, 1]
    with_intercept = np.column_stack([np.ones(len(X)), X])
    information = (with_intercept * (chance * (1 - chance))[:, None]).T @ with_intercept
    errors = np.sqrt(np.diag(np.linalg.pinv(information, hermitian=True)))[1:]
    covariances = (refused - refused.mean()) @ X
    ends = {1.0: "low", -1.0: "high"}
    return {
        name: ends[float(np.sign(coefficient))]
        for name, coefficient, error, covariance in zip(numbers, model.coef_[0], errors, covariances, strict=True)
        if error > 0 and abs(coefficient) >= _LEAST_Z * error and coefficient * covariance > 0
    }


def grades_of(attributes: Attributes, better: Mapping[str, Any]) -> Floats:
    """Return the rank of each row in each column of ``better``, (c, n), larger for better values, NaN where missing."""
    if not isinstance(better, Mapping) or not better:
        raise ValueError(f"better must map columns to 'high', 'low' or values from worst to best, got {better!r}")
    return np.stack([_grades(attributes, name, end) for name, end in better.items()])


def _grades(attributes: Attributes, name: Any, end: Any) -> Floats:
    attribute = attributes[attributes.known("better", name)]
    ranks = attribute.codes.astype(np.float64)  # values are in ascending order
    ranks[attribute.missing] = np.nan
    if isinstance(end, str):
        if end not in ("high", "low"):
            raise ValueError(f"better[{name!r}] must be 'high', 'low' or values from worst to best, got {end!r}")
        if attribute.numbers is None:
            values = ", ".join(map(str, attribute.values[:20]))
            raise ValueError(f"better[{name!r}] must list the values from worst to best ({values}), got {end!r}")
        return ranks if end == "high" else -ranks
    return _listed_grades(attribute, [*end])[attribute.codes]


def _listed_grades(attribute: Attribute, listed: list[Any]) -> Floats:
    """Return the rank of each value of an attribute, and NaN at the end, for missing values."""
    names = [str(value) for value in listed]
    grade = {name: float(rank) for rank, name in enumerate(names)}
    values = [_text(value) for value in attribute.values]
    for value in values:
        if value not in grade:
            raise ValueError(
                f"better[{attribute.name!r}] must list all values from worst to best, got none for {value!r}"
            )
    return np.array([*(grade[value] for value in values), np.nan])


def _text(value: Any) -> str:
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)


def count_pairs(refused: Floats, granted: Floats) -> tuple[int, int]:
    """Return the number of pairs, and of refused people in a pair, from grades, (columns, r) and (columns, g)."""
    step = max(1, _BLOCK // max(1, granted.shape[1]))
    count = 0
    people = 0
    for first in range(0, refused.shape[1], step):
        block = refused[:, first : first + step]
        is_pair = np.ones((block.shape[1], granted.shape[1]), bool)
        for values, others in zip(block, granted, strict=True):
            is_pair &= values[:, None] >= others
        count += int(np.count_nonzero(is_pair))
        people += int(is_pair.any(axis=1).sum())
    return count, people


def _nearest(finder: EvidenceFinder, rows: Ints, refused: Bools, grades: Mapping[str, Floats], k: int) -> PairEvidence:
    """Return the k nearest pairs, with refused people as sources.

    A caliper compares absolute differences only, so the grades of granted people are shifted down by more than the
    range: then a difference of at least the shift means "refused, and at least as good".
    """
    columns: dict[str, Floats] = {}
    shifts: dict[str, float] = {}
    for name, values in grades.items():
        shift = 1.0 + np.nanmax(values, initial=0) - np.nanmin(values, initial=0)
        column = np.full(len(finder.labels), np.nan)
        column[rows] = np.where(refused, values, values - shift)
        columns[name] = column
        shifts[name] = -shift
    table = Attributes(columns, np.arange(len(finder.labels)))
    pairs = replace(finder, attributes=table).top_pairs(k, where=Constraints(caliper=shifts))
    is_refused = np.zeros(len(finder.labels), bool)
    is_refused[rows] = refused
    source = np.where(is_refused[pairs.source], pairs.source, pairs.target)
    target = np.where(is_refused[pairs.source], pairs.target, pairs.source)
    return replace(pairs, source=source, target=target, finder=finder, missing={})


def _side_name(column: str) -> str:
    """Return the name of a column of pairs with the roles of both sides."""
    for side, role in (("source", "refused"), ("target", "granted")):
        if column == side or column.startswith(f"{side}_"):
            return role + column.removeprefix(side)
    return column
