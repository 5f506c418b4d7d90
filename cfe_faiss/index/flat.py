"""Exact evidence search: the paper's LocalCE-B (Algorithm 1) with its two optimisations, at BLAS speed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import FaissLists, Table, call_steps
from cfe_faiss.base.arrays import Bytes, Floats, Int32s, Ints
from cfe_faiss.base.checks import as_array, as_count, as_matrix
from cfe_faiss.index.base import Arrays, EvidenceMixin
from cfe_faiss.rows import faiss_functions as steps_of
from cfe_faiss.rows.codecs import FLAT, NO_LEVELS
from cfe_faiss.rows.faiss_functions import Step, VirtualMethods, list_of, setting
from cfe_faiss.rows.id_map import metric_of, stock_contents
from cfe_faiss.rows.label_keys import arrays_of, table_from
from cfe_faiss.rows.metric import Metric, as_metric, as_rows
from cfe_faiss.rows.snapshot import Snapshot, rows_by_id


class IndexEvidenceFlat(EvidenceMixin, VirtualMethods, faiss.IndexFlatIP, faiss.IndexIDMap2):  # type: ignore[misc]
    """Exact index of counterfactual evidence.

    While its ids are 0, 1, ... in the order of the vectors, FAISS's part is a ``faiss.IndexFlatIP`` (for "l2" an
    ``IndexFlatL2``), and FAISS's code may use the index as one: as a coarse quantizer, in ``IndexRefine``, in
    ``IndexPreTransform`` and so on. Other ids, given or left over by a removal, make FAISS's part a
    ``faiss.IndexIDMap2`` over it, for good. The
    index then works in wrappers that only search; constructors of FAISS's indexes that read vectors by position raise
    RuntimeError.

    Parameters
    ----------
    d
        Dimension of the vectors.
    metric
        ``"cosine"``: inner products of normalised copies. ``"ip"``: inner products of the vectors as they are.
        ``"l2"``: squared distances, ascending. Or FAISS's constant, ``faiss.METRIC_INNER_PRODUCT`` for "ip".

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
    """

    _stock = faiss.Index
    _flat: Any = None  # FAISS's IndexFlatIP with the vectors
    _id_map: Any = None  # FAISS's IndexIDMap2 over it; None while ids are row numbers
    _row_ids: Any = None  # id of each row, in a vector of FAISS
    _address: int = 0  # of the vectors

    def __init__(self, d: int, metric: Metric | int = "cosine") -> None:
        self._metric = as_metric("metric", metric)
        if self._metric == "l2":
            steps_of.adopt(faiss.IndexFlatL2(as_count("d", d)), self)
        else:
            faiss.IndexFlatIP.__init__(self, as_count("d", d))
        self._hold(None)

    @classmethod
    def from_stock(cls, flat: Any, labels: ArrayLike, *, metric: Metric | int | None = None) -> Self:
        """Return an evidence index over copies of the vectors and ids of a stock ``faiss.IndexFlat``.

        Parameters
        ----------
        flat
            ``faiss.IndexFlat`` over inner products or squared distances, or a ``faiss.IndexIDMap`` over one; it is not
            changed.
        labels
            Predicted class of each of its vectors, (n,), in ascending order of their ids; -1 for "unknown".
        metric
            By default that of ``flat``, "ip" or "l2". ``"cosine"`` normalises the vectors.

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
        if not isinstance(flat, faiss.IndexFlat | faiss.IndexIDMap):
            raise TypeError(f"flat must be a faiss.IndexFlat, or an IndexIDMap over one, got {type(flat).__name__}")
        X, ids = stock_contents(flat)
        index = cls(flat.d, metric_of("flat", flat, metric))
        order = np.argsort(ids, kind="stable")
        rows = as_rows("flat's vectors", X[order], index.d, index.metric)
        with index.changing() as transaction:
            codes, steps = transaction.encode(labels, len(X))
            transaction.insert(rows, codes, ids[order], steps)
        return index

    def _hold(self, labels: Int32s | None) -> None:
        """Set up the index for the rows in FAISS's part, whose labels are given."""
        self._flat, self._id_map = steps_of.flat_parts(self)
        self._row_ids = steps_of.numbers(self.ntotal) if self._id_map is None else self._id_map.id_map
        self._set_up(_table_of(self.d, self.ntotal, labels))

    def __repr__(self) -> str:
        metric = "" if self.metric == "cosine" else f", metric={self.metric!r}"
        return f"IndexEvidenceFlat(d={self.d}{metric}, ntotal={self.ntotal})"

    # --- storage ----------------------------------------------------------------------------------------------------

    def _new_snapshot(self) -> Snapshot:
        if self._state is not None:
            raise RuntimeError(
                "the vectors were changed by other means than the methods of this index; build a new one"
            )
        self._address, lists = steps_of.address_of(self._flat), self._faiss_lists()
        rows = self._table.rows(lists, self.d, FLAT, NO_LEVELS.reshape(-1), self._metric_number, sorted=False)
        lookup = partial(self._table.rows_of, lists)
        return Snapshot(rows, self.d, lookup=lookup, label_keys=self.label_keys, longest=self._longest)

    def _is_current(self, snapshot: Snapshot) -> bool:
        return self._address == steps_of.address_of(self._flat)

    def _faiss_lists(self) -> FaissLists:
        return list_of(self._flat, self._row_ids)

    # --- changes ----------------------------------------------------------------------------------------------------

    def _insert(self, lists: FaissLists, X: Floats, labels: Int32s, ids: Ints, also: list[Step]) -> None:
        n = len(self._table)
        id_map, switching = self._map_for(ids, n)
        if id_map is None:
            row_ids, adding = self._row_ids, steps_of.adding(self._flat, self._row_ids, X)
        else:
            row_ids, adding = id_map.id_map, steps_of.adding_with_ids(id_map, X, ids)
        change, new = self._table.appending(labels), (X.view(np.uint8), ids, None, None)
        undo = steps_of.truncating(self._flat, row_ids, id_map, n)
        after = [*switching, *self._lengthening(X), *also]
        self._commit(change, list_of(self._flat, row_ids), new, adding, undo, after)

    def _map_for(self, ids: Ints, first: int) -> tuple[Any, list[Step]]:
        """Return the id map for rows ``first``, ... with these ids, or None, and the steps that install a new map."""
        if self._id_map is not None or np.array_equal(ids, np.arange(first, first + len(ids))):
            return self._id_map, []
        refuse_position_readers()
        new = steps_of.id_map_over(self._flat, self._row_ids)
        values = {"_id_map": new, "_row_ids": new.id_map, "this": steps_of.pointer_to(new)}
        return new, [setting(self, name, value) for name, value in values.items()]

    def _relabel(self, rows: Ints, labels: Int32s, also: list[Step]) -> None:
        change, lists = self._table.relabelling(rows, labels, sorted=False), self._faiss_lists()
        self._commit(change, lists, (None, None, None, None), before=[], undo=[], after=also)

    def _replace_rows(
        self, lists: FaissLists, rows: Ints, X: Floats, labels: Int32s | None, ids: Ints, also: list[Step]
    ) -> None:
        change = self._table.replacement(rows, np.zeros(len(ids), np.int32), labels, sorted=False)
        new, snapshot = (X.view(np.uint8), ids, None, None), self.snapshot()
        if len(ids) == len(rows) and np.array_equal(
            ids, snapshot.copied(rows)[1]
        ):  # FAISS's part keeps its size and its ids
            self._commit(change, lists, new, before=[], undo=[], after=also)
            return
        n, common, after = snapshot.n, min(len(ids), len(rows)), snapshot.ids()
        after[rows[:common]] = ids[:common]
        after = np.append(np.delete(after, rows[common:]), ids[common:])
        id_map, switching = self._map_for(after, 0)
        row_ids = self._row_ids if id_map is None else id_map.id_map
        before = steps_of.adding(self._flat, row_ids, X[common:]) if len(ids) > common else []
        undo, cut = (steps_of.truncating(self._flat, row_ids, id_map, size) for size in (n, len(after)))
        self._commit(change, list_of(self._flat, row_ids), new, before, undo, [*cut, *switching, *also])

    def _emptying(self) -> list[Step]:
        steps = steps_of.truncating(self._flat, self._row_ids, self._id_map, 0)
        return self._emptying_by(steps, _table_of(self.d, 0, None))

    def permute_entries(self, perm: ArrayLike) -> None:
        """Move the vector and label of row ``perm[i]``, a permutation of 0..ntotal-1, to row i.

        Raises
        ------
        TypeError, ValueError, RuntimeError
            If ``perm`` is no permutation, or the index has ids of its own.
        """
        order = np.ascontiguousarray(as_array("perm", perm), np.int64)
        with self.changing():
            labels = self.snapshot().labels
            if not np.array_equal(np.sort(order), np.arange(len(labels))):
                raise ValueError(f"perm must be a permutation of {len(labels)} rows, got {order}")
            if self._id_map is not None:
                raise RuntimeError(f"permute_entries is for ids 0, 1, ..., got {self._id_map!r}")
            table = _table_of(self.d, len(order), labels[order])
            steps = [*self._forgetting(), *steps_of.permuting(self._flat, order), setting(self, "_table", table)]
            call_steps(steps, [])

    # --- search ------------------------------------------------------------------------------------------------------

    def _copy_parameters(self, params: Any) -> Any:
        # FAISS's id map replaces the selector in the parameters during a search, so threads must not share them.
        return faiss.SearchParameters(sel=params.sel) if isinstance(params, faiss.SearchParameters) else params

    # --- codes, which FAISS's id map does not support ----------------------------------------------------------------

    def sa_encode(self, x: ArrayLike, codes: Any = None) -> Bytes:
        """Return the float32 bytes of vectors, (n, d), as codes, (n, 4 * d) uint8; see :meth:`add_sa_codes`."""
        encoded: Bytes = self._flat.sa_encode(as_matrix("x", x, self.d), codes)
        return encoded

    def sa_decode(self, codes: Bytes, x: Any = None) -> Floats:
        """Decode codes, (n, 4 * d) uint8, to vectors, (n, d) float32."""
        decoded: Floats = self._flat.sa_decode(codes, x)
        return decoded

    def _stock_of(self, snapshot: Snapshot, label: int) -> Any:
        stock = faiss.IndexIDMap2(steps_of.flat_index(self.d, self.metric_type))
        stock.add_with_ids(*snapshot.rows(np.flatnonzero(snapshot.labels == label)))
        return stock

    # --- files ------------------------------------------------------------------------------------------------------

    def parts(self) -> tuple[Any, dict[str, Any], Arrays]:
        """Return the stock index, the parameters and the arrays of the index file."""
        snapshot = self.snapshot()
        parameters = {"metric": self.metric, "longest": self._longest}
        labels = {"labels": snapshot.labels, **arrays_of(self.label_keys, lambda: snapshot.class_counts[0])}
        return self, parameters, labels

    def restore(self, parameters: dict[str, Any], arrays: Arrays, check: Callable[[], None] | None = None) -> None:
        """Restore the parameters and arrays of :meth:`parts`."""
        self._metric = parameters.get("metric", "cosine")
        labels = arrays["labels"]
        stored = steps_of.stored_ids(self)
        if stored is not None:
            order = rows_by_id(stored)
            if np.array_equal(stored[order], np.arange(len(order))) and steps_of.unwrap(self, order):
                labels = labels[order]  # files of earlier versions hold the rows in another order
            else:
                refuse_position_readers()
        self._hold(labels)
        self._longest = parameters.get("longest", 0.0)
        self.label_keys, self._unchecked = table_from(arrays), check


def refuse_position_readers() -> None:
    """Make FAISS's constructors refuse indexes with ids of their own where they would be read by position."""
    steps_of.check_constructors(_check_positions)


def _check_positions(cls: type, argument: Any) -> None:
    if isinstance(argument, IndexEvidenceFlat) and argument._id_map is not None:
        raise RuntimeError(
            f"{cls.__name__} reads vectors by position, and {argument!r} has ids other than 0, 1, ... in the order of "
            "its vectors; make one without ids: add_with_labels(x, labels) to a new IndexEvidenceFlat"
        )


def _table_of(d: int, n: int, labels: Int32s | None) -> Table:
    return Table(np.array([n]), 0, 0, 4 * d, labels, None, None)
