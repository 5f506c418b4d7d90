"""Groups of near duplicates, by complete linkage."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform

from cfe_faiss.base.checks import require
from cfe_faiss.base.text import summary
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.pairs import evidence_pairs
from cfe_faiss.rows.metric import Metric, flipped, score_at

_MOST_PAIRS = 1 << 26
_MOST_LINKED_ROWS = 1 << 13
"""Rows of one component; its matrix of distances takes 512 MiB."""
_TOO_MANY = "threshold must be one of nearer rows, got {!r} with more than {}"

Cluster = tuple[NDArray[np.int64], int, float]
"""Rows, ascending; the most central row; the least score of a pair of rows."""


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Rows of a store that are all near duplicates of each other.

    Attributes
    ----------
    ids
        Ids of the rows, at least two, in the order in which they were added.
    representative
        Id of the medoid: the row with the largest sum of similarities to the others.
    similarity
        Least similarity of two rows; for metric "l2" the largest squared distance.
    """

    ids: list[str]
    representative: str
    similarity: float

    __repr__ = summary

    def __len__(self) -> int:
        return len(self.ids)


def cluster_rows(X: NDArray[np.float32], metric: Metric, threshold: float) -> list[Cluster]:
    """Return the clusters of rows of complete linkage, cut at a threshold of D, the largest first.

    Only pairs at the threshold are compared: SciPy links the connected components of their graph.

    Raises
    ------
    ValueError
        If too many rows are linked for the memory.
    """
    n = len(X)
    index = IndexEvidenceFlat(X.shape[1], metric)
    index.add_with_labels(X, np.arange(n))
    parts = []
    count = 0
    for block in evidence_pairs(index, threshold):
        count += len(block)
        require(count <= _MOST_PAIRS, _TOO_MANY.format(threshold, f"{_MOST_PAIRS:,} pairs"))
        parts.append((block.source, block.target, flipped(block.similarity, metric)))
    if not parts:
        return []
    source, target, scores = map(np.concatenate, zip(*parts, strict=True))
    graph = coo_array((np.ones(count, bool), (source, target)), shape=(n, n))
    component = connected_components(graph, directed=False)[1]
    largest = np.bincount(component).max()
    linked = f"{_MOST_LINKED_ROWS:,} rows that are linked by pairs"
    require(largest <= _MOST_LINKED_ROWS, _TOO_MANY.format(threshold, linked))
    order = np.argsort(component[source], kind="stable")
    cuts = np.flatnonzero(np.diff(component[source[order]])) + 1
    least = float(score_at(threshold, metric))
    clusters: list[Cluster] = []
    for edges in np.split(order, cuts):
        ends = np.array([source[edges], target[edges]])
        clusters += _link(ends, scores[edges].astype(np.float64), least)
    clusters.sort(key=lambda cluster: (-len(cluster[0]), cluster[0][0]))
    return clusters


def _link(ends: NDArray[np.int64], scores: NDArray[np.float64], least: float) -> list[Cluster]:
    """Return the clusters of at least two rows of one component, given all its pairs, (2, p)."""
    rows, places = np.unique(ends, return_inverse=True)
    m = len(rows)
    first, second = np.sort(places.reshape(2, -1), axis=0)
    best = scores.max()
    cut = best - least
    distances = np.full(m * (m - 1) // 2, 2 * cut + 1)  # farther than the cut
    distances[m * first - first * (first + 1) // 2 + second - first - 1] = best - scores
    cluster_of = fcluster(linkage(distances, "complete"), cut, "distance")
    square = squareform(distances)
    clusters: list[Cluster] = []
    order = np.argsort(cluster_of, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(cluster_of[order])) + 1):
        if len(members) > 1:
            inside = square[np.ix_(members, members)]
            medoid = int(rows[members[inside.sum(axis=1).argmin()]])
            clusters.append((rows[members], medoid, float(best - inside.max())))
    return clusters
