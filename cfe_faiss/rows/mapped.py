"""Indexes with lists that FAISS maps from a file."""

from typing import Any

import faiss


def is_mapped(index: Any) -> bool:
    """Return whether the lists of an index are mapped from files; False for an index without lists."""
    return isinstance(index, faiss.IndexIVF) and isinstance(
        faiss.downcast_InvertedLists(index.invlists), faiss.OnDiskInvertedLists | faiss.HStackInvertedLists
    )


def in_memory(index: Any) -> Any:
    """Return an index that FAISS can write: ``index`` itself, or a stock copy in memory if its lists are mapped.

    FAISS would write the name of the mapped file instead of the vectors.
    """
    if not is_mapped(index):
        return index
    copy = _empty_copy(index)
    faiss.IndexIVF.copy_subset_to(index, copy, faiss.InvertedLists.SUBSET_TYPE_INVLIST, 0, index.nlist)
    copy.nprobe, copy.is_trained, copy.ntotal = index.nprobe, index.is_trained, index.ntotal
    return copy


def _empty_copy(index: Any) -> Any:
    """Return an empty stock index of the same kind, with the same centroids and codec."""
    quantizer = faiss.clone_index(index.quantizer)
    if isinstance(index, faiss.IndexIVFPQ):
        copy = faiss.IndexIVFPQ(quantizer, index.d, index.nlist, index.pq.M, index.pq.nbits, index.metric_type)
        copy.pq, copy.by_residual = index.pq, index.by_residual
        return copy
    if isinstance(index, faiss.IndexIVFScalarQuantizer):
        copy = faiss.IndexIVFScalarQuantizer(
            quantizer, index.d, index.nlist, index.sq.qtype, index.metric_type, index.by_residual
        )
        copy.sq = index.sq
        return copy
    return faiss.IndexIVFFlat(quantizer, index.d, index.nlist, index.metric_type)
