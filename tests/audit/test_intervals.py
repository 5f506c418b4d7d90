import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import beta, binom, binomtest

from cfe_faiss.audit.intervals import (
    bootstrap_mean,
    clustered_wilson,
    newcombe,
    normal_quantile,
    paired_difference,
    risk_ratio,
    wilson,
)

LEVELS = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99])


@given(cases=st.integers(1, 500), share=st.floats(0, 1), level=LEVELS)
def test_wilson_equals_scipy(cases, share, level):
    successes = round(cases * share)
    expected = binomtest(successes, cases).proportion_ci(level, method="wilson")
    low, high = wilson([successes], [cases], level)
    assert_allclose([low[0], high[0]], [expected.low, expected.high], atol=1e-12)
    assert 0 <= low[0] <= successes / cases <= high[0] <= 1


def test_without_cases_nothing_is_defined():
    low, high = wilson([0, 1], [0, 1])
    assert np.isnan([low[0], high[0]]).all()
    assert 0 < low[1] < high[1] == 1
    for interval in (newcombe, risk_ratio):
        low, high = interval([0, 1, 0], [0, 2, 0], [1, 0, 0], [2, 0, 0])
        assert np.isnan([low, high]).all()
    assert np.isnan(bootstrap_mean([])).all()
    assert np.isnan(clustered_wilson([], [])).all()


@given(
    scores=st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]), min_size=1, max_size=300),
    level=LEVELS,
)
def test_bootstrap_holds_the_mean_within_the_bounds(scores, level):
    low, high = bootstrap_mean(scores, level)
    assert 0 <= low <= np.mean(scores) <= high <= 1
    assert low < high
    assert bootstrap_mean(scores, level) == (low, high)
    scaled = bootstrap_mean(np.array(scores) * 2 - 1, level, bounds=(-1, 1))
    assert_allclose(scaled, [2 * low - 1, 2 * high - 1], atol=1e-9)


@given(cases=st.integers(1, 100), share=st.floats(0, 1), level=LEVELS)
def test_bootstrap_of_shares_is_the_jeffreys_interval(cases, share, level):
    ones = round(cases * share)
    expected = beta(ones + 0.5, cases - ones + 0.5).ppf([(1 - level) / 2, (1 + level) / 2])
    scores = np.arange(cases) < ones
    found = bootstrap_mean(scores, level, 20_000)
    wanted = [min(expected[0], scores.mean()), max(expected[1], scores.mean())]
    assert_allclose(found, wanted, atol=0.02)


def test_bootstrap_equals_single_draws_for_many_scores():
    rng = np.random.default_rng(1)
    scores = rng.integers(0, 11, 2000) / 10
    means = scores[rng.integers(0, 2000, (2000, 2000))].mean(axis=1)
    expected = np.quantile(means, [0.05, 0.95])
    assert_allclose(bootstrap_mean(scores, 0.9, 4000), expected, atol=1.5e-3)


@pytest.mark.parametrize("n", [1, 3, 10, 40])
def test_bootstrap_covers_also_where_cases_are_few(n):
    ones = np.arange(n + 1)
    low, high = np.transpose([bootstrap_mean(np.arange(n) < some, 0.95) for some in ones])
    for chance in (0.02, 0.2, 0.5, 0.9):
        assert binom.pmf(ones, n, chance)[(low <= chance) & (chance <= high)].sum() >= 0.9


@pytest.mark.parametrize("confidence", [0, 1, -0.1, 2, math.nan])
def test_confidence_must_be_between(confidence):
    for call in (
        normal_quantile,
        lambda level: bootstrap_mean([0.5], level),
        lambda level: wilson([1], [2], level),
    ):
        with pytest.raises(ValueError, match="confidence must lie"):
            call(confidence)


@pytest.mark.parametrize("scores", [[1.5], [-0.1], [math.nan], [[0.5]]])
def test_scores_must_be_bounded(scores):
    with pytest.raises(ValueError, match="scores must have shape"):
        bootstrap_mean(scores)


# Newcombe, Statistics in Medicine 17 (1998), Table II, method 10.
NEWCOMBE = [
    ((56, 70, 48, 80), (0.0524, 0.3339)),
    ((9, 10, 3, 10), (0.1705, 0.8090)),
    ((6, 7, 2, 7), (0.0582, 0.8062)),
    ((5, 56, 0, 29), (-0.0381, 0.1926)),
    ((0, 10, 0, 20), (-0.1611, 0.2775)),
    ((0, 10, 0, 10), (-0.2775, 0.2775)),
    ((10, 10, 0, 20), (0.6791, 1.0000)),
    ((10, 10, 0, 10), (0.6075, 1.0000)),
]


@pytest.mark.parametrize(("counts", "expected"), NEWCOMBE)
def test_newcombe_equals_the_published_examples(counts, expected):
    low, high = newcombe(*counts)
    assert (round(float(low), 4), round(float(high), 4)) == expected


def test_koopman_equals_the_published_example():
    # Koopman, Biometrics 40 (1984): 36 of 40 against 16 of 80.
    low, high = risk_ratio(36, 40, 16, 80)
    assert (round(float(low), 2), round(float(high), 2)) == (2.94, 7.15)


@given(
    counts=st.tuples(
        st.integers(0, 30), st.integers(1, 30), st.integers(0, 30), st.integers(1, 30)
    ),
    level=LEVELS,
)
def test_koopman_holds_the_ratio_and_turns_with_it(counts, level):
    x1, n1, x0, n0 = min(counts[0], counts[1]), counts[1], min(counts[2], counts[3]), counts[3]
    low, high = (float(bound) for bound in risk_ratio(x1, n1, x0, n0, level))
    if x0 > 0:
        assert low <= x1 / n1 / (x0 / n0) * (1 + 1e-9)
        assert x1 / n1 / (x0 / n0) <= high * (1 + 1e-9)
    assert low == 0 if x1 == 0 else low > 0
    assert high == np.inf if x0 == 0 else high < np.inf
    turned_low, turned_high = (float(bound) for bound in risk_ratio(x0, n0, x1, n1, level))
    assert low == 0 if turned_high == np.inf else low == pytest.approx(1 / turned_high, rel=1e-6)
    assert high == np.inf if turned_low == 0 else high == pytest.approx(1 / turned_low, rel=1e-6)


@pytest.mark.parametrize(("n1", "n0"), [(10, 10), (30, 30), (30, 300), (300, 30)])
@pytest.mark.parametrize(("p1", "p0"), [(0.02, 0.05), (0.1, 0.3), (0.5, 0.5), (0.8, 0.9)])
def test_ratios_and_differences_cover_at_least_as_often_as_93_percent(n1, n0, p1, p0):
    x1, x0 = np.meshgrid(np.arange(n1 + 1), np.arange(n0 + 1), indexing="ij")
    chance = binom.pmf(x1, n1, p1) * binom.pmf(x0, n0, p0)
    cases = ((p1 / p0, risk_ratio(x1, n1, x0, n0)), (p1 - p0, newcombe(x1, n1, x0, n0)))
    for truth, (low, high) in cases:
        assert chance[(low <= truth) & (truth <= high)].sum() >= 0.93


@given(
    clusters=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30
    ).filter(lambda own: any(n for _, n in own))
)
def test_clustered_interval_holds_the_share(clusters):
    x, n = np.array([(min(hits, cases), cases) for hits, cases in clusters]).T
    low, high = clustered_wilson(x, n)
    assert 0 <= low <= x.sum() / n.sum() <= high <= 1
    assert low < high


def test_clusters_of_one_case_are_independent_cases():
    x = np.repeat([1, 0], [30, 70])
    low, high = clustered_wilson(x, np.ones(100))
    alone_low, alone_high = wilson([30], [100])
    assert low == pytest.approx(alone_low[0], abs=0.003)
    assert high == pytest.approx(alone_high[0], abs=0.003)
    # Ten cases each that are all the same are worth one.
    assert clustered_wilson(10 * x, np.full(100, 10)) == pytest.approx((low, high), abs=1e-9)
    assert np.isnan(clustered_wilson([], [])).all()


@pytest.mark.parametrize("clusters", [30, 300])
def test_clustered_interval_covers(clusters):
    rng = np.random.default_rng(clusters)
    held = 0
    for _ in range(400):
        n = rng.integers(1, 5, clusters)
        x = rng.binomial(n, rng.beta(1, 3, clusters))
        low, high = clustered_wilson(x, n)
        held += low <= 0.25 <= high
    assert 0.93 <= held / 400 <= 0.98


@given(cases=st.integers(1, 300), shares=st.tuples(st.floats(0, 1), st.floats(0, 1)), level=LEVELS)
def test_a_paired_interval_holds_the_change(cases, shares, level):
    gained = round(cases * shares[0])
    lost = round((cases - gained) * shares[1])
    (low,), (high,) = paired_difference([gained], [lost], [cases], level)
    assert -1 <= low <= high <= 1
    if level >= 0.9:  # it is drawn to 0, which a narrow interval of few cases shows
        assert low <= (gained - lost) / cases <= high
    (turned_low,), (turned_high,) = paired_difference([lost], [gained], [cases], level)
    assert_allclose([turned_low, turned_high], [-high, -low])


@pytest.mark.parametrize("n", [20, 100])
@pytest.mark.parametrize("moved", [(0.02, 0.02), (0.3, 0.1), (0.05, 0.0)])
def test_a_paired_interval_covers(n, moved):
    counts = np.random.default_rng(n).multinomial(n, [*moved, 1 - sum(moved)], 4000)
    low, high = paired_difference(counts[:, 0], counts[:, 1], np.full(4000, n))
    change = moved[0] - moved[1]
    assert ((low <= change) & (change <= high)).mean() > 0.94
