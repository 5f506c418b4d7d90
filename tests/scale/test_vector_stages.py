"""KS vectors by blocks of nodes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import cfe_faiss as cfe
from cfe_faiss import _native
from cfe_faiss.graph import as_graph
from cfe_faiss.scale import Job
from cfe_faiss.scale.vector_stages import stages
from cfe_faiss.scale.work import Work

N = 50


@settings(max_examples=15)  # each writes many files
@example(seed=0, block_rows=1, num_layers=1, weighted=True, directed=False)
@given(
    seed=st.integers(0, 2**32 - 1),
    block_rows=st.integers(4, N),
    num_layers=st.integers(0, 3),
    weighted=st.booleans(),
    directed=st.booleans(),
)
def test_vectors_are_those_of_ks_vectors(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    block_rows: int,
    num_layers: int,
    weighted: bool,
    directed: bool,
) -> None:
    rng = np.random.default_rng(seed)
    x, edges = rng.normal(size=(N, 5)).astype(np.float32), rng.integers(0, N, (2, 200))
    graph = as_graph(edges, N, edge_weight=rng.exponential(size=200) if weighted else None, directed=directed)
    folder = tmp_path_factory.mktemp("job")
    how = {"edge_weight": graph.weights, "num_layers": num_layers, "block_rows": block_rows}
    Job(folder, x, (graph.indptr, graph.indices), np.zeros(N, np.int64), **how)
    work = Work.of(folder, 1 << 20)
    for stage in stages(work.settings, has_edges=False):
        for block in range(stage.blocks):
            stage.run(work, block)
    found = [work.read("vectors", block, "X") for block in range(work.settings.blocks)]
    assert_array_equal(np.concatenate(found), cfe.ks_vectors(x, graph, num_layers))


def test_weights_in_sparse_rows_must_be_positive(tmp_path: Path) -> None:
    graph = as_graph([[0, 1], [1, 2]], edge_weight=[1.0, 2.0])
    weights = graph.weights * np.array([1, 1, 0, 1], np.float32)
    Job(tmp_path, np.ones((3, 2)), (graph.indptr, graph.indices), np.zeros(3, np.int64), edge_weight=weights)
    work = Work.of(tmp_path, 1 << 20)
    first, second = stages(work.settings, has_edges=False)[:2]
    first.run(work, 0)
    with pytest.raises(ValueError, match="weights must be positive and finite, which those for node 1 are not"):
        second.run(work, 0)


def test_a_step_needs_a_weight_for_each_edge() -> None:
    graph, own = as_graph([[0, 1], [1, 2]]), np.ones((3, 2), np.float32)
    with pytest.raises(ValueError, match="weights must have length 4, got 3"):
        _native.BlockStep(graph.indptr, graph.indices, 0, own, 3, 1, np.ones(3, np.float32))
