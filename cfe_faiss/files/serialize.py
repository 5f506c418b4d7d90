"""Evidence indexes as bytes in the layout of index files, in streams of FAISS and Python, and as copies."""

from __future__ import annotations

import io
import os
from typing import Any, cast

import faiss
import numpy as np

from cfe_faiss.base.arrays import Bytes
from cfe_faiss.files import footer
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.rows.faiss_functions import clone_stock, read_stock, stock_bytes, stock_from

_SOURCE = "data"
_BLOCK = 1 << 20  # bytes that are read from a stream at once


def serialize_index(index: EvidenceIndex) -> Bytes:
    """Serialize an evidence index to bytes, including labels and partitions.

    The bytes equal the file that :func:`cfe_faiss.write_index` writes. Stock ``faiss.deserialize_index`` also reads
    them, as the stock index.

    Parameters
    ----------
    index
        Evidence index of any kind. Serializing a mapped inverted file loads its lists into memory.

    Returns
    -------
    (n,) uint8

    Raises
    ------
    TypeError
        If ``index`` is not an evidence index.
    ValueError
        If ``index`` has an unsupported component, such as another quantizer.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels(np.eye(2), [0, 1])
    >>> data = cfe.serialize_index(index)
    >>> cfe.deserialize_index(data).search_stored(k=1)[1]
    array([[1],
           [0]])
    >>> faiss.deserialize_index(data).ntotal
    2
    """
    footer.kind_of(index)
    file = io.BytesIO()
    footer.write(index, file, _SOURCE)
    return np.frombuffer(file.getbuffer(), np.uint8)


def deserialize_index(data: Bytes | bytes | bytearray | memoryview) -> EvidenceIndex:
    """Return an evidence index from the bytes of :func:`serialize_index` or of an index file.

    Parameters
    ----------
    data
        Bytes, (n,) uint8 or ``bytes``. They are checked completely and copied.

    Returns
    -------
    EvidenceIndex
        Index of the original kind, with the same results.

    Raises
    ------
    TypeError
        If ``data`` is not bytes.
    ValueError
        If ``data`` is not an evidence index, is damaged, or has another format version.
    """
    return read_bytes(_as_bytes(data).tobytes(), _SOURCE)


def read_bytes(data: bytes, source: str) -> EvidenceIndex:
    """Return an evidence index from the bytes of a file; ``source`` is their name in errors."""
    return footer.read(io.BytesIO(data), source, lambda file, _: read_stock(faiss.PyCallbackIOReader(file.read)))


def clone_index(index: EvidenceIndex) -> EvidenceIndex:
    """Return a copy of an evidence index, including labels and partitions.

    ``faiss.clone_index`` returns the stock index without these, unless :func:`cfe_faiss.register` is in force.

    Parameters
    ----------
    index
        Evidence index of any kind. The copy of a mapped or read-only index is in memory and writable.

    Returns
    -------
    EvidenceIndex
        Index of the same kind, with the same results and settings.

    Raises
    ------
    TypeError
        If ``index`` is not an evidence index.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels(np.eye(2), [0, 1])
    >>> copy = cfe.clone_index(index)
    >>> index.relabel([1, 1])
    >>> copy.search_stored(k=1)[1]
    array([[1],
           [0]])
    """
    cls = footer.KINDS[footer.kind_of(index)]
    with index.holding():
        stock, parameters, arrays = index.parts()
        # FAISS's clone of a mapped index would stay mapped.
        clone = stock_from(stock_bytes(stock)) if index.refusal else clone_stock(stock)
        arrays = {name: array.copy() for name, array in arrays.items()}
    copy = cls.__new__(cls)
    copy.restore(clone, parameters, arrays)
    return cast(EvidenceIndex, copy)


def _as_bytes(data: Any) -> Bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        data = np.frombuffer(data, np.uint8)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        got = f"{data.dtype} of shape {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise TypeError(f"data must be bytes or a uint8 array of shape (n,), got {got}")
    return data


def is_stream(target: Any, method: str) -> bool:
    """Return whether ``target`` is an object of FAISS or Python to read from or write to, with this method."""
    if isinstance(target, io.TextIOBase):
        raise TypeError(f"path must be a path, a binary file or a stream of faiss, got the text file {target!r}")
    if isinstance(target, str | os.PathLike):
        return False
    return isinstance(target, faiss.IOWriter if method == "write" else faiss.IOReader) or hasattr(target, method)


def write_all(data: Bytes, target: Any) -> None:
    """Write all bytes to a stream; raise OSError if it takes fewer."""
    left = data.data
    while left:
        if isinstance(target, faiss.IOWriter):
            count = target(faiss.swig_ptr(np.frombuffer(left, np.uint8)), 1, len(left))
        else:
            count = target.write(left)
        if not count:
            raise OSError(f"{target!r} took {len(data) - len(left)} of {len(data)} bytes")
        left = left[count:]


def read_all(source: Any) -> bytes:
    """Return all bytes of a stream, from its position to its end."""
    block = np.empty(_BLOCK, np.uint8)

    def read() -> Any:
        if isinstance(source, faiss.IOReader):
            return block[: source(faiss.swig_ptr(block), 1, _BLOCK)].tobytes()
        return source.read(_BLOCK)

    return b"".join(iter(read, b""))
