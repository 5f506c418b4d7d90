"""Haystack's document store over an evidence store."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from cfe_faiss._native import ReadWriteLock
from cfe_faiss.base.checks import as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.integrations.haystack.filters import condition
from cfe_faiss.integrations.haystack.meta_values import different_values, field_types, key_of, value_range
from cfe_faiss.integrations.haystack.rows import WITHOUT_EMBEDDING, embeddings_of, to_documents, to_row
from cfe_faiss.integrations.threads import in_thread
from cfe_faiss.store import EvidenceStore

with extra("haystack"):
    from haystack import Document, default_from_dict, default_to_dict
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy

_WITHOUT = {WITHOUT_EMBEDDING: {"$eq": True}}


class EvidenceDocumentStore:
    """Document store of Haystack that finds similar documents, and similar ones that a classifier labels differently.

    Parameters
    ----------
    embedding_dim
        Length of the embeddings.
    label_key
        Key of a document's ``meta`` under which it has its predicted class, a text or an integer. A document without
        one, or with None, is found by similarity, but is evidence for nothing.
    index
        What a new store searches with, as :func:`cfe_faiss.index_factory` describes it; exact by default.
    path
        Where :meth:`save_to_disk` writes. If there is a store already, it is loaded with the index that it has, so that
        a pipeline from YAML finds its documents.

    Notes
    -----
    Documents need no embedding: they are counted, filtered, saved and deleted like others, but no search finds them.
    Embeddings are kept as float32, and come back accurate to that; ``meta`` holds texts, finite numbers, booleans,
    None, lists and dictionaries. The policy ``DuplicatePolicy.NONE`` means ``FAIL``. All methods may be called from
    several threads at once, and a change happens wholly or not at all.

    Filters are Haystack's, on all fields: ``id``, ``content``, ``meta.lang``, ``meta.author.name``, ``score``, and
    ``embedding``, ``blob`` and ``sparse_embedding`` by ``==`` and ``!=`` None. Values are compared by Haystack's own
    rules (dates in ISO 8601, None); what these cannot compare is a ``FilterError``, whatever other conditions say.
    Search under a filter is exact.

    Each method has an asynchronous one beside it (``write_documents_async``).

    Examples
    --------
    >>> from haystack import Document
    >>> from cfe_faiss.integrations.haystack import EvidenceDocumentStore
    >>> store = EvidenceDocumentStore(embedding_dim=2)
    >>> store.write_documents([
    ...     Document(id="a", content="card charged twice", embedding=[1.0, 0.0], meta={"label": "urgent"}),
    ...     Document(id="b", content="card charged", embedding=[0.8, 0.6], meta={"label": "routine"}),
    ...     Document(id="c", content="send a receipt", embedding=[0.0, 1.0], meta={"label": "routine"}),
    ... ])
    3
    >>> for found in store.evidence("a", top_k=1):
    ...     print(found.content, found.meta, round(found.score, 3))
    card charged {'label': 'routine'} 0.8
    """

    def __init__(
        self, embedding_dim: int = 768, label_key: str = "label", index: str | None = None, path: str | None = None
    ) -> None:
        self.embedding_dim = as_count("embedding_dim", embedding_dim)
        self.label_key = label_key
        self.index = index
        self.path = None if path is None else str(path)
        self._writing = ReadWriteLock()
        if self.path is None or not Path(self.path).exists():
            self._store = EvidenceStore(self.embedding_dim, index)
            return
        self._store = EvidenceStore.load(self.path)
        if self._store.d != self.embedding_dim:
            raise ValueError(f"embedding_dim must be {self._store.d}, as in {self.path}, got {embedding_dim}")

    @property
    def store(self) -> EvidenceStore:
        """The store under this one: classes can be given anew there, by ``store.relabel``."""
        return self._store

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, without the documents, for a pipeline's YAML."""
        return default_to_dict(
            self, embedding_dim=self.embedding_dim, label_key=self.label_key, index=self.index, path=self.path
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return a store with the settings of :meth:`to_dict`."""
        return default_from_dict(cls, data)

    def save_to_disk(self, path: str | None = None, *, overwrite: bool = False) -> None:
        """Save all documents to a directory, by default ``self.path``; see :meth:`EvidenceStore.save`."""
        target = self.path if path is None else path
        if target is None:
            raise ValueError("path must be given, here or to the constructor")
        self._store.save(target, overwrite=overwrite)

    # --- changes ------------------------------------------------------------------------------------------------------

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Write documents; return how many, which is less than there are under ``DuplicatePolicy.SKIP`` only.

        Raises
        ------
        ValueError
            If ``documents`` is no list of documents, one of them cannot be stored, or ``policy`` is no policy.
        DuplicateDocumentError
            If an id is stored already, or occurs twice, under ``DuplicatePolicy.FAIL`` or ``NONE``.
        """
        documents, policy = _checked(documents), DuplicatePolicy(policy)
        with self._writing.writing():
            if policy == DuplicatePolicy.OVERWRITE:
                chosen = {document.id: document for document in documents}
                self._put(self._store.upsert, list(chosen.values()))
                return len(documents)
            chosen = {}
            for document in documents:
                if document.id not in chosen and document.id not in self._store:
                    chosen[document.id] = document
                elif policy != DuplicatePolicy.SKIP:
                    raise DuplicateDocumentError(f"ID '{document.id}' already exists.")
            self._put(self._store.add, list(chosen.values()))
            return len(chosen)

    def _put(self, put: Callable[..., None], documents: list[Document]) -> None:
        if not documents:
            return
        vectors = embeddings_of(documents, self.embedding_dim)
        norms = np.linalg.norm(vectors, axis=1).tolist()
        rows = (to_row(one, norm, self.label_key) for one, norm in zip(documents, norms, strict=True))
        ids, labels, metadata, contents = zip(*rows, strict=True)
        put(ids, vectors, labels, metadata, contents)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete documents; ids that are not stored are passed over."""
        self._store.delete(document_ids)

    def delete_all_documents(self) -> None:
        """Delete all documents."""
        self._store.delete(where={})

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the documents that match; return how many. Without filters it is a FilterError."""
        return self._store.delete(where=condition(filters, self.label_key))

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Put entries into the ``meta`` of all documents that match; return how many. Without filters: FilterError."""
        where = condition(filters, self.label_key)
        with self._writing.writing():
            documents = self._documents(where)
            for document in documents:
                document.meta.update(meta)
            self._put(self._store.upsert, documents)
        return len(documents)

    # --- reading ------------------------------------------------------------------------------------------------------

    def count_documents(self) -> int:
        """Return how many documents there are."""
        return len(self._store)

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Return how many documents match."""
        return self._store.count(self._where(filters))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the documents that match, all of them without filters, in the order in which they were written.

        Raises
        ------
        FilterError
            If the filters are malformed, or compare what cannot be compared.
        """
        return self._documents(self._where(filters))

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Return the type of each key of ``meta``: ``{"lang": {"type": "keyword"}}``."""
        return field_types(self._metas(None))

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Return the least and the greatest value of a key of ``meta`` as ``{"min": ..., "max": ...}``."""
        return value_range(self._metas(None), metadata_field)

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: dict[str, Any] | None = None,
    ) -> tuple[list[Any], int]:
        """Return different values of a key of ``meta``, and how many there are.

        Parameters
        ----------
        metadata_field
            The key, with or without ``meta.`` before it.
        search_term
            Only values that contain it, in whatever case.
        from_, size
            Which of the values to return, which are ordered as texts.
        filters
            Only documents that match.
        """
        values = different_values(self._metas(filters), metadata_field)
        if search_term:
            values = [value for value in values if search_term.lower() in str(value).lower()]
        return values[from_ : from_ + size], len(values)

    def count_unique_metadata_by_filter(self, filters: dict[str, Any], metadata_fields: list[str]) -> dict[str, int]:
        """Return how many different values the documents that match have under each key of ``meta``."""
        metas = self._metas(filters)
        return {key_of(field): len(different_values(metas, field)) for field in metadata_fields}

    def _metas(self, filters: dict[str, Any] | None) -> Sequence[dict[str, Any]]:
        return [document.meta for document in self.filter_documents(filters)]

    # --- searching ----------------------------------------------------------------------------------------------------

    def embedding_retrieval(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        return_embedding: bool = False,
    ) -> list[Document]:
        """Return the documents that are most similar to an embedding, best first; scores are cosine similarities."""
        if top_k == 0:
            return []
        xq = np.asarray(query_embedding, np.float32)
        hits = self._store.search(xq, top_k, self._searched(filters), with_vectors=return_embedding)
        return self._scored(hits)

    def evidence(
        self,
        query: Document | str | list[float],
        label: str | int | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        return_embedding: bool = False,
    ) -> list[Document]:
        """Return the most similar documents whose predicted class is another one.

        Parameters
        ----------
        query
            The id of a document that is stored with an embedding, a document, or an embedding. A document with an
            embedding is taken as it is, with the class in its ``meta``; any other must be stored.
        label
            The predicted class of the query, where it is not known, or not the one that is known.
        filters
            Only documents that match; the search is exact among them.
        top_k
            How many documents, >= 0; fewer come back where fewer have another class.
        return_embedding
            Whether documents come back with their embeddings.

        Returns
        -------
        list of Document
            Best first; scores are cosine similarities. Documents without a class are not among them.

        Raises
        ------
        ValueError
            If the id is not stored, the document has no embedding, or the class is missing or not known to the store.
        """
        if top_k == 0:
            return []
        asked: Any = query
        own: Any = query
        if isinstance(query, Document):
            asked = own = query.id
            if query.embedding is not None:
                asked = query.embedding
                label = query.meta.get(self.label_key) if label is None else label
        if not isinstance(asked, str):
            asked = np.asarray(asked, np.float32)
        elif self._store.count({"$and": [{"$id": {"$eq": asked}}, _WITHOUT]}):
            raise ValueError(f"document {asked!r} must have an embedding")
        # A stored document that is given with another class than it has there might find itself.
        hits = self._store.evidence(asked, top_k + 1, label, self._searched(filters), with_vectors=return_embedding)
        return [one for one in self._scored(hits) if one.id != own][:top_k]

    # --- asynchronously -----------------------------------------------------------------------------------------------

    write_documents_async = in_thread(write_documents)
    delete_documents_async = in_thread(delete_documents)
    delete_all_documents_async = in_thread(delete_all_documents)
    delete_by_filter_async = in_thread(delete_by_filter)
    update_by_filter_async = in_thread(update_by_filter)
    count_documents_async = in_thread(count_documents)
    count_documents_by_filter_async = in_thread(count_documents_by_filter)
    filter_documents_async = in_thread(filter_documents)
    get_metadata_fields_info_async = in_thread(get_metadata_fields_info)
    get_metadata_field_min_max_async = in_thread(get_metadata_field_min_max)
    get_metadata_field_unique_values_async = in_thread(get_metadata_field_unique_values)
    count_unique_metadata_by_filter_async = in_thread(count_unique_metadata_by_filter)
    embedding_retrieval_async = in_thread(embedding_retrieval)
    evidence_async = in_thread(evidence)

    # ------------------------------------------------------------------------------------------------------------------

    def _documents(self, where: dict[str, Any]) -> list[Document]:
        rows = self._store.get(where=where)
        return to_documents((rows.ids, rows.labels, rows.metadata, rows.documents), rows.vectors, self.label_key)

    def _scored(self, hits: Any) -> list[Document]:
        columns = (hits.ids, hits.labels, hits.metadata, hits.documents)
        documents = to_documents(columns, hits.vectors, self.label_key)
        return [replace(one, score=float(s)) for one, s in zip(documents, hits.similarity, strict=True)]

    def _where(self, filters: dict[str, Any] | None) -> dict[str, Any]:
        return condition(filters, self.label_key) if filters else {}

    def _searched(self, filters: dict[str, Any] | None) -> dict[str, Any]:
        """Return filters that also leave out documents without an embedding, if there are any."""
        where = self._where(filters)
        if not self._store.count(_WITHOUT):
            return where
        return {"$and": [{"$not": _WITHOUT}, *([where] if where else [])]}


def _checked(documents: Any) -> list[Document]:
    if isinstance(documents, str) or not isinstance(documents, Sequence):
        raise ValueError(f"documents must be a list of documents, got {type(documents).__name__}")
    for one in documents:
        if not isinstance(one, Document):
            raise ValueError(f"documents must be a list of documents, got {type(one).__name__} in it")
    return list(documents)
