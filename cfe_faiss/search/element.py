"""Whether blocks hold floats or bytes: which of them is faster on the rows of an index, found by trying both.

Bytes are four times as short and, with VNNI, multiplied four at a time, but a bound has to be worked out for each row,
and the more rows it leaves open the less it saves: with few dimensions, or where similarities crowd together, floats
are faster. That depends on the processor and on the data, so it is measured, in some milliseconds, before the first
blocks are made. Results do not depend on it: what either leaves open is scored from the vectors themselves.
"""

import time
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native
from cfe_faiss._native import Blocks
from cfe_faiss.checks import UNKNOWN, as_unit_rows
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.lists.storage import Storage

Element = Literal["float", "byte"]

_GROUPS, _QUERIES, _K = 6, 16, 10
_NPROBE = 32  # so many rows that, as in a real search, they do not stay in the cache of a core
_REPEATS = 3
_WORTH_MEMORY = 0.7  # of the time of bytes; floats take four times the memory, and do not serve single queries


class Sample:
    """Some groups of stored vectors as queries, and the lists that they probe.

    Attributes
    ----------
    X, labels
        Queries, (nq, d), and their labels, (nq,); each group is of one list and label.
    starts
        First query of each group and, last, the number of queries, (groups + 1,).
    lists
        Of each group, (groups, nprobe).
    """

    def __init__(self, storage: Storage, routes: Routes) -> None:
        self._several = len(routes.means) > routes.nlist  # partitions: a row may be in several lists
        rows, sizes = _group_rows(storage)
        self.X = np.ascontiguousarray(storage.rows(rows)[0]) if len(rows) else np.empty((0, storage.d), np.float32)
        self.labels = storage.labels[rows]
        self.starts = np.append(0, np.cumsum(sizes)).astype(np.int64)
        firsts = self.starts[:-1]
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.nan_to_num(np.add.reduceat(self.X, firsts, axis=0)) if len(firsts) else self.X
        means = as_unit_rows("means of groups", sums)
        self.lists = routes.lists(means, self.labels[firsts], min(_NPROBE, len(routes.means)))

    def wanted(self, lists: int) -> NDArray[np.bool_]:
        """Return which of all lists a group probes, (lists,)."""
        wanted = np.zeros(lists, np.bool_)
        wanted[self.lists[self.lists >= 0]] = True
        return wanted

    def seconds(self, blocks: Blocks) -> float:
        """Return how long a search of all groups takes at least, on one thread."""
        nq = len(self.X)
        D, I = np.empty((nq, _K), np.float32), np.empty((nq, _K), np.int64)
        times = []
        for _ in range(_REPEATS):
            begin = time.perf_counter()
            blocks.search(self.X, self.labels, self.starts, self.lists, np.arange(nq), D, I, deduplicate=self._several)
            times.append(time.perf_counter() - begin)
        return min(times)


def _group_rows(storage: Storage) -> tuple[NDArray[np.int64], list[int]]:
    """Return rows in groups of one list and label, from lists all over the index, and how many each group has."""
    filled = np.flatnonzero(np.diff(storage.starts))
    parts = []
    for j in filled[np.unique(np.linspace(0, len(filled) - 1, min(_GROUPS, len(filled))).astype(np.int64))].tolist():
        first, last = storage.starts[j : j + 2].tolist()
        labels = storage.labels[first:last]
        label = labels[len(labels) // 2]
        own = first + np.flatnonzero(labels == label)[:_QUERIES]
        if label != UNKNOWN:
            parts.append(own)
    return np.concatenate([np.empty(0, np.int64), *parts]), [len(part) for part in parts]


def usable(bytes_of_floats: int, most: int) -> tuple[Element, ...]:
    """Return what blocks may hold at all: bytes where the processor multiplies them, floats where there is room."""
    if not _native.has_bytes():
        return ("float",)
    return ("float", "byte") if bytes_of_floats <= most else ("byte",)


def faster(seconds_of_floats: float, seconds_of_bytes: float) -> Element:
    """Return which of the two is to be taken, by how long the sample takes with each."""
    return "float" if seconds_of_floats <= _WORTH_MEMORY * seconds_of_bytes else "byte"
