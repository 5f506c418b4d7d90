"""Spherical caps and the weight of a node.

The similar field of a vector v is a cap of angle theta around v. The weight of v with centroid mu
is the share of this cap outside the equal cap around mu (paper, section "Weighted Clustering", eq.
hyperscore).

Let two caps of equal angle theta have axes at the angle phi. They are mirror images at the
hyperplane that bisects the axes, so their intersection is twice the part of one cap beyond that
hyperplane (S. Li 2011; Y. Lee and W. C. Kim 2014, who write it as an integral over incomplete beta
functions). The derivative of that part is elementary. Turning the hyperplane from the angle eta to
eta + d eta off the axis sweeps a cap of the sphere one dimension lower. Its angle is rho with
cos(rho) = cos(theta) / cos(eta), and its points at the angle beta from its centre move by cos(beta)
d eta. The integral of sin(beta)^(d-3) cos(beta) from 0 to rho is sin(rho)^(d-2) / (d-2). Factors
that do not depend on eta cancel in the ratio:

    overlap(phi) = T(phi/2) / T(0),    T(h) = integral from h to theta of sin(rho(eta))^(d-2) d eta,
    sin(rho(eta))^2 = 1 - (cos(theta) / cos(eta))^2.

In R^2 this is 1 - phi / (2 theta), for half spheres (theta = pi/2) in any dimension it is 1 - phi /
pi.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.base.checks import Doubles, as_array, as_count, as_number
from cfe_faiss.base.text import summary

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


@dataclass(frozen=True)
class WeightTable:
    """Table of the weight w(phi) for one pair (d, theta).

    Parameters
    ----------
    phi : ndarray of float64, shape (m,)
        Angles, increasing from 0 to the angle at which the weight is 1 at float64 resolution.
    weight : ndarray of float64, shape (m,)
        Weights at these angles, non-decreasing.
    """

    phi: Doubles
    weight: Doubles

    __repr__ = summary

    def __call__(self, phi: ArrayLike) -> Doubles:
        """Interpolate the weights at ``phi`` linearly, within 1e-6 of :func:`cap_weight`."""
        angles = as_array("phi", phi).astype(np.float64)
        return np.asarray(np.interp(angles, self.phi, self.weight), dtype=np.float64)


def tabulated_weight(d: int, theta: float = math.pi / 3) -> WeightTable:
    """Return the cached table of w(phi) for caps of angle ``theta`` on the unit sphere in R^d.

    Raises
    ------
    TypeError
        If ``d`` is not an integer or ``theta`` not a number.
    ValueError
        If ``d`` < 2, or ``theta`` is outside 0 < theta <= pi/2.
    """
    return _weight_table(as_count("d", d, 2), _cap_angle(theta))


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
    return tabulated_weight(d, theta)(np.arccos(np.clip(values, -1.0, 1.0)))


def _cap_angle(theta: float) -> float:
    theta = as_number("theta", theta, 0.0, _HALF_PI)
    if theta == 0:
        raise ValueError("theta must lie in (0, pi/2], got 0.0")
    return theta


@lru_cache(maxsize=32)
def _weight_table(d: int, theta: float) -> WeightTable:
    # Place more points near the end, where the weight bends sharply for small d or theta near pi/2.
    spread = 1.0 - np.linspace(1.0, 0.0, _TABLE_SIZE) ** 2
    phi = 2.0 * _window(np.full(1, theta), d, theta) * spread
    weight = np.maximum.accumulate(cap_weight(phi, d, theta))
    phi.flags.writeable = weight.flags.writeable = False
    return WeightTable(phi, weight)


def _window(rest: Doubles, d: int, theta: float) -> Doubles:
    """Return the width in which sin(rho)^(d-2) decays by e^-45, at most ``rest``.

    It is measured from eta = theta - ``rest``.
    """
    kept = math.exp(-2.0 * _DECAY / (d - 2)) if d > 2 else 0.0
    lost = 1.0 - kept
    start = theta - rest
    # sin(rho)^2 = sin(theta)^2 - cos(theta)^2 tan(eta)^2, solved for eta with sums of positive
    # terms only
    rise = lost * math.sin(theta) ** 2 + kept * (math.sin(_HALF_PI - theta) * np.tan(start)) ** 2
    end = np.arctan2(np.sqrt(rise), math.sin(_HALF_PI - theta))
    # sin(rho)^2 is concave in eta, which gives this lower bound. Near theta, rounding could return
    # a shorter window.
    return np.clip(end - start, lost * rest, rest)


def _log_power(rest: Doubles, d: int, theta: float) -> Doubles:
    """Return log(sin(rho)^(d-2)) at eta = theta - ``rest``, without cancellation.

    ``rest`` is above 0 and at most theta.
    """
    gap = _HALF_PI - theta
    cos_eta = np.sin(gap + rest)
    # cos(eta)^2 - cos(theta)^2 = sin(theta - eta) sin(theta + eta), by sums of positive terms only
    sin_sum = math.sin(theta) * cos_eta + math.sin(gap) * np.sin(theta - rest)
    return (d - 2) * (0.5 * (np.log(np.sin(rest)) + np.log(sin_sum)) - np.log(cos_eta))


def _log_tail(start: Doubles, d: int, theta: float) -> Doubles:
    """Return log T(start); minus infinity for start >= theta."""
    result = np.full(start.shape, -np.inf)
    inside = start < theta
    rest = theta - start[inside]
    width = _window(rest, d, theta)
    first = _log_power(rest, d, theta)
    # eta = end - width u^2: for odd d the integrand ends in a root of theta - eta, which is smooth
    # in u
    u = (_NODES + 1.0) / 2.0
    points = (rest - width)[..., None] + width[..., None] * u**2
    falling = np.exp(_log_power(points, d, theta) - first[..., None])
    result[inside] = first + np.log(width * np.sum(falling * (_NODE_WEIGHTS * u), axis=-1))
    return result
