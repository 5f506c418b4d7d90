"""Layout of an index file: the output of FAISS, followed by a footer with the data that FAISS does not store.

Layout, all integers little-endian::

    payload    output of faiss.write_index; stock FAISS reads it and ignores the rest
    sections   raw C-ordered arrays, each at a multiple of 64 bytes from the start of the file
    header     JSON (UTF-8): format, version, kind, parameters, payload (size, CRC-32, and CRC-32 of its structure: all
               before the first stored vector), and name, dtype, shape, offset and CRC-32 of every section
    trailer    24 bytes: header offset (8), header size (8), header CRC-32 (4), magic b"CFE1" (4)
"""

import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import faiss
import numpy as np

from cfe_faiss._native import ListChecks
from cfe_faiss.base.arrays import Array
from cfe_faiss.files import validate
from cfe_faiss.files.faiss_payload import DamageError, Payload, read_payload
from cfe_faiss.files.regular import checksum
from cfe_faiss.index.flat import IndexEvidenceFlat, IndexEvidenceIDMap2, has_positions
from cfe_faiss.index.ivf import IndexEvidenceIVF, IndexEvidenceIVFPQ, IndexEvidenceIVFScalarQuantizer
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.rows.faiss_functions import write_stock

MAGIC = b"CFE1"
"""Last bytes of a file of an evidence index."""
_FORMAT = "cfe_faiss"
_VERSION, _KINDS_VERSION = 6, 7  # the second one for labels that are booleans or of several kinds
_FIRST_VERSION = 2
"""Oldest readable version. Its files have no checksum per list; files before version 4 keep nothing of `prepare`, and
files before version 5 hold integer labels below 2**31 - 1; before version 6 all indexes compare by cosine; before
version 7 labels are integers or texts."""
_TRAILER = struct.Struct("<QQI4s")
_MAX_HEADER = 1 << 20
KINDS: dict[str, Any] = {
    "EvidenceFlat": IndexEvidenceFlat,
    "EvidenceIDMap2": IndexEvidenceIDMap2,
    "EvidenceIVF": IndexEvidenceIVF,
    "EvidenceIVFScalarQuantizer": IndexEvidenceIVFScalarQuantizer,
    "EvidenceIVFPQ": IndexEvidenceIVFPQ,
}
Source = Path | str
"""What a file is called in an error."""


def write(index: EvidenceIndex, file: BinaryIO, source: Source) -> None:
    """Write an evidence index, already checked by :func:`kind_of`, to an empty file."""
    with index.holding() as snapshot:
        stock, parameters, arrays = index.parts()
        if "centroids" in arrays:
            arrays["list_checksums"] = snapshot.native.checksums().reshape(-1, 2)
        write_stock(stock, faiss.PyCallbackIOWriter(file.write))  # FAISS's own writer ignores a full disk
        try:
            _append_footer(file, kind_of(index), parameters, arrays)
            read_structure(file, source)
        except DamageError as error:
            raise ValueError(f"the index is not as evidence indexes must be: {error}") from error


def read(
    file: BinaryIO, source: Source, read_stock: Callable[[BinaryIO, Any], Any], *, mapped: bool = False
) -> EvidenceIndex:
    """Read an evidence index, or map it from its file.

    ``read_stock`` takes the file and the class of the index, and returns FAISS's part.
    """
    with naming(source):
        header, payload = read_structure(file, source)
        if not mapped:
            check_payload(file, header)
        read_section = _map_sections(file, header["sections"]) if mapped else partial(_read_section, file)
        arrays = {section["name"]: read_section(section) for section in header["sections"]}
        _check_sections(header, arrays, arrays.keys() & set(validate.ON_OPENING))
        validate.check_label_keys(arrays)
        validate.check_lists(payload, arrays)
        validate.check_calibrations(arrays, len(payload.sizes) * (1 + len(arrays.get("centroids", ()))))
        stock = _from_faiss(file, KINDS[header["kind"]], read_stock)
    cls = _class_of(header["kind"], stock)
    index = cls.__new__(cls)
    index.restore(stock, header["parameters"], arrays, _row_check(header, payload, arrays, source))
    if mapped and "list_checksums" in arrays:
        checks = ListChecks(str(source), arrays["list_checksums"].reshape(-1))
        index.checks = [checks], np.zeros(len(payload.sizes), np.int64)
    if not mapped:
        with naming(source):
            validate.check_rows(index.storage())
        index.prepare_again()
    return cast(EvidenceIndex, index)


def kind_of(index: Any) -> str:
    """Return the name of the kind of an evidence index in files; raise TypeError for other objects."""
    kind = next((name for name, cls in KINDS.items() if isinstance(index, cls)), None)
    if kind is None:
        parts = "; write index.evidence, and each transform by faiss.write_VectorTransform"
        hint = parts if hasattr(index, "evidence") else ""
        raise TypeError(f"index must be an evidence index, got {type(index).__name__}{hint}")
    return kind


# --- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def naming(source: Source) -> Iterator[None]:
    """Convert a DamageError into a ValueError that names the file."""
    try:
        yield
    except DamageError as error:
        raise ValueError(f"{source} is damaged: {error}") from error


def read_header(file: BinaryIO, source: Source) -> dict[str, Any]:
    """Return the header of the file, checked."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TRAILER.size))
    tail = file.read(_TRAILER.size)
    if len(tail) < _TRAILER.size or tail[-4:] != MAGIC:
        raise ValueError(
            f"{source} is not an evidence index, or was cut short: its footer is missing. A stock FAISS index has "
            "none; adopt it by IndexEvidenceIVF.from_stock(faiss.read_index(path), labels), or from_stock of the class "
            "of its kind"
        )
    start, length, expected, _ = _TRAILER.unpack(tail)
    if start + length + _TRAILER.size != size or length > _MAX_HEADER:
        raise DamageError(f"its header should lie at bytes {start} to {start + length} of {size}")
    file.seek(start)
    encoded = file.read(length)
    if zlib.crc32(encoded) != expected:
        raise DamageError("the checksum of its header does not match")
    try:
        header = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise DamageError(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT or type(header.get("version")) is not int:
        raise DamageError("its header does not name the format and its version")
    if not _FIRST_VERSION <= header["version"] <= _KINDS_VERSION:
        known = f"this cfe_faiss reads versions {_FIRST_VERSION} to {_KINDS_VERSION}"
        raise ValueError(f"{source} has format version {header['version']}, {known}")
    validate.check_header(header, start)
    return header


def read_structure(file: BinaryIO, source: Source) -> tuple[dict[str, Any], Payload]:
    """Return the header and the structure of the payload, checked against each other."""
    header = read_header(file, source)
    metric = header["parameters"].get("metric", "cosine")
    payload = read_payload(header["kind"], file, header["payload"]["size"], metric)
    if checksum(file, size=payload.start) != header["payload"]["structure_crc32"]:
        raise DamageError("the checksum of the structure of its lists does not match")
    validate.check_shapes(header["kind"], payload, header)
    return header, payload


def _map_sections(file: BinaryIO, sections: list[dict[str, Any]]) -> Callable[[dict[str, Any]], Array]:
    """Map all sections, and return a function that returns the array of one.

    Each map keeps a descriptor of the file open, and an index may have many files, so they share one.
    """
    first = min((section["offset"] for section in sections), default=0)
    size = max((section["offset"] + _size_of(section) for section in sections), default=0) - first
    # Copy-on-write ("c"): writes to the arrays never reach the file.
    content = np.asarray(np.memmap(file, np.uint8, "c", first, (size,))) if size else np.empty(0, np.uint8)

    def read(section: dict[str, Any]) -> Array:
        start = section["offset"] - first
        array: Array = content[start : start + _size_of(section)].view(section["dtype"])
        return array.reshape(section["shape"])

    return read


def _size_of(section: dict[str, Any]) -> int:
    size: int = math.prod(section["shape"]) * np.dtype(section["dtype"]).itemsize
    return size


def _read_section(file: BinaryIO, section: dict[str, Any]) -> Array:
    array = np.empty(tuple(section["shape"]), np.dtype(section["dtype"]))
    file.seek(section["offset"])
    cast(Any, file).readinto(_as_bytes(array))
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_sections(header: dict[str, Any], arrays: dict[str, Array], names: Iterable[str]) -> None:
    checksums = {section["name"]: section["crc32"] for section in header["sections"]}
    for name in sorted(names):
        if zlib.crc32(_as_bytes(arrays[name])) != checksums[name]:
            raise DamageError(f"the checksum of its section {name!r} does not match")


def _row_check(
    header: dict[str, Any], payload: Payload, arrays: dict[str, Array], source: Source
) -> Callable[[], None]:
    def check() -> None:
        with naming(source):
            _check_sections(header, arrays, arrays.keys() - {*validate.ON_OPENING, *validate.VECTORS})
            validate.check_row_sections(payload, arrays)
            validate.check_routes(arrays)

    return check


def _from_faiss(file: BinaryIO, cls: Any, read_stock: Callable[[BinaryIO, Any], Any]) -> Any:
    file.seek(0)
    try:
        return read_stock(file, cls)
    except RuntimeError as error:
        raise DamageError(f"FAISS does not read it: {error}") from error


def _class_of(kind: str, stock: Any) -> Any:
    """Return the class of an index. The exact indexes of earlier versions were of one kind, with or without ids."""
    cls = KINDS[kind]
    return IndexEvidenceIDMap2 if cls is IndexEvidenceFlat and not has_positions(stock) else cls


def check_payload(file: BinaryIO, header: dict[str, Any]) -> None:
    """Raise DamageError unless the checksums of all stored vectors match."""
    if checksum(file, size=header["payload"]["size"]) != header["payload"]["crc32"]:
        raise DamageError("the checksum of its vectors does not match")
    for section in header["sections"]:
        is_stored = section["name"] in validate.VECTORS
        if is_stored and checksum(file, section["offset"], _size_of(section)) != section["crc32"]:
            raise DamageError(f"the checksum of its section {section['name']!r} does not match")


def _as_bytes(array: Array) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


# --- writing ----------------------------------------------------------------------------------------------------------


def _append_footer(file: BinaryIO, kind: str, parameters: dict[str, Any], arrays: dict[str, Array]) -> None:
    size = file.seek(0, os.SEEK_END)
    structure = read_payload(kind, file, size, parameters["metric"]).start
    checksums = {"crc32": checksum(file, size=size), "structure_crc32": checksum(file, size=structure)}
    file.seek(size)
    sections = []
    for name, array in arrays.items():
        file.write(bytes(-file.tell() % validate.ALIGNMENT))
        little = _as_bytes(np.ascontiguousarray(array, array.dtype.newbyteorder("<")))
        sections.append(
            {
                "name": name,
                "dtype": array.dtype.newbyteorder("<").str,
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
