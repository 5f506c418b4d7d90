from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from packed import Packed, packed, turning
from reference import unit

from cfe_faiss.search import panels
from cfe_faiss.search.meet import LANES
from cfe_faiss.search.panels import encode, words_of

seeds = st.integers(0, 2**32 - 1)
magnitudes = st.sampled_from([1e-12, 1e-3, 1, 1e6])


def rows_like(rng: np.random.Generator, n: int, d: int, magnitude: float) -> NDArray[np.float32]:
    """Return rows of which some have zeros, and some only zeros, at first and last components, too."""
    X = magnitude * rng.normal(size=(n, d)) * (rng.random((n, d)) < rng.choice([0, 0.5, 1], (n, 1)))
    return X.astype(np.float32)


def norm(x: NDArray[np.floating]) -> float:
    return float(np.linalg.norm(x.astype(np.float64)))


@pytest.mark.parametrize("d", [1, 3, 4, 5, 64])
def test_a_row_takes_whole_words(d: int) -> None:
    assert words_of(d, False) == d
    assert words_of(d, True) == len(np.zeros(d + -d % 4, np.int8).view(np.int32))


@given(st.integers(1, 70), magnitudes, seeds)
def test_bytes_decode_to_the_row_within_the_error(d: int, magnitude: float, seed: int) -> None:
    x = rows_like(np.random.default_rng(seed), 1, d, magnitude)[0]
    words = np.full(words_of(d, True), -7, np.int32)
    scale, length, error = encode(x, True, words)
    codes = words.view(np.int8).astype(np.float64)
    assert_array_equal(codes[d:], 0)
    assert np.abs(codes).max() == (127 if x.any() else 0)
    difference = x - codes[:d] * float(scale)
    assert np.abs(difference).max() <= 0.5001 * scale
    assert_allclose(length, norm(x), rtol=1e-6)
    assert_allclose(error, norm(difference), rtol=1e-5, atol=3e-7 * length)


@pytest.mark.parametrize("value", [3e-37, 1e-38, 1e-44])
def test_a_row_of_next_to_nothing_is_nothing(value: float) -> None:
    words = np.empty(1, np.int32)
    scale, length, error = encode(np.array([0, value, 0], np.float32), True, words)
    assert length < 1e-30
    assert error < 1e-30
    assert np.abs(words.view(np.int8) * scale).max() < 1e-30


@given(st.integers(1, 70), magnitudes, seeds)
def test_floats_are_the_row_itself(d: int, magnitude: float, seed: int) -> None:
    x = rows_like(np.random.default_rng(seed), 1, d, magnitude)[0]
    words = np.empty(d, np.int32)
    scale, length, error = encode(x, False, words)
    assert_array_equal(words.view(np.float32), x)
    assert (scale, error) == (1, 0)
    assert_allclose(length, norm(x), rtol=1e-6)


def test_as_query_adds_128_to_each_byte() -> None:
    words = np.arange(-128, 128).astype(np.int8).view(np.int32)
    assert_array_equal((words ^ panels.AS_QUERY).view(np.uint8), np.arange(256))


@given(st.integers(1, 30), seeds)
def test_what_panels_know_bounds_the_product_with_a_query(d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, x = rows_like(rng, 2, d, 1)
    words = np.empty((2, words_of(d, True)), np.int32)
    scale, length, error = np.float64(encode(x, True, words[0]))
    own_scale, own_length, own_error = np.float64(encode(q, True, words[1]))
    codes, own_codes = words.view(np.int8).astype(np.int64)
    bound = error * own_length + (length + error) * own_error
    assert abs(q.astype(np.float64) @ x - scale * own_scale * (codes @ own_codes)) <= bound + 1e-5


class Lists(NamedTuple):
    """Storage rows of some lists, and their panels, which begin at panel ``first``."""

    X: NDArray[np.float32]
    labels: NDArray[np.int32]
    addresses: NDArray[np.int64]
    ids: NDArray[np.int64]
    members: list[NDArray[np.int64]]
    first: int
    panels: Packed


def lists_of(in_bytes: bool, d: int, first: int, seed: int) -> Lists:
    rng = np.random.default_rng(seed)
    sizes = rng.choice([0, 1, 2, 15, 16, 17, 40], rng.integers(0, 6))
    n = 2 * int(sizes.sum()) + 3
    X = unit(1 + rng.normal(size=(n, d)) * rng.choice([1e-3, 1]))
    rows = rng.permutation(n)[: sizes.sum()]
    labels = rng.integers(-1, 5, n).astype(np.int32)
    addresses, ids = rng.integers(0, 2**62, (2, n))
    members = np.split(rows, np.cumsum(sizes))[:-1]
    made = packed(X, rows, sizes, labels, addresses, ids, in_bytes, first)
    return Lists(X, labels, addresses, ids, members, first, made)


in_bytes_or_floats = pytest.mark.parametrize("in_bytes", [False, True])
lists = st.tuples(st.integers(1, 20), st.integers(0, 3), seeds)


@in_bytes_or_floats
@given(lists)
def test_each_row_of_each_list_is_in_one_lane(in_bytes: bool, drawn: tuple[int, int, int]) -> None:
    some = lists_of(in_bytes, *drawn)
    _, _, P, facts, addresses, ids = some.panels
    for j, own in enumerate(some.members):
        run = slice(some.panels.starts[j], some.panels.starts[j + 1])
        assert_array_equal(addresses[run].ravel()[: len(own)], some.addresses[own])
        assert_array_equal(ids[run].ravel()[: len(own)], some.ids[own])
        assert_array_equal(facts[run, -1].ravel()[: len(own)], some.labels[own])
        assert_array_equal(facts[run, -1].ravel()[len(own) :], -1)
        assert (run.stop - run.start) * LANES - len(own) < LANES
    for written in (P, facts, addresses, ids):
        assert_array_equal(written[: some.first], -7)


@in_bytes_or_floats
@given(lists)
def test_lanes_hold_what_is_left_of_rows_without_the_mean(in_bytes: bool, drawn: tuple[int, int, int]) -> None:
    some = lists_of(in_bytes, *drawn)
    _, centres, P, facts, _, _ = some.panels
    d = some.X.shape[1]
    for j, own in enumerate(some.members):
        mean = some.X[own].astype(np.float64).sum(axis=0) / max(1, len(own))
        assert_allclose(centres[j], mean, atol=1e-6)
        for place, row in enumerate(own):
            panel, lane = some.panels.starts[j] + place // LANES, place % LANES
            words = np.ascontiguousarray(P[panel, :, lane])
            scale, error, length = facts[panel, 1:4, lane].copy().view(np.float32).astype(np.float64)
            codes = words.view(np.int8 if in_bytes else np.float32).astype(np.float64)
            left = some.X[row] - centres[j]  # in float32, as the package does
            assert_array_equal(codes[d:], 0)
            assert_allclose(norm(left - scale * codes[:d]), error, rtol=1e-4, atol=1e-6)
            assert length >= scale * norm(codes) * (1 - 1e-5)
            assert_allclose(length, norm(left) + error, rtol=1e-5)
            first = facts[panel, 0, lane]
            assert first == (-128 * codes.sum() if in_bytes else 0)
            assert_array_equal(facts[panel, 4:6, lane], 0)  # all is in the head


@given(st.integers(9, 40), st.integers(1, 2), seeds)
def test_what_is_not_in_the_head_is_summed_and_measured_apart(d: int, head: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, rows, R = unit(1 + rng.normal(size=(20, d))), np.arange(20), turning(rng, d)
    made = packed(X, rows, np.array([20]), np.zeros(20, np.int32), rows, rows, True, head=head, R=R)
    blur = panels.blur(d)
    assert d**1.5 * 2.0**-24 < blur < 2 * (d + 8) ** 1.5 * 2.0**-24
    for row in rows:
        panel, lane = row // LANES, row % LANES
        codes = np.ascontiguousarray(made.P[panel, :, lane]).view(np.int8).astype(np.int64)
        scale, error, length = made.facts[panel, 1:4, lane].copy().view(np.float32).astype(np.float64)
        turned = (X[row] - made.centres[0]).astype(np.float64) @ R
        assert made.facts[panel, 0, lane] == -128 * codes.sum()
        assert made.facts[panel, 4, lane] == -128 * codes[4 * head :].sum()
        after = made.facts[panel, 5, lane].copy().view(np.float32)
        assert_allclose(after, norm(turned[4 * head :]) + blur * norm(turned), rtol=1e-4, atol=1e-6)
        assert_allclose(error, norm(turned - scale * codes[:d]) + blur * norm(turned), rtol=1e-3, atol=1e-6)
        assert_allclose(length, norm(turned) + error, rtol=1e-5)


@given(st.integers(1, 40), st.integers(1, 4), seeds)
def test_a_few_rows_are_turned_as_by_numpy(d: int, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, R = unit(rng.normal(size=(n, d))), turning(rng, d)
    turned = panels.turn(X, R)
    exactly = X.astype(np.float64) @ R
    assert np.linalg.norm(turned - exactly, axis=1).max() <= panels.blur(d)


@in_bytes_or_floats
def test_rows_that_are_all_the_same_are_nothing_but_their_mean(in_bytes: bool) -> None:
    x = np.array([0.5, -0.25, 0.125], np.float32)  # sums of these are exact
    rows = np.arange(20)
    made = packed(np.tile(x, (20, 1)), rows, np.array([20]), np.zeros(20, np.int32), rows, rows, in_bytes)
    assert_array_equal(made.centres, [x])
    assert_array_equal(made.P, 0)
    assert_array_equal(made.facts[:, 2:4], 0)
