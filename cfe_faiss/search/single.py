"""Single-query search: scan the lists nearest to each query, then further lists while its row is incomplete."""

import math
from typing import Any

import numpy as np

from cfe_faiss.base.arrays import Bools, Floats, Int32s, Ints
from cfe_faiss.base.threads import num_threads, run
from cfe_faiss.coarse.class_centroids import nearest_lists, ranked
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Effort, Plan, Queries, Results
from cfe_faiss.search.tiles import slices

_CHUNK = 256
_WIDER = 4  # factor of nprobe for incomplete rows


def search(queries: Queries, plan: Plan, progress: str | None) -> Results:
    """Return D, I from the lists nearest to each query."""
    found = queries.allocate_results()
    if len(queries) and not _search_once(queries, plan, plan.nprobe, queries.order, found, progress):
        complete_rows(queries, plan, found, progress)
    return found


def complete_rows(queries: Queries, plan: Plan, found: Results, progress: str | None = None) -> None:
    """Complete short rows, if the plan requires it, by probing more and more lists."""
    nprobe, pending = plan.nprobe, queries.in_order
    # Stop after all lists: NaN vectors in a damaged mapped file are eligible but never found.
    while plan.effort.complete and nprobe < queries.snapshot.lists:
        pending, nprobe = _find_incomplete(queries, pending, found[1]), _WIDER * nprobe
        if not len(pending) or _search_once(queries, plan, nprobe, pending, found, progress):
            return


def _search_once(
    queries: Queries, plan: Plan, nprobe: int, pending: Ints | None, found: Results, progress: str | None
) -> bool:
    """Search ``nprobe`` lists, in chunks on all threads; return whether the core has completed short rows.

    ``pending``: numbers of the queries; None for all.
    """
    snapshot, derived, effort = queries.snapshot, Derived.of(queries.snapshot), plan.effort
    searcher = derived.searcher(queries.neighbors) if effort.class_aware else None
    nprobe = min(nprobe, snapshot.lists)

    def probe(chosen: Any) -> None:
        D, I = found[0][chosen], found[1][chosen]
        if searcher is None:
            _rank_and_scan(queries, chosen, nprobe, effort, D, I)
        else:
            X, labels, rules = queries.fetch(chosen), queries.labels[chosen], queries.filter(chosen)
            searcher.search(X, labels, nprobe, bool(effort.complete), D, I, rules)
        found[0][chosen], found[1][chosen] = D, I

    nq = len(queries if pending is None else pending)
    work = float(nq) * snapshot.d * (snapshot.lists + snapshot.scanned(nprobe))
    cuts = slices(nq, max(1, min(_CHUNK, -(-nq // num_threads(work)))))
    chunks: list[Any] = cuts if pending is None else [pending[cut] for cut in cuts]
    run(probe, chunks, work=work, progress=progress)
    return searcher is not None


def _rank_and_scan(queries: Queries, chosen: Any, nprobe: int, effort: Effort, D: Floats, I: Ints) -> None:
    """Rank the lists, then scan them, with screening by codes if there are codes; write D, I."""
    snapshot, derived = queries.snapshot, Derived.of(queries.snapshot)
    X, labels, rules = queries.fetch(chosen), queries.labels[chosen], queries.filter(chosen)
    lists = rank_lists(derived, X, labels, nprobe, effort, queries.neighbors)
    if snapshot.pq is not None and nprobe < snapshot.lists:
        scored = min(snapshot.n, math.ceil((effort.k_factor or 1) * D.shape[1]))
        derived.scan.scan_codes(snapshot.pq, X, labels, lists, scored, D, I, rules)
    else:
        derived.scan.scan(X, labels, lists, snapshot.margin, D, I, rules)


def rank_lists(
    derived: Derived, X: Floats, labels: Int32s, nprobe: int, effort: Effort, neighbors: str = "other"
) -> Ints:
    """Return the lists that each query probes, nearest first, (nq, nprobe)."""
    if not effort.class_aware:
        return nearest_lists(X, derived.snapshot.centroids, nprobe, derived.snapshot.metric)
    return ranked(derived.centroids_for(neighbors), len(derived.snapshot.starts) - 1, X, labels, nprobe)


def _find_incomplete(queries: Queries, pending: Ints, I: Ints) -> Ints:
    """Return the pending queries whose rows of I hold fewer results than min(k, eligible)."""
    short_of_any: Bools = I[:, -1] < 0
    if not short_of_any.any():
        return pending[:0]
    pending = pending[short_of_any[pending]]
    if queries.rules is not None:  # the number of rows that they leave is unknown
        return pending
    wanted = np.minimum(queries.snapshot.eligible(queries.labels[pending], queries.allowed), I.shape[1])
    short: Bools = (I[pending] >= 0).sum(axis=1) < wanted
    return pending[short]
