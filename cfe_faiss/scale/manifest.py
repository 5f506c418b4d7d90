"""Record of a job in its folder: its finished tasks, with the files they wrote.

``job.json`` is written once (:mod:`cfe_faiss.scale.inputs`). ``done.jsonl`` gets a line for each
finished task, after its files have their names. Only the process that runs the job writes to it,
under a lock.
"""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from cfe_faiss.files.forms import ANY_MAPPING, CHECKSUM, NATURAL, check, number, text
from cfe_faiss.files.outputs import is_ours, new_file, path_within
from cfe_faiss.files.regular import checksum, lock, open_regular

SPECIFICATION = "job.json"
DONE = "done.jsonl"
_LOCK = ".lock"
_FOLDERS = re.compile(
    r"sort|graph|step-\d+|vectors|train|assign|place|index|tune|evidence|groups|sketch|pairs|top|above"
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
        taken = [path for path in folder.iterdir() if re.fullmatch(names, path.name)]
        for path in inputs:
            if {path, *path.parents} & set(taken):
                raise ValueError(
                    f"{path} is an input, and the job would write to this place: choose another "
                    f"folder"
                )
        if taken and not overwrite:
            raise ValueError(
                f"{taken[0]} was not written by a job: choose another folder, or pass "
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
