"""Adapter between an EvidenceStore and the document stores of other frameworks."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_count, as_number
from cfe_faiss.store import EvidenceStore, Hits, Rows
from cfe_faiss.store.values import DEEPEST

R = TypeVar("R")

MOST_NESTED = DEEPEST // 4
"""Depth of nested filters of a framework. The store's own filter of one of them may be four times as deep."""

Row = tuple[str, dict[str, Any], str | None]
"""Id, metadata with the predicted class, and text of a document."""


def checked_store(store: EvidenceStore) -> EvidenceStore:
    """Return a store; raise ValueError unless its similarity is the cosine, as other frameworks take it."""
    if store.metric != "cosine":
        raise ValueError(f"store must have metric 'cosine' behind another framework, got {store.metric!r}")
    return store


def put(write: Callable[..., None], rows: Iterable[Row], vectors: Any, label_key: str) -> list[str]:
    """Write rows, at least one, by ``EvidenceStore.add`` or ``upsert``; return their ids.

    The value under ``label_key`` leaves the metadata, and becomes the predicted class.
    """
    ids, metadata, texts = zip(*rows, strict=True)
    labels = [one.pop(label_key, None) for one in metadata]
    write(ids, vectors, labels, metadata, texts)
    return list(ids)


def rows_of(found: Hits | Rows, label_key: str) -> list[Row]:
    """Return stored rows, with the predicted class in their metadata under ``label_key``, if there is one."""
    for metadata, label in zip(found.metadata, found.labels, strict=True):
        if label is not None:
            metadata[label_key] = label
    return list(zip(found.ids, found.metadata, found.documents, strict=True))


def take_hits(hits: Hits, places: Sequence[int]) -> Hits:
    """Return some of the hits, in the order of ``places``."""
    chosen: dict[str, Any] = {}
    for field in fields(hits):
        column = getattr(hits, field.name)
        is_list = isinstance(column, list)
        chosen[field.name] = [column[i] for i in places] if is_list else None if column is None else column[[*places]]
    return Hits(**chosen)


def evidence(
    store: EvidenceStore, own: Any, embedding: Any, k: int, label: Any, where: Any, *, with_vectors: bool = False
) -> Hits:
    """Return the evidence of an embedding, or without one of a stored document, and without the document ``own``."""
    xq = own if embedding is None else np.asarray(embedding, np.float32)
    hits = store.evidence(xq, as_count("k", k) + 1, label, where, with_vectors=with_vectors)
    return take_hits(hits, [i for i, id_ in enumerate(hits.ids) if id_ != own][:k])


def join_filters(*conditions: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return one filter that is the conjunction of some, of which None and {} select all rows; None for no filter."""
    parts = [one for one in conditions if one]
    return {"$and": parts} if parts else None


def diversify(hits: Hits, k: int, lambda_mult: float) -> Hits:
    """Return the k of some hits, found with vectors, with the largest marginal relevance."""
    assert hits.vectors is not None
    return take_hits(hits, marginal_relevance(hits.similarity, hits.vectors, k, lambda_mult))


def marginal_relevance(
    similarity: NDArray[np.floating[Any]], X: NDArray[np.float32], k: int, lambda_mult: float
) -> list[int]:
    """Return the positions of k rows by maximal marginal relevance (Carbonell & Goldstein 1998).

    The first row is the most similar to the query. Each further row maximises ``lambda_mult`` times its similarity to
    the query minus ``1 - lambda_mult`` times its largest similarity to a row chosen before. Ties go to the first row.

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
    k, weight = min(as_count("k", k), len(X)), as_number("lambda_mult", lambda_mult, 0.0, 1.0)
    scores, redundancy = similarity.astype(np.float64), np.full(len(X), -np.inf)
    chosen: list[int] = []
    while len(chosen) < k:
        if chosen:
            np.maximum(redundancy, X @ X[chosen[-1]], out=redundancy)
            scores = weight * similarity - (1.0 - weight) * redundancy
            scores[chosen] = -np.inf
        chosen.append(int(np.argmax(scores)))
    return chosen


def refuse(method: str, kwargs: Mapping[str, Any], *ignored: str) -> None:
    """Raise TypeError for keyword arguments that a framework's interface passes on and the store does not use."""
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
