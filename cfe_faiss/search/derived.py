"""Data derived from a snapshot for searches. Each item is computed once, on first use."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from cfe_faiss._native import Blocks, ClassCentroids, ListScan, Searcher
from cfe_faiss.base.arrays import Bools, Ints
from cfe_faiss.base.derived import derived, once
from cfe_faiss.coarse.class_centroids import SMALL_SHARE, Routes
from cfe_faiss.rows.codecs import FLAT
from cfe_faiss.rows.snapshot import Snapshot, read_only
from cfe_faiss.search import blocks as blocking
from cfe_faiss.search.blocks import Element
from cfe_faiss.search.element import MANY_LISTS, RowSource, Sample, faster, searcher_of, usable, worth_blocks
from cfe_faiss.search.grouping import Groups
from cfe_faiss.search.query import MEMORY, Calibration, Effort

_WORTH = 1 / 8  # maximum share of changed lists; above it, a rebuild costs little more
_EVERYTHING = np.empty(0, bool)
_NAME = "evidence"
_MOST_BYTES = 1 << 24  # bytes in a row; products of longer rows overflow 32 bits
_MOST_OF_ANY_LENGTH = 1 << 13  # bytes in a row of any length; their error bounds hold for fewer dimensions


class Choice(NamedTuple):
    """Element types that searches use. They affect the time of a search and never its results.

    Attributes
    ----------
    batch
        Element type of the blocks for batched search.
    single
        Rows that single queries read.
    """

    batch: Element
    single: RowSource


@dataclass(slots=True, eq=False)
class Carried:
    """Derived data of unchanged lists, carried over a small update of an index with one partition.

    Attributes
    ----------
    choice
        Element types chosen by timing; None for a type that was not needed yet.
    blocks, not_in_blocks
        Byte blocks for single queries, and a mask of the lists that have changed since they were built, (nlist,).
    centroids, changed
        The (list, class) centroids, and a mask of the lists that have changed since they were computed, (nlist,).
    """

    choice: tuple[Element | None, RowSource | None]
    blocks: Blocks | None
    not_in_blocks: Bools
    centroids: ClassCentroids | None
    changed: Bools

    def after(self, lists: Ints) -> Carried | None:
        """Return the data that stays valid after further lists have changed; None if too many have."""
        not_in_blocks, changed = self.not_in_blocks.copy(), self.changed.copy()
        not_in_blocks[lists] = changed[lists] = True
        most = _WORTH * len(changed)
        blocks, centroids = self.blocks, self.centroids
        if blocks is not None and np.count_nonzero(not_in_blocks) > most:
            blocks = None
        if centroids is not None and centroids.changed + np.count_nonzero(changed) > most:
            centroids = None
        if blocks is None and centroids is None:
            return None
        return Carried(self.choice, blocks, not_in_blocks, centroids, changed)


class Derived:
    """Centroids, blocks and timed choices derived from a snapshot, and kept with it.

    Attributes
    ----------
    carried
        Data carried over from the previous snapshot; None after a rebuild.
    kept
        Blocks of all lists, by element type; None if they exceed the memory limit.
    calibrations
        Calibrations of nprobe, by :meth:`calibration_key`; see :mod:`cfe_faiss.search.recall`.
    groups
        Groups of all stored rows as queries, in list order.
    pinned
        Element types that the index prescribes; None to choose them by timing.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        class_means: Routes | None = None,
        carried: Carried | None = None,
        pinned: Choice | None = None,
    ) -> None:
        # The snapshot refers to this object. A strong reference back would be a cycle.
        self._snapshot, self.carried = weakref.ref(snapshot), carried
        self.kept: dict[Element, Blocks | None] = {}
        self.calibrations: dict[tuple[Any, ...], Calibration] = {}
        self.groups: dict[str, Groups] = {}
        self.pinned = pinned
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

    # --- list ranking -----------------------------------------------------------------------------------------------

    @derived
    def class_means(self) -> Routes:
        """The mean of each list and, for each class, the mean of the list's rows of other classes."""
        routes = self._from_file or Routes.of(self.snapshot)
        read_only(*routes.arrays().values(), routes.filled, routes.class_filled)
        return routes

    @derived
    def centroids(self) -> ClassCentroids:
        """The class means in the layout that the core uses to rank lists."""
        carried = self.carried
        if carried is None or carried.centroids is None:
            return self.class_means.native
        return carried.centroids.with_changes(self.snapshot.native, np.flatnonzero(carried.changed), SMALL_SHARE)

    # --- blocks -----------------------------------------------------------------------------------------------------

    @derived
    def element(self) -> Element:
        """Element type of the blocks for batched search: prescribed, or chosen by timing a sample of rows."""
        kinds, known = self._usable, self._known_choice[0]
        if len(kinds) == 1:
            return kinds[0]
        if known is not None:
            return known
        sample = Sample(self.snapshot, self.centroids)
        return faster(*(sample.seconds(self._blocks_of(sample, kind)) for kind in kinds))

    @derived
    def row_source(self) -> RowSource:
        """Rows that single queries read: prescribed, or chosen by timing (float blocks save too little)."""
        if not self._may_keep or "byte" not in self._usable:
            return "float"
        known = self._known_choice[1]
        if known is not None:
            return known
        sample = Sample(self.snapshot, self.centroids)
        blocks = self._blocks_of(sample, "byte", alone=True)
        return worth_blocks(sample.seconds_alone(None), sample.seconds_alone(blocks))

    @property
    def _known_choice(self) -> tuple[Element | None, RowSource | None]:
        return self.pinned or (self.carried.choice if self.carried is not None else (None, None))

    @property
    def _usable(self) -> tuple[Element, ...]:
        if self.snapshot.d >= (_MOST_BYTES if self.snapshot.metric == "cosine" else _MOST_OF_ANY_LENGTH):
            return ("float",)
        return usable(blocking.bytes_of_all(self.snapshot, "float"), MEMORY)

    @property
    def _may_keep(self) -> bool:
        """Whether blocks of all lists may be kept: vectors are in memory, each in exactly one list."""
        snapshot = self.snapshot
        return snapshot.in_memory and snapshot.pq is None and not len(snapshot.references) and snapshot.codec == FLAT

    def _blocks_of(self, sample: Sample, element: Element, *, alone: bool = False) -> Blocks:
        wanted = sample.wanted(len(self.snapshot.list_starts) - 1, alone=alone)
        return blocking.blocks_of(self.snapshot, element, wanted=wanted)

    @property
    def blocks(self) -> Blocks | None:
        """Blocks of all lists for batched search; None if no blocks are kept."""
        return self._all_blocks(self.element) if self._may_keep else None

    def _all_blocks(self, element: Element) -> Blocks | None:
        return once(self.kept, element, lambda: self._new_blocks(element))

    def _new_blocks(self, element: Element) -> Blocks | None:
        blocks, carried = blocking.all_blocks(self.snapshot, element), self.carried
        if element == "byte" or carried is None or carried.blocks is None:  # only single queries use the carried blocks
            self.carried = None
            vars(self).pop("single", None)  # it refers to the old blocks
        return blocks

    # --- searchers --------------------------------------------------------------------------------------------------

    @derived
    def single(self) -> Searcher | None:
        """Searcher for queries that are ranked one by one; None for an index with quantizer codes."""
        if self.snapshot.pq is not None:
            return None
        least_lists = min(MANY_LISTS, self.snapshot.lists) if self.row_source == "mixed" else 1
        return searcher_of(self.snapshot, self.centroids, *self._blocks_for_one(), least_lists)

    def _blocks_for_one(self) -> tuple[Blocks | None, Bools]:
        """Return blocks, if they speed up single queries, and a mask of the lists changed since, (nlist,)."""
        if self.row_source == "float":
            return None, _EVERYTHING
        carried = self.carried
        if carried is not None and carried.blocks is not None:
            return carried.blocks, carried.not_in_blocks
        return self._all_blocks("byte"), _EVERYTHING

    @derived
    def scan(self) -> ListScan:
        """Scanner of given lists."""
        return ListScan(self.snapshot.native, self.snapshot.references, self.snapshot.reference_starts)

    def prepare(self) -> Choice:
        """Compute all derived data now, and return the chosen element types."""
        _ = self.single, self.blocks, self.snapshot.members
        return Choice(self.element, self.row_source)

    def pin(self, choice: Choice | None) -> None:
        """Prescribe element types, or choose them by timing (None). No other thread may search."""
        self.pinned = choice
        self.kept.clear()
        for name in ("element", "row_source", "single"):
            vars(self).pop(name, None)

    # --- calibration ------------------------------------------------------------------------------------------------

    @staticmethod
    def calibration_key(k: int, effort: Effort, *, batched: bool) -> tuple[Any, ...]:
        """Return the key of the calibration for the k best results of single or grouped queries."""
        return k, effort.recall, batched, effort.complete, effort.routing, effort.k_factor

    def with_class_means(self, class_means: Routes) -> Snapshot:
        """Return a copy of the snapshot whose derived data has other class means and shares the blocks."""
        twin, carried = self.snapshot.twin(), self.carried
        other = Derived(twin, class_means, None if carried is None else replace(carried, centroids=None))
        other.kept, vars(other)["row_source"] = self.kept, self.row_source
        return twin

    # --- after a change ---------------------------------------------------------------------------------------------

    def after(self, lists: Ints) -> Carried | None:
        """Return the data to carry over after some lists have changed; None if nothing can be."""
        nlist, made, before = len(self.snapshot.starts) - 1, vars(self), self.carried
        if self.snapshot.lists > nlist:
            return None
        none = np.zeros(nlist, np.bool_)
        blocks, not_in_blocks = self.kept.get("byte"), none
        if before is not None:
            blocks, not_in_blocks = before.blocks, before.not_in_blocks
        centroids, changed = made.get("centroids"), none
        if centroids is None and before is not None:
            centroids, changed = before.centroids, before.changed
        batch, single = self._known_choice
        single = made.get("row_source", single)
        if single == "float":  # byte blocks serve single queries only
            blocks = None
        return Carried((made.get("element", batch), single), blocks, not_in_blocks, centroids, changed).after(lists)
