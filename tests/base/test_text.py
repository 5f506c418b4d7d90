import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import clustered

import cfe_faiss as cfe
from cfe_faiss.base.text import format_similarity, similarity_error

similarities = st.floats(-1, 1, exclude_max=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (np.float64(1), "1"),
        (np.nextafter(1.0, 0), "0.999999999999"),
        (0.99999987, "0.999999870"),
        (0.9999, "0.9999000"),
        (0.5, "0.500000"),
        (0.0, "0.00000"),
        (-1.0, "-1.00000"),
        (np.float32(1), "> 0.999999"),
        (np.float32(1) + np.float32(2**-22), "> 0.999999"),
        (np.float32(0.75), "0.750000"),
        (math.nan, ""),
    ],
)
def test_texts(value, text):
    assert format_similarity(value) == text


@given(similarities)
def test_a_text_is_as_near_as_it_says_and_never_1(value):
    text = format_similarity(value)
    assert Decimal(text) < 1
    unit = Decimal(1).scaleb(Decimal(text).as_tuple().exponent)
    # half a unit of the last digit for rounding, one where it is cut off
    assert abs(Decimal(text) - Decimal(value)) <= unit
    assert similarity_error(value) <= float(unit) / 2


@given(similarities, similarities)
def test_texts_keep_the_order(one, two):
    low, high = sorted((one, two))
    step = Decimal(1).scaleb(Decimal(format_similarity(low)).as_tuple().exponent)
    assert Decimal(format_similarity(low)) <= Decimal(format_similarity(high)) + step


def test_the_bound_holds_for_vectors_that_are_moved_by_its_error():
    x, _ = clustered(200, 16, 4)
    rng = np.random.default_rng(0)
    exact = x.astype(np.float64)
    exact[100:] = exact[:100] + rng.normal(size=(100, 16)) * 10.0 ** rng.uniform(-8, 0, (100, 1))
    exact /= np.linalg.norm(exact, axis=1, keepdims=True)
    moved = rng.normal(size=exact.shape)
    moved *= (2**-22 - 2**-24) / np.linalg.norm(moved, axis=1, keepdims=True)
    stored = (exact + moved).astype(np.float32)
    pairs = np.arange(100), np.arange(100, 200)
    found = cfe.ks_similarity(stored, *pairs, dtype=np.float64)
    distance2 = ((exact[pairs[0]] - exact[pairs[1]]) ** 2).sum(axis=1)
    error = np.abs(found - (1 - distance2 / 2))
    bound = np.array([similarity_error(s) for s in (1 - distance2 / 2)])
    assert (error <= bound + 1e-15).all()
    assert (error > bound / 20).any()
