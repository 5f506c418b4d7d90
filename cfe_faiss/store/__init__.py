"""Documents with string ids, metadata and class names over an evidence index."""

from cfe_faiss.store.results import Hit, Hits, Rows
from cfe_faiss.store.store import EvidenceStore

__all__ = ["EvidenceStore", "Hit", "Hits", "Rows"]
