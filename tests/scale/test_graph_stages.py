"""From edges and features on disk to KS vectors by blocks of nodes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss.graph import as_graph
from cfe_faiss.scale import Job
from cfe_faiss.scale.job_files import Task
from cfe_faiss.scale.stages import edge_blocks, graph_stages, neighbors_of

pytestmark = pytest.mark.usefixtures("without_sync")

N = 30


def run(folder: Path, *names: str, memory: int = 1 << 20) -> Task:
    """Run all tasks of some stages in this process; return the last task."""
    task = Task.of(folder, memory, "", 0)
    for stage in graph_stages(task.settings, task.inputs):
        for block in range(stage.blocks if stage.name in names else 0):
            task = Task.of(folder, memory, stage.name, block)
            stage.run(task)
    return task


# --- edges ------------------------------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 400),
    directed=st.booleans(),
    block_rows=st.integers(5, N),
    memory=st.sampled_from([1, 1000, 1 << 30]),
    weighted=st.booleans(),
)
@example(seed=0, count=300, directed=False, block_rows=1, memory=1, weighted=True)
def test_neighbours_equal_a_graph_in_memory(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    count: int,
    directed: bool,
    block_rows: int,
    memory: int,
    weighted: bool,
) -> None:
    rng = np.random.default_rng(seed)
    # Half of all edges end in one node, so that its keys alone are more than a small memory allows.
    edges = np.where(rng.random((2, count)) < 0.25, 7, rng.integers(0, N, (2, count)))
    weights = weights_of(rng, count) if weighted else None
    folder = tmp_path_factory.mktemp("job")
    settings = {"directed": directed, "block_rows": block_rows, "edge_weight": weights}
    Job(folder, rng.normal(size=(N, 2)), edges, np.zeros(N, np.int64), **settings)
    blocks = run(folder, "sort", "graph", memory=memory).settings.blocks
    expected = as_graph(edges, N, directed=directed, edge_weight=weights)
    found, found_weights = [], []
    for block in range(blocks):
        task = Task.of(folder, memory, "step-1", block)
        first, stop = task.settings.rows(block)
        indptr, indices, of_block = neighbors_of(task)
        assert_array_equal(indptr, expected.indptr[first : stop + 1] - expected.indptr[first])
        found.append(indices)
        found_weights.append(of_block)
    assert_array_equal(np.concatenate(found), expected.indices)
    if weighted:
        assert_array_equal(np.concatenate(found_weights), expected.weights)
    else:
        assert found_weights == [None] * len(found)


def weights_of(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Return weights whose float64 sums depend on their order, some of them 0."""
    return np.where(rng.random(count) < 0.1, 0.0, 10 ** rng.uniform(-12, 12, count)).astype(
        np.float32
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_edges_in_several_parts_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool
) -> None:
    monkeypatch.setattr("cfe_faiss.scale.stages.EDGES_PER_BLOCK", 100)
    monkeypatch.setattr("cfe_faiss.scale.stages._EDGES_AT_ONCE", 30)
    rng = np.random.default_rng(0)
    edges = rng.integers(0, N // 2, (2, 1050))
    weights = weights_of(rng, 1050) if weighted else None
    Job(
        tmp_path,
        rng.normal(size=(N, 2)),
        edges,
        np.zeros(N, np.int64),
        block_rows=N,
        edge_weight=weights,
    )
    assert edge_blocks(edges, weighted) == (21 if weighted else 11)
    indptr, indices, found = neighbors_of(run(tmp_path, "sort", "graph", memory=5000))
    expected = as_graph(edges, N, edge_weight=weights)
    assert_array_equal(indptr, expected.indptr)
    assert_array_equal(indices, expected.indices)
    assert_array_equal(found, expected.weights)


def test_edges_beyond_the_nodes_are_refused(tmp_path: Path) -> None:
    Job(tmp_path, np.ones((3, 2)), np.array([[0, 1], [1, 3]]), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match=r"edges must lie in 0\.\.2, got 0 to 3 in edges 0 and on"):
        run(tmp_path, "sort")


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf, 1e-50])
def test_weights_that_are_none_are_refused(tmp_path: Path, wrong: float) -> None:
    edges = np.array([[0, 1], [1, 2]])
    Job(tmp_path, np.ones((3, 2)), edges, np.zeros(3, np.int64), edge_weight=[1.0, wrong])
    message = rf"edge_weight must be 0 or positive, and finite, .*got {wrong} in edge 1"
    with pytest.raises(ValueError, match=message):
        run(tmp_path, "sort")


def test_weights_that_are_too_large_together_are_refused(tmp_path: Path) -> None:
    edges = np.array([[0, 0], [2, 2]])
    Job(tmp_path, np.ones((3, 2)), edges, np.zeros(3, np.int64), edge_weight=[3e38, 3e38])
    run(tmp_path, "sort")
    with pytest.raises(ValueError, match=r"finite .*got more for the edges between 2 and 0"):
        run(tmp_path, "graph")


# --- vectors ----------------------------------------------------------------------------------------------------------


@example(seed=0, block_rows=1, num_layers=1, weighted=True, directed=False)
@given(
    seed=st.integers(0, 2**32 - 1),
    block_rows=st.integers(5, N),
    num_layers=st.integers(0, 3),
    weighted=st.booleans(),
    directed=st.booleans(),
)
def test_vectors_equal_ks_vectors(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    block_rows: int,
    num_layers: int,
    weighted: bool,
    directed: bool,
) -> None:
    rng = np.random.default_rng(seed)
    x, edges = rng.normal(size=(N, 5)).astype(np.float32), rng.integers(0, N, (2, 200))
    graph = as_graph(
        edges, N, edge_weight=rng.exponential(size=200) if weighted else None, directed=directed
    )
    folder = tmp_path_factory.mktemp("job")
    how = {"edge_weight": graph.weights, "num_layers": num_layers, "block_rows": block_rows}
    Job(folder, x, (graph.indptr, graph.indices), np.zeros(N, np.int64), **how)
    task = run(folder, *(f"step-{layer}" for layer in range(num_layers + 1)), "vectors")
    found = np.concatenate([*task.read_blocks("vectors", "X")])
    assert_array_equal(found, cfe.ks_vectors(x, graph, num_layers))


def test_weights_in_sparse_rows_must_be_positive(tmp_path: Path) -> None:
    graph = as_graph([[0, 1], [1, 2]], edge_weight=[1.0, 2.0])
    weights = graph.weights * np.array([1, 1, 0, 1], np.float32)
    Job(
        tmp_path,
        np.ones((3, 2)),
        (graph.indptr, graph.indices),
        np.zeros(3, np.int64),
        edge_weight=weights,
    )
    run(tmp_path, "step-0")
    with pytest.raises(ValueError, match="weights must be positive and finite, which those"):
        run(tmp_path, "step-1")
