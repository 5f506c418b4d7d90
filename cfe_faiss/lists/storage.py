"""Where an index keeps its vectors: FAISS's own lists, each sorted by label, seen as one long sequence of rows."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import Rows
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.derived import derived
from cfe_faiss.lists import codecs
from cfe_faiss.lists.layout import stable_order

_UNIT_TOLERANCE = 1e-4  # of norms summed in float32
_ROWS = 1 << 14


@dataclass(frozen=True)
class Storage:
    """The rows of an index as they lie in memory; valid while the index lives and until it changes.

    Storage row r is place ``r - starts[j]`` of the list j with ``starts[j] <= r < starts[j + 1]``.

    Attributes
    ----------
    native
        The rows, for the compiled core.
    d
        Length of a vector.
    codec, levels
        How vectors are coded, see :mod:`cfe_faiss.lists.codecs`.
    """

    native: Rows
    d: int
    codec: int = codecs.FLAT
    levels: NDArray[np.float32] = field(default_factory=lambda: codecs.NO_LEVELS)

    def __post_init__(self) -> None:
        read_only(self.levels)

    @derived
    def starts(self) -> NDArray[np.int64]:
        """First storage row of each list and, last, the number of rows: (nlist + 1,) int64."""
        return self.native.starts()

    @derived
    def labels(self) -> NDArray[np.int32]:
        """Label of each storage row, ascending within a list: (n,) int32."""
        return self.native.labels()

    @derived
    def margin(self) -> float:
        """Bound of the error of a float32 product of two rows, or of a row and a unit vector, in any order."""
        return codecs.screening_error(self.d) * codecs.screening_factor(self.codec, self.levels)

    @property
    def row_size(self) -> int:
        """Bytes of a vector."""
        return codecs.row_size(self.codec, self.d)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.native)

    def rows(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return vectors and ids of storage rows; a view of floats that follow each other in one list, else a copy."""
        if self.codec == codecs.FLAT and len(rows) and bool((np.diff(rows) == 1).all()):
            view = self.native.view(int(rows[0]), int(rows[-1]) + 1)
            if view is not None:
                return view[0], view[1].view(np.int64)  # of two integers of 64 bits NumPy prints one without its name
        return self.copied(rows)

    def copied(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return copies of the vectors and ids of storage rows."""
        X, ids = np.empty((len(rows), self.d), np.float32), np.empty(len(rows), np.int64)
        self.native.gather(np.ascontiguousarray(rows, np.int64), X, ids)
        return X, ids

    @derived
    def by_label(self) -> NDArray[np.int64]:
        """The storage rows whose label is known, sorted by label."""
        order = stable_order(self.labels)
        return read_only(order[np.searchsorted(self.labels, UNKNOWN, side="right", sorter=order) :])[0]

    @derived
    def class_counts(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The known labels in ascending order, and how many rows each has."""
        return _class_counts(self.labels)

    @derived
    def row_ids(self) -> NDArray[np.int64]:
        """The id of each storage row, (n,) int64, read-only."""
        return read_only(self.ids())[0]

    def ids(self) -> NDArray[np.int64]:
        """Return the id of each storage row, (n,) int64."""
        ids = np.empty(self.n, np.int64)
        self.native.copy_ids(ids)
        return ids

    def first_not_unit(self, shortest: float | None = None) -> int:
        """Return the first row that is neither zero nor of length 1, as far as its codec can tell, or -1.

        A row of 8-bit codes may be shorter, down to ``shortest`` (0 by default), where its components lay outside of
        the codec's range.
        """
        margin = codecs.norm_bound(self.codec, self.levels) - 1 + _UNIT_TOLERANCE
        least, zero = 1 - margin, 0.0
        if self.codec == codecs.SQ8:
            least, zero = shortest or 0.0, margin
        for start in range(0, self.n, _ROWS):
            X = self.rows(np.arange(start, min(start + _ROWS, self.n)))[0]
            with np.errstate(over="ignore", invalid="ignore"):
                norms = np.sqrt(np.einsum("ij,ij->i", X, X))
            unit = ((norms >= least) & (norms <= 1 + margin)) | (norms <= zero)
            if not unit.all():
                return start + int(np.argmin(unit))
        return -1

    def eligible(self, labels: NDArray[np.int32], allowed: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Return, for each query label, how many (allowed) rows have a known label other than it; 0 for an unknown."""
        classes, counts = self.class_counts if allowed is None else _class_counts(self.labels[allowed])
        places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        own = np.where(classes[places] == labels, counts[places], 0) if len(classes) else 0
        return np.where(labels == UNKNOWN, 0, counts.sum() - own).astype(np.int64)


@dataclass(frozen=True)
class StorageOutside(Storage):
    """The rows of an index for code that does not hold its lock: it copies, and never reads where rows no longer lie.

    Attributes
    ----------
    still
        Returns a context in which the index does not change, of this storage; RuntimeError if it has changed.
    """

    still: Callable[[Storage], AbstractContextManager[None]] = field(kw_only=True)

    def rows(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return copies of the vectors and ids of storage rows."""
        with self.still(self):
            return self.copied(rows)

    def ids(self) -> NDArray[np.int64]:
        """Return the id of each storage row, (n,) int64."""
        with self.still(self):
            return super().ids()


def read_only(*arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return arrays that cannot be written to."""
    for array in arrays:
        array.flags.writeable = False
    return arrays


def _class_counts(labels: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    classes, counts = np.unique(labels[labels != UNKNOWN], return_counts=True)
    read_only(classes, counts)
    return classes, counts


def lists_of(rows: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the list that holds each of some storage rows: the last one that starts at or before it; O(log nlist)."""
    return np.searchsorted(starts, rows, side="right") - 1
