"""From edges on disk to neighbours of blocks of nodes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
)
def test_neighbours_are_those_of_a_graph_in_memory(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, directed: bool, block_rows: int, memory: int
) -> None:
    rng = np.random.default_rng(seed)
    # Half of all edges end in one node, so that its keys alone are more than a small memory allows.
    edges = np.where(rng.random((2, count)) < 0.25, 7, rng.integers(0, N, (2, count)))
    folder = tmp_path_factory.mktemp("job")
    Job(folder, rng.normal(size=(N, 2)), edges, np.zeros(N, np.int64), directed=directed, block_rows=block_rows)
    work = Work.of(folder, memory)
    parts = edge_blocks(edges)
    for part in range(parts):
        sort_edges(work, part)
    expected = as_graph(edges, N, directed=directed)
    found = []
    for block in range(work.settings.blocks):
        merge_edges(work, block, parts)
        first, stop = work.settings.rows(block)
        indptr, indices = neighbors_of(work, block)
        np.testing.assert_array_equal(indptr, expected.indptr[first : stop + 1] - expected.indptr[first])
        found.append(indices)
    np.testing.assert_array_equal(np.concatenate(found), expected.indices)


def test_edges_in_several_parts_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cfe_faiss.scale.graph_stages.EDGES_PER_BLOCK", 100)
    monkeypatch.setattr("cfe_faiss.scale.graph_stages._EDGES_AT_ONCE", 30)
    rng = np.random.default_rng(0)
    edges = rng.integers(0, N, (2, 1050))
    Job(tmp_path, rng.normal(size=(N, 2)), edges, np.zeros(N, np.int64), block_rows=N)
    work = Work.of(tmp_path, 5000)
    assert edge_blocks(edges) == 11
    for part in range(11):
        sort_edges(work, part)
    merge_edges(work, 0, 11)
    indptr, indices = neighbors_of(work, 0)
    expected = as_graph(edges, N)
    np.testing.assert_array_equal(indptr, expected.indptr)
    np.testing.assert_array_equal(indices, expected.indices)


def test_edges_beyond_the_nodes_are_refused(tmp_path: Path) -> None:
    Job(tmp_path, np.ones((3, 2)), np.array([[0, 1], [1, 3]]), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match=r"edges must lie in 0\.\.2, got 0 to 3 in edges 0 and on"):
        sort_edges(Work.of(tmp_path, 1000), 0)
