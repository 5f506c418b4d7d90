"""Queries meet panels: held against the formula on numbers that floats hold exactly, and against true similarities."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from packed import packed
from reference import unit

from cfe_faiss.index import batch, meet, panels, scan
from cfe_faiss.index.meet import EQUAL, LANES

Call = Callable[..., Any]

seeds = st.integers(0, 2**32 - 1)
in_bytes_or_floats = pytest.mark.parametrize(
    "in_bytes", [False, pytest.param(True, marks=pytest.mark.skipif(not meet.HAS_BYTES, reason="no VNNI"))]
)
rows_at_once = pytest.mark.parametrize("rows", [1, 2, 4, 8])


@cache
def reach(rows: int, in_bytes: bool) -> Call:
    intrinsic = getattr(meet, f"reach_{'bytes' if in_bytes else 'floats'}_{rows}")

    @numba.njit
    def call(x: Any, y: Any, facts: Any, own: Any, about: Any, sets: Any) -> bool:
        return intrinsic(x.ctypes, y.ctypes, y.shape[0], facts.ctypes, own.ctypes, about.ctypes, sets.ctypes)

    return call


@cache
def raise_peaks(in_bytes: bool) -> Call:
    intrinsic = meet.raise_bytes_8 if in_bytes else meet.raise_floats_8

    @numba.njit
    def call(x: Any, y: Any, facts: Any, own: Any, about: Any, peaks: Any) -> None:
        stride = peaks.shape[1]
        intrinsic(x.ctypes, y.ctypes, y.shape[0], facts.ctypes, own.ctypes, about.ctypes, peaks.ctypes, stride)

    return call


@cache
def of_row(name: str) -> Call:
    intrinsic = getattr(meet, name)
    if name == "count_above":
        return numba.njit(lambda row, value: intrinsic(row.ctypes, value))
    return numba.njit(lambda row: intrinsic(row.ctypes))


@numba.njit
def lowest(mask: int) -> int:
    return meet.lowest(np.int32(mask))


def bits(sets: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which lanes are in each set, (rows, 16)."""
    return (sets[:, None] >> np.arange(LANES)) & 1 == 1


class Meeting(NamedTuple):
    """Queries, a panel, and what the formula says of them; every sum and product is exact in float32."""

    x: NDArray[np.int32]
    y: NDArray[np.int32]
    facts: NDArray[np.int32]
    own: NDArray[np.int32]
    about: NDArray[np.float32]
    product: NDArray[np.float64]
    bound: NDArray[np.float64]
    eligible: NDArray[np.bool_]


def meeting(rows: int, words: int, in_bytes: bool, seed: int) -> Meeting:
    rng = np.random.default_rng(seed)
    if in_bytes:
        X = rng.integers(0, 256, (rows, 4 * words)).astype(np.uint8)
        Y = rng.integers(-127, 128, (LANES, 4 * words)).astype(np.int8)
        first = rng.integers(-(2**20), 2**20, LANES).astype(np.int32)
    else:
        X, Y = (rng.integers(-3, 4, (m, words)).astype(np.float32) for m in (rows, LANES))
        first = rng.integers(-3, 4, LANES).astype(np.float32)
    scale, own_scale = (rng.choice([0.5, 1, 2], m) for m in (LANES, rows))
    scale[rng.random(LANES) < 0.1] = np.nan
    error, length = rng.integers(0, 4, (2, LANES))
    own_length, own_error = np.repeat(rng.integers(0, 4, (2, 1)), rows, axis=1)  # one bound for all queries
    labels, own = rng.integers(-1, 3, LANES), rng.integers(0, 3, rows)

    facts = np.empty((panels.FACTS, LANES), np.int32)
    facts[0] = first.view(np.int32)
    facts[1:4] = np.array([scale, error, length], np.float32).view(np.int32)
    facts[4] = labels
    product = (first + X.astype(np.float64) @ Y.astype(np.float64).T) * scale * own_scale[:, None]
    bound = error * own_length[:, None] + length * own_error[:, None]
    about = np.array([own_scale, own_length, own_error, np.zeros(rows)], np.float32).T.copy()
    y = np.ascontiguousarray(Y.view(np.int32).T)
    eligible = (labels >= 0) & (labels != own[:, None])
    return Meeting(X.view(np.int32), y, facts, own.astype(np.int32), about, product, bound, eligible)


@rows_at_once
@in_bytes_or_floats
@given(words=st.integers(1, 20), seed=seeds)
def test_sets_are_what_the_formula_says(rows: int, in_bytes: bool, words: int, seed: int) -> None:
    met = meeting(rows, words, in_bytes, seed)
    rng = np.random.default_rng(seed)
    most = met.product + met.bound
    # The number of one of the lanes itself, and some just above it: those reach and those do not.
    thresholds = most[np.arange(rows), rng.integers(0, LANES, rows)] + rng.choice([0, 0.25], rows)
    thresholds[rng.random(rows) < 0.2] = np.inf
    met.about[:, 3] = thresholds
    expected = met.eligible & (most >= met.about[:, 3:])
    sets = np.full(rows, -7, np.int32)
    found = reach(rows, in_bytes)(*met[:5], sets)
    assert found == expected.any()
    if found:
        assert_array_equal(bits(sets), expected)
    else:
        assert_array_equal(sets, -7)


@in_bytes_or_floats
@given(words=st.integers(1, 20), stride=st.sampled_from([16, 32, 48]), seed=seeds)
def test_peaks_are_what_the_formula_says(in_bytes: bool, words: int, stride: int, seed: int) -> None:
    met = meeting(8, words, in_bytes, seed)
    rng = np.random.default_rng(seed)
    met.about[:, 3] = rng.integers(-3, 4, 8)
    least = met.product - met.bound + met.about[:, 3:]
    peaks = np.full((8, stride), -np.inf, np.float32)
    later = rng.random((8, stride)) < 0.5
    peaks[later] = rng.choice(least[np.isfinite(least)], later.sum()) if np.isfinite(least).any() else 0
    expected = peaks.copy()
    here = expected[:, :LANES]
    here[:] = np.where(met.eligible & (least > here), least, here)
    raise_peaks(in_bytes)(*met[:5], peaks)
    assert_array_equal(peaks, expected)


class Alike(NamedTuple):
    """Eight unit queries and the panels of unit rows around the same direction, with true similarities."""

    words: NDArray[np.int32]
    own: NDArray[np.int32]
    about: NDArray[np.float32]
    along: NDArray[np.float32]
    P: NDArray[np.int32]
    facts: NDArray[np.int32]
    true: NDArray[np.float64]
    eligible: NDArray[np.bool_]
    slack: float


def alike(in_bytes: bool, d: int, noise: float, seed: int) -> Alike:
    """Return n = 37 rows: the last panel has lanes without one, whose similarity is NaN here."""
    rng = np.random.default_rng(seed)
    base, n = rng.normal(size=d), 37
    X, Y = (unit(base + noise * rng.normal(size=(m, d))) for m in (8, n))
    labels, own = np.sort(rng.integers(-1, 3, n)).astype(np.int32), rng.integers(0, 3, 8).astype(np.int32)
    rows = np.arange(n)
    made = packed(Y, rows, np.array([n]), labels, rows, rows, in_bytes)
    words, about = np.empty((8, made.P.shape[1]), np.int32), np.empty((8, 4), np.float32)
    for q in range(8):
        about[q, :3] = panels.encode(X[q], in_bytes, words[q])
    if in_bytes:
        words ^= panels.AS_QUERY
    about[:, 1:3] = about[:, 1:3].max(axis=0)
    true, eligible = np.full((8, 3 * LANES), np.nan), np.zeros((8, 3 * LANES), bool)
    true[:, :n] = X.astype(np.float64) @ Y.astype(np.float64).T
    eligible[:, :n] = (labels >= 0) & (labels != own[:, None])
    slack = batch.SLACK * scan.screening_error(d)
    return Alike(words, own, about, X @ made.centres[0], made.P, made.facts, true, eligible, slack)


@rows_at_once
@in_bytes_or_floats
@given(d=st.integers(1, 70), noise=st.sampled_from([0, 1e-6, 1e-3, 0.1, 10]), seed=seeds)
def test_no_row_that_reaches_a_threshold_is_left_out(
    rows: int, in_bytes: bool, d: int, noise: float, seed: int
) -> None:
    some = alike(in_bytes, d, noise, seed)
    similarities = some.true.astype(np.float32)  # what thresholds are made of
    for row in range(0, 37, 6):
        thresholds = similarities[:, row]
        some.about[:, 3] = thresholds - (some.along + np.float32(some.slack))
        for p in range(3):
            lanes = slice(LANES * p, LANES * (p + 1))
            sets = np.zeros(rows, np.int32)
            reach(rows, in_bytes)(some.words, some.P[p], some.facts[p], some.own, some.about, sets)
            eligible = some.eligible[:rows, lanes]
            reached = eligible & (similarities[:rows, lanes] >= thresholds[:rows, None])
            assert (bits(sets) >= reached).all()
            assert (bits(sets) <= eligible).all()


@in_bytes_or_floats
@given(d=st.integers(1, 70), noise=st.sampled_from([0, 1e-6, 1e-3, 0.1, 10]), seed=seeds)
def test_peaks_are_never_above_what_a_row_reaches(in_bytes: bool, d: int, noise: float, seed: int) -> None:
    some = alike(in_bytes, d, noise, seed)
    some.about[:, 3] = some.along - np.float32(some.slack)
    peaks = np.full((8, LANES), -np.inf, np.float32)
    for p in range(3):
        raise_peaks(in_bytes)(some.words, some.P[p], some.facts[p], some.own, some.about, peaks)
    highest = np.where(some.eligible, some.true, -np.inf).reshape(8, 3, LANES).max(axis=1)
    assert_array_equal(np.isneginf(peaks), np.isneginf(highest))
    assert (peaks <= highest).all()


numbers = st.sampled_from([-np.inf, -2.5, -1.0, 0.0, 0.5, 3.0, 3e38, np.nan])


@given(st.lists(numbers, min_size=LANES, max_size=LANES), numbers)
def test_sixteen_numbers_are_counted_and_compared(values: list[float], value: float) -> None:
    row, value = np.array(values, np.float32), np.float32(value)
    assert of_row("count_above")(row, value) == (row > value).sum() + EQUAL * (row == value).sum()
    some = row[row > -np.inf]
    assert of_row("smallest")(row) == some.min(initial=np.inf)
    assert of_row("largest")(row) == some.max(initial=-np.inf)


@given(st.integers(1, 2**LANES - 1))
def test_the_lowest_bit_is_found(mask: int) -> None:
    assert lowest(mask) == next(bit for bit in range(LANES) if mask >> bit & 1)
