"""Evidence search in LangChain: a vector store and its retriever. Needs the extra ``langchain``."""

from cfe_faiss.integrations.langchain.vector_store import EvidenceRetriever, EvidenceVectorStore

__all__ = ["EvidenceRetriever", "EvidenceVectorStore"]
