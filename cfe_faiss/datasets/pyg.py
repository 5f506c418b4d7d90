"""Graphs that PyG reads with its own classes: Cora, PubMed, Facebook and Amazon."""

import io
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cfe_faiss.base.extras import extra
from cfe_faiss.datasets.files import SOURCES, missing_files, not_found

with extra("gnn"):
    from torch_geometric.data import Data
    from torch_geometric.datasets import AmazonProducts, FacebookPagePage, Planetoid

_TIMEOUT = 30.0
_BUILD: dict[str, Callable[[str], Any]] = {
    "cora": partial(Planetoid, name="Cora"),
    "pubmed": partial(Planetoid, name="PubMed"),
    "facebook": FacebookPagePage,
    "amazon": AmazonProducts,
}
"""PyG's classes, called with their root."""


def read(name: str, root: Path) -> Data:
    """Read or download a graph; everything that :func:`cfe_faiss.datasets.load` documents but the masks."""
    source, build = SOURCES[name], _BUILD[name]
    folder, missing = root / source["folder"], missing_files(name, root)
    # PyG writes a processed copy next to the raw files, so it works in a temporary folder with a link to them. It also
    # changes the warning filters while it reads old pickles.
    with TemporaryDirectory(prefix="cfe-faiss-") as scratch, warnings.catch_warnings():
        raw = Path(scratch, *Path(source["folder"]).parts[1:])
        if missing:
            with _impatient():
                try:
                    graph = build(scratch)[0]
                except Exception as error:
                    reason = f"The download failed ({type(error).__name__}: {error}). "
                    raise not_found(name, root, reason) from error
            _move(missing, raw, folder)
        else:
            raw.parent.mkdir(parents=True, exist_ok=True)
            raw.symlink_to(folder.resolve(), target_is_directory=True)
            # PyG reports every processing on standard error.
            with redirect_stderr(io.StringIO()):
                try:
                    graph = build(scratch)[0]
                except (OSError, MemoryError):
                    raise
                except Exception as error:
                    names = ", ".join(source["files"])
                    raise ValueError(f"PyG cannot read {names} in {folder}: {type(error).__name__}: {error}") from error
    several = graph.y.ndim > 1  # a column of 0 and 1 for each class
    count = graph.y.shape[1] if several else int(graph.y.max()) + 1
    return Data(
        x=graph.x,
        x_raw=graph.x,
        edge_index=graph.edge_index,
        y=graph.y.argmax(dim=1) if several else graph.y,
        feature_names=[f"{source['feature']}_{j}" for j in range(graph.x.shape[1])],
        class_names=list(source["class_names"]) or [f"class {c}" for c in range(count)],
    )


@contextmanager
def _impatient() -> Iterator[None]:
    """Limit how long a connection may stay silent: PyG sets no limit, and a network without a way out would hang."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _move(files: Sequence[str], source: Path, target: Path) -> None:
    """Move files that may have to cross file systems, so that each appears in ``target`` complete or not at all."""
    target.mkdir(parents=True, exist_ok=True)
    for file in files:
        with TemporaryDirectory(dir=target, prefix=".download-") as scratch:
            Path(shutil.move(source / file, scratch)).replace(target / file)
