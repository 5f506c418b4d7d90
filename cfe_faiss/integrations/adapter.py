"""Adapter between an EvidenceStore and the document stores of other frameworks."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import Doubles, Floats, as_count, as_number
from cfe_faiss.store import EvidenceStore, Hits, Rows, Watch
from cfe_faiss.store.values import DEEPEST

R = TypeVar("R")

MOST_NESTED = DEEPEST // 4
"""Depth of nested filters of a framework.

The store's own filter of one of them may be four times as deep.
"""

Row = tuple[str, dict[str, Any], str | None]
"""Id, metadata with the predicted class, and text of a document."""


def checked_store(store: EvidenceStore) -> EvidenceStore:
    """Return a store; raise ValueError unless its similarity is the cosine."""
    if store.metric != "cosine":
        raise ValueError(
            f"store must have metric 'cosine' behind another framework, got {store.metric!r}"
        )
    return store


def embeddings_of(kind: str, items: Sequence[tuple[str, Any]], d: int) -> Doubles:
    """Return the embeddings of documents, given with their ids, (n, d), zeros for None.

    ValueError names a document of another length.
    """
    X = np.zeros((len(items), d))
    for row, (id_, embedding) in enumerate(items):
        if embedding is not None:
            if len(embedding) != d:
                raise ValueError(
                    f"the embedding of {kind} {id_!r} must have {d} numbers, got {len(embedding)}"
                )
            X[row] = embedding
    return X


def put(
    write: Callable[..., object],
    rows: Iterable[tuple[str, Mapping[str, Any], str | None]],
    vectors: Any,
    label_key: str,
    watch: Watch | float | None = None,
) -> list[str]:
    """Write rows, at least one, by ``EvidenceStore.add`` or ``upsert``; return their ids.

    The value under ``label_key`` becomes the predicted class in place of metadata. ``watch`` is
    that of the store.
    """
    ids, metadata, texts = zip(*rows, strict=True)
    labels = [mapping.get(label_key) for mapping in metadata]
    others = [
        {key: value for key, value in mapping.items() if key != label_key} for mapping in metadata
    ]
    write(ids, vectors, labels, others, texts, watch=watch)
    return list(ids)


def rows_of(found: Hits | Rows, label_key: str) -> list[Row]:
    """Return stored rows, with the predicted class under ``label_key`` of their metadata."""
    for metadata, label in zip(found.metadata, found.labels, strict=True):
        if label is not None:
            metadata[label_key] = label
    return list(zip(found.ids, found.metadata, found.documents, strict=True))


def evidence(
    store: EvidenceStore,
    id_: Any,
    embedding: Any,
    k: int,
    label: Any,
    where: Any,
    *,
    with_vectors: bool = False,
) -> Hits:
    """Return the evidence of an embedding without the document ``id_``, or of that document."""
    if embedding is None:
        return store.evidence(id_, k, label, where, with_vectors=with_vectors)
    excluded = [id_] if id_ in store else None
    xq = np.asarray(embedding, np.float32)
    return store.evidence(xq, k, label, where, exclude=excluded, with_vectors=with_vectors)


def join_filters(*conditions: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return one filter that is the conjunction of some, of which None and {} select all rows.

    None for no filter.
    """
    parts = [condition for condition in conditions if condition]
    return {"$and": parts} if parts else None


def diversify(hits: Hits, k: int, lambda_mult: float) -> Hits:
    """Return the k of some hits, found with vectors, with the largest marginal relevance."""
    vectors: Any = hits.vectors
    places = marginal_relevance(hits.similarity, vectors, k, lambda_mult)
    columns = {name: getattr(hits, name) for name in ("ids", "labels", "metadata", "documents")}
    chosen: dict[str, Any] = {
        name: [column[place] for place in places] for name, column in columns.items()
    }
    return replace(hits, similarity=hits.similarity[places], vectors=vectors[places], **chosen)


def marginal_relevance(
    similarity: NDArray[np.floating[Any]], X: Floats, k: int, lambda_mult: float
) -> list[int]:
    """Return the positions of k rows by maximal marginal relevance (Carbonell & Goldstein 1998).

    The first row is the most similar to the query. Each further row maximises ``lambda_mult`` times
    its similarity to the query minus ``1 - lambda_mult`` times its largest similarity to a row
    chosen before. Ties go to the first row.

    Parameters
    ----------
    similarity
        Similarity of each row to the query, (n,).
    X
        Unit rows, (n, d).
    k
        Number of rows; at most n are returned.
    lambda_mult
        From 0 for the greatest diversity to 1 for similarity alone.

    Raises
    ------
    TypeError, ValueError
        If ``k`` is no positive integer or ``lambda_mult`` is not between 0 and 1.

    Examples
    --------
    >>> X = np.array([[1, 0], [0.96, 0.28], [0.8, -0.6]], np.float32)
    >>> marginal_relevance(np.array([0.99, 0.98, 0.79]), X, k=2, lambda_mult=0.4)
    [0, 2]
    """
    k = min(as_count("k", k), len(X))
    weight = as_number("lambda_mult", lambda_mult, 0.0, 1.0)
    scores = similarity.astype(np.float64)
    redundancy = np.full(len(X), -np.inf)
    chosen: list[int] = []
    while len(chosen) < k:
        if chosen:
            np.maximum(redundancy, X @ X[chosen[-1]], out=redundancy)
            scores = weight * similarity - (1.0 - weight) * redundancy
            scores[chosen] = -np.inf
        chosen.append(int(np.argmax(scores)))
    return chosen


def refuse(method: str, kwargs: Mapping[str, Any], *ignored: str) -> None:
    """Raise TypeError for keyword arguments of a framework that the store does not use."""
    unknown = sorted(kwargs.keys() - set(ignored))
    if unknown:
        raise TypeError(f"{method} takes no {', '.join(unknown)}")


def in_thread(method: Callable[..., R]) -> Callable[..., Coroutine[Any, Any, R]]:
    """Return the asynchronous twin of a method, which runs it in a thread."""

    @wraps(method)
    async def twin(*args: Any, **kwargs: Any) -> R:
        return await asyncio.to_thread(method, *args, **kwargs)

    twin.__doc__ = f"Call ``{method.__name__}`` in a thread."
    return twin
