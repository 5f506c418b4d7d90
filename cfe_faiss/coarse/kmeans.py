"""Weighted spherical k-means, and the nearest centroid of each of many vectors."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss.base.threads import num_threads

_NEXT_RUN = 15486557  # what FAISS adds to the seed from run to run

Floats = NDArray[np.float32]
Numbers = NDArray[np.int32]


def nearest(X: Floats, centroids: Floats) -> tuple[Floats, Numbers]:
    """Return the similarity with, and the number of, the nearest centroid of each vector; of equals the first.

    Parameters
    ----------
    X, centroids
        Unit rows (or zero), (n, d) and (nlist, d), nlist >= 1.

    Returns
    -------
    Similarities, (n,) float32, and numbers, (n,) int32: exact, and the same bits for any number of threads.
    """
    similarities, numbers = np.empty(len(X), np.float32), np.empty(len(X), np.int32)
    contiguous = np.ascontiguousarray(X), np.ascontiguousarray(centroids)
    _native.nearest_centroids(*contiguous, similarities, numbers, num_threads())
    return similarities, numbers


def nearest_numbers(X: Floats, centroids: Floats) -> Numbers:
    """Return the number of the nearest centroid of each vector, in less time than :func:`nearest` takes."""
    numbers = np.empty(len(X), np.int32)
    contiguous = np.ascontiguousarray(X), np.ascontiguousarray(centroids)
    _native.nearest_centroids(*contiguous, np.empty(0, np.float32), numbers, num_threads())
    return numbers


def spherical_kmeans(X: Floats, nlist: int, weights: Floats, cp: Any, seed: int) -> Floats:
    """Return the unit centroids, (nlist, d), of weighted unit vectors.

    It is Lloyd's algorithm from the sample and the start that ``faiss.Clustering`` takes with the same parameters, with
    another rule for clusters that become empty: each gets half of the heaviest. Of ``cp.nredo`` runs the one with the
    greatest sum of similarities is returned.

    Parameters
    ----------
    X, weights
        Unit rows, (n, d), and their weights, (n,).
    cp
        ``faiss.ClusteringParameters``: iterations, runs, size of the training sample.
    """
    chosen = training_rows(len(X), nlist, cp, seed)
    if chosen is not None:
        X, weights = X[chosen], weights[chosen]
    X, weights = np.ascontiguousarray(X), np.ascontiguousarray(weights)
    runs = []
    for i in range(cp.nredo):
        centroids = X[_permutation(len(X), seed + 1 + i * _NEXT_RUN)[:nlist]]
        total = _native.move_centroids(X, weights, centroids, cp.niter, cp.nredo > 1, num_threads())
        runs.append((total, centroids))
    return max(runs, key=lambda run: run[0])[1]


def training_rows(n: int, nlist: int, cp: Any, seed: int) -> Numbers | None:
    """Return which of n vectors the clustering looks at, in order; None for all of them."""
    most = cp.max_points_per_centroid * nlist
    return _permutation(n, seed)[:most] if n > most else None


def _permutation(n: int, seed: int) -> Numbers:
    order = np.empty(n, np.int32)
    faiss.rand_perm(faiss.swig_ptr(order), n, seed)
    return order
