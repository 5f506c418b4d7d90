"""What every evidence index does: a class that stands before FAISS's own among the bases of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import Change, FaissLists, ListChecks, ReadWriteLock, Table, Writing, call_steps, commit
from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.base.checks import as_array, as_count, as_ids, as_labels, as_number, as_unit_rows
from cfe_faiss.index.parameters import EvidenceParameters, Excluding
from cfe_faiss.index.selection import accepted, allowed_by, calls_python, selected, selector_of, with_ids
from cfe_faiss.index.state import State
from cfe_faiss.index.stock import as_numeric, like, reading, written
from cfe_faiss.lists import codecs, id_map
from cfe_faiss.lists.faiss_functions import Step, raw, setting
from cfe_faiss.lists.id_map import Members, UnknownIdError
from cfe_faiss.lists.mapped import in_memory
from cfe_faiss.lists.storage import Storage, StorageOutside
from cfe_faiss.search import constrained, exact, greedy
from cfe_faiss.search.conditions import conditions
from cfe_faiss.search.constrained import Queries
from cfe_faiss.search.exact import Results

Ranges = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]
Arrays = dict[str, NDArray[Any]]
StateT = TypeVar("StateT", bound=State)


class EvidenceMixin(Generic[StateT]):
    """What every evidence index does, over the FAISS class that it is.

    FAISS's lists hold vectors and ids, and ``_table`` what they do not hold: these two are the index. All else is
    worked out from them when it is needed, and kept in ``_state`` until the next change: :mod:`cfe_faiss.index.state`.

    Whoever reads is inside of ``_lock.reading()`` and asks ``_snapshot()`` once. Whoever changes the index is inside of
    ``_changing()``, prepares the change aside, and commits it by one call of the core, into which neither an interrupt
    nor another thread can fall.
    """

    # FAISS refuses to set an attribute whose name the class does not know, so each has a value here.
    _stock: Any = None
    _lock: ReadWriteLock = None  # type: ignore[assignment]
    _deriving: ReadWriteLock = None  # type: ignore[assignment] # of readers, while one of them makes the state
    _refusal: str = ""  # why the index cannot be changed
    _origins: tuple[Path, ...] = ()  # where the index was first read from or written to, and where it was last written
    _table: Table = None  # type: ignore[assignment]
    _state: StateT | None = None
    _unchecked: Callable[[], None] | None = None  # what is left to check of a file, once rows are used
    _checks: tuple[list[ListChecks], NDArray[np.int64]] | None = (
        None  # of mapped lists, and which of them is each one's
    )

    # What FAISS's classes have.
    d: int
    ntotal: int
    this: Any
    sa_code_size: Any
    sa_decode: Any

    # --- what the kinds of index do differently ---------------------------------------------------------------------

    def _worked_out(self) -> StateT:
        """Return a new state of the index as it is."""
        raise NotImplementedError

    def _faiss_lists(self) -> FaissLists:
        """Return FAISS's lists, for the core."""
        raise NotImplementedError

    def _insert(
        self,
        lists: FaissLists,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        ids: NDArray[np.int64],
        also: list[Step],
    ) -> None:
        """Add unit vectors with ids that are known to be new, and do what is to be done in the same moment."""
        raise NotImplementedError

    def _remove(self, gone: NDArray[np.bool_], ids: NDArray[np.int64], also: list[Step]) -> None:
        """Remove the storage rows that are marked, (n,); ``ids`` are those of the rows that stay."""
        raise NotImplementedError

    def _relabel(self, labels: NDArray[np.int32], also: list[Step]) -> None:
        """Take over new labels of all storage rows."""
        raise NotImplementedError

    def _emptying(self) -> list[Step]:
        """Return the steps that remove every vector."""
        raise NotImplementedError

    def _search(
        self,
        state: StateT,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        k: int,
        nprobe: int | None,
        allowed: NDArray[np.bool_] | None,
    ) -> Results:
        """Search after all arguments but ``nprobe`` were checked."""
        raise NotImplementedError

    def _evidence_of(
        self, state: StateT, ids: ArrayLike | None, k: int, nprobe: int | None, progress: str | None
    ) -> Results:
        """Return the evidence of stored vectors, as ``search_members`` does, for whoever is inside of the lock."""
        raise NotImplementedError

    def _parts(self) -> tuple[Any, dict[str, Any], Arrays]:
        """Return what FAISS is to write, and the parameters and arrays that FAISS does not keep."""
        raise NotImplementedError

    def _restore(self, parameters: dict[str, Any], arrays: Arrays) -> None:
        """Take over what :meth:`_parts` gave, besides what FAISS has read."""
        raise NotImplementedError

    # --- what is stored ---------------------------------------------------------------------------------------------

    def _set_up(self, table: Table) -> None:
        """Give a new index what only it has."""
        self._lock, self._deriving = ReadWriteLock(), ReadWriteLock()
        self._table, self._state, self._refusal, self._checks = table, None, "", None

    def _snapshot(self) -> StateT:
        """Return the index as it is; for whoever is inside of the lock."""
        id_map.check_unchanged(self.ntotal, len(self._table))
        state = self._state
        if state is not None and self._unchecked is None and self._is_current(state):
            return state
        with self._deriving.writing():
            check = self._unchecked
            if check is not None:
                check()
                self._unchecked = None
            state = self._state
            if state is None or not self._is_current(state):
                self._state = state = self._worked_out()
            return state

    def _is_current(self, state: StateT) -> bool:
        return True

    def _check_mapped(self, lists: NDArray[np.int64] | None = None) -> None:
        """Compare mapped lists, all by default, with their checksums: FAISS is about to read them."""
        if self._checks is not None:
            self._snapshot().storage.native.check_lists(lists)

    def storage(self) -> Storage:
        """Return the stored rows, read-only; they keep the index alive, and raise RuntimeError after it has changed."""
        with self._lock.reading():
            own = self._snapshot().storage
            return StorageOutside(own.native, own.d, own.codec, own.levels, still=self._still)

    @contextmanager
    def _still(self, storage: Storage) -> Iterator[None]:
        """Keep the index as it is; RuntimeError unless its rows still lie where ``storage`` says."""
        with self._lock.reading():
            if self._snapshot().storage.native is not storage.native:
                raise RuntimeError("the index has changed since storage() was called; call it again")
            yield

    def members(self) -> Members:
        """Return the ids in ascending order, and the storage row and label of each."""
        with self._lock.reading():
            return self._snapshot().members

    # --- changing it ------------------------------------------------------------------------------------------------

    def _changing(self) -> Writing:
        """Return what ``with`` takes to keep everybody out; RuntimeError if the index cannot be changed."""
        if self._refusal:
            raise RuntimeError(self._refusal)
        return self._lock.writing()

    def _forgetting(self) -> list[Step]:
        """Return the steps that forget what was worked out from the rows as they lay."""
        return [setting(self, "_state", None)]

    def _forgetting_lists(self, lists: NDArray[np.int64]) -> list[Step]:
        """Return the steps that forget it where these lists change, and no others."""
        return self._forgetting()

    def _commit(
        self,
        change: Change,
        lists: FaissLists,
        new: tuple[Any, Any, Any, Any],
        before: list[Step],
        undo: list[Step],
        after: list[Step],
    ) -> None:
        commit(self._table, change, lists, *new, self._forgetting_lists(change.lists()) + before, undo, after)

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
            If an argument is not as described, or the index is not trained; nothing is added then.
        """
        X = as_unit_rows("x", x, self.d)
        self._add(X, as_labels("labels", labels, len(X)), ids)

    def add_with_ids(self, x: ArrayLike, ids: ArrayLike, numeric_type: int = faiss.Float32) -> None:
        """Add vectors whose class is not known (yet): they are stored, but are no evidence until relabelled.

        Parameters and errors are those of :meth:`add_with_labels`; ``numeric_type`` is FAISS's, the type that numbers
        are rounded to before.
        """
        X = as_unit_rows("x", as_numeric(x, numeric_type), self.d)
        self._add(X, id_map.unknown_labels(len(X)), ids)

    def add(self, x: ArrayLike, numeric_type: int = faiss.Float32) -> None:
        """Add vectors whose class is not known (yet), with ids ntotal, ntotal + 1, ...; see :meth:`add_with_ids`."""
        X = as_unit_rows("x", as_numeric(x, numeric_type), self.d)
        self._add(X, id_map.unknown_labels(len(X)), None)

    def _add(self, X: NDArray[np.float32], labels: NDArray[np.int32], ids: ArrayLike | None) -> None:
        with self._changing():
            lists = self._faiss_lists()
            self._insert(lists, X, labels, self._new_ids(lists, ids, len(X)), [])

    def _new_ids(self, lists: FaissLists, ids: ArrayLike | None, n: int) -> NDArray[np.int64]:
        id_map.check_unchanged(self.ntotal, len(self._table))
        return id_map.new_ids(self._table, lists, ids, n)

    def relabel(self, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Give stored vectors new classes, as for another model over the same vectors; nothing is clustered again.

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
        with self._changing():
            state = self._snapshot()
            self._relabel(id_map.relabelled(state.storage, state.members, labels, ids), [])

    def remove_ids(self, x: Any) -> int:
        """Remove vectors, and return how many.

        Parameters
        ----------
        x
            What ``sel`` of :class:`EvidenceParameters` may be: their ids (those that are not stored are passed over), a
            mask of the stored vectors in ascending order of their ids, or a ``faiss.IDSelector``.

        Raises
        ------
        TypeError, ValueError
            If ``x`` is none of these; nothing is removed then.
        """
        x = self._asked(x, "x")
        with self._changing():
            state = self._snapshot()
            gone = selected(x, state, "x")
            if gone.any():
                self._remove(gone, state.storage.row_ids[~gone], [])
        return int(gone.sum())

    def reset(self) -> None:
        """Remove every vector; an index that was trained stays so."""
        with self._changing():
            call_steps(self._emptying(), [])

    def merge_from(self, otherIndex: Any, add_id: int = 0) -> None:
        """Move all vectors of another index into this one; the other is empty afterwards.

        Parameters
        ----------
        otherIndex
            An evidence index (labels come along) or a stock index with inverted lists or an id map (labels are
            unknown), over vectors of the same length.
        add_id
            Added to the ids that come. They must not be in this index yet.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; nothing is moved then.
        """
        self.check_compatible_for_merge(otherIndex)
        indexes = [one for one in (self, otherIndex) if isinstance(one, EvidenceMixin)]
        with ExitStack() as held:
            for index in sorted(indexes, key=id):  # in one order, whichever is merged into which
                held.enter_context(index._changing())
            if isinstance(otherIndex, EvidenceMixin):
                (X, ids), labels = otherIndex._contents()
                emptying = otherIndex._emptying()
            else:
                X, ids = id_map.stock_contents(otherIndex)
                labels, emptying = id_map.unknown_labels(len(X)), [(raw.Index_reset, (otherIndex,))]
            shifted = as_ids("ids", ids + as_count("add_id", add_id, 0))
            # Decoded and coded once more, a row keeps its code; normalised in between it might not.
            rows = X if self._has_codec_of(otherIndex) else as_unit_rows("x", X, self.d)
            lists = self._faiss_lists()
            self._insert(lists, rows, labels, self._new_ids(lists, shifted, len(X)), emptying)

    def check_compatible_for_merge(self, otherIndex: Any) -> None:
        """Raise the error of :meth:`merge_from` unless ``otherIndex`` is of a kind whose vectors it takes."""
        if otherIndex is self or getattr(otherIndex, "d", None) != self.d:
            raise ValueError(f"otherIndex must be another index of {self.d} dimensions, got {otherIndex!r}")
        if not isinstance(otherIndex, EvidenceMixin):
            id_map.check_stock(otherIndex)

    def _contents(self) -> tuple[tuple[NDArray[np.float32], NDArray[np.int64]], NDArray[np.int32]]:
        """Return copies of the vectors and ids, and the labels."""
        storage = self._snapshot().storage
        X, ids = storage.rows(np.arange(storage.n))
        return (X.copy(), ids.copy()), storage.labels

    def _has_codec_of(self, other: Any) -> bool:
        if not isinstance(other, EvidenceMixin):
            return False
        one, two = self._snapshot().storage, other._snapshot().storage
        return bool(one.codec == two.codec != codecs.FLAT and np.array_equal(one.levels, two.levels))

    def _asked(self, sel: Any, name: str = "sel") -> Any:
        """Return ``sel``; a selector that calls Python is asked here, outside the lock, and becomes an array of ids."""
        if not calls_python(sel):
            return sel
        with self._lock.reading():
            ids = self._snapshot().storage.row_ids
        return accepted(sel, ids, name)

    def _asked_parameters(self, params: Any) -> Any:
        """Return search parameters, of FAISS or for evidence, with a selector that does not call Python."""
        own = isinstance(params, EvidenceParameters)
        if not own and not isinstance(params, faiss.SearchParameters):
            return params
        sel = params.sel if own else selector_of(params)
        if not calls_python(sel):
            return params
        ids = self._asked(sel, "params.sel")
        return replace(params, sel=ids) if own else with_ids(params, ids)

    # --- searching it -----------------------------------------------------------------------------------------------

    def range_search_evidence(self, xq: ArrayLike, labels_q: ArrayLike, threshold: float, *, sel: Any = None) -> Ranges:
        """Return all evidence with similarity >= ``threshold``, wherever in the index it is.

        Parameters
        ----------
        xq, labels_q
            Query vectors, (nq, d), normalised in a copy, and their predicted classes, (nq,).
        threshold
            Lowest similarity wanted.
        sel
            Only vectors that it selects are evidence: what ``sel`` of :class:`EvidenceParameters` may be, such as a
            mask or ids.

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
        number, sel = as_number("threshold", threshold, -np.inf, np.inf), self._asked(sel)
        with self._lock.reading():
            state = self._snapshot()
            return exact.range_search(state.storage, X, labels, number, allowed=allowed_by(sel, state))

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
        params = self._asked_parameters(params)
        if not isinstance(params, EvidenceParameters):
            with self._lock.reading():
                found: Results = self._of_stock("search", x, params)(
                    self, x, k, D=D, I=I, **self._given(params), **stock
                )
                return found
        self._refuse_further("search", stock)
        with self._lock.reading():
            found = self._found(self._snapshot(), as_unit_rows("x", x, self.d), as_count("k", k), params)
        return like(x, written("D", found[0], D)), like(x, written("I", found[1], I))

    def _found(self, state: StateT, X: NDArray[np.float32], k: int, params: EvidenceParameters) -> Results:
        """Return the k best evidences of unit vectors."""
        labels, allowed = params.labels_of(len(X)), params.allowed(state)
        if params.where is None:
            return self._search(state, X, labels, k, params.nprobe, allowed)
        made, queries = params.under(state.storage, state.members, X, labels)
        search = constrained.search if made.uses is None else greedy.search
        return search(state.storage, made, queries, k, allowed=allowed)

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
        params = self._asked_parameters(params)
        if not isinstance(params, EvidenceParameters):
            with self._lock.reading():
                search = self._of_stock("search_and_reconstruct", x, params)
                return search(self, x, k, D=D, I=I, R=R, **self._given(params), **stock)
        self._refuse_further("search_and_reconstruct", stock)
        with self._lock.reading():
            state = self._snapshot()
            found = self._found(state, as_unit_rows("x", x, self.d), as_count("k", k), params)
            vectors = np.full((*found[1].shape, self.d), np.nan, np.float32)
            filled = found[1] >= 0
            vectors[filled] = state.storage.rows(state.members.find(found[1][filled]))[0]
        return tuple(
            like(x, written(name, result, out))
            for name, result, out in (("D", found[0], D), ("I", found[1], I), ("R", vectors, R))
        )

    def _refuse_further(self, method: str, stock: dict[str, Any]) -> None:
        if stock:
            raise TypeError(f"{method} takes no {next(iter(stock))} together with EvidenceParameters")

    assign = reading("assign")

    def range_search(self, x: ArrayLike, thresh: float, *, params: Any = None, **stock: Any) -> Ranges:
        """Return all vectors above a similarity, as ``faiss.Index.range_search``, or with parameters all evidence.

        As in FAISS, a plain search returns similarities > ``thresh``, in no order; with ``EvidenceParameters`` evidence
        comes as from :meth:`range_search_evidence`, with similarity >= ``thresh`` and best first.
        """
        params = self._asked_parameters(params)
        if not isinstance(params, EvidenceParameters):
            with self._lock.reading():
                found: Ranges = self._of_stock("range_search", x, params)(
                    self, x, thresh, **self._given(params), **stock
                )
                return found
        self._refuse_further("range_search", stock)
        X = as_unit_rows("x", x, self.d)
        number = as_number("thresh", thresh, -np.inf, np.inf)
        with self._lock.reading():
            lims, D, I = self._found_in_range(self._snapshot(), X, number, params)
        return like(x, lims), like(x, D), like(x, I)

    def _found_in_range(
        self, state: StateT, X: NDArray[np.float32], threshold: float, params: EvidenceParameters
    ) -> Ranges:
        """Return all evidence of unit vectors with similarity >= ``threshold``."""
        storage, labels, allowed = state.storage, params.labels_of(len(X)), params.allowed(state)
        if params.where is None:
            return exact.range_search(storage, X, labels, threshold, allowed=allowed)
        made, queries = params.under(storage, state.members, X, labels)
        if made.uses is not None:
            raise ValueError("params.where must not limit how often evidence is used in a range search")
        return constrained.range_search(storage, made, queries, threshold, allowed=allowed)

    def _members_under(
        self, where: Constraints, ids: ArrayLike | None, k: int, attributes: Any, graph: Any, progress: str | None
    ) -> tuple[Results, dict[str, int]]:
        """Return the evidence of stored vectors (of all by default) under constraints, and what was left out."""
        with self._lock.reading():
            state = self._snapshot()
            storage = state.storage
            made = conditions(where, storage.row_ids, storage.labels, attributes, graph)
            rows = state.members.rows if ids is None else state.members.find(ids)
            if made.uses is None:
                found = constrained.search_rows(storage, made, rows, k, everything=ids is None, progress=progress)
            else:
                queries = Queries.of_rows(storage, made, rows)
                found = greedy.search(storage, made, queries, k, progress=progress)
        return found, made.missing

    def _of_stock(self, name: str, x: Any, params: Any) -> Any:
        """Return a search of FAISS's own class.

        ``faiss.contrib.torch_utils`` puts methods in their place that take tensors, but no parameters.
        """
        self._check_probed(x, params)
        own = getattr(self._stock, name)
        takes_parameters = getattr(self._stock, f"{name}_numpy", own)
        return own if params is None or not isinstance(x, np.ndarray) else takes_parameters

    def _check_probed(self, x: Any, params: Any) -> None:
        """Compare with their checksums what a plain search may read."""

    def _given(self, params: Any) -> dict[str, Any]:
        """Return stock parameters as an argument for FAISS; None is left out."""
        return {} if params is None else {"params": params}

    def excluding(self, label: int) -> Excluding:
        """Return a view whose ``search(x, k)`` leaves the class ``label`` out, for code that knows no classes."""
        return Excluding(self, label)

    # --- reading vectors back ---------------------------------------------------------------------------------------

    def reconstruct_batch(self, key: ArrayLike, x: Any = None, **_: Any) -> NDArray[np.float32]:
        """Return the stored vectors with the ids ``key``, (n, d) float32."""
        with self._lock.reading():
            state = self._snapshot()
            X = np.array(state.storage.rows(state.members.find(key, name="key"))[0])
        found: NDArray[np.float32] = written("x", X, x)
        return found

    def reconstruct(self, key: int, x: Any = None, **_: Any) -> NDArray[np.float32]:
        """Return the stored vector with the id ``key``, (d,) float32."""
        number = as_count("key", key, np.iinfo(np.int64).min)
        if number < 0:
            raise UnknownIdError(f"key must be at least 0, got {number}")
        found: NDArray[np.float32] = written("x", self.reconstruct_batch([number])[0], x)
        return found

    def reconstruct_n(self, n0: int = 0, ni: int = -1, x: Any = None, **_: Any) -> NDArray[np.float32]:
        """Return the stored vectors with the ids n0, n0 + 1, ..., n0 + ni - 1 (to the last vector by default)."""
        n0, ni = as_count("n0", n0, 0), as_count("ni", ni, -1)
        return self.reconstruct_batch(np.arange(n0, self.ntotal if ni == -1 else n0 + ni), x)

    # --- copies -----------------------------------------------------------------------------------------------------

    def to_stock(self) -> Any:
        """Return the plain FAISS index that this is, a copy without labels and supplementary partitions."""
        with self._lock.reading():
            self._check_mapped()
            return faiss.deserialize_index(faiss.serialize_index(in_memory(self)))

    def class_index(self, label: int) -> Any:
        """Return a plain FAISS index of the same kind over the vectors of one class, with their ids: a copy.

        Parameters
        ----------
        label
            Class, >= 0. A class that no vector has gives an empty index.

        Raises
        ------
        TypeError, ValueError
            If ``label`` is not as described.
        """
        wanted = as_labels("label", np.asarray([label]), 1)[0]
        with self._lock.reading():
            storage = self._snapshot().storage
            self._check_mapped()
            stock = faiss.deserialize_index(faiss.serialize_index(in_memory(self)))
            others = storage.ids()[storage.labels != wanted]
        stock.remove_ids(others)
        return stock

    def __getstate__(self) -> dict[str, Any]:
        """Return what ``pickle`` and ``copy`` keep: FAISS's bytes and what stock FAISS does not know."""
        with self._lock.reading():
            stock, parameters, arrays = self._parts()
            return {"this": faiss.serialize_index(stock).tobytes(), "parameters": parameters, "arrays": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`__getstate__` gave."""
        self.this = faiss.deserialize_index(np.frombuffer(state["this"], np.uint8)).this
        self._restore(state["parameters"], {name: array.copy() for name, array in state["arrays"].items()})
        self._snapshot()  # keeps in mind where the lists are

    def add_sa_codes(self, codes: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Add the vectors that codes of ``sa_encode`` stand for; their class is not known (yet).

        Parameters
        ----------
        codes
            (n, sa_code_size()) uint8, of this index or of one with the same codec.
        ids
            As in :meth:`add_with_labels`.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described; nothing is added then.
        """
        given, size = as_array("codes", codes), self.sa_code_size()
        if given.dtype != np.uint8 or given.ndim != 2 or given.shape[1] != size:
            raise ValueError(f"codes must be uint8 of shape (n, {size}), got {given.dtype} of shape {given.shape}")
        X = as_unit_rows("codes", self.sa_decode(np.ascontiguousarray(given)), self.d)
        self._add(X, id_map.unknown_labels(len(X)), ids)

    # --- what would lose labels -------------------------------------------------------------------------------------

    def _refused(self, name: str, instead: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__}.{name} would lose labels: {instead}")
