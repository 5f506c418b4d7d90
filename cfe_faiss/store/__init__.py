"""Documents with string ids, metadata and class names over an evidence index."""

from cfe_faiss.store.store import EvidenceStore
from cfe_faiss.store.values import Hit, Hits, Rows

__all__ = ["EvidenceStore", "Hit", "Hits", "Rows"]
