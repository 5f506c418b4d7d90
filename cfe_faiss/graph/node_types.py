"""Node types of heterogeneous graphs."""

from typing import Any

from cfe_faiss.base.checks import check_known


def is_heterogeneous(data: Any) -> bool:
    """Return whether ``data`` has node types, like PyG's ``HeteroData`` (which is not imported here)."""
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
    """Return the object with ``x``, ``y`` and other node values: ``data`` itself, or its store of one node type.

    Raises
    ------
    ValueError
        If ``node_type`` is missing for ``HeteroData``, unknown, or given for another graph.
    """
    if is_heterogeneous(data):
        return data[as_node_type("node_type", data, node_type)]
    if node_type is not None:
        raise ValueError(f"node_type is for HeteroData, got node_type={node_type!r} for {type(data).__name__}")
    return data
