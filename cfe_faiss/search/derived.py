"""Data derived from a snapshot for searches. Each item is computed once, on first use."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cfe_faiss._native import Blocks, ClassCentroids, ListScan, Searcher
from cfe_faiss.base.arrays import Bools, Ints
from cfe_faiss.base.derived import derived, once
from cfe_faiss.coarse.class_centroids import SMALL_SHARE, Routes, large_classes
from cfe_faiss.rows.codecs import FLAT
from cfe_faiss.rows.snapshot import Snapshot, read_only
from cfe_faiss.search import blocks as blocking
from cfe_faiss.search.blocks import Choice, Element
from cfe_faiss.search.grouping import Groups
from cfe_faiss.search.query import Calibration, Effort

_WORTH = 1 / 8  # maximum share of changed lists; above it, a rebuild costs little more
_EVERYTHING = np.empty(0, bool)
_NAME = "evidence"


@dataclass(slots=True, eq=False)
class Carried:
    """Derived data of unchanged lists, carried over a small update of an index with one partition.

    Attributes
    ----------
    blocks, not_in_blocks
        Byte blocks for single queries, and a mask of the lists that have changed since they were
        built, (nlist,).
    centroids, changed
        The (list, class) centroids, and a mask of the lists that have changed since they were
        computed, (nlist,).
    """

    blocks: Blocks | None
    not_in_blocks: Bools
    centroids: ClassCentroids | None
    changed: Bools

    def after(self, lists: Ints) -> Carried | None:
        """Return the data that stays valid after further lists have changed.

        None if too many have.
        """
        not_in_blocks = self.not_in_blocks.copy()
        changed = self.changed.copy()
        not_in_blocks[lists] = changed[lists] = True
        most = _WORTH * len(changed)
        blocks = self.blocks
        centroids = self.centroids
        if blocks is not None and np.count_nonzero(not_in_blocks) > most:
            blocks = None
        if centroids is not None and centroids.changed + np.count_nonzero(changed) > most:
            centroids = None
        if blocks is None and centroids is None:
            return None
        return Carried(blocks, not_in_blocks, centroids, changed)


class Derived:
    """Centroids, blocks and searchers derived from a snapshot, and kept with it.

    Attributes
    ----------
    carried
        Data carried over from the previous snapshot; None after a rebuild.
    kept
        Blocks of all lists, by element type; None if they exceed the memory limit.
    calibrations
        Calibrations of nprobe, by :meth:`calibration_key`; see :mod:`cfe_faiss.search.recall`.
    searchers
        Searchers for queries that are ranked one by one, by the classes that these may find.
    groups
        Groups of all stored rows as queries, in list order, by the classes that these may find.
    routes
        Means of lists for queries that may find their own class, or any.
    pinned
        Element types that the index prescribes. None: :func:`cfe_faiss.search.blocks.choose` sets
        them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        class_means: Routes | None = None,
        carried: Carried | None = None,
        pinned: Choice | None = None,
    ) -> None:
        # The snapshot refers to this object. A strong reference back would be a cycle.
        self._snapshot = weakref.ref(snapshot)
        self.carried = carried
        self.kept: dict[Element, Blocks | None] = {}
        self.calibrations: dict[tuple[Any, ...], Calibration] = {}
        self.searchers: dict[str, Searcher] = {}
        self.groups: dict[str, Groups] = {}
        self.routes: dict[str, Routes] = {}
        self.pinned = pinned
        self._choice: Choice | None = None
        self._from_file = class_means
        snapshot.cache[_NAME] = self

    @classmethod
    def of(cls, snapshot: Snapshot) -> Derived:
        """Return the derived data of a snapshot."""
        known: Derived | None = snapshot.cache.get(_NAME)
        return known or once(snapshot.cache, _NAME, lambda: cls(snapshot))

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot, which the caller keeps alive."""
        snapshot = self._snapshot()
        if snapshot is None:
            raise RuntimeError("the snapshot that this was derived from is no more")
        return snapshot

    # --- list ranking -----------------------------------------------------------------------------

    @derived
    def class_means(self) -> Routes:
        """The mean of each list, and for each class that of the list's rows of other classes."""
        routes = self._from_file or Routes.of(self.snapshot)
        read_only(*routes.arrays().values(), routes.filled, routes.class_filled)
        return routes

    @derived
    def centroids(self) -> ClassCentroids:
        """The class means in the layout that the core uses to rank lists."""
        carried = self.carried
        if carried is None or carried.centroids is None:
            return self.class_means.native
        return carried.centroids.with_changes(
            self.snapshot.native, np.flatnonzero(carried.changed), SMALL_SHARE
        )

    @derived
    def large_classes(self) -> frozenset[int]:
        """Classes whose lists are ranked for queries of the same class."""
        return frozenset(large_classes(self.snapshot).tolist())

    def routes_for(self, neighbors: str) -> Routes:
        """Return the means of lists for queries that may find these classes."""
        has_unknown = int(self.snapshot.class_counts[1].sum()) < self.snapshot.n
        if neighbors == "other" or (neighbors == "any" and not has_unknown):
            return self.class_means
        return once(self.routes, neighbors, lambda: Routes.of(self.snapshot, neighbors))

    def centroids_for(self, neighbors: str) -> ClassCentroids:
        """Return the means of :meth:`routes_for` in the core's layout, new for changed lists."""
        if neighbors == "other":
            return self.centroids
        routes = self.routes_for(neighbors)
        return self.centroids if routes is self.class_means else routes.native

    # --- blocks -----------------------------------------------------------------------------------

    @property
    def choice(self) -> Choice:
        """Element types of the blocks: prescribed, or by dimension and instruction set."""
        if self._choice is None:
            self._choice = blocking.choose(self.snapshot, self.pinned, keeps_blocks=self._may_keep)
        return self._choice

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
        blocks = blocking.all_blocks(self.snapshot, element)
        carried = self.carried
        if (
            element == "byte" or carried is None or carried.blocks is None
        ):  # only single queries use the carried blocks
            self.carried = None
            self.searchers.clear()  # they refer to the old blocks
        return blocks

    # --- searchers --------------------------------------------------------------------------------

    def searcher(self, neighbors: str) -> Searcher | None:
        """Return the searcher for queries that are ranked one by one.

        None for an index with quantizer codes.
        """
        if self.snapshot.pq is not None:
            return None
        return once(self.searchers, neighbors, lambda: self._new_searcher(neighbors))

    def _new_searcher(self, neighbors: str) -> Searcher:
        carried = self.carried
        centroids = self.centroids_for(neighbors)
        if self.choice.single == "float":  # float blocks would save too little
            return self.searcher_in(None, centroids)
        if carried is None or carried.blocks is None:
            return self.searcher_in(self._blocks_of("byte"), centroids)
        return self.searcher_in(carried.blocks, centroids, carried.not_in_blocks)

    def searcher_in(
        self, blocks: Blocks | None, centroids: ClassCentroids, not_in_blocks: Bools = _EVERYTHING
    ) -> Searcher:
        """Return a searcher of all lists. Lists missing from the blocks are read from the rows."""
        return Searcher(self.scan, centroids, self.snapshot.margin, blocks, not_in_blocks, 1)

    @derived
    def scan(self) -> ListScan:
        """Scanner of given lists."""
        return ListScan(
            self.snapshot.native, self.snapshot.references, self.snapshot.reference_starts
        )

    def prepare(self) -> Choice:
        """Compute all derived data now, and return the element types."""
        _ = self.searcher("other"), self.blocks, self.snapshot.members
        return self.choice

    def pin(self, choice: Choice | None) -> None:
        """Prescribe element types, or let the rule choose them (None).

        No other thread may search.
        """
        self.pinned = choice
        self._choice = None
        self.kept.clear()
        self.searchers.clear()

    # --- calibration ------------------------------------------------------------------------------

    @staticmethod
    def calibration_key(k: int, effort: Effort, *, batched: bool) -> tuple[Any, ...]:
        """Return the key of the calibration for the k best results of single or grouped queries."""
        return k, effort.recall, batched, effort.complete, effort.routing, effort.k_factor

    def nprobe_for(self, k: int, recall: float, label: int, *, complete: bool) -> int | None:
        """Return the number of lists that a single query must probe for a recall@k.

        None if not calibrated yet.

        The key equals :meth:`calibration_key`, without an ``Effort``: building one takes a tenth of
        a query's time.
        """
        calibration = self.calibrations.get((k, recall, False, complete, "evidence", None))
        return None if calibration is None else calibration.nprobe.get(label, calibration.other)

    def with_routes(self, neighbors: str, routes: Routes) -> Snapshot:
        """Return a copy of the snapshot that ranks lists by other routes, with its blocks."""
        twin = self.snapshot.twin()
        carried = self.carried
        replaces = neighbors == "other" or self.routes_for(neighbors) is self.class_means
        unchanged = None if carried is None else replace(carried, centroids=None)
        other = Derived(twin, routes if replaces else self.class_means, unchanged, self.pinned)
        other.kept = self.kept
        other.routes = {} if replaces else {neighbors: routes}
        return twin

    # --- after a change ---------------------------------------------------------------------------

    def after(self, lists: Ints) -> Carried | None:
        """Return the data to carry over after some lists have changed; None if nothing can be."""
        nlist = len(self.snapshot.starts) - 1
        before = self.carried
        if self.snapshot.lists > nlist:
            return None
        unchanged = np.zeros(nlist, np.bool_)
        state = Carried(self.kept.get("byte"), unchanged, vars(self).get("centroids"), unchanged)
        if before is not None:
            state.blocks = before.blocks
            state.not_in_blocks = before.not_in_blocks
        if before is not None and state.centroids is None:
            state.centroids = before.centroids
            state.changed = before.changed
        if self.choice.single == "float":  # byte blocks serve single queries only
            state.blocks = None
        return state.after(lists)
