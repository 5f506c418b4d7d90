import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import beta, binom, binomtest, false_discovery_control, studentized_range

from cfe_faiss.audit.intervals import (
    bootstrap_mean,
    clustered_wilson,
    compare_rates,
    critical_value,
    is_ranked,
    largest_gap,
    newcombe,
    normal_quantile,
    paired_difference,
    power_of_ratio,
    rate_bounds,
    ratio_bounds,
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


# --- groups compared ------------------------------------------------------------------------------------------------


def test_critical_values():
    assert [round(critical_value(g), 2) for g in (1, 2, 5, 10)] == [1.96, 1.96, 2.73, 3.16]
    found = critical_value(5, 0.99)
    assert found == pytest.approx(studentized_range.isf(0.01, 5, np.inf) / np.sqrt(2))


def test_ranked_groups_have_cases_and_expected_outcomes_of_both_kinds():
    # overall rate 0.1: 50 cases have 5 expected successes
    cases = np.array([29, 30, 49, 50, 842])
    successes = np.array([3, 3, 5, 5, 84])
    assert is_ranked(successes, cases).tolist() == [False, False, False, True, True]
    assert is_ranked(cases - successes, cases).tolist() == [False, False, False, True, True]
    assert not is_ranked(np.array([0, 0]), np.array([500, 500])).any()


@pytest.mark.parametrize("groups", [2, 5, 10])
def test_the_interval_excludes_1_exactly_where_the_test_rejects(groups):
    rng = np.random.default_rng(groups)
    for _ in range(60):
        cases = rng.integers(30, 300, groups)
        successes = rng.binomial(cases, rng.uniform(0.4, 0.6, groups))
        found = compare_rates(successes, cases, 0.95)
        others = ~found["reference"]
        excluded = (found["ratio_high"] < 1) | (found["ratio_low"] > 1)
        assert (excluded == (found["p"] < 0.05))[others].all()
        assert np.isnan(found["p"][found["reference"]]).all()
        best = int(found["reference"].argmax())
        assert cases[best] == cases[found["ranked"]].max()
        z = critical_value(groups)
        pooled = (successes + successes[best]) / (cases + cases[best])
        spread = np.sqrt(pooled * (1 - pooled) * (1 / cases + 1 / cases[best]))
        rejected = abs(successes[best] / cases[best] - successes / cases) / spread > z
        assert (rejected == (found["p"] < 0.05))[others].all()


def test_two_groups_have_the_interval_of_koopman():
    found = compare_rates(np.array([40, 60]), np.array([100, 100]), 0.95, 1)
    low, high = risk_ratio(40, 100, 60, 100)
    expected = pytest.approx((float(low), float(high)))
    assert (found["ratio_low"][0], found["ratio_high"][0]) == expected


@pytest.mark.parametrize(
    ("rate", "cases", "groups"), [(0.6, 100, 2), (0.6, 200, 5), (0.3, 100, 2), (0.3, 500, 10)]
)
def test_power_is_that_of_simulated_samples(rate, cases, groups):
    rng = np.random.default_rng(int(100 * rate) + groups)
    x = rng.binomial(cases, [0.7 * rate] + [rate] * (groups - 1), (20_000, groups)) / cases
    pooled = (x[:, 0] + x[:, -1]) / 2
    z = (x[:, -1] - x[:, 0]) / np.sqrt(pooled * (1 - pooled) * 2 / cases)
    power = power_of_ratio(rate, np.full(groups, cases), groups - 1)[0]
    assert power == pytest.approx((z > critical_value(groups)).mean(), abs=0.025)


@pytest.mark.parametrize(
    ("successes", "cases", "reference", "verdicts"),
    [
        # all of a small group are selected
        ([300, 270, 63], [600, 540, 63], None, ["", "no finding", "above 1.25"]),
        ([120, 250], [600, 500], None, ["", "above 1.25"]),
        ([0, 250], [600, 500], None, ["", "above 1.25"]),
        ([10, 50, 60], [20, 100, 100], 0, ["", "cannot tell", "cannot tell"]),
    ],
)
def test_the_largest_ranked_group_is_the_reference(successes, cases, reference, verdicts):
    compared = compare_rates(np.array(successes), np.array(cases), 0.95, reference)
    assert compared["verdict"].tolist() == verdicts
    assert compared["reference"].tolist() == [True] + [False] * (len(cases) - 1)
    if successes[0] == 0:
        assert compared["ratio"][1] == np.inf > compared["ratio_low"][1] > 1.25


def test_largest_gap_of_two_groups_is_their_difference():
    gap = largest_gap(np.array([80, 60]), np.array([100, 100]), 0.95)
    assert gap["difference"] == pytest.approx(0.2)
    assert gap["ratio"] == pytest.approx(0.75)
    assert 0 < gap["difference_low"] < 0.2 < gap["difference_high"]
    assert 0 < gap["ratio_low"] < 0.75 < gap["ratio_high"] < 1
    equal = largest_gap(np.array([50, 50]), np.array([100, 100]), 0.95)
    assert (equal["difference_low"], equal["ratio_high"]) == (0, 1)
    assert np.isnan(list(largest_gap(np.array([5, 50]), np.array([10, 100]), 0.95).values())).all()


@pytest.mark.parametrize(
    "groups", [pytest.param(2, marks=pytest.mark.slow), 5, pytest.param(10, marks=pytest.mark.slow)]
)
def test_found_in_few_samples_of_equal_groups(groups):
    """Level: in at most 5 % of samples, and 3 Monte-Carlo errors, is some group below 1."""
    rng = np.random.default_rng(groups)
    cases = np.full(groups, 60)
    least = [
        np.nanmin(compare_rates(x, cases, 0.95)["p"]) for x in rng.binomial(60, 0.5, (300, groups))
    ]
    assert np.mean(np.array(least) < 0.05) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    # p-values of attributes can be adjusted together
    assert (false_discovery_control(least) < 0.05).mean() <= 0.02


# --- bounds of what is unknown --------------------------------------------------------------------------------------


def ways(total, groups):
    """Yield all ways to spread so many among the groups."""
    if groups == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in ways(total - first, groups - 1):
            yield (first, *rest)


@given(
    known=st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(any), min_size=1, max_size=3
    ),
    unknown_selected=st.integers(0, 3),
    fails=st.integers(0, 4),
    data=st.data(),
)
@settings(max_examples=60)
def test_bounds_are_sharp(known, unknown_selected, fails, data):
    g = len(known)
    selected = np.array([right for right, _ in known])
    nodes = selected + np.array([wrong for _, wrong in known])
    reference = data.draw(st.integers(0, g - 1))
    attained = [[] for _ in range(g)]
    rates = [[] for _ in range(g)]
    for right, wrong in product(ways(unknown_selected, g), ways(fails, g)):
        x, n = selected + np.array(right), nodes + np.array(right) + np.array(wrong)
        compared = x[reference] / n[reference]
        for group in range(g):
            rates[group].append(x[group] / n[group])
            if compared > 0 or x[group] > 0:
                attained[group].append(x[group] / n[group] / compared if compared > 0 else np.inf)
    least, most = ratio_bounds(
        selected, nodes, unknown_selected, unknown_selected + fails, reference
    )
    others = [group for group in range(g) if group != reference]
    assert (least[reference], most[reference]) == (1, 1)
    for group in others:
        if np.isinf(max(attained[group], default=np.inf)):  # the reference may have the rate 0
            assert np.isnan(most[group])
        else:
            bounds = min(attained[group]), max(attained[group])
            assert (least[group], most[group]) == pytest.approx(bounds, rel=1e-12)
    if g == 1:
        return
    low, high = rate_bounds(selected, nodes, unknown_selected, unknown_selected + fails)
    expected = [[min(own), max(own)] for own in rates]
    np.testing.assert_allclose(np.stack([low, high], axis=1), expected, rtol=1e-12)


def test_a_group_that_nobody_is_known_to_belong_to_has_no_bounds():
    least, most = ratio_bounds(np.array([1, 0]), np.array([4, 0]), 1, 2, 0)
    assert np.isnan([least[1], most[1]]).all()
    assert (least[0], most[0]) == (1, 1)
