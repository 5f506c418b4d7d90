"""Refused people who are at least as good as a granted person in every column whose direction is known."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.common import Bools, Floats, Ints, TableResult, attributes_of, check_finder, known_rows
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
    count, worse_treated, judged = count_dominated(grades, refused)
    pairs = _nearest(finder, rows, refused, dict(zip(better, grades, strict=True)), as_count("k", k))
    frame = replace(pairs, finder=replace(finder, attributes=attributes.select(better))).to_frame(attributes=True)
    return Dominated(
        table=frame.rename(columns=_side_name),
        pairs=pairs,
        count=count,
        refused=worse_treated,
        judged=judged,
        better=dict(better),
        estimated=estimated,
        unknown=int(np.isnan(grades).any(axis=0).sum()),
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

    names = [
        name
        for name, attribute in attributes_of(finder).items()
        if attribute.numbers is not None and name not in finder.sensitive and len(attribute.values) > 2
    ]
    numbers = attributes_of(finder).select(names).take(rows).to_frame().astype(np.float64)
    spread = numbers.std(ddof=0)
    varies = np.isfinite(spread) & (spread > 0)
    if not varies.any() or refused.all() or not refused.any():
        return {}
    standardised = ((numbers - numbers.mean()) / spread).loc[:, varies].fillna(0)
    X = standardised.to_numpy()
    model = LogisticRegression(C=1e3, max_iter=1000).fit(X, refused)
    chance = model.predict_proba(X)[:, 1]
    with_intercept = np.column_stack([np.ones(len(X)), X])
    information = (with_intercept * (chance * (1 - chance))[:, None]).T @ with_intercept
    errors = np.sqrt(np.diag(np.linalg.pinv(information, hermitian=True)))[1:]
    coefficients = model.coef_[0]
    covariances = (refused - refused.mean()) @ X
    shows = (errors > 0) & (abs(coefficients) >= _LEAST_Z * errors) & (coefficients * covariances > 0)
    ends = np.where(coefficients > 0, "low", "high")
    return dict(zip(standardised.columns[shows], ends[shows].tolist(), strict=True))


def grades_of(attributes: Attributes, better: Mapping[str, Any]) -> Floats:
    """Return the rank of each row in each column of ``better``, (c, n), larger for better values, NaN where missing."""
    if not isinstance(better, Mapping) or not better:
        raise ValueError(f"better must map columns to 'high', 'low' or values from worst to best, got {better!r}")
    return np.stack([_grades(attributes, name, end) for name, end in better.items()])


def _grades(attributes: Attributes, name: Any, end: Any) -> Floats:
    attribute = attributes[attributes.known("better", name)]
    values = [_text(value) for value in attribute.values]  # in ascending order
    listed = values
    if not isinstance(end, str):
        listed = [str(value) for value in end]
    elif end not in ("high", "low"):
        raise ValueError(f"better[{name!r}] must be 'high', 'low' or values from worst to best, got {end!r}")
    elif attribute.numbers is None:
        shown = ", ".join(values[:20])
        raise ValueError(f"better[{name!r}] must list the values from worst to best ({shown}), got {end!r}")
    elif end == "low":
        listed = values[::-1]
    grade = {value: float(rank) for rank, value in enumerate(listed)}
    for value in values:
        if value not in grade:
            raise ValueError(f"better[{name!r}] must list all values from worst to best, got none for {value!r}")
    return np.array([*(grade[value] for value in values), np.nan])[attribute.codes]


def _text(value: Any) -> str:
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)


def count_dominated(grades: Floats, refused: Bools) -> tuple[int, int, int]:
    """Return the number of pairs, of refused people in one, and of refused people whose grades are all known.

    Parameters
    ----------
    grades
        (columns, n), see :func:`grades_of`.
    refused
        Whether each person was refused, (n,); the others were granted.
    """
    worse = grades[:, refused]
    others = grades[:, None, ~refused]
    step = max(1, _BLOCK // max(1, others.size))
    count = 0
    people = 0
    for first in range(0, worse.shape[1], step):
        block = worse[:, first : first + step, None]
        is_pair = (block >= others).all(axis=0)  # never with a missing grade
        count += int(np.count_nonzero(is_pair))
        people += int(is_pair.any(axis=1).sum())
    return count, people, int((~np.isnan(worse)).all(axis=0).sum())


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
    is_refused = np.isin(pairs.source, rows[refused])
    source = np.where(is_refused, pairs.source, pairs.target)
    target = np.where(is_refused, pairs.target, pairs.source)
    return replace(pairs, source=source, target=target, finder=finder, missing={})


def _side_name(column: str) -> str:
    """Return the name of a column of pairs with the roles of both sides."""
    for side, role in (("source", "refused"), ("target", "granted")):
        if column == side or column.startswith(f"{side}_"):
            return role + column.removeprefix(side)
    return column
