"""Immutable snapshot of an index: its rows in FAISS's lists, with ids, labels and partitions."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import PqCodes, Rows
from cfe_faiss.base.checks import UNKNOWN, Array, Bools, Floats, Int32s, Ints, is_label
from cfe_faiss.base.text import summary
from cfe_faiss.base.threads import derived
from cfe_faiss.base.values import NOT_STORED, LabelKeys, as_ids, order_of
from cfe_faiss.rows import codecs
from cfe_faiss.rows.metric import (
    METRICS,
    Metric,
    check_stored,
    is_distance,
    lengths,
    score_margin,
    tile_margin,
)

_UNIT_TOLERANCE = 1e-4  # for norms summed in float32
_ROWS = 1 << 14


NO_REFERENCES = np.empty(0, np.int32)
NO_STARTS = np.zeros(1, np.int64)


class UnknownIdError(ValueError, RuntimeError):
    """Unknown id: a ValueError like other arguments, and a RuntimeError like FAISS's."""


@dataclass(frozen=True, slots=True)
class Members:
    """Ids of an index in ascending order, with their rows and labels; the arrays are read-only.

    Attributes
    ----------
    ids, rows, labels
        Ids and the row and label of each: (n,) int64, int64 and int32. ``index.members()`` has
        labels as int64 if they are large integers, as booleans, or as objects.
    places
        Position of each row's id in ``ids``, (n,) int64.
    """

    ids: Ints
    rows: Ints
    labels: Int32s
    places: Ints

    __repr__ = summary

    def rows_of(self, ids: Ints) -> Ints:
        """Return the row of each id, (m,), or -1."""
        if not len(self.ids):
            return np.full(len(ids), -1)
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[places] == ids, self.rows[places], -1)

    def find(self, ids: ArrayLike, *, name: str = "ids") -> Ints:
        """Return the rows of ``ids``.

        UnknownIdError names the argument and the first unknown id.
        """
        return _find(name, ids, self.rows_of)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Immutable snapshot of an index, valid until the index changes or is freed.

    Row r is at offset ``r - starts[j]`` of the list j with ``starts[j] <= r < starts[j + 1]``.

    Attributes
    ----------
    native
        Rows as an object of the core.
    d
        Dimension of the vectors.
    codec, levels
        Codec of the vectors and its levels, see :mod:`cfe_faiss.rows.codecs`.
    centroids
        Centroids of all partitions, (partitions, nlist, d); (0, 0, 0) for an exact index.
    references, reference_starts
        Row numbers of the supplementary lists, concatenated, int32; and the start of each of these
        lists, followed by the total length.
    pq
        Product-quantizer codes for screening, or None.
    in_memory
        Whether the rows are in memory, as opposed to a mapped file.
    is_trained
        Whether the index was trained.
    lookup
        Function of ids, (m,) int64, that returns the row of each, or -1; None to look ids up in
        :attr:`members`.
    label_keys
        The labels that the codes in :attr:`labels` stand for; None if they are the labels.
    longest
        Bound of the length of the vectors, for metrics other than cosine.
    cache
        Data derived from the snapshot; see :class:`cfe_faiss.search.derived.Derived`.
    """

    native: Rows
    d: int
    codec: int = codecs.FLAT
    levels: Floats = field(default_factory=lambda: codecs.NO_LEVELS)
    centroids: Floats = field(default_factory=lambda: np.empty((0, 0, 0), np.float32))
    references: Int32s = field(default_factory=lambda: NO_REFERENCES)
    reference_starts: Ints = field(default_factory=lambda: NO_STARTS)
    pq: PqCodes | None = None
    in_memory: bool = True
    is_trained: bool = True
    lookup: Callable[[Ints], Ints] | None = None
    label_keys: LabelKeys | None = None
    longest: float = 1.0
    cache: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        read_only(self.levels, self.references, self.reference_starts)

    # --- lists ------------------------------------------------------------------------------------

    @derived
    def lists(self) -> int:
        """Number of lists in all partitions; 0 for an exact index."""
        partitions, nlist, _ = self.centroids.shape
        return int(partitions * nlist)

    @derived
    def list_starts(self) -> Ints:
        """Start of each list in the lists of all partitions, followed by the total length."""
        return read_only(np.concatenate([self.starts, self.n + self.reference_starts[1:]]))[0]

    def lists_by_row(self) -> Int32s:
        """Return the list of each row in each partition, (partitions, n)."""
        partitions, nlist = self.centroids.shape[:2]
        rows = np.concatenate([np.arange(self.n), self.references.reshape(-1)])
        lists = np.empty((partitions, self.n), np.int32)
        places = np.arange(partitions * self.n)
        lists[places // max(self.n, 1), rows] = lists_of(places, self.list_starts) % nlist
        return lists

    def first_partition(self) -> Snapshot:
        """Return a snapshot of the same rows with the first partition only."""
        if not len(self.references):
            return self
        return replace(
            self, centroids=self.centroids[:1], references=NO_REFERENCES, reference_starts=NO_STARTS
        )

    def twin(self) -> Snapshot:
        """Return a snapshot of the same rows without derived data."""
        other = copy.copy(self)
        object.__setattr__(other, "cache", {})
        return other

    def scanned(self, nprobe: int) -> float:
        """Return the expected number of rows in ``nprobe`` lists."""
        return float(min(nprobe, self.lists) * self.n / self.centroids.shape[1])

    # --- ids --------------------------------------------------------------------------------------

    @derived
    def members(self) -> Members:
        """Ids in ascending order, with the row and label of each."""
        ids = self.ids()
        rows = rows_by_id(ids)
        places = np.empty_like(rows)
        places[rows] = np.arange(len(rows))
        return Members(*read_only(ids[rows], rows, self.labels[rows], places))

    def rows_of(self, ids: Ints) -> Ints:
        """Return the row of each id, (m,), or -1."""
        return (self.members.rows_of if self.lookup is None else self.lookup)(ids)

    def find(self, ids: ArrayLike, *, name: str = "ids") -> Ints:
        """Return the rows of ``ids``.

        UnknownIdError names the argument and the first unknown id.
        """
        return _find(name, ids, self.rows_of)

    # --- labels -----------------------------------------------------------------------------------

    def encode(self, name: str, labels: Array) -> Int32s:
        """Return the codes of labels of :func:`values.as_labels`.

        :attr:`absent_label` for labels without a row.
        """
        if self.label_keys is None and labels.dtype == np.int32:
            return labels
        table = (
            LabelKeys.of_codes(self.class_counts[0]) if self.label_keys is None else self.label_keys
        )
        codes = table.find(name, labels)
        if (codes == NOT_STORED).any():
            codes[codes == NOT_STORED] = self.absent_label
        return codes

    def decode(self, codes: Int32s) -> Array:
        """Return the labels that codes stand for."""
        return codes if self.label_keys is None else self.label_keys.decode(codes)

    @derived
    def label_names(self) -> Array:
        """Known labels of the rows in ascending order, (c,): int64, booleans or objects."""
        names = self.decode(self.class_counts[0])
        return read_only(
            (names.astype(np.int64) if names.dtype.kind == "i" else names)[order_of(names)]
        )[0]

    # --- rows -------------------------------------------------------------------------------------

    @derived
    def starts(self) -> Ints:
        """First row of each list, followed by the number of rows: (nlist + 1,) int64."""
        return self.native.starts()

    @derived
    def labels(self) -> Int32s:
        """Label of each row, ascending within a list: (n,) int32."""
        return self.native.labels()

    @derived
    def margin(self) -> float:
        """Error bound of a float32 score, summed in any order.

        For "cosine" of two rows, or a row and a unit vector. For "ip" of a row and a unit vector:
        multiply it by the length of the query. For "l2" relative to the squared distance.
        """
        if self.metric != "cosine":
            longest = max(self.longest, codecs.terms_bound(self.levels))
            return score_margin(self.metric, self.d, longest)
        return codecs.screening_error(self.d) * codecs.screening_factor(self.codec, self.levels)

    # --- metric -----------------------------------------------------------------------------------

    @derived
    def metric(self) -> Metric:
        """How vectors are compared."""
        return METRICS[self.native.metric]

    @property
    def ranking_length(self) -> int:
        """Numbers of a mean that lists are ranked by; see ``native/core/metric.h``."""
        return self.d + (self.metric != "cosine")

    @derived
    def center(self) -> Floats:
        """Vector subtracted from vectors before they are multiplied, (d,): their mean for "l2".

        (0,) for "cosine".
        """
        if is_distance(self.metric) and self.n and not len(self.centroids):
            sample = np.unique(np.linspace(0, self.n - 1, min(self.n, _ROWS)).astype(np.int64))
            return read_only(
                self.rows(sample)[0].mean(axis=0, dtype=np.float64).astype(np.float32)
            )[0]
        return center_of(self.centroids, self.metric, self.d)

    def tile_sides(self, X: Floats) -> tuple[Floats, Floats, float]:
        """Return vectors as rows and columns whose products are scores, and their bound."""
        if not is_distance(self.metric):
            return X, X, 1.0 if self.metric == "cosine" else float(lengths(X).max(initial=0))
        centred = X - self.center
        squares = np.empty(len(X))
        ones = np.ones(len(X), np.float32)
        np.einsum("ij,ij->i", centred, centred, dtype=np.float64, out=squares)
        rows = np.column_stack([2 * centred, -squares.astype(np.float32), ones])
        return (
            rows,
            np.column_stack([centred, ones, rows[:, -2]]),
            float(np.sqrt(squares.max(initial=0))),
        )

    def tile_margin(self, longest: float, longest_other: float) -> float:
        """Bound the error of the products of :meth:`tile_sides` of vectors up to two lengths."""
        if self.metric == "cosine":
            return self.margin
        return tile_margin(self.metric, self.d, longest, longest_other)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.native)

    def rows(self, rows: Ints) -> tuple[Floats, Ints]:
        """Return vectors and ids of rows: a view of consecutive float32 rows, else a copy."""
        if self.codec == codecs.FLAT and len(rows) and bool((np.diff(rows) == 1).all()):
            view = self.native.view(int(rows[0]), int(rows[-1]) + 1)
            if view is not None:
                # NumPy prints the other 64-bit type with its dtype
                return view[0], view[1].view(np.int64)
        return self.copied(rows)

    def copied(self, rows: Ints) -> tuple[Floats, Ints]:
        """Return copies of the vectors and ids of rows."""
        X = np.empty((len(rows), self.d), np.float32)
        ids = np.empty(len(rows), np.int64)
        self.native.gather(np.ascontiguousarray(rows, np.int64), X, ids)
        return X, ids

    @derived
    def by_label(self) -> Ints:
        """Rows with a known label, sorted by label."""
        order = stable_order(self.labels)
        return read_only(
            order[np.searchsorted(self.labels, UNKNOWN, side="right", sorter=order) :]
        )[0]

    @derived
    def class_counts(self) -> tuple[Int32s, Ints]:
        """Known labels in ascending order, and the number of rows of each."""
        return _class_counts(self.labels)

    @derived
    def known_codes(self) -> frozenset[int]:
        """Labels of the rows, and the unknown label."""
        return frozenset([UNKNOWN, *self.class_counts[0].tolist()])

    @derived
    def absent_label(self) -> int:
        """A label that no row has: for it, all rows of known label are of another class."""
        classes = self.class_counts[0]
        most = int(classes.max(initial=UNKNOWN))
        if is_label(most + 1):
            return most + 1
        gaps = np.flatnonzero(classes != np.arange(len(classes)))
        return int(gaps[0]) if len(gaps) else len(classes)

    @derived
    def row_ids(self) -> Ints:
        """Id of each row, (n,) int64, read-only."""
        return read_only(self.ids())[0]

    def ids(self) -> Ints:
        """Return the id of each row, (n,) int64."""
        ids = np.empty(self.n, np.int64)
        self.native.copy_ids(ids)
        return ids

    def first_not_unit(self, shortest: float | None = None) -> int:
        """Return the first row that is neither zero nor of length 1 for its codec, or -1.

        A row of 8-bit codes may be shorter, down to ``shortest`` (0 by default), because components
        outside the codec's range are clipped.
        """
        margin = codecs.norm_bound(self.codec, self.levels) - 1 + _UNIT_TOLERANCE
        least = 1 - margin
        zero = 0.0
        if self.codec == codecs.SQ8:
            least = shortest or 0.0
            zero = margin
        for start in range(0, self.n, _ROWS):
            X = self.rows(np.arange(start, min(start + _ROWS, self.n)))[0]
            with np.errstate(over="ignore", invalid="ignore"):
                norms = np.sqrt(np.einsum("ij,ij->i", X, X))
            unit = ((norms >= least) & (norms <= 1 + margin)) | (norms <= zero)
            if not unit.all():
                return start + int(np.argmin(unit))
        return -1

    def measure_longest(self) -> float:
        """Return the largest length of a row; NaN or infinite if a row is not finite. O(n d)."""
        return float(np.max([lengths(X).max() for X in self._parts()], initial=0.0))

    def _parts(self) -> Iterator[Floats]:
        """Yield all rows, some at a time."""
        for start in range(0, self.n, _ROWS):
            yield self.rows(np.arange(start, min(start + _ROWS, self.n)))[0]

    def check(self) -> None:
        """Raise ValueError unless ids, vectors and references are valid; O(n d)."""
        ids = np.sort(as_ids("ids", self.ids()))
        if (ids[1:] == ids[:-1]).any():
            raise ValueError("its ids are not distinct")
        if self.metric == "cosine" and self.first_not_unit() >= 0:
            raise ValueError("its vectors are not of length 1")
        if self.metric != "cosine" and not self.measure_longest() <= self.longest:
            raise ValueError(f"its vectors are not finite, or longer than {self.longest:g}")
        check_stored(self._parts(), self.metric)
        check_references(self.references.reshape(-1, max(1, self.n)), self.n)

    def eligible(self, labels: Int32s, allowed: Bools | None = None) -> Ints:
        """Return, for each query label, the number of (allowed) rows with another known label.

        0 for unknown labels.
        """
        classes, counts = (
            self.class_counts if allowed is None else _class_counts(self.labels[allowed])
        )
        places = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
        of_own_class = np.where(classes[places] == labels, counts[places], 0) if len(classes) else 0
        return np.where(labels == UNKNOWN, 0, counts.sum() - of_own_class).astype(np.int64)


@dataclass(frozen=True, eq=False)
class GuardedSnapshot(Snapshot):
    """Snapshot for callers that do not hold the lock of the index; it returns copies of rows.

    Attributes
    ----------
    unchanged
        Function of the snapshot that returns a context manager: it keeps the index unchanged, or
        raises RuntimeError if the index has changed.
    """

    unchanged: Callable[[Snapshot], AbstractContextManager[None]] = field(kw_only=True)

    def rows_of(self, ids: Ints) -> Ints:
        """Return the row of each id, (m,), or -1."""
        return self.members.rows_of(ids)

    def rows(self, rows: Ints) -> tuple[Floats, Ints]:
        """Return copies of the vectors and ids of rows."""
        with self.unchanged(self):
            return self.copied(rows)

    def ids(self) -> Ints:
        """Return the id of each row, (n,) int64."""
        with self.unchanged(self):
            return super().ids()


def _find(name: str, ids: ArrayLike, rows_of: Callable[[Ints], Ints]) -> Ints:
    row_ids = as_ids(name, ids)
    rows = rows_of(row_ids)
    if (rows < 0).any():
        raise UnknownIdError(
            f"{name} must be in the index, got {row_ids[np.argmax(rows < 0)]}, which is not"
        )
    return rows


def center_of(centroids: Floats, metric: Metric, d: int) -> Floats:
    """Return the centre of vectors in lists with these centroids, (partitions, nlist, d).

    See `Snapshot.center`.
    """
    if metric == "cosine":
        return np.empty(0, np.float32)
    if not is_distance(metric) or not centroids.size:
        return np.zeros(d, np.float32)
    return read_only(centroids[0].mean(axis=0, dtype=np.float64).astype(np.float32))[0]


def read_only(*arrays: Array) -> tuple[Array, ...]:
    """Mark arrays as read-only and return them."""
    for array in arrays:
        array.flags.writeable = False
    return arrays


def stable_order(keys: Array) -> Ints:
    """Return the stable sort order of integers >= -1, (n,)."""
    if len(keys) and keys.max() < np.iinfo(np.uint16).max:
        keys = (keys + 1).astype(np.uint16)  # radix sort for 16 bits
    return np.argsort(keys, kind="stable")


def rows_by_id(ids: Ints) -> Ints:
    """Return the rows, (n,), in ascending order of their distinct ids.

    O(n) if all ids are below 2n.
    """
    n = len(ids)
    largest = int(ids.max(initial=-1))
    if ids.min(initial=0) >= 0 and largest < 2 * n:
        row_of = np.full(largest + 1, -1, np.int64)
        row_of[ids] = np.arange(n)
        rows = row_of[row_of >= 0]
        if len(rows) == n:
            return rows
    return np.argsort(ids, kind="stable")


def check_references(references: Int32s, n: int) -> None:
    """Raise ValueError unless each row of ``references`` holds each of n rows once.

    Its shape is (partitions - 1, n).
    """
    for rows in references:
        if n and (rows.min() < 0 or rows.max() >= n or np.bincount(rows, minlength=n).max() > 1):
            raise ValueError(
                "the lists of its supplementary partitions do not hold each vector once"
            )


def _class_counts(labels: Int32s) -> tuple[Int32s, Ints]:
    classes, counts = np.unique(labels[labels != UNKNOWN], return_counts=True)
    read_only(classes, counts)
    return classes, counts


def lists_of(rows: Ints, starts: Ints) -> Ints:
    """Return the list of each row: the last list that starts at or before it.

    O(log nlist) per row.
    """
    return np.searchsorted(starts, rows, side="right") - 1
