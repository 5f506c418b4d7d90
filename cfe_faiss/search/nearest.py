"""Exact plain search: the nearest of some rows whatever their class is, also of those without one."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss.lists import codecs
from cfe_faiss.lists.storage import Storage
from cfe_faiss.lists.topk import empty_heaps
from cfe_faiss.parallel import num_threads, run
from cfe_faiss.search.exact import CHUNK, TILE, Results, padded, slices, work_of

_WORTH_COPYING = 0.75
"""Where a smaller share of the rows is allowed, these are copied; else all are compared where they lie."""

_COPIED = 1 << 18
"""Numbers that are copied at once: they stay in the cache, and BLAS starts no threads for them."""

_Part = tuple[NDArray[np.int64], NDArray[np.bool_] | None]


def search(storage: Storage, xq: NDArray[np.float32], k: int, *, allowed: NDArray[np.bool_] | None = None) -> Results:
    """Return the k nearest D, I of unit queries (nq, d) among the allowed rows (n,); equal ones by ascending id."""
    width = min(k, storage.n)
    D, I = empty_heaps(len(xq), width)
    if D.size:
        height = max(1, min(CHUNK, -(-len(xq) // num_threads(work_of(storage, len(xq))))))

        def scan_block(block: slice) -> None:
            X, heaps = xq[block], (D[block], I[block])
            # One class for all rows and another one for all queries: every row counts.
            of_queries = np.ones(len(X), np.int32)
            for rows, mask in _parts(storage, allowed, TILE // len(X)):
                Y, ids = storage.rows(rows)
                S = X @ Y.T
                if mask is not None:
                    S[:, ~mask] = -np.inf
                _native.scan_tile(S, X, of_queries, Y, np.zeros(len(Y), np.int32), ids, *heaps, storage.margin)
            _native.sort_heaps(*heaps)

        run(scan_block, slices(len(xq), height), work=work_of(storage, len(xq)))
    return padded(D, I, k)


def _parts(storage: Storage, allowed: NDArray[np.bool_] | None, size: int) -> Iterator[_Part]:
    """Yield rows that are compared at once, and which of them are allowed, or None for all."""
    copied = allowed is not None and np.count_nonzero(allowed) < _WORTH_COPYING * storage.n
    if allowed is not None and (copied or storage.codec != codecs.FLAT):
        rows = np.flatnonzero(allowed)
        for cut in slices(len(rows), min(size, max(1, _COPIED // storage.d))):
            yield rows[cut], None
        return
    for first, stop in zip(storage.starts[:-1].tolist(), storage.starts[1:].tolist(), strict=True):
        for start in range(first, stop, size):
            rows = np.arange(start, min(start + size, stop))
            yield rows, None if allowed is None else allowed[rows[0] : rows[-1] + 1]
