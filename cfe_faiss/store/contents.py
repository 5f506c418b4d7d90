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
from cfe_faiss.rows.id_map import relabelled_rows, unknown_labels
from cfe_faiss.rows.snapshot import Snapshot, UnknownIdError
from cfe_faiss.search.query import Effort, Query, Results, Rules
from cfe_faiss.store.filters import Mask
from cfe_faiss.store.table import Table
from cfe_faiss.store.values import Metadata

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

    def parts(self) -> tuple[Any, Table, int]:
        """Return the index, the rows without what filters derive from them, and the next key."""
        return self.index, replace(self.table.only(self.table.rows), columns={}), self.next_key

    def at_most(self, k: int) -> int:
        """Return k, or the number of rows if that is less, at least 1: no search returns more."""
        return max(1, min(k, len(self.table)))

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

    # --- searches: exact with a filter --------------------------------------------------------------------------------

    def search(self, X: NDArray[np.float32], k: int, mask: Mask | None) -> Results:
        """Return the k nearest rows of unit queries, of any class: similarities D and keys I, -1 for none."""
        query = Query(k, X=X, labels=unknown_labels(len(X)), rules=Rules("any"))
        if mask is None and self.index.ntotal == len(self.table) and self.index.has_lists:
            return self._search_lists(X, query)
        return self._search_exactly(query, mask)

    def evidence(self, query: Query, mask: Mask | None, effort: Effort) -> Any:
        """Return the evidence of a query about unit vectors with class numbers: similarities D, keys I, -1 for none."""
        if mask is not None or self.index.ntotal != len(self.table):
            return self._search_exactly(query, mask)
        if query.rules is not None:
            return self.index.answer(query, effort)
        nprobe, recall, exact, memory = effort[:4]  # search_evidence has a fast path for one query
        how: dict[str, Any] = {"recall": recall, "exact": exact, "memory": memory}
        return self.index.search_evidence(query.X, query.labels, query.k, nprobe, **how)

    def _search_exactly(self, query: Query, mask: Mask | None) -> Results:
        with self.index.holding() as snapshot:
            queries = replace(query.bind(snapshot), allowed=self._allowed(snapshot, mask))
            found: Results = self.index.answer_on(snapshot, queries, Effort(exact=True))
        return found

    def _allowed(self, snapshot: Snapshot, mask: Mask | None) -> Mask | None:
        """Return whether a search may find each row of the snapshot, (n,); None for all rows."""
        table = self.table
        if snapshot.n == len(table):
            return None if mask is None else (mask[table.rows] if table.gone else mask)[snapshot.members.places]
        rows = table.find(snapshot.row_ids)  # an interrupted change may have left other rows in the index
        allowed: Mask = rows >= 0
        return allowed if mask is None else allowed & np.append(mask, False)[rows]

    def _search_lists(self, X: NDArray[np.float32], query: Query) -> Results:
        """Return the nearest rows of the index's ``nprobe`` lists, or of more lists where those hold too few rows.

        Rows of other lists may be as near as the last result, so an exact search decides between equal rows.
        """
        D, I = self.index.answer(replace(query, k=query.k + 1), Effort())
        tied = (D[:, -2] == D[:, -1]) & (I[:, -1] >= 0)
        D, I = D[:, :-1], I[:, :-1]
        if tied.any():
            tied_query = replace(query, X=X[tied], labels=unknown_labels(int(tied.sum())))
            D[tied], I[tied] = self._search_exactly(tied_query, None)
        return D, I

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the vectors of some keys, (n, d)."""
        X, ids = np.empty((len(keys), self.d), np.float32), np.empty(len(keys), np.int64)
        if not len(keys):
            return X
        with self.index.holding() as snapshot:
            members = snapshot.members
            places = members.ids.searchsorted(keys)
            rows = members.rows.take(places, mode="clip") if len(members.rows) else places
            snapshot.native.gather(rows, X, ids)
        if not np.array_equal(ids, keys):
            raise RuntimeError("the index of the store was changed by other means than the methods of the store")
        return X

    # --- changes ------------------------------------------------------------------------------------------------------

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
