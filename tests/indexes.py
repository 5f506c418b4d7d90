"""The kinds of indexes that tests run over, empty and filled."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference import clustered, quick, unit

import cfe_faiss as cfe

FLAT = "IDMap2,EvidenceFlat"
WITH_LISTS = [
    "EvidenceIVF8,Flat",
    "EvidenceIVF8x2,Flat",
    "EvidenceIVF8,SQfp16",
    "EvidenceIVF8,SQ8",
    "EvidenceIVF8,PQ4,RFlat",
]
KINDS = [FLAT, *WITH_LISTS]
N, D, CLASSES = 400, 8, 3
RAW, LABELS = clustered(N, D, CLASSES)
X = unit(RAW)
IDS = np.random.default_rng(5).permutation(10**6)[:N].astype(np.int64)


def empty(kind: str, training: Any = RAW) -> Any:
    """Return a trained index that probes all of its lists by default."""
    index = quick(cfe.index_factory(D, kind))
    if index.has_lists:
        index.train(training)
        index.nprobe = index.nlist * index.partitions
    return index


def filled(kind: str, ids: Any = None) -> Any:
    """Return an index of all rows; by default with ids 0, 1, ..."""
    index = empty(kind)
    index.add_with_labels(RAW, LABELS, ids)
    return index


def kept(kind: str, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return unit vectors as an index of a kind keeps them."""
    if "SQ" not in kind:
        return vectors
    index = empty(kind)
    return np.asarray(index.sa_decode(index.sa_encode(vectors)))
