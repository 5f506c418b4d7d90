"""Opening files for reading: regular files only, since a pipe in their place would never answer."""

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises
    ------
    ValueError
        If ``path`` is something else, such as a pipe or a folder.
    OSError
        If the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # else a pipe waits for its writer
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} must be a regular file")
    return os.fdopen(descriptor, "rb")
