"""Inputs of a job as files that workers map, its settings, and the context of a task.

Arrays and tensors without a ``.npy`` file are written into the job's folder block by block, so
memory maps may exceed memory. Parquet files are converted to arrays there, one row group at a time.
"""

import math
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_array
from cfe_faiss.base.extras import extra
from cfe_faiss.data.read import open_parquet
from cfe_faiss.files.forms import BOOLEAN, LARGEST, NATURAL, integer, number, optional, text
from cfe_faiss.files.outputs import new_file
from cfe_faiss.files.records import Record
from cfe_faiss.scale.manifest import DONE, SPECIFICATION, digest_of, path_of_stage

_BLOCK = 1 << 24  # bytes in one write, about

Source = str | os.PathLike[str] | NDArray[Any] | Any


@dataclass(frozen=True, slots=True)
class Input:
    """Input file of a job.

    Attributes
    ----------
    path
        Absolute path.
    size, modified, digest
        Size in bytes, time of the last change in ns, and BLAKE2 hash.
    """

    path: str
    size: int
    modified: int
    digest: str

    @classmethod
    def of(cls, path: Path) -> "Input":
        """Return the current state of a file."""
        status = path.stat()
        return cls(str(path), status.st_size, status.st_mtime_ns, digest_of(path))

    def array(self) -> NDArray[Any]:
        """Return the array in the file, mapped."""
        array: NDArray[Any] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return array

    def change(self) -> str | None:
        """Return how the file changed since the job was made, or None.

        A changed time alone is no change.
        """
        path = Path(self.path)
        if not path.exists():
            return f"{path} is missing"
        status = path.stat()
        if status.st_size != self.size:
            return f"{path} has {status.st_size} bytes, not {self.size}"
        if status.st_mtime_ns != self.modified and digest_of(path) != self.digest:
            return f"{path} has another content than when the job was made"
        return None


@dataclass(frozen=True, slots=True)
class Settings:
    """Size of a job's inputs and the checked parameters of :class:`cfe_faiss.scale.Job`."""

    n: int
    d: int
    num_layers: int
    alpha: float
    directed: bool
    k: int
    recall: float | None
    nlist: int
    shards: int
    block_rows: int
    pairs: int
    threshold: float | None

    @property
    def blocks(self) -> int:
        """Number of blocks of rows."""
        return -(-self.n // self.block_rows)

    def rows(self, block: int) -> tuple[int, int]:
        """Return the first row of a block, and the row after the last."""
        return block * self.block_rows, min(self.n, (block + 1) * self.block_rows)


@dataclass(slots=True)
class Task:
    """Context of a task: job, stage and block, memory limit, and the files it reads and writes.

    Attributes
    ----------
    folder, settings, inputs
        Folder of the job, its settings and input files: ``features``, ``labels``, ``edges`` or
        ``indptr`` and ``indices``, and ``edge_weight`` for weighted graphs.
    memory
        Memory limit in bytes, mapped files not included.
    stage, block
        Stage and block of the task.
    written
        Files the task has written so far.
    """

    folder: Path
    settings: Settings
    inputs: Mapping[str, Input]
    memory: int
    stage: str
    block: int
    written: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path, memory: int, stage: str, block: int) -> "Task":
        """Return the context of a task of the job in a folder."""
        return cls(folder, *read_specification(folder), memory, stage, block)

    def path(self, stage: str, block: int, name: str) -> Path:
        """Return the path of a file that a task of any stage writes."""
        return self.folder / stage / f"{block:06d}.{name}"

    def new(self, path: Path) -> Path:
        """Record that this task writes a file in the folder of a stage; return its path."""
        path_of_stage(self.folder, str(path.relative_to(self.folder)), f"the job in {self.folder}")
        path.parent.mkdir(exist_ok=True)
        self.written.append(path)
        return path

    def write(self, **arrays: NDArray[Any]) -> None:
        """Write each array as a file of this task."""
        for name, array in arrays.items():
            with new_file(
                self.new(self.path(self.stage, self.block, f"{name}.npy")), overwrite=True
            ) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)

    def write_table(self, parts: Iterator[Mapping[str, NDArray[Any]]]) -> None:
        """Write columns, in one part at least, as the Parquet file of this task."""
        with extra("store"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        batches: Iterator[Any] = map(pa.RecordBatch.from_pydict, parts)
        first = next(batches)
        path = self.new(self.path(self.stage, self.block, "parquet"))
        with new_file(path, overwrite=True) as file, pq.ParquetWriter(file, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)

    def read(self, stage: str, block: int, name: str) -> NDArray[Any]:
        """Return an array that a task of any stage wrote, mapped."""
        array: NDArray[Any] = np.load(
            self.path(stage, block, f"{name}.npy"), mmap_mode="r", allow_pickle=False
        )
        return array

    def read_blocks(self, stage: str, name: str) -> Iterator[NDArray[Any]]:
        """Yield the arrays of this name of all blocks of rows, mapped."""
        return (self.read(stage, block, name) for block in range(self.settings.blocks))


_VERSION = 1
_SETTINGS = {
    **dict.fromkeys(("n", "d", "k", "nlist", "shards", "block_rows"), integer(1)),
    "num_layers": integer(0, 1 << 16),
    "alpha": number(0, 1),
    "directed": BOOLEAN,
    "recall": optional(number(0, 1)),
    "pairs": NATURAL,
    "threshold": optional(number(-1, 1)),
}
_INPUT = {
    "path": text(r"/[^\0]*", "an absolute path"),
    "size": NATURAL,
    "modified": integer(-LARGEST),
    "digest": text("[0-9a-f]{32}", "a hash"),
}
_ARRAYS = "edges?", "indptr?", "indices?", "edge_weight?"
_INPUTS = {"features": _INPUT, "labels": _INPUT, **dict.fromkeys(_ARRAYS, _INPUT)}
_RECORD = Record(
    SPECIFICATION, "cfe_faiss job", {_VERSION: {"settings": _SETTINGS, "inputs": _INPUTS}}
)


def write_job(folder: Path, settings: Settings, inputs: Mapping[str, Input]) -> None:
    """Make a job in a folder; ValueError if a setting is out of its range."""
    given = {name: asdict(source) for name, source in inputs.items()}
    (folder / DONE).unlink(missing_ok=True)  # left by another job
    _RECORD.write(folder, _VERSION, {"settings": asdict(settings), "inputs": given})


def read_specification(folder: Path) -> tuple[Settings, dict[str, Input]]:
    """Return the settings and the inputs of the job in a folder.

    Errors as of :meth:`Record.read`.
    """
    content = _RECORD.read(folder)
    inputs = {name: Input(**fields) for name, fields in content["inputs"].items()}
    if inputs.keys() - {"features", "labels", "edge_weight"} not in (
        {"edges"},
        {"indptr", "indices"},
    ):
        raise ValueError(
            f"{folder / SPECIFICATION} is damaged: inputs must name edges, or indptr and indices, "
            f"got {sorted(inputs)}"
        )
    return Settings(**content["settings"]), inputs


# --- conversion of sources ------------------------------------------------------------------------


def store_input(name: str, source: Source, folder: Path, new_files: list[Path]) -> Input:
    """Return the file of an input: the ``.npy`` file, or a file with its content.

    ``new_files`` gets the paths of the files that are written.

    Raises
    ------
    FileNotFoundError
        If a path names no file.
    ValueError
        If a path names no regular file, or one that is neither ``.npy`` nor Parquet.
    TypeError
        If the source is no array of numbers, or a tensor in a sparse layout.
    """
    path = _path_of(source)
    new = folder / f"{name}-{secrets.token_hex(8)}.new"
    new_files.append(new)
    if path is None:
        _copy(name, source, new)
    elif not path.exists():
        raise FileNotFoundError(f"{name}: there is no file {path}")
    elif path.suffix == ".npy":
        return Input.of(path.resolve())
    elif path.suffix in (".parquet", ".pq"):
        _copy_parquet(name, path, new)
    else:
        raise ValueError(f"{name} must be an array, or a .npy or .parquet file, got {path}")
    target = new.with_name(f"{name}-{digest_of(new)}.npy")  # never replaces the file of another job
    if target.exists():
        new.unlink()
    else:
        new_files.append(target)
        new.rename(target)
    return Input.of(target)


def paths_of(sources: Iterable[Source | None]) -> list[Path]:
    """Return the files of sources, including the files of memory maps."""
    names = (getattr(source, "filename", source) for source in sources)
    return [Path(name).resolve() for name in names if isinstance(name, str | os.PathLike)]


def _path_of(source: Source) -> Path | None:
    if isinstance(source, str | os.PathLike):
        return Path(source)
    name = source.filename if isinstance(source, np.memmap) else None
    if not isinstance(name, Path | str) or not str(name).endswith(".npy"):
        return None
    whole = np.load(name, mmap_mode="r", allow_pickle=False)
    same = (
        whole.shape == source.shape
        and whole.dtype == source.dtype
        and whole.strides == source.strides
    )
    return Path(name) if same else None  # copy a view of a part


def _copy(name: str, source: Any, target: Path) -> None:
    """Write an array, a tensor, or another object with a shape and slices."""
    layout = str(getattr(source, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise TypeError(
            f"{name} must be dense, got a tensor of layout {layout}: edges are an edge_index, or a "
            f"pair of its row "
            "pointers and column indices"
        )
    if not hasattr(source, "shape"):
        source = as_array(name, source)
    _write(name, target, tuple(source.shape), (as_array(name, block) for block in _blocks(source)))


def _blocks(source: Any) -> Iterator[Any]:
    """Yield an array in order: several rows at a time, or parts of a long row."""
    shape = tuple(source.shape)
    width = 8 * math.prod(shape[1:])
    if not shape or 0 in shape:
        yield source if shape else source[...]
    elif len(shape) == 2 and width > _BLOCK:
        for row in range(shape[0]):
            for first in range(0, shape[1], _BLOCK // 8):
                yield source[row, slice(first, first + _BLOCK // 8)]
    else:
        height = max(1, _BLOCK // width)
        for first in range(0, shape[0], height):
            yield source[first : first + height]


def _write(name: str, path: Path, shape: tuple[int, ...], blocks: Iterator[NDArray[Any]]) -> None:
    """Write blocks in order as one array with the element type of the first block."""
    first = next(blocks)
    header = {
        "descr": np.lib.format.dtype_to_descr(first.dtype),
        "fortran_order": False,
        "shape": shape,
    }
    with new_file(path, overwrite=False) as file:
        np.lib.format.write_array_header_1_0(file, header)
        size = 0
        for block in chain([first], blocks):
            size += block.size
            file.write(np.ascontiguousarray(block, first.dtype).data)
        if size != math.prod(shape):
            raise ValueError(f"{name} must have shape {shape}, got {size} numbers")


def _copy_parquet(name: str, path: Path, target: Path) -> None:
    """Write columns of a Parquet file as an array: (rows,), or (rows, columns) for several."""
    with open_parquet(path) as table:
        blocks = (
            _columns(name, table.read_row_group(group)) for group in range(table.num_row_groups)
        )
        first = next(blocks, None)
        if first is None:
            raise ValueError(f"{name} must hold rows, got an empty {path}")
        _write(name, target, (table.metadata.num_rows, *first.shape[1:]), chain([first], blocks))


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
