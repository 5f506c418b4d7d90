"""Metrics: how vectors are stored and compared.

==========  ============================  ============================  =======================
metric      stored vectors                D, as FAISS returns it        measure, for readers
==========  ============================  ============================  =======================
"cosine"    normalised copies             inner product, descending     similarity, D
"ip"        unchanged                     inner product, descending     similarity, D
"l2"        unchanged                     squared distance, ascending   distance, its root
"tanimoto"  unchanged, numbers 0 and 1    common ones / ones of either  similarity, D
==========  ============================  ============================  =======================

Engines compare by *scores*, which are larger for nearer vectors: the inner product, or minus the
squared distance. :func:`flipped` converts them only where they enter and leave an index.

Two rows x and y of 0 and 1 have the Tanimoto similarity ``x·y / (|x|^2 + |y|^2 - x·y)``, also called
the Jaccard index (P. Jaccard, New Phytologist 11, 1912). Two rows of zeros have 1, as all equal
rows and as in SciPy and scikit-learn; RDKit and FAISS give them 0. All of these numbers are counts,
exact in float32 below 2**24, so only the quotient is rounded.
"""

import math
from typing import Any, Literal, TypeAlias

import faiss
import numpy as np

from cfe_faiss.base.checks import Array, Doubles, Floats, Ints, as_matrix, as_number, as_unit_rows
from cfe_faiss.graph.ks import compare_rows, ks_similarity

Metric: TypeAlias = Literal["cosine", "ip", "l2", "tanimoto"]
METRICS: tuple[Metric, ...] = ("cosine", "ip", "l2", "tanimoto")
"""Metrics in the order of their numbers in the core."""
OF_FAISS: dict[int, Metric] = {
    faiss.METRIC_INNER_PRODUCT: "ip",
    faiss.METRIC_L2: "l2",
    faiss.METRIC_Jaccard: "tanimoto",
}

LONGEST = 1e14
"""Largest length of a vector for "ip" and "l2", at which no score overflows in float32."""
_ROUNDING = (
    1.05 * 2.0**-24
)  # of a sum of d terms, for each term; the excess covers the terms of higher order
_UNDERFLOW = 2.0**-125
_NO_ONES = np.float32(2.0**-60)
_MOST_BITS = 1 << 24  # counts that float32 holds exactly


def as_metric(name: str, value: Any) -> Metric:
    """Return a metric from its name or FAISS's constant; raise ValueError for another value."""
    if isinstance(value, str) and value in METRICS:
        return METRICS[METRICS.index(value)]
    if isinstance(value, int) and not isinstance(value, bool) and value in OF_FAISS:
        return OF_FAISS[value]
    raise ValueError(
        f"{name} must be 'cosine', 'ip', 'l2', 'tanimoto' or FAISS's METRIC_INNER_PRODUCT, METRIC_L2 "
        f"or METRIC_Jaccard, got {value!r}"
    )


def faiss_metric(metric: Metric) -> int:
    """Return FAISS's constant of a metric."""
    numbers = {name: number for number, name in OF_FAISS.items()}
    return int(numbers["ip" if metric == "cosine" else metric])


def as_rows(name: str, values: Any, d: int | None, metric: Metric) -> Floats:
    """Return vectors, (n, d) float32, as an index stores them: normalised for "cosine".

    Raises
    ------
    TypeError, ValueError
        If the values are no vectors, not finite, for "ip" and "l2" longer than ``LONGEST``, or for
        "tanimoto" other numbers than 0 and 1.
    """
    if metric == "cosine":
        return as_unit_rows(name, values, d)
    matrix = as_matrix(name, values, d)
    if metric == "tanimoto":
        row = first_not_bits(matrix)
        if row >= 0:
            other = matrix[row][(matrix[row] != 0) & (matrix[row] != 1)][0]
            raise ValueError(
                f"{name} must hold only 0 and 1 for metric 'tanimoto', got {other:g} in row {row}: "
                f"compare counts by 'cosine', or convert them by X > 0"
            )
        if matrix.shape[1] >= _MOST_BITS:
            raise ValueError(f"{name} must have fewer than 2**24 columns, got {matrix.shape[1]}")
    row_lengths = lengths(matrix)
    if len(row_lengths) and row_lengths.max() > LONGEST:
        row = int(row_lengths.argmax())
        raise ValueError(
            f"{name} must have rows of length {LONGEST:g} at most, got {row_lengths[row]:g} in row "
            f"{row}"
        )
    return matrix


def first_not_bits(X: Floats) -> int:
    """Return the first row that holds other numbers than 0 and 1, or -1."""
    wrong = ((X != 0) & (X != 1)).any(axis=1)
    return int(wrong.argmax()) if wrong.any() else -1


def lengths(X: Floats) -> Doubles:
    """Return the length of each row, (n,)."""
    squares: Doubles = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return np.sqrt(squares)


def is_distance(metric: str) -> bool:
    """Return whether D is a distance, smaller for nearer vectors, and not a similarity."""
    return metric == "l2"


def flipped(values: Floats, metric: str) -> Floats:
    """Return D from scores, or scores from D, with FAISS's padding."""
    return 0 - values if is_distance(metric) else values


def measure_of(metric: Metric) -> str:
    """Return what results call the nearness of two rows: "similarity" or "distance"."""
    return "distance" if is_distance(metric) else "similarity"


def measured(D: Floats, metric: Metric) -> Array:
    """Return D in the unit that results show: a distance, or the similarity."""
    if not is_distance(metric):
        return D
    distances = np.sqrt(D.astype(np.float64))
    distances[-D == PADDING] = np.inf
    return distances


def threshold_of(argument: str, value: Any, metric: Metric) -> float:
    """Return D at a checked similarity or distance.

    Raises
    ------
    TypeError, ValueError
        If it is no number, no similarity of unit vectors, or a negative distance; the error names
        ``argument``.
    """
    if is_distance(metric):
        return as_number(argument, value, 0.0, math.inf) ** 2
    return as_threshold(argument, value, metric)


def as_threshold(argument: str, value: Any, metric: Metric) -> float:
    """Return a checked threshold of D: a similarity, or a squared distance.

    Raises
    ------
    TypeError, ValueError
        If it is no number, no similarity of unit vectors, or negative where D never is; the error
        names ``argument``.
    """
    least = {"cosine": -1.0, "tanimoto": 0.0, "l2": 0.0}.get(metric, -math.inf)
    return as_number(argument, value, least, largest_similarity(metric))


def largest_similarity(metric: Metric) -> float:
    """Return the largest similarity that two rows may have; infinite without a bound."""
    return 1.0 if metric in ("cosine", "tanimoto") else math.inf


def measure_pairs(X: Any, v: Any, u: Any, metric: Metric) -> Array:
    """Return the float64 distance or Tanimoto similarity of pairs, or their float32 product.

    Equal rows have distance 0; see :func:`cfe_faiss.ks_similarity` for the cosine, the arguments
    and errors.
    """
    if is_distance(metric):
        return compare_rows(X, v, u, _distances)
    if metric == "tanimoto":
        return compare_rows(X, v, u, _shares)
    return ks_similarity(X, v, u, dtype=np.float64 if metric == "cosine" else np.float32)


def _distances(x: Floats, y: Floats) -> Doubles:
    distances: Doubles = np.sqrt(((x.astype(np.float64) - y) ** 2).sum(axis=1))
    return distances


def _shares(x: Floats, y: Floats) -> Doubles:
    common: Doubles = np.einsum("ij,ij->i", x, y, dtype=np.float64)
    either = x.sum(axis=1) + y.sum(axis=1) - common
    shares: Doubles = np.divide(common, either, out=np.ones(len(x)), where=either > 0)
    return shares


def make_tanimoto(S: Floats, X: Floats, Y: Floats) -> None:
    """Turn the products of rows of 0 and 1 into their Tanimoto similarities, in place.

    A small number makes 1 of two rows of zeros, and leaves the others to within the margin.
    """
    either = X.sum(axis=1)[:, None] + Y.sum(axis=1)
    either -= S
    either += _NO_ONES
    S += _NO_ONES
    S /= either


def score_at(threshold: float, metric: str) -> float:
    """Return the score at a threshold of D, rounded to float32.

    Thresholds beyond float32 become its largest numbers.

    No score reaches these, because vectors have limited lengths. So all scores are above the least
    of them, and infinite thresholds need no special case.
    """
    score = -threshold if is_distance(metric) else threshold
    largest = float(np.finfo(np.float32).max)
    return float(np.float32(min(max(score, -largest), largest)))


def next_threshold(threshold: float, metric: str) -> float:
    """Return the nearest float32 threshold of D that leaves out results at this one."""
    score = np.float32(score_at(threshold, metric))
    with np.errstate(over="ignore"):
        following = float(np.nextafter(score, np.float32(np.inf)))
    return -following if is_distance(metric) else following


def tile_margin(metric: Metric, d: int, longest: float, longest_other: float) -> float:
    """Bound the error of float32 scores of vectors up to two lengths, and of thresholds.

    With u = 2**-24, a product of d terms errs by at most (d + 1) u |x| |y|, in first order, and its
    comparison with a rounded score by 2 u |x| |y|. A squared distance is a sum of |x|^2, |y|^2 and
    d products of rounded differences from a centre, x and y here: it errs by at most (2 d + 16) u
    (|x|^2 + |y|^2). A Tanimoto similarity is a quotient of exact numbers, rounded.
    """
    if metric == "tanimoto":
        return 8 * _ROUNDING
    if is_distance(metric):
        return (2 * d + 32) * (_ROUNDING * (longest**2 + longest_other**2) + _UNDERFLOW)
    return (d + 16) * (_ROUNDING * longest * longest_other + _UNDERFLOW)


def relative_error(d: int) -> float:
    """Bound the relative error of a float32 product of unit vectors or a squared distance.

    The error of its comparison is included.
    """
    return (d + 16) * _ROUNDING


PADDING = np.finfo(np.float32).min
"""What FAISS writes as the similarity of a place that holds no id (inner product)."""


def make_results(nq: int, k: int) -> tuple[Floats, Ints]:
    """Return D and I for ``nq`` queries, filled with padding."""
    return np.full((nq, k), PADDING, np.float32), np.full((nq, k), -1, np.int64)
