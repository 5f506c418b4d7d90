"""Exact evidence search: the paper's LocalCE-B (Algorithm 1) with its two optimisations, at BLAS speed."""

from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.checks import as_count, as_labels, as_number, as_unit_rows
from cfe_faiss.index import exact, members
from cfe_faiss.index.members import Members
from cfe_faiss.index.storage import Storage


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

    _labels: NDArray[np.int32] = np.empty(0, np.int32)
    _storage: Storage | None = None
    _members: Members | None = None

    def __init__(self, d: int) -> None:
        super().__init__(faiss.IndexFlatIP(as_count("d", d)))

    def __repr__(self) -> str:
        return f"IndexEvidenceFlat(d={self.d}, ntotal={self.ntotal})"

    # --- what is stored ---------------------------------------------------------------------------------------------

    def storage(self) -> Storage:
        """Return where the vectors lie; valid until the index changes."""
        members.check_unchanged(self.ntotal, self._labels)
        if self._storage is None:
            flat = faiss.downcast_index(self.index)
            self._storage = Storage(
                d=self.d,
                starts=np.array([0, self.ntotal], np.int64),
                addresses=np.array([int(flat.get_xb()) if self.ntotal else 0], np.int64),
                id_addresses=np.array([int(self.id_map.data()) if self.ntotal else 0], np.int64),
                labels=self._labels,
            )
        return self._storage

    def members(self) -> Members:
        """Return the ids in ascending order, and the storage row and label of each."""
        if self._members is None:
            self._members = members.of(self.storage())
        return self._members

    def _regroup(self, labels: NDArray[np.int32]) -> None:
        self._forget()
        self._labels = labels
        self._labels = labels[self.storage().sort_lists()]
        self._forget()
        self.construct_rev_map()

    def _forget(self) -> None:
        self._storage = self._members = None

    # --- changing it ------------------------------------------------------------------------------------------------

    def add_with_labels(self, x: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Add vectors with the classes that the model predicts for them.

        Parameters
        ----------
        x
            Vectors, (n, d); L2-normalised on the way in, in a copy. A zero vector stays zero.
        labels
            Predicted class of each, (n,) integers >= 0.
        ids
            Id of each, (n,) distinct integers >= 0 that are not in the index yet; by default ntotal, ntotal + 1, ...

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; nothing is added then.
        """
        X = as_unit_rows("x", x, self.d)
        new_labels = as_labels("labels", labels, len(X))
        self._insert(X, new_labels, members.new_ids(self.storage(), ids, len(X)))

    def add_with_ids(self, x: ArrayLike, ids: ArrayLike) -> None:
        """Add vectors whose class is not known (yet): they are stored, but are no evidence until relabelled."""
        X = as_unit_rows("x", x, self.d)
        self._insert(X, members.unknown_labels(len(X)), members.new_ids(self.storage(), ids, len(X)))

    def add(self, x: ArrayLike) -> None:
        """Add vectors whose class is not known (yet), with ids ntotal, ntotal + 1, ..."""
        X = as_unit_rows("x", x, self.d)
        self._insert(X, members.unknown_labels(len(X)), members.new_ids(self.storage(), None, len(X)))

    def _insert(self, X: NDArray[np.float32], labels: NDArray[np.int32], ids: NDArray[np.int64]) -> None:
        super().add_with_ids(X, ids)
        self._regroup(np.concatenate([self._labels, labels]))

    def relabel(self, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Give stored vectors new classes, as for another model over the same vectors.

        Parameters
        ----------
        labels
            New classes, one for each of ``ids``: (n,) integers >= 0, or -1 for "unknown".
        ids
            Stored ids, (n,); by default all of them, in ascending order.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; nothing is changed then.
        """
        self._regroup(members.relabelled(self.storage(), self.members(), labels, ids))

    def remove_ids(self, x: Any) -> int:
        """Remove vectors, and return how many.

        Parameters
        ----------
        x
            Their ids, (n,) int64 (those that are not stored are passed over), or a ``faiss.IDSelector``.
        """
        before = self.members()
        removed = int(super().remove_ids(x))
        ids = faiss.vector_to_array(self.id_map)
        self._regroup(before.labels[np.searchsorted(before.ids, ids)])
        return removed

    def reset(self) -> None:
        """Remove every vector."""
        super().reset()
        self._regroup(np.empty(0, np.int32))

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
        labels = as_labels("labels_q", labels_q, len(X))
        return exact.search(self.storage(), X, labels, as_count("k", k), progress=progress)

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
        count, storage, known = as_count("k", k), self.storage(), self.members()
        if ids is None:
            D, I = exact.search_all(storage, count, progress=progress)
            return D[known.rows], I[known.rows]
        rows = known.find(ids)
        return exact.search(storage, storage.rows(rows)[0], storage.labels[rows], count, progress=progress)

    def range_search_evidence(
        self, xq: ArrayLike, labels_q: ArrayLike, threshold: float
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Return all evidence with similarity >= ``threshold``.

        Parameters
        ----------
        xq, labels_q
            As in :meth:`search_evidence`.
        threshold
            Lowest similarity wanted.

        Returns
        -------
        lims, D, I
            As FAISS's ``range_search``: the results of query q are ``D[lims[q]:lims[q + 1]]`` and the same of I, best
            first; equal similarity: smaller id first.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        X = as_unit_rows("xq", xq, self.d)
        labels = as_labels("labels_q", labels_q, len(X))
        return exact.range_search(self.storage(), X, labels, as_number("threshold", threshold, -np.inf, np.inf))

    # --- files ------------------------------------------------------------------------------------------------------

    def _extras(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"labels": self._labels}

    def _restore(self, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self._labels = arrays["labels"]
