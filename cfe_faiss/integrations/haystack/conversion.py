"""Haystack's documents as rows of a store, and back; its filters as conditions of a store."""

import base64
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.extras import extra
from cfe_faiss.integrations.adapter import MOST_NESTED, Row, rows_of
from cfe_faiss.store import Hits, Rows

with extra("haystack"):
    from haystack import Document
    from haystack.dataclasses import ByteStream, SparseEmbedding
    from haystack.errors import FilterError
    from haystack.utils.filters import document_matches_filter

REST = "_haystack"
"""Metadata key of a row, often missing: fields of a document other than id, content, meta and a unit embedding."""

WITHOUT_EMBEDDING = f"{REST}.without_embedding"
"""Field of a row: True for a document without an embedding, whose row has a vector of zeros."""


def embeddings_of(documents: list[Document], d: int) -> NDArray[np.float64]:
    """Return the embeddings, (n, d), zeros for a missing one; ValueError names an embedding of another length."""
    X = np.zeros((len(documents), d))
    for i, document in enumerate(documents):
        if document.embedding is not None:
            found = len(document.embedding)
            if found != d:
                raise ValueError(f"the embedding of document {document.id!r} must have {d} numbers, got {found}")
            X[i] = document.embedding
    return X


def to_row(document: Document, norm: float) -> Row:
    """Return the row of a document whose embedding has a norm.

    Raises
    ------
    ValueError
        If its meta uses a reserved key.
    """
    if REST in document.meta:
        raise ValueError(f"meta of document {document.id!r} must not use the key {REST!r}, which is reserved")
    blob, sparse = document.blob, document.sparse_embedding
    rest = {
        "without_embedding": True if document.embedding is None else None,
        "norm": norm if norm not in (0.0, 1.0) else None,
        "score": document.score,
        "blob": blob and {**vars(blob), "data": base64.b64encode(blob.data).decode()},
        "sparse_embedding": sparse and sparse.to_dict(),
    }
    rest = {key: value for key, value in rest.items() if value is not None}
    return document.id, document.meta | ({REST: rest} if rest else {}), document.content


def documents_of(found: Hits | Rows, label_key: str) -> list[Document]:
    """Return the documents of rows, with embeddings if there are vectors. The score of a hit is its similarity."""
    scores = found.similarity.tolist() if isinstance(found, Hits) else None
    return [
        _document(row, None if found.vectors is None else found.vectors[i], scores and scores[i])
        for i, row in enumerate(rows_of(found, label_key))
    ]


def _document(row: Row, vector: NDArray[np.float32] | None, score: float | None) -> Document:
    id_, meta, content = row
    rest: dict[str, Any] = meta.pop(REST, {})
    is_embedded = vector is not None and "without_embedding" not in rest
    blob, sparse = rest.get("blob"), rest.get("sparse_embedding")
    return Document(
        id=id_,
        content=content,
        blob=blob and ByteStream(**{**blob, "data": base64.b64decode(blob["data"])}),
        meta=meta,
        score=rest.get("score") if score is None else score,
        embedding=(vector * rest.get("norm", 1.0)).tolist() if is_embedded else None,
        sparse_embedding=sparse and SparseEmbedding.from_dict(sparse),
    )


_ORDERED = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_COMPARISONS = ("==", "!=", *_ORDERED, "in", "not in")
_NUMBERS = (int, float, bool)
_FIELDS = {"id": "$id", "content": "$document", "score": f"{REST}.score"}
_PRESENT_OR_NOT = ("blob", "embedding", "sparse_embedding")

_Predicate = Callable[[Any], bool]


def condition(filters: dict[str, Any], label_key: str, depth: int = 0) -> dict[str, Any]:
    """Return filters as a filter for a store.

    Haystack itself compares the values, so dates, time zones and None keep their meaning.

    Parameters
    ----------
    filters
        A comparison or a logical operator.
    label_key
        Key of a document's predicted class in its meta.
    depth
        Number of filters around these, at most ``MOST_NESTED``.

    Raises
    ------
    FilterError
        If the filters are malformed or nested too deep, or an operator does not take a value; also while the store
        compares, where an operator does not take a stored value.
    """
    if depth > MOST_NESTED:
        raise FilterError(f"filters must be nested {MOST_NESTED} deep at most, got deeper ones")
    if not isinstance(filters, dict):
        raise FilterError(f"a filter must be a dictionary, got {filters!r}")
    if "field" in filters:
        return _comparison(filters, label_key)
    name, parts = _entry(filters, "operator"), _entry(filters, "conditions")
    if name not in ("AND", "OR", "NOT"):
        raise FilterError(f"unknown logical operator {name!r}; there are AND, OR and NOT")
    if not isinstance(parts, list) or not parts:
        raise FilterError(f"conditions of {name} must be a list of one filter or more, got {parts!r}")
    inner = [condition(part, label_key, depth + 1) for part in parts]
    if name == "NOT":  # not all of them
        return {"$not": {"$and": inner}}
    return {f"${name.lower()}": inner}


def _comparison(filters: dict[str, Any], label_key: str) -> dict[str, Any]:
    name, value = _entry(filters, "operator"), _entry(filters, "value")
    if name not in _COMPARISONS:
        raise FilterError(f"unknown comparison operator {name!r}; there are {', '.join(_COMPARISONS)}")
    field = filters["field"]
    if not isinstance(field, str):
        raise FilterError(f"field must be a text, got {field!r}")
    matches = _by_haystack(field, name, value)
    matches(value)  # a value that the operator does not take is an error even in an empty store
    if field in _PRESENT_OR_NOT:
        if name not in ("==", "!=") or value is not None:
            raise FilterError(f"{field} can be compared with None only, by == and !=, got {name} {value!r}")
        if field == "embedding":
            return {WITHOUT_EMBEDDING: lambda missing: matches(None if missing else True)}
        return {f"{REST}.{field}": matches}
    return {_field(field, label_key): _shortcut(name, value, matches)}


def _field(field: str, label_key: str) -> str:
    """Return the store's name of a field; the prefix ``meta.`` is optional, as in Haystack."""
    if field in _FIELDS:
        return _FIELDS[field]
    key = field.removeprefix("meta.")
    if not key or key.startswith("$"):
        raise FilterError(f"field {field!r} cannot be compared")
    return "$label" if key == label_key else key


def _by_haystack(field: str, name: str, value: Any) -> _Predicate:
    """Return the function that tells whether a stored value matches by Haystack's rules."""
    meta: dict[str, Any] = {}
    document = Document(id="compared", meta=meta)
    filters = {"field": "meta.held", "operator": name, "value": value}

    def matches(held: Any) -> bool:
        meta["held"] = held
        try:
            return document_matches_filter(filters, document)
        except TypeError as error:
            raise FilterError(f"{name} of {field!r} cannot compare {held!r} with {value!r}") from error

    return matches


def _shortcut(name: str, value: Any, matches: _Predicate) -> _Predicate:
    """Return ``matches``, or an equal function for numbers and plain texts that takes a tenth of the time."""
    if name in _ORDERED:
        compare = _ORDERED[name]
        if type(value) not in _NUMBERS:
            return matches
        return lambda held: compare(held, value) if type(held) in _NUMBERS else matches(held)
    wanted = value if name in ("in", "not in") else [value]
    if not all(map(_is_plain, wanted)):
        return matches
    chosen, found = frozenset(wanted), name in ("==", "in")
    return lambda held: (not isinstance(held, list | dict) and held in chosen) == found


def _is_plain(value: Any) -> bool:
    """Return whether a value equals itself only: neither NaN nor a date (1969-07-21T20:17:40) of equal spellings."""
    is_number = type(value) in _NUMBERS and value == value
    return value is None or is_number or (type(value) is str and value[4:5] != "-")


def _entry(filters: dict[str, Any], key: str) -> Any:
    if key not in filters:
        raise FilterError(f"{key!r} is missing in the filter {filters}")
    return filters[key]
