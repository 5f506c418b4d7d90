"""PyG's explainers compared with evidence, and its stores as inputs of jobs.

Importing this loads torch and PyG.
"""

from cfe_faiss.integrations.pyg.explain import EvidenceExplainer, ExplainedEvidence, explain_beside
from cfe_faiss.integrations.pyg.stores import (
    StoredEdges,
    StoredFeatures,
    stored_edges,
    stored_features,
)

__all__ = [
    "EvidenceExplainer",
    "ExplainedEvidence",
    "StoredEdges",
    "StoredFeatures",
    "explain_beside",
    "stored_edges",
    "stored_features",
]
