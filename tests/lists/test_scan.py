import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import unit

from cfe_faiss.dot import similarity
from cfe_faiss.lists import scan


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_screening_error_bounds_a_float32_product(d: int, seed: int) -> None:
    x, y = unit(np.abs(np.random.default_rng(seed).normal(size=(2, d))))
    one_by_one = np.float32(0)
    for a, b in zip(x, y, strict=True):
        one_by_one = np.float32(one_by_one + np.float32(a * b))
    assert abs(float(one_by_one) - float(similarity(x, y))) <= scan.screening_error(d)
    assert abs(float(x @ y) - float(similarity(x, y))) <= scan.screening_error(d)


@pytest.mark.parametrize("starts", [[0, 3, 3, 5, 9], [0, 0, 0, 1], [0, 2], [0, 0, 4, 4]])
def test_list_of_skips_empty_lists(starts: list[int]) -> None:
    edges = np.array(starts, np.int64)
    sizes = np.diff(edges)
    expected = np.repeat(np.arange(len(sizes)), sizes)
    assert [scan.list_of(row, edges) for row in range(edges[-1])] == expected.tolist()
    for rows in (np.arange(edges[-1]), np.random.default_rng(0).integers(0, edges[-1], 50), np.arange(0)):
        assert_array_equal(scan.lists_of(rows, edges), expected[rows])
