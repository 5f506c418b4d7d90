"""Files of users as a graph with attributes, ids and classes."""

from cfe_faiss.datasets.own.graph import OwnFiles, OwnGraph, read_own

__all__ = ["OwnFiles", "OwnGraph", "read_own"]
