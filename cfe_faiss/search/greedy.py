"""Greedy choice of pairs, most similar first, with a maximum number of pairs per node."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cfe_faiss.base.arrays import Bools, Ints
from cfe_faiss.rows.metric import make_results
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import exact
from cfe_faiss.search.exact import NOTHING, Found
from cfe_faiss.search.query import Queries, Results
from cfe_faiss.search.tiles import estimate_work

_FIRST = 1 << 10
_MOST = 1 << 20
"""Number of pairs in the first batch, and in the largest."""

Find = Callable[[int, Bools], Found]
"""Returns some best pairs among the free nodes, best first: positions, similarity."""


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
    left = capacity.copy()
    size = len(capacity)
    chosen = NOTHING
    number = max(_FIRST, min(_MOST, 4 * wanted))
    while len(chosen[2]) < wanted:
        free = left > 0
        again = free[chosen[0]] & free[chosen[1]]
        most = number + int(again.sum())
        found = find(most, free)
        known = chosen[0][again] * size + chosen[1][again]
        new = np.flatnonzero(~np.isin(found[0] * size + found[1], known))
        taken = new[_take(found[0][new], found[1][new], left, wanted - len(chosen[2]))]
        picked = found[0][taken], found[1][taken], found[2][taken]
        one, other, scores = (
            np.concatenate(parts) for parts in zip(*[chosen, picked], strict=True)
        )
        chosen = one, other, scores
        if len(found[2]) < most:
            break
        number = min(2 * number, _MOST)
    return chosen


def _take(source: Ints, target: Ints, left: Ints, wanted: int) -> Ints:
    """Return the chosen pairs, in order, and reduce the capacity ``left`` of their nodes."""
    taken = []
    remaining = dict(
        zip(nodes := np.union1d(source, target).tolist(), left[nodes].tolist(), strict=True)
    )
    for place, (a, b) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        if remaining[a] and remaining[b]:
            remaining[a] -= 1
            remaining[b] -= 1
            taken.append(place)
            if len(taken) == wanted:
                break
    left[nodes] = list(remaining.values())
    return np.array(taken, np.int64)


def search(queries: Queries, progress: str | None) -> Results:
    """Return the evidence D, I of queries under conditions that limit how often a row is used.

    Ties: first query first, then smaller id.
    """
    snapshot = queries.snapshot
    allowed = queries.allowed
    conditions = queries.conditions
    assert conditions is not None  # the engine is for queries under conditions
    nq = len(queries)
    n = snapshot.n
    k = queries.k
    rows = snapshot.members.rows
    ids = snapshot.members.ids
    capacity = np.concatenate([np.full(nq, k), np.full(n, conditions.uses)])

    def find(number: int, free: Bools) -> Found:
        usable = np.zeros(n, bool)
        usable[rows] = free[nq:]
        if allowed is not None:
            usable &= allowed
        scans = exact.scans_of_queries(
            replace(queries, usable=queries.usable & free[:nq], allowed=usable)
        )
        work = estimate_work(snapshot, nq)
        query, found, scores = exact.find_best(
            scans, number, work=work, progress=progress, select=exact.select_directed
        )
        return query, nq + np.searchsorted(ids, found), scores

    query, place, scores = greedy(find, capacity, min(nq * k, n * capacity[-1] if n else 0))
    D, I = make_results(nq, k)
    order = np.argsort(query, kind="stable")
    query = query[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    D[query, rank] = scores[order]
    I[query, rank] = ids[place[order] - nq]
    return D, I


def pairs(
    find_best: Callable[[int, Bools], Found], snapshot: Snapshot, uses: int, wanted: int
) -> Found:
    """Return pairs of ids, each id in at most ``uses`` pairs.

    ``find_best`` returns the best pairs of given rows.
    """
    rows = snapshot.members.rows
    ids = snapshot.members.ids

    def find(number: int, free: Bools) -> Found:
        allowed = np.zeros(snapshot.n, bool)
        allowed[rows] = free
        source, target, scores = find_best(number, allowed)
        return np.searchsorted(ids, source), np.searchsorted(ids, target), scores

    source, target, scores = greedy(
        find, np.full(snapshot.n, uses), min(wanted, snapshot.n * uses // 2)
    )
    return ids[source], ids[target], scores
