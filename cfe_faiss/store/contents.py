"""Contents of a store: an evidence index and the table of its rows, which change together or not at all.

The core replaces the table in the same call that changes the index, so neither an interrupt nor an error separates the
two. Callers hold the store's lock.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import call_steps
from cfe_faiss.index.ivf_base import automatic_nlist
from cfe_faiss.rows.faiss_functions import setting
from cfe_faiss.rows.id_map import relabelled_rows
from cfe_faiss.rows.snapshot import UnknownIdError
from cfe_faiss.store.results import Metadata
from cfe_faiss.store.table import Table

_TRAINING_VECTORS = 39
"""FAISS's least number of training vectors per list."""


class Contents:
    """An index and a table.

    Attributes
    ----------
    index
        An evidence index, whose ids are the keys of the table. After an interrupted change it may also hold replaced
        rows; the next change removes them.
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
        # Key of each id. It may hold removed ids: an id is stored if the table has its key.
        self._keys: dict[str, int] = dict(zip(table.ids.tolist(), table.keys.tolist(), strict=True))

    def rows_of(self, ids: list[str]) -> NDArray[np.int64]:
        """Return the row of each id, -1 for an unknown one."""
        find = self._keys.get
        return self.table.find(np.array([find(one, -1) for one in ids], np.int64))

    def known_rows_of(self, ids: list[str]) -> NDArray[np.int64]:
        """Return the row of each id; UnknownIdError names the first unknown one."""
        rows = self.rows_of(ids)
        if min(rows.tolist(), default=0) < 0:
            raise UnknownIdError(f"ids must be in the store, got {ids[int(np.argmin(rows))]!r}, which is not")
        return rows

    def insert(self, table: Table, new: Table, X: NDArray[np.float32], old: NDArray[np.int64]) -> None:
        """Add rows without keys in place of the rows ``old``; ``table`` is the current one with their classes."""
        self._sweep()
        self._train_by(X)
        keys = np.arange(self.next_key, self.next_key + len(X))
        self.next_key += len(X)
        gone, stored = self.table.keys[old], self.table.ids[old].tolist()
        after, steps = table.with_rows(replace(new, keys=keys)).without(old)
        by_id = dict(zip(new.ids, keys.tolist(), strict=True))
        # A stored id gets its new key within the change, which takes no memory. A new id gets its key now: without a
        # row of that key it is not stored yet.
        steps += [(self._keys.__setitem__, (one, by_id.pop(one))) for one in stored]
        self._keys.update(by_id)
        steps.append(setting(self, "table", after))
        index = self.index
        with index.changing() as transaction:
            transaction.insert(X, new.labels, keys, steps)
        if len(gone):
            with suppress(MemoryError):  # the next change removes them
                index.remove_ids(gone)

    def _sweep(self) -> None:
        """Remove the rows that an interrupted change has left in the index."""
        if self.index.ntotal != len(self.table):
            stored = self.index.members().ids
            self.index.remove_ids(np.setdiff1d(stored, self.table.keys[self.table.rows]))

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
        gone, names, index = self.table.keys[rows], self.table.ids[rows].tolist(), self.index
        after, steps = self.table.without(rows)
        with index.changing() as transaction:
            stored = np.sort(transaction.snapshot.find(gone))
            transaction.remove(stored, [*steps, setting(self, "table", after)])
        for one in names:
            self._keys.pop(one, None)

    def relabel(self, table: Table, rows: NDArray[np.int64], numbers: NDArray[np.int32]) -> None:
        """Give rows, (m,), other class numbers; ``table`` is the current one with these classes."""
        self._sweep()
        (after, steps), index = table.with_labels(rows, numbers), self.index
        with index.changing() as transaction:
            changed = relabelled_rows(transaction.snapshot, numbers, self.table.keys[rows])
            transaction.relabel(*changed, [*steps, setting(self, "table", after)])

    def describe(self, rows: NDArray[np.int64], metadata: list[Metadata]) -> None:
        """Give rows, (m,), other metadata."""
        after, steps = self.table.with_metadata(rows, metadata)
        with self.index.changing():
            call_steps([*steps, setting(self, "table", after)], [])
