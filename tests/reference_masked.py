"""Reference of every engine: scores all rows for all queries, and masks those that a rule or condition excludes."""

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import row_scores
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.rows.metric import PADDING
from cfe_faiss.search.query import Queries, Rules

Arrays = tuple[NDArray[np.float32], NDArray[np.int64]]


def scores_of(queries: Queries) -> NDArray[np.float32]:
    """Return the scores of all rows, (nq, n); -inf for rows that a query must not find."""
    snapshot, nq = queries.snapshot, len(queries)
    X, rows = queries.fetch(slice(None)), snapshot.rows(np.arange(snapshot.n))[0]
    scores = np.empty(nq * snapshot.n, np.float32)
    places = np.divmod(np.arange(nq * snapshot.n), max(1, snapshot.n))
    row_scores(
        snapshot.native.metric, np.ascontiguousarray(X), np.ascontiguousarray(rows), *places, scores
    )
    scores = scores.reshape(nq, snapshot.n)
    within = (queries.rules or Rules()).within
    if within is not None:
        low, high = np.float32(within[0]), np.float32(within[1])
        scores[(scores < low) | (scores > high)] = -np.inf
    scores[~may_find(queries)] = -np.inf
    return scores


def may_find(queries: Queries) -> NDArray[np.bool_]:
    """Return a mask of the rows that each query may find, but for the range of scores, (nq, n)."""
    snapshot, rules = queries.snapshot, queries.rules or Rules()
    labels, own = snapshot.labels, queries.labels[:, None]
    known = (labels != UNKNOWN) & (own != UNKNOWN)
    if rules.neighbors == "any":
        known = np.ones((len(own), snapshot.n), bool)
    same = {"any": True, "own": own == labels, "other": own != labels}[rules.neighbors]
    found = known & same
    if queries.stored:
        found[np.arange(len(own)), queries.rows] = False
    if queries.allowed is not None:
        found &= queries.allowed
    if rules.excluded_labels is not None:
        for q, excluded in enumerate(rules.excluded_labels):
            found[q] &= ~np.isin(labels, excluded[excluded != UNKNOWN])
    if rules.excluded_ids is not None:
        for q, excluded in enumerate(rules.excluded_ids):
            found[q] &= ~np.isin(snapshot.row_ids, excluded)
    return found if queries.conditions is None else found & _meets(queries)


def _meets(queries: Queries) -> NDArray[np.bool_]:
    conditions, side = queries.conditions, queries.side
    assert conditions is not None
    assert side is not None
    apart = np.abs(side.values[:, None] - conditions.rows.values[None])
    limits = conditions.limits
    compared, codes = apart[:, :, : len(limits)], apart[:, :, len(limits) :]
    meets = ((limits[:, 0] <= compared) & (compared <= limits[:, 1])).all(axis=2)
    meets &= (codes != 0).sum(axis=2) <= (conditions.max_changed or 0)
    meets &= queries.usable[:, None] & conditions.evidence
    if conditions.surroundings is not None:
        meets &= ~conditions.surroundings(side.nodes).toarray()[:, conditions.rows.nodes]
    return meets


def search(queries: Queries) -> Arrays:
    """Return the k best scores and ids of each query, (nq, k)."""
    scores, ids = scores_of(queries), queries.snapshot.row_ids
    D = np.full((len(queries), queries.k), PADDING, np.float32)
    I = np.full((len(queries), queries.k), -1)
    for q, row in enumerate(scores):
        best = np.lexsort((ids, -row))[: min(queries.k, int((row > -np.inf).sum()))]
        D[q, : len(best)], I[q, : len(best)] = row[best], ids[best]
    return D, I


def range_search(
    queries: Queries, threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Return lims, scores and ids of the rows at or above a threshold."""
    queries.k = queries.snapshot.n
    D, I = search(queries)
    above = (I >= 0) & (np.float32(threshold) <= D)
    return np.append(0, np.cumsum(above.sum(axis=1))), D[above], I[above]
