"""Index files in streams: FAISS's ``IOWriter`` and ``IOReader``, and Python's binary files."""

import io
import os
from typing import Any

import faiss
import numpy as np

from cfe_faiss.base.arrays import Bytes

_BLOCK = 1 << 20


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
