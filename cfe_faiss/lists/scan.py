"""The running top-k, and how far a float32 product may be from a similarity.

Every scan works in two steps. A fast float32 product (BLAS, or a vectorised loop) screens a pair; a pair that could
still matter is scored by :func:`cfe_faiss.dot.similarity`, whose bits depend on nothing but the two rows. What an
index returns is therefore the same whichever way its rows were reached, blocked or threaded, and ties are ties
everywhere.

Kernels for Numba stay only for the modules that still call them from theirs: :mod:`cfe_faiss.search.sweep`,
:mod:`~cfe_faiss.search.panels`, :mod:`~cfe_faiss.search.grouping`, :mod:`~cfe_faiss.search.single`,
:mod:`~cfe_faiss.coarse.nearby` and :meth:`cfe_faiss.lists.storage.Storage.sort_lists`.
"""

import numpy as np
from numba import carray
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss.jit import fast_kernel, kernel
from cfe_faiss.lists.codecs import byte_pointer, float_pointer

PADDING = np.finfo(np.float32).min
"""What FAISS writes as the similarity of a place that holds no id (inner product)."""

NO_ID = np.iinfo(np.int64).max
"""Id of a place of a heap that is still empty."""

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@kernel
def screening_error(d: int) -> float:
    """Bound |fl(x·y) - similarity(x, y)| for unit rows of length d, summed in float32 in any order.

    The classical bound is d * 2**-24 for the sum of products (Higham, Accuracy and Stability of Numerical Algorithms,
    section 3.1); the rest covers the rounding of ``similarity`` and norms that are 1 up to rounding.
    """
    return (d + 16) * 2.0**-24


@fast_kernel
def product(x: Floats, y: Floats) -> np.float32:
    """Return the inner product in float32, summed in any order."""
    total = np.float32(0)
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@kernel
def row_at(address: int, row: int, d: int) -> Floats:
    """Return row ``row`` of a float32 matrix at ``address``.

    Unlike a slice of an array it counts no references, which would take longer than a short product. The caller has to
    keep the matrix alive.
    """
    view: Floats = carray(float_pointer(address + 4 * d * row), (d,))
    return view


# --- running top-k: a heap per query, worst place first -------------------------------------------------------------


def empty_heaps(nq: int, k: int) -> tuple[Floats, Ints]:
    """Return D and I for ``nq`` queries, every place still empty."""
    return np.full((nq, k), PADDING, np.float32), np.full((nq, k), NO_ID, np.int64)


write_sorted = _native.write_sorted


@kernel
def worse(s: np.float32, i: np.int64, t: np.float32, j: np.int64) -> bool:
    """Return whether similarity s with id i comes after t with j."""
    return bool(s < t or (s == t and i > j))


@kernel
def _sift_down(D: Floats, I: Ints, place: int, size: int) -> None:
    s, i = D[place], I[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and worse(D[child + 1], I[child + 1], D[child], I[child]):
            child += 1
        if not worse(D[child], I[child], s, i):
            break
        D[place], I[place] = D[child], I[child]
        place = child
    D[place], I[place] = s, i


@kernel
def offer(D: Floats, I: Ints, s: np.float32, i: np.int64) -> None:
    """Take similarity s with id i into the heap if it belongs there."""
    if worse(D[0], I[0], s, i):
        D[0], I[0] = s, i
        _sift_down(D, I, 0, D.shape[0])


@kernel
def offer_once(D: Floats, I: Ints, s: np.float32, i: np.int64) -> None:
    """Take similarity s with id i into the heap if it belongs there and is not in it yet."""
    if worse(D[0], I[0], s, i):
        for place in range(D.shape[0]):
            if I[place] == i:
                return
        D[0], I[0] = s, i
        _sift_down(D, I, 0, D.shape[0])


@kernel
def _worst_first(D: Floats, I: Ints) -> bool:
    """Return whether a heap, D and I of shape (k,), is in order already."""
    place = 1
    while place < D.shape[0] and not worse(D[place], I[place], D[place - 1], I[place - 1]):
        place += 1
    return bool(place >= D.shape[0])


@kernel
def _sort_best_first(D: Floats, I: Ints) -> None:
    """Put a heap, D and I of shape (k,), in the other order."""
    for size in range(D.shape[0] - 1, 0, -1):
        D[0], D[size], I[0], I[size] = D[size], D[0], I[size], I[0]
        _sift_down(D, I, 0, size)


@kernel
def sort_heaps(D: Floats, I: Ints) -> None:
    """Turn each row's heap into FAISS's order in place: best first, then padding with id -1."""
    k = D.shape[1]
    for q in range(D.shape[0]):
        if _worst_first(D[q], I[q]):
            for place in range(k // 2):
                other = k - 1 - place
                D[q, place], D[q, other], I[q, place], I[q, other] = D[q, other], D[q, place], I[q, other], I[q, place]
        else:
            _sort_best_first(D[q], I[q])
        for place in range(k):
            if I[q, place] == NO_ID:
                I[q, place] = -1


# --- rows where FAISS keeps them --------------------------------------------------------------------------------------


@kernel
def list_of(row: int, starts: Ints) -> int:
    """Return the list that holds storage row ``row``: the last one that starts at or before it and is not empty."""
    low, high = 0, starts.shape[0] - 1
    while low + 1 < high:
        middle = (low + high) // 2
        if starts[middle] <= row:
            low = middle
        else:
            high = middle
    return low


@kernel
def lists_of(rows: Ints, starts: Ints) -> Ints:
    """Return the list that holds each of some storage rows; fast where rows of a list follow each other."""
    lists = np.empty(rows.shape[0], np.int64)
    j = 0
    for i in range(rows.shape[0]):
        if not starts[j] <= rows[i] < starts[j + 1]:
            j = list_of(rows[i], starts)
        lists[i] = j
    return lists


@kernel
def permute_lists(order: Ints, starts: Ints, addresses: Ints, size: int) -> None:
    """Put item ``order[r]`` of ``size`` bytes at storage row r, in place; ``order`` moves none out of its list."""
    for j in range(addresses.shape[0]):
        first, last = starts[j], starts[j + 1]
        moved = False
        for r in range(first, last):
            moved = moved or order[r] != r
        if moved:
            items = carray(byte_pointer(addresses[j]), (last - first, size))
            old = items.copy()
            for r in range(first, last):
                items[r - first] = old[order[r] - first]
