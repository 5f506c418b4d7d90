"""LlamaIndex's nodes as rows of a store, and back."""

import json
from typing import Any

from cfe_faiss.base.extras import extra
from cfe_faiss.integrations.adapter import Row

with extra("llama-index"):
    from llama_index.core.constants import DATA_KEY, TYPE_KEY
    from llama_index.core.schema import BaseNode, TextNode
    from llama_index.core.storage.docstore.utils import json_to_doc

REF_DOC_ID = "_ref_doc_id"
"""Metadata key of a row: the id of the document that the node was made from."""

_CONTENT = "_node"
"""Metadata key of a row: JSON of the fields of the node that a row does not have."""

_PLAIN = json.dumps({TYPE_KEY: TextNode.get_type(), DATA_KEY: {}})
"""Node of a row that was not added as a node."""


def to_row(node: BaseNode) -> Row:
    """Return the row of a node.

    Raises
    ------
    ValueError
        If its metadata uses a reserved key.
    """
    for key in (REF_DOC_ID, _CONTENT):
        if key in node.metadata:
            raise ValueError(f"metadata of node {node.node_id!r} must not use the key {key!r}, which is reserved")
    fields = node.model_dump(mode="json", exclude={"id_", "embedding", "metadata"}, exclude_defaults=True)
    text = _take_text(fields)
    content = json.dumps({TYPE_KEY: node.get_type(), DATA_KEY: fields}, ensure_ascii=False, separators=(",", ":"))
    return node.node_id, {**node.metadata, _CONTENT: content, REF_DOC_ID: node.ref_doc_id}, text


def to_node(row: Row) -> BaseNode:
    """Return the node of a row."""
    id_, metadata, text = row
    content = json.loads(metadata.pop(_CONTENT, _PLAIN))
    metadata.pop(REF_DOC_ID, None)
    fields = content[DATA_KEY]
    fields.update(id_=id_, metadata=metadata)
    if text is not None:
        (fields.get("text_resource") or fields)["text"] = text
    return json_to_doc(content)


def _take_text(fields: dict[str, Any]) -> str | None:
    """Remove the text of a node from its fields: from the top level, the text resource, or both."""
    text: str | None = None
    for holder in (fields, fields.get("text_resource")):
        if holder and "text" in holder:
            text = holder.pop("text")
    return text
