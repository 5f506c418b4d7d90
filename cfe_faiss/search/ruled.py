"""Search under rules with the engines without rules: they find more results than asked for, and rules drop some.

A row that is short then asks for more results, and in the end the general engine (:mod:`cfe_faiss.search.masked`), so
rows are complete. With w results per query, of which k remain, a recall of 1 - (1 - r) k / w in all of them is a recall
of at least r in the remaining results: at worst, all missing results are among these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from cfe_faiss._native import ClassCentroids
from cfe_faiss.base.arrays import Bools, Floats, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN, as_unit_rows
from cfe_faiss.base.derived import once
from cfe_faiss.base.threads import num_native_threads, run
from cfe_faiss.coarse.class_centroids import Routes, ranking_mean
from cfe_faiss.coarse.class_centroids import ranked as rank
from cfe_faiss.rows.metric import PADDING, make_results
from cfe_faiss.rows.snapshot import Snapshot, lists_of
from cfe_faiss.search import masked
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.exact import pad_results, slices
from cfe_faiss.search.query import Effort, Queries, Results, Rules
from cfe_faiss.search.recall import CLASS_SLACK

_WORTH = 16
"""The general engine answers queries that ask for more than 1/16 of the rows."""
_WIDER = 4  # factor of the number of results for short rows
_FEW = 4  # queries that take less time than a mask of allowed rows
_MASKS = 16  # maximum number of masks of allowed rows per call, each with a separate search
_LARGE = 1 << 12  # rows of a class from which on its lists are ranked; fewer are compared with the query directly
_QUERIES = 1 << 8
_ROWS_AT_ONCE = 1 << 14
# The lists of each class are chosen from those near by their rows of all other classes: 8 for each list probed, 32 to
# 256, and at most a quarter of all lists. Beyond that, comparing the means of the class in all its lists is as fast.
_NEAR, _FEWEST_NEAR, _MOST_NEAR, _NEAR_SHARE = 8, 32, 256, 4

Find = Callable[..., Results]
"""Answers queries with an effort and, as ``progress``, the title of a progress bar."""


def search(queries: Queries, effort: Effort, progress: str | None, find: Find) -> Results:
    """Return the k best D, I of queries under their rules, but without conditions.

    ``find`` answers queries without rules.
    """
    rules = queries.rules or Rules()
    if rules.neighbors == "own":
        return _search_own(queries, effort, progress)
    find_some = partial(find, progress=progress)
    if rules.neighbors == "other":
        return _find_enough(queries, effort, find_some)
    # To a label that no row has, every row of known label is of another class.
    snapshot, absent = queries.snapshot, np.full(len(queries), queries.snapshot.absent_label, np.int32)
    others = replace(queries, labels=absent, order=None, rules=rules._replace(neighbors="other"))
    found, unknown = _find_enough(others, effort, find_some), snapshot.labels == UNKNOWN
    if unknown.any():
        rest = queries.among(unknown)
        return _merge(found, pad_results(*masked.search(rest, None, progress), queries.k))
    return found


def _find_enough(queries: Queries, effort: Effort, find: Find, *, masks: bool = True) -> Results:
    """Ask for more and more results, until k results of each query keep the rules or no more exist.

    ``masks``: whether to mask the rows of excluded classes; for a few queries, only if they are short without a mask.
    """
    rules, k, excluded = queries.rules or Rules(), queries.k, masked.excluded_rows(queries)
    D, I = make_results(len(queries), k)
    most = excluded.shape[1]
    width = k + (1 << (most - 1).bit_length() if most else 0)  # few widths, as each is calibrated once
    if rules.within is not None or rules.excluded_labels is not None:
        width *= 2
    low = -np.inf if rules.within is None else np.float32(rules.within[0])
    pending, without = np.arange(len(queries)), len(queries) <= _FEW
    while len(pending) and width * _WORTH <= queries.snapshot.n:
        parts = _with_masks(queries, pending) if masks and not without else []
        for chosen, part in parts:
            D[chosen], I[chosen] = _find_enough(part, effort, find, masks=False)
        if parts:
            return D, I
        some = queries if len(pending) == len(queries) else queries.subset(pending)
        found = find(replace(some, k=width, rules=None), _stricter(effort, k, width))
        kept = _keep(queries.snapshot, rules.subset(pending), excluded[pending], found)
        number = kept.cumsum(axis=1)
        query, column = np.nonzero(kept & (number <= k))
        to = pending[query], number[query, column] - 1
        D[pending], I[pending] = PADDING, -1
        D[to], I[to] = found[0][query, column], found[1][query, column]
        is_over = (number[:, -1] >= k) | (found[1][:, -1] < 0) | (found[0][:, -1] < low)
        pending, width, without = pending[~is_over], _WIDER * width, False
    if len(pending):
        D[pending], I[pending] = pad_results(*masked.search(queries.subset(pending), None, None), k)
    return D, I


def _with_masks(queries: Queries, chosen: Ints) -> list[tuple[Ints, Queries]]:
    """Return numbers of chosen queries, and these queries with a mask of the rows outside their excluded classes.

    Return nothing if there are no excluded classes, or too many different sets of them.
    """
    classes = None if queries.rules is None else queries.rules.excluded_labels
    if classes is None or not len(chosen):
        return []
    sets, number = np.unique(np.sort(classes[chosen], axis=1), axis=0, return_inverse=True)
    if len(sets) > _MASKS:
        return []
    parts = []
    for i, some in enumerate(sets):
        allowed = ~np.isin(queries.snapshot.labels, some[some != UNKNOWN])
        own = chosen[number.reshape(-1) == i]
        parts.append((own, queries.subset(own).among(allowed)))
    return parts


def _stricter(effort: Effort, k: int, width: int) -> Effort:
    """Return the effort at which k of ``width`` results keep the recall, in the mean and for each class."""
    if effort.recall is None:
        return effort
    missing = (1 - effort.recall + CLASS_SLACK) * k / width - CLASS_SLACK
    return effort._replace(recall=1 - missing) if missing > 0 else effort._replace(recall=None, exact=True)


def _keep(snapshot: Snapshot, rules: Rules, excluded: Ints, found: Results) -> Bools:
    """Return a mask of the results, (nq, width), that are no padding and keep the rules."""
    D, I = found
    rows = snapshot.rows_of(np.ascontiguousarray(I.reshape(-1))).reshape(I.shape)
    kept: Bools = I >= 0
    for own in excluded.T:  # padding has row -1, too, and is not kept
        kept &= own[:, None] != rows
    labels = snapshot.labels[rows]
    for classes in () if rules.excluded_labels is None else rules.excluded_labels.T:
        kept &= classes[:, None] != labels
    if rules.within is not None:
        low, high = (np.float32(end) for end in rules.within)
        kept &= (low <= D) & (high >= D)
    return kept


def _merge(one: Results, other: Results) -> Results:
    """Return the best k of two results, (nq, k) each."""
    D, I = np.concatenate([one[0], other[0]], axis=1), np.concatenate([one[1], other[1]], axis=1)
    order = np.lexsort((np.where(I < 0, np.iinfo(np.int64).max, I), -D), axis=1)[:, : one[0].shape[1]]
    return np.take_along_axis(D, order, axis=1), np.take_along_axis(I, order, axis=1)


# --- rows of one class ------------------------------------------------------------------------------------------------


def _search_own(queries: Queries, effort: Effort, progress: str | None) -> Results:
    """Return the k best D, I of the query's class: exactly, or from the lists of large classes that are nearest."""
    snapshot, (D, I) = queries.snapshot, make_results(len(queries), queries.k)
    direct = np.ones(len(queries), bool)
    for label in _ranked_labels(snapshot, effort).tolist():
        chosen = np.flatnonzero(queries.labels == label)
        direct[chosen] = False
        if len(chosen):
            D[chosen], I[chosen] = _find_enough(queries.subset(chosen), effort, _search_label)
    chosen = np.flatnonzero(direct)
    if len(chosen):
        D[chosen], I[chosen] = pad_results(*masked.search(queries.subset(chosen), None, progress), queries.k)
    return D, I


def search_per_label(queries: Queries, effort: Effort) -> Results:
    """Return the k best D, I of each other class than the query's, (nq, classes, k): exactly, or as :func:`search`."""
    snapshot, labels = queries.snapshot, queries.snapshot.class_counts[0]
    D, I = make_results(len(queries), len(labels) * queries.k)
    shape = len(queries), len(labels), queries.k
    D, I = D.reshape(shape), I.reshape(shape)
    ranked, rules = _ranked_labels(snapshot, effort), (queries.rules or Rules())._replace(neighbors="own")
    drops = rules.excluded_ids is not None or rules.within is not None
    near = _near_lists(queries, effort) if len(ranked) and not drops else None
    for label in ranked.tolist():
        chosen, place = np.flatnonzero(queries.labels != label), int(labels.searchsorted(label))
        of_label = replace(queries, labels=np.full(len(queries), label, np.int32), rules=rules).subset(chosen)
        if drops:
            D[chosen, place], I[chosen, place] = _find_enough(of_label, effort, _search_label)
        elif len(chosen):
            own = None if near is None else near[chosen]
            D[chosen, place], I[chosen, place] = _search_label(of_label, effort, own)
    if len(ranked) < len(labels):
        masked.search_per_label(queries.among(~np.isin(snapshot.labels, ranked)), labels, D, I)
    order = np.argsort(snapshot.decode(labels), kind="stable")  # codes need not be in the order of the labels
    return D.take(order, axis=1), I.take(order, axis=1)


def _ranked_labels(snapshot: Snapshot, effort: Effort) -> Int32s:
    """Return the classes whose lists are ranked, instead of an exact search of all their rows."""
    classes, counts = snapshot.class_counts
    every = not snapshot.lists or not effort.class_aware or effort.exact or effort.recall is not None
    return classes[:0] if every else classes[counts >= _LARGE]


class _ClassLists(NamedTuple):
    """Lists that hold rows of a class, (m,), the means of these rows, (m, length), and the ranking by these means."""

    lists: Ints
    means: Floats
    ranking: ClassCentroids

    @classmethod
    def of(cls, snapshot: Snapshot, label: int) -> _ClassLists:
        def new() -> _ClassLists:
            lists, means = _label_means(snapshot, label)
            return cls(lists, means, Routes.of_means(means, snapshot.metric, snapshot.center).native)

        return once(snapshot.cache, f"lists of class {label}", new)

    def nearest(self, snapshot: Snapshot, X: Floats, nprobe: int, near: Ints | None) -> Ints:
        """Return the ``nprobe`` lists of each query whose rows of the class are nearest, (nq, nprobe).

        A query with twice as many of them among its lists ``near`` compares these only.
        """
        found, size = np.empty((len(X), nprobe), np.int64), 2 * nprobe
        some = np.zeros(len(X), bool)
        if near is not None:
            places = np.full(snapshot.lists + 1, -1)
            places[self.lists] = np.arange(len(self.lists))
            held = (places := places[near[:, : _NEAR * nprobe]]) >= 0
            number = held.cumsum(axis=1)
            some = number[:, -1] >= size
            few = places[held & (number <= size) & some[:, None]].reshape(-1, size)
            scores = np.einsum("ij,ikj->ik", snapshot.extend_queries(X[some]), self.means[few])
            best = np.argpartition(-scores, nprobe - 1, axis=1)[:, :nprobe]
            found[some] = np.take_along_axis(few, best, axis=1)
        rest = np.ascontiguousarray(X[~some])
        found[~some] = rank(self.ranking, len(self.lists), rest, np.zeros(len(rest), np.int32), nprobe)
        return self.lists[found]


def _label_means(snapshot: Snapshot, label: int) -> tuple[Ints, Floats]:
    """Return the lists of the first partition that hold rows of a label, (m,), and the mean of these rows.

    Means are (m, length), see :func:`cfe_faiss.coarse.class_centroids.ranking_mean`.
    """
    rows = np.flatnonzero(snapshot.labels == label)
    lists, numbers = np.unique(lists_of(rows, snapshot.starts), return_inverse=True)
    if snapshot.metric != "cosine":
        parts = np.split(rows, np.flatnonzero(np.diff(numbers)) + 1)
        return lists, np.array([ranking_mean(snapshot, snapshot.rows(part)[0]) for part in parts])
    sums = np.zeros((len(lists), snapshot.d), np.float32)
    for first in range(0, len(rows), _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        starts = np.flatnonzero(np.diff(numbers[part], prepend=-1))
        sums[numbers[part][starts]] += np.add.reduceat(snapshot.rows(rows[part])[0], starts)
    return lists, as_unit_rows("means", np.nan_to_num(sums))


def _near_lists(queries: Queries, effort: Effort) -> Ints | None:
    """Return the lists nearest to each query by their rows of other classes; None if comparing all lists is as good."""
    snapshot, width = queries.snapshot, max(_FEWEST_NEAR, _NEAR * (effort.nprobe or 1))
    if snapshot.metric == "ip" or width > _MOST_NEAR or _NEAR_SHARE * width > snapshot.lists:
        return None  # for "ip", lists near by other classes say less: with 20 classes recall is .01 lower
    derived, work = Derived.of(snapshot), float(len(queries)) * snapshot.lists * snapshot.d
    X, threads = queries.fetch(slice(None)), num_native_threads(work)
    return rank(derived.centroids, snapshot.centroids.shape[1], X, queries.labels, width, threads)


def _search_label(queries: Queries, effort: Effort, near: Ints | None = None) -> Results:
    """Return the best D, I of queries that have one label, among the rows of this label in the nearest lists.

    Lists are ranked by the mean of their rows of the label. Short rows are searched in more lists.
    """
    snapshot, derived, k = queries.snapshot, Derived.of(queries.snapshot), queries.k
    label = int(queries.labels[0])
    of_class = _ClassLists.of(snapshot, label)
    allowed: Bools = snapshot.labels == label
    if queries.allowed is not None:
        allowed &= queries.allowed
    D, I = make_results(len(queries), k)
    lists = len(of_class.lists)
    nprobe = min(effort.nprobe or 1, lists)

    def probe(cut: slice) -> None:
        X = queries.fetch(np.arange(cut.start, cut.stop))
        nearest = of_class.nearest(snapshot, X, nprobe, None if near is None else near[cut])
        absent = np.full(len(X), snapshot.absent_label, np.int32)
        derived.scan.scan(X, absent, nearest, allowed, snapshot.margin, D[cut], I[cut])

    work = float(len(queries)) * snapshot.d * (lists + snapshot.scanned(nprobe))
    run(probe, slices(len(queries), _QUERIES), work=work, blas=False)
    short = np.flatnonzero((I >= 0).sum(axis=1) < min(k, int(allowed.sum())))
    if len(short) and nprobe < lists:
        wider = effort._replace(nprobe=_WIDER * nprobe)
        D[short], I[short] = _search_label(queries.subset(short), wider, None if near is None else near[short])
    return D, I
