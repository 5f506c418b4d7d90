import numpy as np
import pytest
from scipy.stats import false_discovery_control, studentized_range

from cfe_faiss.audit.intervals import (
    compare_rates,
    critical_value,
    is_ranked,
    largest_gap,
    power_of_ratio,
    risk_ratio,
)


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
