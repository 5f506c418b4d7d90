"""Routing: which lists a query looks into."""

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.partition import nearest_centroids


def nearest_lists(X: NDArray[np.float32], centroids: NDArray[np.float32], nprobe: int) -> NDArray[np.int64]:
    """Return the ``nprobe`` lists of any partition whose centroids are nearest to each query, nearest first.

    As the weight of a vector rises with the angle to its centroid, the nearest of all centroids belongs to the paper's
    optimal partition and its optimal cluster (paper, "Index Construction").

    Parameters
    ----------
    X
        Unit queries, (nq, d).
    centroids
        (partitions, nlist, d), unit rows. List j of partition i has the number ``i * nlist + j``.
    nprobe
        Lists wanted; if it is at least partitions * nlist, all lists of the first partition are returned: every vector.

    Returns
    -------
    (nq, nprobe or nlist) int64.
    """
    partitions, nlist, d = centroids.shape
    if nprobe >= partitions * nlist:
        return np.tile(np.arange(nlist), (len(X), 1))
    return nearest_centroids(X, centroids.reshape(-1, d), nprobe)[1]
