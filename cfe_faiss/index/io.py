"""Index files: what FAISS writes, followed by a footer with what stock FAISS does not keep.

Layout, all integers little-endian::

    payload    what faiss.write_index writes; stock FAISS reads it and ignores the rest
    sections   raw C-ordered arrays, each at a multiple of 64 bytes from the start of the file
    header     JSON (UTF-8): format, version, kind, parameters, payload size and CRC-32, and name, dtype, shape, offset
               and CRC-32 of every section
    trailer    24 bytes: header offset (8), header size (8), header CRC-32 (4), magic b"CFE1" (4)
"""

import json
import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO, cast

import faiss
import numpy as np
from numpy.typing import NDArray

from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.ivf import IndexEvidenceIVF

_MAGIC = b"CFE1"
_VERSION = 1
_TRAILER = struct.Struct("<QQI4s")
_ALIGNMENT = 64
_BLOCK = 1 << 24
_KINDS: dict[str, Any] = {"EvidenceFlat": IndexEvidenceFlat, "EvidenceIVF": IndexEvidenceIVF}


def write_index(index: IndexEvidenceFlat | IndexEvidenceIVF, path: str | os.PathLike[str]) -> None:
    """Write an evidence index to a file that stock ``faiss.read_index`` opens, too.

    The file is written beside ``path`` under a temporary name, synced and renamed: an interrupted write leaves what was
    at ``path`` before.

    Parameters
    ----------
    index
        Evidence index of either kind.
    path
        Where to. An existing file is replaced.

    Raises
    ------
    TypeError
        If ``index`` is not an evidence index.
    OSError
        If the file cannot be written.
    """
    kind = next((name for name, cls in _KINDS.items() if isinstance(index, cls)), None)
    if kind is None:
        raise TypeError(f"index must be an IndexEvidenceFlat or IndexEvidenceIVF, got {type(index).__name__}")
    target = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        faiss.write_index(index, str(temporary))
        with temporary.open("r+b") as file:
            _append_footer(file, kind, *index._extras())
            file.flush()
            os.fsync(file.fileno())
        _allow_as_umask(temporary)
        temporary.replace(target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def read_index(path: str | os.PathLike[str]) -> IndexEvidenceFlat | IndexEvidenceIVF:
    """Read an evidence index that :func:`write_index` wrote.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    IndexEvidenceFlat or IndexEvidenceIVF
        Whichever was written, with the same results.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not an evidence index, is damaged, or comes from a newer version.
    """
    source = Path(path)
    with source.open("rb") as file:
        header = _read_header(file, source)
        arrays = {section["name"]: _read_section(file, section, source) for section in header["sections"]}
        _check_payload(file, header, source)
    index = faiss.read_index(str(source))
    cls = _KINDS[header["kind"]]
    if not isinstance(index, cls.__mro__[1]):
        raise ValueError(
            f"{source} is damaged: its header says {header['kind']}, its payload is {type(index).__name__}"
        )
    index.__class__ = cls
    index._restore(header["parameters"], arrays)
    return cast(IndexEvidenceFlat | IndexEvidenceIVF, index)


def _append_footer(file: BinaryIO, kind: str, parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    size = file.seek(0, os.SEEK_END)
    checksum = _checksum(file, size)
    file.seek(size)
    sections = []
    for name, array in arrays.items():
        file.write(bytes(-file.tell() % _ALIGNMENT))
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        sections.append(
            {
                "name": name,
                "dtype": little.dtype.str,
                "shape": little.shape,
                "offset": file.tell(),
                "crc32": zlib.crc32(little.data if little.size else b""),
            }
        )
        file.write(little.data if little.size else b"")
    header = {
        "format": "cfe_faiss",
        "version": _VERSION,
        "kind": kind,
        "parameters": parameters,
        "payload": {"size": size, "crc32": checksum},
        "sections": sections,
    }
    encoded = json.dumps(header).encode()
    start = file.tell()
    file.write(encoded)
    file.write(_TRAILER.pack(start, len(encoded), zlib.crc32(encoded), _MAGIC))


def _read_header(file: BinaryIO, source: Path) -> dict[str, Any]:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TRAILER.size))
    tail = file.read(_TRAILER.size)
    if len(tail) < _TRAILER.size or tail[-4:] != _MAGIC:
        raise ValueError(
            f"{source} is not an evidence index, or was cut short: its footer is missing. A stock FAISS index has "
            "none; read that with faiss.read_index and add its vectors to a new evidence index with their labels"
        )
    start, length, checksum, _ = _TRAILER.unpack(tail)
    if start + length + _TRAILER.size != size:
        raise ValueError(f"{source} is damaged: its header should end at byte {start + length} of {size}")
    file.seek(start)
    encoded = file.read(length)
    if zlib.crc32(encoded) != checksum:
        raise ValueError(f"{source} is damaged: the checksum of its header does not match")
    header: dict[str, Any] = json.loads(encoded)
    if header["version"] > _VERSION:
        raise ValueError(f"{source} has format version {header['version']}, this cfe_faiss reads up to {_VERSION}")
    if header["kind"] not in _KINDS:
        raise ValueError(f"{source} holds an index of unknown kind {header['kind']!r}")
    return header


def _read_section(file: BinaryIO, section: dict[str, Any], source: Path) -> NDArray[Any]:
    shape, dtype = tuple(section["shape"]), np.dtype(section["dtype"])
    file.seek(section["offset"])
    data = file.read(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    if zlib.crc32(data) != section["crc32"]:
        raise ValueError(f"{source} is damaged: the checksum of its section {section['name']!r} does not match")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _check_payload(file: BinaryIO, header: dict[str, Any], source: Path) -> None:
    if _checksum(file, header["payload"]["size"]) != header["payload"]["crc32"]:
        raise ValueError(f"{source} is damaged: the checksum of its vectors does not match")


def _checksum(file: BinaryIO, size: int) -> int:
    file.seek(0)
    checksum = 0
    while size > 0 and (block := file.read(min(size, _BLOCK))):
        checksum = zlib.crc32(block, checksum)
        size -= len(block)
    return checksum


def _allow_as_umask(path: Path) -> None:
    # mkstemp makes files for the owner alone; the result should be as readable as any file that the user writes.
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
