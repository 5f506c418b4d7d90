import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from cfe_faiss import _native


@given(st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_a_heap_that_is_sorted_worst_first_is_turned_round(k: int, seed: int) -> None:
    scores = np.sort(np.random.default_rng(seed).integers(0, 5, (3, k)).astype(np.float32))
    ids = np.tile(np.arange(k)[::-1].copy(), (3, 1))
    D, I = scores.copy(), ids.copy()
    _native.sort_heaps(D, I)
    assert_array_equal(D, scores[:, ::-1])
    assert_array_equal(I, ids[:, ::-1])
