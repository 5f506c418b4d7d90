"""Memory-mapped arrays, which may be larger than memory."""

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
    mapped = [array for array in arrays if is_mapped(array)]
    return (lambda: release(*mapped)) if mapped else None


def is_mapped(array: Any) -> bool:
    """Return whether :func:`release` frees memory of an array."""
    return _map_of(array) is not None


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
