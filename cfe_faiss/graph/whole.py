"""Vectors of whole graphs: sums of KS vectors, or counts of WL colours without features."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfe_faiss.base.checks import Floats, as_count, as_dense, as_matrix, check_shape, require
from cfe_faiss.base.values import as_list
from cfe_faiss.graph.csr import Graph, as_graph
from cfe_faiss.graph.ks import ks_vectors


def graph_vectors(
    graphs: Sequence[Graph], features: Sequence[Any], num_layers: int, alpha: float
) -> Floats:
    """Return the sum of the KS vectors of all nodes of each graph, (g, d) float32.

    Without features the counts of :func:`wl_vectors`.

    Parameters
    ----------
    graphs
        The graphs.
    features
        Features of the nodes of each graph, (n_i, d) each; or None for each.
    num_layers, alpha
        As in :func:`cfe_faiss.ks_vectors`.

    Raises
    ------
    TypeError, ValueError
        If features are no numbers, some graphs have none, or others have different numbers of them.
    """
    lacking = [i for i, x in enumerate(features) if x is None]
    if len(lacking) == len(graphs):
        return wl_vectors(graphs, num_layers)
    require(not lacking, f"graphs must all have x, or none, got graphs{lacking[:1]} without x")
    sums: list[Any] = []
    for i, (x, graph) in enumerate(zip(features, graphs, strict=True)):
        matrix = as_matrix(f"graphs[{i}].x", as_dense(f"graphs[{i}].x", x))
        d = len(sums[0]) if sums else matrix.shape[-1]
        of = "a row for each node, and the columns of graphs[0].x"
        check_shape(f"graphs[{i}].x", matrix, (graph.num_nodes, d), of)
        sums.append(ks_vectors(matrix, graph, num_layers, alpha).sum(axis=0, dtype=np.float64))
    return np.array(sums, np.float32)


def wl_vectors(graphs: Sequence[Graph], depth: int) -> Floats:
    """Return how often each WL colour of 0 to ``depth`` steps occurs in each graph, (g, c) float32.

    At first all nodes have one colour. A step gives equal colours to nodes with equal colours whose
    neighbours have equal colours, as often. The inner product of two rows is the WL subtree kernel
    [1]_. Colours are entries of one dictionary over all graphs, so different ones never collide.
    Memory: 4 bytes for each graph and colour.

    References
    ----------
    .. [1] Shervashidze et al., "Weisfeiler-Lehman Graph Kernels", JMLR 12, 2011.

    Examples
    --------
    >>> path = as_graph([[0, 1], [1, 2]])
    >>> triangle = as_graph([[0, 1, 2], [1, 2, 0]])
    >>> wl_vectors([path, triangle], 1)
    array([[3., 2., 1.],
           [3., 0., 3.]], dtype=float32)
    """
    steps = range(as_count("num_layers", depth, 0))
    number_of: dict[tuple[int, bytes], int] = {(-1, b""): 0}
    colours_of_graphs = []
    for graph in graphs:
        colours = np.zeros(graph.num_nodes, np.int64)
        known = [colours]
        for _ in steps:
            near = np.split(colours[graph.indices], graph.indptr[1:-1])
            # Colours of different steps differ, as the colours before them do.
            keys = [
                (colour, np.sort(around).tobytes())
                for colour, around in zip(colours.tolist(), near, strict=True)
            ]
            colours = np.array([number_of.setdefault(key, len(number_of)) for key in keys])
            known.append(colours)
        colours_of_graphs.append(np.concatenate(known))
    counts = [np.bincount(colours, minlength=len(number_of)) for colours in colours_of_graphs]
    return np.array(counts, np.float32)


def as_graphs(graphs: Any, *, directed: bool) -> tuple[list[Any], list[Graph]]:
    """Return graphs of any form of :func:`cfe_faiss.graph.as_graph` as given, and as ``Graph``.

    Raises
    ------
    TypeError, ValueError
        If one is no graph, or has no nodes; the error names its number.
    """
    listed = as_list("graphs", graphs)
    require(listed, "graphs must hold at least one graph, got none")
    parts = []
    for i, graph in enumerate(listed):
        try:
            parts.append(as_graph(graph, directed=directed))
            require(parts[i].num_nodes, "a graph must have at least one node, got none")
        except (TypeError, ValueError) as error:
            remedy = "put a single graph into a list"
            raise type(error)(f"graphs[{i}] must be a graph ({remedy}): {error}") from error
    return listed, parts
