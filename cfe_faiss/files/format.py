"""Atomic writes, reads and memory maps of index files; the layout is in :mod:`cfe_faiss.files.footer`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import faiss

from cfe_faiss.files import footer, validate
from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import check_outputs
from cfe_faiss.files.regular import open_regular
from cfe_faiss.files.serialize import is_stream, read_all, read_bytes, serialize_index, write_all
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.rows.faiss_functions import read_stock

_WITHOUT_EFFECT = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE | faiss.IO_FLAG_PQ_SKIP_SDC_TABLE


def write_index(index: EvidenceIndex, path: Any, *, overwrite: bool = False) -> None:
    """Write an evidence index to a file, which stock ``faiss.read_index`` can also open.

    The write to a path is atomic: the file is renamed to ``path`` when it is complete and synced. An interrupted write
    leaves the previous file; a temporary file may remain until the next write. An index mapped from ``path`` keeps the
    old file.

    Parameters
    ----------
    index
        Evidence index of any kind. Writing a mapped inverted file loads its lists into memory.
    path
        Path of the file. An existing file of an evidence index is replaced. For a symbolic link, the target is
        replaced. Or a stream: a ``faiss.IOWriter`` or a binary file of Python, such as ``io.BytesIO``. It gets all
        bytes of the file at once, which are built in memory.
    overwrite
        Whether to replace a file that this package has not written. Not for a stream.

    Raises
    ------
    TypeError
        If ``index`` is not an evidence index, or ``path`` is a text file.
    ValueError
        If ``index`` has an unsupported component, such as another quantizer. If this package has not written the file
        at ``path``, and ``overwrite`` is False. If another index or array is mapped from it; the index that was read
        from ``path`` may be written back.
    OSError
        If the file cannot be written.
    """
    footer.kind_of(index)
    if is_stream(path, "write"):
        if overwrite:
            raise ValueError("overwrite must be left out for a stream, got True")
        write_all(serialize_index(index), path)
        return
    check_outputs([Path(path)], overwrite=overwrite, origins=index.origins)
    write_file(index, Path(path), overwrite=overwrite)
    index.origins = (*index.origins[:1], Path(path).resolve())


def write_file(index: EvidenceIndex, path: Path, *, overwrite: bool = False, like: Path | None = None) -> None:
    """Write an evidence index to a file; ``like`` as of :func:`cfe_faiss.files.new_file.new_files`."""
    with new_file(path, overwrite=overwrite, like=like) as file:
        footer.write(index, file, path)


def read_index(path: Any, io_flags: int = 0) -> EvidenceIndex:
    """Read or memory-map an evidence index written by :func:`write_index`.

    Reading into memory checks the whole file first. Mapping checks header and structure on opening, labels and
    partitions on first use, and each list of an inverted file on its first read. The vectors of a mapped exact index
    and of files of version 0.2 are not checked: call :func:`verify_index` for untrusted files.

    Parameters
    ----------
    path
        Path of the file, or a stream: a ``faiss.IOReader`` or a binary file of Python. A stream is read from its
        position to its end, into memory.
    io_flags
        FAISS's flags, combined by ``|``:

        ``faiss.IO_FLAG_MMAP``, ``faiss.IO_FLAG_MMAP_IFC``
            Map the vectors from the file, for any kind of index; the system loads the pages that a search reads. The
            index is read-only. Do not write to the file while it is mapped; replacing it, as :func:`write_index` does,
            is safe. A stream cannot be mapped.
        ``faiss.IO_FLAG_READ_ONLY``
            Make the index read-only, even in memory.
        ``faiss.IO_FLAG_ONDISK_SAME_DIR``, ``faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE``, ``faiss.IO_FLAG_PQ_SKIP_SDC_TABLE``
            No effect: evidence indexes do not have these features.

    Returns
    -------
    EvidenceIndex
        Index of the same kind, with the same results. Changes of a mapped or read-only index raise RuntimeError.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is not an evidence index, is damaged, or has another format version; or for other flags. Deferred
        checks (see above) raise it on first use.

    Notes
    -----
    Mapping an inverted file takes O(lists) time. For a mapped exact index, FAISS reads all ids into a hash table.
    """
    mapped, read_only = _parse_flags(io_flags)
    if is_stream(path, "read"):
        if mapped:
            raise ValueError(f"io_flags must not ask to map a stream, got {io_flags:#x}")
        index = read_bytes(read_all(path), repr(path))
    else:
        with open_regular(Path(path)) as file:
            index = footer.read(file, Path(path), partial(_read_part, mapped=mapped), mapped=mapped)
        index.origins = (Path(path).resolve(),)
    if mapped or read_only:
        how = "mapped" if mapped else "read with IO_FLAG_READ_ONLY"
        index.refusal = f"the index is {how} from {path} and cannot be changed; read it without flags to change it"
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
    with open_regular(source) as file, footer.naming(source):
        header, _ = footer.read_structure(file, source)
        footer.check_payload(file, header)
    index = read_index(source, faiss.IO_FLAG_MMAP)
    with footer.naming(source):
        validate.check_rows(index.storage())


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header of an index file.

    Parameters
    ----------
    path
        Path of the file.

    Returns
    -------
    dict
        "format", "version", "kind", "parameters", "payload" and "sections", as in the header of the file.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is not an evidence index, has a damaged header, or has another format version.
    """
    source = Path(path)
    with open_regular(source) as file, footer.naming(source):
        return footer.read_header(file, source)


# --- FAISS's part -----------------------------------------------------------------------------------------------------


def _parse_flags(io_flags: int) -> tuple[bool, bool]:
    """Return whether to map the file, and whether the index is read-only."""
    # IO_FLAG_MMAP has several bits, including the bit of IO_FLAG_SKIP_IVF_DATA.
    by_lists = io_flags & faiss.IO_FLAG_MMAP == faiss.IO_FLAG_MMAP
    rest = io_flags & ~faiss.IO_FLAG_MMAP if by_lists else io_flags
    if rest & ~(faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY | _WITHOUT_EFFECT):
        raise ValueError(
            f"io_flags must combine IO_FLAG_MMAP, IO_FLAG_MMAP_IFC and IO_FLAG_READ_ONLY of faiss, got {io_flags:#x}"
        )
    return by_lists or bool(rest & faiss.IO_FLAG_MMAP_IFC), bool(rest & faiss.IO_FLAG_READ_ONLY)


def _read_part(file: BinaryIO, cls: Any, mapped: bool) -> Any:
    # Open by descriptor: FAISS reads the file that was checked, even if the path was replaced since.
    by_lists = issubclass(cls, faiss.IndexIVF)
    flags = faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE  # our index computes its own
    if mapped:
        flags |= faiss.IO_FLAG_MMAP if by_lists else faiss.IO_FLAG_MMAP_IFC
    return read_stock(f"/dev/fd/{file.fileno()}", flags)
