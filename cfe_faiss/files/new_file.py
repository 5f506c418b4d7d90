"""Atomic file writes: a file appears under its name when complete. A killed writer leaves no partial file."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from cfe_faiss.files.outputs import check_owner
from cfe_faiss.files.regular import lock

_FILES = Path("/proc/self/fd")


@contextmanager
def new_file(target: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Yield an empty file, and move it to ``target`` unless the block raises.

    The file has no name until it is complete, if the system supports unnamed files. Otherwise it has a temporary name
    in the same folder. Temporary files of writers whose process has ended are removed.

    Parameters
    ----------
    target
        Path of the file.
    overwrite
        Whether to replace a file that this package has not written.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If ``target`` exists and may not be replaced.
    """
    check_owner(target, overwrite=overwrite)
    _remove_stale(target)
    name = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    file, has_name = _open_unnamed(target), False
    if file is None:
        file, has_name = _open_named(name, target), True
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if not has_name:
                _give_name(file, name)
            name.replace(target)
        sync_folder(target.parent)
    finally:
        name.unlink(missing_ok=True)


def _open_unnamed(target: Path) -> BinaryIO | None:
    """Return an unnamed file in the folder of ``target``, or None if the system does not support these."""
    if not hasattr(os, "O_TMPFILE") or not _FILES.is_dir():
        return None
    try:
        return _open_locked(os.open(target.parent, os.O_TMPFILE | os.O_RDWR, 0o666))
    except OSError:
        return None


def _give_name(file: BinaryIO, name: Path) -> None:
    folder = os.open(name.parent, os.O_RDONLY)
    try:
        # With a folder descriptor, Python calls linkat, which follows the symbolic link of the open file.
        os.link(_FILES / str(file.fileno()), name, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _open_named(name: Path, target: Path) -> BinaryIO:
    try:
        return _open_locked(os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    except OSError as error:
        raise type(error)(
            error.errno, f"cannot write into the folder of the file: {error.strerror}", str(target)
        ) from error


def _open_locked(descriptor: int) -> BinaryIO:
    """Return a file that holds a lock while it is open, which marks it as being written."""
    with suppress(OSError):  # some file systems do not support locks
        lock(descriptor, wait=False)
    return os.fdopen(descriptor, "w+b")


def _remove_stale(target: Path) -> None:
    """Remove temporary files of writers whose process has ended: their locks are free."""
    pattern = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{16}}\.tmp")
    with suppress(OSError):
        for path in list(target.parent.iterdir()):
            if pattern.fullmatch(path.name):
                _remove_if_stale(path)


def _remove_if_stale(path: Path) -> None:
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
