"""Rows packed into panels, as the tests of panels, of what meets them, and of the sweep need them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.index import panels
from cfe_faiss.index.meet import LANES


class Packed(NamedTuple):
    """Panels of lists; the arrays are those of ``sweep.scan_groups``."""

    starts: NDArray[np.int64]
    centres: NDArray[np.float32]
    P: NDArray[np.int32]
    facts: NDArray[np.int32]
    addresses: NDArray[np.int64]
    ids: NDArray[np.int64]


def packed(
    X: NDArray[np.float32],
    rows: NDArray[np.int64],
    sizes: NDArray[Any],
    labels: NDArray[np.int32],
    addresses: NDArray[np.int64],
    ids: NDArray[np.int64],
    in_bytes: bool,
    first: int = 0,
) -> Packed:
    """Pack lists of so many of the rows of X each, from panel ``first`` on; what is not written to is -7."""
    starts = first + np.append(0, np.cumsum(-(-sizes // LANES))).astype(np.int64)
    number, d = int(starts[-1]), X.shape[1]
    made = Packed(
        starts,
        np.empty((len(sizes), d), np.float32),
        np.full((number, panels.words_of(d, in_bytes), LANES), -7, np.int32),
        np.full((number, panels.FACTS, LANES), -7, np.int32),
        np.full((number, LANES), -7, np.int64),
        np.full((number, LANES), -7, np.int64),
    )
    borders = np.append(0, np.cumsum(sizes)).astype(np.int64)
    panels.pack(X[rows], rows, labels, addresses, ids, in_bytes, borders, first, *made[1:])
    return made
