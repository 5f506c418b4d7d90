import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import cosine, similarity, unit

from cfe_faiss._native import row_scores
from cfe_faiss.rows.codecs import screening_error


def scored(x: np.ndarray, y: np.ndarray) -> np.float32:
    result, only = np.empty(1, np.float32), np.zeros(1, np.int64)
    row_scores(1, x[None], y[None], only, only, result)
    return result[0]


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_similarity_is_the_rounded_exact_product_and_symmetric(d: int, seed: int) -> None:
    x, y = unit(np.random.default_rng(seed).normal(size=(2, d)))
    exact = math.fsum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))
    assert scored(x, y) == scored(y, x)
    assert abs(float(scored(x, y)) - exact) <= 2.0**-24 * abs(exact) + 1e-15


@given(st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_the_order_of_the_sum_is_the_one_written_down(d: int, seed: int) -> None:
    x, y = (
        np.random.default_rng(seed).normal(size=(2, d)) * 10.0 ** np.arange(d)[::-1].clip(max=18)
    ).astype(np.float32)
    assert scored(x, y) == similarity(x, y)


def test_many_pairs_are_scored_as_each_alone() -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 50, 37)).astype(np.float32)
    result = np.empty(50, np.float32)
    rows = np.arange(50)
    row_scores(1, X, Y, rows, rows, result)
    assert_array_equal(result, [scored(x, y) for x, y in zip(X, Y, strict=True)])


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_screening_error_bounds_a_float32_product(d: int, seed: int) -> None:
    x, y = unit(np.abs(np.random.default_rng(seed).normal(size=(2, d))))
    one_by_one = np.float32(0)
    for a, b in zip(x, y, strict=True):
        one_by_one = np.float32(one_by_one + np.float32(a * b))
    assert abs(float(one_by_one) - float(scored(x, y))) <= screening_error(d)
    assert abs(float(x @ y) - float(scored(x, y))) <= screening_error(d)


def test_similarities_of_named_rows() -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 5, 21)).astype(np.float32)
    first, second, result = np.array([4, 0, 4]), np.array([0, 1, 2]), np.empty(3, np.float32)
    row_scores(0, X, Y, first, second, result)
    assert_array_equal(result, cosine(X[first], Y[second]))
    for wrong in (5, -1):
        with pytest.raises(IndexError, match="no such row"):
            row_scores(0, X, Y, np.array([0, 0, wrong]), second, result)
