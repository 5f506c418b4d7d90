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
from packed import packed, turning
from reference import unit

from cfe_faiss.lists import scan
from cfe_faiss.search import batch, meet, panels
from cfe_faiss.search.meet import EQUAL, FACTS, LANES, QUERY_FACTS

Call = Callable[..., Any]

seeds = st.integers(0, 2**32 - 1)
in_bytes_or_floats = pytest.mark.parametrize(
    "in_bytes", [False, pytest.param(True, marks=pytest.mark.skipif(not meet.HAS_BYTES, reason="no VNNI"))]
)
rows_at_once = pytest.mark.parametrize(("rows", "mixed"), [(1, False), (2, False), (4, False), (8, False), (8, True)])
peaks_at_once = pytest.mark.parametrize(("rows", "mixed"), [(1, False), (4, False), (8, False), (8, True)])
strides = st.sampled_from([16, 32, 48])


def of_kind(name: str, rows: int, in_bytes: bool, mixed: bool) -> Any:
    kind = "bytes" if in_bytes else "floats"
    return getattr(meet, f"{name}_mixed_{kind}" if mixed else f"{name}_{kind}_{rows}")


@cache
def reach(rows: int, in_bytes: bool, mixed: bool) -> Call:
    intrinsic = of_kind("reach", rows, in_bytes, mixed)

    @numba.njit
    def call(x: Any, y: Any, facts: Any, own: Any, about: Any, head: int, sets: Any) -> bool:
        return intrinsic(x.ctypes, y.ctypes, y.shape[0], head, facts.ctypes, own.ctypes, about.ctypes, sets.ctypes)

    return call


@cache
def raise_peaks(rows: int, in_bytes: bool, mixed: bool) -> Call:
    intrinsic = of_kind("raise", rows, in_bytes, mixed)

    @numba.njit
    def call(x: Any, y: Any, facts: Any, own: Any, about: Any, peaks: Any, tops: Any) -> None:
        strides = peaks.strides[0] // 4, tops.strides[0] // 4
        panel = y.ctypes, y.shape[0], facts.ctypes
        intrinsic(x.ctypes, *panel, own.ctypes, about.ctypes, peaks.ctypes, strides[0], tops.ctypes, strides[1])

    return call


@cache
def of_row(name: str) -> Call:
    intrinsic = getattr(meet, name)
    if name in ("count_above", "at_least"):
        return numba.njit(lambda row, value: intrinsic(row.ctypes, value))
    return numba.njit(lambda row: intrinsic(row.ctypes))


@cache
def products(rows: int) -> Call:
    intrinsic = getattr(meet, f"products_{rows}")
    return numba.njit(lambda x, y, out, stride: intrinsic(x.ctypes, y.ctypes, y.shape[0], out.ctypes, stride))


@cache
def put(with_instruction: bool) -> Call:
    @numba.njit
    def call(mask: int, first: int, out: Any) -> int:
        return meet.put(np.int32(mask), np.int32(first), out.ctypes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meet, "_HAS_COMPRESS", with_instruction)
        call(0, 0, np.empty(LANES, np.int32))
    return call


def bits(sets: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return which lanes are in each set, (rows, 16)."""
    return (sets[:, None] >> np.arange(LANES)) & 1 == 1


class Meeting(NamedTuple):
    """Queries, a panel, and what the formula says of them; every sum and product is exact in float32.

    ``of_head`` is the most that the product and the rest's lengths allow after the head, without the bound.
    """

    x: NDArray[np.int32]
    y: NDArray[np.int32]
    facts: NDArray[np.int32]
    own: NDArray[np.int32]
    about: NDArray[np.float32]
    head: int
    of_head: NDArray[np.float64]
    product: NDArray[np.float64]
    bound: NDArray[np.float64]
    eligible: NDArray[np.bool_]


def meeting(rows: int, words: int, in_bytes: bool, mixed: bool, seed: int) -> Meeting:
    rng = np.random.default_rng(seed)
    if in_bytes:
        X = rng.integers(0, 256, (rows, 4 * words)).astype(np.uint8)
        Y = rng.integers(-127, 128, (LANES, 4 * words)).astype(np.int8)
        first = rng.integers(-(2**20), 2**20, LANES).astype(np.int32)
    else:
        X, Y = (rng.integers(-3, 4, (m, words)).astype(np.float32) for m in (rows, LANES))
        first = rng.integers(-3, 4, LANES).astype(np.float32)
    scale = rng.choice([0.5, 1, 2], LANES)
    scale[rng.random(LANES) < 0.1] = np.nan
    error, length, rest = rng.integers(0, 4, (3, LANES))
    own_length, own_error, own_rest = rng.integers(0, 4, (3, rows))
    head = int(rng.integers(0, words + 1)) if in_bytes else words
    later = rng.integers(-(2**20), 2**20, LANES).astype(np.int32) * np.int32(head < words)  # nothing is left: zero
    labels, own = rng.integers(-1, 3, LANES), rng.integers(0, 3, rows)

    facts = np.empty((FACTS, LANES), np.int32)
    facts[0] = first.view(np.int32)
    facts[1:4] = np.array([scale, error, length], np.float32).view(np.int32)
    facts[4], facts[5], facts[6] = later, rest.astype(np.float32).view(np.int32), labels
    X_exact, Y_exact, cut = X.astype(np.float64), Y.astype(np.float64), (4 if in_bytes else 1) * head
    product = (first + X_exact @ Y_exact.T) * scale
    of_head = (first - later + X_exact[:, :cut] @ Y_exact[:, :cut].T) * scale + rest * own_rest[:, None]
    bound = error * own_length[:, None] + length * own_error[:, None]
    about = np.array([own_length, own_error, np.ones(rows), np.zeros(rows), own_rest], np.float32).T.copy()
    assert about.shape[1] == QUERY_FACTS
    y = np.ascontiguousarray(Y.view(np.int32).T)
    eligible = (labels >= 0) & (labels != (own if mixed else own[:1].repeat(rows))[:, None])
    return Meeting(X.view(np.int32), y, facts, own.astype(np.int32), about, head, of_head, product, bound, eligible)


@rows_at_once
@in_bytes_or_floats
@given(words=st.integers(1, 20), seed=seeds)
def test_sets_are_what_the_formula_says(rows: int, mixed: bool, in_bytes: bool, words: int, seed: int) -> None:
    met = meeting(rows, words, in_bytes, mixed, seed)
    rng = np.random.default_rng(seed)
    most = met.product + met.bound
    # The number of one of the lanes itself, and some just above it: those reach and those do not.
    thresholds = most[np.arange(rows), rng.integers(0, LANES, rows)] + rng.choice([0, 0.25], rows)
    thresholds[rng.random(rows) < 0.2] = np.inf
    met.about[:, 3] = thresholds
    expected = met.eligible & (most >= met.about[:, 3:4])
    sets = np.full(rows, -7, np.int32)
    found = reach(rows, in_bytes, mixed)(*met[:6], sets)
    whole = met.head == len(met.y)
    hoping = met.eligible & (met.of_head + met.bound >= met.about[:, 3:4])
    assert found == (expected.any() and (whole or hoping.any()))
    if found:
        assert_array_equal(bits(sets), expected)
    else:
        assert_array_equal(sets, -7)


@peaks_at_once
@in_bytes_or_floats
@given(words=st.integers(1, 20), stride=strides, tops_stride=strides, seed=seeds)
def test_peaks_and_tops_are_what_the_formula_says(
    rows: int, mixed: bool, in_bytes: bool, words: int, stride: int, tops_stride: int, seed: int
) -> None:
    met = meeting(rows, words, in_bytes, mixed, seed)
    rng = np.random.default_rng(seed)
    met.about[:, 3] = rng.integers(-3, 4, rows)
    least, most = (met.product + sign * met.bound + met.about[:, 3:4] for sign in (-1, 1))
    peaks, tops = np.full((rows, stride), -np.inf, np.float32), np.full((rows, tops_stride), -7, np.float32)
    later = rng.random((rows, stride)) < 0.5
    peaks[later] = rng.choice(least[np.isfinite(least)], later.sum()) if np.isfinite(least).any() else 0
    expected = peaks.copy()
    here = expected[:, :LANES]
    here[:] = np.where(met.eligible & (least > here), least, here)
    raise_peaks(rows, in_bytes, mixed)(*met[:5], peaks, tops)
    assert_array_equal(peaks, expected)
    assert_array_equal(tops[:, :LANES], np.where(met.eligible, most, -np.inf))
    assert_array_equal(tops[:, LANES:], -7)


class Alike(NamedTuple):
    """Eight unit queries and the panels of unit rows around the same direction, with true similarities.

    Of each query, ``along`` is its product with the mean of the rows.
    """

    words: NDArray[np.int32]
    own: NDArray[np.int32]
    about: NDArray[np.float32]
    along: NDArray[np.float32]
    P: NDArray[np.int32]
    facts: NDArray[np.int32]
    true: NDArray[np.float64]
    eligible: NDArray[np.bool_]
    slack: float
    head: int


def alike(in_bytes: bool, mixed: bool, d: int, noise: float, seed: int) -> Alike:
    """Return n = 37 rows: the last panel has lanes without one, whose similarity is NaN here."""
    rng = np.random.default_rng(seed)
    base, n = rng.normal(size=d), 37
    X, Y = (unit(base + noise * rng.normal(size=(m, d))) for m in (8, n))
    labels, own = np.sort(rng.integers(-1, 3, n)).astype(np.int32), rng.integers(0, 3, 8).astype(np.int32)
    own[:] = own if mixed else own[0]
    rows = np.arange(n)
    R, all_words = turning(rng, d) if in_bytes else np.eye(d, dtype=np.float32), panels.words_of(d, in_bytes)
    head = int(rng.integers(1, all_words + 1)) if in_bytes else all_words
    made = packed(Y, rows, np.array([n]), labels, rows, rows, in_bytes, head=head, R=R)
    words, about = np.empty((8, made.P.shape[1]), np.int32), np.empty((8, QUERY_FACTS), np.float32)
    for q, turned in enumerate(X @ R):
        scale, length, error = panels.encode(turned, in_bytes, words[q])
        rest, blur = panels.length_after(turned, head, in_bytes), panels.blur(d)
        about[q, :3] = (length + blur) / scale, (error + blur) / scale, 1 / scale
        about[q, 4] = (rest + blur) / scale
    if in_bytes:
        words ^= panels.AS_QUERY
    true, eligible = np.full((8, 3 * LANES), np.nan), np.zeros((8, 3 * LANES), bool)
    true[:, :n] = X.astype(np.float64) @ Y.astype(np.float64).T
    eligible[:, :n] = (labels >= 0) & (labels != own[:, None])
    slack = batch.SLACK * scan.screening_error(d)
    return Alike(words, own, about, X @ made.centres[0], made.P, made.facts, true, eligible, slack, head)


alikes = given(d=st.integers(1, 70), noise=st.sampled_from([0, 1e-6, 1e-3, 0.1, 10]), seed=seeds)


@rows_at_once
@in_bytes_or_floats
@alikes
def test_no_row_that_reaches_a_threshold_is_left_out(
    rows: int, mixed: bool, in_bytes: bool, d: int, noise: float, seed: int
) -> None:
    some = alike(in_bytes, mixed, d, noise, seed)
    similarities = some.true.astype(np.float32)  # what thresholds are made of
    for row in range(0, 37, 6):
        thresholds = similarities[:, row]
        some.about[:, 3] = (thresholds - (some.along + np.float32(some.slack))) * some.about[:, 2]
        for p in range(3):
            lanes = slice(LANES * p, LANES * (p + 1))
            sets = np.zeros(rows, np.int32)
            panel = some.words, some.P[p], some.facts[p], some.own, some.about
            reach(rows, in_bytes, mixed)(*panel, some.head, sets)
            eligible = some.eligible[:rows, lanes]
            reached = eligible & (similarities[:rows, lanes] >= thresholds[:rows, None])
            assert (bits(sets) >= reached).all()
            assert (bits(sets) <= eligible).all()


@peaks_at_once
@in_bytes_or_floats
@alikes
def test_what_a_row_reaches_lies_between_its_peak_and_its_top(
    rows: int, mixed: bool, in_bytes: bool, d: int, noise: float, seed: int
) -> None:
    some = alike(in_bytes, mixed, d, noise, seed)
    own_scale = some.about[:rows, 2:3]
    some.about[:, 3] = (some.along - np.float32(some.slack)) * some.about[:, 2]
    peaks, tops = np.full((rows, 3 * LANES), -np.inf, np.float32), np.full((rows, 3 * LANES), -7, np.float32)
    for p in range(3):
        of_panel = peaks[:, LANES * p :], tops[:, LANES * p :]
        raise_peaks(rows, in_bytes, mixed)(some.words, some.P[p], some.facts[p], some.own, some.about, *of_panel)
    eligible = some.eligible[:rows]
    true = np.where(eligible, some.true[:rows], -np.inf)
    assert_array_equal(np.isneginf(peaks), ~eligible)
    assert_array_equal(np.isneginf(tops), ~eligible)
    assert (peaks <= true * own_scale).all()
    # Whatever row's peak becomes a threshold, as the sweep takes it: none that is as similar is left out.
    thresholds = (peaks - 2 * some.slack * own_scale).astype(np.float32)
    similarities = true.astype(np.float32)
    as_similar = eligible[:, :, None] & (similarities[:, :, None] >= similarities[:, None])
    assert (tops[:, :, None] >= thresholds[:, None])[as_similar].all()


numbers = st.sampled_from([-np.inf, -2.5, -1.0, 0.0, 0.5, 3.0, 3e38, np.nan])


@given(st.lists(numbers, min_size=LANES, max_size=LANES), numbers)
def test_sixteen_numbers_are_counted_and_compared(values: list[float], value: float) -> None:
    row, value = np.array(values, np.float32), np.float32(value)
    assert of_row("count_above")(row, value) == (row > value).sum() + EQUAL * (row == value).sum()
    assert_array_equal(bits(np.array([of_row("at_least")(row, value)], np.int32))[0], row >= value)
    some = row[row > -np.inf]
    assert of_row("smallest")(row) == some.min(initial=np.inf)
    assert of_row("largest")(row) == some.max(initial=-np.inf)


@pytest.mark.parametrize("with_instruction", [False, True])
@given(mask=st.integers(0, 2**LANES - 1), higher=st.integers(0, 2**15 - 1), first=st.integers(0, 2**31 - 1 - LANES))
def test_the_numbers_of_bits_are_put_side_by_side(with_instruction: bool, mask: int, higher: int, first: int) -> None:
    if with_instruction and not meet._HAS_COMPRESS:
        pytest.skip("this processor has no instruction for it")
    out = np.full(3 * LANES, -7, np.int32)
    expected = first + np.flatnonzero(mask >> np.arange(LANES) & 1)
    # What lies beyond the 16 bits does not count.
    assert put(with_instruction)(mask | higher << LANES, first, out[LANES:]) == len(expected)
    assert_array_equal(out[LANES : LANES + len(expected)], expected)
    assert_array_equal(out[:LANES], -7)
    assert_array_equal(out[2 * LANES :], -7)


@pytest.mark.parametrize("rows", [1, 8])
@given(d=st.integers(0, 70), more=st.integers(0, 3), seed=seeds)
def test_products_with_a_panel_of_floats_are_those_of_its_rows(rows: int, d: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = (rng.integers(-9, 10, shape).astype(np.float32) for shape in ((rows, d), (d, LANES)))
    out = np.full((rows + 2, LANES + more), -7, np.float32)
    expected = out.copy()
    expected[1:-1, :LANES] = X @ y
    products(rows)(X.view(np.int32), y.view(np.int32), out[1:], LANES + more)
    assert_array_equal(out, expected)
