"""Dimension-major copies of vectors in blocks of 16 rows, as floats or as bytes.

A byte is a quarter of a float, and VNNI multiplies 4 bytes at a time. But byte blocks give bounds,
and rows whose bound does not decide are scored again from the vectors. With few dimensions the
products of groups are cheap, and floats are faster. A single query is bound by memory, and bytes
are faster. ``benchmarks/block_elements.py`` measured both on several data sets at each instruction
set and fitted the rule. The element type does not change results.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

from cfe_faiss import _native
from cfe_faiss._native import Blocks
from cfe_faiss.base.arrays import Bools, Floats, Ints
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.base.threads import num_threads, single_threaded_blas
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search.query import MEMORY

Element = Literal["float", "byte"]

ROWS_OF_BLOCK = 16

_STATISTICS = 7  # 4-byte row statistics per row of a byte block, at most
_PREFIX = 64  # dimensions compared first; with the norm of the others they bound the product
_WORTH_ROTATING = 1 << 16  # rows; below it, rotating the queries costs more than it saves
_SAMPLE = 1 << 14  # rows sampled for the principal directions
_LONGEST_TAIL = 0.5  # maximum share of the squared norms after the prefix
_BATCH_FROM = {"avx2": 48, "avx512": 32, "neon": 48}  # neon is not measured: as avx2
"""Dimension from which on byte blocks are faster for batched search, by instruction set."""
_MOST_BYTES = 1 << 24  # bytes in a row; products of longer rows overflow 32 bits
_MOST_OF_ANY_LENGTH = (
    1 << 13
)  # bytes in a row of any length; their error bounds hold for fewer dimensions


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


def bytes_of_block(d: int, element: Element) -> int:
    """Return the maximum size of a block in bytes: its words, labels and row positions."""
    words = -(-d // 4) + _STATISTICS if element == "byte" else d
    return ROWS_OF_BLOCK * 4 * (words + 2) + 12


def bytes_of_all(snapshot: Snapshot, element: Element) -> int:
    """Return the maximum size of the blocks of all lists, in bytes, with padding."""
    starts = snapshot.list_starts
    blocks = int(starts[-1]) // ROWS_OF_BLOCK + len(starts) - 1
    return blocks * bytes_of_block(snapshot.d, element)


def all_blocks(snapshot: Snapshot, element: Element) -> Blocks | None:
    """Return blocks of all lists; None if they exceed ``MEMORY`` bytes."""
    return blocks_of(snapshot, element) if bytes_of_all(snapshot, element) <= MEMORY else None


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
        if element == "byte" and snapshot.metric == "l2"
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
            with np.errstate(
                invalid="ignore", over="ignore"
            ):  # a damaged file may contain NaN or infinity
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
