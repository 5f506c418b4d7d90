"""Atomic file writes: files appear under their names when all are complete.

A killed writer leaves no partial file.
"""

import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from cfe_faiss._native import call_steps
from cfe_faiss.files.outputs import MARK, check_owner
from cfe_faiss.files.regular import lock
from cfe_faiss.rows.faiss_functions import Step

_FILES = Path("/proc/self/fd")
_PREFIX_BYTES = (
    100  # of a temporary name: the name of the file may be as long as the file system admits
)
_COMMENT_FIELDS = {
    "png": "Software",
    "svg": "Title",
    "pdf": "Creator",
    "ps": "Creator",
    "eps": "Creator",
}  # of formats of Matplotlib


@dataclass(frozen=True, slots=True)
class _Output:
    """Names of a file that is being written.

    Attributes
    ----------
    target
        Path that the caller gave, which errors name.
    place
        The same path without symbolic links.
    temporary, backup
        Names in the folder of the new file until it is complete, and of the old one while the new
        one takes its place.
    """

    target: Path
    place: Path
    temporary: Path
    backup: Path

    @classmethod
    def of(cls, target: Path) -> "_Output":
        place = Path(os.path.realpath(target))
        prefix = os.fsdecode(os.fsencode(place.name)[:_PREFIX_BYTES])
        temporary, backup = (
            place.with_name(f".{prefix}.{secrets.token_hex(8)}.tmp") for _ in range(2)
        )
        return cls(target, place, temporary, backup)


@contextmanager
def new_file(target: Path, *, overwrite: bool, like: Path | None = None) -> Iterator[BinaryIO]:
    """Yield an empty file, and move it to ``target`` unless the block raises.

    Arguments as of :func:`new_files`.
    """
    with new_files([target], overwrite=overwrite, like=like) as (file,):
        yield file


@contextmanager
def new_files(
    targets: Sequence[Path], *, overwrite: bool, like: Path | None = None
) -> Iterator[list[BinaryIO]]:
    """Yield an empty file for each target, and move all to their targets unless the block raises.

    A file has no name until it is complete, if the system supports unnamed files. Otherwise it has
    a temporary name in the same folder. Temporary files of writers whose process has ended are
    removed. After an error or an interrupt all targets are as before, or all are new.

    Parameters
    ----------
    targets
        Paths of the files. For a symbolic link, the file that it leads to is replaced. A new file
        has the mode of the one that it replaces, and its owner and group where the system permits
        it.
    overwrite
        Whether to replace files that this package has not written.
    like
        File whose mode, owner and group a file gets that replaces none, if it exists.

    Raises
    ------
    OSError
        If a file cannot be written; names the target.
    ValueError
        If a target exists and may not be replaced.
    """
    outputs = [_Output.of(target) for target in targets]
    for output in outputs:
        check_owner(output.target, overwrite=overwrite)
        _remove_stale(output)
    # Twice: an interrupt may come between the end of the block and the first removal.
    with _removing_temporary(outputs), _removing_temporary(outputs), ExitStack() as stack:
        files = [stack.enter_context(_open(output, like)) for output in outputs]
        yield files
        for file, output in zip(files, outputs, strict=True):
            _complete(file, output)
        _rename(outputs)
        for folder in {output.place.parent for output in outputs}:
            sync_folder(folder)


def write_picture(figure: Any, path: Path, *, overwrite: bool) -> None:
    """Write a Matplotlib figure atomically, in the format of the suffix (PNG if there is none).

    Formats with a comment field get a mark, by which this package recognises its own files.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If Matplotlib does not know the format. If this package has not written the existing file,
        and ``overwrite`` is False. Formats without a comment field, such as JPEG, are never
        recognised.
    """
    kind = path.suffix[1:].lower() or "png"
    options = {"metadata": {_COMMENT_FIELDS[kind]: MARK}} if kind in _COMMENT_FIELDS else {}
    drawn = BytesIO()
    figure.savefig(drawn, format=kind, dpi=150, **options)
    with new_file(path, overwrite=overwrite) as file:
        file.write(drawn.getvalue())


@contextmanager
def _removing_temporary(outputs: Sequence[_Output]) -> Iterator[None]:
    try:
        yield
    finally:
        for path in (path for output in outputs for path in (output.temporary, output.backup)):
            with suppress(OSError):
                path.unlink()


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make a folder and those above it that are missing.

    If the block raises, remove the new ones that are empty.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):
            for path in missing:
                path.rmdir()
        raise


@contextmanager
def _naming(target: Path, problem: str = "") -> Iterator[None]:
    """Let errors name the path that the caller gave, not a temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{problem}{error.strerror}", str(target)) from error


def _open(output: _Output, like: Path | None) -> BinaryIO:
    """Return a new, locked file with the mode of the one that it replaces."""
    status = next(
        (path.stat() for path in (output.place, like) if path is not None and path.exists()), None
    )
    mode = 0o666 if status is None else stat.S_IMODE(status.st_mode) & 0o777
    descriptor = -1
    if hasattr(os, "O_TMPFILE") and _FILES.is_dir():
        with suppress(OSError):  # some file systems do not support unnamed files
            descriptor = os.open(output.place.parent, os.O_TMPFILE | os.O_RDWR, mode)
    if descriptor < 0:
        with _naming(output.target, "cannot write into the folder of the file: "):
            descriptor = os.open(output.temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode)
    with suppress(OSError):  # some do not support locks
        lock(descriptor, wait=False)
    if status is not None:
        for change, values in (
            (os.fchown, (status.st_uid, -1)),
            (os.fchown, (-1, status.st_gid)),
            (os.fchmod, (mode,)),
        ):
            with suppress(OSError):  # as far as the system permits it
                change(descriptor, *values)
    return os.fdopen(descriptor, "w+b")


def _complete(file: BinaryIO, output: _Output) -> None:
    """Sync a file to disk under its temporary name.

    A full disk shows here, before a file takes its place.
    """
    with _naming(output.target):
        file.flush()
        os.fsync(file.fileno())
        if output.temporary.exists():
            return
        folder = os.open(output.temporary.parent, os.O_RDONLY)
        try:
            # With a folder descriptor, Python calls linkat, which follows the symbolic link of the
            # open file.
            os.link(
                _FILES / str(file.fileno()),
                output.temporary,
                src_dir_fd=folder,
                follow_symlinks=True,
            )
        finally:
            os.close(folder)


def _rename(outputs: Sequence[_Output]) -> None:
    """Move complete files to their places in one native call, which no interrupt divides.

    Undo it after an error.
    """
    replaced = [output for output in outputs if len(outputs) > 1 and output.place.exists()]
    for output in replaced:
        with _naming(output.target):
            try:
                os.link(output.place, output.backup)
            except OSError:  # the file system has no hard links
                shutil.copy2(output.place, output.backup)
    try:
        call_steps([moving(output.temporary, output.place) for output in outputs], [])
    except OSError as error:
        moved = [output for output in outputs if not output.temporary.exists()]
        back = [moving(output.backup, output.place) for output in moved if output in replaced]
        removal = [(os.unlink, (str(output.place),)) for output in moved if output not in replaced]
        call_steps([*back, *removal], [])
        raise OSError(error.errno, error.strerror, str(outputs[len(moved)].target)) from error


def moving(source: Path, target: Path) -> Step:
    """Return the step that moves a file, given as texts: conversion could be interrupted."""
    return os.replace, (str(source), str(target))


def _remove_stale(output: _Output) -> None:
    """Remove temporary files of writers whose process has ended: their locks are free."""
    prefix = output.temporary.name[: -len("0123456789abcdef.tmp")]
    for path in [*output.place.parent.glob(f"{glob.escape(prefix)}{'[0-9a-f]' * 16}.tmp")]:
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                lock(descriptor, wait=False)
                path.unlink()
            finally:
                os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that its file names survive a system crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
