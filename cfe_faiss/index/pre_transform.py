"""Evidence index behind transforms of the vectors, such as ``"PCA32,EvidenceIVF1024,Flat"``."""

from __future__ import annotations

import copy
from typing import Any, Self, Unpack

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import call_steps
from cfe_faiss.base.checks import Floats, as_matrix
from cfe_faiss.index.base import EvidenceMixin
from cfe_faiss.index.parameters import like, part_of, written
from cfe_faiss.index.searching import RowOptions, SearchOptions
from cfe_faiss.rows.faiss_functions import total
from cfe_faiss.search.query import Ranges, Results


class IndexEvidencePreTransform(faiss.IndexPreTransform):  # type: ignore[misc]
    """Evidence index that gets its vectors through transforms of FAISS.

    A subclass of ``faiss.IndexPreTransform``. Its methods take vectors in the dimension of the
    first transform. For methods without vectors use :attr:`evidence`, for example
    ``evidence.search_stored(k=5)``. To keep the index in files, write each transform by
    ``faiss.write_VectorTransform`` and :attr:`evidence` by ``cfe_faiss.write_index``; copies and
    pickles hold both.

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

    # FAISS rejects attributes that the class does not define.
    transforms: list[Any] = []  # noqa: RUF012
    evidence: EvidenceMixin = None  # type: ignore[assignment]

    def __init__(self, transforms: list[Any], evidence: Any) -> None:
        if not hasattr(evidence, "search_evidence"):
            raise TypeError(f"evidence must be an evidence index, got {evidence!r}")
        super().__init__(evidence)
        for transform in reversed(transforms):
            self.prepend_transform(transform)
        self.transforms = transforms
        self.evidence = evidence

    def __repr__(self) -> str:
        names = [type(transform).__name__ for transform in self.transforms]
        return (
            f"IndexEvidencePreTransform(d={self.d}, transforms={names}, evidence={self.evidence!r})"
        )

    @property
    def ntotal(self) -> int:
        """Number of stored vectors."""
        return self.evidence.ntotal

    def train(self, x: ArrayLike) -> None:
        """Train each transform that needs it, then the index, with (n, d): all, or none."""
        X: Floats = as_matrix("x", x, self.d)
        new = [transform for transform in self.transforms if not transform.is_trained]
        try:
            for transform in self.transforms:
                if not transform.is_trained:
                    transform.train(X)
                X = transform.apply(X)
            if not self.evidence.is_trained:
                self.evidence.train(X)
        except BaseException:
            for transform in new:
                transform.is_trained = False
            raise
        self.is_trained = True

    def add_with_labels(
        self, x: ArrayLike, labels: ArrayLike, ids: ArrayLike | None = None
    ) -> None:
        """Add vectors, (n, d), as ``add_with_labels`` of an evidence index."""
        self.evidence.add_with_labels(self._transform("x", x), labels, ids)
        self._count()

    def update_vectors(self, ids: ArrayLike, x: ArrayLike, labels: ArrayLike | None = None) -> None:
        """Replace vectors by others, (n, d), as ``update_vectors`` of an evidence index."""
        self.evidence.update_vectors(ids, self._transform("x", x), labels)

    def add(self, x: ArrayLike) -> None:
        """Add vectors of unknown class, (n, d)."""
        self.evidence.add(self._transform("x", x))
        self._count()

    def add_with_ids(self, x: ArrayLike, ids: ArrayLike) -> None:
        """Add vectors of unknown class, (n, d), with ids, (n,)."""
        self.evidence.add_with_ids(self._transform("x", x), ids)
        self._count()

    def remove_ids(self, x: Any) -> int:
        """Remove vectors, as ``remove_ids`` of an evidence index."""
        number = self.evidence.remove_ids(x)
        self._count()
        return number

    def reset(self) -> None:
        """Remove all vectors."""
        self.evidence.reset()
        self._count()

    def merge_from(self, otherIndex: Any, add_id: int = 0) -> None:
        """Move all vectors of another index behind equal transforms into this one."""
        if not isinstance(otherIndex, IndexEvidencePreTransform):
            raise TypeError(f"otherIndex must be an IndexEvidencePreTransform, got {otherIndex!r}")
        if self._parts() != otherIndex._parts():
            raise ValueError(
                f"otherIndex must have the same transforms as this index, got {otherIndex!r}"
            )
        self.evidence.merge_from(otherIndex.evidence, add_id)
        for index in (self, otherIndex):
            index._count()

    def _count(self) -> None:
        """Tell FAISS's code, which writes it into files, the number of vectors."""
        call_steps([total(self, self.ntotal)], [])

    def search_evidence(
        self,
        xq: ArrayLike,
        labels_q: ArrayLike,
        k: int,
        nprobe: int | None = None,
        **options: Unpack[SearchOptions],
    ) -> Results:
        """Return D, I for queries, (nq, d): ``search_evidence`` of the index, with its options."""
        return self.evidence.search_evidence(
            self._transform("xq", xq), labels_q, k, nprobe, **options
        )

    def range_search_evidence(
        self, xq: ArrayLike, labels_q: ArrayLike, threshold: float, **options: Unpack[RowOptions]
    ) -> Ranges:
        """Return lims, D, I for queries, (nq, d): ``range_search_evidence`` of the index."""
        return self.evidence.range_search_evidence(
            self._transform("xq", xq), labels_q, threshold, **options
        )

    def search_per_label(
        self, xq: ArrayLike, labels_q: ArrayLike, k: int, **options: Any
    ) -> Results:
        """Return D, I for queries, (nq, d), as ``search_per_label`` of an evidence index."""
        return self.evidence.search_per_label(self._transform("xq", xq), labels_q, k, **options)

    # --- FAISS's searches, by the methods of the evidence index, which wait for its changes -------

    def search(
        self, x: ArrayLike, k: int, *, params: Any = None, D: Any = None, I: Any = None
    ) -> Any:
        """Return D, I as ``faiss.IndexPreTransform.search``.

        With ``EvidenceParameters``, evidence.
        """
        found = self.evidence.search(self._transform("x", x), k, params=_inner(params))
        return like(x, written("D", found[0], D)), like(x, written("I", found[1], I))

    def range_search(self, x: ArrayLike, thresh: float, *, params: Any = None) -> Any:
        """Return lims, D, I as ``faiss.IndexPreTransform.range_search``.

        With ``EvidenceParameters``, evidence.
        """
        found = self.evidence.range_search(self._transform("x", x), thresh, params=_inner(params))
        return tuple(like(x, part) for part in found)

    def search_and_reconstruct(
        self,
        x: ArrayLike,
        k: int,
        *,
        params: Any = None,
        D: Any = None,
        I: Any = None,
        R: Any = None,
    ) -> Any:
        """Return the results of :meth:`search` and their vectors, (nq, k, d), transformed back."""
        *found, Y = self.evidence.search_and_reconstruct(
            self._transform("x", x), k, params=_inner(params)
        )
        vectors = self._reverse(Y.reshape(-1, Y.shape[2])).reshape(*Y.shape[:2], self.d)
        named = zip(("D", "I", "R"), (*found, vectors), (D, I, R), strict=True)
        return tuple(like(x, written(name, result, out)) for name, result, out in named)

    def assign(self, x: ArrayLike, k: int, labels: Any = None) -> Any:
        """Return the ids of the k nearest vectors."""
        return self.search(x, k, I=labels)[1]

    def reconstruct_batch(self, key: ArrayLike, x: Any = None) -> Floats:
        """Return the vectors with the ids ``key``, (n, d), transformed back."""
        return written("x", self._reverse(self.evidence.reconstruct_batch(key)), x)

    def reconstruct(self, key: int, x: Any = None) -> Floats:
        """Return the vector with the id ``key``, (d,), transformed back."""
        return written("x", self._reverse(self.evidence.reconstruct(key)[None])[0], x)

    def reconstruct_n(self, n0: int = 0, ni: int = -1, x: Any = None) -> Floats:
        """Return the vectors with the ids n0 to n0 + ni - 1, transformed back.

        By default ni goes to the last vector.
        """
        return written("x", self._reverse(self.evidence.reconstruct_n(n0, ni)), x)

    def _reverse(self, Y: Floats) -> Floats:
        for transform in reversed(self.transforms):
            Y = transform.reverse_transform(Y)
        return Y

    # --- copies -----------------------------------------------------------------------------------

    def _parts(self) -> list[bytes]:
        """Return the bytes of each transform."""
        parts = []
        for transform in self.transforms:
            writer = faiss.VectorIOWriter()
            faiss.write_VectorTransform(transform, writer)
            parts.append(bytes(faiss.vector_to_array(writer.data)))
        return parts

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_parts, (self._parts(), self.evidence)

    def __copy__(self) -> Self:
        return copy.deepcopy(self)  # as FAISS's copies, which share no vectors

    def _transform(self, name: str, x: ArrayLike) -> Floats:
        if not self.is_trained:
            raise ValueError("the index must be trained before it is used: call train(x) first")
        X: Floats = as_matrix(name, x, self.d)
        for transform in self.transforms:
            X = transform.apply(X)
        return X


def _inner(params: Any) -> Any:
    """Return the parameters of the index behind the transforms."""
    if not isinstance(params, faiss.SearchParametersPreTransform):
        return params
    return part_of(params, "index_params")


def _from_parts(transforms: list[bytes], evidence: EvidenceMixin) -> IndexEvidencePreTransform:
    parts = []
    for data in transforms:
        reader = faiss.VectorIOReader()
        faiss.copy_array_to_vector(np.frombuffer(data, np.uint8), reader.data)
        parts.append(faiss.read_VectorTransform(reader))
    index = IndexEvidencePreTransform(parts, evidence)
    index._count()
    return index
