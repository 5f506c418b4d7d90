"""Counterfactual evidence for node classification, as a FAISS plug-in."""

__version__ = "0.1.0"
