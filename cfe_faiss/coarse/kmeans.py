"""Weighted spherical k-means and assignment to the nearest centroid."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss.base.threads import num_threads

_NEXT_RUN = 15486557  # seed increment per run, as in FAISS

Floats = NDArray[np.float32]
Numbers = NDArray[np.int32]


def nearest(X: Floats, centroids: Floats) -> tuple[Floats, Numbers]:
    """Return similarity and number of the nearest centroid of each vector. Ties: smaller number first.

    Parameters
    ----------
    X, centroids
        Unit or zero rows, (n, d) and (nlist, d), nlist >= 1.

    Returns
    -------
    Similarities, (n,) float32, and numbers, (n,) int32. Exact and bitwise equal for any number of threads.
    """
    similarities, numbers = np.empty(len(X), np.float32), np.empty(len(X), np.int32)
    contiguous = np.ascontiguousarray(X), np.ascontiguousarray(centroids)
    _native.nearest_centroids(*contiguous, similarities, numbers, num_threads())
    return similarities, numbers


def nearest_numbers(X: Floats, centroids: Floats) -> Numbers:
    """Return the number of the nearest centroid of each vector. Faster than :func:`nearest`."""
    numbers = np.empty(len(X), np.int32)
    contiguous = np.ascontiguousarray(X), np.ascontiguousarray(centroids)
    _native.nearest_centroids(*contiguous, np.empty(0, np.float32), numbers, num_threads())
    return numbers


def spherical_kmeans(X: Floats, nlist: int, weights: Floats, cp: Any, seed: int) -> Floats:
    """Return the unit centroids, (nlist, d), of weighted unit vectors.

    Lloyd's algorithm with the training sample and the initial centroids of ``faiss.Clustering`` for the same
    parameters. It differs in the rule for empty clusters: an empty cluster gets half of the heaviest cluster. Of
    ``cp.nredo`` runs, the run with the largest sum of similarities is returned.

    Parameters
    ----------
    X, weights
        Unit rows, (n, d), and their weights, (n,).
    cp
        ``faiss.ClusteringParameters``: iterations, runs and size of the training sample.
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
    """Return the numbers of the training vectors among n vectors, in order; None for all vectors."""
    most = cp.max_points_per_centroid * nlist
    return _permutation(n, seed)[:most] if n > most else None


def _permutation(n: int, seed: int) -> Numbers:
    order = np.empty(n, np.int32)
    faiss.rand_perm(faiss.swig_ptr(order), n, seed)
    return order
