"""FAISS's factory and file functions for evidence indexes, while :func:`register` is in force."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from cfe_faiss.files.footer import MAGIC
from cfe_faiss.files.format import deserialize_index, is_stream, read_all, read_index, write_index
from cfe_faiss.files.regular import open_regular
from cfe_faiss.index.factory import index_factory

_lock = threading.Lock()
_stock: dict[str, Callable[..., Any]] = {}
"""The functions that :func:`register` has replaced."""
_registered = False


def register() -> None:
    """Teach functions of ``faiss`` about evidence indexes, for code that calls them.

    :func:`unregister` undoes it.

    ``faiss.index_factory`` then takes the descriptions of :func:`cfe_faiss.index_factory`, with
    FAISS's metrics: "l2" by default, or ``faiss.METRIC_INNER_PRODUCT``. ``faiss.write_index``,
    ``faiss.read_index``, ``faiss.clone_index``, ``faiss.serialize_index`` and
    ``faiss.deserialize_index`` keep the classes of evidence indexes. All of them treat other
    indexes as before, but read a ``faiss.IOReader`` to its end. Further calls have no effect.

    Code that copies a function, as ``from faiss import index_factory`` does, must be imported after
    the call.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> cfe.register()
    >>> faiss.index_factory(8, "EvidenceIVF16,Flat", faiss.METRIC_INNER_PRODUCT)
    IndexEvidenceIVF(d=8, nlist=16, partitions=1, nprobe=16, metric='ip', ntotal=0)
    >>> cfe.unregister()
    """
    global _registered
    with _lock:
        for name, replacement in _REPLACEMENTS.items():
            current = getattr(faiss, name)
            if current is not replacement:
                _stock[name] = current
                setattr(faiss, name, replacement)
        _registered = True


def unregister() -> None:
    """Undo :func:`register`.

    A function that other code has replaced since then stays, and copies are FAISS's again.
    """
    global _registered
    with _lock:
        for name, replacement in _REPLACEMENTS.items():
            if getattr(faiss, name) is replacement:
                setattr(faiss, name, _stock[name])
        _registered = False


def _is_evidence(index: Any) -> bool:
    return _registered and hasattr(type(index), "search_evidence")


def _make(
    d: int, description: Any, metric: int = faiss.METRIC_L2, *args: Any, **kwargs: Any
) -> Any:
    if _registered and isinstance(description, str) and "Evidence" in description:
        return index_factory(d, description, metric, *args, **kwargs)
    return _stock["index_factory"](d, description, metric, *args, **kwargs)


def _held_classes(index: Any) -> Any:
    """Return the evidence index with classes that a stock index searches through.

    None if there is none.
    """
    if isinstance(index, faiss.IndexIVF):  # an evidence index as quantizer needs no classes
        return None
    for part in getattr(index, "referenced_objects", ()):
        held = part if _is_evidence(part) and _has_classes(part) else _held_classes(part)
        if held is not None:
            return held
    return None


def _has_classes(index: Any) -> bool:
    try:
        return len(getattr(index, "evidence", index).label_names) > 0
    except RuntimeError:  # a wrapper has added vectors without classes
        return False


def _write(index: Any, target: Any, io_flags: int = 0) -> None:
    held = None if _is_evidence(index) else _held_classes(index)
    if held is not None:
        raise TypeError(
            f"index must keep its classes in the file, but a {type(index).__name__} over {held!r} "
            f"loses them: write "
            "the evidence index itself, or call cfe_faiss.unregister() first"
        )
    if not _is_evidence(index):
        _stock["write_index"](index, target, io_flags)
        return
    if io_flags != 0:
        raise ValueError(f"io_flags must be 0 for {type(index).__name__}, got {io_flags:#x}")
    write_index(index, target, overwrite=not is_stream(target, "write"))  # FAISS replaces any file


def _read(source: Any, io_flags: int = 0) -> Any:
    if _registered and isinstance(source, str) and _has_footer(source):
        return read_index(source, io_flags)
    if _registered and isinstance(source, faiss.IOReader):
        data = read_all(source)
        if data.endswith(MAGIC):
            return deserialize_index(data)
        source = faiss.VectorIOReader()
        faiss.copy_array_to_vector(np.frombuffer(data, np.uint8), source.data)
    return _stock["read_index"](source, io_flags)


def _has_footer(path: str) -> bool:
    """Return whether a regular file ends as the file of an evidence index."""
    try:
        with open_regular(Path(path)) as file:
            file.seek(-len(MAGIC), os.SEEK_END)
            return file.read() == MAGIC
    except (OSError, ValueError):  # FAISS names the problem
        return False


def _clone(index: Any) -> Any:
    if not _is_evidence(index):
        return _stock["clone_index"](index)
    return copy.deepcopy(index)


_REPLACEMENTS = {
    "index_factory": _make,
    "write_index": _write,
    "read_index": _read,
    "clone_index": _clone,
}
