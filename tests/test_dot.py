import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reference import unit

from cfe_faiss.dot import pair_similarities, similarity


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_similarity_is_the_rounded_exact_product_and_symmetric(d: int, seed: int) -> None:
    x, y = unit(np.random.default_rng(seed).normal(size=(2, d)))
    exact = math.fsum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))
    assert similarity(x, y) == similarity(y, x)
    assert abs(float(similarity(x, y)) - exact) <= 2.0**-24 * abs(exact) + 1e-15
    assert pair_similarities(x[None], y[None])[0] == similarity(x, y)


@given(st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_the_order_of_the_sum_is_the_one_written_down(d: int, seed: int) -> None:
    x, y = (np.random.default_rng(seed).normal(size=(2, d)) * 10.0 ** np.arange(d)[::-1].clip(max=18)).astype(
        np.float32
    )
    products = x.astype(np.float64) * y.astype(np.float64)
    whole = d // 16 * 16
    lanes = np.zeros(16)
    for start in range(0, whole, 16):
        lanes += products[start : start + 16]
    sums = lanes[:8] + lanes[8:]
    while len(sums) > 1:
        sums = sums[::2] + sums[1::2]
    total = sums[0]
    for product in products[whole:]:
        total += product
    assert similarity(x, y) == np.float32(total)
