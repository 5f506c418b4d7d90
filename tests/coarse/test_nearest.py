import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference import clustered, unit

from cfe_faiss.coarse import nearest as module
from cfe_faiss.coarse.nearest import nearest
from cfe_faiss.search import meet

SHAPES = [(1, 1, 1), (7, 3, 2), (300, 33, 5), (700, 70, 48), (600, 1100, 40), (257, 600, 130)]


def check(X: np.ndarray, centroids: np.ndarray, guess: np.ndarray | None = None) -> None:
    cosines, numbers = nearest(X, centroids, guess)
    products = X.astype(np.float64) @ centroids.T.astype(np.float64)
    assert cosines.dtype == np.float32
    assert numbers.dtype == np.int32
    assert_allclose(cosines, products.max(axis=1), atol=1e-5)
    assert_allclose(products[np.arange(len(X)), numbers], products.max(axis=1), atol=1e-5)


@pytest.mark.parametrize("few", [0, 1 << 25])
@pytest.mark.parametrize(("n", "nlist", "d"), SHAPES)
def test_nearest_is_the_greatest_product(n: int, nlist: int, d: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", few)
    X = unit(clustered(n + nlist, d, 3)[0])
    check(X[:n], X[n:])


@pytest.mark.parametrize("worth", [0, module._WORTH_PANELS])
@pytest.mark.parametrize(("n", "nlist", "d"), SHAPES)
def test_a_guess_changes_nothing_but_the_time(
    n: int, nlist: int, d: int, worth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WORTH_PANELS", worth)
    rng = np.random.default_rng(0)
    X = unit(clustered(n + nlist, d, 3)[0])
    for guess in (np.zeros(n, np.int32), rng.integers(0, nlist, n).astype(np.int32), nearest(X[:n], X[n:])[1]):
        check(X[:n], X[n:], guess)


def test_a_wrong_guess_is_found_out_without_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meet, "HAS_BYTES", False)
    X = unit(clustered(300, 40, 3)[0])
    check(X[:200], X[200:], np.full(200, 99, np.int32))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 40), st.integers(0, 99))
def test_of_equal_products_the_first_centroid_is_taken(n: int, nlist: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, centroids = (rng.integers(-1, 2, (rows, d)).astype(np.float32) for rows in (n, nlist))
    expected = (X @ centroids.T).argmax(axis=1)
    assert_array_equal(nearest(X, centroids)[1], expected)
    assert_array_equal(nearest(X, np.asfortranarray(centroids))[1], expected)


def test_no_vectors() -> None:
    cosines, numbers = nearest(np.empty((0, 40), np.float32), np.eye(40, dtype=np.float32))
    assert cosines.shape == numbers.shape == (0,)
