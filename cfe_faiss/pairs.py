"""Global evidence: the most similar pairs of stored vectors that the model treats differently."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import as_count
from cfe_faiss.index.exact import NOTHING, Found, Results, best_pairs, search_all, top_pairs
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.ivf import IndexEvidenceIVF


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of vectors with different labels, most similar first, each unordered pair once.

    Attributes
    ----------
    source, target
        Ids, (n,) int64, ``source < target``.
    similarity
        KS of each pair, (n,) float32, descending; equal similarity: smaller ids first.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    similarity: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.similarity)


def global_evidence(
    index: IndexEvidenceFlat | IndexEvidenceIVF,
    k: int,
    *,
    exact: bool = True,
    per_node: bool = False,
    nprobe: int | None = None,
    progress: str | None = None,
) -> Pairs:
    """Return the k most similar pairs with different labels (paper, Problem 2, generalised to k).

    Parameters
    ----------
    index
        An evidence index of either kind.
    k
        Pairs wanted, >= 1; fewer come back when there are fewer.
    exact
        True compares all pairs. False searches each vector's evidence in the index (``nprobe``), and goes deeper only
        for the vectors that could still hold a pair among the k best: it misses what the index misses.
    per_node
        True gives the paper's Algorithm 3 instead: each vector contributes its best evidence only, and the k best of
        these pairs are returned.
    nprobe
        Lists looked into for each vector where an ``IndexEvidenceIVF`` is searched; by default its own ``nprobe``.
    progress
        What to call a progress bar; None for none.

    Returns
    -------
    Pairs
        Best first.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Exact: n**2 / 2 * d multiplications in blocked matrix products, O(k) memory.

    Examples
    --------
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels(np.array([[1, 0], [0.8, 0.6], [0, 1], [0.6, 0.8]], np.float32), [0, 1, 0, 0])
    >>> pairs = cfe.global_evidence(index, k=2)
    >>> pairs.source, pairs.target
    (array([1, 0]), array([3, 1]))
    """
    k = as_count("k", k)
    if nprobe is not None:
        nprobe = as_count("nprobe", nprobe)
    if per_node:
        return Pairs(*_best_of_each(index, k, exact, nprobe, progress))
    if exact:
        with index._gate.reading():
            return Pairs(*top_pairs(index.storage(), k, progress=progress))
    return Pairs(*_searched_pairs(index, k, nprobe, progress))


def _search(
    index: IndexEvidenceFlat | IndexEvidenceIVF,
    ids: NDArray[np.int64] | None,
    k: int,
    nprobe: int | None,
    progress: str | None,
) -> Results:
    if isinstance(index, IndexEvidenceIVF):
        return index.search_members(ids, k, nprobe, progress=progress)
    return index.search_members(ids, k, progress=progress)


def _best_of_each(
    index: IndexEvidenceFlat | IndexEvidenceIVF, k: int, exact: bool, nprobe: int | None, progress: str | None
) -> Found:
    if exact:
        with index._gate.reading():
            rows, ids = index.members().rows, index.members().ids
            D, I = (result[rows] for result in search_all(index.storage(), 1, progress=progress))
    else:
        ids = index.members().ids
        D, I = _search(index, ids, 1, nprobe, progress)
    found = I[:, 0] >= 0
    return best_pairs([(ids[found], I[found, 0], D[found, 0])], k)


def _searched_pairs(
    index: IndexEvidenceFlat | IndexEvidenceIVF, k: int, nprobe: int | None, progress: str | None
) -> Found:
    """Deepen each vector's search until its last result is worse than the k-th best pair found so far."""
    ids = index.members().ids
    depth = min(4, k)
    best = NOTHING
    while len(ids):
        D, I = _search(index, ids, depth, nprobe, progress)
        row, place = np.nonzero(I >= 0)
        best = best_pairs([best, best_pairs([(ids[row], I[row, place], D[row, place])], k)], k)
        if depth == k:
            break
        could_hold_more = I[:, -1] >= 0
        if len(best[2]) == k:
            could_hold_more &= D[:, -1] >= best[2][-1]
        ids = ids[could_hold_more]
        depth = min(4 * depth, k)
    return best
