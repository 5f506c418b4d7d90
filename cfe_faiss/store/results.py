"""Results of a store: the hits of a search, and stored rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.text import summary

Label = str | int | None
"""A predicted class; None for a row that is not classified."""
Metadata = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Hit:
    """One row found by a search.

    Attributes
    ----------
    id, similarity
        Id of the row, and its cosine similarity to the query, in [-1, 1]; for a store with metric "ip" or "l2" the
        inner product, or the squared distance.
    label
        Predicted class; None if the row is not classified.
    metadata, document
        Copies of the row's metadata and text.
    """

    id: str
    similarity: float
    label: Label
    metadata: Metadata
    document: str | None


@dataclass(frozen=True, slots=True)
class Hits:
    """The m rows found for one query, best first. Rows of equal similarity keep the order in which they were added.

    Attributes
    ----------
    ids
        Ids of the rows, m texts.
    similarity
        Cosine similarities to the query, (m,) float32, descending; for metric "l2" squared distances, ascending.
    labels
        Predicted classes; None for a row that is not classified.
    metadata, documents
        Copies of metadata and texts. A row without a text has None.
    vectors
        Stored vectors, (m, d) float32, if the search was asked for them.

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
        Ids of the rows, n texts.
    vectors
        Unit vectors, (n, d) float32, as stored in the index.
    labels
        Predicted classes; None for a row that is not classified.
    metadata, documents
        Copies of metadata and texts. A row without a text has None.
    """

    ids: list[str]
    vectors: NDArray[np.float32]
    labels: list[Label]
    metadata: list[Metadata]
    documents: list[str | None]

    __repr__ = summary

    def __len__(self) -> int:
        return len(self.ids)
