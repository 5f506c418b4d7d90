"""FAISS's methods on an evidence index. Methods that read hold the read lock."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import faiss
import numpy as np

from cfe_faiss.base.arrays import Array
from cfe_faiss.base.checks import as_array
from cfe_faiss.rows.faiss_functions import is_same

T = TypeVar("T", bound=Array)

_NUMERIC_TYPES = {faiss.Float32: np.float32, faiss.Float16: np.float16, faiss.Int8: np.int8}


def lock_method(name: str) -> Callable[..., Any]:
    """Return FAISS's method ``name`` as a method that holds the read lock."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "params" in kwargs:
            kwargs["params"] = self.without_callbacks(kwargs["params"])
        with self._lock.reading():
            self._check_mapped()
            return getattr(self._stock, name)(self, *args, **kwargs)

    of_faiss = getattr(faiss.IndexIVFFlat, name)
    method.__name__, method.__qualname__, method.__doc__ = name, name, of_faiss.__doc__
    return method


def part_of(params: Any, name: str) -> Any:
    """Return the parameters inside of others, as the Python object that was given, if FAISS keeps it."""
    part = getattr(params, name)
    given = (*getattr(params, "_sp_field_refs", {}).values(), *getattr(params, "referenced_objects", ()))
    return next((one for one in given if part is not None and is_same(one, part)), part)


def as_numeric(x: Any, numeric_type: int) -> Any:
    """Round vectors to FAISS's ``numeric_type``, as FAISS's methods do."""
    if numeric_type not in _NUMERIC_TYPES:
        raise ValueError(f"numeric_type must be Float32, Float16 or Int8 of faiss, got {numeric_type!r}")
    if numeric_type == faiss.Float32:
        return x
    return as_array("x", x).astype(_NUMERIC_TYPES[numeric_type])


def written(name: str, result: T, out: Any) -> T:
    """Write a result into the caller's array or tensor ``out``, if given, and return it."""
    if out is None:
        return result
    target = out.numpy() if _is_tensor(out) else out
    if not isinstance(target, np.ndarray) or target.shape != result.shape or target.dtype != result.dtype:
        raise ValueError(f"{name} must be a {result.dtype} array of shape {result.shape}, got {out!r}")
    target[:] = result
    return cast(T, out)


def like(x: Any, result: Any) -> Any:
    """Return a result as a tensor if ``x`` is one and ``faiss.contrib.torch_utils`` is in use, as FAISS does."""
    is_in_use = hasattr(faiss.Index, "search_numpy")  # it patches FAISS's classes
    if not _is_tensor(x) or not is_in_use or not isinstance(result, np.ndarray):
        return result
    import torch

    return torch.from_numpy(result)


def _is_tensor(x: Any) -> bool:
    return hasattr(x, "detach")
