"""Mixin with storage and changes of all inverted-file evidence indexes.

It precedes the FAISS class in the bases.

The search methods are in :mod:`cfe_faiss.index.answering`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import Change, FaissLists, PqCodes, Table, call_steps
from cfe_faiss.base.checks import Bytes, Floats, Int32s, Ints, as_count, as_number
from cfe_faiss.base.values import LabelKeys
from cfe_faiss.coarse.partitions import assign, drift, train_partitions
from cfe_faiss.coarse.routes import Routes, SecondLevel
from cfe_faiss.index.answering import ListAnsweringMixin
from cfe_faiss.index.base import Arrays, EvidenceMixin, Transaction
from cfe_faiss.index.parameters import as_numeric
from cfe_faiss.rows import codecs
from cfe_faiss.rows import faiss_functions as steps_of
from cfe_faiss.rows.faiss_functions import (
    Step,
    direct_map,
    inverted_lists,
    list_sizes,
    setting,
    total,
)
from cfe_faiss.rows.ids_and_labels import arrays_of, codes_of, is_mapped, stock_codes, table_from
from cfe_faiss.rows.metric import (
    LONGEST,
    METRICS,
    Metric,
    as_metric,
    as_rows,
    check_takes_lists,
    faiss_metric,
)
from cfe_faiss.rows.snapshot import NO_REFERENCES, NO_STARTS, Snapshot, center_of, read_only
from cfe_faiss.search.derived import Carried, Choice, Derived, Element, estimates_pay
from cfe_faiss.search.recall import Calibrations, calibration_arrays, calibrations_from

_NPROBE = 16
_DERIVED_AHEAD = 1 << 18
"""Numbers in added vectors from which data is derived ahead.

For fewer, the first query takes up to 3 ms longer.
"""
_SHORTEST = 0.9
"""Least length of a vector of a stock index that a codec moved into its range."""
_SETTINGS = ("theta", "weighted", "complete", "routing")  # attributes that files hold by name
_STOCK_ATTRIBUTES = (
    "nprobe",
    "is_trained",
    "ntotal",
    "direct_map",
    "cp",
    "parallel_mode",
    "max_codes",
    "verbose",
)
"""Attributes of FAISS that a new index takes over from a stock index."""
_NO_CENTROIDS = np.empty((0, 0, 0), np.float32)


class EvidenceIVFMixin(ListAnsweringMixin, EvidenceMixin):
    """Storage and changes of an inverted-file evidence index, on top of its FAISS base class.

    The parameters are documented in :class:`cfe_faiss.IndexEvidenceIVF`.
    """

    theta: float = math.pi / 3
    weighted: bool = True
    _keeps_beside: bool = False  # whether float32 vectors are stored in addition to FAISS's lists
    _supplementary: Floats = _NO_CENTROIDS  # centroids of the supplementary partitions
    _centroids: Floats | None = None  # centroids of all partitions, set by training
    _carried: Carried | None = None  # derived data carried over to the next snapshot
    _from_file: Routes | None = None  # routes read from the index file
    _calibrations: Calibrations | None = None  # read from the index file
    _pinned: Choice | None = None  # element types of the blocks
    _lists: Any = None  # FAISS's lists, if another object than the index owns them
    _source: Any = None  # stock index that owns the lists and the quantizer

    # Attributes of the FAISS base class.
    nlist: int
    code_size: int
    cp: Any
    quantizer: Any
    invlists: Any
    direct_map: Any

    # --- a new index ------------------------------------------------------------------------------

    def _checked_sizes(
        self, d: int, nlist: int | str, metric: Metric | int
    ) -> tuple[Any, int, int, int]:
        """Set the metric; return quantizer, d, number of lists and FAISS's metric, checked.

        For ``nlist="auto"`` there are 0 lists until :meth:`train` chooses their number.
        """
        d = as_count("d", d)
        if isinstance(nlist, str):
            if nlist != "auto":
                raise ValueError(f"nlist must be a number of lists or 'auto', got {nlist!r}")
            lists = 0
        else:
            lists = as_count("nlist", nlist)
        self._metric = as_metric("metric", metric)
        check_takes_lists(self._metric)
        constant = faiss_metric(self._metric)
        return steps_of.flat_index(d, constant), d, lists, constant

    def _set_up_lists(
        self, partitions: int, *, theta: float, weighted: bool, complete: bool, routing: str
    ) -> None:
        """Set the attributes that FAISS's constructor does not set."""
        self.theta = as_number("theta", theta, 1e-3, math.pi / 2)
        self.weighted = bool(weighted)
        self.complete = bool(complete)
        if routing not in ("evidence", "nearest"):
            raise ValueError(f"routing must be 'evidence' or 'nearest', got {routing!r}")
        self.routing = routing
        self.nprobe = min(_NPROBE, self.nlist or _NPROBE)
        self.is_trained = False  # FAISS considers an index without lists trained
        if self.metric != "cosine" and partitions != 1:
            raise ValueError(f"partitions must be 1 for metric {self.metric!r}, got {partitions}")
        self.cp.spherical = self.metric == "cosine"
        self._supplementary = np.full(
            (as_count("partitions", partitions) - 1, self.nlist, self.d), np.nan, np.float32
        )
        self._centroids = None
        self._set_up(self._table_of(np.zeros(self.nlist, np.int64)))

    def _table_of(
        self,
        sizes: Ints,
        labels: Int32s | None = None,
        vectors: Floats | None = None,
        references: tuple[Int32s, Ints] | None = None,
    ) -> Table:
        width = self.d if self._keeps_beside else 0
        return Table(sizes, self.partitions - 1, width, self.code_size, labels, vectors, references)

    def _adopt(
        self,
        ivf: Any,
        labels: ArrayLike,
        nprobe: int | None,
        codes: Bytes,
        vectors: Floats | None = None,
    ) -> Self:
        """Take the lists of a stock index of the same kind into this empty index, and return it.

        ``labels``, (n,), are in ascending order of ids; ``codes`` and ``vectors`` in order of the
        lists. Raises ValueError if an id is negative or occurs twice, or a vector is not of length
        1.
        """
        self.nprobe = ivf.nprobe if nprobe is None else as_count("nprobe", nprobe)
        with self.changing() as transaction:
            new, steps = transaction.encode(labels, ivf.ntotal)
            centroids = faiss.downcast_index(ivf.quantizer).reconstruct_n(0, ivf.nlist)
            call_steps(
                self._training(as_rows("ivf.quantizer", centroids, ivf.d, self.metric)[None]), []
            )
            stored = stock_codes(ivf)[1]
            lists = np.repeat(np.arange(self.nlist, dtype=np.int32), list_sizes(ivf))[None]
            places = np.argsort(np.argsort(stored))
            transaction.append(codes, new[places], stored, lists, vectors=vectors, also=steps)
        storage = self.snapshot()
        if self.metric != "cosine":
            longest = storage.measure_longest()
            if not longest <= LONGEST:
                raise ValueError(
                    f"the index must hold vectors of length {LONGEST:g} at most, got one of "
                    f"{longest:g}"
                )
            call_steps([setting(self, "_longest", longest), *self._forgetting()], [])
            return self
        row = storage.first_not_unit(_SHORTEST)
        if row >= 0:
            X, ids = storage.rows(np.array([row]))
            raise ValueError(
                "the index must hold vectors of length 1 (normalise them before they are added), "
                f"got one of length {np.linalg.norm(X):g}, id {ids[0]}"
            )
        return self

    def __repr__(self) -> str:
        metric = "" if self.metric == "cosine" else f"metric={self.metric!r}, "
        return (
            f"{type(self).__name__}(d={self.d}, nlist={self.nlist}, {self._settings()}, "
            f"nprobe={self.nprobe}, {metric}ntotal={self.ntotal})"
        )

    def _settings(self) -> str:
        """Return the settings of the kind of index for ``repr``."""
        return f"partitions={self.partitions}"

    def take_label_keys(self, table: LabelKeys | None) -> None:
        """Set the labels that codes of later rows stand for.

        Codes of stored rows must have the same labels in it.
        """
        with self._lock.writing():
            call_steps([setting(self, "label_keys", table), *self._forgetting()], [])

    def take_centroids(self, centroids: Floats) -> None:
        """Set trained centroids, (partitions, nlist, d), in place of :meth:`train`."""
        call_steps(self._training(centroids), [])

    # --- first-use work ---------------------------------------------------------------------------

    @property
    def choice(self) -> Element | None:
        """Element type of the blocks for batched search: "float", "byte", or None to follow a rule.

        The rule is one of dimension and instruction set, so that each run takes the same memory and
        time.

        :meth:`prepare` sets it by the rule; ``write_index`` keeps it. Setting it also selects byte
        blocks ("byte") or the stored vectors ("float") for single queries. Results never depend on
        it. A processor without byte products uses floats. Setting another value raises ValueError.
        """
        return None if self._pinned is None else self._pinned.batch

    @choice.setter
    def choice(self, value: Element | None) -> None:
        if value not in (None, "float", "byte"):
            raise ValueError(f"choice must be 'float', 'byte' or None, got {value!r}")
        with self._lock.writing():
            self._single = None
            self._pinned = None if value is None else Choice(value, value)
            if self._state is not None:
                Derived.of(self._state).pin(self._pinned)

    def prepare(self, k: int = 10, recall: float | None = 0.95) -> None:
        """Do the first-use work of searches now: class centroids, blocks and calibration.

        Set :attr:`choice`.

        ``write_index`` keeps the results, so that the first search after
        :func:`cfe_faiss.read_index` is quick, too. A later change keeps :attr:`choice`, and the
        data of unchanged lists after a small change, but not calibrations.

        Parameters
        ----------
        k
            Number of results per query, >= 1, for the calibration.
        recall
            Recall that later searches ask for, in (0, 1]; the number of lists that reaches it is
            measured, for single queries and for all stored vectors. None skips the measurement.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid, or the index is empty.
        """
        for queries in (1, None):
            self._calibration(recall, k, queries)
        with self.holding() as snapshot:
            self._pinned = Derived.of(snapshot).prepare()
        self._search_one()

    def prepare_again(self) -> None:
        """Derive the data of a prepared index after reading it.

        A mapped one derives it at the first search.
        """
        if self._pinned is not None and not is_mapped(self):
            with self.holding() as snapshot:
                Derived.of(snapshot).prepare()
            self._search_one()

    def _search_one(self) -> None:
        """Search a query as later ones are searched, which allocates the memory for it."""
        self.answer_single(np.zeros((1, self.d), np.float32), np.zeros(1, np.int64), 1, 1, None)

    def _add(self, X: Floats, labels: ArrayLike | None, ids: ArrayLike | None) -> None:
        """Add vectors.

        If most of the index is new, also derive the data of single queries, to speed up the first.
        """
        super()._add(X, labels, ids)
        if X.size >= _DERIVED_AHEAD and 2 * len(X) >= self.ntotal and self.routing == "evidence":
            with suppress(MemoryError), self.holding() as snapshot:  # the vectors are stored
                Derived.of(snapshot).searcher("other")

    # --- codec ------------------------------------------------------------------------------------

    def _codec(self) -> tuple[int, Floats]:
        """Return the codec and its levels; see :mod:`cfe_faiss.rows.codecs`."""
        return codecs.FLAT, codecs.NO_LEVELS

    def _codec_training(self, X: Floats, centroids: Floats) -> list[Step]:
        """Train a copy of the codec and return the steps that install it."""
        return []

    def _pq_codes(self) -> PqCodes | None:
        """Return the product-quantizer codes that screen vectors, or None."""
        return None

    # --- storage ----------------------------------------------------------------------------------

    @property
    def partitions(self) -> int:
        """Number of partitions, including the first (FAISS's lists)."""
        return len(self._supplementary) + 1

    def centroids(self) -> Floats:
        """Return the centroids of all partitions, (partitions, nlist, d) float32, read-only."""
        with self._lock.reading():
            return self._all_centroids()

    def _all_centroids(self) -> Floats:
        centroids = self._centroids
        if centroids is None:
            first = faiss.downcast_index(self.quantizer).reconstruct_n(0, self.nlist)
            self._centroids = centroids = read_only(
                np.concatenate([first[None], self._supplementary])
            )[0]
        return centroids

    def share_centroids(self, quantizer: Any, centroids: Floats) -> None:
        """Replace quantizer and centroids by equal ones that other indexes share.

        This saves memory.
        """
        replaced = faiss.downcast_index(self.quantizer)
        self.quantizer = quantizer
        self._centroids = centroids
        self.referenced_objects = [quantizer]
        empty = steps_of.flat_index(self.d, self.metric_type)
        call_steps(steps_of.swapping_vectors(replaced, empty), [])

    def routes(self) -> Routes:
        """Return the means of lists by which lists are ranked for a query.

        Valid until the index changes.
        """
        with self._lock.reading():
            return Derived.of(self.snapshot()).routes_for()

    def _is_current(self, snapshot: Snapshot) -> bool:
        # FAISS may train an empty index
        return snapshot.n > 0 or snapshot.is_trained == self.is_trained

    def _set_up(self, table: Table) -> None:
        super()._set_up(table)
        self._carried = self._from_file = self._calibrations = self._pinned = self._single = (
            self._lists
        ) = None

    def _forgetting(self, lists: Ints | None = None) -> list[Step]:
        carried = None
        if lists is not None and self._state is not None:
            carried = Derived.of(self._state).after(lists)
        elif lists is not None and self._carried is not None:
            carried = self._carried.after(lists)
        dropped = dict.fromkeys(("_from_file", "_calibrations", "_single"))
        values = {"_carried": carried, **dropped}
        return [
            *super()._forgetting(lists),
            *(setting(self, name, value) for name, value in values.items()),
        ]

    def _new_snapshot(self) -> Snapshot:
        table = self._table
        lists = self._faiss_lists()
        mapped = is_mapped(self)
        codec, levels = self._codec()
        rows = table.rows(
            lists,
            self.d,
            codec,
            np.ascontiguousarray(levels.reshape(-1)),
            METRICS.index(self.metric),
        )
        if self.checks is not None:
            rows.check_by(*self.checks)
        trained = self.is_trained and self.nlist > 0
        no_centroids = np.zeros((self.partitions, self.nlist, self.d), np.float32)
        references, reference_starts = table.references() or (NO_REFERENCES, NO_STARTS)
        snapshot = Snapshot(
            rows,
            self.d,
            codec=codec,
            levels=levels,
            centroids=self._all_centroids() if trained else no_centroids,
            references=references,
            reference_starts=reference_starts,
            pq=self._pq_codes() if trained else None,
            in_memory=not mapped,
            is_trained=self.is_trained,
            lookup=None if mapped else partial(table.rows_of, lists),
            label_keys=self.label_keys,
            longest=codecs.norm_bound(codec, levels, self._longest),
        )
        derived = Derived(snapshot, self._from_file, self._carried, self._pinned)
        derived.calibrations |= self._calibrations or {}
        self._carried = None  # the snapshot owns it now and releases it early
        return snapshot

    def _faiss_lists(self) -> FaissLists:
        return inverted_lists(self)

    def _check_lists(self, lists: FaissLists, *change: Change) -> None:
        """Raise RuntimeError if other code has changed FAISS's lists (``permute_invlists``)."""
        if not self._table.is_as_left(lists, *change):
            raise RuntimeError(
                "the inverted lists were changed by other means than the methods of this index, so "
                "that labels and "
                "vectors do not belong together any more; build a new index with from_stock"
            )

    # --- changes ----------------------------------------------------------------------------------

    def train(self, x: ArrayLike, numeric_type: int = faiss.Float32) -> None:
        """Cluster training vectors into the index's partitions.

        Parameters
        ----------
        x
            Vectors, (n, d), n >= nlist; for "cosine" normalised in a copy. Training samples at most
            ``cp.max_points_per_centroid`` vectors per list.
        numeric_type
            FAISS's: the type to which values are rounded first.

        Raises
        ------
        TypeError, ValueError
            If ``x`` is invalid, or the index already holds vectors.
        """
        X = as_rows("x", as_numeric(x, numeric_type), self.d, self.metric)
        if len(X) < self.nlist:
            raise ValueError(
                f"x must hold at least nlist = {self.nlist} training vectors, got {len(X)}"
            )
        with self.changing():
            if self.ntotal:
                raise ValueError(
                    f"train must be called before vectors are added, got an index of {self.ntotal}"
                )
            nlist = self.nlist or automatic_nlist(len(X))
            centroids = train_partitions(
                X,
                nlist,
                self.partitions,
                self.cp,
                theta=self.theta,
                weighted=self.weighted,
                metric=self.metric,
            )
            codec = self._codec_training(X, centroids)
            new_lists: list[Step] = []
            if nlist != self.nlist:
                lists = faiss.ArrayInvertedLists(nlist, self.code_size)
                table = self._table_of(np.zeros(nlist, np.int64))
                new_lists = [*steps_of.replacing_lists(self, lists), setting(self, "_table", table)]
            call_steps([*new_lists, *self._training(centroids), *codec], [])

    def _training(self, centroids: Floats) -> list[Step]:
        """Return the steps that install the centroids of all partitions, (partitions, nlist, d)."""
        quantizer = faiss.downcast_index(self.quantizer)
        if isinstance(quantizer, faiss.IndexFlat):
            fresh = steps_of.flat_index(self.d, self.metric_type)
            fresh.add(centroids[0])
            filling = steps_of.swapping_vectors(quantizer, fresh)
        else:  # a quantizer set by the user
            filling = steps_of.filling(quantizer, np.ascontiguousarray(centroids[0]))
        read_only(centroids)
        return [
            *filling,
            *steps_of.trained(quantizer, self),
            setting(self, "_supplementary", centroids[1:]),
            setting(self, "_centroids", centroids),
            *self._forgetting(),
        ]

    def _replace_rows(
        self,
        faiss_lists: FaissLists,
        rows: Ints,
        X: Floats,
        labels: Int32s,
        ids: Ints,
        also: Sequence[Step],
    ) -> None:
        lists = np.empty((self.partitions, 0), np.int32)
        if len(X):
            if np.isnan(self._supplementary).any():  # NaN before training
                raise ValueError(
                    "supplementary partitions must be trained, too: FAISS trained the first one "
                    "only, from an index that holds this one; call train(x) of this one"
                )
            lists = assign(X, self._all_centroids(), self.metric)
        new = codes_of(self, X, lists[0]), ids, lists, X
        self._replace_codes(faiss_lists, rows, new, labels, also)

    def _insert_merged(
        self, other: Any, X: Floats, labels: Int32s, ids: Ints, also: Sequence[Step]
    ) -> None:
        centroids = _NO_CENTROIDS
        lists = np.empty((0, 0), np.int32)
        if len(X) and other.metric_type == self.metric_type:
            centroids, lists = _lists_of(other)
        if not self.is_trained or not np.array_equal(self._all_centroids(), centroids):
            super()._insert_merged(other, X, labels, ids, also)
            return
        # As in FAISS, vectors stay in their lists: a decoded vector may be nearer to another list.
        codes = codes_of(self, X, lists[0])
        Transaction(self).append(codes, labels, ids, lists, X, also)

    def _replace_codes(
        self,
        faiss_lists: FaissLists,
        rows: Ints,
        new: tuple[Bytes, Ints, Int32s, Floats | None],
        labels: Int32s,
        also: Sequence[Step],
    ) -> None:
        """Remove rows, and add new ones: codes, ids, lists, (partitions, n), and vectors."""
        codes, ids, lists, X = new
        change = self._table.replacement(rows, lists[0], labels)
        self._check_lists(faiss_lists, change)
        before: list[Step] = []
        undo: list[Step] = []
        mapping: list[Step] = []
        if self.direct_map.type != faiss.DirectMap.NoMap:
            stored = self.snapshot().ids()
            before, undo = self._mapping_more(np.setdiff1d(ids, stored))
            mapping = self._mapping(lambda: np.concatenate([np.delete(stored, rows), ids]))
        longest = [] if X is None else self._lengthening(X)
        after = [total(self, len(self._table) + len(ids) - len(rows)), *mapping, *longest, *also]
        self._commit(change, faiss_lists, self._new_rows(codes, X, ids, lists), before, undo, after)

    def _new_rows(
        self, codes: Bytes, X: Floats | None, ids: Ints, lists: Int32s
    ) -> tuple[Any, Any, Any, Any]:
        """Return codes, ids, supplementary lists and vectors of new rows.

        None for data that is not kept.
        """
        references = np.ascontiguousarray(lists[1:].T) if len(lists) > 1 else None
        return codes, ids, references, X if self._keeps_beside else None

    def _mapping(self, ids_after: Callable[[], Ints]) -> list[Step]:
        """Return the steps that rebuild FAISS's direct map, for a subset of its ids."""
        kind = self.direct_map.type
        if kind == faiss.DirectMap.NoMap:
            return []
        stored = np.sort(ids_after()) if kind == faiss.DirectMap.Array else np.empty(0, np.int64)
        if not np.array_equal(stored, np.arange(len(stored))):
            raise RuntimeError(
                "a direct map of type Array takes the ids 0 to ntotal - 1 only; set another type "
                "before"
            )
        return [direct_map(self, faiss.DirectMap.NoMap), direct_map(self, kind)]

    def _mapping_more(self, ids: Ints) -> tuple[list[Step], list[Step]]:
        """Return the steps that reserve space for ``ids`` in the direct map, and undo this."""
        places = self.direct_map
        n = len(self._table)
        if places.type == faiss.DirectMap.Hashtable:
            undo = [
                direct_map(self, faiss.DirectMap.NoMap),
                direct_map(self, faiss.DirectMap.Hashtable),
            ]
            return steps_of.mapping(places, ids.tolist()), undo
        if not np.array_equal(np.sort(ids), np.arange(n, n + len(ids))):
            raise RuntimeError(
                f"a direct map of type Array takes no other ids than {n} and on; set another type "
                f"before"
            )
        return [steps_of.resizing(places.array, n + len(ids))], [steps_of.resizing(places.array, n)]

    def set_direct_map_type(self, type: int) -> None:  # noqa: A002 - as in FAISS
        """Set the type of the direct map, as ``faiss.IndexIVF.set_direct_map_type``."""
        with self._lock.writing():
            self._check_mapped()
            previous = self.direct_map.type
            undo = [direct_map(self, faiss.DirectMap.NoMap), direct_map(self, previous)]
            call_steps([direct_map(self, type)], undo)

    def make_direct_map(self, new_maintain_direct_map: bool = True) -> None:
        """Enable or disable the direct map, as ``faiss.IndexIVF.make_direct_map``."""
        self.set_direct_map_type(
            faiss.DirectMap.Array if new_maintain_direct_map else faiss.DirectMap.NoMap
        )

    def _relabel(self, rows: Ints, labels: Int32s, also: Sequence[Step]) -> None:
        change = self._table.relabelling(rows, labels)
        lists = self._faiss_lists()
        self._check_lists(lists, change)
        after = [*self._mapping(self.snapshot().ids), *also]
        self._commit(change, lists, (None, None, None, None), [], [], after)

    def _emptying(self) -> list[Step]:
        return self._emptying_by(
            steps_of.emptying(self), self._table_of(np.zeros(self.nlist, np.int64))
        )

    def drift(self) -> float:
        """Return the share of vectors that are nearer to the mean of another list.

        Every other vector is nearest to the mean of its list.

        After training it is near 0. Changed vectors raise it when the lists no longer fit them, and
        searches then scan more rows for the same recall. :doc:`/user_guide/indexes` has
        measurements.

        Returns
        -------
        float
            In [0, 1]; 0.0 without vectors. Means are normalised. Only the first partition counts.
            Measured on 4,096 vectors, the same ones in every call, in O((n + 4096 * nlist) * d)
            time.
        """
        with self.holding() as snapshot:
            return drift(snapshot)

    # --- files ------------------------------------------------------------------------------------

    def parts(self) -> tuple[Any, dict[str, Any], Arrays]:
        """Return the stock index, the parameters and the arrays of the index file."""
        snapshot = self.snapshot()
        self._check_lists(self._faiss_lists())
        self._check_mapped()
        parameters = {name: getattr(self, name) for name in _SETTINGS}
        parameters |= {
            "metric": self.metric,
            "choice": self._choice_in_file(),
            "longest": self._longest,
        }
        n = snapshot.n
        further = self.partitions - 1
        starts = snapshot.reference_starts if further else np.zeros(1, np.int64)
        arrays: Arrays = {
            "labels": snapshot.labels,
            **arrays_of(self.label_keys, lambda: snapshot.class_counts[0]),
            "centroids": np.nan_to_num(self._supplementary),
            "references": snapshot.references.reshape(further, n),
            "reference_starts": starts,
        }
        # Stored, so that the first search of a mapped index need not read every vector.
        routed = self.routing == "evidence" and n
        arrays |= (Derived.of(snapshot).routes_for() if routed else Routes.none(self.d)).arrays()
        calibrations = Derived.of(snapshot).calibrations if self._pinned else {}
        arrays |= calibration_arrays(calibrations, self.default_effort())
        return self._in_memory(), parameters, arrays

    def _choice_in_file(self) -> str:
        """Return the element types, and whether calibrations searched by estimates."""
        parts = self._pinned or ()
        return "/".join((*parts, "bit") if parts and estimates_pay(self.d, self.ntotal) else parts)

    def _in_memory(self) -> Any:
        if not is_mapped(self):
            return self
        copy = type(self).__new__(type(self))
        copy._construct(self)
        faiss.IndexIVF.copy_subset_to(
            self, copy, faiss.InvertedLists.SUBSET_TYPE_INVLIST, 0, self.nlist
        )
        for name in ("nprobe", "is_trained", "ntotal"):
            setattr(copy, name, getattr(self, name))
        return copy

    def _construct(self, stock: Any) -> None:
        """Call FAISS's constructor with quantizer and settings of a stock index; copy its codec."""
        raise NotImplementedError

    def _take_over(self, stock: Any) -> None:
        """Construct FAISS's part over lists and quantizer of a stock index, their owner."""
        self._construct(stock)
        self._source = stock
        for name in _STOCK_ATTRIBUTES:
            setattr(self, name, getattr(stock, name))
        call_steps(steps_of.using_lists(self, stock.invlists), [])

    def restore(
        self,
        stock: Any,
        parameters: dict[str, Any],
        arrays: Arrays,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Take over a stock index, and restore the parameters and arrays of :meth:`parts`."""
        for name in _SETTINGS:
            setattr(self, name, parameters[name])
        self._metric = parameters.get("metric", "cosine")
        self._take_over(stock)
        self._supplementary = arrays["centroids"]
        self._centroids = None
        if not self.is_trained:
            self._supplementary = np.full_like(arrays["centroids"], np.nan)
        references = (arrays["references"].reshape(-1), arrays["reference_starts"])
        table = self._table_of(
            list_sizes(self), arrays["labels"], arrays.get("vectors"), references
        )
        self._set_up(table)
        self._longest = parameters.get("longest", 0.0)
        self.label_keys = table_from(arrays)
        self._unchecked = check
        if len(arrays["route_means"]):
            center = center_of(self._all_centroids(), self.metric, self.d)
            self._from_file = Routes.from_arrays(self.nlist, arrays, self.metric, center)
            if "choice" not in parameters:  # before version 4, lists were clustered by their means
                clusters = SecondLevel.of(self._all_centroids())
                self._from_file = replace(self._from_file, second_level=clusters)
        if parameters.get("choice"):
            batch, single, *bits = parameters["choice"].split("/")
            # "mixed" in older files: bytes, too
            self._pinned = Choice(batch, "float" if single == "float" else "byte")
            # older files: measured without estimates
            if bits or not estimates_pay(self.d, self.ntotal):
                self._calibrations = calibrations_from(arrays, self.default_effort())

    # --- unsupported: would lose labels -----------------------------------------------------------

    def add_core(self, *_: Any, **__: Any) -> None:
        """Not supported: use add_with_labels."""
        raise self._refused("add_core", "use add_with_labels")

    def replace_invlists(self, *_: Any, **__: Any) -> None:
        """Not supported: use from_stock."""
        raise self._refused("replace_invlists", "use from_stock")


# --- helpers --------------------------------------------------------------------------------------


def _lists_of(index: Any) -> tuple[Floats, Int32s]:
    """Return the centroids of an index, (partitions, nlist, d), and the lists of its rows.

    Both are empty for other kinds.
    """
    if isinstance(index, EvidenceIVFMixin):
        return index._all_centroids(), index.snapshot().lists_by_row()
    stock = faiss.downcast_index(index)
    quantizer = faiss.downcast_index(stock.quantizer) if isinstance(stock, faiss.IndexIVF) else None
    if not isinstance(quantizer, faiss.IndexFlat):
        return _NO_CENTROIDS, np.empty((0, 0), np.int32)
    lists = np.repeat(np.arange(stock.nlist, dtype=np.int32), list_sizes(stock))[None]
    return quantizer.reconstruct_n(0, stock.nlist)[None], lists


def automatic_nlist(n: int) -> int:
    """Return the default number of lists for n vectors."""
    return max(1, min(n, 4 * math.isqrt(n)))


def sample(X: Floats, most: int, seed: int) -> Floats:
    """Return X, or a random sample of ``most`` rows if X has more."""
    return (
        X
        if len(X) <= most
        else X[np.sort(np.random.default_rng(seed).choice(len(X), most, replace=False))]
    )
