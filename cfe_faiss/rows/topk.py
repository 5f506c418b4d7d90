"""Arrays of the k best results of each query in FAISS's format, with its padding."""

import numpy as np

from cfe_faiss.base.arrays import Floats, Ints

PADDING = np.finfo(np.float32).min
"""What FAISS writes as the similarity of a place that holds no id (inner product)."""


def make_results(nq: int, k: int) -> tuple[Floats, Ints]:
    """Return D and I for ``nq`` queries, filled with padding."""
    return np.full((nq, k), PADDING, np.float32), np.full((nq, k), -1, np.int64)
