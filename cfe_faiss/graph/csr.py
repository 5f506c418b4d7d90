"""The graph class of the package: the neighbours of every node in compressed sparse rows (CSR)."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.arrays import Floats, Int32s, Ints
from cfe_faiss.base.checks import as_count
from cfe_faiss.base.temporary import releasing
from cfe_faiss.base.text import summary
from cfe_faiss.graph.edges import Edges, check_num_nodes, edges_of


@dataclass(frozen=True, eq=False)
class Graph:
    """The neighbours N(v) of every node v; made by :func:`as_graph`.

    Parameters
    ----------
    indptr
        Shape (num_nodes + 1,), int64: the neighbours of v are ``indices[indptr[v]:indptr[v + 1]]``.
        Both arrays may be memory maps.
    indices
        Shape (num_edges,), int32: node numbers, ascending within each node, without v itself, each
        once.
    weights
        Shape (num_edges,), float32, positive and finite: ``weights[i]`` belongs to the edge to
        ``indices[i]``. It may be a memory map. None: edges have no weights.
    directed
        Whether N(v) holds only the sources of the edges that point to v (``directed=True`` in
        :func:`as_graph`). Conditions on pairs of nodes, such as ``min_hops``, and pictures use
        edges in both directions anyway.

    Raises
    ------
    TypeError
        If an array has another dtype.
    ValueError
        If the arrays do not describe a graph, so that a kernel would read out of bounds.

    Examples
    --------
    >>> graph = as_graph([[0, 1], [1, 2]])
    >>> graph.num_nodes, graph.num_edges
    (3, 4)
    >>> graph.neighbors(1)
    array([0, 2], dtype=int32)
    """

    indptr: Ints
    indices: Int32s
    weights: Floats | None = None
    directed: bool = False

    __repr__ = summary

    def __post_init__(self) -> None:
        arrays: dict[str, tuple[Any, Any]] = {
            "indptr": (self.indptr, np.int64),
            "indices": (self.indices, np.int32),
        }
        if self.weights is not None:
            arrays["weights"] = self.weights, np.float32
        for name, (array, dtype) in arrays.items():
            if not isinstance(array, np.ndarray) or array.dtype != dtype:
                raise TypeError(
                    f"{name} must be an array of {dtype.__name__}, got "
                    f"{getattr(array, 'dtype', array)!r}"
                )
            if array.ndim != 1:
                raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
        native_graph(self)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, isolated nodes included."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of entries of ``indices``: an undirected edge counts twice."""
        return len(self.indices)

    def neighbors(self, v: int) -> Int32s:
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
        """Return the graph with edges in both directions: itself, or a new one without weights."""
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
    """Return a graph of any supported form as a :class:`Graph`.

    Self-loops are dropped and repeated edges merged. A graph may have no edges at all.

    Parameters
    ----------
    graph
        One of

        - an edge_index: integers of shape (2, E), sources above targets, as an array, a tensor or
          lists;
        - an adj_t of PyTorch Geometric: a sparse tensor of torch (COO, CSR or CSC) or a
          SparseTensor of torch_sparse, (n, n). It is transposed: an entry (i, j) other than zero is
          an edge from j to i;
        - a PyTorch Geometric ``Data`` object, or any object with ``edge_index`` or else ``adj_t``
          of these forms;
        - a SciPy sparse matrix of any format: a nonzero entry (i, j) is an edge from i to j;
        - a NetworkX graph: its nodes become 0..n-1 in iteration order;
        - a :class:`Graph`, which is returned unchanged (``directed`` is ignored); with
          ``edge_weight=False`` without weights.
    num_nodes
        Number of nodes. Default: that of the graph; for an edge_index, its largest number plus one.
    edge_weight
        None or False: edges have no weights. True: the weights that the graph holds: the values of
        a sparse matrix or adj_t, ``edge_weight`` of ``Data`` (without it, the values of its
        ``adj_t``), or the attribute "weight" of NetworkX (default 1). An array, (E,): the weights
        of an edge_index. A weight is positive and finite in float32, or 0, which removes the edge.
        Weights of repeated edges are summed. If both directions of an edge are given and count (see
        ``directed``), its weight is their mean.
    directed
        False: every edge counts in both directions. True: N(v) holds the sources of the edges that
        point to v, the direction of messages in PyTorch Geometric. An undirected NetworkX graph
        stays undirected.

    Returns
    -------
    Graph
        Built in O(E log(largest degree)) time with 8 bytes per given edge (4 if directed) of
        temporary memory; with weights 20 bytes (12 if directed). The result does not depend on the
        order of edges.

    Raises
    ------
    TypeError
        If node numbers are not integers, or weights not real numbers.
    ValueError
        If the shape is wrong, a node number is outside of 0..num_nodes-1, the number of nodes is
        not ``num_nodes`` or unknown (an empty edge_index without ``num_nodes``); if a weight is
        negative, NaN or infinite, the numbers of weights and edges differ, or ``edge_weight=True``
        is given for a graph without weights.

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
        if edge_weight is False and graph.weights is not None:
            return replace(graph, weights=None)
        if (
            edge_weight is not None
            and edge_weight is not False
            and (edge_weight is not True or graph.weights is None)
        ):
            raise ValueError(
                f"edge_weight must be left out for a Graph without weights of its own, got "
                f"{graph!r}"
            )
        return graph
    return _build(edges_of(graph, num_nodes, edge_weight), directed)


def native_graph(graph: Graph) -> _native.CsrGraph:
    """Return the graph as an object of the core, which checks the arrays.

    They must not change during its use.
    """
    indptr = np.ascontiguousarray(graph.indptr)
    indices = np.ascontiguousarray(graph.indices)
    weights = None if graph.weights is None else np.ascontiguousarray(graph.weights)
    release = releasing(graph.indices, graph.weights)
    return _native.CsrGraph(indptr, indices, threads.num_threads(len(indices)), weights, release)


def _build(edges: Edges, directed: bool) -> Graph:
    """Sort the edges by node (a counting sort), then sort and merge within every node."""
    builder = _native.GraphBuilder(edges.num_nodes, directed, edges.weighted)
    for block, _ in edges.blocks():
        builder.count(block)
    for block, weights in edges.blocks():
        builder.place(block, weights)
    indptr, indices, summed = builder.finish(threads.num_threads(builder.num_counted))
    # NumPy has two 64-bit integer types. This view prints without a dtype.
    return Graph(indptr.view(np.int64), indices, summed if edges.weighted else None, directed)
