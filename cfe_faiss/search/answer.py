"""Choice of the search engine, in :func:`plan_search`. No other module chooses one.

The choice depends on sizes and never on timings, because engines may return different results: a
group of queries probes other lists than its queries would on their own. So every machine gives the
same results.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from cfe_faiss import _native
from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Floats, Int32s, Ints, as_count
from cfe_faiss.base.values import order_of
from cfe_faiss.coarse.routes import large_classes
from cfe_faiss.rows.metric import PADDING, make_results
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import exact, lists, recall
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Calibration, Certified, Effort, Plan, Queries, Results, Rules
from cfe_faiss.search.recall import certify

_QUERIES_PER_LIST = 4
# an exact search of this number of queries takes about as long as a calibration
_FEW_TO_CALIBRATE = 2000
# An exact search of all rows multiplies each pair once. It is faster than a search of lists that
# hold most of the rows: see `_pays_exactly`.
_LEAST_SHARE = 0.4
# With fewer dimensions, or more results than half of them, the selection takes the time, and not
# the products: at 3,000 x 27 an exact search takes 1.5 times as long with VNNI.
_LEAST_DIMENSIONS = 128
_SCANNED = 1.08  # rows of an exact search that take as long as a row of the lists
# Grouping and rotating a query, in rows of an exact search.
_OVERHEAD = 400
_OVERHEAD_PER_DIMENSION = 0.8
_WIDTH = 4  # rows of a search for each result under per_group: half the time of 1, measured
_PASSES = 8  # passes of one query over all rows take about as long as building their blocks


def search(
    queries: Queries, effort: Effort, progress: str | None = None, *, nq: int | None = None
) -> Results:
    """Return the D, I of the queries, both (nq, k), best first; (nq, classes, k) for each class.

    ``effort`` must be complete, with the defaults of the index filled in. If the queries are a part
    of a larger set, ``nq`` is the size of that set. It selects the engine, so that a part is
    searched as the whole set would be.
    """
    if queries.rules is not None and queries.rules.per_label:
        return _search_per_label(queries, effort)
    if queries.snapshot.n == 0:  # an empty index may be untrained
        return make_results(len(queries), queries.k)
    if queries.rules is not None and not queries.rules.take_one_search:
        return _search_per_group(queries, effort, progress)
    if queries.uses is not None:
        if queries.rules is not None:
            raise ValueError(
                "params.where must not limit how often evidence is used together with rules"
            )
        return exact.search_greedily(queries, progress)
    parts = _plan_parts(queries, effort, nq)
    found = [_run(part, plan, progress) for _, part, plan in parts]
    D, I = (_merge(parts, list(column)) for column in zip(*found, strict=True))
    return D, I


def _search_per_label(queries: Queries, effort: Effort) -> Results:
    """Return the k best D, I of each other class than the query's, (nq, classes, k)."""
    snapshot = queries.snapshot
    nq = len(queries)
    k = queries.k
    labels = snapshot.class_counts[0]
    flat_D, flat_I = make_results(nq, len(labels) * k)
    D = flat_D.reshape(nq, len(labels), k)
    I = flat_I.reshape(nq, len(labels), k)
    rules = (queries.rules or Rules())._replace(neighbors="own", per_label=False)
    for place, label in enumerate(labels.tolist()):
        chosen = np.flatnonzero(queries.labels != label)
        of_class = replace(queries, labels=np.full(nq, label, np.int32), rules=rules).subset(chosen)
        D[chosen, place], I[chosen, place] = search(of_class, effort)
    order = order_of(snapshot.decode(labels))  # codes need not be in the order of the labels
    return D.take(order, axis=1), I.take(order, axis=1)


def _search_per_group(queries: Queries, effort: Effort, progress: str | None) -> Results:
    """Return the k best D, I among the ``per_group`` best rows of each class, (nq, k).

    A class is full with ``per_group`` rows among the results of a search. These are its best rows,
    so the next search excludes the class. A search ends with k rows that remain, or without a row
    more. Otherwise it leaves rows out, and so fills a class that was not excluded. Hence k /
    ``per_group`` + 1 searches suffice.
    """
    snapshot = queries.snapshot
    rules = queries.rules or Rules()
    limit = rules.per_group or queries.k
    if effort.recall is not None:  # it says nothing if whole classes are excluded
        effort = effort._replace(recall=None, exact=True)
    width = max(queries.k, min(_WIDTH * queries.k, snapshot.n))
    without_limit = replace(queries, k=width, rules=rules._replace(per_group=None))
    D, I = make_results(len(queries), queries.k)
    full_D, full_I = make_results(len(queries), 0)  # rows of full classes
    numbers = np.arange(len(queries))
    part = without_limit
    while len(numbers):
        found_D, found_I = search(part, effort, progress)
        scores = np.hstack([full_D, found_D])
        ids = np.hstack([full_I, found_I])
        order = np.lexsort((ids, -scores))
        scores = np.take_along_axis(scores, order, axis=1)
        ids = np.take_along_axis(ids, order, axis=1)
        labels = np.full(ids.shape, UNKNOWN, np.int32)
        labels[ids >= 0] = snapshot.labels[snapshot.rows_of(ids[ids >= 0])]
        place, size = _places_in_class(labels)
        remains = (ids >= 0) & ((labels == UNKNOWN) | (place < limit))
        D[numbers], I[numbers] = _first_of(remains, scores, ids, queries.k)
        is_open = (remains.sum(axis=1) < queries.k) & (found_I[:, -1] >= 0)
        is_full = remains & (labels != UNKNOWN) & (size >= limit)
        full_D, full_I = _first_of(is_full[is_open], scores[is_open], ids[is_open], queries.k)
        full_labels = np.where(is_full & (place == limit - 1), labels, UNKNOWN)[is_open]
        numbers = numbers[is_open]
        most = int((full_labels != UNKNOWN).sum(axis=1).max(initial=1))
        part = without_limit.subset(numbers).excluding(np.sort(full_labels)[:, -most:])
    return D, I


def _places_in_class(labels: Int32s) -> tuple[Ints, Ints]:
    """Return how many earlier results of a query have the class of each, and how many have it."""
    keys = labels + np.arange(len(labels))[:, None] * (int(labels.max(initial=0)) + 2)
    _, runs, counts = np.unique(keys.ravel(), return_inverse=True, return_counts=True)
    order = np.argsort(runs, kind="stable")
    starts = np.cumsum(counts) - counts
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - starts[runs[order]]
    return place.reshape(labels.shape), counts[runs].reshape(labels.shape)


def _first_of(mask: Bools, D: Floats, I: Ints, k: int) -> Results:
    """Return the first k results of a mask, (nq, k), with padding."""
    order = np.argsort(~mask, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(mask, order, axis=1)
    D = np.where(chosen, np.take_along_axis(D, order, axis=1), PADDING)
    return D, np.where(chosen, np.take_along_axis(I, order, axis=1), -1)


def _run(queries: Queries, plan: Plan, progress: str | None) -> Results:
    """Return the D, I of the engine of the plan, (nq, k)."""
    if plan.engine == "exact":
        D, I = exact.search(queries, progress)
    else:
        D, I = lists.search(queries, plan, progress)
    return pad_results(D, I, queries.k)


def pad_results(D: Floats, I: Ints, k: int) -> Results:
    """Return D, I widened to k columns with FAISS's padding."""
    if D.shape[1] == k:
        return D, I
    widths = (0, 0), (0, k - D.shape[1])
    return np.pad(D, widths, constant_values=PADDING), np.pad(I, widths, constant_values=-1)


def search_certified(queries: Queries, effort: Effort, progress: str | None = None) -> Certified:
    """Return D, I as :func:`search` does, and a mask, (nq,), of provably exact rows."""
    if queries.snapshot.n == 0 or queries.rules is not None:  # an exact search skips no lists
        every = effort._replace(nprobe=None, recall=None, exact=True)
        return *search(queries, every, progress), np.ones(len(queries), bool)
    parts = _plan_parts(queries, effort)
    found = []
    for _, part, plan in parts:
        every_row = plan._replace(effort=plan.effort._replace(recall=None))  # of the probed lists
        D, I = _run(part, every_row, progress)
        found.append((D, I, certify(part, plan, D, I)))
    D, I, certified = (_merge(parts, list(column)) for column in zip(*found, strict=True))
    return D, I, certified


# --- parts of the queries, with one plan each -----------------------------------------------------

_Part = tuple[Any, Queries, Plan]


def _plan_parts(queries: Queries, effort: Effort, nq: int | None = None) -> list[_Part]:
    """Return numbers, queries and plan of the queries that are searched in one way."""
    if queries.neighbors == "own" and queries.conditions is None:
        # ascending; `np.isin` takes five times as long for few queries
        large = large_classes(queries.snapshot)
        is_large = large.searchsorted(queries.labels, "right") - large.searchsorted(queries.labels)
        return [
            (chosen, part, plan_search(part, effort, nq))
            for chosen, part, _ in _split(queries, is_large)
        ]
    plan = plan_search(queries, effort, nq)
    if plan.calibration is None:
        return [(slice(None), queries, plan)]
    probes = plan.calibration.look_up(queries.labels)
    if plan.engine == "groups":  # a group probes the maximum nprobe of its queries
        groups = lists.groups_of(queries)
        largest = (
            np.maximum.reduceat(probes[groups.order], groups.starts[:-1])
            if len(groups)
            else probes[:0]
        )
        probes[groups.order] = np.repeat(largest, np.diff(groups.starts))
    return [
        (chosen, part, plan._replace(nprobe=nprobe))
        for chosen, part, nprobe in _split(queries, probes)
    ]


def _split(queries: Queries, keys: Array) -> list[tuple[Any, Queries, Any]]:
    """Return the numbers and the queries of each key, (nq,), and the key."""
    distinct = np.unique(keys).tolist()
    if len(distinct) <= 1:
        return [(slice(None), queries, key) for key in distinct or [1]]
    order = queries.in_order
    numbers = [order[keys[order] == key] for key in distinct]
    return [
        (chosen, queries.subset(chosen), key) for chosen, key in zip(numbers, distinct, strict=True)
    ]


def _merge(parts: list[_Part], values: list[Array]) -> Array:
    """Return the values of all queries, given the values of each part."""
    if len(parts) == 1:
        return values[0]
    merged = np.empty((sum(map(len, values)), *values[0].shape[1:]), values[0].dtype)
    for (chosen, *_), of_part in zip(parts, values, strict=True):
        merged[chosen] = of_part
    return merged


# --- engines --------------------------------------------------------------------------------------


def plan_search(queries: Queries, effort: Effort, nq: int | None = None) -> Plan:
    """Return the plan of a search of the k best results per query. The index must not be empty.

    1. A search that may skip no list is exact: see :func:`_may_skip_lists`.
    2. All rows whose lists hold most rows are searched exactly, as each pair is multiplied once.
    3. Queries that fill groups and blocks are searched in groups.
    4. Other queries are searched in lists one by one.

    ``nq`` is the size of the set of queries that these are part of. Queries for their own class
    have classes that are all large, or all small.
    """
    snapshot = queries.snapshot
    every_list = Plan("exact", snapshot.lists, effort)
    if not _may_skip_lists(queries, effort):
        return every_list
    nq = len(queries) if nq is None else nq
    k, effort = _calibrated_for(queries, effort)
    calibration = calibration_for(
        snapshot, nq, k, effort, queries.allowed, stored=queries.stored, rules=queries.rules
    )
    nprobe = snapshot.lists
    if calibration is not None:
        nprobe = calibration.most
    elif effort.recall is None and not effort.exact:
        # FAISS code may have set the index's nprobe without a check
        nprobe = as_count("nprobe", effort.nprobe)
    if calibration is not None and calibration.least >= snapshot.lists:
        calibration = None
    plan = Plan("lists", nprobe, effort, calibration)
    if queries.all_rows and _pays_exactly(queries, plan):
        return every_list._replace(effort=effort)
    fills_groups = queries.neighbors != "own" and is_batched(snapshot, nq, plan.nprobe, effort)
    # After a calibration, groups are searched only if it measured groups.
    if fills_groups and (
        plan.calibration is None or _in_groups(snapshot, nq, effort, queries.stored, queries.rules)
    ):
        return plan._replace(engine="groups")
    return plan


def _may_skip_lists(queries: Queries, effort: Effort) -> bool:
    """Return whether a search may skip lists: none are needed whole by its rules."""
    if not queries.snapshot.lists or queries.conditions is not None:
        return False
    if queries.neighbors != "own":
        return True
    ranks_lists = effort.class_aware and not effort.exact and effort.recall is None
    return (
        ranks_lists
        and set(queries.labels[:1].tolist()) <= Derived.of(queries.snapshot).large_classes
    )


def calibrated_for(
    k: int, target: float, rules: Rules, *, excludes_itself: bool = False
) -> tuple[int, float | None]:
    """Return the k and the recall whose calibration holds for the k best results under rules.

    None for an exact search. ``excludes_itself``: whether the first excluded id of each query is
    its own, which the calibration excludes, too.

    With w results, of which k remain, a recall of 1 - (1 - r) k / w in all of them is a recall of
    at least r in the rest: at worst, all missing results are among these. It says nothing if whole
    classes are excluded.
    """
    if rules.excluded_labels is not None:
        return k, None
    most = (0 if rules.excluded_ids is None else rules.excluded_ids.shape[1]) - excludes_itself
    # few widths, as each is calibrated once
    width = k + (1 << (most - 1).bit_length() if most > 0 else 0)
    missing = (1 - target + recall.CLASS_SLACK) * k / width - recall.CLASS_SLACK
    return width, 1 - missing if missing > 0 else None


def _calibrated_for(queries: Queries, effort: Effort) -> tuple[int, Effort]:
    """Return the k and the effort of :func:`calibrated_for`."""
    rules = queries.rules
    if rules is None or effort.recall is None:
        return queries.k, effort
    itself = queries.stored and rules.neighbors == "any"
    k, target = calibrated_for(queries.k, effort.recall, rules, excludes_itself=itself)
    return k, effort._replace(recall=target, exact=target is None)


def _pays_exactly(queries: Queries, plan: Plan) -> bool:
    """Return whether one product per unordered pair is faster than a search of all rows in lists.

    The numbers were measured for n = 1,000 to 20,000 and d = 27 to 1433, and rather keep the lists.
    """
    snapshot = queries.snapshot
    effort = plan.effort
    calibration = plan.calibration
    if not effort.class_aware:
        return False
    by_products = (
        snapshot.d >= _LEAST_DIMENSIONS and 2 * queries.k <= snapshot.d and effort.memory is None
    )
    # products beat blocks of floats, and of bytes in many dimensions or for other metrics
    if calibration is None:
        has_fast_bytes = _native.has_bytes() and snapshot.metric == "cosine"
        return plan.nprobe >= snapshot.lists and (by_products or not has_fast_bytes)
    classes, counts = snapshot.class_counts
    scanned = [snapshot.scanned(nprobe) for nprobe in calibration.look_up(classes).tolist()]
    rows = float(counts @ np.array(scanned)) / max(1, int(counts.sum()))
    overhead = _OVERHEAD + _OVERHEAD_PER_DIMENSION * snapshot.d
    return (
        by_products
        and rows >= _LEAST_SHARE * snapshot.n
        and _SCANNED * rows + overhead >= snapshot.n
    )


def calibration_for(
    snapshot: Snapshot,
    nq: int,
    k: int,
    effort: Effort,
    allowed: Bools | None = None,
    *,
    stored: bool = True,
    rules: Rules | None = None,
) -> Calibration | None:
    """Return the calibration of nprobe for the effort's recall@k; None to probe all lists."""
    # A calibration for a mask may never be reused, and takes longer than a small search.
    if effort.recall is None or (allowed is not None and nq <= _FEW_TO_CALIBRATE):
        return None
    batched = _in_groups(snapshot, nq, effort, stored, rules)
    return recall.calibration(
        snapshot, min(k, snapshot.n), effort, batched=batched, allowed=allowed, rules=rules
    )


def _in_groups(
    snapshot: Snapshot, nq: int, effort: Effort, stored: bool, rules: Rules | None
) -> bool:
    """Return whether ``nq`` queries are calibrated in groups.

    New queries are not: their groups may be wider than the groups of stored rows on which recall is
    measured. So may groups of some rows that may find any class, because these groups are not split
    by class.
    """
    some_rows = rules is not None and rules.neighbors == "any" and nq < snapshot.n
    return stored and not some_rows and is_batched(snapshot, nq, snapshot.lists // 2, effort)


def is_batched(snapshot: Snapshot, nq: int, nprobe: int, effort: Effort) -> bool:
    """Return whether ``nq`` queries are searched in groups, list by list."""
    everything = nprobe >= snapshot.lists
    if not effort.class_aware or (snapshot.pq is not None and not everything):
        return False
    # Groups of few queries are wide, so their mean routes worse than each query. Routing does not
    # matter if all lists are probed.
    enough = everything or nq >= _QUERIES_PER_LIST * snapshot.centroids.shape[1]
    return enough and nq * snapshot.scanned(nprobe) >= _PASSES * snapshot.n
