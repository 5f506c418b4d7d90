"""Files of the data sets, and the error for missing ones."""

import os
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

SOURCES: dict[str, dict[str, Any]] = tomllib.loads(
    files("cfe_faiss.datasets").joinpath("sources.toml").read_text(encoding="utf-8")
)
"""The data sets that need files, by name; ``folder`` is below the root."""


def root_folder(root: str | os.PathLike[str] | None) -> Path:
    """Return the folder of all data sets: ``root``, else the environment variable CFE_DATA, else "data"."""
    return Path(os.environ.get("CFE_DATA", "data") if root is None else root).expanduser()


def files_of(name: str | None, root: str | os.PathLike[str] | None) -> list[Path]:
    """Return the files that the folder of a data set holds; none for one without a folder."""
    folder = root_folder(root) / SOURCES[name]["folder"] if name in SOURCES else None
    return list(folder.iterdir()) if folder is not None and folder.is_dir() else []


def missing_files(name: str, root: Path) -> list[str]:
    """Return the files of a data set that its folder lacks."""
    source = SOURCES[name]
    return [file for file in source["files"] if not (root / source["folder"] / file).is_file()]


def not_found(name: str, root: Path, reason: str = "") -> FileNotFoundError:
    """Return the error for missing files: names, folder, origin, and why they were not downloaded."""
    source, lacking = SOURCES[name], ", ".join(missing_files(name, root))
    return FileNotFoundError(
        f"{name!r} needs the files {', '.join(source['files'])} in the folder {root / source['folder']}; not there: "
        f"{lacking}. {reason}They come from {source['origin']}. Put them there; root or the environment variable "
        "CFE_DATA says where to look."
    )
