"""Evidence search in LangChain: a vector store and its retriever. Needs the extra ``langchain``."""

# ruff: noqa: A002 - LangChain's searches call their filter "filter".

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np

from cfe_faiss._native import ReadWriteLock
from cfe_faiss.base.extras import extra
from cfe_faiss.base.values import as_list
from cfe_faiss.integrations.adapter import checked_store, diversify, in_thread, put, refuse, rows_of
from cfe_faiss.store import EvidenceStore, Hits, Rows, Watch
from cfe_faiss.store.filters import check_depth

with extra("langchain"):
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.runnables.config import run_in_executor
    from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
    from pydantic import model_validator


Label = str | int | None
Filter = Mapping[str, Any] | Callable[[Document], bool] | None
Metadatas = list[dict[str, Any]] | None
Ids = list[str] | None
Scored = list[tuple[Document, float]]


class EvidenceRetriever(VectorStoreRetriever):
    """A ``VectorStoreRetriever`` that also finds evidence, with ``search_type="evidence"``.

    ``search_kwargs`` are the arguments of the search: ``k`` and ``filter``. Without a classifier,
    evidence also needs ``label``, the class of the query text; ``invoke(text, label=...)`` gives it
    for one text.

    Parameters
    ----------
    vectorstore
        An :class:`~cfe_faiss.integrations.langchain.EvidenceVectorStore`.
    search_type
        ``"similarity"``, ``"mmr"``, ``"similarity_score_threshold"`` or ``"evidence"``.
    search_kwargs
        Arguments of the search.
    classifier
        Returns the class of a text; for evidence only.

    Raises
    ------
    ValueError
        If a classifier is given for another kind of search, or the class of a text is missing.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> vs = EvidenceVectorStore(DeterministicFakeEmbedding(size=8))
    >>> ids = vs.add_texts(["one", "two"], [{"label": "a"}, {"label": "b"}], ids=["1", "2"])
    >>> retriever = vs.as_retriever(search_type="evidence", search_kwargs={"k": 1})
    >>> [document.id for document in retriever.invoke("one", label="a")]
    ['2']
    """

    allowed_search_types: ClassVar[Collection[str]] = (
        *VectorStoreRetriever.allowed_search_types,
        "evidence",
    )
    classifier: Callable[[str], str | int] | None = None

    @model_validator(mode="after")
    def _check_evidence(self) -> "EvidenceRetriever":
        if self.search_type == "evidence" and not hasattr(self.vectorstore, "evidence_search"):
            raise ValueError(
                f"vectorstore must be an EvidenceVectorStore, got {type(self.vectorstore).__name__}"
            )
        if self.classifier is not None and self.search_type != "evidence":
            raise ValueError(
                f'classifier is for search_type="evidence" only, got {self.search_type!r}'
            )
        return self

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        if self.search_type != "evidence":
            return super()._get_relevant_documents(query, run_manager=run_manager, **kwargs)
        store, document, options = self._query(query, kwargs)
        return store.evidence_search(document, **options)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        if self.search_type != "evidence":
            return await super()._aget_relevant_documents(query, run_manager=run_manager, **kwargs)
        store, document, options = self._query(query, kwargs)
        return await store.aevidence_search(document, **options)

    def _query(self, text: str, given: dict[str, Any]) -> tuple[Any, Document, dict[str, Any]]:
        """Return the vector store, a text with its class, and the arguments of the search."""
        store: Any = self.vectorstore
        options = self.search_kwargs | given
        label = options.pop("label", None)
        if label is None:
            if self.classifier is None:
                raise ValueError(
                    "evidence of a text needs its class: give the retriever a classifier, or label="
                )
            label = self.classifier(text)
        return store, Document(page_content=text, metadata={store.label_key: label}), options


class EvidenceVectorStore(VectorStore):
    """Documents with predicted classes in memory, as a LangChain ``VectorStore``.

    The evidence for a document are the most similar documents with another predicted class.
    Similarity is the cosine of two embeddings. All searches are exact, also under a filter, unless
    ``store`` has an approximate index.

    It also has the methods of ``VectorStore``: ``add_documents``, ``from_documents``,
    ``similarity_search_with_relevance_scores``, ``as_retriever`` and an async version of each
    (``a...``).

    Parameters
    ----------
    embedding
        Makes vectors of texts.
    label_key
        Metadata key of a document's predicted class, a text or an integer (one type for all).
        Documents without this key, or with None, are found by searches and are never evidence.
    store
        Where documents are kept. By default a store with an exact index, made when the first
        documents are added.

    Notes
    -----
    A ``filter`` is a mapping of metadata keys to values or conditions, or a function that takes a
    ``Document`` and returns whether it may be found (called for every document of the store). For
    mappings see :meth:`cfe_faiss.EvidenceStore.search`; an example is
    ``{"year": {"$gte": 2020}, "label": {"$ne": "spam"}}``.

    Any number of threads may search and change the store at the same time.

    Examples
    --------
    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> vs = EvidenceVectorStore(DeterministicFakeEmbedding(size=8))
    >>> classes = [{"label": "a"}, {"label": "b"}, {"label": "b"}]
    >>> vs.add_texts(["one", "two", "three"], classes, ids=["1", "2", "3"])
    ['1', '2', '3']
    >>> [document.id for document in vs.evidence_search("3")]
    ['1']
    """

    def __init__(
        self, embedding: Embeddings, label_key: str = "label", *, store: EvidenceStore | None = None
    ) -> None:
        self.embedding = embedding
        self.label_key = label_key
        self._store = None if store is None else checked_store(store)
        self._making = ReadWriteLock()

    @property
    def embeddings(self) -> Embeddings:
        """The embedding."""
        return self.embedding

    @property
    def store(self) -> EvidenceStore:
        """The evidence store. Before documents are added, embed a text to learn the dimension."""
        if self._store is None:
            return self._store_of(len(self.embedding.embed_query("d")))
        return self._store

    def _store_of(self, d: int) -> EvidenceStore:
        with self._making.writing():
            if self._store is None:
                self._store = EvidenceStore(d)
            return self._store

    def __repr__(self) -> str:
        contents = "nothing yet" if self._store is None else repr(self._store)
        settings = f"{type(self.embedding).__name__}, label_key={self.label_key!r}"
        return f"EvidenceVectorStore({settings}, {contents})"

    # --- changes ----------------------------------------------------------------------------------

    def add_texts(
        self, texts: Iterable[str], metadatas: Metadatas = None, *, ids: Ids = None, **kwargs: Any
    ) -> list[str]:
        """Embed texts and store them.

        A text with a stored id replaces the old one, metadata and class included.

        Parameters
        ----------
        texts
            n texts.
        metadatas
            One mapping, or None, per text, as for ``EvidenceStore.add``; the class is under
            ``label_key``.
        ids
            Distinct ids. None is replaced by a new id.
        **kwargs
            ``watch``, as in :meth:`cfe_faiss.EvidenceStore.upsert`; its ``tell`` gets the report.

        Returns
        -------
        list of str
            The ids.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described. Nothing is stored then.
        cfe_faiss.store.EvidenceError
            If ``watch`` refuses the texts. Nothing is stored then.
        """
        refuse("add_texts", kwargs, _BATCH_SIZE, "watch")
        texts = as_list("texts", texts)
        vectors = self.embedding.embed_documents(texts) if texts else []
        return self._add(texts, vectors, metadatas, ids, kwargs.get("watch"))

    async def aadd_texts(
        self, texts: Iterable[str], metadatas: Metadatas = None, *, ids: Ids = None, **kwargs: Any
    ) -> list[str]:
        """Call :meth:`add_texts`, awaiting the embedding."""
        refuse("aadd_texts", kwargs, _BATCH_SIZE, "watch")
        texts = as_list("texts", texts)
        vectors = await self.embedding.aembed_documents(texts) if texts else []
        watch = kwargs.get("watch")
        return await run_in_executor(None, self._add, texts, vectors, metadatas, ids, watch)

    def add_embeddings(
        self,
        text_embeddings: Iterable[tuple[str, Sequence[float]]],
        metadatas: Metadatas = None,
        *,
        ids: Ids = None,
        watch: Watch | float | None = None,
    ) -> list[str]:
        """Store pairs of a text and its vector; see :meth:`add_texts`."""
        texts, vectors = [list(column) for column in zip(*text_embeddings, strict=True)] or ([], [])
        return self._add(texts, vectors, metadatas, ids, watch)

    def _add(
        self,
        texts: list[str],
        vectors: Sequence[Sequence[float]],
        metadatas: Sequence[Mapping[str, Any]] | None,
        ids: Sequence[str | None] | None,
        watch: Watch | float | None = None,
    ) -> list[str]:
        if not texts:
            return []
        names = [id_ or str(uuid.uuid4()) for id_ in ids or [None] * len(texts)]
        mappings = [
            {} if metadata is None else metadata for metadata in metadatas or [{}] * len(texts)
        ]
        for name, values in (("metadatas", mappings), ("ids", names), ("embeddings", vectors)):
            if len(values) != len(texts):
                raise ValueError(
                    f"{name} must be as many as texts, got {len(values)} for {len(texts)}"
                )
        unfit = next((metadata for metadata in mappings if not isinstance(metadata, Mapping)), None)
        if unfit is not None:
            raise TypeError(f"metadatas must hold mappings or None, got {unfit!r}")
        rows = zip(names, mappings, texts, strict=True)
        write = self._store_of(len(vectors[0])).upsert
        return put(write, rows, _as_array(vectors), self.label_key, watch)

    def relabel(self, labels: Mapping[str, Label]) -> None:
        """Give documents the classes that another classifier predicts.

        Their metadata show the new classes.

        Parameters
        ----------
        labels
            Classes by id; None for no class.

        Raises
        ------
        TypeError, ValueError
            If an id is not stored or a class is neither a text nor an integer. No class is changed
            then.
        """
        self.store.relabel(labels)

    arelabel = in_thread(relabel)

    def delete(self, ids: Ids = None, *, filter: Filter = None, **kwargs: Any) -> bool:
        """Delete documents by their ids or by a ``filter``; see the notes of the class.

        Without both, all documents are deleted, as LangChain's interface demands. Unknown ids are
        ignored. Returns True. TypeError if both are given.
        """
        refuse("delete", kwargs, _BATCH_SIZE)
        if ids is not None and filter is not None:
            raise TypeError("delete takes either ids or filter")
        if self._store is not None:
            where = {} if filter is None else _where(filter, self.label_key, self._store)
            self._store.delete(ids, where=where if ids is None else None)
        return True

    # --- searches ---------------------------------------------------------------------------------

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return documents in the order of ``ids``, without unknown ids."""
        return (
            []
            if self._store is None
            else _documents_of(self._store.get(ids, skip_missing=True), self.label_key)
        )

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the k documents most similar to a text, best first.

        ``filter=`` as in the notes of the class; ``per_group=``, most documents of one class.
        """
        return _drop_scores(self.similarity_search_with_score(query, k, **kwargs))

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Call :meth:`similarity_search`, awaiting the embedding."""
        return _drop_scores(await self.asimilarity_search_with_score(query, k, **kwargs))

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        """Return the k documents most similar to a text, with their cosines in [-1, 1]."""
        return self.similarity_search_with_score_by_vector(
            self.embedding.embed_query(query), k, **kwargs
        )

    async def asimilarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> Scored:
        """Call :meth:`similarity_search_with_score`, awaiting the embedding."""
        vector = await self.embedding.aembed_query(query)
        return await run_in_executor(
            None, self.similarity_search_with_score_by_vector, vector, k, **kwargs
        )

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """Return the k documents most similar to a vector, best first."""
        return _drop_scores(self.similarity_search_with_score_by_vector(embedding, k, **kwargs))

    def similarity_search_with_score_by_vector(
        self, embedding: Sequence[float], k: int = 4, *, filter: Filter = None, **kwargs: Any
    ) -> Scored:
        """Return the k documents most similar to a vector, with their cosines in [-1, 1].

        ``per_group=``, as in :meth:`cfe_faiss.EvidenceStore.search`: most documents of one class.
        """
        refuse("similarity_search", kwargs, "per_group")
        return self._add_scores(self._search(embedding, k, filter, **kwargs))

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return k documents similar to a text and different from each other, of ``fetch_k``.

        ``lambda_mult`` runs from 0, for the greatest diversity, to 1, for similarity alone.
        """
        return self.max_marginal_relevance_search_by_vector(
            self.embedding.embed_query(query), k, fetch_k, lambda_mult, **kwargs
        )

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Call :meth:`max_marginal_relevance_search`, awaiting the embedding."""
        vector = await self.embedding.aembed_query(query)
        return await self.amax_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, **kwargs
        )

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        **kwargs: Any,
    ) -> list[Document]:
        """Call :meth:`max_marginal_relevance_search` with a vector."""
        refuse("max_marginal_relevance_search_by_vector", kwargs, "filter")
        hits = self._search(embedding, fetch_k, kwargs.get("filter"), with_vectors=True)
        return _documents_of(diversify(hits, k, lambda_mult), self.label_key)

    def _search(self, embedding: Sequence[float], k: int, wanted: Filter, **options: Any) -> Hits:
        vector = _as_array(embedding)
        store = self._store_of(len(embedding))
        hits: Hits = store.search(vector, k, _where(wanted, self.label_key, store), **options)
        return hits

    def _add_scores(self, hits: Hits) -> Scored:
        return list(zip(_documents_of(hits, self.label_key), hits.similarity.tolist(), strict=True))

    # --- evidence ---------------------------------------------------------------------------------

    def evidence_search(
        self, query: str | Document, k: int = 4, *, filter: Filter = None
    ) -> list[Document]:
        """Return the k most similar documents that the classifier labels differently, best first.

        Parameters
        ----------
        query
            The id of a stored document, or a document. A document with a stored id stands for the
            stored one, with its vector and class; any other document is embedded, and its class
            taken from its metadata.
        k
            Number of documents; fewer come back if fewer have another class.
        filter
            Documents that may be found; see the notes of the class.

        Raises
        ------
        ValueError
            If the id is not stored, or the query has no class, or one that the store does not know.
        """
        return _drop_scores(self.evidence_search_with_score(query, k, filter=filter))

    async def aevidence_search(
        self, query: str | Document, k: int = 4, *, filter: Filter = None
    ) -> list[Document]:
        """Call :meth:`evidence_search`, awaiting the embedding."""
        return _drop_scores(await self.aevidence_search_with_score(query, k, filter=filter))

    def evidence_search_with_score(
        self, query: str | Document, k: int = 4, *, filter: Filter = None
    ) -> Scored:
        """Call :meth:`evidence_search`; return documents with cosine similarities in [-1, 1]."""
        new = self._new_query(query)
        return self._evidence(
            self.embedding.embed_documents([new[0]])[0] if new else query, k, new, filter
        )

    async def aevidence_search_with_score(
        self, query: str | Document, k: int = 4, *, filter: Filter = None
    ) -> Scored:
        """Call :meth:`evidence_search_with_score`, awaiting the embedding."""
        new = self._new_query(query)
        embedded_query = (await self.embedding.aembed_documents([new[0]]))[0] if new else query
        return await run_in_executor(None, self._evidence, embedded_query, k, new, filter)

    def evidence_search_by_vector(
        self, embedding: Sequence[float], k: int = 4, *, label: str | int, filter: Filter = None
    ) -> list[Document]:
        """Return the k documents most similar to a vector whose class is not ``label``."""
        return _drop_scores(
            self.evidence_search_with_score_by_vector(embedding, k, label=label, filter=filter)
        )

    aevidence_search_by_vector = in_thread(evidence_search_by_vector)

    def evidence_search_with_score_by_vector(
        self, embedding: Sequence[float], k: int = 4, *, label: str | int, filter: Filter = None
    ) -> Scored:
        """Call :meth:`evidence_search_by_vector`.

        Return documents with cosine similarities in [-1, 1].
        """
        vector = _as_array(embedding)
        store = self._store_of(len(embedding))
        return self._add_scores(
            store.evidence(vector, k, label, _where(filter, self.label_key, store))
        )

    def _evidence(
        self, query: Any, k: int, new: tuple[str, str | int] | None, wanted: Filter
    ) -> Scored:
        """Return the evidence of a vector of a new query's class, or of a stored document."""
        if new is not None:
            return self.evidence_search_with_score_by_vector(query, k, label=new[1], filter=wanted)
        id_ = query.id if isinstance(query, Document) else query
        store = self.store
        if not isinstance(id_, str):
            raise TypeError(
                f"query must be the id of a stored document or a Document, got "
                f"{type(query).__name__}"
            )
        return self._add_scores(store.evidence(id_, k, where=_where(wanted, self.label_key, store)))

    def _new_query(self, query: str | Document) -> tuple[str, str | int] | None:
        """Return text and class of a document that is not stored, None for other queries."""
        if not isinstance(query, Document) or (self._store is not None and query.id in self._store):
            return None
        label: Label = query.metadata.get(self.label_key)
        if label is None:
            raise ValueError(
                f"metadata of a document that is not stored must say its class under "
                f"{self.label_key!r}"
            )
        return query.page_content, label

    def as_retriever(self, **kwargs: Any) -> EvidenceRetriever:
        """Return a retriever with the given ``search_type`` and ``search_kwargs``.

        See :class:`EvidenceRetriever`.
        """
        kwargs["tags"] = kwargs.get("tags") or self._get_retriever_tags()
        return EvidenceRetriever(vectorstore=self, **kwargs)

    # --- files ------------------------------------------------------------------------------------

    def save_local(self, folder_path: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write all data except the embedding into a folder, atomically.

        See :meth:`EvidenceStore.save`.
        """
        self.store.save(folder_path, overwrite=overwrite)

    @classmethod
    def load_local(
        cls, folder_path: str | PathLike[str], embeddings: Embeddings, label_key: str = "label"
    ) -> "EvidenceVectorStore":
        """Read a store written by :meth:`save_local`; no code from the folder is run.

        Raises
        ------
        FileNotFoundError, ValueError
            If there is no such folder, or it holds no complete store of this version.
        """
        return cls(embeddings, label_key, store=EvidenceStore.load(folder_path))

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: Metadatas = None,
        *,
        ids: Ids = None,
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
        metadatas: Metadatas = None,
        *,
        ids: Ids = None,
        **kwargs: Any,
    ) -> Self:
        """Call :meth:`from_texts`, awaiting the embedding."""
        vs = cls(embedding, **kwargs)
        await vs.aadd_texts(texts, metadatas, ids=ids)
        return vs

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        # a negative cosine is not relevant at all
        return lambda similarity: min(max(similarity, 0.0), 1.0)


_BATCH_SIZE = "batch_size"
"""Argument that LangChain's indexing API passes with each batch."""


def _documents_of(found: Hits | Rows, label_key: str) -> list[Document]:
    return [
        Document(id=id_, page_content=text or "", metadata=metadata)
        for id_, metadata, text in rows_of(found, label_key)
    ]


def _drop_scores(found: Scored) -> list[Document]:
    return [document for document, _ in found]


def _where(wanted: Filter, label_key: str, store: EvidenceStore) -> Any:
    """Return a filter for the store: with its name of the class, or, for a function, ids."""
    if callable(wanted):
        return [
            document.id for document in _documents_of(store.get(), label_key) if wanted(document)
        ]
    if isinstance(wanted, Mapping):
        check_depth(wanted)
    return _rename_label(wanted, label_key)


def _rename_label(wanted: Any, label_key: str) -> Any:
    """Return a mapping with the store's name of the class in place of ``label_key``."""
    if isinstance(wanted, list | tuple):
        return [_rename_label(part, label_key) for part in wanted]
    if not isinstance(wanted, Mapping):
        return wanted
    return {
        "$label" if key == label_key else key: _rename_label(value, label_key)
        if key in ("$and", "$or", "$not")
        else value
        for key, value in wanted.items()
    }


def _as_array(embeddings: Sequence[Any]) -> Any:
    """Return a vector, (d,), or n vectors, (n, d), as an array.

    ValueError for vectors of different lengths.
    """
    try:
        return np.asarray(embeddings, np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"embeddings must be equally long lists of numbers: {error}") from error
