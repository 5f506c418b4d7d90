"""One task, as a worker does it: where it reads and writes, and how much memory it may take."""

import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.threads import use_threads
from cfe_faiss.files.new_file import new_file
from cfe_faiss.scale.inputs import Input
from cfe_faiss.scale.manifest import Finished, Manifest, path_of_stage, written_file

Run = Callable[["Work", int], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a job.

    Attributes
    ----------
    name
        What it is called, and the folder of its files.
    blocks
        How many tasks it has.
    run
        What each of them does.
    reads
        The stages whose files it reads.
    """

    name: str
    blocks: int
    run: "Run"
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a job computes, and in which blocks; the parameters are those of :class:`cfe_faiss.scale.Job`."""

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
        """How many blocks of rows there are."""
        return -(-self.n // self.block_rows)

    def rows(self, block: int) -> tuple[int, int]:
        """Return the first row of a block, and the row after its last."""
        return block * self.block_rows, min(self.n, (block + 1) * self.block_rows)


@dataclass(slots=True)
class Work:
    """What a task has at hand.

    Attributes
    ----------
    folder
        Of the job.
    settings
        What the job computes.
    inputs
        Its files: ``features``, ``labels``, and ``edges`` or ``indptr`` and ``indices``.
    memory
        Bytes that the task may take beside mapped files.
    written
        The files that it has written so far.
    """

    folder: Path
    settings: Settings
    inputs: Mapping[str, Input]
    memory: int
    written: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path, memory: int) -> "Work":
        """Return what a task of the job in a folder has at hand."""
        specification = Manifest.specification(folder)
        inputs = {name: Input(**fields) for name, fields in specification["inputs"].items()}
        return cls(folder, Settings(**specification["settings"]), inputs, memory)

    def path(self, stage: str, block: int, name: str) -> Path:
        """Return where a file of a task lies."""
        return self.folder / stage / f"{block:06d}.{name}"

    def new(self, path: Path) -> Path:
        """Return the path of a file that the task is about to write, and note it."""
        path_of_stage(self.folder, str(path.relative_to(self.folder)), f"the job in {self.folder}")
        path.parent.mkdir(exist_ok=True)
        self.written.append(path)
        return path

    def write(self, stage: str, block: int, **arrays: NDArray[Any]) -> None:
        """Write arrays as the files of a task."""
        for name, array in arrays.items():
            with new_file(self.new(self.path(stage, block, f"{name}.npy")), overwrite=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)

    def read(self, stage: str, block: int, name: str) -> NDArray[Any]:
        """Return an array that a task has written, mapped."""
        array: NDArray[Any] = np.load(self.path(stage, block, f"{name}.npy"), mmap_mode="r", allow_pickle=False)
        return array


def perform(folder: str, stage: str, run: Run, memory: int, threads: int, block: int) -> Finished:
    """Do one task, and return what the manifest keeps of it; called in a worker, which is used for nothing else."""
    use_threads(threads)
    work, start, cpu_start = Work.of(Path(folder), memory), time.monotonic(), time.process_time()
    _reset_peak()
    result = dict(run(work, block))
    files = tuple(written_file(work.folder, path) for path in work.written)
    seconds, cpu_seconds = time.monotonic() - start, time.process_time() - cpu_start
    return Finished(stage, block, files, result, seconds, cpu_seconds, _peak())


def _reset_peak() -> None:
    """Let the system measure the peak of this process's memory anew, where it can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def _peak() -> int:
    """Return the largest memory that this process had, in bytes: mapped files count while they are read."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next((line for line in status.read_text().splitlines() if line.startswith("VmHWM")), None)
        if line is not None:
            return int(line.split()[1]) << 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
