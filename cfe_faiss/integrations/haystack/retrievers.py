"""Haystack's components over a document store: retrievers of similar documents, and of evidence."""

from typing import Any, Self

from cfe_faiss.base.checks import as_count, check_type
from cfe_faiss.base.extras import extra
from cfe_faiss.integrations.adapter import in_thread
from cfe_faiss.integrations.haystack.document_store import EvidenceDocumentStore, Filters

with extra("haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.document_stores.types import FilterPolicy, apply_filter_policy


class _Retriever:
    """Base of both retrievers: settings, their YAML form, and the arguments of a run."""

    def __init__(
        self,
        document_store: EvidenceDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        return_embedding: bool = False,
        filter_policy: FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        check_type(
            "document_store must be an EvidenceDocumentStore", document_store, EvidenceDocumentStore
        )
        self.document_store = document_store
        self.filters = filters
        self.top_k = as_count("top_k", top_k)
        self.return_embedding = return_embedding
        self.filter_policy = filter_policy

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, document store included, for a pipeline's YAML."""
        return default_to_dict(
            self,
            document_store=self.document_store,
            filters=self.filters,
            top_k=self.top_k,
            return_embedding=self.return_embedding,
            filter_policy=self.filter_policy.value,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return a component with the settings of :meth:`to_dict`."""
        settings = dict(data["init_parameters"])
        if isinstance(settings.get("document_store"), dict):
            settings["document_store"] = EvidenceDocumentStore.from_dict(settings["document_store"])
        settings["filter_policy"] = FilterPolicy.from_str(settings.get("filter_policy", "replace"))
        return default_from_dict(cls, {**data, "init_parameters": settings})

    def _at_run(self, filters: Filters, top_k: int | None) -> dict[str, Any]:
        """Return the arguments of a search; arguments of a run replace the component's."""
        if top_k is not None and top_k < 0:
            raise ValueError(f"top_k must be >= 0, got {top_k}")
        return {
            "filters": apply_filter_policy(self.filter_policy, self.filters, filters),
            "top_k": self.top_k if top_k is None else top_k,
            "return_embedding": self.return_embedding,
        }


@component
class EvidenceEmbeddingRetriever(_Retriever):
    """Component that retrieves the documents most similar to an embedding.

    Parameters
    ----------
    document_store
        Store of the documents.
    filters
        Documents that may be found; the search is exact among them.
    top_k
        Number of documents, >= 1.
    return_embedding
        Whether documents come back with their embeddings.
    filter_policy
        Whether the filters of a run replace these, or are joined with them.

    Examples
    --------
    >>> from haystack import Document
    >>> from cfe_faiss.integrations import haystack as cfe_haystack
    >>> store = cfe_haystack.EvidenceDocumentStore(embedding_dim=2)
    >>> north = Document(content="north", embedding=[0.0, 1.0])
    >>> _ = store.write_documents([north, Document(content="none yet")])
    >>> retriever = cfe_haystack.EvidenceEmbeddingRetriever(store)
    >>> [(found.content, found.score) for found in retriever.run([0.0, 3.0])["documents"]]
    [('north', 1.0)]
    """

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        per_group: int | None = None,
    ) -> dict[str, list[Document]]:
        """Return ``{"documents": [...]}``, best first; scores are cosine similarities.

        Parameters
        ----------
        query_embedding
            Embedding to search for.
        filters, top_k
            In place of the component's; ``top_k`` may be 0. Under ``FilterPolicy.MERGE``, filters
            are joined.
        per_group
            Most documents of one class; None for no limit.
        """
        return {
            "documents": self.document_store.embedding_retrieval(
                query_embedding, **self._at_run(filters, top_k), per_group=per_group
            )
        }

    run_async = component.output_types(documents=list[Document])(in_thread(run))


@component
class EvidenceRetriever(_Retriever):
    """Component that retrieves the most similar documents that a classifier labels differently.

    Parameters
    ----------
    document_store, filters, top_k, return_embedding, filter_policy
        As in :class:`EvidenceEmbeddingRetriever`; documents need their classes.

    Examples
    --------
    >>> from haystack import Document
    >>> from cfe_faiss.integrations.haystack import EvidenceDocumentStore, EvidenceRetriever
    >>> store = EvidenceDocumentStore(embedding_dim=2)
    >>> _ = store.write_documents([
    ...     Document(id="a", content="twice", embedding=[1.0, 0.0], meta={"label": "urgent"}),
    ...     Document(id="b", content="charged", embedding=[0.8, 0.6], meta={"label": "routine"}),
    ... ])
    >>> retriever = EvidenceRetriever(store)
    >>> found = retriever.run(query_embedding=[1.0, 0.0], label="urgent")["documents"]
    >>> [document.content for document in found]
    ['charged']
    >>> [document.content for document in retriever.run(document_id="b")["documents"]]
    ['twice']
    """

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float] | None = None,
        label: str | int | None = None,
        document_id: str | None = None,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
    ) -> dict[str, list[Document]]:
        """Return ``{"documents": [...]}``, best first; scores are cosine similarities.

        Parameters
        ----------
        query_embedding, label
            An embedding and its predicted class.
        document_id
            In place of an embedding: a stored document, whose class is known unless ``label`` gives
            another.
        filters, top_k
            In place of the component's; ``top_k`` may be 0. Under ``FilterPolicy.MERGE``, filters
            are joined.

        Raises
        ------
        ValueError
            If not exactly one of ``query_embedding`` and ``document_id`` is given, or a class is
            missing or not known.
        """
        if (query_embedding is None) == (document_id is None):
            raise ValueError("give either query_embedding and label, or document_id")
        query: Any = query_embedding if document_id is None else document_id
        return {
            "documents": self.document_store.evidence(query, label, **self._at_run(filters, top_k))
        }

    run_async = component.output_types(documents=list[Document])(in_thread(run))
