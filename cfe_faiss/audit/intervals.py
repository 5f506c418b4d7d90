"""Confidence intervals that stay honest for few cases: of shares, and of means of bounded scores."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from cfe_faiss.checks import as_array, as_count, as_number


def normal_quantile(confidence: float) -> float:
    """Return z, so that a normal variable is within z standard deviations with probability ``confidence``.

    Raises
    ------
    TypeError, ValueError
        If ``confidence`` is not a number strictly between 0 and 1.

    Examples
    --------
    >>> round(normal_quantile(0.95), 2)
    1.96
    """
    level = as_number("confidence", confidence, 0, 1)
    if level in (0, 1):
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    return float(ndtri((1 + level) / 2))


def wilson(
    successes: ArrayLike, cases: ArrayLike, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the Wilson score interval of shares.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927); recommended for few
    cases by Brown, Cai & DasGupta, "Interval estimation for a binomial proportion", Statistical Science 16 (2001).

    Parameters
    ----------
    successes, cases
        Counts, of one shape; 0 <= successes <= cases.
    confidence
        In (0, 1).

    Returns
    -------
    low, high
        Bounds of each share, float64 in [0, 1]; NaN where there are no cases.

    Examples
    --------
    >>> low, high = wilson([0, 5, 0], [10, 10, 0])
    >>> low.round(3), high.round(3)
    (array([0.   , 0.237,   nan]), array([0.278, 0.763,   nan]))
    """
    z2 = normal_quantile(confidence) ** 2
    right = as_array("successes", successes).astype(np.float64)
    n = as_array("cases", cases).astype(np.float64)
    share = np.divide(right, n, out=np.full(n.shape, np.nan), where=n > 0)
    centre = (n * share + z2 / 2) / (n + z2)
    half = np.sqrt(z2 * n * (share * (1 - share) + z2 / (4 * np.maximum(n, 1)))) / (n + z2)
    # Rounding must not push a bound past the share that it is the bound of.
    return np.clip(np.minimum(centre - half, share), 0, 1), np.clip(np.maximum(centre + half, share), 0, 1)


def bootstrap_mean(
    scores: ArrayLike,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> tuple[float, float]:
    """Return a bootstrap interval of the mean of bounded scores.

    The Bayesian bootstrap (Rubin, Annals of Statistics 9, 1981) weighs the cases at random instead of drawing some of
    them. Half a pseudo-case at each bound comes along, without which an interval of one case, or of equal scores, would
    have no width; with many cases it does not matter. For scores of 0 and 1 the result is the Jeffreys interval, which
    Brown, Cai & DasGupta (see :func:`wilson`) recommend for few cases; as there, it always holds the mean itself.

    Parameters
    ----------
    scores
        (n,), each within the bounds.
    confidence
        In (0, 1).
    resamples
        At least 1; 2,000 settle about two digits of the interval.
    seed
        At least 0; the same seed gives the same interval.
    bounds
        The least and the largest score there can be.

    Returns
    -------
    low, high
        Within the bounds; NaN without scores.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    The weights of equal scores are drawn as one: O(n log n + resamples * distinct scores).

    Examples
    --------
    >>> low, high = bootstrap_mean([0.5] * 1000)
    >>> round(low, 2), round(high, 2)
    (0.5, 0.5)
    >>> low, high = bootstrap_mean([1.0])
    >>> low < 0.3, high
    (True, 1.0)
    """
    values = as_array("scores", scores).astype(np.float64)
    if values.ndim != 1 or not ((values >= bounds[0]) & (values <= bounds[1])).all():
        raise ValueError(
            f"scores must have shape (n,) and lie in {bounds[0]:g}..{bounds[1]:g}, got {values.shape}, {values[:8]}"
        )
    normal_quantile(confidence)  # checks it
    resamples, rng = as_count("resamples", resamples), np.random.default_rng(as_count("seed", seed, 0))
    if not len(values):
        return np.nan, np.nan
    distinct, counts = np.unique(values, return_counts=True)
    weights = rng.dirichlet([*counts, 0.5, 0.5], resamples)
    means = weights @ np.concatenate([distinct, bounds])
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail]).clip(*bounds)
    mean = values.mean()
    return float(min(low, mean)), float(max(high, mean))
