"""Exact search of the nearest rows of any class, including rows without a class."""

from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np

from cfe_faiss.base.arrays import Bools, Floats, Ints
from cfe_faiss.base.threads import num_threads, run
from cfe_faiss.rows import codecs
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.exact import TILE, Chunk, Tile, height_of_blocks, products, scan_blocks, slices
from cfe_faiss.search.query import Plan, Queries, Results

_WORTH_COPYING = 4
"""Below 1/4 selectivity, copy the allowed rows; otherwise scan all rows in place."""
_WORTH_COPYING_FOR_ONE = 32
"""Copy below 1/32 selectivity for a single query, which is compared with allowed rows only in either case."""

_Part = tuple[Ints, Bools | None]


def search(queries: Queries, _: Plan, progress: str | None) -> Results:
    """Return the nearest D, I of new queries among the allowed rows. Ties: smaller id first."""
    storage, allowed, xq = queries.snapshot, queries.allowed, queries.X
    few = _WORTH_COPYING if len(xq) > 1 else _WORTH_COPYING_FOR_ONE
    is_coded = storage.codec != codecs.FLAT
    sparse = allowed is not None and (is_coded or int(np.count_nonzero(allowed)) * few < storage.n)

    def tiles(block: Ints) -> Iterator[Tile]:
        # Give all rows one label and all queries another, so that the core skips no row.
        x = Chunk.of(storage, xq[block], block, np.ones(len(block), np.int32))
        for rows, mask in _parts(storage, allowed, TILE // len(block), sparse):
            Y, ids = storage.rows(rows)
            y = Chunk.of(storage, Y, ids, np.zeros(len(Y), np.int32))
            yield x, y, _scores(x, y, mask)

    blocks = [np.arange(len(xq))[cut] for cut in slices(len(xq), height_of_blocks(queries))]
    return scan_blocks(queries, blocks, tiles, progress)


def _scores(x: Chunk, y: Chunk, mask: Bools | None) -> Floats:
    """Return the float32 scores of queries and rows, (nq, n); -inf for rows outside the mask."""
    if len(x.X) > 1 or x.storage.metric == "l2":
        S = products(x, y)
        if mask is not None:
            S[:, ~mask] = -np.inf
        return S
    S = np.full((1, len(y.X)), -np.inf, np.float32)
    if mask is None:
        _multiply_one(x.X[0], y.X, None, S[0])
    else:
        rows = np.flatnonzero(mask)
        found = np.empty(len(rows), np.float32)
        _multiply_one(x.X[0], y.X, rows, found)
        S[0, rows] = found
    return S


def _multiply_one(x: Floats, Y: Floats, rows: Any, found: Floats) -> None:
    """Write the products of a query with some rows (or all) into ``found``, using FAISS's loop.

    FAISS does not align rows to cache lines. On such rows BLAS takes a third more time than FAISS's loop.
    """
    query, d = faiss.swig_ptr(x), len(x)

    def multiply(part: slice) -> None:
        out = faiss.swig_ptr(found[part])
        if rows is None:
            faiss.fvec_inner_products_ny(out, query, faiss.swig_ptr(Y[part]), d, part.stop - part.start)
        else:
            chosen = faiss.swig_ptr(rows[part])
            faiss.fvec_inner_products_by_idx(out, query, faiss.swig_ptr(Y), chosen, d, 1, part.stop - part.start)

    # Rows that are not contiguous take twice as long.
    work = len(found) * d * (1 if rows is None else 2)
    run(multiply, slices(len(found), max(1, -(-len(found) // num_threads(work)))), work=work, blas=False)


def _parts(storage: Snapshot, allowed: Bools | None, size: int, sparse: bool) -> Iterator[_Part]:
    """Yield the rows of one tile, and a mask of the allowed rows, or None if all are allowed."""
    if allowed is not None and sparse:
        rows = np.flatnonzero(allowed)
        for cut in slices(len(rows), size):
            yield rows[cut], None
        return
    for first, stop in zip(storage.starts[:-1].tolist(), storage.starts[1:].tolist(), strict=True):
        for start in range(first, stop, size):
            rows = np.arange(start, min(start + size, stop))
            yield rows, None if allowed is None else allowed[rows[0] : rows[-1] + 1]
