from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import cosine

from cfe_faiss import _native

FINE: dict[str, Any] = {
    "starts": np.array([0, 2, 4]),
    "labels": np.array([0, 1, 0, 1], np.int32),
    "coarse": np.zeros((4, 16), np.float32),
    "fine": np.zeros((4, 3), np.float32),
    "low": np.zeros((3, 16), np.float32),
    "high": np.zeros((3, 16), np.float32),
    "node_labels": np.full(3, -1, np.int32),
}


def test_what_was_found_is_found_once_with_little_room() -> None:
    tree = _native.JoinTree(**FINE)
    found, pairs = np.empty((2, 4), np.int64), []
    for block in range(2):
        join = _native.BlockJoin(tree, block, tree)
        assert join.least_room == 4
        while not join.done:
            count = join.find(-1.0, 1.0, found)
            pairs += found[:, :count].T.tolist()
        assert join.counts[3] == (3 if block == 0 else 1)
    assert sorted(pairs) == [[0, 1], [0, 3], [1, 2], [2, 3]]


def test_rows_of_two_trees() -> None:
    tree = _native.JoinTree(**FINE)
    others = _native.JoinTree(**(FINE | {"labels": np.array([0, 0, 2, 0], np.int32)}))
    found, pairs = np.empty((2, 16), np.int64), []
    for block in range(2):
        join = _native.BlockJoin(tree, block, others)
        while not join.done:
            pairs += found[:, : join.find(-1.0, 1.0, found)].T.tolist()
    assert sorted(pairs) == [
        [0, 2],
        [1, 0],
        [1, 1],
        [1, 2],
        [1, 3],
        [2, 2],
        [3, 0],
        [3, 1],
        [3, 2],
        [3, 3],
    ]
    wider = _native.JoinTree(**(FINE | {"fine": np.zeros((4, 4), np.float32)}))
    with pytest.raises(ValueError, match="sketches of one length"):
        _native.BlockJoin(tree, 0, wider)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": np.array([0, 2])}, "starts must run"),
        ({"starts": np.array([0, 5, 4])}, "starts must ascend"),
        ({"starts": np.array([0, 1, 2, 4])}, "power of two"),
        ({"coarse": np.zeros((4, 15), np.float32)}, "coarse"),
        ({"fine": np.zeros((3, 3), np.float32)}, "fine"),
        ({"high": np.zeros((2, 16), np.float32)}, "low and high"),
        ({"node_labels": np.zeros(2, np.int32)}, "node_labels"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.JoinTree(**FINE | change)


def test_no_such_block_and_too_little_room() -> None:
    tree = _native.JoinTree(**FINE)
    with pytest.raises(ValueError, match="no such block"):
        _native.BlockJoin(tree, 2, tree)
    with pytest.raises(ValueError, match="too little room"):
        _native.BlockJoin(tree, 0, tree).find(0.0, 1.0, np.empty((2, 3), np.int64))


def test_similarities_of_named_rows() -> None:
    X, Y = np.random.default_rng(0).normal(size=(2, 5, 21)).astype(np.float32)
    first, second, result = np.array([4, 0, 4]), np.array([0, 1, 2]), np.empty(3, np.float32)
    _native.row_scores(0, X, Y, first, second, result)
    assert_array_equal(result, cosine(X[first], Y[second]))
    for wrong in (5, -1):
        with pytest.raises(IndexError, match="no such row"):
            _native.row_scores(0, X, Y, np.array([0, 0, wrong]), second, result)
