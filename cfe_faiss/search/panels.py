"""Panels: rows interleaved by 16, so that a few queries meet 16 rows in one pass over the dimensions.

A matrix product writes its scores to memory before anybody looks at them. Here they stay in registers, and what cannot
reach a query's threshold, or has its label, never leaves them. What could reach it is scored again from the vectors
themselves by :func:`cfe_faiss.dot.similarity`: how rows are screened changes the time, never the result.

Rows are screened in bytes. With c the mean of the rows of a list and x' = x - c,

    q·x = q·c + q·x',    q·x' <= q^·x^ + |q - q^| |x^| + |q| |x' - x^|    (Cauchy-Schwarz)

where q^ and x^ are q and x' rounded to 8-bit integers times a scale of their own. The norms are known, so the bound is
rigorous, and tight, since x' is short where the rows of a list are alike. Where the processor has no instruction for
products of bytes (AVX-512 VNNI), q^ and x^ are q and x' in float32. Either way a row is a sequence of 4-byte words.

In many dimensions, all are turned first, to the directions in which x' varies most. What comes after the first of
these, the head, is short, and by its length alone most rows are out of reach (Cauchy-Schwarz again). Turning in float32
is not exact; by how much goes into the errors |q - q^| and |x' - x^|.
"""

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.jit import fast_kernel, kernel
from cfe_faiss.lists.scan import product
from cfe_faiss.search.meet import FACTS, LANES

AS_QUERY = np.int32(-0x7F7F7F80)
"""Makes the words of a row those of a query, by exclusive or: it adds 128 to each byte."""

_ZERO = 128  # what a query's byte 0 is stored as: the instruction takes one factor without a sign
_LARGEST = 127
_NEXT_TO_NOTHING = np.float32(1e-30)  # below, the inverse of a scale may be infinite

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.int32]
Labels = NDArray[np.int32]


@kernel
def words_of(d: int, in_bytes: bool) -> int:
    """Return how many words a row of length d takes."""
    return -(-d // 4) if in_bytes else d


def room_for(number: int, d: int, in_bytes: bool) -> tuple[Words, Words, NDArray[np.int64], NDArray[np.int64]]:
    """Return memory for so many panels of rows of length d: the last four arrays of :func:`pack`."""
    return (
        np.empty((number, words_of(d, in_bytes), LANES), np.int32),
        np.empty((number, FACTS, LANES), np.int32),
        np.empty((number, LANES), np.int64),
        np.empty((number, LANES), np.int64),
    )


@fast_kernel
def encode(x: Floats, in_bytes: bool, words: Words) -> tuple[np.float32, np.float32, np.float32]:
    """Write a row as words, and return its scale, its length, and how far it is from what was written.

    The bytes of a row are its values divided by its scale, -127..127, in words of four.
    """
    length = np.float32(np.sqrt(product(x, x)))
    if not in_bytes:
        words[:] = x.view(np.int32)
        return np.float32(1), length, np.float32(0)
    # Without their signs, floats are in the order of their bits, and a maximum of integers takes no branches.
    bits, greatest = x.view(np.int32), np.zeros(1, np.int32)
    for i in range(x.shape[0]):
        greatest[0] = max(greatest[0], bits[i] & np.int32(0x7FFFFFFF))
    largest = greatest.view(np.float32)[0]
    scale = np.float32(largest / _LARGEST) if largest > _NEXT_TO_NOTHING else np.float32(1)
    inverse = np.float32(1) / scale
    codes = words.view(np.int8)
    codes[x.shape[0] :] = 0
    error = np.float32(0)
    for i in range(x.shape[0]):
        code = np.rint(x[i] * inverse)
        codes[i] = np.int8(code)
        error += (x[i] - code * scale) ** 2
    return scale, length, np.float32(np.sqrt(error))


def blur(d: int) -> float:
    """Bound how far a vector of length 1 is from where it should be after it was turned in float32.

    The classical bound of a product of d terms (Higham, Accuracy and Stability of Numerical Algorithms, section 3.5),
    for d of them, with a matrix that is rounded to float32 and whose columns have length 1.
    """
    return float((d + 16) * 2.0**-24 * d**0.5)


@kernel
def turn(X: Floats, R: Floats) -> Floats:
    """Return a few rows times a matrix, (d, d)."""
    turned = np.zeros_like(X)
    for r in range(X.shape[0]):
        for i in range(X.shape[1]):
            for j in range(X.shape[1]):
                turned[r, j] += X[r, i] * R[i, j]
    return turned


@kernel
def centre(X: Floats, borders: Ints, centres: Floats) -> Floats:
    """Write the mean of each list, whose rows are ``borders[j]:borders[j + 1]``, and return the rows without it."""
    rest = np.empty_like(X)
    for j in range(borders.shape[0] - 1):
        centres[j] = 0
        for r in range(borders[j], borders[j + 1]):
            for i in range(X.shape[1]):
                centres[j, i] += X[r, i]
        centres[j] /= max(1, borders[j + 1] - borders[j])
        for r in range(borders[j], borders[j + 1]):
            for i in range(X.shape[1]):
                rest[r, i] = X[r, i] - centres[j, i]
    return rest


@kernel
def pack(
    X: Floats,
    rows: Ints,
    labels: Labels,
    addresses: Ints,
    ids: Ints,
    in_bytes: bool,
    head: int,
    blur: float,
    borders: Ints,
    first: int,
    P: Words,
    facts: Words,
    lane_addresses: Ints,
    lane_ids: Ints,
) -> None:
    """Interleave the rows of lists into panels from panel ``first`` on; each list begins a panel of its own.

    Parameters
    ----------
    X, rows
        Rows of the lists without the lists' means, one list after the other, (m, d): list j has
        ``borders[j]:borders[j + 1]``. And their storage rows.
    labels, addresses, ids
        Of all storage rows.
    head, blur
        Words of the head; and how far a row of length 1 may be from where it should be.
    P, facts, lane_addresses, lane_ids
        Panels, (panels, words, 16), their facts, (panels, 7, 16), and address and id of the row in each lane,
        (panels, 16). A lane without a row reaches nothing.
    """
    panel = first
    float_facts = facts.view(np.float32)
    words = np.empty(P.shape[1], np.int32)
    codes = words.view(np.int8)
    for j in range(borders.shape[0] - 1):
        for start in range(borders[j], borders[j + 1], LANES):
            for lane in range(LANES):
                r = start + lane
                if r >= borders[j + 1]:
                    P[panel, :, lane] = 0
                    facts[panel, :, lane] = 0
                    facts[panel, FACTS - 1, lane] = UNKNOWN
                    continue
                scale, length, error = encode(X[r], in_bytes, words)
                error += blur * length
                in_head, in_rest = 0, 0
                if in_bytes:
                    for i in range(4 * head):
                        in_head += codes[i]
                    for i in range(4 * head, codes.shape[0]):
                        in_rest += codes[i]
                for i in range(words.shape[0]):
                    P[panel, i, lane] = words[i]
                facts[panel, 0, lane] = -_ZERO * (in_head + in_rest)
                float_facts[panel, 1, lane] = scale
                float_facts[panel, 2, lane] = error
                float_facts[panel, 3, lane] = length + error
                facts[panel, 4, lane] = -_ZERO * in_rest
                float_facts[panel, 5, lane] = length_after(X[r], head, in_bytes) + blur * length
                facts[panel, FACTS - 1, lane] = labels[rows[r]]
                lane_addresses[panel, lane] = addresses[rows[r]]
                lane_ids[panel, lane] = ids[rows[r]]
            panel += 1


@kernel
def length_after(x: Floats, head: int, in_bytes: bool) -> np.float32:
    """Return the length of what comes after the first ``head`` words of a row."""
    rest = x[min(4 * head if in_bytes else head, x.shape[0]) :]
    return np.float32(np.sqrt(product(rest, rest)))
