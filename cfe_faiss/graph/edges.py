"""Edges of a graph of any supported form: blocks of sources above targets, and their weights."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from cfe_faiss.base.arrays import Array, Floats, Ints
from cfe_faiss.base.checks import as_array, is_sparse

# Edges are read in blocks, to avoid an int64 copy of a large edge list.
_EDGES_PER_BLOCK = 1 << 20

Block: TypeAlias = tuple[Ints, Floats | None]
"""Edges, (2, m), sources above targets, and their weights, (m,)."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of a graph of ``num_nodes`` nodes. Each call of ``blocks`` yields all of them."""

    num_nodes: int
    weighted: bool
    blocks: Callable[[], Iterator[Block]]


def edges_of(graph: Any, num_nodes: int | None, edge_weight: Any) -> Edges:
    """Return the edges of a graph.

    See :func:`cfe_faiss.graph.as_graph` for its forms and for errors.
    """
    own = edge_weight is True
    if _is_matrix(graph):
        _refuse_array(edge_weight, "sparse matrix")
        matrix = graph if is_sparse(graph) else as_scipy(graph, weighted=own)
        return _of_matrix(matrix, num_nodes, own, transposed=matrix is not graph)
    if hasattr(graph, "edge_index") or hasattr(graph, "adj_t"):
        return _of_data(graph, num_nodes, edge_weight)
    if hasattr(graph, "adjacency") and hasattr(graph, "nodes"):
        _refuse_array(edge_weight, "NetworkX graph")
        return _of_networkx(graph, num_nodes, own)
    if own:
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
    found = [
        name
        for name in ("edge_weight", "edge_attr", "edge_type")
        if getattr(data, name, None) is not None
    ]
    for name in ("edge_index", "adj_t"):
        given = getattr(data, name, None)
        if given is not None and _is_matrix(given):
            matrix: Any = given if is_sparse(given) else as_scipy(given, weighted=False)
            found += [f"values of {name}"] if (matrix.tocsr().data != 1).any() else []
    return tuple(found)


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


def _of_edge_index(edge_index: Any, num_nodes: int | None, edge_weight: Any) -> Edges:
    array = as_array("edge_index", edge_index)
    if array.ndim != 2 or array.shape[0] != 2:
        raise ValueError(f"edge_index must have shape (2, E), got {array.shape}")
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"edge_index must hold integers, got dtype {array.dtype}")
    n = _number_of_nodes(array, num_nodes)
    weighted = edge_weight is not None and edge_weight is not False
    weights = as_weights("edge_weight", edge_weight, array.shape[1]) if weighted else None
    return _in_blocks(n, (array[0], array[1]), weights, weights)


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


def _of_data(data: Any, num_nodes: int | None, edge_weight: Any) -> Edges:
    if num_nodes is None:
        num_nodes = getattr(data, "num_nodes", None)
    name = type(data).__name__
    edge_index = getattr(data, "edge_index", None)
    adj_t = getattr(data, "adj_t", None)
    given = adj_t if edge_index is None else edge_index
    if given is None:
        raise ValueError(
            f"graph must have edge_index or adj_t, got {name} without either (a graph without "
            f"edges has an edge_index "
            "of shape (2, 0))"
        )
    weights = getattr(data, "edge_weight", None)
    if edge_weight is True and weights is not None:
        if _is_matrix(given):
            raise ValueError(
                f"edge_weight=True needs weights in one place, got {name} with edge_weight and "
                f"adj_t"
            )
        edge_weight = weights
    elif edge_weight is True:
        given = given if adj_t is None else adj_t
        if not _is_matrix(given):
            raise ValueError(
                f"edge_weight=True needs edge_weight or adj_t, got {name} without either"
            )
    return edges_of(given, num_nodes, edge_weight)


def _is_matrix(graph: Any) -> bool:
    return is_sparse(graph) or is_torch_sparse(graph)


def _of_networkx(graph: Any, num_nodes: int | None, weighted: bool) -> Edges:
    from networkx import to_scipy_sparse_array

    if not len(graph):
        raise ValueError("graph must have at least one node, got an empty NetworkX graph")
    # An undirected graph gets both directions, so it stays undirected for any value of `directed`.
    matrix = to_scipy_sparse_array(graph, weight="weight" if weighted else None)
    return _of_matrix(matrix, num_nodes, weighted, transposed=False)


def _of_matrix(matrix: Any, num_nodes: int | None, weighted: bool, *, transposed: bool) -> Edges:
    """Return the edges of a SciPy matrix: from rows to columns, or transposed."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"graph must be a square sparse matrix, got shape {matrix.shape}")
    n = matrix.shape[0]
    if n == 0:
        raise ValueError("graph must have at least one node, got a matrix of shape (0, 0)")
    check_num_nodes(n, num_nodes)
    if matrix.format in ("csr", "csc"):  # SciPy converts them without a check of their indices
        try:
            matrix.check_format()
        except ValueError as error:
            raise ValueError(
                f"graph must be a valid {matrix.format.upper()} matrix: {error}"
            ) from error
    entries = matrix.tocoo(copy=False)
    ends = (entries.col, entries.row) if transposed else (entries.row, entries.col)
    return _in_blocks(
        n,
        ends,
        as_weights("the weights of graph", entries.data, entries.nnz) if weighted else None,
        entries.data,
    )


def _in_blocks(
    n: int, ends: Sequence[Array], weights: Floats | None, entries: Array | None
) -> Edges:
    """Return edges from ``ends``, (2, E), whose entries are not 0; None: all of them."""

    def blocks() -> Iterator[Block]:
        for first in range(0, len(ends[0]), _EDGES_PER_BLOCK):
            some = slice(first, first + _EDGES_PER_BLOCK)
            edges = np.array([ends[0][some], ends[1][some]], np.int64)
            kept = slice(None) if entries is None or entries[some].all() else entries[some] != 0
            yield (
                np.ascontiguousarray(edges[:, kept]),
                None if weights is None else weights[some][kept],
            )

    return Edges(n, weights is not None, blocks)


def as_weights(name: str, values: Any, size: int, first: int = 0) -> Floats:
    """Return the weights of edges, (size,).

    Errors name edges by their numbers, counted from ``first``.
    """
    array = as_array(name, values)
    if array.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), one for each edge, got {array.shape}")
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


def check_num_nodes(n: int, num_nodes: int | None) -> None:
    """Raise ValueError if ``num_nodes`` is given and is not n."""
    if num_nodes is not None and n != num_nodes:
        raise ValueError(f"graph must have {num_nodes} nodes, got {n}")
