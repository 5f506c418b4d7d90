"""How every compiled kernel of the package is compiled: on first use, cached on disk, without the GIL."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

# Sums may be reordered, so that they use vector registers; NaN, infinities and signed zeros keep their meaning.
_REORDER = {"reassoc", "contract", "arcp"}


def kernel(function: Function) -> Function:
    """Compile ``function`` with strict IEEE arithmetic: the same bits wherever it is inlined."""
    return cast(Function, numba.njit(function, cache=True, nogil=True, error_model="numpy"))


def fast_kernel(function: Function) -> Function:
    """Compile ``function`` with sums that may be reordered: fastest, reproducible to rounding only."""
    return cast(Function, numba.njit(function, cache=True, nogil=True, error_model="numpy", fastmath=_REORDER))
