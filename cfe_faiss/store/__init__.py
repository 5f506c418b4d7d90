"""Documents with string ids, metadata and class names over an evidence index."""

from cfe_faiss.pairs import DuplicateGroup
from cfe_faiss.store.store import EvidenceStore
from cfe_faiss.store.values import Hit, Hits, Rows
from cfe_faiss.store.watch import EvidenceError, Watch

__all__ = ["DuplicateGroup", "EvidenceError", "EvidenceStore", "Hit", "Hits", "Rows", "Watch"]
