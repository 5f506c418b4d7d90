"""One graph for the whole package: the neighbours of every node in compressed sparse rows (CSR)."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.checks import as_count
from cfe_faiss.base.temporary import is_mapped, release
from cfe_faiss.base.text import summary
from cfe_faiss.graph.edges import Edges, check_num_nodes, edges_of


@dataclass(frozen=True, eq=False)
class Graph:
    """The neighbours N(v) of every node v; made by :func:`as_graph`.

    Parameters
    ----------
    indptr
        Shape (num_nodes + 1,), int64: the neighbours of v are ``indices[indptr[v]:indptr[v + 1]]``. Both arrays may be
        memory maps.
    indices
        Shape (num_edges,), int32: node numbers, ascending within each node, without v itself, each once.
    weights
        Shape (num_edges,), float32, all positive and finite: ``weights[i]`` is that of the edge to ``indices[i]``. It
        may be a memory map, too. None: edges have no weights.
    directed
        Whether N(v) holds only the sources of the edges that point to v, as :func:`as_graph` makes it with
        ``directed=True``. Conditions on pairs of nodes, such as ``min_hops``, and pictures take edges in both
        directions all the same.

    Raises
    ------
    TypeError
        If one of the arrays has another dtype.
    ValueError
        If the arrays do not describe a graph: a kernel would read outside of them.

    Examples
    --------
    >>> graph = as_graph([[0, 1], [1, 2]])
    >>> graph.num_nodes, graph.num_edges
    (3, 4)
    >>> graph.neighbors(1)
    array([0, 2], dtype=int32)
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32] | None = None
    directed: bool = False

    __repr__ = summary

    def __post_init__(self) -> None:
        arrays: dict[str, tuple[Any, Any]] = {"indptr": (self.indptr, np.int64), "indices": (self.indices, np.int32)}
        if self.weights is not None:
            arrays["weights"] = self.weights, np.float32
        for name, (array, dtype) in arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                raise TypeError(f"{name} must be an array of {dtype.__name__}, got {getattr(array, 'dtype', array)!r}")
            if array.ndim != 1:
                raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
        native_graph(self)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, those without a neighbour included."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of entries of ``indices``: an undirected edge counts twice."""
        return len(self.indices)

    def neighbors(self, v: int) -> NDArray[np.int32]:
        """Return N(v), ascending, as a view.

        Raises
        ------
        ValueError
            If there is no node v.
        """
        if not 0 <= v < self.num_nodes:
            raise ValueError(f"v must lie in 0..{self.num_nodes - 1}, got {v}")
        return self.indices[self.indptr[v] : self.indptr[v + 1]]

    def undirected(self) -> Self:
        """Return the graph whose edges count in both directions: itself, or if it is directed another, unweighted."""
        if not self.directed:
            return self
        targets = np.repeat(np.arange(self.num_nodes, dtype=np.int32), np.diff(self.indptr))
        graph = as_graph(np.stack([self.indices, targets]), self.num_nodes)
        return type(self)(graph.indptr, graph.indices)


def as_graph(
    graph: Any,
    num_nodes: int | None = None,
    *,
    edge_weight: ArrayLike | bool | None = None,
    directed: bool = False,
) -> Graph:
    """Return the graph in the form that this package computes with.

    Self-loops are dropped and repeated edges merged. A graph may have no edges at all.

    Parameters
    ----------
    graph
        One of

        - an edge_index: integers of shape (2, E), sources above targets, as an array, a tensor or lists;
        - an adj_t of PyTorch Geometric: a sparse tensor of torch (COO, CSR or CSC) or a SparseTensor of torch_sparse,
          (n, n). It is transposed: an entry (i, j) other than zero is an edge from j to i;
        - a PyTorch Geometric ``Data`` object, or any object with ``edge_index`` or else ``adj_t`` of these forms;
        - a SciPy sparse matrix of any format: an entry (i, j) other than zero is an edge from i to j;
        - a NetworkX graph: its nodes become 0..n-1 in the order in which it yields them;
        - a :class:`Graph`, which is returned as it is, whatever ``directed`` says; with ``edge_weight=False`` without
          its weights.
    num_nodes
        Number of nodes. Default: what the graph says itself; for an edge_index, its largest number plus one.
    edge_weight
        None or False: edges have no weights, whatever the graph says. True: they have those that the graph holds
        itself, which are the values of a sparse matrix or adj_t, ``edge_weight`` of ``Data`` (else the values of its
        ``adj_t``) or the attribute "weight" of NetworkX (1 where an edge has none). An array, (E,): the weights of the
        edges of an edge_index. A weight is 0, which is no edge, or positive and finite in float32. The weights of
        repeated edges are summed; of an edge whose two directions are given and count both (see ``directed``), the
        weight is the mean of the two.
    directed
        False: edges count in both directions, whichever of them are given. True: N(v) holds the sources of the edges
        that point to v, which is the way messages flow in PyTorch Geometric. An undirected NetworkX graph stays
        undirected.

    Returns
    -------
    Graph
        Built in O(E log(largest degree)) time, with 8 bytes per given edge (4 if directed) of passing memory beyond
        the result; with weights 16 (8 if directed), and 4 for the weights. It does not depend on the order of edges.

    Raises
    ------
    TypeError
        If node numbers are not integers, or weights no real numbers.
    ValueError
        If the shape is wrong, a node number lies outside 0..num_nodes-1, the number of nodes is not ``num_nodes``, or
        unknown, as that of an edge_index without edges; if a weight is negative, NaN or infinite, the number of weights
        is not that of edges, or ``edge_weight=True`` is said of what holds none.

    Examples
    --------
    >>> as_graph([[0, 0, 1, 2], [1, 1, 0, 2]], num_nodes=3).indptr
    array([0, 1, 2, 2])
    >>> as_graph([[0, 1], [2, 2]], directed=True).neighbors(2)
    array([0, 1], dtype=int32)
    >>> as_graph([[0, 0, 1], [1, 1, 2]], edge_weight=[1.0, 0.5, 2.0]).weights
    array([1.5, 1.5, 2. , 2. ], dtype=float32)
    """
    if num_nodes is not None:
        num_nodes = as_count("num_nodes", num_nodes)
    if isinstance(graph, Graph):
        check_num_nodes(graph.num_nodes, num_nodes)
        return _with_weights_as_wanted(graph, edge_weight)
    return _built(edges_of(graph, num_nodes, edge_weight), directed)


def _with_weights_as_wanted(graph: Graph, edge_weight: Any) -> Graph:
    if edge_weight is None or (edge_weight is True and graph.weights is not None):
        return graph
    if edge_weight is False:
        return graph if graph.weights is None else replace(graph, weights=None)
    raise ValueError(f"edge_weight must be left out for a Graph without weights of its own, got {graph!r}")


def native_graph(graph: Graph) -> _native.CsrGraph:
    """Return the graph as the core sees it, which checks its arrays: they must not change while it is in use."""
    indptr, indices = np.ascontiguousarray(graph.indptr), np.ascontiguousarray(graph.indices)
    weights = None if graph.weights is None else np.ascontiguousarray(graph.weights)
    mapped = [array for array in (graph.indices, graph.weights) if array is not None and is_mapped(array)]
    free = (lambda: release(*mapped)) if mapped else None
    return _native.CsrGraph(indptr, indices, threads.num_threads(len(indices)), weights, free)


def _built(edges: Edges, directed: bool) -> Graph:
    """Sort the edges by node (a counting sort), then sort and merge within every node."""
    builder = _native.GraphBuilder(edges.num_nodes, directed, edges.weighted)
    for block, _ in edges.blocks():
        builder.count(block)
    for block, weights in edges.blocks():
        builder.place(block, weights)
    indptr, indices, summed = builder.finish(threads.num_threads(builder.num_counted))
    # Of two integers of 64 bits NumPy prints one without its name.
    return Graph(indptr.view(np.int64), indices, summed if edges.weighted else None, directed)
