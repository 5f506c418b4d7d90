import gc

import numpy as np
import pytest
from reference import outputs_of_levels

from cfe_faiss import _native
from cfe_faiss.graph import Graph, as_graph
from cfe_faiss.graph.ks import step_of


def problem(n=40, d=20, edges=300, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n, (2, edges))
    weights = rng.exponential(size=edges) if weighted else None
    graph = as_graph(ends, n, edge_weight=weights)
    x = rng.normal(size=(n, d)).astype(np.float32)
    norms = np.empty(n)
    _native.normalise_rows(x, norms, 1)
    return (graph.indptr, graph.indices, graph.weights), x, rng.random(n).astype(np.float32)


def csr_graph(graph, threads=1):
    indptr, indices, weights = graph
    return _native.CsrGraph(indptr, indices, threads, weights)


def step(graph, unit, lengths, alpha=0.5, memory=0, threads=1, **callbacks):
    aggregate, new_unit, new_lengths = (
        np.ones_like(unit),
        np.empty_like(unit),
        np.empty_like(lengths),
    )
    arrays = unit, lengths, aggregate, new_unit, new_lengths
    if memory == 0:
        csr_graph(graph, threads).step(alpha, threads, *arrays, **callbacks)
    else:
        step_of(Graph(*graph), unit.shape[1], alpha, memory)(*arrays, **callbacks)
    return aggregate, new_unit, new_lengths


LEVELS = """
import hashlib
import numpy as np
from cfe_faiss import _native
from cfe_faiss.graph.ks import ks_vectors
rng = np.random.default_rng(0)
for d in (1, 7, 16, 18, 33, 64, 65, 200, 301):
    x = (rng.normal(size=(700, d)) * 10.0 ** rng.integers(-6, 6, (700, 1))).astype(np.float32)
    edges = rng.integers(0, 700, (2, 6000))
    edges[1, :600] = 7  # a node whose neighbours are summed in several groups
    X = ks_vectors(x, edges)
    units = np.empty_like(x)
    assert _native.unit_rows(x, units) == -1
    print(hashlib.sha256(X.tobytes() + units.tobytes()).hexdigest())
    X = ks_vectors(x, edges, edge_weight=rng.exponential(size=6000) ** 4)
    print(hashlib.sha256(X.tobytes()).hexdigest())
"""


def test_every_level_gives_the_same_bits():
    assert len(outputs_of_levels(LEVELS)) == 1


def test_progress_and_release_are_called():
    graph, unit, lengths = problem(n=3000, d=40, edges=100_000)
    for memory in (0, 200_000):
        done, releases = [], []
        callbacks = {
            "progress": done.append,
            "release": lambda releases=releases: releases.append(1),
        }
        step(graph, unit, lengths, memory=memory, **callbacks)
        assert len(releases) > 10
        assert done == sorted(done)
        assert all(0 <= number <= len(graph[1]) for number in done)


def test_an_error_of_a_callback_ends_the_step():
    def fail():
        raise RuntimeError("no more")

    graph, unit, lengths = problem()
    for memory, threads in ((0, 1), (0, 2), (1000, 2)):
        with pytest.raises(RuntimeError, match="no more"):
            step(graph, unit, lengths, memory=memory, threads=threads, release=fail)


def test_the_arrays_of_the_graph_are_kept():
    graph, unit, lengths = problem(weighted=True)
    expected = step(graph, unit, lengths)
    copied = csr_graph([array.copy() for array in graph])
    gc.collect()
    aggregate, new_unit, new_lengths = (
        np.ones_like(unit),
        np.empty_like(unit),
        np.empty_like(lengths),
    )
    copied.step(0.5, 1, unit, lengths, aggregate, new_unit, new_lengths)
    np.testing.assert_array_equal(new_unit, expected[1])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: {"unit": a["unit"][:-1]}, ValueError, "unit and lengths must"),
        (lambda a: {"lengths": a["lengths"][:-1]}, ValueError, "unit and lengths must"),
        (lambda a: {"new_lengths": a["lengths"][:-1].copy()}, ValueError, "new_lengths must"),
        (lambda a: {"aggregate": a["unit"][:-1].copy()}, ValueError, "aggregate must"),
        (lambda a: {"new_unit": np.empty((40, 21), np.float32)}, ValueError, "new_unit must"),
        (lambda a: {"new_unit": a["unit"]}, ValueError, "new_unit must not be unit"),
        (
            lambda a: {
                name: np.empty((40, 0), np.float32) for name in ("unit", "aggregate", "new_unit")
            },
            ValueError,
            "unit must have at least one column",
        ),
        (lambda a: {"unit": a["unit"].astype(np.float64)}, TypeError, "incompatible"),
        (lambda a: {"unit": np.asfortranarray(a["unit"])}, TypeError, "incompatible"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, error, message):
    graph, unit, lengths = problem()
    arrays = {
        "unit": unit,
        "lengths": lengths,
        "aggregate": unit.copy(),
        "new_unit": unit.copy(),
        "new_lengths": lengths.copy(),
    }
    with pytest.raises(error, match=message):
        csr_graph(graph).step(0.5, 1, **{**arrays, **change(arrays)})


def test_norms_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="norms must have a number for each row"):
        _native.normalise_rows(np.ones((3, 2), np.float32), np.empty(2), 1)
    with pytest.raises(ValueError, match="unit must have length 3, got 2"):
        _native.unit_rows(np.ones((3, 2), np.float32), np.ones((2, 2), np.float32))
    with pytest.raises(ValueError, match="a row of unit must have length 2, got 3"):
        _native.unit_rows(np.ones((3, 2), np.float32), np.ones((3, 3), np.float32))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("d", [1, 18, 65])
def test_some_nodes_take_the_step_of_all(d, weighted):
    graph, unit, lengths = problem(d=d, weighted=weighted)
    all_rows = step(graph, unit, lengths)
    nodes = np.array([3, 4, 17, 39])
    indptr, indices, weights = graph
    entries = np.concatenate([np.arange(indptr[v], indptr[v + 1]) for v in nodes])
    offsets = np.cumsum([0, *np.diff(indptr)[nodes]])
    some_weights = weights[entries] if weighted else None
    some = _native.CsrGraph(offsets, indices[entries], 1, some_weights, nodes=nodes, num_nodes=40)
    aggregate, new_unit, new_lengths = (
        np.ones((4, d), np.float32),
        np.empty((4, d), np.float32),
        np.empty(4, np.float32),
    )
    some.step(0.5, 1, unit, lengths, aggregate, new_unit, new_lengths)
    for own, expected in zip((aggregate, new_unit, new_lengths), all_rows, strict=True):
        np.testing.assert_array_equal(own, expected[nodes])


@pytest.mark.parametrize("nodes", [[3], [-1], [0, 1]])
def test_some_nodes_of_a_graph_must_exist(nodes):
    with pytest.raises(ValueError, match=r"nodes must lie in 0\.\.2"):
        _native.CsrGraph(
            np.array([0, 1]), np.array([2], np.int32), 1, nodes=np.array(nodes), num_nodes=3
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": np.array([2])}, "nodes must exist"),
        ({"sizes": np.array([1, 4])}, "lists must lie in indices"),
        ({"starts": np.array([-1, 0])}, "lists must lie in indices"),
        ({"weights": np.ones(2, np.float32)}, "weights must have length 3, got 2"),
    ],
)
def test_lists_that_do_not_exist_are_not_gathered(change, message):
    starts, sizes, indices = np.array([2, 0]), np.array([1, 2]), np.array([5, 6, 7], np.int32)
    arguments = {
        "starts": starts,
        "sizes": sizes,
        "indices": indices,
        "weights": None,
        "nodes": np.array([0, 1]),
    }
    indptr, neighbors, weights = _native.gather_lists(**arguments)
    assert (indptr.tolist(), neighbors.tolist(), len(weights)) == ([0, 1, 3], [7, 5, 6], 0)
    with pytest.raises(ValueError, match=message):
        _native.gather_lists(**{**arguments, **change})
