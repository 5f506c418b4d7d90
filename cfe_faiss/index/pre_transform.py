"""Evidence index behind transforms of the vectors, such as ``"PCA32,EvidenceIVF1024,Flat"``."""

from __future__ import annotations

from typing import Any

import faiss
from numpy.typing import ArrayLike

from cfe_faiss.base.arrays import Floats
from cfe_faiss.base.checks import as_matrix
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.index.wrappers import transformed
from cfe_faiss.search.query import Ranges, Results


class IndexEvidencePreTransform(faiss.IndexPreTransform):  # type: ignore[misc]
    """Evidence index that gets its vectors through transforms of FAISS.

    A subclass of ``faiss.IndexPreTransform``. Its methods take vectors in the dimension of the first transform. For
    methods without vectors use :attr:`evidence`, for example ``evidence.search_stored(k=5)``. To keep the index in
    files, write each transform by ``faiss.write_VectorTransform`` and :attr:`evidence` by ``cfe_faiss.write_index``.

    Parameters
    ----------
    transforms
        Transforms of FAISS, first one first.
    evidence
        Evidence index over the transformed vectors.

    Attributes
    ----------
    transforms, evidence
        As given.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 16)).astype(np.float32)
    >>> index = cfe.index_factory(16, "PCA8,EvidenceIVF20,Flat")
    >>> index.train(X)
    >>> index.add_with_labels(X, np.arange(500) % 3)
    >>> D, I = index.search_evidence(X[:2], [0, 1], k=5)
    >>> index.evidence.search_stored([0, 1], k=5)[1].shape
    (2, 5)
    """

    transforms: list[Any] = []  # noqa: RUF012 - FAISS rejects attributes that the class does not define
    evidence: Any = None

    def __init__(self, transforms: list[Any], evidence: EvidenceIndex) -> None:
        super().__init__(evidence)
        for transform in reversed(transforms):
            self.prepend_transform(transform)
        self.transforms, self.evidence = transforms, evidence

    def __repr__(self) -> str:
        names = [type(transform).__name__ for transform in self.transforms]
        return f"IndexEvidencePreTransform(d={self.d}, transforms={names}, evidence={self.evidence!r})"

    @property
    def ntotal(self) -> int:
        """Number of stored vectors."""
        number: int = self.evidence.ntotal
        return number

    def train(self, x: ArrayLike) -> None:
        """Train each transform that needs it, then the evidence index, with vectors, (n, d)."""
        X: Floats = as_matrix("x", x, self.d)
        for transform in self.transforms:
            if not transform.is_trained:
                transform.train(X)
            X = transform.apply(X)
        if not self.evidence.is_trained:
            self.evidence.train(X)
        self.is_trained = True

    def add_with_labels(self, x: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None) -> None:
        """Add vectors, (n, d), as ``add_with_labels`` of an evidence index."""
        self.evidence.add_with_labels(self._transform("x", x), labels, ids)

    def update_vectors(self, ids: ArrayLike, x: ArrayLike, labels: ArrayLike | None = None) -> None:
        """Replace vectors by others, (n, d), as ``update_vectors`` of an evidence index."""
        self.evidence.update_vectors(ids, self._transform("x", x), labels)

    def add(self, x: ArrayLike) -> None:
        """Add vectors of unknown class, (n, d)."""
        self.evidence.add(self._transform("x", x))

    def add_with_ids(self, x: ArrayLike, ids: ArrayLike) -> None:
        """Add vectors of unknown class, (n, d), with ids, (n,)."""
        self.evidence.add_with_ids(self._transform("x", x), ids)

    def remove_ids(self, x: Any) -> int:
        """Remove vectors, as ``remove_ids`` of an evidence index."""
        number: int = self.evidence.remove_ids(x)
        return number

    def reset(self) -> None:
        """Remove all vectors."""
        self.evidence.reset()

    def search_evidence(
        self, xq: ArrayLike, labels_q: ArrayLike, k: int, nprobe: int | None = None, **options: Any
    ) -> Results:
        """Return D, I for queries, (nq, d), as ``search_evidence`` of an evidence index, with its options."""
        found: Results = self.evidence.search_evidence(self._transform("xq", xq), labels_q, k, nprobe, **options)
        return found

    def range_search_evidence(self, xq: ArrayLike, labels_q: ArrayLike, threshold: float, *, sel: Any = None) -> Ranges:
        """Return lims, D, I for queries, (nq, d), as ``range_search_evidence`` of an evidence index."""
        found: Ranges = self.evidence.range_search_evidence(self._transform("xq", xq), labels_q, threshold, sel=sel)
        return found

    def _transform(self, name: str, x: ArrayLike) -> Floats:
        if not self.is_trained:
            raise ValueError("the index must be trained before it is used: call train(x) first")
        return transformed(self, as_matrix(name, x, self.d))
