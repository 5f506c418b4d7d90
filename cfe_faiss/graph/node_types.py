"""Graphs with nodes of several types: which they are, and what one type knows of its nodes."""

from typing import Any


def is_heterogeneous(data: Any) -> bool:
    """Return whether ``data`` has nodes of several types, as PyG's ``HeteroData`` does (which is not imported here)."""
    return hasattr(data, "node_types") and hasattr(data, "edge_types")


def as_node_type(name: str, data: Any, node_type: Any) -> str:
    """Return one of the node types of ``data``.

    Raises
    ------
    ValueError
        If there is no such type; ``name`` is what the error calls it.
    """
    if not isinstance(node_type, str) or node_type not in data.node_types:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, data.node_types))}, got {node_type!r}")
    return node_type


def nodes_of(data: Any, node_type: str | None) -> Any:
    """Return what holds ``x``, ``y`` and the like of the nodes: ``data`` itself, or its store of one node type.

    Raises
    ------
    ValueError
        If ``data`` has several node types and none of them is given, or only one and another is given.
    """
    if is_heterogeneous(data):
        return data[as_node_type("node_type", data, node_type)]
    if node_type is not None:
        raise ValueError(f"node_type is for HeteroData, got node_type={node_type!r} for {type(data).__name__}")
    return data
