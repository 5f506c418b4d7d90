import math

import faiss
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import clustered, unit

from cfe_faiss.coarse.partitions import (
    assign,
    cap_weight,
    nearest_centroids,
    spherical_kmeans,
    train_partitions,
)


def parameters(niter: int = 10) -> faiss.ClusteringParameters:
    cp = faiss.ClusteringParameters()
    cp.niter = niter
    cp.max_points_per_centroid = 1 << 30
    return cp


def test_centroids_are_unit_rows_and_the_first_partition_is_stock_kmeans() -> None:
    X = unit(clustered(500, 6, 3)[0])
    centroids = train_partitions(X, 8, 3, parameters(), theta=math.pi / 3, weighted=True)
    assert centroids.shape == (3, 8, 6)
    assert_allclose(np.linalg.norm(centroids, axis=2), 1, atol=1e-6)
    stock = faiss.Kmeans(6, 8, niter=10, spherical=True, seed=1234, max_points_per_centroid=1 << 30)
    stock.cp.min_points_per_centroid = 1
    stock.train(X)
    assert_allclose(centroids[0], stock.centroids, atol=1e-6)


def test_a_supplementary_partition_is_weighted_kmeans_with_the_weights_of_the_one_before() -> None:
    X = unit(clustered(500, 6, 3)[0])
    first, second = train_partitions(X, 5, 2, parameters(), theta=0.9, weighted=True)
    phi = np.arccos(np.clip((X @ first.T).max(axis=1).astype(np.float64), -1, 1))
    weights = cap_weight(phi, 6, 0.9)
    stock = faiss.Kmeans(6, 5, niter=10, spherical=True, seed=1235, max_points_per_centroid=1 << 30)
    stock.cp.min_points_per_centroid = 1
    stock.train(X, weights=(weights / weights.mean()).astype(np.float32))
    assert_allclose(second, stock.centroids, atol=1e-5)


@pytest.mark.parametrize("d", [6, 40])
@pytest.mark.parametrize(("points", "nredo"), [(1 << 30, 1), (40, 1), (1 << 30, 4)])
def test_sample_start_and_runs_match_stock_kmeans(d: int, points: int, nredo: int) -> None:
    X = unit(np.random.default_rng(0).normal(size=(2000, d)))  # no cluster becomes empty
    cp = parameters(4)
    cp.max_points_per_centroid, cp.nredo, cp.seed = points, nredo, 7
    stock = faiss.Kmeans(
        d, 20, niter=4, spherical=True, seed=7, nredo=nredo, max_points_per_centroid=points
    )
    stock.train(X)
    weights = np.ones(len(X), np.float32)
    assert_allclose(spherical_kmeans(X, 20, weights, cp, 7), stock.centroids, atol=1e-5)


def test_the_number_of_threads_does_not_change_the_centroids() -> None:
    X = unit(clustered(5000, 40, 4)[0])
    weights = np.ones(5000, np.float32)
    before = faiss.omp_get_max_threads()
    centroids = []
    try:
        for threads in (1, 3):
            faiss.omp_set_num_threads(threads)
            centroids.append(spherical_kmeans(X, 300, weights, parameters(3), 1))
    finally:
        faiss.omp_set_num_threads(before)
    assert_array_equal(*centroids)


def test_no_cluster_stays_empty_while_others_can_be_split() -> None:
    X = unit(np.concatenate([np.tile([[1.0, 0.0, 0.0]], (30, 1)), clustered(400, 3, 1)[0]]))
    cp, weights = parameters(20), np.ones(len(X), np.float32)
    for seed in range(5):
        centroids = spherical_kmeans(X, 25, weights, cp, seed)
        assert len(np.unique(assign(X, centroids[None]))) >= 24
        assert_allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-6)


def test_weighting_moves_centroids_towards_the_former_borders() -> None:
    X = unit(clustered(2000, 8, 3, seed=3)[0])
    first, second = train_partitions(X, 10, 2, parameters(20), theta=math.pi / 3, weighted=True)
    same, plain = train_partitions(X, 10, 2, parameters(20), theta=math.pi / 3, weighted=False)
    assert_array_equal(first, same)
    own = (X @ first.T).max(axis=1)
    border = own < np.quantile(own, 0.2)
    assert (X[border] @ second.T).max(axis=1).mean() > (X[border] @ plain.T).max(axis=1).mean()


@pytest.mark.parametrize(
    "X", [np.ones((40, 3)), np.zeros((40, 3)), np.eye(40)[:, :3], np.ones((40, 1))]
)
def test_vectors_without_clusters_do_not_hang(X: np.ndarray) -> None:
    centroids = train_partitions(unit(X), 10, 3, parameters(), theta=1.0, weighted=True)
    assert np.isfinite(centroids).all()
    assert_array_equal(assign(unit(X), centroids).shape, (3, 40))


def test_assign_takes_the_nearest_centroid_of_each_partition() -> None:
    X = unit(clustered(100, 5, 2)[0])
    centroids = unit(np.random.default_rng(1).normal(size=(14, 5))).reshape(2, 7, 5)
    lists = assign(X, centroids)
    assert lists.dtype == np.int32
    for partition, expected in zip(lists, centroids, strict=True):
        assert_array_equal(partition, (X @ expected.T).argmax(axis=1))
    assert assign(X[:0], centroids).shape == (2, 0)
    cosines, order = nearest_centroids(X, centroids[0], 3)
    assert_array_equal(order, np.argsort(-(X @ centroids[0].T), axis=1)[:, :3])
    assert (np.diff(cosines, axis=1) <= 0).all()


def test_long_lists_of_squared_distances_are_split() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(scale=0.01, size=(1500, 8)), rng.normal(size=(500, 8))]).astype(
        np.float32
    )
    longest = {}
    for metric in ("ip", "l2"):
        centroids = train_partitions(X, 40, 1, parameters(), theta=1, weighted=True, metric=metric)
        assert centroids.shape == (1, 40, 8)
        longest[metric] = np.bincount(assign(X, centroids, metric)[0]).max()
    assert 2 * longest["l2"] < longest["ip"]


def test_equal_vectors_are_not_split_into_more_lists_than_there_are() -> None:
    X = np.zeros((900, 3), np.float32)
    X[:50] = np.random.default_rng(0).normal(size=(50, 3))
    centroids = train_partitions(X, 20, 1, parameters(), theta=1, weighted=True, metric="l2")
    assert centroids.shape == (1, 20, 3)
    assert np.isfinite(centroids).all()
