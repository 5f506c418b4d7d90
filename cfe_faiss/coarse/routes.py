"""List ranking: which lists a query probes.

A stock FAISS index ranks lists by their centroids. Most rows of the nearest lists have the query's
class, so its evidence is in other lists: the lists whose *other-class* rows are near.
:class:`Routes` holds the mean of every list. For every class with a large share in a list, it also
holds the mean of the list's rows without that class.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from faiss import ClusteringParameters
from numpy.typing import NDArray

from cfe_faiss._native import ClassCentroids, ListScan
from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Floats, Int32s, Ints, as_unit_rows
from cfe_faiss.base.threads import derived, num_threads
from cfe_faiss.coarse.partitions import nearest_centroids, nearest_numbers, spherical_kmeans
from cfe_faiss.rows.metric import METRICS, Metric, is_distance, lengths
from cfe_faiss.rows.snapshot import Snapshot

# A class with a smaller share moves the list's mean too little to matter. On German, Bail, Cora and
# Facebook, recall@10 with centroids for all shares differs by at most 0.002. At most 8 classes per
# list have a larger share.
SMALL_SHARE = 1 / 8
_VARIANCE_SHARE = 0.1  # kVarianceShare of native/core/metric.h
_LONGEST = 1e15  # length of a sound row, as in native/kernels/centroids.h
WORTH_CLUSTERS = 1 << 11
"""From this total number of lists on, a query is compared with clusters of lists first."""


NEIGHBORS = "other", "own", "any"
"""Classes that a query may find, in the order of their numbers in the core."""
LARGE_CLASS_ROWS = 1 << 12
"""Rows of a class from which on its lists are ranked for queries of its own class.

Fewer are searched exactly.
"""


def large_classes(snapshot: Snapshot) -> Int32s:
    """Return the classes whose lists are ranked for queries of the same class."""
    classes, counts = snapshot.class_counts
    return classes[counts >= LARGE_CLASS_ROWS]


def nearest_lists(X: Floats, centroids: Floats, nprobe: int, metric: Metric = "cosine") -> Ints:
    """Return the ``nprobe`` lists of any partition with the centroids nearest to each query.

    The weight of a vector increases with the angle to its centroid. So the nearest of all centroids
    belongs to the optimal partition and the optimal cluster (paper, "Index Construction").

    Parameters
    ----------
    X
        Queries, (nq, d).
    centroids
        (partitions, nlist, d). List j of partition i has the number ``i * nlist + j``.
    nprobe
        Number of lists. From partitions * nlist on, return all lists of the first partition, which
        hold every vector.

    Returns
    -------
    (nq, nprobe or nlist) int64.
    """
    partitions, nlist, d = centroids.shape
    if nprobe >= partitions * nlist:
        return np.tile(np.arange(nlist), (len(X), 1))
    return nearest_centroids(X, centroids.reshape(-1, d), nprobe, metric)[1]


def ranking_mean(snapshot: Snapshot, X: Floats) -> Floats:
    """Return the mean of some rows, (m, d), as lists are ranked by it, (ranking_length,).

    Zero for no rows.

    It is normalised for "cosine". For the other metrics, a number is added that stands for the
    variance of the rows; see ``native/core/metric.h``. Damaged rows are left out.
    """
    X = X[lengths(X) <= _LONGEST]
    if snapshot.metric == "cosine":
        unit: Floats = as_unit_rows("means", X.sum(axis=0)[None])[0]
        return unit
    if not len(X):
        return np.zeros(snapshot.ranking_length, np.float32)
    centred = X.astype(np.float64) - snapshot.center
    mean = centred.mean(axis=0)
    variance = max(0.0, float(np.einsum("ij,ij->", centred, centred)) / len(X) - float(mean @ mean))
    last = (
        -(mean @ mean + _VARIANCE_SHARE * variance) / 2
        if is_distance(snapshot.metric)
        else math.sqrt(variance / snapshot.d)
    )
    extended: Floats = np.append(mean, last).astype(np.float32)
    return extended


@dataclass(frozen=True)
class SecondLevel:
    """Clusters of nearby lists: the first level of list ranking for an index with many lists.

    Attributes
    ----------
    means
        Centroid of each cluster, (clusters, d) float32.
    starts, lists
        Cluster r holds the lists ``lists[starts[r]:starts[r + 1]]``, both int64.
    """

    means: Floats
    starts: Ints
    lists: Ints

    @classmethod
    def of(cls, centroids: Floats) -> "SecondLevel":
        """Cluster the centroids of all lists, (..., d), into sqrt(lists) clusters.

        An empty level below ``WORTH_CLUSTERS`` lists.

        Training fixes the centroids. So the clusters do not depend on the rows and outlive a
        change.
        """
        centroids = centroids.reshape(-1, centroids.shape[-1])
        if len(centroids) < WORTH_CLUSTERS:
            return cls.none(centroids.shape[1])
        number = math.isqrt(len(centroids))
        once = np.ones(len(centroids), np.float32)
        means = spherical_kmeans(centroids, number, once, ClusteringParameters(), seed=0)
        clusters = nearest_numbers(centroids, means)
        order = np.argsort(clusters, kind="stable").astype(np.int64)
        return cls(
            means, np.append(0, np.cumsum(np.bincount(clusters, minlength=len(means)))), order
        )

    @classmethod
    def none(cls, d: int) -> "SecondLevel":
        """Return an empty second level: a query is compared with all lists."""
        return cls(np.empty((0, d), np.float32), np.zeros(1, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class Routes:
    """List means, and list means without one class, by which lists are ranked for each query class.

    Attributes
    ----------
    nlist
        Lists per partition. Lists are numbered consecutively over all partitions.
    means, filled
        Mean of each list's rows of known label, (lists, length) float32, see :func:`ranking_mean`;
        mask of lists with such rows, (lists,).
    labels
        Labels that have (list, class) centroids, ascending, (c,) int32.
    starts
        The centroids of ``labels[i]`` are ``starts[i]:starts[i + 1]``, (c + 1,) int64.
    class_lists
        List of each (list, class) centroid, (m,) int64.
    class_means, class_filled
        Mean of that list's rows of other known labels, (m, length); mask of centroids with such
        rows, (m,).
    second_level
        Clusters of lists, for an index with many lists.
    metric, center
        Metric and centre of the snapshot.
    """

    nlist: int
    means: Floats
    filled: Bools
    labels: Int32s
    starts: Ints
    class_lists: Ints
    class_means: Floats
    class_filled: Bools
    second_level: SecondLevel
    metric: Metric = "cosine"
    center: Floats = field(default_factory=lambda: np.empty(0, np.float32))

    @classmethod
    def of(cls, snapshot: Snapshot, neighbors: str = "other") -> "Routes":
        """Compute the means of all lists, with one pass over the vectors per partition.

        ``neighbors`` are the classes that queries may find. "other": lists, and (list, class) pairs
        with a large share, have means. "own": the pairs of large classes have means of the class,
        and no other list is ranked. "any": lists have means, also of rows of unknown label.
        """
        nlist = len(snapshot.starts) - 1
        starts = snapshot.list_starts
        labels = np.concatenate([snapshot.labels, snapshot.labels[snapshot.references]])
        lists = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        is_known = labels != UNKNOWN
        counted = np.ones(len(labels), bool) if neighbors == "any" else is_known
        # One block for each pair of label and list that occurs, in order of (label, list).
        keys = labels[is_known].astype(np.int64) * (len(starts) - 1) + lists[is_known]
        blocks, counts = np.unique(keys, return_counts=True)
        block_labels, block_lists = np.divmod(blocks, len(starts) - 1)
        members = np.bincount(lists[counted], minlength=len(starts) - 1)
        worth = {
            "other": counts > SMALL_SHARE * members[block_lists],
            "own": np.isin(block_labels, large_classes(snapshot)),
            "any": np.zeros(len(counts), bool),
        }[neighbors]
        block_labels = block_labels[worth].astype(np.int32)
        block_lists = block_lists[worth]
        class_filled = (counts[worth] < members[block_lists]) | (neighbors == "own")
        filled = (members > 0) & (neighbors != "own")

        means = np.zeros((len(starts) - 1, snapshot.ranking_length), np.float32)
        means_by_list = np.zeros((len(block_lists), snapshot.ranking_length), np.float32)
        by_list = np.lexsort((block_labels, block_lists))
        class_starts = np.searchsorted(block_lists[by_list], np.arange(len(starts)))

        threads = num_threads(float(len(labels)) * snapshot.d)
        scan = ListScan(snapshot.native, snapshot.references, snapshot.reference_starts)
        scan.centroids(
            class_starts,
            block_labels[by_list],
            means,
            means_by_list,
            snapshot.center,
            NEIGHBORS.index(neighbors),
            threads,
        )
        class_means = np.empty_like(means_by_list)
        class_means[by_list] = means_by_list
        classes = np.unique(block_labels)
        edges = np.append(np.searchsorted(block_labels, classes), len(block_labels)).astype(
            np.int64
        )
        # far clusters may hold all rows of a class
        clustered = snapshot.metric == "cosine" and neighbors != "own"
        clusters = SecondLevel.of(snapshot.centroids) if clustered else SecondLevel.none(snapshot.d)
        return cls(
            nlist,
            means,
            filled,
            classes,
            edges,
            block_lists,
            class_means,
            class_filled,
            clusters,
            snapshot.metric,
            snapshot.center,
        )

    @classmethod
    def merged(
        cls, parts: Sequence["Routes"], owners: NDArray[np.intp], second_level: SecondLevel
    ) -> "Routes":
        """Merge the routes of the parts of an index. List j comes from part ``owners[j]``."""
        nlist = len(owners)
        means = np.empty_like(parts[0].means)
        filled = np.empty_like(parts[0].filled)
        for number, part in enumerate(parts):
            of_part = owners == number
            means[of_part] = part.means[of_part]
            filled[of_part] = part.filled[of_part]
        labels = np.concatenate([np.repeat(part.labels, np.diff(part.starts)) for part in parts])
        lists = np.concatenate([part.class_lists for part in parts])
        order = np.lexsort((lists, labels))
        classes, counts = np.unique(labels, return_counts=True)
        starts = np.append(0, np.cumsum(counts)).astype(np.int64)
        return cls(
            nlist,
            means,
            filled,
            classes,
            starts,
            lists[order],
            np.concatenate([part.class_means for part in parts])[order],
            np.concatenate([part.class_filled for part in parts])[order],
            second_level,
            parts[0].metric,
            parts[0].center,
        )

    def arrays(self) -> dict[str, Array]:
        """Return the arrays stored in a file, by name. Boolean arrays are viewed as uint8."""
        return {
            "route_means": self.means,
            "route_filled": self.filled.view(np.uint8),
            "route_labels": self.labels,
            "route_starts": self.starts,
            "route_lists": self.class_lists,
            "route_entry_means": self.class_means,
            "route_entry_filled": self.class_filled.view(np.uint8),
            "region_means": self.second_level.means,
            "region_starts": self.second_level.starts,
            "region_lists": self.second_level.lists,
        }

    @classmethod
    def from_arrays(
        cls, nlist: int, arrays: dict[str, Array], metric: Metric, center: Floats
    ) -> "Routes":
        """Return the routes from the arrays of :meth:`arrays`."""
        return cls(
            nlist,
            arrays["route_means"],
            arrays["route_filled"].view(bool),
            arrays["route_labels"],
            arrays["route_starts"],
            arrays["route_lists"],
            arrays["route_entry_means"],
            arrays["route_entry_filled"].view(bool),
            SecondLevel(arrays["region_means"], arrays["region_starts"], arrays["region_lists"]),
            metric,
            center,
        )

    @classmethod
    def none(cls, d: int) -> "Routes":
        """Return routes without lists, as stored in the file of an index without routes."""
        means = np.empty((0, d), np.float32)
        flags = np.empty(0, bool)
        clusters = SecondLevel.none(d)
        labels = np.empty(0, np.int32)
        return cls(0, means, flags, labels, clusters.starts, clusters.lists, means, flags, clusters)

    def has_centroids(self, labels: Int32s, lists: Ints) -> Bools:
        """Return a mask, (n,), of pairs of label and list with a (list, class) centroid."""
        class_labels = np.repeat(self.labels.astype(np.int64), np.diff(self.starts))
        keys = class_labels * len(self.means) + self.class_lists
        return np.isin(labels.astype(np.int64) * len(self.means) + lists, keys)

    def lists(self, X: Floats, labels: Int32s, nprobe: int, *, threads: int = 1) -> Ints:
        """Return the ``nprobe`` lists per query with the nearest rows of other classes, or -1.

        Arguments and result are as in :func:`nearest_lists`, with the labels of the queries, (nq,)
        int32. The ranking for a query does not depend on the other queries.
        """
        return ranked(self.native, self.nlist, X, labels, nprobe, threads)

    @derived
    def native(self) -> ClassCentroids:
        """The means in the block layout that the core uses to rank lists."""
        return ClassCentroids(
            self.means,
            self.filled,
            self.labels,
            self.starts,
            self.class_lists,
            self.class_means,
            self.class_filled,
            self.second_level.means,
            self.second_level.starts,
            self.second_level.lists,
            METRICS.index(self.metric),
            self.center,
        )


def ranked(
    centroids: ClassCentroids, nlist: int, X: Floats, labels: Int32s, nprobe: int, threads: int = 1
) -> Ints:
    """Return the ``nprobe`` nearest lists of each query, as :meth:`Routes.lists` does."""
    if nprobe >= len(centroids):
        return np.tile(np.arange(nlist), (len(X), 1))
    best = np.empty((len(X), nprobe), np.int64)
    centroids.rank(X, labels, best, threads)
    return best
