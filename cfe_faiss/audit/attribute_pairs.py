"""Pairs of people: equal in all but some attributes, or at least as good in each."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.attributes.table import Attributes, grades_of
from cfe_faiss.audit.groups import (
    Bools,
    Floats,
    Frame,
    Ints,
    TableResult,
    attributes_of_finder,
    check_finder,
    known_rows,
    stack,
)
from cfe_faiss.audit.intervals import clustered_wilson
from cfe_faiss.base.checks import UNKNOWN, as_count, as_names
from cfe_faiss.base.extras import pd
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.results import PairEvidence
from cfe_faiss.rows.metric import measure_of

_LIMITS = (
    # The first one is for graphs.
    "A pair that differs in these attributes only and is classified differently may still owe "
    "it to its neighbours in the graph: compare the share with that of the pairs that agree in "
    "all attributes.",
    "Only attributes that were given are compared. Numbers agree when they are equal, in every "
    "digit.",
    "No such pair among the nodes does not show that the attributes have no effect: there may "
    "be few nodes that agree in all others. The number of pairs says how many there are.",
    "The interval treats the sets of nodes that agree as independent, and nodes of one set as "
    "not. It holds its level for many sets; where a few large ones hold most pairs it is too "
    "narrow (82% instead of 95% in simulations).",
)
"""Questions that the numbers cannot answer."""

_COMPARISONS = 1 << 20
"""Comparisons of a refused with a granted person at once."""
_ROLES = {"source": "refused", "target": "granted"}
_LEAST_Z = 3.0
"""Least z value of a coefficient that shows a direction."""

_DOMINATED_LIMITS = (
    "A refused person of a pair is at least as good in the columns named in `better`, not in all "
    "respects.",
    "Directions are an assumption of whoever names them, or the sign of the decisions' dependence "
    "on a column.",
)
_BLOCK = 2**20
"""Pairs made at a time."""


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OnlyInPairs(TableResult):
    """The most similar pairs of :class:`OnlyIn`.

    Attributes
    ----------
    source, target
        Row numbers of each pair, (k,) int64, ``source < target``.
    total
        Number of all pairs that are classified differently: these are the first ``len(self)`` of
        them.
    table
        One line per pair, most similar first: ``source`` and ``target`` (the user's ids, if the
        finder has some), ``similarity`` (of a table ``distance``), ``source_label``,
        ``target_label``, and for each of the attributes "source <name>" and "target <name>".
    """

    source: Ints
    target: Ints
    total: int

    def __repr__(self) -> str:
        return f"OnlyInPairs({len(self):,} of {self.total:,} pairs)"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OnlyIn(TableResult):
    """Pairs of nodes that differ only in some attributes; made by :func:`only_in`.

    Attributes
    ----------
    names
        The attributes in which the nodes of a pair may differ, and do in one at least.
    nodes, unknown
        Numbers of nodes that were compared, and that were left out because one of their attributes
        is missing.
    pairs, different
        Numbers of pairs, and of pairs that are classified differently.
    share, low, high
        Different pairs among all pairs, and its interval at ``confidence``; NaN without pairs.
    baseline
        The share among the pairs that agree in all attributes, the null of ``share``: there the
        attributes cannot have made the difference. NaN without such pairs.
    table
        Line 0 for these pairs, line 1 for the pairs that agree in all attributes, whose share is
        the baseline:

        - ``agreement``: "all but <names>" and "all".
        - ``groups``, ``nodes``: sets of nodes that agree and contain a pair, and the nodes in them.
        - ``pairs``, ``different``, ``share``, ``low``, ``high``: as above.
    limits
        Limits of the numbers, in sentences.
    """

    names: tuple[str, ...]
    confidence: float
    nodes: int
    unknown: int
    pairs: int
    different: int
    share: float
    low: float
    high: float
    baseline: float
    _finder: EvidenceFinder
    _people: Frame
    """Nodes with a pair of different classes, by the set of nodes that agree, then by class.

    Columns: ``id``; ``change``, a number of the values that may differ; positions after the last
    node of the class and of the set.
    """

    def __repr__(self) -> str:
        different, pairs = self.table[["different", "pairs"]].iloc[1]
        return (
            f"OnlyIn({', '.join(self.names)}: {self.different:,} of {self.pairs:,} pairs "
            f"classified differently; {different:,} of {pairs:,} pairs that agree in all)"
        )

    def most_similar(self, limit: int = 100) -> OnlyInPairs:
        """Return the most similar pairs that are classified differently, at most ``limit`` of them.

        The similarity or distance is that of :meth:`EvidenceFinder.measure64`; equal ones are in
        the order of their nodes. Time grows with ``different``, memory with ``limit``.

        Raises
        ------
        TypeError, ValueError
            If ``limit`` is not an integer >= 1.
        """
        limit = as_count("limit", limit)
        finder = self._finder
        measure = measure_of(finder.metric)
        nearest = pd.DataFrame(
            {"source": np.empty(0, np.int64), "target": np.empty(0, np.int64), measure: []}
        )
        for source, target in self.blocks(max(_BLOCK // finder.vectors.shape[1], 1)):
            values = finder.measure64(source, target)
            if len(nearest) == limit:
                last = nearest[measure].iloc[-1]
                is_near = values <= last if measure == "distance" else values >= last
                source = source[is_near]
                target = target[is_near]
                values = values[is_near]
            both = stack([nearest, {"source": source, "target": target, measure: values}])
            order = both.sort_values(
                [measure, "source", "target"], ascending=[measure == "distance", True, True]
            )
            nearest = order.head(limit)
        nodes = {end: nearest[end].to_numpy(np.int64) for end in ("source", "target")}
        attributes = attributes_of_finder(finder).select(self.names)
        frames = {end: attributes.take(ids).to_frame() for end, ids in nodes.items()}
        columns = {
            **{end: finder.names(ids) for end, ids in nodes.items()},
            measure: nearest[measure].to_numpy(np.float64),
            **{f"{end}_label": finder.labels[ids] for end, ids in nodes.items()},
            **{
                f"{end} {name}": frames[end][name].to_numpy()
                for name in self.names
                for end in nodes
            },
        }
        return OnlyInPairs(
            source=nodes["source"],
            target=nodes["target"],
            total=self.different,
            table=pd.DataFrame(columns),
        )

    def blocks(self, size: int = _BLOCK) -> Iterator[tuple[Ints, Ints]]:
        """Yield all pairs that are classified differently, each once, in blocks.

        Parameters
        ----------
        size
            Pairs of a block at most, or as many as the largest group has.

        Yields
        ------
        source, target
            Nodes, (m,) int64, ``source < target``.
        """
        # The partners of a node are the nodes of its set in later classes: one range.
        ids, change, end_of_class, end_of_group = self._people.to_numpy(np.int64).T
        partners = end_of_group - end_of_class
        ends = np.cumsum(partners)
        begin = 0
        while begin < len(ends):
            pair_count = ends[begin] - partners[begin]
            end = max(int(np.searchsorted(ends, pair_count + size, side="right")), begin + 1)
            count = partners[begin:end]
            first = np.repeat(np.arange(begin, end), count)
            shift = end_of_class[begin:end] - (ends[begin:end] - count - pair_count)
            second = np.arange(len(first)) + np.repeat(shift, count)
            differ = change[first] != change[second]
            v = ids[first[differ]]
            u = ids[second[differ]]
            if len(v):
                yield np.minimum(v, u), np.maximum(v, u)
            begin = end


def only_in(finder: EvidenceFinder, names: Sequence[str], *, confidence: float = 0.95) -> OnlyIn:
    """Return the pairs that differ in these attributes only, and which of them are evidence.

    The simplest question of a discrimination audit (direct discrimination: equal in everything but
    the protected attribute), answered exactly for all pairs at once, by grouping.

    Parameters
    ----------
    finder
        Knows attributes; its searched nodes with a predicted class are compared.
    names
        Attributes in which the two nodes may differ; they differ in one of them at least, and in no
        other attribute.
    confidence
        Of the intervals, in (0, 1).

    Returns
    -------
    OnlyIn
        The counts, also of the pairs that agree in all attributes; the pairs by
        :meth:`OnlyIn.blocks` and :meth:`OnlyIn.most_similar`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Nodes with a missing value in any attribute can neither agree nor differ: they are left out and
    counted in ``unknown``.

    Numbers are compared exactly. An attribute that no two nodes share (a name, an exact income)
    leaves no pairs: round it, or leave it out of the attributes.

    The interval is Wilson's for clustered cases, over the sets of nodes that agree: pairs of one
    set share nodes and are not independent, pairs of different sets share none.

    Time O(n log n) for each attribute, memory O(n) and the attributes' codes: the number of pairs
    does not matter.

    Examples
    --------
    >>> people = {"sex": ["f", "m", "f", "m"], "job": ["cook", "cook", "smith", "smith"]}
    >>> X = [[1, 0], [1, 0.1], [0, 1], [0, 1]]
    >>> finder = EvidenceFinder.from_vectors(X, [0, 1, 1, 1], features=people)
    >>> found = only_in(finder, ["sex"])
    >>> found
    OnlyIn(sex: 1 of 2 pairs classified differently; 0 of 0 pairs that agree in all)
    >>> found.most_similar().table.drop(columns="similarity")
       source  target  source_label  target_label source sex target sex
    0       0       1             0             1          f          m
    """
    check_finder(finder)
    ids = known_rows(finder, None)
    attributes = attributes_of_finder(finder).take(ids)
    changing = [attributes.known("names", name) for name in as_names("names", names)]
    if not changing:
        raise ValueError("names must hold one attribute at least, got none")
    codes = pd.DataFrame({name: attribute.codes for name, attribute in attributes.items()})
    codes = codes[(codes != UNKNOWN).all(axis=1)]
    rows = codes.index.to_numpy()
    people = pd.DataFrame(
        {"id": ids[rows], "change": _numbers(codes[changing]), "label": finder.labels[ids[rows]]}
    )
    people["group"] = _numbers(codes.drop(columns=changing))

    # Pairs that agree in the rest, minus pairs that agree in everything.
    equal = _count_pairs(people, ["group", "change"])
    counts = _count_pairs(people, ["group"])
    counts[["pairs", "different"]] -= equal.groupby(level="group")[["pairs", "different"]].sum()
    line = _line(f"all but {' and '.join(changing)}", counts, confidence)
    baseline = _line("all", equal, confidence)

    people = people[people["group"].map(counts["different"]) > 0].sort_values(
        ["group", "label"], kind="stable"
    )
    place = np.arange(1, len(people) + 1)
    for keys in (["group", "label"], ["group"]):
        people[f"end_of_{keys[-1]}"] = place + people.groupby(keys).cumcount(ascending=False)
    return OnlyIn(
        table=pd.DataFrame([line, baseline]),
        limits=_LIMITS[finder.graph is None :],
        names=tuple(changing),
        confidence=confidence,
        nodes=len(rows),
        unknown=len(ids) - len(rows),
        **{name: line[name] for name in ("pairs", "different", "share", "low", "high")},
        baseline=baseline["share"],
        _finder=finder,
        _people=people[["id", "change", "end_of_label", "end_of_group"]],
    )


def _numbers(columns: Frame) -> Ints:
    """Return a number for each row, 0..m-1, the same for rows that are equal in all columns."""
    if not len(columns.columns):
        return np.zeros(len(columns), np.int64)
    return np.asarray(columns.groupby([*columns]).ngroup(), np.int64)


def _count_pairs(people: Frame, keys: list[str]) -> Frame:
    """Count ``nodes``, ``pairs`` and pairs of ``different`` classes per set of equal keys."""
    nodes = people.groupby(keys).size()
    of_class = people.groupby([*keys, "label"]).size()
    pairs = nodes * (nodes - 1) // 2
    alike = (of_class * (of_class - 1) // 2).groupby(level=keys).sum()
    return pd.DataFrame({"nodes": nodes, "pairs": pairs, "different": pairs - alike})


def _line(agreement: str, sets: Frame, confidence: float) -> dict[str, Any]:
    sets = sets[sets["pairs"] > 0]
    nodes, pairs, different = map(int, sets[["nodes", "pairs", "different"]].sum())
    low, high = clustered_wilson(sets["different"], sets["pairs"], confidence)
    return {
        "agreement": agreement,
        "groups": len(sets),
        "nodes": nodes,
        "pairs": pairs,
        "different": different,
        "share": different / pairs if pairs else np.nan,
        "low": low,
        "high": high,
    }


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Dominated(TableResult):
    """Result of :func:`dominated`.

    Attributes
    ----------
    table
        One line per pair of ``pairs``, nearest first: ``refused`` and ``granted`` (ids), the other
        columns of :meth:`PairEvidence.to_frame`, and for each column of ``better`` the values of
        both sides.
    pairs
        The nearest pairs; ``source`` is the refused and ``target`` the granted person.
    count
        Number of all such pairs.
    refused, judged
        Number of refused people in at least one such pair, and of refused people whose columns are
        all known.
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
            f"Dominated({self.count:,} pairs; {self.refused:,} of {self.judged:,} refused are at "
            f"least as good as a granted one in {', '.join(self.better)})"
        )


def dominated(
    finder: EvidenceFinder,
    *,
    unfavourable: Any,
    better: Mapping[str, Any] | None = None,
    k: int = 100,
    nodes: ArrayLike | None = None,
) -> Dominated:
    """Find pairs whose refused person is at least as good in every column of ``better``.

    Such pairs need no weighing of advantages against disadvantages. All are counted; the nearest
    are shown.

    Parameters
    ----------
    finder
        Its searched rows are compared. It must know their attributes.
    unfavourable
        The class that counts as refused, or a collection of classes; names or numbers. All others
        count as granted.
    better
        By column: "high" or "low", the better end of a number; or all values of the column, from
        worst to best. Default: the direction in which decisions depend on each number, see
        :func:`learned_directions`.
    k
        Number of pairs in the table, >= 1.
    nodes
        Ids of the rows to compare, or a mask. By default all searched rows.

    Returns
    -------
    Dominated
        Exact. O(r g c) time for r refused and g granted people and c columns, plus the search of
        the nearest pairs.

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
    attributes = attributes_of_finder(finder)
    rows = known_rows(finder, nodes)
    bad = finder.class_numbers("unfavourable", unfavourable)
    refused = np.isin(finder.labels[rows], bad)
    estimated = better is None
    if better is None:
        better = learned_directions(finder, rows, refused)
        if not better:
            raise ValueError(
                "better must be given: the decisions depend on no column in one direction"
            )
    grades = grades_of(attributes, better)[:, attributes.rows(rows)]
    count, worse_treated, judged = count_dominated(grades, refused)
    pairs = _nearest(
        finder, rows, refused, dict(zip(better, grades, strict=True)), as_count("k", k)
    )
    frame = replace(pairs, finder=replace(finder, attributes=attributes.select(better))).to_frame(
        attributes=True
    )
    return Dominated(
        table=frame.rename(
            columns=lambda name: re.sub(
                r"^(source|target)(?=_|$)", lambda side: _ROLES[side[0]], name
            )
        ),
        pairs=pairs,
        count=count,
        refused=worse_treated,
        judged=judged,
        better=dict(better),
        estimated=estimated,
        unknown=int(np.isnan(grades).any(axis=0).sum()),
        limits=_DOMINATED_LIMITS,
    )


def learned_directions(finder: EvidenceFinder, rows: Ints, refused: Bools) -> dict[str, str]:
    """Return the better end of each number on which decisions depend in one direction.

    The direction is the sign of the coefficient in a logistic regression of the decisions on all
    numbers that are not sensitive, standardised, if the coefficient is at least 3 standard errors
    from 0 and the correlation has its sign. Numbers with two values are codes, which have no better
    end.

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
        for name, attribute in attributes_of_finder(finder).items()
        if attribute.numbers is not None
        and name not in finder.sensitive
        and len(attribute.values) > 2
    ]
    numbers = attributes_of_finder(finder).select(names).take(rows).to_frame().astype(np.float64)
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
    shows = (
        (errors > 0) & (abs(coefficients) >= _LEAST_Z * errors) & (coefficients * covariances > 0)
    )
    ends = np.where(coefficients > 0, "low", "high")
    return dict(zip(standardised.columns[shows], ends[shows].tolist(), strict=True))


def count_dominated(grades: Floats, refused: Bools) -> tuple[int, int, int]:
    """Return the numbers of pairs, of refused people, and of those with known grades only.

    Parameters
    ----------
    grades
        (columns, n), see :func:`grades_of`.
    refused
        Whether each person was refused, (n,); the others were granted.
    """
    worse, others = (
        np.ascontiguousarray(grades[:, side], np.float32) for side in (refused, ~refused)
    )
    step = max(1, _COMPARISONS // max(1, others.shape[1]))
    count = 0
    people = 0
    for first in range(0, worse.shape[1], step):
        block = worse[:, first : first + step, None]
        is_pair = block[0] >= others[0]  # never with a missing grade
        for of_block, of_others in zip(block[1:], others[1:], strict=True):
            is_pair &= of_block >= of_others
        count += int(np.count_nonzero(is_pair))
        people += int(is_pair.any(axis=1).sum())
    return count, people, int((~np.isnan(worse)).all(axis=0).sum())


def _nearest(
    finder: EvidenceFinder, rows: Ints, refused: Bools, grades: Mapping[str, Floats], k: int
) -> PairEvidence:
    """Return the k nearest pairs, with refused people as sources.

    A caliper compares absolute differences only, so the grades of granted people are shifted down
    by more than the range: then a difference of at least the shift means "refused, and at least as
    good".
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
