"""Layout of an index file: the output of FAISS, and a footer with our further data.

All integers are little-endian::

    payload    output of faiss.write_index; stock FAISS reads it and ignores the rest
    sections   raw C-ordered arrays, each at a multiple of 64 bytes from the start of the file
    header     JSON (UTF-8): format, version, kind, parameters, payload (size, CRC-32, and CRC-32
               of its structure: all before the first stored vector), and name, dtype, shape, offset
               and CRC-32 of every section
    trailer    24 bytes: header offset (8), header size (8), header CRC-32 (4), magic b"CFE1" (4)

Everything is checked before it is used, so that searches only see valid data. FAISS does not
validate the sizes, counts and nested index types that it reads, so :func:`read_payload` checks
every byte of the payload except vectors, centroids and ids. Inside :func:`naming`, a ValueError
says how a file is damaged.
"""

import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import ListChecks
from cfe_faiss.base.checks import UNKNOWN, Array, Ints, require
from cfe_faiss.base.disk import checksum
from cfe_faiss.files.forms import (
    ANY_MAPPING,
    BOOLEAN,
    CHECKSUM,
    NATURAL,
    Form,
    check,
    number,
    one_of,
    text,
)
from cfe_faiss.index.flat import IndexEvidenceFlat, IndexEvidenceIDMap2, has_positions
from cfe_faiss.index.ivf import (
    IndexEvidenceIVF,
    IndexEvidenceIVFPQ,
    IndexEvidenceIVFScalarQuantizer,
)
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.rows.codecs import SCALAR_BY_TYPE
from cfe_faiss.rows.faiss_functions import write_stock
from cfe_faiss.rows.metric import LONGEST, METRICS, Metric, faiss_metric
from cfe_faiss.rows.snapshot import check_references

# --- FAISS's payload ------------------------------------------------------------------------------

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


# --- the whole file -------------------------------------------------------------------------------

MAGIC = b"CFE1"
"""Last bytes of a file of an evidence index."""
_FORMAT = "cfe_faiss"
_VERSION = 6
_KINDS_VERSION = 7  # the second one for labels that are booleans or of several kinds
_FIRST_VERSION = 2
"""Oldest readable version.

Its files have no checksum per list; files before version 4 keep nothing of `prepare`, and
files before version 5 hold integer labels below 2**31 - 1; before version 6 all indexes compare by
cosine; before
version 7 labels are integers or texts."""
_TRAILER = struct.Struct("<QQI4s")
_MAX_HEADER = 1 << 20
_ALIGNMENT = 64
_MAX_LABEL = np.iinfo(np.int32).max
KINDS: dict[str, Any] = {
    "EvidenceFlat": IndexEvidenceFlat,
    "EvidenceIDMap2": IndexEvidenceIDMap2,
    "EvidenceIVF": IndexEvidenceIVF,
    "EvidenceIVFScalarQuantizer": IndexEvidenceIVFScalarQuantizer,
    "EvidenceIVFPQ": IndexEvidenceIVFPQ,
}

_LABELS = {"label_keys": "|u1", "label_ends": "<i8", "label_codes": "<i4", "label_kinds": "|u1"}
_CALIBRATIONS = {"calibrations": "<f8", "calibration_starts": "<i8", "calibration_classes": "<f8"}
_FLAT_ARRAYS = {"labels": "<i4", **_LABELS}
_LIST_ARRAYS = {
    **_FLAT_ARRAYS,
    "list_checksums": "<u4",
    **_CALIBRATIONS,
    **dict.fromkeys(("centroids", "route_means", "route_entry_means", "region_means"), "<f4"),
    **dict.fromkeys(("references", "route_labels"), "<i4"),
    **dict.fromkeys(("route_filled", "route_entry_filled"), "|u1"),
    **dict.fromkeys(
        ("reference_starts", "route_starts", "route_lists", "region_starts", "region_lists"), "<i8"
    ),
}
_METRIC = {"metric": one_of(METRICS), "longest": number(0, LONGEST)}
_CHOICES = (
    "",
    *(
        f"{batch}/{single}{bits}"
        for batch in ("float", "byte")
        for single in ("float", "byte", "mixed")
        for bits in ("", "/bit")
    ),
)
_SEARCH = {
    **_METRIC,
    "theta": number(1e-3, math.pi / 2),
    **dict.fromkeys(("weighted", "complete"), BOOLEAN),
    "routing": one_of(["evidence", "nearest"]),
    "choice": one_of(_CHOICES),
}
_PARTS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    **dict.fromkeys(("EvidenceFlat", "EvidenceIDMap2"), (_FLAT_ARRAYS, _METRIC)),
    **dict.fromkeys(("EvidenceIVF", "EvidenceIVFScalarQuantizer"), (_LIST_ARRAYS, _SEARCH)),
    "EvidenceIVFPQ": (_LIST_ARRAYS | {"vectors": "<f4"}, _SEARCH | {"k_factor": number(1, 1e9)}),
}
"""Dtype of each section, and form of each parameter, by kind of index."""
SINCE_VERSION = {
    "list_checksums": 3,
    **dict.fromkeys(("choice", *_CALIBRATIONS), 4),
    **dict.fromkeys(_LABELS, 5),
    **dict.fromkeys(_METRIC, 6),
    "label_kinds": 7,
}
"""Sections and parameters that files of earlier versions do not have."""
_ON_OPENING = {*_LABELS, "centroids", "reference_starts", "list_checksums", *_CALIBRATIONS}
"""Sections that are checked when a file is opened.

The others grow with the vectors, and wait until they are used.
"""
_VECTORS = {"vectors"}
"""Sections that are checked with the payload's own vectors: in a mapped file not at all."""
_ANY_TEXT = text(".*", "a text")
_SECTION: Form = {
    "name": _ANY_TEXT,
    "dtype": _ANY_TEXT,
    "shape": [NATURAL],
    "offset": NATURAL,
    "crc32": CHECKSUM,
}
_PAYLOAD: Form = {"size": NATURAL, "crc32": CHECKSUM, "structure_crc32": CHECKSUM}

Arrays = Mapping[str, Array]
Source = Path | str
"""What a file is called in an error."""


class ForeignFileError(ValueError):
    """A file is not an evidence index, or is of another format version; the message names it."""


@contextmanager
def naming(source: Source) -> Iterator[None]:
    """Convert a ValueError into one that names the damaged file."""
    try:
        yield
    except ForeignFileError:
        raise
    except ValueError as error:
        raise ValueError(f"{source} is damaged: {error}") from error


def write(index: EvidenceIndex, file: BinaryIO, source: Source) -> None:
    """Write an evidence index, already checked by :func:`kind_of`, to an empty file."""
    with index.holding() as snapshot:
        stock, parameters, arrays = index.parts()
        if "centroids" in arrays:
            arrays["list_checksums"] = snapshot.native.checksums().reshape(-1, 2)
        # FAISS's own writer ignores a full disk
        write_stock(stock, faiss.PyCallbackIOWriter(file.write))
        try:
            _append_footer(file, kind_of(index), parameters, arrays)
            read_structure(file, source)
        except ValueError as error:
            raise ValueError(f"the index is not as evidence indexes must be: {error}") from error


def read(
    file: BinaryIO,
    source: Source,
    read_stock: Callable[[BinaryIO, Any], Any],
    *,
    mapped: bool = False,
) -> EvidenceIndex:
    """Read an evidence index, or map it from its file.

    ``read_stock`` takes the file and the class of the index, and returns FAISS's part.
    """

    def check_later() -> None:
        with naming(source):
            _check_checksums(header, arrays, arrays.keys() - _ON_OPENING - _VECTORS)
            _check_rows(payload, arrays)
            _check_routes(arrays)

    with naming(source):
        header, payload = read_structure(file, source)
        if not mapped:
            check_payload(file, header)
        arrays = _read_sections(file, header["sections"], mapped)
        _check_checksums(header, arrays, arrays.keys() & _ON_OPENING)
        _check_lists(payload, arrays)
        _check_calibrations(arrays, len(payload.sizes) * (1 + len(arrays.get("centroids", ()))))
        cls = KINDS[header["kind"]]
        file.seek(0)
        try:
            stock = read_stock(file, cls)
        except RuntimeError as error:
            raise ValueError(f"FAISS does not read it: {error}") from error
        # The exact indexes of earlier versions were of one kind, with or without ids.
        if cls is IndexEvidenceFlat and not has_positions(stock):
            cls = IndexEvidenceIDMap2
        index = cls.__new__(cls)
        index.restore(stock, header["parameters"], arrays, check_later)
        if mapped and "list_checksums" in arrays:
            checks = ListChecks(str(source), arrays["list_checksums"].reshape(-1))
            index.checks = [checks], np.zeros(len(payload.sizes), np.int64)
    if not mapped:
        storage = index.storage()
        with naming(source):
            storage.check()
        index.prepare_again()
    return cast(EvidenceIndex, index)


def kind_of(index: Any) -> str:
    """Return the name of the kind of an evidence index in files.

    Raise TypeError for other objects.
    """
    kind = next((name for name, cls in KINDS.items() if isinstance(index, cls)), None)
    if kind is None:
        parts = "; write index.evidence, and each transform by faiss.write_VectorTransform"
        hint = parts if hasattr(index, "evidence") else ""
        raise TypeError(f"index must be an evidence index, got {type(index).__name__}{hint}")
    return kind


# --- header ---------------------------------------------------------------------------------------


def read_header(file: BinaryIO, source: Source) -> dict[str, Any]:
    """Return the header of the file, complete for its version, with sections in order."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TRAILER.size))
    tail = file.read(_TRAILER.size)
    if len(tail) < _TRAILER.size or tail[-4:] != MAGIC:
        raise ForeignFileError(
            f"{source} is not an evidence index, or was cut short: its footer is missing. A stock "
            "FAISS index has none; adopt it by IndexEvidenceIVF.from_stock(faiss.read_index(path), "
            "labels), or from_stock of the class of its kind"
        )
    start, length, expected, _ = _TRAILER.unpack(tail)
    require(
        start + length + _TRAILER.size == size and length <= _MAX_HEADER,
        f"its header should lie at bytes {start} to {start + length} of {size}",
    )
    file.seek(start)
    encoded = file.read(length)
    require(zlib.crc32(encoded) == expected, "the checksum of its header does not match")
    try:
        header = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is not JSON: {error}") from error
    check(header, ANY_MAPPING, "header")
    head = {"format": one_of([_FORMAT]), "version": NATURAL, "kind": one_of(KINDS)}
    for name in ("format", "version"):
        check(header.get(name), head[name], f"header.{name}")
    version = header["version"]
    if not _FIRST_VERSION <= version <= _KINDS_VERSION:
        versions = f"this cfe_faiss reads versions {_FIRST_VERSION} to {_KINDS_VERSION}"
        raise ForeignFileError(f"{source} has format version {version}, {versions}")
    check(header.get("kind"), head["kind"], "header.kind")
    dtypes, parameters = (
        {name: part for name, part in parts.items() if version >= SINCE_VERSION.get(name, 0)}
        for parts in _PARTS[header["kind"]]
    )
    check(
        header,
        {**head, "parameters": parameters, "payload": _PAYLOAD, "sections": [_SECTION]},
        "header",
    )
    names = [section["name"] for section in header["sections"]]
    require(sorted(names) == sorted(dtypes), f"it has the sections {names}, not {[*dtypes]}")
    place = header["payload"]["size"]
    for section in header["sections"]:
        place = _check_section(section, dtypes[section["name"]], place)
    require(place <= start, f"its sections end at byte {place}, beyond its header at {start}")
    return cast(dict[str, Any], header)


def _check_section(section: dict[str, Any], dtype: str, place: int) -> int:
    """Check that a section starts at byte ``place`` or later, and return its end."""
    name = section["name"]
    offset = section["offset"]
    require(
        section["dtype"] == dtype,
        f"its section {name!r} has dtype {section['dtype']!r:.80}, not {dtype!r}",
    )
    require(len(section["shape"]) <= 3, f"its section {name!r} has shape {section['shape']!r:.80}")
    require(
        offset >= place and offset % _ALIGNMENT == 0,
        f"its section {name!r} begins at byte {offset}",
    )
    return int(offset + _size_of(section))


def _size_of(section: dict[str, Any]) -> int:
    return int(math.prod(section["shape"]) * np.dtype(section["dtype"]).itemsize)


def read_structure(file: BinaryIO, source: Source) -> tuple[dict[str, Any], Payload]:
    """Return the header and the structure of the payload, checked against each other."""
    header = read_header(file, source)
    metric = header["parameters"].get("metric", "cosine")
    payload = read_payload(header["kind"], file, header["payload"]["size"], metric)
    require(
        checksum(file, size=payload.start) == header["payload"]["structure_crc32"],
        "the checksum of the structure of its lists does not match",
    )
    shapes = {section["name"]: tuple(section["shape"]) for section in header["sections"]}
    expected = _expected_shapes(
        payload, header["parameters"], {name: (*shape, 0)[0] for name, shape in shapes.items()}
    )
    for name, shape in shapes.items():
        require(
            shape == expected[name], f"its section {name!r} has shape {shape}, not {expected[name]}"
        )
    return header, payload


def _expected_shapes(
    payload: Payload, parameters: dict[str, Any], lengths: dict[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each section, by the payload and the lengths of sections."""
    n = payload.ntotal
    codes = lengths.get("label_codes", 0)
    has_texts = lengths.get("label_ends", 0) > 0
    shapes: dict[str, tuple[int, ...]] = {
        "labels": (n,),
        "label_codes": (codes,),
        "label_ends": (codes * has_texts,),
        "label_kinds": (codes * has_texts,),
        "label_keys": (lengths.get("label_keys", 0) if has_texts else 8 * codes,),
    }
    if "centroids" not in lengths:
        return shapes
    nlist = len(payload.sizes)
    further = lengths["centroids"]
    entries = lengths["route_lists"]
    clusters = lengths["region_means"]
    calibrations = lengths.get("calibrations", 0)
    is_routed = parameters["routing"] == "evidence" and n > 0
    length = payload.d + (is_routed and parameters.get("metric", "cosine") != "cosine")
    return shapes | {
        "vectors": (n, payload.d),
        "list_checksums": (nlist, 2),
        "centroids": (further, nlist, payload.d),
        "references": (further, n),
        "reference_starts": (further * nlist + 1,),
        "route_means": ((further + 1) * nlist * is_routed, length),
        "route_filled": (lengths["route_means"],),
        "route_labels": (lengths["route_labels"],),
        "route_starts": (lengths["route_labels"] + 1,),
        "route_lists": (entries,),
        "route_entry_filled": (entries,),
        "route_entry_means": (entries, length),
        "region_means": (clusters, payload.d),
        "region_starts": (clusters + 1,),
        "region_lists": (lengths["route_means"] if clusters else 0,),
        "calibrations": (calibrations, 4),
        "calibration_classes": (lengths.get("calibration_classes", 0), 3),
        "calibration_starts": (calibrations + 1,),
    }


# --- sections -------------------------------------------------------------------------------------


def _read_sections(
    file: BinaryIO, sections: list[dict[str, Any]], mapped: bool
) -> dict[str, Array]:
    """Return the arrays of all sections, by name."""
    first = min((section["offset"] for section in sections), default=0)
    size = max((section["offset"] + _size_of(section) for section in sections), default=0) - first
    if mapped and size:
        # One map: each keeps a descriptor of the file open. Copy-on-write ("c"): the file stays as
        # it is.
        content = np.asarray(np.memmap(file, np.uint8, "c", first, (size,)))
    arrays = {}
    for section in sections:
        start = section["offset"]
        length = _size_of(section)
        if mapped and length:
            raw = content[start - first : start - first + length]
        else:
            raw = np.empty(length, np.uint8)
            file.seek(start)
            cast(Any, file).readinto(raw.data)
        array: Array = raw.view(section["dtype"]).reshape(section["shape"])
        arrays[section["name"]] = (
            array if mapped else array.astype(array.dtype.newbyteorder("="), copy=False)
        )
    return arrays


def _check_checksums(header: dict[str, Any], arrays: Arrays, names: Iterable[str]) -> None:
    checksums = {section["name"]: section["crc32"] for section in header["sections"]}
    for name in sorted(names):
        require(
            zlib.crc32(_as_bytes(arrays[name])) == checksums[name],
            f"the checksum of its section {name!r} does not match",
        )


def check_payload(file: BinaryIO, header: dict[str, Any]) -> None:
    """Raise ValueError unless the checksums of all stored vectors match."""
    require(
        checksum(file, size=header["payload"]["size"]) == header["payload"]["crc32"],
        "the checksum of its vectors does not match",
    )
    for section in header["sections"]:
        is_stored = section["name"] in _VECTORS
        require(
            not is_stored
            or checksum(file, section["offset"], _size_of(section)) == section["crc32"],
            f"the checksum of its section {section['name']!r} does not match",
        )


def _as_bytes(array: Array) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _check_lists(payload: Payload, arrays: Arrays) -> None:
    """Raise ValueError unless centroids and list boundaries of supplementary partitions are valid.

    O(lists).
    """
    if "centroids" not in arrays:
        return
    require(np.isfinite(arrays["centroids"]).all(), "its centroids are not finite")
    starts = arrays["reference_starts"]
    borders = starts[:: max(1, len(payload.sizes))]  # an untrained index may have no lists
    require(
        (starts[1:] >= starts[:-1]).all()
        and (borders == np.arange(len(borders)) * payload.ntotal).all(),
        "the lists of its supplementary partitions do not hold each vector once",
    )


def _check_calibrations(arrays: Arrays, nlist: int) -> None:
    """Raise ValueError unless calibrations are valid for an index with ``nlist`` lists.

    Lists of all partitions count.
    """
    if "calibrations" not in arrays:
        return
    calibrations, starts, classes = (arrays[name] for name in _CALIBRATIONS)
    k, recall, batched, other = calibrations.T
    label, nprobe, reached = classes.T
    lists = np.concatenate([other, nprobe])
    whole = np.concatenate([k, lists, label])
    valid = (
        starts[0] == 0
        and starts[-1] == len(classes)
        and (starts[1:] >= starts[:-1]).all()
        and np.isfinite(whole).all()
        and (whole == np.floor(whole)).all()
        and (k >= 1).all()
        and (k <= 1 << 62).all()
        and ((recall > 0) & (recall < 1)).all()
        and ((batched == 0) | (batched == 1)).all()
        and ((lists >= 1) & (lists <= nlist)).all()
        and ((label >= 0) & (label < _MAX_LABEL)).all()
        and ((reached >= 0) & (reached <= 1)).all()
    )
    require(valid, "its calibrations are not valid")


def _check_rows(payload: Payload, arrays: Arrays) -> None:
    """Raise ValueError unless labels and references are valid; O(partitions * n)."""
    labels = arrays["labels"]
    n = payload.ntotal
    if n and (labels.min() < UNKNOWN or labels.max() >= _MAX_LABEL):
        raise ValueError(
            f"its labels lie in {labels.min()}..{labels.max()}, not in {UNKNOWN}..{_MAX_LABEL - 1}"
        )
    codes = arrays.get("label_codes", labels[:0])
    require(
        not len(codes) or np.isin(np.unique(labels), np.append(codes, UNKNOWN)).all(),
        "its labels have no names",
    )
    falls = np.flatnonzero(labels[1:] < labels[:-1]) + 1
    require(
        "centroids" not in arrays or np.isin(falls, np.cumsum(payload.sizes)).all(),
        "its labels are not in ascending order within each list",
    )
    check_references(arrays.get("references", np.empty((0, n), np.int32)), n)


def _check_routes(arrays: Arrays) -> None:
    """Raise ValueError unless the class centroids are valid; O(lists + entries)."""
    if "route_means" not in arrays:
        return
    starts = arrays["route_starts"]
    labels = arrays["route_labels"]
    lists = arrays["route_lists"]
    require(
        not len(lists) or (lists.min() >= 0 and lists.max() < len(arrays["route_means"])),
        "its routes lead to lists that it does not have",
    )
    flags = np.concatenate([arrays["route_filled"], arrays["route_entry_filled"]])
    falls = np.flatnonzero(lists[1:] <= lists[:-1]) + 1
    in_order = (
        (starts[1:] >= starts[:-1]).all()
        and (labels[1:] > labels[:-1]).all()
        and np.isin(falls, starts).all()
    )
    require(
        in_order and starts[0] == 0 and starts[-1] == len(lists) and (flags <= 1).all(),
        "its routes are not in order",
    )
    borders = arrays["region_starts"]
    members = arrays["region_lists"]
    require(
        borders[0] == 0 and borders[-1] == len(members) and (borders[1:] >= borders[:-1]).all(),
        "its clusters are not in order",
    )
    require(
        np.array_equal(np.sort(members), np.arange(len(members))),
        "its clusters do not hold each list once",
    )


# --- writing --------------------------------------------------------------------------------------


def _append_footer(
    file: BinaryIO, kind: str, parameters: dict[str, Any], arrays: dict[str, Array]
) -> None:
    size = file.seek(0, os.SEEK_END)
    structure = read_payload(kind, file, size, parameters["metric"]).start
    checksums = {
        "crc32": checksum(file, size=size),
        "structure_crc32": checksum(file, size=structure),
    }
    file.seek(size)
    sections = []
    for name, array in arrays.items():
        file.write(bytes(-file.tell() % _ALIGNMENT))
        dtype = array.dtype.newbyteorder("<")
        little = _as_bytes(np.ascontiguousarray(array, dtype))
        sections.append(
            {
                "name": name,
                "dtype": dtype.str,
                "shape": array.shape,
                "offset": file.tell(),
                "crc32": zlib.crc32(little),
            }
        )
        file.write(little)
    header = {
        "format": _FORMAT,
        "version": _KINDS_VERSION if "label_kinds" in arrays else _VERSION,
        "kind": kind,
        "parameters": parameters,
        "payload": {"size": size, **checksums},
        "sections": sections,
    }
    encoded = json.dumps(header).encode()
    start = file.tell()
    file.write(encoded)
    file.write(_TRAILER.pack(start, len(encoded), zlib.crc32(encoded), MAGIC))
