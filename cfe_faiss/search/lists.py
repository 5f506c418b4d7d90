"""Search of the lists that are nearest to each query, or to the mean of a group of queries.

**One by one.** The lists of each query are ranked, of several queries at once, and scanned, then
further lists while its row is incomplete. Queries that are nearest to one list follow each other.

**In groups.** Queries near each other share routing, memory reads and multiplications. Queries of
one list are split into small groups. The mean of a group is routed to the lists whose other-class
rows are near (:mod:`cfe_faiss.coarse.routes`). All queries of the group are compared with
the rows of these lists, in blocks of 16 rows (``native/core/blocks.h``). Short rows are completed
one by one.

Queries of one list share the centroids that rank lists if they have the same label with a large
share in the list, or if all their labels have small shares. A label with a small share moves the
list's mean too little to matter. Such a set of queries is halved, along the line between two
distant queries, until each group has at most as many queries as a block has rows. The mean of a
group is then near to each of its queries.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from cfe_faiss._native import Blocks, Searcher
from cfe_faiss.base.checks import SEVERAL, UNKNOWN, Bools, Floats, Int32s, Ints
from cfe_faiss.base.threads import native_progress, num_native_threads, num_threads, once, run
from cfe_faiss.coarse.routes import Routes, nearest_lists, ranked
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.derived import ROWS_OF_BLOCK, Derived, Groups, blocks_of, bytes_of_block
from cfe_faiss.search.query import MEMORY, Effort, Plan, Queries, Results
from cfe_faiss.search.tiles import slices

_CHUNK = 256
_WIDER = 4  # factor of nprobe for incomplete rows
_PER_QUERY = 1 << 12  # overhead of a query in a group beyond its products, in multiplications
# For few queries among most rows, testing the mask of allowed rows is faster than packing blocks of
# these rows. For many, a search in packed blocks takes half of the time, because its thresholds
# rise sooner.
_LEAST_ALLOWED = 3 / 4  # share of the rows
_FEW_QUERIES = 1 / 16  # share of the rows
_LARGEST_GROUP = 16


def search(queries: Queries, plan: Plan, progress: str | None) -> Results:
    """Return D, I from the lists nearest to each query, or to the mean of its group."""
    found = queries.allocate_results()
    if not len(queries):
        return found
    if plan.engine == "lists":
        _search_each(queries, plan, plan.nprobe, queries.order, found, progress)
        return found
    _search_groups(queries, plan, found, progress)
    if plan.effort.complete and plan.nprobe < queries.snapshot.lists:
        pending = _find_incomplete(queries, queries.in_order, found[1])
        if len(pending):
            _search_each(queries, plan, _WIDER * plan.nprobe, pending, found, progress)
    return found


# --- one by one -----------------------------------------------------------------------------------


def _search_each(
    queries: Queries,
    plan: Plan,
    nprobe: int,
    pending: Ints | None,
    found: Results,
    progress: str | None,
) -> None:
    """Search ``nprobe`` lists of each query, and further lists while its row is incomplete.

    ``pending``: numbers of the queries; None for all.
    """
    derived = Derived.of(queries.snapshot)
    by_recall = (
        plan.engine == "lists"
        and plan.effort.recall is not None
        and nprobe < queries.snapshot.lists
    )
    searcher = None
    if plan.effort.class_aware:
        searcher = derived.searcher(queries.neighbors, by_recall=by_recall)
    _search_lists(queries, plan, nprobe, pending, searcher, found, progress)
    if searcher is not None or not plan.effort.complete:
        return  # the core completes rows by itself
    # Stop after all lists: NaN vectors in a damaged mapped file are eligible but never found.
    while nprobe < queries.snapshot.lists:
        everything = queries.in_order if pending is None else pending
        pending = _find_incomplete(queries, everything, found[1])
        if not len(pending):
            return
        nprobe *= _WIDER
        _search_lists(queries, plan, nprobe, pending, None, found, progress)


def _search_lists(
    queries: Queries,
    plan: Plan,
    nprobe: int,
    pending: Ints | None,
    searcher: Searcher | None,
    found: Results,
    progress: str | None,
) -> None:
    """Search ``nprobe`` lists of each query, in chunks on all threads."""
    snapshot = queries.snapshot
    effort = plan.effort
    derived = Derived.of(snapshot)
    nprobe = min(nprobe, snapshot.lists)

    def probe(chosen: Any) -> None:
        D = found[0][chosen]
        I = found[1][chosen]
        X = queries.fetch(chosen)
        labels = queries.labels[chosen]
        rules = queries.filter(chosen)
        if searcher is not None:
            searcher.search(X, labels, nprobe, bool(effort.complete), D, I, rules)
        else:
            lists = rank_lists(derived, X, labels, nprobe, effort, queries.neighbors)
            if snapshot.pq is not None and nprobe < snapshot.lists:  # screens by codes
                scored = min(snapshot.n, math.ceil((effort.k_factor or 1) * D.shape[1]))
                derived.scan.scan_codes(snapshot.pq, X, labels, lists, scored, D, I, rules)
            else:
                derived.scan.scan(X, labels, lists, snapshot.margin, D, I, rules)
        found[0][chosen] = D
        found[1][chosen] = I

    nq = len(queries if pending is None else pending)
    work = float(nq) * snapshot.d * (snapshot.lists + snapshot.scanned(nprobe))
    cuts = slices(nq, max(1, min(_CHUNK, -(-nq // num_threads(work)))))
    chunks: list[Any] = cuts if pending is None else [pending[cut] for cut in cuts]
    run(probe, chunks, work=work, progress=progress, blas=searcher is None)


def rank_lists(
    derived: Derived,
    X: Floats,
    labels: Int32s,
    nprobe: int,
    effort: Effort,
    neighbors: str = "other",
) -> Ints:
    """Return the lists that each query probes, nearest first, (nq, nprobe)."""
    if not effort.class_aware:
        return nearest_lists(X, derived.snapshot.centroids, nprobe, derived.snapshot.metric)
    return ranked(
        derived.native_routes_for(neighbors), len(derived.snapshot.starts) - 1, X, labels, nprobe
    )


def _find_incomplete(queries: Queries, pending: Ints, I: Ints) -> Ints:
    """Return the pending queries whose rows of I hold fewer results than min(k, eligible)."""
    pending = pending[I[pending, -1] < 0]
    # The number of rows that rules leave is unknown.
    if queries.rules is not None or not len(pending):
        return pending
    eligible = queries.snapshot.eligible(queries.labels[pending], queries.allowed)
    wanted = np.minimum(eligible, I.shape[1])
    short: Bools = (I[pending] >= 0).sum(axis=1) < wanted
    return pending[short]


# --- in groups ------------------------------------------------------------------------------------


def _search_groups(queries: Queries, plan: Plan, found: Results, progress: str | None) -> None:
    """Search the lists nearest to each group's mean, in kept blocks if there are some."""
    derived = Derived.of(queries.snapshot)
    memory = plan.effort.memory or MEMORY
    allowed = queries.allowed
    are_few = len(queries) <= _FEW_QUERIES * queries.snapshot.n
    tests_mask = allowed is None or (are_few and bool(allowed.mean() >= _LEAST_ALLOWED))
    blocks = derived.blocks if memory >= MEMORY and tests_mask else None
    if blocks is None:
        _search_in_parts(queries, plan, memory, found, progress)
        return
    groups = groups_of(queries)
    in_tasks = _in_tasks(queries, groups)
    with native_progress(progress, len(in_tasks[-1]) - 1) as report:
        searcher = derived.searcher_in(blocks, derived.routes_for(queries.neighbors).native)
        searcher.search_groups(
            *in_tasks,
            plan.nprobe,
            *found,
            queries.filter(),
            threads=num_native_threads(_work(queries, plan, queries.snapshot)),
            progress=report,
        )


def groups_of(queries: Queries) -> Groups:
    """Return the groups of queries. Groups of all stored rows in list order are kept."""
    derived = Derived.of(queries.snapshot)
    routes = derived.routes_for(queries.neighbors)
    if queries.order is None:
        return group(queries, routes)
    return once(derived.groups, queries.neighbors, lambda: group(queries, routes))


def _search_in_parts(
    queries: Queries, plan: Plan, memory: int, found: Results, progress: str | None
) -> None:
    """Search the allowed rows in temporary blocks of some lists within ``memory`` bytes."""
    derived = Derived.of(queries.snapshot)
    routes = derived.routes_for(queries.neighbors)
    element = derived.choice.batch
    snapshot = queries.snapshot
    if plan.nprobe >= len(routes.means):
        snapshot = snapshot.first_partition()
    groups, lists = routed(routes, queries, plan.nprobe)
    rules = queries.filter(masked=False)  # blocks hold allowed rows

    def scan(task: slice, blocks: Blocks, resume: bool) -> None:
        cut, starts = groups.of_task(task)
        chosen = groups.order[cut]
        blocks.search(
            queries.fetch(chosen),
            queries.labels[chosen],
            starts,
            lists[task],
            chosen,
            *found,
            rules,
            resume=resume,
        )

    probed = np.zeros(len(snapshot.list_starts) - 1, np.bool_)
    probed[lists[lists >= 0]] = True
    work = _work(queries, plan, snapshot)
    for shard in shards(snapshot, probed, bytes_of_block(snapshot.d, element), memory):
        here = np.zeros_like(probed)
        here[shard] = probed[shard]
        blocks = blocks_of(snapshot, element, wanted=here, allowed=queries.allowed)
        scan_shard = partial(scan, blocks=blocks, resume=shard.start > 0)
        run(scan_shard, groups.tasks(), work=work, progress=progress, blas=False)


def shards(snapshot: Snapshot, wanted: Bools, of_block: int, memory: int) -> list[slice]:
    """Cut the lists into runs whose blocks take about ``memory`` bytes.

    A run has at least one list.
    """
    sizes = np.where(wanted, np.diff(snapshot.list_starts), 0)
    end = np.cumsum(-(-sizes // ROWS_OF_BLOCK) * of_block)
    cuts: list[slice] = []
    first = 0
    while first < len(sizes):
        before = end[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(end, before + memory, side="right")))
        cuts.append(slice(first, last))
        first = last
    return cuts


def _work(queries: Queries, plan: Plan, snapshot: Snapshot) -> float:
    """Estimate the time of the search in groups, in multiplications."""
    lists = len(snapshot.list_starts)
    rows = int(snapshot.list_starts[-1])
    scanned = min(plan.nprobe, lists) * rows / lists
    return float(len(queries)) * (snapshot.d * scanned + _PER_QUERY)


# --- groups of queries ----------------------------------------------------------------------------


def group(queries: Queries, routes: Routes) -> Groups:
    """Group the queries of each list that share the centroids by which lists are ranked."""
    order = queries.in_order
    labels = queries.labels[order]
    known = labels != UNKNOWN
    if not known.all():
        order = order[known]
        labels = labels[known]
    homes = queries.own_lists(order)
    runs = _runs((labels[1:] != labels[:-1]) | (homes[1:] != homes[:-1]), len(order))
    sizes = np.diff(np.append(runs, len(order)))
    labels = labels[runs]
    homes = homes[runs]
    by = np.where(routes.has_centroids(labels, homes), labels, SEVERAL)
    keys = homes * (int(labels.max(initial=0)) - SEVERAL + 1) + by
    if (keys[1:] < keys[:-1]).any():
        among = np.argsort(keys, kind="stable")
        runs = runs[among]
        sizes = sizes[among]
        keys = keys[among]
        by = by[among]
        firsts = np.cumsum(sizes) - sizes
        order = order[np.repeat(runs - firsts, sizes) + np.arange(len(order))]
        runs = firsts
    starts = _runs(keys[1:] != keys[:-1], len(keys))
    return Groups(order, np.append(runs[starts], len(order)), by[starts].astype(np.int32))


def _runs(changes: Bools, n: int) -> Ints:
    """Return the starts of the runs of n items.

    ``changes``, (n - 1,), marks items followed by a change.
    """
    return np.flatnonzero(np.append(True, changes)[:n])


def routed(routes: Routes, queries: Queries, nprobe: int) -> tuple[Groups, Ints]:
    """Return small groups of all queries, and the lists of each.

    Lists are nearest first, (groups, nprobe), -1 for none. If ``nprobe`` is at least the number of
    lists, they are all lists of the first partition.
    """
    large = group(queries, routes)
    searcher = Derived.of(queries.snapshot).searcher_in(None, routes.native)
    work = float(len(queries)) * routes.means.size / _LARGEST_GROUP
    order, starts, labels, lists = searcher.route_groups(
        *_in_tasks(queries, large), nprobe, num_native_threads(work)
    )
    return Groups(order, starts, labels), lists.reshape(len(labels), min(nprobe, len(routes.means)))


def _in_tasks(
    queries: Queries, groups: Groups
) -> tuple[Floats, Ints, Int32s, Ints, Ints, Int32s, Ints]:
    """Return queries, groups, and the first groups of tasks, as the core takes them."""
    tasks = np.array([0, *(task.stop for task in groups.tasks())])
    of_queries = queries.X, queries.rows, queries.labels
    return *of_queries, groups.order, groups.starts, groups.labels, tasks
