"""Rows packed into panels, as the tests of panels, of what meets them, and of the sweep need them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.search import panels
from cfe_faiss.search.meet import FACTS, LANES


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
    head: int | None = None,
    R: NDArray[np.float32] | None = None,
) -> Packed:
    """Pack lists of so many of the rows of X each, from panel ``first`` on; what is not written to is -7.

    By default the head is everything; with ``R``, rows are turned.
    """
    starts = first + np.append(0, np.cumsum(-(-sizes // LANES))).astype(np.int64)
    number, d = int(starts[-1]), X.shape[1]
    made = Packed(
        starts,
        np.empty((len(sizes), d), np.float32),
        np.full((number, panels.words_of(d, in_bytes), LANES), -7, np.int32),
        np.full((number, FACTS, LANES), -7, np.int32),
        np.full((number, LANES), -7, np.int64),
        np.full((number, LANES), -7, np.int64),
    )
    borders = np.append(0, np.cumsum(sizes)).astype(np.int64)
    left = panels.centre(X[rows], borders, made.centres)
    turned, blur = (left, 0.0) if R is None else (_product(left, R), panels.blur(d))
    head = panels.words_of(d, in_bytes) if head is None else head
    panels.pack(turned, rows, labels, addresses, ids, in_bytes, head, blur, borders, first, *made[2:])
    return made


def _product(X: NDArray[np.float32], R: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(invalid="ignore"):  # rows may be damaged
        product: NDArray[np.float32] = X @ R
    return product


def turning(rng: np.random.Generator, d: int) -> NDArray[np.float32]:
    """Return random directions that are orthogonal, (d, d)."""
    return np.linalg.qr(rng.normal(size=(d, d)))[0].astype(np.float32)
