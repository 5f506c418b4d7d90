"""Partitions of vectors: k-means, assignment to the nearest centroid, and drift.

Unit vectors get a weighted spherical k-means, and supplementary partitions. For the other metrics
there is one ordinary k-means.

The core finds the centroid with the largest product, among rows of length 1 at most. Ordinary
k-means takes extended rows: (x, 1/2) and (c, -|c|^2), where x and c are centred and scaled to
lengths up to 1/2. The centroid with the largest product x·c - |c|^2 / 2 is then the nearest one.
"""

import math
from functools import lru_cache
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss import _native
from cfe_faiss.base.checks import Doubles, Floats, Int32s, Ints, as_array, as_count, as_number
from cfe_faiss.base.threads import limit_faiss_threads, num_threads, product
from cfe_faiss.rows.metric import Metric, faiss_metric, is_distance
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
        return kmeans(X, nlist, cp, cp.seed, split=is_distance(metric))[None]
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
    sample = training_rows(len(X), nlist, cp, seed)
    if sample is not None:
        X = X[sample]
        weights = weights[sample]
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
    sample = training_rows(len(X), nlist, cp, seed)
    X = X if sample is None else X[sample]
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
    remaining = np.sort(
        np.argsort(-sizes, kind="stable")[: len(centroids) - int((parts - 1).sum())]
    )
    pieces = [
        kmeans(X[numbers == j], int(parts[j]), cp, seed) if parts[j] > 1 else centroids[j : j + 1]
        for j in remaining.tolist()
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
        block = rows[first : first + _COMPARED_AT_ONCE]
        S = product(snapshot.rows(block)[0] - center, means.T) - halves
        own_scores = S[np.arange(len(block)), lists_of(block, snapshot.starts)]
        elsewhere += int((S.max(axis=1) > own_scores).sum())
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


# --- weights of the paper -------------------------------------------------------------------------

_HALF_PI = math.pi / 2

# The integrand is decreasing. Below e^-45 of its first value, it is under the float64 resolution of
# the sum.
_DECAY = 45.0
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(80)
# With 8192 points, the error of linear interpolation is below 1e-6 for every d and theta.
_TABLE_SIZE = 8192


def log_overlap_ratio(phi: ArrayLike, d: int, theta: float = math.pi / 3) -> Doubles:
    """Return the logarithm of the share of a cap that an equal cap covers.

    Parameters
    ----------
    phi : array_like of float, any shape
        Angle between the axes of the two caps, in radians, 0..pi.
    d
        Dimension of the space that contains the unit sphere, at least 2.
    theta
        Angle between the axis and the rim of each cap, in radians, 0 < theta <= pi/2 (at most half
        a sphere).

    Returns
    -------
    ndarray of float64, the shape of ``phi``
        log(overlap): 0 at phi = 0, minus infinity for phi >= 2 theta, without underflow or overflow
        in between.

    Raises
    ------
    TypeError
        If an argument is not a real number.
    ValueError
        If an argument is outside its range, or NaN.

    Notes
    -----
    O(80) work and memory per angle; for many angles use :func:`node_weights`.

    The similar field of a vector v is a cap of angle theta around v. The weight of v with centroid
    mu is the share of this cap outside the equal cap around mu (paper, section "Weighted
    Clustering", eq. hyperscore).

    Let two caps of equal angle theta have axes at the angle phi. They are mirror images at the
    hyperplane that bisects the axes, so their intersection is twice the part of one cap beyond that
    hyperplane (S. Li 2011; Y. Lee and W. C. Kim 2014, who write it as an integral over incomplete
    beta functions). The derivative of that part is elementary. Turning the hyperplane from the
    angle eta to eta + d eta off the axis sweeps a cap of the sphere one dimension lower. Its angle
    is rho with cos(rho) = cos(theta) / cos(eta), and its points at the angle beta from its centre
    move by cos(beta) d eta. The integral of sin(beta)^(d-3) cos(beta) from 0 to rho is
    sin(rho)^(d-2) / (d-2). Factors that do not depend on eta cancel in the ratio::

        overlap(phi) = T(phi/2) / T(0)
        T(h) = integral from h to theta of sin(rho(eta))^(d-2) d eta
        sin(rho(eta))^2 = 1 - (cos(theta) / cos(eta))^2

    In R^2 this is 1 - phi / (2 theta), for half spheres (theta = pi/2) in any dimension it is 1 -
    phi / pi.

    Examples
    --------
    >>> import numpy as np
    >>> np.round(log_overlap_ratio(np.radians([0, 5, 60, 120]), d=1433), 3)
    array([  0.   ,  -1.082, -87.447,    -inf])
    """
    angles = as_array("phi", phi).astype(np.float64)
    d = as_count("d", d, 2)
    theta = _cap_angle(theta)
    # The negated test also rejects NaN. arccos in float32 may exceed pi by rounding.
    outside = ~((angles >= 0) & (angles <= np.float32(np.pi)))
    if outside.any():
        raise ValueError(f"phi must lie in [0, pi], got {angles[outside].flat[0]!r}")
    ratio = _log_tail(angles / 2, d, theta) - _log_tail(np.zeros(1), d, theta)
    return np.minimum(ratio, 0.0).reshape(angles.shape)


def overlap_ratio(phi: ArrayLike, d: int, theta: float = math.pi / 3) -> Doubles:
    """Return the share of a cap that an equal cap covers, 0..1.

    Arguments as in :func:`log_overlap_ratio`.

    Examples
    --------
    >>> import numpy as np
    >>> np.round(overlap_ratio(np.radians([0, 5, 60, 120]), d=3), 3)
    array([1.   , 0.952, 0.433, 0.   ])
    """
    return np.exp(log_overlap_ratio(phi, d, theta))


def cap_weight(phi: ArrayLike, d: int, theta: float = math.pi / 3) -> Doubles:
    """Return w(phi) = 1 - overlap(phi), the weight of a vector (eq. hyperscore).

    phi is its angle from its centroid.

    It increases from 0 at phi = 0 to 1 at phi = 2 theta. Arguments as in :func:`log_overlap_ratio`.

    Examples
    --------
    >>> import numpy as np
    >>> cap_weight(np.radians([0, 30, 60, 120]), d=2)
    array([0.  , 0.25, 0.5 , 1.  ])
    """
    return 0.0 - np.expm1(log_overlap_ratio(phi, d, theta))


def node_weights(cosines: ArrayLike, d: int, theta: float = math.pi / 3) -> Doubles:
    """Return the weights of vectors from their cosines with their centroids.

    Parameters
    ----------
    cosines : array_like of float, shape (n,)
        Cosine of each vector with its centroid. Values outside [-1, 1] are clipped.
    d
        Dimension of the vectors, at least 2.
    theta
        Angle of the similar field, in radians, 0 < theta <= pi/2.

    Returns
    -------
    ndarray of float64, shape (n,)
        Weights in [0, 1], non-increasing in the cosine.

    Raises
    ------
    TypeError
        If an argument is not a real number.
    ValueError
        If a cosine is NaN, or ``d`` or ``theta`` is outside its range.

    Examples
    --------
    >>> node_weights([1.0, 0.5, -1.0], d=2).round(6)
    array([0. , 0.5, 1. ])
    """
    values = as_array("cosines", cosines).astype(np.float64)
    if np.isnan(values).any():
        raise ValueError(
            f"cosines must not be NaN, got NaN at position {int(np.argmax(np.isnan(values)))}"
        )
    phi, weights = weight_table(as_count("d", d, 2), _cap_angle(theta))
    return np.interp(np.arccos(np.clip(values, -1.0, 1.0)), phi, weights)


def _cap_angle(theta: float) -> float:
    theta = as_number("theta", theta, 0.0, _HALF_PI)
    if theta == 0:
        raise ValueError("theta must lie in (0, pi/2], got 0.0")
    return theta


@lru_cache(maxsize=32)
def weight_table(d: int, theta: float) -> tuple[Doubles, Doubles]:
    """Return angles and their weights in R^d, (m,), between which weights are interpolated.

    The angles increase from 0 to the angle at which the weight is 1 at float64 resolution. Linear
    interpolation is within 1e-6 of :func:`cap_weight`.
    """
    # Place more points near the end, where the weight bends sharply for small d or theta near pi/2.
    spread = 1.0 - np.linspace(1.0, 0.0, _TABLE_SIZE) ** 2
    phi = 2.0 * _window(np.full(1, theta), d, theta) * spread
    weight = np.maximum.accumulate(cap_weight(phi, d, theta))
    phi.flags.writeable = weight.flags.writeable = False
    return phi, weight


def _window(to_rim: Doubles, d: int, theta: float) -> Doubles:
    """Return the width in which sin(rho)^(d-2) decays by e^-45, at most ``to_rim``.

    It is measured from eta = theta - ``to_rim``.
    """
    kept_share = math.exp(-2.0 * _DECAY / (d - 2)) if d > 2 else 0.0
    lost_share = 1.0 - kept_share
    start = theta - to_rim
    # sin(rho)^2 = sin(theta)^2 - cos(theta)^2 tan(eta)^2, solved for eta with sums of positive
    # terms only
    rise = (
        lost_share * math.sin(theta) ** 2
        + kept_share * (math.sin(_HALF_PI - theta) * np.tan(start)) ** 2
    )
    end = np.arctan2(np.sqrt(rise), math.sin(_HALF_PI - theta))
    # sin(rho)^2 is concave in eta, which gives this lower bound. Near theta, rounding could return
    # a shorter window.
    return np.clip(end - start, lost_share * to_rim, to_rim)


def _log_power(to_rim: Doubles, d: int, theta: float) -> Doubles:
    """Return log(sin(rho)^(d-2)) at eta = theta - ``to_rim``, without cancellation.

    ``to_rim`` is above 0 and at most theta.
    """
    gap = _HALF_PI - theta
    cos_eta = np.sin(gap + to_rim)
    # cos(eta)^2 - cos(theta)^2 = sin(theta - eta) sin(theta + eta), by sums of positive terms only
    sin_sum = math.sin(theta) * cos_eta + math.sin(gap) * np.sin(theta - to_rim)
    return (d - 2) * (0.5 * (np.log(np.sin(to_rim)) + np.log(sin_sum)) - np.log(cos_eta))


def _log_tail(start: Doubles, d: int, theta: float) -> Doubles:
    """Return log T(start); minus infinity for start >= theta."""
    result = np.full(start.shape, -np.inf)
    inside = start < theta
    to_rim = theta - start[inside]
    width = _window(to_rim, d, theta)
    first = _log_power(to_rim, d, theta)
    # eta = end - width u^2: for odd d the integrand ends in a root of theta - eta, which is smooth
    # in u
    u = (_NODES + 1.0) / 2.0
    points = (to_rim - width)[..., None] + width[..., None] * u**2
    falling = np.exp(_log_power(points, d, theta) - first[..., None])
    result[inside] = first + np.log(width * np.sum(falling * (_NODE_WEIGHTS * u), axis=-1))
    return result
