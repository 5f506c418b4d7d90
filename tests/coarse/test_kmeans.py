import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import clustered, similarities, unit

from cfe_faiss import _native
from cfe_faiss.coarse.partitions import nearest, nearest_numbers, scaled

SHAPES = [
    (1, 1, 1),
    (7, 3, 2),
    (300, 33, 5),
    (700, 70, 48),
    (600, 1100, 40),
    (257, 600, 130),
    (65, 16, 16),
]


def all_scores(
    metric: int, X: NDArray[np.float32], centroids: NDArray[np.float32]
) -> NDArray[np.float32]:
    rows, others = np.indices((len(X), len(centroids))).reshape(2, -1)
    scores = np.empty(len(rows), np.float32)
    _native.row_scores(metric, X, centroids, rows, others, scores)
    return scores.reshape(len(X), -1)


def check(X: NDArray[np.float32], centroids: NDArray[np.float32]) -> None:
    """Compare with all similarities; what the core decides by is another sum than NumPy's."""
    found, numbers = nearest(X, centroids)
    own = all_scores(1, X, centroids)
    assert_array_equal(found, own.max(axis=1))
    assert_array_equal(numbers, own.argmax(axis=1))
    assert_array_equal(nearest_numbers(X, centroids), numbers)
    assert found.dtype == np.float32
    assert numbers.dtype == np.int32


@pytest.mark.parametrize(("n", "nlist", "d"), SHAPES)
def test_nearest_is_the_greatest_similarity(n: int, nlist: int, d: int) -> None:
    X = unit(clustered(n + nlist, d, 3)[0])
    check(X[:n], X[n:])
    products = similarities(X[:n], X[n:])
    np.testing.assert_allclose(nearest(X[:n], X[n:])[0], products.max(axis=1), atol=1e-6)


@given(
    st.integers(1, 90),
    st.integers(1, 70),
    st.integers(1, 40),
    st.sampled_from([0, 1e-8, 1e-6]),
    st.integers(0, 99),
)
def test_centroids_that_hardly_differ_are_distinguished(
    n: int, nlist: int, d: int, spread: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    centroids = unit(rng.normal(size=(1, d)) + spread * rng.normal(size=(nlist, d)))
    check(unit(rng.normal(size=(n, d))), centroids)


@given(st.integers(1, 40), st.integers(1, 50), st.integers(1, 40), st.integers(0, 99))
def test_of_equal_products_the_first_centroid_is_taken(
    n: int, nlist: int, d: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X, centroids = (rng.integers(-1, 2, (rows, d)).astype(np.float32) for rows in (n, nlist))
    expected = (X @ centroids.T).argmax(axis=1)
    assert_array_equal(nearest(X, centroids)[1], expected)
    assert_array_equal(nearest(np.asfortranarray(X), np.asfortranarray(centroids))[1], expected)


@given(
    st.integers(5, 90),
    st.integers(1, 70),
    st.integers(1, 40),
    st.sampled_from([0.0, 1e-7, 1e-3, 1.0]),
    st.sampled_from([1.0, 1e3, 1e12]),
    st.integers(0, 99),
)
def test_nearest_centroids_by_distance_are_exact_for_short_and_long_vectors(
    n: int, nlist: int, d: int, spread: float, outlier: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * rng.lognormal(sigma=2, size=(n, 1))).astype(np.float32)
    centroids = (X[rng.integers(0, n, nlist)] * (1 + spread * rng.normal(size=(nlist, d)))).astype(
        np.float32
    )
    X[0] *= outlier
    _, rows, others = scaled(np.zeros(d, np.float32), X, centroids)
    assert max(np.linalg.norm(rows, axis=1).max(), np.linalg.norm(others, axis=1).max()) <= 0.5
    wanted = all_scores(2, rows, others).argmax(axis=1)
    assert_array_equal(nearest_numbers(rows, others, distances=True), wanted)
    assert_array_equal(nearest_numbers(rows[:3], others, distances=True), wanted[:3])


# --- Lloyd's algorithm ------------------------------------------------------------------------------------------------


def plain_step(
    X: NDArray[np.float32], weights: NDArray[np.float32], lists: NDArray[np.int32], nlist: int
) -> NDArray[np.float32]:
    """Return the normalised weighted means, added up one vector after the other."""
    sums, heaviness = np.zeros((nlist, X.shape[1]), np.float32), np.zeros(nlist, np.float32)
    for x, weight, j in zip(X, weights, lists, strict=True):
        sums[j] += weight * x
        heaviness[j] += weight
    aside = np.where(np.arange(X.shape[1]) % 2, -(2.0**-10), 2.0**-10).astype(np.float32)
    for empty in np.flatnonzero(heaviness == 0):
        heaviest = heaviness.argmax()
        heaviness[empty] = heaviness[heaviest] = heaviness[heaviest] / 2
        sums[empty], sums[heaviest] = sums[heaviest] * (1 + aside), sums[heaviest] * (1 - aside)
    norms = np.linalg.norm(sums.astype(np.float64), axis=1).astype(np.float32)
    sums /= np.where(norms > 0, norms, np.float32(1))[:, None]
    return sums


@given(
    st.integers(1, 90),
    st.integers(1, 20),
    st.integers(1, 40),
    st.integers(0, 5),
    st.sampled_from([1, 2, 5]),
    st.integers(0, 99),
)
def test_centroids_move_to_weighted_means(
    n: int, nlist: int, d: int, niter: int, threads: int, seed: int
) -> None:
    rng, nlist = np.random.default_rng(seed), min(n, nlist)
    X = unit(rng.integers(-2, 3, (n, d)))
    weights = rng.random(n).astype(np.float32)
    moved = X[:nlist].copy()
    total = _native.move_centroids(X, weights, moved, niter, True, threads)
    centroids, before, expected_total = X[:nlist].copy(), None, 0.0
    for _ in range(niter):
        found, lists = nearest(X, centroids)
        expected_total = found.astype(np.float64).sum()
        if before is not None and np.array_equal(lists, before):
            break
        before, centroids = lists, plain_step(X, weights, lists, nlist)
    np.testing.assert_allclose(moved, centroids, atol=1e-6)
    again = X[:nlist].copy()
    assert _native.move_centroids(X, weights, again, niter, False, threads) == 0
    assert_array_equal(again, moved)
    assert total == pytest.approx(expected_total, abs=1e-9)


def test_arguments_that_do_not_fit_are_refused() -> None:
    X, centroids = np.zeros((3, 4), np.float32), np.zeros((2, 4), np.float32)
    found, numbers = np.empty(3, np.float32), np.empty(3, np.int32)
    for wrong in (
        (X, centroids[:, :3].copy(), found, numbers),
        (X, centroids[:0], found, numbers),
        (X, centroids, found[:2], numbers),
        (X, centroids, found, numbers[:2]),
    ):
        with pytest.raises(ValueError, match=r"must"):
            _native.nearest_centroids(*wrong, 1)
    cases = ((found[:2], centroids), (found, centroids[:0]), (found, centroids[:, :3].copy()))
    for weights, some in cases:
        with pytest.raises(ValueError, match=r"must"):
            _native.move_centroids(X, weights, some, 1, True, 1)
