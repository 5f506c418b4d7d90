"""Score test of a direct effect on plain arrays: decisions that depend on an attribute beyond the vectors.

A contrast ``s`` is one number per person, computed from vectors and decisions, never from the attribute. The null model
is a ridge-logistic regression of the attribute ``A`` on a basis of the vectors. The statistic is the score of ``s`` in
that model (Rao's test), so nothing is permuted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.tables import Bools, Floats, Ints
from cfe_faiss.base.text import summary

LEAST_GROUP = 20
"""Fewest carriers, and fewest others, of a test that answers."""
LEAST_EFFECTIVE, FEW_EFFECTIVE = 5, 10
"""Below the first effective number of decisive carriers the answer is "cannot tell"; below the second it is marked."""
FINDINGS = ("disadvantaged", "advantaged")
_RIDGE = 0.1
_FOLDS, _KNOTS = 5, 14
_NEGLIGIBLE = 1e-6  # standard deviation of a column or component, relative to the largest: rounding of float32 rows
_NEAR_NORMAL = 0.98
"""Correlation of a column with its normal ranks; below it, the null model knows both."""
_PRODUCTS, _ALL_PRODUCTS, _PEOPLE_FOR_ALL = 6, 8, 900
"""Components with squares and products: the first six, or all if they are at most 8 and the people at least 900."""
_FEW_COLUMNS, _PEOPLE_PER_COLUMN, _COLUMN_KNOTS = 3, 150, 5
"""At most 3 columns, each with at least 150 people, have hinges of their own, at 5 quantiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTest:
    """Result of one score test.

    Attributes
    ----------
    statistic
        z, positive where the carriers of the value are disadvantaged; NaN where nothing could be tested.
    p_value
        Two-sided, from the normal distribution; NaN where nothing could be tested.
    n_effective
        Effective number of decisive carriers, (sum t^2 w)^2 / sum t^4 w.
    effect
        Mean difference of the contrast between carriers and others of equal propensity; NaN where nothing was tested.
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
        """Whether fewer than 10 decisive carriers are left: p values below .005 are then too frequent."""
        return not self.reason and self.n_effective < FEW_EFFECTIVE


def verdict(statistic: float, p: float, alpha: float) -> str:
    """Return "disadvantaged", "advantaged", "no finding" or "cannot tell" for a p value, adjusted or not."""
    if math.isnan(p):
        return "cannot tell"
    return "no finding" if p > alpha else FINDINGS[0] if statistic > 0 else FINDINGS[1]


def judge(line: dict[str, Any], q: float, fdr: float) -> None:
    """Enter the adjusted p value of a test, its verdict, and whether that is a finding, into its line."""
    line["q"], line["verdict"] = q, verdict(line["statistic"], q, fdr)
    line["named"] = line["verdict"] in FINDINGS


def basis(X: NDArray[np.float32], *unfavourable: Bools, persons: Ints) -> Floats:
    """Return the columns that the null model predicts an attribute from, (n, c), without a constant one.

    Columns of ``X`` that are far from normal (skewed, heavy tails, many zeros) enter as amounts and as normal ranks:
    the attribute may follow either. The basis has all standardised principal components, squares and products of the
    first six, and for each model the logit of the cross-fitted probability of an unfavourable decision with its hinges
    at 14 quantiles. At most 8 components have all products, and at most 3 columns have hinges at 5 quantiles. The
    attribute is not needed.

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
        parts += [_standardise(_hinges(column, _COLUMN_KNOTS, 1 / (_COLUMN_KNOTS + 1))) for column in shaped.T]
    columns = np.column_stack(parts)
    folds = persons % _FOLDS
    return np.column_stack([columns, *(_decision_hinges(columns, decisions, folds) for decisions in unfavourable)])


def propensity(B: Floats, carries: Bools) -> Floats:
    """Return the probability of carrying the value given the basis, (n,)."""
    from scipy.special import expit

    chance: Floats = expit(_logits(B, carries, B))
    return chance


def score_tests(
    B: Floats, carries: Bools, chance: Floats, contrasts: Sequence[Floats], persons: Ints
) -> list[ScoreTest]:
    """Return one score test for each contrast, given the propensity of :func:`propensity`.

    Rows of one person, by number, are one draw of the attribute, unless the attribute differs among them.
    """
    from scipy.stats import norm

    draws = _draws(persons, carries)
    n = int(draws.max()) + 1
    columns = np.column_stack([np.ones(len(B)), B])
    w = chance * (1 - chance)
    weighted = columns * w[:, None]
    gram = weighted.T @ columns
    gram[np.diag_indices_from(gram)] += np.r_[0.0, np.full(B.shape[1], _RIDGE)]
    S = np.column_stack(contrasts)
    T = S - columns @ np.linalg.lstsq(gram, weighted.T @ S, rcond=None)[0]
    scores = S.T @ (carries - chance)
    chances = np.bincount(draws, weights=w) / np.bincount(draws)
    sums = np.zeros((n, T.shape[1]))
    np.add.at(sums, draws, T)
    variances = chances @ sums**2
    fourth = chances @ sums**4
    tests = []
    for score, variance, power in zip(scores.tolist(), variances.tolist(), fourth.tolist(), strict=True):
        effective = variance**2 / power if power > 0 else 0.0
        if effective < LEAST_EFFECTIVE:
            reason = f"{effective:.1f} decisive carriers are fewer than {LEAST_EFFECTIVE}"
            tests.append(ScoreTest(n_effective=effective, reason=reason))
            continue
        z = score / math.sqrt(variance * n / (n - columns.shape[1]))
        p = float(2 * norm.sf(abs(z)))
        tests.append(ScoreTest(statistic=z, p_value=p, n_effective=effective, effect=score / w.sum()))
    return tests


@dataclass(frozen=True, slots=True)
class PairCounts:
    """Pairs whose two sides differ in the attribute, by the side that carries it.

    Attributes
    ----------
    against, in_favour
        Pairs in which the carrier has the unfavourable decision, or the other one.
    expected
        Expected number of pairs against the carrier, given the propensities of both sides.
    effect
        Share of these pairs that are against the carrier beyond the expected ones; NaN without pairs.
    gamma
        The largest odds of a hidden difference within the pairs at which a finding stands, >= 1.
    """

    against: int
    in_favour: int
    expected: float
    effect: float
    gamma: float


def pair_counts(refused: Ints, granted: Ints, carries: Bools, chance: Floats, alpha: float) -> PairCounts:
    """Count the pairs that differ in the attribute, and say how much hidden difference a finding withstands.

    In such a pair the unfavourable side carries the value with the odds ``gamma * odds(refused) / odds(granted)`` of
    the propensities; ``gamma`` is 1 if the vectors hold everything that matters (Rosenbaum's sensitivity analysis).
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
    count, expected = int(against.sum()), float(expit(odds).sum())
    effect = (count - expected) / len(against) if len(against) else math.nan
    return PairCounts(count, len(against) - count, expected, effect, gamma)


def _normal_ranks(X: NDArray[np.float32]) -> tuple[Floats, Floats]:
    """Return the centred columns that vary, those far from normal as normal ranks, and the amounts of the latter.

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
    kept = deviations > _NEGLIGIBLE * deviations.max(initial=0)
    scaled: Floats = components[:, kept] / deviations[kept]
    return scaled


def _standardise(columns: Floats) -> Floats:
    """Return the columns with mean 0 and standard deviation 1, without constant ones."""
    centred = columns - columns.mean(axis=0)
    deviations = centred.std(axis=0)
    kept = deviations > 1e-9
    scaled: Floats = centred[:, kept] / deviations[kept]
    return scaled


def _hinges(values: Floats, count: int, lowest: float) -> Floats:
    """Return max(values - c, 0) at quantiles c between ``lowest`` and 1 - ``lowest``, (n, at most count)."""
    knots = np.unique(np.quantile(values, np.linspace(lowest, 1 - lowest, count)))
    hinges: Floats = np.maximum(values[:, None] - knots[knots > values.min()], 0)
    return hinges


def _draws(persons: Ints, carries: Bools) -> Ints:
    """Return the number of the draw of the attribute of each row: of its person, or its own if these values differ."""
    shares = np.bincount(persons, weights=carries) / np.bincount(persons)
    is_mixed = (shares[persons] > 0) & (shares[persons] < 1)
    draws = np.where(is_mixed, len(persons) + np.arange(len(persons)), persons)
    numbers: Ints = np.unique(draws, return_inverse=True)[1]
    return numbers


def _decision_hinges(columns: Floats, unfavourable: Bools, fold: Ints) -> Floats:
    """Return the cross-fitted logit of an unfavourable decision, and its hinges, standardised, (n, at most 15)."""
    logit = np.empty(len(columns))
    for k in range(_FOLDS):
        logit[fold == k] = _logits(columns[fold != k], unfavourable[fold != k], columns[fold == k])
    return _standardise(np.column_stack([logit, _hinges(logit, _KNOTS, 0.05)]))


def _logits(B: Floats, y: Bools, at: Floats) -> Floats:
    """Return the logit of P(y | at) of a ridge-logistic regression of y on B, whose intercept is not penalised."""
    from sklearn.linear_model import LogisticRegression

    if y.all() or not y.any():
        return np.full(len(at), 20.0 if y[0] else -20.0)  # one class only: any large value
    model = LogisticRegression(C=1 / _RIDGE, solver="newton-cholesky", tol=1e-6, max_iter=100)
    logits: Floats = model.fit(B, y).decision_function(at)
    return logits
