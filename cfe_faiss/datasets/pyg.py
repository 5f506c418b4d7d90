"""Graphs that PyG reads with its own classes: Cora, PubMed, Facebook and Amazon."""

import io
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cfe_faiss.base.extras import extra
from cfe_faiss.datasets.files import FOLDERS, missing_files, not_found

with extra("gnn"):
    from torch_geometric.data import Data
    from torch_geometric.datasets import AmazonProducts, FacebookPagePage, Planetoid

_TIMEOUT = 30.0
_PLANETOID = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")

# Planetoid numbers the topics without naming them. No two have the same number of papers, so the published counts
# (818 Neural_Networks, 426 Probabilistic_Methods, 418 Genetic_Algorithms, 351 Theory, 298 Case_Based,
# 217 Reinforcement_Learning, 180 Rule_Learning) settle which is which.
_CORA_TOPICS = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)


@dataclass(frozen=True)
class Source:
    """A PyG class (``build``, called with its root), and the files in the raw folder below that root."""

    build: Callable[[str], Any]
    files: tuple[str, ...]
    origin: str
    feature: str = "feature"
    class_names: tuple[str, ...] = ()


def _planetoid(name: str, class_names: tuple[str, ...] = ()) -> Source:
    files = tuple(f"ind.{name.lower()}.{part}" for part in _PLANETOID)
    origin = "Planetoid, https://github.com/kimiyoung/planetoid, folder data"
    return Source(lambda root: Planetoid(root, name), files, origin, "word", class_names)


SOURCES = {
    "cora": _planetoid("Cora", _CORA_TOPICS),
    "pubmed": _planetoid("PubMed"),
    "facebook": Source(
        build=FacebookPagePage,
        files=("facebook.npz",),
        origin=f"MUSAE, in PyG's form: {FacebookPagePage.url}",
    ),
    "amazon": Source(
        build=AmazonProducts,
        files=("adj_full.npz", "feats.npy", "class_map.json", "role.json"),
        origin="GraphSAINT, https://github.com/GraphSAINT/GraphSAINT, its data set Amazon",
    ),
}


def read(name: str, root: Path) -> Data:
    """Read or download a graph; everything that :func:`cfe_faiss.datasets.load` documents but the masks."""
    source = SOURCES[name]
    folder = root / FOLDERS[name]
    missing = missing_files(folder, source.files)
    # PyG writes a processed copy next to the raw files, so it works in a temporary folder with a link to them. It also
    # changes the warning filters while it reads old pickles.
    with TemporaryDirectory(prefix="cfe-faiss-") as scratch, warnings.catch_warnings():
        raw = Path(scratch, *Path(FOLDERS[name]).parts[1:])
        if missing:
            with _impatient():
                try:
                    graph = source.build(scratch)[0]
                except Exception as error:
                    reason = f"The download failed ({type(error).__name__}: {error}). "
                    raise not_found(name, folder, source.files, source.origin, reason) from error
            _move(missing, raw, folder)
        else:
            raw.parent.mkdir(parents=True, exist_ok=True)
            raw.symlink_to(folder.resolve(), target_is_directory=True)
            graph = _process(source, scratch, folder)
    several = graph.y.ndim > 1  # a column of 0 and 1 for each class
    count = graph.y.shape[1] if several else int(graph.y.max()) + 1
    return Data(
        x=graph.x,
        x_raw=graph.x,
        edge_index=graph.edge_index,
        y=graph.y.argmax(dim=1) if several else graph.y,
        feature_names=[f"{source.feature}_{j}" for j in range(graph.x.shape[1])],
        class_names=list(source.class_names) or [f"class {c}" for c in range(count)],
    )


def _process(source: Source, scratch: str, folder: Path) -> Any:
    # PyG reports every processing on standard error.
    with redirect_stderr(io.StringIO()):
        try:
            return source.build(scratch)[0]
        except (OSError, MemoryError):
            raise
        except Exception as error:
            files = ", ".join(source.files)
            raise ValueError(f"PyG cannot read {files} in {folder}: {type(error).__name__}: {error}") from error


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
