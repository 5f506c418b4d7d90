"""How an inverted-file evidence index is searched: plans, and what carries them out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import SingleSearch, is_single
from cfe_faiss.base.checks import as_count, as_labels, as_unit_rows
from cfe_faiss.index.base import EvidenceMixin
from cfe_faiss.index.selection import allowed_by
from cfe_faiss.index.state import ListsState
from cfe_faiss.index.stock import reading
from cfe_faiss.lists.faiss_functions import raw
from cfe_faiss.lists.topk import empty_heaps
from cfe_faiss.search import searcher
from cfe_faiss.search.certify import certified
from cfe_faiss.search.engine import Calibration, Engine, Plan
from cfe_faiss.search.exact import Results, padded, search_all
from cfe_faiss.search.grouping import Queries
from cfe_faiss.search.plan import SearchArguments, calibration_for, known_nprobe, plan
from cfe_faiss.search.searcher import InvertedLists

_CHUNK = 1024


class IVFSearchMixin(EvidenceMixin[ListsState]):
    """The searches of an inverted file, among the bases of :class:`cfe_faiss.index.ivf_base.EvidenceIVFMixin`."""

    complete: bool = True
    routing: str = "evidence"
    _single: SingleSearch | None = None  # what searches one query, until the index changes

    # What FAISS's classes have.
    nprobe: int
    this: Any

    def _k_factor(self) -> float | None:
        """Return how many vectors are scored for each result, where they are screened by their codes."""
        return None

    def _all_lists(self) -> InvertedLists:
        """Return what searches the index; valid until it changes."""
        return self._searcher(self._snapshot())

    def _searcher(self, state: ListsState) -> InvertedLists:
        return state.searcher(self.routing, self._k_factor())

    def nprobe_for(self, recall: float, k: int = 10) -> int:
        """Return the smallest ``nprobe`` at which the evidence of all stored vectors has a wanted recall@k.

        It is measured for each class, see :meth:`recall_by_class`. ``search_members(k=k, recall=recall)`` probes this
        number of lists for the class that needs the most, and fewer for others.

        Parameters
        ----------
        recall
            In (0, 1].
        k
            Results wanted for each vector, >= 1.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or the index is empty.
        """
        number, found = self._calibration(recall, k, None)
        return number if found is None else found.most

    def recall_by_class(self, recall: float, k: int = 10, *, queries: int | None = None) -> dict[int, float]:
        """Return the recall@k of each class that was measured for ``search_members(k=k, recall=recall)``.

        A sample of each class, about 250 to 1,000 of its stored vectors, is searched exactly and in more and more
        lists, until a lower 99.5 % confidence bound of the recall reaches ``recall - 0.01`` for this class, and the
        bound of the mean over all classes ``recall``. Classes of fewer than 100 stored vectors are measured together.
        The measurement is kept until the index changes.

        Parameters
        ----------
        recall
            In (0, 1].
        k
            Results wanted for each vector, >= 1.
        queries
            How many stored vectors are searched at once: many are searched in groups, few alone. None: all of them.

        Returns
        -------
        dict
            Recall of the sample, in [0, 1], for each stored class; 1 for exact searches.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or the index is empty.

        Examples
        --------
        >>> import numpy as np
        >>> import cfe_faiss as cfe
        >>> X = np.random.default_rng(0).normal(size=(500, 8))
        >>> index = cfe.IndexEvidenceIVF(8, nlist=20)
        >>> index.train(X)
        >>> index.add_with_labels(X, np.arange(500) % 2)
        >>> reached = index.recall_by_class(0.9, k=5)
        >>> sorted(reached), min(reached.values()) >= 0.89
        ([0, 1], True)
        """
        found = self._calibration(recall, k, None if queries is None else as_count("queries", queries))[1]
        if found is None:
            with self._lock.reading():
                return dict.fromkeys(self._snapshot().storage.class_counts[0].tolist(), 1.0)
        return dict(found.recall)

    def _calibration(self, recall: float, k: int, queries: int | None) -> tuple[int, Calibration | None]:
        """Return the number of all lists, and what is probed for a recall; None if that is all lists."""
        arguments, k = SearchArguments.of(None, recall, False, None), as_count("k", k)
        with self._lock.reading():
            lists = self._all_lists()
            if lists.storage.n == 0:
                raise ValueError("the index must hold vectors, got an empty one")
            arguments = arguments._replace(complete=self.complete)
            return lists.number, calibration_for(lists, queries or lists.storage.n, k, arguments)

    def search_evidence(  # noqa: PLR0913
        self,
        xq: ArrayLike,
        labels_q: ArrayLike,
        k: int,
        nprobe: int | None = None,
        *,
        recall: float | None = None,
        exact: bool = False,
        sel: Any = None,
        memory: int | None = None,
        progress: str | None = None,
    ) -> Results:
        """Return the k most similar vectors of other classes than the queries'.

        Many queries are searched list by list: those that lie in one list are routed together. So a query may probe
        other lists among many than alone.

        Parameters
        ----------
        xq, labels_q, k, sel, progress
            As in :meth:`IndexEvidenceFlat.search_evidence`.
        nprobe
            Lists probed, of all partitions together; by default the index's own ``nprobe``. From partitions *
            nlist on the result is exact.
        recall
            In place of ``nprobe``: the recall@k wanted, in (0, 1]; 1 is exact. The mean over all queries reaches it,
            and the mean of each class with at least 100 stored vectors reaches ``recall - 0.01``. The number of lists
            for each class is measured once, see :meth:`recall_by_class`. Each query then ranks the lists alone, so
            that other queries do not matter. With ``sel`` it is measured at each call, and up to 2,000 queries are
            searched exactly, which takes less.
        exact
            In place of ``nprobe``: whether to return the exact result.
        memory
            Bytes for copies of vectors, >= 1, where many queries are searched; by default 2 GiB. With less, the work is
            done in several passes. Results come on top of it.

        Returns
        -------
        D, I
            As in :meth:`IndexEvidenceFlat.search_evidence`. Unless the index was made with ``complete=False``, the
            search of a row goes on in further lists until the row is complete.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        if sel is None and not exact and memory is None and (recall is None or nprobe is None):
            found = self._at_once(xq, labels_q, k, nprobe, recall)
            if found is not None:
                return found
        X = as_unit_rows("xq", xq, self.d)
        labels, k = as_labels("labels_q", labels_q, len(X)), as_count("k", k)
        arguments, sel = SearchArguments.of(nprobe, recall, exact, memory), self._asked(sel)
        with self._lock.reading():
            state = self._snapshot()
            return self._of_vectors(state, X, labels, k, arguments.among(allowed_by(sel, state)), progress)

    def _at_once(self, xq: Any, labels_q: Any, k: Any, nprobe: Any, recall: Any) -> Results | None:
        """Return the evidence of one query if it is handed in as it is searched, else None: nothing is refused here.

        This is :func:`search_evidence` without a copy, a conversion or an object that a single query can do without.
        They would take longer than to search a small index.
        """
        if self.routing != "evidence":
            return None
        single = self._single
        if single is None:
            if not is_single(xq, labels_q, k, self.d):
                return None
            with self._lock.reading():
                self._single = single = self._searcher(self._snapshot()).single_search(self._lock)
            if single is None:
                return None
        if recall is not None:
            state = self._state
            if state is None or type(k) is not int or type(recall) is not float:
                return None
            if type(labels_q) is not np.ndarray or labels_q.size != 1:
                return None
            nprobe = known_nprobe(self._searcher(state), k, recall, labels_q.item(), complete=self.complete)
        elif nprobe is None:
            nprobe = raw.IndexIVFInterface_nprobe_get(self.this)
        # What FAISS's object is asked for by its pointer takes a tenth of the time of an attribute.
        found = single.search(xq, labels_q, k, nprobe, self.complete, raw.Index_ntotal_get(self.this))
        if found is None:  # perhaps since somebody was about to change the index
            self._single = None
        return found

    def search_members(  # noqa: PLR0913
        self,
        ids: ArrayLike | None = None,
        k: int = 10,
        nprobe: int | None = None,
        *,
        recall: float | None = None,
        exact: bool = False,
        sel: Any = None,
        memory: int | None = None,
        progress: str | None = None,
    ) -> Results:
        """Return the evidence of stored vectors, as :meth:`search_evidence` does.

        Parameters
        ----------
        ids
            Stored ids, (nq,); by default all of them in ascending order.
        k, nprobe, recall, exact, sel, memory, progress
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
        k, arguments = as_count("k", k), SearchArguments.of(nprobe, recall, exact, memory)
        sel = self._asked(sel)
        with self._lock.reading():
            state = self._snapshot()
            return self._members_evidence(state, ids, k, arguments.among(allowed_by(sel, state)), progress)

    def _evidence_of(
        self, state: ListsState, ids: ArrayLike | None, k: int, nprobe: int | None, progress: str | None
    ) -> Results:
        return self._members_evidence(state, ids, k, SearchArguments.of(nprobe, None, False, None), progress)

    def _members_evidence(
        self, state: ListsState, ids: ArrayLike | None, k: int, arguments: SearchArguments, progress: str | None
    ) -> Results:
        storage, members = state.storage, state.members
        if ids is not None:
            return self._searched(state, Queries.of_rows(storage, members.find(ids)), k, arguments, progress)
        if storage.n == 0:
            return padded(*empty_heaps(0, 0), k)
        arguments = arguments._replace(complete=self.complete)
        made = plan(self._searcher(state), storage.n, k, arguments, self._own_nprobe(), all_rows=True)
        if made.engine is Engine.PAIRS:
            D, I = search_all(storage, k, progress=progress)
            return D.take(members.rows, axis=0), I.take(members.rows, axis=0)
        queries = Queries.of_rows(storage, members.rows, members.places)
        return self._carried_out(state, queries, k, made, progress)

    def search_certified(
        self,
        ids: ArrayLike | None = None,
        k: int = 10,
        nprobe: int | None = None,
        *,
        sel: Any = None,
        memory: int | None = None,
        progress: str | None = None,
    ) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.bool_]]:
        """Return the evidence of stored vectors, as :meth:`search_members` does, and which rows are provably exact.

        Parameters
        ----------
        ids, k, nprobe, sel, memory, progress
            As in :meth:`search_members`.

        Returns
        -------
        D, I
            As from :meth:`search_members`.
        certified
            Whether no list that was left out can hold anything that belongs into the row, (nq,) bool. Rows that are
            exact without a proof are many, above all where vectors have many dimensions.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or an id is not in the index.

        Notes
        -----
        A vector x of a list with centroid c is bounded by angles: angle(q, x) >= angle(q, c) - angle(x, c). Besides the
        search, this takes as long as to compare every query with every centroid.
        """
        k, arguments = as_count("k", k), SearchArguments.of(nprobe, None, False, memory)
        sel = self._asked(sel)
        with self._lock.reading():
            state = self._snapshot()
            storage, members = state.storage, state.members
            queries = Queries.of_rows(storage, members.rows if ids is None else members.find(ids))
            if storage.n == 0:
                return *padded(*empty_heaps(0, 0), k), np.ones(0, np.bool_)
            lists = self._searcher(state)
            made = plan(lists, len(queries), k, arguments.among(allowed_by(sel, state)), self._own_nprobe())
            D, I = self._carried_out(state, queries, k, made, progress)
            return D, I, certified(lists, queries, made, D, I)

    def _search(
        self,
        state: ListsState,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        k: int,
        nprobe: int | None,
        allowed: NDArray[np.bool_] | None,
    ) -> Results:
        arguments = SearchArguments.of(nprobe, None, False, None).among(allowed)
        return self._of_vectors(state, X, labels, k, arguments, None)

    def _of_vectors(
        self,
        state: ListsState,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        k: int,
        arguments: SearchArguments,
        progress: str | None,
    ) -> Results:
        if state.storage.n == 0:  # and perhaps not trained
            return padded(*empty_heaps(len(X), 0), k)
        queries = Queries.of_vectors(X, labels, state.centroids[0])
        return self._searched(state, queries, k, arguments, progress, stored=False)

    def _searched(
        self,
        state: ListsState,
        queries: Queries,
        k: int,
        arguments: SearchArguments,
        progress: str | None,
        *,
        stored: bool = True,
    ) -> Results:
        if state.storage.n == 0:
            return padded(*empty_heaps(len(queries), 0), k)
        arguments = arguments._replace(complete=self.complete)
        made = plan(self._searcher(state), len(queries), k, arguments, self._own_nprobe(), stored=stored)
        return self._carried_out(state, queries, k, made, progress)

    def _carried_out(self, state: ListsState, queries: Queries, k: int, made: Plan, progress: str | None) -> Results:
        return searcher.search(self._searcher(state), queries, k, made, complete=self.complete, progress=progress)

    def _check_probed(self, x: Any, params: Any) -> None:
        if self._checks is None:
            return
        nprobe = getattr(params, "nprobe", self.nprobe)
        state, X = self._snapshot(), np.ascontiguousarray(x, np.float32)
        centroids = state.centroids[0]
        if nprobe >= len(centroids) or X.ndim != 2 or X.shape[1] != self.d:
            self._check_mapped()
            return
        for start in range(0, len(X), _CHUNK):
            some = X[start : start + _CHUNK]
            S = some @ centroids.T
            rounding = 4 * state.storage.margin * np.linalg.norm(some, axis=1)  # FAISS sums in another order
            least = np.partition(S, -nprobe, axis=1)[:, -nprobe] - rounding
            self._check_mapped(np.flatnonzero((least[:, None] <= S).any(axis=0)))

    def _own_nprobe(self) -> int:
        return as_count("nprobe", self.nprobe)

    search_and_return_codes = reading("search_and_return_codes")
    search_preassigned = reading("search_preassigned")
    range_search_preassigned = reading("range_search_preassigned")
