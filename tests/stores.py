"""Stores for tests, and what a store is compared with: the same rows in plain Python."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from reference import clustered, cosines, unit

import cfe_faiss as cfe

CLASSES = ["ham", "spam", "eggs", None]
LANGUAGES = ["de", "en", "fr"]
INDEXES = ["EvidenceFlat", "EvidenceIVF6,Flat", "EvidenceIVF6x2,SQfp16", "EvidenceIVF6,PQ2,RFlat"]


@dataclass(frozen=True)
class Made:
    """Rows of a store, as they are handed in."""

    ids: list[str]
    vectors: NDArray[np.float32]
    labels: list[str | None]
    metadata: list[dict[str, Any]]
    documents: list[str | None]

    def put(self, store: cfe.EvidenceStore, chosen: slice = slice(None)) -> None:
        store.upsert(
            self.ids[chosen],
            self.vectors[chosen],
            self.labels[chosen],
            self.metadata[chosen],
            self.documents[chosen],
        )


def made(n: int, d: int = 8, seed: int = 0) -> Made:
    X, _ = clustered(n, d, 3, seed)
    rng = np.random.default_rng(seed)
    labels = [CLASSES[i] for i in rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])]
    metadata: list[dict[str, Any]] = []
    for i in range(n):
        one: dict[str, Any] = {
            "lang": LANGUAGES[rng.integers(3)],
            "year": int(rng.integers(1990, 2020)),
        }
        if i % 3 == 0:
            one |= {
                "tags": ["news", f"t{i % 5}"],
                "score": float(rng.normal()),
                "draft": bool(rng.integers(2)),
            }
        if i % 7 == 0:
            one |= {"author": {"name": f"A{i % 4}"}, "note": None}
        metadata.append(one)
    documents = [f"text {i}" if i % 4 else None for i in range(n)]
    return Made([f"doc-{i}" for i in range(n)], X, labels, metadata, documents)


def filled(
    n: int = 300, d: int = 8, index: str = "EvidenceFlat", seed: int = 0
) -> tuple[cfe.EvidenceStore, Made]:
    rows = made(n, d, seed)
    store = cfe.EvidenceStore(d, index)
    if not store.index.is_trained:
        store.index.cp.niter = 3
        store.train(rows.vectors)
    rows.put(store)
    return store, rows


def nearest(store: cfe.EvidenceStore, x: Any, k: int, chosen: NDArray[np.bool_]) -> list[str]:
    """Return the ids of the k best of the chosen rows, in plain NumPy; equal ones in order of rows."""
    rows = store.get()
    scores = cosines(rows.vectors, unit(np.atleast_2d(np.asarray(x, np.float32))))[:, 0]
    order = np.argsort(-np.where(chosen, scores, -np.inf), kind="stable")
    return [rows.ids[i] for i in order[:k] if chosen[i]]
