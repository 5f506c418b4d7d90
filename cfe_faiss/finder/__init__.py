"""Evidence of a graph, a table or vectors, and a model, in one object."""

from cfe_faiss.base.checks import InputWarning
from cfe_faiss.finder.finder import EvidenceFinder
from cfe_faiss.finder.inputs import empty_index
from cfe_faiss.finder.results import Case, LocalEvidence, PairEvidence

__all__ = ["Case", "EvidenceFinder", "InputWarning", "LocalEvidence", "PairEvidence", "empty_index"]
