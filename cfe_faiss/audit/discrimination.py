"""Discrimination scores: which attributes change between a node and its evidence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.evidence import attributes_of, audited, search_members, sensitive_of
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Grouping, group_means, groupings
from cfe_faiss.audit.intervals import jeffreys
from cfe_faiss.audit.join_counts import Joins
from cfe_faiss.base.checks import UNKNOWN, as_count, did_you_mean
from cfe_faiss.base.extras import extra
from cfe_faiss.finder import EvidenceFinder

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = (
    *("feature", "value", "sensitive", "score", "low", "high", "expected"),
    *("difference", "difference_low", "difference_high", "class_expected", "nodes", "evidence", "effective"),
)


def discrimination_scores(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    nodes: Any = None,
    k: int = 10,
    columns: Sequence[str] | None = None,
    bins: Bins = DEFAULT_BINS,
    intersections: Sequence[Sequence[str]] = (),
    sensitive: Sequence[str] | None = None,
    nprobe: int | None = None,
    confidence: float = 0.95,
    progress: bool = False,
) -> "pd.DataFrame":
    """Return the discrimination score DS of every value of every attribute (paper, section "Revealing Unfairness").

    The score of a value is the mean, over the nodes that have it, of the share of their top-k evidence that lacks it.
    :doc:`/user_guide/audit` says how to read scores and intervals.

    Parameters
    ----------
    finder
        Evidence comes from all its searched nodes; its attributes are scored.
    nodes
        Ids of the nodes to score, (n,), or a mask; by default all searched nodes. Repeated ones count once.
    k
        Evidence per node, >= 1; the paper takes 10.
    columns, intersections
        Attributes to score, by default all of them; tuples of columns whose combined values are scored, too.
    bins
        Numbers with more than 10 values are cut at quantiles into this many bins. A mapping from columns to a number of
        bins or to edges overrides this: Table 2 has ``bins={"TIME": [0, 30], "SCHOOL": [8, 13]}``.
    sensitive
        Names of columns or intersections ("sex & race") to list first; by default those of the finder.
    nprobe
        Lists that an ``IndexEvidenceIVF`` probes for each node; by default its own ``nprobe``.
    confidence
        Of the interval, in (0, 1).
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line per value; values of sensitive attributes first, then the largest difference first:

        - ``feature``, ``value``, ``sensitive``: attribute, value or bin, whether ``sensitive`` names the attribute.
        - ``score``, ``low``, ``high``: score and interval in [0, 1]; NaN where no node has the value.
        - ``expected``: (n - m) / (n - 1), where m of n nodes have the value.
        - ``difference``, ``difference_low``, ``difference_high``: score, low and high minus ``expected``.
        - ``class_expected``: the score if evidence were drawn at random among all nodes of other predicted classes.
        - ``nodes``, ``evidence``, ``effective``: nodes, pairs, and the number of independent pairs they are worth.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> people = {"sex": ["f", "m", "f", "m"], "city": ["A", "A", "B", "B"]}
    >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]]
    >>> finder = cfe.EvidenceFinder.from_vectors(X, [0, 1, 0, 1], features=people)
    >>> scores = discrimination_scores(finder, k=1)
    >>> scores[["feature", "value", "score", "expected", "difference", "nodes"]].round(2)
      feature value  score  expected  difference  nodes
    0     sex     f    1.0      0.67        0.33      2
    1     sex     m    1.0      0.67        0.33      2
    2    city     A    0.0      0.67       -0.67      2
    3    city     B    0.0      0.67       -0.67      2
    """
    with extra("audit"):
        import pandas as pd

    k = as_count("k", k)
    index = finder.index
    known, places = audited(finder, nodes)
    groups = groupings(attributes_of(finder), known.ids, columns, bins, intersections)
    marked = _marked(finder, sensitive, groups)
    _, I = search_members(
        index, None if nodes is None else known.ids[places], k, nprobe, "Searching" if progress else None
    )
    scored = I[:, 0] >= 0
    places, found = places[scored], I[scored] >= 0
    evidence = np.searchsorted(known.ids, np.where(found, I[scored], 0))
    has_class = known.labels != UNKNOWN
    joins = Joins.of(places, evidence, found, has_class)
    counts = found.sum(axis=1)
    frames = []
    for group in groups:
        own, size = group.codes[places], len(group.values)
        lacking = ((group.codes[evidence] != own[:, None]) & found).sum(axis=1) / counts
        holders = np.bincount(group.codes[has_class], minlength=size)
        cases = np.bincount(own, minlength=size)
        score = group_means(lacking, own, size)
        effective = joins.effective(holders, cases)
        low, high = (
            np.where(np.isnan(effective) & (cases > 0), otherwise, bounds)
            for otherwise, bounds in zip((0, 1), jeffreys(score * effective, effective, confidence), strict=True)
        )
        expected = np.where(cases > 0, joins.expected(holders), np.nan)
        frames.append(
            pd.DataFrame(
                {
                    "feature": group.name,
                    "value": group.values,
                    "sensitive": group.name in marked,
                    "score": score,
                    "low": low,
                    "high": high,
                    "expected": expected,
                    "difference": score - expected,
                    "difference_low": low - expected,
                    "difference_high": high - expected,
                    "class_expected": group_means(_share_without(group, known.labels)[places], own, size),
                    "nodes": cases,
                    "evidence": np.bincount(own, counts, size).astype(np.int64),
                    "effective": effective,
                }
            )
        )
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_COLUMNS)
    return frame.sort_values(["sensitive", "difference"], ascending=False, kind="stable", ignore_index=True)


def _marked(finder: EvidenceFinder, sensitive: Sequence[str] | None, groups: list[Grouping]) -> set[str]:
    names = [group.name for group in groups]
    for name in () if sensitive is None else sensitive_of(finder, sensitive):
        if name not in names:
            hint = did_you_mean(name, names)
            raise ValueError(
                f"sensitive must name attributes that are scored ({', '.join(names[:20])}), got {name!r}{hint}"
            )
    return set(sensitive_of(finder, sensitive)) & set(names)


def _share_without(group: Grouping, labels: NDArray[np.int32]) -> NDArray[np.float64]:
    """Return for each node the share, among the nodes of other known classes, of those without its value."""
    classes, codes = np.unique(labels, return_inverse=True)
    table = np.zeros((len(group.values), len(classes)))
    np.add.at(table, (group.codes, codes), labels != UNKNOWN)
    eligible = table.sum() - table.sum(axis=0)
    alike = table.sum(axis=1, keepdims=True) - table
    share = 1 - np.divide(alike, eligible, out=np.ones(table.shape), where=eligible > 0)
    of_each: NDArray[np.float64] = share[group.codes, codes]
    return of_each
