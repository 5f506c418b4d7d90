"""What a store holds: an evidence index and the table of its rows, which change together or not at all.

The table is replaced in the very call of the core that changes the index, so that neither an interrupt nor an error
falls in between. Whoever calls is inside of the store's lock.
"""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.index.ivf_base import automatic_nlist
from cfe_faiss.index.transaction import Transaction
from cfe_faiss.lists.faiss_functions import setting
from cfe_faiss.lists.snapshot import UnknownIdError
from cfe_faiss.store.table import NewRows, Table

_TRAINING_VECTORS = 39
"""Vectors that each list should have for its centroid: FAISS's own least number."""


class Contents:
    """An index and a table.

    Attributes
    ----------
    index
        An evidence index, whose ids are the keys of the table. There may be others among them, of rows that are no
        more, where a change was interrupted; the next change removes these.
    d
        Length of the vectors.
    table
        The rows.
    next_key
        The key of the next new row; no key is used twice.
    """

    def __init__(self, index: Any, table: Table, next_key: int) -> None:
        self.index = index
        self.d = int(index.d)
        self.table = table
        self.next_key = next_key
        # Of each id its key. Ids that are no more may be left here: what counts is whether the table has the key.
        self._keys: dict[str, int] = dict(zip(table.ids.tolist(), table.keys.tolist(), strict=True))

    def rows_of(self, ids: list[str]) -> NDArray[np.int64]:
        """Return the row of each id, -1 where there is none."""
        find = self._keys.get
        return self.table.rows_of(np.array([find(one, -1) for one in ids], np.int64))

    def known_rows_of(self, ids: list[str]) -> NDArray[np.int64]:
        """Return the row of each id; UnknownIdError names the first that is not stored."""
        rows = self.rows_of(ids)
        if min(rows.tolist(), default=0) < 0:
            raise UnknownIdError(f"ids must be in the store, got {ids[int(np.argmin(rows))]!r}, which is not")
        return rows

    def insert(self, table: Table, rows: NewRows, X: NDArray[np.float32], old: NDArray[np.int64]) -> None:
        """Add rows in place of the rows ``old``; ``table`` is the one at hand, with the classes of the new rows."""
        self._sweep()
        self._train_by(X)
        keys = np.arange(self.next_key, self.next_key + len(X))
        self.next_key += len(X)
        gone, after = self.table.keys[old], table.without(old).with_rows(keys, rows)
        by_id = dict(zip(rows.ids, keys.tolist(), strict=True))
        stored = self.table.ids[old].tolist()
        # An id that is stored takes its new key in the moment of the change, which takes no memory any more; others
        # have theirs before, as long as the table does not know it.
        replaced = [(self._keys.__setitem__, (one, by_id.pop(one))) for one in stored]
        self._keys.update(by_id)
        index = self.index
        with index.changing():
            Transaction(index).insert(X, rows.labels, keys, [setting(self, "table", after), *replaced])
        if len(gone):
            with suppress(MemoryError):  # the next change does it
                index.remove_ids(gone)

    def _sweep(self) -> None:
        """Remove from the index what an interrupted change has left there."""
        if self.index.ntotal != len(self.table):
            stored = self.index.members().ids
            self.index.remove_ids(np.setdiff1d(stored, self.table.keys))

    def _train_by(self, X: NDArray[np.float32]) -> None:
        index = self.index
        if index.is_trained:
            return
        needed = _TRAINING_VECTORS * (index.nlist or automatic_nlist(len(X)))
        if len(X) < needed:
            raise ValueError(
                f"the first rows train {index!r} and must be at least {needed}, got {len(X)}: call train(vectors) "
                "first, or add more rows at once"
            )
        index.train(X)

    def remove(self, rows: NDArray[np.int64]) -> None:
        """Remove rows, (m,), each once."""
        self._sweep()
        after, gone, index = self.table.without(rows), self.table.keys[rows], self.index
        names = self.table.ids[rows].tolist()
        with index.changing():
            Transaction(index).remove(np.isin(index.snapshot().row_ids, gone), [setting(self, "table", after)])
        for one in names:
            self._keys.pop(one, None)

    def relabel(self, table: Table, rows: NDArray[np.int64], numbers: NDArray[np.int32]) -> None:
        """Give rows new class numbers; ``table`` is the one at hand, with these classes."""
        self._sweep()
        after, index = table.with_labels(rows, numbers), self.index
        with index.changing():
            labels = after.labels[index.snapshot().members.places]
            Transaction(index).relabel(labels, [setting(self, "table", after)])
