"""Searches of an evidence index among the rows that a filter selects. With a filter they are exact."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.rows.id_map import unknown_labels
from cfe_faiss.rows.metric import flipped, make_results
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.exact import pad_results
from cfe_faiss.search.query import Effort, Query, Results, Rules
from cfe_faiss.store.filters import Mask
from cfe_faiss.store.table import Table


def search(index: Any, table: Table, X: NDArray[np.float32], k: int, mask: Mask | None) -> Results:
    """Return the k nearest rows of unit queries, of any class: similarities D and keys I of the table, -1 for none."""
    if mask is None and index.ntotal == len(table) and index.has_lists:
        return _of_lists(index, X, k)
    query = Query(k, X=X, labels=unknown_labels(len(X)), rules=Rules("any"))
    return _search_exactly(index, table, query, mask)


def evidence(index: Any, table: Table, query: Query, mask: Mask | None, effort: Effort) -> Any:
    """Return the evidence of a query about unit vectors with class numbers: similarities D and keys I, -1 for none."""
    if mask is not None or index.ntotal != len(table):
        return _search_exactly(index, table, query, mask)
    if query.rules is not None:
        return index.answer(query, effort)
    nprobe, recall, exact, memory = effort[:4]  # search_evidence has a fast path for one query
    return index.search_evidence(query.X, query.labels, query.k, nprobe, recall=recall, exact=exact, memory=memory)


def _search_exactly(index: EvidenceIndex, table: Table, query: Query, mask: Mask | None) -> Results:
    with index.reading() as snapshot:
        queries = replace(query.bind(snapshot), allowed=_allowed(snapshot, table, mask))
        return index.answer_on(snapshot, queries, Effort(exact=True))


def vectors_of(index: Any, keys: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the vectors of some keys, (n, d)."""
    X, ids = np.empty((len(keys), index.d), np.float32), np.empty(len(keys), np.int64)
    if not len(keys):
        return X
    with index.reading() as snapshot:
        members = snapshot.members
        places = members.ids.searchsorted(keys)
        rows = members.rows.take(places, mode="clip") if len(members.rows) else places
        snapshot.native.gather(rows, X, ids)
    if not np.array_equal(ids, keys):
        raise RuntimeError("the index of the store was changed by other means than the methods of the store")
    return X


def _of_lists(index: Any, X: NDArray[np.float32], k: int) -> Results:
    if not index.ntotal:  # FAISS refuses to search an untrained index
        D, I = pad_results(*make_results(len(X), 0), k)
        return flipped(D, index.metric), I
    if index.k_factor is None:
        found: Results = index.search(X, k)
        return found
    # FAISS returns similarities to codes: fetch more candidates, and rank them by the full vectors.
    _, candidates = index.search(X, math.ceil(k * index.k_factor))
    D, I = make_results(len(X), k)
    for q, ids in enumerate(candidates):
        ids = np.sort(ids[ids >= 0])
        vectors = index.reconstruct_batch(ids)
        scores = -((vectors - X[q]) ** 2).sum(axis=1) if index.metric == "l2" else vectors @ X[q]
        order = np.argsort(-scores, kind="stable")[:k]
        D[q, : len(order)], I[q, : len(order)] = scores[order], ids[order]
    return flipped(D, index.metric), I


def _allowed(snapshot: Snapshot, table: Table, mask: Mask | None) -> Mask | None:
    """Return whether a search may find each row of the snapshot, (n,); None for all rows."""
    if snapshot.n == len(table):
        return None if mask is None else (mask[table.rows] if table.gone else mask)[snapshot.members.places]
    rows = table.find(snapshot.row_ids)  # rows that an interrupted change has left in the index are not in the table
    allowed: Mask = rows >= 0
    return allowed if mask is None else allowed & np.append(mask, False)[rows]
