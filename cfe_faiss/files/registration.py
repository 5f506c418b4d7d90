"""FAISS's factory and file functions for evidence indexes, while :func:`register` is in force."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from cfe_faiss.files.footer import MAGIC
from cfe_faiss.files.format import read_index, write_index
from cfe_faiss.files.regular import open_regular
from cfe_faiss.files.serialize import clone_index, deserialize_index, is_stream, read_all
from cfe_faiss.index.factory import index_factory
from cfe_faiss.index.pre_transform import IndexEvidencePreTransform

_Function = Callable[..., Any]
_lock = threading.Lock()
_replaced: dict[str, tuple[_Function, _Function]] = {}
"""The function of FAISS and its replacement, by name; empty unless registered."""


def register() -> None:
    """Teach functions of ``faiss`` about evidence indexes, for code that calls them; :func:`unregister` undoes it.

    ``faiss.index_factory`` then takes the descriptions of :func:`cfe_faiss.index_factory`, with FAISS's metrics: "l2"
    by default, or ``faiss.METRIC_INNER_PRODUCT``. ``faiss.write_index``, ``faiss.read_index``, ``faiss.clone_index``,
    ``faiss.serialize_index`` and ``faiss.deserialize_index`` keep the classes of evidence indexes. All of them treat
    other indexes as before, but read a ``faiss.IOReader`` to its end. Further calls have no effect.

    Code that copies a function, as ``from faiss import index_factory`` does, must be imported after the call.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> cfe.register()
    >>> faiss.index_factory(8, "EvidenceIVF16,Flat", faiss.METRIC_INNER_PRODUCT)
    IndexEvidenceIVF(d=8, nlist=16, partitions=1, nprobe=16, metric='ip', ntotal=0)
    >>> cfe.unregister()
    """
    with _lock:
        if _replaced:
            return
        for name, make in _MAKERS.items():
            stock = getattr(faiss, name)
            replacement = wraps(stock)(make(stock))
            _replaced[name] = stock, replacement
            setattr(faiss, name, replacement)


def unregister() -> None:
    """Undo :func:`register`. A function that other code has replaced since then stays, and copies are FAISS's again."""
    with _lock:
        for name, (stock, replacement) in _replaced.items():
            if getattr(faiss, name) is replacement:
                setattr(faiss, name, stock)
        _replaced.clear()


def _is_evidence(index: Any) -> bool:
    return bool(_replaced) and (hasattr(type(index), "answer_on") or isinstance(index, IndexEvidencePreTransform))


def _make_factory(stock: _Function) -> _Function:
    def factory(*args: Any, **kwargs: Any) -> Any:
        description = args[1] if len(args) > 1 else kwargs.get("description")
        if not _replaced or not isinstance(description, str) or "Evidence" not in description:
            return stock(*args, **kwargs)
        return _evidence_factory(*args, **kwargs)

    return factory


def _evidence_factory(d: int, description: str, metric: Any = faiss.METRIC_L2) -> Any:
    return index_factory(d, description, metric)


def _make_writer(stock: _Function) -> _Function:
    def write(index: Any, *args: Any, **kwargs: Any) -> Any:
        return _write_evidence(index, *args, **kwargs) if _is_evidence(index) else stock(index, *args, **kwargs)

    return write


def _write_evidence(index: Any, target: Any, io_flags: int = 0) -> None:
    if io_flags != 0:
        raise ValueError(f"io_flags must be 0 for {type(index).__name__}, got {io_flags:#x}")
    write_index(index, target, overwrite=not is_stream(target, "write"))  # FAISS replaces any file


def _make_reader(stock: _Function) -> _Function:
    def read(source: Any, *args: Any, **kwargs: Any) -> Any:
        if not _replaced:
            return stock(source, *args, **kwargs)
        if isinstance(source, str):
            return read_index(source, *args, **kwargs) if _is_ours(source) else stock(source, *args, **kwargs)
        if not isinstance(source, faiss.IOReader):
            return stock(source, *args, **kwargs)
        data = read_all(source)
        if data.endswith(MAGIC):
            return deserialize_index(data)
        reader = faiss.VectorIOReader()
        faiss.copy_array_to_vector(np.frombuffer(data, np.uint8), reader.data)
        return stock(reader, *args, **kwargs)

    return read


def _is_ours(path: str) -> bool:
    """Return whether a regular file ends as the file of an evidence index."""
    try:
        with open_regular(Path(path)) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(MAGIC)))
            return file.read() == MAGIC
    except (OSError, ValueError):  # FAISS names the problem
        return False


def _make_clone(stock: _Function) -> _Function:
    def clone(index: Any) -> Any:
        if not _is_evidence(index):
            return stock(index)
        return copy.deepcopy(index) if isinstance(index, IndexEvidencePreTransform) else clone_index(index)

    return clone


_MAKERS = {
    "index_factory": _make_factory,
    "write_index": _make_writer,
    "read_index": _make_reader,
    "clone_index": _make_clone,
}
