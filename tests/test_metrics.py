import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import PADDING

from cfe_faiss.metrics import average_similarity, recall


def test_average_similarity_divides_by_k_whatever_was_found():
    assert average_similarity(np.float32([[0.5, 0.25], [1.0, PADDING]])) == pytest.approx(1.75 / 4)
    assert average_similarity([[-1.0]]) == -1


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_recall_equals_its_definition(seed, k):
    rng = np.random.default_rng(seed)
    I, exact_I = rng.integers(-1, 6, (4, k)), np.argsort(rng.random((4, 6)))[:, :k]
    exact_I[rng.random((4, k)) < 0.2] = -1
    # An id that occurs twice in a row has one similarity.
    D = np.take_along_axis(rng.integers(0, 4, (4, 7)), I, axis=1)
    exact_D = rng.integers(0, 4, (4, k))
    found, wanted = 0, 0
    for row in range(4):
        exact = {i: d for i, d in zip(exact_I[row], exact_D[row], strict=True) if i >= 0}
        pairs = zip(I[row], D[row], strict=True)
        right = {i for i, d in pairs if i in exact or d >= min(exact.values(), default=9)}
        found += min(len(right - {-1}), len(exact))
        wanted += len(exact)
    assert recall(I, exact_I, D, exact_D) == pytest.approx(found / wanted if wanted else 1)


def test_recall_believes_an_id_whose_similarity_was_rounded_otherwise():
    assert recall([[1, 2]], [[1, 2]], [[0.9, 0.79999]], [[0.9, 0.8]]) == 1


def test_recall_asks_for_no_more_than_there_is():
    assert recall([[7, -1]], [[7, -1]], [[0.5, PADDING]], [[0.5, PADDING]]) == 1
    assert recall([[-1, -1]], [[-1, -1]], [[PADDING] * 2], [[PADDING] * 2]) == 1
    found = recall(np.empty((0, 3), int), np.empty((0, 3), int), np.empty((0, 3)), np.empty((0, 3)))
    assert found == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: average_similarity([0.5, 0.5]), r"D must have shape \(n, k\).*got \(2,\)"),
        (lambda: average_similarity(np.empty((0, 3))), r"D must have shape .*got \(0, 3\)"),
        (lambda: recall([[1]], [[1, 2]], [[1.0]], [[1.0]]), r"I_exact must have the shape of I"),
        (lambda: recall([[1]], [[1]], [[1.0, 1.0]], [[1.0]]), r"D must have the shape of I"),
        (lambda: recall([1], [1], [1.0], [1.0]), r"must have the shape of I, \(n, k\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
