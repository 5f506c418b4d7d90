import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import PADDING, evidence, stored_vectors

from cfe_faiss.metrics import average_similarity, recall


def test_average_similarity_divides_by_k_whatever_was_found():
    assert average_similarity(np.float32([[0.5, 0.25], [1.0, PADDING]])) == pytest.approx(1.75 / 4)
    assert average_similarity([[-1.0]]) == -1


@given(stored_vectors(least=1), st.integers(1, 5))
def test_recall_of_the_exact_result_is_1_and_of_nothing_0(stored, k):
    D, I = evidence(stored._replace(k=k))
    assert recall(I, I, D, D) == 1
    nothing = np.full_like(I, -1), np.full_like(D, PADDING)
    assert recall(nothing[0], I, nothing[1], D) == (0 if (I >= 0).any() else 1)


def test_recall_counts_ties_as_found_and_an_id_once():
    exact_I, exact_D = [[1, 2, 3]], [[0.9, 0.8, 0.8]]
    assert recall([[1, 2, 4]], exact_I, [[0.9, 0.8, 0.8]], exact_D) == 1
    assert recall([[1, 4, 5]], exact_I, [[0.9, 0.8, 0.8]], exact_D) == 1
    assert recall([[1, 1, 1]], exact_I, [[0.9, 0.9, 0.9]], exact_D) == pytest.approx(1 / 3)
    assert recall([[1, 6, -1]], exact_I, [[0.9, 0.7, PADDING]], exact_D) == pytest.approx(1 / 3)


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
