"""Exact evidence search: the paper's LocalCE-B (Algorithm 1) with its two optimisations, at BLAS speed."""

from __future__ import annotations

from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import FaissLists, Table
from cfe_faiss.base.checks import as_count, as_labels, as_matrix, as_unit_rows
from cfe_faiss.index.base import Arrays, EvidenceMixin
from cfe_faiss.index.selection import allowed_by
from cfe_faiss.index.state import State
from cfe_faiss.lists.faiss_functions import Step, list_of, raw, setting, total
from cfe_faiss.lists.layout import stable_order
from cfe_faiss.lists.storage import Storage
from cfe_faiss.search import exact

_UNSORTED = 8
"""One row of so many may lie where it was added, in place of where its label belongs."""


class IndexEvidenceFlat(EvidenceMixin[State], faiss.IndexIDMap2):  # type: ignore[misc]
    """Exact index of counterfactual evidence over inner products of unit vectors.

    A genuine ``faiss.IndexIDMap2`` over a ``faiss.IndexFlatIP``; its rows are kept sorted by label, up to a few that
    were added last, so that a query's own class is left out as one run of rows and everything else is one matrix
    product (the paper's LocalCE-B).

    Parameters
    ----------
    d
        Length of the vectors.

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
    _sorted: int = 0  # rows from the first on that are sorted by label

    def __init__(self, d: int) -> None:
        super().__init__(faiss.IndexFlatIP(as_count("d", d)))
        self._set_up(_table_of(self.d, 0, None))
        self._sorted = 0

    def __repr__(self) -> str:
        return f"IndexEvidenceFlat(d={self.d}, ntotal={self.ntotal})"

    # --- what is stored ---------------------------------------------------------------------------------------------

    def _worked_out(self) -> State:
        return State(Storage(self._table.rows_in_runs(self._faiss_lists(), self.d), self.d))

    def _faiss_lists(self) -> FaissLists:
        return list_of(self)

    # --- changing it ------------------------------------------------------------------------------------------------

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
        """Return the step that makes FAISS's map from ids to rows anew: of as many ids as it had, or less."""
        return raw.IndexIDMap2_construct_rev_map, (self,)

    def _resizing(self, n: int) -> list[Step]:
        """Return the steps after which FAISS keeps the first n rows."""
        flat = faiss.downcast_index(self.index)
        return [
            (raw.MaybeOwnedVectorUInt8_resize, (flat.codes, n * 4 * self.d)),
            (raw.Int64Vector_resize, (self.id_map, n)),
            total(flat, n),
            total(self, n),
            self._mapping_ids(),
        ]

    def _relabel(self, labels: NDArray[np.int32], also: list[Step]) -> None:
        self._commit(
            self._table.relabelling(labels),
            self._faiss_lists(),
            (None, None, None, None),
            before=[],
            undo=[],
            after=[setting(self, "_sorted", len(labels)), self._mapping_ids(), *also],
        )

    def _remove(self, gone: NDArray[np.bool_], ids: NDArray[np.int64], also: list[Step]) -> None:
        kept = self._sorted - int(gone[: self._sorted].sum())
        self._commit(
            self._table.removal(gone.view(np.uint8)),
            self._faiss_lists(),
            (None, None, None, None),
            before=[],
            undo=[],
            after=[*self._resizing(len(ids)), setting(self, "_sorted", kept), *also],
        )

    def _emptying(self) -> list[Step]:
        return [
            *self._forgetting(),
            (raw.IndexIDMap_reset, (self,)),
            self._mapping_ids(),
            setting(self, "_table", _table_of(self.d, 0, None)),
            setting(self, "_sorted", 0),
        ]

    # --- searching it -----------------------------------------------------------------------------------------------

    def search_evidence(
        self, xq: ArrayLike, labels_q: ArrayLike, k: int, *, sel: Any = None, progress: str | None = None
    ) -> exact.Results:
        """Return the k most similar stored vectors of other classes than the query's.

        Parameters
        ----------
        xq
            Query vectors, (nq, d); normalised in a copy.
        labels_q
            Predicted class of each query, (nq,).
        k
            Results wanted for each query, >= 1.
        sel
            Only vectors that it selects are evidence: what ``sel`` of :class:`EvidenceParameters` may be, such as a
            mask or ids.
        progress
            What to call a progress bar; None for none.

        Returns
        -------
        D, I
            Similarities (nq, k) float32 and ids (nq, k) int64, best first; equal similarity: smaller id first. Where
            fewer than k vectors are eligible, the rest is id -1 with FAISS's padding value.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.

        Notes
        -----
        nq * n * d multiplications at most, in blocked matrix products; O(nq * k) memory and a fixed amount per thread.
        """
        X = as_unit_rows("xq", xq, self.d)
        labels, k, sel = as_labels("labels_q", labels_q, len(X)), as_count("k", k), self._asked(sel)
        with self._lock.reading():
            state = self._snapshot()
            return exact.search(state.storage, X, labels, k, allowed=allowed_by(sel, state), progress=progress)

    def search_members(
        self, ids: ArrayLike | None = None, k: int = 10, *, sel: Any = None, progress: str | None = None
    ) -> exact.Results:
        """Return the evidence of stored vectors, as :meth:`search_evidence` does.

        Parameters
        ----------
        ids
            Stored ids, (nq,); by default all of them in ascending order. Each unordered pair is then multiplied once.
        k, sel, progress
            As in :meth:`search_evidence`; ``sel`` is about the evidence, not about the queries.

        Returns
        -------
        D, I
            As in :meth:`search_evidence`; rows of vectors with an unknown class are all padding.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or an id is not in the index.
        """
        k, sel = as_count("k", k), self._asked(sel)
        with self._lock.reading():
            state = self._snapshot()
            return self._members_evidence(state, ids, k, allowed_by(sel, state), progress)

    def _evidence_of(
        self, state: State, ids: ArrayLike | None, k: int, nprobe: int | None, progress: str | None
    ) -> exact.Results:
        return self._members_evidence(state, ids, k, None, progress)

    def _members_evidence(
        self, state: State, ids: ArrayLike | None, k: int, allowed: NDArray[np.bool_] | None, progress: str | None
    ) -> exact.Results:
        storage, known = state.storage, state.members
        if ids is None and allowed is None:
            D, I = exact.search_all(storage, k, progress=progress)
            return D[known.rows], I[known.rows]
        rows = known.rows if ids is None else known.find(ids)
        X, labels = storage.rows(rows)[0], storage.labels[rows]
        return exact.search(storage, X, labels, k, allowed=allowed, progress=progress)

    def _search(
        self,
        state: State,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        k: int,
        nprobe: int | None,
        allowed: NDArray[np.bool_] | None,
    ) -> exact.Results:
        return exact.search(state.storage, X, labels, k, allowed=allowed)

    def _given(self, params: Any) -> dict[str, Any]:
        # FAISS's id map puts its own selector into the parameters while it searches: other threads must not share them.
        return super()._given(
            faiss.SearchParameters(sel=params.sel) if isinstance(params, faiss.SearchParameters) else params
        )

    # --- codes, which FAISS's id map does not make -------------------------------------------------------------------

    def sa_encode(self, x: ArrayLike, codes: Any = None) -> NDArray[np.uint8]:
        """Return vectors, (n, d), as the bytes of their numbers, (n, 4 * d) uint8; see :meth:`add_sa_codes`."""
        encoded: NDArray[np.uint8] = faiss.downcast_index(self.index).sa_encode(as_matrix("x", x, self.d), codes)
        return encoded

    def sa_decode(self, codes: NDArray[np.uint8], x: Any = None) -> NDArray[np.float32]:
        """Return the vectors, (n, d) float32, that codes stand for."""
        decoded: NDArray[np.float32] = faiss.downcast_index(self.index).sa_decode(codes, x)
        return decoded

    # --- files ------------------------------------------------------------------------------------------------------

    def _parts(self) -> tuple[Any, dict[str, Any], Arrays]:
        storage = self._snapshot().storage
        if len(storage.starts) == 2:
            return self, {}, {"labels": storage.labels}
        rows = stable_order(storage.labels)  # files hold rows that are sorted by label
        in_order = faiss.IndexIDMap2(faiss.IndexFlatIP(self.d))
        in_order.add_with_ids(*storage.rows(rows))
        return in_order, {}, {"labels": storage.labels[rows]}

    def _restore(self, parameters: dict[str, Any], arrays: Arrays) -> None:
        self._set_up(_table_of(self.d, self.ntotal, arrays["labels"]))
        self._sorted = self.ntotal


def _table_of(d: int, n: int, labels: NDArray[np.int32] | None) -> Table:
    return Table(np.array([n]), 0, 0, 4 * d, labels, None, None)
