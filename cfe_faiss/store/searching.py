"""Searches of an evidence index among the rows that a filter selects. With a filter they are exact."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import ListScan, sort_heaps
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.ivf_pq import IndexEvidenceIVFPQ
from cfe_faiss.index.state import State
from cfe_faiss.lists.storage import Storage
from cfe_faiss.lists.topk import empty_heaps
from cfe_faiss.search import exact, nearest
from cfe_faiss.search.exact import Results, padded
from cfe_faiss.store.filters import Mask
from cfe_faiss.store.table import Table

_FEW = 4
"""Up to 4 queries are compared with each row in place; for more, rows are copied and multiplied."""


def search(index: Any, table: Table, X: NDArray[np.float32], k: int, mask: Mask | None) -> Results:
    """Return the k nearest rows of unit queries, of any class: similarities D and keys I of the table, -1 for none."""
    if mask is None and index.ntotal == len(table) and not isinstance(index, IndexEvidenceFlat):
        return _of_lists(index, X, k)
    with index._lock.reading():
        state = index._snapshot()
        return nearest.search(state.storage, X, k, allowed=_allowed(state, table, mask))


def evidence(
    index: Any,
    table: Table,
    X: NDArray[np.float32],
    labels: NDArray[np.int32],
    k: int,
    mask: Mask | None,
    recall: float | None,
) -> Results:
    """Return the evidence of unit queries with class numbers (nq,): similarities D and keys I, -1 for none."""
    if mask is None and index.ntotal == len(table):
        effort = {} if recall is None or isinstance(index, IndexEvidenceFlat) else {"recall": recall}
        found: Results = index.search_evidence(X, labels, k, **effort)
        return found
    with index._lock.reading():
        state = index._snapshot()
        allowed = _allowed(state, table, mask)
        if allowed is None or len(X) > _FEW:
            return exact.search(state.storage, X, labels, k, allowed=allowed)
        return _scanned(state.storage, X, labels, k, allowed)


def vectors_of(index: Any, keys: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the vectors of some keys, (n, d)."""
    X, ids = np.empty((len(keys), index.d), np.float32), np.empty(len(keys), np.int64)
    if not len(keys):
        return X
    with index._lock.reading():
        state = index._snapshot()
        members = state.members
        places = members.ids.searchsorted(keys)
        rows = members.rows.take(places, mode="clip") if len(members.rows) else places
        state.storage.native.gather(rows, X, ids)
    if not np.array_equal(ids, keys):
        raise RuntimeError("the index of the store was changed by other means than the methods of the store")
    return X


def _of_lists(index: Any, X: NDArray[np.float32], k: int) -> Results:
    if not index.ntotal:  # FAISS refuses to search an untrained index
        return padded(*empty_heaps(len(X), 0), k)
    if not isinstance(index, IndexEvidenceIVFPQ):
        found: Results = index.search(X, k)
        return found
    # FAISS returns similarities to codes: fetch more candidates, and rank them by the full vectors.
    _, candidates = index.search(X, math.ceil(k * index.k_factor))
    D, I = empty_heaps(len(X), k)
    for q, ids in enumerate(candidates):
        ids = np.sort(ids[ids >= 0])
        scores = index.reconstruct_batch(ids) @ X[q]
        order = np.argsort(-scores, kind="stable")[:k]
        D[q, : len(order)], I[q, : len(order)] = scores[order], ids[order]
        I[q, len(order) :] = -1
    return D, I


def _scanned(storage: Storage, X: NDArray[np.float32], labels: NDArray[np.int32], k: int, allowed: Mask) -> Results:
    """Compare each query with every allowed row, in place."""
    lists = np.arange(len(storage.starts) - 1)
    D, I = empty_heaps(len(X), min(k, storage.n))
    if D.size:
        scan = ListScan(storage.native, np.empty(0, np.int32), np.zeros(1, np.int64))
        scan.scan(X, labels, np.tile(lists, (len(X), 1)), allowed, storage.margin, D, I)
        sort_heaps(D, I)
    return padded(D, I, k)


def _allowed(state: State, table: Table, mask: Mask | None) -> Mask | None:
    """Return whether a search may find each storage row, (n,); None for all rows."""
    storage = state.storage
    if storage.n == len(table):
        return None if mask is None else (mask[table.rows] if table.gone else mask)[state.members.places]
    rows = table.find(storage.row_ids)  # rows that an interrupted change has left in the index are not in the table
    allowed: Mask = rows >= 0
    return allowed if mask is None else allowed & np.append(mask, False)[rows]
