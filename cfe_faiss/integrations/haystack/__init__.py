"""Evidence search in Haystack: a document store and its retrievers.

Needs the extra ``haystack``.
"""

from cfe_faiss.integrations.haystack.document_store import EvidenceDocumentStore
from cfe_faiss.integrations.haystack.retrievers import EvidenceEmbeddingRetriever, EvidenceRetriever

__all__ = ["EvidenceDocumentStore", "EvidenceEmbeddingRetriever", "EvidenceRetriever"]
