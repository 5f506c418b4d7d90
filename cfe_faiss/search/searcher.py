"""Search in an inverted file: route each query to a few lists, scan them, and go on while a row is incomplete."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import Blocks
from cfe_faiss.checks import UNKNOWN
from cfe_faiss.coarse.class_centroids import FEW, Routes, nearest_lists
from cfe_faiss.lists import scan
from cfe_faiss.lists.storage import Storage
from cfe_faiss.parallel import num_threads, run
from cfe_faiss.search import batch
from cfe_faiss.search import single as few
from cfe_faiss.search.batch import Places
from cfe_faiss.search.exact import Results, padded
from cfe_faiss.search.grouping import Groups, Queries, alike
from cfe_faiss.search.pq_codes import Screening
from cfe_faiss.search.single_panels import SLACK, Panels, all_panels

_CHUNK = 256
_QUERIES_PER_LIST = 4
_PANELS_COST = 8
_EVERYTHING = np.empty(0, bool)
_FLOAT32, _INT64 = np.dtype(np.float32), np.dtype(np.int64)  # NumPy looks a type up each time it is named otherwise


@dataclass(frozen=True)
class Lists:
    """The lists of all partitions; valid while the index lives and until it changes.

    Attributes
    ----------
    storage
        The rows, in the lists of the first partition.
    centroids
        Of all partitions, (partitions, nlist, d).
    references
        Storage rows in the lists of the other partitions, one list after the other, ((partitions - 1) * n,) int32.
    reference_starts
        Where each of those lists begins and, last, their end, ((partitions - 1) * nlist + 1,) int64.
    routes
        For routing to the evidence of a query's class; None for routing to the nearest centroids.
    screening
        For looking at the codes of vectors first, unless all lists are probed; None where vectors have none.
    in_memory
        Whether the rows are in memory, not mapped from a file.
    calibrations
        Numbers of lists that were found to reach a recall; see :mod:`cfe_faiss.search.recall`.
    own_groups
        The rows of each list that are routed alike, once they were all searched.
    """

    storage: Storage
    centroids: NDArray[np.float32]
    references: NDArray[np.int32]
    reference_starts: NDArray[np.int64]
    routes: Routes | None
    screening: Screening | None
    in_memory: bool
    calibrations: dict[tuple[int, float, bool], int] = field(default_factory=dict)
    own_groups: list[Groups] = field(default_factory=list)

    @property
    def number(self) -> int:
        """How many lists there are in all partitions together."""
        return len(self.centroids) * len(self.centroids[0])

    @cached_property
    def places(self) -> Places:
        """The rows of all lists."""
        storage = self.storage
        starts = np.concatenate([storage.starts, storage.n + self.reference_starts[1:]])
        return Places(starts, self.references, self.reference_starts)

    def scanned(self, nprobe: int) -> float:
        """Return about how many rows a query meets."""
        return float(min(nprobe, self.number) * self.storage.n / self.centroids.shape[1])

    def alike(self, queries: Queries, routes: Routes) -> Groups:
        """Return the queries of each list that are routed alike; kept where they are all rows, in order of lists."""
        if queries.order is None:
            return alike(queries, routes)
        if not self.own_groups:
            self.own_groups.append(alike(queries, routes))
        return self.own_groups[0]

    def worth_grouping(self, nq: int, nprobe: int) -> bool:
        """Whether so many queries are to be searched list by list."""
        everything = nprobe >= self.number
        if self.routes is None or (self.screening is not None and not everything):
            return False
        # The mean of a few queries says less of each of them than they do themselves; where all lists are probed, it
        # decides nothing. To make the panels costs about as much as for a query to meet so many times all rows.
        in_groups = everything or nq >= _QUERIES_PER_LIST * self.centroids.shape[1]
        return in_groups and nq * self.scanned(nprobe) >= _PANELS_COST * self.storage.n

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
        """The address and length of each array that :func:`few.search_lists` and its like take so, and the arrays.

        Whoever uses the addresses holds the arrays: another thread may have made this at the same time, and its own be
        kept instead.
        """
        storage, routes = self.storage, self.routes
        if routes is None:
            return np.empty(0, np.int64), []
        arrays: tuple[NDArray[Any], ...] = (
            storage.starts,
            routes.means,
            routes.entry_means,
            *routes.nearby,
            storage.addresses,
            storage.id_addresses,
            storage.labels,
            self.references,
            self.reference_starts,
            storage.levels.reshape(-1),
            np.array([storage.row_size, storage.codec], np.int64),
        )
        if self.panels is not None:
            kept = self.panels
            arrays += (kept.starts, kept.centres, kept.P, kept.facts, kept.addresses, kept.ids)
            arrays += (kept.R, np.array([kept.head], np.int64), np.array([kept.blur]))
        held = [np.ascontiguousarray(array) for array in arrays]
        return np.array([number for array in held for number in (array.ctypes.data, len(array))], np.int64), held

    @cached_property
    def blocks(self) -> Blocks | None:
        """Blocks of all lists: made for the first grouped search, kept where they take little beside the vectors."""
        usable = self.in_memory and self.routes is not None and self.screening is None
        return batch.all_blocks(self.storage, self.places) if usable else None

    @cached_property
    def panels(self) -> Panels | None:
        """Panels of all lists: made for the first single query, and kept where they take little beside the vectors."""
        usable = self.in_memory and self.routes is not None and self.screening is None
        return all_panels(self.storage) if usable and len(self.centroids) == 1 else None

    @cached_property
    def _slack(self) -> float:
        return self.storage.slack if self.panels is None else SLACK * self.storage.slack

    @cached_property
    def _for_one(self) -> tuple[Callable[..., bool], NDArray[np.int64], list[NDArray[Any]], float, int, int]:
        search = few.search_lists_of_one if self.panels is None else few.search_panels_of_one
        return search, *self._places, self._slack, self.number, self.storage.n

    def one(self, xq: NDArray[np.float32], label: int, k: int, nprobe: int) -> Results | None:
        """Return D, I of one query as it was handed in, (1, k), or None where it is to be refused.

        ``xq``, (1, d), is contiguous. None, too, where k or nprobe is out of range, and where :meth:`few` gives None.
        """
        if self.routes is None or self.screening is not None:
            return None
        search, places, _held, slack, number, n = self._for_one
        if not (0 < k <= n and nprobe > 0):
            return None
        D, I = np.empty((1, k), _FLOAT32), np.empty((1, k), _INT64)
        return (D, I) if search(xq, label, min(nprobe, number), places, slack, D, I) else None

    def few(
        self, X: NDArray[np.float32], labels: NDArray[np.int32], k: int, nprobe: int, allowed: NDArray[np.bool_] | None
    ) -> Results | None:
        """Return D, I of a few queries, (nq, k), or None where rows are not full or the index is searched otherwise."""
        if len(X) > FEW or k > self.storage.n or self.routes is None or self.screening is not None:
            return None
        D, I = np.empty((len(X), k), np.float32), np.empty((len(X), k), np.int64)
        full = self._search_alone(X, labels, nprobe, _EVERYTHING if allowed is None else allowed, D, I)
        return (D, I) if full else None

    def _search_alone(
        self,
        X: NDArray[np.float32],
        labels: NDArray[np.int32],
        nprobe: int,
        allowed: NDArray[np.bool_],
        D: NDArray[np.float32],
        I: NDArray[np.int64],
    ) -> bool:
        """Write D, I, (nq, width), of queries that are each routed alone; return whether all rows are full."""
        lists = np.empty((len(X), min(nprobe, self.number)), np.int64)
        places, _held = self._places
        if self.panels is not None and len(allowed) == 0:
            return bool(few.search_panels(X, labels, places, self._slack, lists, D, I))
        return bool(few.search_lists(X, labels, places, self.storage.slack, allowed, lists, D, I))

    def probe(
        self, X: NDArray[np.float32], labels: NDArray[np.int32], width: int, nprobe: int, allowed: NDArray[np.bool_]
    ) -> Results:
        """Return D, I of unit queries from the ``nprobe`` lists that each is routed to, (nq, width)."""
        D, I = scan.empty_heaps(len(X), width)
        if self.routes is not None and self.screening is None:
            self._search_alone(X, labels, nprobe, allowed, D, I)
            return D, I
        if self.routes is None:
            lists = nearest_lists(X, self.centroids, nprobe)
        else:
            lists = self.routes.lists(X, labels, nprobe)
        storage, references = self.storage, (self.references, self.reference_starts)
        if self.screening is not None and nprobe < self.number:
            self.screening.probe(storage, X, labels, lists, *references, allowed, D, I)
            scan.sort_heaps(D, I)
            return D, I
        scan.scan_lists(
            X,
            labels,
            lists,
            storage.starts,
            storage.addresses,
            storage.id_addresses,
            storage.row_size,
            storage.codec,
            storage.levels,
            storage.labels,
            *references,
            allowed,
            D,
            I,
            storage.slack,
        )
        scan.sort_heaps(D, I)
        return D, I


def search(
    lists: Lists,
    queries: Queries,
    k: int,
    nprobe: int,
    *,
    complete: bool,
    allowed: NDArray[np.bool_] | None = None,
    memory: int = batch.MEMORY,
    progress: str | None = None,
    together: bool | None = None,
) -> Results:
    """Search queries among the allowed storage rows, (n,), of which there are some.

    ``together`` says whether queries are searched list by list; by default, where that pays. With ``complete``, the
    search of a row goes on in four times as many lists until it holds min(k, eligible) results.
    """
    width = min(k, lists.storage.n)
    mask = _EVERYTHING if allowed is None else allowed
    pending = np.arange(len(queries)) if queries.order is None else queries.order
    # What threads write soon is not written here first; no step writes the rows of queries with an unknown label.
    D, I = np.empty((len(queries), width), np.float32), np.empty((len(queries), width), np.int64)
    unknown = queries.labels == UNKNOWN
    D[unknown], I[unknown] = scan.PADDING, -1
    while len(pending):
        grouped = lists.worth_grouping(len(pending), nprobe) if together is None else together
        if grouped and lists.routes is not None:
            batch.search(
                lists.storage,
                lists.places,
                lists.routes,
                queries,
                pending,
                nprobe,
                D,
                I,
                allowed=allowed,
                memory=memory,
                ready=lists.blocks if memory >= batch.MEMORY else None,
                alike=lists.alike,
                progress=progress,
            )
        else:
            _probe_side_by_side(lists, queries, nprobe, mask, pending, D, I, progress)
        # After all lists there is nothing more to find: a damaged vector in a mapped file (NaN) never is.
        widen = complete and nprobe < lists.number
        pending = _incomplete(lists.storage, queries.labels, allowed, pending, I) if widen else pending[:0]
        nprobe *= 4
    return padded(D, I, k)


def _probe_side_by_side(
    lists: Lists,
    queries: Queries,
    nprobe: int,
    mask: NDArray[np.bool_],
    pending: NDArray[np.int64],
    D: NDArray[np.float32],
    I: NDArray[np.int64],
    progress: str | None,
) -> None:
    """Search the lists that some of the queries are routed to, in chunks on all threads, and write their D and I."""

    def probe(cut: slice) -> None:
        chosen = pending[cut]
        D[chosen], I[chosen] = lists.probe(queries.fetch(chosen), queries.labels[chosen], D.shape[1], nprobe, mask)

    work = float(len(pending)) * lists.storage.d * (lists.number + lists.scanned(nprobe))
    size = max(1, min(_CHUNK, -(-len(pending) // num_threads(work))))
    cuts = [slice(start, start + size) for start in range(0, len(pending), size)]
    run(probe, cuts, work=work, progress=progress)


def _incomplete(
    storage: Storage,
    labels: NDArray[np.int32],
    allowed: NDArray[np.bool_] | None,
    queries: NDArray[np.int64],
    I: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return those of the queries whose rows of I hold less than there is."""
    short_of_any: NDArray[np.bool_] = I[:, -1] < 0
    if not short_of_any.any():
        return queries[:0]
    queries = queries[short_of_any[queries]]
    wanted = np.minimum(storage.eligible(labels[queries], allowed), I.shape[1])
    short: NDArray[np.bool_] = (I[queries] >= 0).sum(axis=1) < wanted
    return queries[short]
