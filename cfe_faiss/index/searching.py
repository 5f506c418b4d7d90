"""Search methods of all kinds of evidence index: each builds a Query and an Effort, and answers it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import ListChecks, ReadWriteLock, SingleSearch, is_single
from cfe_faiss.base.checks import as_count, as_labels, as_number, as_unit_rows
from cfe_faiss.index.parameters import EvidenceParameters, Excluding
from cfe_faiss.index.stock import like, reading, written
from cfe_faiss.rows.faiss_functions import raw
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import answer as answers
from cfe_faiss.search.answer import Ranges
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Calibration, Effort, Queries, Query, Results
from cfe_faiss.search.selection import accepted, calls_python, selector_of, with_ids

_CHUNK = 1024
_EXACTLY = Effort(exact=True)


class Searches:
    """The verbs of every evidence index, in memory, in shards or served: each asks one question with one effort."""

    d: int

    def answer(self, query: Query, effort: Effort, progress: str | None = None) -> Results:
        """Return D, I, (nq, k) both: what is asked."""
        raise NotImplementedError

    def effort_of(
        self, nprobe: int | None = None, recall: float | None = None, exact: bool = False, memory: int | None = None
    ) -> Effort:
        """Return the effort of a search with these arguments, checked."""
        return Effort.of(nprobe, recall, exact, memory)

    def _at_once(self, xq: Any, labels_q: Any, k: Any, nprobe: Any, recall: Any) -> Results | None:
        """Return the evidence of one query if it can be searched as it was handed in, else None."""
        return None

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
        """Return the k most similar stored vectors of other classes than the queries'.

        Many queries are searched list by list: those that lie in one list are routed together. So a query may probe
        other lists among many than alone.

        Parameters
        ----------
        xq
            Query vectors, (nq, d); normalised in a copy.
        labels_q
            Predicted class of each query, (nq,).
        k
            Results wanted for each query, >= 1.
        nprobe
            Lists probed, of all partitions together; by default the index's own ``nprobe``. From partitions *
            nlist on the result is exact. ValueError for an index without lists, which is always exact.
        recall
            In place of ``nprobe``: the recall@k wanted, in (0, 1]; 1 is exact. The mean over all queries reaches it,
            and the mean of each class with at least 100 stored vectors reaches ``recall - 0.01``. The number of lists
            for each class is measured once, see :meth:`recall_by_class`. Each query then ranks the lists alone, so
            that other queries do not matter. With ``sel`` it is measured at each call, and up to 2,000 queries are
            searched exactly, which takes less.
        exact
            In place of ``nprobe``: whether to return the exact result.
        sel
            Only vectors that it selects are evidence: what ``sel`` of :class:`EvidenceParameters` may be, such as a
            mask or ids.
        memory
            Bytes for copies of vectors, >= 1, where many queries are searched; by default 2 GiB. With less, the work is
            done in several passes. Results come on top of it.
        progress
            What to call a progress bar; None for none.

        Returns
        -------
        D, I
            Similarities (nq, k) float32 and ids (nq, k) int64, best first; equal similarity: smaller id first. Where
            fewer than k vectors are eligible, the rest is id -1 with FAISS's padding value. Unless the index was made
            with ``complete=False``, the search of a row goes on in further lists until the row is complete.

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
        query = Query(X=X, labels=as_labels("labels_q", labels_q, len(X)), k=as_count("k", k), sel=sel)
        return self.answer(query, self.effort_of(nprobe, recall, exact, memory), progress)

    def search_stored(  # noqa: PLR0913
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
        query = Query(as_count("k", k), ids=ids, sel=sel)
        return self.answer(query, self.effort_of(nprobe, recall, exact, memory), progress)


class SearchingMixin(Searches):
    """The searches of an evidence index, among the bases of :class:`cfe_faiss.index.base.EvidenceMixin`."""

    # FAISS refuses to set an attribute whose name the class does not know, so each has a value here.
    _stock: Any = None
    _lock: ReadWriteLock = None  # type: ignore[assignment]
    _single: SingleSearch | None = None  # what searches one query, until the index changes
    _state: Snapshot | None = None
    routing: str = ""  # there are no lists to rank
    # Checksums of mapped lists, and which of them belong to each list.
    checks: tuple[list[ListChecks], NDArray[np.int64]] | None = None
    complete: bool
    has_lists: bool = False
    stores_codes: bool = False  # in FAISS's lists, instead of vectors
    k_factor: float | None = None  # vectors scored for each result, where they are screened by their codes

    # What FAISS's classes have.
    this: Any

    def snapshot(self) -> Snapshot:
        """Return the index as it is; for whoever is inside of :meth:`reading` or :meth:`changing`."""
        raise NotImplementedError

    def own_effort(self) -> Effort:
        """Return how hard the index searches where a caller does not say: exactly."""
        return _EXACTLY

    def settled(self, effort: Effort) -> Effort:
        """Return an effort with what it leaves open taken from the index; ValueError for what has no effect here."""
        if effort.nprobe is not None and not self.has_lists:
            raise ValueError(f"nprobe is for an index with lists, got nprobe={effort.nprobe} for {self!r}")
        return effort.over(self.own_effort())

    def effort_of(
        self, nprobe: int | None = None, recall: float | None = None, exact: bool = False, memory: int | None = None
    ) -> Effort:
        """Return the effort of a search with these arguments, checked; ValueError for ``nprobe`` without lists."""
        effort = Effort.of(nprobe, recall, exact, memory)
        if nprobe is not None:
            self.settled(effort)
        return effort

    @property
    def keeps_vectors(self) -> bool:
        """Whether the index has the vectors in float32."""
        return not self.stores_codes or self.k_factor is not None

    # --- one question -----------------------------------------------------------------------------------------------

    def answer(self, query: Query, effort: Effort, progress: str | None = None) -> Results:
        """Return D, I, (nq, k) both: what is asked, as every search of the index asks it."""
        query = self.without_callbacks(query)
        with self._lock.reading():
            return answers.search(query.on(self.snapshot()), self.settled(effort), progress)

    def without_callbacks(self, query: Query) -> Query:
        """Return the query with ids in place of a selector that calls Python, which is evaluated outside the lock."""
        if not calls_python(query.sel):
            return query
        return replace(query, sel=self._without_callbacks(query.sel, f"{query.name}sel"))

    def _without_callbacks(self, sel: Any, name: str) -> Any:
        """Return a selector, or the ids that it accepts where it calls Python."""
        if not calls_python(sel):
            return sel
        with self._lock.reading():
            ids = self.snapshot().row_ids
        return accepted(sel, ids, name)

    def _parameters_without_callbacks(self, params: Any) -> Any:
        """Return FAISS's search parameters with a selector that does not call Python."""
        if not isinstance(params, faiss.SearchParameters):
            return params
        sel = selector_of(params)
        return with_ids(params, self._without_callbacks(sel, "params.sel")) if calls_python(sel) else params

    def answer_on(
        self, snapshot: Snapshot, query: Query | Queries, effort: Effort, progress: str | None = None
    ) -> Results:
        """Return the same for whoever is inside of :meth:`reading` and holds the snapshot, or has bound the query."""
        bound = query.on(snapshot) if isinstance(query, Query) else query
        return answers.search(bound, self.settled(effort), progress)

    # --- the verbs --------------------------------------------------------------------------------------------------

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
                snapshot = self.snapshot()
                searcher = Derived.of(snapshot).single if snapshot.n else None
                if searcher is None:
                    return None
                self._single = single = SingleSearch(self._lock, searcher)
        if recall is not None:
            state = self._state
            if state is None or type(k) is not int or type(recall) is not float:
                return None
            if type(labels_q) is not np.ndarray or labels_q.size != 1:
                return None
            nprobe = answers.known_nprobe(state, k, recall, labels_q.item(), complete=self.complete)
        elif nprobe is None:
            nprobe = raw.IndexIVFInterface_nprobe_get(self.this)
        # What FAISS's object is asked for by its pointer takes a tenth of the time of an attribute.
        found = single.search(xq, labels_q, k, nprobe, self.complete, raw.Index_ntotal_get(self.this))
        if found is None:  # perhaps since somebody was about to change the index
            self._single = None
        return found

    def range_search_evidence(self, xq: ArrayLike, labels_q: ArrayLike, threshold: float, *, sel: Any = None) -> Ranges:
        """Return all evidence with similarity >= ``threshold``, wherever in the index it is.

        Parameters
        ----------
        xq, labels_q, sel
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
        number = as_number("threshold", threshold, -np.inf, np.inf)
        return self._within(Query(threshold=number, X=X, labels=labels, sel=sel))

    def _within(self, query: Query) -> Ranges:
        query = self.without_callbacks(query)
        with self._lock.reading():
            return answers.within(self.snapshot(), query)

    # --- the same through FAISS's own searches ----------------------------------------------------------------------

    def search(
        self, x: ArrayLike, k: int, *, params: Any = None, D: Any = None, I: Any = None, **stock: Any
    ) -> Results:
        """Return the k nearest vectors, as ``faiss.Index.search``; with ``EvidenceParameters`` the k best evidences.

        Parameters
        ----------
        x
            Queries, (nq, d). For evidence they are normalised in a copy.
        k
            Results wanted for each, >= 1.
        params
            :class:`cfe_faiss.EvidenceParameters` for evidence; FAISS's own parameters, or None, for a plain search.
        D, I
            Arrays to write the results into, (nq, k) float32 and int64.

        Returns
        -------
        D, I
            Similarities and ids, best first.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        if not isinstance(params, EvidenceParameters):
            stock_results: Results = self._of_stock("search", (x, k), params, {"D": D, "I": I, **stock})
            return stock_results
        found: Results | None
        if params.plain and D is None and I is None and not stock:
            found = self._at_once(x, params.labels, k, params.nprobe, params.recall)
            if found is not None:
                return found
        found = self.answer(self._asked("search", x, params, stock, k=as_count("k", k)), params.effort)
        return like(x, written("D", found[0], D)), like(x, written("I", found[1], I))

    def search_and_reconstruct(
        self, x: ArrayLike, k: int, *, params: Any = None, D: Any = None, I: Any = None, R: Any = None, **stock: Any
    ) -> Any:
        """Return what :meth:`search` does, and the vectors that it found.

        Parameters
        ----------
        x, k, params, D, I
            As in :meth:`search`.
        R
            Array to write the vectors into, (nq, k, d) float32.

        Returns
        -------
        D, I, R
            Similarities, ids and vectors, (nq, k, d) float32; NaN where there is no result, as in FAISS.
        """
        name = "search_and_reconstruct"
        if not isinstance(params, EvidenceParameters):
            return self._of_stock(name, (x, k), params, {"D": D, "I": I, "R": R, **stock})
        query = self.without_callbacks(self._asked(name, x, params, stock, k=as_count("k", k)))
        with self._lock.reading():
            snapshot = self.snapshot()
            found = self.answer_on(snapshot, query, params.effort)
            vectors = np.full((*found[1].shape, self.d), np.nan, np.float32)
            filled = found[1] >= 0
            vectors[filled] = snapshot.rows(snapshot.members.find(found[1][filled]))[0]
        return tuple(
            like(x, written(name, result, out))
            for name, result, out in (("D", found[0], D), ("I", found[1], I), ("R", vectors, R))
        )

    assign = reading("assign")

    def range_search(self, x: ArrayLike, thresh: float, *, params: Any = None, **stock: Any) -> Ranges:
        """Return all vectors above a similarity, as ``faiss.Index.range_search``, or with parameters all evidence.

        As in FAISS, a plain search returns similarities > ``thresh``, in no order; with ``EvidenceParameters`` evidence
        comes as from :meth:`range_search_evidence`, with similarity >= ``thresh`` and best first.
        """
        if not isinstance(params, EvidenceParameters):
            stock_results: Ranges = self._of_stock("range_search", (x, thresh), params, stock)
            return stock_results
        number = as_number("thresh", thresh, -np.inf, np.inf)
        lims, D, I = self._within(self._asked("range_search", x, params, stock, threshold=number))
        return like(x, lims), like(x, D), like(x, I)

    def _asked(
        self, method: str, x: ArrayLike, params: EvidenceParameters, stock: dict[str, Any], **many: Any
    ) -> Query:
        """Return what parameters ask about vectors; TypeError where arguments of FAISS's come with them."""
        if stock:
            raise TypeError(f"{method} takes no {next(iter(stock))} together with EvidenceParameters")
        return params.query(as_unit_rows("x", x, self.d), **many)

    def _of_stock(self, name: str, about: tuple[Any, ...], params: Any, further: dict[str, Any]) -> Any:
        """Return what FAISS's own search does, while nothing changes the index.

        ``faiss.contrib.torch_utils`` puts methods in their place that take tensors, but no parameters.
        """
        params = self._parameters_without_callbacks(params)
        own = getattr(self._stock, name)
        takes_parameters = getattr(self._stock, f"{name}_numpy", own)
        method = own if params is None or not isinstance(about[0], np.ndarray) else takes_parameters
        with self._lock.reading():
            self._check_probed(about[0], params)
            return method(self, *about, **further, **({} if params is None else {"params": self._given(params)}))

    def _check_mapped(self, lists: NDArray[np.int64] | None = None) -> None:
        """Compare mapped lists, all by default, with their checksums: FAISS is about to read them."""
        if self.checks is not None:
            self.snapshot().native.check_lists(lists)

    def _check_probed(self, x: Any, params: Any) -> None:
        """Compare with their checksums what a plain search may read."""

    def _given(self, params: Any) -> Any:
        return params

    def recall_by_class(self, recall: float, k: int = 10, *, queries: int | None = None) -> dict[int, float]:
        """Return the recall@k of each stored class in a search for a recall: 1, as an index without lists is exact."""
        with self._lock.reading():
            return dict.fromkeys(self.snapshot().class_counts[0].tolist(), 1.0)

    def excluding(self, label: int) -> Excluding:
        """Return a view whose ``search(x, k)`` leaves the class ``label`` out, for code that knows no classes."""
        return Excluding(self, label)


class ListSearchingMixin(SearchingMixin):
    """What only an index with lists is asked."""

    complete: bool = True
    routing: str = "evidence"
    has_lists: bool = True
    nprobe: int

    def own_effort(self) -> Effort:
        """Return how hard the index searches where a caller does not say: in ``nprobe`` lists."""
        return Effort(self.nprobe, complete=self.complete, routing=self.routing)

    def nprobe_for(self, recall: float, k: int = 10) -> int:
        """Return the smallest ``nprobe`` at which the evidence of all stored vectors has a wanted recall@k.

        It is measured for each class, see :meth:`recall_by_class`. ``search_stored(k=k, recall=recall)`` probes this
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
        """Return the recall@k of each class that was measured for ``search_stored(k=k, recall=recall)``.

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
        return super().recall_by_class(recall, k, queries=queries) if found is None else dict(found.recall)

    def _calibration(self, recall: float, k: int, queries: int | None) -> tuple[int, Calibration | None]:
        """Return the number of all lists, and the calibration for a recall; None if that is all lists."""
        effort, k = Effort.of(recall=recall).over(self.own_effort()), as_count("k", k)
        with self._lock.reading():
            snapshot = self.snapshot()
            if snapshot.n == 0:
                raise ValueError("the index must hold vectors, got an empty one")
            return snapshot.lists, answers.calibration_for(snapshot, queries or snapshot.n, k, effort)

    def prepare(self, k: int = 10, *, recall: float | None = None) -> dict[str, Any]:
        """Derive the data that first searches need now, and return the measured choices.

        Parameters
        ----------
        k, recall
            As in :meth:`search_evidence`: with a recall, the number of lists that reaches it is measured, too, for
            single queries and for all vectors.
        """
        effort = Effort.of(recall=recall).over(self.own_effort())
        with self._lock.reading():
            snapshot = self.snapshot()
            choices = Derived.of(snapshot).prepared()
            if recall is not None:
                found = {nq: answers.calibration_for(snapshot, nq, k, effort) for nq in (1, snapshot.n)}
                choices["nprobe"] = {nq: snapshot.lists if one is None else one.most for nq, one in found.items()}
            return choices

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
        """Return the evidence of stored vectors, as :meth:`search_stored` does, and which rows are provably exact.

        Parameters
        ----------
        ids, k, nprobe, sel, memory, progress
            As in :meth:`search_stored`.

        Returns
        -------
        D, I
            As from :meth:`search_stored`.
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
        query = self.without_callbacks(Query(as_count("k", k), ids=ids, sel=sel))
        effort = Effort.of(nprobe, memory=memory).over(self.own_effort())
        with self._lock.reading():
            return answers.certified(query.on(self.snapshot()), effort, progress)

    def _check_probed(self, x: Any, params: Any) -> None:
        if self.checks is None:
            return
        nprobe = getattr(params, "nprobe", self.nprobe)
        snapshot, X = self.snapshot(), np.ascontiguousarray(x, np.float32)
        centroids = snapshot.centroids[0]
        if nprobe >= len(centroids) or X.ndim != 2 or X.shape[1] != self.d:
            self._check_mapped()
            return
        for start in range(0, len(X), _CHUNK):
            some = X[start : start + _CHUNK]
            S = some @ centroids.T
            rounding = 4 * snapshot.margin * np.linalg.norm(some, axis=1)  # FAISS sums in another order
            least = np.partition(S, -nprobe, axis=1)[:, -nprobe] - rounding
            self._check_mapped(np.flatnonzero((least[:, None] <= S).any(axis=0)))

    search_and_return_codes = reading("search_and_return_codes")
    search_preassigned = reading("search_preassigned")
    range_search_preassigned = reading("range_search_preassigned")
