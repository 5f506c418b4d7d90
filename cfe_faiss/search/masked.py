"""General engine for every query: compares all rows in tiles and masks the pairs that a rule excludes.

Faster engines answer the queries that they support. All other queries are answered here, with the same similarities to
the last bit.
"""

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import scan_tile
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import run
from cfe_faiss.rows.topk import make_results
from cfe_faiss.search.conditions import Ints
from cfe_faiss.search.exact import CHUNK, TILE, slices, work_of
from cfe_faiss.search.query import Plan, Queries, Results, Rules


def search(queries: Queries, _: Plan, progress: str | None) -> Results:
    """Return the exact k best D, I of queries under their rules."""
    snapshot, rules = queries.snapshot, queries.rules or Rules()
    D, I = make_results(len(queries), min(queries.k, snapshot.n))
    usable = np.ones(snapshot.n, bool) if rules.among == "any" else snapshot.labels != UNKNOWN
    rows = np.flatnonzero(usable if queries.allowed is None else usable & queries.allowed)

    def scan(block: slice) -> None:
        X = queries.fetch(block)
        # Give all rows one label and all queries another, so that the core skips nothing: the rules decide.
        of_queries = np.ones(len(X), np.int32)
        for cut in slices(len(rows), TILE // len(X)):
            Y, ids = snapshot.rows(rows[cut])
            S = X @ Y.T
            S[_left_out(queries, block, rows[cut], ids, S)] = -np.inf
            scan_tile(S, X, of_queries, Y, np.zeros(len(Y), np.int32), ids, D[block], I[block], snapshot.margin)

    run(scan, slices(len(queries), CHUNK), work=work_of(snapshot, len(queries)), progress=progress)
    return D, I


def _left_out(
    queries: Queries, block: slice, rows: Ints, ids: NDArray[np.int64], S: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Return a mask of the pairs of a tile that a rule excludes, (queries, rows)."""
    rules, labels, own = queries.rules or Rules(), queries.snapshot.labels[rows], queries.labels[block, None]
    out = np.zeros(S.shape, bool)
    if rules.among != "any":
        out |= (own == labels) if rules.among == "other" else (own != labels)
    if queries.stored:
        out |= queries.rows[block, None] == rows
    for groups in () if rules.but_labels is None else rules.but_labels[block].T:
        out |= groups[:, None] == labels
    for others in () if rules.but_ids is None else rules.but_ids[block].T:
        out |= others[:, None] == ids
    if rules.below is not None:
        out |= np.float32(rules.below) < S
    return out
