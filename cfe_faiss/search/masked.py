"""General engine for every query: compares all rows in tiles and masks the pairs that a rule or condition excludes.

Faster engines answer the queries that they support. All other queries are answered here, with the same similarities to
the last bit.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from cfe_faiss._native import row_scores
from cfe_faiss.base.arrays import Bools, Floats, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import run
from cfe_faiss.rows.layout import stable_order
from cfe_faiss.search import exact
from cfe_faiss.search.exact import Chunk, Tile, Tiles
from cfe_faiss.search.query import Plan, Queries, Ranges, Results, Rules


def search(queries: Queries, _: Plan | None, progress: str | None) -> Results:
    """Return the exact k best D, I of queries under their rules and conditions."""
    if queries.conditions is not None and queries.conditions.uses is not None:
        raise ValueError("params.where must not limit how often evidence is used together with rules")
    return exact.scan_blocks(queries, *_cut(queries), progress)


def range_search(queries: Queries, threshold: float) -> Ranges:
    """Return lims, D, I of all results at or above the threshold, under rules and conditions."""
    return exact.find_ranges(queries, exact.scans_of(*_cut(queries)), threshold)


def search_per_label(queries: Queries, labels: Int32s, D: Floats, I: Ints) -> None:
    """Write the exact k best D, I of each class, (nq, classes, k); ``labels`` are ascending, (classes,)."""
    snapshot = queries.snapshot
    blocks, tiles = _cut(queries, by_label=True)

    def scan(block: Ints) -> None:
        for x, y, S in tiles(block):
            of_rows = snapshot.labels[snapshot.rows_of(y.ids)]
            starts = np.flatnonzero(np.diff(of_rows, prepend=UNKNOWN))
            for first, stop in pairwise([*starts.tolist(), len(of_rows)]):
                cut, place = slice(first, stop), int(labels.searchsorted(of_rows[first]))
                found, part = (D[block, place], I[block, place]), np.ascontiguousarray(S[:, cut])
                exact.scan_tile(x, y.part(cut), part, *found)
                D[block, place], I[block, place] = found

    run(scan, blocks, work=exact.estimate_work(snapshot, len(queries)))


def excluded_rows(queries: Queries) -> Ints:
    """Return the rows that each query must not find: itself and the excluded ids, (nq, m); -1 for none."""
    ids = None if queries.rules is None else queries.rules.excluded_ids
    rows = np.empty((len(queries), 0), np.int64)
    if ids is not None and ids.size:
        rows = queries.snapshot.rows_of(np.ascontiguousarray(ids.reshape(-1))).reshape(ids.shape)
    return np.column_stack([queries.rows, rows]) if queries.stored else rows


def _cut(queries: Queries, *, by_label: bool = False) -> tuple[list[Ints], Tiles]:
    """Return blocks of queries, and a function that yields the tiles of a block with all rows that it may find.

    ``by_label``: rows are in ascending order of label.
    """
    snapshot, rules = queries.snapshot, queries.rules or Rules()
    rows, order, own = np.flatnonzero(_may_be_found(queries)), np.arange(len(queries)), rules.neighbors == "own"
    if own or by_label:
        rows = rows[stable_order(snapshot.labels[rows])]
    if own:  # the rows of the classes in a block are a run
        order = stable_order(queries.labels)
    places = np.full(snapshot.n + 1, -1)  # the last one is that of no row
    places[rows] = np.arange(len(rows))
    excluded, labels = places[excluded_rows(queries)], snapshot.labels[rows]

    def tiles(block: Ints) -> Iterator[Tile]:
        # Give all rows one label and all queries another, so that the core skips nothing: the rules decide.
        x = Chunk.of(snapshot, queries.fetch(block), block, np.ones(len(block), np.int32))
        first, stop, gone = 0, len(rows), excluded[block]
        if own:
            first, stop = int(labels.searchsorted(queries.labels[block[0]])), len(rows)
            stop = int(labels.searchsorted(queries.labels[block[-1]], side="right"))
        for part in exact.slices(stop - first, exact.TILE // len(block)):
            cut = slice(first + part.start, first + part.stop)
            Y, ids = snapshot.rows(rows[cut])
            y = Chunk.of(snapshot, Y, ids, np.zeros(len(Y), np.int32))
            S = exact.products(x, y)
            S[_is_excluded(queries, block, rows[cut])] = -np.inf
            query, place = np.nonzero((gone >= cut.start) & (gone < cut.stop))
            S[query, gone[query, place] - cut.start] = -np.inf
            if rules.within is not None:
                _exclude_beyond(rules.within, S, x, y)
            yield x, y, S

    return [order[cut] for cut in exact.slices(len(order), exact.CHUNK)], tiles


def _may_be_found(queries: Queries) -> Bools:
    """Return a mask of the rows that some query may find, (n,)."""
    snapshot, rules = queries.snapshot, queries.rules or Rules()
    rows: Bools = np.ones(snapshot.n, bool) if rules.neighbors == "any" else snapshot.labels != UNKNOWN
    for mask in (queries.allowed, None if queries.conditions is None else queries.conditions.evidence):
        if mask is not None:
            rows = rows & mask
    return rows


def _is_excluded(queries: Queries, block: Ints, rows: Ints) -> Bools:
    """Return a mask of the pairs of a tile, (queries, rows), that classes or conditions exclude."""
    rules, labels, own = queries.rules or Rules(), queries.snapshot.labels[rows], queries.labels[block, None]
    excluded = np.zeros((len(own), len(rows)), bool)
    if rules.neighbors != "any":
        excluded |= (own == UNKNOWN) | ((own == labels) == (rules.neighbors == "other"))
    for classes in () if rules.excluded_labels is None else rules.excluded_labels[block].T:
        excluded |= (classes[:, None] == labels) & (labels != UNKNOWN)
    if queries.conditions is not None and queries.side is not None:
        x, y = queries.side[block][:, None], queries.conditions.rows[rows]
        excluded |= ~queries.usable[block, None] | ~queries.conditions.meet_all(x, y)
    return excluded


def _exclude_beyond(within: tuple[float, float], S: Floats, x: Chunk, y: Chunk) -> None:
    """Set the scores of a tile outside a range to -inf. Score pairs near its ends exactly."""
    (low, high), margin = (np.float32(end) for end in within), x.margin(y)
    near = np.flatnonzero((abs(S - low) <= 2 * margin) | (abs(S - high) <= 2 * margin))
    query, row = np.divmod(near, S.shape[1])
    scores = np.empty(len(query), np.float32)
    row_scores(x.storage.native.metric, x.X, y.X, query, row, scores)
    S[query, row] = scores
    S[(low > S) | (high < S)] = -np.inf
