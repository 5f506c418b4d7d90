"""Rows in lists of their own memory, as an index has them in FAISS's, for tests of what reads them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import FaissLists, Filter, ListScan, Rows, Table
from cfe_faiss.rows.codecs import FLAT, NO_LEVELS
from cfe_faiss.search.query import Rules

NO_REFERENCES = np.empty(0, np.int32), np.zeros(1, np.int64)


def rows_in(
    codes: list[NDArray[np.uint8]],
    ids: list[NDArray[np.int64]],
    labels: NDArray[np.int32],
    *,
    d: int,
    codec: int = FLAT,
    levels: NDArray[np.float32] = NO_LEVELS,
    vectors: NDArray[np.float32] | None = None,
) -> tuple[Rows, Any]:
    """Return the rows of lists whose codes, (n, size), and ids lie in these arrays, and what has to live as long.

    With ``vectors``, (n, d), the codes are those of a product quantizer.
    """
    sizes = np.array([len(own) for own in ids], np.int64)
    table = Table(sizes, 0, 0 if vectors is None else d, codes[0].shape[1], labels, vectors, None)
    lists = FaissLists(
        size=(lambda j: len(ids[j]), ()),
        codes=(lambda j: codes[j].ctypes.data, ()),
        ids=(lambda j: ids[j].ctypes.data, ()),
        resize=None,
        numbered=True,
    )
    return table.rows(lists, d, codec, np.ascontiguousarray(levels.reshape(-1)), 0), (
        table,
        codes,
        ids,
        vectors,
    )


class StoredRows:
    """The rows of codes, (n, size), in lists of so many each; by default one list, and ids 0, 1, ...

    Each list has memory of its own. Labels must ascend within a list.
    """

    def __init__(
        self,
        coded: NDArray[Any],
        labels: NDArray[np.int32],
        *,
        d: int,
        ids: NDArray[np.int64] | None = None,
        sizes: NDArray[Any] | None = None,
        codec: int = FLAT,
        levels: NDArray[np.float32] = NO_LEVELS,
        pq_codes: NDArray[np.uint8] | None = None,
    ) -> None:
        sizes = np.array([len(coded)]) if sizes is None else sizes
        self.starts = np.append(0, np.cumsum(sizes)).astype(np.int64)
        own_ids = self._lists(np.arange(len(coded)) if ids is None else ids)
        if pq_codes is None:
            self._kept = rows_in(
                self._lists(coded.view(np.uint8)), own_ids, labels, d=d, codec=codec, levels=levels
            )
        else:
            self._kept = rows_in(self._lists(pq_codes), own_ids, labels, d=d, vectors=coded)
        self.rows = self._kept[0]

    def _lists(self, items: NDArray[Any]) -> list[NDArray[Any]]:
        return [part.copy() for part in np.split(np.ascontiguousarray(items), self.starts[1:-1])]

    def scan(
        self,
        references: NDArray[np.int32] = NO_REFERENCES[0],
        reference_starts: NDArray[np.int64] = NO_REFERENCES[1],
    ) -> ListScan:
        """Return what scans the lists; neither may be used longer than these rows live."""
        return ListScan(self.rows, references, reference_starts)


def filter_of(allowed: NDArray[np.bool_]) -> Filter | None:
    """Return the filter for the allowed rows, (n,); None for all if (0,)."""
    return Rules().native(allowed=allowed) if len(allowed) else None
