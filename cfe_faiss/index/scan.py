"""Kernels: the running top-k, and the scans that feed it.

Every scan works in two steps. A fast float32 product (BLAS, or a vectorised loop) screens a pair; a pair that could
still matter is scored by :func:`cfe_faiss.dot.similarity`, whose bits depend on nothing but the two rows. What an
index returns is therefore the same whichever way its rows were reached, blocked or threaded, and ties are ties
everywhere.
"""

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.dot import similarity
from cfe_faiss.jit import fast_kernel, kernel

PADDING = np.finfo(np.float32).min
"""What FAISS writes as the similarity of a place that holds no id (inner product)."""

NOWHERE = np.float32(-2)
"""Score of a list without a member to go to: below every cosine."""

_NO_ID = np.iinfo(np.int64).max
_CHUNK = 64

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Labels = NDArray[np.int32]


def screening_error(d: int) -> float:
    """Bound |fl(x·y) - similarity(x, y)| for unit rows of length d, summed in float32 in any order.

    The classical bound is d * 2**-24 for the sum of products (Higham, Accuracy and Stability of Numerical Algorithms,
    section 3.1); the rest covers the rounding of ``similarity`` and norms that are 1 up to rounding.
    """
    return (d + 16) * 2.0**-24


@fast_kernel
def _product(x: Floats, y: Floats) -> np.float32:
    total = np.float32(0)
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


# --- running top-k: a heap per query, worst place first -------------------------------------------------------------


def empty_heaps(nq: int, k: int) -> tuple[Floats, Ints]:
    """Return D and I for ``nq`` queries, every place still empty."""
    return np.full((nq, k), PADDING, np.float32), np.full((nq, k), _NO_ID, np.int64)


@kernel
def _worse(s: np.float32, i: np.int64, t: np.float32, j: np.int64) -> bool:
    return bool(s < t or (s == t and i > j))


@kernel
def _sift_down(D: Floats, I: Ints, place: int, size: int) -> None:
    s, i = D[place], I[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _worse(D[child + 1], I[child + 1], D[child], I[child]):
            child += 1
        if not _worse(D[child], I[child], s, i):
            break
        D[place], I[place] = D[child], I[child]
        place = child
    D[place], I[place] = s, i


@kernel
def _offer(D: Floats, I: Ints, s: np.float32, i: np.int64) -> None:
    if _worse(D[0], I[0], s, i):
        D[0], I[0] = s, i
        _sift_down(D, I, 0, D.shape[0])


@kernel
def _offer_once(D: Floats, I: Ints, s: np.float32, i: np.int64) -> None:
    if _worse(D[0], I[0], s, i):
        for place in range(D.shape[0]):
            if I[place] == i:
                return
        D[0], I[0] = s, i
        _sift_down(D, I, 0, D.shape[0])


@kernel
def sort_heaps(D: Floats, I: Ints) -> None:
    """Turn each row's heap into FAISS's order in place: best first, then padding with id -1."""
    for q in range(D.shape[0]):
        for size in range(D.shape[1] - 1, 0, -1):
            s, i = D[q, size], I[q, size]
            D[q, size], I[q, size] = D[q, 0], I[q, 0]
            D[q, 0], I[q, 0] = s, i
            _sift_down(D[q], I[q], 0, size)
        for place in range(D.shape[1]):
            if I[q, place] == _NO_ID:
                I[q, place] = -1


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
def _eligible_ranges(label: np.int32, labels: Labels) -> tuple[int, int, int, int]:
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
        a, b, c, d = _eligible_ranges(labels_x[r], labels_y)
        for low, high in ((a, b), (c, d)):
            for start in range(low, high, _CHUNK):
                stop = min(start + _CHUNK, high)
                threshold = np.float32(D[r, 0] - slack)
                if not _any_reaches(scores, start, stop, threshold):
                    continue
                for j in range(start, stop):
                    if scores[j] >= np.float32(D[r, 0] - slack):
                        _offer(D[r], I[r], similarity(X[r], Y[j]), ids_y[j])


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
        a, b, c, d = _eligible_ranges(labels_x[r], labels_y)
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
                        _offer(D_x[r], I_x[r], s, ids_y[j])
                        _offer(D_y[j], I_y[j], s, ids_x[r])
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
        a, b, c, d = _eligible_ranges(labels_x[r], labels_y)
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


def _pointer_to(element: Any) -> Any:
    """Return an intrinsic that turns an address, int64, into a pointer to ``element``."""

    def pointer(typingctx: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(types.CPointer(element)))

        return types.CPointer(element)(types.int64), generate

    return intrinsic(pointer)


_float_pointer = _pointer_to(types.float32)
_int_pointer = _pointer_to(types.int64)


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
def gather(rows: Ints, starts: Ints, addresses: Ints, id_addresses: Ints, X: Floats, ids: Ints) -> None:
    """Copy the storage rows ``rows`` (vectors and ids) out of the lists that hold them."""
    d = X.shape[1]
    for i in range(rows.shape[0]):
        j = list_of(rows[i], starts)
        size = starts[j + 1] - starts[j]
        place = rows[i] - starts[j]
        X[i] = carray(_float_pointer(addresses[j]), (size, d))[place]
        ids[i] = carray(_int_pointer(id_addresses[j]), (size,))[place]


@kernel
def copy_ids(starts: Ints, id_addresses: Ints, ids: Ints) -> None:
    """Copy the ids of all lists, one list after the other."""
    for j in range(id_addresses.shape[0]):
        size = starts[j + 1] - starts[j]
        if size > 0:
            ids[starts[j] : starts[j + 1]] = carray(_int_pointer(id_addresses[j]), (size,))


@kernel
def permute_lists(order: Ints, starts: Ints, addresses: Ints, id_addresses: Ints, d: int) -> None:
    """Put storage row ``order[r]`` at storage row r, in place; ``order`` moves no row out of its list."""
    for j in range(addresses.shape[0]):
        first, last = starts[j], starts[j + 1]
        moved = False
        for r in range(first, last):
            moved = moved or order[r] != r
        if moved:
            X = carray(_float_pointer(addresses[j]), (last - first, d))
            ids = carray(_int_pointer(id_addresses[j]), (last - first,))
            old_X, old_ids = X.copy(), ids.copy()
            for r in range(first, last):
                X[r - first] = old_X[order[r] - first]
                ids[r - first] = old_ids[order[r] - first]


@kernel
def scan_lists(
    xq: Floats,
    labels_q: Labels,
    lists: Ints,
    starts: Ints,
    addresses: Ints,
    id_addresses: Ints,
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
    says of each row whether it may be evidence.
    """
    d = xq.shape[1]
    nlist = starts.shape[0] - 1
    once = reference_starts.shape[0] > 1
    everything = allowed.shape[0] == 0
    for q in range(xq.shape[0]):
        label = labels_q[q]
        if label == UNKNOWN:
            continue
        for t in range(lists.shape[1]):
            j = lists[q, t]
            if j < 0:
                continue
            if j < nlist:
                first, last = starts[j], starts[j + 1]
                if first == last:
                    continue
                Y = carray(_float_pointer(addresses[j]), (last - first, d))
                ids = carray(_int_pointer(id_addresses[j]), (last - first,))
                a, b, c, e = _eligible_ranges(label, labels[first:last])
                for low, high in ((a, b), (c, e)):
                    for i in range(low, high):
                        if (everything or allowed[first + i]) and _product(xq[q], Y[i]) >= np.float32(D[q, 0] - slack):
                            s = similarity(xq[q], Y[i])
                            if once:
                                _offer_once(D[q], I[q], s, ids[i])
                            else:
                                _offer(D[q], I[q], s, ids[i])
            else:
                for place in range(reference_starts[j - nlist], reference_starts[j - nlist + 1]):
                    row = references[place]
                    if labels[row] == label or labels[row] == UNKNOWN or not (everything or allowed[row]):
                        continue
                    home = list_of(row, starts)
                    size = starts[home + 1] - starts[home]
                    y = carray(_float_pointer(addresses[home]), (size, d))[row - starts[home]]
                    if _product(xq[q], y) >= np.float32(D[q, 0] - slack):
                        i_ = carray(_int_pointer(id_addresses[home]), (size,))[row - starts[home]]
                        _offer_once(D[q], I[q], similarity(xq[q], y), i_)


# --- routing: the sums behind a list's means, and the nearest lists of a few queries ----------------------------------


@fast_kernel
def _add_to(total: Floats, x: Floats) -> None:
    for i in range(total.shape[0]):
        total[i] += x[i]


@kernel
def _normalise(x: Floats) -> None:
    norm = np.sqrt(np.float64(_product(x, x)))
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
    for j in range(first, stop):
        own = entries[entry_starts[j] : entry_starts[j + 1]]
        for place in range(starts[j], starts[j + 1]):
            if labels[place] == UNKNOWN:
                continue
            row = place if place < n else int(references[place - n])
            home = list_of(row, storage_starts)
            size = storage_starts[home + 1] - storage_starts[home]
            x = carray(_float_pointer(addresses[home]), (size, d))[row - storage_starts[home]]
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


@kernel
def route(
    X: Floats,
    labels_q: Labels,
    means: Floats,
    filled: NDArray[np.bool_],
    labels: Labels,
    starts: Ints,
    entry_lists: Ints,
    entry_means: Floats,
    entry_filled: NDArray[np.bool_],
    best: Ints,
) -> None:
    """Write the nearest lists of each query, nearest first; see ``routing.Routes``, whose arrays these are."""
    scores = np.empty(means.shape[0], np.float32)
    D, I = np.empty(best.shape[1], np.float32), np.empty(best.shape[1], np.int64)
    for q in range(X.shape[0]):
        scores[:] = np.inf  # not known yet
        i = _first_at_least(labels, labels_q[q], 0, labels.shape[0])
        if i < labels.shape[0] and labels[i] == labels_q[q]:
            for e in range(starts[i], starts[i + 1]):
                scores[entry_lists[e]] = _product(X[q], entry_means[e]) if entry_filled[e] else NOWHERE
        for j in range(means.shape[0]):
            if scores[j] == np.inf:
                scores[j] = _product(X[q], means[j]) if filled[j] else NOWHERE
        D[:] = NOWHERE
        I[:] = _NO_ID
        for j in range(means.shape[0]):
            if scores[j] > D[0]:
                _offer(D, I, scores[j], np.int64(j))
        sort_heaps(D.reshape(1, -1), I.reshape(1, -1))
        best[q] = I
