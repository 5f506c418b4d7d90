"""Individual fairness in one number: how often a node is closer to another class than to its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from cfe_faiss.audit.evidence import attributes_of, drop_self, find_evidence
from cfe_faiss.audit.groups import DEFAULT_BINS, Bins, Grouping, group_means, groupings
from cfe_faiss.audit.intervals import clustered_wilson, expect_by_exchange, near_cells
from cfe_faiss.audit.tables import Floats, Frame, Ints, data_frame
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.finder import EvidenceFinder
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.rows.snapshot import Members
from cfe_faiss.search.query import Effort, Query

_MOST_TIES = 16


def consistency(  # noqa: PLR0913
    finder: EvidenceFinder,
    *,
    nodes: Any = None,
    columns: Sequence[str] | None = None,
    bins: Bins = DEFAULT_BINS,
    intersections: Sequence[Sequence[str]] = (),
    nprobe: int | None = None,
    recall: float | None = None,
    exact: bool = False,
    memory: int | None = None,
    confidence: float = 0.95,
    progress: bool = False,
) -> Frame:
    """Return the share of nodes whose nearest evidence is closer than their nearest node of the same class, per group.

    The share counts the nodes that the model treats differently from their most similar node: 0 is consistent. It is
    one minus the consistency of Zemel et al. (ICML 2013) with one neighbour, for predicted classes and with KS as the
    similarity. :doc:`/user_guide/audit` has the method.

    Parameters
    ----------
    finder
        Its searched nodes are compared.
    nodes
        Ids of the nodes to judge, (n,), or a mask; by default all searched nodes. Repeated ones count once.
    columns, bins, intersections
        Groups of nodes, as in :func:`cfe_faiss.audit.discrimination_scores`. A finder without attributes, or an empty
        list of columns, gives the line of all nodes only.
    nprobe, recall, exact, memory
        Effort of the search, as in :meth:`cfe_faiss.IndexEvidenceIVF.search_evidence`; by default the index's own.
    confidence
        Of the intervals, in (0, 1).
    progress
        Whether to show a progress bar on standard error.

    Returns
    -------
    DataFrame
        One line for all nodes (``feature`` "all"), then one per group:

        - ``feature``, ``value``: the attribute and its value or bin.
        - ``share``, ``low``, ``high``: share and interval, for all groups of the attribute at once; NaN without nodes.
        - ``expected``, ``expected_low``, ``expected_high``: mean share if classes are exchanged among near neighbours,
          and the range that holds ``confidence`` of such exchanges. A share below the range is no finding.
        - ``difference``: share - expected.
        - ``nodes``, ``closer``: nodes that were judged, and those whose evidence is (strictly) closer.
        - ``tied``: nodes with several nearest nodes of equal similarity, such as copies.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    A node without evidence or alone in its class is left out. Of equally near nodes, 16 count in the expectation and in
    the clusters of the interval: with more copies than that, the interval is too narrow. Two exact searches of all
    nodes, and n_c**2 * d multiplications for each class of n_c nodes.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> X = [[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.2, 0.9]]
    >>> finder = cfe.EvidenceFinder.from_vectors(X, [0, 0, 1, 1, 0])
    >>> consistency(finder)[["feature", "share", "nodes", "closer"]]
      feature  share  nodes  closer
    0     all    0.4      5       2
    """
    index = finder.index
    effort = index.as_effort(nprobe, recall, exact, memory)
    members, places, D, I = find_evidence(finder, nodes, 1, effort, progress)
    groups = [Grouping.of_all(len(members.ids))]
    if finder.attributes is not None or columns or intersections:
        groups += groupings(attributes_of(finder), members.ids, columns, bins, intersections)
    same = _nearest_of_same_class(index, members, places, effort)
    judged = (I[:, 0] >= 0) & ~np.isnan(same)
    places, nearest, same = places[judged], D[judged, 0], same[judged]
    closer = (nearest > same).astype(np.float64)
    row, neighbour = _nearest_of_all(index, members, places, np.maximum(nearest, same), effort)
    tied = np.bincount(row, minlength=len(places)) > 1
    # Nodes that are connected by nearest neighbours are one cluster of the interval.
    graph = coo_array((np.ones(len(row), bool), (places[row], neighbour)), (len(members.ids),) * 2)
    cluster = connected_components(graph, directed=False)[1][places]
    known_class = np.flatnonzero(members.labels != UNKNOWN)
    cells = near_cells(index.reconstruct_batch(members.ids[known_class]))

    def shares(order: Ints) -> Floats:
        labels = members.labels.copy()
        labels[known_class] = labels[known_class][order]
        is_same = np.bincount(row, labels[neighbour] == labels[places[row]], len(places)) > 0
        return np.concatenate([group_means(~is_same, group.codes[places], len(group.values)) for group in groups])

    lines = [(group, value) for group in groups for value in range(len(group.values))]
    expected = expect_by_exchange(cells, shares, confidence).T if len(places) else np.full((len(lines), 3), np.nan)
    rows = []
    for (group, value), by_exchange in zip(lines, expected, strict=True):
        own = group.codes[places] == value
        hits, cases = (np.bincount(cluster[own], weights) for weights in (closer[own], None))
        mean = float(closer[own].mean()) if own.any() else np.nan
        low, high = clustered_wilson(hits, cases, 1 - (1 - confidence) / len(group.values))
        line = {"feature": group.name, "value": group.values[value], "share": mean, "low": low, "high": high}
        line |= dict(zip(("expected", "expected_low", "expected_high"), by_exchange, strict=True))
        line |= {"difference": mean - by_exchange[0], "nodes": int(own.sum()), "closer": int(hits.sum())}
        rows.append(line | {"tied": int(tied[own].sum())})
    return data_frame(rows)


def _nearest_of_same_class(index: EvidenceIndex, members: Members, places: Ints, effort: Effort) -> NDArray[np.float32]:
    """Return the largest similarity of each node to others of its class, (n,); NaN without others."""
    nearest = np.full(len(places), np.nan, np.float32)
    labels = members.labels[places]
    for label in np.unique(labels[labels != UNKNOWN]).tolist():
        rows = np.flatnonzero(labels == label)
        ids = members.ids[places[rows]]
        X, absent = index.reconstruct_batch(ids), np.full(len(ids), _absent(members), np.int32)
        D, I = index.answer(Query(2, X=X, labels=absent, targets=[label]), effort)
        D, I = drop_self(D, I, ids)
        nearest[rows] = np.where(I[:, 0] >= 0, D[:, 0], np.float32(np.nan))
    return nearest


def _nearest_of_all(
    index: EvidenceIndex, members: Members, places: Ints, nearest: NDArray[np.float32], effort: Effort
) -> tuple[Ints, Ints]:
    """Return pairs of a position in ``places`` and the position of a nearest member, up to 16 for each."""
    ids = members.ids[places]
    X, absent = index.reconstruct_batch(ids), np.full(len(ids), _absent(members), np.int32)
    D, I = index.answer(Query(_MOST_TIES + 1, X=X, labels=absent), effort)
    row, column = np.nonzero((nearest[:, None] <= D) & (I >= 0) & (ids[:, None] != I))
    return row, np.searchsorted(members.ids, I[row, column])


def _absent(members: Members) -> int:
    """Return a class that no stored vector has: as a query's class it excludes no vector."""
    return int(members.labels.max(initial=0)) + 1
