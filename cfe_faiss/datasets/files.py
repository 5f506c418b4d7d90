"""Which files of a data set are there, and what to say where they are not."""

from collections.abc import Sequence
from pathlib import Path


def missing_files(folder: Path, files: Sequence[str]) -> list[str]:
    """Return those of ``files`` that ``folder`` does not hold."""
    return [file for file in files if not (folder / file).is_file()]


def not_found(name: str, folder: Path, files: Sequence[str], origin: str, reason: str = "") -> FileNotFoundError:
    """Return the error for missing files: which, in what folder, from where, and why they were not downloaded."""
    lacking = ", ".join(missing_files(folder, files))
    return FileNotFoundError(
        f"{name!r} needs the files {', '.join(files)} in the folder {folder}; not there: {lacking}. {reason}"
        f"They come from {origin}. Put them there; root or the environment variable CFE_DATA says where to look."
    )
