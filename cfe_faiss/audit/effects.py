"""Direct effects of an attribute: direction test, situation test, and all values at once."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.audit.direct_test import (
    FINDINGS,
    Sample,
    Samples,
    ScoreTest,
    judge,
    question,
    verdict,
)
from cfe_faiss.audit.groups import (
    DEFAULT_BINS,
    Bins,
    Bools,
    Floats,
    Frame,
    Grouping,
    Ints,
    TableResult,
    attributes_of_finder,
    check_finder,
    groupings,
    known_rows,
    persons_of,
    sensitive_of,
    share,
)
from cfe_faiss.base.checks import UNKNOWN, as_array, as_count, as_number
from cfe_faiss.base.extras import pd
from cfe_faiss.base.threads import run
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.finder.results import as_html, table_html
from cfe_faiss.rows.metric import measure_of, measured

LIMITS = (
    "A finding says that decisions go along with the value in a way not explained by the vectors. "
    "It does not say why.",
    "The p value holds for large samples, and only if the vectors teach who carries the value. "
    "It is wrong where the value follows the decisions more finely than the vectors and the "
    "number of people can show.",
    "The vectors must not hold the attribute. The last layer of a model determines its "
    "decisions, so no direct effect is visible in it: use the input features.",
    "No finding is no proof that decisions are free of the attribute.",
    "People are taken as independent. Rows that share vector, value and decision make false "
    "findings frequent, unless they are those of one person and person= says so.",
)
"""Questions that the numbers cannot answer."""

_COLUMNS = (
    *(
        "attribute",
        "value",
        "test",
        "n_carriers",
        "n_others",
        "effect",
        "statistic",
        "p",
        "q",
        "n_effective",
        "few",
    ),
    *("verdict", "reason", "against", "in_favour", "expected", "gamma", "named", "same_as"),
)
_ROUNDING = 1e-12  # differences of shares that miss the threshold by less reach it
# of the attribute, for `expected`
_DRAWS = 100
_TESTED_AT_ONCE = 4
"""Attributes that are tested at once, at most: each copies the columns of the null model."""
_DRAWN_ROWS = 1_000
_DEPTH = 2_000


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class DirectTest(ScoreTest):
    """Common part of the results of :func:`direction_test` and :func:`situation_test`."""

    attribute: str
    value: tuple[str, ...]
    unfavourable: tuple[str, ...]
    n_carriers: int
    n_others: int
    unknown: int
    verdict: str
    limits: tuple[str, ...] = LIMITS

    def __repr__(self) -> str:
        answer = (
            f"cannot tell, {self.reason}"
            if self.reason
            else f"{self.verdict}, p={self.p_value:.2g}"
        )
        few = ", few decisive carriers" if self.few else ""
        return f"{type(self).__name__}({self.attribute} = {' or '.join(self.value)}: {answer}{few})"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class DirectionTest(DirectTest):
    """Result of :func:`direction_test`.

    See :class:`cfe_faiss.audit.SituationTest` for the other direct test.

    Attributes
    ----------
    attribute, value, unfavourable, n_carriers, n_others, unknown
        Attribute, the values that make a carrier, the unfavourable classes by name, and numbers of
        people who carry a value, who do not, and whose value is missing.
    statistic, p_value, n_effective, few, verdict, reason
        z, positive where carriers are disadvantaged; its two-sided p value; effective number of
        decisive carriers, and whether it is below 10; "disadvantaged", "advantaged", "no finding"
        or "cannot tell", and why not.
    effect
        ``(against - expected) / (against + in_favour)``; NaN without discordant pairs.
    against, in_favour
        Discordant pairs: exactly one side carries the value. Its side has the unfavourable
        decision, or the other one.
    expected
        Pairs against the carrier that the vectors explain.
    gamma
        Largest odds of a hidden difference within the discordant pairs at which the finding stands;
        1 is fragile. NaN without a finding, and for links: it takes pairs as independent, but pairs
        of links may share ends.
    pairs
        One line per pair, most similar first: ``unfavourable``, ``favourable`` (ids of both sides),
        ``similarity`` or ``distance``, ``unfavourable_carries``, ``favourable_carries``.
    limits
        Limits of the numbers, in sentences.
    """

    against: int
    in_favour: int
    expected: float
    gamma: float
    pairs: Frame

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.pairs)


def direction_test(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    attribute: str | Sequence[str],
    value: Any,
    unfavourable: Any,
    nodes: ArrayLike | None = None,
    alpha: float = 0.05,
    bins: Bins = DEFAULT_BINS,
    person: Any = None,
) -> DirectionTest:
    """Test whether the carriers of a value stand on one side of the closest pairs.

    The pairs of people with different decisions are chosen by vectors and decisions alone: the most
    similar first, each person in one pair, at most a fifth as many pairs as people. The test asks
    whether the unfavourable side carries the value more often than the vectors explain.

    Parameters
    ----------
    finder
        Its searched rows are tested. It must know their attributes.
    attribute
        Name of an attribute, or several names: values of their intersection read "f & 18-35".
    value
        The value whose carriers are compared with all others, or a collection of values.
    unfavourable
        The class that counts as unfavourable, or a collection of classes; names or numbers.
    nodes
        Ids of the rows to test, or a mask; held-out people, say. By default all searched rows.
    alpha
        Largest p value of a finding, in (0, 1).
    bins
        Cuts of numbers into groups, see :func:`cfe_faiss.audit.groups.groupings`.
    person
        Attribute that tells whose each row is, or a value for each row: a person counts once, and
        is never compared with itself. A row without a value is a person, by default every row.

    Returns
    -------
    DirectionTest
        With the pairs as a frame.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Score test of a contrast (1 for the unfavourable side of a pair, -1 for the other) in a
    ridge-logistic regression of carrying the value on a basis of the vectors [1]_. People with a
    missing value are left out first. Ties are broken by a fixed seed, in any order of rows. A node
    may end links of several pairs, which the variance counts. O(n^2 d) and O(n d^2) time.

    References
    ----------
    .. [1] Rao, "Large sample tests of statistical hypotheses concerning several parameters",
       Proc. Cambridge Phil. Soc. 44, 1948. ``gamma``: Rosenbaum, "Observational Studies", 2002.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.standard_normal((600, 4)), rng.choice(["f", "m"], 600)
    >>> granted = X[:, 0] > np.where(sex == "f", 0.5, 0)
    >>> finder = cfe.EvidenceFinder.from_vectors(X, granted.astype(int), features={"sex": sex})
    >>> direction_test(finder, attribute="sex", value="f", unfavourable=0).verdict
    'disadvantaged'
    """
    check_finder(finder)
    alpha = as_number("alpha", alpha, 0, 1)
    people, carries, fields = question(
        finder, attribute, ("value", value), unfavourable, nodes, bins, person
    )
    refused, granted, values = people.pairs
    chance, (test,) = people.test(carries, [people.evidence_contrast])
    fields |= asdict(test) | people.pair_counts(carries, chance, alpha)
    fields["verdict"] = verdict(test.statistic, test.p_value, alpha)
    if fields["verdict"] not in FINDINGS:
        fields["gamma"] = np.nan
    sides = {"unfavourable": refused, "favourable": granted}
    pairs = {
        **{side: finder.names(people.rows[own]) for side, own in sides.items()},
        measure_of(finder.metric): values,
        **{f"{side}_carries": carries[own] for side, own in sides.items()},
    }
    return DirectionTest(**fields, pairs=pd.DataFrame(pairs))


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class SituationTest(DirectTest):
    """Result of :func:`situation_test`.

    See :class:`cfe_faiss.audit.DirectionTest` for the other direct test.

    Attributes
    ----------
    attribute, value, unfavourable, n_carriers, n_others, unknown
        Attribute, the protected values, the unfavourable classes by name, and numbers of people who
        carry a protected value, who do not, and whose value is missing.
    statistic, p_value, n_effective, few, verdict, reason
        z, positive where carriers are disadvantaged; its two-sided p value; effective number of
        decisive carriers, and whether it is below 10; "disadvantaged", "advantaged", "no finding"
        or "cannot tell", and why not.
    effect
        Difference of the share decided unfavourably, carriers minus others of equal propensity,
        beyond their nearest neighbours.
    share_carriers, share_others
        Share decided unfavourably in either group, not adjusted for the vectors.
    k, threshold
        As given.
    flagged, judged, expected
        Description after Luong et al.: of the ``judged`` carriers with an unfavourable decision
        ``flagged`` are flagged in ``table``. ``expected`` is the share flagged if the value were
        drawn from its propensity given the vectors; NaN where the test cannot tell. It has no p
        value: the claim is ``verdict``.
    table
        One line per carrier: ``node`` (id), ``label``; ``n_protected``, ``unfavourable_protected``,
        ``n_rest``, ``unfavourable_rest``: nearest people of both groups, and how many of them are
        decided unfavourably; ``difference`` of the two shares, NaN where a group has no other
        person; ``similarity_protected``, ``similarity_rest``: mean similarity (of a table
        ``distance_protected``, ``distance_rest``); ``flagged``: decided unfavourably, and the
        difference reaches the threshold.
    limits
        Limits of the numbers, in sentences.
    """

    share_carriers: float
    share_others: float
    k: int
    threshold: float
    flagged: int
    judged: int
    expected: float
    table: Frame

    _repr_html_ = table_html

    def __len__(self) -> int:
        return len(self.table)


def situation_test(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    attribute: str | Sequence[str],
    protected: Any,
    unfavourable: Any,
    k: int = 10,
    nodes: ArrayLike | None = None,
    threshold: float = 0.1,
    alpha: float = 0.05,
    bins: Bins = DEFAULT_BINS,
    person: Any = None,
) -> SituationTest:
    """Test whether carriers are decided worse than similar people.

    It compares them with their nearest neighbours, beyond what the vectors explain.

    The test compares each person's decision with the decisions of the k nearest people of either
    group. The table describes each carrier as situation testing does [1]_: with the k nearest
    people of both groups.

    Parameters
    ----------
    finder, attribute, unfavourable, nodes, alpha, bins, person
        As in :func:`direction_test`.
    protected
        The value that makes the protected group, or a collection of values; everyone else with a
        value is the rest.
    k
        Neighbours, >= 1, without the person; fewer in smaller groups.
    threshold
        Smallest difference of shares that flags a person in the table, in [0, 1].

    Returns
    -------
    SituationTest
        With a table of the carriers.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    The same score test as in :func:`direction_test`, of the contrast "own decision less the mean
    decision of the k nearest". People with a missing value are left out first; neighbours are found
    exactly, ties are broken by a fixed seed. O(n^2 d) for the neighbours, O(n d^2) for the test.

    References
    ----------
    .. [1] Luong, Ruggieri and Turini, "k-NN as an implementation of situation testing for
       discrimination discovery and prevention", KDD 2011.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.standard_normal((600, 4)), rng.choice(["f", "m"], 600)
    >>> granted = X[:, 0] > np.where(sex == "f", 0.5, 0)
    >>> finder = cfe.EvidenceFinder.from_vectors(X, granted.astype(int), features={"sex": sex})
    >>> situation_test(finder, attribute="sex", protected="f", unfavourable=0).verdict
    'disadvantaged'
    """
    check_finder(finder)
    k = as_count("k", k)
    alpha = as_number("alpha", alpha, 0, 1)
    threshold = as_number("threshold", threshold, 0, 1)
    people, carries, fields = question(
        finder, attribute, ("protected", protected), unfavourable, nodes, bins, person
    )
    chance, (test,) = people.test(carries, [people.situation_contrast(k)])
    table = _table(finder, people, carries, k, threshold)
    judged = table[people.unfavourable[carries] & table["difference"].notna().to_numpy()]
    return SituationTest(
        **fields,
        **asdict(test),
        verdict=verdict(test.statistic, test.p_value, alpha),
        share_carriers=float(share(people.unfavourable[carries].sum(), carries.sum())),
        share_others=float(share(people.unfavourable[~carries].sum(), (~carries).sum())),
        k=k,
        threshold=threshold,
        flagged=int(judged["flagged"].sum()),
        judged=len(judged),
        expected=np.nan if test.reason else _expected_share(people, chance, k, threshold),
        table=table.sort_values("node", ignore_index=True),
    )


def _table(
    finder: EvidenceFinder, people: Sample, carries: Bools, k: int, threshold: float
) -> Frame:
    """Return Luong's table: each carrier with the k nearest people of both groups."""
    carriers = np.flatnonzero(carries)
    rows = people.rows[carriers]
    by_group = people.index_by(carries)
    columns: dict[str, Any] = {"node": finder.names(rows), "label": finder.labels[rows]}
    shares = []
    means = {}
    sides: dict[str, Literal["own", "other"]] = {"protected": "own", "rest": "other"}
    for name, side in sides.items():
        D, I = people.others(by_group, carriers, k, side)
        is_neighbour = I >= 0
        n = columns[f"n_{name}"] = is_neighbour.sum(axis=1)
        bad = columns[f"unfavourable_{name}"] = (people.unfavourable[I] & is_neighbour).sum(axis=1)
        shares.append(share(bad, n))
        values = measured(D, people.metric)
        means[f"{measure_of(people.metric)}_{name}"] = share(
            np.where(is_neighbour, values, 0).sum(axis=1), n
        )
    difference = shares[0] - shares[1]
    flagged = people.unfavourable[carriers] & (difference >= threshold - _ROUNDING)
    return pd.DataFrame({**columns, "difference": difference, **means, "flagged": flagged})


def _expected_share(people: Sample, chance: Floats, k: int, threshold: float) -> float:
    """Return the mean share of flagged carriers if the value is drawn by its propensity.

    Neighbours are searched once, for a sample of the people, so deep that both groups are likely to
    have k among them.
    """
    rng = np.random.default_rng(0)
    refused = np.flatnonzero(people.unfavourable)
    refused = np.sort(rng.choice(refused, min(_DRAWN_ROWS, len(refused)), replace=False))
    rarer = min(chance.mean(), 1 - chance.mean())
    neighbours = people.neighbours(int(min(_DEPTH, 8 * k / rarer)), refused)
    shares = []
    for _ in range(_DRAWS):
        carries_by_chance = rng.random(len(people)) < chance
        near = neighbours[carries_by_chance[refused]]
        flags = _flags(carries_by_chance[near], people.unfavourable[near], k, threshold)
        if len(flags):
            shares.append(flags.mean())
    return float(np.mean(shares)) if shares else np.nan


def _flags(carries: Bools, unfavourable: Bools, k: int, threshold: float) -> Bools:
    """Return which of the people with neighbours, (m, depth), in both groups are flagged."""
    shares = []
    for group in (carries, ~carries):
        first = group & (np.cumsum(group, axis=1, dtype=np.int32) <= k)
        shares.append(share((first & unfavourable).sum(axis=1), first.sum(axis=1)))
    difference = shares[0] - shares[1]
    return difference[~np.isnan(difference)] >= threshold - _ROUNDING


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class DirectEffects(TableResult):
    """Direct tests of many values, adjusted together; made by :func:`direct_effects`.

    Attributes
    ----------
    table
        One line per value and test:

        - ``attribute``, ``value``; ``test``: "situation" or "direction".
        - ``n_carriers``, ``n_others``: people who carry the value, or another one.
        - ``effect``, ``statistic``, ``p``, ``n_effective``, ``few``: see :func:`direction_test` and
          :func:`situation_test`.
        - ``q``: p adjusted over the family; NaN, as p, where the verdict is "cannot tell".
        - ``verdict``: by ``q``. ``reason``: why the test cannot tell, or "".
        - ``against``, ``in_favour``, ``expected``: discordant pairs by the side of the carrier, and
          pairs against the carrier that the vectors explain; NaN for the situation test.
        - ``gamma``: Gamma of a named direction test, else NaN; NaN for links.
        - ``named``: whether the verdict is "disadvantaged" or "advantaged".
        - ``same_as``: the stronger finding that explains this one, such as "race = black" for the
          advantage of all others, or ""; see Notes of :func:`direct_effects`.
    others
        Adjusted p values of the further members of the family, by name.
    unfavourable
        Names of the classes that count as unfavourable.
    n, unknown
        People tested, and by attribute how many rows are left out because their value is missing.
    k, fdr
        As given.
    limits
        Limits of the numbers, in sentences.
    """

    others: Mapping[str, float]
    unfavourable: tuple[str, ...]
    n: int
    unknown: Mapping[str, int]
    k: int
    fdr: float

    def __repr__(self) -> str:
        tested = int(self.table["p"].notna().sum())
        named = int(self.table["named"].sum())
        return f"DirectEffects({len(self)} tests, {tested} can tell, {named} named)"


def adjusted_p_values(p: ArrayLike) -> Floats:
    """Return p values adjusted by Benjamini and Hochberg; NaN stays NaN and does not count.

    Parameters
    ----------
    p
        P values, (m,), in [0, 1].

    Raises
    ------
    ValueError
        If a value is outside.

    Examples
    --------
    >>> adjusted_p_values([0.01, 0.04, np.nan, 0.5]).round(3)
    array([0.03, 0.06,  nan, 0.5 ])
    """
    from scipy.stats import false_discovery_control

    adjusted = as_array("p", p).astype(np.float64)
    if adjusted.ndim != 1 or ((adjusted < 0) | (adjusted > 1)).any():
        raise ValueError(
            f"p must have shape (m,) and lie in 0..1, got {adjusted.shape}, {adjusted[:8]}"
        )
    is_defined = ~np.isnan(adjusted)
    if is_defined.any():
        adjusted[is_defined] = false_discovery_control(adjusted[is_defined])
    return adjusted


def direct_effects(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    sensitive: Sequence[str] | None = None,
    unfavourable: Any,
    intersections: Sequence[Sequence[str]] = (),
    bins: Bins = DEFAULT_BINS,
    nodes: ArrayLike | None = None,
    k: int = 10,
    fdr: float = 0.05,
    others: Mapping[str, float] | None = None,
    person: Any = None,
) -> DirectEffects:
    """Run the situation test and the direction test for every value of the sensitive attributes.

    All tests that can tell form one family, also tests with large p values. Its false discovery
    rate is controlled [1]_.

    Parameters
    ----------
    finder, unfavourable, nodes, bins, person
        As in :func:`direction_test`.
    sensitive
        Names of attributes; by default ``finder.sensitive``.
    intersections
        Tuples of attributes whose combined values are tested, too.
    k
        Neighbours of the situation test, >= 1.
    fdr
        Largest adjusted p value of a finding, in (0, 1).
    others
        Further p values that belong to the family, by name; NaN where a test cannot tell.

    Returns
    -------
    DirectEffects
        With one line per value and test.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    People with the same known values share neighbours, pairs and the basis of the null model.

    *One cause, one finding.* Named values are tested again, from disadvantages to advantages, with
    the carriers of the earlier findings as columns of the null model. Then each finding is tested
    with the carriers of all other findings. Both are at Bonferroni's level. A value that no test
    names again is a mirror image, a union or a part of other carriers: ``same_as`` says of which.

    References
    ----------
    .. [1] Benjamini and Hochberg, "Controlling the false discovery rate", JRSS B 57, 1995.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> rng = np.random.default_rng(0)
    >>> X, sex = rng.standard_normal((600, 4)), rng.choice(["f", "m"], 600)
    >>> granted = X[:, 0] > np.where(sex == "f", 0.5, 0)
    >>> finder = cfe.EvidenceFinder.from_vectors(X, granted.astype(int), features={"sex": sex})
    >>> effects = direct_effects(finder, sensitive=["sex"], unfavourable=0)
    >>> effects.table[["value", "test", "verdict"]]
      value       test        verdict
    0     f  situation  disadvantaged
    1     f  direction  disadvantaged
    2     m  situation     advantaged
    3     m  direction     advantaged
    """
    check_finder(finder)
    k = as_count("k", k)
    fdr = as_number("fdr", fdr, 0, 1)
    names = sensitive_of(finder, sensitive)
    bad = finder.class_numbers("unfavourable", unfavourable)
    rows = known_rows(finder, nodes)
    groups = groupings(
        attributes_of_finder(finder), rows, names, bins, intersections, with_missing=False
    )
    if not groups:
        raise ValueError(
            "sensitive must name attributes where finder.sensitive names none, got none"
        )
    further = {
        str(name): as_number(f"others[{name!r}]", p, 0, 1) if p == p else p
        for name, p in (others or {}).items()
    }
    samples = Samples(finder, rows, bad, persons_of(finder, person))
    return effects_of(samples, groups, k, fdr, further)


def effects_of(
    samples: Samples, groups: Sequence[Grouping], k: int, fdr: float, others: Mapping[str, float]
) -> DirectEffects:
    """Return the tests of :func:`direct_effects` of samples, which keep what the tests share."""
    questions: list[tuple[Grouping, Sample, Ints, list[Floats]]] = []
    for group in groups:
        people, codes = samples.of(group)
        contrasts = [people.situation_contrast(k), people.evidence_contrast]
        if not all(people.obstacle(codes == code) for code in np.unique(codes)):
            _ = people.basis  # shared by the tests, and made on all threads
        questions.append((group, people, codes, contrasts))
    answers: dict[str, Any] = {}

    def test(part: int) -> None:
        for group, people, codes, contrasts in questions[part::_TESTED_AT_ONCE]:
            answers[group.name] = list(people.test_each(codes, contrasts))

    run(test, range(_TESTED_AT_ONCE))
    lines: list[dict[str, Any]] = []
    tested: list[_Tested] = []
    for group, people, _, _ in questions:
        for code, carries, chance, tests in answers[group.name]:
            value = {
                "attribute": group.name,
                "value": group.values[code],
                "n_carriers": people.count(carries),
                "n_others": people.count(~carries),
                "same_as": "",
            }
            counts = people.pair_counts(carries, chance, fdr)
            of_tests: dict[str, dict[str, float]] = {
                "situation": {"gamma": np.nan},
                "direction": counts,
            }
            value_lines = [
                {**value, **asdict(test), "test": name, "p": test.p_value, "few": test.few} | pairs
                for (name, pairs), test in zip(of_tests.items(), tests, strict=True)
            ]
            tested.append(_Tested(people, carries, value_lines))
            lines += value_lines
    q = adjusted_p_values([*(line["p"] for line in lines), *others.values()])
    for line, adjusted in zip(lines, q.tolist(), strict=False):
        judge(line, adjusted, fdr)
        line["gamma"] = line["gamma"] if line["named"] else np.nan
    _fold(tested, k, fdr)
    return DirectEffects(
        table=pd.DataFrame(lines, columns=_COLUMNS),
        limits=LIMITS,
        others=dict(zip(others, q[len(lines) :].tolist(), strict=True)),
        unfavourable=tuple(samples.finder.class_name(int(label)) for label in samples.unfavourable),
        n=len(np.unique(samples.persons[samples.rows])),
        unknown={group.name: int((group.codes == UNKNOWN).sum()) for group in groups},
        k=k,
        fdr=fdr,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Tested:
    """A value, its people, who of them carries it, and the lines of its tests."""

    people: Sample
    carries: Bools
    lines: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """Attribute and value."""
        return f"{self.lines[0]['attribute']} = {self.lines[0]['value']}"

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key: disadvantages first, then by p value."""
        named = [line for line in self.lines if line["named"]]
        return all(line["verdict"] == "advantaged" for line in named), min(
            line["p"] for line in named
        )

    def is_explained_by(self, others: Sequence["_Tested"], k: int, alpha: float) -> bool:
        """Return whether no test names the value again, given the carriers of other findings."""
        carriers = [self._carriers_of(other) for other in others]
        if any((self.carries != others_carry).all() for others_carry in carriers):
            return True  # the mirror image of a finding
        if not carriers:
            return False
        people = self.people
        contrasts = [people.situation_contrast(k), people.evidence_contrast]
        _, tests = people.test(self.carries, contrasts, carriers)
        return not any(
            line["named"] and test.p_value <= alpha and test.statistic * line["statistic"] > 0
            for line, test in zip(self.lines, tests, strict=True)
        )

    def most_similar(self, others: Sequence["_Tested"]) -> str:
        """Return the name of the value with the largest absolute correlation of carriers."""
        overlap = [
            abs(np.corrcoef(self.carries, self._carriers_of(other))[0, 1]) for other in others
        ]
        return others[int(np.nanargmax(overlap))].name

    def _carriers_of(self, other: "_Tested") -> Bools:
        return np.isin(self.people.rows, other.people.rows[other.carries])


def _fold(tested: Sequence[_Tested], k: int, fdr: float) -> None:
    """Enter as ``same_as`` of each named value the other finding that explains it.

    Of two sets of findings the smaller one stands: one prefers single attributes, the other the
    smallest p values.
    """
    named = [value for value in tested if any(line["named"] for line in value.lines)]
    if len(named) < 2:
        return
    alpha = fdr / len(named)  # Bonferroni's correction
    by_p = sorted(named, key=lambda value: value.rank)
    single_first = sorted(
        by_p, key=lambda value: (value.rank[0], " & " in value.lines[0]["attribute"])
    )
    findings = _select(single_first, k, alpha)
    if len(findings) > 1 and single_first != by_p:
        findings = min(findings, _select(by_p, k, alpha), key=len)
    for value in named:
        name = "" if value in findings else value.most_similar(findings)
        for line in value.lines:
            line["same_as"] = name


def _select(named: Sequence[_Tested], k: int, alpha: float) -> list[_Tested]:
    """Return the values that neither the findings so far nor, at the end, all others explain."""
    findings: list[_Tested] = []
    for value in named:
        if not value.is_explained_by(findings, k, alpha):
            findings.append(value)
    for value in [*findings]:
        others = [other for other in findings if other is not value]
        if value.is_explained_by(others, k, alpha):
            findings = others
    return findings
