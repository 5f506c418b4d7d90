"""Verdicts of a judge on nearly identical inputs, beyond what its repeats explain."""

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.base.checks import Doubles, Ints, as_matrix, check_known
from cfe_faiss.base.extras import pd
from cfe_faiss.base.values import as_list, as_values, distinct
from cfe_faiss.mining.miners import Metric, near_duplicates
from cfe_faiss.rows.metric import measure_of, measured

_Key: TypeAlias = tuple[tuple[int, ...], int]
"""Number of verdicts of each class on both inputs, ascending, and of all on the first one."""
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
    metric: Metric

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
    X: ArrayLike, verdicts: Any, threshold: float, *, metric: Metric = "cosine"
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

    check_known("metric must be one of", metric, get_args(Metric))
    matrix = as_matrix("X", X)
    lists = [as_list("verdicts", repeats) for repeats in as_list("verdicts", verdicts)]
    if len(lists) != len(matrix):
        raise ValueError(
            f"verdicts must hold one sequence for each of {len(matrix):,} inputs, got {len(lists):,}"
        )
    values = as_values("verdicts", [verdict for repeats in lists for verdict in repeats])
    inputs = np.repeat(np.arange(len(lists)), [len(repeats) for repeats in lists])
    is_known = np.array([verdict is not None for verdict in values.tolist()], bool)
    codes = distinct(values[is_known])[1]
    counts = np.zeros((len(lists), int(codes.max(initial=-1)) + 1), np.int64)
    np.add.at(counts, (inputs[is_known], codes), 1)
    judged = np.flatnonzero(counts.sum(axis=1) >= 2)
    pairs = near_duplicates(matrix[judged], np.arange(len(judged)), threshold, metric=metric)
    free = np.ones(len(judged), bool)
    chosen = []
    for place, ends in enumerate(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)):
        if free[list(ends)].all():
            free[list(ends)] = False
            chosen.append(place)
    source = judged[pairs.source[chosen]]
    target = judged[pairs.target[chosen]]
    tests = [_test(*ends) for ends in zip(counts[source], counts[target], strict=True)]
    disagreement, noise, p_value = np.reshape([test[:3] for test in tests], (-1, 3)).T
    rng = np.random.default_rng(0)
    draws = np.zeros(_DRAWS)
    least = 1.0
    for key, count in Counter(test[3] for test in tests).items():
        excesses, chances = _null(*key)
        draws += rng.multinomial(count, chances, _DRAWS) @ excesses
        least *= float(chances[-1]) ** count
    total = float((disagreement - noise).sum())
    return VerdictConflicts(
        source=source,
        target=target,
        measure=measured(pairs.similarity[chosen], metric).astype(np.float64),
        disagreement=disagreement,
        noise=noise,
        p_value=p_value,
        q_value=false_discovery_control(p_value) if len(p_value) else p_value,
        overall_p_value=float(1 + (draws >= total - _ROUNDING).sum()) / (1 + _DRAWS),
        least_p_value=least,
        metric=metric,
    )


def _test(first: Ints, second: Ints) -> tuple[float, float, float, _Key]:
    """Return disagreement, noise and p value of two rows of counts, and the key of their null."""
    both = first + second
    key = tuple(sorted(both[both > 0].tolist())), int(first.sum())
    ((disagreement,), (noise,)) = _shares(first[None], both)
    excesses, chances = _null(*key)
    is_larger = excesses >= disagreement - noise - _ROUNDING
    p_value = min(float(chances[is_larger].sum()), 1.0)
    return float(disagreement), float(noise), p_value, key


@lru_cache(maxsize=4096)
def _null(margins: tuple[int, ...], size: int) -> tuple[Doubles, Doubles]:
    """Return the possible excesses of tables of counts with these margins, and their chances."""
    from scipy.special import comb

    if math.prod(margin + 1 for margin in margins) > _MOST_TABLES:
        raise ValueError(
            f"verdicts must be few classes, got {len(margins)} different ones on two inputs: put "
            "numbers or texts into classes first"
        )
    tables = np.array(list(product(*(range(margin + 1) for margin in margins))))
    tables = tables[tables.sum(axis=1) == size]
    totals = np.array(margins)
    disagreement, noise = _shares(tables, totals)
    chances = comb(totals, tables).prod(axis=1) / comb(totals.sum(), size)
    excesses, table_of = np.unique((disagreement - noise).round(_DIGITS), return_inverse=True)
    merged = np.bincount(table_of, chances)
    return excesses, merged / merged.sum()


def _shares(first: Ints, both: Ints) -> tuple[Doubles, Doubles]:
    """Return disagreement and noise of tables of counts, (t, c), given their margins, (c,)."""
    second = both - first
    sizes = first.sum(axis=1), second.sum(axis=1)
    disagreement = 1 - (first * second).sum(axis=1) / (sizes[0] * sizes[1])
    agreeing = [
        (counts * (counts - 1)).sum(axis=1) / (size * (size - 1))
        for counts, size in zip((first, second), sizes, strict=True)
    ]
    return disagreement, 1 - (agreeing[0] + agreeing[1]) / 2
