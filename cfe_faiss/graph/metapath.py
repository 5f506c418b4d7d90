"""Node types of heterogeneous graphs, and the graph of one of them along a meta-path."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.base.checks import as_array, check_known, check_shape
from cfe_faiss.base.extras import extra
from cfe_faiss.graph.csr import as_scipy

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch_geometric.data import Data


def is_heterogeneous(data: Any) -> bool:
    """Return whether ``data`` has node types, like PyG's ``HeteroData`` (not imported here)."""
    return hasattr(data, "node_types") and hasattr(data, "edge_types")


def as_node_type(name: str, data: Any, node_type: Any) -> str:
    """Return one of the node types of ``data``.

    Raises
    ------
    ValueError
        If there is no such type; the message starts with ``name``.
    """
    check_known(f"{name} must be one of the node types", node_type, data.node_types)
    return str(node_type)


def nodes_of(data: Any, node_type: str | None) -> Any:
    """Return the object with ``x``, ``y`` and other values: ``data`` or a store of it.

    Raises
    ------
    ValueError
        If ``node_type`` is missing for ``HeteroData``, unknown, or given for another graph.
    """
    if is_heterogeneous(data):
        return data[as_node_type("node_type", data, node_type)]
    if node_type is not None:
        raise ValueError(
            f"node_type is for HeteroData, got node_type={node_type!r} for {type(data).__name__}"
        )
    return data


def metapath_graph(
    data: Any, metapath: Sequence[tuple[str, ...]], *, weighted: bool = False
) -> "Data":
    """Return the graph of the nodes of one type along a meta-path.

    An edge leads from v to u if at least one path of these edge types leads from v to u. It is the
    graph that PyG's ``AddMetaPaths`` adds to ``data``, as separate ``Data``. Self-loops (each paper
    joins an author to herself) are kept as in PyG; KS vectors ignore them.

    Parameters
    ----------
    data
        PyG ``HeteroData``.
    metapath
        Edge types of ``data`` in walking order: triples of source, relation and target, or pairs of
        source and target if a single relation joins these. Each has an ``edge_index`` or ``adj_t``
        and starts at the node type where the previous one ends. The last one ends at the type where
        the first one starts.
    weighted
        Whether the result has ``edge_weight``, (E,) float32: the number of paths from v to u; for
        edge types with ``edge_weight`` or with an ``adj_t`` with values, the sum over the paths of
        the products of their weights.

    Returns
    -------
    torch_geometric.data.Data
        The values of the node type in ``data`` (``x``, ``y``, masks, names, ...) and
        ``edge_index``, (2, E) int64, sorted by source and target. It is a product of sparse
        matrices on the CPU. Time and memory grow with the number of paths; a node on many paths (a
        conference, a country) produces many edges.

    Raises
    ------
    TypeError
        If ``data`` is not ``HeteroData``, or an argument is not as described.
    ValueError
        If ``data`` lacks an edge type, the meta-path is broken or does not return to its first
        type, no path exists, or an edge leads to a missing node.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import HeteroData
    >>> data = HeteroData()
    >>> data["author"].x = torch.eye(3)
    >>> data["paper"].num_nodes = 2
    >>> data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1, 1], [0, 0, 1]])
    >>> data["paper", "rev_writes", "author"].edge_index = torch.tensor([[0, 0, 1], [0, 1, 1]])
    >>> graph = metapath_graph(data, [("author", "paper"), ("paper", "author")], weighted=True)
    >>> graph.edge_index.tolist(), graph.edge_weight.tolist()
    ([[0, 0, 1, 1], [0, 1, 0, 1]], [1.0, 1.0, 1.0, 2.0])
    """
    with extra("gnn"):
        import torch
        from torch_geometric.data import Data

    steps = _steps(data, metapath)
    reached = _adjacency(data, steps[0], weighted)
    for step in steps[1:]:
        reached = reached @ _adjacency(data, step, weighted)
        if not weighted:
            reached.data[:] = 1  # the number of paths may overflow
    reached.eliminate_zeros()
    if reached.nnz == 0:
        raise ValueError(f"metapath must join nodes, got no path along {_text(steps)}")
    reached.sort_indices()
    edges = reached.tocoo()
    store = dict(data[steps[0][0]].items())
    device = store["x"].device if isinstance(store.get("x"), torch.Tensor) else "cpu"
    store["edge_index"] = torch.from_numpy(np.stack([edges.row, edges.col]).astype(np.int64)).to(
        device
    )
    if weighted:
        store["edge_weight"] = torch.from_numpy(edges.data.astype(np.float32)).to(device)
    return Data(**store)


def _steps(data: Any, metapath: Any) -> list[tuple[str, str, str]]:
    """Return a checked meta-path as triples."""
    if not is_heterogeneous(data):
        raise TypeError(f"data must be HeteroData, got {type(data).__name__}")
    if isinstance(metapath, str) or not isinstance(metapath, Sequence) or len(metapath) == 0:
        raise TypeError(
            f"metapath must be a sequence of edge types, at least one, got {metapath!r}"
        )
    steps = [_step(data, step) for step in metapath]
    for before, after in pairwise(steps):
        if before[2] != after[0]:
            raise ValueError(
                f"metapath must go on where the step before ends, got {after} after {before}"
            )
    if steps[0][0] != steps[-1][2]:
        raise ValueError(f"metapath must end at the node type where it starts, got {_text(steps)}")
    return steps


def _step(data: Any, step: Any) -> tuple[str, str, str]:
    edge_types: list[tuple[str, str, str]] = list(data.edge_types)
    matches = [
        one for one in edge_types if step in (one, list(one), (one[0], one[2]), [one[0], one[2]])
    ]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(map(str, matches or edge_types))
    if matches:
        raise ValueError(f"metapath must name one edge type in each step, got {step!r} for {names}")
    raise ValueError(f"metapath must be of edge types of data ({names}), got {step!r}")


def _adjacency(data: Any, step: tuple[str, str, str], weighted: bool) -> "csr_array":
    """Return the edges of a type as a matrix of sources by targets, of weights or ones."""
    from scipy.sparse import csr_array

    store = data[step]
    shape = (_num_nodes(data, step[0]), _num_nodes(data, step[2]))
    if "edge_index" not in store and "adj_t" in store:
        matrix = csr_array(as_scipy(store.adj_t, weighted=weighted).T.astype(np.float64))
        if matrix.shape != shape:
            raise ValueError(
                f"adj_t of {step} must have shape {shape[::-1]}, got {matrix.shape[::-1]}"
            )
        return matrix if weighted else _ones(matrix)
    if "edge_index" not in store:
        raise ValueError(
            f"data must have edge_index or adj_t for {step}, got "
            f"{', '.join(store.keys()) or 'nothing'}"
        )
    ends = as_array(f"edge_index of {step}", store.edge_index)
    check_shape(f"edge_index of {step}", ends, (2, "E"))
    if ends.shape[1] and (ends.min() < 0 or (ends.max(axis=1) >= shape).any()):
        limits = f"0..{shape[0] - 1} and 0..{shape[1] - 1}"
        raise ValueError(
            f"edge_index of {step} must lie in {limits}, got {ends.min(axis=1)}..{ends.max(axis=1)}"
        )
    values = np.ones(ends.shape[1])
    weights = getattr(store, "edge_weight", None)
    if weighted and weights is not None:
        values = as_array(f"edge_weight of {step}", weights).astype(np.float64)
        if values.shape != (ends.shape[1],) or not np.isfinite(values).all():
            raise ValueError(
                f"edge_weight of {step} must be finite, one for each edge, got shape {values.shape}"
            )
    matrix = csr_array((values, (ends[0], ends[1])), shape=shape)
    return matrix if weighted else _ones(matrix)


def _ones(matrix: "csr_array") -> "csr_array":
    """Replace the entries of a matrix by ones: repeated edges count once, zeros are dropped."""
    matrix.sum_duplicates()
    matrix.data = (matrix.data != 0).astype(np.float64)
    return matrix


def _num_nodes(data: Any, node_type: str) -> int:
    store = data[node_type]
    if not store.can_infer_num_nodes:
        raise ValueError(
            f"data must know how many nodes there are: data[{node_type!r}].num_nodes is not set"
        )
    return int(store.num_nodes)


def _text(steps: list[tuple[str, str, str]]) -> str:
    return " -> ".join([steps[0][0], *(step[2] for step in steps)])
