"""Opening of regular files for reading; a pipe would block forever."""

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises
    ------
    ValueError
        If ``path`` is not a regular file, for example a pipe or a folder.
    OSError
        If the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe would block until it has a writer
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} must be a regular file")
    return os.fdopen(descriptor, "rb")
