"""Many queries: list by list, so that what is near each other is routed, read and multiplied together.

Queries of one list are taken in small groups (:mod:`cfe_faiss.search.grouping`). The mean of a group is routed to the
lists whose other-class members are near (:mod:`cfe_faiss.coarse.class_centroids`), and all of the group meets the rows
of these lists, sixteen at a time (:mod:`cfe_faiss.search.panels`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.lists import scan
from cfe_faiss.lists.codecs import FLAT
from cfe_faiss.lists.storage import Storage
from cfe_faiss.parallel import run
from cfe_faiss.search import grouping, meet, panels, sweep
from cfe_faiss.search.exact import slices
from cfe_faiss.search.grouping import Groups, Queries

MEMORY = 1 << 31
"""Bytes for copies of vectors, unless the caller says otherwise."""

SLACK = 8
"""Times the error of one product: what is rounded are q·c, q·x', the norms, and what is compared in the end."""

_LISTS_AT_ONCE = 64
_HEAD = 16  # words, of which rows are looked at before their length alone may tell enough
_WORTH_TURNING = 1 << 16  # rows; among fewer, to turn the queries takes more than it saves
_SAMPLE = 1 << 14  # rows tell the directions
_LONGEST_REST = 0.5  # of the squared lengths may come after the head


@dataclass(frozen=True, slots=True)
class Places:
    """The lists of all partitions: list j holds the storage rows ``rows[starts[j]:starts[j + 1]]``, both int64."""

    starts: NDArray[np.int64]
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Panels:
    """The eligible rows of some lists; names are those of :func:`sweep.scan_groups`.

    ``R`` are the directions to which they are turned, (d, d), or none, (0, d).
    """

    R: NDArray[np.float32]
    head: int
    blur: float
    starts: NDArray[np.int64]
    centres: NDArray[np.float32]
    P: NDArray[np.int32]
    facts: NDArray[np.int32]
    addresses: NDArray[np.int64]
    ids: NDArray[np.int64]

    def turned(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return queries as the rows are turned."""
        return X @ self.R if len(self.R) else X


def all_panels(storage: Storage, places: Places) -> Panels | None:
    """Return panels to be kept, of all lists of an index with one partition; None where that is too much."""
    number = int((-(-np.diff(places.starts) // meet.LANES)).sum())
    size = number * _bytes_of_panel(panels.words_of(storage.d, True))
    if not meet.HAS_BYTES or storage.codec != FLAT or len(places.rows) > storage.n or size > MEMORY:
        return None
    return packed(storage, places, np.ones(len(places.starts) - 1, bool), None, True)


def _bytes_of_panel(words: int) -> int:
    return meet.LANES * (4 * (words + meet.FACTS) + 16)


def _shards(places: Places, wanted: NDArray[np.bool_], words: int, memory: int) -> list[slice]:
    """Cut the lists into runs whose panels take about so many bytes; a run holds at least one list."""
    sizes = np.where(wanted, np.diff(places.starts), 0)
    end = np.cumsum(-(-sizes // meet.LANES) * _bytes_of_panel(words))
    cuts, first = [], 0
    while first < len(sizes):
        before = end[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(end, before + memory, side="right")))
        cuts.append(slice(first, last))
        first = last
    return cuts


def packed(
    storage: Storage, places: Places, wanted: NDArray[np.bool_], allowed: NDArray[np.bool_] | None, in_bytes: bool
) -> Panels:
    """Make the panels of the wanted ones of all lists, (lists,)."""
    sizes = np.diff(places.starts)
    rows = places.rows
    eligible = np.repeat(wanted, sizes) & (storage.labels[rows] != UNKNOWN)
    if allowed is not None:
        eligible &= allowed[rows]
    rows = rows[eligible]
    borders = np.append(0, np.cumsum(eligible))[places.starts]
    sizes = np.diff(borders)
    starts = np.append(0, np.cumsum(-(-sizes // meet.LANES)))
    centres = np.empty((len(sizes), storage.d), np.float32)
    made = panels.room_for(int(starts[-1]), storage.d, in_bytes)

    def centred(cut: slice) -> NDArray[np.float32]:
        own = borders[cut.start : cut.stop + 1]
        return panels.centre(storage.rows(rows[own[0] : own[-1]])[0], own - own[0], centres[cut])

    R = np.empty((0, storage.d), np.float32)
    head, blur = panels.words_of(storage.d, in_bytes), 0.0
    if in_bytes and len(rows) >= _WORTH_TURNING and head >= 2 * _HEAD:
        directions, rest = _directions(centred, borders)
        if rest <= _LONGEST_REST:
            R, head, blur = directions, _HEAD, panels.blur(storage.d)

    def pack(cut: slice) -> None:
        own = rows[borders[cut.start] : borders[cut.stop]]
        X = centred(cut)
        if len(R):
            with np.errstate(invalid="ignore"):  # rows of a damaged file may hold anything
                X = X @ R
        panels.pack(
            X,
            own,
            storage.labels,
            storage.row_addresses,
            storage.row_ids,
            in_bytes,
            head,
            blur,
            borders[cut.start : cut.stop + 1] - borders[cut.start],
            int(starts[cut.start]),
            *made,
        )

    run(pack, slices(len(sizes), _LISTS_AT_ONCE), work=float(len(rows)) * storage.d)
    return Panels(R, head, blur, starts, centres, *made)


def _directions(
    centred: Callable[[slice], NDArray[np.float32]], borders: NDArray[np.int64]
) -> tuple[NDArray[np.float32], float]:
    """Return the principal directions, (d, d), of a sample of rows, and the share of their squares after the head.

    ``centred`` returns the rows of a run of lists without their means; list j has ``borders[j]:borders[j + 1]``.
    """
    lists = len(borders) - 1
    few = max(1, round(lists * min(1.0, _SAMPLE / int(borders[-1]))))
    some = np.unique(np.linspace(0, lists - 1, few).astype(np.int64))
    rows = np.concatenate([centred(slice(int(j), int(j) + 1)) for j in some])
    with np.errstate(invalid="ignore", over="ignore"):
        squares = (rows.T @ rows).astype(np.float64)
    if not np.isfinite(squares).all():
        return rows[:0], math.inf
    values, directions = np.linalg.eigh(squares)
    rest = float(values[: -4 * _HEAD].sum() / max(values.sum(), np.finfo(np.float64).tiny))
    return np.ascontiguousarray(directions[:, ::-1], np.float32), rest


def search(
    storage: Storage,
    places: Places,
    routes: Routes,
    queries: Queries,
    pending: NDArray[np.int64],
    nprobe: int,
    found_D: NDArray[np.float32],
    found_I: NDArray[np.int64],
    *,
    allowed: NDArray[np.bool_] | None = None,
    memory: int = MEMORY,
    ready: Panels | None = None,
    alike: Callable[[Queries, Routes], Groups] = grouping.alike,
    progress: str | None = None,
) -> None:
    """Write the evidence of the ``pending`` queries, (m,) of them, to their rows of D and I, (nq, k).

    Each group of queries looks into the ``nprobe`` lists that its mean is routed to. Results are exact for these lists;
    rows may be short, and those of queries with an unknown label stay as they are. ``ready`` are panels of all lists of
    one partition, if there are any; others are made here, of no more than ``memory`` bytes at a time. ``alike`` gives
    the groups of queries that are searched by those.
    """
    everything, k = len(pending) == len(queries), found_D.shape[1]
    queries = queries.chosen(pending)
    if nprobe >= len(routes.means):
        places = Places(places.starts[: routes.nlist + 1], places.rows[: storage.n])
    once = len(places.rows) > storage.n
    scanned = min(nprobe, len(places.starts)) * len(places.rows) / len(places.starts)
    work = float(len(queries)) * storage.d * scanned

    def write(D: NDArray[np.float32], I: NDArray[np.int64], order: NDArray[np.int64]) -> None:
        scan.write_sorted(D, I, order if everything else pending[order], found_D, found_I)

    if ready is not None and allowed is None:
        large = alike(queries, routes)

        def search_some(task: slice) -> None:
            groups, lists, X = grouping.routed_some(large, task, routes, queries, nprobe)
            D, I = scan.empty_heaps(len(X), k)
            _scan(storage, ready, X, queries.labels[groups.order], groups.starts, lists, once, D, I)
            write(D, I, groups.order)

        run(search_some, large.tasks(), work=work, progress=progress, blas=len(ready.R) > 0)
        return

    groups, lists = grouping.routed(routes, queries, nprobe)
    labels, tasks = queries.labels[groups.order], groups.tasks()
    D, I = scan.empty_heaps(len(labels), k)

    def scan_task(task: slice, on: Panels) -> None:
        cut, borders = groups.of_task(task)
        X = queries.fetch(groups.order[cut])
        _scan(storage, on, X, labels[cut], borders, lists[task], once, D[cut], I[cut])

    wanted = np.zeros(len(places.starts) - 1, bool)
    wanted[lists[lists >= 0]] = True
    for shard in _shards(places, wanted, panels.words_of(storage.d, meet.HAS_BYTES), memory):
        here = np.zeros_like(wanted)
        here[shard] = wanted[shard]
        on = packed(storage, places, here, allowed, meet.HAS_BYTES)
        run(partial(scan_task, on=on), tasks, work=work, progress=progress)

    def write_task(task: slice) -> None:
        cut, _ = groups.of_task(task)
        write(D[cut], I[cut], groups.order[cut])

    run(write_task, tasks, work=work)


def _scan(
    storage: Storage,
    on: Panels,
    X: NDArray[np.float32],
    labels: NDArray[np.int32],
    starts: NDArray[np.int64],
    lists: NDArray[np.int64],
    once: bool,
    D: NDArray[np.float32],
    I: NDArray[np.int64],
) -> None:
    """Offer the rows of lists to the heaps D, I of groups of queries; see :func:`sweep.scan_groups`."""
    sweep.scan_groups(
        X,
        on.turned(X),
        on.head,
        on.blur,
        meet.HAS_BYTES,
        labels,
        starts,
        lists,
        on.starts,
        on.centres,
        on.P,
        on.facts,
        on.addresses,
        on.ids,
        storage.codec,
        storage.levels,
        SLACK * storage.slack,
        once,
        D,
        I,
    )
