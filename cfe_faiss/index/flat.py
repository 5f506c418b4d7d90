"""Exact evidence search: the paper's LocalCE-B (Algorithm 1) with its two optimisations, at BLAS speed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import FaissLists, Table
from cfe_faiss.base.checks import as_count, as_matrix
from cfe_faiss.index.base import Arrays, EvidenceMixin
from cfe_faiss.rows.faiss_functions import Step, list_of, raw, setting, total
from cfe_faiss.rows.layout import stable_order
from cfe_faiss.rows.snapshot import Snapshot

_UNSORTED = 8
"""One row of so many may lie where it was added, in place of where its label belongs."""


class IndexEvidenceFlat(EvidenceMixin, faiss.IndexIDMap2):  # type: ignore[misc]
    """Exact index of counterfactual evidence over inner products of unit vectors.

    A subclass of ``faiss.IndexIDMap2`` over a ``faiss.IndexFlatIP``. Rows are sorted by label, except for a few that
    were added last. The query's class is thus one contiguous range of rows to skip, and the search is one matrix
    product over the remaining rows (the paper's LocalCE-B).

    Parameters
    ----------
    d
        Dimension of the vectors.

    Examples
    --------
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> X = np.array([[1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32)
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels(X, [0, 1, 1])
    >>> D, I = index.search_evidence(X[:1], [0], k=2)
    >>> I
    array([[1, 2]])
    >>> D.round(2)
    array([[0.8, 0. ]], dtype=float32)
    """

    _stock = faiss.IndexIDMap2
    _sorted: int = 0  # number of leading rows that are sorted by label

    def __init__(self, d: int) -> None:
        super().__init__(faiss.IndexFlatIP(as_count("d", d)))
        self._set_up(_table_of(self.d, 0, None))
        self._sorted = 0

    def __repr__(self) -> str:
        return f"IndexEvidenceFlat(d={self.d}, ntotal={self.ntotal})"

    # --- storage ----------------------------------------------------------------------------------------------------

    def _new_snapshot(self) -> Snapshot:
        lists = self._faiss_lists()
        return Snapshot(self._table.rows_in_runs(lists, self.d), self.d, lookup=partial(self._table.rows_of, lists))

    def _faiss_lists(self) -> FaissLists:
        return list_of(self)

    # --- changes ----------------------------------------------------------------------------------------------------

    def _insert(
        self,
        lists: FaissLists,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        ids: NDArray[np.int64],
        also: list[Step],
    ) -> None:
        n = len(self._table)
        sort = _UNSORTED * (n + len(X) - self._sorted) > n + len(X)
        pointers = faiss.swig_ptr(X), faiss.swig_ptr(ids)
        self._commit(
            self._table.appending(labels, sort),
            lists,
            (X.view(np.uint8), ids, None, None),
            before=[(raw.IndexIDMap2_add_with_ids, (self, len(X), *pointers))],
            undo=self._resizing(n),
            after=also + ([setting(self, "_sorted", n + len(X)), self._mapping_ids()] if sort else []),
        )

    def _mapping_ids(self) -> Step:
        """Return the step that rebuilds FAISS's map from ids to rows; the number of ids must not grow."""
        return raw.IndexIDMap2_construct_rev_map, (self,)

    def _resizing(self, n: int) -> list[Step]:
        """Return the steps that truncate FAISS's storage to the first n rows."""
        flat = faiss.downcast_index(self.index)
        return [
            (raw.MaybeOwnedVectorUInt8_resize, (flat.codes, n * 4 * self.d)),
            (raw.Int64Vector_resize, (self.id_map, n)),
            total(flat, n),
            total(self, n),
            self._mapping_ids(),
        ]

    def _relabel(self, rows: NDArray[np.int64], labels: NDArray[np.int32], also: list[Step]) -> None:
        self._commit(
            self._table.relabelling(rows, labels),
            self._faiss_lists(),
            (None, None, None, None),
            before=[],
            undo=[],
            after=[setting(self, "_sorted", self.ntotal), self._mapping_ids(), *also],
        )

    def _remove(self, rows: NDArray[np.int64], also: list[Step]) -> None:
        kept = self._sorted - int((rows < self._sorted).sum())
        self._commit(
            self._table.removal(rows),
            self._faiss_lists(),
            (None, None, None, None),
            before=[],
            undo=[],
            after=[*self._resizing(self.ntotal - len(rows)), setting(self, "_sorted", kept), *also],
        )

    def _emptying(self) -> list[Step]:
        return [
            *self._forgetting(),
            (raw.IndexIDMap_reset, (self,)),
            self._mapping_ids(),
            setting(self, "_table", _table_of(self.d, 0, None)),
            setting(self, "_sorted", 0),
        ]

    # --- search ------------------------------------------------------------------------------------------------------

    def _copy_parameters(self, params: Any) -> Any:
        # FAISS's id map replaces the selector in the parameters during a search, so threads must not share them.
        return faiss.SearchParameters(sel=params.sel) if isinstance(params, faiss.SearchParameters) else params

    # --- codes, which FAISS's id map does not support ----------------------------------------------------------------

    def sa_encode(self, x: ArrayLike, codes: Any = None) -> NDArray[np.uint8]:
        """Return the float32 bytes of vectors, (n, d), as codes, (n, 4 * d) uint8; see :meth:`add_sa_codes`."""
        encoded: NDArray[np.uint8] = faiss.downcast_index(self.index).sa_encode(as_matrix("x", x, self.d), codes)
        return encoded

    def sa_decode(self, codes: NDArray[np.uint8], x: Any = None) -> NDArray[np.float32]:
        """Decode codes, (n, 4 * d) uint8, to vectors, (n, d) float32."""
        decoded: NDArray[np.float32] = faiss.downcast_index(self.index).sa_decode(codes, x)
        return decoded

    # --- files ------------------------------------------------------------------------------------------------------

    def parts(self) -> tuple[Any, dict[str, Any], Arrays]:
        """Return the stock index, the parameters and the arrays of the index file."""
        snapshot = self.snapshot()
        if len(snapshot.starts) == 2:
            return self, {}, {"labels": snapshot.labels}
        rows = stable_order(snapshot.labels)  # files store rows sorted by label
        in_order = faiss.IndexIDMap2(faiss.IndexFlatIP(self.d))
        in_order.add_with_ids(*snapshot.rows(rows))
        return in_order, {}, {"labels": snapshot.labels[rows]}

    def restore(self, parameters: dict[str, Any], arrays: Arrays, check: Callable[[], None] | None = None) -> None:
        """Restore the parameters and arrays of :meth:`parts`."""
        self._set_up(_table_of(self.d, self.ntotal, arrays["labels"]))
        self._sorted, self._unchecked = self.ntotal, check


def _table_of(d: int, n: int, labels: NDArray[np.int32] | None) -> Table:
    return Table(np.array([n]), 0, 0, 4 * d, labels, None, None)
