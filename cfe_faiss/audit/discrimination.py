"""Discrimination scores: which attributes change between a node and its evidence."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.evidence import attributes_of, find_evidence, sensitive_of
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Grouping, group_means, groupings
from cfe_faiss.audit.tables import Floats, Frame, share, stack
from cfe_faiss.base.checks import UNKNOWN, as_count, check_known
from cfe_faiss.finder import EvidenceFinder

_COLUMNS = ("feature", "value", "sensitive", "score", "expected", "difference", "class_expected", "nodes", "evidence")


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
    recall: float | None = None,
    exact: bool = False,
    memory: int | None = None,
    progress: bool = False,
) -> Frame:
    """Return the discrimination score DS of every value of every attribute (paper, section "Revealing Unfairness").

    The score of a value is the mean, over the nodes that have it, of the share of their top-k evidence that lacks it.
    It is a description without inference; :func:`direct_effects` has the tests.

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
        Names of columns or intersections ("sex & race") to list first; by default ``finder.sensitive``.
    nprobe, recall, exact, memory
        Effort of the search, as in :meth:`cfe_faiss.IndexEvidenceIVF.search_evidence`; by default the index's own.
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line per value; values of sensitive attributes first, then the largest difference first:

        - ``feature``, ``value``, ``sensitive``: attribute, value or bin, whether ``sensitive`` names the attribute.
        - ``score``: in [0, 1]; NaN where no node has the value.
        - ``expected``: (n - m) / (n - 1), where m of n nodes have the value: the mean score if the attribute were
          shuffled over the nodes.
        - ``difference``: score minus ``expected``.
        - ``class_expected``: the score if evidence were drawn at random among all nodes of other predicted classes.
        - ``nodes``, ``evidence``: numbers of nodes and of pairs.

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
    k, effort = as_count("k", k), finder.index.as_effort(nprobe, recall, exact, memory)
    groups = groupings(attributes_of(finder), finder.index.members().ids, columns, bins, intersections)
    marked = _find_sensitive(finder, sensitive, groups)
    members, places, _, I = find_evidence(finder, nodes, k, effort, progress)
    scored = I[:, 0] >= 0
    places, found = places[scored], I[scored] >= 0
    evidence = np.searchsorted(members.ids, np.where(found, I[scored], 0))
    has_class = members.labels != UNKNOWN
    counts, n = found.sum(axis=1), int(has_class.sum())
    blocks = []
    for group in groups:
        own, size = group.codes[places], len(group.values)
        lacking = ((group.codes[evidence] != own[:, None]) & found).sum(axis=1) / counts
        holders = np.bincount(group.codes[has_class], minlength=size)
        cases = np.bincount(own, minlength=size)
        score = group_means(lacking, own, size)
        expected = np.where(cases > 0, (n - holders) / max(n - 1, 1), np.nan)
        by_class = group_means(_share_without(group, members.labels)[places], own, size)
        pairs = np.bincount(own, counts, size).astype(np.int64)
        columns_of = (group.name, group.values, group.name in marked, score, expected, score - expected)
        blocks.append(dict(zip(_COLUMNS, (*columns_of, by_class, cases, pairs), strict=True)))
    frame = stack(blocks, _COLUMNS)
    return frame.sort_values(["sensitive", "difference"], ascending=False, kind="stable", ignore_index=True)


def _find_sensitive(finder: EvidenceFinder, sensitive: Sequence[str] | None, groups: list[Grouping]) -> set[str]:
    """Return the scored attributes that are sensitive. ValueError if ``sensitive`` names one that is not scored."""
    known, names = [group.name for group in groups], sensitive_of(finder, sensitive)
    for name in () if sensitive is None else names:
        check_known("sensitive must name attributes that are scored", name, known)
    return set(names) & set(known)


def _share_without(group: Grouping, labels: NDArray[np.int32]) -> Floats:
    """Return for each node the share, among the nodes of other known classes, of those without its value."""
    classes, codes = np.unique(labels, return_inverse=True)
    table = np.zeros((len(group.values), len(classes)))
    np.add.at(table, (group.codes, codes), labels != UNKNOWN)
    eligible = table.sum() - table.sum(axis=0)
    same = np.nan_to_num(share(table.sum(axis=1, keepdims=True) - table, eligible), nan=1)
    of_each: Floats = 1 - same[group.codes, codes]
    return of_each
