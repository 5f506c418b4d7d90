"""Confidence intervals that hold for few cases, and comparisons of several rates."""

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri, stdtrit

from cfe_faiss.audit.groups import Bools, Floats, Ints, share
from cfe_faiss.base.checks import as_array, as_count, as_number

Counts: TypeAlias = Ints | Floats
"""Numbers of cases, or effective numbers of them."""

FEWEST_CASES = 30
"""Groups of fewer cases are listed, but not ranked."""
_FEWEST_EXPECTED = 5
_FOUR_FIFTHS = 0.8
_RATIO_TO_FIND = 0.7
_ENOUGH_POWER = 0.5


def normal_quantile(confidence: float) -> float:
    """Return the number z of standard deviations with the probability ``confidence``.

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
) -> tuple[Floats, Floats]:
    """Return the Wilson score interval of shares.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927);
    recommended for few cases by Brown, Cai & DasGupta, "Interval estimation for a binomial
    proportion", Statistical Science 16 (2001).

    Parameters
    ----------
    successes, cases
        Counts, of one shape; 0 <= successes <= cases.
    confidence
        In (0, 1).

    Returns
    -------
    low, high
        Bounds of each share, float64 in [0, 1]; NaN without cases.

    Examples
    --------
    >>> low, high = wilson([0, 5, 0], [10, 10, 0])
    >>> low.round(3), high.round(3)
    (array([0.   , 0.237,   nan]), array([0.278, 0.763,   nan]))
    """
    z2 = normal_quantile(confidence) ** 2
    n = np.asarray(cases, np.float64)
    p = share(np.asarray(successes, np.float64), n)
    centre = (n * p + z2 / 2) / (n + z2)
    half = np.sqrt(z2 * n * (p * (1 - p) + z2 / (4 * np.maximum(n, 1)))) / (n + z2)
    # Rounding must not push a bound past the share itself.
    return np.clip(np.minimum(centre - half, p), 0, 1), np.clip(np.maximum(centre + half, p), 0, 1)


def share_columns(
    name: str,
    successes: ArrayLike,
    cases: ArrayLike,
    confidence: float,
    independent: ArrayLike = 1.0,
) -> dict[str, Floats]:
    """Return shares and their Wilson intervals as columns "name", "name_low", "name_high".

    ``independent`` is the share of independent cases, see :func:`independent_share`.
    """
    low, high = wilson(
        np.multiply(successes, independent), np.multiply(cases, independent), confidence
    )
    return {name: share(successes, cases), f"{name}_low": low, f"{name}_high": high}


def independent_share(groups: Ints, persons: Ints, count: int) -> Floats:
    """Return the share of independent cases in each of ``count`` groups.

    It is 1 if every row is another person.

    n / sum of n_p^2 for a group with n rows, n_p of them of person p: Kish's effective number of
    cases, if all rows of a person have one outcome. If they have not, intervals for this number of
    cases are too wide.
    """
    cells, rows = np.unique(np.stack([groups, persons]), axis=1, return_counts=True)
    squares = np.bincount(cells[0], rows**2, count)
    return np.bincount(groups, minlength=count) / np.maximum(squares, 1)


def independent_share_of_links(groups: Ints, outcomes: Bools, ends: Ints, count: int) -> Floats:
    """Return the share of independent cases in each of ``count`` groups of links, in [0, 1].

    Links that share an end depend on each other. The share is the variance of independent links by
    the dyadic variance of the same links [1]_: it adds the products of the residuals of all pairs
    of links of one group with a common end. Links of a group in which all outcomes are equal count
    like rows of a person, see :func:`independent_share`.

    Parameters
    ----------
    groups, outcomes
        Group and outcome of each link, (n,).
    ends
        Numbers of the nodes at both ends, (n, 2).
    count
        Number of groups.

    References
    ----------
    .. [1] Aronow, Samii and Assenova, "Cluster-Robust Variance Estimation for Dyadic Data",
       Political Analysis 23(4), 2015.
    """
    from scipy import sparse

    rates = share(np.bincount(groups, outcomes, count), np.bincount(groups, minlength=count))
    is_equal = (rates == 0) | (rates == 1)
    residuals = np.where(is_equal[groups], 1.0, outcomes - rates[groups])
    rows = np.arange(len(groups))
    of_groups = sparse.csr_array((residuals, (rows, groups)), shape=(len(rows), count))
    dyadic, _ = dyadic_variance(of_groups, incidence(rows, ends))
    independent = np.bincount(groups, residuals**2, count)
    return np.nan_to_num(share(independent, np.maximum(dyadic, independent)))


def incidence(rows: Ints, ends: Ints) -> Any:
    """Return which nodes, as columns, the links in each row end at, as a sparse matrix.

    ``rows`` is the row of each link, (m,), and ``ends`` the numbers of the nodes at both ends.
    """
    from scipy import sparse

    shape = (rows.max(initial=-1) + 1, ends.max(initial=-1) + 1)
    places = (np.repeat(rows, 2), ends.reshape(-1))
    return sparse.csr_array((np.ones(2 * len(rows)), places), shape=shape)


def dyadic_variance(residuals: Any, ends: Any) -> tuple[Floats, Any]:
    """Return the variance of the sum of each column of residuals of links, (t,).

    It is the sum of the products of the residuals of all pairs of rows with a common end, and of
    each row with itself (Aronow, Samii and Assenova, see :func:`independent_share_of_links`). Also
    the squared sum of the residuals at each node, (nodes, t).

    Parameters
    ----------
    residuals
        Dense or sparse, (n, t).
    ends
        As of :func:`incidence`, (n, nodes).
    """
    sums = ends.T @ residuals
    squares = sums * sums
    return squares.sum(axis=0) - (residuals * residuals).sum(axis=0), squares


def bootstrap_mean(
    scores: ArrayLike,
    confidence: float = 0.95,
    resamples: int = 2000,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> tuple[float, float]:
    """Return a bootstrap interval of the mean of bounded scores.

    The Bayesian bootstrap (Rubin, Annals of Statistics 9, 1981) weighs the cases at random instead
    of drawing some of them. Half a pseudo-case is added at each bound. Without it the interval of
    one case, or of equal scores, would have no width; with many cases it has no effect. For scores
    of 0 and 1 the result is the Jeffreys interval, which Brown, Cai & DasGupta (see :func:`wilson`)
    recommend for few cases. The interval always holds the mean itself.

    Parameters
    ----------
    scores
        (n,), each within the bounds.
    confidence
        In (0, 1).
    resamples
        At least 1; 2,000 settle about two digits of the interval.
    bounds
        Least and largest possible score.

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
    a, b = bounds
    if values.ndim != 1 or not ((values >= a) & (values <= b)).all():
        raise ValueError(
            f"scores must have shape (n,) and lie in {a:g}..{b:g}, got {values.shape}, {values[:8]}"
        )
    normal_quantile(confidence)  # checks it
    resamples = as_count("resamples", resamples)
    rng = np.random.default_rng(0)
    if not len(values):
        return np.nan, np.nan
    distinct, counts = np.unique(values, return_counts=True)
    weights = rng.dirichlet([*counts, 0.5, 0.5], resamples)
    means = weights @ np.concatenate([distinct, bounds])
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail]).clip(*bounds)
    mean = values.mean()
    return float(min(low, mean)), float(max(high, mean))


def newcombe(
    successes: ArrayLike,
    cases: ArrayLike,
    other_successes: ArrayLike,
    other_cases: ArrayLike,
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """Return Newcombe's hybrid score interval of the difference of two independent shares.

    Method 10 of Newcombe, "Interval estimation for the difference between independent proportions:
    comparison of eleven methods", Statistics in Medicine 17 (1998): the Wilson intervals of both
    shares (see :func:`wilson`), put together.

    Parameters
    ----------
    successes, cases, other_successes, other_cases
        Counts, of shapes that broadcast.
    confidence
        In (0, 1).

    Returns
    -------
    low, high
        Bounds of each difference, float64 in [-1, 1]; NaN where either has no cases.

    Examples
    --------
    >>> low, high = newcombe(56, 70, 48, 80)  # Table II (a) of the paper
    >>> float(low.round(4)), float(high.round(4))
    (0.0524, 0.3339)
    """
    x1, n1, x0, n0 = _floats(successes, cases, other_successes, other_cases)
    low1, high1 = wilson(x1, n1, confidence)
    low0, high0 = wilson(x0, n0, confidence)
    p1 = share(x1, n1)
    p0 = share(x0, n0)
    difference = p1 - p0
    low = difference - np.hypot(p1 - low1, high0 - p0)
    high = difference + np.hypot(high1 - p1, p0 - low0)
    return np.clip(low, -1, 1), np.clip(high, -1, 1)


def paired_difference(
    gained: ArrayLike, lost: ArrayLike, cases: ArrayLike, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    """Return Bonett and Price's interval of a share's change, measured twice on the same cases.

    "Adjusted Wald confidence interval for a difference of binomial proportions based on paired
    data", Journal of Educational and Behavioral Statistics 37 (2012); recommended by Fagerland,
    Lydersen & Laake, Statistics in Medicine 33 (2014).

    Parameters
    ----------
    gained, lost, cases
        Cases that are a success the second time only, or the first time only, and all cases; of one
        shape.
    confidence
        In (0, 1).

    Returns
    -------
    low, high
        Bounds of each change, float64 in [-1, 1]; NaN without cases.

    Examples
    --------
    >>> low, high = paired_difference([1, 0], [7, 0], [21, 0])
    >>> low.round(3), high.round(3)
    (array([-0.508,    nan]), array([-0.013,    nan]))
    """
    up, down, n = _floats(gained, lost, cases)
    p = (up + 1) / (n + 2)
    q = (down + 1) / (n + 2)
    half = normal_quantile(confidence) * np.sqrt((p + q - (p - q) ** 2) / (n + 2))
    zero_or_nan = np.where(n > 0, 0.0, np.nan)
    return np.clip(p - q - half, -1, 1) + zero_or_nan, np.clip(p - q + half, -1, 1) + zero_or_nan


def risk_ratio(
    successes: ArrayLike,
    cases: ArrayLike,
    other_successes: ArrayLike,
    other_cases: ArrayLike,
    confidence: float = 0.95,
) -> tuple[Floats, Floats]:
    """Return Koopman's score interval of the ratio of two independent shares.

    Koopman, "Confidence limits for the ratio of two binomial proportions", Biometrics 40 (1984):
    all ratios that the score test does not reject. Unlike the interval of Katz's logarithms it
    exists for shares of 0 and 1, and it keeps its level for few cases (Fagerland, Lydersen & Laake,
    Statistical Methods in Medical Research 24, 2015, recommend it).

    Parameters
    ----------
    successes, cases, other_successes, other_cases
        Counts, of shapes that broadcast.
    confidence
        In (0, 1).

    Returns
    -------
    low, high
        Bounds of each ratio, float64 in [0, inf]: 0 and inf where neither has a success, NaN where
        either has no cases.

    Examples
    --------
    >>> low, high = risk_ratio([36, 0], [40, 10], [16, 5], [80, 10])
    >>> low.round(2), high.round(2)
    (array([2.94, 0.  ]), array([7.15, 0.61]))
    """
    z = normal_quantile(confidence)
    x1, n1, x0, n0 = _floats(successes, cases, other_successes, other_cases)
    low, high = _ratios_where((z, -z), x1, n1, x0, n0)
    low = np.where(x1 == 0, 0.0, low)
    high = np.where(x0 == 0, np.inf, high)
    undefined = (n1 == 0) | (n0 == 0)
    return np.where(undefined, np.nan, low), np.where(undefined, np.nan, high)


def _ratios_where(
    scores: tuple[float, float], x1: Floats, n1: Floats, x0: Floats, n0: Floats
) -> Floats:
    """Return the ratios at which the score statistic has these values, (2, ...).

    The statistic falls as the ratio grows.
    """
    score = np.reshape(scores, (2, *[1] * x1.ndim))
    n1 = np.maximum(n1, 1)
    n0 = np.maximum(n0, 1)
    # logarithms of the ratio
    low = np.full((2, *x1.shape), -40.0)
    high = np.full((2, *x1.shape), 40.0)
    total = x1 + x0
    share1 = x1 / n1
    for _ in range(60):  # to the last digits of float64
        middle = (low + high) / 2
        ratio = np.exp(middle)
        # Maximum likelihood of the shares given the ratio: the smaller root of a quadratic
        # equation.
        b = (n1 + x0) * ratio + (x1 + n0)
        root = np.sqrt(np.maximum(b * b - 4 * (n1 + n0) * total * ratio, 0))
        p0 = np.minimum(2 * total / (b + root), 1)
        p1 = np.minimum(ratio * p0, 1)
        spread = np.sqrt(p1 * (1 - p1) / n1 + ratio**2 * p0 * (1 - p0) / n0)
        excess = share1 - ratio * x0 / n0 - score * spread
        above = (excess > 0) | ((excess == 0) & (score < 0))  # without variance the score is 0
        low = np.where(above, middle, low)
        high = np.where(above, high, middle)
    return np.exp((low + high) / 2)


def clustered_wilson(
    successes: ArrayLike, cases: ArrayLike, confidence: float = 0.95
) -> tuple[float, float]:
    """Return an interval of the share of all cases, where cases of one cluster are not independent.

    Wilson interval (see :func:`wilson`) at the effective number of independent cases. The variance
    of the share is estimated between the clusters, by the jackknife of a ratio (Wolter,
    "Introduction to variance estimation", 2007, chapter 4). Student's t allows for few clusters, or
    few large ones. Recommended by Dean & Pagano, "Evaluating confidence interval methods for
    binomial proportions in clustered surveys", Journal of Survey Statistics and Methodology 3
    (2015).

    Parameters
    ----------
    successes, cases
        Counts of each cluster, (c,); clusters without cases have no effect.
    confidence
        In (0, 1).

    Returns
    -------
    low, high
        Bounds in [0, 1], NaN without cases. If the share is the same in all clusters, each cluster
        counts as one case. A single cluster gives (0, 1).

    Notes
    -----
    At nominal 95 % it holds the share in 94 to 99 % of simulated samples with clusters of 1 to 3
    cases, and in 82 to 100 % where a sixth of the clusters hold four fifths of the cases, the least
    for a share of 2 % in up to 300 clusters (``benchmarks/interval_coverage.py``): few clusters
    cannot tell how rare an outcome is.

    Examples
    --------
    >>> low, high = clustered_wilson([2, 0, 1, 1] * 10, [2, 2, 2, 2] * 10)
    >>> round(low, 2), round(high, 2)
    (0.39, 0.61)
    >>> clustered_wilson([3], [5])
    (0.0, 1.0)
    """
    z = normal_quantile(confidence)
    x, n = _floats(successes, cases)
    x = x[n > 0]
    n = n[n > 0]
    if len(n) < 2:
        return (0.0, 1.0) if len(n) else (np.nan, np.nan)
    total = n.sum()
    p = x.sum() / total
    variance = (((x - p * n) / (1 - n / total)) ** 2).sum() / total**2
    equal_clusters = float(total**2 / (n**2).sum())
    # At most the number of cases. Without variance, one case per cluster: nothing tells how much
    # its cases correlate.
    worth = min(p * (1 - p) / variance, total) if 0 < p < 1 and variance > 0 else equal_clusters
    worth *= (z / float(stdtrit(max(equal_clusters - 1, 1), (1 + confidence) / 2))) ** 2
    low, high = wilson([p * worth], [worth], confidence)
    return float(low[0]), float(high[0])


def _floats(*counts: ArrayLike) -> list[Floats]:
    return list(np.broadcast_arrays(*(np.asarray(values, np.float64) for values in counts)))


@lru_cache(maxsize=256)
def critical_value(groups: int, confidence: float = 0.95) -> float:
    """Return the critical value of |z| that holds for all pairs of ``groups`` rates at once.

    Tukey's studentized range with infinitely many degrees of freedom, divided by sqrt(2).

    Examples
    --------
    >>> [round(critical_value(groups), 2) for groups in (2, 5, 10)]
    [1.96, 2.73, 3.16]
    """
    from scipy.stats import studentized_range  # imported here: it takes a second to load

    return float(studentized_range.isf(1 - confidence, max(groups, 2), np.inf) / np.sqrt(2))


def is_ranked(successes: Counts, cases: Counts) -> Bools:
    """Return which groups are large enough to be ranked.

    A ranked group has at least 30 cases, and at least 5 of either outcome are expected of it at the
    overall rate.
    """
    total = cases.sum()
    rarer = min(successes.sum(), total - successes.sum())
    is_large: Bools = (cases >= FEWEST_CASES) & (cases * rarer >= _FEWEST_EXPECTED * total)
    return is_large


def power_of_ratio(rate: float, cases: Counts, reference: int, confidence: float = 0.95) -> Floats:
    """Return the chance to find each group below the reference at 0.7 times its rate.

    The normal approximation of Fleiss, Levin & Paik, "Statistical methods for rates and
    proportions" (2003), chapter 4: pooled variance under the null hypothesis, separate variances
    under the alternative.

    Parameters
    ----------
    rate
        Rate of the reference, in (0, 1).
    cases, reference
        Cases of the G ranked groups, (G,), and the position of the reference.
    confidence
        In (0, 1).

    Examples
    --------
    >>> power_of_ratio(0.6, np.array([100, 200, 200]), 2)[:2].round(2)
    array([0.73, 0.9 ])
    """
    low = _RATIO_TO_FIND * rate
    n = cases[reference]
    pooled = (cases * low + n * rate) / (cases + n)
    null = np.sqrt(pooled * (1 - pooled) * (1 / cases + 1 / n))
    separate = np.sqrt(low * (1 - low) / cases + rate * (1 - rate) / n)
    margin = critical_value(len(cases), confidence) * null
    power: Floats = ndtr((rate - low - margin) / separate)
    return power


def compare_rates(
    successes: Counts, cases: Counts, confidence: float, reference: int | None = None
) -> dict[str, NDArray[Any]]:
    """Compare the rate of each group with the rate of the reference group.

    All pairs of ranked groups are tested at once (Tukey-Kramer), so the comparisons hold for every
    choice of the reference. The interval of a ratio is Koopman's, that of a difference Newcombe's,
    both with :func:`critical_value` in place of the normal quantile. Koopman's interval excludes 1
    exactly where the score test with pooled variance rejects.

    Parameters
    ----------
    successes, cases
        Counts of each group, (g,).
    confidence
        In (0, 1).
    reference
        Position of the reference. Default: the ranked group with the most cases; of all groups,
        where none is ranked.

    Returns
    -------
    dict
        Arrays (g,), NaN where not defined, ratios to a rate of 0 infinite: ``ranked``,
        ``reference``, ``ratio``, ``ratio_low``, ``ratio_high``, ``difference``, ``difference_low``,
        ``difference_high``, ``p`` (of "equal to the reference", for all groups at once), ``power``
        (to find a ratio of 0.7 at the rate of all ranked groups) and ``verdict``: "below 0.8",
        "below 1", "above 1" or "above 1.25" where the whole interval of the ratio is, "no finding"
        where the power is at least 50 %, "cannot tell" where it is less, or the group or the
        reference is not ranked; empty for the reference.
    """
    g = len(cases)
    ranked = is_ranked(successes, cases)
    compared = ranked if ranked.any() else cases > 0
    names = (
        "ratio",
        "ratio_low",
        "ratio_high",
        "difference",
        "difference_low",
        "difference_high",
        "p",
        "power",
    )
    columns: dict[str, NDArray[Any]] = {
        "ranked": ranked,
        "reference": np.zeros(g, bool),
        **{name: np.full(g, np.nan) for name in names},
        "verdict": np.full(g, "cannot tell", dtype=object),
    }
    if not compared.any():
        return columns
    rate = share(successes, cases)
    largest = int(
        np.lexsort((rate, cases, compared))[-1]
    )  # of equally large groups, the one selected most often
    chosen = largest if reference is None else reference
    columns["reference"][chosen] = True
    groups = int(compared.sum())
    each = float(2 * ndtr(critical_value(groups, confidence)) - 1)
    columns["ratio"] = share(rate, rate[chosen])
    columns["ratio"][(rate > 0) & (rate[chosen] == 0)] = np.inf
    columns["difference"] = rate - rate[chosen]
    for name, interval in (("ratio", risk_ratio), ("difference", newcombe)):
        low, high = interval(successes, cases, successes[chosen], cases[chosen], each)
        low[chosen] = high[chosen] = columns[name][chosen]  # no second sample
        undefined = np.isnan(columns[name])
        columns[f"{name}_low"] = np.where(undefined, np.nan, low)
        columns[f"{name}_high"] = np.where(undefined, np.nan, high)
    tested = ranked & ~columns["reference"]
    if ranked[chosen] and tested.any():
        n = cases[tested]
        m = cases[chosen]
        pooled = (successes[tested] + successes[chosen]) / (n + m)
        spread = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        z = np.divide(
            abs(columns["difference"][tested]), spread, out=np.zeros(len(n)), where=spread > 0
        )
        overall = successes[ranked].sum() / cases[ranked].sum()
        from scipy.stats import studentized_range

        columns["p"][tested] = studentized_range.sf(z * np.sqrt(2), groups, np.inf)
        place = int(np.count_nonzero(ranked[:chosen]))
        columns["power"][ranked] = power_of_ratio(overall, cases[ranked], place, confidence)
        columns["power"][chosen] = np.nan
        low = columns["ratio_low"][tested]
        high = columns["ratio_high"][tested]
        columns["verdict"][tested] = np.select(
            [
                high < _FOUR_FIFTHS,
                low > 1 / _FOUR_FIFTHS,
                high < 1,
                low > 1,
                columns["power"][tested] >= _ENOUGH_POWER,
            ],
            ["below 0.8", "above 1.25", "below 1", "above 1", "no finding"],
            "cannot tell",
        )
    columns["verdict"][chosen] = ""
    return columns


def largest_gap(successes: Counts, cases: Counts, confidence: float) -> dict[str, float]:
    """Return the largest difference and the least ratio of rates of groups, with intervals.

    The intervals hold the largest true difference and the least true ratio. They follow from
    intervals that hold for all pairs of groups at once: the largest difference is between the
    largest lower and the largest upper end.

    Returns
    -------
    dict
        ``difference``, ``ratio``, each with ``_low`` and ``_high``; NaN where fewer than two groups
        are ranked.
    """
    ranked = is_ranked(successes, cases)
    names = [f"{name}{end}" for name in ("difference", "ratio") for end in ("", "_low", "_high")]
    if ranked.sum() < 2:
        return dict.fromkeys(names, np.nan)
    x = successes[ranked]
    n = cases[ranked]
    rate = x / n
    each = float(2 * ndtr(critical_value(len(n), confidence)) - 1)
    a, b = np.nonzero(~np.eye(len(n), dtype=bool))
    low, high = newcombe(x[a], n[a], x[b], n[b], each)
    ratio_low, ratio_high = risk_ratio(x[a], n[a], x[b], n[b], each)
    gaps = (np.ptp(rate), max(low.max(), 0), high.max())
    ratios = (rate.min() / rate.max(), ratio_low.min(), min(ratio_high.min(), 1))
    return dict(zip(names, map(float, gaps + ratios), strict=True))


def rate_bounds(
    selected: Ints, nodes: Ints, unknown_selected: int, unknown: int
) -> tuple[Floats, Floats]:
    """Return the least and the largest selection rate of each group.

    Parameters
    ----------
    selected, nodes
        Counts of each group, (g,).
    unknown_selected, unknown
        Counts of people who may belong to any of the groups.

    Returns
    -------
    least, most
        (g,) float64: all unselected, or all selected unknown people belong to the group. NaN if the
        group has no known member.
    """
    none = nodes == 0
    size = np.where(none, 1, nodes)
    least = selected / (size + (unknown - unknown_selected))
    most = (selected + unknown_selected) / (size + unknown_selected)
    return np.where(none, np.nan, least), np.where(none, np.nan, most)


def ratio_bounds(
    selected: Ints, nodes: Ints, unknown_selected: int, unknown: int, reference: int
) -> tuple[Floats, Floats]:
    """Return the least and the largest impact ratio over all groups of the unknown people.

    The bounds are sharp. The least: unknown people who were not selected belong to the group, those
    who were selected to the reference. The largest: the other way round.

    Parameters
    ----------
    selected, nodes
        Counts of each group, (g,).
    unknown_selected, unknown
        Counts of people who may belong to any of the groups.
    reference
        Position of the group that the others are compared with.

    Returns
    -------
    least, most
        (g,) float64; 1 for the reference. NaN if the group or the reference has no known member, or
        the reference may have the rate 0.

    Examples
    --------
    >>> least, most = ratio_bounds(np.array([40, 50]), np.array([100, 100]), 5, 20, 1)
    >>> least.round(3), most.round(3)
    (array([0.664, 1.   ]), array([0.986, 1.   ]))
    """
    low, high = rate_bounds(selected, nodes, unknown_selected, unknown)
    if not len(nodes):
        return low, high
    least = share(low, np.full_like(low, high[reference]))
    most = share(high, np.full_like(high, low[reference]))
    least[reference] = 1.0
    most[reference] = 1.0
    return least, most
