"""Many queries: list by list, so that what is near each other is routed, read and multiplied together.

Queries of one list are taken in small groups (:mod:`cfe_faiss.index.grouping`). The mean of a group is routed to the
lists whose other-class members are near (:mod:`cfe_faiss.index.routing`), and all of the group meets the rows of these
lists, sixteen at a time (:mod:`cfe_faiss.index.panels`).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.index import panels, scan
from cfe_faiss.index.codes import FLAT
from cfe_faiss.index.exact import Results, slices
from cfe_faiss.index.grouping import Queries, routed
from cfe_faiss.index.routing import Routes
from cfe_faiss.index.storage import Storage
from cfe_faiss.parallel import run

MEMORY = 1 << 31
"""Bytes for copies of vectors, unless the caller says otherwise."""

SLACK = 8
"""Times the error of one product: what is rounded are q·c, q·x', the norms, and what is compared in the end."""

_LISTS_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Places:
    """The lists of all partitions: list j holds the storage rows ``rows[starts[j]:starts[j + 1]]``, both int64."""

    starts: NDArray[np.int64]
    rows: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Panels:
    """The eligible rows of some lists; the arrays are those of :func:`panels.scan_groups`."""

    starts: NDArray[np.int64]
    centres: NDArray[np.float32]
    P: NDArray[np.int32]
    facts: NDArray[np.int32]
    addresses: NDArray[np.int64]
    ids: NDArray[np.int64]


def all_panels(storage: Storage, places: Places) -> Panels | None:
    """Return panels to be kept, of all lists of an index with one partition; None where that is too much."""
    number = int((-(-np.diff(places.starts) // panels.LANES)).sum())
    size = number * _bytes_of_panel(panels.words_of(storage.d, True))
    if not panels.HAS_BYTES or storage.codec != FLAT or len(places.rows) > storage.n or size > MEMORY:
        return None
    return packed(storage, places, np.ones(len(places.starts) - 1, bool), None, True)


def _bytes_of_panel(words: int) -> int:
    return panels.LANES * (4 * (words + panels.FACTS) + 16)


def _shards(places: Places, wanted: NDArray[np.bool_], words: int, memory: int) -> list[slice]:
    """Cut the lists into runs whose panels take about so many bytes; a run holds at least one list."""
    sizes = np.where(wanted, np.diff(places.starts), 0)
    end = np.cumsum(-(-sizes // panels.LANES) * _bytes_of_panel(words))
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
    starts = np.append(0, np.cumsum(-(-sizes // panels.LANES)))
    number = int(starts[-1])
    centres = np.empty((len(sizes), storage.d), np.float32)
    P = np.empty((number, panels.words_of(storage.d, in_bytes), panels.LANES), np.int32)
    facts = np.empty((number, panels.FACTS, panels.LANES), np.int32)
    addresses, ids = np.empty((number, panels.LANES), np.int64), np.empty((number, panels.LANES), np.int64)

    def pack(cut: slice) -> None:
        own = rows[borders[cut.start] : borders[cut.stop]]
        panels.pack(
            storage.rows(own)[0],
            own,
            storage.labels,
            storage.row_addresses,
            storage.row_ids,
            in_bytes,
            borders[cut.start : cut.stop + 1] - borders[cut.start],
            int(starts[cut.start]),
            centres[cut],
            P,
            facts,
            addresses,
            ids,
        )

    run(pack, slices(len(sizes), _LISTS_AT_ONCE), work=float(len(rows)) * storage.d)
    return Panels(starts, centres, P, facts, addresses, ids)


def search(
    storage: Storage,
    places: Places,
    routes: Routes,
    queries: Queries,
    k: int,
    nprobe: int,
    *,
    allowed: NDArray[np.bool_] | None = None,
    memory: int = MEMORY,
    ready: Panels | None = None,
    progress: str | None = None,
) -> Results:
    """Return the evidence D, I of queries, (nq, k), each group's from the ``nprobe`` lists that its mean is routed to.

    Results are exact for these lists; rows may be short. ``ready`` are panels of all lists of one partition, if there
    are any; others are made here, of no more than ``memory`` bytes at a time.
    """
    everything = nprobe >= len(routes.means)
    if everything:
        places = Places(places.starts[: routes.nlist + 1], places.rows[: storage.n])
    groups, lists = routed(storage, routes, queries, nprobe)
    labels = queries.labels[groups.order]
    D, I = scan.empty_heaps(len(labels), k)
    tasks = groups.tasks()

    def scan_task(task: slice, on: Panels) -> None:
        cut, borders = groups.of_task(task)
        panels.scan_groups(
            queries.fetch(groups.order[cut]),
            in_bytes,
            labels[cut],
            borders,
            lists[task],
            on.starts,
            on.centres,
            on.P,
            on.facts,
            on.addresses,
            on.ids,
            storage.codec,
            storage.levels,
            slack,
            len(places.rows) > storage.n,
            D[cut],
            I[cut],
        )

    work = float(len(labels)) * storage.d * lists.shape[1] * len(places.rows) / len(places.starts)
    slack, in_bytes = SLACK * storage.slack, panels.HAS_BYTES
    if ready is not None and allowed is None:
        run(partial(scan_task, on=ready), tasks, work=work, progress=progress)
    else:
        wanted = np.zeros(len(places.starts) - 1, bool)
        wanted[lists[lists >= 0]] = True
        for shard in _shards(places, wanted, panels.words_of(storage.d, in_bytes), memory):
            here = np.zeros_like(wanted)
            here[shard] = wanted[shard]
            on = packed(storage, places, here, allowed, in_bytes)
            run(partial(scan_task, on=on), tasks, work=work, progress=progress)
    run(lambda task: scan.sort_heaps(D[groups.of_task(task)[0]], I[groups.of_task(task)[0]]), tasks, work=work)
    result_D, result_I = scan.empty_heaps(len(queries), k)
    result_I[:] = -1
    result_D[groups.order], result_I[groups.order] = D, I
    return result_D, result_I
