"""Data derived from a snapshot for searches. Each item is computed once, on first use.

**Blocks** are dimension-major copies of vectors in blocks of 16 rows, as floats or as bytes. A byte
is a quarter of a float, and VNNI multiplies 4 bytes at a time. But byte blocks give bounds, and
rows whose bound does not decide are scored again from the vectors. With few dimensions the products
of groups are cheap, and floats are faster. A single query is bound by memory, and bytes are faster.
``benchmarks/block_elements.py`` measured both on several data sets with AVX2 and AVX-512 and
fitted the rule. The element type does not change results.

From 96 dimensions on, and from 64 on if there are many rows, queries with a target recall that are
searched one by one read blocks of **bits**, whose estimates rule out most rows, then the bytes of
the others, whose estimates rule out most of these. Each may lose a result with a small probability,
which the calibration of the recall measures. All other searches compare every row of the probed
lists.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from cfe_faiss import _native
from cfe_faiss._native import Blocks, ClassCentroids, ListScan, Searcher
from cfe_faiss.base.checks import UNKNOWN, Bools, Floats, Int32s, Ints
from cfe_faiss.base.threads import derived, num_threads, once, single_threaded_blas
from cfe_faiss.coarse.routes import SMALL_SHARE, Routes, large_classes
from cfe_faiss.rows.codecs import FLAT
from cfe_faiss.rows.snapshot import Snapshot, read_only
from cfe_faiss.search.query import MEMORY, NO_BOOLS, Calibration, Effort, Rules

Element = Literal["float", "byte", "bit"]

ROWS_OF_BLOCK = 16

_STATISTICS = {"float": 0, "byte": 7, "bit": 5}  # 4-byte numbers per row of a block, at most
_PREFIX = 64  # dimensions compared first; with the norm of the others they bound the product
_WORTH_ROTATING = 1 << 16  # rows; below it, rotating the queries costs more than it saves
_SAMPLE = 1 << 14  # rows sampled for the principal directions
_LONGEST_TAIL = 0.5  # maximum share of the squared norms after the prefix
_BATCH_FROM = {"avx2": 48, "avx512": 32, "neon": 48}  # neon is not measured: as avx2
"""Dimension from which on byte blocks are faster for batched search, by instruction set."""
_MOST_BYTES = 1 << 24  # bytes in a row; products of longer rows overflow 32 bits
_MOST_OF_ANY_LENGTH = 1 << 13  # the same for rows of any length, by their error bounds
_BITS = range(64, (1 << 12) + 1)  # dimensions in which estimates from bits pay
_BITS_OF_FEW_ROWS = 96  # least of them below _MANY_ROWS
_MANY_ROWS = 100_000
_MOST_CHANGED = 1 / 8  # share of the lists; above it, a rebuild costs little more
_CACHE_KEY = "derived"  # of an object of Derived in the cache of its snapshot
# Queries of a task of a thread.
_FEWEST_QUERIES = 1 << 9
_MOST_QUERIES = 1 << 12
_TASKS = 2  # per thread, if the remaining queries were cut evenly


class Choice(NamedTuple):
    """Element types that searches use. They affect the time of a search and never its results.

    Attributes
    ----------
    batch
        Element type of the blocks for batched search.
    single
        "byte" if single queries read byte blocks; "float" if they read the stored vectors.
    """

    batch: Element
    single: Element


@dataclass(frozen=True, slots=True)
class Groups:
    """Queries by group: ``order[starts[g]:starts[g + 1]]``, routed by ``labels[g]``."""

    order: Ints
    starts: Ints
    labels: Int32s

    def __len__(self) -> int:
        return len(self.labels)

    def of_task(self, task: slice) -> tuple[slice, Ints]:
        """Return the slice of ``order`` with some groups, and their borders within it."""
        borders = self.starts[task.start : task.stop + 1]
        return slice(int(borders[0]), int(borders[-1])), borders - borders[0]

    def tasks(self) -> list[slice]:
        """Cut the groups into runs without splitting one.

        The last runs are smaller, so that threads end together.
        """
        n = len(self.order)
        first = 0
        firsts = []
        while first < n:
            firsts.append(first)
            first += min(
                _MOST_QUERIES, max(_FEWEST_QUERIES, (n - first) // (_TASKS * num_threads()))
            )
        borders = sorted({*np.searchsorted(self.starts[:-1], firsts).tolist(), len(self)})
        return [slice(a, b) for a, b in pairwise(borders)]


@dataclass(slots=True, eq=False)
class Carried:
    """Derived data of unchanged lists, carried over a small update of an index with one partition.

    Attributes
    ----------
    blocks, not_in_blocks
        Blocks for single queries by element type, byte or bit, and a mask of the lists that have
        changed since they were built, (nlist,).
    routes, changed
        Routes for queries for other classes, and a mask of the lists that have changed since they
        were computed, (nlist,).
    """

    blocks: dict[Element, Blocks]
    not_in_blocks: Bools
    routes: ClassCentroids | None
    changed: Bools

    def after(self, lists: Ints) -> Carried | None:
        """Return the data that stays valid after further lists have changed.

        None if too many have.
        """
        not_in_blocks = self.not_in_blocks.copy()
        changed = self.changed.copy()
        not_in_blocks[lists] = changed[lists] = True
        most = _MOST_CHANGED * len(changed)
        blocks = self.blocks if np.count_nonzero(not_in_blocks) <= most else {}
        routes = self.routes
        if routes is not None and routes.changed + np.count_nonzero(changed) > most:
            routes = None
        if not blocks and routes is None:
            return None
        return Carried(blocks, not_in_blocks, routes, changed)


class Derived:
    """Routes, blocks and searchers derived from a snapshot, and kept with it.

    Attributes
    ----------
    carried
        Data carried over from the previous snapshot; None after a rebuild.
    kept
        Blocks of all lists, by element type; None if they exceed the memory limit.
    calibrations
        Calibrations of nprobe, by :meth:`calibration_key`; see :mod:`cfe_faiss.search.recall`.
    searchers
        Searchers for queries that are ranked one by one, by the classes that these may find and the
        element type of the blocks.
    groups
        Groups of all stored rows as queries, in list order, by the classes that these may find.
    routes, native_routes
        Means of lists, and the same in the layout of the core, by the classes that queries may
        find.
    pinned
        Element types that the index prescribes. None: :func:`choose` sets them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        routes: Routes | None = None,
        carried: Carried | None = None,
        pinned: Choice | None = None,
    ) -> None:
        # The snapshot refers to this object. A strong reference back would be a cycle.
        self._snapshot = weakref.ref(snapshot)
        self.carried = carried
        self.kept: dict[Element, Blocks | None] = {}
        self.calibrations: dict[tuple[Any, ...], Calibration] = {}
        self.searchers: dict[tuple[str, Element], Searcher] = {}
        self.groups: dict[str, Groups] = {}
        self.routes = {} if routes is None else {"other": _read_only_routes(routes)}
        self.native_routes: dict[str, ClassCentroids] = {}
        self.pinned = pinned
        snapshot.cache[_CACHE_KEY] = self

    @classmethod
    def of(cls, snapshot: Snapshot) -> Derived:
        """Return the derived data of a snapshot."""
        cached: Derived | None = snapshot.cache.get(_CACHE_KEY)
        return cached or once(snapshot.cache, _CACHE_KEY, lambda: cls(snapshot))

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot, which the caller keeps alive."""
        snapshot = self._snapshot()
        if snapshot is None:
            raise RuntimeError("the snapshot that this was derived from is no more")
        return snapshot

    # --- list ranking -----------------------------------------------------------------------------

    @derived
    def large_classes(self) -> frozenset[int]:
        """Classes whose lists are ranked for queries of the same class."""
        return frozenset(large_classes(self.snapshot).tolist())

    def routes_for(self, neighbors: str = "other") -> Routes:
        """Return the means of lists for queries that may find these classes."""
        key = self._key_of(neighbors)
        return once(self.routes, key, lambda: _read_only_routes(Routes.of(self.snapshot, key)))

    def native_routes_for(self, neighbors: str = "other") -> ClassCentroids:
        """Return the routes in the layout of the core; after a change, new for changed lists."""
        key = self._key_of(neighbors)
        return once(self.native_routes, key, lambda: self._new_native_routes(key))

    def _new_native_routes(self, key: str) -> ClassCentroids:
        carried = self.carried
        if key != "other" or carried is None or carried.routes is None:
            return self.routes_for(key).native
        return carried.routes.with_changes(
            self.snapshot.native, np.flatnonzero(carried.changed), SMALL_SHARE
        )

    def _key_of(self, neighbors: str) -> str:
        """Return the key of routes: "any" and "other" have equal means without unknown labels."""
        if neighbors == "any" and int(self.snapshot.class_counts[1].sum()) == self.snapshot.n:
            return "other"
        return neighbors

    # --- blocks -----------------------------------------------------------------------------------

    @property
    def choice(self) -> Choice:
        """Element types of the blocks: prescribed, or by dimension and instruction set."""
        return choose(self.snapshot, self.pinned, keeps_blocks=self._may_keep)

    @property
    def _may_keep(self) -> bool:
        """Whether blocks of all lists may be kept: vectors are in memory, each in one list."""
        snapshot = self.snapshot
        return (
            snapshot.in_memory
            and snapshot.pq is None
            and not len(snapshot.references)
            and snapshot.codec == FLAT
        )

    @property
    def blocks(self) -> Blocks | None:
        """Blocks of all lists for batched search; None if no blocks are kept."""
        return self._blocks_of(self.choice.batch) if self._may_keep else None

    def _blocks_of(self, element: Element) -> Blocks | None:
        return once(self.kept, element, lambda: self._new_blocks(element))

    def _new_blocks(self, element: Element) -> Blocks | None:
        fits = bytes_of_all(self.snapshot, element) <= MEMORY
        blocks = blocks_of(self.snapshot, element) if fits else None
        if self.carried is not None:
            others = {key: kept for key, kept in self.carried.blocks.items() if key != element}
            self.carried = replace(self.carried, blocks=others) if others else None
        self.searchers.clear()  # they may refer to the old blocks
        return blocks

    # --- searchers --------------------------------------------------------------------------------

    @property
    def estimates(self) -> bool:
        """Whether searches with a target recall may read blocks of bits."""
        return (
            self._may_keep
            and estimates_pay(self.snapshot.d, self.snapshot.n)
            and bytes_of_all(self.snapshot, "bit") <= MEMORY
        )

    def searcher(self, neighbors: str, *, by_recall: bool = False) -> Searcher | None:
        """Return the searcher for queries that are ranked one by one.

        ``by_recall``: for a target recall, so that blocks may hold bits. None for an index with
        quantizer codes.
        """
        if self.snapshot.pq is not None:
            return None
        element = "bit" if by_recall and self.estimates else self.choice.single
        return once(
            self.searchers, (neighbors, element), lambda: self._new_searcher(neighbors, element)
        )

    def _new_searcher(self, neighbors: str, element: Element) -> Searcher:
        carried = self.carried
        routes = self.native_routes_for(neighbors)
        if element == "float":  # float blocks would save too little
            return self.searcher_in(None, routes)
        if carried is None or element not in carried.blocks:
            return self.searcher_in(self._blocks_of(element), routes)
        return self.searcher_in(carried.blocks[element], routes, carried.not_in_blocks)

    def searcher_in(
        self, blocks: Blocks | None, routes: ClassCentroids, not_in_blocks: Bools = NO_BOOLS
    ) -> Searcher:
        """Return a searcher of all lists. Lists missing from the blocks are read from the rows."""
        return Searcher(self.scan, routes, self.snapshot.margin, blocks, not_in_blocks)

    @derived
    def scan(self) -> ListScan:
        """Scanner of given lists."""
        return ListScan(
            self.snapshot.native, self.snapshot.references, self.snapshot.reference_starts
        )

    def prepare(self) -> Choice:
        """Compute what queries for other classes need now, and return the element types."""
        for by_recall in (False, True):
            self.searcher("other", by_recall=by_recall)
        _ = self.blocks, self.snapshot.members
        return self.choice

    def pin(self, choice: Choice | None) -> None:
        """Prescribe element types, or let the rule choose them (None).

        No other thread may search.
        """
        self.pinned = choice
        self.kept.clear()
        self.searchers.clear()

    # --- calibration ------------------------------------------------------------------------------

    @staticmethod
    def calibration_key(k: int, effort: Effort, *, batched: bool) -> tuple[Any, ...]:
        """Return the key of the calibration for the k best results of single or grouped queries."""
        return k, effort.recall, batched, effort.complete, effort.routing, effort.k_factor

    def nprobe_for(
        self, k: int, recall: Any, label: int, complete: bool, rules: Rules | None = None
    ) -> int | None:
        """Return the number of lists that a single query must probe for a recall@k under rules.

        None if not calibrated yet.

        The key equals :meth:`calibration_key`, without an ``Effort``: building one takes a tenth of
        a query's time.
        """
        key: tuple[Any, ...] = (k, recall, False, complete, "evidence", None)
        if rules is not None:
            key = min(k, self.snapshot.n), *key[1:], *rules.calibration_key
        calibration = self.calibrations.get(key)
        return None if calibration is None else calibration.nprobe.get(label, calibration.other)

    def with_routes(self, neighbors: str, routes: Routes) -> Snapshot:
        """Return a copy of the snapshot that ranks lists by other routes, with its blocks."""
        twin = self.snapshot.twin()
        carried = self.carried
        unchanged = None if carried is None else replace(carried, routes=None)
        other = Derived(twin, carried=unchanged, pinned=self.pinned)
        other.kept = self.kept
        other.routes = {"other": self.routes_for(), self._key_of(neighbors): routes}
        return twin

    # --- after a change ---------------------------------------------------------------------------

    def after(self, lists: Ints) -> Carried | None:
        """Return the data to carry over after some lists have changed; None if nothing can be."""
        nlist = len(self.snapshot.starts) - 1
        before = self.carried
        if self.snapshot.lists > nlist:
            return None
        unchanged = np.zeros(nlist, np.bool_)
        kept: dict[Element, Blocks] = {
            key: blocks for key, blocks in self.kept.items() if blocks and key != "float"
        }
        state = Carried(kept, unchanged, self.native_routes.get("other"), unchanged)
        if before is not None:
            state.blocks = kept | before.blocks
            state.not_in_blocks = before.not_in_blocks
        if before is not None and state.routes is None:
            state.routes = before.routes
            state.changed = before.changed
        if self.choice.single == "float":
            state.blocks.pop("byte", None)  # serve batches only
        return state.after(lists)


def _read_only_routes(routes: Routes) -> Routes:
    read_only(*routes.arrays().values(), routes.filled, routes.class_filled)
    return routes


# --- blocks ---------------------------------------------------------------------------------------


def choose(snapshot: Snapshot, pinned: Choice | None, *, keeps_blocks: bool) -> Choice:
    """Return the element types for a snapshot: ``pinned`` or by the rule, as far as possible."""
    longest = _MOST_BYTES if snapshot.metric == "cosine" else _MOST_OF_ANY_LENGTH
    if not _native.has_bytes() or snapshot.d >= longest:
        return Choice("float", "float")
    batch, single = pinned or by_dimension(snapshot.d, _native.level())
    if bytes_of_all(snapshot, "float") > MEMORY:
        batch = "byte"
    return Choice(batch, single if keeps_blocks else "float")


def by_dimension(d: int, level: str) -> Choice:
    """Return the faster element types for d dimensions with byte products."""
    return Choice("byte" if d >= _BATCH_FROM[level] else "float", "byte")


def estimates_pay(d: int, n: int) -> bool:
    """Return whether estimates from bits are faster than bytes for single queries.

    They need a third of the memory traffic, and more computation. ``benchmarks/block_elements.py``
    fitted the numbers of dimensions and rows.
    """
    return d in _BITS and (d >= _BITS_OF_FEW_ROWS or n >= _MANY_ROWS)


def bytes_of_block(d: int, element: Element) -> int:
    """Return the maximum size of a block in bytes: its words, labels and row positions."""
    words = {"float": d, "byte": -(-d // 4), "bit": 18 * -(-d // 64)}[element]
    return ROWS_OF_BLOCK * 4 * (words + _STATISTICS[element] + 2) + 12


def bytes_of_all(snapshot: Snapshot, element: Element) -> int:
    """Return the maximum size of the blocks of all lists, in bytes, with padding."""
    starts = snapshot.list_starts
    blocks = int(starts[-1]) // ROWS_OF_BLOCK + len(starts) - 1
    return blocks * bytes_of_block(snapshot.d, element)


def blocks_of(
    snapshot: Snapshot,
    element: Element,
    *,
    wanted: Bools | None = None,
    allowed: Bools | None = None,
) -> Blocks:
    """Build blocks of some rows.

    Parameters
    ----------
    snapshot, element
        The rows, and the element type of the blocks.
    wanted
        Mask of the lists, (lists,); None for all lists.
    allowed
        Mask of the rows, (n,); None for all rows.
    """
    everything = np.empty(0, np.bool_)
    rotation = np.empty((0, snapshot.d), np.float32)
    if element == "byte" and snapshot.d >= 2 * _PREFIX:
        chosen = np.ones(len(snapshot.list_starts) - 1, np.bool_) if wanted is None else wanted
        if int(np.diff(snapshot.list_starts)[chosen].sum()) >= _WORTH_ROTATING:
            rotation = _rotation(snapshot, np.flatnonzero(chosen))
    center = (
        snapshot.center
        if element != "float" and snapshot.metric == "l2"
        else np.empty(0, np.float32)
    )
    lists = snapshot.references, snapshot.reference_starts
    threads = num_threads(float(snapshot.list_starts[-1]) * snapshot.d)
    masks = everything if wanted is None else wanted, everything if allowed is None else allowed
    return Blocks(
        snapshot.native,
        element,
        snapshot.margin,
        *lists,
        center,
        *masks,
        rotation,
        _PREFIX,
        threads,
    )


def _rotation(snapshot: Snapshot, lists: Ints) -> Floats:
    """Return the principal directions of a sample of the lists' rows.

    (0, d) if a rotation does not pay.
    """
    few = max(1, round(len(lists) * min(1.0, _SAMPLE / snapshot.list_starts[-1])))
    nlist = len(snapshot.starts) - 1
    parts = []
    for j in lists[np.unique(np.linspace(0, len(lists) - 1, few).astype(np.int64))].tolist():
        if j < nlist:
            rows = np.arange(snapshot.starts[j], snapshot.starts[j + 1])
        else:
            cut = slice(*snapshot.reference_starts[j - nlist : j - nlist + 2])
            rows = snapshot.references[cut].astype(np.int64)
        rows = rows[snapshot.labels[rows] != UNKNOWN]
        if len(rows):
            X = snapshot.rows(rows)[0]
            # a damaged file may contain NaN or infinity
            with np.errstate(invalid="ignore", over="ignore"):
                parts.append(X - X.mean(axis=0))
    directions, tail = directions_of(
        np.concatenate(parts) if parts else np.empty((0, snapshot.d), np.float32)
    )
    return directions if tail <= _LONGEST_TAIL else directions[:0]


def directions_of(X: Floats) -> tuple[Floats, float]:
    """Return principal directions, (d, d), and the share of squared norms after the prefix."""
    # On a busy machine BLAS takes 100 times as long for small matrices on several threads, which
    # wait for each other.
    with single_threaded_blas(), np.errstate(invalid="ignore", over="ignore"):
        squares = (X.T @ X).astype(np.float64)
        if not np.isfinite(squares).all():
            return np.empty((0, X.shape[1]), np.float32), math.inf
        values, directions = np.linalg.eigh(squares)
    tail = float(values[:-_PREFIX].sum() / max(values.sum(), np.finfo(np.float64).tiny))
    return np.ascontiguousarray(directions[:, ::-1], np.float32), tail
