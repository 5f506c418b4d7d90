"""From edges on disk to neighbours of blocks of nodes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from cfe_faiss.graph import as_graph
from cfe_faiss.scale import Job
from cfe_faiss.scale.graph_stages import edge_blocks, merge_edges, neighbors_of, sort_edges
from cfe_faiss.scale.work import Work

N = 60


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 400),
    directed=st.booleans(),
    block_rows=st.integers(1, N),
    memory=st.sampled_from([1, 1000, 1 << 30]),
    weighted=st.booleans(),
)
def test_neighbours_are_those_of_a_graph_in_memory(
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
    work = Work.of(folder, memory)
    parts = edge_blocks(edges, weighted)
    for part in range(parts):
        sort_edges(work, part)
    expected = as_graph(edges, N, directed=directed, edge_weight=weights)
    found, found_weights = [], []
    for block in range(work.settings.blocks):
        merge_edges(work, block, parts)
        first, stop = work.settings.rows(block)
        indptr, indices, of_block = neighbors_of(work, block)
        np.testing.assert_array_equal(indptr, expected.indptr[first : stop + 1] - expected.indptr[first])
        found.append(indices)
        found_weights.append(of_block)
    np.testing.assert_array_equal(np.concatenate(found), expected.indices)
    if weighted:
        np.testing.assert_array_equal(np.concatenate(found_weights), expected.weights)
    else:
        assert found_weights == [None] * len(found)


def weights_of(rng: np.random.Generator, count: int) -> NDArray[np.float32]:
    """Return weights whose float64 sums depend on their order, some of them 0."""
    return np.where(rng.random(count) < 0.1, 0.0, 10 ** rng.uniform(-12, 12, count)).astype(np.float32)


@pytest.mark.parametrize("weighted", [False, True])
def test_edges_in_several_parts_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weighted: bool) -> None:
    monkeypatch.setattr("cfe_faiss.scale.graph_stages.EDGES_PER_BLOCK", 100)
    monkeypatch.setattr("cfe_faiss.scale.graph_stages._EDGES_AT_ONCE", 30)
    rng = np.random.default_rng(0)
    edges = rng.integers(0, N // 2, (2, 1050))
    weights = weights_of(rng, 1050) if weighted else None
    Job(tmp_path, rng.normal(size=(N, 2)), edges, np.zeros(N, np.int64), block_rows=N, edge_weight=weights)
    work, parts = Work.of(tmp_path, 5000), 21 if weighted else 11
    assert edge_blocks(edges, weighted) == parts
    for part in range(parts):
        sort_edges(work, part)
    merge_edges(work, 0, parts)
    indptr, indices, found = neighbors_of(work, 0)
    expected = as_graph(edges, N, edge_weight=weights)
    np.testing.assert_array_equal(indptr, expected.indptr)
    np.testing.assert_array_equal(indices, expected.indices)
    np.testing.assert_array_equal(found, expected.weights)


def test_edges_beyond_the_nodes_are_refused(tmp_path: Path) -> None:
    Job(tmp_path, np.ones((3, 2)), np.array([[0, 1], [1, 3]]), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match=r"edges must lie in 0\.\.2, got 0 to 3 in edges 0 and on"):
        sort_edges(Work.of(tmp_path, 1000), 0)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf, 1e-50])
def test_weights_that_are_none_are_refused(tmp_path: Path, wrong: float) -> None:
    edges = np.array([[0, 1], [1, 2]])
    Job(tmp_path, np.ones((3, 2)), edges, np.zeros(3, np.int64), edge_weight=[1.0, wrong])
    with pytest.raises(ValueError, match=rf"edge_weight must be 0 or positive, and finite, .*got {wrong} in edge 1"):
        sort_edges(Work.of(tmp_path, 1000), 0)


def test_weights_that_are_too_large_together_are_refused(tmp_path: Path) -> None:
    edges = np.array([[0, 0], [2, 2]])
    Job(tmp_path, np.ones((3, 2)), edges, np.zeros(3, np.int64), edge_weight=[3e38, 3e38])
    work = Work.of(tmp_path, 1000)
    sort_edges(work, 0)
    with pytest.raises(
        ValueError, match=r"finite in float32 when .* are summed, got more for the edges between 2 and 0"
    ):
        merge_edges(work, 0, 1)
