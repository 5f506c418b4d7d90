"""What a folder knows of its job: what it is about, and which tasks are finished, with the files they have written.

``job.json`` is written once. ``done.jsonl`` gets a line when a task is finished, after its files have their names; only
the process that drives the job writes to either, and it holds a lock while it does.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cfe_faiss.files.checksum import checksum
from cfe_faiss.files.lock import lock
from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import is_ours, path_within

FORMAT, VERSION = "cfe_faiss job", 1
_SPECIFICATION, _DONE, _LOCK = "job.json", "done.jsonl", ".lock"
_FOLDERS = re.compile(r"sort|graph|step-\d+|vectors|train|assign|place|index|evidence|groups|sketch|pairs|top|above")


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file of a finished task: its path in the folder, its bytes, and their CRC-32."""

    path: str
    size: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A finished task.

    Attributes
    ----------
    stage, block
        What it was.
    files
        What it has written.
    result
        Numbers that later stages need.
    seconds, cpu_seconds
        How long it took, and the processor time of all its threads.
    peak_bytes
        The most memory that its process had, with pages of mapped files while they are read.
    """

    stage: str
    block: int
    files: tuple[WrittenFile, ...]
    result: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0


def checksum_of(path: Path) -> int:
    """Return the CRC-32 of a file."""
    with path.open("rb") as file:
        return checksum(file)


def digest_of(path: Path) -> str:
    """Return the BLAKE2 hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def written_file(folder: Path, path: Path) -> WrittenFile:
    """Return a file of the folder as the manifest keeps it."""
    return WrittenFile(str(path.relative_to(folder)), path.stat().st_size, checksum_of(path))


class Manifest:
    """The job of a folder, and its finished tasks.

    Parameters
    ----------
    folder
        Its folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.finished: dict[tuple[str, int], Finished] = {}
        for number, line in enumerate(self._lines(), 1):
            finished = _read_line(folder, line, f"line {number} of {folder / _DONE}")
            self.finished[finished.stage, finished.block] = finished

    # --- what the job is about ----------------------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, specification: dict[str, Any]) -> "Manifest":
        """Return the manifest of a new job, in a folder that holds none."""
        content = {"format": FORMAT, "version": VERSION, **specification}
        (folder / _DONE).unlink(missing_ok=True)  # no task of this job is finished
        with new_file(folder / _SPECIFICATION, overwrite=True) as file:
            file.write(json.dumps(content, indent=1).encode())
        return cls(folder)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether there is a job in a folder."""
        return is_ours(folder / _SPECIFICATION)

    @classmethod
    def check_target(cls, folder: Path, inputs: Iterable[Path], *, overwrite: bool) -> None:
        """Raise ValueError if a job in a folder would replace inputs, or files that this package has not written."""
        if cls.exists(folder) or not folder.is_dir():
            return
        taken = [
            path for path in folder.iterdir() if path.name in (_SPECIFICATION, _DONE) or _FOLDERS.fullmatch(path.name)
        ]
        for path in inputs:
            if {path, *path.parents} & set(taken):
                raise ValueError(f"{path} is an input, and the job would write to this place: choose another folder")
        if taken and not overwrite:
            raise ValueError(
                f"{taken[0]} was not written by a job: choose another folder, or pass overwrite=True (--overwrite)"
            )

    @staticmethod
    def specification(folder: Path) -> dict[str, Any]:
        """Return what the job of a folder is about.

        Raises
        ------
        FileNotFoundError
            If there is no job.
        ValueError
            If it is not one of this version.
        """
        path = folder / _SPECIFICATION
        try:
            content = json.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"{path} is not that of a cfe_faiss job")
        if content.get("version") != VERSION:
            raise ValueError(f"{path} has version {content.get('version')}, this cfe_faiss reads version {VERSION}")
        return content

    # --- finished tasks -----------------------------------------------------------------------------------------------

    def enter(self, finished: Finished) -> None:
        """Take over a finished task: it is in the file, and synced, before this returns."""
        with (self.folder / _DONE).open("ab") as file:
            file.write(_line(finished))
            file.flush()
            os.fsync(file.fileno())
        self.finished[finished.stage, finished.block] = finished

    def forget(self, tasks: Iterable[tuple[str, int]]) -> None:
        """Take finished tasks back, whose files are lost or damaged."""
        gone = set(tasks)
        kept = {key: finished for key, finished in self.finished.items() if key not in gone}
        with new_file(self.folder / _DONE, overwrite=True) as file:
            file.writelines(map(_line, kept.values()))
        self.finished = kept

    def damaged(self, tasks: Iterable[tuple[str, int]]) -> dict[tuple[str, int], str]:
        """Return which of the finished tasks have files that are lost or damaged, and what is wrong; reads them all."""
        wrong = {}
        for key in tasks:
            for file in self.finished[key].files:
                reason = _fault(self.folder / file.path, file)
                if reason:
                    wrong[key] = f"{file.path} {reason}"
                    break
        return wrong

    def files(self, stage: str) -> list[Path]:
        """Return the files that a stage has written, in order of its blocks."""
        own = sorted((key[1], finished) for key, finished in self.finished.items() if key[0] == stage)
        return [self.folder / file.path for _, finished in own for file in finished.files]

    def results(self, stage: str) -> list[dict[str, Any]]:
        """Return the numbers that a stage has found, in order of its blocks."""
        own = sorted((key[1], key) for key in self.finished if key[0] == stage)
        return [self.finished[key].result for _, key in own]

    def _lines(self) -> Iterator[bytes]:
        path = path_within(self.folder, _DONE, f"the job in {self.folder}")
        content = path.read_bytes() if path.exists() else b""
        yield from content[: content.rfind(b"\n") + 1].splitlines()

    # --- the lock -----------------------------------------------------------------------------------------------------

    @classmethod
    @contextmanager
    def driven(cls, folder: Path) -> Iterator["Manifest"]:
        """Hold the lock of a folder, and yield its manifest; RuntimeError if another process drives the job."""
        # No link is followed, and nothing is cut off: the file may be somebody else's.
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        with os.fdopen(descriptor, "r+b") as file:
            try:
                lock(file.fileno(), wait=False)
            except BlockingIOError as error:
                raise RuntimeError(f"another process runs the job in {folder}") from error
            except OSError:
                pass  # some file systems have no locks
            manifest = cls(folder)
            done = folder / _DONE
            if done.exists() and not done.read_bytes().endswith(b"\n"):
                manifest.forget(())  # drops the last line, whose writer was ended before it was whole
            yield manifest


def path_of_stage(folder: Path, name: object, source: str) -> Path:
    """Return the path of a file that a stage writes, in one of the folders that stages have; else raise ValueError.

    ``source`` is that of :func:`cfe_faiss.files.outputs.path_within`.
    """
    path = path_within(folder, name, source)
    if not _FOLDERS.fullmatch(path.relative_to(folder).parts[0]):
        raise ValueError(f"{source} must name a file of a stage, got {name!r}")
    return path


def _read_line(folder: Path, line: bytes, source: str) -> Finished:
    try:
        entry = json.loads(line)
        files = tuple(WrittenFile(**file) for file in entry.pop("files"))
        finished = Finished(**entry, files=files)
        parts: tuple[Finished | WrittenFile, ...] = finished, *files
        types = [type(value) for one in parts for value in asdict(one).values()]
        if types != [str, int, tuple, dict, float, float, int, *[str, int, int] * len(files)]:
            raise TypeError("a value has another type than it was written with")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{source} is damaged: {error}. Remove the line, and its task is done again") from error
    for file in files:
        path_of_stage(folder, file.path, source)
    return finished


def _line(finished: Finished) -> bytes:
    return json.dumps(asdict(finished), separators=(",", ":")).encode() + b"\n"


def _fault(path: Path, expected: WrittenFile) -> str | None:
    if not path.exists():
        return "is missing"
    size = path.stat().st_size
    if size != expected.size:
        return f"has {size} bytes, not {expected.size}"
    if checksum_of(path) != expected.crc32:
        return "has another checksum than when it was written"
    return None
