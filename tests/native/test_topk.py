import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import PADDING

from cfe_faiss import _native


@given(st.integers(1, 40), st.integers(0, 100), st.integers(0, 2**32 - 1), st.booleans())
def test_heaps_keep_the_best(k: int, n: int, seed: int, twice: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(-3, 4, (1, n)).astype(np.float32)
    ids = rng.permutation(n).astype(np.int64)[None]
    D, I = np.full((1, k), PADDING, np.float32), np.full((1, k), np.iinfo(np.int64).max)
    for _ in range(1 + twice):
        _native.push(D, I, scores, ids, twice)
    _native.sort_heaps(D, I)
    best = np.lexsort((ids[0], -scores[0]))[:k]
    assert_array_equal(I[0, : len(best)], ids[0, best])
    assert_array_equal(D[0, : len(best)], scores[0, best])
    assert_array_equal(I[0, len(best) :], -1)
    assert_array_equal(D[0, len(best) :], PADDING)


@given(st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_a_heap_that_is_sorted_worst_first_is_turned_round(k: int, seed: int) -> None:
    scores = np.sort(np.random.default_rng(seed).integers(0, 5, (3, k)).astype(np.float32))
    ids = np.tile(np.arange(k)[::-1].copy(), (3, 1))
    D, I = scores.copy(), ids.copy()
    _native.sort_heaps(D, I)
    assert_array_equal(D, scores[:, ::-1])
    assert_array_equal(I, ids[:, ::-1])


def test_nan_is_never_taken() -> None:
    D, I = np.full((1, 2), PADDING, np.float32), np.full((1, 2), np.iinfo(np.int64).max)
    _native.push(D, I, np.array([[np.nan, 1]], np.float32), np.array([[3, 4]]))
    _native.sort_heaps(D, I)
    assert_array_equal(I, [[4, -1]])
