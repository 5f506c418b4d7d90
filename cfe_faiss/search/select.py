"""The best of many scores, found and put in order by counting: without a branch that the processor would have to guess.

Of every 16 scores side by side only the largest of each lane is kept. What k of these peaks reach is reached by the
k-th best of all scores, too, and few others reach it. These few are put in order: the rank of each is how many are
better.
"""

import numpy as np
from numba import carray
from numpy.typing import NDArray

from cfe_faiss.jit import kernel
from cfe_faiss.lists.codecs import float_pointer, int_pointer, label_pointer
from cfe_faiss.search import meet
from cfe_faiss.search.meet import LANES

PEAKS_FOR_EACH = 3
"""Peaks for each score that is wanted."""

LARGEST_K = 128
"""For more results, heaps are as good."""

_HALVINGS = 6

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.int32]
Flags = NDArray[np.bool_]


@kernel
def reached(peaks: int, rows: int, width: int, k: int, low: int, high: int) -> None:
    """Write for each row of peaks a number that at least k of them reach, and not many more: -inf if there are fewer.

    Arguments are addresses: of (rows, width) peaks, ``width`` a multiple of 16, where -inf does not count; and of
    (rows,) numbers, of which the result is written to ``low``.
    """
    lows, highs = carray(float_pointer(low), (rows,)), carray(float_pointer(high), (rows,))
    for r in range(rows):
        least, most, count = np.float32(np.inf), np.float32(-np.inf), 0
        for place in range(width * r, width * (r + 1), LANES):
            some = float_pointer(peaks + 4 * place)
            least, most = min(least, meet.smallest(some)), max(most, meet.largest(some))
            count += meet.count_above(some, np.float32(-np.inf)) % meet.EQUAL
        lows[r] = least if count >= k else -np.inf
        highs[r] = most if count >= k else -np.inf
    for _ in range(_HALVINGS):  # of all rows in turn: none waits for the step before
        for r in range(rows):
            middle = np.float32(0.5) * (lows[r] + highs[r])
            count = 0
            for place in range(width * r, width * (r + 1), LANES):
                count += meet.count_above(float_pointer(peaks + 4 * place), middle) % meet.EQUAL
            lows[r], highs[r] = middle if count >= k else lows[r], highs[r] if count >= k else middle


@kernel
def near_best(scores: Floats, k: int, margin: float, peaks: Floats, places: Words) -> int:
    """Write the places of all scores that are no more than ``margin`` below the k-th best, and return how many.

    Those of a few others may be among them. Where fewer than k are finite, it is all that are.

    Parameters
    ----------
    scores
        (n,), n a multiple of 16; -inf where there is none.
    peaks, places
        Room for ``PEAKS_FOR_EACH`` * k numbers, up to a multiple of 16, and for n + 16 places.
    """
    n, width, bounds = scores.shape[0], peaks.shape[0], np.empty(2, np.float32)
    _raise(scores, peaks)
    reached(peaks.ctypes.data, 1, width, k, bounds.ctypes.data, bounds.ctypes.data + 4)
    threshold, m = max(np.float32(bounds[0] - margin), np.finfo(np.float32).min), 0
    for start in range(0, n, LANES):
        mask = meet.at_least(float_pointer(scores.ctypes.data + 4 * start), threshold)
        m += meet.put(mask, np.int32(start), label_pointer(places.ctypes.data + 4 * m))
    return m


@kernel
def _raise(scores: Floats, peaks: Floats) -> None:
    """Write the largest of the scores that share a peak."""
    peaks[:] = -np.inf
    column = 0
    for start in range(0, scores.shape[0], LANES):
        for lane in range(LANES):
            s = scores[start + lane]
            peaks[column + lane] = s if s > peaks[column + lane] else peaks[column + lane]
        column = column + LANES if column + LANES < peaks.shape[0] else 0


@kernel
def put_in_order(m: int, scores: int, ids: int, ranked: int, ranked_ids: int) -> None:
    """Write m scores and their ids, best first and of equals the smallest id, where ``ranked`` and ``ranked_ids`` are.

    The arguments are addresses. There is room for whole times 16 scores, of which those after the m-th are overwritten.
    """
    padded = -(-m // LANES) * LANES
    of, of_ids = carray(float_pointer(scores), (padded,)), carray(int_pointer(ids), (padded,))
    to, to_ids = carray(float_pointer(ranked), (padded,)), carray(int_pointer(ranked_ids), (padded,))
    for c in range(m, padded):
        of[c] = -np.inf
    for c in range(m):
        s = of[c]
        better = 0
        for start in range(0, padded, LANES):
            better += meet.count_above(float_pointer(scores + 4 * start), s)
        rank = better % meet.EQUAL
        if better >= 2 * meet.EQUAL:
            for e in range(m):
                rank += of[e] == s and of_ids[e] < of_ids[c]
        to[rank], to_ids[rank] = s, of_ids[c]


@kernel
def room(rows: int, n: int, k: int) -> tuple[Floats, Floats, Words, Floats, Ints, Floats, Ints]:
    """Return what :func:`best` works with, for so many rows of n scores."""
    columns, padded = -(-PEAKS_FOR_EACH * k // LANES), -(-n // LANES) * LANES
    return (
        np.empty((rows, columns * LANES), np.float32),
        np.empty((2, rows), np.float32),
        np.empty(padded + LANES, np.int32),
        np.empty(padded, np.float32),
        np.empty(padded, np.int64),
        np.empty(padded, np.float32),
        np.empty(padded, np.int64),
    )


@kernel
def best(
    scores: Floats, found: Ints, done: Flags, memory: tuple[Floats, Floats, Words, Floats, Ints, Floats, Ints]
) -> None:
    """Write the places of the best of each row of many scores, best first, and whether that could be done so.

    It could not where too few scores, or far too many, come near: there may be fewer finite ones, or many are equal.

    Parameters
    ----------
    scores
        (rows, n), n a multiple of 16; -inf where there is none.
    found, done
        (rows, k), k <= ``LARGEST_K``, and (rows,).
    memory
        As from :func:`room`, for at least as many rows.
    """
    peaks, bounds, places, kept, kept_ids, ranked, ranked_ids = memory
    (rows, n), k, width = scores.shape, found.shape[1], peaks.shape[1]
    for r in range(rows):
        _raise(scores[r], peaks[r])
    reached(peaks.ctypes.data, rows, width, k, bounds[0].ctypes.data, bounds[1].ctypes.data)
    for r in range(rows):
        threshold, m = bounds[0, r], 0
        if threshold > -np.inf:
            for start in range(0, n, LANES):
                mask = meet.at_least(float_pointer(scores.ctypes.data + 4 * (n * r + start)), threshold)
                m += meet.put(mask, np.int32(start), label_pointer(places.ctypes.data + 4 * m))
        done[r] = k <= m <= LANES + 4 * k
        if done[r]:
            for c in range(m):
                kept[c], kept_ids[c] = scores[r, places[c]], places[c]
            put_in_order(m, kept.ctypes.data, kept_ids.ctypes.data, ranked.ctypes.data, ranked_ids.ctypes.data)
            found[r] = ranked_ids[:k]
