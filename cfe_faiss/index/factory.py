"""Index factory: indexes from a description string in FAISS's grammar, also behind transforms."""

from __future__ import annotations

import copy
import re
from typing import Any, Self, Unpack, cast

import faiss
import numpy as np
from numpy.typing import ArrayLike

from cfe_faiss._native import call_steps
from cfe_faiss.base.checks import Floats, as_count, as_matrix
from cfe_faiss.index.base import EvidenceMixin
from cfe_faiss.index.flat import IndexEvidenceFlat, IndexEvidenceIDMap2
from cfe_faiss.index.ivf import (
    IndexEvidenceIVF,
    IndexEvidenceIVFPQ,
    IndexEvidenceIVFScalarQuantizer,
)
from cfe_faiss.index.parameters import hand_out, part_of, written
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.rows.codecs import SCALAR
from cfe_faiss.rows.faiss_functions import stock_factory, total
from cfe_faiss.rows.metric import Metric, as_metric, faiss_metric, is_distance
from cfe_faiss.search.query import Ranges, Results, RowOptions, SearchOptions

_WITH_IDS = "IDMap2,EvidenceFlat"
_TRANSFORMED = re.compile(r"(?P<transforms>.+,)(?P<evidence>(?<!IDMap2,)(IDMap2,)?Evidence.*)")
_IVF = re.compile(r"EvidenceIVF(?P<nlist>\d+|auto)(x(?P<partitions>\d+))?(_HNSW(?P<links>\d*))?")
_PQ = re.compile(r"PQ(?P<M>\d+)(x(?P<nbits>\d+))?")
_EXACT = {"EvidenceFlat": IndexEvidenceFlat, _WITH_IDS: IndexEvidenceIDMap2}
_LINKS = 32  # FAISS's default
_REFINE = ("RFlat", "Refine(Flat)")


def index_factory(d: int, description: str, metric: Metric | int = "cosine") -> Any:
    """Return a new, empty index.

    Parameters
    ----------
    d
        Dimension of the vectors.
    description
        ``"EvidenceFlat"`` for the exact index, ``"IDMap2,EvidenceFlat"`` for the exact index with
        ids of the user. ``"EvidenceIVF<nlist>"`` for an inverted file or, with several partitions,
        ``"EvidenceIVF<nlist>x<partitions>"``; ``"EvidenceIVFauto"`` chooses the number of lists in
        training. The codec follows:

        ``",Flat"``
            float32, 4 * d bytes per vector.
        ``",SQfp16"``, ``",SQ8"``
            float16 or 8-bit, 2 * d or d bytes per vector.
        ``",PQ<M>,RFlat"``
            Product-quantizer codes of M bytes, refined by float32 vectors. FAISS's spellings
            ``PQ<M>x8`` and ``Refine(Flat)`` are accepted, too.

        ``"EvidenceIVF<nlist>_HNSW<M>"`` gives FAISS's plain searches a graph as quantizer. Evidence
        searches rank the lists themselves. Transforms of FAISS may come first, as in
        ``"PCA32,EvidenceIVF1024,Flat"``.
    metric
        ``"cosine"``, ``"ip"``, ``"l2"`` or FAISS's constant, as in
        :class:`cfe_faiss.IndexEvidenceFlat`; for exact indexes also ``"tanimoto"``.

    Returns
    -------
    EvidenceIndex, or IndexEvidencePreTransform
        Evidence index; behind its transforms, if the description has some.

    Raises
    ------
    TypeError, ValueError
        If the description is invalid; the message names the invalid part.

    Examples
    --------
    >>> index_factory(64, "EvidenceIVF1024x2,Flat")
    IndexEvidenceIVF(d=64, nlist=1024, partitions=2, nprobe=16, ntotal=0)
    >>> index_factory(64, "EvidenceIVF1024,PQ16,RFlat")
    IndexEvidenceIVFPQ(d=64, nlist=1024, M=16, partitions=1, k_factor=8, nprobe=16, ntotal=0)
    >>> index_factory(64, "IDMap2,EvidenceFlat")
    IndexEvidenceIDMap2(d=64, ntotal=0)
    >>> index_factory(64, "PCA32,L2norm,EvidenceFlat").transforms[0].d_out
    32
    """
    match = _TRANSFORMED.fullmatch(description) if isinstance(description, str) else None
    if match is None:
        return evidence_factory(d, description, metric)
    transforms = match["transforms"]
    try:
        constant = faiss_metric(as_metric("metric", metric))
        chain = stock_factory(as_count("d", d), f"{transforms}Flat", constant)
    except RuntimeError as error:
        raise ValueError(
            f"description must begin with transforms of FAISS, got {transforms!r}: {error}"
        ) from error
    if not isinstance(chain, faiss.IndexPreTransform):
        raise ValueError(f"description must begin with transforms of FAISS, got {transforms!r}")
    parts = [
        faiss.downcast_VectorTransform(chain.chain.at(number))
        for number in range(chain.chain.size())
    ]
    for part in parts:
        part.referenced_objects = [chain]  # it owns the transforms
    return IndexEvidencePreTransform(
        parts, evidence_factory(chain.index.d, match["evidence"], metric)
    )


def factory_with_ids(d: int, description: str, metric: Metric | int = "cosine") -> EvidenceIndex:
    """Return a new, empty index whose ids stay after a removal.

    "EvidenceFlat" stands for "IDMap2,EvidenceFlat".
    """
    return evidence_factory(d, _WITH_IDS if description == "EvidenceFlat" else description, metric)


def check_ids_stay(index: Any) -> None:
    """Raise TypeError for an index whose ids change when others are removed."""
    if isinstance(index, IndexEvidenceFlat):
        raise TypeError(
            f"index must have ids that stay when others are removed, got {index!r}, whose ids are "
            f"positions: give "
            'cfe_faiss.IndexEvidenceIDMap2(d), or the description "IDMap2,EvidenceFlat"'
        )


def evidence_factory(d: int, description: str, metric: Metric | int = "cosine") -> EvidenceIndex:
    """Return a new, empty index, as :func:`index_factory` from a description without transforms."""
    if not isinstance(description, str):
        raise TypeError(f"description must be a string, got {description!r}")
    for exact, cls in _EXACT.items():
        if description == exact:
            return cast(EvidenceIndex, cls(d, metric))
        if description.startswith(f"{exact},"):
            further = description.removeprefix(f"{exact},")
            raise ValueError(f"description {exact!r} takes no further part, got {further!r}")
    head, *codec = description.split(",")
    match = _IVF.fullmatch(head)
    if match is None:
        raise ValueError(
            "description must begin with EvidenceFlat, IDMap2,EvidenceFlat, EvidenceIVF<nlist>, "
            f"EvidenceIVF<nlist>x<partitions> or EvidenceIVFauto, got {head!r}"
        )
    nlist = match["nlist"] if match["nlist"] == "auto" else int(match["nlist"])
    index: Any = _inverted_file(d, nlist, int(match["partitions"] or 1), head, codec, metric)
    if match["links"] is not None:
        if is_distance(index.metric):
            raise ValueError(
                f"metric must be 'cosine' or 'ip' with a graph as quantizer, got {index.metric!r}"
            )
        links = int(match["links"] or _LINKS)
        if links < 2:  # FAISS would end the process
            raise ValueError(
                f"a graph in the description must have at least 2 links, got {links} in {head!r}"
            )
        quantizer = faiss.IndexHNSWFlat(d, links, faiss.METRIC_INNER_PRODUCT)
        index.quantizer = quantizer
        index.referenced_objects = [quantizer]
    return cast(EvidenceIndex, index)


def _inverted_file(
    d: int, nlist: Any, partitions: int, head: str, codec: list[str], metric: Metric | int
) -> EvidenceIndex:
    kind = (codec or [""])[0]
    further = codec[1:]
    product = _PQ.fullmatch(kind)
    if product is None:
        if kind != "Flat" and kind not in SCALAR:
            scalar_codecs = "".join(f"',{name}', " for name in SCALAR)
            raise ValueError(
                f"description must go on with ',Flat', {scalar_codecs}or ',PQ<M>,RFlat' after {head!r}, "
                f"got {kind!r}"
            )
        if further:
            raise ValueError(
                f"description must end after {f'{head},{kind}'!r}, got {','.join(further)!r}"
            )
        if kind == "Flat":
            return IndexEvidenceIVF(d, nlist, partitions, metric=metric)
        return IndexEvidenceIVFScalarQuantizer(
            d, nlist, partitions, qtype=SCALAR[kind].qtype, metric=metric
        )
    M = int(product["M"])
    nbits = int(product["nbits"] or 8)
    if nbits != 8:
        raise ValueError(
            f"{kind!r} in the description must have parts of 8 bits, as in 'PQ{M}', got {nbits}"
        )
    if len(further) != 1 or further[0] not in _REFINE:
        raise ValueError(
            f"description must end in ',RFlat' after {f'{head},{kind}'!r}, since codes alone give "
            f"no exact similarity, got {','.join(further)!r}"
        )
    return IndexEvidenceIVFPQ(d, nlist, M, partitions, metric=metric)


# --- transforms before an index -------------------------------------------------------------------


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
        results = self.evidence.search(self._transform("x", x), k, params=_inner(params))
        return hand_out(x, results, D=D, I=I)

    def range_search(self, x: ArrayLike, thresh: float, *, params: Any = None) -> Any:
        """Return lims, D, I as ``faiss.IndexPreTransform.range_search``.

        With ``EvidenceParameters``, evidence.
        """
        results = self.evidence.range_search(self._transform("x", x), thresh, params=_inner(params))
        return hand_out(x, results, lims=None, D=None, I=None)

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
        *results, Y = self.evidence.search_and_reconstruct(
            self._transform("x", x), k, params=_inner(params)
        )
        vectors = self._reverse(Y.reshape(-1, Y.shape[2])).reshape(*Y.shape[:2], self.d)
        return hand_out(x, (*results, vectors), D=D, I=I, R=R)

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
