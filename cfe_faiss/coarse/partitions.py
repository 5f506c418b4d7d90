"""Partitions of vectors: k-means, assignment to the nearest centroid, and drift.

Unit vectors get a weighted spherical k-means, and supplementary partitions. For the other metrics
there is one ordinary k-means.

The core finds the centroid with the largest product, among rows of length 1 at most. Ordinary
k-means takes extended rows: (x, 1/2) and (c, -|c|^2), where x and c are centred and scaled to
lengths up to 1/2. The centroid with the largest product x·c - |c|^2 / 2 is then the nearest one.
"""

import math
from typing import Any

import faiss
import numpy as np

from cfe_faiss import _native
from cfe_faiss.base.checks import Doubles, Floats, Int32s, Ints
from cfe_faiss.base.threads import limit_faiss_threads, num_threads, product
from cfe_faiss.coarse.caps import node_weights
from cfe_faiss.rows.metric import Metric, faiss_metric
from cfe_faiss.rows.snapshot import Snapshot, lists_of

SAMPLE = 4096
"""Largest number of rows that :func:`drift` compares with all lists."""
_NEXT_RUN = 15486557  # seed increment per run, as in FAISS
_SCALED_AT_ONCE = 1 << 16
_SUMMED_AT_ONCE = 1 << 14
_COMPARED_AT_ONCE = 1 << 9
# lists of more than 4 mean lengths are split into parts of about 2
_LONG = 4
_PART = 2
_PASSES = 2  # a part of a split list may be long, too


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


# --- k-means --------------------------------------------------------------------------------------


def nearest(X: Floats, centroids: Floats) -> tuple[Floats, Int32s]:
    """Return similarity and number of the nearest centroid of each vector.

    Ties: smaller number first.

    Parameters
    ----------
    X, centroids
        Unit or zero rows, (n, d) and (nlist, d), nlist >= 1.

    Returns
    -------
    Similarities, (n,) float32, and numbers, (n,) int32. Exact and bitwise equal for any number of
    threads.
    """
    similarities = np.empty(len(X), np.float32)
    numbers = np.empty(len(X), np.int32)
    _native.nearest_centroids(
        np.ascontiguousarray(X),
        np.ascontiguousarray(centroids),
        similarities,
        numbers,
        num_threads(),
    )
    return similarities, numbers


def nearest_numbers(X: Floats, centroids: Floats, *, distances: bool = False) -> Int32s:
    """Return the number of the nearest centroid of each vector. Faster than :func:`nearest`.

    With ``distances``, vectors have lengths up to 1/2, and the nearest centroid is that at the
    least distance.
    """
    numbers = np.empty(len(X), np.int32)
    _native.nearest_centroids(
        np.ascontiguousarray(X),
        np.ascontiguousarray(centroids),
        np.empty(0, np.float32),
        numbers,
        num_threads(),
        distances,
    )
    return numbers


def spherical_kmeans(X: Floats, nlist: int, weights: Floats, cp: Any, seed: int) -> Floats:
    """Return the unit centroids, (nlist, d), of weighted unit vectors.

    Lloyd's algorithm with the training sample and the initial centroids of ``faiss.Clustering`` for
    the same parameters. It differs in the rule for empty clusters: an empty cluster gets half of
    the heaviest cluster. Of ``cp.nredo`` runs, the run with the largest sum of similarities is
    returned.

    Parameters
    ----------
    X, weights
        Unit rows, (n, d), and their weights, (n,).
    cp
        ``faiss.ClusteringParameters``: iterations, runs and size of the training sample.
    """
    chosen = training_rows(len(X), nlist, cp, seed)
    if chosen is not None:
        X = X[chosen]
        weights = weights[chosen]
    return _best_run(X, weights, nlist, cp, seed)


def _best_run(
    X: Floats, weights: Floats, nlist: int, cp: Any, seed: int, *, distances: bool = False
) -> Floats:
    """Return the centroids of the run of Lloyd's algorithm with the largest sum of scores."""
    X = np.ascontiguousarray(X)
    weights = np.ascontiguousarray(weights)
    runs = []
    for i in range(cp.nredo):
        centroids = X[_permutation(len(X), seed + 1 + i * _NEXT_RUN)[:nlist]]
        total = _native.move_centroids(
            X, weights, centroids, cp.niter, cp.nredo > 1, num_threads(), distances
        )
        runs.append((total, centroids))
    return max(runs, key=lambda run: run[0])[1]


def scaled(center: Floats, *rows: Floats) -> tuple[int, *tuple[Floats, ...]]:
    """Return an exponent, and matrices of rows less a centre, scaled by it to 1/2 at most."""
    centred = [X - center for X in rows]
    longest = max(
        float(np.einsum("ij,ij->i", X, X, dtype=np.float64).max(initial=0)) for X in centred
    )
    exponent = 1 + math.frexp(math.sqrt(longest))[1]
    return exponent, *(np.ldexp(X, -exponent) for X in centred)


def kmeans(X: Floats, nlist: int, cp: Any, seed: int, *, split: bool = False) -> Floats:
    """Return the centroids, (nlist, d), of ordinary k-means.

    Sample, start and runs as in :func:`spherical_kmeans`.

    With ``split``, long lists are clustered again, in place of the shortest lists.
    """
    chosen = training_rows(len(X), nlist, cp, seed)
    X = X if chosen is None else X[chosen]
    center = X.mean(axis=0, dtype=np.float64).astype(np.float32)
    exponent, *sides = scaled(center, X)
    centroids = _best_run(sides[0], np.ones(len(X), np.float32), nlist, cp, seed, distances=True)
    centroids = np.ldexp(centroids, exponent) + center
    for _ in range(_PASSES if split else 0):
        centroids = _split_long_lists(X, centroids, cp, seed)
    return centroids


def _split_long_lists(X: Floats, centroids: Floats, cp: Any, seed: int) -> Floats:
    """Return as many centroids: several for each long list, and none for the shortest lists.

    All long lists are kept, since none has more parts than mean lengths.
    """
    numbers = nearest_by_distance(X, centroids)
    sizes = np.bincount(numbers, minlength=len(centroids))
    means = sizes * len(centroids) / len(X)
    parts = np.where(means > _LONG, np.ceil(means / _PART), 1).astype(int)
    kept = np.sort(np.argsort(-sizes, kind="stable")[: len(centroids) - int((parts - 1).sum())])
    pieces = [
        kmeans(X[numbers == j], int(parts[j]), cp, seed) if parts[j] > 1 else centroids[j : j + 1]
        for j in kept.tolist()
    ]
    return np.concatenate(pieces)


def nearest_by_distance(X: Floats, centroids: Floats) -> Int32s:
    """Return the number of the centroid at the least distance of each vector, (n,) int32."""
    center = centroids.mean(axis=0, dtype=np.float64).astype(np.float32)
    numbers = np.empty(len(X), np.int32)
    for start in range(0, len(X), _SCALED_AT_ONCE):
        _, *sides = scaled(center, X[start : start + _SCALED_AT_ONCE], centroids)
        numbers[start : start + _SCALED_AT_ONCE] = nearest_numbers(*sides, distances=True)
    return numbers


def training_rows(n: int, nlist: int, cp: Any, seed: int) -> Int32s | None:
    """Return the numbers of the training vectors among n vectors, in order.

    None for all vectors.
    """
    most = cp.max_points_per_centroid * nlist
    return _permutation(n, seed)[:most] if n > most else None


def _permutation(n: int, seed: int) -> Int32s:
    order = np.empty(n, np.int32)
    faiss.rand_perm(faiss.swig_ptr(order), n, seed)
    return order


# --- drift ----------------------------------------------------------------------------------------


def drift(snapshot: Snapshot) -> float:
    """Return the share of rows in a sample that are nearer to the mean of another list.

    The cosine decides or, for the other metrics, whose lists come from an ordinary k-means, the
    distance.
    """
    if not (snapshot.lists and snapshot.n):
        return 0.0
    sums = list_sums(snapshot)
    sizes = np.diff(snapshot.starts)
    if snapshot.metric == "cosine":
        center = np.zeros(snapshot.d)
        lengths = np.linalg.norm(sums, axis=1)
    else:
        center = sums.sum(axis=0) / snapshot.n
        lengths = sizes
    means = (sums - sizes[:, None] * center) / np.maximum(lengths, 1e-30)[:, None]
    halves = np.einsum("ij,ij->i", means, means) / 2
    halves[sizes == 0] = np.inf
    rows = np.sort(
        np.random.default_rng(0).choice(snapshot.n, min(SAMPLE, snapshot.n), replace=False)
    )
    elsewhere = 0
    for first in range(0, len(rows), _COMPARED_AT_ONCE):
        some = rows[first : first + _COMPARED_AT_ONCE]
        S = product(snapshot.rows(some)[0] - center, means.T) - halves
        own = S[np.arange(len(some)), lists_of(some, snapshot.starts)]
        elsewhere += int((S.max(axis=1) > own).sum())
    return elsewhere / len(rows)


def list_sums(snapshot: Snapshot) -> Doubles:
    """Return the sum of the vectors of each list of the first partition, (nlist, d)."""
    sums = np.zeros((len(snapshot.starts) - 1, snapshot.d))
    for first in range(0, snapshot.n, _SUMMED_AT_ONCE):
        rows = np.arange(first, min(first + _SUMMED_AT_ONCE, snapshot.n))
        lists = lists_of(rows, snapshot.starts)
        starts = np.flatnonzero(np.diff(lists, prepend=-1))
        sums[lists[starts]] += np.add.reduceat(snapshot.rows(rows)[0].astype(np.float64), starts)
    return sums
