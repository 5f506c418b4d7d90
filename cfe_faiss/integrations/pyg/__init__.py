"""PyG's explainers and counterfactual evidence, side by side. Importing this loads torch and PyG."""

from cfe_faiss.integrations.pyg.algorithm import EvidenceExplainer
from cfe_faiss.integrations.pyg.beside import ExplainedEvidence, explain_beside

__all__ = ["EvidenceExplainer", "ExplainedEvidence", "explain_beside"]
