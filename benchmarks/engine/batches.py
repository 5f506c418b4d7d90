"""Queries of one class at a time, those that are near each other one after another; stock indexes to ask."""

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.graphs import Graph, K
from benchmarks.engine.searcher import Results, Searcher

PADDING = -3.4e38
_ITERATIONS = 5


def by_class(
    graph: Graph,
    search: Callable[[NDArray[np.float32], int, int], Results],
    *,
    smallest: int = 1,
    largest: int = 1,
    first: int = 1,
    lists: NDArray[np.int32] | None = None,
) -> Searcher:
    """Return a searcher from ``search(xq, label, setting)``; queries of a class are ordered by ``lists`` (n,)."""

    def on(queries: NDArray[np.int64]) -> Callable[[int], Results]:
        order = np.lexsort((queries if lists is None else lists[queries], graph.labels[queries]))
        batches = np.split(order, np.flatnonzero(np.diff(graph.labels[queries[order]])) + 1)
        asked = [
            (batch, graph.X[queries[batch]], int(graph.labels[queries[batch[0]]]))
            for batch in batches
        ]

        def run(setting: int) -> Results:
            D, I = np.empty((len(queries), K), np.float32), np.empty((len(queries), K), np.int64)
            for batch, xq, label in asked:
                D[batch], I[batch] = search(xq, label, setting)
            return D, I

        return run

    def one(query: int, setting: int) -> Results:
        return search(graph.X[query : query + 1], int(graph.labels[query]), setting)

    return Searcher(one, on, smallest, largest, min(first, largest))


def rows_by_label(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the nodes ordered by class (n,), and where each class begins among them (C + 1,)."""
    return np.argsort(graph.labels, kind="stable"), np.concatenate(
        [[0], np.cumsum(np.bincount(graph.labels))]
    )


def nodes_of(order: NDArray[np.int64]) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Return what turns places in the order by class into nodes, and padding into padding."""
    nodes = np.append(order, -1)
    return lambda I: nodes[I]


def lists_of(index: Any, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the list of every node (n,); ``nodes``: the node of each stored id."""
    lists = np.empty(len(nodes), np.int32)
    for number in range(index.nlist):
        size = index.invlists.list_size(number)
        if size:
            lists[nodes[faiss.rev_swig_ptr(index.invlists.get_ids(number), size)]] = number
    return lists


def nearby(graph: Graph) -> NDArray[np.int32]:
    """Return the nearest of about sqrt(n) means for every node (n,): an order for indexes that have no lists."""
    number = max(1, round(graph.n**0.5))
    means = faiss.Kmeans(
        graph.d, number, niter=_ITERATIONS, spherical=True, min_points_per_centroid=1
    )
    means.train(graph.X)
    return means.assign(graph.X)[1].astype(np.int32)


def ivf_of(X: NDArray[np.float32], nlist: int) -> Any:
    d = X.shape[1]
    return filled(faiss.IndexIVFFlat(faiss.IndexFlatIP(d), d, nlist, faiss.METRIC_INNER_PRODUCT), X)


def filled(index: Any, X: NDArray[np.float32]) -> Any:
    """Return an inverted file, trained with vectors and filled with them."""
    index.cp.spherical = True
    index.cp.min_points_per_centroid = 1
    index.train(X)
    index.add(X)
    return index


def hnsw_of(X: NDArray[np.float32], parameters: dict[str, int]) -> Any:
    index = faiss.IndexHNSWFlat(X.shape[1], parameters["M"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = parameters["efConstruction"]
    index.add(X)
    return index
