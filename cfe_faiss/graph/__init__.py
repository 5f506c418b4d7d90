"""Graphs of every form as one; and the graph of one node type along a meta-path."""

from cfe_faiss.graph.csr import Graph, as_graph, native_graph

__all__ = ["Graph", "as_graph", "native_graph"]
