"""LangChain: a vector store that knows the predicted class of each document, and finds those of another class."""

# ruff: noqa: A002 - LangChain's searches call their filter "filter".

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Self

from cfe_faiss._native import ReadWriteLock
from cfe_faiss.base.extras import extra
from cfe_faiss.integrations.marginal_relevance import marginal_relevance
from cfe_faiss.store import EvidenceStore, Hits

with extra("langchain"):
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.runnables.config import run_in_executor
    from langchain_core.vectorstores import VectorStore

    from cfe_faiss.integrations.langchain_documents import Filter, Label, documents_of, vectors_of, where_of
    from cfe_faiss.integrations.langchain_retriever import EvidenceRetriever

__all__ = ["EvidenceRetriever", "EvidenceVectorStore"]


class EvidenceVectorStore(VectorStore):
    """Documents with predicted classes in memory, as a LangChain ``VectorStore``.

    Evidence for a document is what is most similar to it and yet in another predicted class. Similarity is the cosine
    of two embeddings. All searches are exact, under a filter, too, unless ``store`` has an approximate index.

    Beside the methods below there are those of ``VectorStore``: ``add_documents``, ``from_documents``,
    ``similarity_search_with_relevance_scores``, ``as_retriever`` and an async version of each (``a...``).

    Parameters
    ----------
    embedding
        Makes vectors of texts.
    label_key
        Under this key the metadata of a document holds its predicted class, a text or an integer (one kind for all).
        Documents without this key, or with None there, are found by searches and are never evidence.
    store
        Where documents are kept. By default one with an exact index, made when the first documents are added.

    Notes
    -----
    A ``filter`` is a mapping of metadata keys to values or conditions, or a function that takes a ``Document`` and says
    whether it may be found (which is called for every document of the store). Mappings are those of
    :meth:`cfe_faiss.EvidenceStore.search`, such as ``{"year": {"$gte": 2020}, "label": {"$ne": "spam"}}``.

    Any number of threads may search and change the store at the same time.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> vs = EvidenceVectorStore(DeterministicFakeEmbedding(size=8))
    >>> vs.add_texts(["one", "two", "three"], [{"label": "a"}, {"label": "b"}, {"label": "b"}], ids=["1", "2", "3"])
    ['1', '2', '3']
    >>> [document.id for document in vs.evidence_search("3")]
    ['1']
    """

    def __init__(self, embedding: Embeddings, label_key: str = "label", *, store: EvidenceStore | None = None) -> None:
        self.embedding = embedding
        self.label_key = label_key
        self._store = store
        self._making = ReadWriteLock()

    @property
    def embeddings(self) -> Embeddings:
        """What makes vectors of texts."""
        return self.embedding

    @property
    def store(self) -> EvidenceStore:
        """Ids, vectors, classes, texts and metadata; before anything was added, a text is embedded to learn d."""
        if self._store is None:
            return self._store_of(len(self.embedding.embed_query("d")))
        return self._store

    def _store_of(self, d: int) -> EvidenceStore:
        with self._making.writing():
            if self._store is None:
                self._store = EvidenceStore(d)
            return self._store

    def __repr__(self) -> str:
        kept = "nothing yet" if self._store is None else repr(self._store)
        return f"EvidenceVectorStore({type(self.embedding).__name__}, label_key={self.label_key!r}, {kept})"

    # --- changes ------------------------------------------------------------------------------------------------------

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embed texts and store them; a text with the id of a stored one replaces it, metadata and class included.

        Parameters
        ----------
        texts
            n texts.
        metadatas
            One mapping per text, of what JSON can hold; the class under ``label_key``.
        ids
            Distinct ids. Where there is None, one is made.

        Returns
        -------
        list of str
            The ids.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described. The store is as before.
        """
        _refuse("add_texts", kwargs)
        texts = list(texts)
        return self._add(texts, self.embedding.embed_documents(texts), metadatas, ids) if texts else []

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Do as :meth:`add_texts`, waiting for the embedding."""
        _refuse("aadd_texts", kwargs)
        texts = list(texts)
        if not texts:
            return []
        vectors = await self.embedding.aembed_documents(texts)
        return await run_in_executor(None, self._add, texts, vectors, metadatas, ids)

    def add_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
    ) -> list[str]:
        """Do as :meth:`add_texts` with pairs of a text and its vector."""
        pairs = list(text_embeddings)
        return self._add([text for text, _ in pairs], [vector for _, vector in pairs], metadatas, ids) if pairs else []

    def _add(
        self,
        texts: list[str],
        vectors: Sequence[Sequence[float]],
        metadatas: Sequence[Mapping[str, Any]] | None,
        ids: Sequence[str | None] | None,
    ) -> list[str]:
        for name, values in (("metadatas", metadatas), ("ids", ids), ("embeddings", vectors)):
            if values is not None and len(values) != len(texts):
                raise ValueError(f"{name} must be as many as texts, got {len(values)} for {len(texts)}")
        names = [id_ or str(uuid.uuid4()) for id_ in ids or [None] * len(texts)]
        rest, key = [dict(metadata) for metadata in metadatas or [{}] * len(texts)], self.label_key
        labels: list[Label] = [metadata.pop(key, None) for metadata in rest]
        self._store_of(len(vectors[0])).upsert(names, vectors_of(vectors), labels, rest, texts)
        return names

    def relabel(self, labels: Mapping[str, Label]) -> None:
        """Give documents the classes that another classifier predicts; their metadata say them from now on.

        Parameters
        ----------
        labels
            Classes by id; None for no class.

        Raises
        ------
        TypeError, ValueError
            If an id is not stored or a class is neither a text nor an integer. No class has changed.
        """
        self.store.relabel(labels)

    async def arelabel(self, labels: Mapping[str, Label]) -> None:
        """Do as :meth:`relabel`."""
        await run_in_executor(None, self.relabel, labels)

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Delete documents by their ids, or, as LangChain's interface wants, all of them if there are no ids.

        Ids that are not stored are passed over. Returns True.
        """
        _refuse("delete", kwargs)
        if self._store is not None:
            self._store.delete(self._store.ids if ids is None else ids)
        return True

    # --- searches -----------------------------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents in the order of ``ids``, without those that are not stored."""
        return [] if self._store is None else documents_of(self._store.get(ids, skip_missing=True), self.label_key)

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents most similar to a text, best first; ``filter=`` as in the class's notes."""
        return _without_scores(self.similarity_search_with_score(query, k, **kwargs))

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Do as :meth:`similarity_search`, waiting for the embedding."""
        return _without_scores(await self.asimilarity_search_with_score(query, k, **kwargs))

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return the k documents most similar to a text with their cosine similarities, in [-1, 1]."""
        return self.similarity_search_with_score_by_vector(self.embedding.embed_query(query), k, **kwargs)

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Do as :meth:`similarity_search_with_score`, waiting for the embedding."""
        vector = await self.embedding.aembed_query(query)
        return await run_in_executor(None, self.similarity_search_with_score_by_vector, vector, k, **kwargs)

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents most similar to a vector, best first."""
        return _without_scores(self.similarity_search_with_score_by_vector(embedding, k, **kwargs))

    def similarity_search_with_score_by_vector(
        self, embedding: Sequence[float], k: int = 4, *, filter: Filter = None
    ) -> list[tuple[Document, float]]:
        """Return the k documents most similar to a vector with their cosine similarities, in [-1, 1]."""
        return self._with_scores(self._search(embedding, k, filter))

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k of the ``fetch_k`` documents most similar to a text: near it, and far from each other.

        ``lambda_mult`` runs from 0, for the greatest diversity, to 1, for similarity alone.
        """
        vector = self.embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **kwargs)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Do as :meth:`max_marginal_relevance_search`, waiting for the embedding."""
        vector = await self.embedding.aembed_query(query)
        return await self.amax_marginal_relevance_search_by_vector(vector, k, fetch_k, lambda_mult, **kwargs)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filter = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Do as :meth:`max_marginal_relevance_search` with a vector."""
        _refuse("max_marginal_relevance_search_by_vector", kwargs)
        hits = self._search(embedding, fetch_k, filter, with_vectors=True)
        assert hits.vectors is not None
        documents = documents_of(hits, self.label_key)
        return [documents[i] for i in marginal_relevance(hits.similarity, hits.vectors, k, lambda_mult)]

    # --- evidence -----------------------------------------------------------------------------------------------------

    def evidence_search(self, query: str | Document, k: int = 4, *, filter: Filter = None) -> list[Document]:
        """Return the k most similar documents that the classifier labels differently, best first.

        Parameters
        ----------
        query
            The id of a stored document, or a document. One with the id of a stored document stands for that one, with
            the vector and the class that are stored; any other is embedded, and its metadata say its class.
        k
            How many; fewer come back where there are fewer.
        filter
            What may be found; see the class's notes.

        Raises
        ------
        ValueError
            If the id is not stored, or the query has no class, or one that the store does not know.
        """
        return _without_scores(self.evidence_search_with_score(query, k, filter=filter))

    async def aevidence_search(self, query: str | Document, k: int = 4, *, filter: Filter = None) -> list[Document]:
        """Do as :meth:`evidence_search`, waiting for the embedding."""
        return _without_scores(await self.aevidence_search_with_score(query, k, filter=filter))

    def evidence_search_with_score(
        self, query: str | Document, k: int = 4, *, filter: Filter = None
    ) -> list[tuple[Document, float]]:
        """Do as :meth:`evidence_search`, with cosine similarities in [-1, 1]."""
        if isinstance(query, Document) and not self._is_stored(query):
            label, (vector,) = self._class_of(query), self.embedding.embed_documents([query.page_content])
            return self.evidence_search_with_score_by_vector(vector, k, label=label, filter=filter)
        return self._evidence_of_stored(query, k, filter)

    async def aevidence_search_with_score(
        self, query: str | Document, k: int = 4, *, filter: Filter = None
    ) -> list[tuple[Document, float]]:
        """Do as :meth:`evidence_search_with_score`, waiting for the embedding."""
        if isinstance(query, Document) and not self._is_stored(query):
            label, (vector,) = self._class_of(query), await self.embedding.aembed_documents([query.page_content])
            search = self.evidence_search_with_score_by_vector
            return await run_in_executor(None, search, vector, k, label=label, filter=filter)
        return await run_in_executor(None, self._evidence_of_stored, query, k, filter)

    def evidence_search_by_vector(
        self, embedding: Sequence[float], k: int = 4, *, label: str | int, filter: Filter = None
    ) -> list[Document]:
        """Return the k documents most similar to a vector that are labelled, and not as ``label`` says."""
        return _without_scores(self.evidence_search_with_score_by_vector(embedding, k, label=label, filter=filter))

    async def aevidence_search_by_vector(
        self, embedding: Sequence[float], k: int = 4, *, label: str | int, filter: Filter = None
    ) -> list[Document]:
        """Do as :meth:`evidence_search_by_vector`."""
        return await run_in_executor(None, self.evidence_search_by_vector, embedding, k, label=label, filter=filter)

    def evidence_search_with_score_by_vector(
        self, embedding: Sequence[float], k: int = 4, *, label: str | int, filter: Filter = None
    ) -> list[tuple[Document, float]]:
        """Do as :meth:`evidence_search_by_vector`, with cosine similarities in [-1, 1]."""
        vector, store = vectors_of(embedding), self._store_of(len(embedding))
        return self._with_scores(store.evidence(vector, k, label, where_of(filter, self.label_key, store)))

    def as_retriever(self, **kwargs: Any) -> EvidenceRetriever:
        """Return a retriever with the given ``search_type`` and ``search_kwargs``; see :class:`EvidenceRetriever`."""
        kwargs["tags"] = kwargs.get("tags") or self._get_retriever_tags()
        return EvidenceRetriever(vectorstore=self, **kwargs)

    # --- files --------------------------------------------------------------------------------------------------------

    def save_local(self, folder_path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything but the embedding into a folder, wholly or not at all; see :meth:`EvidenceStore.save`."""
        self.store.save(folder_path, overwrite=overwrite)

    @classmethod
    def load_local(
        cls, folder_path: str | PathLike[str], embeddings: Embeddings, label_key: str = "label"
    ) -> "EvidenceVectorStore":
        """Read what :meth:`save_local` has written; no code from the folder is run.

        Raises
        ------
        FileNotFoundError, ValueError
            If there is no such folder, or it does not hold a store of this version as it was written.
        """
        return cls(embeddings, label_key, store=EvidenceStore.load(folder_path))

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Return a store of texts; see :meth:`add_texts`. Further arguments go to the class."""
        vs = cls(embedding, **kwargs)
        vs.add_texts(texts, metadatas, ids=ids)
        return vs

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Do as :meth:`from_texts`, waiting for the embedding."""
        vs = cls(embedding, **kwargs)
        await vs.aadd_texts(texts, metadatas, ids=ids)
        return vs

    def _search(self, embedding: Sequence[float], k: int, wanted: Filter, with_vectors: bool = False) -> Hits:
        vector, store = vectors_of(embedding), self._store_of(len(embedding))
        hits: Hits = store.search(vector, k, where_of(wanted, self.label_key, store), with_vectors=with_vectors)
        return hits

    def _evidence_of_stored(self, query: str | Document, k: int, wanted: Filter) -> list[tuple[Document, float]]:
        id_, store = query.id if isinstance(query, Document) else query, self.store
        if not isinstance(id_, str):
            raise TypeError(f"query must be the id of a stored document or a Document, got {type(query).__name__}")
        return self._with_scores(store.evidence(id_, k, where=where_of(wanted, self.label_key, store)))

    def _is_stored(self, document: Document) -> bool:
        return self._store is not None and document.id is not None and document.id in self._store

    def _class_of(self, document: Document) -> str | int:
        label: Label = document.metadata.get(self.label_key)
        if label is None:
            raise ValueError(f"metadata of a document that is not stored must say its class under {self.label_key!r}")
        return label

    def _with_scores(self, hits: Hits) -> list[tuple[Document, float]]:
        return list(zip(documents_of(hits, self.label_key), hits.similarity.tolist(), strict=True))

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return _relevance


def _relevance(similarity: float) -> float:
    """Return a cosine as a relevance score in [0, 1]: what points away from the query is not relevant at all."""
    return min(max(similarity, 0.0), 1.0)


def _without_scores(found: list[tuple[Document, float]]) -> list[Document]:
    return [document for document, _ in found]


def _refuse(method: str, kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError for arguments that LangChain's interface lets pass, and nothing would heed."""
    # LangChain's indexing API says beside each batch how large batches are.
    unknown = [name for name in kwargs if name != "batch_size"]
    if unknown:
        raise TypeError(f"{method}() got an unexpected keyword argument {unknown[0]!r}")
