"""Batched search, list by list: queries near each other share routing, memory reads and multiplications.

Queries of one list are split into small groups (:mod:`cfe_faiss.search.grouping`). The mean of a group is routed to
the lists whose other-class rows are near (:mod:`cfe_faiss.coarse.class_centroids`). All queries of the group are
compared with the rows of these lists, in blocks of 16 rows (``native/core/blocks.h``).
"""

from functools import partial

import numpy as np

from cfe_faiss._native import Blocks
from cfe_faiss.base.arrays import Bools
from cfe_faiss.base.derived import once
from cfe_faiss.base.threads import native_progress, num_native_threads, run
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import grouping, single
from cfe_faiss.search.blocks import ROWS_OF_BLOCK, blocks_of, bytes_of_block
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.grouping import Groups
from cfe_faiss.search.query import MEMORY, Plan, Queries, Results

_PER_QUERY = 1 << 12  # overhead of a query beyond its products, in multiplications
# For few queries among most rows, testing the mask of allowed rows is faster than packing blocks of these rows. For
# many, a search in packed blocks takes half of the time, because its thresholds rise sooner.
_LEAST_ALLOWED, _MOST_QUERIES = 3 / 4, 1 / 16  # shares of the rows


def search(queries: Queries, plan: Plan, progress: str | None) -> Results:
    """Return D, I from the lists nearest to each group's mean; complete short rows one by one."""
    found, memory = queries.allocate_results(), plan.effort.memory or MEMORY
    if len(queries):
        blocks = Derived.of(queries.snapshot).blocks if memory >= MEMORY and _tests_mask(queries) else None
        if blocks is not None:
            _search_kept(queries, plan, blocks, found, progress)
        else:
            _search_in_parts(queries, plan, memory, found, progress)
        single.complete_rows(queries, plan, found, progress)
    return found


def _tests_mask(queries: Queries) -> bool:
    if queries.allowed is None:
        return True
    return len(queries) <= _MOST_QUERIES * queries.snapshot.n and bool(queries.allowed.mean() >= _LEAST_ALLOWED)


def _search_kept(queries: Queries, plan: Plan, blocks: Blocks, found: Results, progress: str | None) -> None:
    """Search the kept blocks of all lists of an index with one partition. The core halves the groups."""
    derived = Derived.of(queries.snapshot)
    groups = groups_of(queries)
    tasks = groups.tasks()
    with native_progress(progress, len(tasks)) as report:
        searcher = derived.searcher_in(blocks, derived.routes_for(queries.neighbors).native)
        asked, of_groups = (queries.X, queries.rows, queries.labels), (groups.order, groups.starts, groups.labels)
        ends = np.array([0, *(task.stop for task in tasks)])
        threads = num_native_threads(_work(queries, plan, queries.snapshot))
        rules = queries.filter()
        searcher.search_groups(*asked, *of_groups, ends, plan.nprobe, *found, rules, threads=threads, progress=report)


def groups_of(queries: Queries) -> Groups:
    """Return the groups of queries. Groups of all stored rows in list order are kept."""
    derived = Derived.of(queries.snapshot)
    routes = derived.routes_for(queries.neighbors)
    if queries.order is None:
        return grouping.group(queries, routes)
    return once(derived.groups, queries.neighbors, lambda: grouping.group(queries, routes))


def _search_in_parts(queries: Queries, plan: Plan, memory: int, found: Results, progress: str | None) -> None:
    """Search the allowed rows in temporary blocks, for some lists at a time, within ``memory`` bytes."""
    derived = Derived.of(queries.snapshot)
    routes, element, allowed = derived.routes_for(queries.neighbors), derived.element, queries.allowed
    snapshot = queries.snapshot.first_partition() if plan.nprobe >= len(routes.means) else queries.snapshot
    deduplicate = len(snapshot.references) > 0
    groups, lists = grouping.routed(routes, queries, plan.nprobe)
    rules = queries.filter(masked=False)  # blocks hold allowed rows

    def scan(task: slice, blocks: Blocks, resume: bool) -> None:
        cut, starts = groups.of_task(task)
        chosen = groups.order[cut]
        X, labels = queries.fetch(chosen), queries.labels[chosen]
        blocks.search(X, labels, starts, lists[task], chosen, *found, rules, deduplicate=deduplicate, resume=resume)

    probed = np.zeros(len(snapshot.list_starts) - 1, np.bool_)
    probed[lists[lists >= 0]] = True
    for shard in shards(snapshot, probed, bytes_of_block(snapshot.d, element), memory):
        here = np.zeros_like(probed)
        here[shard] = probed[shard]
        blocks = blocks_of(snapshot, element, wanted=here, allowed=allowed)
        run(
            partial(scan, blocks=blocks, resume=shard.start > 0),
            groups.tasks(),
            work=_work(queries, plan, snapshot),
            progress=progress,
            blas=False,
        )


def shards(snapshot: Snapshot, wanted: Bools, of_block: int, memory: int) -> list[slice]:
    """Cut the lists into runs whose blocks take about ``memory`` bytes. A run has at least one list."""
    sizes = np.where(wanted, np.diff(snapshot.list_starts), 0)
    end = np.cumsum(-(-sizes // ROWS_OF_BLOCK) * of_block)
    cuts, first = [], 0
    while first < len(sizes):
        before = end[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(end, before + memory, side="right")))
        cuts.append(slice(first, last))
        first = last
    return cuts


def _work(queries: Queries, plan: Plan, snapshot: Snapshot) -> float:
    """Estimate the time of the search, in multiplications."""
    lists, rows = len(snapshot.list_starts), int(snapshot.list_starts[-1])
    scanned = min(plan.nprobe, lists) * rows / lists
    return float(len(queries)) * (snapshot.d * scanned + _PER_QUERY)
