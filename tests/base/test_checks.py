import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from reference import unit_copy

from cfe_faiss.base import checks

MATRICES = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2),
    elements=st.floats(-(2.0**60), 2.0**60, width=32),
)


@given(MATRICES)
def test_unit_rows_are_unit_and_stay_unchanged(matrix):
    before = matrix.copy()
    rows = checks.as_unit_rows("x", matrix)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    zero = ~matrix.any(axis=1)
    assert_allclose(norms[~zero & (np.abs(matrix).max(axis=1) > 1e-30)], 1, atol=1e-6)
    assert_array_equal(rows[zero], 0)
    assert_array_equal(checks.as_unit_rows("x", rows), rows)
    assert_array_equal(matrix, before)
    assert not np.shares_memory(rows, matrix)


def test_a_row_alone_gets_the_bits_that_it_gets_among_others():
    rows = np.random.default_rng(0).normal(size=(50, 37)).astype(np.float32)
    rows[0], rows[1] = 0, checks.as_unit_rows("x", rows[1:2])[0]
    for row, expected in zip(rows, checks.as_unit_rows("x", rows), strict=True):
        assert_array_equal(checks.as_unit_rows("x", row[None])[0], expected)
    for wrong in (np.nan, np.inf, -np.inf):
        rows[3, 36] = wrong
        with pytest.raises(ValueError, match=r"x must be finite in float32, .* in row 0"):
            checks.as_unit_rows("x", rows[3:4])


@given(st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_norms_are_summed_in_the_order_of_similarities(d, seed):
    rng = np.random.default_rng(seed)
    row = (rng.normal(size=(1, d)) * 10.0 ** rng.integers(-8, 8, d)).astype(np.float32)
    assert_array_equal(checks.as_unit_rows("x", row), unit_copy(row))


@pytest.mark.parametrize("label", [-2, -1, 0, 1, 2**31 - 2, 2**31 - 1, 2**31, 2**40])
def test_a_label_alone_is_one_that_would_be_taken_among_others(label):
    try:
        checks.as_labels("y", np.array([label, 0]), 2)
    except ValueError:
        assert not checks.is_label(label)
    else:
        assert checks.is_label(label)


def test_tensors_lists_and_strided_arrays_do():
    expected = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_array_equal(checks.as_matrix("x", torch.tensor(expected, requires_grad=True)), expected)
    assert_array_equal(checks.as_matrix("x", expected.tolist()), expected)
    assert_array_equal(checks.as_matrix("x", np.asfortranarray(expected)), expected)
    assert checks.as_matrix("x", expected) is expected


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: checks.as_matrix("x", [[1, 2], [3]]), ValueError, "x must be a rectangular array"),
        (lambda: checks.as_matrix("x", [["a"]]), TypeError, "x .*got dtype <U1"),
        (lambda: checks.as_matrix("x", [[1j]]), TypeError, "x must be .* got dtype complex128"),
        (lambda: checks.as_matrix("x", None), TypeError, "x must be .* got dtype object"),
        (lambda: checks.as_matrix("x", [1.0]), ValueError, r"x .*got \(1,\)"),
        (lambda: checks.as_matrix("x", np.empty((3, 0))), ValueError, r"x .*got \(3, 0\)"),
        (lambda: checks.as_matrix("x", np.eye(3), 2), ValueError, r"x .*got \(3, 3\)"),
        (lambda: checks.as_matrix("x", [[0.0], [np.inf]]), ValueError, "float32, .* in row 1"),
        (lambda: checks.as_matrix("x", [[1e300]]), ValueError, "x must be finite in float32"),
        (lambda: checks.as_labels("y", [0, 1], 3), ValueError, r"y must have shape \(3,\), .* got"),
        (lambda: checks.as_labels("y", [0, -1], 2), ValueError, "y .*got -1"),
        (lambda: checks.as_labels("y", [-2], 1, unknown=True), ValueError, "y .*got -2"),
        (lambda: checks.as_labels("y", [1.0], 1), TypeError, "y .*got dtype float64"),
        (lambda: checks.as_labels("y", ["a"], 1), TypeError, "y must be an array of real numbers"),
        (lambda: checks.as_count("k", True), TypeError, "k must be an integer, got True"),
        (lambda: checks.as_count("k", "3"), TypeError, "k must be an integer, got '3'"),
        (lambda: checks.as_number("alpha", "x", 0, 1), TypeError, "alpha .*got 'x'"),
        (lambda: checks.as_number("alpha", np.nan, 0, 1), ValueError, "alpha .*got nan"),
        (lambda: checks.as_number("alpha", 1.5, 0, 1), ValueError, "alpha .*got 1.5"),
    ],
)
def test_errors_name_argument_expectation_and_what_came(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_names():
    assert checks.as_names("names", ["a", 1, "a"]) == ("a", "1")
    assert checks.as_names("names", (name for name in "ab")) == ("a", "b")
    for wrong in ("a", b"a", None, 5):
        with pytest.raises(TypeError, match="names must be a sequence of names, got"):
            checks.as_names("names", wrong)


def test_dense():
    dense = np.array([[0.0, 2.0], [0.0, 0.0]])
    cases = (dense, dense.tolist(), torch.from_numpy(dense), torch.from_numpy(dense).to_sparse())
    for values in cases:
        np.testing.assert_array_equal(checks.as_dense("x", values), dense)
    np.testing.assert_array_equal(checks.as_dense("x", scipy.sparse.csc_matrix(dense)), dense)


def test_a_tensor_of_a_type_that_numpy_lacks_is_named():
    message = r"x must be an array of real numbers, got Tensor: .*Float8"
    with pytest.raises(TypeError, match=message):
        checks.as_array("x", torch.ones(2).to(torch.float8_e4m3fn))
