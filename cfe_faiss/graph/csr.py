"""Graphs of every supported form as one :class:`Graph`, in compressed sparse rows (CSR).

Their edges are read as sources and targets, with weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.base.checks import (
    Array,
    Bools,
    Floats,
    Int32s,
    Ints,
    as_array,
    as_count,
    check_shape,
    is_sparse,
)
from cfe_faiss.base.disk import releasing
from cfe_faiss.base.text import summary

_MOST_NODES = np.iinfo(np.int32).max - 1


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

        - an edge_index: integers (2, E), sources above targets, as an array, a tensor or lists;
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
        Weights of repeated edges are summed; if both directions count, their weights are averaged.
    directed
        False: every edge counts in both directions. True: N(v) holds the sources of the edges that
        point to v, the direction of messages in PyTorch Geometric. An undirected NetworkX graph
        stays undirected.

    Returns
    -------
    Graph
        Built in O(E) time with 22 bytes per given edge (16 if directed) of temporary memory; with
        weights in O(E log E) time with 72 bytes (42 if directed). The result does not depend on the
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
        _check_num_nodes(graph.num_nodes, num_nodes)
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
    return _edges_of(graph, num_nodes, edge_weight).graph(directed)


def native_graph(graph: Graph) -> _native.CsrGraph:
    """Return the graph as an object of the core, which checks the arrays.

    They must not change during its use.
    """
    indptr = np.ascontiguousarray(graph.indptr)
    indices = np.ascontiguousarray(graph.indices)
    weights = None if graph.weights is None else np.ascontiguousarray(graph.weights)
    release = releasing(graph.indices, graph.weights)
    return _native.CsrGraph(indptr, indices, threads.num_threads(len(indices)), weights, release)


# --- edges ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Edges:
    """Edges of a graph.

    Attributes
    ----------
    num_nodes
        Number of nodes.
    ends
        Sources and targets, (E,) each.
    weights
        Weights, (E,), or None.
    values
        Edges whose value is 0, (E,), do not count. None: all count.
    """

    num_nodes: int
    ends: Sequence[Array]
    weights: Floats | None
    values: Array | None

    def graph(self, directed: bool) -> Graph:
        """Sort the edges and merge repeated ones.

        SciPy sorts by counting, in the order of the weights: their sums do not depend on the order
        of the edges.
        """
        from scipy.sparse import coo_array, csr_array  # would slow down the start of every command

        n = self.num_nodes
        if n > _MOST_NODES:
            raise ValueError(f"graph must have at most {_MOST_NODES} nodes, got {n}")
        counts = np.asarray(self.ends[0]) != self.ends[1]
        if self.values is not None:
            counts &= self.values != 0
        sources, targets = (np.asarray(ends).astype(np.int32)[counts] for ends in self.ends)
        weights: Any = np.ones(len(sources), np.int8)
        if self.weights is not None:
            weights = self.weights[counts].astype(np.float64)
            order = np.argsort(weights)
            weights = weights[order]
            sources = sources[order]
            targets = targets[order]
        edges = coo_array((weights, (targets, sources)), shape=(n, n))
        edges.has_canonical_format = True  # repeated edges are summed after both sorts
        matrix = edges.tocsc().tocsr()
        matrix.sum_duplicates()
        arrays = np.ones(matrix.nnz, np.int8), matrix.indices, matrix.indptr
        directions = csr_array(arrays, matrix.shape)  # 1 for each edge
        if self.weights is None:
            matrix = directions
        if not directed:
            directions = directions + directions.T
            matrix = directions if self.weights is None else matrix + matrix.T
        indptr = matrix.indptr.astype(np.int64)
        indices = matrix.indices.astype(np.int32, copy=False)
        if self.weights is None:
            return Graph(indptr, indices, None, directed)
        with np.errstate(over="ignore"):  # infinite weights are refused
            weights = (matrix.data / directions.data).astype(np.float32)
        return Graph(indptr, indices, weights, directed)


def _edges_of(graph: Any, num_nodes: int | None, edge_weight: Any) -> _Edges:
    """Return the edges of a graph; see :func:`as_graph` for its forms and for errors."""
    weighted = edge_weight is True
    if _is_matrix(graph):
        _refuse_array(edge_weight, "sparse matrix")
        matrix = graph if is_sparse(graph) else as_scipy(graph, weighted=weighted)
        return _of_matrix(matrix, num_nodes, weighted, transposed=matrix is not graph)
    if hasattr(graph, "edge_index") or hasattr(graph, "adj_t"):
        return _of_data(graph, num_nodes, edge_weight)
    if hasattr(graph, "adjacency") and hasattr(graph, "nodes"):
        _refuse_array(edge_weight, "NetworkX graph")
        return _of_networkx(graph, num_nodes, weighted)
    if weighted:
        raise ValueError(
            "edge_weight=True needs a graph that holds weights; for an edge_index give them, shape "
            "(E,)"
        )
    return _of_edge_index(graph, num_nodes, edge_weight)


def is_torch_sparse(graph: Any) -> bool:
    """Return whether a graph is an ``adj_t`` of PyG, of torch or of torch_sparse.

    Its rows are the targets of edges.
    """
    return str(getattr(graph, "layout", "")).startswith("torch.sparse") or hasattr(
        graph, "sparse_sizes"
    )


def parts_for_the_model(data: Any) -> tuple[str, ...]:
    """Return the names of the edge values in ``data``, which KS vectors ignore by default.

    O(E) time for the values of an ``adj_t``.
    """
    names = [
        name
        for name in ("edge_weight", "edge_attr", "edge_type")
        if getattr(data, name, None) is not None
    ]
    for name in ("edge_index", "adj_t"):
        part = getattr(data, name, None)
        if part is not None and _is_matrix(part):
            matrix: Any = part if is_sparse(part) else as_scipy(part, weighted=False)
            names += [f"values of {name}"] if (matrix.tocsr().data != 1).any() else []
    return tuple(names)


def as_scipy(adj_t: Any, *, weighted: bool = True) -> Any:
    """Return an ``adj_t`` (see :func:`is_torch_sparse`) as a SciPy matrix, targets as rows.

    Entries without values are 1; also entries with several values, if ``weighted`` is False.
    """
    import scipy.sparse

    kind: Any = scipy.sparse.csr_array
    if hasattr(adj_t, "sparse_sizes"):
        shape = adj_t.sparse_sizes()
        parts = adj_t.csr()
    elif str(adj_t.layout) == "torch.sparse_csr":
        shape = adj_t.shape
        parts = (adj_t.crow_indices(), adj_t.col_indices(), adj_t.values())
    elif str(adj_t.layout) == "torch.sparse_csc":
        shape = adj_t.shape
        parts = (adj_t.ccol_indices(), adj_t.row_indices(), adj_t.values())
        kind = scipy.sparse.csc_array
    elif str(adj_t.layout) == "torch.sparse_coo":
        ends = as_array("graph", adj_t._indices())  # indices() raises for repeated entries
        values = _values(adj_t._values(), ends.shape[1], weighted)
        return scipy.sparse.coo_array((values, tuple(ends[:2])), shape=tuple(adj_t.shape[:2]))
    else:
        raise TypeError(
            f"graph must be a sparse tensor in COO, CSR or CSC format, got {adj_t.layout}"
        )
    indptr = as_array("graph", parts[0])
    indices = as_array("graph", parts[1])
    return kind(
        (_values(parts[2], len(indices), weighted), indices, indptr),
        shape=tuple(map(int, shape[:2])),
    )


def _values(values: Any, size: int, weighted: bool) -> Array:
    array = np.ones(size, np.float32) if values is None else as_array("the values of graph", values)
    if array.ndim > 1:
        if weighted:
            raise ValueError(
                f"graph must hold one weight for each edge, got values of shape {array.shape}"
            )
        return np.ones(size, np.float32)
    return array.astype(np.float32) if array.dtype == np.float16 else array  # SciPy has no float16


def _refuse_array(edge_weight: Any, kind: str) -> None:
    if edge_weight is not None and not isinstance(edge_weight, bool):
        raise ValueError(
            f"edge_weight must be True or False for a {kind}, which holds its weights itself, got "
            f"{type(edge_weight).__name__}"
        )


def _of_edge_index(edge_index: Any, num_nodes: int | None, edge_weight: Any) -> _Edges:
    array = as_array("edge_index", edge_index)
    check_shape("edge_index", array, (2, "E"))
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"edge_index must hold integers, got dtype {array.dtype}")
    n = _number_of_nodes(array, num_nodes)
    weighted = edge_weight is not None and edge_weight is not False
    weights = as_weights("edge_weight", edge_weight, array.shape[1]) if weighted else None
    return _Edges(n, (array[0], array[1]), weights, weights)


def _number_of_nodes(array: Array, num_nodes: int | None) -> int:
    if array.size == 0:
        if num_nodes is None:
            raise ValueError(
                "edge_index must hold at least one edge, or num_nodes be given, got shape (2, 0)"
            )
        return num_nodes
    lowest = int(array.min())
    highest = int(array.max())
    n = highest + 1 if num_nodes is None else num_nodes
    if lowest < 0 or highest >= n:
        wrong = lowest if lowest < 0 else highest
        edge = int(np.argmax((array == wrong).any(axis=0)))
        limit = f"0..{n - 1}" if num_nodes is not None else "0, 1, 2, ..."
        raise ValueError(f"edge_index must lie in {limit}, got {wrong} in edge {edge}")
    return n


def _of_data(data: Any, num_nodes: int | None, edge_weight: Any) -> _Edges:
    if num_nodes is None:
        num_nodes = getattr(data, "num_nodes", None)
    name = type(data).__name__
    edge_index = getattr(data, "edge_index", None)
    adj_t = getattr(data, "adj_t", None)
    edges = adj_t if edge_index is None else edge_index
    if edges is None:
        raise ValueError(
            f"graph must have edge_index or adj_t, got {name} without either (a graph without "
            "edges has an edge_index of shape (2, 0))"
        )
    weights = getattr(data, "edge_weight", None)
    if edge_weight is True and weights is not None:
        if _is_matrix(edges):
            raise ValueError(
                f"edge_weight=True needs weights in one place, got {name} with edge_weight and "
                f"adj_t"
            )
        edge_weight = weights
    elif edge_weight is True:
        edges = edges if adj_t is None else adj_t
        if not _is_matrix(edges):
            raise ValueError(
                f"edge_weight=True needs edge_weight or adj_t, got {name} without either"
            )
    return _edges_of(edges, num_nodes, edge_weight)


def _is_matrix(graph: Any) -> bool:
    return is_sparse(graph) or is_torch_sparse(graph)


def _of_networkx(graph: Any, num_nodes: int | None, weighted: bool) -> _Edges:
    from networkx import to_scipy_sparse_array

    if not len(graph):
        raise ValueError("graph must have at least one node, got an empty NetworkX graph")
    # An undirected graph gets both directions, so it stays undirected for any value of `directed`.
    matrix = to_scipy_sparse_array(graph, weight="weight" if weighted else None)
    return _of_matrix(matrix, num_nodes, weighted, transposed=False)


def _of_matrix(matrix: Any, num_nodes: int | None, weighted: bool, *, transposed: bool) -> _Edges:
    """Return the edges of a SciPy matrix: from rows to columns, or transposed."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"graph must be a square sparse matrix, got shape {matrix.shape}")
    n = matrix.shape[0]
    if n == 0:
        raise ValueError("graph must have at least one node, got a matrix of shape (0, 0)")
    _check_num_nodes(n, num_nodes)
    if matrix.format in ("csr", "csc"):  # SciPy converts them without a check of their indices
        try:
            matrix.check_format()
        except ValueError as error:
            raise ValueError(
                f"graph must be a valid {matrix.format.upper()} matrix: {error}"
            ) from error
    entries = matrix.tocoo(copy=False)
    ends = (entries.col, entries.row) if transposed else (entries.row, entries.col)
    return _Edges(
        n,
        ends,
        as_weights("the weights of graph", entries.data, entries.nnz) if weighted else None,
        entries.data,
    )


def as_weights(name: str, values: Any, size: int, first: int = 0) -> Floats:
    """Return the weights of edges, (size,).

    Errors name edges by their numbers, counted from ``first``.
    """
    array = as_array(name, values)
    check_shape(name, array, (size,), "one for each edge")
    with np.errstate(over="ignore"):
        weights = array.astype(np.float32, copy=False)
    wrong = ~((weights >= 0) & (weights < np.inf)) | ((weights == 0) & (array != 0))
    if wrong.any():
        edge = int(np.argmax(wrong))
        raise ValueError(
            f"{name} must be 0 or positive, and finite, in float32, got {array[edge]} in edge "
            f"{first + edge}"
        )
    return weights


def _check_num_nodes(n: int, num_nodes: int | None) -> None:
    """Raise ValueError if ``num_nodes`` is given and is not n."""
    if num_nodes is not None and n != num_nodes:
        raise ValueError(f"graph must have {num_nodes} nodes, got {n}")


# --- surroundings of a pair -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Neighbours of one node of a pair.

    Attributes
    ----------
    degree, same
        Number of its neighbours, and of those with its label.
    drawn
        Its neighbours in a drawing, (m,) int32, sorted by label and number.
    shared
        Whether each of them is the other node or a neighbour of it, (m,).
    edges
        Pairs of positions in ``drawn`` that are connected.
    """

    degree: int
    same: int
    drawn: Int32s
    shared: Bools
    edges: tuple[tuple[int, int], ...]


def surroundings(graph: Graph, node: int, other: int, labels: Int32s, most: int) -> Surroundings:
    """Return at most ``most`` neighbours of a node: shared ones first, then by ascending number.

    Examples
    --------
    >>> from cfe_faiss.graph.csr import as_graph
    >>> graph = as_graph([[0, 0, 0, 1], [1, 2, 3, 3]])
    >>> surroundings(graph, 0, 1, np.zeros(4, np.int32), most=2).drawn
    array([1, 3], dtype=int32)
    """
    near = graph.neighbors(node)
    shared = np.isin(near, np.append(graph.neighbors(other), other))
    neighbors = np.argsort(~shared, kind="stable")[:most]
    neighbors = neighbors[np.lexsort((near[neighbors], labels[near[neighbors]]))]
    drawn = near[neighbors]
    connected = [np.flatnonzero(np.isin(drawn, graph.neighbors(int(v)))) for v in drawn]
    edges = tuple((i, int(j)) for i, others in enumerate(connected) for j in others if i < j)
    return Surroundings(
        len(near), int((labels[near] == labels[node]).sum()), drawn, shared[neighbors], edges
    )


def nearest_neighbours(x: Floats, k: int) -> Ints:
    """Join each row to its k nearest other rows by Euclidean distance; return all these pairs.

    Returns
    -------
    ndarray
        (2, n k) int64. O(n^2 d) time at worst, for many columns.

    Raises
    ------
    TypeError, ValueError
        If k is not in 1..n-1.
    """
    k = as_count("neighbours", k)
    if k >= len(x):
        raise ValueError(f"neighbours must be less than the number of nodes, {len(x):,}, got {k}")
    from sklearn.neighbors import kneighbors_graph  # takes a second to import

    graph = kneighbors_graph(x, k).tocoo()
    return np.stack([graph.row, graph.col]).astype(np.int64)
