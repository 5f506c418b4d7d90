"""Record of a job in its folder: its finished tasks, with the files they wrote.

``job.json`` is written once (:mod:`cfe_faiss.scale.inputs`). ``done.jsonl`` gets a line for each finished task, after
its files have their names. Only the process that runs the job writes to it, under a lock.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from cfe_faiss.files.forms import ANY_MAPPING, CHECKSUM, NATURAL, check, integer, number, text
from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import is_ours, path_within
from cfe_faiss.files.regular import checksum, lock, open_regular

SPECIFICATION = "job.json"
DONE, _LOCK = "done.jsonl", ".lock"
_FOLDERS = re.compile(r"sort|graph|step-\d+|vectors|train|assign|place|index|evidence|groups|sketch|pairs|top|above")
_RESULT = {f"{name}?": NATURAL for name in ("edges", "vectors", "nodes", "rows", "pairs")}
_RESULTS = {"place": {"shards": integer(1)}, "join": {"nprobe": integer(1)}}
_LINE = {
    "stage": text(r"[a-z]+(-\d+)?", "the name of a stage"),
    "block": NATURAL,
    "files": [{"path": text(".+", "a path"), "size": NATURAL, "crc32": CHECKSUM}],
    "result": ANY_MAPPING,
    "seconds": number(0),
    "cpu_seconds": number(0),
    "peak_bytes": NATURAL,
}
"""Form of a line of ``done.jsonl``; of the numbers of a task, by stage and otherwise."""
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
        return cls(str(path.relative_to(folder)), path.stat().st_size, checksum_of(path))

    def fault(self, folder: Path) -> str | None:
        """Return how the file differs from the one written, or None; reads it."""
        path = folder / self.path
        fault = size_fault(path, self.size)
        if fault is None and checksum_of(path) != self.crc32:
            return "has another checksum than when it was written"
        return fault


@dataclass(frozen=True, slots=True)
class Finished:
    """Finished task.

    Attributes
    ----------
    stage, block
        Stage and block of the task.
    files
        Files the task wrote.
    result
        Numbers that later stages read.
    seconds, cpu_seconds
        Elapsed time, and processor time of all threads.
    peak_bytes
        Peak memory of the process, including mapped pages in use.
    """

    stage: str
    block: int
    files: tuple[WrittenFile, ...]
    result: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0

    @classmethod
    def parse(cls, folder: Path, line: bytes, source: str) -> "Finished":
        """Return the task of a line of ``done.jsonl``; ``source`` names the line in errors."""
        try:
            entry = json.loads(line)
            check(entry, _LINE)
            check(entry["result"], _RESULTS.get(entry["stage"], _RESULT), "result")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{source} is damaged: {error}. Remove the line, and its task is done again") from error
        files = tuple(WrittenFile(**file) for file in entry.pop("files"))
        for file in files:
            path_of_stage(folder, file.path, source)
        return cls(**entry, files=files)

    def line(self) -> bytes:
        """Return the line for ``done.jsonl``."""
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


def size_fault(path: Path, size: int) -> str | None:
    """Return why a path cannot be the file of this many bytes, or None."""
    if not path.exists():
        return "is missing"
    actual = path.stat().st_size
    return None if actual == size else f"has {actual} bytes, not {size}"


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a regular file."""
    with open_regular(path) as file:
        return checksum(file)


def digest_of(path: Path) -> str:
    """Return the BLAKE2 hash of a regular file."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(cast(io.BufferedReader, file), lambda: hashlib.blake2b(digest_size=16))
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
        content = _done_lines(folder)
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
        taken = [path for path in folder.iterdir() if re.fullmatch(rf"{SPECIFICATION}|{DONE}", path.name)]
        taken += [path for path in folder.iterdir() if _FOLDERS.fullmatch(path.name)]
        for path in inputs:
            if {path, *path.parents} & set(taken):
                raise ValueError(f"{path} is an input, and the job would write to this place: choose another folder")
        if taken and not overwrite:
            raise ValueError(
                f"{taken[0]} was not written by a job: choose another folder, or pass overwrite=True (--overwrite)"
            )

    # --- finished tasks -----------------------------------------------------------------------------------------------

    def enter(self, finished: Finished) -> None:
        """Append a finished task, and sync the file before returning."""
        with (self.folder / DONE).open("ab") as file:
            file.write(finished.line())
            file.flush()
            os.fsync(file.fileno())
        self.finished[finished.stage, finished.block] = finished

    def forget(self, tasks: Iterable[Key]) -> None:
        """Drop finished tasks whose files are lost or damaged."""
        gone = set(tasks)
        self.finished = {key: finished for key, finished in self.finished.items() if key not in gone}
        with new_file(self.folder / DONE, overwrite=True) as file:
            file.writelines(finished.line() for finished in self.finished.values())

    def of_stage(self, stage: str) -> list[Finished]:
        """Return the finished tasks of a stage in order of their blocks."""
        tasks = [finished for finished in self.finished.values() if finished.stage == stage]
        return sorted(tasks, key=lambda finished: finished.block)

    def find_damaged(self, stage: str) -> list[Key]:
        """Return the finished tasks of a stage that have lost or damaged files; reads all files."""
        tasks = self.of_stage(stage)
        return [(stage, task.block) for task in tasks if any(file.fault(self.folder) for file in task.files)]

    def files(self, stage: str) -> list[Path]:
        """Return the files of a stage in order of its blocks."""
        return [self.folder / file.path for finished in self.of_stage(stage) for file in finished.files]

    # --- lock ---------------------------------------------------------------------------------------------------------

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
            if _done_lines(folder)[-1:] not in (b"", b"\n"):
                manifest.forget(())  # drops the last line: its writer ended before the line was complete
            yield manifest


def path_of_stage(folder: Path, name: object, source: str) -> Path:
    """Return the path of a file in the folder of a stage, else raise ValueError; ``source`` as of `path_within`."""
    path = path_within(folder, name, source)
    if not _FOLDERS.fullmatch(path.relative_to(folder).parts[0]):
        raise ValueError(f"{source} must name a file of a stage, got {name!r}")
    return path


def _done_lines(folder: Path) -> bytes:
    path = path_within(folder, DONE, f"the job in {folder}")
    if not path.exists():
        return b""
    with open_regular(path) as file:
        return file.read()
