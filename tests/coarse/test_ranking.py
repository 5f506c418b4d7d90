from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference import exact_rows, ranked_lists, routes_of

from cfe_faiss.coarse import ranking
from cfe_faiss.coarse.class_centroids import Routes
from cfe_faiss.coarse.ranking import Columns
from cfe_faiss.search.meet import LANES

seeds = st.integers(0, 2**32 - 1)
MARK = -7


def some_routes(rng: np.random.Generator, lists: int, classes: int) -> Routes:
    return routes_of(rng, lists, 1, np.sort(rng.choice(1 << 20, classes, replace=False)).astype(np.int32))


@given(st.sampled_from([1, 2, 15, 16, 17, 40]), st.integers(0, 4), seeds)
def test_columns_hold_every_mean_once_in_its_place(lists: int, classes: int, seed: int) -> None:
    routes = some_routes(np.random.default_rng(seed), lists, classes)
    columns = routes.columns
    assert columns.width % LANES == 0
    assert lists <= columns.width < lists + LANES
    edges = [0, *columns.starts]
    expected = [(np.arange(lists), routes.means, routes.filled)]
    for i in range(len(routes.labels)):
        entries = slice(routes.starts[i], routes.starts[i + 1])
        number = routes.starts[i + 1] - routes.starts[i]
        assert columns.whole[i] == (2 * number >= lists)
        of_lists, means, filled = routes.entry_lists[entries], routes.entry_means[entries], routes.entry_filled[entries]
        if columns.whole[i]:
            whole_means, whole_filled = routes.means.copy(), routes.filled.copy()
            whole_means[of_lists], whole_filled[of_lists] = means, filled
            of_lists, means, filled = np.arange(lists), whole_means, whole_filled
        expected.append((of_lists, means, filled))
    for (first, last), (of_lists, means, filled) in zip(pairwise(edges), expected, strict=True):
        n = len(of_lists)
        assert_array_equal(columns.lists[first:last].ravel()[:n], of_lists)
        assert_array_equal(columns.lists[first:last].ravel()[n:], -1)
        assert_array_equal(columns.means[first:last].transpose(0, 2, 1).reshape(-1, means.shape[1])[:n], means)
        assert_array_equal(columns.filled[first:last].ravel()[:n], filled)
        assert not columns.filled[first:last].ravel()[n:].any()


@given(st.sampled_from([1, 2, 15, 16, 17, 60, 200]), st.integers(0, 5), st.integers(0, 40), seeds)
def test_scores_and_ranks_are_those_of_one_query_after_the_other(lists: int, classes: int, nq: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    routes = some_routes(rng, lists, classes)
    columns = routes.columns
    X = exact_rows(rng, nq, 5)
    labels = np.sort(rng.choice(np.append(routes.labels, [-1, 1 << 20]), nq)).astype(np.int32)
    scores = np.full((nq + 2, columns.width), MARK, np.float32)
    ranking.all_scores(X, labels, columns, scores[1:-1])
    assert_array_equal(scores[[0, -1]], MARK)
    order = np.argsort(-scores[1:-1], axis=1, kind="stable")[:, :lists]
    nothing = np.take_along_axis(scores[1:-1], order, axis=1) == -np.inf
    expected = ranked_lists(routes, X, labels, lists)
    assert_array_equal(np.where(nothing, -1, order), expected)
    assert (scores[1:-1, lists:] == -np.inf).all()
    for nprobe in {1, min(10, lists), lists}:
        best = np.full((nq + 2, nprobe), MARK)
        ranking.rank(X, labels, columns, best[1:-1])
        assert_array_equal(best[[0, -1]], MARK)
        assert_array_equal(best[1:-1], expected[:, :nprobe])


@pytest.mark.parametrize("nq", [7, 8, 9, 24])
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_queries_that_meet_columns_together_score_what_they_score_alone(nq: int, share: float) -> None:
    rng = np.random.default_rng(nq)
    lists, d = 50, 24
    with_entry = np.sort(rng.choice(lists, int(share * lists), replace=False))
    columns = Columns.of(
        rng.normal(size=(lists, d)).astype(np.float32),
        np.ones(lists, bool),
        np.array([3], np.int32),
        np.array([0, len(with_entry)]),
        with_entry,
        rng.normal(size=(len(with_entry), d)).astype(np.float32),
        np.ones(len(with_entry), bool),
    )
    assert columns.whole.all() == (share > 0.5)
    X, labels = rng.normal(size=(nq, d)).astype(np.float32), np.sort(rng.choice([2, 3, 4], nq)).astype(np.int32)
    together, alone = (np.empty((nq, columns.width), np.float32) for _ in range(2))
    ranking.all_scores(X, labels, columns, together)
    for q in range(nq):
        ranking.all_scores(X[q : q + 1], labels[q : q + 1], columns, alone[q : q + 1])
    assert_allclose(together, alone, rtol=1e-5, atol=1e-5)
