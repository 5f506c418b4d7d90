"""Locks on files and folders, on file systems that support them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
