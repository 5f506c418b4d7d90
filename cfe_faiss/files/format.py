"""Evidence indexes as files, streams, bytes and copies, and :func:`register` for FAISS's functions.

The layout is in :mod:`cfe_faiss.files.layout`.

Writes to a path are atomic. Files are read into memory or mapped.
"""

from __future__ import annotations

import copy
import io
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import faiss
import numpy as np

from cfe_faiss.base.checks import Bytes
from cfe_faiss.base.disk import open_regular
from cfe_faiss.files import layout
from cfe_faiss.files.layout import MAGIC
from cfe_faiss.files.outputs import check_outputs, new_file
from cfe_faiss.index.factory import index_factory
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.rows.faiss_functions import clone_stock, read_stock, stock_bytes, stock_from

_BYTES = "data"  # name of bytes in errors
_BLOCK = 1 << 20  # bytes that are read from a stream at once
_WITHOUT_EFFECT = (
    faiss.IO_FLAG_ONDISK_SAME_DIR
    | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE
    | faiss.IO_FLAG_PQ_SKIP_SDC_TABLE
)
_lock = threading.Lock()
_stock: dict[str, Callable[..., Any]] = {}
"""The functions that :func:`register` has replaced."""
_registered = False


def write_index(index: EvidenceIndex, path: Any, *, overwrite: bool = False) -> None:
    """Write an evidence index to a file, which stock ``faiss.read_index`` can also open.

    The write to a path is atomic: the file is renamed to ``path`` when it is complete and synced.
    An interrupted write leaves the previous file; a temporary file may remain until the next write.
    An index mapped from ``path`` keeps the old file.

    Parameters
    ----------
    index
        Evidence index of any kind. Writing a mapped inverted file loads its lists into memory.
    path
        Path of the file. An existing file of an evidence index is replaced. For a symbolic link,
        the target is replaced. Or a stream: a ``faiss.IOWriter`` or a binary file of Python, such
        as ``io.BytesIO``. It gets all bytes of the file at once, which are built in memory.
    overwrite
        Whether to replace a file that this package has not written. Not for a stream.

    Raises
    ------
    TypeError
        If ``index`` is not an evidence index, or ``path`` is a text file.
    ValueError
        If ``index`` has an unsupported component, such as another quantizer. If this package has
        not written the file at ``path``, and ``overwrite`` is False. If another index or array is
        mapped from it; the index that was read from ``path`` may be written back.
    OSError
        If the file cannot be written.
    """
    layout.kind_of(index)
    if is_stream(path, "write"):
        if overwrite:
            raise ValueError("overwrite must be left out for a stream, got True")
        write_all(serialize_index(index), path)
        return
    check_outputs([Path(path)], overwrite=overwrite, origins=index.origins)
    write_file(index, Path(path), overwrite=overwrite)
    index.origins = (*index.origins[:1], Path(path).resolve())


def write_file(
    index: EvidenceIndex, path: Path, *, overwrite: bool = False, like: Path | None = None
) -> None:
    """Write an evidence index to a file.

    ``like`` as of :func:`cfe_faiss.files.outputs.new_files`.
    """
    with new_file(path, overwrite=overwrite, like=like) as file:
        layout.write(index, file, path)


def read_index(path: Any, io_flags: int = 0) -> EvidenceIndex:
    """Read or memory-map an evidence index written by :func:`write_index`.

    Reading into memory checks the whole file first. Mapping checks header and structure on opening,
    labels and partitions on first use, and each list of an inverted file on its first read. The
    vectors of a mapped exact index and of files of version 0.2 are not checked: call
    :func:`verify_index` for untrusted files.

    Parameters
    ----------
    path
        Path of the file, or a stream: a ``faiss.IOReader`` or a binary file of Python. A stream is
        read from its position to its end, into memory.
    io_flags
        FAISS's flags, combined by ``|``:

        ``faiss.IO_FLAG_MMAP``, ``faiss.IO_FLAG_MMAP_IFC``
            Map the vectors from the file, for any kind of index; the system loads the pages that a
            search reads. The index is read-only. Do not write to the file while it is mapped;
            replacing it, as :func:`write_index` does, is safe. A stream cannot be mapped.
        ``faiss.IO_FLAG_READ_ONLY``
            Make the index read-only, even in memory.
        ``IO_FLAG_ONDISK_SAME_DIR``, ``IO_FLAG_SKIP_PRECOMPUTE_TABLE``
            No effect: evidence indexes do not have these features.
        ``IO_FLAG_PQ_SKIP_SDC_TABLE``
            No effect, either.

    Returns
    -------
    EvidenceIndex
        Index of the same kind, with the same results. Changes of a mapped or read-only index raise
        RuntimeError.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is not an evidence index, is damaged, or has another format version; or for
        other flags. Deferred checks (see above) raise it on first use.

    Notes
    -----
    Mapping an inverted file takes O(lists) time. For a mapped exact index, FAISS reads all ids into
    a hash table.
    """
    mapped, read_only = _parse_flags(io_flags)
    if is_stream(path, "read"):
        if mapped:
            raise ValueError(f"io_flags must not ask to map a stream, got {io_flags:#x}")
        index = _read_bytes(read_all(path), repr(path))
    else:
        with open_regular(Path(path)) as file:
            index = layout.read(file, Path(path), partial(_read_part, mapped=mapped), mapped=mapped)
        index.origins = (Path(path).resolve(),)
    if mapped or read_only:
        how = "mapped" if mapped else "read with IO_FLAG_READ_ONLY"
        index.refusal = (
            f"the index is {how} from {path} and cannot be changed; read it without flags to "
            f"change it"
        )
    return index


def verify_index(path: str | os.PathLike[str]) -> None:
    """Check the whole file of an evidence index without loading it into memory.

    Parameters
    ----------
    path
        Path of the file.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is not an evidence index, is damaged, or has another format version.
    """
    source = Path(path)
    with open_regular(source) as file, layout.naming(source):
        header, _ = layout.read_structure(file, source)
        layout.check_payload(file, header)
    storage = read_index(source, faiss.IO_FLAG_MMAP).storage()
    with layout.naming(source):
        storage.check()


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of an index file.

    Parameters
    ----------
    path
        Path of the file.

    Returns
    -------
    dict
        "format", "version", "kind", "parameters", "payload" and "sections", as in the header of the
        file.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is not an evidence index, has a damaged header, or has another format version.
    """
    source = Path(path)
    with open_regular(source) as file, layout.naming(source):
        return layout.read_header(file, source)


# --- bytes and copies -----------------------------------------------------------------------------


def serialize_index(index: EvidenceIndex) -> Bytes:
    """Serialize an evidence index to bytes, including labels and partitions.

    The bytes equal the file that :func:`cfe_faiss.write_index` writes. Stock
    ``faiss.deserialize_index`` also reads them, as the stock index.

    Parameters
    ----------
    index
        Evidence index of any kind. Serializing a mapped inverted file loads its lists into memory.

    Returns
    -------
    (n,) uint8

    Raises
    ------
    TypeError
        If ``index`` is not an evidence index.
    ValueError
        If ``index`` has an unsupported component, such as another quantizer.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels(np.eye(2), [0, 1])
    >>> data = cfe.serialize_index(index)
    >>> cfe.deserialize_index(data).search_stored(k=1)[1]
    array([[1],
           [0]])
    >>> faiss.deserialize_index(data).ntotal
    2
    """
    layout.kind_of(index)
    file = io.BytesIO()
    layout.write(index, file, _BYTES)
    return np.frombuffer(file.getbuffer(), np.uint8)


def deserialize_index(data: Bytes | bytes | bytearray | memoryview) -> EvidenceIndex:
    """Return an evidence index from the bytes of :func:`serialize_index` or of an index file.

    Parameters
    ----------
    data
        Bytes, (n,) uint8 or ``bytes``. They are checked completely and copied.

    Returns
    -------
    EvidenceIndex
        Index of the original kind, with the same results.

    Raises
    ------
    TypeError
        If ``data`` is not bytes.
    ValueError
        If ``data`` is not an evidence index, is damaged, or has another format version.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        data = np.frombuffer(data, np.uint8)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        kind = (
            f"{data.dtype} of shape {data.shape}"
            if isinstance(data, np.ndarray)
            else type(data).__name__
        )
        raise TypeError(f"data must be bytes or a uint8 array of shape (n,), got {kind}")
    return _read_bytes(data.tobytes(), _BYTES)


def _read_bytes(data: bytes, source: str) -> EvidenceIndex:
    return layout.read(
        io.BytesIO(data), source, lambda file, _: read_stock(faiss.PyCallbackIOReader(file.read))
    )


def clone_index(index: EvidenceIndex) -> EvidenceIndex:
    """Return a copy of an evidence index, including labels and partitions.

    ``faiss.clone_index`` returns the stock index without these, unless :func:`cfe_faiss.register`
    is in force.

    Parameters
    ----------
    index
        Evidence index of any kind. The copy of a mapped or read-only index is in memory and
        writable.

    Returns
    -------
    EvidenceIndex
        Index of the same kind, with the same results and settings.

    Raises
    ------
    TypeError
        If ``index`` is not an evidence index.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> index = cfe.IndexEvidenceFlat(2)
    >>> index.add_with_labels(np.eye(2), [0, 1])
    >>> copy = cfe.clone_index(index)
    >>> index.relabel([1, 1])
    >>> copy.search_stored(k=1)[1]
    array([[1],
           [0]])
    """
    cls = layout.KINDS[layout.kind_of(index)]
    with index.holding():
        stock, parameters, arrays = index.parts()
        # FAISS's clone of a mapped index would stay mapped.
        clone = stock_from(stock_bytes(stock)) if index.refusal else clone_stock(stock)
        arrays = {name: array.copy() for name, array in arrays.items()}
    copy = cls.__new__(cls)
    copy.restore(clone, parameters, arrays)
    return cast(EvidenceIndex, copy)


# --- FAISS's part ---------------------------------------------------------------------------------


def _parse_flags(io_flags: int) -> tuple[bool, bool]:
    """Return whether to map the file, and whether the index is read-only."""
    # IO_FLAG_MMAP has several bits, including the bit of IO_FLAG_SKIP_IVF_DATA.
    by_lists = io_flags & faiss.IO_FLAG_MMAP == faiss.IO_FLAG_MMAP
    further_flags = io_flags & ~faiss.IO_FLAG_MMAP if by_lists else io_flags
    if further_flags & ~(faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY | _WITHOUT_EFFECT):
        raise ValueError(
            f"io_flags must combine IO_FLAG_MMAP, IO_FLAG_MMAP_IFC and IO_FLAG_READ_ONLY of faiss, "
            f"got {io_flags:#x}"
        )
    return by_lists or bool(further_flags & faiss.IO_FLAG_MMAP_IFC), bool(
        further_flags & faiss.IO_FLAG_READ_ONLY
    )


def _read_part(file: BinaryIO, cls: Any, mapped: bool) -> Any:
    # Open by descriptor: FAISS reads the file that was checked, even if the path was replaced
    # since.
    by_lists = issubclass(cls, faiss.IndexIVF)
    flags = faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE  # our index computes its own
    if mapped:
        flags |= faiss.IO_FLAG_MMAP if by_lists else faiss.IO_FLAG_MMAP_IFC
    return read_stock(f"/dev/fd/{file.fileno()}", flags)


# --- streams --------------------------------------------------------------------------------------


def is_stream(target: Any, method: str) -> bool:
    """Return whether ``target`` has this method of reading or writing, of FAISS or Python."""
    if isinstance(target, io.TextIOBase):
        raise TypeError(
            f"path must be a path, a binary file or a stream of faiss, got the text file {target!r}"
        )
    if isinstance(target, str | os.PathLike):
        return False
    return isinstance(target, faiss.IOWriter if method == "write" else faiss.IOReader) or hasattr(
        target, method
    )


def write_all(data: Bytes, target: Any) -> None:
    """Write all bytes to a stream; raise OSError if it takes fewer."""
    remaining = data.data
    while remaining:
        if isinstance(target, faiss.IOWriter):
            count = target(faiss.swig_ptr(np.frombuffer(remaining, np.uint8)), 1, len(remaining))
        else:
            count = target.write(remaining)
        if not count:
            raise OSError(f"{target!r} took {len(data) - len(remaining)} of {len(data)} bytes")
        remaining = remaining[count:]


def read_all(source: Any) -> bytes:
    """Return all bytes of a stream, from its position to its end."""
    block = np.empty(_BLOCK, np.uint8)

    def read() -> Any:
        if isinstance(source, faiss.IOReader):
            return block[: source(faiss.swig_ptr(block), 1, _BLOCK)].tobytes()
        return source.read(_BLOCK)

    return b"".join(iter(read, b""))


# --- functions of faiss ---------------------------------------------------------------------------


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
        evidence = part if _is_evidence(part) and _has_classes(part) else _held_classes(part)
        if evidence is not None:
            return evidence
    return None


def _has_classes(index: Any) -> bool:
    try:
        return len(getattr(index, "evidence", index).label_names) > 0
    except RuntimeError:  # a wrapper has added vectors without classes
        return False


def _write(index: Any, target: Any, io_flags: int = 0) -> None:
    evidence = None if _is_evidence(index) else _held_classes(index)
    if evidence is not None:
        raise TypeError(
            f"index must keep its classes in the file, but a {type(index).__name__} over {evidence!r} "
            "loses them: write the evidence index itself, or call cfe_faiss.unregister() first"
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
