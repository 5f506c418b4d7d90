"""What the applications ask of an index."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.checks import as_array, as_labels
from cfe_faiss.index.kinds import EvidenceIndex
from cfe_faiss.lists.snapshot import Members
from cfe_faiss.search.exact import Results


def search_members(
    index: EvidenceIndex, ids: NDArray[np.int64] | None, k: int, nprobe: int | None, progress: str | None
) -> Results:
    """Return the evidence of stored vectors; ``nprobe`` means nothing to an exact index."""
    return index.search_members(ids, k, nprobe, progress=progress)


def audited(index: EvidenceIndex, nodes: ArrayLike | None) -> tuple[Members, NDArray[np.int64]]:
    """Return what the index holds, and the places among its ids of the nodes, each once (by default all)."""
    known = index.members()
    if nodes is None:
        return known, np.arange(len(known.ids))
    known.find(nodes, name="nodes")
    return known, np.searchsorted(known.ids, np.unique(as_array("nodes", nodes)))


def true_classes(y: Any, known: Members) -> NDArray[np.int32]:
    """Return the true class of each member from ``y``, shape (n,), or ``y.y``; -1 where it is not known.

    Raises
    ------
    TypeError, ValueError
        If the classes are not integers >= -1, or a member has none.
    """
    values = as_array("y", y if getattr(y, "y", None) is None else y.y)
    classes = as_labels("y", values, len(values) if values.ndim else 0, unknown=True)
    if len(known.ids) and known.ids[-1] >= len(classes):
        raise ValueError(f"y must hold the class of every node of the index, got {len(classes)} for {known.ids[-1]}")
    return classes[known.ids]
