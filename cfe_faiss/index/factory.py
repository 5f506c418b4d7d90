"""Index factory: indexes from a description string in FAISS's grammar."""

from __future__ import annotations

import re
from typing import Any, cast

import faiss

from cfe_faiss.base.checks import as_count
from cfe_faiss.index.flat import IndexEvidenceFlat, IndexEvidenceIDMap2
from cfe_faiss.index.ivf import (
    IndexEvidenceIVF,
    IndexEvidenceIVFPQ,
    IndexEvidenceIVFScalarQuantizer,
)
from cfe_faiss.index.pre_transform import IndexEvidencePreTransform
from cfe_faiss.index.protocol import EvidenceIndex
from cfe_faiss.rows.codecs import SCALAR
from cfe_faiss.rows.faiss_functions import stock_factory
from cfe_faiss.rows.metric import Metric, as_metric, faiss_metric

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
        :class:`cfe_faiss.IndexEvidenceFlat`.

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
        if index.metric == "l2":
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
    rest = codec[1:]
    product = _PQ.fullmatch(kind)
    if product is None:
        if kind != "Flat" and kind not in SCALAR:
            known = "".join(f"',{name}', " for name in SCALAR)
            raise ValueError(
                f"description must go on with ',Flat', {known}or ',PQ<M>,RFlat' after {head!r}, "
                f"got {kind!r}"
            )
        if rest:
            raise ValueError(
                f"description must end after {f'{head},{kind}'!r}, got {','.join(rest)!r}"
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
    if len(rest) != 1 or rest[0] not in _REFINE:
        raise ValueError(
            f"description must end in ',RFlat' after {f'{head},{kind}'!r}, since codes alone give "
            f"no exact similarity, got {','.join(rest)!r}"
        )
    return IndexEvidenceIVFPQ(d, nlist, M, partitions, metric=metric)
