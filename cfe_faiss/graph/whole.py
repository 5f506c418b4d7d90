"""Whole graphs: sums of KS vectors, or counts of WL colours without features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfe_faiss.base.checks import Floats, as_count, as_dense, as_matrix, check_shape, require
from cfe_faiss.base.text import summary
from cfe_faiss.base.values import as_list
from cfe_faiss.graph.csr import Graph, as_graph
from cfe_faiss.graph.ks import ks_vectors


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Graphs:
    """Whole graphs as the rows of a finder.

    Attributes
    ----------
    parts
        The graphs.
    features
        Features of the nodes of each graph, (n_i, d) each; or None for each.
    settings
        ``num_layers`` and ``alpha`` of :func:`cfe_faiss.ks_vectors`.
    """

    parts: Sequence[Graph]
    features: Sequence[Any]
    settings: tuple[int, float]

    __repr__ = summary

    def vectors(self) -> Floats:
        """Return the sum of the KS vectors of all nodes of each graph, (g, d) float32.

        Without features the counts of :func:`wl_vectors`.

        Raises
        ------
        TypeError, ValueError
            If features are no numbers, some graphs have none, or others have different numbers of
            them.
        """
        lacking = [i for i, x in enumerate(self.features) if x is None]
        if len(lacking) == len(self.parts):
            return wl_vectors(self.parts, self.settings[0])
        require(not lacking, f"graphs must all have x, or none, got graphs{lacking[:1]} without x")
        sums: list[Any] = []
        for i, graph in enumerate(self.parts):
            matrix = self.x(i)
            d = len(sums[0]) if sums else matrix.shape[-1]
            of = "a row for each node, and the columns of graphs[0].x"
            check_shape(f"graphs[{i}].x", matrix, (graph.num_nodes, d), of)
            sums.append(ks_vectors(matrix, graph, *self.settings).sum(axis=0, dtype=np.float64))
        return np.array(sums, np.float32)

    def x(self, i: int) -> Floats:
        """Return the features of the nodes of a graph, (n_i, d) float32."""
        return as_matrix(f"graphs[{i}].x", as_dense(f"graphs[{i}].x", self.features[i]))

    def row_of(self, x: Floats, graph: Graph) -> int:
        """Return the first graph with these features and edges, or -1."""
        for i, part in enumerate(self.parts):
            if part.num_nodes == graph.num_nodes and part.num_edges == graph.num_edges:
                arrays = ((part.indptr, graph.indptr), (part.indices, graph.indices))
                if all(np.array_equal(*pair) for pair in (*arrays, (self.x(i), x))):
                    return i
        return -1

    def ks_vectors(self, i: int) -> Floats:
        """Return the KS vectors of the nodes of a graph, (n_i, d) float32."""
        return ks_vectors(self.x(i), self.parts[i], *self.settings)


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
        colours_of_steps = [colours]
        for _ in steps:
            near = np.split(colours[graph.indices], graph.indptr[1:-1])
            # Colours of different steps differ, as the colours before them do.
            keys = [
                (colour, np.sort(around).tobytes())
                for colour, around in zip(colours.tolist(), near, strict=True)
            ]
            colours = np.array([number_of.setdefault(key, len(number_of)) for key in keys])
            colours_of_steps.append(colours)
        colours_of_graphs.append(np.concatenate(colours_of_steps))
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
