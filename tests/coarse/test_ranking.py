"""Which lists are ranked first; that this leads to evidence is tested with :mod:`cfe_faiss.search.lists`."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import exact_rows, ranked_lists, routes_of, unit

from cfe_faiss.coarse.routes import Routes, SecondLevel
from cfe_faiss.rows.metric import Metric

seeds = st.integers(0, 2**32 - 1)
dimensions = st.sampled_from([1, 5, 40, 67])
MARK = -7
FEWEST_CLUSTERS, LISTS_FOR_EACH = 4, 64


def some_routes(
    rng: np.random.Generator, lists: int, classes: int, d: int, clusters: int
) -> Routes:
    """Return routes with any second-level clusters, some of them without a list."""
    labels = np.sort(rng.choice(1 << 20, classes, replace=False)).astype(np.int32)
    routes = routes_of(rng, lists, 1, labels, d)
    # What no query has makes some rows long, and their bytes coarse.
    if d > 1:
        routes.means[:, -1] *= rng.choice([1, 4096])
        routes.class_means[:, -1] *= rng.choice([1, 4096])
    if clusters == 0:
        return routes
    of_lists = rng.integers(0, clusters, lists)
    order = np.argsort(of_lists, kind="stable")
    borders = np.append(0, np.cumsum(np.bincount(of_lists, minlength=clusters)))
    return replace(routes, second_level=SecondLevel(exact_rows(rng, clusters, d), borders, order))


def some_queries(
    rng: np.random.Generator, routes: Routes, nq: int
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return queries of labels that have entries, that have none, and that are not known."""
    labels = rng.choice(np.append(routes.labels, [-1, 1 << 20]), nq).astype(np.int32)
    X = exact_rows(rng, nq, routes.means.shape[1])
    if X.shape[1] > 1:
        X[:, -1] = 0
    return X, labels


def ranked(
    routes: Routes, X: NDArray[np.float32], labels: NDArray[np.int32], nprobe: int
) -> NDArray[np.int64]:
    """Return the lists of queries, and check that nothing beside them is written."""
    best = np.full((len(X) + 2, nprobe), MARK)
    routes.native.rank(X, labels, best[1:-1], 1)
    assert_array_equal(best[[0, -1]], MARK)
    return best[1:-1]


def all_lists(
    routes: Routes, X: NDArray[np.float32], labels: NDArray[np.int32], threads: int = 1
) -> NDArray[np.int64]:
    """Return all lists that hold something for each query, nearest first, then -1."""
    best = np.empty((len(X), len(routes.means)), np.int64)
    routes.native.rank(X, labels, best, threads)
    return best


def considered(routes: Routes, x: NDArray[np.float32], nprobe: int) -> NDArray[np.bool_]:
    """Return which lists are in the clusters that a query looks at."""
    clusters, chosen = routes.second_level, np.zeros(len(routes.means), bool)
    if len(clusters.means) == 0:
        return ~chosen
    for place, c in enumerate(np.argsort(-(clusters.means @ x), kind="stable")):
        if place >= FEWEST_CLUSTERS and chosen.sum() >= LISTS_FOR_EACH * nprobe:
            break
        chosen[clusters.lists[clusters.starts[c] : clusters.starts[c + 1]]] = True
    return chosen


@given(
    st.sampled_from([1, 2, 15, 16, 17, 60, 300, 700]),
    st.sampled_from([0, 1, 3, 40]),
    dimensions,
    st.sampled_from([0, 1, 7, 30]),
    st.sampled_from([1, 2, 3, 16, 130]),
    seeds,
)
def test_ranks_match_a_plain_ranking_in_the_nearest_clusters(
    lists: int, classes: int, d: int, clusters: int, nprobe: int, seed: int
) -> None:
    rng, nprobe = np.random.default_rng(seed), min(lists, nprobe)
    routes = some_routes(rng, lists, classes, d, clusters)
    X, labels = some_queries(rng, routes, 6)
    best = ranked(routes, X, labels, nprobe)
    for q in range(len(X)):
        here = considered(routes, X[q], nprobe)
        of_entries = here[routes.class_lists]
        nearest = replace(
            routes,
            filled=routes.filled & here,
            class_filled=routes.class_filled & of_entries,
            second_level=SecondLevel.none(d),
        )
        expected = ranked_lists(nearest, X[q : q + 1], labels[q : q + 1], lists)[0, :nprobe]
        assert_array_equal(best[q, : len(expected)], expected)
        assert (best[q, len(expected) :] == -1).all()


@given(
    st.integers(1, 40),
    st.sampled_from([2, 24, 35, 64]),
    st.sampled_from([5, 50, 300]),
    st.sampled_from([0.2, 0.9]),
    st.sampled_from([0, 6]),
    seeds,
)
def test_a_query_among_others_goes_where_it_goes_alone(
    nq: int, d: int, lists: int, share: float, clusters: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    base = some_routes(rng, lists, 0, d, clusters)
    with_entry = np.sort(rng.choice(lists, int(share * lists), replace=False))
    routes = replace(
        base,
        means=unit(rng.normal(size=(lists, d))),
        filled=np.ones(lists, bool),
        labels=np.array([3], np.int32),
        starts=np.array([0, len(with_entry)]),
        class_lists=with_entry,
        class_means=unit(rng.normal(size=(len(with_entry), d))),
        class_filled=np.ones(len(with_entry), bool),
    )
    # Many lists are as good as others but for their last bit.
    routes.means[1::2] = np.nextafter(routes.means[: 2 * (lists // 2) : 2], np.float32(1))
    X, labels = unit(rng.normal(size=(nq, d))), rng.choice([2, 3, 4], nq).astype(np.int32)
    for nprobe in {1, min(9, lists), lists}:
        many = ranked(routes, X, labels, nprobe)
        assert_array_equal(
            many, [ranked(routes, X[q : q + 1], labels[q : q + 1], nprobe)[0] for q in range(nq)]
        )
    everywhere = all_lists(routes, X, labels)
    assert_array_equal(
        everywhere, [all_lists(routes, X[q : q + 1], labels[q : q + 1])[0] for q in range(nq)]
    )


@pytest.mark.parametrize("spread", [1e-30, 1e-3, 1.0])
def test_lists_that_hardly_differ_are_distinguished(spread: float) -> None:
    rng = np.random.default_rng(0)
    lists, d = 400, 64
    means = unit(np.ones((lists, d)) + spread * rng.normal(size=(lists, d)))
    routes = replace(
        routes_of(rng, lists, 1, np.empty(0, np.int32), d), means=means, filled=np.ones(lists, bool)
    )
    X, labels = unit(rng.normal(size=(5, d))), np.zeros(5, np.int32)
    best = ranked(routes, X, labels, 10)
    for q in range(5):
        assert_array_equal(ranked(routes, X[q : q + 1], labels[q : q + 1], 10)[0], best[q])
        scores = means.astype(np.float64) @ X[q]
        np.testing.assert_allclose(scores[best[q]], np.sort(scores)[::-1][:10], atol=1e-6)
        assert len(set(best[q].tolist())) == 10


@pytest.mark.parametrize("d", [5, 40])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("clusters", [0, 9])
def test_means_of_a_damaged_file_lead_to_each_list_once_at_most(
    value: float, d: int, clusters: int
) -> None:
    rng = np.random.default_rng(1)
    routes = some_routes(rng, 300, 3, d, clusters)
    for array in (routes.means, routes.class_means, routes.second_level.means):
        array[rng.random(array.shape) < 0.02] = value
    X, labels = some_queries(rng, routes, 20)
    for nprobe in (12, 300):
        alone = [ranked(routes, X[q : q + 1], labels[q : q + 1], nprobe)[0] for q in range(20)]
        assert_array_equal(ranked(routes, X, labels, nprobe), alone)
        for row in (*ranked(routes, X, labels, nprobe), *all_lists(routes, X, labels)):
            found = row[row >= 0]
            assert (found < 300).all()
            assert len(set(found.tolist())) == len(found)
            assert ((row >= 0) | (row == -1)).all()
    for row, label in zip(all_lists(routes, X, labels), labels, strict=True):
        filled, own = (
            routes.filled.copy(),
            np.repeat(routes.labels, np.diff(routes.starts)) == label,
        )
        filled[routes.class_lists[own]] = routes.class_filled[own]
        assert_array_equal(np.sort(row[row >= 0]), np.flatnonzero(filled))


@pytest.mark.parametrize("metric", ["ip", "l2"])
@given(
    st.sampled_from([1e-20, 1e-3, 1.0, 1e6, 1e13]),
    st.sampled_from([0, 1e-4, 1]),
    st.sampled_from([1, 9]),
    seeds,
)
def test_lists_of_any_length_are_ranked_by_bytes_as_by_floats(
    metric: Metric, length: float, spread: float, share: float, seed: int
) -> None:
    rng, d = np.random.default_rng(seed), 37

    def some_means(number: int) -> NDArray[np.float32]:
        means = length * (rng.normal(size=d) + spread * rng.normal(size=(number, d))) / d**0.5
        variance = (length * spread * rng.random(number)) ** 2
        last = (
            -(np.einsum("ij,ij->i", means, means) + variance) / 2
            if metric == "l2"
            else np.sqrt(variance / d)
        )
        return np.column_stack([means, last]).astype(np.float32)

    base = some_routes(rng, 400, 3, d, 0)
    means, class_means = some_means(400), some_means(len(base.class_lists))
    center = (length * rng.normal(size=d)).astype(np.float32)
    routes = replace(base, means=means, class_means=class_means, metric=metric, center=center)
    X = (share * length * rng.normal(size=(20, d)) / d**0.5).astype(np.float32)
    labels = rng.choice(np.append(routes.labels, [-1, 1 << 20]), 20).astype(np.int32)
    alone = [ranked(routes, X[q : q + 1], labels[q : q + 1], 12)[0] for q in range(20)]
    assert_array_equal(ranked(routes, X, labels, 12), alone)
    assert_array_equal(all_lists(routes, X, labels)[:, :12], alone)


@pytest.mark.parametrize(
    ("d", "labels", "shape"), [(3, 2, (2, 3)), (4, 1, (2, 3)), (4, 2, (1, 3)), (4, 2, (2, 21))]
)
def test_arrays_that_do_not_fit_are_refused(d: int, labels: int, shape: tuple[int, int]) -> None:
    routes = some_routes(np.random.default_rng(0), 20, 2, 4, 3)
    X, labels_q = np.zeros((2, d), np.float32), np.zeros(labels, np.int32)
    with pytest.raises(ValueError, match=r"must|may"):
        routes.native.rank(X, labels_q, np.empty(shape, np.int64), 1)
