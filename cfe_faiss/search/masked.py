"""General engine for every query: compares all rows in tiles and masks the pairs that a rule or condition excludes.

Faster engines answer the queries that they support. All other queries are answered here, with the same similarities to
the last bit.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import row_similarities, scan_tile
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import product, run
from cfe_faiss.rows.topk import make_results
from cfe_faiss.search.conditions import Bools, Ints
from cfe_faiss.search.exact import CHUNK, TILE, Found, estimate_work, make_ranges, slices
from cfe_faiss.search.query import Floats, Plan, Queries, Ranges, Results, Rules


def search(queries: Queries, _: Plan | None, progress: str | None) -> Results:
    """Return the exact k best D, I of queries under their rules and conditions."""
    if queries.conditions is not None and queries.conditions.uses is not None:
        raise ValueError("params.where must not limit how often evidence is used together with rules")
    snapshot = queries.snapshot
    D, I = make_results(len(queries), min(queries.k, snapshot.n))
    rows = np.flatnonzero(_may_be_found(queries))

    def scan(block: slice) -> None:
        X = queries.fetch(block)
        # Give all rows one label and all queries another, so that the core skips nothing: the rules decide.
        of_queries = np.ones(len(X), np.int32)
        for cut in slices(len(rows), TILE // len(X)):
            Y, ids = snapshot.rows(rows[cut])
            S = product(X, Y.T)
            S[_is_excluded(queries, block, rows[cut], ids)] = -np.inf
            if queries.rules is not None and queries.rules.within is not None:
                _exclude_beyond(queries.rules.within, S, X, Y, snapshot.margin)
            scan_tile(S, X, of_queries, Y, np.zeros(len(Y), np.int32), ids, D[block], I[block], snapshot.margin)

    run(scan, slices(len(queries), CHUNK), work=estimate_work(snapshot, len(queries)), progress=progress)
    return D, I


def range_search(queries: Queries, threshold: float) -> Ranges:
    """Return lims, D, I of all results at or above the threshold, under rules and conditions."""
    D, I = search(replace(queries, k=queries.snapshot.n), None, None)
    query, place = np.nonzero((I >= 0) & (np.float32(threshold) <= D))
    found: Found = query, I[query, place], D[query, place]
    return make_ranges([found], len(queries))


def _may_be_found(queries: Queries) -> Bools:
    """Return a mask of the rows that some query may find, (n,)."""
    snapshot, rules = queries.snapshot, queries.rules or Rules()
    rows: Bools = np.ones(snapshot.n, bool) if rules.neighbors == "any" else snapshot.labels != UNKNOWN
    for mask in (queries.allowed, None if queries.conditions is None else queries.conditions.evidence):
        if mask is not None:
            rows = rows & mask
    return rows


def _is_excluded(queries: Queries, block: slice, rows: Ints, ids: NDArray[np.int64]) -> Bools:
    """Return a mask of the pairs of a tile that a rule or condition excludes, (queries, rows)."""
    rules, labels, own = queries.rules or Rules(), queries.snapshot.labels[rows], queries.labels[block, None]
    excluded = np.zeros((len(own), len(rows)), bool)
    if rules.neighbors != "any":
        excluded |= (own == UNKNOWN) | ((own == labels) == (rules.neighbors == "other"))
    if queries.stored:
        excluded |= queries.rows[block, None] == rows
    for classes in () if rules.excluded_labels is None else rules.excluded_labels[block].T:
        excluded |= (classes[:, None] == labels) & (labels != UNKNOWN)
    for others in () if rules.excluded_ids is None else rules.excluded_ids[block].T:
        excluded |= others[:, None] == ids
    if queries.conditions is not None and queries.side is not None:
        x, y = queries.side[block][:, None], queries.conditions.rows[rows]
        excluded |= ~queries.usable[block, None] | ~queries.conditions.meet_all(x, y)
    return excluded


def _exclude_beyond(within: tuple[float, float], S: Floats, X: Floats, Y: Floats, margin: float) -> None:
    """Set the products of a tile outside a range of similarities to -inf. Score pairs near its ends exactly."""
    low, high = (np.float32(end) for end in within)
    near = np.flatnonzero((abs(S - low) <= 2 * margin) | (abs(S - high) <= 2 * margin))
    query, row = np.divmod(near, S.shape[1])
    scores = np.empty(len(query), np.float32)
    row_similarities(X, Y, query, row, scores)
    S[query, row] = scores
    S[(low > S) | (high < S)] = -np.inf
