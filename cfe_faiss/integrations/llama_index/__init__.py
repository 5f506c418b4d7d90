"""Evidence search in LlamaIndex: a vector store, and a retriever for query engines. Needs the extra ``llama-index``."""

from cfe_faiss.integrations.llama_index.vector_store import EvidenceRetriever, EvidenceVectorStore

__all__ = ["EvidenceRetriever", "EvidenceVectorStore"]
