from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import PADDING, assert_same_arrays, cosine, squared_distance

from cfe_faiss import _native
from cfe_faiss.coarse.routes import NEIGHBORS
from cfe_faiss.rows.metric import METRICS as NAMES
from cfe_faiss.rows.metric import make_results

L2 = 2  # its number in the core


class Sides:
    """Two sides of a tile, and its products with an error."""

    def __init__(self, metric: int, nx: int, ny: int, d: int, seed: int) -> None:
        self.metric = metric
        self.rng = rng = np.random.default_rng(seed)
        self.X, self.Y = ((rng.integers(-4, 5, (n, d)) / 16).astype(np.float32) for n in (nx, ny))
        self.labels_x, self.labels_y = (
            np.sort(rng.integers(-1, 3, n)).astype(np.int32) for n in (nx, ny)
        )
        self.ids_x, self.ids_y = rng.permutation(1000)[:nx], 1000 + rng.permutation(1000)[:ny]
        pairs = self.X[:, None], self.Y
        self.scores = 0 - squared_distance(*pairs) if metric == L2 else cosine(*pairs)
        self.margin = 1e-3
        self.S = (self.scores + self.margin * rng.uniform(-0.99, 0.99, (nx, ny))).astype(np.float32)
        differ = self.labels_x[:, None] != self.labels_y
        self.eligible = differ & (self.labels_x[:, None] != -1) & (self.labels_y != -1)

    @property
    def sides(self) -> tuple[Any, ...]:
        return self.X, self.labels_x, self.ids_x, self.Y, self.labels_y, self.ids_y

    def best(self, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the evidence of the rows of X among those of Y."""
        return find_best(np.where(self.eligible, self.scores, -np.inf), self.ids_y, k)


def find_best(
    scores: NDArray[np.float32], ids: NDArray[np.int64], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    D, I = np.full((len(scores), k), PADDING, np.float32), np.full((len(scores), k), -1, np.int64)
    for r, row in enumerate(scores):
        order = np.lexsort((ids, -row))
        order = order[row[order] > -np.inf][:k]
        D[r, : len(order)], I[r, : len(order)] = row[order], ids[order]
    return D, I


METRICS = st.sampled_from([0, L2])
SIZES = st.integers(1, 150)
SEEDS = st.integers(0, 2**32 - 1)


@given(
    METRICS,
    st.integers(1, 20),
    SIZES,
    st.sampled_from([-0.25, 0.0, 0.125]),
    st.integers(1, 3),
    SEEDS,
)
def test_every_pair_is_collected_once(
    metric: int, nx: int, ny: int, threshold: float, room: int, seed: int
) -> None:
    t = Sides(metric, nx, ny, 5, seed)
    size = room * ny
    rows, columns, scores = (
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.float32),
    )
    found, row = [], 0
    while row < nx:
        sides = t.X, t.labels_x, t.Y, t.labels_y
        count, row = _native.collect_tile(
            metric, t.S, *sides, threshold, t.margin, row, rows, columns, scores
        )
        found += zip(
            rows[:count].tolist(), columns[:count].tolist(), scores[:count].tolist(), strict=True
        )
    r, c = np.nonzero(t.eligible & (t.scores >= threshold))
    assert found == list(zip(r.tolist(), c.tolist(), t.scores[r, c].tolist(), strict=True))


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (0, np.zeros((3, 3), np.float32)),
        (1, np.zeros((3, 6), np.float32)),
        (2, np.zeros(4, np.int32)),
        (3, np.zeros(4, np.int64)),
        (4, np.zeros((5, 5), np.float32)),
        (5, np.zeros(3, np.int32)),
        (6, np.zeros(3, np.int64)),
        (10, np.zeros((2, 2), np.float32)),
        (11, np.zeros((3, 3), np.int64)),
        (12, np.zeros((2, 2), np.float32)),
        (13, np.zeros((4, 3), np.int64)),
    ],
)
def test_sizes_that_do_not_fit_are_refused(place: int, wrong: NDArray[Any]) -> None:
    t = Sides(0, 3, 4, 5, 0)
    arguments = [t.S, *t.sides, t.margin, None, None, *make_results(3, 2), *make_results(4, 2)]
    _native.scan_tile(0, *arguments)
    arguments[place] = wrong
    with pytest.raises(ValueError, match="must have length"):
        _native.scan_tile(0, *arguments)


@pytest.mark.parametrize("excess", [-1, 0, 74])
def test_metrics_and_policies_that_do_not_exist_are_refused(excess: int) -> None:
    t = Sides(0, 3, 4, 5, 0)
    number = excess if excess < 0 else len(NAMES) + excess
    with pytest.raises(ValueError, match=f"metric must be 0 to 3, got {number}"):
        _native.scan_tile(number, t.S, *t.sides, t.margin, None, None, *make_results(3, 2))
    number = excess if excess < 0 else len(NEIGHBORS) + excess
    with pytest.raises(ValueError, match=f"policy must be 0 to 2, got {number}"):
        _native.Filter(number, None, None, 0, 1)


@given(METRICS, st.integers(1, 20), SIZES, st.integers(1, 12), SEEDS)
def test_rows_are_pushed_to_queries_and_to_each_other(
    metric: int, nx: int, ny: int, k: int, seed: int
) -> None:
    t = Sides(metric, nx, ny, 5, seed)
    alone, of_x, of_y = make_results(nx, k), make_results(nx, k), make_results(ny, k)
    _native.scan_tile(metric, t.S, *t.sides, t.margin, None, None, *alone)
    _native.scan_tile(metric, t.S, *t.sides, t.margin, None, None, *of_x, *of_y)
    back = find_best(np.where(t.eligible, t.scores, -np.inf).T, t.ids_x, k)
    for results, expected in ((alone, t.best(k)), (of_x, t.best(k)), (of_y, back)):
        assert_same_arrays(results, expected)
