"""Rates of several groups: comparisons that hold for all pairs at once, and bounds if some groups are unknown."""

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from cfe_faiss.audit.common import Bools, Floats, Ints, share
from cfe_faiss.audit.intervals import newcombe, risk_ratio

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
    """Return the chance to find each group below the reference if its rate is 0.7 times the rate of the reference.

    The normal approximation of Fleiss, Levin & Paik, "Statistical methods for rates and proportions" (2003), chapter 4:
    pooled variance under the null hypothesis, separate variances under the alternative.

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
    power: Floats = ndtr((rate - low - critical_value(len(cases), confidence) * null) / separate)
    return power


def compare_rates(
    successes: Counts, cases: Counts, confidence: float, reference: int | None = None
) -> dict[str, NDArray[Any]]:
    """Compare the rate of each group with the rate of the reference group.

    All pairs of ranked groups are tested at once (Tukey-Kramer), so the comparisons hold for every choice of the
    reference. The interval of a ratio is Koopman's, that of a difference Newcombe's, both with :func:`critical_value`
    in place of the normal quantile. Koopman's interval excludes 1 exactly where the score test with pooled variance
    rejects.

    Parameters
    ----------
    successes, cases
        Counts of each group, (g,).
    confidence
        In (0, 1).
    reference
        Position of the reference. Default: the ranked group with the most cases; of all groups, where none is ranked.

    Returns
    -------
    dict
        Arrays (g,), NaN where not defined, ratios to a rate of 0 infinite: ``ranked``, ``reference``, ``ratio``,
        ``ratio_low``, ``ratio_high``, ``difference``, ``difference_low``, ``difference_high``, ``p`` (of "equal to the
        reference", for all groups at once), ``power`` (to find a ratio of 0.7 at the rate of all ranked groups) and
        ``verdict``: "below 0.8", "below 1", "above 1" or "above 1.25" where the whole interval of the ratio is, "no
        finding" where the power is at least 50 %, "cannot tell" where it is less, or the group or the reference is not
        ranked; empty for the reference.
    """
    g = len(cases)
    ranked = is_ranked(successes, cases)
    compared = ranked if ranked.any() else cases > 0
    names = ("ratio", "ratio_low", "ratio_high", "difference", "difference_low", "difference_high", "p", "power")
    columns: dict[str, NDArray[Any]] = {"ranked": ranked, "reference": np.zeros(g, bool)}
    columns |= {name: np.full(g, np.nan) for name in names} | {"verdict": np.full(g, "cannot tell", dtype=object)}
    if not compared.any():
        return columns
    rate = share(successes, cases)
    largest = int(np.lexsort((rate, cases, compared))[-1])  # of equally large groups, the one selected most often
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
        z = np.divide(abs(columns["difference"][tested]), spread, out=np.zeros(len(n)), where=spread > 0)
        overall = successes[ranked].sum() / cases[ranked].sum()
        from scipy.stats import studentized_range

        columns["p"][tested] = studentized_range.sf(z * np.sqrt(2), groups, np.inf)
        place = int(np.count_nonzero(ranked[:chosen]))
        columns["power"][ranked] = power_of_ratio(overall, cases[ranked], place, confidence)
        columns["power"][chosen] = np.nan
        low = columns["ratio_low"][tested]
        high = columns["ratio_high"][tested]
        columns["verdict"][tested] = np.select(
            [high < _FOUR_FIFTHS, low > 1 / _FOUR_FIFTHS, high < 1, low > 1, columns["power"][tested] >= _ENOUGH_POWER],
            ["below 0.8", "above 1.25", "below 1", "above 1", "no finding"],
            "cannot tell",
        )
    columns["verdict"][chosen] = ""
    return columns


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
    selected: Ints, nodes: Ints, unknown_selected: int, unknown: int, reference: int
) -> tuple[Floats, Floats]:
    """Return the least and the largest impact ratio of each group over all ways to spread the unknown among the groups.

    The bounds are sharp. The least: unknown people who were not selected belong to the group, those who were selected
    to the reference. The largest: the other way round.

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
        (g,) float64; 1 for the reference. NaN if the group or the reference has no known member, or the reference may
        have the rate 0.

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
