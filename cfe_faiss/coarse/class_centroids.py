"""Routing: which lists a query probes.

A stock index sends a query to the lists that are near as a whole. Most of what is near has the query's own class, so
the lists that hold its evidence are others: those whose *other-class* members are near. :class:`Routes` keeps the mean
of every list and, for every class with a share in it that matters, the mean of its members without that class.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from faiss import ClusteringParameters
from numpy.typing import NDArray

from cfe_faiss._native import ClassCentroids, ListScan
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.derived import derived
from cfe_faiss.base.threads import num_threads
from cfe_faiss.coarse.kmeans import nearest_numbers, spherical_kmeans
from cfe_faiss.coarse.partitions import nearest_centroids
from cfe_faiss.rows.snapshot import Snapshot

# A class with a smaller share in a list moves its mean too little: on German, Bail, Cora and Facebook recall@10 with
# centroids for all shares and for these only differed by at most 0.002. There are at most 8 of them for a list.
SMALL_SHARE = 1 / 8
WORTH_CLUSTERS = 1 << 11
"""From so many lists on, of all partitions together, a query is compared with clusters of lists first."""


def nearest_lists(X: NDArray[np.float32], centroids: NDArray[np.float32], nprobe: int) -> NDArray[np.int64]:
    """Return the ``nprobe`` lists of any partition whose centroids are nearest to each query, nearest first.

    As the weight of a vector rises with the angle to its centroid, the nearest of all centroids belongs to the paper's
    optimal partition and its optimal cluster (paper, "Index Construction").

    Parameters
    ----------
    X
        Unit queries, (nq, d).
    centroids
        (partitions, nlist, d), unit rows. List j of partition i has the number ``i * nlist + j``.
    nprobe
        Lists wanted; if it is at least partitions * nlist, all lists of the first partition are returned: every vector.

    Returns
    -------
    (nq, nprobe or nlist) int64.
    """
    partitions, nlist, d = centroids.shape
    if nprobe >= partitions * nlist:
        return np.tile(np.arange(nlist), (len(X), 1))
    return nearest_centroids(X, centroids.reshape(-1, d), nprobe)[1]


@dataclass(frozen=True)
class SecondLevel:
    """Clusters of lists that lie near each other: a first step of coarse ranking where there are very many lists.

    Attributes
    ----------
    means
        Centroid of each cluster, (clusters, d) float32.
    starts, lists
        Cluster r holds the lists ``lists[starts[r]:starts[r + 1]]``, both int64.
    """

    means: NDArray[np.float32]
    starts: NDArray[np.int64]
    lists: NDArray[np.int64]

    @classmethod
    def of(cls, means: NDArray[np.float32]) -> "SecondLevel":
        """Cluster the means of lists, (lists, d), into about as many clusters as a cluster has lists; none if few."""
        if len(means) < WORTH_CLUSTERS:
            return cls.none(means.shape[1])
        number, once = math.isqrt(len(means)), np.ones(len(means), np.float32)
        centroids = spherical_kmeans(means, number, once, ClusteringParameters(), seed=0)
        clusters = nearest_numbers(means, centroids)
        order = np.argsort(clusters, kind="stable").astype(np.int64)
        return cls(centroids, np.append(0, np.cumsum(np.bincount(clusters, minlength=len(centroids)))), order)

    @classmethod
    def none(cls, d: int) -> "SecondLevel":
        """Return no clusters: all lists are compared."""
        return cls(np.empty((0, d), np.float32), np.zeros(1, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True)
class Routes:
    """Where the evidence of each class lies: list means, and list means without one class.

    Attributes
    ----------
    nlist
        Lists in a partition; lists of all partitions are numbered through.
    means, filled
        Normalised mean of each list's members with a known label, (lists, d) float32, and whether it has any, (lists,).
    labels
        Labels that have (list, class) centroids, ascending, (c,) int32.
    starts
        The centroids of ``labels[i]`` are ``starts[i]:starts[i + 1]``, (c + 1,) int64.
    class_lists
        The list that each (list, class) centroid is of, (m,) int64.
    class_means, class_filled
        Normalised mean of that list's members with another known label, (m, d), and whether it has any.
    second_level
        The lists' neighbourhoods, where there are many lists.
    """

    nlist: int
    means: NDArray[np.float32]
    filled: NDArray[np.bool_]
    labels: NDArray[np.int32]
    starts: NDArray[np.int64]
    class_lists: NDArray[np.int64]
    class_means: NDArray[np.float32]
    class_filled: NDArray[np.bool_]
    second_level: SecondLevel

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Routes":
        """Sum up the members of every list of every partition: one pass over the vectors for each partition."""
        nlist = len(snapshot.starts) - 1
        starts = snapshot.list_starts
        labels = np.concatenate([snapshot.labels, snapshot.labels[snapshot.references]])
        lists = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        known = labels != UNKNOWN
        # One block for each label of each list that occurs, in order of (label, list).
        keys = labels[known].astype(np.int64) * (len(starts) - 1) + lists[known]
        blocks, counts = np.unique(keys, return_counts=True)
        block_labels, block_lists = np.divmod(blocks, len(starts) - 1)
        members = np.bincount(lists[known], minlength=len(starts) - 1)
        worth = counts > SMALL_SHARE * members[block_lists]
        block_labels, block_lists = block_labels[worth].astype(np.int32), block_lists[worth]
        others = counts[worth] < members[block_lists]

        means = np.zeros((len(starts) - 1, snapshot.d), np.float32)
        class_means = np.zeros((len(block_lists), snapshot.d), np.float32)
        by_list = np.lexsort((block_labels, block_lists))
        class_starts = np.searchsorted(block_lists[by_list], np.arange(len(starts)))

        work = float(len(labels)) * snapshot.d
        scan = ListScan(snapshot.native, snapshot.references, snapshot.reference_starts)
        scan.centroids(by_list, class_starts, block_labels, means, class_means, num_threads(work))
        classes = np.unique(block_labels)
        edges = np.append(np.searchsorted(block_labels, classes), len(block_labels)).astype(np.int64)
        second_level = SecondLevel.of(means)
        return cls(nlist, means, members > 0, classes, edges, block_lists, class_means, others, second_level)

    @classmethod
    def merged(cls, parts: Sequence["Routes"], owners: NDArray[np.intp]) -> "Routes":
        """Return the routes of all lists of an index that lies in parts, of which list j is in ``owners[j]`` only."""
        nlist = len(owners)
        means, filled = np.empty_like(parts[0].means), np.empty_like(parts[0].filled)
        for number, part in enumerate(parts):
            own = owners == number
            means[own], filled[own] = part.means[own], part.filled[own]
        labels = np.concatenate([np.repeat(part.labels, np.diff(part.starts)) for part in parts])
        lists = np.concatenate([part.class_lists for part in parts])
        order = np.lexsort((lists, labels))
        classes, counts = np.unique(labels, return_counts=True)
        return cls(
            nlist,
            means,
            filled,
            classes,
            np.append(0, np.cumsum(counts)).astype(np.int64),
            lists[order],
            np.concatenate([part.class_means for part in parts])[order],
            np.concatenate([part.class_filled for part in parts])[order],
            SecondLevel.of(means),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a file keeps, with names; flags as bytes."""
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
    def from_arrays(cls, nlist: int, arrays: dict[str, NDArray[Any]]) -> "Routes":
        """Return the routes that :meth:`arrays` was taken of."""
        means, filled, labels, starts, lists, class_means, class_filled, *second_level = (
            arrays[name] for name in cls.none(1).arrays()
        )
        return cls(
            nlist,
            means,
            filled.view(bool),
            labels,
            starts,
            lists,
            class_means,
            class_filled.view(bool),
            SecondLevel(*second_level),
        )

    @classmethod
    def none(cls, d: int) -> "Routes":
        """Return routes without any list: what a file keeps of an index that has none."""
        means, flags = np.empty((0, d), np.float32), np.empty(0, bool)
        numbers = np.empty(0, np.int64)
        starts = np.zeros(1, np.int64)
        return cls(0, means, flags, np.empty(0, np.int32), starts, numbers, means, flags, SecondLevel.none(d))

    def has_centroids(self, labels: NDArray[np.int32], lists: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each label and list, (n,) both, whether the list has a mean without that label of its own."""
        keys = np.repeat(self.labels.astype(np.int64), np.diff(self.starts)) * len(self.means) + self.class_lists
        wanted = labels.astype(np.int64) * len(self.means) + lists
        if len(keys) == 0:
            return np.zeros(len(labels), bool)
        found: NDArray[np.bool_] = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
        return found

    def lists(
        self, X: NDArray[np.float32], labels: NDArray[np.int32], nprobe: int, *, threads: int = 1
    ) -> NDArray[np.int64]:
        """Return for each query the ``nprobe`` lists whose other-class members are nearest, nearest first, -1 for none.

        Arguments and result are those of :func:`nearest_lists`, with the queries' labels, (nq,) int32. Lists are ranked
        for a query alone as for many.
        """
        return ranked(self.native, self.nlist, X, labels, nprobe, threads)

    def all_lists(self, X: NDArray[np.float32], labels: NDArray[np.int32], *, threads: int = 1) -> NDArray[np.int64]:
        """Return for each query all lists of the first partition that may hold its evidence, nearest first, then -1."""
        found = np.empty((len(X), self.nlist), np.int64)
        self.native.rank_all(X, labels, found, threads)
        return found

    @derived
    def native(self) -> ClassCentroids:
        """The means in blocks, as the compiled core ranks lists by them."""
        clusters = self.second_level
        return ClassCentroids(
            np.ascontiguousarray(self.means),
            np.ascontiguousarray(self.filled),
            np.ascontiguousarray(self.labels),
            np.ascontiguousarray(self.starts),
            np.ascontiguousarray(self.class_lists),
            np.ascontiguousarray(self.class_means),
            np.ascontiguousarray(self.class_filled),
            np.ascontiguousarray(clusters.means),
            np.ascontiguousarray(clusters.starts),
            np.ascontiguousarray(clusters.lists),
        )


def ranked(
    centroids: ClassCentroids,
    nlist: int,
    X: NDArray[np.float32],
    labels: NDArray[np.int32],
    nprobe: int,
    threads: int = 1,
) -> NDArray[np.int64]:
    """Return for each query the ``nprobe`` nearest lists, as :meth:`Routes.lists` does."""
    if nprobe >= len(centroids):
        return np.tile(np.arange(nlist), (len(X), 1))
    best = np.empty((len(X), nprobe), np.int64)
    centroids.rank(X, labels, best, threads)
    return best
