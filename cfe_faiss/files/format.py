"""Index files, written as a whole or not at all, read or mapped; their layout: :mod:`cfe_faiss.files.footer`."""

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
from cfe_faiss.index.protocol import EvidenceIndex

_WITHOUT_EFFECT = faiss.IO_FLAG_ONDISK_SAME_DIR | faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE | faiss.IO_FLAG_PQ_SKIP_SDC_TABLE


def write_index(index: EvidenceIndex, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write an evidence index to a file that stock ``faiss.read_index`` opens, too.

    The file takes its name when it is complete and synced: an interrupted write leaves what was at ``path`` before, and
    nothing else (at worst until the next write there); an index that is mapped from there goes on seeing the old file.

    Parameters
    ----------
    index
        Evidence index of any kind. The lists of a mapped inverted file are loaded into memory for it.
    path
        Path of the file. The file of another evidence index is replaced; of a symbolic link, the file that it points
        to.
    overwrite
        Whether to replace a file that this package has not written.

    Raises
    ------
    TypeError
        If ``index`` is not an evidence index.
    ValueError
        If something in ``index`` was replaced by what evidence indexes do not support, such as another quantizer. If
        this package has not written the file at ``path``, and ``overwrite`` is False. If another index, or an array, is
        mapped from it; the index that was read from ``path`` may be written back.
    OSError
        If the file cannot be written.
    """
    footer.kind_of(index)
    target = Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder, the index must be written to a file")
    check_outputs([target], overwrite=overwrite, origins=index.origins)
    with new_file(target, overwrite=overwrite) as file:
        footer.write(index, file, target)
    index.origins = (*index.origins[:1], target)


def read_index(path: str | os.PathLike[str], io_flags: int = 0) -> EvidenceIndex:
    """Read an evidence index that :func:`write_index` wrote, or map it from its file.

    Read into memory, everything in the file is checked first. Mapped, header and structure are checked on opening,
    labels and partitions when they are first used, and each list of an inverted file when it is first read. The vectors
    of a mapped exact index are not checked, nor those in files of version 0.2: use :func:`verify_index` where such a
    file is not trusted.

    Parameters
    ----------
    path
        The file.
    io_flags
        FAISS's own flags, combined by ``|``:

        ``faiss.IO_FLAG_MMAP``, ``faiss.IO_FLAG_MMAP_IFC``
            Leave the vectors in the file, in any kind of index, and let the system page in what is searched.
            Such an index cannot be changed. The file must not be written to while it is mapped; replacing it, as
            :func:`write_index` does, is no trouble.
        ``faiss.IO_FLAG_READ_ONLY``
            Refuse changes, also of an index that is read into memory.
        ``faiss.IO_FLAG_ONDISK_SAME_DIR``, ``faiss.IO_FLAG_SKIP_PRECOMPUTE_TABLE``, ``faiss.IO_FLAG_PQ_SKIP_SDC_TABLE``
            Nothing: they are about things that evidence indexes do not have.

    Returns
    -------
    EvidenceIndex
        Of the kind that was written, with the same results. Changing a mapped or read-only index raises RuntimeError.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not an evidence index, is damaged, or is of another format version; or on any other flag. What is
        checked on first use (see above) raises it then.

    Notes
    -----
    O(lists) for a mapped inverted file. FAISS reads the ids of a mapped exact index and makes a hash table of them.
    """
    mapped, read_only = _understood(io_flags)
    source = Path(path)
    with open_regular(source) as file:
        index = footer.read(file, source, partial(_read_stock, mapped=mapped), mapped=mapped)
    index.origins = (source.resolve(),)
    if mapped or read_only:
        how = "mapped" if mapped else "read with IO_FLAG_READ_ONLY"
        index.refusal = f"the index is {how} from {source} and cannot be changed; read it without flags to change it"
    return index


def verify_index(path: str | os.PathLike[str]) -> None:
    """Check everything in the file of an evidence index, without loading it into memory.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not an evidence index, is damaged, or is of another format version.
    """
    source = Path(path)
    with open_regular(source) as file, footer.naming(source):
        header, _ = footer.read_structure(file, source)
        footer.check_payload(file, header)
    index = read_index(source, faiss.IO_FLAG_MMAP)
    with footer.naming(source):
        validate.check_rows(index.storage())


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what the file of an evidence index says of itself.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    dict
        "format", "version", "kind", "parameters", "payload" and "sections", as in the header of the file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not an evidence index, its header is damaged, or it is of another format version.
    """
    source = Path(path)
    with open_regular(source) as file, footer.naming(source):
        return footer.read_header(file, source)


# --- FAISS's part -----------------------------------------------------------------------------------------------------


def _understood(io_flags: int) -> tuple[bool, bool]:
    """Return whether to map the file, and whether to refuse changes."""
    # IO_FLAG_MMAP has several bits, one of them that of IO_FLAG_SKIP_IVF_DATA.
    by_lists = io_flags & faiss.IO_FLAG_MMAP == faiss.IO_FLAG_MMAP
    rest = io_flags & ~faiss.IO_FLAG_MMAP if by_lists else io_flags
    if rest & ~(faiss.IO_FLAG_MMAP_IFC | faiss.IO_FLAG_READ_ONLY | _WITHOUT_EFFECT):
        raise ValueError(
            f"io_flags must combine IO_FLAG_MMAP, IO_FLAG_MMAP_IFC and IO_FLAG_READ_ONLY of faiss, got {io_flags:#x}"
        )
    return by_lists or bool(rest & faiss.IO_FLAG_MMAP_IFC), bool(rest & faiss.IO_FLAG_READ_ONLY)


def _read_stock(file: BinaryIO, cls: Any, mapped: bool) -> Any:
    # By its descriptor, FAISS opens the very file that was checked, even if another one has taken its name since.
    by_lists = issubclass(cls, faiss.IndexIVF)
    flags = 0 if not mapped else faiss.IO_FLAG_MMAP if by_lists else faiss.IO_FLAG_MMAP_IFC
    return faiss.read_index(f"/dev/fd/{file.fileno()}", flags)
