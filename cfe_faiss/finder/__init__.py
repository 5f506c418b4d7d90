"""From a graph and a model, or from vectors, to evidence in one object."""

from cfe_faiss.finder.finder import EvidenceFinder
from cfe_faiss.finder.inputs import empty_index
from cfe_faiss.finder.results import LocalEvidence, PairEvidence

__all__ = ["EvidenceFinder", "LocalEvidence", "PairEvidence", "empty_index"]
