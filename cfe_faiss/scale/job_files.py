"""Files in the folder of a job: specification, inputs, finished tasks; and the context of a task.

``job.json`` is written once. ``done.jsonl`` gets a line for each finished task, after its files
have their names. Only the process that runs the job writes to it, under a lock.

Workers map the inputs. Arrays and tensors without a ``.npy`` file are written into the folder block
by block, so memory maps may exceed memory. Parquet files are converted to arrays there, one row
group at a time.
"""

import hashlib
import io
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np

from cfe_faiss.base.checks import Array, as_array
from cfe_faiss.base.disk import checksum, lock, open_regular
from cfe_faiss.base.extras import extra
from cfe_faiss.data.read import open_parquet
from cfe_faiss.files.forms import (
    ANY_MAPPING,
    BOOLEAN,
    CHECKSUM,
    LARGEST,
    NATURAL,
    check,
    integer,
    number,
    optional,
    text,
)
from cfe_faiss.files.outputs import Record, is_ours, new_file, path_within

SPECIFICATION = "job.json"
DONE = "done.jsonl"
_LOCK = ".lock"
_FOLDERS = re.compile(
    r"sort|graph|step-\d+|vectors|train|assign|place|index|tune|evidence|groups|sketch|pairs|top"
    r"|above"
)
_LINE = {
    "stage": text(r"[a-z]+(-\d+)?", "the name of a stage"),
    "block": NATURAL,
    "files": [{"path": text(".+", "a path"), "size": NATURAL, "crc32": CHECKSUM}],
    "result?": ANY_MAPPING,  # of earlier versions
    "seconds": number(0),
    "cpu_seconds": number(0),
    "peak_bytes": NATURAL,
}
"""Form of a line of ``done.jsonl``."""
_BLOCK = 1 << 24  # bytes in one write, about
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

Source = str | os.PathLike[str] | Array | Any
Key = tuple[str, int]
"""Stage and block of a task."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """File of a finished task: path relative to the folder, size in bytes, CRC-32."""

    path: str
    size: int
    crc32: int

    @classmethod
    def of(cls, folder: Path, path: Path) -> "WrittenFile":
        """Return the record of a file in the folder."""
        with open_regular(path) as file:
            return cls(
                str(path.relative_to(folder)), os.fstat(file.fileno()).st_size, checksum(file)
            )

    def is_intact(self, folder: Path) -> bool:
        """Return whether the file is unchanged since it was written; reads it."""
        path = folder / self.path
        return path.is_file() and WrittenFile.of(folder, path) == self


@dataclass(frozen=True, slots=True)
class Finished:
    """Finished task.

    Attributes
    ----------
    stage, block
        Stage and block of the task.
    files
        Files the task wrote.
    seconds, cpu_seconds
        Elapsed time, and processor time of all threads.
    peak_bytes
        Peak memory of the process, including mapped pages in use.
    """

    stage: str
    block: int
    files: tuple[WrittenFile, ...]
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0

    @classmethod
    def parse(cls, folder: Path, line: bytes, source: str) -> "Finished":
        """Return the task of a line of ``done.jsonl``; ``source`` names the line in errors."""
        try:
            entry = json.loads(line)
            check(entry, _LINE)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{source} is damaged: {error}. Remove the line, and its task is done again"
            ) from error
        files = tuple(WrittenFile(**file) for file in entry.pop("files"))
        for file in files:
            path_of_stage(folder, file.path, source)
        entry.pop("result", None)
        return cls(**entry, files=files)

    def line(self) -> bytes:
        """Return the line for ``done.jsonl``."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


def digest_of(path: Path) -> str:
    """Return the BLAKE2 hash of a regular file."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(
            cast(io.BufferedReader, file), lambda: hashlib.blake2b(digest_size=16)
        )
    return digest.hexdigest()


class Manifest:
    """Specification and finished tasks of the job in a folder.

    Parameters
    ----------
    folder
        Folder of the job.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.finished: dict[Key, Finished] = {}
        path = path_within(folder, DONE, f"the job in {folder}")
        content = b""
        if path.exists():
            with open_regular(path) as file:
                content = file.read()
        # The writer of the last line may have ended before the line was complete.
        self.is_torn = content[-1:] not in (b"", b"\n")
        for place, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), 1):
            finished = Finished.parse(folder, line, f"line {place} of {folder / DONE}")
            self.finished[finished.stage, finished.block] = finished

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether a folder holds a job."""
        return is_ours(folder / SPECIFICATION)

    @classmethod
    def check_target(cls, folder: Path, inputs: Iterable[Path], *, overwrite: bool) -> None:
        """Raise ValueError if a new job in a folder would replace inputs or files of others."""
        if cls.exists(folder) or not folder.is_dir():
            return
        names = rf"{SPECIFICATION}|{DONE}|{_FOLDERS.pattern}"
        files = [path for path in folder.iterdir() if re.fullmatch(names, path.name)]
        for path in inputs:
            if {path, *path.parents} & set(files):
                raise ValueError(
                    f"{path} is an input, and the job would write to this place: choose another "
                    f"folder"
                )
        if files and not overwrite:
            raise ValueError(
                f"{files[0]} was not written by a job: choose another folder, or pass "
                f"overwrite=True (--overwrite)"
            )

    # --- finished tasks ---------------------------------------------------------------------------

    def enter(self, finished: Finished) -> None:
        """Append a finished task, and sync the file before returning."""
        with (self.folder / DONE).open("ab") as file:
            file.write(finished.line())
            file.flush()
            os.fsync(file.fileno())
        self.finished[finished.stage, finished.block] = finished

    def forget(self, tasks: Iterable[Key]) -> None:
        """Drop finished tasks whose files are lost or damaged."""
        for task in tasks:
            del self.finished[task]
        with new_file(self.folder / DONE, overwrite=True) as file:
            file.writelines(finished.line() for finished in self.finished.values())

    def of_stage(self, stage: str) -> list[Finished]:
        """Return the finished tasks of a stage in order of their blocks."""
        tasks = [finished for finished in self.finished.values() if finished.stage == stage]
        return sorted(tasks, key=lambda finished: finished.block)

    def find_damaged(self, stage: str) -> list[Key]:
        """Return the finished tasks of a stage that have lost or damaged files; reads all files."""
        tasks = self.of_stage(stage)
        return [
            (stage, task.block)
            for task in tasks
            if not all(file.is_intact(self.folder) for file in task.files)
        ]

    def files(self, stage: str) -> list[Path]:
        """Return the files of a stage in order of its blocks."""
        return [
            self.folder / file.path for finished in self.of_stage(stage) for file in finished.files
        ]

    # --- lock -------------------------------------------------------------------------------------

    @classmethod
    @contextmanager
    def drive(cls, folder: Path) -> Iterator["Manifest"]:
        """Lock a folder, and yield its manifest; RuntimeError if another process runs the job."""
        # The file may belong to somebody else: follow no link, and truncate nothing.
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            try:
                lock(file.fileno(), wait=False)
            except BlockingIOError as error:
                raise RuntimeError(f"another process runs the job in {folder}") from error
            except OSError:
                pass  # some file systems have no locks
            manifest = cls(folder)
            if manifest.is_torn:
                manifest.forget(())  # drops the last line
            yield manifest


def path_of_stage(folder: Path, name: object, source: str) -> Path:
    """Return the path of a file in the folder of a stage, else raise ValueError.

    ``source`` as of `path_within`.
    """
    path = path_within(folder, name, source)
    if not _FOLDERS.fullmatch(path.relative_to(folder).parts[0]):
        raise ValueError(f"{source} must name a file of a stage, got {name!r}")
    return path


# --- inputs and settings --------------------------------------------------------------------------


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

    def array(self) -> Array:
        """Return the array in the file, mapped."""
        return np.lib.format.open_memmap(self.path, mode="r")

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

    def write(self, **arrays: Array) -> None:
        """Write each array as a file of this task."""
        for name, array in arrays.items():
            with new_file(
                self.new(self.path(self.stage, self.block, f"{name}.npy")), overwrite=True
            ) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)

    def write_table(self, parts: Iterator[Mapping[str, Array]]) -> None:
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

    def read(self, stage: str, block: int, name: str) -> Array:
        """Return an array that a task of any stage wrote, mapped."""
        return np.lib.format.open_memmap(self.path(stage, block, f"{name}.npy"), mode="r")

    def read_blocks(self, stage: str, name: str) -> Iterator[Array]:
        """Yield the arrays of this name of all blocks of rows, mapped."""
        return (self.read(stage, block, name) for block in range(self.settings.blocks))


def write_job(folder: Path, settings: Settings, inputs: Mapping[str, Input]) -> None:
    """Make a job in a folder; ValueError if a setting is out of its range."""
    (folder / DONE).unlink(missing_ok=True)  # left by another job
    sources = {name: asdict(source) for name, source in inputs.items()}
    _RECORD.write(folder, _VERSION, {"settings": asdict(settings), "inputs": sources})


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
    whole = np.lib.format.open_memmap(name, mode="r")
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
            "pair of its row pointers and column indices"
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


def _write(name: str, path: Path, shape: tuple[int, ...], blocks: Iterator[Array]) -> None:
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


def _columns(name: str, table: Any) -> Array:
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
