"""Search of each class by itself: the lists of a large class are ranked by the means of its rows, others searched exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cfe_faiss._native import ClassCentroids
from cfe_faiss.base.arrays import Floats, Int32s, Ints
from cfe_faiss.base.checks import as_unit_rows
from cfe_faiss.base.derived import once
from cfe_faiss.base.threads import num_native_threads, run
from cfe_faiss.base.values import order_of
from cfe_faiss.coarse.class_centroids import Routes, ranking_mean
from cfe_faiss.coarse.class_centroids import ranked as rank
from cfe_faiss.rows.metric import make_results
from cfe_faiss.rows.snapshot import Snapshot, lists_of
from cfe_faiss.search import exact
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.exact import pad_results, slices
from cfe_faiss.search.query import Effort, Plan, Queries, Results, Rules

_WIDER = 4  # factor of nprobe for short rows
_LARGE = 1 << 12  # rows of a class from which on its lists are ranked; fewer are compared with the query directly
_QUERIES = 1 << 8
_ROWS_AT_ONCE = 1 << 14
# The lists of each class are chosen from those near by their rows of all other classes: 8 for each list probed, 32 to
# 256, and at most a quarter of all lists. Beyond that, comparing the means of the class in all its lists is as fast.
_NEAR, _FEWEST_NEAR, _MOST_NEAR, _NEAR_SHARE = 8, 32, 256, 4


def search(queries: Queries, plan: Plan, progress: str | None) -> Results:
    """Return the k best D, I of the query's own class."""
    (D, I), labels = make_results(len(queries), queries.k), np.unique(queries.labels)
    ranked = np.intersect1d(labels, ranked_labels(queries.snapshot, plan.effort))
    for label in ranked.tolist():
        chosen = np.flatnonzero(queries.labels == label)
        D[chosen], I[chosen] = _search_label(queries.subset(chosen), plan.effort)
    rest = np.flatnonzero(~np.isin(queries.labels, ranked))
    if len(rest):
        D[rest], I[rest] = pad_results(*exact.search(queries.subset(rest), plan, progress), queries.k)
    return D, I


def search_per_label(queries: Queries, effort: Effort) -> Results:
    """Return the k best D, I of each other class than the query's, (nq, classes, k)."""
    snapshot, labels = queries.snapshot, queries.snapshot.class_counts[0]
    D, I = make_results(len(queries), len(labels) * queries.k)
    D, I = (found.reshape(len(queries), len(labels), queries.k) for found in (D, I))
    ranked, rules = ranked_labels(snapshot, effort), (queries.rules or Rules())._replace(neighbors="own")
    near, plan = _near_lists(queries, effort) if len(ranked) else None, Plan(exact.search, snapshot.lists, effort)
    for place, label in enumerate(labels.tolist()):
        chosen = np.flatnonzero(queries.labels != label)
        of_label = replace(queries, labels=np.full(len(queries), label, np.int32), rules=rules).subset(chosen)
        if label in ranked:
            found = _search_label(of_label, effort, None if near is None else near[chosen])
        else:
            found = pad_results(*exact.search(of_label, plan, None), queries.k)
        D[chosen, place], I[chosen, place] = found
    order = order_of(snapshot.decode(labels))  # codes need not be in the order of the labels
    return D.take(order, axis=1), I.take(order, axis=1)


def ranked_labels(snapshot: Snapshot, effort: Effort) -> Int32s:
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
    (D, I), label = make_results(len(queries), k), int(queries.labels[0]) if len(queries) else 0
    of_class = _ClassLists.of(snapshot, label)
    lists, members = len(of_class.lists), snapshot.labels == label
    mask = np.empty(0, bool) if queries.allowed is None else queries.allowed
    most = int(np.count_nonzero(members if queries.allowed is None else members & mask))
    nprobe = min(effort.nprobe or 1, lists)

    def probe(cut: slice) -> None:
        some = np.arange(cut.start, cut.stop)
        X = queries.fetch(some)
        nearest = of_class.nearest(snapshot, X, nprobe, None if near is None else near[cut])
        rules = queries.filter(some)
        derived.scan.scan(X, queries.labels[cut], nearest, mask, snapshot.margin, D[cut], I[cut], rules)

    work = float(len(queries)) * snapshot.d * (lists + snapshot.scanned(nprobe))
    run(probe, slices(len(queries), _QUERIES), work=work, blas=False)
    short = np.flatnonzero((I >= 0).sum(axis=1) < min(k, most))
    if len(short) and nprobe < lists:
        wider = effort._replace(nprobe=_WIDER * nprobe)
        D[short], I[short] = _search_label(queries.subset(short), wider, None if near is None else near[short])
    return D, I
