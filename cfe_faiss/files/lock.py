"""Locks on files and folders, on systems that support them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows
    HAS_LOCKS = False
else:
    HAS_LOCKS = True


def lock(descriptor: int, *, wait: bool) -> None:
    """Lock an open file for this process until it is closed. Do nothing on systems without locks.

    Raises
    ------
    BlockingIOError
        If another process holds the lock, and ``wait`` is False.
    OSError
        If the file system does not support locks.
    """
    if HAS_LOCKS:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on a folder, against processes and threads; wait if it is taken."""
    if not HAS_LOCKS:  # Windows also cannot open folders
        yield
        return
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
