"""Graphs in one form, KS vectors, and graphs along a meta-path."""

from cfe_faiss.graph.csr import Graph, as_graph, native_graph

__all__ = ["Graph", "as_graph", "native_graph"]
