"""Discrimination scores: which attributes change between a node and its evidence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.evidence import attributes_of, audited, search_members, sensitive_of
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Grouping, group_means, groupings
from cfe_faiss.audit.intervals import jeffreys
from cfe_faiss.audit.join_counts import Joins
from cfe_faiss.checks import UNKNOWN, as_count, did_you_mean
from cfe_faiss.extras import extra
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

    For a node v with the value f(v) = f_i, the paper's equation is DS(f(v) = f_i) = 1/k * the number of u among v's
    top-k local evidence with f(u) != f_i: the share of v's evidence that lacks v's value. A value that the evidence
    mostly lacks is one that the model's class depends on. The score of a value is the mean over the nodes *that have
    it*. The paper does not spell this mean out, but its Table 2 leaves no other one: scores of "TIME 0-30" and
    "TIME > 30" add up to 1.58 there, while means over all nodes could add up to 1 at most.

    Parameters
    ----------
    finder
        Evidence comes from all its searched nodes. Its attributes are scored; how they are grouped:
        :func:`cfe_faiss.audit.groups.groupings`.
    nodes
        Ids of the nodes v to score, (n,), or a mask; by default all searched nodes. Repeated ones count once.
    k
        Evidence per node, >= 1; the paper takes 10.
    columns
        Attributes to score; by default all of them.
    bins
        How numbers are cut into values: up to 10 distinct ones are values themselves; more are cut at quantiles into
        this many bins. A mapping from columns to a number of bins or to edges overrides this: Table 2's "TIME 0-30",
        "TIME > 30" and "SCHOOL 8-13" are ``bins={"TIME": [0, 30], "SCHOOL": [8, 13]}``.
    intersections
        Tuples of columns to score as one attribute, whose value is the combination of their values; evidence lacks it
        when it differs in any of them.
    sensitive
        Names of columns, or of intersections as "sex & race", whose values form a block of their own, above the others.
        By default those of the finder that are scored.
    nprobe
        Lists that an ``IndexEvidenceIVF`` probes for each node; by default its own ``nprobe``. Exact indexes
        compare all vectors.
    confidence
        Of the interval, in (0, 1).
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line per value; values of sensitive attributes first, then the largest difference first:

        - ``feature``, ``value``: the attribute and its value or bin.
        - ``sensitive``: whether ``sensitive`` names the attribute.
        - ``score``, ``low``, ``high``: the score and its interval, in [0, 1]; NaN where no node has the value. The
          interval is [0, 1] where there can be none: where a single node has the value, or all of them.
        - ``expected``: the score of an attribute that has nothing to do with the classes or with likeness, (n - m) /
          (n - 1) where m of n nodes have the value. A value that few nodes have scores high by its rarity alone.
        - ``difference``, ``difference_low``, ``difference_high``: score, low and high less ``expected``. A
          description, not a test: bias against one group need not raise the score. Findings come from
          :func:`cfe_faiss.audit.direct_effects`.
        - ``class_expected``: what the score would be if evidence were drawn at random among all nodes of other
          predicted classes. What it has above ``expected`` is due to classes that differ in the attribute as a whole,
          what ``score`` has above it to the nodes that are alike.
        - ``nodes``, ``evidence``: how many nodes, and pairs of node and evidence, the score is a mean over.
        - ``effective``: how many independent pairs they are worth; NaN where there is no interval.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    - A node with fewer than k evidences counts with the share among those that it has, one without any not at all.
    - Selection: evidence is chosen for being similar. Where the vectors of the index were made with an attribute, its
      scores fall short of ``expected`` by that alone; compare values and models with each other then. An attribute
      that is not in the vectors, nor goes along with what is, scores ``expected`` unless the classes depend on it: to
      test one attribute, index vectors that were made without it. A high score is no proof of a cause in either case.
    - The interval answers whether chance alone gives such a score. Pairs share nodes, and some nodes are the evidence
      of many: 30,000 pairs may be worth no more than 300 independent ones. So the variance of the score is taken, in
      closed form, over all ways to shuffle the attribute over the nodes while the pairs stay (join counts; Cliff & Ord,
      "Spatial Processes", 1981), turned into a number of independent pairs (Kish, "Survey Sampling", 1965), and put
      into the interval of Jeffreys, see ``cfe_faiss.audit.intervals.jeffreys``. For attributes drawn at random it holds
      ``expected`` in 93 to 97 % of trials (nominal 95) for 30, 300 and 3,000 nodes of which .02, .1, .5 or .9 have the
      value, hubs included: ``benchmarks/coverage.py``. The exception is .02 of 30 nodes: where two or three nodes have
      the value, a score has two or three possible values, and the interval holds it nearly always.
    - It is no interval for the score that another sample of nodes would have. Where an attribute that does matter
      clusters among like nodes, the score varies more than chance makes it: see the same benchmark.
    - Each value is judged alone: of 100 values that do not matter, 5 are expected to fall outside.

    After the search O(nodes * k * log(nodes * k)), then O(nodes * k) per attribute.

    Examples
    --------
    >>> import pandas as pd
    >>> import cfe_faiss as cfe
    >>> people = pd.DataFrame({"sex": ["f", "m", "f", "m"], "city": ["A", "A", "B", "B"]})
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
