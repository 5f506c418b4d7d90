"""Exact search over tiles: k best of each query, pairs of a threshold, best pairs.

Few queries are compared with the rows in place. All stored rows as queries share tiles: each
unordered pair of rows is multiplied once. :mod:`cfe_faiss.search.tiles` lays out the tiles. If a
row may be in few pairs only, they are chosen greedily, most similar first. So is the evidence of
queries under such a limit.
"""

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from cfe_faiss import _native
from cfe_faiss.base.checks import Bools, Floats, Int32s, Ints
from cfe_faiss.base.threads import run
from cfe_faiss.rows.metric import PADDING, make_results
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import tiles
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Queries, Ranges, Results
from cfe_faiss.search.tiles import Chunk, Tiles, estimate_work

MAX_QUERIES_IN_PLACE = 4
"""Up to this number of queries, scan the rows in place; above it, use matrix products."""
_BUFFER = 1 << 18
_FIRST = 1 << 10
_MOST = 1 << 20
"""Number of pairs in the first batch of a greedy choice, and in the largest."""

Found = tuple[Ints, Ints, Floats]
Threshold = Callable[[], float]
Scan = Callable[[Threshold], Iterator[Found]]
"""Iterates over the pairs at or above a threshold, in parts.

The threshold may rise, so it is read before each part.
"""
Select = Callable[[list[Found], int], Found]
Find = Callable[[int, Bools], Found]
"""Returns some best pairs among the free nodes, best first."""
NOTHING: Found = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


def search(queries: Queries, progress: str | None = None) -> Results:
    """Return the exact D, I of the queries."""
    if queries.conditions is None and len(queries) <= MAX_QUERIES_IN_PLACE:
        return _search_in_place(queries)
    conditions = queries.conditions
    # A tile of rows counts for both of its sides, unless conditions are met in one direction only.
    if queries.all_rows and (
        conditions is None or (queries.rules is None and not conditions.directed)
    ):
        return _search_all_rows(queries, progress)
    return _search_tiles(queries, progress)


def _search_in_place(queries: Queries) -> Results:
    snapshot = queries.snapshot
    D, I = make_results(len(queries), min(queries.k, snapshot.n))
    every_list = np.arange(len(snapshot.starts) - 1)[None].repeat(len(queries), axis=0)
    X = queries.fetch(slice(None))
    Derived.of(snapshot).scan.scan(
        X, queries.labels, every_list, snapshot.margin, D, I, queries.filter()
    )
    return D, I


def _search_tiles(queries: Queries, progress: str | None) -> Results:
    """Return the best D, I of queries in the tiles of each block of them."""
    D, I = make_results(len(queries), min(queries.k, queries.snapshot.n))

    def scan(block: tuple[Ints, Tiles]) -> None:
        numbers, of_block = block
        best_D = D[numbers]
        best_I = I[numbers]
        for x, y, S in of_block():
            scan_tile(x, y, S, best_D, best_I)
        D[numbers] = best_D
        I[numbers] = best_I

    work = estimate_work(queries.snapshot, len(queries))
    run(scan, tiles.of_queries(queries), work=work, progress=progress)
    return D, I


def scan_tile(
    x: Chunk,
    y: Chunk,
    S: Floats,
    D: Floats,
    I: Ints,
    D_y: Floats | None = None,
    I_y: Ints | None = None,
) -> None:
    """Update the results D, I of the rows of x with the eligible rows of y.

    D_y and I_y, if given, are results of the rows of y, and updated with the rows of x. S holds the
    scores.
    """
    metric = x.snapshot.native.metric
    sides = x.X, x.labels, x.ids, y.X, y.labels, y.ids
    rules = x.filter, y.filter
    _native.scan_tile(metric, S, *sides, x.margin(y), *rules, D, I, D_y, I_y)


# --- all rows with each other ---------------------------------------------------------------------


def _search_all_rows(queries: Queries, progress: str | None) -> Results:
    """Return the exact D, I of all stored vectors: each unordered pair is multiplied once."""
    snapshot = queries.snapshot
    width = min(queries.k, queries.snapshot.n)
    rows, cuts, blocks = tiles.of_all_rows(queries)
    D, I = make_results(len(rows), width)
    # By the start of a chunk.
    best = {cut.start: (threading.Lock(), D[cut], I[cut]) for cut in cuts}

    def scan(of_chunk: Tiles) -> None:
        for x, y, S in of_chunk():
            lock, D_x, I_x = best[x.start]
            if x.start == y.start:
                with lock:
                    scan_tile(x, y, S, D_x, I_x)
                continue
            later_lock, D_y, I_y = best[y.start]
            with lock, later_lock:
                scan_tile(x, y, S, D_x, I_x, D_y, I_y)

    run(scan, blocks, work=estimate_work(snapshot, snapshot.n), progress=progress)
    all_D, all_I = make_results(snapshot.n, width)
    all_D[rows] = D
    all_I[rows] = I
    return all_D.take(queries.rows, axis=0), all_I.take(queries.rows, axis=0)


# --- pairs at or above a threshold ----------------------------------------------------------------


def _collect(
    x: Chunk, y: Chunk, S: Floats, threshold: Threshold
) -> Iterator[tuple[Int32s, Int32s, Floats]]:
    """Yield rows, columns and similarities of a tile's pairs, in parts of bounded size."""
    size = max(_BUFFER, S.shape[1])
    rows = np.empty(size, np.int32)
    columns = np.empty(size, np.int32)
    scores = np.empty(size, np.float32)
    sides = (x.X, x.labels, y.X, y.labels)
    filters = (y.ids, x.filter, y.filter)
    metric = x.snapshot.native.metric
    margin = x.margin(y)
    row = 0
    while row < len(S):
        least_score = np.float32(threshold())
        count, row = _native.collect_tile(
            metric, S, *sides, least_score, margin, row, rows, columns, scores, *filters
        )
        if count:
            yield rows[:count], columns[:count], scores[:count]


def scans_of(blocks: Iterable[Tiles], *, once: bool = False) -> list[Scan]:
    """Return scans of the tiles of each block: ids of both chunks, similarities.

    ``once``: of the two pairs of two rows within a chunk, find the first.
    """

    def of_block(block: Tiles, threshold: Threshold) -> Iterator[Found]:
        for x, y, S in block():
            for rows, columns, scores in _collect(x, y, S, threshold):
                if once:
                    first = np.flatnonzero(x.start + rows < y.start + columns)
                    yield x.ids[rows[first]], y.ids[columns[first]], scores[first]
                else:
                    yield x.ids[rows], y.ids[columns], scores.copy()

    return [partial(of_block, block) for block in blocks]


def scans_of_queries(queries: Queries) -> list[Scan]:
    """Return scans that find results of a threshold: query number, id, similarity."""
    return scans_of(block for _, block in tiles.of_queries(queries))


def all_pairs(snapshot: Snapshot, rows: Ints | None = None) -> list[Scan]:
    """Return scans that find all evidence pairs of a threshold, one per chunk of rows.

    ``rows`` are in ascending order of label; None for all rows of known label.
    """
    pairs = tiles.pairs_by_label(snapshot, snapshot.by_label if rows is None else rows)
    return scans_of(pairs.blocks, once=True)


def search_range(queries: Queries, threshold: float) -> Ranges:
    """Return lims (nq + 1,), D, I: query q has the results lims[q]:lims[q + 1]."""
    if queries.uses is not None:
        raise ValueError("params.where must not limit how often evidence is used in a range search")
    parts_of_pairs = [NOTHING]
    work = estimate_work(queries.snapshot, len(queries))
    run(
        lambda find: parts_of_pairs.extend(find(lambda: threshold)),
        scans_of_queries(queries),
        work=work,
    )
    query, ids, scores = (np.concatenate(parts) for parts in zip(*parts_of_pairs, strict=True))
    order = np.lexsort((ids, -scores, query))
    lims = np.searchsorted(query, np.arange(len(queries) + 1), sorter=order).astype(np.int64)
    return lims, scores[order], ids[order]


# --- the best pairs -------------------------------------------------------------------------------


def select_directed(found: list[Found], k: int) -> Found:
    """Return the k best pairs. Ties: smaller first id, then smaller second id."""
    pairs = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    scores = pairs[2]
    if len(scores) > 2 * k:
        near = np.flatnonzero(scores >= -np.partition(-scores, k - 1)[k - 1])
        pairs = [part[near] for part in pairs]
    first, second, scores = pairs
    order = np.argsort(-scores)  # several times as fast as with ids, which decide ties only
    ties = np.flatnonzero(scores[order[1:]] == scores[order[:-1]])
    tied = np.union1d(ties, ties + 1)
    among = order[tied]
    order[tied] = among[np.lexsort((second[among], first[among], -scores[among]))]
    order = order[:k]
    return first[order], second[order], scores[order]


def select_best(found: list[Found], k: int) -> Found:
    """Return the k best pairs, each unordered pair once, smaller id first. Ties: smaller ids first.

    No unordered pair may occur more than twice.
    """
    ordered = [
        (np.minimum(source, target), np.maximum(source, target), scores)
        for source, target, scores in found
    ]
    low, high, scores = select_directed(ordered, 2 * k)
    first = np.ones(len(scores), bool)
    first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    keep = np.flatnonzero(first)[:k]
    return low[keep], high[keep], scores[keep]


def run_until_full(
    pending: list[Iterator[Found]], size: int, work: float = math.inf
) -> tuple[Found, list[Iterator[Found]]]:
    """Run scans until they have found ``size`` pairs.

    Return the pairs, best first, and the unfinished scans.
    """
    candidates = [NOTHING]
    over = np.zeros(len(pending), bool)
    count = 0

    def go_on(place: int) -> None:
        nonlocal count
        while count < size:
            pairs = next(pending[place], None)
            if pairs is None:
                over[place] = True
                return
            candidates.append(pairs)
            count += len(pairs[2])  # a race between threads adds at most a few more pairs

    run(go_on, range(len(pending)), work=work)
    pairs = select_best(candidates, max(1, sum(len(part[2]) for part in candidates)))
    return pairs, [pending[place] for place in np.flatnonzero(~over)]


def find_best(
    scans: list[Scan],
    k: int,
    best: Found = NOTHING,
    *,
    floor: float = float(PADDING),
    work: float = math.inf,
    progress: str | None = None,
    select: Select = select_best,
) -> Found:
    """Return the k best pairs of ``best`` and of the pairs that scans find at or above ``floor``.

    ``select`` is :func:`select_best`, by default, or :func:`select_directed`.
    """
    lock = threading.Lock()
    waiting: list[Found] = []

    def threshold() -> float:
        return max(floor, float(best[2][-1])) if len(best[2]) == k else floor

    def merge() -> None:
        nonlocal best
        best = select([best, *waiting], k)
        waiting.clear()

    def take(find: Scan) -> None:
        for found in find(threshold):
            pairs = select([found], k) if len(found[2]) > k else found
            with lock:
                waiting.append(pairs)
                if sum(len(part[2]) for part in waiting) >= k:  # sort each pair only a few times
                    merge()

    run(take, scans, work=work, progress=progress)
    merge()
    return best


# --- greedy choice --------------------------------------------------------------------------------


def greedy(find: Find, capacity: Ints, wanted: int) -> Found:
    """Choose pairs, best first, such that no node exceeds its capacity.

    Parameters
    ----------
    find
        Function that returns pairs of positions, (p,) each.
    capacity
        Maximum number of pairs of each node, by position, (n,) int64.
    wanted
        Maximum number of pairs.

    Returns
    -------
    Found
        The chosen pairs in the order of ``find``.

    Notes
    -----
    Pairs are requested in batches, among nodes with remaining capacity. The first new pair of a
    batch is always chosen, so the loop ends. Batches grow, so it ends soon.
    """
    uses_left = capacity.copy()
    size = len(capacity)
    chosen = NOTHING
    number = max(_FIRST, min(_MOST, 4 * wanted))
    while len(chosen[2]) < wanted:
        free = uses_left > 0
        again = free[chosen[0]] & free[chosen[1]]
        most = number + int(again.sum())
        best = find(most, free)
        known = chosen[0][again] * size + chosen[1][again]
        new = np.flatnonzero(~np.isin(best[0] * size + best[1], known))
        places = new[_take(best[0][new], best[1][new], uses_left, wanted - len(chosen[2]))]
        picked = best[0][places], best[1][places], best[2][places]
        one, other, scores = (
            np.concatenate(parts) for parts in zip(*[chosen, picked], strict=True)
        )
        chosen = one, other, scores
        if len(best[2]) < most:
            break
        number = min(2 * number, _MOST)
    return chosen


def _take(source: Ints, target: Ints, left: Ints, wanted: int) -> Ints:
    """Return the chosen pairs, in order, and reduce the capacity ``left`` of their nodes."""
    places = []
    nodes = np.union1d(source, target)
    remaining = dict(zip(nodes.tolist(), left[nodes].tolist(), strict=True))
    for place, (a, b) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        if remaining[a] and remaining[b]:
            remaining[a] -= 1
            remaining[b] -= 1
            places.append(place)
            if len(places) == wanted:
                break
    left[nodes] = list(remaining.values())
    return np.array(places, np.int64)


def search_greedily(queries: Queries, progress: str | None) -> Results:
    """Return the evidence D, I of queries under conditions that limit how often a row is used.

    Ties: first query first, then smaller id.
    """
    snapshot = queries.snapshot
    nq = len(queries)
    capacity = np.concatenate([np.full(nq, queries.k), np.full(snapshot.n, queries.uses)])

    def find(number: int, free: Bools) -> Found:
        free_queries = replace(queries.among(free[nq:]), usable=queries.usable & free[:nq])
        query, evidence_ids, scores = find_best(
            scans_of_queries(free_queries),
            number,
            work=estimate_work(snapshot, nq),
            progress=progress,
            select=select_directed,
        )
        return query, nq + snapshot.members.rows_of(evidence_ids), scores

    most = min(nq * queries.k, int(capacity[nq:].sum()))
    query, place, scores = greedy(find, capacity, most)
    D, I = make_results(nq, queries.k)
    order = np.argsort(query, kind="stable")
    query = query[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    D[query, rank] = scores[order]
    I[query, rank] = snapshot.row_ids[place[order] - nq]
    return D, I
