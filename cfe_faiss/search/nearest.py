"""Exact plain search: the nearest of some rows whatever their class is, also of those without one."""

from collections.abc import Iterator

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss.lists import codecs
from cfe_faiss.lists.storage import Storage
from cfe_faiss.lists.topk import empty_heaps
from cfe_faiss.parallel import num_threads, run
from cfe_faiss.search.exact import CHUNK, TILE, Results, padded, slices, work_of

_WORTH_COPYING = 4
"""Where fewer than one row in so many is allowed, these are copied; else all are compared where they lie."""
_WORTH_COPYING_FOR_ONE = 32
"""The same for a single query, for which only allowed rows are compared in either case."""

_Part = tuple[NDArray[np.int64], NDArray[np.bool_] | None]


def search(storage: Storage, xq: NDArray[np.float32], k: int, *, allowed: NDArray[np.bool_] | None = None) -> Results:
    """Return the k nearest D, I of unit queries (nq, d) among the allowed rows (n,); equal ones by ascending id."""
    width = min(k, storage.n)
    D, I = empty_heaps(len(xq), width)
    if D.size:
        sparse = allowed is not None and _is_sparse(storage, allowed, len(xq))
        height = max(1, min(CHUNK, -(-len(xq) // num_threads(work_of(storage, len(xq))))))

        def scan_block(block: slice) -> None:
            X, heaps = xq[block], (D[block], I[block])
            # One class for all rows and another one for all queries: every row counts.
            of_queries = np.ones(len(X), np.int32)
            for rows, mask in _parts(storage, allowed, TILE // len(X), sparse):
                Y, ids = storage.rows(rows)
                S = _products(X, Y, mask)
                _native.scan_tile(S, X, of_queries, Y, np.zeros(len(Y), np.int32), ids, *heaps, storage.margin)
            _native.sort_heaps(*heaps)

        run(scan_block, slices(len(xq), height), work=work_of(storage, len(xq)))
    return padded(D, I, k)


def _is_sparse(storage: Storage, allowed: NDArray[np.bool_], nq: int) -> bool:
    """Return whether allowed rows are better copied than compared where they lie."""
    few = _WORTH_COPYING if nq > 1 else _WORTH_COPYING_FOR_ONE
    return storage.codec != codecs.FLAT or int(np.count_nonzero(allowed)) * few < storage.n


def _products(X: NDArray[np.float32], Y: NDArray[np.float32], mask: NDArray[np.bool_] | None) -> NDArray[np.float32]:
    """Return the products of queries and rows, (nq, n); -inf for rows that the mask leaves out."""
    if len(X) > 1:
        S = X @ Y.T
        if mask is not None:
            S[:, ~mask] = -np.inf
        return S
    # FAISS does not align rows to cache lines, which costs BLAS a third more time here than FAISS itself.
    (d,), x, y = X.shape[1:], faiss.swig_ptr(X), faiss.swig_ptr(Y)
    if mask is None:
        S = np.empty((1, len(Y)), np.float32)
        faiss.fvec_inner_products_ny(faiss.swig_ptr(S), x, y, d, len(Y))
        return S
    S, rows = np.full((1, len(Y)), -np.inf, np.float32), np.flatnonzero(mask)
    found = np.empty(len(rows), np.float32)
    faiss.fvec_inner_products_by_idx(faiss.swig_ptr(found), x, y, faiss.swig_ptr(rows), d, 1, len(rows))
    S[0, rows] = found
    return S


def _parts(storage: Storage, allowed: NDArray[np.bool_] | None, size: int, sparse: bool) -> Iterator[_Part]:
    """Yield rows that are compared at once, and which of them are allowed, or None for all."""
    if allowed is not None and sparse:
        rows = np.flatnonzero(allowed)
        for cut in slices(len(rows), size):
            yield rows[cut], None
        return
    for first, stop in zip(storage.starts[:-1].tolist(), storage.starts[1:].tolist(), strict=True):
        for start in range(first, stop, size):
            rows = np.arange(start, min(start + size, stop))
            yield rows, None if allowed is None else allowed[rows[0] : rows[-1] + 1]
