"""Spherical caps and the weight of a node.

The weight of a vector v with centroid mu is the share of v's similar field, a cap of angle theta around v, that the
equal cap around mu leaves out (paper, section "Weighted Clustering", eq. hyperscore).

Two caps of equal angle theta whose axes are phi apart mirror each other at the hyperplane that bisects the axes, so
their intersection is twice the part of one cap beyond that hyperplane (S. Li 2011; Y. Lee and W. C. Kim 2014, who
write it as an integral over incomplete beta functions). The derivative of that part is elementary: turning the
hyperplane from the angle eta to eta + d eta off the axis sweeps over a cap of the sphere one dimension lower, of angle
rho with cos(rho) = cos(theta) / cos(eta), whose points at the angle beta from its centre move by cos(beta) d eta; and
the integral of sin(beta)^(d-3) cos(beta) from 0 to rho is sin(rho)^(d-2) / (d-2). What does not depend on eta cancels
in the ratio:

    overlap(phi) = T(phi/2) / T(0),    T(h) = integral from h to theta of sin(rho(eta))^(d-2) d eta,
    sin(rho(eta))^2 = 1 - (cos(theta) / cos(eta))^2.

In R^2 this is 1 - phi / (2 theta), for half spheres (theta = pi/2) in any dimension it is 1 - phi / pi.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.base.checks import as_array, as_count, as_number
from cfe_faiss.base.text import summary

_Float64 = NDArray[np.float64]
_HALF_PI = math.pi / 2

# The integrand falls steadily; what lies beyond e^-45 of its first value is below float64's resolution of the sum.
_DECAY = 45.0
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(80)
# Linear interpolation between so many points stays below 1e-6 for every d and theta.
_TABLE_SIZE = 8192


def log_overlap_ratio(phi: ArrayLike, d: int, theta: float = math.pi / 3) -> _Float64:
    """Return the logarithm of the share of a cap that an equal cap covers.

    Parameters
    ----------
    phi : array_like of float, any shape
        Angle between the axes of the two caps, in radians, 0..pi.
    d
        Dimension of the space whose unit sphere the caps lie on, at least 2.
    theta
        Angle between the axis and the rim of each cap, in radians, 0 < theta <= pi/2 (at most half a sphere).

    Returns
    -------
    ndarray of float64, the shape of ``phi``
        log(overlap), 0 at phi = 0, minus infinity from phi = 2 theta on. It neither under- nor overflows between.

    Raises
    ------
    TypeError
        If an argument is not a real number.
    ValueError
        If an argument lies outside its range, or is NaN.

    Notes
    -----
    O(80) work and memory per angle; for many angles use :func:`node_weights`.

    Examples
    --------
    >>> import numpy as np
    >>> np.round(log_overlap_ratio(np.radians([0, 5, 60, 120]), d=1433), 3)
    array([  0.   ,  -1.082, -87.447,    -inf])
    """
    angles = as_array("phi", phi).astype(np.float64)
    d, theta = as_count("d", d, 2), _cap_angle(theta)
    # as "not inside" so that NaN is refused too; arccos in float32 may exceed pi by its own rounding
    outside = ~((angles >= 0) & (angles <= np.float32(np.pi)))
    if outside.any():
        raise ValueError(f"phi must lie in [0, pi], got {angles[outside].flat[0]!r}")
    ratio = _log_tail(angles / 2, d, theta) - _log_tail(np.zeros(1), d, theta)
    return np.minimum(ratio, 0.0).reshape(angles.shape)


def overlap_ratio(phi: ArrayLike, d: int, theta: float = math.pi / 3) -> _Float64:
    """Return the share of a cap that an equal cap covers, 0..1; arguments as in :func:`log_overlap_ratio`.

    Examples
    --------
    >>> import numpy as np
    >>> np.round(overlap_ratio(np.radians([0, 5, 60, 120]), d=3), 3)
    array([1.   , 0.952, 0.433, 0.   ])
    """
    return np.exp(log_overlap_ratio(phi, d, theta))


def cap_weight(phi: ArrayLike, d: int, theta: float = math.pi / 3) -> _Float64:
    """Return w(phi) = 1 - overlap(phi), the weight of a vector at the angle phi from its centroid (eq. hyperscore).

    It rises with phi from 0 at phi = 0 to 1 at phi = 2 theta; arguments as in :func:`log_overlap_ratio`.

    Examples
    --------
    >>> import numpy as np
    >>> cap_weight(np.radians([0, 30, 60, 120]), d=2)
    array([0.  , 0.25, 0.5 , 1.  ])
    """
    return 0.0 - np.expm1(log_overlap_ratio(phi, d, theta))


@dataclass(frozen=True)
class WeightTable:
    """The weight w(phi) of one (d, theta), for many angles.

    Parameters
    ----------
    phi : ndarray of float64, shape (m,)
        Angles, rising from 0 to where the weight is 1 to float64's resolution.
    weight : ndarray of float64, shape (m,)
        The weights there, never falling.
    """

    phi: _Float64
    weight: _Float64

    __repr__ = summary

    def __call__(self, phi: ArrayLike) -> _Float64:
        """Return the weights at ``phi``: linear between the tabulated angles, within 1e-6 of :func:`cap_weight`."""
        angles = as_array("phi", phi).astype(np.float64)
        return np.asarray(np.interp(angles, self.phi, self.weight), dtype=np.float64)


def tabulated_weight(d: int, theta: float = math.pi / 3) -> WeightTable:
    """Return the table of w(phi) for caps of angle ``theta`` on the unit sphere in R^d; computed once, then cached.

    Raises
    ------
    TypeError
        If ``d`` is not an integer or ``theta`` not a number.
    ValueError
        If ``d`` < 2, or ``theta`` lies outside 0 < theta <= pi/2.
    """
    return _weight_table(as_count("d", d, 2), _cap_angle(theta))


def node_weights(cosines: ArrayLike, d: int, theta: float = math.pi / 3) -> _Float64:
    """Return the weights of vectors from their cosines with their centroids.

    Parameters
    ----------
    cosines : array_like of float, shape (n,)
        Cosine of each vector with its centroid; what rounding put outside [-1, 1] is clipped.
    d
        Dimension of the vectors, at least 2.
    theta
        Angle of the similar field, in radians, 0 < theta <= pi/2.

    Returns
    -------
    ndarray of float64, shape (n,)
        Weights in [0, 1], never rising with the cosine.

    Raises
    ------
    TypeError
        If an argument is not a real number.
    ValueError
        If a cosine is NaN, or ``d`` or ``theta`` lies outside its range.

    Examples
    --------
    >>> node_weights([1.0, 0.5, -1.0], d=2).round(6)
    array([0. , 0.5, 1. ])
    """
    values = as_array("cosines", cosines).astype(np.float64)
    if np.isnan(values).any():
        raise ValueError(f"cosines must not be NaN, got NaN at position {int(np.argmax(np.isnan(values)))}")
    return tabulated_weight(d, theta)(np.arccos(np.clip(values, -1.0, 1.0)))


def _cap_angle(theta: float) -> float:
    theta = as_number("theta", theta, 0.0, _HALF_PI)
    if theta == 0:
        raise ValueError("theta must lie in (0, pi/2], got 0.0")
    return theta


@lru_cache(maxsize=32)
def _weight_table(d: int, theta: float) -> WeightTable:
    # The points crowd towards the end, where for small d or theta near pi/2 the weight bends sharply.
    spread = 1.0 - np.linspace(1.0, 0.0, _TABLE_SIZE) ** 2
    phi = 2.0 * _window(np.full(1, theta), d, theta) * spread
    weight = np.maximum.accumulate(cap_weight(phi, d, theta))
    phi.flags.writeable = weight.flags.writeable = False
    return WeightTable(phi, weight)


def _window(rest: _Float64, d: int, theta: float) -> _Float64:
    """Return how far from eta = theta - ``rest`` on sin(rho)^(d-2) takes to fall by e^-45, at most ``rest``."""
    kept = math.exp(-2.0 * _DECAY / (d - 2)) if d > 2 else 0.0
    lost = 1.0 - kept
    start = theta - rest
    # sin(rho)^2 = sin(theta)^2 - cos(theta)^2 tan(eta)^2, solved for eta with sums of positive terms only
    rise = lost * math.sin(theta) ** 2 + kept * (math.sin(_HALF_PI - theta) * np.tan(start)) ** 2
    end = np.arctan2(np.sqrt(rise), math.sin(_HALF_PI - theta))
    # sin(rho)^2 is concave in eta, so the window is never shorter than this; near theta rounding might lose it
    return np.clip(end - start, lost * rest, rest)


def _log_power(rest: _Float64, d: int, theta: float) -> _Float64:
    """Return log(sin(rho)^(d-2)) at eta = theta - ``rest``, 0 < rest <= theta, with no digit cancelling."""
    gap = _HALF_PI - theta
    cos_eta = np.sin(gap + rest)
    # cos(eta)^2 - cos(theta)^2 = sin(theta - eta) sin(theta + eta), by sums of positive terms only
    sin_sum = math.sin(theta) * cos_eta + math.sin(gap) * np.sin(theta - rest)
    return (d - 2) * (0.5 * (np.log(np.sin(rest)) + np.log(sin_sum)) - np.log(cos_eta))


def _log_tail(start: _Float64, d: int, theta: float) -> _Float64:
    """Return log T(start), minus infinity from theta on."""
    result = np.full(start.shape, -np.inf)
    inside = start < theta
    rest = theta - start[inside]
    width = _window(rest, d, theta)
    first = _log_power(rest, d, theta)
    # eta = end - width u^2: for odd d the integrand ends in a root of theta - eta, which is smooth in u
    u = (_NODES + 1.0) / 2.0
    points = (rest - width)[..., None] + width[..., None] * u**2
    falling = np.exp(_log_power(points, d, theta) - first[..., None])
    result[inside] = first + np.log(width * np.sum(falling * (_NODE_WEIGHTS * u), axis=-1))
    return result
