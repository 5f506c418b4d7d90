from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import clustered, exact_rows, ranked_lists, routes_of, unit

from cfe_faiss.checks import UNKNOWN
from cfe_faiss.coarse import nearby, ranking
from cfe_faiss.coarse.class_centroids import Regions, Routes
from cfe_faiss.coarse.nearby import Nearby, in_panels_of_bytes, rank_few
from cfe_faiss.search.meet import FACTS, LANES

seeds = st.integers(0, 2**32 - 1)
dimensions = st.sampled_from([5, 40, 67])  # floats; bytes, also of a last word that is not full
MARK = -7


def some_routes(rng: np.random.Generator, lists: int, classes: int, d: int, regions: int) -> Routes:
    """Return routes with any regions, some of them without a list."""
    labels = np.sort(rng.choice(1 << 20, classes, replace=False)).astype(np.int32)
    routes = routes_of(rng, lists, 1, labels, d)
    # What no query has makes some rows long, and their bytes coarse.
    routes.means[:, -1] *= rng.choice([1, 4096])
    routes.entry_means[:, -1] *= rng.choice([1, 4096])
    if regions == 0:
        return routes
    of_lists = rng.integers(0, regions, lists)
    order = np.argsort(of_lists, kind="stable")
    borders = np.append(0, np.cumsum(np.bincount(of_lists, minlength=regions)))
    return replace(routes, regions=Regions(exact_rows(rng, regions, d), borders, order))


def some_queries(rng: np.random.Generator, routes: Routes, nq: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return queries of labels that have entries, that have none, and that are not known."""
    labels = rng.choice(np.append(routes.labels, [-1, 1 << 20]), nq).astype(np.int32)
    X = exact_rows(rng, nq, routes.means.shape[1])
    X[:, -1] = 0
    return X, labels


def considered(routes: Routes, x: NDArray[np.float32], nprobe: int) -> NDArray[np.bool_]:
    """Return which lists are in the regions that a query looks at."""
    regions, chosen = routes.regions, np.zeros(len(routes.means), bool)
    if len(regions.means) == 0:
        return ~chosen
    for place, r in enumerate(np.argsort(-(regions.means @ x), kind="stable")):
        if place >= nearby._REGIONS and chosen.sum() >= nearby._LISTS_FOR_EACH * nprobe:
            break
        chosen[regions.lists[regions.starts[r] : regions.starts[r + 1]]] = True
    return chosen


@given(
    st.sampled_from([1, 2, 15, 16, 17, 60, 300, 700]),
    st.sampled_from([0, 1, 3, 40]),
    dimensions,
    st.sampled_from([0, 1, 7, 30]),
    st.sampled_from([1, 2, 3, 16, 130]),
    seeds,
)
def test_ranks_are_those_of_a_plain_ranking_in_the_nearest_regions(
    lists: int, classes: int, d: int, regions: int, nprobe: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    routes = some_routes(rng, lists, classes, d, regions)
    X, labels = some_queries(rng, routes, 6)
    best = np.full((len(X) + 2, nprobe), MARK)
    rank_few(X, labels, routes.means, routes.entry_means, routes.nearby, best[1:-1])
    assert_array_equal(best[[0, -1]], MARK)
    for q in range(len(X)):
        here = considered(routes, X[q], nprobe)
        of_entries = here[routes.entry_lists]
        nearest = replace(
            routes, filled=routes.filled & here, entry_filled=routes.entry_filled & of_entries, regions=Regions.none(d)
        )
        expected = ranked_lists(nearest, X[q : q + 1], labels[q : q + 1], lists)[0, :nprobe]
        assert_array_equal(best[q + 1, : len(expected)], expected)
        assert (best[q + 1, len(expected) :] == -1).all()


@given(st.sampled_from([1, 2, 16, 17, 60, 270]), st.integers(0, 4), dimensions, st.sampled_from([0, 1, 7]), seeds)
def test_panels_hold_every_mean_once_in_its_run(lists: int, classes: int, d: int, regions: int, seed: int) -> None:
    routes = some_routes(np.random.default_rng(seed), lists, classes, d, regions)
    made, own = routes.nearby, routes.regions
    order, borders = own.lists, own.starts
    if regions == 0:
        order, borders = np.arange(lists), np.array([0, lists])
    expected = [order[first:last] for first, last in pairwise(borders)]
    for i, (first, last) in enumerate(pairwise(routes.starts)):
        rows, of_lists = np.arange(first, last) + lists, np.arange(lists)
        assert made.whole[i] == (len(rows) >= lists / 2)
        assert made.runs[i] == len(expected)
        if made.whole[i]:
            of_lists[routes.entry_lists[first:last]] = rows
            expected += [of_lists[order[first:last]] for first, last in pairwise(borders)]
        else:
            expected.append(rows)
    assert len(made.starts) == len(expected) + 1
    stacked, filled = (
        np.concatenate(arrays) for arrays in ((routes.means, routes.entry_means), (routes.filled, routes.entry_filled))
    )
    for run, rows in enumerate(expected):
        first, last = made.starts[run], made.starts[run + 1]
        assert last - first == -(-len(rows) // LANES)
        assert_array_equal(made.rows[first:last].ravel()[: len(rows)], rows)
        known = np.concatenate([filled[rows], np.zeros((last - first) * LANES - len(rows), bool)])
        assert_array_equal(made.facts[first:last, FACTS - 1].ravel(), np.where(known, 0, UNKNOWN))
        if len(rows):
            centre = stacked[rows].mean(axis=0) if in_panels_of_bytes(d, lists) else np.zeros(d)
            np.testing.assert_allclose(made.centres[run], centre, atol=1e-6)
            of_run = made.facts[first:last].view(np.float32)
            assert_array_equal(made.spread[run], [of_run[:, 2].max(), of_run[:, 3].max()])
    assert_array_equal(made.lists, np.append(np.arange(lists), routes.entry_lists))
    for j in range(lists):
        panel, lane = divmod(made.lanes[j], LANES)
        assert made.rows[panel, lane] == j
        assert made.starts[made.regions[j]] <= panel < made.starts[made.regions[j] + 1]


@pytest.mark.parametrize("spread", [1e-30, 1e-3, 1.0])
def test_lists_that_hardly_differ_are_told_apart(spread: float) -> None:
    rng = np.random.default_rng(0)
    lists, d = 400, 64
    means = unit(np.ones((lists, d)) + spread * rng.normal(size=(lists, d)))
    routes = replace(routes_of(rng, lists, 1, np.empty(0, np.int32), d), means=means, filled=np.ones(lists, bool))
    X, labels = unit(rng.normal(size=(5, d))), np.zeros(5, np.int32)
    few, many = np.empty((5, 10), np.int64), np.empty((5, 10), np.int64)
    rank_few(X, labels, means, routes.entry_means, routes.nearby, few)
    ranking.rank(X, labels, routes.columns, many)
    for q in range(5):
        scores = means.astype(np.float64) @ X[q]
        np.testing.assert_allclose(scores[few[q]], scores[many[q]], atol=1e-7)
        assert len(set(few[q].tolist())) == 10


@pytest.mark.parametrize("d", [5, 40])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_means_of_a_damaged_file_lead_to_each_list_once_at_most(value: float, d: int) -> None:
    rng = np.random.default_rng(1)
    routes = some_routes(rng, 300, 3, d, 9)
    for array in (routes.means, routes.entry_means, routes.regions.means):
        array[rng.random(array.shape) < 0.02] = value
    X, labels = some_queries(rng, routes, 20)
    best = np.full((len(X), 12), MARK)
    with np.errstate(all="ignore"):
        rank_few(X, labels, routes.means, routes.entry_means, routes.nearby, best)
    for row in best:
        found = row[row >= 0]
        assert (found < 300).all()
        assert len(set(found.tolist())) == len(found)
        assert ((row >= 0) | (row == -1)).all()


def test_most_of_the_nearest_lists_are_in_the_nearest_regions() -> None:
    X, _ = clustered(40000, 48, 4)
    means = unit(X[:3000])
    none = np.empty(0, np.int32)
    routes = replace(routes_of(np.random.default_rng(0), 3000, 1, none, 48), means=means, filled=np.ones(3000, bool))
    by_regions = replace(routes, regions=Regions.of(means))
    assert len(by_regions.regions.means) == 54
    queries, labels = unit(X[3000:3200]), np.zeros(200, np.int32)
    expected, found = routes.lists(queries, labels, 8), by_regions.lists(queries, labels, 8)
    shared = [len(set(a) & set(b)) / 8 for a, b in zip(found.tolist(), expected.tolist(), strict=True)]
    assert np.mean(shared) > 0.9


def test_no_query_and_no_list() -> None:
    routes = some_routes(np.random.default_rng(0), 20, 2, 40, 0)
    rank_few(
        np.empty((0, 40), np.float32),
        np.empty(0, np.int32),
        routes.means,
        routes.entry_means,
        routes.nearby,
        np.empty((0, 3), np.int64),
    )
    empty = replace(routes, filled=np.zeros(20, bool), entry_filled=np.zeros(len(routes.entry_lists), bool))
    best = np.full((2, 3), MARK)
    rank_few(unit(np.ones((2, 40))), routes.labels[:1].repeat(2), empty.means, empty.entry_means, empty.nearby, best)
    assert_array_equal(best, -1)
    assert isinstance(empty.nearby, Nearby)
