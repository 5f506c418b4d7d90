"""Putting new rows into FAISS's inverted lists, each at its final place at once: nothing is sorted afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import faiss
import numpy as np
from numba import carray
from numpy.typing import NDArray

from cfe_faiss.jit import kernel
from cfe_faiss.lists.codecs import byte_pointer

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


def stable_order(keys: NDArray[Any]) -> Ints:
    """Return the order that sorts integers >= -1, (n,): equal ones stay as they lie."""
    few = len(keys) > 0 and keys.max() < np.iinfo(np.uint16).max
    return np.argsort((keys + 1).astype(np.uint16) if few else keys, kind="stable")  # a radix sort of 16 bits


def sorted_order(lists: NDArray[Any], labels: NDArray[np.int32]) -> Ints:
    """Return the order that sorts rows by list and, within one, by label; equal ones stay as they lie."""
    by_label = stable_order(labels)
    return by_label[stable_order(lists[by_label])]


def codes_of(ivf: Any, X: NDArray[np.float32], lists: NDArray[np.int32]) -> Bytes:
    """Return the codes that an inverted file keeps of vectors in the lists (n,), (n, code_size)."""
    if isinstance(ivf, faiss.IndexIVFFlat):
        return X.view(np.uint8)
    codes = np.empty((len(X), ivf.code_size), np.uint8)
    numbers = lists.astype(np.int64)
    ivf.encode_vectors(len(X), faiss.swig_ptr(X), faiss.swig_ptr(numbers), faiss.swig_ptr(codes))
    return codes


@contextmanager
def grown(lists: Any, starts: Ints, now: Ints) -> Iterator[None]:
    """Make room for new rows in FAISS's inverted lists; if that fails, or what is done within, they are as before.

    ``starts`` and ``now``, (nlist + 1,), are the first storage row of each list and, last, the number of rows, before
    and after.
    """
    before, after = np.diff(starts).tolist(), np.diff(now).tolist()
    larger = [j for j, size in enumerate(before) if after[j] > size]
    try:
        for j in larger:
            lists.resize(j, after[j])
        yield
    except BaseException:
        for j in larger:
            lists.resize(j, before[j])
        raise


@kernel
def fill(starts: Ints, now: Ints, order: Ints, addresses: Ints, new: Bytes) -> None:
    """Put the new items of lists that have grown into their places, and the old ones into theirs.

    ``starts`` and ``now`` as in :func:`grown`; ``addresses``, (nlist,), are those of the lists; ``new`` are the items,
    (m, size). Storage row r gets what was row ``order[r]`` of the old rows followed by the new ones; the old rows of a
    list stay in it and in their order.
    """
    size, old = new.shape[1], starts[-1]
    for j in range(addresses.shape[0]):
        if now[j + 1] - now[j] == starts[j + 1] - starts[j]:
            continue
        items = carray(byte_pointer(addresses[j]), (now[j + 1] - now[j], size))
        for r in range(now[j + 1] - 1, now[j] - 1, -1):  # from the last on no old item is overwritten before it moves
            place, row = r - now[j], order[r]
            if row >= old:
                for i in range(size):
                    items[place, i] = new[row - old, i]
            elif row - starts[j] == place:
                break
            else:
                for i in range(size):
                    items[place, i] = items[row - starts[j], i]
