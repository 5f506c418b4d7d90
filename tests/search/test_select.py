from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from cfe_faiss.search import select
from cfe_faiss.search.meet import LANES

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

MARK = -7
GUARD = 2 * LANES

seeds = st.integers(0, 2**32 - 1)


def guarded(size: int, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return an array of marks, and the part of it that may be written to."""
    whole = np.full(size + 2 * GUARD, MARK, dtype)
    return whole, whole[GUARD : GUARD + size]


def assert_nothing_outside(whole: NDArray[Any]) -> None:
    assert_array_equal(whole[:GUARD], MARK)
    assert_array_equal(whole[-GUARD:], MARK)


def numbers(rng: np.random.Generator, shape: int | tuple[int, int]) -> Floats:
    """Return numbers that are all different, often equal, or of very different magnitude; some are -inf."""
    kinds = [
        rng.normal(size=shape),
        rng.integers(-3, 4, shape) / 8,
        np.sort(rng.normal(size=shape)) * rng.choice([-1, 1]),
        rng.choice([-1, 1], shape) * 10.0 ** rng.uniform(-30, 30, shape),
        np.full(shape, rng.normal()),
    ]
    some: Floats = kinds[rng.integers(0, len(kinds))].astype(np.float32)
    some[rng.random(shape) < rng.choice([0, 0.1, 0.5, 0.95, 1])] = -np.inf
    return some


# --- what k peaks reach -----------------------------------------------------------------------------------------------


@given(st.integers(1, 5), st.integers(1, 24), st.integers(1, 140), seeds)
def test_a_threshold_is_reached_by_k_peaks_and_hardly_more(rows: int, blocks: int, k: int, seed: int) -> None:
    width, rng = LANES * blocks, np.random.default_rng(seed)
    peaks = np.concatenate([numbers(rng, (1, width)) for _ in range(rows)])
    given_peaks = peaks.copy()
    (all_lows, lows), (all_highs, highs) = guarded(rows, np.float32), guarded(rows, np.float32)
    select.reached(peaks.ctypes.data, rows, width, k, lows.ctypes.data, highs.ctypes.data)
    for low, row in zip(lows, peaks, strict=True):
        some = np.sort(row[row > -np.inf].astype(np.float64))
        if len(some) < k:
            assert low == -np.inf
        else:
            assert some[0] <= low <= some[-k]
            nearness = (some[-1] - some[0]) / 2**select._HALVINGS + 1e-6 * np.abs(some).max()
            assert some[-k] <= low + nearness
    assert_array_equal(peaks, given_peaks)
    assert_nothing_outside(all_lows)
    assert_nothing_outside(all_highs)


@pytest.mark.parametrize("k", [1, 15, 16, 17, 31, 32])
def test_as_many_peaks_as_are_wanted_are_enough(k: int) -> None:
    peaks = np.full((2, 32), -np.inf, np.float32)
    peaks[0, :k], peaks[1, : k - 1] = np.arange(k), np.arange(k - 1)
    lows, highs = np.empty((2, 2), np.float32)
    select.reached(peaks.ctypes.data, 2, 32, k, lows.ctypes.data, highs.ctypes.data)
    assert_array_equal(lows, [0, -np.inf])


# --- order ------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 208), seeds)
def test_scores_are_put_in_order_and_equals_by_their_ids(m: int, seed: int) -> None:
    rng, padded = np.random.default_rng(seed), -(-m // LANES) * LANES
    (all_scores, scores), (all_ranked, ranked) = guarded(padded, np.float32), guarded(padded, np.float32)
    (all_ids, ids), (all_ranked_ids, ranked_ids) = guarded(padded, np.int64), guarded(padded, np.int64)
    scores[:m], ids[:m] = numbers(rng, m), rng.choice(2**62, m, replace=False)
    scores[m:] = np.inf  # what was there before
    given_scores, given_ids = scores[:m].copy(), ids.copy()
    addresses = (some.ctypes.data for some in (scores, ids, ranked, ranked_ids))
    select.put_in_order(m, *addresses)
    order = np.lexsort((given_ids[:m], -given_scores))
    assert_array_equal(ranked[:m], given_scores[order])
    assert_array_equal(ranked_ids[:m], given_ids[order])
    assert_array_equal(scores[:m], given_scores)
    assert_array_equal(ids, given_ids)
    for whole in (all_scores, all_ids, all_ranked, all_ranked_ids):
        assert_nothing_outside(whole)


# --- those near the best ----------------------------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(1, 140), st.sampled_from([0.0, 1e-3, 0.5, 1e30]), seeds)
def test_all_that_are_near_the_best_are_found(blocks: int, k: int, margin: float, seed: int) -> None:
    scores = numbers(np.random.default_rng(seed), LANES * blocks)
    given_scores, wanted = scores.copy(), np.sort(scores[scores > -np.inf].astype(np.float64))[::-1]
    width = -(-select.PEAKS_FOR_EACH * k // LANES) * LANES
    (all_peaks, peaks), (all_places, places) = guarded(width, np.float32), guarded(len(scores) + LANES, np.int32)
    m = select.near_best(scores, k, margin, peaks, places)
    found = places[:m]
    assert_array_equal(found, np.unique(found))
    assert (scores[found] > -np.inf).all()
    least = wanted[k - 1] - margin if len(wanted) >= k else -np.inf
    assert set(np.flatnonzero((scores > -np.inf) & (scores >= least)).tolist()) <= set(found.tolist())
    assert_array_equal(scores, given_scores)
    assert_nothing_outside(all_peaks)
    assert_nothing_outside(all_places)


def test_few_others_are_near_the_best() -> None:
    scores = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    peaks, places = np.empty(48, np.float32), np.empty(4096 + LANES, np.int32)
    assert 16 <= select.near_best(scores, 16, 0.0, peaks, places) < 40


# --- the best of many -------------------------------------------------------------------------------------------------


def best_of_each(scores: Floats, k: int) -> list[Ints | None]:
    """Return the places of the best of each row, none where they are not found; nothing else may be written to."""
    rows, n = scores.shape
    given_scores = scores.copy()
    rooms = select.room(rows + 1, n, k)  # room for more does no harm
    guards = [guarded(some.size, some.dtype) for some in rooms]
    (all_found, found), (all_done, done) = guarded(rows * k, np.int64), guarded(rows, np.int8)
    memory: Any = tuple(part.reshape(some.shape) for (_, part), some in zip(guards, rooms, strict=True))
    select.best(scores, found.reshape(rows, k), done.view(bool), memory)
    for whole in (all_found, all_done, *(whole for whole, _ in guards)):
        assert_nothing_outside(whole)
    assert_array_equal(scores, given_scores)
    return [row if fine else None for row, fine in zip(found.reshape(rows, k), done, strict=True)]


def best(scores: Floats, k: int) -> Ints | None:
    """Return the places of the best of one row."""
    return best_of_each(scores[None], k)[0]


def ranking(scores: Floats, k: int) -> Ints:
    return np.argsort(-scores, kind="stable")[:k]


ks = st.one_of(st.integers(1, 12), st.integers(1, select.LARGEST_K))


@given(st.integers(1, 130), ks, seeds)
def test_what_is_found_is_the_best_and_of_equals_the_first(blocks: int, k: int, seed: int) -> None:
    scores = numbers(np.random.default_rng(seed), LANES * blocks)
    found = best(scores, k)
    if (scores > -np.inf).sum() < k:
        assert found is None
    elif found is not None:
        assert_array_equal(found, ranking(scores, k))


@given(st.integers(1, 130), ks, st.booleans(), seeds)
def test_the_best_of_scores_that_differ_are_found(blocks: int, k: int, in_order: bool, seed: int) -> None:
    rng, n = np.random.default_rng(seed), LANES * blocks
    scores = rng.permutation(np.linspace(-1, 1, n)).astype(np.float32)
    if in_order:
        scores.sort()
    found = best(scores, min(k, n))
    assert found is not None
    assert_array_equal(found, ranking(scores, min(k, n)))


@pytest.mark.parametrize("k", [1, 2, 16, 50, 128])
def test_a_few_equals_are_found_and_many_are_not(k: int) -> None:
    n = LANES * (k // 4 + 1)  # at most as many as are put in order
    for size, done in ((n, True), (5 * n, False)):
        scores = np.full(size, 0.5, np.float32)
        found = best(scores, k) if k <= size else None
        assert (found is not None) == done
        if found is not None:
            assert_array_equal(found, np.arange(k))


@given(ks, st.integers(0, 40), seeds)
def test_many_that_are_equal_to_the_last_are_no_wrong_answer(k: int, better: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.zeros(LANES * rng.integers(1, 200), np.float32)
    scores[rng.choice(len(scores), min(better, len(scores)), replace=False)] = rng.choice([0.5, 0.75, 1])
    found = best(scores, min(k, len(scores)))
    if found is not None:
        assert_array_equal(found, ranking(scores, min(k, len(scores))))


@given(st.integers(1, 9), st.integers(1, 40), ks, seeds)
def test_rows_are_searched_each_by_itself(rows: int, blocks: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = np.stack([numbers(rng, LANES * blocks) for _ in range(rows)])
    k = min(k, scores.shape[1])
    for row, together in zip(scores, best_of_each(scores, k), strict=True):
        alone = best(row, k)
        assert (alone is None) == (together is None)
        assert_array_equal(alone, together)


def test_memory_may_be_used_again() -> None:
    rng = np.random.default_rng(0)
    memory, found, done = select.room(2, 320, 7), np.empty((2, 7), np.int64), np.zeros(2, bool)
    for _ in range(20):
        scores = rng.normal(size=(2, 320)).astype(np.float32)
        select.best(scores, found, done, memory)
        assert done.all()
        assert_array_equal(found, [ranking(row, 7) for row in scores])
