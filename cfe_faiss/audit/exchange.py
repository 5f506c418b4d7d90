"""A null for measures of neighbours: values exchanged among people who are near each other."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

_SMALLEST_CELL = 5
_AXES = 16
_DRAWS = 200
_SEED = 0


def near_cells(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
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


def exchanges(cells: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield 200 random orders of the rows that exchange rows of one cell only; the same orders in each call."""
    rng = np.random.default_rng(_SEED)
    by_cell = np.argsort(cells, kind="stable")
    for _ in range(_DRAWS):
        order = np.empty(len(cells), np.int64)
        order[by_cell] = np.lexsort((rng.random(len(cells)), cells))
        yield order


def expected_if_exchanged(
    cells: NDArray[np.int64], measure: Callable[[NDArray[np.int64]], NDArray[np.float64]], confidence: float
) -> NDArray[np.float64]:
    """Return the mean of a measure over all exchanges and the range that holds ``confidence`` of them, (3, m).

    Parameters
    ----------
    cells
        As :func:`near_cells` returns them.
    measure
        Called with an order of the rows; returns (m,) numbers.
    confidence
        In (0, 1).
    """
    drawn = np.array([measure(order) for order in exchanges(cells)])
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return np.array([drawn.mean(axis=0), low, high])
