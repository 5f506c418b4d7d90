"""Index files in streams: FAISS's ``IOWriter`` and ``IOReader``, and Python's binary files."""

import io
import os
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 20


def is_stream(target: Any, method: str) -> bool:
    """Return whether ``target`` is an object of FAISS or Python to read from or write to, with this method."""
    if isinstance(target, io.TextIOBase):
        raise TypeError(f"path must be a path, a binary file or a stream of faiss, got the text file {target!r}")
    if isinstance(target, str | os.PathLike):
        return False
    return isinstance(target, faiss.IOWriter if method == "write" else faiss.IOReader) or hasattr(target, method)


def write_all(data: NDArray[np.uint8], target: Any) -> None:
    """Write all bytes to a stream; raise OSError if it takes fewer."""
    write = _writing(target) if isinstance(target, faiss.IOWriter) else target.write
    left = data.data
    while left:
        count = write(left)
        if not count:
            raise OSError(f"{target!r} took {len(data) - len(left)} of {len(data)} bytes")
        left = left[count:]


def read_all(source: Any) -> bytes:
    """Return all bytes of a stream, from its position to its end."""
    read = _reading(source) if isinstance(source, faiss.IOReader) else source.read
    return b"".join(iter(lambda: read(_BLOCK), b""))


def _writing(writer: Any) -> Any:
    return lambda data: writer(faiss.swig_ptr(np.frombuffer(data, np.uint8)), 1, len(data))


def _reading(reader: Any) -> Any:
    block = np.empty(_BLOCK, np.uint8)
    return lambda size: block[: reader(faiss.swig_ptr(block), 1, size)].tobytes()
