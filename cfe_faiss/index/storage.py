"""Where an index keeps its vectors: FAISS's own lists, each sorted by label, seen as one long sequence of rows."""

import ctypes
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.index import scan


@dataclass(frozen=True)
class Storage:
    """The rows of an index as they lie in memory; valid while the index lives and until it changes.

    Storage row r is place ``r - starts[j]`` of the list j with ``starts[j] <= r < starts[j + 1]``.

    Attributes
    ----------
    d
        Length of a vector.
    starts
        First storage row of each list and, last, the number of rows: (nlist + 1,) int64.
    addresses, id_addresses
        Where each list's float32 vectors and int64 ids begin in memory: (nlist,) int64.
    labels
        Label of each storage row, ascending within a list: (n,) int32.
    """

    d: int
    starts: NDArray[np.int64]
    addresses: NDArray[np.int64]
    id_addresses: NDArray[np.int64]
    labels: NDArray[np.int32]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.labels)

    def rows(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return vectors and ids of storage rows; a view where the rows follow each other in one list, else a copy."""
        if len(rows) and bool((np.diff(rows) == 1).all()):
            j = int(np.searchsorted(self.starts, rows[0], side="right")) - 1
            if rows[-1] < self.starts[j + 1]:
                place = int(rows[0] - self.starts[j])
                address = int(self.addresses[j]) + 4 * self.d * place
                id_address = int(self.id_addresses[j]) + 8 * place
                return _view(ctypes.c_float, address, (len(rows), self.d)), _view(
                    ctypes.c_int64, id_address, (len(rows),)
                )
        X, copied_ids = np.empty((len(rows), self.d), np.float32), np.empty(len(rows), np.int64)
        scan.gather(rows, self.starts, self.addresses, self.id_addresses, X, copied_ids)
        return X, copied_ids

    @cached_property
    def by_label(self) -> NDArray[np.int64]:
        """The storage rows whose label is known, sorted by label."""
        order = np.argsort(self.labels, kind="stable")
        return order[np.searchsorted(self.labels, UNKNOWN, side="right", sorter=order) :]

    @cached_property
    def class_counts(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The known labels in ascending order, and how many rows each has."""
        return _class_counts(self.labels)

    def ids(self) -> NDArray[np.int64]:
        """Return the id of each storage row, (n,) int64."""
        ids = np.empty(self.n, np.int64)
        scan.copy_ids(self.starts, self.id_addresses, ids)
        return ids

    def sort_lists(self) -> NDArray[np.int64]:
        """Sort each list by label, in place in FAISS's memory (stable), and return which old row each row now holds.

        ``labels`` is what the caller says the rows' labels are; it stays as it is.
        """
        order = np.arange(self.n)
        sizes = np.diff(self.starts)
        if self.n:
            lists = np.repeat(np.arange(len(sizes)), sizes)
            order = np.lexsort((self.labels, lists)).astype(np.int64)
            scan.permute_lists(order, self.starts, self.addresses, self.id_addresses, self.d)
        return order

    def eligible(self, labels: NDArray[np.int32], allowed: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Return, for each query label, how many (allowed) rows have a known label other than it; 0 for an unknown."""
        classes, counts = self.class_counts if allowed is None else _class_counts(self.labels[allowed])
        places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        own = np.where(classes[places] == labels, counts[places], 0) if len(classes) else 0
        return np.where(labels == UNKNOWN, 0, counts.sum() - own).astype(np.int64)


def _class_counts(labels: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    return np.unique(labels[labels != UNKNOWN], return_counts=True)


def _view(element: Any, address: int, shape: tuple[int, ...]) -> NDArray[Any]:
    size = ctypes.sizeof(element)
    if address % size == 0:
        return np.ctypeslib.as_array((element * math.prod(shape)).from_address(address)).reshape(shape)
    # In a mapped file FAISS puts vectors at odd addresses, where NumPy does without BLAS.
    raw = np.ctypeslib.as_array((ctypes.c_uint8 * (size * math.prod(shape))).from_address(address))
    rows: NDArray[Any] = raw.copy().view(np.dtype(element)).reshape(shape)
    return rows
