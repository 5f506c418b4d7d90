"""Groups of near duplicates, by complete linkage."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import require
from cfe_faiss.base.text import summary
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.pairs import evidence_pairs
from cfe_faiss.rows.metric import Metric, flipped, is_distance, score_at

_MOST_PAIRS = 1 << 26
_MOST_LINKED_ROWS = 1 << 13
"""Rows of one component; its matrix of distances takes 512 MiB."""
_TOO_MANY = "threshold must be one of nearer rows, got {!r} with more than {}"


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


def duplicate_groups(
    ids: NDArray[np.object_], X: NDArray[np.float32], metric: Metric, threshold: float
) -> list[DuplicateGroup]:
    """Return the groups of rows of complete linkage, cut at a threshold of D, the largest first.

    Only pairs at the threshold are compared: SciPy links the connected components of their graph.

    Raises
    ------
    TypeError, ValueError
        If the metric has no such threshold, or too many rows are linked for the memory.
    """
    from scipy.cluster.hierarchy import fcluster, linkage  # 0.2 s, half of the import of a store
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial.distance import squareform

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
    linked = f"{_MOST_LINKED_ROWS:,} rows that are linked by pairs"
    require(np.bincount(component).max() <= _MOST_LINKED_ROWS, _TOO_MANY.format(threshold, linked))
    order = np.argsort(component[source], kind="stable")
    groups = []
    for pairs in np.split(order, np.flatnonzero(np.diff(component[source[order]])) + 1):
        rows, places = np.unique([source[pairs], target[pairs]], return_inverse=True)
        away = scores[pairs].max() - scores[pairs].astype(np.float64)
        cut = float(scores[pairs].max()) - score_at(threshold, metric)
        distances = np.full((len(rows), len(rows)), 2 * cut + 1)  # farther than the cut
        np.fill_diagonal(distances, 0)
        first, second = places.reshape(2, -1)
        distances[first, second] = away
        distances[second, first] = away
        cluster_of = fcluster(linkage(squareform(distances), "complete"), cut, "distance")
        for number in np.flatnonzero(np.bincount(cluster_of) > 1):
            members = np.flatnonzero(cluster_of == number)
            inside = distances[np.ix_(members, members)]
            score = float(scores[pairs].max() - inside.max())
            groups.append(
                DuplicateGroup(
                    ids[rows[members]].tolist(),
                    ids[rows[members[inside.sum(axis=1).argmin()]]],
                    -score if is_distance(metric) else score,
                )
            )
    groups.sort(key=len, reverse=True)
    return groups
