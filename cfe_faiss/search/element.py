"""Element type of the blocks, float or byte: a rule of dimension and instruction set.

A byte is a quarter of a float, and VNNI multiplies 4 bytes at a time. But byte blocks give bounds, and rows whose bound
does not decide are scored again from the vectors. With few dimensions the products of groups are cheap, and floats are
faster. A single query is bound by memory, and bytes are faster in few lists and in many.
``benchmarks/block_elements.py`` measured both on several data sets at each instruction set and fitted the rule. The
element type does not change results.
"""

from typing import Literal, NamedTuple

from cfe_faiss import _native
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import blocks as blocking
from cfe_faiss.search.blocks import Element
from cfe_faiss.search.query import MEMORY

RowSource = Literal["float", "byte", "mixed"]
"""Rows that single queries read: stored vectors, byte blocks, or (in older files) bytes from MANY_LISTS lists on."""

MANY_LISTS = 32
_BATCH_FROM = {"avx2": 48, "avx512": 32, "neon": 48}  # neon is not measured: as avx2
"""Dimension from which on byte blocks are faster for batched search, by instruction set."""
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


def choose(snapshot: Snapshot, pinned: Choice | None, *, keeps_blocks: bool) -> Choice:
    """Return the element types for a snapshot: ``pinned`` or by the rule, as far as they are possible."""
    longest = _MOST_BYTES if snapshot.metric == "cosine" else _MOST_OF_ANY_LENGTH
    if not _native.has_bytes() or snapshot.d >= longest:
        return Choice("float", "float")
    batch, single = pinned or by_dimension(snapshot.d, _native.level())
    if blocking.bytes_of_all(snapshot, "float") > MEMORY:
        batch = "byte"
    return Choice(batch, single if keeps_blocks else "float")


def by_dimension(d: int, level: str) -> Choice:
    """Return the faster element types for vectors of d dimensions at an instruction set with byte products."""
    return Choice("byte" if d >= _BATCH_FROM[level] else "float", "byte")
