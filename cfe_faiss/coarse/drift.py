"""Drift of an inverted file: how well its lists fit the rows that were changed."""

import numpy as np

from cfe_faiss.base.arrays import Doubles
from cfe_faiss.base.threads import product
from cfe_faiss.rows.snapshot import Snapshot, lists_of

SAMPLE = 4096
"""Largest number of rows that are compared with all lists."""
_ROWS_AT_ONCE = 1 << 14
_COMPARED_AT_ONCE = 1 << 9


def drift(snapshot: Snapshot) -> float:
    """Return the share of rows in a sample that are nearer to the mean of another list.

    The cosine decides or, for the other metrics, whose lists come from an ordinary k-means, the
    distance.
    """
    if not (snapshot.lists and snapshot.n):
        return 0.0
    sums = list_sums(snapshot)
    sizes = np.diff(snapshot.starts)
    if snapshot.metric == "cosine":
        center = np.zeros(snapshot.d)
        lengths = np.linalg.norm(sums, axis=1)
    else:
        center = sums.sum(axis=0) / snapshot.n
        lengths = sizes
    means = (sums - sizes[:, None] * center) / np.maximum(lengths, 1e-30)[:, None]
    halves = np.einsum("ij,ij->i", means, means) / 2
    halves[sizes == 0] = np.inf
    rows = np.sort(
        np.random.default_rng(0).choice(snapshot.n, min(SAMPLE, snapshot.n), replace=False)
    )
    elsewhere = 0
    for first in range(0, len(rows), _COMPARED_AT_ONCE):
        some = rows[first : first + _COMPARED_AT_ONCE]
        S = product(snapshot.rows(some)[0] - center, means.T) - halves
        own = S[np.arange(len(some)), lists_of(some, snapshot.starts)]
        elsewhere += int((S.max(axis=1) > own).sum())
    return elsewhere / len(rows)


def list_sums(snapshot: Snapshot) -> Doubles:
    """Return the sum of the vectors of each list of the first partition, (nlist, d)."""
    sums = np.zeros((len(snapshot.starts) - 1, snapshot.d))
    for first in range(0, snapshot.n, _ROWS_AT_ONCE):
        rows = np.arange(first, min(first + _ROWS_AT_ONCE, snapshot.n))
        lists = lists_of(rows, snapshot.starts)
        starts = np.flatnonzero(np.diff(lists, prepend=-1))
        sums[lists[starts]] += np.add.reduceat(snapshot.rows(rows)[0].astype(np.float64), starts)
    return sums
