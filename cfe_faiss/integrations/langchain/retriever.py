"""LangChain's retriever of documents, with evidence as a further kind of search."""

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from cfe_faiss.base.extras import extra

with extra("langchain"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.vectorstores import VectorStoreRetriever
    from pydantic import model_validator


class EvidenceRetriever(VectorStoreRetriever):
    """A ``VectorStoreRetriever`` that also finds evidence, with ``search_type="evidence"``.

    ``search_kwargs`` are the arguments of the search: ``k`` and ``filter``. Without a classifier, evidence also needs
    ``label``, the class of the query text; ``invoke(text, label=...)`` gives it for one text.

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
    """

    allowed_search_types: ClassVar[Collection[str]] = (*VectorStoreRetriever.allowed_search_types, "evidence")
    classifier: Callable[[str], str | int] | None = None

    @model_validator(mode="after")
    def _check_evidence(self) -> "EvidenceRetriever":
        if self.search_type == "evidence" and not hasattr(self.vectorstore, "evidence_search"):
            raise ValueError(f"vectorstore must be an EvidenceVectorStore, got {type(self.vectorstore).__name__}")
        if self.classifier is not None and self.search_type != "evidence":
            raise ValueError(f'classifier is for search_type="evidence" only, got {self.search_type!r}')
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
        """Return the vector store, a text with its class as a document, and the arguments of the search."""
        store: Any = self.vectorstore
        options = self.search_kwargs | given
        label = options.pop("label", None)
        if label is None:
            if self.classifier is None:
                raise ValueError("evidence of a text needs its class: give the retriever a classifier, or label=")
            label = self.classifier(text)
        return store, Document(page_content=text, metadata={store.label_key: label}), options
