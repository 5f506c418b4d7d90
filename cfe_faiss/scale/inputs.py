"""What a job is given: features, edges and predicted classes, as files that every worker can read by blocks.

Arrays and tensors that lie in no ``.npy`` file are written into the folder of the job, a block at a time, so that
those which are mapped never have to fit into memory; Parquet files are written as arrays there, a row group at a time.
"""

import math
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_array
from cfe_faiss.base.extras import extra
from cfe_faiss.files.new_file import new_file
from cfe_faiss.scale.manifest import digest_of

_BLOCK = 1 << 24  # bytes, about, that are written at once

Source = str | os.PathLike[str] | NDArray[Any] | Any


@dataclass(frozen=True, slots=True)
class Input:
    """A file that a job reads.

    Attributes
    ----------
    path
        Where it is.
    size, modified, digest
        Its bytes, when it was last written (ns), and the BLAKE2 hash of its content.
    """

    path: str
    size: int
    modified: int
    digest: str

    @classmethod
    def of(cls, path: Path) -> "Input":
        """Return a file as it is now."""
        status = path.stat()
        return cls(str(path), status.st_size, status.st_mtime_ns, digest_of(path))

    def array(self) -> NDArray[Any]:
        """Return the array in the file, mapped."""
        array: NDArray[Any] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return array

    def change(self) -> str | None:
        """Return what is different about the file now, or None; its content is read only if its time is another."""
        path = Path(self.path)
        if not path.exists():
            return f"{path} is missing"
        status = path.stat()
        if status.st_size != self.size:
            return f"{path} has {status.st_size} bytes, not {self.size}"
        if status.st_mtime_ns != self.modified and digest_of(path) != self.digest:
            return f"{path} has another content than when the job was made"
        return None

    def as_dict(self) -> dict[str, Any]:
        """Return what the job's file keeps."""
        return asdict(self)


def stored(name: str, source: Source, folder: Path) -> Input:
    """Return the file of an input: the one that is named, or a new one in ``folder`` with what is in an array or table.

    Raises
    ------
    FileNotFoundError
        If a path names no file.
    ValueError
        If a file is neither ``.npy`` nor Parquet.
    TypeError
        If what is given is no array of numbers, or a tensor in a sparse layout.
    """
    path, new = _path_of(source), folder / f"{name}-{secrets.token_hex(8)}.new"
    if path is None:
        return _kept(_copied(name, source, new), name)
    if not path.exists():
        raise FileNotFoundError(f"{name}: there is no file {path}")
    if path.suffix == ".npy":
        return Input.of(path.resolve())
    if path.suffix in (".parquet", ".pq"):
        return _kept(_from_parquet(name, path, new), name)
    raise ValueError(f"{name} must be an array, or a .npy or .parquet file, got {path}")


def paths_of(sources: Iterable[Source | None]) -> list[Path]:
    """Return the files that inputs are read from, those of memory maps among them."""
    names = (getattr(source, "filename", source) for source in sources)
    return [Path(name).resolve() for name in names if isinstance(name, str | os.PathLike)]


def _path_of(source: Source) -> Path | None:
    if isinstance(source, str | os.PathLike):
        return Path(source)
    mapped = source if isinstance(source, np.memmap) else None
    if mapped is None or not isinstance(mapped.filename, Path | str) or not str(mapped.filename).endswith(".npy"):
        return None
    whole = np.load(mapped.filename, mmap_mode="r", allow_pickle=False)
    same = whole.shape == mapped.shape and whole.dtype == mapped.dtype and whole.strides == mapped.strides
    return Path(mapped.filename) if same else None  # a view of a part is an array like others


def _kept(path: Path, name: str) -> Input:
    """Return a new file under a name by its content: no file of another job is replaced."""
    target = path.with_name(f"{name}-{digest_of(path)}.npy")
    if target.exists():
        path.unlink()
    else:
        path.rename(target)
    return Input.of(target)


def _copied(name: str, source: Any, target: Path) -> Path:
    """Write an array, a tensor, or what else has a shape and slices."""
    layout = str(getattr(source, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise TypeError(
            f"{name} must be dense, got a tensor of layout {layout}: edges are an edge_index, or a pair of its row "
            "pointers and column indices"
        )
    if not hasattr(source, "shape"):
        source = as_array(name, source)
    return _written(name, target, tuple(source.shape), _blocks(name, source))


def _blocks(name: str, source: Any) -> Iterator[NDArray[Any]]:
    """Yield an array in parts, in order: some rows, or a part of one where rows are long."""
    shape = tuple(source.shape)
    if not shape or 0 in shape:
        yield _block(name, source[...] if not shape else source)
        return
    width = 8 * math.prod(shape[1:])
    if len(shape) == 2 and width > _BLOCK:
        for row in range(shape[0]):
            for first in range(0, shape[1], _BLOCK // 8):
                yield _block(name, source[row, slice(first, first + _BLOCK // 8)])
        return
    height = max(1, _BLOCK // width)
    for first in range(0, shape[0], height):
        yield _block(name, source[first : first + height])


def _block(name: str, values: Any) -> NDArray[Any]:
    try:
        return as_array(name, values)
    except TypeError as error:
        if isinstance(values, np.ndarray) or str(error).startswith(name):
            raise
        raise TypeError(f"{name} must hold real numbers of a type that NumPy has: {error}") from error


def _written(name: str, path: Path, shape: tuple[int, ...], blocks: Iterator[NDArray[Any]]) -> Path:
    """Write blocks, in order, as one array of the first one's type."""
    first = next(blocks)
    with new_file(path, overwrite=False) as file:
        header = {"descr": np.lib.format.dtype_to_descr(first.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        size = 0
        for block in chain([first], blocks):
            size += block.size
            file.write(np.ascontiguousarray(block, first.dtype).data)
        if size != math.prod(shape):
            raise ValueError(f"{name} must have shape {shape}, got {size} numbers")
    return path


def _from_parquet(name: str, path: Path, target: Path) -> Path:
    """Write the columns of a Parquet file as one array: (rows,) of one column, else (rows, columns)."""
    with extra("store"):
        import pyarrow.parquet as pq
    with pq.ParquetFile(path) as table:
        blocks = (_columns(name, table.read_row_group(group)) for group in range(table.num_row_groups))
        first = next(blocks, None)
        if first is None:
            raise ValueError(f"{name} must hold rows, got an empty {path}")
        return _written(name, target, (table.metadata.num_rows, *first.shape[1:]), chain([first], blocks))


def _columns(name: str, table: Any) -> NDArray[Any]:
    columns = []
    for column in table.columns:
        flat = column.combine_chunks()
        values = flat.flatten() if hasattr(flat, "flatten") and flat.type.num_fields else flat
        if values.null_count:
            raise ValueError(f"{name} must have no missing values, got {values.null_count}")
        array = values.to_numpy(zero_copy_only=False)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} must hold numbers, got a column of {column.type}")
        columns.append(array.reshape(len(column), -1) if flat.type.num_fields else array[:, None])
    matrix = np.concatenate(columns, axis=1)
    return matrix[:, 0] if matrix.shape[1] == 1 else matrix
