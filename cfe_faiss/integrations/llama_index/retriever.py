"""LlamaIndex's retriever of evidence: similar nodes that a classifier labels differently than the query."""

import asyncio
from collections.abc import Callable

from cfe_faiss.base.checks import as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.integrations.llama_index.vector_store import EvidenceVectorStore

with extra("llama-index"):
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.callbacks.base import CallbackManager
    from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
    from llama_index.core.settings import Settings
    from llama_index.core.vector_stores.types import MetadataFilters


class EvidenceRetriever(BaseRetriever):
    """Retriever of the nodes that are most similar to a query and that a classifier labels differently.

    Use it as any retriever of LlamaIndex, for example in a ``RetrieverQueryEngine``.

    Parameters
    ----------
    vector_store
        Store of the nodes and their classes.
    classifier
        Returns the predicted class of a text, with the class names of the nodes' metadata.
    embed_model
        Embedding model of the nodes; LlamaIndex's ``Settings.embed_model`` by default.
    similarity_top_k
        Number of nodes, >= 1.
    filters
        Nodes that may be found; the search is exact among them.
    callback_manager
        LlamaIndex's, for tracing.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> from cfe_faiss.integrations.llama_index import EvidenceRetriever, EvidenceVectorStore
    >>> from llama_index.core import MockEmbedding
    >>> from llama_index.core.schema import TextNode
    >>> store = EvidenceVectorStore(cfe.EvidenceStore(2))
    >>> _ = store.add([
    ...     TextNode(text="charged twice", embedding=[1, 0], metadata={"label": "urgent"}),
    ...     TextNode(text="charged", embedding=[0.8, 0.6], metadata={"label": "routine"}),
    ... ])
    >>> retriever = EvidenceRetriever(
    ...     store, lambda text: "urgent" if "twice" in text else "routine", MockEmbedding(2), similarity_top_k=1
    ... )
    >>> [found.node.get_content() for found in retriever.retrieve("charged twice by mistake")]
    ['charged']
    """

    def __init__(
        self,
        vector_store: EvidenceVectorStore,
        classifier: Callable[[str], str | int],
        embed_model: BaseEmbedding | None = None,
        *,
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        filters: MetadataFilters | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        if not isinstance(vector_store, EvidenceVectorStore):
            raise TypeError(f"vector_store must be an EvidenceVectorStore, got {type(vector_store).__name__}")
        self._vector_store = vector_store
        self._classifier = classifier
        self._embed_model = Settings.embed_model if embed_model is None else embed_model
        self._similarity_top_k = as_count("similarity_top_k", similarity_top_k)
        self._filters = filters
        super().__init__(callback_manager=callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding = query_bundle.embedding
        if embedding is None:
            embedding = self._embed_model.get_agg_embedding_from_queries(query_bundle.embedding_strs)
        return self._evidence(query_bundle.query_str, embedding)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding = query_bundle.embedding
        if embedding is None:
            embedding = await self._embed_model.aget_agg_embedding_from_queries(query_bundle.embedding_strs)
        return await asyncio.to_thread(self._evidence, query_bundle.query_str, embedding)

    def _evidence(self, text: str, embedding: list[float]) -> list[NodeWithScore]:
        query, label = TextNode(text=text, embedding=embedding), self._classifier(text)
        return self._vector_store.evidence(query, self._similarity_top_k, label=label, filters=self._filters)
