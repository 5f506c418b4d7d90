"""Partitions of vectors: k-means, followed by the supplementary partitions of unit vectors."""

from typing import Any

import faiss
import numpy as np

from cfe_faiss.base.arrays import Floats, Int32s, Ints
from cfe_faiss.base.threads import limit_faiss_threads, num_threads
from cfe_faiss.coarse.caps import node_weights
from cfe_faiss.coarse.kmeans import (
    kmeans,
    nearest,
    nearest_by_distance,
    nearest_numbers,
    spherical_kmeans,
)
from cfe_faiss.rows.metric import Metric, faiss_metric


def train_partitions(
    X: Floats,
    nlist: int,
    partitions: int,
    cp: Any,
    *,
    theta: float,
    weighted: bool,
    metric: Metric = "cosine",
) -> Floats:
    """Cluster vectors ``partitions`` times, each time with weights from the previous partition.

    The first partition is an unweighted spherical k-means. Each further partition is a full
    weighted spherical k-means. The weight of a vector is ``w(phi)``, where phi is the angle to its
    centroid in the previous partition (paper, "Supplementary Partitioning" and "Weighted
    Clustering"). So the centroids move to the previous cluster borders. For another metric than
    cosine there is one partition, by ordinary k-means. For "l2", long lists are split: they take
    most of the time of a search, as every query probes them.

    Parameters
    ----------
    X
        Rows in their stored form, (n, d) float32.
    nlist, partitions
        Number of clusters per partition, and number of partitions.
    cp
        ``faiss.ClusteringParameters``: iterations, seed (partition i uses seed + i) and size of the
        training sample.
    theta
        Angle of the caps of the weight, in radians.
    weighted
        False gives all vectors equal weights in every partition. Then partitions differ only by
        their random start.

    Returns
    -------
    Centroids, (partitions, nlist, d) float32; unit rows for cosine.
    """
    if metric != "cosine":
        return kmeans(X, nlist, cp, cp.seed, split=metric == "l2")[None]
    n, d = X.shape
    centroids = np.empty((partitions, nlist, d), np.float32)
    weights = np.ones(n, np.float32)
    for i in range(partitions):
        centroids[i] = spherical_kmeans(X, nlist, weights, cp, cp.seed + i)
        if weighted and i + 1 < partitions and d > 1:  # caps need at least 2 dimensions
            raw = node_weights(nearest(X, centroids[i])[0], d, theta)
            weights = (raw / raw.mean() if raw.any() else np.ones_like(raw)).astype(np.float32)
    return centroids


def assign(X: Floats, centroids: Floats, metric: Metric = "cosine") -> Int32s:
    """Return the nearest list for each partition and vector, (partitions, n) int32."""
    if metric != "cosine":
        return nearest_by_distance(X, centroids[0])[None]
    return np.array([nearest_numbers(X, partition) for partition in centroids], np.int32).reshape(
        len(centroids), len(X)
    )


def nearest_centroids(
    X: Floats, centroids: Floats, count: int, metric: Metric = "cosine"
) -> tuple[Floats, Ints]:
    """Return FAISS's D and numbers, (n, count), of the nearest of the (nlist, d) centroids."""
    with limit_faiss_threads(num_threads(float(X.size) * len(centroids))):
        D, lists = faiss.knn(X, centroids, count, metric=faiss_metric(metric))
    return D, lists
