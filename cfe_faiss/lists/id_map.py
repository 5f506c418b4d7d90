"""The stored vectors by id: finding them, naming new ones, giving them other labels."""

from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss._native import FaissLists, Table
from cfe_faiss.base.checks import UNKNOWN, as_ids, as_labels
from cfe_faiss.base.text import summary
from cfe_faiss.lists.layout import stock_codes
from cfe_faiss.lists.storage import Storage, read_only


class UnknownIdError(ValueError, RuntimeError):
    """An id that the index does not hold: a ValueError as for any wrong argument, a RuntimeError as FAISS has it."""


@dataclass(frozen=True, slots=True)
class Members:
    """The ids of an index in ascending order; the arrays are read-only.

    Attributes
    ----------
    ids, rows, labels
        Each id, its storage row and its label: (n,) int64, int64 and int32.
    places
        Of each storage row, which of the ids is its, (n,) int64.
    """

    ids: NDArray[np.int64]
    rows: NDArray[np.int64]
    labels: NDArray[np.int32]
    places: NDArray[np.int64]

    __repr__ = summary

    def find(self, ids: ArrayLike, *, name: str = "ids") -> NDArray[np.int64]:
        """Return the storage rows of ``ids``; UnknownIdError names the argument and the first that is not stored."""
        wanted = as_ids(name, ids)
        places = np.searchsorted(self.ids, wanted)
        missing = places == len(self.ids)
        missing[~missing] = self.ids[places[~missing]] != wanted[~missing]
        if missing.any():
            raise UnknownIdError(f"{name} must be in the index, got {wanted[np.argmax(missing)]}, which is not")
        return self.rows[places]


def of(storage: Storage) -> Members:
    """Return the members of an index."""
    ids = storage.ids()
    rows = rows_by_id(ids)
    places = np.empty_like(rows)
    places[rows] = np.arange(len(rows))
    return Members(*read_only(ids[rows], rows, storage.labels[rows], places))


def rows_by_id(ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows, (n,), in ascending order of their distinct ids; O(n) where all ids are below 2n."""
    n, largest = len(ids), int(ids.max(initial=-1))
    if ids.min(initial=0) >= 0 and largest < 2 * n:
        row_of = np.full(largest + 1, -1, np.int64)
        row_of[ids] = np.arange(n)
        rows = row_of[row_of >= 0]
        if len(rows) == n:
            return rows
    return np.argsort(ids, kind="stable")


def check_unchanged(ntotal: int, labels: int) -> None:
    """Raise RuntimeError if vectors were added or removed by a way that knows nothing of labels."""
    if ntotal != labels:
        raise RuntimeError(
            f"the index holds {ntotal} vectors and {labels} labels: it was changed by a method that evidence "
            "indexes do not support; use add_with_labels, add, add_with_ids, remove_ids and reset"
        )


def check_stock(index: Any) -> None:
    """Raise TypeError unless :func:`stock_contents` can read a stock index."""
    index = faiss.downcast_index(index) if isinstance(index, faiss.Index) else index
    with_ids = isinstance(index, faiss.IndexIDMap) and isinstance(faiss.downcast_index(index.index), faiss.IndexFlat)
    if not (with_ids or isinstance(index, faiss.IndexIVFFlat) or _scalar(index)):
        raise TypeError(
            "otherIndex must be an evidence index, an IndexIVFFlat, an IndexIVFScalarQuantizer without residuals or an "
            f"IndexIDMap over IndexFlat, got {index!r}"
        )


def stock_contents(index: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the vectors and ids of a stock index, as copies."""
    check_stock(index)
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexIVFFlat) or _scalar(index):
        codes, ids = stock_codes(index)
        return index.sq.decode(codes) if _scalar(index) else codes.view(np.float32), ids
    X = faiss.downcast_index(index.index).reconstruct_n(0, index.ntotal)
    return X, faiss.vector_to_array(index.id_map)


def _scalar(index: Any) -> bool:
    """Return whether a code of a stock index can be decoded by itself."""
    return isinstance(index, faiss.IndexIVFScalarQuantizer) and not index.by_residual


def new_ids(table: Table, lists: FaissLists, ids: ArrayLike | None, n: int) -> NDArray[np.int64]:
    """Return n ids for vectors to be added, checked: distinct and not in the index yet; by default ntotal, ..."""
    new = distinct_ids(ids, n, len(table))
    first = table.first_stored(lists, new)
    if first >= 0:
        raise ValueError(f"ids must not be in the index yet, got {new[first]}, which is")
    return new


def distinct_ids(ids: ArrayLike | None, n: int, first: int) -> NDArray[np.int64]:
    """Return n ids, checked to be distinct; by default those from ``first`` on."""
    new = np.arange(first, first + n) if ids is None else as_ids("ids", ids)
    if new.shape != (n,):
        raise ValueError(f"ids must have shape ({n},), one id per vector, got {new.shape}")
    if n > 1 and not (new[1:] > new[:-1]).all():
        ordered = np.sort(new)
        twice = ordered[1:] == ordered[:-1]
        if twice.any():
            raise ValueError(f"ids must be distinct, got {ordered[1:][np.argmax(twice)]} more than once")
    return new


def unknown_labels(n: int) -> NDArray[np.int32]:
    """Return n labels "unknown"."""
    return np.full(n, UNKNOWN, np.int32)


def relabelled(storage: Storage, members: Members, labels: ArrayLike, ids: ArrayLike | None) -> NDArray[np.int32]:
    """Return the labels of all storage rows after the members ``ids`` (all of them by default) got new ones."""
    result = storage.labels.copy()
    relabel_rows(result, members, labels, ids)
    return result


def relabel_rows(of_rows: NDArray[np.int32], members: Members, labels: ArrayLike, ids: ArrayLike | None) -> None:
    """Write new labels of the members ``ids`` (all of them by default) into the labels of all storage rows, (n,)."""
    rows = members.rows if ids is None else members.find(ids)
    repeated = len(rows) - len(np.unique(rows))
    if repeated:
        raise ValueError(f"ids must be distinct, got {repeated} of {len(rows)} repeated")
    of_rows[rows] = as_labels("labels", labels, len(rows), unknown=True)
