"""Files of the data sets, and the error for missing ones."""

import os
from collections.abc import Sequence
from pathlib import Path

FOLDERS = {
    "german": "nifty/german",
    "bail": "nifty/bail",
    "cora": "planetoid/Cora/raw",
    "pubmed": "planetoid/PubMed/raw",
    "facebook": "FacebookPagePage/raw",
    "amazon": "AmazonProducts/raw",
}
"""Folder of the files of each data set below the root."""


def root_folder(root: str | os.PathLike[str] | None) -> Path:
    """Return the folder of all data sets: ``root``, else the environment variable CFE_DATA, else "data"."""
    return Path(os.environ.get("CFE_DATA", "data") if root is None else root).expanduser()


def files_of(name: str | None, root: str | os.PathLike[str] | None) -> list[Path]:
    """Return the files that the folder of a data set holds; none for one without a folder."""
    folder = root_folder(root) / FOLDERS[name] if name in FOLDERS else None
    return list(folder.iterdir()) if folder is not None and folder.is_dir() else []


def missing_files(folder: Path, files: Sequence[str]) -> list[str]:
    """Return the ``files`` that are missing in ``folder``."""
    return [file for file in files if not (folder / file).is_file()]


def not_found(name: str, folder: Path, files: Sequence[str], origin: str, reason: str = "") -> FileNotFoundError:
    """Return the error for missing files: names, folder, origin, and why they were not downloaded."""
    lacking = ", ".join(missing_files(folder, files))
    return FileNotFoundError(
        f"{name!r} needs the files {', '.join(files)} in the folder {folder}; not there: {lacking}. {reason}"
        f"They come from {origin}. Put them there; root or the environment variable CFE_DATA says where to look."
    )
