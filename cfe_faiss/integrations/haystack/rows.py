"""Haystack's documents as rows of a store, and back."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.extras import extra

with extra("haystack"):
    from haystack import Document
    from haystack.dataclasses import ByteStream, SparseEmbedding

REST = "_haystack"
"""Metadata key of a row: what a document has beside id, content, meta and a unit embedding; often missing."""

WITHOUT_EMBEDDING = f"{REST}.without_embedding"
"""Field of a row: True of a document without an embedding, whose row has a vector of zeros."""


def embeddings_of(documents: list[Document], d: int) -> NDArray[np.float64]:
    """Return the embeddings, (n, d), zeros where there is none; ValueError names one of another length."""
    X = np.zeros((len(documents), d))
    for i, document in enumerate(documents):
        if document.embedding is not None:
            if len(document.embedding) != d:
                raise ValueError(
                    f"the embedding of document {document.id!r} must have {d} numbers, got {len(document.embedding)}"
                )
            X[i] = document.embedding
    return X


def to_row(document: Document, norm: float, label_key: str) -> tuple[str, Any, dict[str, Any], str | None]:
    """Return id, predicted class, metadata and text of a document whose embedding has a norm.

    Raises
    ------
    ValueError
        If its meta uses a key that is reserved.
    """
    metadata = dict(document.meta)
    if REST in metadata:
        raise ValueError(f"meta of document {document.id!r} must not use the key {REST!r}, which is reserved")
    label = metadata.pop(label_key, None)
    rest: dict[str, Any] = {}
    if document.embedding is None:
        rest["without_embedding"] = True
    elif norm != 1.0:
        rest["norm"] = norm
    if document.score is not None:
        rest["score"] = document.score
    if document.blob is not None:
        data = base64.b64encode(document.blob.data).decode()
        rest["blob"] = {"data": data, "meta": document.blob.meta, "mime_type": document.blob.mime_type}
    if document.sparse_embedding is not None:
        rest["sparse_embedding"] = document.sparse_embedding.to_dict()
    return document.id, label, {**metadata, REST: rest} if rest else metadata, document.content


def to_documents(
    columns: tuple[Sequence[str], Sequence[Any], Sequence[dict[str, Any]], Sequence[str | None]],
    vectors: NDArray[np.float32] | None,
    label_key: str,
) -> list[Document]:
    """Return the documents that :func:`to_row` has taken apart, with embeddings if there are vectors, (n, d)."""
    found = []
    for i, (id_, label, stored, content) in enumerate(zip(*columns, strict=True)):
        meta = dict(stored)
        rest = meta.pop(REST, {})
        if label is not None:
            meta[label_key] = label
        embedding = None
        if vectors is not None and "without_embedding" not in rest:
            embedding = (vectors[i] * rest.get("norm", 1.0)).tolist()
        blob, sparse = rest.get("blob"), rest.get("sparse_embedding")
        found.append(
            Document(
                id=id_,
                content=content,
                blob=None if blob is None else ByteStream(**{**blob, "data": base64.b64decode(blob["data"])}),
                meta=meta,
                score=rest.get("score"),
                embedding=embedding,
                sparse_embedding=None if sparse is None else SparseEmbedding.from_dict(sparse),
            )
        )
    return found
