"""Files of users as a graph with attributes, ids and classes."""

from cfe_faiss.datasets.own.graph import OwnFiles, OwnGraph, read_own
from cfe_faiss.datasets.own.table import Ids, Source

__all__ = ["Ids", "OwnFiles", "OwnGraph", "Source", "read_own"]
