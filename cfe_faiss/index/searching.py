"""Interface of all evidence indexes, and their public searches.

A search becomes a query and an effort, which are answered: by :mod:`cfe_faiss.index.answering` for
an index in memory. Callers use only this interface, and do not ask for an index's kind.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack, runtime_checkable

from numpy.typing import ArrayLike

from cfe_faiss._native import Reading, Writing
from cfe_faiss.base.checks import Array, Floats, as_count, as_number
from cfe_faiss.base.values import as_labels
from cfe_faiss.rows.ids_and_labels import unknown_labels
from cfe_faiss.rows.metric import Metric, as_rows
from cfe_faiss.rows.snapshot import Members, Snapshot
from cfe_faiss.search.conditions import calls_python
from cfe_faiss.search.derived import Element
from cfe_faiss.search.query import (
    Certified,
    Effort,
    OptionsWithoutRecall,
    Queries,
    Query,
    Ranges,
    Results,
    RowOptions,
    Rules,
    SearchOptions,
)

if TYPE_CHECKING:
    from cfe_faiss.index.base import Transaction


class EvidenceSearcher(Protocol):
    """Searches that every kind of index offers, a served one included.

    Each method checks its arguments and asks a :class:`cfe_faiss.search.query.Query`. A served
    index offers only these methods: its rows are in other processes.

    Attributes
    ----------
    d
        Dimension of the vectors.
    metric
        How vectors are compared, see :class:`cfe_faiss.IndexEvidenceFlat`.
    """

    d: int

    @property
    def metric(self) -> Metric:
        """How vectors are compared."""

    @property
    def label_names(self) -> Array:
        """Known labels of the vectors in ascending order, (c,): int64, booleans or objects."""

    def search_evidence(
        self,
        xq: ArrayLike,
        labels_q: ArrayLike | None,
        k: int,
        nprobe: int | None = None,
        *,
        recall: float | None = None,
        **options: Unpack[OptionsWithoutRecall],
    ) -> Results:
        """Return the k most similar stored vectors of other classes than the queries'.

        Batches are searched list by list, and queries of one list are routed together. A query in a
        batch may thus probe other lists than the same query by itself.

        Parameters
        ----------
        xq
            Query vectors, (nq, d); for "cosine" normalised in a copy.
        labels_q
            Predicted class of each query, (nq,). If it is not stored, all classes are others.
        k
            Number of results per query, >= 1.
        nprobe
            Number of lists to probe, over all partitions; by default that of the index. The result
            is exact if nprobe >= partitions * nlist. An index without lists raises ValueError.
        recall
            Instead of ``nprobe``: target recall@k, in (0, 1]; 1 is exact. The mean over all queries
            reaches it, and the mean of each class with at least 100 stored vectors ``recall -
            0.01``. The lists for each class are measured once, see :meth:`recall_by_class`; under
            ``within`` and ``neighbors="any"``, with these rules. Each query ranks the lists by
            itself. With ``sel``, each call measures; up to 2,000 queries are searched exactly.
        exact
            Instead of ``nprobe``: whether to return the exact result.
        sel
            Restricts the evidence to selected vectors: a mask, ids or a ``faiss.IDSelector``, as
            ``sel`` of :class:`EvidenceParameters`.
        exclude
            Ids that each query must not find: a list of nq sequences, or (nq, m) integers padded
            with -1. Ids that are not stored are ignored.
        exclude_labels
            Further classes that each query must not find, in the same forms.
        within
            Smallest and largest similarity of a result, (low, high); either may be infinite.
        neighbors
            Rows that a query may find: of "other" classes than its own, of its "own" class, or
            "any" rows, of unknown class included; for "any", ``labels_q`` may be None. With "own",
            classes of fewer than 4,096 rows are searched exactly, and all classes with ``recall``.
        per_group
            Maximum number of results of a class, >= 1: the best rows of each class, and all of
            unknown class, compete for the k places. With ``recall`` the search is exact.
        memory
            Bytes for copies of vectors in a batch search, >= 1; by default 2 GiB. Less: more passes.
        progress
            Whether to show a progress bar on standard error.

        Returns
        -------
        D, I
            Similarities (nq, k) float32 and ids (nq, k) int64, best first; equal similarity:
            smaller id first. Missing results have id -1 and FAISS's padding value. Unless the index
            has ``complete=False``, further lists are searched until the row is complete.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        rules = None
        may_be_single = recall is None or nprobe is None
        sel = None
        if options:
            rules = _rules_of("search_evidence", options)
            sel = options.get("sel")
            may_be_single = (
                may_be_single
                and not calls_python(sel)
                and not options.get("exact")
                and options.get("memory") is None
                and (rules is None or rules.take_one_search)
            )
        if may_be_single:
            found = self.answer_single(xq, labels_q, k, nprobe, recall, rules, sel)
            if found is not None:
                return found
        X = as_rows("xq", xq, self.d, self.metric)
        query = Query(
            as_count("k", k),
            X=X,
            labels=_query_labels(labels_q, len(X), rules),
            sel=sel,
            rules=rules,
        )
        effort = _effort_of(nprobe, recall, options)
        return self.answer(query, effort, options.get("progress", False))

    def search_stored(
        self,
        ids: ArrayLike | None = None,
        k: int = 10,
        nprobe: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> Results:
        """Return the evidence of stored vectors, as :meth:`search_evidence` does.

        Parameters
        ----------
        ids
            Stored ids, (nq,); by default all of them in ascending order.
        k, nprobe, **options
            As in :meth:`search_evidence`; ``sel`` restricts the evidence, not the queries. A query
            never finds itself.

        Returns
        -------
        D, I
            As in :meth:`search_evidence`. Rows of vectors with unknown class contain only padding,
            unless ``neighbors`` is "any".

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or an id is not in the index.
        """
        rules = _rules_of("search_stored", options)
        query = Query(as_count("k", k), ids=ids, sel=options.get("sel"), rules=rules)
        effort = _effort_of(nprobe, options.get("recall"), options)
        return self.answer(query, effort, options.get("progress", False))

    def search_certified(
        self,
        ids: ArrayLike | None = None,
        k: int = 10,
        nprobe: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> Certified:
        """Return the evidence of stored vectors, and a mask of provably exact rows.

        See :meth:`search_stored`.

        Parameters
        ----------
        ids, k, nprobe, **options
            As in :meth:`search_stored`. With one of ``exclude``, ``exclude_labels``, ``within``,
            ``neighbors`` and ``per_group`` the search is always exact.

        Returns
        -------
        D, I
            As from :meth:`search_stored`.
        certified
            Whether a bound proves that no skipped list can hold a better result, (nq,) bool; all
            True if no list is skipped. Many exact rows have no such proof, above all in high
            dimensions.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or an id is not in the index.

        Notes
        -----
        A vector x of a list with centroid c is bounded by angles: angle(q, x) >= angle(q, c) -
        angle(x, c). In addition to the search, this takes the time to compare every query with
        every centroid.
        """
        rules = _rules_of("search_certified", options)
        query = Query(as_count("k", k), ids=ids, sel=options.get("sel"), rules=rules)
        effort = _effort_of(nprobe, options.get("recall"), options)
        return self.answer_certified(query, effort, options.get("progress", False))

    def range_search_evidence(
        self,
        xq: ArrayLike,
        labels_q: ArrayLike | None,
        threshold: float,
        **options: Unpack[RowOptions],
    ) -> Ranges:
        """Return all evidence with similarity >= ``threshold``.

        The search is exact and covers the whole index.

        Parameters
        ----------
        xq, labels_q
            As in :meth:`search_evidence`.
        **options
            ``sel``, ``exclude``, ``exclude_labels``, ``within`` and ``neighbors``, as in
            :meth:`search_evidence`.
        threshold
            Minimum similarity; for "l2", the largest squared distance. An infinite threshold
            returns all rows that the rules allow, or none.

        Returns
        -------
        lims, D, I
            As in FAISS's ``range_search``: ``D[lims[q]:lims[q + 1]]`` are the similarities of query
            q, and the same slice of ``I`` its ids. Best first; equal similarity: smaller id first.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        X = as_rows("xq", xq, self.d, self.metric)
        rules = _rules_of("range_search_evidence", options, RowOptions)
        number = as_number("threshold", threshold, -math.inf, math.inf)
        labels = _query_labels(labels_q, len(X), rules)
        return self.answer_range(
            Query(threshold=number, X=X, labels=labels, sel=options.get("sel"), rules=rules)
        )

    def search_per_label(  # noqa: PLR0913 - other options would have no effect
        self,
        xq: ArrayLike,
        labels_q: ArrayLike,
        k: int,
        nprobe: int | None = None,
        *,
        recall: float | None = None,
        exact: bool = False,
        sel: Any = None,
        exclude: Any = None,
        within: tuple[float, float] | None = None,
    ) -> Results:
        """Return the k most similar stored vectors of each class other than the query's.

        Parameters
        ----------
        xq, labels_q, sel, exclude, within
            As in :meth:`search_evidence`.
        k
            Number of results per query and class, >= 1.
        nprobe
            Number of lists to probe for each class with at least 4,096 stored vectors: the lists
            whose vectors of this class are nearest. Smaller classes are searched exactly. By
            default the ``nprobe`` of the index.
        recall, exact
            Instead of ``nprobe``: an exact search, in both cases.

        Returns
        -------
        D, I
            Similarities (nq, classes, k) float32 and ids (nq, classes, k) int64, best first. The
            classes are ``label_names``. Results of the query's own class, and missing results, are
            padding.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> index = cfe.IndexEvidenceFlat(2)
        >>> index.add_with_labels([[1, 0], [0.8, 0.6], [0, 1], [0.6, 0.8]], [0, 1, 2, 1])
        >>> index.search_per_label([[1, 0.1]], [0], k=2)[1]
        array([[[-1, -1],
                [ 1,  3],
                [ 2, -1]]])
        """
        rules = (Rules.of({"exclude": exclude, "within": within}) or Rules())._replace(
            per_label=True
        )
        X = as_rows("xq", xq, self.d, self.metric)
        query = Query(
            as_count("k", k),
            X=X,
            labels=_query_labels(labels_q, len(X), rules),
            sel=sel,
            rules=rules,
        )
        return self.answer(query, Effort.of(nprobe, recall, exact))

    def recall_by_class(
        self, recall: float, k: int = 10, *, queries: int | None = None
    ) -> dict[Any, float]:
        """Return the measured recall@k of each stored class."""

    # --- answers, for callers with a Query --------------------------------------------------------

    def answer_single(self, *args: Any, **kwargs: Any) -> Results | None:
        """Search one query that needs no conversion.

        Return None if this fast path does not apply.
        """
        return None

    def answer(self, query: Query, effort: Effort, progress: bool = False) -> Results:
        """Return D and I of a query, both (nq, k)."""

    def answer_range(self, query: Query) -> Ranges:
        """Return lims, D and I of a query with a threshold."""

    def answer_certified(self, query: Query, effort: Effort, progress: bool = False) -> Certified:
        """Return D and I of a query, and a mask, (nq,), of the provably exact rows."""


@runtime_checkable
class EvidenceIndex(EvidenceSearcher, Protocol):
    """Interface of :class:`cfe_faiss.IndexEvidenceFlat`, the inverted files and a sharded index.

    ``isinstance(x, cfe_faiss.EvidenceIndex)`` checks that the names exist. To find out what an
    index can do, ask the attributes below.

    Attributes
    ----------
    ntotal, is_trained
        As in FAISS.
    has_lists
        Whether the index has lists: whether ``nprobe`` has an effect.
    stores_codes
        Whether FAISS's lists hold codes instead of vectors.
    k_factor
        Vectors that are scored for each result, where they are screened by their codes; None
        elsewhere.
    refusal
        Why the index is read-only; empty if it is not. Then :meth:`changing` and all changes raise
        RuntimeError; :meth:`relabel` of a sharded index works.
    origins
        File that the index was first read from or written to, and the last one written.
    """

    ntotal: int
    is_trained: bool
    has_lists: bool
    stores_codes: bool
    k_factor: float | None
    refusal: str
    origins: tuple[Path, ...]

    @property
    def choice(self) -> Element | None:
        """Element type of the blocks that :meth:`prepare` pinned; None before it."""

    @property
    def keeps_vectors(self) -> bool:
        """Whether the index has the vectors in float32."""

    # --- searching --------------------------------------------------------------------------------

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
        """Return D, I: the nearest rows, or evidence with ``EvidenceParameters``."""

    def prepare(self, k: int = 10, recall: float | None = 0.95) -> None:
        """Do the first-use work of searches now, and keep its results for the index file."""

    def answer_on(
        self, snapshot: Snapshot, query: Query | Queries, effort: Effort, progress: bool = False
    ) -> Results:
        """Return D, I of a query, perhaps bound to the snapshot, inside of :meth:`holding`."""

    def resolve_effort(self, effort: Effort) -> Effort:
        """Return an effort with its open fields set to the defaults of the index."""

    # --- rows -------------------------------------------------------------------------------------

    def holding(self) -> Reading[Snapshot]:
        """Return a context manager that holds the read lock and returns the snapshot.

        No code of users runs inside.
        """

    def storage(self) -> Snapshot:
        """Return the stored rows, read-only, without a lock."""

    def members(self) -> Members:
        """Return the ids in ascending order, and the row and label of each."""

    def reconstruct_batch(self, key: ArrayLike, x: Any = None, **_: Any) -> Floats:
        """Return the vectors of some ids, (n, d)."""

    # --- changes ----------------------------------------------------------------------------------

    def changing(self) -> Writing[Transaction]:
        """Return a context manager that holds the write lock and returns a transaction."""

    def train(self, x: ArrayLike) -> None:
        """Learn the lists from vectors."""

    def add_with_labels(
        self, x: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None
    ) -> None:
        """Add vectors with their predicted classes."""

    def relabel(self, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Replace the classes of rows."""

    def update_vectors(self, ids: ArrayLike, x: ArrayLike, labels: ArrayLike | None = None) -> None:
        """Replace the vectors, and with ``labels`` the classes, of rows."""

    def drift(self) -> float:
        """Return the share of rows that fit another list better than their list."""

    def remove_ids(self, x: Any) -> int:
        """Remove rows, and return how many they were."""

    def reset(self) -> None:
        """Remove all rows."""

    # --- files ------------------------------------------------------------------------------------

    def parts(self) -> tuple[Any, dict[str, Any], dict[str, Array]]:
        """Return FAISS's part, parameters and arrays of the index file."""


def check_index(index: Any) -> None:
    """Raise TypeError unless an object is an evidence index."""
    if not hasattr(type(index), "answer_on"):
        hint = "; give its evidence" if hasattr(index, "evidence") else ""
        raise TypeError(f"index must be an evidence index, got {type(index).__name__}{hint}")


def _query_labels(labels: ArrayLike | None, nq: int, rules: Rules | None) -> Array:
    """Return the labels of queries; unknown ones are for searches of any class only."""
    is_any = rules is not None and rules.neighbors == "any"
    if labels is None and is_any:
        return unknown_labels(nq)
    return as_labels("labels_q", labels, nq, unknown=is_any)


def _rules_of(
    method: str, options: RowOptions, known: type[RowOptions] = SearchOptions
) -> Rules | None:
    """Return the rules among the options of a search; raise TypeError for an unknown option."""
    names = known.__annotations__.keys()
    if not options.keys() <= names:
        unknown = min(options.keys() - names)
        raise TypeError(f"{method}() got an unexpected keyword argument {unknown!r}")
    return Rules.of(options)


def _effort_of(nprobe: int | None, recall: float | None, options: OptionsWithoutRecall) -> Effort:
    return Effort.of(nprobe, recall, options.get("exact", False), options.get("memory"))
