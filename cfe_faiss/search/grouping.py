"""Groups of queries that are routed by their mean: queries of one list that are near each other.

Queries of one list share the centroids that rank lists if they have the same label with a large
share in the list, or if all their labels have small shares. A label with a small share moves the
list's mean too little to matter. Such a set of queries is halved, along the line between two
distant queries, until each group has at most as many queries as a block has rows. The mean of a
group is then near to each of its queries.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cfe_faiss import _native
from cfe_faiss.base.arrays import Bools, Floats, Int32s, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import num_threads, run
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.search.query import Queries

_LARGEST = 16
# per task of a thread
_FEWEST_QUERIES = 1 << 9
_MOST_QUERIES = 1 << 12
_TASKS = 2  # per thread, if the remaining queries were cut evenly
_LARGE_TASK = 1 << 13  # queries; the threads of the core share tasks that have more
_MIXED = -2


@dataclass(frozen=True, slots=True)
class Groups:
    """Queries by group: ``order[starts[g]:starts[g + 1]]``, routed by ``labels[g]``."""

    order: Ints
    starts: Ints
    labels: Int32s

    def __len__(self) -> int:
        return len(self.labels)

    def of_task(self, task: slice) -> tuple[slice, Ints]:
        """Return the slice of ``order`` with some groups, and their borders within it."""
        borders = self.starts[task.start : task.stop + 1]
        return slice(int(borders[0]), int(borders[-1])), borders - borders[0]

    def tasks(self) -> list[slice]:
        """Cut the groups into runs without splitting one.

        The last runs are smaller, so that threads end together.
        """
        n = len(self.order)
        first = 0
        firsts = []
        while first < n:
            firsts.append(first)
            first += min(
                _MOST_QUERIES, max(_FEWEST_QUERIES, (n - first) // (_TASKS * num_threads()))
            )
        borders = sorted({*np.searchsorted(self.starts[:-1], firsts).tolist(), len(self)})
        return [slice(a, b) for a, b in pairwise(borders)]


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
    by = np.where(routes.has_centroids(labels, homes), labels, _MIXED)
    keys = homes * (int(labels.max(initial=0)) - _MIXED + 1) + by
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


def routed_some(
    groups: Groups, task: slice, routes: Routes, queries: Queries, nprobe: int
) -> tuple[Groups, Ints, Floats]:
    """Halve some groups and route them.

    Return small groups, the lists of each, and the vectors in group order.

    Lists are nearest first, (groups, nprobe). If ``nprobe`` is at least the number of lists, they
    are all lists of the first partition, (groups, nlist).
    """
    small, X, within = _halved(groups, task, queries)
    threads = _threads_of_task(len(X))
    X, M = arranged(X, within, small.starts, queries.snapshot.native.metric, threads)
    if nprobe >= len(routes.means):
        return small, routes.all_lists(M, small.labels, threads=threads), X
    return small, routes.lists(M, small.labels, nprobe, threads=threads), X


def _threads_of_task(nq: int) -> int:
    return num_threads() if nq > _LARGE_TASK else 1


def routed(routes: Routes, queries: Queries, nprobe: int) -> tuple[Groups, Ints]:
    """Return small groups of all queries, and their lists, as :func:`routed_some` does."""
    large = group(queries, routes)
    tasks = large.tasks()
    parts: list[tuple[Groups, Ints]] = [(large, np.empty((0, 0), np.int64))] * len(tasks)

    def route(number: int) -> None:
        groups, lists, _ = routed_some(large, tasks[number], routes, queries, nprobe)
        parts[number] = groups, lists

    run(route, range(len(tasks)), work=float(len(queries)) * routes.means.size / _LARGEST)
    if not parts:
        return large, np.empty((0, nprobe), np.int64)
    each = [groups for groups, _ in parts]
    ends = np.cumsum([0, *(len(groups.order) for groups in each)])
    starts = [groups.starts[:-1] + end for groups, end in zip(each, ends[:-1], strict=True)]
    groups = Groups(
        np.concatenate([groups.order for groups in each]),
        np.append(np.concatenate(starts), ends[-1]),
        np.concatenate([groups.labels for groups in each]),
    )
    return groups, np.concatenate([lists for _, lists in parts])


def small_groups(queries: Queries, routes: Routes) -> Groups:
    """Return the groups of queries that :func:`routed_some` routes."""
    large = group(queries, routes)
    return _halved(large, slice(0, len(large)), queries)[0]


def _halved(groups: Groups, task: slice, queries: Queries) -> tuple[Groups, Floats, Ints]:
    """Halve some groups; return small groups, the vectors in the old order, and the new order."""
    cut, borders = groups.of_task(task)
    order = groups.order[cut]
    X = np.ascontiguousarray(queries.fetch(order))
    within, starts, of_group = _native.halve_groups(X, borders, _LARGEST, _threads_of_task(len(X)))
    return Groups(order[within], starts, groups.labels[task][of_group]), X, within


def arranged(
    X: Floats, order: Ints, groups: Ints, metric: int = 0, threads: int = 1
) -> tuple[Floats, Floats]:
    """Return the rows of X in ``order``, and the mean of each group of them.

    Group g is ``groups[g]:groups[g + 1]``.

    The mean is normalised for cosine, whose metric has the number 0; it is zero if the rows cancel
    out.
    """
    rows = np.empty((len(order), X.shape[1]), np.float32)
    means = np.empty((len(groups) - 1, X.shape[1]), np.float32)
    _native.arrange_groups(X, order, groups, rows, means, metric, threads)
    return rows, means
