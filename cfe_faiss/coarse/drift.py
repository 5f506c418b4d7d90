"""Distance of the lists of an inverted file from the centroids of its training."""

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.rows.snapshot import Snapshot, lists_of

_ROWS_AT_ONCE = 1 << 14


def drift(snapshot: Snapshot) -> float:
    """Return the mean of 1 - cos(centroid, mean vector) over lists, weighted by the length of their sums."""
    if not (snapshot.lists and snapshot.n):
        return 0.0
    sums, centroids = list_sums(snapshot), snapshot.centroids[0].astype(np.float64)
    lengths = np.linalg.norm(sums, axis=1).sum()
    return max(0.0, float(1 - (sums * centroids).sum() / lengths)) if lengths > 0 else 0.0


def list_sums(snapshot: Snapshot) -> NDArray[np.float64]:
    """Return the sum of the vectors of each list of the first partition, (nlist, d)."""
    sums = np.zeros((len(snapshot.starts) - 1, snapshot.d))
    for first in range(0, snapshot.n, _ROWS_AT_ONCE):
        rows = np.arange(first, min(first + _ROWS_AT_ONCE, snapshot.n))
        lists = lists_of(rows, snapshot.starts)
        starts = np.flatnonzero(np.diff(lists, prepend=-1))
        sums[lists[starts]] += np.add.reduceat(snapshot.rows(rows)[0].astype(np.float64), starts)
    return sums
