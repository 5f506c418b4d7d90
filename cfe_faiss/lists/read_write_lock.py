"""Letting many searches, or one change, into an index."""

from cfe_faiss._native import ReadWriteLock

__all__ = ["ReadWriteLock"]
