"""Arrays that grow at their end without being copied each time."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)


def appended(array: NDArray[T], more: NDArray[T]) -> NDArray[T]:
    """Return ``array`` with ``more`` behind it, (n + m,): a view of a larger array, which the next one may share.

    What lies behind a view is seen by nobody, so that it may be written over: only the newest of several arrays that
    share their memory may be appended to, which is so where a change that fails is followed by another one. O(m)
    where there is room, and over many calls.
    """
    n, m = len(array), len(more)
    room = array.base
    if not isinstance(room, np.ndarray) or room.dtype != array.dtype or len(room) < n + m or not _begins(room, array):
        room = np.empty(n + m + (n + m) // 2 if n else m, array.dtype)
        room[:n] = array
    room[n : n + m] = more
    view: NDArray[T] = room[: n + m]
    return view


def _begins(room: NDArray[Any], array: NDArray[Any]) -> bool:
    return room.ctypes.data == array.ctypes.data and room.strides == array.strides


def objects(values: list[Any]) -> NDArray[np.object_]:
    """Return a list as an array of objects, whatever they are."""
    array = np.empty(len(values), object)
    array[:] = values
    return array
