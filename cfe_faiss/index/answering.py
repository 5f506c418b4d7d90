"""Answers of evidence indexes in memory to queries, and FAISS's search methods."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import Filter, ListChecks, Reading, ReadWriteLock, SingleSearch, is_single
from cfe_faiss.base.checks import Ints, as_array, as_count, as_number, check_shape
from cfe_faiss.base.threads import product
from cfe_faiss.base.values import NOT_STORED, LabelKeys
from cfe_faiss.index.parameters import EvidenceParameters, Excluding, hand_out, lock_method
from cfe_faiss.index.searching import EvidenceSearcher
from cfe_faiss.rows.faiss_functions import get_nprobe, get_ntotal, pointer_to
from cfe_faiss.rows.metric import Metric, as_rows, flipped, is_distance, next_threshold, score_at
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import answer as answers
from cfe_faiss.search import exact
from cfe_faiss.search.conditions import accepted, calls_python, selected, selector_of, with_ids
from cfe_faiss.search.derived import Derived, Element
from cfe_faiss.search.query import (
    Calibration,
    Certified,
    Effort,
    Queries,
    Query,
    Ranges,
    Results,
    Rules,
)

_CHUNK = 1024
_EXACTLY = Effort(exact=True)
_ANY_LABEL = np.zeros(1, np.int64)
# `SingleSearch.search`, the snapshot and data that it was prepared from, and whether D are distances
_Prepared = tuple[Callable[..., Results | None], Snapshot, Derived, bool]


class AnsweringMixin:
    """Searches of an evidence index in memory.

    A base of :class:`cfe_faiss.index.base.EvidenceMixin`.
    """

    # A base class would be a protocol, whose `__init__` does not call FAISS's.
    search_evidence = EvidenceSearcher.search_evidence
    search_stored = EvidenceSearcher.search_stored
    search_certified = EvidenceSearcher.search_certified
    range_search_evidence = EvidenceSearcher.range_search_evidence
    search_per_label = EvidenceSearcher.search_per_label

    # FAISS rejects attributes that the class does not define, so each has a default here.
    d: int  # of the FAISS base class
    _metric: Metric = "cosine"
    _stock: Any = None
    _lock: ReadWriteLock = None  # type: ignore[assignment]
    # Fast paths for one query, by the arguments of `_prepare_single`, until the index changes.
    _single: dict[tuple[str, bool], _Prepared] | None = None
    _state: Snapshot | None = None
    routing: str = ""  # no lists to rank
    # Checksums of mapped lists, and the assignment of checksums to lists.
    checks: tuple[list[ListChecks], Ints] | None = None
    complete: bool
    has_lists: bool = False
    stores_codes: bool = False  # in FAISS's lists, instead of vectors
    # vectors scored for each result, where they are screened by their codes
    k_factor: float | None = None

    @property
    def metric(self) -> Metric:
        """How vectors are compared, see :class:`cfe_faiss.IndexEvidenceFlat`."""
        return self._metric

    @abstractmethod
    def holding(self) -> Reading[Snapshot]:
        """Return a context manager that holds the read lock and returns the snapshot."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return the current snapshot; the caller holds the lock."""

    def default_effort(self) -> Effort:
        """Return the default effort of the index: exact search."""
        return _EXACTLY

    def resolve_effort(self, effort: Effort) -> Effort:
        """Return an effort completed with the settings of the index.

        Raise ValueError for ``nprobe`` without lists.
        """
        if effort.nprobe is not None and not self.has_lists:
            raise ValueError(
                f"nprobe is for an index with lists, got nprobe={effort.nprobe} for {self!r}"
            )
        return effort.with_defaults(self.default_effort())

    @property
    def keeps_vectors(self) -> bool:
        """Whether the index stores the vectors in float32."""
        return not self.stores_codes or self.k_factor is not None

    # --- answers to a query -----------------------------------------------------------------------

    def answer(self, query: Query, effort: Effort, progress: bool = False) -> Results:
        """Return D and I, both (nq, k), of a query with a number of results.

        ``answer_single``, ``answer_range`` and ``answer_certified`` are the other answers.
        """
        query = self._bindable(query)
        with self.holding() as snapshot:
            return self.answer_on(snapshot, query, effort, progress)

    def without_callbacks(self, sel: Any, name: str = "params.sel") -> Any:
        """Return a selector, or its ids if it calls Python, and so perhaps the index.

        Parameters of FAISS are returned with such a selector. Call it outside of the lock.
        """
        if isinstance(sel, faiss.SearchParameters):
            selector = selector_of(sel)
            return (
                with_ids(sel, self.without_callbacks(selector)) if calls_python(selector) else sel
            )
        if not calls_python(sel):
            return sel
        with self.holding() as snapshot:
            ids = snapshot.row_ids
        return accepted(sel, ids, name)

    def _bindable(self, query: Query) -> Query:
        """Return the query with a selector that does not call Python."""
        if not calls_python(query.sel):
            return query
        return replace(query, sel=self.without_callbacks(query.sel, f"{query.name}sel"))

    def answer_on(
        self, snapshot: Snapshot, query: Query | Queries, effort: Effort, progress: bool = False
    ) -> Results:
        """Answer on a snapshot, or a query bound to one, for callers inside :meth:`holding`."""
        bound = query.bind(snapshot) if isinstance(query, Query) else query
        D, I = answers.search(bound, self.resolve_effort(effort), "Searching" if progress else None)
        return flipped(D, snapshot.metric), I

    # --- evidence search --------------------------------------------------------------------------

    def answer_single(
        self,
        xq: Any,
        labels_q: Any,
        k: Any,
        nprobe: Any,
        recall: Any,
        rules: Rules | None = None,
        sel: Any = None,
    ) -> Results | None:
        """Search one query that needs no conversion. Return None if the fast path does not apply.

        This is :meth:`search_evidence` without copies and conversions, which would take longer than
        the search of a small index. It raises the errors of invalid rules and selections only.
        """
        takes_recall = recall is None or (type(recall) is float and sel is None)
        if self.routing != "evidence" or not takes_recall:
            return None
        if type(xq) is np.memmap:  # a row of vectors on disk
            xq = np.asarray(xq)
        neighbors = "other" if rules is None else rules.neighbors
        kind = neighbors, recall is not None
        searches = self._single
        prepared = None if searches is None else searches.get(kind)
        if prepared is None:
            if not is_single(xq, _ANY_LABEL, k, self.d):
                return None
            prepared = self._prepare_single(*kind)
            if prepared is None:
                return None
        search, snapshot, derived, negates = prepared  # of an older state: the core refuses
        label = labels_q
        if neighbors == "any":
            if labels_q is not None and not is_single(xq, labels_q, k, snapshot.d):
                return None
            label = np.array([snapshot.absent_label])  # no row has it, as in `Query.bind`
        elif snapshot.label_keys is not None:
            label = _label_of_single(snapshot, snapshot.label_keys, labels_q)
        has_rules = rules is not None or sel is not None
        if (has_rules or recall is not None) and not is_single(xq, label, k, snapshot.d):
            return None
        bound = (rules or Rules()).bind(snapshot, 1) if has_rules else None
        if recall is not None:
            width = k
            target = recall
            if bound is not None:
                width, target = answers.calibrated_for(k, recall, bound)
            nprobe = derived.nprobe_for(width, target, label.item(), self.complete, bound)
            if nprobe is None or (nprobe == snapshot.lists and derived.estimates):
                return None  # not calibrated; or all lists, which are not searched by estimates
        elif neighbors == "own" and label.item() not in derived.large_classes:
            nprobe = snapshot.lists  # small classes are searched exactly
        elif nprobe is None:
            nprobe = get_nprobe(pointer_to(self))
        conditions = None if bound is None else self._native_rules(snapshot, bound, sel)
        # Reading a field through SWIG's pointer takes a tenth of the time of attribute access.
        ntotal = get_ntotal(pointer_to(self))
        found = search(xq, label, k, nprobe, self.complete, ntotal, conditions)
        # The index has changed; or the call is a batch, or needs a conversion. The core does not
        # say which. The next single query makes such an object again, which takes the time of a few
        # queries.
        if found is None:
            self._single = None
        elif negates:
            return flipped(found[0], self.metric), found[1]
        return found

    def _native_rules(self, snapshot: Snapshot, bound: Rules, sel: Any) -> Filter:
        """Return bound rules and a selection of one query for the core."""
        if sel is None:
            return bound.native()
        with self.holding() as current:  # a selection reads ids
            allowed = selected(sel, current)
        # A mask of a changed index may have another length; then the core refuses the search.
        return bound.native(None, allowed if current is snapshot else np.ones(snapshot.n, bool))

    def _prepare_single(self, neighbors: str, by_recall: bool) -> _Prepared | None:
        """Return and keep the search of single queries; None without one.

        ``neighbors``: the classes that they may find; ``by_recall``: at a target recall.
        """
        with self.holding() as snapshot:
            derived = Derived.of(snapshot)
            searcher = derived.searcher(neighbors, by_recall=by_recall) if snapshot.n else None
            if searcher is None:
                return None
            search = SingleSearch(self._lock, searcher).search
            prepared = search, snapshot, derived, is_distance(self.metric)
            self._single = {**(self._single or {}), (neighbors, by_recall): prepared}
            return prepared

    def answer_range(self, query: Query) -> Ranges:
        """Return lims, D and I of a query with a threshold."""
        query = self._bindable(query)
        with self.holding() as snapshot:
            score = score_at(query.threshold or 0, snapshot.metric)
            lims, D, I = exact.search_range(query.bind(snapshot), score)
            return lims, flipped(D, snapshot.metric), I

    def answer_certified(self, query: Query, effort: Effort, progress: bool = False) -> Certified:
        """Return D, I and the mask of provably exact rows."""
        query = self._bindable(query)
        with self.holding() as snapshot:
            bound = query.bind(snapshot)
            effort = self.resolve_effort(effort)
            D, I, certified = answers.search_certified(
                bound, effort, "Searching" if progress else None
            )
            return flipped(D, snapshot.metric), I, certified

    def search(
        self,
        x: ArrayLike,
        k: int,
        *,
        params: Any = None,
        D: Any = None,
        I: Any = None,
        **stock: Any,
    ) -> Any:
        """Return the k nearest vectors, as ``faiss.Index.search``.

        With ``EvidenceParameters``, the best k evidences.

        Parameters
        ----------
        x
            Queries, (nq, d). An evidence search normalises a copy.
        k
            Number of results per query, >= 1.
        params
            :class:`cfe_faiss.EvidenceParameters` for evidence; FAISS's own parameters, or None, for
            a plain search.
        D, I
            Output arrays, (nq, k) float32 and int64.

        Returns
        -------
        D, I
            Similarities and ids, best first.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        if not isinstance(params, EvidenceParameters):
            return self._of_stock("search", (x, k), params, {"D": D, "I": I, **stock})
        if params.plain and D is None and I is None and not stock:
            found = self.answer_single(x, params.labels, k, params.nprobe, params.recall)
            if found is not None:
                return found
        query = self._make_query("search", x, params, stock, k=as_count("k", k))
        return hand_out(x, self.answer(query, params.effort), D=D, I=I)

    def search_and_reconstruct(
        self,
        x: ArrayLike,
        k: int,
        *,
        params: Any = None,
        D: Any = None,
        I: Any = None,
        R: Any = None,
        **stock: Any,
    ) -> Any:
        """Return the results of :meth:`search` and their vectors.

        Parameters
        ----------
        x, k, params, D, I
            As in :meth:`search`.
        R
            Output array for the vectors, (nq, k, d) float32.

        Returns
        -------
        D, I, R
            Similarities, ids and vectors, (nq, k, d) float32. Vectors of padding are NaN, as in
            FAISS.
        """
        name = "search_and_reconstruct"
        if not isinstance(params, EvidenceParameters):
            return self._of_stock(name, (x, k), params, {"D": D, "I": I, "R": R, **stock})
        query = self._bindable(self._make_query(name, x, params, stock, k=as_count("k", k)))
        with self.holding() as snapshot:
            found = self.answer_on(snapshot, query, params.effort)
            vectors = np.full((*found[1].shape, self.d), np.nan, np.float32)
            filled = found[1] >= 0
            vectors[filled] = snapshot.rows(snapshot.find(found[1][filled]))[0]
        return hand_out(x, (*found, vectors), D=D, I=I, R=R)

    assign = lock_method("assign")

    def range_search(self, x: ArrayLike, thresh: float, *, params: Any = None, **stock: Any) -> Any:
        """Return all vectors nearer than a threshold; with ``EvidenceParameters``, all evidence.

        As in ``faiss.Index.range_search``, results have similarity > ``thresh``, or squared
        distance < ``thresh``. Vectors come in undefined order, evidence comes best first.
        :meth:`range_search_evidence` includes results at the threshold.
        """
        if not isinstance(params, EvidenceParameters):
            return self._of_stock("range_search", (x, thresh), params, stock)
        number = next_threshold(as_number("thresh", thresh, -np.inf, np.inf), self.metric)
        params.check_range()
        query = self._make_query("range_search", x, params, stock, threshold=number)
        return hand_out(x, self.answer_range(query), lims=None, D=None, I=None)

    def _make_query(
        self,
        method: str,
        x: ArrayLike,
        params: EvidenceParameters,
        stock: dict[str, Any],
        **many: Any,
    ) -> Query:
        """Return the query of ``params`` for vectors ``x``.

        Raise TypeError if arguments of FAISS are given, too.
        """
        if stock:
            raise TypeError(
                f"{method} takes no {next(iter(stock))} together with EvidenceParameters"
            )
        return params.query(as_rows("x", x, self.d, self.metric), **many)

    def _of_stock(
        self,
        name: str,
        about: tuple[Any, ...],
        params: Any,
        further: dict[str, Any],
        refine: Callable[[Snapshot, Any, Any], Any] | None = None,
    ) -> Any:
        """Call FAISS's search method under the read lock, and ``refine`` with its result.

        ``faiss.contrib.torch_utils`` replaces these methods by versions that accept tensors but no
        parameters.
        """
        x = about[0] if hasattr(about[0], "shape") else as_array("x", about[0])
        limit = about[1]
        check_shape("x", x, ("n", self.d))
        about = x, limit if name == "range_search" else as_count("k", limit)
        params = self.without_callbacks(params)
        plain_method = getattr(self._stock, name)
        takes_parameters = getattr(self._stock, f"{name}_numpy", plain_method)
        method = (
            plain_method
            if params is None or not isinstance(about[0], np.ndarray)
            else takes_parameters
        )
        with self._lock.reading():
            self._check_probed(about[0], params)
            if isinstance(params, faiss.SearchParameters) and not self.has_lists:
                # FAISS's id map replaces the selector in them, so threads must not share them.
                further = {**further, "params": faiss.SearchParameters(sel=params.sel)}
            elif params is not None:
                further = {**further, "params": params}
            results = method(self, *about, **further)
            return results if refine is None else refine(self.snapshot(), about[0], results)

    def _check_mapped(self, lists: Ints | None = None) -> None:
        """Compare mapped lists (by default all) with their checksums before FAISS reads them."""
        if self.checks is not None:
            self.snapshot().native.check_lists(lists)

    def _check_probed(self, x: Any, params: Any) -> None:
        """Compare the lists that a plain search may read with their checksums."""

    def recall_by_class(
        self, recall: float, k: int = 10, *, queries: int | None = None
    ) -> dict[Any, float]:
        """Return the recall@k of each stored class: 1, as an index without lists is exact."""
        as_count("k", k)
        as_number("recall", recall, 0, 1, is_open=True)
        with self.holding() as snapshot:
            return dict.fromkeys(snapshot.label_names.tolist(), 1.0)

    @property
    def choice(self) -> Element | None:
        """Element type of the blocks, see :attr:`cfe_faiss.IndexEvidenceIVF.choice`.

        None for an exact index.
        """
        return None

    def prepare(self, k: int = 10, recall: float | None = 0.95) -> None:
        """Do the first-use work of searches now.

        An exact index only sorts its ids, and needs no measurements.

        Parameters
        ----------
        k, recall
            Checked as in :meth:`search_evidence`, without effect.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        as_count("k", k)
        Effort.of(recall=recall)
        with self.holding() as snapshot:
            _ = snapshot.members

    def prepare_again(self) -> None:
        """Derive the data of an index that was prepared before it was written.

        Nothing for an exact index.
        """

    def excluding(self, label: int | str) -> Excluding:
        """Return a view whose ``search(x, k)`` excludes class ``label``.

        It serves code without a notion of classes.
        """
        return Excluding(self, label)


def _label_of_single(snapshot: Snapshot, table: LabelKeys, labels: Any) -> Any:
    """Return the code of the label of one query, (1,); None if it needs a conversion."""
    if type(labels) is not np.ndarray or labels.shape != (1,) or labels.item() == "":
        return None
    code = table.code_of(labels.item())  # `encode` takes ten times as long
    if code is None:
        return None
    return np.array([snapshot.absent_label if code == NOT_STORED else code], np.int32)


class ListAnsweringMixin(AnsweringMixin):
    """Additional searches of an index with lists."""

    complete: bool = True
    routing: str = "evidence"
    has_lists: bool = True
    nprobe: int

    def default_effort(self) -> Effort:
        """Return the default effort of the index: ``nprobe`` lists."""
        return Effort(self.nprobe, complete=self.complete, routing=self.routing)

    def nprobe_for(self, recall: float, k: int = 10) -> int:
        """Return the least ``nprobe`` at which evidence of all vectors has a recall@k.

        The recall is measured for each class, see :meth:`recall_by_class`.
        ``search_stored(k=k, recall=recall)`` probes this number of lists for the most demanding
        class, and fewer for the others.

        Parameters
        ----------
        recall
            Target recall, in (0, 1].
        k
            Number of results per vector, >= 1.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or the index is empty.
        """
        number, found = self._calibration(recall, k, None)
        return number if found is None else found.most

    def recall_by_class(
        self, recall: float, k: int = 10, *, queries: int | None = None
    ) -> dict[Any, float]:
        """Return the measured recall@k of each class for ``search_stored(k=k, recall=recall)``.

        A sample of each class, about 250 to 1,000 stored vectors, is searched exactly and with
        increasing ``nprobe``. The search stops when the lower 99.5 % confidence bound of the recall
        reaches ``recall - 0.01`` for this class, and the bound of the mean over all classes reaches
        ``recall``. Classes with fewer than 100 stored vectors are measured together. The
        measurement is cached until the index changes.

        Parameters
        ----------
        recall
            Target recall, in (0, 1].
        k
            Number of results per vector, >= 1.
        queries
            Number of stored vectors in one call: large batches are searched in groups, small ones
            query by query. None: all stored vectors.

        Returns
        -------
        dict
            Recall of the sample, in [0, 1], for each stored class; 1 for exact searches.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or the index is empty.

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
        found = self._calibration(
            recall, k, None if queries is None else as_count("queries", queries)
        )[1]
        if found is None:
            return super().recall_by_class(recall, k, queries=queries)
        with self.holding() as snapshot:
            labels = snapshot.decode(np.array([*found.recall], np.int32)).tolist()
        return dict(zip(labels, found.recall.values(), strict=True))

    def _calibration(
        self, recall: float | None, k: int, queries: int | None
    ) -> tuple[int, Calibration | None]:
        """Return the number of lists, and the calibration for a recall (None: all lists)."""
        effort = self.resolve_effort(Effort.of(recall=recall))
        k = as_count("k", k)
        with self.holding() as snapshot:
            if snapshot.n == 0:
                raise ValueError("the index must hold vectors, got an empty one")
            return snapshot.lists, answers.calibration_for(
                snapshot, queries or snapshot.n, k, effort
            )

    def _check_probed(self, x: Any, params: Any) -> None:
        if self.checks is None:
            return
        nprobe = getattr(params, "nprobe", self.nprobe)
        snapshot = self.snapshot()
        X = np.ascontiguousarray(x, np.float32)
        centroids = snapshot.centroids[0]
        if self.metric != "cosine" or nprobe >= len(centroids):
            self._check_mapped()
            return
        for start in range(0, len(X), _CHUNK):
            block = X[start : start + _CHUNK]
            S = product(block, centroids.T)
            # FAISS sums in a different order
            rounding = 4 * snapshot.margin * np.linalg.norm(block, axis=1)
            least = np.partition(S, -nprobe, axis=1)[:, -nprobe] - rounding
            self._check_mapped(np.flatnonzero((least[:, None] <= S).any(axis=0)))

    search_and_return_codes = lock_method("search_and_return_codes")
    search_preassigned = lock_method("search_preassigned")
    range_search_preassigned = lock_method("range_search_preassigned")
