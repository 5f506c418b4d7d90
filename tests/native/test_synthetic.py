import numpy as np
import pytest

from cfe_faiss import _native

ENDS, ORDER = np.array([3, 3, 3]), np.arange(3, dtype=np.int32)
STARTS, EDGES = np.array([0, 2, 3, 3]), np.empty((2, 3), np.int32)
ALL = 2**64 - 1
ZEROS = np.zeros(3, np.int64)
CUMULATED = np.arange(4.0)


def test_all_pairs_are_joined_where_the_threshold_is_highest():
    counts, edges = np.empty(3, np.int64), np.empty((2, 3), np.int32)
    _native.count_pairs(ENDS, 1, ALL, counts, 2)
    assert counts.tolist() == [2, 1, 0]
    _native.join_pairs(ENDS, 1, ALL, ORDER, STARTS, edges, 2)
    assert edges.tolist() == [[0, 0, 1], [1, 2, 2]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _native.count_pairs(ENDS, 1, ALL, np.empty(2, np.int64), 1), "counts must have a number for each"),
        (lambda: _native.count_pairs(ENDS + 1, 1, ALL, np.empty(3, np.int64), 1), "ends must lie beyond"),
        (lambda: _native.count_pairs(ZEROS, 1, ALL, np.empty(3, np.int64), 1), "ends must lie beyond"),
        (lambda: _native.join_pairs(ENDS, 1, ALL, ORDER[:2], STARTS, EDGES, 1), "order must have a node"),
        (lambda: _native.join_pairs(ENDS, 1, ALL, ORDER, STARTS[:3], EDGES, 1), "starts must ascend"),
        (lambda: _native.join_pairs(ENDS, 1, ALL, ORDER, STARTS[::-1].copy(), EDGES, 1), "starts must ascend"),
        (lambda: _native.join_pairs(ENDS, 1, ALL, ORDER, STARTS - 1, EDGES, 1), "starts must ascend"),
        (lambda: _native.join_pairs(ENDS, 1, ALL, ORDER, STARTS, EDGES[:, :2].copy(), 1), "edges must have shape"),
        (lambda: _native.join_pairs(ENDS, 1, ALL, ORDER, np.zeros(4, np.int64), EDGES, 1), "starts must be those"),
        (lambda: _native.join_others(ZEROS, ENDS + 1, STARTS, CUMULATED, 1, 1, ORDER, EDGES, 1), "bottoms must lie"),
        (lambda: _native.join_others(ENDS, ENDS, STARTS, CUMULATED, 1, 1, ORDER, EDGES, 1), "bottoms must lie"),
        (lambda: _native.join_others(ZEROS, ENDS, STARTS, CUMULATED[1:], 1, 1, ORDER, EDGES, 1), "must fit order"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("wrong", ["community", "labels", "centres", "scale", "x"])
def test_features_that_do_not_fit_are_refused(wrong):
    arrays = {
        "community": np.array([0, 1], np.int32),
        "labels": np.array([0, 0], np.int32),
        "centres": np.zeros((2, 3), np.float32),
        "of_class": np.zeros((1, 3), np.float32),
        "scale": np.ones(3, np.float32),
        "x": np.empty((2, 3), np.float32),
    }
    _native.fill_features(**arrays, own=1.0, key=1, threads=1)
    assert np.isfinite(arrays["x"]).all()
    arrays[wrong] = arrays[wrong] + 5 if wrong in ("community", "labels") else arrays[wrong][:1].copy()
    with pytest.raises(ValueError, match="must have"):
        _native.fill_features(**arrays, own=1.0, key=1, threads=1)
