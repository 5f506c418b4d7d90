"""PyG's feature and graph stores as inputs of jobs, read block by block."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch_geometric.data import FeatureStore, GraphStore

from cfe_faiss.base.checks import Array, as_array


@dataclass(frozen=True, slots=True)
class StoredFeatures:
    """The rows of a tensor in a feature store, fetched on demand.

    Attributes
    ----------
    shape
        (n, d), or (n,).
    rows
        Returns a slice of the rows.
    """

    shape: tuple[int, ...]
    rows: Callable[[slice], Array]

    def __getitem__(self, rows: slice) -> Array:
        return self.rows(rows)


@dataclass(frozen=True, slots=True)
class StoredEdges:
    """The edges of a graph store as an edge_index, whose parts are computed on demand.

    Attributes
    ----------
    shape
        (2, E).
    ends
        Returns the sources (0) or the targets (1) of a slice of the edges.
    """

    shape: tuple[int, int]
    ends: Callable[[int, slice], Array]

    def __getitem__(self, part: slice | tuple[int, slice]) -> Array:
        if isinstance(part, slice):
            return np.stack([self.ends(end, slice(None)) for end in range(2)[part]])
        return self.ends(*part)


def stored_features(store: FeatureStore, *attr: Any, **named_attr: Any) -> StoredFeatures:
    """Return a tensor of a PyG feature store as ``features`` or ``labels`` of a job.

    Parameters
    ----------
    store
        Any ``torch_geometric.data.FeatureStore``: ``Data``, ``HeteroData``, or a class of the user.
        Rows are fetched in blocks.
    *attr, **named_attr
        Which tensor, as for ``store.get_tensor``, without an index.

    Returns
    -------
    StoredFeatures
        Input of :class:`cfe_faiss.scale.Job`, which copies it into its folder block by block.

    Raises
    ------
    KeyError
        If the store has no such tensor.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from cfe_faiss.integrations.pyg import stored_features
    >>> data = Data(x=torch.arange(6.0).reshape(3, 2))
    >>> features = stored_features(data, attr_name="x")
    >>> features.shape, features[1:2]
    ((3, 2), array([[2., 3.]], dtype=float32))
    """
    try:
        size = store.get_tensor_size(*attr, **named_attr)
    except (AttributeError, KeyError):  # of Data and HeteroData
        size = None
    if size is None:
        raise KeyError(f"the store has no tensor {(*attr, *named_attr.values())}")
    cast = store._tensor_attr_cls.cast

    def rows(wanted: slice) -> Array:
        tensor_attr = cast(*attr, **named_attr)
        # Loaders ask stores for such an index; not all stores take a slice.
        tensor_attr.index = torch.arange(*wanted.indices(size[0]))
        return as_array("features", store.get_tensor(tensor_attr))

    return StoredFeatures(tuple(int(length) for length in size), rows)


def stored_edges(store: GraphStore, *attr: Any, **named_attr: Any) -> StoredEdges:
    """Return the edges of a PyG graph store, in any layout, as ``edges`` of a job.

    Parameters
    ----------
    store
        Any ``torch_geometric.data.GraphStore``.
    *attr, **named_attr
        Which edges, as for ``store.get_edge_index``: ``edge_type`` and ``layout``. Without them,
        the only ones.

    Returns
    -------
    StoredEdges
        Input of :class:`cfe_faiss.scale.Job`, which copies it into its folder block by block. CSR
        and CSC layouts are converted to an edge_index, so neighbours may be in any order.

    Raises
    ------
    KeyError
        If the store has no such edges.
    ValueError
        If no kind of edges is named and the store has not exactly one, if they join nodes of two
        types, or if their tensors do not fit together.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from cfe_faiss.integrations.pyg import stored_edges
    >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
    >>> edges = stored_edges(data)
    >>> edges.shape, edges[0, slice(1, 3)]
    ((2, 3), array([1, 2]))
    """
    if attr or named_attr:
        edge_attr = store._edge_attr_cls.cast(*attr, **named_attr)
    else:
        edge_attrs = store.get_all_edge_attrs()
        if len(edge_attrs) != 1:
            raise ValueError(
                f"edge_type and layout must name one of {len(edge_attrs)} kinds of edges: {edge_attrs}"
            )
        edge_attr = edge_attrs[0]
    if isinstance(edge_attr.edge_type, tuple) and edge_attr.edge_type[0] != edge_attr.edge_type[-1]:
        raise ValueError(f"edges must join nodes of one type, got {edge_attr.edge_type}")
    ends = [as_array("edges", end) for end in store.get_edge_index(edge_attr)]
    if edge_attr.layout.value == "coo":
        if ends[0].shape != ends[1].shape or ends[0].ndim != 1:
            raise ValueError(
                f"edges must be two vectors of one length, got shapes {ends[0].shape} and "
                f"{ends[1].shape}"
            )
        return StoredEdges((2, len(ends[0])), lambda end, edges: ends[end][edges])
    is_csr = edge_attr.layout.value == "csr"
    pointers, others = ends if is_csr else ends[::-1]
    return _of_rows(pointers, others, 0 if is_csr else 1)


def _of_rows(pointers: Array, others: Array, row_end: int) -> StoredEdges:
    """Return the edges of sparse rows.

    ``row_end`` is 0 if rows belong to sources, 1 if they belong to targets.
    """
    if pointers.ndim != 1 or others.ndim != 1 or len(pointers) < 1 or pointers[-1] != len(others):
        shapes = f"{pointers.shape} and {others.shape}"
        raise ValueError(
            f"the edges' pointers must end with the number of indices, got shapes {shapes}"
        )

    def ends(end: int, edges: slice) -> Array:
        if end != row_end:
            return others[edges]
        first, stop, _ = edges.indices(len(others))
        return np.searchsorted(pointers, np.arange(first, stop), side="right") - 1

    return StoredEdges((2, len(others)), ends)
