"""Changes of an index, for ``with index.changing() as transaction``. Each is prepared aside and committed atomically.

``also`` are further steps of the same commit, such as ``setting(owner, name, value)``. They keep the data of an owner
consistent with its index: both change, or neither.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss.base.arrays import Bytes, Floats, Int32s, Ints
from cfe_faiss.rows import id_map
from cfe_faiss.rows.faiss_functions import Step
from cfe_faiss.rows.snapshot import Snapshot


class Transaction:
    """Changes of the rows of an index. Only ids are checked; the caller checks all other arguments."""

    def __init__(self, index: Any) -> None:
        self._index = index
        self._lists = index._faiss_lists()

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot."""
        snapshot: Snapshot = self._index.snapshot()
        return snapshot

    def new_ids(self, ids: ArrayLike | None, n: int) -> Ints:
        """Return n new ids, checked to be distinct and not in the index; by default those after the largest id."""
        table = self._index._table
        id_map.check_unchanged(self._index.ntotal, len(table))
        new: Ints = self._index.new_ids(self._lists, ids, n)
        return new

    def insert(self, X: Floats, labels: Int32s, ids: ArrayLike | None, also: list[Step] | None = None) -> None:
        """Add vectors as the index stores them."""
        self._index._insert(self._lists, X, labels, self.new_ids(ids, len(X)), also or [])

    def append(self, codes: Bytes, labels: Int32s, ids: ArrayLike | None, lists: Int32s, **also: Any) -> None:
        """Add codes to their ``lists``, (partitions, n); ``vectors`` are required if the index stores them."""
        vectors, steps = also.get("vectors"), also.get("also", [])
        self._index._append(self._lists, codes, vectors, labels, self.new_ids(ids, len(codes)), lists, steps)

    def remove(self, rows: Ints, also: list[Step] | None = None) -> None:
        """Remove rows, (m,), in strictly ascending order."""
        nothing = np.empty((0, self._index.d), np.float32), np.empty(0, np.int32), np.empty(0, np.int64)
        self._index._replace_rows(self._lists, rows, *nothing, also or [])

    def encode(self, labels: ArrayLike, n: int) -> tuple[Int32s, list[Step]]:
        """Return the codes of n labels, -1 or None for unknown ones, and the steps that keep new labels."""
        encoder = self._index.label_encoder()
        return encoder("labels", labels, n, unknown=True), self._index._keeping(encoder)

    def replace(self, gone: Ints, X: Floats, labels: Int32s | None, ids: Ints, also: list[Step] | None = None) -> None:
        """Remove the rows with the ids ``gone`` and add vectors as stored, (m, d), with ``ids``, in one commit.

        ``ids`` are stored only if they are in ``gone``. Without labels, vector i gets the label of ``gone[i]``.
        """
        for some in (gone, ids):
            id_map.distinct_ids(some, len(some), 0)
        rows = self.snapshot.find(gone)
        if labels is None:
            labels = self.snapshot.labels[rows]
        if not np.array_equal(ids, gone):
            new = ids[~np.isin(ids, gone)]
            self.new_ids(new, len(new))
        self._index._replace_rows(self._lists, rows, X, labels, ids, [*self._index._lengthening(X), *(also or [])])

    def relabel(self, rows: Ints, labels: Int32s, also: list[Step] | None = None) -> None:
        """Replace the labels of rows, (m,), in strictly ascending order."""
        self._index._relabel(rows, labels, also or [])
