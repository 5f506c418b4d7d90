"""Exact evidence search: the paper's LocalCE-B (Algorithm 1) at BLAS speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import FaissLists, Table, call_steps
from cfe_faiss.base.checks import (
    Bytes,
    Floats,
    Int32s,
    Ints,
    as_array,
    as_count,
    as_matrix,
    check_type,
)
from cfe_faiss.index.base import Arrays, EvidenceMixin
from cfe_faiss.rows import faiss_functions as steps_of
from cfe_faiss.rows import ids_and_labels
from cfe_faiss.rows.codecs import FLAT, NO_LEVELS
from cfe_faiss.rows.faiss_functions import Step, list_of, pointer_to, setting
from cfe_faiss.rows.ids_and_labels import arrays_of, table_from
from cfe_faiss.rows.metric import METRICS, Metric, as_metric, as_rows, faiss_metric
from cfe_faiss.rows.snapshot import Snapshot

_REMEDY = "cfe_faiss.IndexEvidenceIDMap2 has ids of your own, which stay"


class ExactMixin(EvidenceMixin):
    """Storage, changes and files of an exact evidence index.

    It precedes the FAISS class in the bases.

    FAISS's part is an ``IndexFlat`` with the vectors, and a vector with the id of each row.
    """

    _flat: Any = None  # pointer to FAISS's IndexFlat with the vectors
    _row_ids: Any = None  # id of each row, in a vector of FAISS
    _address: int = 0  # of the vectors

    def __init__(self, d: int, metric: Metric | int = "cosine") -> None:
        self._metric = as_metric("metric", metric)
        self._construct(as_count("d", d))
        self._set_up(_table_of(self.d, 0, None))

    # --- implemented by each kind of index --------------------------------------------------------

    def _construct(self, d: int) -> Any:
        """Call FAISS's constructor, set ``_flat`` and ``_row_ids``, and return the flat index."""
        raise NotImplementedError

    def _truncating(self, n: int) -> list[Step]:
        """Return the steps that truncate FAISS's part to n rows."""
        return steps_of.truncating(self._flat, self._row_ids, n)

    # --- a new index ------------------------------------------------------------------------------

    @classmethod
    def from_stock(
        cls, flat: Any, labels: ArrayLike, *, metric: Metric | int | None = None
    ) -> Self:
        """Return an evidence index over copies of the vectors and ids of a stock index.

        Parameters
        ----------
        flat
            ``faiss.IndexFlat`` over inner products, squared distances or Jaccard similarities; for
            ``IndexEvidenceIDMap2`` also a ``faiss.IndexIDMap`` over one. It is not changed.
        labels
            Predicted class of each of its vectors, (n,), in ascending order of their ids; -1 for
            "unknown".
        metric
            By default that of ``flat``, "ip", "l2" or "tanimoto". ``"cosine"`` normalises the
            vectors.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.

        Examples
        --------
        >>> import numpy as np
        >>> flat = faiss.IndexFlatL2(2)
        >>> flat.add(np.eye(2, dtype=np.float32))
        >>> IndexEvidenceFlat.from_stock(flat, [0, 1]).search_stored(k=1)[0]
        array([[2.],
               [2.]], dtype=float32)
        """
        cls._check_stock(flat)
        X, ids = ids_and_labels.stock_contents(flat)
        index = cls(flat.d, ids_and_labels.metric_of("flat", flat, metric))
        order = np.argsort(ids, kind="stable")
        rows = as_rows("flat's vectors", X[order], index.d, index.metric)
        with index.changing() as transaction:
            codes, steps = transaction.encode(labels, len(X))
            transaction.insert(rows, codes, ids[order], steps)
        return index

    @classmethod
    def _check_stock(cls, flat: Any) -> None:
        """Raise TypeError for a stock index of another kind."""
        check_type(
            "flat must be a faiss.IndexFlat, or an IndexIDMap over one",
            flat,
            faiss.IndexFlat | faiss.IndexIDMap,
        )

    def _take_over(self, stock: Any, parameters: dict[str, Any]) -> None:
        self._metric = parameters.get("metric", "cosine")
        source = faiss.downcast_index(stock.index) if isinstance(stock, faiss.IndexIDMap) else stock
        steps_of.take_vectors(self._construct(source.d), source)

    def __repr__(self) -> str:
        metric = "" if self.metric == "cosine" else f", metric={self.metric!r}"
        return f"{type(self).__name__}(d={self.d}{metric}, ntotal={self.ntotal})"

    # --- storage ----------------------------------------------------------------------------------

    def _new_snapshot(self) -> Snapshot:
        if self._state is not None:
            raise RuntimeError(
                "the vectors were changed by other means than the methods of this index; build a "
                "new one"
            )
        self._address = steps_of.address_of(self._flat)
        lists = self._faiss_lists()
        rows = self._table.rows(
            lists, self.d, FLAT, NO_LEVELS.reshape(-1), METRICS.index(self.metric), sorted=False
        )
        lookup = partial(self._table.rows_of, lists)
        return Snapshot(
            rows, self.d, lookup=lookup, label_keys=self.label_keys, longest=self._longest
        )

    def _is_current(self, snapshot: Snapshot) -> bool:
        return self._address == steps_of.address_of(self._flat)

    def _faiss_lists(self) -> FaissLists:
        return list_of(self._flat, self._row_ids)

    # --- changes ----------------------------------------------------------------------------------

    def _adding(self, X: Floats, ids: Ints) -> list[Step]:
        """Return the steps that add room for rows to FAISS's part."""
        return steps_of.adding(self._flat, self._row_ids, X)

    def _relabel(self, rows: Ints, labels: Int32s, also: Sequence[Step]) -> None:
        change = self._table.relabelling(rows, labels, sorted=False)
        self._commit(
            change, self._faiss_lists(), (None, None, None, None), before=[], undo=[], after=[*also]
        )

    def _replace_rows(
        self,
        lists: FaissLists,
        rows: Ints,
        X: Floats,
        labels: Int32s,
        ids: Ints,
        also: Sequence[Step],
    ) -> None:
        n = len(self._table)
        change = self._table.replacement(rows, np.zeros(len(ids), np.int32), labels, sorted=False)
        before: list[Step] = []
        undo: list[Step] = []
        after = [*self._lengthening(X), *also]
        if len(ids) > len(rows):
            before = self._adding(X[len(rows) :], ids[len(rows) :])
            undo = self._truncating(n)
        ids_stay = len(ids) == len(rows) and np.array_equal(ids, self.snapshot().copied(rows)[1])
        if len(rows) and not ids_stay:
            after = [*self._truncating(n + len(ids) - len(rows)), *after]
        self._commit(change, lists, (X.view(np.uint8), ids, None, None), before, undo, after)

    def _emptying(self) -> list[Step]:
        return self._emptying_by(self._truncating(0), _table_of(self.d, 0, None))

    def _stock_of(self, snapshot: Snapshot, label: int) -> Any:
        stock = faiss.IndexIDMap2(steps_of.flat_index(self.d, self.metric_type))
        stock.add_with_ids(*snapshot.rows(np.flatnonzero(snapshot.labels == label)))
        return stock

    # --- files ------------------------------------------------------------------------------------

    def parts(self) -> tuple[Any, dict[str, Any], Arrays]:
        """Return the stock index, the parameters and the arrays of the index file."""
        snapshot = self.snapshot()
        parameters = {"metric": self.metric, "longest": self._longest}
        labels = {
            "labels": snapshot.labels,
            **arrays_of(self.label_keys, lambda: snapshot.class_counts[0]),
        }
        return self, parameters, labels

    def restore(
        self,
        stock: Any,
        parameters: dict[str, Any],
        arrays: Arrays,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Take over a stock index, and restore the parameters and arrays of :meth:`parts`."""
        self._take_over(stock, parameters)
        self._set_up(_table_of(self.d, self.ntotal, arrays["labels"]))
        self._longest = parameters.get("longest", 0.0)
        self.label_keys = table_from(arrays)
        self._unchecked = check


class IndexEvidenceFlat(ExactMixin, faiss.IndexFlat):  # type: ignore[misc]
    """Exact index of counterfactual evidence, whose ids are positions.

    A subclass of ``faiss.IndexFlat``: vector i has the id i, and a removal renumbers the later
    vectors. FAISS's code may use it as a coarse quantizer, in ``IndexRefine``, in
    ``IndexPreTransform`` and so on. :class:`IndexEvidenceIDMap2` has ids that stay.

    Parameters
    ----------
    d
        Dimension of the vectors.
    metric
        ``"cosine"``: inner products of normalised copies. ``"ip"``: inner products of the unchanged
        vectors. ``"l2"``: squared distances, ascending. ``"tanimoto"``: Tanimoto similarities of
        rows of 0 and 1, in [0, 1]; two rows of zeros have 1. Or FAISS's constant,
        ``faiss.METRIC_INNER_PRODUCT`` for "ip", ``faiss.METRIC_Jaccard`` for "tanimoto".

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
    >>> index = cfe.IndexEvidenceFlat(2, metric="l2")
    >>> index.add_with_labels(X, [0, 1, 1])
    >>> index.search_evidence(X[:1], [0], k=2)[0].round(2)
    array([[0.4, 2. ]], dtype=float32)
    >>> index = cfe.IndexEvidenceFlat(4, metric="tanimoto")
    >>> index.add_with_labels([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]], [0, 1, 1])
    >>> index.search_evidence([[1, 1, 0, 0]], [0], k=2)[0].round(2)
    array([[0.67, 0.  ]], dtype=float32)
    """

    _stock = faiss.IndexFlat

    def _construct(self, d: int) -> Any:
        faiss.IndexFlat.__init__(self, d, faiss_metric(self._metric))
        self._flat = pointer_to(self)
        self._row_ids = steps_of.numbers(0)
        return self

    @classmethod
    def _check_stock(cls, flat: Any) -> None:
        if isinstance(flat, faiss.IndexIDMap):
            raise TypeError(
                "flat must be a faiss.IndexFlat, got an IndexIDMap: call "
                "IndexEvidenceIDMap2.from_stock"
            )
        super()._check_stock(flat)

    def _take_over(self, stock: Any, parameters: dict[str, Any]) -> None:
        if not has_positions(stock):
            raise ValueError(
                f"an IndexEvidenceFlat has the ids 0, 1, ..., but the {type(stock).__name__} has "
                f"others"
            )
        super()._take_over(stock, parameters)
        self._row_ids = steps_of.numbers(self.ntotal)

    def new_ids(self, lists: FaissLists, ids: ArrayLike | None, n: int) -> Ints:
        """Return the positions of n new vectors; raise ValueError for other ``ids``."""
        first = len(self._table)
        new = ids_and_labels.distinct_ids(ids, n, first)
        if n and (new != np.arange(first, first + n)).any():
            raise ValueError(
                f"ids must be the next positions, from {first} on, got {new[:5]}: {_REMEDY}"
            )
        return new

    def add_with_ids(self, x: ArrayLike, ids: ArrayLike, numeric_type: int = faiss.Float32) -> None:
        """Raise RuntimeError, as ``faiss.IndexFlat`` does: ids are positions."""
        raise RuntimeError(
            f"add_with_ids is not implemented for {type(self).__name__}, as for IndexFlat: "
            f"{_REMEDY}"
        )

    def _merged_ids(self, ids: Ints, add_id: int) -> Ints:
        first = len(self._table)
        if add_id != 0:
            raise ValueError(
                f"add_id must be 0 for an index whose ids are positions, got {add_id}: {_REMEDY}"
            )
        if not np.array_equal(ids, np.arange(len(ids))):
            raise ValueError(
                f"otherIndex must have the ids 0, 1, ... in the order of its vectors: {_REMEDY}"
            )
        return ids + first

    def _replace_rows(
        self,
        lists: FaissLists,
        rows: Ints,
        X: Floats,
        labels: Int32s,
        ids: Ints,
        also: Sequence[Step],
    ) -> None:
        if len(rows) and len(ids) and not np.array_equal(ids, rows):
            raise ValueError(f"ids must be those of the replaced vectors, got others: {_REMEDY}")
        if len(ids) or not len(rows):
            super()._replace_rows(lists, rows, X, labels, ids, also)
            return
        table = _table_of(
            self.d, len(self._table) - len(rows), np.delete(self.snapshot().labels, rows)
        )
        removal = steps_of.removing(self._flat, self._row_ids, rows)
        call_steps([*self._forgetting(), *removal, setting(self, "_table", table), *also], [])

    def permute_entries(self, perm: ArrayLike) -> None:
        """Move the vector and label of row ``perm[i]``, a permutation of 0..ntotal-1, to row i.

        Raises
        ------
        TypeError, ValueError
            If ``perm`` is no permutation.
        """
        order = np.ascontiguousarray(as_array("perm", perm), np.int64)
        with self.changing():
            labels = self.snapshot().labels
            if not np.array_equal(np.sort(order), np.arange(len(labels))):
                raise ValueError(f"perm must be a permutation of {len(labels)} rows, got {order}")
            table = _table_of(self.d, len(order), labels[order])
            steps = [
                *self._forgetting(),
                *steps_of.permuting(self._flat, order),
                setting(self, "_table", table),
            ]
            call_steps(steps, [])


class IndexEvidenceIDMap2(ExactMixin, faiss.IndexIDMap2):  # type: ignore[misc]
    """Exact index of counterfactual evidence with ids of the user, which stay.

    A subclass of ``faiss.IndexIDMap2`` over a ``faiss.IndexFlat``. Vectors that are added without
    ids get the integers after the largest stored id. :class:`IndexEvidenceFlat` has the same
    searches, with positions as ids.

    Parameters
    ----------
    d, metric
        As in :class:`IndexEvidenceFlat`.

    Examples
    --------
    >>> import numpy as np
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceIDMap2(2)
    >>> index.add_with_labels([[1, 0], [0.8, 0.6], [0, 1]], [0, 1, 1], ids=[10, 5, 7])
    >>> index.search_evidence([[1, 0]], [0], k=2)[1]
    array([[5, 7]])
    >>> index.remove_ids([5])
    1
    >>> index.search_evidence([[1, 0]], [0], k=2)[1]
    array([[ 7, -1]])
    """

    _stock = faiss.IndexIDMap2
    _rows: Any = None  # FAISS's IndexFlat

    def _construct(self, d: int) -> Any:
        rows = faiss.IndexFlat(d, faiss_metric(self._metric))
        faiss.IndexIDMap2.__init__(self, rows)
        self._rows = rows
        self._flat = pointer_to(rows)
        self._row_ids = self.id_map
        return rows

    def _take_over(self, stock: Any, parameters: dict[str, Any]) -> None:
        super()._take_over(stock, parameters)
        mapped = isinstance(stock, faiss.IndexIDMap)
        steps_of.take_ids(self, stock.id_map if mapped else steps_of.numbers(self._rows.ntotal))

    def _adding(self, X: Floats, ids: Ints) -> list[Step]:
        return steps_of.adding_with_ids(self, X, ids)

    def _truncating(self, n: int) -> list[Step]:
        return [*super()._truncating(n), *steps_of.truncating_map(self, n)]

    def sa_encode(self, x: ArrayLike, codes: Any = None) -> Bytes:
        """Return the float32 bytes of vectors, (n, d), as codes, (n, 4 * d) uint8.

        See :meth:`add_sa_codes`.
        """
        encoded: Bytes = self._rows.sa_encode(as_matrix("x", x, self.d), codes)
        return encoded

    def sa_decode(self, codes: Bytes, x: Any = None) -> Floats:
        """Decode codes, (n, 4 * d) uint8, to vectors, (n, d) float32."""
        decoded: Floats = self._rows.sa_decode(codes, x)
        return decoded


def with_ids(index: Any) -> Any:
    """Return an index with ids that stay and the contents of ``index``, no longer usable."""
    if not isinstance(index, IndexEvidenceFlat):
        return index
    stock, parameters, arrays = index.parts()
    result = IndexEvidenceIDMap2.__new__(IndexEvidenceIDMap2)
    result.restore(stock, parameters, arrays, index._unchecked)
    result.refusal = index.refusal
    result.origins = index.origins
    return result


def has_positions(stock: Any) -> bool:
    """Return whether the ids of a stock ``IndexFlat`` or ``IndexIDMap`` are positions."""
    if not isinstance(stock, faiss.IndexIDMap):
        return True
    return np.array_equal(faiss.vector_to_array(stock.id_map), np.arange(stock.ntotal))


def _table_of(d: int, n: int, labels: Int32s | None) -> Table:
    return Table(np.array([n]), 0, 0, 4 * d, labels, None, None)
