"""Regular files: opened for reading, their checksums, and locks.

A pipe would block a reader forever.
"""

import fcntl
import math
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

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
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    )  # a pipe would block until it has a writer
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
