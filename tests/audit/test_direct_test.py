import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import norm
from simulated_people import simulated

from cfe_faiss.audit import direct_test

RIDGE = 0.1


def neighbours_of(X, k):
    similarity = X @ X.T
    np.fill_diagonal(similarity, -2)
    return np.argsort(-similarity, axis=1)[:, :k]


def situation_contrast(X, refused, k):
    return refused - refused[neighbours_of(X, k)].mean(axis=1)


def test_the_score_test_equals_the_formula():
    people = simulated(3, 300)
    X, carries = people["X"].astype(np.float32), people["carries"]
    refused = people["labels"] == 0
    B = direct_test.basis(X, refused, persons=np.arange(len(X)))
    s = situation_contrast(X, refused, 5)
    chance = direct_test.propensity(B, carries)
    (test,) = direct_test.score_tests(B, carries, chance, [s], np.ones(len(B)), None)

    columns = np.column_stack([np.ones(len(B)), B])
    penalty = np.r_[0.0, np.full(B.shape[1], RIDGE)]

    b = np.zeros(columns.shape[1])
    for _ in range(15):  # Newton steps; the gradient below shows that they have arrived
        e = expit(columns @ b)
        gradient = columns.T @ (carries - e) - penalty * b
        b += np.linalg.solve(
            columns.T @ (columns * (e * (1 - e))[:, None]) + np.diag(penalty), gradient
        )
    assert abs(gradient).max() < 1e-9
    np.testing.assert_allclose(chance, e, atol=1e-5)
    W = np.diag(e * (1 - e))
    projection = columns @ np.linalg.inv(columns.T @ W @ columns + np.diag(penalty)) @ columns.T @ W
    t = s - projection @ s
    variance = len(s) / (len(s) - columns.shape[1]) * (t**2 @ np.diag(W))
    z = s @ (carries - e) / np.sqrt(variance)
    assert test.statistic == pytest.approx(z, abs=1e-4)
    assert test.p_value == pytest.approx(2 * norm.sf(abs(z)), abs=1e-4)
    expected = pytest.approx((t**2 @ np.diag(W)) ** 2 / (t**4 @ np.diag(W)), rel=1e-3)
    assert test.n_effective == expected
    assert test.effect == pytest.approx(s @ (carries - e) / np.trace(W), rel=1e-3)


def test_gamma_is_where_the_finding_ends():
    rng = np.random.default_rng(0)
    refused, granted = np.arange(0, 200, 2), np.arange(1, 200, 2)
    chance = rng.uniform(0.2, 0.8, 200)
    carries = np.zeros(200, bool)
    carries[refused[:60]] = True
    carries[granted[60:75]] = True
    counts = direct_test.pair_counts(refused, granted, carries, chance, 0.05)
    assert (counts["against"], counts["in_favour"]) == (60, 15)
    odds = chance / (1 - chance)
    differ = carries[refused] != carries[granted]

    def z(gamma):
        p = (o := gamma * odds[refused][differ] / odds[granted][differ]) / (1 + o)
        return float((60 - p.sum()) / np.sqrt((p * (1 - p)).sum()))

    assert counts["gamma"] > 1
    assert z(counts["gamma"]) == pytest.approx(norm.isf(0.025), abs=1e-6)
    found = counts["expected"]
    assert found == pytest.approx((odds[refused] / (odds[refused] + odds[granted]))[differ].sum())
    assert counts["effect"] == pytest.approx((60 - counts["expected"]) / 75)
    turned = direct_test.pair_counts(granted, refused, carries, chance, 0.05)
    assert turned["gamma"] == pytest.approx(counts["gamma"]), (
        "to the advantage of carriers it is the same strength"
    )
    even = direct_test.pair_counts(refused, granted, np.arange(200) % 4 < 2, chance, 0.05)
    assert (even["against"], even["in_favour"], even["gamma"]) == (0, 0, 1)


def amounts_that_decide(seed, n=1000):
    """Return amounts that are mostly 0 and lower for carriers, who was refused for them, and who carries the value."""
    rng = np.random.default_rng(seed)
    carries = rng.random(n) < 0.5
    Z = rng.standard_normal((n, 3)) - 0.5 * carries[:, None]
    X = np.where(Z > 0.5, np.exp(3 * Z), 0)
    X[:, 0] = Z[:, 0]
    score = Z[:, 0] + 1.5 * np.maximum(Z[:, 1:] - 0.5, 0).sum(axis=1)
    return (X - X.mean(axis=0)) / X.std(axis=0), score < np.quantile(score, 0.4), carries


def test_skewed_amounts_that_decide_are_no_direct_effect():
    statistics = []
    for seed in range(10):
        X, refused, carries = amounts_that_decide(seed)
        squares = (X**2).sum(axis=1)
        distance = squares[:, None] + squares - 2 * X @ X.T
        np.fill_diagonal(distance, np.inf)
        near = np.argpartition(distance, 10, axis=1)[:, :10]
        s = refused - refused[near].mean(axis=1)
        persons = np.arange(len(X))
        B = direct_test.basis(X.astype(np.float32), refused, persons=persons)
        (test,) = direct_test.score_tests(
            B, carries, direct_test.propensity(B, carries), [s], np.ones(len(B)), None
        )
        statistics.append(test.statistic)
    assert abs(np.mean(statistics)) < 1, "with amounts alone in the null model the mean is 2"


def test_the_null_model_knows_amounts_and_normal_ranks():
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((1000, 9))
    X = np.column_stack([np.exp(2 * Z[:, 0]), Z[:, 1:]]).astype(np.float32)
    B = direct_test.basis(X, Z.sum(axis=1) > 0, persons=np.arange(1000))
    for column in (X[:, 0], Z[:, 0]):
        centred = column - column.mean()
        residual = centred - B @ np.linalg.lstsq(B, centred, rcond=None)[0]
        assert residual.std() < 0.1 * column.std()


@given(st.integers(0, 10**6))
def test_links_that_share_an_end_count_in_the_variance(seed):
    rng = np.random.default_rng(seed)
    n, nodes = 300, 20
    pairs = np.argwhere(np.triu(np.ones((nodes, nodes)), 1))
    ends = np.concatenate([pairs, pairs + nodes])[rng.permutation(2 * len(pairs))[:n]]
    B = rng.normal(size=(n, 3))
    chance = rng.uniform(0.2, 0.8, n)
    carries = rng.random(n) < chance
    s = rng.normal(size=2 * nodes)[ends].sum(axis=1)
    incidence = np.zeros((n, 2 * nodes))
    incidence[np.arange(n)[:, None], ends] = 1
    alone, together = (
        direct_test.score_tests(B, carries, chance, [s], np.ones(n), joined)[0]
        for joined in (None, scipy.sparse.csr_array(incidence))
    )
    w = chance * (1 - chance)
    columns = np.column_stack([np.ones(n), B])
    gram = columns.T @ (columns * w[:, None]) + np.diag([0, 0.1, 0.1, 0.1])
    t = s - columns @ np.linalg.solve(gram, columns.T @ (w * s))
    r = t * (carries - chance)
    shares = (ends[:, None, :, None] == ends[None, :, None, :]).any(axis=(2, 3))
    expected = max((r[:, None] * r)[shares].sum(), w @ t**2)
    assert together.statistic == pytest.approx(alone.statistic * np.sqrt(w @ t**2 / expected))
    assert together.n_effective <= alone.n_effective
