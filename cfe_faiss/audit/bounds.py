"""Bounds of impact ratios when the group of some people is not known."""

import numpy as np

from cfe_faiss.audit.tables import Bools, Floats, Ints


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
