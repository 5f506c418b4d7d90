"""Index files: what FAISS writes, followed by a footer with what stock FAISS does not keep.

Layout, all integers little-endian::

    payload    what faiss.write_index writes; stock FAISS reads it and ignores the rest
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
from pathlib import Path
from typing import Any, BinaryIO, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss.files import validate
from cfe_faiss.files.faiss_payload import DamageError, Payload, read_payload
from cfe_faiss.files.new_file import new_file
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.index.ivf_pq import IndexEvidenceIVFPQ
from cfe_faiss.index.ivf_sq import IndexEvidenceIVFScalarQuantizer
from cfe_faiss.index.kinds import EvidenceIndex

_MAGIC = b"CFE1"
_FORMAT = "cfe_faiss"
_VERSION = 2
_TRAILER = struct.Struct("<QQI4s")
_MAX_HEADER = 1 << 20
_BLOCK = 1 << 24
_KINDS: dict[str, Any] = {
    "EvidenceFlat": IndexEvidenceFlat,
    "EvidenceIVF": IndexEvidenceIVF,
    "EvidenceIVFScalarQuantizer": IndexEvidenceIVFScalarQuantizer,
    "EvidenceIVFPQ": IndexEvidenceIVFPQ,
}
_WITHOUT_EFFECT = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE | faiss.IO_FLAG_PQ_SKIP_SDC_TABLE


def write_index(index: EvidenceIndex, path: str | os.PathLike[str]) -> None:
    """Write an evidence index to a file that stock ``faiss.read_index`` opens, too.

    The file takes its name when it is complete and synced: an interrupted write leaves what was at ``path`` before, and
    nothing else (at worst until the next write there); an index that is mapped from there goes on seeing the old file.

    Parameters
    ----------
    index
        Evidence index of any kind. The lists of a mapped inverted file are loaded into memory for it.
    path
        Where to. An existing file is replaced; of a symbolic link, the file that it points to.

    Raises
    ------
    TypeError
        If ``index`` is not an evidence index.
    ValueError
        If something in ``index`` was replaced by what evidence indexes do not support, such as another quantizer.
    OSError
        If the file cannot be written.
    """
    kind = next((name for name, cls in _KINDS.items() if isinstance(index, cls)), None)
    if kind is None:
        raise TypeError(f"index must be an evidence index, got {type(index).__name__}")
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder, the index must be written to a file")
    with new_file(target) as file, index._lock.reading():
        stock, parameters, arrays = index._parts()
        _write_payload(stock, file)
        _append_footer(file, kind, parameters, arrays)
        _check_written(file, target)


def read_index(path: str | os.PathLike[str], io_flags: int = 0) -> EvidenceIndex:
    """Read an evidence index that :func:`write_index` wrote, or map it from its file.

    Read into memory, everything in the file is checked first. Mapped, header and structure are checked on opening,
    labels and partitions when they are first used, and vectors and ids not at all, since that would read the whole
    file: use :func:`verify_index` where a file is not trusted.

    Parameters
    ----------
    path
        The file.
    io_flags
        FAISS's own flags, combined by ``|``:

        ``faiss.IO_FLAG_MMAP``, ``faiss.IO_FLAG_MMAP_IFC``
            Leave the vectors in the file, in any kind of index, and let the system page in what is searched.
            Such an index cannot be changed. The file must not be written to while it is mapped; replacing it, as
            :func:`write_index` does, is no trouble.
        ``faiss.IO_FLAG_READ_ONLY``
            Refuse changes, also of an index that is read into memory.
        ``faiss.IO_FLAG_ONDISK_SAME_DIR``, ``faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE``, ``faiss.IO_FLAG_PQ_SKIP_SDC_TABLE``
            Nothing: they are about things that evidence indexes do not have.

    Returns
    -------
    EvidenceIndex
        Of the kind that was written, with the same results. Changing a mapped or read-only index raises RuntimeError.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not an evidence index, is damaged, or is of another format version; or on any other flag. What is
        checked on first use (see above) raises it then.

    Notes
    -----
    O(lists) for a mapped inverted file. FAISS reads the ids of a mapped exact index and makes a hash table of them.
    """
    mapped, read_only = _understood(io_flags)
    source = Path(path)
    with source.open("rb") as file, _naming(source):
        header, payload = _read_structure(file, source)
        if not mapped:
            _check_payload(file, header)
        arrays = {section["name"]: _read_section(file, section, mapped) for section in header["sections"]}
        _check_sections(header, arrays, arrays.keys() & set(validate.ON_OPENING))
        validate.check_lists(payload, arrays)
        index = _from_faiss(file, header["kind"], mapped)
    index._restore(header["parameters"], arrays)
    index._unchecked = _row_check(header, payload, arrays, source)
    if not mapped:
        with _naming(source):
            validate.check_rows(index.storage())
    if mapped or read_only:
        how = "mapped" if mapped else "read with IO_FLAG_READ_ONLY"
        index._refusal = f"the index is {how} from {source} and cannot be changed; read it without flags to change it"
    return cast(EvidenceIndex, index)


def verify_index(path: str | os.PathLike[str]) -> None:
    """Check everything in the file of an evidence index, without loading it into memory.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not an evidence index, is damaged, or is of another format version.
    """
    source = Path(path)
    with source.open("rb") as file, _naming(source):
        header, _ = _read_structure(file, source)
        _check_payload(file, header)
    index = read_index(source, faiss.IO_FLAG_MMAP)
    with _naming(source):
        validate.check_rows(index.storage())


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what the file of an evidence index says of itself.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    dict
        "format", "version", "kind", "parameters", "payload" and "sections", as in the header of the file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not an evidence index, its header is damaged, or it is of another format version.
    """
    source = Path(path)
    with source.open("rb") as file, _naming(source):
        return _read_header(file, source)


# --- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def _naming(source: Path) -> Iterator[None]:
    try:
        yield
    except DamageError as error:
        raise ValueError(f"{source} is damaged: {error}") from error


def _understood(io_flags: int) -> tuple[bool, bool]:
    """Return whether to map the file, and whether to refuse changes."""
    # IO_FLAG_MMAP has several bits, one of them that of IO_FLAG_SKIP_IVF_DATA.
    by_lists = io_flags & faiss.IO_FLAG_MMAP == faiss.IO_FLAG_MMAP
    rest = io_flags & ~faiss.IO_FLAG_MMAP if by_lists else io_flags
    if rest & ~(faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY | _WITHOUT_EFFECT):
        raise ValueError(
            f"io_flags must combine IO_FLAG_MMAP, IO_FLAG_MMAP_IFC and IO_FLAG_READ_ONLY of faiss, got {io_flags:#x}"
        )
    return by_lists or bool(rest & faiss.IO_FLAG_MMAP_IFC), bool(rest & faiss.IO_FLAG_READ_ONLY)


def _read_header(file: BinaryIO, source: Path) -> dict[str, Any]:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TRAILER.size))
    tail = file.read(_TRAILER.size)
    if len(tail) < _TRAILER.size or tail[-4:] != _MAGIC:
        raise ValueError(
            f"{source} is not an evidence index, or was cut short: its footer is missing. A stock FAISS index has "
            "none; adopt it by IndexEvidenceIVF.from_stock(faiss.read_index(path), labels), or from_stock of the class "
            "of its kind"
        )
    start, length, checksum, _ = _TRAILER.unpack(tail)
    if start + length + _TRAILER.size != size or length > _MAX_HEADER:
        raise DamageError(f"its header should lie at bytes {start} to {start + length} of {size}")
    file.seek(start)
    encoded = file.read(length)
    if zlib.crc32(encoded) != checksum:
        raise DamageError("the checksum of its header does not match")
    try:
        header = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise DamageError(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT or type(header.get("version")) is not int:
        raise DamageError("its header does not name the format and its version")
    if header["version"] != _VERSION:
        raise ValueError(f"{source} has format version {header['version']}, this cfe_faiss reads version {_VERSION}")
    validate.check_header(header, start)
    return header


def _read_structure(file: BinaryIO, source: Path) -> tuple[dict[str, Any], Payload]:
    """Return what the file says of itself and the structure of its payload, both checked against each other."""
    header = _read_header(file, source)
    payload = read_payload(header["kind"], file, header["payload"]["size"])
    if _checksum(file, payload.start) != header["payload"]["structure_crc32"]:
        raise DamageError("the checksum of the structure of its lists does not match")
    validate.check_shapes(header["kind"], payload, header)
    return header, payload


def _read_section(file: BinaryIO, section: dict[str, Any], mapped: bool) -> NDArray[Any]:
    shape, dtype = tuple(section["shape"]), np.dtype(section["dtype"])
    if mapped and math.prod(shape):
        # Private pages ("c"): what might be written to the array would never reach the file.
        return np.asarray(np.memmap(file, dtype, "c", section["offset"], shape))
    array = np.empty(shape, dtype)
    file.seek(section["offset"])
    cast(Any, file).readinto(_as_bytes(array))
    return array.astype(dtype.newbyteorder("="), copy=False)


def _check_sections(header: dict[str, Any], arrays: dict[str, NDArray[Any]], names: Iterable[str]) -> None:
    checksums = {section["name"]: section["crc32"] for section in header["sections"]}
    for name in sorted(names):
        if zlib.crc32(_as_bytes(arrays[name])) != checksums[name]:
            raise DamageError(f"the checksum of its section {name!r} does not match")


def _row_check(
    header: dict[str, Any], payload: Payload, arrays: dict[str, NDArray[Any]], source: Path
) -> Callable[[], None]:
    def check() -> None:
        with _naming(source):
            _check_sections(header, arrays, arrays.keys() - {*validate.ON_OPENING, *validate.VECTORS})
            validate.check_row_sections(payload, arrays)
            validate.check_routes(arrays)

    return check


def _from_faiss(file: BinaryIO, kind: str, mapped: bool) -> Any:
    # By its descriptor, FAISS opens the very file that was checked, even if another one has taken its name since.
    file.seek(0)
    cls = _KINDS[kind]
    by_lists = issubclass(cls, faiss.IndexIVF)
    flags = 0 if not mapped else faiss.IO_FLAG_MMAP if by_lists else faiss.IO_FLAG_MMAP_IFC
    try:
        index = faiss.read_index(f"/dev/fd/{file.fileno()}", flags)
    except RuntimeError as error:
        raise DamageError(f"FAISS does not read it: {error}") from error
    evidence = cls.__new__(cls)
    evidence.this = index.this
    return evidence


def _check_payload(file: BinaryIO, header: dict[str, Any]) -> None:
    if _checksum(file, header["payload"]["size"]) != header["payload"]["crc32"]:
        raise DamageError("the checksum of its vectors does not match")
    for section in header["sections"]:
        if section["name"] in validate.VECTORS:
            size = math.prod(section["shape"]) * np.dtype(section["dtype"]).itemsize
            if _checksum(file, size, section["offset"]) != section["crc32"]:
                raise DamageError(f"the checksum of its section {section['name']!r} does not match")


def _checksum(file: BinaryIO, size: int, start: int = 0) -> int:
    file.seek(start)
    checksum = 0
    while size > 0 and (block := file.read(min(size, _BLOCK))):
        checksum = zlib.crc32(block, checksum)
        size -= len(block)
    return checksum


def _as_bytes(array: NDArray[Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


# --- writing ----------------------------------------------------------------------------------------------------------


def _write_payload(stock: Any, file: BinaryIO) -> None:
    try:
        faiss.write_index(stock, f"/dev/fd/{file.fileno()}")
    except RuntimeError as error:
        raise OSError(f"FAISS could not write the index: {error}") from error


def _append_footer(file: BinaryIO, kind: str, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    size = file.seek(0, os.SEEK_END)
    try:
        structure = read_payload(kind, file, size).start
    except DamageError as error:
        raise ValueError(f"the index is not as evidence indexes must be: {error}") from error
    checksums = {"crc32": _checksum(file, size), "structure_crc32": _checksum(file, structure)}
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
        "version": _VERSION,
        "kind": kind,
        "parameters": parameters,
        "payload": {"size": size, **checksums},
        "sections": sections,
    }
    encoded = json.dumps(header).encode()
    start = file.tell()
    file.write(encoded)
    file.write(_TRAILER.pack(start, len(encoded), zlib.crc32(encoded), _MAGIC))


def _check_written(file: BinaryIO, path: Path) -> None:
    try:
        _read_structure(file, path)
    except DamageError as error:
        raise ValueError(f"the index is not as evidence indexes must be: {error}") from error
