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
    blocks = []
    count = 0
    for block in evidence_pairs(index, threshold):
        count += len(block)
        require(
            count <= _MOST_PAIRS,
            f"threshold must leave at most {_MOST_PAIRS:,} pairs, got {threshold!r} with more: "
            f"give one of nearer rows",
        )
        blocks.append(block)
    if not blocks:
        return []
    source = np.concatenate([block.source for block in blocks])
    target = np.concatenate([block.target for block in blocks])
    scores = flipped(np.concatenate([block.similarity for block in blocks]), metric)
    graph = coo_array((np.ones(count, bool), (source, target)), shape=(n, n))
    component = connected_components(graph, directed=False)[1]
    order = np.argsort(component[source], kind="stable")
    cuts = np.flatnonzero(np.diff(component[source][order])) + 1
    least = float(score_at(threshold, metric))
    clusters: list[Cluster] = []
    for edges in np.split(order, cuts):
        clusters += _link(source[edges], target[edges], scores[edges].astype(np.float64), least)
    clusters.sort(key=lambda cluster: (-len(cluster[0]), cluster[0][0]))
    return clusters


def _link(
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    scores: NDArray[np.float64],
    least: float,
) -> list[Cluster]:
    """Return the clusters of at least two rows of one component."""
    rows, places = np.unique([source, target], return_inverse=True)
    m = len(rows)
    require(
        m <= _MOST_LINKED_ROWS,
        f"threshold must link at most {_MOST_LINKED_ROWS:,} rows, got {m:,} that are linked by "
        f"pairs: give one of nearer rows",
    )
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
