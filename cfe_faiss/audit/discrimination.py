"""Discrimination scores: which attributes change between a node and its evidence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.audit.evidence import audited, search_members
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Grouping, groupings
from cfe_faiss.audit.intervals import bootstrap_mean
from cfe_faiss.checks import UNKNOWN, as_count
from cfe_faiss.extras import extra
from cfe_faiss.index.kinds import EvidenceIndex

if TYPE_CHECKING:
    import pandas as pd


def discrimination_scores(
    index: EvidenceIndex,
    nodes: ArrayLike | None,
    features: Any,
    k: int = 10,
    *,
    columns: Sequence[str] | None = None,
    bins: Bins = DEFAULT_BINS,
    intersections: Sequence[Sequence[str]] = (),
    nprobe: int | None = None,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
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
    index
        Evidence index of either kind: evidence comes from all its vectors.
    nodes
        Ids of the nodes v to score, (n,); None for all of the index. Repeated ones count once.
    features
        Attributes of every node of the index, sensitive or not: a ``DataFrame`` whose index holds node ids, or PyG
        ``Data``, see :func:`cfe_faiss.audit.groups.groupings`.
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
    nprobe
        Lists that an ``IndexEvidenceIVF`` looks into for each node; by default its own ``nprobe``. Exact indexes look
        at everything.
    confidence, resamples, seed
        Of the bootstrap interval over the nodes, see :func:`cfe_faiss.audit.bootstrap_mean`.
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line per value, highest score first:

        - ``feature``, ``value``: the attribute and its value or bin.
        - ``score``, ``low``, ``high``: the mean and its interval, in [0, 1]; NaN where no node has the value.
        - ``expected``: what the score would be if evidence were drawn at random among all nodes of other predicted
          classes. A value that few nodes have scores high by its rarity alone.
        - ``nodes``, ``evidence``: how many nodes, and pairs of node and evidence, the score is a mean over.

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
    - Nodes share evidence and neighbourhoods, so they are not independent; intervals are for other nodes of the same
      kind under this very model, and rather too narrow.

    After the search O(nodes * k) per attribute.

    Examples
    --------
    >>> import pandas as pd
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels(np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9]], np.float32), [0, 1, 0, 1])
    >>> people = pd.DataFrame({"sex": ["f", "m", "f", "m"], "city": ["A", "A", "B", "B"]})
    >>> scores = discrimination_scores(index, None, people, k=1)
    >>> scores[["feature", "value", "score", "expected", "nodes"]]
      feature value  score  expected  nodes
    0     sex     f    1.0       1.0      2
    1     sex     m    1.0       1.0      2
    2    city     A    0.0       0.5      2
    3    city     B    0.0       0.5      2
    """
    with extra("gnn"):
        import pandas as pd

    k = as_count("k", k)
    known, places = audited(index, nodes)
    groups = groupings(features, known.ids, columns, bins, intersections)
    _, I = search_members(
        index, None if nodes is None else known.ids[places], k, nprobe, "Searching" if progress else None
    )
    scored = I[:, 0] >= 0
    places, found = places[scored], I[scored] >= 0
    evidence = np.searchsorted(known.ids, np.where(found, I[scored], 0))
    counts = found.sum(axis=1)
    rows: list[tuple[object, ...]] = []
    for group in groups:
        own = group.codes[places]
        lacking = ((group.codes[evidence] != own[:, None]) & found).sum(axis=1) / counts
        expected = _share_without(group, known.labels)[places]
        ends = np.cumsum(np.bincount(own, minlength=len(group.values)))
        members = np.split(np.argsort(own, kind="stable"), ends[:-1])
        for value, nodes_of in zip(group.values, members, strict=False):
            low, high = bootstrap_mean(lacking[nodes_of], confidence, resamples, seed)
            score, by_chance = _mean(lacking[nodes_of]), _mean(expected[nodes_of])
            rows.append((group.name, value, score, low, high, by_chance, len(nodes_of), int(counts[nodes_of].sum())))
    frame = pd.DataFrame(rows, columns=["feature", "value", "score", "low", "high", "expected", "nodes", "evidence"])
    return frame.sort_values("score", ascending=False, kind="stable", ignore_index=True)


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else np.nan


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
