"""Metrics: how vectors are stored and compared.

==========  ============================  ============================  =======================
metric      stored vectors                D, as FAISS returns it        measure, for readers
==========  ============================  ============================  =======================
"cosine"    normalised copies             inner product, descending     similarity, D
"ip"        unchanged                     inner product, descending     similarity, D
"l2"        unchanged                     squared distance, ascending   distance, its root
"tanimoto"  unchanged, numbers 0 and 1    common ones / ones of either  similarity, D
==========  ============================  ============================  =======================

This module owns all facts about a metric: ``_FACTS`` holds its limits and FAISS's constant, and
the functions below check its vectors and convert its numbers.

Engines compare by *scores*, which are larger for nearer vectors: the inner product, or minus the
squared distance. :func:`flipped` converts them only where they enter and leave an index.

Two rows x and y of 0 and 1 have the Tanimoto similarity ``x·y / (|x|^2 + |y|^2 - x·y)``, also called
the Jaccard index (P. Jaccard, New Phytologist 11, 1912). Two rows of zeros have 1, as all equal
rows and as in SciPy and scikit-learn; RDKit and FAISS give them 0. All of these numbers are counts,
exact in float32 below 2**24, so only the quotient is rounded.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import faiss
import numpy as np

from cfe_faiss.base.checks import Array, Doubles, Floats, Ints, as_matrix, as_number, as_unit_rows
from cfe_faiss.graph.ks import compare_rows, ks_similarity

BoundedMetric: TypeAlias = Literal["cosine", "l2", "tanimoto"]
"""Metrics by which no row is nearer than an equal one."""
Metric: TypeAlias = Literal[BoundedMetric, "ip"]


@dataclass(frozen=True)
class _Facts:
    """Facts about a metric.

    Attributes
    ----------
    faiss_name
        Name of FAISS's constant.
    is_distance
        Whether D is a distance, smaller for nearer vectors, and not a similarity.
    limits
        Smallest and largest threshold of D that has a meaning.
    is_of_bits
        Whether vectors hold 0 and 1 only.
    takes_lists
        Whether an index with lists has it.
    """

    faiss_name: str
    is_distance: bool = False
    limits: tuple[float, float] = (-math.inf, math.inf)
    is_of_bits: bool = False
    takes_lists: bool = True


_FACTS: dict[Metric, _Facts] = {
    "cosine": _Facts("METRIC_INNER_PRODUCT", limits=(-1.0, 1.0)),
    "ip": _Facts("METRIC_INNER_PRODUCT"),
    "l2": _Facts("METRIC_L2", is_distance=True, limits=(0.0, math.inf)),
    "tanimoto": _Facts("METRIC_Jaccard", limits=(0.0, 1.0), is_of_bits=True, takes_lists=False),
}
METRICS: tuple[Metric, ...] = tuple(_FACTS)
"""Metrics in the order of their numbers in the core."""
OF_FAISS: dict[int, Metric] = {
    getattr(faiss, _FACTS[metric].faiss_name): metric for metric in METRICS if metric != "cosine"
}
_DISTANCES = frozenset(metric for metric in METRICS if _FACTS[metric].is_distance)
_FAISS_NAMES = tuple(_FACTS[metric].faiss_name for metric in OF_FAISS.values())
FAISS_NAMES = f"{', '.join(_FAISS_NAMES[:-1])} or {_FAISS_NAMES[-1]}"
"""FAISS's constants of all metrics, for errors."""

LONGEST = 1e14
"""Largest length of a vector for "ip" and "l2", at which no score overflows in float32."""
# of a sum of d terms, for each term; the excess covers the terms of higher order
_ROUNDING = 1.05 * 2.0**-24
_UNDERFLOW = 2.0**-125
_NO_ONES = np.float32(2.0**-60)
_MOST_BITS = 1 << 24  # counts that float32 holds exactly


def as_metric(name: str, value: Any) -> Metric:
    """Return a metric from its name or FAISS's constant; raise ValueError for another value."""
    if isinstance(value, str) and value in METRICS:
        return METRICS[METRICS.index(value)]
    if isinstance(value, int) and not isinstance(value, bool) and value in OF_FAISS:
        return OF_FAISS[value]
    names = ", ".join(map(repr, METRICS))
    raise ValueError(f"{name} must be {names} or FAISS's {FAISS_NAMES}, got {value!r}")


def check_takes_lists(metric: Metric) -> None:
    """Raise ValueError unless an index with lists has the metric."""
    if not takes_lists(metric):
        *names, last = (repr(other) for other in METRICS if takes_lists(other))
        raise ValueError(
            f"metric must be {', '.join(names)} or {last} for an index with lists, got {metric!r}: "
            f"take the exact cfe_faiss.IndexEvidenceIDMap2, or the description 'EvidenceFlat'"
        )


def takes_lists(metric: Metric) -> bool:
    """Return whether an index with lists has the metric."""
    return _FACTS[metric].takes_lists


def faiss_metric(metric: Metric) -> int:
    """Return FAISS's constant of a metric."""
    return int(getattr(faiss, _FACTS[metric].faiss_name))


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
    if _FACTS[metric].is_of_bits:
        are_others = (matrix != 0) & (matrix != 1)
        if are_others.any():
            row = int(are_others.any(axis=1).argmax())
            other = matrix[row][are_others[row]][0]
            raise ValueError(
                f"{name} must hold only 0 and 1 for metric {metric!r}, got {other:g} in row {row}: "
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


def check_stored(parts: Iterable[Floats], metric: Metric) -> None:
    """Raise ValueError if stored vectors hold other numbers than the metric compares."""
    if _FACTS[metric].is_of_bits and any(((X != 0) & (X != 1)).any() for X in parts):
        raise ValueError("its vectors hold other numbers than 0 and 1")


def lengths(X: Floats) -> Doubles:
    """Return the length of each row, (n,)."""
    squares: Doubles = np.einsum("ij,ij->i", X, X, dtype=np.float64)
    return np.sqrt(squares)


def is_distance(metric: str) -> bool:
    """Return whether D is a distance, smaller for nearer vectors, and not a similarity."""
    return metric in _DISTANCES


def flipped(values: Floats, metric: str) -> Floats:
    """Return D from scores, or scores from D, with FAISS's padding."""
    return 0 - values if is_distance(metric) else values


def measure_of(metric: Metric) -> str:
    """Return what results call the nearness of two rows: "similarity" or "distance"."""
    return "distance" if is_distance(metric) else "similarity"


def dissimilarity(D: Any, metric: Metric) -> Any:
    """Return numbers that grow with the distance: D, or the similarity of equal rows minus D.

    That is 1, and 0 for a similarity without a largest value.
    """
    if is_distance(metric):
        return D
    largest = limits_of(metric)[1]
    return (largest if math.isfinite(largest) else 0.0) - D


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


def limits_of(metric: Metric) -> tuple[float, float]:
    """Return the smallest and the largest threshold of D that has a meaning."""
    return _FACTS[metric].limits


def as_threshold(argument: str, value: Any, metric: Metric) -> float:
    """Return a checked threshold of D: a similarity, or a squared distance.

    Raises
    ------
    TypeError, ValueError
        If it is no number, no similarity of unit vectors, or negative where D never is; the error
        names ``argument``.
    """
    return as_number(argument, value, *limits_of(metric))


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


def score_products(S: Floats, X: Floats, Y: Floats, metric: Metric) -> None:
    """Turn the products of two blocks of rows into scores, in place, where these are no products.

    For "tanimoto", a small number makes 1 of two rows of zeros, and leaves the others to within the
    margin.
    """
    if metric != "tanimoto":
        return
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
    return float(np.float32(min(max(score, -_LARGEST), _LARGEST)))


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


def score_margin(metric: Metric, d: int, longest: float) -> float:
    """Bound the error of a float32 score of a row and a unit vector, summed in any order.

    For "l2" relative to the squared distance. ``longest``: length of the longest row. Rows that are
    scored by products of normalised vectors have a bound of their codec.
    """
    if metric == "tanimoto":
        return tile_margin(metric, d, 1, 1)
    return relative_error(d) * (1.0 if is_distance(metric) else longest)


def relative_error(d: int) -> float:
    """Bound the relative error of a float32 product of unit vectors or a squared distance.

    The error of its comparison is included.
    """
    return (d + 16) * _ROUNDING


_LARGEST = float(np.finfo(np.float32).max)
PADDING = np.finfo(np.float32).min
"""What FAISS writes as the similarity of a place that holds no id (inner product)."""


def make_results(nq: int, k: int) -> tuple[Floats, Ints]:
    """Return D and I for ``nq`` queries, filled with padding."""
    return np.full((nq, k), PADDING, np.float32), np.full((nq, k), -1, np.int64)
