"""Null model for measures of neighbours: values are exchanged among people who are near each other."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.audit.tables import Floats, Ints

_SMALLEST_CELL = 5
_AXES = 16
_DRAWS = 200
_SEED = 0


def near_cells(vectors: NDArray[np.float32]) -> Ints:
    """Return the cell of each row, (n,): 5 to 10 rows that are near each other.

    Leaves of a k-d tree over the first principal components: every split halves the axis of the largest spread.
    """
    from sklearn.neighbors import KDTree
    from sklearn.utils.extmath import randomized_svd

    cells = np.zeros(len(vectors), np.int64)
    if len(vectors) < 2 * _SMALLEST_CELL:
        return cells
    centred = vectors - vectors.mean(axis=0)
    axes = randomized_svd(centred, min(_AXES, *vectors.shape), random_state=_SEED)[2]
    _, order, nodes, _ = KDTree(centred @ axes.T, leaf_size=_SMALLEST_CELL).get_arrays()
    for number, leaf in enumerate(nodes[nodes["is_leaf"] == 1]):
        cells[order[leaf["idx_start"] : leaf["idx_end"]]] = number
    return cells


def exchanges(cells: Ints) -> Iterator[Ints]:
    """Yield 200 random orders of the rows, random within each cell; the same orders in each call."""
    rng = np.random.default_rng(_SEED)
    by_cell = np.argsort(cells, kind="stable")
    for _ in range(_DRAWS):
        order = np.empty(len(cells), np.int64)
        order[by_cell] = np.lexsort((rng.random(len(cells)), cells))
        yield order


def expect_by_exchange(cells: Ints, measure: Callable[[Ints], Floats], confidence: float) -> Floats:
    """Return the mean of a measure over all exchanges and the range that holds ``confidence`` of them, (3, m).

    Parameters
    ----------
    cells
        As :func:`near_cells` returns them, (n,).
    measure
        Called with an order of the rows, (n,); returns (m,) numbers.
    confidence
        In (0, 1).
    """
    drawn = np.array([measure(order) for order in exchanges(cells)])
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return np.array([drawn.mean(axis=0), low, high])
