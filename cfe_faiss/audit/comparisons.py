"""Rates of several groups: comparisons that hold for all pairs at once, and bounds if some groups are unknown."""

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from cfe_faiss.audit.intervals import newcombe, risk_ratio
from cfe_faiss.audit.tables import Bools, Floats, Ints, share

Counts: TypeAlias = Ints | Floats
"""Numbers of cases, or effective numbers of them."""

FEWEST_CASES = 30
"""Groups of fewer cases are listed, but not ranked."""
_FEWEST_EXPECTED = 5
_FOUR_FIFTHS = 0.8
_RATIO_TO_FIND = 0.7
_ENOUGH_POWER = 0.5


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

    A ranked group has at least 30 cases, and at least 5 of either outcome are expected of it at the overall rate.
    """
    total = cases.sum()
    rarer = min(successes.sum(), total - successes.sum())
    ranked: Bools = (cases >= FEWEST_CASES) & (cases * rarer >= _FEWEST_EXPECTED * total)
    return ranked


def power_of_ratio(rate: float, cases: Counts, reference: int, confidence: float = 0.95) -> Floats:
    """Return the chance to find each group below the reference if its rate is 0.7 times the rate of all others.

    The normal approximation of Fleiss, Levin & Paik, "Statistical methods for rates and proportions" (2003), chapter 4:
    pooled variance under the null hypothesis, separate variances under the alternative. The reference is the largest of
    G - 1 equal rates. The mean and the variance of the largest of G - 1 normal variables allow for that, with the
    standard error of the largest group: the power is exact for groups of one size, otherwise too low.

    Parameters
    ----------
    rate
        Rate of the other groups, in (0, 1).
    cases, reference
        Cases of the G ranked groups, (G,), and the position of the reference.
    confidence
        In (0, 1).

    Examples
    --------
    >>> power_of_ratio(0.6, np.array([100, 200, 200]), 2)[:2].round(2)
    array([0.84, 0.97])
    """
    low, n = _RATIO_TO_FIND * rate, cases[reference]
    pooled = (cases * low + n * rate) / (cases + n)
    null = np.sqrt(pooled * (1 - pooled) * (1 / cases + 1 / n))
    mean, variance = _largest_of(len(cases) - 1)
    shift = mean * np.sqrt(rate * (1 - rate) / cases.max())
    separate = np.sqrt(low * (1 - low) / cases + variance * rate * (1 - rate) / n)
    power: Floats = ndtr((rate - low + shift - critical_value(len(cases), confidence) * null) / separate)
    return power


@lru_cache(maxsize=256)
def _largest_of(count: int) -> tuple[float, float]:
    """Return mean and variance of the largest of ``count`` standard normal variables."""
    x = np.linspace(-8, 8, 4001)
    from scipy.stats import norm

    weights = norm.pdf(x) * ndtr(x) ** (count - 1)
    weights /= weights.sum()
    mean = float(weights @ x)
    return mean, float(weights @ (x - mean) ** 2)


def compare_rates(successes: Counts, cases: Counts, confidence: float) -> dict[str, NDArray[Any]]:
    """Compare the rate of each group with the largest rate of the ranked groups.

    All pairs of ranked groups are tested at once, so that the reference may be chosen from the data (Tukey-Kramer).
    The interval of a ratio is Koopman's, that of a difference Newcombe's, both with :func:`critical_value` in place of
    the normal quantile. Koopman's interval is below 1 exactly where the score test with pooled variance rejects.

    Parameters
    ----------
    successes, cases
        Counts of each group, (g,).
    confidence
        In (0, 1).

    Returns
    -------
    dict
        Arrays (g,), NaN where not defined: ``ranked``, ``reference``, ``ratio``, ``ratio_low``, ``ratio_high``,
        ``difference``, ``difference_low``, ``difference_high``, ``p`` (of "equal to the reference", for all groups at
        once), ``power`` (to find a ratio of 0.7 at the rate of all ranked groups) and ``verdict``: "below 0.8" or
        "below 1" where the whole interval of the ratio is, "no finding" where the power is at least 50 %, "cannot tell"
        where it is less or the group is not ranked; empty for the reference. Where no group is ranked, the reference is
        the largest rate of all.
    """
    g = len(cases)
    ranked = is_ranked(successes, cases)
    compared = ranked if ranked.any() else cases > 0
    names = ("ratio", "ratio_low", "ratio_high", "difference", "difference_low", "difference_high", "p", "power")
    found: dict[str, NDArray[Any]] = {"ranked": ranked, "reference": np.zeros(g, bool)}
    found |= {name: np.full(g, np.nan) for name in names} | {"verdict": np.full(g, "cannot tell", dtype=object)}
    if not compared.any():
        return found
    rate = share(successes, cases)
    best = int(np.argmax(np.where(compared, rate, -1)))
    found["reference"][best] = True
    groups = int(compared.sum())
    critical = critical_value(groups, confidence)
    each = float(2 * ndtr(critical) - 1)
    found["ratio"] = share(rate, rate[best])
    found["difference"] = rate - rate[best]
    for name, interval in (("ratio", risk_ratio), ("difference", newcombe)):
        low, high = interval(successes, cases, successes[best], cases[best], each)
        low[best] = high[best] = found[name][best]  # no second sample
        undefined = np.isnan(found[name])
        found[f"{name}_low"], found[f"{name}_high"] = (np.where(undefined, np.nan, bound) for bound in (low, high))
    tested = ranked & ~found["reference"]
    if tested.any():
        n, m = cases[tested], cases[best]
        pooled = (successes[tested] + successes[best]) / (n + m)
        spread = np.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
        z = np.divide(-found["difference"][tested], spread, out=np.zeros(len(n)), where=spread > 0)
        overall = successes[ranked].sum() / cases[ranked].sum()
        from scipy.stats import studentized_range

        found["p"][tested] = studentized_range.sf(z * np.sqrt(2), groups, np.inf)
        reference = int(np.flatnonzero(ranked).tolist().index(best))
        power = power_of_ratio(overall, cases[ranked], reference, confidence)[np.arange(groups) != reference]
        found["power"][tested], high = power, found["ratio_high"][tested]
        found["verdict"][tested] = np.select(
            [high < _FOUR_FIFTHS, high < 1, power >= _ENOUGH_POWER],
            [f"below {_FOUR_FIFTHS}", "below 1", "no finding"],
            "cannot tell",
        )
    found["verdict"][best] = ""
    return found


def largest_gap(successes: Counts, cases: Counts, confidence: float) -> dict[str, float]:
    """Return the largest difference and the least ratio of the rates of ranked groups, with intervals.

    The intervals hold the largest true difference and the least true ratio. They follow from intervals that hold for
    all pairs of groups at once: the largest difference is between the largest lower and the largest upper end.

    Returns
    -------
    dict
        ``difference``, ``ratio``, each with ``_low`` and ``_high``; NaN where fewer than two groups are ranked.
    """
    ranked = is_ranked(successes, cases)
    names = [f"{name}{end}" for name in ("difference", "ratio") for end in ("", "_low", "_high")]
    if ranked.sum() < 2:
        return dict.fromkeys(names, np.nan)
    x, n = successes[ranked], cases[ranked]
    rate = x / n
    each = float(2 * ndtr(critical_value(len(n), confidence)) - 1)
    a, b = np.nonzero(~np.eye(len(n), dtype=bool))
    low, high = newcombe(x[a], n[a], x[b], n[b], each)
    ratio_low, ratio_high = risk_ratio(x[a], n[a], x[b], n[b], each)
    gaps = (np.ptp(rate), max(low.max(), 0), high.max())
    ratios = (rate.min() / rate.max(), ratio_low.min(), min(ratio_high.min(), 1))
    return dict(zip(names, map(float, gaps + ratios), strict=True))


def rate_bounds(selected: Ints, nodes: Ints, unknown_selected: int, unknown: int) -> tuple[Floats, Floats]:
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
        (g,) float64: all unselected, or all selected unknown people belong to the group. NaN if the group has no known
        member.
    """
    none = nodes == 0
    size = np.where(none, 1, nodes)
    least = selected / (size + (unknown - unknown_selected))
    most = (selected + unknown_selected) / (size + unknown_selected)
    return np.where(none, np.nan, least), np.where(none, np.nan, most)


def ratio_bounds(
    selected: Ints,
    nodes: Ints,
    unknown_selected: int,
    unknown: int,
    eligible: Bools,
) -> tuple[Floats, Floats]:
    """Return the least and the largest impact ratio of each group over all ways to spread the unknown among the groups.

    The impact ratio is the group's selection rate, divided by the largest rate of the eligible groups. The bounds are
    sharp: some way to spread the unknown attains each. The least: those not selected belong to the group, those
    selected to the one other group whose rate then is largest. The largest: those selected belong to the group, those
    not selected are spread among the others, so that their largest rate becomes as small as it can.

    Parameters
    ----------
    selected, nodes
        Counts of each group, (g,).
    unknown_selected, unknown
        Counts of people who may belong to any of the groups.
    eligible
        Which groups the rates are compared with, (g,).

    Returns
    -------
    least, most
        (g,) float64. NaN if the group has no known member, or all rates it is compared with are 0.

    Examples
    --------
    >>> everyone = np.array([True, True])
    >>> least, most = ratio_bounds(np.array([40, 50]), np.array([100, 100]), 5, 20, everyone)
    >>> least.round(3), most.round(3)
    (array([0.664, 1.   ]), array([0.986, 1.   ]))
    """
    g = len(nodes)
    least, most = np.full(g, np.nan), np.full(g, np.nan)
    fails = unknown - unknown_selected
    compared = eligible & (nodes > 0)
    if not compared.any():
        return least, most
    low_rates, high_rates = rate_bounds(selected, nodes, unknown_selected, unknown)
    for group in np.flatnonzero(nodes > 0).tolist():
        others = compared.copy()
        others[group] = False
        if not others.any():
            least[group] = most[group] = 1.0 if selected[group] + unknown_selected > 0 else np.nan
            continue
        top = float(high_rates[others].max())
        bottom = least_maximum(selected[others], nodes[others], fails)
        low, high = float(low_rates[group]), float(high_rates[group])
        least[group] = _ratio(low, max(top, low) if compared[group] else top)
        most[group] = _ratio(high, max(bottom, high) if compared[group] else bottom)
    return least, most


def least_maximum(selected: Ints, nodes: Ints, fails: int) -> float:
    """Return the smallest possible largest rate when ``fails`` people who were not selected join the groups.

    Found by bisection: a rate is possible if all groups can reach it. O(g) time.
    """
    low, high = 0.0, float((selected / nodes).max())
    if high == 0:
        return 0.0
    for _ in range(100):
        middle = (low + high) / 2
        possible = middle > 0 and _count_needed(selected, nodes, middle).sum() <= fails
        low, high = (low, middle) if possible else (middle, high)
    return float((selected / (nodes + _count_needed(selected, nodes, high))).max())


def _count_needed(selected: Ints, nodes: Ints, rate: float) -> Ints:
    """Return the number of unselected people that each group needs for a rate of at most ``rate``."""
    more = np.ceil(selected / rate * (1 - 1e-12) - nodes)
    return np.clip(more, 0, 2**53).astype(np.int64)


def _ratio(rate: float, largest: float) -> float:
    return rate / largest if largest > 0 else np.inf if rate > 0 else np.nan
