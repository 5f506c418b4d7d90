"""Documents and filters, from LangChain's form to the store's and back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.extras import extra
from cfe_faiss.store import EvidenceStore, Hits, Rows

with extra("langchain"):
    from langchain_core.documents import Document

Label = str | int | None
Filter = Mapping[str, Any] | Callable[[Document], bool] | None
_LABEL = "$label"


def documents_of(rows: Hits | Rows, label_key: str) -> list[Document]:
    """Return rows as documents: the class in the metadata, under ``label_key``, where there is one."""
    documents = []
    for id_, label, metadata, text in zip(rows.ids, rows.labels, rows.metadata, rows.documents, strict=True):
        if label is not None:
            metadata[label_key] = label
        documents.append(Document(id=id_, page_content=text or "", metadata=metadata))
    return documents


def where_of(wanted: Filter, label_key: str, store: EvidenceStore) -> Any:
    """Return a filter as the store takes it: classes by their name there, and ids in place of a function."""
    if callable(wanted):
        return [document.id for document in documents_of(store.get(), label_key) if wanted(document)]
    return _renamed(wanted, label_key)


def _renamed(wanted: Any, label_key: str) -> Any:
    """Return a mapping with the store's name for the class in place of ``label_key``."""
    if not isinstance(wanted, Mapping):
        return wanted
    return {_LABEL if key == label_key else key: _renamed_in(key, value, label_key) for key, value in wanted.items()}


def _renamed_in(key: str, value: Any, label_key: str) -> Any:
    if key in ("$and", "$or") and isinstance(value, list | tuple):
        return [_renamed(part, label_key) for part in value]
    return _renamed(value, label_key) if key == "$not" else value


def vectors_of(embeddings: Sequence[Any]) -> NDArray[np.float32]:
    """Return what an embedding has made, n lists of d numbers, as an (n, d) array.

    Raises
    ------
    ValueError
        If the lists are not equally long, or hold anything else.
    """
    try:
        return np.asarray(embeddings, np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"embeddings must be equally long lists of numbers: {error}") from error
