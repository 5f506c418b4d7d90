"""The real graphs as the benchmarks use them: KS vectors of all nodes, and the classes that a GCN predicts."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss.datasets import load
from cfe_faiss.models import gcn, predict, train

NAMES = ("german", "bail", "cora", "facebook")


class Graph(NamedTuple):
    name: str
    X: NDArray[np.float32]
    labels: NDArray[np.int64]
    test_accuracy: float


@cache
def graph(name: str, seed: int = 0) -> Graph:
    """Load a graph from ``CFE_DATA`` (default: data/), train a GCN and propagate with L = 3, alpha = 0.5."""
    data = load(name, seed=seed)
    model = gcn(data, seed=seed)
    report = train(model, data, seed=seed, progress=True)
    return Graph(
        name, cfe.ks_vectors(data.x, data.edge_index), predict(model, data), report.test_accuracy
    )
