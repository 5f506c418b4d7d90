import numpy as np
from numpy.testing import assert_array_equal
from reference import clustered, unit

from cfe_faiss.index.routing import nearest_lists


def test_lists_are_ranked_over_all_partitions() -> None:
    X = unit(clustered(50, 6, 2)[0])
    centroids = unit(np.random.default_rng(0).normal(size=(12, 6))).reshape(3, 4, 6)
    ranking = np.argsort(-(X @ centroids.reshape(12, 6).T), axis=1)
    assert_array_equal(nearest_lists(X, centroids, 5), ranking[:, :5])


def test_all_lists_of_the_first_partition_hold_every_vector() -> None:
    lists = nearest_lists(np.eye(4, dtype=np.float32), np.zeros((3, 5, 4), np.float32), 15)
    assert_array_equal(lists, np.tile(np.arange(5), (4, 1)))
    assert lists.flags.c_contiguous
