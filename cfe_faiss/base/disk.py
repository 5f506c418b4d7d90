"""Files on disk: memory-mapped arrays, which may be larger than memory; locks and checksums."""

import fcntl
import math
import mmap
import os
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cfe_faiss.base.checks import Floats


def release(*arrays: Any) -> None:
    """Free the memory of memory maps and of views of them. Their values stay in the files.

    Pages of a map that were read stay in memory until the system runs short of it. Other arrays are
    ignored.

    Examples
    --------
    >>> release(np.ones(3))
    """
    for array in arrays:
        mapped = _map_of(array)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def releasing(*arrays: Any) -> Callable[[], None] | None:
    """Return a function that releases the memory maps among ``arrays``; None without any."""
    mapped = [array for array in arrays if _map_of(array) is not None]
    return (lambda: release(*mapped)) if mapped else None


def _map_of(array: Any) -> mmap.mmap | None:
    base = array
    private = False
    while isinstance(base, np.ndarray):
        # Changes to a copy-on-write map exist in memory only and would be lost.
        private = private or getattr(base, "mode", None) == "c"
        base = base.base
    return base if isinstance(base, mmap.mmap) and not private else None


@contextmanager
def scratch(
    folder: str | os.PathLike[str], shape: tuple[int, int], count: int
) -> Iterator[list[Floats]]:
    """Yield ``count`` float32 matrices in temporary files of ``folder``, removed at the end.

    Raises
    ------
    OSError
        If the folder does not exist or its disk is full.
    """
    with tempfile.TemporaryDirectory(prefix="cfe-faiss-", dir=folder) as place:
        yield [_create(Path(place) / f"{number}.f32", shape) for number in range(count)]


def _create(path: Path, shape: tuple[int, int]) -> Floats:
    size = 4 * shape[0] * shape[1]
    with path.open("wb") as file:
        # Reserve the space: a write to a map on a full disk ends the process.
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    return np.memmap(path, dtype=np.float32, mode="r+", shape=shape)


# --- regular files --------------------------------------------------------------------------------

_BLOCK = 1 << 24


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises
    ------
    ValueError
        If ``path`` is not a regular file, for example a pipe or a folder.
    OSError
        If the file cannot be opened.
    """
    # a pipe would block until it has a writer
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} must be a regular file")
    return os.fdopen(descriptor, "rb")


def lock(descriptor: int, *, wait: bool) -> None:
    """Lock an open file for this process until it is closed.

    Raises
    ------
    BlockingIOError
        If another process holds the lock, and ``wait`` is False.
    OSError
        If the file system does not support locks.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, against processes and threads; wait if it is taken."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            with suppress(OSError):  # some file systems do not support locks
                lock(descriptor, wait=True)
            yield
        finally:  # unlock and close: either one suffices after an interrupt
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def checksum(file: BinaryIO, start: int = 0, size: float = math.inf) -> int:
    """Return the CRC-32 of ``size`` bytes of a file from byte ``start``.

    By default up to the end.
    """
    file.seek(start)
    crc = 0
    while size > 0 and (block := file.read(int(min(size, _BLOCK)))):
        crc = zlib.crc32(block, crc)
        size -= len(block)
    return crc
