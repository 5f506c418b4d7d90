"""Where the graphs come from: their files, or where these are missing a synthetic graph of their shape."""

import os
import sys
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # for benchmarks/synthetic_graphs.py

import numpy as np
import torch
from synthetic_graphs import amazon_shape, pubmed_shape
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected
from verdict import SHAPE

from cfe_faiss.datasets import load
from cfe_faiss.datasets.graphs import split_masks

REAL, TINY = "its files", "tiny and made up"
_FILES = {
    "german": "nifty/german/german.csv",
    "bail": "nifty/bail/bail.csv",
    "cora": "planetoid/Cora/raw/ind.cora.x",
    "pubmed": "planetoid/PubMed/raw/ind.pubmed.x",
    "facebook": "FacebookPagePage/raw/facebook.npz",
    "amazon": "AmazonProducts/raw/adj_full.npz",
}
_COLUMNS = {
    "german": ("Gender", "Single", "Age", "LoanAmount", "HasTelephone", "OwnsHouse"),
    "bail": ("WHITE", "MARRIED", "SCHOOL", "TIME", "FILE", "FELON"),
}


@lru_cache(maxsize=2)
def graph(quick: bool, name: str, seed: int) -> tuple[Any, str]:
    """Return a graph with the split of ``seed``, and where it comes from: one of ``REAL``, ``SHAPE``, ``TINY``."""
    if quick:
        return tiny(name, seed), TINY
    if available(name):
        return load(name, root(), seed=seed), REAL
    if name == "pubmed":
        return pubmed_shape(seed=0).to_data(seed), SHAPE
    raise FileNotFoundError(
        f"{name} needs {root() / _FILES[name]}: set CFE_DATA to the folder that holds the graphs"
    )


def amazon(quick: bool) -> tuple[Any, str]:
    """Return AmazonProducts or a graph of its shape: ``x``, ``edges`` for ``ks_vectors``, ``labels``; no split."""
    if not quick and available("amazon"):
        data = load("amazon", root())
        return SimpleNamespace(
            x=data.x.numpy(), edges=data.edge_index.numpy(), labels=data.y.numpy()
        ), REAL
    made = amazon_shape(2000, seed=0) if quick else amazon_shape(seed=0)
    return SimpleNamespace(x=made.x, edges=made.graph, labels=made.labels), TINY if quick else SHAPE


def root() -> Path:
    return Path(os.environ.get("CFE_DATA", "data")).expanduser()


def available(name: str) -> bool:
    """Whether the files of a graph are there; nothing is ever downloaded here."""
    return (root() / _FILES[name]).is_file()


def tiny(name: str, seed: int) -> Data:
    """Return 320 nodes whose features and edges follow their class: no data, only something to run on."""
    n, columns = 320, _COLUMNS.get(name, ())
    rng = np.random.default_rng(sum(name.encode()))
    y = rng.integers(0, 2 if columns else 3, n)
    raw = (
        rng.normal(size=(n, len(columns) or 12)) + 0.7 * rng.normal(size=(3, len(columns) or 12))[y]
    )
    if columns:
        binary = [
            column
            for column, title in enumerate(columns)
            if title not in ("SCHOOL", "TIME", "FILE", "Age")
        ]
        raw[:, binary] = raw[:, binary] > 0
        raw[:, [column for column in range(len(columns)) if column not in binary]] *= 15
        raw = np.abs(np.round(raw))
        if "FILE" in columns:
            raw[:, columns.index("FILE")] = rng.integers(1, 4, n)
    order = np.argsort(y + 0.8 * rng.random(n))
    edges = np.stack([order.repeat(3), np.roll(order, 1).repeat(3)])
    edges[1, ::3], edges[1, 1::3] = np.roll(order, 4), rng.integers(0, n, n)
    edges = edges[:, edges[0] != edges[1]]
    masks = split_masks(y, seed)
    spread = np.maximum(raw.max(axis=0) - raw.min(axis=0), 1e-6)
    data = Data(
        x=torch.tensor((raw - raw.min(axis=0)) / spread, dtype=torch.float32),
        x_raw=torch.tensor(raw, dtype=torch.float32),
        edge_index=to_undirected(torch.from_numpy(edges), num_nodes=n),
        y=torch.from_numpy(y),
        train_mask=masks[0],
        val_mask=masks[1],
        test_mask=masks[2],
    )
    data.name, data.class_names = name, [f"class {c}" for c in range(int(y.max()) + 1)]
    data.feature_names = list(columns) or [f"feature {column}" for column in range(raw.shape[1])]
    if columns:
        data.sensitive, data.sensitive_name = data.x_raw[:, 0].long(), columns[0]
    return data
