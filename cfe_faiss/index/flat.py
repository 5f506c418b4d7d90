"""Exact evidence search: the paper's LocalCE-B (Algorithm 1) with its two optimisations, at BLAS speed."""

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.checks import as_count, as_labels, as_unit_rows
from cfe_faiss.index import base as shared
from cfe_faiss.lists.id_map import Members
from cfe_faiss.lists.read_write_lock import Gate
from cfe_faiss.lists.storage import Storage
from cfe_faiss.search import exact


class IndexEvidenceFlat(faiss.IndexIDMap2):  # type: ignore[misc]
    """Exact index of counterfactual evidence over inner products of unit vectors.

    A genuine ``faiss.IndexIDMap2`` over a ``faiss.IndexFlatIP``; its rows are kept sorted by label, so that a query's
    own class is left out as one run of rows and everything else is one matrix product (the paper's LocalCE-B).

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
    _gate: Gate = Gate()  # each index gets its own; FAISS wants the name to be known
    _unchecked: Callable[[], None] | None = None  # what is left to check of a file, once rows are used
    _labels: NDArray[np.int32] = np.empty(0, np.int32)
    _storage: Storage | None = None
    _members: Members | None = None

    def __init__(self, d: int) -> None:
        super().__init__(faiss.IndexFlatIP(as_count("d", d)))
        self._gate = Gate()

    def __repr__(self) -> str:
        return f"IndexEvidenceFlat(d={self.d}, ntotal={self.ntotal})"

    # --- what is stored ---------------------------------------------------------------------------------------------

    def _located(self) -> Storage:
        flat = faiss.downcast_index(self.index)
        return Storage(
            d=self.d,
            starts=np.array([0, self.ntotal], np.int64),
            addresses=np.array([int(flat.get_xb()) if self.ntotal else 0], np.int64),
            id_addresses=np.array([int(self.id_map.data()) if self.ntotal else 0], np.int64),
            labels=self._labels,
        )

    def _forget(self) -> None:
        self._storage = self._members = None

    # --- changing it ------------------------------------------------------------------------------------------------

    def _insert(self, X: NDArray[np.float32], labels: NDArray[np.int32], ids: NDArray[np.int64]) -> None:
        super().add_with_ids(X, ids)
        self._relabel(np.concatenate([self._labels, labels]))

    def _relabel(self, labels: NDArray[np.int32]) -> None:
        """Take over the labels of the rows as they lie, and sort the rows by them."""
        self._forget()
        self._labels = labels
        self._labels = labels[self.storage().sort_lists()]
        self._forget()
        self.construct_rev_map()

    def remove_ids(self, x: Any) -> int:
        """Remove vectors, and return how many.

        Parameters
        ----------
        x
            Their ids, (n,) int64 (those that are not stored are passed over), or a ``faiss.IDSelector``.
        """
        with self._gate.writing():
            before = self.members()
            removed = int(super().remove_ids(x))
            ids = faiss.vector_to_array(self.id_map)
            self._relabel(before.labels[np.searchsorted(before.ids, ids)])
        return removed

    def reset(self) -> None:
        """Remove every vector."""
        with self._gate.writing():
            super().reset()
            self._relabel(np.empty(0, np.int32))

    # --- searching it -----------------------------------------------------------------------------------------------

    def search_evidence(
        self, xq: ArrayLike, labels_q: ArrayLike, k: int, *, progress: str | None = None
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
        labels, k = as_labels("labels_q", labels_q, len(X)), as_count("k", k)
        with self._gate.reading():
            return self._search(X, labels, k, None, None, progress)

    def search_members(
        self, ids: ArrayLike | None = None, k: int = 10, *, progress: str | None = None
    ) -> exact.Results:
        """Return the evidence of stored vectors, as :meth:`search_evidence` does.

        Parameters
        ----------
        ids
            Stored ids, (nq,); by default all of them in ascending order. Each unordered pair is then multiplied once.
        k, progress
            As in :meth:`search_evidence`.

        Returns
        -------
        D, I
            As in :meth:`search_evidence`; rows of vectors with an unknown class are all padding.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or an id is not in the index.
        """
        k = as_count("k", k)
        with self._gate.reading():
            storage, known = self.storage(), self.members()
            if ids is None:
                D, I = exact.search_all(storage, k, progress=progress)
                return D[known.rows], I[known.rows]
            rows = known.find(ids)
            return exact.search(storage, storage.rows(rows)[0], storage.labels[rows], k, progress=progress)

    def _search(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        k: int,
        nprobe: int | None,
        allowed: NDArray[np.bool_] | None,
        progress: str | None,
    ) -> exact.Results:
        return exact.search(self.storage(), X, labels, k, allowed=allowed, progress=progress)

    # --- as in every evidence index ---------------------------------------------------------------------------------

    storage = shared.storage
    members = shared.stored_members
    add_with_labels = shared.add_with_labels
    add_with_ids = shared.add_with_ids
    add = shared.add
    relabel = shared.relabel
    merge_from = shared.merge_from
    search = shared.search
    range_search = shared.range_search
    range_search_evidence = shared.range_search_evidence
    excluding = shared.excluding
    reconstruct = shared.reconstruct
    reconstruct_n = shared.reconstruct_n
    reconstruct_batch = shared.reconstruct_batch
    to_stock = shared.to_stock
    __getstate__ = shared.getstate
    __setstate__ = shared.setstate
    class_index = shared.class_index
    add_sa_codes = shared.refused("add_sa_codes", "decode with sa_decode and use add_with_labels")

    # --- files ------------------------------------------------------------------------------------------------------

    def _extras(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"labels": self._labels}

    def _restore(self, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self._labels, self._gate = arrays["labels"], Gate()
