"""Arrays of the running top k of each query in FAISS's format, with its padding."""

import numpy as np
from numpy.typing import NDArray

PADDING = np.finfo(np.float32).min
"""What FAISS writes as the similarity of a place that holds no id (inner product)."""

NO_ID = np.iinfo(np.int64).max
"""Id of a place of a heap that is still empty."""


def empty_heaps(nq: int, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return D and I for ``nq`` queries, filled with padding."""
    return np.full((nq, k), PADDING, np.float32), np.full((nq, k), NO_ID, np.int64)
