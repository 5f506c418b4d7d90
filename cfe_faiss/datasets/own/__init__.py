"""Files of users as a graph with attributes, ids and classes."""

from cfe_faiss.data.roles import Ids, Source
from cfe_faiss.datasets.own.graph import OwnFiles, OwnGraph, read_own

__all__ = ["Ids", "OwnFiles", "OwnGraph", "Source", "read_own"]
