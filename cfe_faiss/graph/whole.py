"""Vectors of whole graphs: sums of KS vectors, or counts of WL colours without features."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfe_faiss.base.checks import Floats, Int32s, Ints, as_count, as_matrix, is_sparse
from cfe_faiss.graph.csr import Graph, as_graph
from cfe_faiss.graph.ks import ks_vectors


def disjoint_union(graphs: Sequence[Graph]) -> tuple[Graph, Ints]:
    """Return graphs as one graph without edges between them, and the first node of each, (g + 1,).

    Examples
    --------
    >>> path = as_graph([[0, 1], [1, 2]])
    >>> union, first = disjoint_union([path, path])
    >>> union.neighbors(4), first
    (array([3, 5], dtype=int32), array([0, 3, 6]))
    """
    nodes = np.array([0, *(graph.num_nodes for graph in graphs)], np.int64).cumsum()
    edges = np.array([0, *(graph.num_edges for graph in graphs)], np.int64).cumsum()
    starts = [graph.indptr[:-1] + edges[i] for i, graph in enumerate(graphs)]
    indices = [graph.indices + np.int32(nodes[i]) for i, graph in enumerate(graphs)]
    directed = any(graph.directed for graph in graphs)
    indptr = np.concatenate([*starts, edges[-1:]])
    return Graph(indptr, np.concatenate(indices), directed=directed), nodes


def graph_vectors(
    graphs: Sequence[Graph], features: Sequence[Any] | None, num_layers: int, alpha: float
) -> Floats:
    """Return the sum of the KS vectors of all nodes of each graph, (g, d) float32.

    Without features the counts of :func:`wl_vectors`.

    Parameters
    ----------
    graphs
        The graphs.
    features
        Features of the nodes of each graph, (n_i, d) each; or None.
    num_layers, alpha
        As in :func:`cfe_faiss.ks_vectors`.

    Raises
    ------
    TypeError, ValueError
        If features are no numbers, or graphs have different numbers of them.
    """
    if features is None:
        return wl_vectors(graphs, num_layers)
    union, first = disjoint_union(graphs)
    matrices: list[Floats] = []
    for i, (x, graph) in enumerate(zip(features, graphs, strict=True)):
        rows = x.toarray() if is_sparse(x) else x
        rows = rows.to_dense() if hasattr(rows, "to_dense") else rows
        matrix = as_matrix(f"x of graph {i}", rows, matrices[0].shape[1] if i else None)
        if len(matrix) != graph.num_nodes:
            raise ValueError(
                f"x of graph {i} must have {graph.num_nodes} rows, one for each node, got "
                f"{len(matrix)}"
            )
        matrices.append(matrix)
    vectors = ks_vectors(np.concatenate(matrices), union, num_layers, alpha)
    sums: Floats = np.add.reduceat(vectors, first[:-1], axis=0, dtype=np.float64)
    return sums.astype(np.float32)


def wl_colours(graph: Graph, depth: int) -> list[Int32s]:
    """Return the WL colours of all nodes after 0, 1, ..., ``depth`` steps, (n,) each.

    At first all nodes have one colour. A step gives equal colours to nodes with equal colours whose
    neighbours have equal colours, as often [1]_. Colours are places in a dictionary, so different
    nodes never collide, and equal graphs have equal colours in every run.

    References
    ----------
    .. [1] Shervashidze et al., "Weisfeiler-Lehman Graph Kernels", JMLR 12, 2011.

    Examples
    --------
    >>> path = as_graph([[0, 1], [1, 2]])
    >>> [colours.tolist() for colours in wl_colours(path, 2)]
    [[0, 0, 0], [0, 1, 0], [0, 1, 0]]
    """
    colours = [np.zeros(graph.num_nodes, np.int32)]
    for _ in range(depth):
        before = colours[-1]
        number_of: dict[tuple[int, bytes], int] = {}
        after = np.empty_like(before)
        near = before[graph.indices]
        for v in range(graph.num_nodes):
            around = np.sort(near[graph.indptr[v] : graph.indptr[v + 1]])
            key = int(before[v]), around.tobytes()
            after[v] = number_of.setdefault(key, len(number_of))
        colours.append(after)
    return colours


def wl_vectors(graphs: Sequence[Graph], depth: int) -> Floats:
    """Return how often each WL colour of 0 to ``depth`` steps occurs in each graph, (g, c) float32.

    The inner product of two rows is the WL subtree kernel of :func:`wl_colours`' reference. Memory
    for all colours: 4 bytes for each graph and colour.

    Examples
    --------
    >>> path = as_graph([[0, 1], [1, 2]])
    >>> triangle = as_graph([[0, 1, 2], [1, 2, 0]])
    >>> wl_vectors([path, triangle], 1)
    array([[3., 2., 1.],
           [3., 0., 3.]], dtype=float32)
    """
    union, first = disjoint_union(graphs)
    graph_of = np.repeat(np.arange(len(graphs)), np.diff(first))
    columns = []
    for colours in wl_colours(union, as_count("num_layers", depth, 0)):
        counts = np.zeros((len(graphs), int(colours.max()) + 1), np.float32)
        np.add.at(counts, (graph_of, colours), 1)
        columns.append(counts)
    return np.hstack(columns)


def as_graphs(graphs: Any, *, directed: bool) -> tuple[list[Any], list[Graph]]:
    """Return graphs of any form of :func:`cfe_faiss.graph.as_graph` as given, and as ``Graph``.

    Raises
    ------
    TypeError, ValueError
        If one is no graph, or has no nodes; the error names its number.
    """
    # A data set of PyG has the attributes of its graphs, too.
    is_data = hasattr(graphs, "edge_index") and not hasattr(graphs, "indices")
    is_one = is_data or hasattr(graphs, "adjacency")
    if is_one or not hasattr(graphs, "__iter__"):
        raise TypeError(
            f"graphs must be a sequence of graphs, got {type(graphs).__name__}: put one graph into "
            f"a list, and a batch of PyG through batch.to_data_list()"
        )
    listed = list(graphs)
    found = []
    for i, graph in enumerate(listed):
        try:
            found.append(as_graph(graph, directed=directed))
        except (TypeError, ValueError) as error:
            raise type(error)(f"graphs[{i}]: {error}") from error
    if not found:
        raise ValueError("graphs must hold at least one graph, got none")
    return listed, found
