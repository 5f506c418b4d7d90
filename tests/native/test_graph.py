import numpy as np
import pytest

from cfe_faiss import _native

EDGES = np.array([[0, 1, 1, 2], [1, 0, 2, 2]])


def test_wrong_weights_are_refused():
    builder = _native.GraphBuilder(4, False, True)
    builder.count(EDGES)
    with pytest.raises(ValueError, match="weights must have length 4, got 0"):
        builder.place(EDGES)
    for wrong in (0, -1, np.nan, np.inf):
        with pytest.raises(ValueError, match="weights must be positive and finite, got"):
            builder.place(EDGES, np.array([1, 1, wrong, 1], np.float32))
    plain = _native.GraphBuilder(4, False)
    plain.count(EDGES)
    with pytest.raises(ValueError, match="weights must have length 0, got 4"):
        plain.place(EDGES, np.ones(4, np.float32))


@pytest.mark.parametrize("hub", [0, 500, 999])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_node_is_sorted_whatever_the_degrees(hub, threads):
    rng = np.random.default_rng(0)
    n = 1000
    dense = rng.random((n, n)) < 0.01
    dense[hub] = True
    dense[::3] = False
    np.fill_diagonal(dense, False)
    targets, sources = np.nonzero(dense)
    order = rng.permutation(len(targets))
    edges = np.ascontiguousarray(np.stack([sources, targets])[:, order])
    builder = _native.GraphBuilder(n, True)
    builder.count(edges)
    builder.place(edges)
    indptr, indices, _ = builder.finish(threads)
    np.testing.assert_array_equal(indices, sources)
    np.testing.assert_array_equal(np.diff(indptr), dense.sum(axis=1))


def test_only_what_was_counted_can_be_placed():
    builder = _native.GraphBuilder(4, False)
    builder.count(EDGES)
    with pytest.raises(ValueError, match="all edges that were counted must be placed"):
        builder.finish(1)
    builder.place(EDGES)
    with pytest.raises(ValueError, match="edges to be placed must be those that were counted"):
        builder.place(EDGES)
    with pytest.raises(ValueError, match="edges must be counted before any are placed"):
        builder.count(EDGES)


def test_faults_of_a_builder_are_named():
    with pytest.raises(
        ValueError, match="graph must have at most 2147483646 nodes, got 2147483647"
    ):
        _native.GraphBuilder(2**31 - 1, False)
    with pytest.raises(ValueError, match=r"edges must have shape \(2, m\), got 3 rows"):
        _native.GraphBuilder(4, False).count(np.zeros((3, 2), np.int64))
    with pytest.raises(TypeError, match="incompatible"):
        _native.GraphBuilder(4, False).count(EDGES.astype(np.int32))
