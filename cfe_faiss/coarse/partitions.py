"""Partitions of unit vectors: a spherical k-means, and the supplementary partitions chained after it."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.threads import faiss_threads
from cfe_faiss.coarse.caps import node_weights
from cfe_faiss.coarse.kmeans import nearest, nearest_numbers, spherical_kmeans


def train_partitions(
    X: NDArray[np.float32], nlist: int, partitions: int, cp: Any, *, theta: float, weighted: bool
) -> NDArray[np.float32]:
    """Cluster unit vectors ``partitions`` times, each time with the weights that the time before left.

    The first partition is an unweighted spherical k-means. Each further one is a full weighted spherical k-means in
    which a vector weighs ``w(phi)``, phi its angle to its centroid in the partition before (paper, "Supplementary
    Partitioning" and "Weighted Clustering"), so that the centroids move to where the last borders were.

    Parameters
    ----------
    X
        Unit rows, (n, d) float32.
    nlist, partitions
        Clusters in a partition, and how many partitions.
    cp
        ``faiss.ClusteringParameters``: iterations, seed (partition i adds i to it), size of the training sample.
    theta
        Angle of the caps of the weight, in radians.
    weighted
        False gives every vector the same weight in every partition: they then differ by their random start only.

    Returns
    -------
    (partitions, nlist, d) float32, unit rows: the centroids.
    """
    n, d = X.shape
    centroids = np.empty((partitions, nlist, d), np.float32)
    weights = np.ones(n, np.float32)
    for i in range(partitions):
        centroids[i] = spherical_kmeans(X, nlist, weights, cp, cp.seed + i)
        if weighted and i + 1 < partitions and d > 1:  # on a line there are no caps
            weights = _usable(node_weights(nearest(X, centroids[i])[0], d, theta))
    return centroids


def assign(X: NDArray[np.float32], centroids: NDArray[np.float32]) -> NDArray[np.int32]:
    """Return the list of each vector in each partition, (partitions, n) int32: the one whose centroid is nearest."""
    return np.array([nearest_numbers(X, partition) for partition in centroids], np.int32).reshape(
        len(centroids), len(X)
    )


def nearest_centroids(
    X: NDArray[np.float32], centroids: NDArray[np.float32], count: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return cosines and numbers, (n, count), of the ``count`` nearest of the (nlist, d) centroids, nearest first."""
    with faiss_threads(float(X.size) * len(centroids)):
        cosines, lists = faiss.knn(X, centroids, count, metric=faiss.METRIC_INNER_PRODUCT)
    return cosines, lists


def _usable(weights: NDArray[np.float64]) -> NDArray[np.float32]:
    mean = weights.mean()
    return (weights / mean if mean > 0 else np.ones_like(weights)).astype(np.float32)
