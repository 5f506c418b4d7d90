"""Partitions of unit vectors: weighted spherical k-means, and the supplementary partitions chained after it."""

from itertools import pairwise
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss.caps import node_weights
from cfe_faiss.coarse.nearest import blas_for, nearest
from cfe_faiss.jit import kernel
from cfe_faiss.parallel import faiss_threads, num_threads, run

_NEXT_RUN = 15486557  # what FAISS adds to the seed from run to run
_ASIDE = 2.0**-10  # how far apart the halves of a list are moved, as a share of each component


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
    return np.array([nearest(X, partition)[1] for partition in centroids], np.int32).reshape(len(centroids), len(X))


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


def spherical_kmeans(
    X: NDArray[np.float32], nlist: int, weights: NDArray[np.float32], cp: Any, seed: int
) -> NDArray[np.float32]:
    """Return the unit centroids, (nlist, d), of weighted unit vectors; ``cp`` as in :func:`train_partitions`.

    It is Lloyd's algorithm from the sample and the start that ``faiss.Clustering`` takes with the same parameters, with
    another rule for clusters that become empty: each gets half of the heaviest. Of ``cp.nredo`` runs the one with the
    greatest sum of cosines is returned.
    """
    most = cp.max_points_per_centroid * nlist
    if len(X) > most:
        chosen = _permutation(len(X), seed)[:most]
        X, weights = X[chosen], weights[chosen]
    with blas_for(float(X.size) * nlist):
        runs = [_lloyd(X, nlist, weights, cp.niter, seed + 1 + i * _NEXT_RUN) for i in range(cp.nredo)]
    return max(runs, key=lambda run: run[0])[1]


def _permutation(n: int, seed: int) -> NDArray[np.int32]:
    order = np.empty(n, np.int32)
    faiss.rand_perm(faiss.swig_ptr(order), n, seed)
    return order


def _lloyd(
    X: NDArray[np.float32], nlist: int, weights: NDArray[np.float32], niter: int, seed: int
) -> tuple[float, NDArray[np.float32]]:
    """Return the sum of the cosines of vectors and the centroids before the last, and the last centroids."""
    centroids, total = X[_permutation(len(X), seed)[:nlist]], 0.0
    lists: NDArray[np.int32] | None = None
    for _ in range(niter):
        before = lists
        cosines, lists = nearest(X, centroids, before)
        total = float(cosines.sum())
        if before is not None and np.array_equal(lists, before):
            break
        centroids = _means(X, weights, lists, nlist)
    return total, centroids


def _means(
    X: NDArray[np.float32], weights: NDArray[np.float32], lists: NDArray[np.int32], nlist: int
) -> NDArray[np.float32]:
    """Return the normalised weighted mean of each list, (nlist, d); of an empty one, one near that of a heavy list."""
    sums, heaviness = np.zeros((nlist, X.shape[1]), np.float32), np.zeros(nlist, np.float32)
    borders = np.linspace(0, nlist, num_threads(float(X.size)) + 1).astype(int).tolist()
    run(lambda share: _add_up(X, weights, lists, *share, sums, heaviness), list(pairwise(borders)), work=float(X.size))
    aside = np.where(np.arange(X.shape[1]) % 2, -_ASIDE, _ASIDE).astype(np.float32)
    for empty in np.flatnonzero(heaviness == 0):
        heaviest = heaviness.argmax()
        heaviness[empty] = heaviness[heaviest] = heaviness[heaviest] / 2
        sums[empty], sums[heaviest] = sums[heaviest] * (1 + aside), sums[heaviest] * (1 - aside)
    norms = np.sqrt(np.einsum("ij,ij->i", sums, sums))
    sums /= np.where(norms > 0, norms, np.float32(1))[:, None]
    return sums


@kernel
def _add_up(
    X: NDArray[np.float32],
    weights: NDArray[np.float32],
    lists: NDArray[np.int32],
    first: int,
    last: int,
    sums: NDArray[np.float32],
    heaviness: NDArray[np.float32],
) -> None:
    """Add the vectors of the lists ``first`` to ``last - 1`` to their sums: in one order, however many threads."""
    for r in range(X.shape[0]):
        j = lists[r]
        if first <= j < last:
            heaviness[j] += weights[r]
            for i in range(X.shape[1]):
                sums[j, i] += weights[r] * X[r, i]
