"""Evidence search in LangChain: a vector store and its retriever. Needs the extra ``langchain``."""

from cfe_faiss.integrations.langchain.retriever import EvidenceRetriever
from cfe_faiss.integrations.langchain.vector_store import EvidenceVectorStore

__all__ = ["EvidenceRetriever", "EvidenceVectorStore"]
