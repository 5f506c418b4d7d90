"""Files of users as a graph with attributes, ids and classes."""

from cfe_faiss.datasets.own.graph import OwnFiles, OwnGraph, read_own
from cfe_faiss.datasets.own.table import Ids, NamedSource, Source

__all__ = ["Ids", "NamedSource", "OwnFiles", "OwnGraph", "Source", "read_own"]
