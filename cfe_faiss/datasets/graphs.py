"""Graphs of PyG, NIFTY and scikit-learn as data sets, and splits of their nodes."""

import io
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import minmax_scale, scale

from cfe_faiss.base.checks import Array, Floats, Ints, as_count, as_labels, as_matrix
from cfe_faiss.base.extras import extra
from cfe_faiss.datasets import SOURCES, missing_files, not_found
from cfe_faiss.graph.csr import nearest_neighbours

with extra("gnn"):
    import pandas as pd
    import torch
    from torch_geometric.data import Data
    from torch_geometric.datasets import AmazonProducts, FacebookPagePage, Planetoid
    from torch_geometric.utils import remove_self_loops, to_undirected

_TIMEOUT = 30.0
_BUILD: dict[str, Callable[[str], Any]] = {
    "cora": partial(Planetoid, name="Cora"),
    "pubmed": partial(Planetoid, name="PubMed"),
    "facebook": FacebookPagePage,
    "amazon": AmazonProducts,
}
"""PyG's classes, called with their root."""
NEIGHBOURS = 5
"""Patients that each patient is joined to; the union of these pairs is the graph."""
_CODES = {"Male": 0, "Female": 1}


def read(name: str, root: Path) -> Data:
    """Return a graph; everything that :func:`cfe_faiss.datasets.load` documents but the masks."""
    if name == "patients":
        return patients()
    return read_pyg(name, root) if name in _BUILD else read_nifty(name, root)


def read_pyg(name: str, root: Path) -> Data:
    """Read or download one of PyG's graphs."""
    source = SOURCES[name]
    folder = root / source["folder"]
    missing = missing_files(name, root)
    # PyG writes a processed copy next to the raw files, so it works in a temporary folder with a
    # link to them. It also changes the warning filters while it reads old pickles.
    with TemporaryDirectory(prefix="cfe-faiss-") as scratch, warnings.catch_warnings():
        raw = Path(scratch, *Path(source["folder"]).parts[1:])
        if not missing:
            raw.parent.mkdir(parents=True, exist_ok=True)
            raw.symlink_to(folder.resolve(), target_is_directory=True)
        try:
            # PyG reports every processing on standard error. It sets no limit for a connection that
            # stays silent.
            quiet = nullcontext() if missing else redirect_stderr(io.StringIO())
            with quiet, _silence_limit(_TIMEOUT):
                graph = _BUILD[name](scratch)[0]
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if missing:
                raise not_found(name, root, f"The download failed ({reason}). ") from error
            if isinstance(error, OSError | MemoryError):
                raise
            raise ValueError(
                f"PyG cannot read {', '.join(source['files'])} in {folder}: {reason}"
            ) from error
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
        for file in missing:  # each appears complete or not at all, also from another file system
            with TemporaryDirectory(dir=folder, prefix=".download-") as part:
                Path(shutil.move(raw / file, part)).replace(folder / file)
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
def _silence_limit(seconds: float) -> Iterator[None]:
    """Limit how long a connection may stay silent: a network without a way out would hang."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def read_nifty(name: str, root: Path) -> Data:
    """Read German or Bail."""
    if missing_files(name, root):
        raise not_found(name, root)
    source = SOURCES[name]
    label = source["label"]
    sensitive = source["sensitive"]
    table, edges = (root / source["folder"] / file for file in source["files"])
    frame = pd.read_csv(table)
    lacking = {label, sensitive}.difference(frame.columns)
    if lacking:
        raise ValueError(
            f"{table} must have the columns {sorted(lacking)}, got {list(frame.columns)}"
        )
    features = frame.drop(columns=[label, *source["dropped"]], errors="ignore")
    if not pd.api.types.is_numeric_dtype(features[sensitive]):
        features[sensitive] = features[sensitive].map(_CODES)
    x = as_matrix(str(table), features.to_numpy())
    data = _graph(x, minmax_scale, _read_edges(edges, len(frame)), frame[label].to_numpy() > 0)
    data.feature_names = list(features.columns)
    data.class_names = list(source["class_names"])
    data.sensitive = torch.tensor(features[sensitive].to_numpy(), dtype=torch.int64)
    data.sensitive_name = sensitive
    return data


def patients() -> Data:
    """Build the patients' similarity graph."""
    table = load_breast_cancer()
    edges = nearest_neighbours(scale(table.data), NEIGHBOURS)
    data = _graph(as_matrix("data", table.data), scale, edges, table.target)
    data.feature_names = table.feature_names.tolist()
    data.class_names = table.target_names.tolist()
    return data


def _graph(raw: Floats, scaling: Any, edges: Ints, y: Array) -> Data:
    edge_index, _ = remove_self_loops(torch.from_numpy(edges))
    return Data(
        x=torch.from_numpy(scaling(raw.astype(np.float64)).astype(np.float32)),
        x_raw=torch.tensor(raw),
        edge_index=to_undirected(edge_index, num_nodes=len(raw)),
        y=torch.from_numpy(y.astype(np.int64)),
    )


def _read_edges(path: Path, n: int) -> Ints:
    """Read node pairs, one to a line, written as integers or (as NIFTY does) as floats.

    Returns (2, E).
    """
    expected = f"{path} must hold two node numbers in 0..{n - 1} on every line"
    try:
        pairs = pd.read_csv(path, sep=r"\s+", header=None, dtype=np.float64).to_numpy()
    except ValueError as error:
        raise ValueError(f"{expected}: {error}") from error
    if pairs.shape[1] != 2:
        raise ValueError(f"{expected}, got {pairs.shape[1]} columns")
    wrong = ~((pairs >= 0) & (pairs < n) & (pairs == np.floor(pairs))).all(axis=1)
    if wrong.any():
        line = int(np.argmax(wrong))
        raise ValueError(f"{expected}, got {pairs[line].tolist()} in line {line + 1}")
    return np.ascontiguousarray(pairs.T, dtype=np.int64)


def split_masks(y: Any, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split nodes at random into train, validation and test: 50, 25 and 25 percent of every class.

    The members of each class are shuffled and dealt out in turn, so a class of one node has it in
    train, and one of three or more nodes appears in all three masks. The global random state is
    neither used nor changed.

    Parameters
    ----------
    y
        Classes, shape (n,), integers of at least 0.
    seed
        At least 0. The same seed gives the same masks.

    Returns
    -------
    tuple of torch.Tensor
        Three masks, each (n,) bool; every node is in exactly one.

    Raises
    ------
    TypeError
        If y or the seed are not integers.
    ValueError
        If y is not one-dimensional, or a value of y or the seed is negative.

    Examples
    --------
    >>> train, val, test = split_masks([0, 1] * 4)
    >>> int(train.sum()), int(val.sum()), int(test.sum())
    (4, 2, 2)
    """
    labels = as_labels("y", y, len(y))
    order = np.random.default_rng(as_count("seed", seed, 0)).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    classes = labels[order]
    place_in_class = np.arange(len(classes)) - np.searchsorted(classes, classes)
    part = np.empty(len(labels), dtype=np.int64)
    part[order] = np.array([0, 1, 2, 0])[place_in_class % 4]
    parts = torch.from_numpy(part)
    return parts == 0, parts == 1, parts == 2
