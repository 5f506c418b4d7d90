"""What a store returns: the rows that a search has found, and rows as they are stored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.text import summary

Label = str | int | None
"""A predicted class; None where there is none yet."""
Metadata = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hit:
    """One row that a search has found.

    Attributes
    ----------
    id, similarity
        Its id, and its cosine similarity to the query, in [-1, 1].
    label
        Its predicted class; None if it is not classified.
    metadata, document
        What was stored with it: copies.
    """

    id: str
    similarity: float
    label: Label
    metadata: Metadata
    document: str | None


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search has found for one query: m rows, best first; equal similarity: in the order they were added.

    Attributes
    ----------
    ids
        Their ids, m texts.
    similarity
        Cosine similarities to the query, (m,) float32, descending.
    labels
        Predicted classes; None of a row that is not classified.
    metadata, documents
        What was stored with them: copies. A row without a text has None.
    vectors
        Unit vectors, (m, d) float32, if they were asked for.

    Notes
    -----
    ``len`` is m; iteration yields a :class:`Hit` for each row.
    """

    ids: list[str]
    similarity: NDArray[np.float32]
    labels: list[Label]
    metadata: list[Metadata]
    documents: list[str | None]
    vectors: NDArray[np.float32] | None = None

    __repr__ = summary

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Hit]:
        rows = zip(self.ids, self.similarity.tolist(), self.labels, self.metadata, self.documents, strict=True)
        return (Hit(*row) for row in rows)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a store.

    Attributes
    ----------
    ids
        Their ids, n texts.
    vectors
        Unit vectors, (n, d) float32, as the index holds them.
    labels
        Predicted classes; None of a row that is not classified.
    metadata, documents
        What was stored with them: copies. A row without a text has None.
    """

    ids: list[str]
    vectors: NDArray[np.float32]
    labels: list[Label]
    metadata: list[Metadata]
    documents: list[str | None]

    __repr__ = summary

    def __len__(self) -> int:
        return len(self.ids)
