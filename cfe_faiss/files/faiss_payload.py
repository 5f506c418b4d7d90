"""Checks of FAISS's part of an index file (the payload), before FAISS reads it.

FAISS does not validate the sizes, counts and nested index types that it reads. The formats of
evidence indexes are simple, so this module checks every byte except vectors, centroids and ids.
FAISS thus only reads valid structures.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import Array, Ints, require
from cfe_faiss.rows.codecs import SCALAR_BY_TYPE
from cfe_faiss.rows.metric import Metric, faiss_metric

_MAX_UNTRAINED_LISTS = 1 << 20
_MAX_LEVEL = float(np.finfo(np.float32).max)
_MAX_NPROBE = np.iinfo(np.int64).max
_NO_MAP = 0
_ARRAY_MAP = 1
_HASH_MAP = 2


@dataclass(frozen=True, slots=True)
class Payload:
    """The structure of a payload.

    Attributes
    ----------
    d
        Dimension of the vectors.
    sizes
        Number of rows of each list, (nlist,) int64; the exact index has one list.
    start
        Byte offset of the first stored vector; structure and centroids precede it.
    """

    d: int
    sizes: Ints
    start: int

    @property
    def ntotal(self) -> int:
        """Number of stored vectors."""
        return int(self.sizes.sum())


def read_payload(kind: str, file: BinaryIO, size: int, metric: Metric) -> Payload:
    """Return the structure of the first ``size`` bytes of ``file``.

    Raise ValueError if it is invalid.

    Reads O(d * nlist) bytes at most; vectors and ids are skipped.
    """
    bytes_ = _Bytes(file, size, faiss_metric(metric))
    payload = _read_ivf(bytes_, *_CODES[kind]) if kind in _CODES else _read_flat(bytes_, kind)
    require(bytes_.place == size, f"its vectors end at byte {bytes_.place}, not {size}")
    return payload


class _Bytes:
    """Sequential reader of the first ``end`` bytes of a file, of indexes with a metric of FAISS."""

    def __init__(self, file: BinaryIO, end: int, metric: int) -> None:
        self.file = file
        self.place = 0
        self.end = end
        self.metric = metric
        codes = {faiss.METRIC_L2: b"IxF2", faiss.METRIC_INNER_PRODUCT: b"IxFI"}
        self.flat = codes.get(metric, b"IxFl")

    def skip(self, size: int) -> None:
        require(
            size <= self.end - self.place,
            f"{size} bytes are announced at byte {self.place}, {self.end - self.place} are there",
        )
        self.place += size

    def take(self, size: int) -> bytes:
        start = self.place
        self.skip(size)
        self.file.seek(start)
        data = self.file.read(size)
        require(len(data) == size, f"it ends at byte {start + len(data)}, before its vectors do")
        return data

    def numbers(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{layout}", self.take(struct.calcsize(f"<{layout}")))

    def vector(self, dtype: str) -> Array:
        """Read a vector written by FAISS's WRITEVECTOR: a count and the values."""
        (count,) = self.numbers("Q")
        return np.frombuffer(self.take(count * np.dtype(dtype).itemsize), dtype)

    def next_is(self, fourcc: bytes) -> bool:
        """Return whether these four bytes follow, and skip them if so."""
        is_next = self.take(4) == fourcc
        self.place -= 0 if is_next else 4
        return is_next

    def same(self, layout: str, expected: int | bytes, what: str) -> None:
        (actual,) = self.numbers(layout)
        require(actual == expected, f"{what} is {actual!r}, not {expected!r}")

    def index_header(self, what: str) -> tuple[int, int, bool]:
        """Read the common index header and return d, ntotal and is_trained."""
        d, ntotal, _, _, trained, metric = self.numbers("iqqqBi")
        require(
            d >= 1 and ntotal >= 0 and trained <= 1,
            f"{what} has d = {d}, ntotal = {ntotal}, is_trained = {trained}",
        )
        require(metric == self.metric, f"{what} has metric {metric}, not {self.metric}")
        if metric > faiss.METRIC_L2:
            self.same("f", 0, f"the argument of the metric of {what}")
        return d, ntotal, bool(trained)

    def flat_header(self, d: int, ntotal: int, what: str) -> None:
        """Read an IndexFlat up to its vectors."""
        self.same("4s", self.flat, what)
        actual_d, actual_ntotal, _ = self.index_header(what)
        require(
            (actual_d, actual_ntotal) == (d, ntotal),
            f"{what} has d = {actual_d}, ntotal = {actual_ntotal}, not {d} and {ntotal}",
        )
        self.same("Q", d * ntotal, f"the number of values in {what}")


def _read_flat(bytes_: _Bytes, kind: str) -> Payload:
    fourcc = bytes_.take(4)
    with_ids = fourcc == b"IxM2"  # also of the kind "EvidenceFlat" in files of earlier versions
    require(
        with_ids or (kind != "EvidenceIDMap2" and fourcc == bytes_.flat),
        f"the index is {fourcc!r}, not {bytes_.flat!r} or b'IxM2'",
    )
    d, ntotal, _ = bytes_.index_header("the index")
    if with_ids:
        bytes_.flat_header(d, ntotal, "the index of the vectors")
    else:
        bytes_.same("Q", d * ntotal, "the number of values in the index")
    start = bytes_.place
    bytes_.skip(4 * d * ntotal)
    if with_ids:
        bytes_.same("Q", ntotal, "the number of ids")
        bytes_.skip(8 * ntotal)
    return Payload(d, np.array([ntotal], np.int64), start)


def _read_ivf(
    bytes_: _Bytes, fourcc: bytes, read_codec: Callable[["_Bytes", int, bool], int]
) -> Payload:
    bytes_.same("4s", fourcc, "the index")
    d, ntotal, trained = bytes_.index_header("the index")
    nlist, nprobe = bytes_.numbers("QQ")
    require(
        nlist >= trained
        and 1 <= nprobe <= _MAX_NPROBE
        and (trained or (nlist <= _MAX_UNTRAINED_LISTS and not ntotal)),
        f"the index has nlist = {nlist}, nprobe = {nprobe}, is_trained = {trained}, "
        f"ntotal = {ntotal}",
    )
    centroids = nlist if trained else 0
    if bytes_.next_is(b"IHNf"):
        _read_graph(bytes_, d, centroids)
    bytes_.flat_header(d, centroids, "the index of the centroids")
    bytes_.skip(4 * d * centroids)
    places = _read_direct_map(bytes_)
    code_size = read_codec(bytes_, d, trained)
    bytes_.same("4s", b"ilar", "the kind of the lists")
    bytes_.same("Q", nlist, "the number of lists")
    bytes_.same("Q", code_size, "the code size of the lists")
    sizes = _read_sizes(bytes_, nlist, ntotal)
    require(
        (places >> 32 < nlist).all() and (places & 0xFFFFFFFF < sizes[places >> 32]).all(),
        "its direct map points outside of the lists",
    )
    start = bytes_.place
    bytes_.skip((code_size + 8) * ntotal)
    return Payload(d, sizes, start)


def _read_graph(bytes_: _Bytes, d: int, n: int) -> None:
    """Read an IndexHNSWFlat over n centroids up to its vectors."""
    size = bytes_.index_header("the graph of the centroids")[:2]
    bytes_.vector("<f8")  # probabilities of the levels, for additions
    ends = bytes_.vector("<i4").astype(np.int64)  # slots of a node up to each level
    levels = bytes_.vector("<i4").astype(np.int64)  # number of levels of each node
    offsets = bytes_.vector("<u8")
    neighbors = bytes_.vector("<i4")
    entry, top, *widths = bytes_.numbers("iiiii")
    sizes = (
        size == (d, n)
        and len(levels) == n
        and len(offsets) == n + 1
        and len(ends) > 1
        and ends[0] == 0
    )
    require(
        sizes
        and min(widths) >= 1
        and (np.diff(ends) > 0).all()
        and ((levels >= 1) & (levels < len(ends))).all(),
        "the graph of the centroids is not as it must be",
    )
    slots = ends[levels]
    ends_at = np.concatenate([[0], np.cumsum(slots)])
    require(
        np.array_equal(offsets, ends_at.astype(np.uint64)) and len(neighbors) == ends_at[-1],
        "the graph of the centroids has other numbers of neighbours than its levels have",
    )
    level_of_slot = (
        np.searchsorted(ends, np.arange(len(neighbors)) - np.repeat(ends_at[:-1], slots), "right")
        - 1
    )
    require(
        not n or (0 <= entry < n and levels[entry] - 1 == top == levels.max() - 1),
        f"the graph of the centroids begins at {entry}, level {top}",
    )
    linked = neighbors >= 0
    require(
        (neighbors >= -1).all()
        and (neighbors < n).all()
        and (levels[neighbors[linked]] > level_of_slot[linked]).all(),
        "the graph of the centroids has links to nowhere",
    )


def _read_scalar_quantizer(bytes_: _Bytes, d: int, trained: bool) -> int:
    """Read the scalar quantizer of an inverted file and return the code size."""
    (qtype,) = bytes_.numbers("i")
    require(qtype in SCALAR_BY_TYPE, f"its scalar quantizer is of type {qtype}")
    scalar = SCALAR_BY_TYPE[qtype]
    code_size = d * scalar.size
    bytes_.numbers("if")  # training options for the range, unused afterwards
    bytes_.same("Q", d, "the dimension of the scalar quantizer")
    bytes_.same("Q", code_size, "the code size of the scalar quantizer")
    levels = bytes_.vector("<f4")
    require(
        len(levels) == (2 * d if scalar.has_levels and trained else 0),
        f"its scalar quantizer has {len(levels)} levels",
    )
    # The upper half holds the range widths. Both ends of a range must be finite.
    ends = levels[:d].astype(np.float64) + levels[d:]
    require(
        np.isfinite(levels).all()
        and (np.abs(ends) <= _MAX_LEVEL).all()
        and (levels[d:] >= 0).all(),
        "the levels of its scalar quantizer are not as they must be",
    )
    bytes_.same("Q", code_size, "the code size of the index")
    bytes_.same("B", 0, "the mark of residuals")
    return code_size


def _read_product_quantizer(bytes_: _Bytes, d: int, trained: bool) -> int:
    """Read the product quantizer of an inverted file and return the code size."""
    bytes_.same("B", 1, "the mark of residuals")
    M = int(bytes_.numbers("Q")[0])  # with 8 bits per part, the code size is M bytes
    bytes_.same("Q", d, "the dimension of the product quantizer")
    bytes_.same("Q", M, "the number of parts of a code")
    require(M >= 1 and d % M == 0, f"the {M} parts of a code do not divide d = {d}")
    bytes_.same("Q", 8, "the number of bits of a part of a code")
    codewords = bytes_.vector("<f4")
    require(
        len(codewords) == 256 * d and np.isfinite(codewords).all(),
        "the codewords of its product quantizer are not as they must be",
    )
    return M


_CODES = {
    "EvidenceIVF": (b"IwFl", lambda bytes_, d, trained: 4 * d),  # float32 vectors, no codec
    "EvidenceIVFScalarQuantizer": (b"IwSq", _read_scalar_quantizer),
    "EvidenceIVFPQ": (b"IwPQ", _read_product_quantizer),
}


def _read_sizes(bytes_: _Bytes, nlist: int, ntotal: int) -> Ints:
    form = bytes_.take(4)
    if form == b"full":
        sizes = bytes_.vector("<u8")
        require(len(sizes) == nlist, f"it has the sizes of {len(sizes)} lists, not {nlist}")
    elif form == b"sprs":
        numbers = bytes_.vector("<u8")
        filled = numbers[::2]
        require(
            len(numbers) % 2 == 0
            and (filled < nlist).all()
            and len(np.unique(filled)) == len(filled),
            "the numbers of its lists that are not empty are not as they must be",
        )
        sizes = np.zeros(nlist, np.uint64)
        sizes[filled.astype(np.int64)] = numbers[1::2]
    else:
        raise ValueError(f"the form of the sizes of its lists is {form!r}")
    total = sum(sizes.tolist())  # Python's integers do not overflow
    require(total == ntotal, f"its lists hold {total} vectors, not ntotal = {ntotal}")
    return sizes.astype(np.int64)


def _read_direct_map(bytes_: _Bytes) -> NDArray[np.uint64]:
    """Read the direct map and return its entries: list number * 2**32 + offset."""
    (kind,) = bytes_.numbers("B")
    array = bytes_.vector("<i8")
    require(kind != _NO_MAP or not len(array), "it has a direct map of no kind")
    require(kind in (_NO_MAP, _ARRAY_MAP, _HASH_MAP), f"its direct map is of kind {kind}")
    if kind == _HASH_MAP:
        array = bytes_.vector("<i8,<i8")["f1"]
    require((array >= -1).all(), "its direct map points outside of the lists")
    return array[array >= 0].astype(np.uint64)
