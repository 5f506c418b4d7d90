"""The paper's graphs, and a small graph that needs no files."""

import os
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cfe_faiss.base.checks import as_count, check_known

if TYPE_CHECKING:
    from torch_geometric.data import Data

NAMES = ("german", "bail", "cora", "pubmed", "facebook", "amazon", "patients")
"""The names that :func:`load` knows."""
SOURCES: dict[str, dict[str, Any]] = tomllib.loads(
    files("cfe_faiss.datasets").joinpath("sources.toml").read_text(encoding="utf-8")
)
"""The data sets that need files, by name; ``folder`` is below the root."""


def root_folder(root: str | os.PathLike[str] | None) -> Path:
    """Return the folder of all data sets: ``root``, the variable CFE_DATA, or "data"."""
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
    """Return the error for missing files: names, folder, origin, and why they are missing."""
    source = SOURCES[name]
    lacking = ", ".join(missing_files(name, root))
    return FileNotFoundError(
        f"{name!r} needs the files {', '.join(source['files'])} in the folder "
        f"{root / source['folder']}; not there: {lacking}. {reason}They come from "
        f"{source['origin']}. Put them there; root or the environment variable CFE_DATA says where "
        "to look."
    )


def load(name: str, root: str | os.PathLike[str] | None = None, seed: int = 0) -> "Data":
    """Load a graph for node classification.

    :doc:`/reference/datasets` lists the data sets, their classes and the files below ``root`` that
    they need. PyG downloads Cora, PubMed, Facebook and Amazon where a raw file is missing. Nothing
    else is written into ``root``.

    Parameters
    ----------
    name
        "german", "bail", "cora", "pubmed", "facebook", "amazon" or "patients".
    root
        The folder that holds the files. Default: the environment variable ``CFE_DATA`` where it is
        set, else ``data`` in the working directory.
    seed
        Seed of the split, at least 0.

    Returns
    -------
    torch_geometric.data.Data
        With, for n nodes of d features:

        - ``x``: (n, d) float32, what a model reads. German, Bail: each column scaled to [0, 1].
          Patients: each column standardised, because similarities of features that are all positive
          crowd near 1. Others: as PyG gives them.
        - ``x_raw``: (n, d) float32, features in their own units: the same tensor as unscaled ``x``.
        - ``feature_names``: d names. German, Bail and Patients have real names, the others "word_0"
          or "feature_0".
        - ``y``: (n,) int64, the true class, an index into ``class_names``.
        - ``class_names``: a readable name of each class; "class 0" and so on where the files do not
          settle them.
        - ``edge_index``: (2, E) int64, both directions of every edge. German, Bail and Patients:
          sorted, no self-loop, none twice. Others: exactly PyG's, whose E is the paper's count;
          Facebook's has self-loops.
        - ``train_mask``, ``val_mask``, ``test_mask``: (n,) bool,
          :func:`cfe_faiss.datasets.graphs.split_masks` of the seed: half, a quarter, a quarter of
          every class, as in NIFTY. It replaces the split that PyG gives.
        - ``sensitive``: (n,) int64, 0 or 1, and ``sensitive_name``; German and Bail only.
        - ``name``: the argument ``name``.

    Raises
    ------
    TypeError
        If the seed is not an integer.
    ValueError
        If the name is unknown, the seed negative, or a file does not hold what it should.
    FileNotFoundError
        If files are missing and cannot be downloaded; it says where they come from and belong.
    ImportError
        If torch, PyG or pandas is missing.

    Examples
    --------
    >>> data = load("patients")
    >>> data.x.shape, data.class_names
    (torch.Size([569, 30]), ['malignant', 'benign'])
    >>> data.feature_names[3], float(data.x_raw[0, 3])
    ('mean area', 1001.0)
    """
    check_known("name must be one of the data sets", name, NAMES)
    seed = as_count("seed", seed, 0)
    # Imported here because they load torch, which takes seconds.
    from cfe_faiss.datasets import graphs

    data: Any = graphs.read(name, root_folder(root))
    data.name = name
    data.train_mask, data.val_mask, data.test_mask = graphs.split_masks(data.y, seed)
    return data


__all__ = ["NAMES", "load"]
