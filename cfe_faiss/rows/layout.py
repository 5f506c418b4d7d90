"""Layout of vectors in FAISS's inverted lists, and the sort order of rows."""

from typing import Any

import faiss
import numpy as np

from cfe_faiss.base.checks import Array, Bytes, Floats, Int32s, Ints
from cfe_faiss.rows.faiss_functions import list_sizes

_PANORAMA = "IndexIVFFlatPanorama", "ArrayInvertedListsPanorama"


def stable_order(keys: Array) -> Ints:
    """Return the stable sort order of integers >= -1, (n,)."""
    few = len(keys) > 0 and keys.max() < np.iinfo(np.uint16).max
    return np.argsort(
        (keys + 1).astype(np.uint16) if few else keys, kind="stable"
    )  # radix sort for 16 bits


def codes_of(ivf: Any, X: Floats, lists: Int32s) -> Bytes:
    """Return the codes, (n, code_size), of vectors in their lists, (n,), of an inverted file."""
    if isinstance(ivf, faiss.IndexIVFFlat):
        return X.view(np.uint8)
    codes = np.empty((len(X), ivf.code_size), np.uint8)
    numbers = lists.astype(np.int64)
    ivf.encode_vectors(len(X), faiss.swig_ptr(X), faiss.swig_ptr(numbers), faiss.swig_ptr(codes))
    return codes


def check_lists(ivf: Any) -> None:
    """Raise TypeError or ValueError unless lists of a stock index hold one code per vector."""
    kinds = tuple(getattr(faiss, name) for name in _PANORAMA if hasattr(faiss, name))
    # FAISS 1.13 does not downcast such lists.
    if isinstance(faiss.downcast_index(ivf), kinds) or isinstance(
        faiss.downcast_InvertedLists(ivf.invlists), kinds
    ):
        raise TypeError(
            f"the stock index must have whole vectors in its lists, got {type(ivf).__name__}"
        )
    found = int(list_sizes(ivf).sum())
    if found != ivf.ntotal:
        raise ValueError(
            f"the {type(ivf).__name__} must have its {ivf.ntotal} vectors in its lists, got {found}"
        )


def stock_codes(ivf: Any) -> tuple[Bytes, Ints]:
    """Return copies of the codes, (n, code_size), and ids, (n,), of a stock index in list order."""
    check_lists(ivf)
    lists = ivf.invlists
    size = ivf.code_size
    filled = [(j, count) for j, count in enumerate(list_sizes(ivf).tolist()) if count]
    codes = [
        faiss.rev_swig_ptr(lists.get_codes(j), count * size).reshape(count, size)
        for j, count in filled
    ]
    ids = [faiss.rev_swig_ptr(lists.get_ids(j), count) for j, count in filled]
    return np.concatenate([np.empty((0, size), np.uint8), *codes]), np.concatenate(
        [np.empty(0, np.int64), *ids]
    )


def is_mapped(index: Any) -> bool:
    """Return whether the lists of an index are mapped from files.

    False for an index without lists.
    """
    return isinstance(index, faiss.IndexIVF) and isinstance(
        faiss.downcast_InvertedLists(index.invlists),
        faiss.OnDiskInvertedLists | faiss.HStackInvertedLists,
    )
