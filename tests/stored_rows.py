"""Rows in lists of their own memory, as an index has them in FAISS's, for tests of what reads them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfe_faiss._native import ListScan, Rows
from cfe_faiss.rows.codecs import FLAT, NO_LEVELS

NO_REFERENCES = np.empty(0, np.int32), np.zeros(1, np.int64)


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
        self.rows = Rows(
            d,
            codec,
            np.ascontiguousarray(levels.reshape(-1)),
            self._lists(np.ascontiguousarray(coded).view(np.uint8)),
            self._lists(np.arange(len(coded)) if ids is None else ids),
            labels,
            [] if pq_codes is None else self._lists(pq_codes),
            0 if pq_codes is None else pq_codes.shape[1],
        )

    def _lists(self, items: NDArray[Any]) -> list[NDArray[Any]]:
        return [part.reshape(-1).copy() for part in np.split(items, self.starts[1:-1])]

    def scan(
        self, references: NDArray[np.int32] = NO_REFERENCES[0], reference_starts: NDArray[np.int64] = NO_REFERENCES[1]
    ) -> ListScan:
        """Return what scans the lists; neither may be used longer than these rows live."""
        return ListScan(self.rows, references, reference_starts)
