"""Changes of an index for whoever is inside of ``index.changing()``: each is prepared aside and committed at once.

``also`` are steps that are taken in the same moment, such as ``setting(owner, name, value)``: what an owner keeps
beside an index changes with it, or not at all.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.rows import id_map
from cfe_faiss.rows.faiss_functions import Step
from cfe_faiss.rows.layout import Bytes

Floats = NDArray[np.float32]
Labels = NDArray[np.int32]
Ids = NDArray[np.int64]


class Transaction:
    """What may be done to the rows of an index, which is not checked again but for ids."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._lists = index._faiss_lists()

    def new_ids(self, ids: ArrayLike | None, n: int) -> Ids:
        """Return n ids for vectors to be added, checked: distinct and not in the index yet; by default ntotal, ..."""
        table = self._index._table
        id_map.check_unchanged(self._index.ntotal, len(table))
        return id_map.new_ids(table, self._lists, ids, n)

    def insert(self, X: Floats, labels: Labels, ids: ArrayLike | None, also: list[Step] | None = None) -> None:
        """Add unit vectors."""
        self._index._insert(self._lists, X, labels, self.new_ids(ids, len(X)), also or [])

    def append(
        self, codes: Bytes, labels: Labels, ids: ArrayLike | None, lists: NDArray[np.int32], **also: Any
    ) -> None:
        """Add codes to their lists, (partitions, n), with ``vectors`` beside them where the index keeps vectors."""
        vectors, steps = also.get("vectors"), also.get("also", [])
        self._index._append(self._lists, codes, vectors, labels, self.new_ids(ids, len(codes)), lists, steps)

    def remove(self, gone: NDArray[np.bool_], also: list[Step] | None = None) -> None:
        """Remove the rows that are marked, (n,)."""
        self._index._remove(gone, self._index.snapshot().row_ids[~gone], also or [])

    def relabel(self, labels: Labels, also: list[Step] | None = None) -> None:
        """Give all rows new labels, (n,)."""
        self._index._relabel(labels, also or [])
