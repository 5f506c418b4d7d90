"""Similarity curve: how often rows of unrelated groups are similar, and thresholds from it."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtrik, betaincinv

from cfe_faiss.base.checks import Array, Doubles, Floats, Ints, as_count, as_number, require
from cfe_faiss.base.extras import extra, pd
from cfe_faiss.base.text import summary
from cfe_faiss.base.values import group_numbers
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.rows.metric import (
    Metric,
    as_metric,
    as_rows,
    as_threshold,
    flipped,
    is_distance,
    limits_of,
    next_threshold,
    score_at,
)
from cfe_faiss.search.query import Effort, Query, Rules

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SimilarityCurve", "similarity_curve"]

_QUERIES = 256
"""Rows that are searched at once."""
_STEPS = 101
"""Thresholds of the curve."""
_FEWEST_FOR_CLUMPS = 30
"""Fewest rows from which the size of clumps is estimated."""
_BLUE = "#0072B2"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SimilarityCurve:
    """Rates of false pairs by threshold; made by :func:`similarity_curve`.

    Attributes
    ----------
    metric
        Metric of the vectors. Thresholds are similarities, or for "l2" squared distances.
    rows
        Number of rows that the sample was compared with.
    units
        Number of groups in the sample.
    nearest
        D of each row of the sample and the most similar row that counts, (m,) float32, best first.
    links
        Numbers of the groups of each of these rows and of that most similar row, from 1, or 0
        for none, (m, 2) int64.
    thresholds, pairs
        Thresholds from the median of ``nearest`` to the closest pair, (t,) float32, and number of
        pairs of all rows at or above each, (t,) float64. With a sample an estimate.
    """

    metric: Metric
    rows: int
    units: int
    nearest: Floats
    links: Ints
    thresholds: Floats
    pairs: Doubles

    __repr__ = summary

    def threshold(self, rate: float) -> float:
        """Return the least threshold whose rate of false pairs is at most ``rate``.

        Parameters
        ----------
        rate
            Share of new, unrelated rows that may have a false pair, in (0, 1].

        Returns
        -------
        float
            A threshold for :meth:`EvidenceStore.pairs`, ``watch=`` and all range searches. It is
            above the largest similarity that must not count, so ties are on the safe side.

        Raises
        ------
        TypeError, ValueError
            If ``rate`` is no number in (0, 1], or the rows are too few for it, or more rows than
            that equal a row of another group.

        Notes
        -----
        With m rows, each its own group, k of them may reach the threshold, where (k + 2) / (m + 1)
        <= rate. If a new row reaches it, at most k rows have a nearer row among the given ones, and
        only the nearest one of the new row can get such a row by it. So the new row is among the k
        + 2 best of m + 1 exchangeable rows, for every distribution. Rows of one group come
        together: their mean number w replaces 1, (k + 2 w) / (m + w) <= rate, as in A. N.
        Angelopoulos et al., "Conformal risk control", ICLR 2024, for groups of one size.
        """
        rate = as_number("rate", rate, 0.0, 1.0, is_open=True)
        m = len(self.nearest)
        size = m / self.units
        allowed = math.floor(rate * (m + size) - 2 * size + 1e-9)
        copies = int((self.nearest == self._best).sum())
        if allowed < copies:
            least = (copies + 2 * size) / (m + size)
            bound = f"at least {least:.3g}" if least <= 1 else "left out: there is no threshold"
            raise ValueError(
                f"rate must be {bound} with {self.units:,} groups, and {copies:,} rows that equal a "
                f"row of another group, got {rate:g}: give more groups, and remove copies or put "
                f"them into one group"
            )
        return next_threshold(float(self.nearest[allowed]), self.metric)

    @property
    def _best(self) -> float:
        """D of equal rows; for "ip" none."""
        return 0.0 if is_distance(self.metric) else limits_of(self.metric)[1]

    def interval(self, rate: float, level: float = 0.95) -> tuple[float, float]:
        """Return the interval of the threshold at which the rate of false pairs is ``rate``.

        Parameters
        ----------
        rate
            As in :meth:`threshold`.
        level
            Coverage of the interval, in (0, 1).

        Returns
        -------
        low, high
            Ends of the interval in the order of similarity: for "l2", low is the larger distance.

        Raises
        ------
        TypeError, ValueError
            If an argument is not in its range.

        Notes
        -----
        Order statistics of ``nearest`` by binomial quantiles, for m / c in place of m rows. The
        mean size c of clumps is the variance of the number of rows above the threshold by that of
        independent rows: rows that are each other's nearest, or are near the same row, get there
        together. Clumps are the connected groups of the links from each row above the threshold to
        its nearest row (D. Aldous, "Probability approximations via the Poisson clumping heuristic",
        1989).
        """
        rate = as_number("rate", rate, 0.0, 1.0, is_open=True)
        level = as_number("level", level, 0.0, 1.0, is_open=True)
        m = len(self.nearest)
        clump = self._clump_size(round(rate * m))
        tails = np.array([1 + level, 1 - level]) / 2
        counts = np.ceil(bdtrik(tails, max(1.0, m / clump), rate)) * clump
        most, fewest = counts.clip(0, m).astype(int).tolist()
        high = float(self.nearest[fewest - 1]) if fewest else self._best
        return float(self.nearest[min(most, m - 1)]), high

    def rate(self, threshold: float) -> float:
        """Return the share of the rows that have a false pair at a threshold."""
        limit = score_at(as_threshold("threshold", threshold, self.metric), self.metric)
        return float((flipped(self.nearest, self.metric) >= limit).mean())

    def _clump_size(self, count: int) -> float:
        """Return the mean size of the clump of a row, of the ``count`` best rows."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        source, target = self.links[: max(count, _FEWEST_FOR_CLUMPS)].T
        n = self.links.max() + 1
        graph = coo_array((np.ones(len(source)), (source, target)), shape=(n, n))
        sizes = np.bincount(connected_components(graph, directed=False)[1][source])
        return float((sizes**2).sum() / sizes.sum())

    def to_frame(self) -> Any:
        """Return the curve as a DataFrame.

        Returns
        -------
        pandas.DataFrame
            For each ``threshold``: ``pairs`` at or above it; ``expected``, the mean number of
            false pairs of one new, unrelated row; ``rate``, the share of such rows with at least
            one; and the ends of its 95 % interval, ``low`` and ``high``.

        Raises
        ------
        ImportError
            If pandas is missing.
        """
        m = len(self.nearest)
        steps = flipped(self.thresholds, self.metric)
        counts = (flipped(self.nearest, self.metric) >= steps[:, None]).sum(axis=1)
        clumps = np.array([self._clump_size(count) for count in counts.tolist()])
        hits = counts / clumps
        misses = (m - counts) / clumps
        columns = {
            "threshold": self.thresholds,
            "pairs": self.pairs,
            "expected": 2 * self.pairs / self.rows,
            "rate": counts / m,
            "low": betaincinv(hits, misses + 1, 0.025),  # every threshold has a hit
            "high": np.where(misses, betaincinv(hits + 1, misses + (misses == 0), 0.975), 1.0),
        }
        return pd.DataFrame(columns)

    def plot(self, rates: tuple[float, ...] = (0.01, 0.05)) -> "Figure":
        """Draw the rate of false pairs with its interval, and thresholds at some rates.

        Parameters
        ----------
        rates
            Rates that are marked, each with its threshold.

        Returns
        -------
        matplotlib.figure.Figure
            Without a window or backend; write it with ``figure.savefig("curve.png")``.

        Raises
        ------
        ImportError
            If Matplotlib or pandas is missing.
        TypeError, ValueError
            If there is no threshold for a rate, see :meth:`threshold`.
        """
        with extra("plot"):
            from matplotlib.figure import Figure
        frame = self.to_frame()
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.fill_between(frame["threshold"], frame["low"], frame["high"], color=_BLUE, alpha=0.2)
        axes.plot(frame["threshold"], frame["rate"], color=_BLUE)
        for rate in rates:
            point = self.threshold(rate), rate
            axes.plot(*point, "o", color=_BLUE)
            text = f"{100 * rate:g} %: {point[0]:.4f}"
            axes.annotate(text, point, (6, 6), textcoords="offset points")
        axes.set_yscale("log")
        measure = "squared distance" if is_distance(self.metric) else "similarity"
        axes.set(xlabel=f"threshold ({measure})", ylabel="unrelated rows with a false pair")
        return figure


def similarity_curve(
    X: ArrayLike,
    groups: Any,
    *,
    labels: Any = None,
    metric: Metric = "cosine",
    sample: int = 10_000,
    seed: int = 0,
) -> SimilarityCurve:
    """Return how often rows of unrelated groups are similar, for each threshold.

    A *false pair* is a pair of rows of different groups at or above a threshold, if one of the rows
    is unrelated to the other's group. The *null* is a new row that belongs to none of the given
    groups and is otherwise drawn like their rows: every given row stands for such a row, compared
    with the rows of all other groups. The *rate* of false pairs is the share of such rows with at
    least one false pair.

    Parameters
    ----------
    X
        Vectors, (n, d).
    groups
        Group of each row, (n,): the document, patient or user that it comes from. Rows of one group
        may be related, and depend on each other; groups are taken as unrelated. ``range(n)`` if
        every row stands for itself.
    labels
        Class of each row, (n,). If given, only pairs of different classes count, as for evidence.
    metric
        "cosine", "ip", "l2" or "tanimoto", as in :class:`cfe_faiss.IndexEvidenceFlat`.
    sample
        Largest number of rows, >= 2, drawn at random, that are compared with all rows.
    seed
        Seed of the sample.

    Returns
    -------
    SimilarityCurve
        Its :meth:`~cfe_faiss.curve.SimilarityCurve.threshold` is the threshold at a rate.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or there are fewer than two groups or classes.

    Notes
    -----
    If some rows of different groups are related after all, such as copies, thresholds are higher
    and rates lower than for unrelated rows alone: a warning then comes at most as often as stated.
    Rates hold for a store of this size; more rows bring more false pairs. The search is exact, and
    takes sample * n * d multiplications twice.

    Examples
    --------
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> X = np.random.default_rng(0).normal(size=(1000, 16))
    >>> curve = cfe.similarity_curve(X, groups=range(1000))
    >>> round(curve.threshold(rate=0.05), 3)
    0.799
    >>> low, high = curve.interval(rate=0.05)
    >>> print(f"{low:.3f} to {high:.3f}")
    0.792 to 0.816
    """
    metric = as_metric("metric", metric)
    rows = as_rows("X", X, None, metric)
    (units,) = group_numbers(("groups", groups, len(rows)))
    classes = units if labels is None else group_numbers(("labels", labels, len(rows)))[0]
    index = IndexEvidenceFlat(rows.shape[1], metric)
    index.add_with_labels(rows, classes)
    return curve_of(index, np.arange(len(rows)), classes, units, sample, seed)


def curve_of(
    index: Any, ids: Ints, labels: Array, units: Array, sample: int, seed: int
) -> SimilarityCurve:
    """Return the curve of the labelled rows of an index.

    ``ids`` ascend; ``labels`` and ``units`` are class and group of each, (n,).
    """
    n = len(ids)
    sample = as_count("sample", sample, 2)
    rng = np.random.default_rng(as_count("seed", seed, 0))
    chosen = np.sort(rng.permutation(n)[:sample])
    numbers, units = np.unique(units, return_inverse=True)
    classes_in_units = len(np.unique(np.column_stack([units, labels]), axis=0))
    members = np.split(ids[np.argsort(units, kind="stable")], np.cumsum(np.bincount(units))[:-1])
    queries = []
    for part in np.split(chosen, range(_QUERIES, len(chosen), _QUERIES)):
        rules = None
        if classes_in_units > len(numbers):  # some rows of a group are of different classes
            rules = Rules(excluded_ids=[members[unit] for unit in units[part].tolist()])
        queries.append(Query(1, ids=ids[part], rules=rules))
    answers = [index.answer(query, Effort(exact=True)) for query in queries]
    D, I = (np.concatenate(parts)[:, 0] for parts in zip(*answers, strict=True))
    found = I >= 0
    require(found.any(), "the rows must be of at least two groups and classes, got no such pair")
    scores = np.where(found, flipped(D, index.metric), -np.inf).astype(np.float32)
    nearest = np.where(found, units[ids.searchsorted(np.maximum(I, ids[0]))] + 1, 0)
    steps = np.linspace(np.median(scores[found]), scores.max(), _STEPS).astype(np.float32)
    thresholds = flipped(steps, index.metric)
    counts = np.zeros(_STEPS)
    for query in queries:
        pairs = index.answer_range(replace(query, threshold=float(thresholds[0])))[1]
        ascending = np.sort(flipped(pairs, index.metric))
        counts += len(pairs) - ascending.searchsorted(steps)
    order = np.argsort(-scores, kind="stable")
    return SimilarityCurve(
        metric=index.metric,
        rows=n,
        units=len(np.unique(units[chosen])),
        nearest=flipped(scores[order], index.metric),
        links=np.column_stack([units[chosen] + 1, nearest])[order],
        thresholds=thresholds,
        pairs=counts * n / len(chosen) / 2,
    )
