"""Verdicts of a judge on nearly identical inputs, beyond what its repeats explain."""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.base.checks import Doubles, Ints
from cfe_faiss.base.extras import pd
from cfe_faiss.base.values import as_lists, as_values, distinct
from cfe_faiss.mining.miners import pairs_within
from cfe_faiss.rows.metric import BoundedMetric, as_rows, measure_of, measured

_LEVEL = 0.05
_DRAWS = 9_999
"""Draws from the null for all pairs together."""
_MOST_TABLES = 1_000_000
_DIGITS = 9
"""Decimal digits of excesses. Tables with equal ones differ beyond them."""
_ROUNDING = 1e-8


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class VerdictConflicts:
    """Pairs of nearly identical inputs, and how far their verdicts differ.

    Attributes
    ----------
    source, target
        Inputs of each pair, (m,) int64, nearest first; each input is in at most one pair.
    measure
        Similarity of each pair, or its distance with metric "l2", (m,) float64.
    disagreement
        Share of differing verdicts among all pairs of a verdict on one input and one on the other,
        (m,).
    noise
        Share of differing verdicts among the repeats of one input, mean of the two, (m,).
    p_value, q_value
        Exact p value of each pair, (m,), and the same adjusted by Benjamini and Hochberg.
    overall_p_value
        P value of the sum of ``disagreement - noise`` over all pairs, at least 0.0001.
    least_p_value
        Smallest p value of this sum that any division of the same verdicts could have.
    verdict
        "conflicts" if ``overall_p_value`` is at most 0.05, else "no finding"; "cannot tell" if
        ``least_p_value`` is above 0.05.
    metric
        Metric of the inputs.
    """

    source: Ints
    target: Ints
    measure: Doubles
    disagreement: Doubles
    noise: Doubles
    p_value: Doubles
    q_value: Doubles
    overall_p_value: float
    least_p_value: float
    metric: BoundedMetric

    def __len__(self) -> int:
        return len(self.source)

    def __repr__(self) -> str:
        excess = float(np.mean(self.disagreement - self.noise)) if len(self) else 0.0
        named = int((self.q_value <= _LEVEL).sum())
        return (
            f"VerdictConflicts({len(self):,} pairs, {self.verdict}, {excess:+.3f} beyond repeats, "
            f"p={self.overall_p_value:.2g}, {named:,} with q <= {_LEVEL})"
        )

    @property
    def verdict(self) -> str:
        """See the class."""
        if self.least_p_value > _LEVEL:
            return "cannot tell"
        return "conflicts" if self.overall_p_value <= _LEVEL else "no finding"

    def to_frame(self) -> "pd.DataFrame":
        """Return one line per pair, smallest p value first.

        Columns: source, target, similarity (or distance), disagreement, noise, p_value, q_value.
        """
        order = np.argsort(self.p_value, kind="stable")
        names = ("source", "target", "measure", "disagreement", "noise", "p_value", "q_value")
        columns = {name: getattr(self, name)[order] for name in names}
        return pd.DataFrame(columns).rename(columns={"measure": measure_of(self.metric)})


def verdict_conflicts(
    X: ArrayLike, verdicts: Any, threshold: float, *, metric: BoundedMetric = "cosine"
) -> VerdictConflicts:
    """Find nearly identical inputs on which a judge's verdicts differ more than its repeats.

    Inputs are paired greedily, nearest first, each input once, without a look at verdicts.

    Parameters
    ----------
    X
        Vectors of n inputs, (n, d).
    verdicts
        Verdicts of one judge, asked several times about each input: n sequences of numbers, texts
        or booleans, of any lengths. Missing ones do not count. An input with fewer than two is left
        out.
    threshold, metric
        Pairs are at least as near, see :func:`near_duplicates`.

    Returns
    -------
    VerdictConflicts
        The pairs, a test for each, and one for all together.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the verdicts of a pair are too many different ones to
        count them out.

    Notes
    -----
    The null: all verdicts on the two inputs of a pair are independent draws from one distribution,
    any for each pair. Then each way to divide them among the inputs is equally likely. The p value
    of a pair is the share of ways with a ``disagreement - noise`` at least as large (Fisher's exact
    test with this statistic, whose mean is 0). The sum over all pairs is compared with 9,999 draws
    from this null, with a fixed seed. With r repeats of each input, no p value of a pair
    with two verdicts is below 2 / (2r choose r): 0.1 for 3 repeats, 0.008 for 5. A finding says
    that repeats do not explain the difference, not that the judge is wrong: near is not equal.

    Examples
    --------
    >>> from cfe_faiss import mining
    >>> X = [[1, 0], [1, 0.01], [0, 1], [0.01, 1]]
    >>> verdicts = [["good"] * 5, ["bad"] * 5, ["bad"] * 5, ["bad"] * 4 + ["good"]]
    >>> found = mining.verdict_conflicts(X, verdicts, threshold=0.99)
    >>> found.to_frame()[["source", "target", "disagreement", "noise", "p_value"]].round(3)
       source  target  disagreement  noise  p_value
    0       0       1           1.0    0.0    0.008
    1       2       3           0.2    0.2    1.000
    """
    from scipy.stats import false_discovery_control  # takes a second to import

    matrix = as_rows("X", X, None, metric)
    items, repeats = as_lists("verdicts", verdicts, len(matrix))
    values = as_values("verdicts", items)
    judged_places = np.flatnonzero([verdict is not None for verdict in values.tolist()])
    inputs = np.repeat(np.arange(len(matrix)), repeats)[judged_places]
    codes = distinct(values[judged_places])[1]
    counts = np.zeros((len(matrix), int(codes.max(initial=-1)) + 1), np.int64)
    np.add.at(counts, (inputs, codes), 1)
    judged = np.flatnonzero(counts.sum(axis=1) >= 2)
    pairs = pairs_within(
        matrix[judged], np.arange(len(judged)), threshold, metric, Constraints(ratio=1)
    )
    source = judged[pairs.source]
    target = judged[pairs.target]
    both = counts[source] + counts[target]
    disagreement, noise = _shares(counts[source], both)
    excess = disagreement - noise
    p_value = np.empty(len(pairs))
    nulls: Counter[tuple[tuple[int, ...], int]] = Counter()
    for pair, first in enumerate(counts[source].sum(axis=1).tolist()):
        margins = tuple(sorted(both[pair][both[pair] > 0].tolist()))
        excesses, chances = _null(margins, first)
        p_value[pair] = min(chances[excesses >= excess[pair] - _ROUNDING].sum(), 1.0)
        nulls[margins, first] += 1
    rng = np.random.default_rng(0)
    draws = np.zeros(_DRAWS)
    least = 1.0
    for null, count in nulls.items():
        excesses, chances = _null(*null)
        draws += rng.multinomial(count, chances, _DRAWS) @ excesses
        least *= float(chances[-1]) ** count
    return VerdictConflicts(
        source=source,
        target=target,
        measure=measured(pairs.similarity, metric).astype(np.float64),
        disagreement=disagreement,
        noise=noise,
        p_value=p_value,
        q_value=false_discovery_control(p_value) if len(p_value) else p_value,
        overall_p_value=float(1 + (draws >= excess.sum() - _ROUNDING).sum()) / (1 + _DRAWS),
        least_p_value=least,
        metric=metric,
    )


@lru_cache(maxsize=4096)
def _null(margins: tuple[int, ...], size: int) -> tuple[Doubles, Doubles]:
    """Return the possible excesses of tables of counts with these margins, and their chances."""
    from scipy.special import comb

    if math.prod(margin + 1 for margin in margins) > _MOST_TABLES:
        raise ValueError(
            f"verdicts must be few classes, got {len(margins)} different ones on two inputs: put "
            "numbers or texts into classes first"
        )
    tables = np.indices([margin + 1 for margin in margins]).reshape(len(margins), -1).T
    tables = tables[tables.sum(axis=1) == size]
    totals = np.array(margins)
    disagreement, noise = _shares(tables, totals)
    chances = comb(totals, tables).prod(axis=1) / comb(totals.sum(), size)
    excesses, table_of = np.unique((disagreement - noise).round(_DIGITS), return_inverse=True)
    merged = np.bincount(table_of, chances)
    return excesses, merged / merged.sum()


def _shares(first: Ints, both: Ints) -> tuple[Doubles, Doubles]:
    """Return disagreement and noise of tables of counts, (t, c), given their sums, (c,)."""
    second = both - first
    size = first.sum(axis=1)
    other = second.sum(axis=1)
    agreements = [
        (first * second).sum(axis=1) / (size * other),
        (first * (first - 1)).sum(axis=1) / (size * (size - 1)),
        (second * (second - 1)).sum(axis=1) / (other * (other - 1)),
    ]
    return 1 - agreements[0], 1 - (agreements[1] + agreements[2]) / 2
