"""Score test of a direct effect: decisions that depend on an attribute beyond the vectors.

A contrast ``s`` is one number per person, computed from vectors and decisions, never from the
attribute. The null model is a ridge-logistic regression of the attribute ``A`` on a basis of the
vectors. The statistic is the score of ``s`` in that model (Rao's test), so nothing is permuted.
"""

import math
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.audit.groups import (
    Bins,
    Bools,
    Floats,
    Grouping,
    Ints,
    attributes_of_finder,
    canonical_order,
    groupings,
    known_rows,
    persons_of,
)
from cfe_faiss.audit.intervals import dyadic_variance, incidence
from cfe_faiss.base.checks import UNKNOWN, as_names, check_known
from cfe_faiss.base.extras import pd
from cfe_faiss.base.text import summary, value_name
from cfe_faiss.base.threads import run, single_threaded_blas
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.pairs import global_evidence
from cfe_faiss.rows.metric import Metric, measured

LEAST_GROUP = 20
"""Fewest carriers, and fewest others, of a test that answers."""
LEAST_EFFECTIVE = 5
"""Effective number of decisive carriers below which the answer is "cannot tell"."""
FEW_EFFECTIVE = 10
"""Effective number of decisive carriers below which the answer is marked."""
FINDINGS = ("disadvantaged", "advantaged")
_RIDGE = 0.1
_FOLDS = 5
_KNOTS = 14
_NEGLIGIBLE = 1e-6  # standard deviation of a column or component, relative to the largest: rounding of float32 rows
_NEAR_NORMAL = 0.98
"""Correlation of a column with its normal ranks; below it, the null model knows both."""
_PRODUCTS = 6
"""Number of first components with squares and products."""
_ALL_PRODUCTS = 8
"""Most components that all have squares and products, for at least ``_PEOPLE_FOR_ALL`` people."""
_PEOPLE_FOR_ALL = 900
_FEW_COLUMNS = 3
"""Most columns with hinges of their own, for at least ``_PEOPLE_PER_COLUMN`` people per column."""
_PEOPLE_PER_COLUMN = 150
_COLUMN_KNOTS = 5
_SEED = 20
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTest:
    """Result of one score test.

    Attributes
    ----------
    statistic
        z, positive where the carriers of the value are disadvantaged; NaN where nothing could be
        tested.
    p_value
        Two-sided, from the normal distribution; NaN where nothing could be tested.
    n_effective
        Effective number of decisive carriers, (sum t^2 w)^2 / sum t^4 w.
    effect
        Mean difference of the contrast between carriers and others of equal propensity; NaN where
        nothing was tested.
    reason
        Why the test cannot tell; empty where it can.
    """

    statistic: float = math.nan
    p_value: float = math.nan
    n_effective: float = 0.0
    effect: float = math.nan
    reason: str = ""

    __repr__ = summary

    @property
    def few(self) -> bool:
        """Whether fewer than 10 decisive carriers are left: p below .005 is then too frequent."""
        return not self.reason and self.n_effective < FEW_EFFECTIVE


def verdict(statistic: float, p: float, alpha: float) -> str:
    """Return the verdict for a p value, adjusted or not.

    It is "disadvantaged", "advantaged", "no finding" or "cannot tell".
    """
    if math.isnan(p):
        return "cannot tell"
    if p > alpha:
        return "no finding"
    return FINDINGS[0] if statistic > 0 else FINDINGS[1]


def judge(line: dict[str, Any], q: float, fdr: float) -> None:
    """Enter the adjusted p value of a test, its verdict, and whether that is a finding."""
    line["q"] = q
    line["verdict"] = verdict(line["statistic"], q, fdr)
    line["named"] = line["verdict"] in FINDINGS


def basis(X: NDArray[np.float32], *unfavourable: Bools, persons: Ints) -> Floats:
    """Return the columns from which the null model predicts an attribute, (n, c).

    None of them is constant.

    Columns of ``X`` that are far from normal (skewed, heavy tails, many zeros) enter as amounts and
    as normal ranks: the attribute may follow either. The basis has all standardised principal
    components, squares and products of the first six, and for each model the logit of the
    cross-fitted probability of an unfavourable decision with its hinges at 14 quantiles. At most 8
    components have all products, and at most 3 columns have hinges at 5 quantiles. The attribute is
    not needed.

    Parameters
    ----------
    X
        Vectors, (n, d), in an order that does not depend on the attribute.
    unfavourable
        Whether each person was decided unfavourably, (n,), some and not all; once for each model.
    persons
        Number of the person of each row, (n,), which belongs to the fold of this number modulo 5.
    """
    n = len(X)
    shaped, amounts = _normal_ranks(X)
    components = _principal_components(shaped)
    has_all = components.shape[1] <= _ALL_PRODUCTS and n >= _PEOPLE_FOR_ALL
    first = components[:, : _ALL_PRODUCTS if has_all else _PRODUCTS]
    a, b = np.triu_indices(first.shape[1])
    parts = [components, _principal_components(amounts), _standardise(first[:, a] * first[:, b])]
    if shaped.shape[1] <= min(_FEW_COLUMNS, n // _PEOPLE_PER_COLUMN):
        parts += [
            _standardise(_hinges(column, _COLUMN_KNOTS, 1 / (_COLUMN_KNOTS + 1)))
            for column in shaped.T
        ]
    columns = np.column_stack(parts)
    folds = persons % _FOLDS
    blocks = [columns]
    for decisions in unfavourable:
        logit = _cross_fitted_logits(columns, decisions, folds)
        blocks.append(_standardise(np.column_stack([logit, _hinges(logit, _KNOTS, 0.05)])))
    return np.column_stack(blocks)


def propensity(B: Floats, carries: Bools) -> Floats:
    """Return the probability of carrying the value given the basis, (n,)."""
    from scipy.special import expit

    return expit(_logits(B, carries, B))


def score_tests(
    B: Floats, carries: Bools, chance: Floats, contrasts: Sequence[Floats], rows: Ints, ends: Any
) -> list[ScoreTest]:
    """Return one score test for each contrast, given the propensity of :func:`propensity`.

    Every array has one entry per draw of the attribute. ``rows`` is the number of rows of each
    draw, of which a contrast is the sum. ``ends`` joins draws with the nodes that their links end
    at, (n, nodes) sparse, or is None. Draws that share an end depend on each other: the variance is
    then at least that of :func:`dyadic_variance`.
    """
    from scipy.stats import norm

    n = len(B)
    columns = np.column_stack([np.ones(n), B])
    w = chance * (1 - chance)
    weighted = columns * w[:, None]
    gram = weighted.T @ columns
    gram[np.diag_indices_from(gram)] += np.r_[0.0, np.full(B.shape[1], _RIDGE)]
    S = np.column_stack(contrasts)
    T = S - columns @ np.linalg.lstsq(gram, weighted.T @ S, rcond=None)[0]
    scores = S.T @ (carries - chance)
    variances = w @ T**2
    fourth = w @ T**4
    effective_carriers = variances**2 / np.maximum(fourth, _TINY)
    if ends is not None:
        dyadic, squares = dyadic_variance(T * (carries - chance)[:, None], ends)
        variances = np.maximum(variances, dyadic)
        nodes = squares.sum(axis=0) ** 2 / np.maximum((squares**2).sum(axis=0), _TINY)
        effective_carriers = np.minimum(effective_carriers, nodes)
    tests = []
    for score, variance, effective in zip(
        scores.tolist(), variances.tolist(), effective_carriers.tolist(), strict=True
    ):
        if effective < LEAST_EFFECTIVE:
            reason = f"{effective:.1f} decisive carriers are fewer than {LEAST_EFFECTIVE}"
            tests.append(ScoreTest(n_effective=effective, reason=reason))
            continue
        z = score / math.sqrt(variance * n / (n - columns.shape[1]))
        p = float(2 * norm.sf(abs(z)))
        effect = score / float(rows @ w)
        tests.append(ScoreTest(statistic=z, p_value=p, n_effective=effective, effect=effect))
    return tests


def pair_counts(
    refused: Ints, granted: Ints, carries: Bools, chance: Floats, alpha: float
) -> dict[str, float]:
    """Count the pairs that differ in the attribute, and how much a finding withstands.

    In such a pair the unfavourable side carries the value with the odds
    ``gamma * odds(refused) / odds(granted)`` of the propensities; ``gamma`` is 1 if the vectors
    hold everything that matters (Rosenbaum's sensitivity analysis).

    Returns
    -------
    dict
        ``against``, ``in_favour``: pairs in which the carrier has the unfavourable decision, or the
        other one. ``expected``: expected number of pairs against the carrier, given the
        propensities of both sides. ``effect``: share of these pairs that are against the carrier
        beyond the expected ones; NaN without pairs. ``gamma``: the largest odds of a hidden
        difference within the pairs at which a finding stands, >= 1.
    """
    from scipy.optimize import brentq
    from scipy.special import expit, logit
    from scipy.stats import norm

    differ = carries[refused] != carries[granted]
    against = carries[refused][differ]
    logits = logit(chance.clip(1e-12, 1 - 1e-12))
    odds = (logits[refused] - logits[granted])[differ]
    critical = norm.isf(alpha / 2)
    sign = 1 if against.sum() >= expit(odds).sum() else -1

    def exceed(log_gamma: float) -> float:
        p = expit(odds + sign * log_gamma)
        return float(sign * (against.sum() - p.sum()) - critical * math.sqrt((p * (1 - p)).sum()))

    gamma = 1.0
    if len(against) and exceed(0.0) > 0:
        highest = 1.0
        while exceed(highest) > 0 and highest < 64:
            highest *= 2
        gamma = math.exp(brentq(exceed, 0.0, highest)) if highest < 64 else math.inf
    count = int(against.sum())
    expected = float(expit(odds).sum())
    effect = (count - expected) / len(against) if len(against) else math.nan
    pairs = {"against": count, "in_favour": len(against) - count, "expected": expected}
    return pairs | {"effect": effect, "gamma": gamma}


def _normal_ranks(X: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Return the centred columns, those far from normal as ranks, and the amounts of these.

    Normal ranks have the standard deviation of the amounts.
    """
    from scipy.special import ndtri
    from scipy.stats import rankdata

    centred = X - X.mean(axis=0, dtype=np.float64)
    deviations = centred.std(axis=0)
    varies = deviations > _NEGLIGIBLE * deviations.max(initial=0)
    centred = centred[:, varies]
    deviations = deviations[varies]
    ranks = ndtri((rankdata(X[:, varies], axis=0) - 0.5) / len(X))
    ranks *= deviations / ranks.std(axis=0)
    correlation = (centred * ranks).mean(axis=0) / deviations**2
    is_far = correlation < _NEAR_NORMAL
    return np.where(is_far, ranks - ranks.mean(axis=0), centred), centred[:, is_far]


def _principal_components(X: Floats) -> Floats:
    """Return all standardised principal components except rounding errors, (n, at most d)."""
    centred = X - X.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    components = centred @ directions[:, ::-1]
    deviations = components.std(axis=0)
    is_spread = deviations > _NEGLIGIBLE * deviations.max(initial=0)
    standardised: Floats = components[:, is_spread] / deviations[is_spread]
    return standardised


def _standardise(columns: Floats) -> Floats:
    """Return the columns with mean 0 and standard deviation 1, without constant ones."""
    centred = columns - columns.mean(axis=0)
    deviations = centred.std(axis=0)
    is_spread = deviations > 1e-9
    standardised: Floats = centred[:, is_spread] / deviations[is_spread]
    return standardised


def _hinges(values: Floats, count: int, lowest: float) -> Floats:
    """Return max(values - c, 0) at quantiles c from ``lowest`` to 1 - ``lowest``.

    The shape is (n, at most count).
    """
    knots = np.unique(np.quantile(values, np.linspace(lowest, 1 - lowest, count)))
    hinges: Floats = np.maximum(values[:, None] - knots[knots > values.min()], 0)
    return hinges


def _draws(persons: Ints, carries: Bools) -> Ints:
    """Return the draw of the attribute of each row.

    It is that of its person, or its own if the values of the person differ.
    """
    shares = np.bincount(persons, weights=carries) / np.bincount(persons)
    is_mixed = (shares[persons] > 0) & (shares[persons] < 1)
    draws = np.where(is_mixed, len(persons) + np.arange(len(persons)), persons)
    return np.unique(draws, return_inverse=True)[1]


def _cross_fitted_logits(B: Floats, y: Bools, folds: Ints) -> Floats:
    """Return the logit of P(y | B) of each row, by the regression of the other folds."""
    logits = np.empty(len(B))

    def fit(fold: int) -> None:
        held_out = folds == fold
        logits[held_out] = _logits(B[~held_out], y[~held_out], B[held_out])

    run(fit, range(_FOLDS), work=_FOLDS * B.size * B.shape[1])
    return logits


def _logits(B: Floats, y: Bools, at: Floats) -> Floats:
    """Return the logit of P(y | at) of a ridge regression of y on B with a free intercept."""
    from sklearn.linear_model import LogisticRegression

    if y.all() or not y.any():
        return np.full(len(at), 20.0 if y[0] else -20.0)  # one class only: any large value
    model = LogisticRegression(C=1 / _RIDGE, solver="newton-cholesky", tol=1e-6, max_iter=100)
    logits: Floats = model.fit(B, y).decision_function(at)
    return logits


@dataclass(frozen=True)
class Sample:
    """People in an order that is blind to the attribute and depends on their data only.

    Searches break ties by position in this order. Data that need no attribute are computed once.

    Attributes
    ----------
    rows
        Row number in the finder, (n,) int64.
    vectors
        Vectors of the finder, (n, d) float32.
    unfavourable
        Whether each person was decided unfavourably, (n,).
    metric
        Metric of the finder, by which people are compared.
    persons
        Person of each row, (n,), numbered from 0 by their first row. A person counts once, however
        many rows it has; rows of one person are neither neighbours nor a pair.
    before
        Decisions of another model about the same people, (n,), whose logit joins the null model; or
        None.
    ends
        Numbers of the nodes at both ends of each link, (n, 2); None for other rows.
    near
        Nearest people of either group, (n, k), by k. Fewer are the first of more.
    """

    rows: Ints
    vectors: NDArray[np.float32]
    unfavourable: Bools
    metric: Metric
    persons: Ints
    before: Bools | None = None
    ends: Ints | None = None
    near: dict[int, Ints] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def count(self, rows: Bools) -> int:
        """Return the number of different persons in some rows."""
        return len(np.unique(self.persons[rows]))

    @cached_property
    def most_rows(self) -> int:
        """Largest number of rows of one person."""
        return int(np.bincount(self.persons).max(initial=1))

    def index_by(self, labels: Bools) -> IndexEvidenceFlat:
        """Return an exact index with these labels as classes and positions as ids."""
        index = IndexEvidenceFlat(self.vectors.shape[1], metric=self.metric)
        index.add_with_labels(self.vectors, labels.astype(np.int32))
        return index

    @cached_property
    def index(self) -> IndexEvidenceFlat:
        """Exact index with the decisions as classes."""
        return self.index_by(self.unfavourable)

    @cached_property
    def basis(self) -> Floats:
        """Columns of the null model, see :func:`basis`."""
        # Threads of BLAS wait for each other: on a busy machine this takes several times as long.
        with single_threaded_blas():
            return basis(self.vectors, *self._decisions, persons=self.persons)

    @property
    def _decisions(self) -> list[Bools]:
        return [
            decisions for decisions in (self.before, self.unfavourable) if decisions is not None
        ]

    @cached_property
    def pairs(self) -> tuple[Ints, Ints, NDArray[Any]]:
        """The most similar pairs with different decisions, each person in one at most.

        They are chosen greedily.

        Positions of the unfavourable and of the other side, and the similarity or distance.
        """
        where = Constraints(replace=False, antiexact=["person"] if self.most_rows > 1 else [])
        closest_pairs = global_evidence(
            self.index, max(1, len(self) // 5), where=where, attributes={"person": self.persons}
        )
        both = np.stack([closest_pairs.source, closest_pairs.target])
        is_first = _first_of_each(self.persons[both])
        both = both[:, is_first]
        refused, granted = np.where(self.unfavourable[both[0]], both, both[::-1])
        return refused, granted, measured(closest_pairs.similarity[is_first], self.metric)

    def pair_counts(self, carries: Bools, chance: Floats, alpha: float) -> dict[str, float]:
        """Return :func:`pair_counts` of the pairs; ``gamma`` is NaN for links.

        It takes pairs as independent, but pairs of links may share ends.
        """
        counts = pair_counts(*self.pairs[:2], carries, chance, alpha)
        return counts if self.ends is None else counts | {"gamma": math.nan}

    def neighbours(self, k: int, positions: Ints | None = None) -> Ints:
        """Return the k nearest rows of other people of either group, (n, k).

        Fewer if there are no k others.
        """
        positions = np.arange(len(self)) if positions is None else positions
        k = max(1, min(k, len(self) - self.most_rows))
        return self.others(self.index, positions, k, "any")[1]

    def others(
        self,
        index: IndexEvidenceFlat,
        positions: Ints,
        k: int,
        neighbors: Literal["own", "other", "any"],
    ) -> tuple[NDArray[np.float32], Ints]:
        """Return the k nearest rows of other people in an index of this sample; -1 for none."""
        D, I = index.search_stored(positions, k + self.most_rows - 1, neighbors=neighbors)
        I = np.where(self.persons[I] == self.persons[positions][:, None], -1, I)
        order = np.argsort(I < 0, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(D, order, axis=1), np.take_along_axis(I, order, axis=1)

    def obstacle(self, carries: Bools) -> str:
        """Return why this value cannot be tested; empty if it can."""
        n = int(self.persons.max(initial=-1)) + 1
        carriers = self.count(carries)
        others = self.count(~carries)
        rarer = "carry" if carriers < others else "do not carry"
        rarest = min(carriers, others)
        if rarest < LEAST_GROUP:
            return f"fewer than {LEAST_GROUP} people {rarer} the value: {rarest:,}"
        if any(decisions.all() or not decisions.any() for decisions in self._decisions):
            return "all decisions are alike"
        varying = int((self.vectors != self.vectors[:1]).any(axis=0).sum())
        if not varying:
            return "all vectors are alike"
        if 10 * varying > n:
            return (
                f"{varying} dimensions are more than a tenth of {n} people: use fewer (leave "
                f"columns out by ignore or --ignore), or audit more people"
            )
        if self.before is not None and 2 * self.basis.shape[1] > n:
            columns = self.basis.shape[1]
            return f"{columns} columns of the null model are more than half of {n} people"
        return ""

    def test(
        self, carries: Bools, contrasts: Sequence[Floats], others: Sequence[Bools] = ()
    ) -> tuple[Floats, list[ScoreTest]]:
        """Return the propensity, NaN if nothing can be tested, and a test of each contrast.

        The carriers of other values, (n,) each, join the null model. The rows of a person are one
        draw of the attribute, unless the attribute differs among them.
        """
        from scipy import sparse

        if reason := self.obstacle(carries):
            return np.full(len(self), np.nan), [ScoreTest(reason=reason)] * len(contrasts)
        # An attribute of a person follows the mean of its rows, which no single row shows.
        draws = _draws(self.persons, carries)
        rows = np.bincount(draws)
        sums = sparse.csr_array((np.ones(len(self)), (draws, np.arange(len(self)))))
        basis = sums @ np.column_stack([self.basis, *others]) / rows[:, None]
        carriers = sums @ carries > 0
        with single_threaded_blas():
            chance = propensity(basis, carriers)
            summed: list[Floats] = [np.asarray(sums @ contrast) for contrast in contrasts]
            ends = None if self.ends is None else incidence(draws, self.ends)
            tests = score_tests(basis, carriers, chance, summed, rows, ends)
        return chance[draws], tests

    def test_each(
        self, codes: Ints, contrasts: Sequence[Floats]
    ) -> Iterator[tuple[int, Bools, Floats, list[ScoreTest]]]:
        """Yield each value with its carriers, their propensity and the test of each contrast.

        The second of two values is the mirror image of the first, so nothing is fitted for it.
        """
        values = np.unique(codes).tolist()
        chance = np.full(len(self), np.nan)
        tests: list[ScoreTest] = []
        for code in values:
            carries = codes == code
            if len(values) == 2 and not np.isnan(chance).all():
                chance = 1 - chance
                tests = [
                    replace(test, statistic=-test.statistic, effect=-test.effect) for test in tests
                ]
            else:
                chance, tests = self.test(carries, contrasts)
            yield code, carries, chance, tests

    def situation_contrast(self, k: int) -> Floats:
        """Return each decision minus the mean decision of the k nearest people, (n,)."""
        if max(self.near, default=0) < k:
            self.near[k] = self.neighbours(k) if len(self) > 1 else np.arange(len(self))[:, None]
        near = self.near[max(self.near)][:, :k]
        contrast: Floats = self.unfavourable - self.unfavourable[near].mean(axis=1)
        return contrast

    @cached_property
    def evidence_contrast(self) -> Floats:
        """1 for the unfavourable side of a pair, -1 for the other side, 0 in no pair, (n,)."""
        contrast = np.zeros(len(self))
        refused, granted, _ = self.pairs
        contrast[refused] = 1
        contrast[granted] = -1
        return contrast


@dataclass(frozen=True)
class Samples:
    """Samples of the people with a known value; attributes with the same people share one sample.

    Attributes
    ----------
    rows
        Row numbers in the finder, ascending, (n,) int64.
    unfavourable
        Numbers of the unfavourable classes.
    persons
        Person of each row of the finder, see :func:`cfe_faiss.audit.groups.persons_of`.
    others
        Classes of all rows by other models.
    """

    finder: EvidenceFinder
    rows: Ints
    unfavourable: NDArray[np.int32]
    persons: Ints
    others: Sequence[NDArray[np.int32]] = ()
    by_people: dict[bytes, Sample] = field(default_factory=dict)

    def of(self, group: Grouping) -> tuple[Sample, Ints]:
        """Return the people whose code is not -1, and the code of each of them."""
        has_value = group.codes != UNKNOWN
        key = has_value.tobytes()
        if key not in self.by_people:
            self.by_people[key] = self._shuffle(self.rows[has_value])
        people = self.by_people[key]
        return people, group.codes[np.searchsorted(self.rows, people.rows)]

    def _shuffle(self, rows: Ints) -> Sample:
        """Return rows in an order that depends on the set of rows, not on their order.

        It depends on attributes only among people with equal vectors and decisions. There, the seed
        is drawn from all data, so that who comes first is no function of the attribute.
        """
        vectors = self.finder.vectors[rows]
        labels = self.finder.labels
        attributes = attributes_of_finder(self.finder)
        unfavourable = np.isin(labels[rows], self.unfavourable)
        places = attributes.rows(rows)
        codes = (attribute.codes[places] for attribute in attributes.values())
        keys = [unfavourable, *(classes[rows] for classes in (labels, *self.others)), *codes]
        order = canonical_order(vectors, *keys)
        ordered = vectors[order]
        has_ties = (ordered[1:] == ordered[:-1]).all(axis=1).any()
        arrays = (ordered, *(key[order] for key in keys))
        seed = zlib.crc32(b"".join(array.tobytes() for array in arrays)) if has_ties else _SEED
        order = order[np.random.default_rng(seed).permutation(len(rows))]
        rows = rows[order]
        persons = pd.factorize(self.persons[rows])[0]
        links = self.finder.links
        people = Sample(rows, vectors[order], unfavourable[order], self.finder.metric, persons)
        return people if links is None else replace(people, ends=links.ends[rows])


def _first_of_each(persons: Ints) -> Bools:
    """Return which pairs, (2, m), hold no person of an earlier one that is kept."""
    seen = set[int]()
    is_first = np.zeros(persons.shape[1], bool)
    for place, pair in enumerate(persons.T.tolist()):
        is_first[place] = seen.isdisjoint(pair)
        if is_first[place]:
            seen.update(pair)
    return is_first


def question(
    finder: EvidenceFinder,
    attribute: str | Sequence[str],
    values: tuple[str, Any],
    unfavourable: Any,
    nodes: Any,
    bins: Bins,
    person: Any,
) -> tuple[Sample, Bools, dict[str, Any]]:
    """Return the sample of a direct test, its carriers, and the fields of the result.

    ``values`` are the name of the argument and the value or values.
    """
    bad = finder.class_numbers("unfavourable", unfavourable)
    rows = known_rows(finder, nodes)
    names = [attribute] if isinstance(attribute, str) else list(as_names("attribute", attribute))
    single, crossed = (names, []) if len(names) == 1 else ([], [names])
    group = groupings(
        attributes_of_finder(finder), rows, single, bins, crossed, with_missing=False
    )[0]
    given, wanted = codes_of(values[0], group, values[1])
    people, codes = Samples(finder, rows, bad, persons_of(finder, person)).of(group)
    carries = np.isin(codes, wanted)
    fields = {
        "attribute": group.name,
        "value": tuple(given),
        "unfavourable": tuple(finder.class_name(int(label)) for label in bad),
        "n_carriers": people.count(carries),
        "n_others": people.count(~carries),
        "unknown": len(rows) - len(people),
    }
    return people, carries, fields


def codes_of(argument: str, group: Grouping, values: Any) -> tuple[list[str], list[int]]:
    """Return the names of some values of an attribute, and their codes.

    Raises
    ------
    ValueError
        If there is no such value.
    """
    several = isinstance(values, Collection) and not isinstance(values, str | bytes)
    names = list(dict.fromkeys(value_name(value) for value in (values if several else [values])))
    if not names:
        raise ValueError(f"{argument} must hold one value at least, got none")
    for name in names:
        check_known(f"{argument} must be among the values of {group.name!r}", name, group.values)
    return names, [group.values.index(name) for name in names]
