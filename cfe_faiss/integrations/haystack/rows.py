"""Haystack's documents as rows of a store, and back."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.extras import extra
from cfe_faiss.integrations.adapter import Row, rows_of
from cfe_faiss.store import Hits, Rows

with extra("haystack"):
    from haystack import Document
    from haystack.dataclasses import ByteStream, SparseEmbedding

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
