"""Locks on files and folders, where the system has them."""

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
    """Lock an open file for this process, until it is closed; where the system has no locks, do nothing.

    Raises
    ------
    BlockingIOError
        If another process holds the lock, and ``wait`` is False.
    OSError
        If the file system has no locks.
    """
    if HAS_LOCKS:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder, threads among them; wait for one that is there."""
    if not HAS_LOCKS:  # nor, on Windows, folders that can be opened
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            with suppress(OSError):  # some file systems have no locks
                lock(descriptor, wait=True)
            yield
        finally:  # an interrupt at one of the two leaves the other, which is enough
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
