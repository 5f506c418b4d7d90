"""LlamaIndex's nodes as rows of a store, and back; its metadata filters as conditions of a store."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from cfe_faiss.base.extras import extra
from cfe_faiss.integrations.adapter import MOST_NESTED, Row

with extra("llama-index"):
    from llama_index.core.constants import DATA_KEY, TYPE_KEY
    from llama_index.core.schema import BaseNode, TextNode
    from llama_index.core.storage.docstore.utils import json_to_doc
    from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
    from llama_index.core.vector_stores.utils import build_metadata_filter_fn

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


def condition(filters: MetadataFilters, fields: Mapping[str, str], depth: int = 0) -> dict[str, Any]:
    """Return filters, nested ones included, as a filter for a store.

    LlamaIndex itself compares the values, as in its ``SimpleVectorStore``. A missing value or None matches ``NE``,
    ``NIN`` and ``IS_EMPTY`` only.

    Parameters
    ----------
    filters
        An empty list of filters matches everything.
    fields
        The store's names of the keys that are not metadata there.
    depth
        Number of filters around these, at most ``MOST_NESTED``.

    Raises
    ------
    ValueError
        If a value is of a type that an operator does not take; also while the store compares, where an operator
        does not take a value of the metadata.
    """
    if depth > MOST_NESTED:
        raise ValueError(f"filters must be nested {MOST_NESTED} deep at most, got deeper ones")
    parts: list[dict[str, Any]] = []
    for one in filters.filters:
        if isinstance(one, MetadataFilters):
            parts.append(condition(one, fields, depth + 1))
        else:
            parts.append({fields.get(one.key, one.key): _predicate(one)})
    parts = [part for part in parts if part]
    if not parts:
        return {}
    if filters.condition == FilterCondition.OR:
        return {"$or": parts}
    if filters.condition == FilterCondition.NOT:  # none of them
        return {"$not": {"$or": parts}}
    return {"$and": parts}


_VALUE, _SCALAR = (int, float, str, list), (int, float, str)
_NAMES: dict[Any, str] = {_VALUE: "a value", _SCALAR: "a number or a text", list: "a list", str: "a text"}
_TYPES: dict[FilterOperator, Any] = {
    **dict.fromkeys((FilterOperator.EQ, FilterOperator.NE), _VALUE),
    **dict.fromkeys((FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL), list),
    **dict.fromkeys((FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE), str),
}
"""Types of the filter's value, by operator; numbers and texts for all others."""


def _predicate(one: MetadataFilter) -> Callable[[Any], bool]:
    """Return the function that tells whether a value under the filter's key matches, by LlamaIndex's own rules."""
    kind = FilterOperator(one.operator)
    types = _TYPES.get(kind, _SCALAR)
    if kind != FilterOperator.IS_EMPTY and not isinstance(one.value, types):
        raise ValueError(f"{kind.name}, the filter on {one.key!r}, needs {_NAMES[types]}, got {one.value!r}")
    row: dict[str, Any] = {}
    matches = build_metadata_filter_fn(lambda _: row, MetadataFilters(filters=[one]))

    def predicate(held: Any) -> bool:
        if held is None:  # of which releases of LlamaIndex think differently
            return kind in (FilterOperator.NE, FilterOperator.NIN, FilterOperator.IS_EMPTY)
        row[one.key] = held
        try:
            return bool(matches(""))
        except TypeError as error:
            raise ValueError(f"{kind.name}, the filter on {one.key!r}, does not take {held!r}: {error}") from error

    return predicate
