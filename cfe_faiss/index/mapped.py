"""Indexes whose lists FAISS has mapped from a file."""

from typing import Any

import faiss


def in_memory(index: Any) -> Any:
    """Return an index that FAISS can write: ``index`` itself, or a stock copy in memory if its lists are mapped.

    FAISS would write the name of the mapped file in place of the vectors.
    """
    if not isinstance(index, faiss.IndexIVF) or not isinstance(
        faiss.downcast_InvertedLists(index.invlists), faiss.OnDiskInvertedLists
    ):
        return index
    copy = faiss.IndexIVFFlat(faiss.clone_index(index.quantizer), index.d, index.nlist, index.metric_type)
    faiss.IndexIVF.copy_subset_to(index, copy, faiss.InvertedLists.SUBSET_TYPE_INVLIST, 0, index.nlist)
    copy.nprobe, copy.is_trained, copy.ntotal = index.nprobe, index.is_trained, index.ntotal
    return copy
