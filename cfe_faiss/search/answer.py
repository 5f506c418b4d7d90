"""Choice of the search engine. No other module chooses one.

The choice depends on sizes and never on timings, because engines may return different results: a group of queries
probes other lists than its queries would on their own. So every machine gives the same results. The element type of
the blocks (float or byte) affects speed only, and is chosen by timing (:mod:`cfe_faiss.search.element`).
"""

from dataclasses import replace
from typing import Any

import numpy as np

from cfe_faiss import _native
from cfe_faiss.base.arrays import Array, Bools
from cfe_faiss.base.checks import UNKNOWN, as_count
from cfe_faiss.rows.metric import make_results
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import constrained, exact, greedy, grouped, per_label, recall, single
from cfe_faiss.search.certify import certify
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.exact import pad_results
from cfe_faiss.search.query import Calibration, Certified, Effort, Plan, Queries, Ranges, Results, Rules

_QUERIES_PER_LIST = 4
_FEW_TO_CALIBRATE = 2000  # an exact search of this number of queries takes about as long as a calibration
# An exact search of all rows multiplies each pair once. It is faster than a search of lists that hold most of the rows:
# see `_pays_exactly`.
_LEAST_SHARE = 0.4
# With fewer dimensions, or more results than half of them, the selection takes the time, and not the products: at
# 3,000 x 27 an exact search takes 1.5 times as long with VNNI.
_LEAST_DIMENSIONS = 128
_SCANNED = 1.08  # rows of an exact search that take as long as a row of the lists
_OVERHEAD, _OVERHEAD_PER_DIMENSION = 400, 0.8  # grouping and rotating a query, in rows of an exact search
_PASSES = 8  # passes of one query over all rows take about as long as building their blocks


def search(queries: Queries, effort: Effort, progress: str | None = None, *, nq: int | None = None) -> Results:
    """Return the evidence D, I of the queries, both (nq, k), best first.

    ``effort`` must be complete, with the defaults of the index filled in. If the queries are a part of a larger set,
    ``nq`` is the size of that set. It selects the engine, so that a part is searched as the whole set would be.
    """
    if queries.rules is not None and queries.rules.per_label:
        return per_label.search_per_label(queries, effort)
    if queries.snapshot.n == 0:  # an empty index may be untrained
        return pad_results(*make_results(len(queries), 0), queries.k)
    if queries.neighbors == "any" and queries.conditions is None and queries.snapshot.lists and not effort.exact:
        return _search_any(queries, effort, progress)
    plan = choose_engine(queries, effort, nq)
    parts = _split_by_nprobe(queries, plan)
    found = [pad_results(*own.engine(some, own, progress), queries.k) for _, some, own in parts]
    D, I = (_merge(parts, list(column)) for column in zip(*found, strict=True))
    return D, I


def _search_any(queries: Queries, effort: Effort, progress: str | None) -> Results:
    """Search rows of any class: those of known label as rows of other classes than one that is absent, others exactly."""
    snapshot = queries.snapshot
    absent, rules = np.full(len(queries), snapshot.absent_label, np.int32), queries.rules or Rules()
    others = replace(queries, labels=absent, order=None, rules=rules._replace(neighbors="other"))
    if rules.within is not None and effort.recall is not None:  # calibrations are of rows of other classes
        effort = effort._replace(recall=None, exact=True)
    found, unknown = search(others, effort, progress), snapshot.labels == UNKNOWN
    if not unknown.any():
        return found
    rest = pad_results(*exact.search(queries.among(unknown), Plan(exact.search, 0, effort), None), queries.k)
    D, I = (np.concatenate(parts, axis=1) for parts in zip(found, rest, strict=True))
    order = np.lexsort((np.where(I < 0, np.iinfo(np.int64).max, I), -D), axis=1)[:, : queries.k]
    return np.take_along_axis(D, order, axis=1), np.take_along_axis(I, order, axis=1)


def search_certified(queries: Queries, effort: Effort, progress: str | None = None) -> Certified:
    """Return D, I as :func:`search` does, and a mask, (nq,), of the result rows that are provably exact."""
    if queries.snapshot.n == 0 or queries.rules is not None:  # an exact search skips no lists
        every = effort._replace(nprobe=None, recall=None, exact=True)
        return *search(queries, every, progress), np.ones(len(queries), bool)
    parts, found = _split_by_nprobe(queries, choose_engine(queries, effort)), []
    for _, some, plan in parts:
        D, I = pad_results(*plan.engine(some, plan, progress), queries.k)
        found.append((D, I, certify(some, plan, D, I)))
    D, I, certified = (_merge(parts, list(column)) for column in zip(*found, strict=True))
    return D, I, certified


_Part = tuple[Any, Queries, Plan]


def _split_by_nprobe(queries: Queries, plan: Plan) -> list[_Part]:
    """Return the numbers and the plan of the queries that probe the same number of lists."""
    if plan.calibration is None:
        return [(slice(None), queries, plan)]
    probes = plan.calibration.look_up(queries.labels)
    if plan.engine is grouped.search:  # a group probes the maximum nprobe of its queries
        groups = grouped.groups_of(queries)
        largest = np.maximum.reduceat(probes[groups.order], groups.starts[:-1]) if len(groups) else probes[:0]
        probes[groups.order] = np.repeat(largest, np.diff(groups.starts))
    numbers = np.unique(probes).tolist()
    if len(numbers) <= 1:  # without queries, none
        return [(slice(None), queries, plan._replace(nprobe=max(numbers, default=plan.nprobe)))]
    order = queries.in_order
    chosen = [order[probes[order] == nprobe] for nprobe in numbers]
    plans = [plan._replace(nprobe=nprobe) for nprobe in numbers]
    return [(some, queries.subset(some), own) for some, own in zip(chosen, plans, strict=True)]


def _merge(parts: list[_Part], values: list[Array]) -> Array:
    """Return the values of all queries, given those of each part."""
    if len(parts) == 1:
        return values[0]
    merged = np.empty((sum(map(len, values)), *values[0].shape[1:]), values[0].dtype)
    for (chosen, *_), some in zip(parts, values, strict=True):
        merged[chosen] = some
    return merged


def search_range(queries: Queries, threshold: float) -> Ranges:
    """Return lims, D, I: the evidence of query q at or above the threshold is at lims[q]:lims[q + 1]."""
    if queries.conditions is None:
        return exact.range_search(queries, threshold)
    if queries.conditions.uses is not None:
        raise ValueError("params.where must not limit how often evidence is used in a range search")
    return constrained.range_search(queries, threshold)


def choose_engine(queries: Queries, effort: Effort, nq: int | None = None) -> Plan:
    """Choose the engine for a search of the k best results per query. The index must not be empty."""
    lists, conditions, k = queries.snapshot.lists, queries.conditions, queries.k
    if conditions is not None:
        if conditions.uses is not None and queries.rules is not None:
            raise ValueError("params.where must not limit how often evidence is used together with rules")
        return Plan(constrained.search if conditions.uses is None else greedy.search, lists, effort)
    if queries.neighbors == "own" and len(per_label.ranked_labels(queries.snapshot, effort)):
        return Plan(per_label.search, lists, effort)
    if queries.neighbors != "other" or not lists:
        return Plan(exact.search, lists, effort)
    if queries.rules is not None and effort.recall is not None:
        k, effort = _calibrated_for(queries.rules, k, effort)
    every = queries.order is not None and queries.allowed is None
    nq = len(queries) if nq is None else nq
    within = None if queries.rules is None else queries.rules.within
    many = {"every": every, "stored": queries.stored, "within": within}
    return choose_by_size(queries.snapshot, nq, k, effort, queries.allowed, **many)


def _calibrated_for(rules: Rules, k: int, effort: Effort) -> tuple[int, Effort]:
    """Return the k and the effort whose calibration holds for the k best results under rules.

    With w results, of which k remain, a recall of 1 - (1 - r) k / w in all of them is a recall of at least r in the
    rest: at worst, all missing results are among these. It says nothing if whole classes are excluded.
    """
    if rules.excluded_labels is not None:
        return k, effort._replace(recall=None, exact=True)
    most = 0 if rules.excluded_ids is None else rules.excluded_ids.shape[1]
    width = k + (1 << (most - 1).bit_length() if most else 0)  # few widths, as each is calibrated once
    missing = (1 - (effort.recall or 1) + recall.CLASS_SLACK) * k / width - recall.CLASS_SLACK
    return width, effort._replace(recall=1 - missing) if missing > 0 else effort._replace(recall=None, exact=True)


def choose_by_size(
    snapshot: Snapshot,
    nq: int,
    k: int,
    effort: Effort,
    allowed: Bools | None = None,
    *,
    every: bool = False,
    stored: bool = True,
    within: tuple[float, float] | None = None,
) -> Plan:
    """Choose the engine for the k best results of each of ``nq`` queries among the allowed rows, (n,).

    ``every``: the queries are all stored rows. ``stored``: the queries are stored rows.
    """
    calibration = calibration_for(snapshot, nq, k, effort, allowed, stored=stored, within=within)
    if calibration is not None:
        nprobe, calibration = calibration.most, calibration if calibration.least < snapshot.lists else None
    elif effort.exact or effort.recall is not None:
        nprobe = snapshot.lists
    else:
        nprobe = as_count("nprobe", effort.nprobe)  # FAISS code may have set the index's nprobe without a check
    if every and effort.class_aware and _pays_exactly(snapshot, k, effort, nprobe, calibration):
        return Plan(exact.search, snapshot.lists, effort)
    batched = is_batched(snapshot, nq, nprobe, effort) and (
        calibration is None or _in_groups(snapshot, nq, effort, stored)
    )
    return Plan(grouped.search if batched else single.search, nprobe, effort, calibration)


def _pays_exactly(snapshot: Snapshot, k: int, effort: Effort, nprobe: int, calibration: Calibration | None) -> bool:
    """Return whether one product per unordered pair is faster than a search of all rows in lists.

    The numbers were measured for n = 1,000 to 20,000 and d = 27 to 1433, and rather keep the lists.
    """
    by_products = snapshot.d >= _LEAST_DIMENSIONS and 2 * k <= snapshot.d and effort.memory is None
    if calibration is None:  # products beat blocks of floats, and of bytes in many dimensions or for other metrics
        return nprobe >= snapshot.lists and (by_products or not (_native.has_bytes() and snapshot.metric == "cosine"))
    classes, counts = snapshot.class_counts
    scanned = [snapshot.scanned(nprobe) for nprobe in calibration.look_up(classes).tolist()]
    rows = float(counts @ np.array(scanned)) / max(1, int(counts.sum()))
    overhead = _OVERHEAD + _OVERHEAD_PER_DIMENSION * snapshot.d
    return by_products and rows >= _LEAST_SHARE * snapshot.n and _SCANNED * rows + overhead >= snapshot.n


def calibration_for(
    snapshot: Snapshot,
    nq: int,
    k: int,
    effort: Effort,
    allowed: Bools | None = None,
    *,
    stored: bool = True,
    within: tuple[float, float] | None = None,
) -> Calibration | None:
    """Return the calibration of nprobe for the effort's recall@k; None to probe all lists."""
    if effort.recall is None or (allowed is not None and nq <= _FEW_TO_CALIBRATE):
        return None  # a calibration for this mask may never be reused, and takes longer than the search
    batched = _in_groups(snapshot, nq, effort, stored)
    return recall.calibration(snapshot, min(k, snapshot.n), effort, batched=batched, allowed=allowed, within=within)


def _in_groups(snapshot: Snapshot, nq: int, effort: Effort, stored: bool) -> bool:
    """Return whether ``nq`` queries are calibrated in groups.

    New queries are not: their groups may be wider than the groups of stored rows on which recall is measured.
    """
    return stored and is_batched(snapshot, nq, snapshot.lists // 2, effort)


def look_up_nprobe(snapshot: Snapshot, k: int, recall: float, label: int, *, complete: bool) -> int | None:
    """Return the number of lists that a single query must probe for a recall@k; None if not calibrated yet.

    The key equals ``Derived.calibration_key``, without an ``Effort``: building one takes a tenth of a query's time.
    """
    key = (min(k, snapshot.n), recall, False, complete, "evidence", None)
    found = Derived.of(snapshot).calibrations.get(key)
    return None if found is None else found.nprobe.get(label, found.other)


def is_batched(snapshot: Snapshot, nq: int, nprobe: int, effort: Effort) -> bool:
    """Return whether ``nq`` queries are searched in groups, list by list."""
    everything = nprobe >= snapshot.lists
    if not effort.class_aware or (snapshot.pq is not None and not everything):
        return False
    # Groups of few queries are wide, so their mean routes worse than each query. Routing does not matter if all
    # lists are probed.
    enough = everything or nq >= _QUERIES_PER_LIST * snapshot.centroids.shape[1]
    return enough and nq * snapshot.scanned(nprobe) >= _PASSES * snapshot.n
