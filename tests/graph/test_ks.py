import itertools
import tempfile
from pathlib import Path

import faiss
import mpmath
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from reference import output_of, weight_matrix, weighted_ks_vectors

from cfe_faiss.datasets import load
from cfe_faiss.graph import Graph, as_graph
from cfe_faiss.graph.ks import ks_similarity, ks_vectors

TOLERANCE = 1e-5
NO_EDGES = np.empty((2, 0), np.int64)


def reference(x, edge_index, num_layers=3, alpha=0.5, directed=False):
    """The paper's formula, node by node, in float64."""
    x = np.asarray(x, dtype=np.float64)
    neighbors = [set() for _ in x]
    for source, target in np.asarray(edge_index).T.tolist():
        if source != target:
            neighbors[target].add(source)
            if not directed:
                neighbors[source].add(target)
    around = {v: np.array(sorted(nodes)) for v, nodes in enumerate(neighbors) if nodes}
    total = x.copy()
    for _ in range(num_layers):
        unit = unit_rows(x)
        new = alpha * x
        for v, u in around.items():
            new[v] += (1 - alpha) / len(u) * ((unit[u] @ unit[v]) @ x[u])
        x = new
        total += x
    return unit_rows(total)


def unit_rows(x):
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1)


def random_problem(n=300, d=20, edges=3000, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)).astype(np.float32)
    x[::50] = 0
    return x, rng.integers(0, n, (2, edges))


@st.composite
def problems(draw):
    n, d = draw(st.integers(2, 10)), draw(st.integers(1, 4))
    # Without negative values nothing cancels: float32 has no direction to give for a sum of nearly nothing.
    x = draw(hnp.arrays(np.float32, (n, d), elements=st.integers(0, 3)))
    node = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=25))
    source = draw(node)
    pairs.append((source, draw(node.filter(lambda target: target != source))))
    return x, np.array(pairs).T


@pytest.mark.parametrize(
    "name",
    [
        "german",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("bail", "facebook")),
        "cora",
    ],
)
def test_real_graphs_match_the_reference(name, data_root):
    data = load(name, root=data_root)
    X = ks_vectors(data.x, data.edge_index)
    assert X.dtype == np.float32
    assert np.abs(X - reference(data.x, data.edge_index)).max() < TOLERANCE
    assert_array_equal(ks_vectors(data.x, data), X)


@given(problems(), st.integers(0, 4), st.floats(0, 1), st.booleans())
def test_small_graphs_match_the_reference(problem, num_layers, alpha, directed):
    x, edge_index = problem
    X = ks_vectors(x, edge_index, num_layers, alpha, directed=directed)
    assert np.abs(X - reference(x, edge_index, num_layers, alpha, directed)).max() < TOLERANCE


@given(problems())
def test_one_direction_means_both(problem):
    x, edge_index = problem
    loops = np.tile(np.arange(len(x)), (2, 1))
    both = np.concatenate([edge_index, edge_index[::-1], loops, edge_index], axis=1)
    assert_array_equal(ks_vectors(x, edge_index), ks_vectors(x, both))
    assert_array_equal(ks_vectors(x, edge_index), ks_vectors(x, both, directed=True))
    assert_array_equal(ks_vectors(x, edge_index), ks_vectors(x, as_graph(both, len(x))))


@st.composite
def weighted_problems(draw):
    x, edge_index = draw(problems())
    weights = draw(hnp.arrays(np.float32, edge_index.shape[1], elements=st.floats(0, 8, width=16)))
    return x, edge_index, weights


@given(weighted_problems(), st.integers(0, 4), st.floats(0, 1), st.booleans())
def test_weighted_graphs_match_the_reference(problem, num_layers, alpha, directed):
    x, edge_index, weights = problem
    X = ks_vectors(x, edge_index, num_layers, alpha, edge_weight=weights, directed=directed)
    expected = weighted_ks_vectors(
        x, weight_matrix(len(x), edge_index, weights, directed=directed), num_layers, alpha
    )
    assert np.abs(X - expected).max() < TOLERANCE


@pytest.mark.parametrize("d", [1, 7, 16, 33, 65, 300])
@pytest.mark.parametrize("directed", [False, True])
def test_signed_features_with_weights_match_the_reference(d, directed):
    x, edge_index = random_problem(d=d, edges=900)
    edge_index[1, :400] = 11  # more neighbours than a group has
    weights = np.random.default_rng(1).exponential(size=900) ** 3
    X = ks_vectors(x, edge_index, 4, 0.3, edge_weight=weights, directed=directed)
    expected = weighted_ks_vectors(
        x, weight_matrix(len(x), edge_index, weights, directed=directed), 4, 0.3
    )
    assert np.abs(X - expected).max() < TOLERANCE


@given(problems(), st.booleans(), st.sampled_from([1, 7, 0.3, 1e30, 1e-30]))
def test_equal_weights_have_the_bits_of_none(problem, directed, weight):
    x, edge_index = problem
    edge_index = np.unique(edge_index, axis=1)  # weights of repeated edges would be summed
    weights = np.full(edge_index.shape[1], weight)
    found = ks_vectors(x, edge_index, edge_weight=weights, directed=directed)
    assert_array_equal(found, ks_vectors(x, edge_index, directed=directed))


@given(weighted_problems(), st.sampled_from([0.5, 4, 2.0**100, 2.0**-90]), st.floats(0.01, 100))
def test_scale_of_the_weights_does_not_matter(problem, power_of_two, factor):
    x, edge_index, weights = problem
    X = ks_vectors(x, edge_index, edge_weight=weights)
    assert_array_equal(ks_vectors(x, edge_index, edge_weight=weights * power_of_two), X)
    scaled = weights.astype(np.float64) * factor
    assert_allclose(ks_vectors(x, edge_index, edge_weight=scaled), X, atol=TOLERANCE)


def test_a_hub_is_as_exact_as_any_node():
    n = 200_001
    x = np.random.default_rng(0).random((n, 4), dtype=np.float32)
    star = np.stack([np.zeros(n - 1, dtype=np.int64), np.arange(1, n)])
    hub = ks_vectors(x, star, num_layers=1)[0]
    unit = unit_rows(x.astype(np.float64))
    aggregate = 1.5 * x[0] + 0.5 * (unit[1:] @ unit[0]) @ x[1:] / (n - 1)
    assert_allclose(hub, aggregate / np.linalg.norm(aggregate), atol=3e-7)


@pytest.mark.parametrize("exponent", [-100, 120])
def test_scale_of_the_features_does_not_matter(exponent):
    x, edge_index = random_problem()
    assert_array_equal(ks_vectors(np.ldexp(x, exponent), edge_index), ks_vectors(x, edge_index))


def test_thread_count_does_not_matter():
    x, edge_index = random_problem(n=5000, edges=100_000)
    threads = faiss.omp_get_max_threads()
    results = []
    try:
        for count in (1, 2, 5):
            faiss.omp_set_num_threads(count)
            results.append(ks_vectors(x, edge_index))
    finally:
        faiss.omp_set_num_threads(threads)
    assert_array_equal(results[0], results[1])
    assert_array_equal(results[0], results[2])


def test_every_form_of_features_gives_the_same(tmp_path):
    x, edge_index = random_problem()
    X = ks_vectors(x, edge_index)
    np.save(tmp_path / "x.npy", x)
    forms = [
        x.tolist(),
        x.astype(np.float64),
        np.asfortranarray(x),
        np.repeat(x, 2, axis=1)[:, ::2],
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        torch.from_numpy(x).requires_grad_(),
        torch.from_numpy(x).to_sparse(),
        scipy.sparse.csr_array(x),
        scipy.sparse.coo_matrix(x),
    ]
    for form in forms:
        assert_array_equal(ks_vectors(form, edge_index), X)
    whole = np.rint(x).astype(np.int16)
    found = ks_vectors(whole, edge_index)
    assert_array_equal(found, ks_vectors(whole.astype(np.float32), edge_index))


def test_out(tmp_path):
    x, edge_index = random_problem()
    X = ks_vectors(x, edge_index)
    out = np.full_like(x, np.nan)
    assert ks_vectors(x, edge_index, out=out) is out
    assert_array_equal(out, X)

    mapped = np.lib.format.open_memmap(
        tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=x.shape
    )
    assert ks_vectors(x, edge_index, out=mapped) is mapped
    mapped.flush()
    assert_array_equal(np.load(tmp_path / "X.npy"), X)

    assert ks_vectors(x, edge_index, out=x) is x
    assert_array_equal(x, X)


def saved(folder, **arrays):
    """Return the arrays as memory maps."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [np.load(folder / f"{name}.npy", mmap_mode="r") for name in arrays]


# Many blocks, a few, and one.
@pytest.mark.parametrize("memory", [20_000, 200_000, 1 << 30])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_on_disk_give_the_same_bits(memory, directed, weighted, tmp_path):
    x, edge_index = random_problem(n=120, edges=4000)
    # A hub, whose neighbours are summed in several groups, and nodes without any.
    x = np.concatenate([x, np.random.default_rng(1).random((600, 20), dtype=np.float32)])
    hub = np.stack([np.arange(120, 700), np.full(580, 7)])
    edge_index = np.concatenate([edge_index, hub], axis=1)
    weights = np.random.default_rng(2).exponential(size=edge_index.shape[1]) if weighted else None
    graph = as_graph(edge_index, len(x), edge_weight=weights, directed=directed)
    X = ks_vectors(x, graph)

    features, indptr, indices = saved(tmp_path, x=x, indptr=graph.indptr, indices=graph.indices)
    mapped = Graph(indptr, indices, *saved(tmp_path, weights=graph.weights) if weighted else ())
    out = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=x.shape)
    workspace = tmp_path / "work"
    workspace.mkdir()
    assert ks_vectors(features, mapped, out=out, workspace=workspace, memory=memory) is out
    assert_array_equal(out, X)
    out.flush()
    assert_array_equal(np.load(tmp_path / "X.npy"), X)
    assert list(workspace.iterdir()) == []
    assert_array_equal(ks_vectors(x, graph, workspace=workspace, memory=memory), X)


@given(weighted_problems(), st.integers(0, 3), st.floats(0, 1), st.integers(1, 3000), st.booleans())
def test_size_of_the_blocks_does_not_matter(problem, num_layers, alpha, memory, weighted):
    x, edge_index, weights = problem
    given = weights if weighted else None
    with tempfile.TemporaryDirectory() as workspace:
        found = ks_vectors(
            x, edge_index, num_layers, alpha, edge_weight=given, workspace=workspace, memory=memory
        )
    assert_array_equal(found, ks_vectors(x, edge_index, num_layers, alpha, edge_weight=given))


MEASURED = """
import sys
from pathlib import Path
import numpy as np
import cfe_faiss as cfe
from cfe_faiss.graph import Graph

def peak():
    # What resource.getrusage tells would start from the memory of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

folder = sys.argv[1]
load = lambda name, mode="r": np.load(f"{folder}/{name}.npy", mmap_mode=mode)
def propagate(x, out):
    cfe.ks_vectors(x, Graph(load("indptr"), load("indices")), 2, out=out, workspace=folder, memory=20_000_000)
propagate(np.ones((25_000, 4), np.float32), None)  # loads what is needed once
before = peak()
propagate(load("x"), load("X", "r+"))
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_is_bounded(tmp_path):
    """A matrix of 50 MB, of which there are four, is worked on with 20 MB and what the threads take."""
    n, d = 25_000, 500
    rng = np.random.default_rng(0)
    graph = as_graph(rng.integers(0, n, (2, 60_000)), n)
    saved(
        tmp_path, x=rng.random((n, d), dtype=np.float32), indptr=graph.indptr, indices=graph.indices
    )
    np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(n, d)).flush()
    assert int(output_of(MEASURED, tmp_path)) < 40_000_000


def test_changes_to_a_copy_on_write_map_are_kept(tmp_path):
    x, edge_index = random_problem()
    (mapped,) = saved(tmp_path, x=np.zeros_like(x))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="c")
    mapped[:] = x
    assert_array_equal(ks_vectors(mapped, edge_index), ks_vectors(x, edge_index))
    assert_array_equal(ks_vectors(mapped, edge_index, out=mapped), ks_vectors(x, edge_index))
    assert_array_equal(mapped, ks_vectors(x, edge_index))


def test_work_files_are_removed_after_a_fault(tmp_path):
    with pytest.raises(ValueError, match="x must be finite"):
        ks_vectors(bad(np.nan), [[0], [1]], workspace=tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="no folder"):
        ks_vectors(np.ones((3, 2)), [[0], [1]], workspace=tmp_path / "no folder")


def bad(value):
    x = np.ones((3, 2))
    x[1, 1] = value
    return x


read_only = np.zeros((3, 2), dtype=np.float32)
read_only.flags.writeable = False


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"x": bad(np.nan)}, ValueError, "x must be finite in float32, .* in row 1"),
        ({"x": bad(-np.inf)}, ValueError, "x must be finite in float32, .* in row 1"),
        ({"x": bad(1e39)}, ValueError, "x must be finite in float32, .* in row 1"),
        ({"x": scipy.sparse.csr_array(bad(np.nan))}, ValueError, "x must be finite in float32,"),
        ({"x": np.ones(3)}, ValueError, r"x must have shape \(n, d\) .*, got \(3,\)"),
        ({"x": np.ones((3, 0))}, ValueError, r"x must have shape \(n, d\) .*, got \(3, 0\)"),
        ({"x": np.ones((0, 2))}, ValueError, r"x must have shape \(n, d\) .*, got \(0, 2\)"),
        ({"x": [[1, 2], [3]]}, ValueError, "x must be a rectangular array"),
        ({"x": [["a"], ["b"]]}, TypeError, "x must be an array of real numbers"),
        ({"x": np.ones((3, 2), dtype=complex)}, TypeError, "x must be an array of real numbers"),
        (
            {"x": scipy.sparse.csr_array(np.ones((3, 2), dtype=complex))},
            TypeError,
            "x must be a matrix",
        ),
        ({"edge_index": [[0, 3], [1, 0]]}, ValueError, "edge_index .*got 3 in edge 1"),
        ({"edge_index": [[0], [-1]]}, ValueError, "edge_index .*got -1 in edge 0"),
        ({"edge_weight": [1.0, -2.0]}, ValueError, r"edge_weight .*got -2\.0 in edge 1"),
        ({"edge_weight": [np.nan, 1.0]}, ValueError, "edge_weight .*got nan in edge 0"),
        ({"edge_weight": [1.0, np.inf]}, ValueError, "edge_weight must be .*, got inf in edge 1"),
        ({"edge_weight": [1.0, 1e39]}, ValueError, r"edge_weight .*got 1e\+39 in edge 1"),
        ({"edge_weight": [1e-60, 1.0]}, ValueError, "edge_weight .*got 1e-60 in edge 0"),
        ({"edge_weight": [1.0]}, ValueError, r"edge_weight .*got \(1,\)"),
        ({"edge_weight": np.ones((2, 1))}, ValueError, r"edge_weight .*got \(2, 1\)"),
        ({"edge_weight": ["a", "b"]}, TypeError, "edge_weight must be an array of real numbers"),
        ({"edge_weight": True}, ValueError, "edge_weight=True needs a graph that holds"),
        ({"edge_weight": [3e38] * 2, "edge_index": [[0, 0], [1, 1]]}, ValueError, "weights must"),
        ({"edge_index": scipy.sparse.eye_array(4)}, ValueError, "graph must have 3 nodes, got 4"),
        ({"memory": 0}, ValueError, "memory must be at least 1, got 0"),
        ({"num_layers": -1}, ValueError, "num_layers must be at least 0, got -1"),
        ({"num_layers": 1.5}, TypeError, "num_layers must be an integer, got 1.5"),
        ({"alpha": 1.5}, ValueError, r"alpha must lie in \[0, 1\], got 1.5"),
        ({"alpha": float("nan")}, ValueError, r"alpha must lie in \[0, 1\], got nan"),
        ({"alpha": "half"}, TypeError, "alpha must be a number, got 'half'"),
        ({"out": [[0.0, 0.0]] * 3}, TypeError, "out must be a float32 array, got list"),
        ({"out": np.zeros((3, 2))}, TypeError, "out must be a float32 array, got float64"),
        ({"out": np.zeros((2, 2), np.float32)}, ValueError, r"out .*got \(2, 2\)"),
        ({"out": np.zeros((2, 3), np.float32).T}, ValueError, "out must be C-contiguous"),
        ({"out": read_only}, ValueError, "out must be C-contiguous and writeable"),
    ],
)
def test_faults_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        ks_vectors(**{"x": np.ones((3, 2)), "edge_index": [[0, 1], [1, 2]], **arguments})


def test_similarity_is_the_inner_product():
    x, edge_index = random_problem()
    X = ks_vectors(x, edge_index)
    every = np.arange(len(X))
    scores = ks_similarity(X, every[:, None], every)
    assert scores.dtype == np.float32
    assert_allclose(scores, X.astype(np.float64) @ X.T, atol=1e-6)
    assert ks_similarity(X, 3, 5).shape == ()
    assert ks_similarity(X, 3, 5) == scores[3, 5]
    expected = scores[[3, 4], [5, 6]]
    assert_array_equal(ks_similarity(torch.from_numpy(X), [3, 4], torch.tensor([5, 6])), expected)
    assert ks_similarity(X, [], []).shape == (0,)


def test_similarity_in_float64_is_the_cosine_of_the_rows():
    x, edge_index = random_problem()
    X = ks_vectors(x, edge_index)
    X[1], X[2] = X[0], np.nextafter(X[0], np.float32(2))
    every = np.arange(len(X))
    scores = ks_similarity(X, every[:, None], every, dtype=np.float64)
    assert scores.dtype == np.float64
    with mpmath.workdps(40):
        rows = [mpmath.matrix(row.tolist()) for row in X[:6]]
        for v, u in itertools.combinations(range(6), 2):
            lengths = mpmath.norm(rows[v]) * mpmath.norm(rows[u])
            exact = (rows[v].T * rows[u])[0] / lengths if lengths else 0
            assert abs(scores[v, u] - exact) <= (X.shape[1] + 10) * 2.0**-52
    assert ks_similarity(X, 3, 5, dtype=np.float64) == scores[3, 5]


def test_similarity_in_float64_is_1_for_equal_rows_only():
    X = np.eye(3, dtype=np.float32)[[0, 0, 0, 1]]
    X[2, 1] = 1e-30
    scores = ks_similarity(X, [0, 0, 1, 2], [1, 2, 3, 2], dtype=np.float64)
    assert_array_equal(scores, [1, np.nextafter(1, 0), 0, 1])
    assert_array_equal(ks_similarity(np.zeros((2, 3)), [0, 0], [0, 1], dtype=np.float64), [0, 0])
    with pytest.raises(TypeError, match=r"dtype .*got 'f2'"):
        ks_similarity(X, 0, 1, dtype="f2")


@pytest.mark.parametrize(
    ("X", "v", "u", "error", "message"),
    [
        (np.ones((3, 2)), 3, 0, ValueError, r"v must lie in 0\.\.2, got 3"),
        (np.ones((3, 2)), 0, [1, -1], ValueError, r"u must lie in .*, got -1"),
        (np.ones((3, 2)), 0.5, 0, TypeError, "v must be integers, got dtype float64"),
        (np.ones((3, 2)), [0, 1], [0, 1, 2], ValueError, r"v and u must have shapes .* got \(2,\)"),
        (np.ones(3), 0, 0, ValueError, r"X must have shape \(n, d\), got \(3,\)"),
        (bad(np.nan), 0, 1, ValueError, "X must be finite"),
    ],
)
def test_faults_of_a_pair_are_named(X, v, u, error, message):
    with pytest.raises(error, match=message):
        ks_similarity(X, v, u)


@given(weighted_problems(), st.booleans(), st.randoms(use_true_random=False))
def test_order_of_nodes_and_edges_does_not_matter(problem, weighted, random):
    x, edge_index, weights = problem
    order, edges = list(range(len(x))), list(range(len(weights)))
    random.shuffle(order)
    random.shuffle(edges)
    some, shuffled = (weights, weights[edges]) if weighted else (None, None)
    X = ks_vectors(x, edge_index, edge_weight=some)
    assert_array_equal(ks_vectors(x, edge_index[:, edges], edge_weight=shuffled), X)
    number = np.argsort(order)
    moved = ks_vectors(x[order], number[edge_index], edge_weight=some)
    assert_allclose(moved, X[order], atol=TOLERANCE)
