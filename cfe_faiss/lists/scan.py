"""Kernels: the running top-k, and the scans that feed it.

Every scan works in two steps. A fast float32 product (BLAS, or a vectorised loop) screens a pair; a pair that could
still matter is scored by :func:`cfe_faiss.dot.similarity`, whose bits depend on nothing but the two rows. What an
index returns is therefore the same whichever way its rows were reached, blocked or threaded, and ties are ties
everywhere.
"""

import numpy as np
from numba import carray
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.dot import similarity
from cfe_faiss.jit import fast_kernel, kernel
from cfe_faiss.lists.codecs import (
    byte_pointer,
    decode,
    float_pointer,
    int_pointer,
    score,
    screen,
    weigh,
)
from cfe_faiss.search import meet

PADDING = np.finfo(np.float32).min
"""What FAISS writes as the similarity of a place that holds no id (inner product)."""

NO_ID = np.iinfo(np.int64).max
"""Id of a place of a heap that is still empty."""

_CHUNK = 64
_AHEAD = 8  # rows, of what is written next to scattered places

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Labels = NDArray[np.int32]


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


@kernel
def empty_heaps(nq: int, k: int) -> tuple[Floats, Ints]:
    """Return D and I for ``nq`` queries, every place still empty."""
    D, I = np.empty((nq, k), np.float32), np.empty((nq, k), np.int64)
    D[:], I[:] = PADDING, NO_ID
    return D, I


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


@kernel
def write_sorted(D: Floats, I: Ints, order: Ints, found_D: Floats, found_I: Ints) -> None:
    """Write each row's heap q, as :func:`sort_heaps` turns it, to the row ``order[q]`` of what was found."""
    k = D.shape[1]
    for q in range(D.shape[0]):
        later = order[min(q + _AHEAD, D.shape[0] - 1)]
        meet.prefetch(found_D.ctypes.data + 4 * k * later)
        meet.prefetch(found_I.ctypes.data + 8 * k * later)
        first, step = k - 1, -1
        if not _worst_first(D[q], I[q]):
            _sort_best_first(D[q], I[q])
            first, step = 0, 1
        r = order[q]
        for place in range(k):
            i = I[q, first + step * place]
            found_D[r, place], found_I[r, place] = D[q, first + step * place], i if i != NO_ID else -1


# --- tiles: a block of queries against a block of rows, both sorted by label ------------------------------------------


@kernel
def _first_at_least(labels: Labels, label: np.int32, low: int, high: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if labels[middle] < label:
            low = middle + 1
        else:
            high = middle
    return low


@fast_kernel
def _any_reaches(scores: Floats, start: int, stop: int, threshold: np.float32) -> bool:
    count = 0
    for c in range(start, stop):
        count += scores[c] >= threshold
    return count > 0


@fast_kernel
def _any_reaches_either(scores: Floats, start: int, stop: int, threshold: np.float32, thresholds: Floats) -> bool:
    count = 0
    for c in range(start, stop):
        count += (scores[c] >= threshold) | (scores[c] >= thresholds[c])
    return count > 0


@kernel
def eligible_ranges(label: np.int32, labels: Labels) -> tuple[int, int, int, int]:
    """Return the two ranges of places whose (sorted) label is known and differs from ``label``."""
    n = labels.shape[0]
    known = _first_at_least(labels, np.int32(UNKNOWN + 1), 0, n)
    if label == UNKNOWN:
        return known, known, n, n
    own = _first_at_least(labels, label, known, n)
    return known, own, _first_at_least(labels, np.int32(label + 1), own, n), n


@kernel
def scan_tile(
    S: Floats, X: Floats, Y: Floats, labels_x: Labels, labels_y: Labels, ids_y: Ints, D: Floats, I: Ints, slack: float
) -> None:
    """Offer the eligible rows of Y to the heaps (D, I) of the rows of X; S = X @ Y.T screens, to within ``slack``."""
    for r in range(S.shape[0]):
        scores = S[r]
        a, b, c, d = eligible_ranges(labels_x[r], labels_y)
        for low, high in ((a, b), (c, d)):
            for start in range(low, high, _CHUNK):
                stop = min(start + _CHUNK, high)
                threshold = np.float32(D[r, 0] - slack)
                if not _any_reaches(scores, start, stop, threshold):
                    continue
                for j in range(start, stop):
                    if scores[j] >= np.float32(D[r, 0] - slack):
                        offer(D[r], I[r], similarity(X[r], Y[j]), ids_y[j])


@kernel
def scan_tile_both(
    S: Floats,
    X: Floats,
    Y: Floats,
    labels_x: Labels,
    labels_y: Labels,
    ids_x: Ints,
    ids_y: Ints,
    D_x: Floats,
    I_x: Ints,
    D_y: Floats,
    I_y: Ints,
    slack: float,
) -> None:
    """Offer the rows of Y to the heaps of X and the rows of X to the heaps of Y: each pair is scored once."""
    thresholds = np.empty(S.shape[1], np.float32)
    for j in range(S.shape[1]):
        thresholds[j] = D_y[j, 0] - slack
    for r in range(S.shape[0]):
        scores = S[r]
        a, b, c, d = eligible_ranges(labels_x[r], labels_y)
        for low, high in ((a, b), (c, d)):
            for start in range(low, high, _CHUNK):
                stop = min(start + _CHUNK, high)
                if not _any_reaches_either(scores, start, stop, np.float32(D_x[r, 0] - slack), thresholds):
                    continue
                for j in range(start, stop):
                    for_x = scores[j] >= np.float32(D_x[r, 0] - slack)
                    for_y = scores[j] >= thresholds[j]
                    if for_x or for_y:
                        s = similarity(X[r], Y[j])
                        offer(D_x[r], I_x[r], s, ids_y[j])
                        offer(D_y[j], I_y[j], s, ids_x[r])
                        thresholds[j] = D_y[j, 0] - slack


@kernel
def collect_tile(
    S: Floats,
    X: Floats,
    Y: Floats,
    labels_x: Labels,
    labels_y: Labels,
    threshold: np.float32,
    slack: float,
    first: int,
    rows: Labels,
    columns: Labels,
    scores: Floats,
) -> tuple[int, int]:
    """Write out every eligible pair of a tile with similarity >= ``threshold``, from row ``first`` on.

    Returns
    -------
    count, next
        How many pairs were written, and the row to go on with: a row is begun only if all of it would fit.
    """
    count = 0
    screen = np.float32(threshold - slack)
    for r in range(first, S.shape[0]):
        if count + S.shape[1] > rows.shape[0]:
            return count, r
        a, b, c, d = eligible_ranges(labels_x[r], labels_y)
        for low, high in ((a, b), (c, d)):
            for start in range(low, high, _CHUNK):
                stop = min(start + _CHUNK, high)
                if not _any_reaches(S[r], start, stop, screen):
                    continue
                for j in range(start, stop):
                    if S[r, j] >= screen:
                        s = similarity(X[r], Y[j])
                        if s >= threshold:
                            rows[count], columns[count], scores[count] = r, j, s
                            count += 1
    return count, S.shape[0]


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
def gather(
    rows: Ints,
    starts: Ints,
    addresses: Ints,
    id_addresses: Ints,
    size: int,
    codec: int,
    levels: Floats,
    X: Floats,
    ids: Ints,
) -> None:
    """Copy the storage rows ``rows`` (vectors, of ``size`` bytes each, and ids) out of the lists that hold them."""
    lists, rows_X, d = lists_of(rows, starts), X.ctypes.data, X.shape[1]
    for i in range(rows.shape[0]):
        j = lists[i]
        place = rows[i] - starts[j]
        decode(codec, levels, addresses[j] + size * place, row_at(rows_X, i, d))
        ids[i] = carray(int_pointer(id_addresses[j]), (place + 1,))[place]


@kernel
def copy_ids(starts: Ints, id_addresses: Ints, ids: Ints) -> None:
    """Copy the ids of all lists, one list after the other."""
    for j in range(id_addresses.shape[0]):
        size = starts[j + 1] - starts[j]
        if size > 0:
            ids[starts[j] : starts[j + 1]] = carray(int_pointer(id_addresses[j]), (size,))


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


@kernel
def scan_lists(
    xq: Floats,
    labels_q: Labels,
    lists: Ints,
    starts: Ints,
    addresses: Ints,
    id_addresses: Ints,
    size: int,
    codec: int,
    levels: Floats,
    labels: Labels,
    references: Labels,
    reference_starts: Ints,
    allowed: NDArray[np.bool_],
    D: Floats,
    I: Ints,
    slack: float,
) -> None:
    """Offer the eligible rows of the lists ``lists[q]`` to the heap of each query q.

    List j < nlist is FAISS's own list j, read where it lies; list nlist + g is the g-th list of row references of the
    supplementary partitions. A row that is reached through several lists enters a heap once. ``allowed`` is empty, or
    says of each row whether it may be evidence. Vectors take ``size`` bytes each; see :mod:`cfe_faiss.lists.codecs`.
    """
    nlist = starts.shape[0] - 1
    once = reference_starts.shape[0] > 1
    everything = allowed.shape[0] == 0
    weights, row_of_list = np.empty(xq.shape[1], np.float32), np.empty(xq.shape[1], np.float32)
    for q in range(xq.shape[0]):
        label = labels_q[q]
        if label == UNKNOWN:
            continue
        offset = weigh(codec, levels, xq[q], weights)
        for t in range(lists.shape[1]):
            j = lists[q, t]
            if j < 0:
                continue
            if j < nlist:
                first, last = starts[j], starts[j + 1]
                if first == last:
                    continue
                ids = carray(int_pointer(id_addresses[j]), (last - first,))
                a, b, c, e = eligible_ranges(label, labels[first:last])
                for low, high in ((a, b), (c, e)):
                    for i in range(low, high):
                        address = addresses[j] + size * i
                        if not (everything or allowed[first + i]):
                            continue
                        if screen(codec, weights, offset, address) >= np.float32(D[q, 0] - slack):
                            s = score(codec, levels, xq[q], address, row_of_list)
                            if once:
                                offer_once(D[q], I[q], s, ids[i])
                            else:
                                offer(D[q], I[q], s, ids[i])
            else:
                for place in range(reference_starts[j - nlist], reference_starts[j - nlist + 1]):
                    row = references[place]
                    if labels[row] == label or labels[row] == UNKNOWN or not (everything or allowed[row]):
                        continue
                    home = list_of(row, starts)
                    i = row - starts[home]
                    address = addresses[home] + size * i
                    if screen(codec, weights, offset, address) >= np.float32(D[q, 0] - slack):
                        i_ = carray(int_pointer(id_addresses[home]), (i + 1,))[i]
                        offer_once(D[q], I[q], score(codec, levels, xq[q], address, row_of_list), i_)


# --- routing: the sums behind a list's means -------------------------------------------------------------------------


@fast_kernel
def _add_to(total: Floats, x: Floats) -> None:
    for i in range(total.shape[0]):
        total[i] += x[i]


@kernel
def _normalise(x: Floats) -> None:
    norm = np.sqrt(np.float64(product(x, x)))
    if norm > 0:
        for i in range(x.shape[0]):
            x[i] = np.float32(x[i] / norm)


@kernel
def sum_lists(
    first: int,
    stop: int,
    starts: Ints,
    storage_starts: Ints,
    addresses: Ints,
    size: int,
    codec: int,
    levels: Floats,
    labels: Labels,
    references: Labels,
    entries: Ints,
    entry_starts: Ints,
    entry_labels: Labels,
    means: Floats,
    entry_means: Floats,
) -> None:
    """Write the normalised means of lists ``first:stop``, and of each entry the mean of its list without its label.

    ``starts`` and ``labels`` are of the places of all partitions one after the other: first the storage rows, then the
    references. The entries of list j are ``entries[entry_starts[j]:entry_starts[j + 1]]``, by ascending label.
    """
    n, d = storage_starts[-1], means.shape[1]
    x = np.empty(d, np.float32)
    for j in range(first, stop):
        own = entries[entry_starts[j] : entry_starts[j + 1]]
        for place in range(starts[j], starts[j + 1]):
            if labels[place] == UNKNOWN:
                continue
            row = place if place < n else int(references[place - n])
            home = list_of(row, storage_starts)
            decode(codec, levels, addresses[home] + size * (row - storage_starts[home]), x)
            _add_to(means[j], x)
            for e in own:
                if entry_labels[e] == labels[place]:
                    _add_to(entry_means[e], x)
                    break
        for e in own:
            for i in range(d):
                entry_means[e, i] = means[j, i] - entry_means[e, i]
            _normalise(entry_means[e])
        _normalise(means[j])
