"""Batches of nodes that can be changed in one pass of a model without influencing each other's predictions."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, dijkstra

from cfe_faiss.audit.tables import data_frame
from cfe_faiss.graph import as_graph

Csr: TypeAlias = scipy.sparse.csr_array

_PROBES = 8
_BLOCK = 1024
"""Nodes whose surroundings are held at a time."""


def adjacency(data: Any, n: int) -> Csr:
    """Return which nodes are joined by an edge in either direction, and each node with itself: (n, n), ones.

    Messages flow along edges in one direction only where these are directed; then the reach is rather too large.
    """
    graph = as_graph(data, n)
    ones = np.ones(graph.num_edges, np.float32)
    joined = scipy.sparse.csr_array((ones, graph.indices, graph.indptr), shape=(n, n))
    return scipy.sparse.csr_array(joined + scipy.sparse.eye_array(n, dtype=np.float32, format="csr"))


def measure_hops(unknown_at: Callable[[int], NDArray[np.bool_]], joined: Csr) -> int | None:
    """Return over how many edges a node's features reach the model's outputs; None if edges do not limit the reach.

    Parameters
    ----------
    unknown_at
        Returns the nodes whose output is NaN when the features of one node are NaN, (n,): the nodes that it influences.
    joined
        See :func:`adjacency`.

    Returns
    -------
    int or None
        n, the whole connected component, if every probed node reaches all of its component. None if outputs of other
        components are reached, or a node's own output is not.
    """
    n = joined.shape[0]
    hops, seen_end = 0, False
    for node in _probes(joined):
        reached = unknown_at(node)
        distance = dijkstra(joined, indices=np.array([node]), unweighted=True)[0]
        if not reached[node] or np.isinf(distance[reached]).any():
            return None
        hops = max(hops, int(distance[reached].max()))
        seen_end |= bool((~reached & np.isfinite(distance)).any())
    return hops if seen_end else n


def independent_batches(nodes: NDArray[np.int64], joined: Csr, hops: int | None) -> list[NDArray[np.int64]]:
    """Return the nodes in batches, within which any two are more than ``hops`` edges apart (None: one node each).

    Greedy colouring, in blocks of nodes: memory for the surroundings of 1,024 of them.
    """
    n = joined.shape[0]
    if hops is None:
        return [nodes[place : place + 1] for place in range(len(nodes))]
    if hops == 0:
        return [nodes] if len(nodes) else []
    if hops >= n:  # all of a connected component
        component = data_frame({"component": connected_components(joined)[1][nodes]})
        colour = component.groupby("component").cumcount().to_numpy()
    else:
        colour = _colours(nodes, joined, hops)
    order = np.argsort(colour, kind="stable")
    return np.split(nodes[order], np.flatnonzero(np.diff(colour[order])) + 1) if len(nodes) else []


def _probes(joined: Csr) -> list[int]:
    """Return up to 9 nodes with few and with many neighbours, most of them in the largest connected component."""
    degree = np.diff(joined.indptr)
    component = connected_components(joined)[1]
    largest = np.flatnonzero(component == np.argmax(np.bincount(component)))
    by_degree = largest[np.argsort(degree[largest], kind="stable")]
    places = np.linspace(0, len(by_degree) - 1, _PROBES).astype(np.int64)
    return list(dict.fromkeys([*by_degree[places].tolist(), int(np.argmin(degree))]))


def _colours(nodes: NDArray[np.int64], joined: Csr, hops: int) -> NDArray[np.int64]:
    n = joined.shape[0]
    place = np.full(n, -1)
    place[nodes] = np.arange(len(nodes))
    colour = np.full(len(nodes), -1)
    for begin in range(0, len(nodes), _BLOCK):
        around = joined[nodes[begin : begin + _BLOCK]]
        for _ in range(hops - 1):
            size = around.nnz
            around = scipy.sparse.csr_array(around @ joined)
            around.data[:] = 1  # counts of paths would grow without bound
            if around.nnz == size:
                break
        for row in range(around.shape[0]):
            others = place[around.indices[around.indptr[row] : around.indptr[row + 1]]]
            taken = np.unique(colour[others[others >= 0]])
            taken = taken[taken >= 0]
            gaps = np.flatnonzero(taken != np.arange(len(taken)))
            colour[begin + row] = gaps[0] if len(gaps) else len(taken)
    return colour
