from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfe_faiss.extras import extra
from cfe_faiss.graph import Graph, as_graph

with extra("gnn"):
    from torch_geometric import EdgeIndex
    from torch_geometric.data import Data

# 0 - 1, 0 - 2, 1 - 3, 3 - 5; node 4 stands alone. With a self-loop, a duplicate and both directions of an edge.
MESSY = np.array([[0, 2, 1, 2, 3, 3, 3, 5], [1, 0, 3, 2, 1, 5, 5, 3]])
NEIGHBORS = [[1, 2], [0, 3], [0], [1, 5], [], [3]]
SOURCES = [[2], [0, 3], [], [1, 5], [], [3]]


def neighbor_lists(graph):
    return [graph.neighbors(v).tolist() for v in range(graph.num_nodes)]


def sparse(kind):
    matrix = np.zeros((6, 6))
    matrix[MESSY[0], MESSY[1]] = 2.5
    return getattr(scipy.sparse, f"{kind}_array")(matrix)


def networkx(directed):
    graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    graph.add_nodes_from("abcdef")
    graph.add_edges_from(("abcdef"[s], "abcdef"[t]) for s, t in MESSY.T)
    return graph


FORMS = {
    "array": MESSY,
    "lists": MESSY.tolist(),
    "int32": MESSY.astype(np.int32),
    "uint8": MESSY.astype(np.uint8),
    "uint64": MESSY.astype(np.uint64),
    "transposed": np.ascontiguousarray(MESSY.T).T,
    "strided": np.repeat(MESSY, 2, axis=1)[:, ::2],
    "tensor": torch.from_numpy(MESSY),
    "EdgeIndex": EdgeIndex(torch.from_numpy(MESSY)),
    "data": Data(edge_index=torch.from_numpy(MESSY), num_nodes=6),
    "like data": SimpleNamespace(edge_index=MESSY, num_nodes=6),
    "networkx": networkx(directed=True),
    **{kind: sparse(kind) for kind in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")},
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_gives_the_same_graph(form):
    for num_nodes in (None, 6):
        graph = as_graph(form, num_nodes)
        assert neighbor_lists(graph) == NEIGHBORS
        assert neighbor_lists(as_graph(form, num_nodes, directed=True)) == SOURCES
    assert (graph.num_nodes, graph.num_edges) == (6, 8)
    assert (graph.indptr.dtype, graph.indices.dtype) == (np.int64, np.int32)
    assert as_graph(graph) is graph
    assert as_graph(graph, 6) is graph


def test_undirected_networkx_graph_stays_undirected():
    graph = networkx(directed=False)
    assert neighbor_lists(as_graph(graph)) == NEIGHBORS
    assert neighbor_lists(as_graph(graph, directed=True)) == NEIGHBORS


def test_networkx_nodes_are_numbered_in_their_own_order():
    graph = nx.DiGraph()
    graph.add_nodes_from([7, "x", 3])
    graph.add_edge(3, 7)
    assert neighbor_lists(as_graph(graph, directed=True)) == [[2], [], []]


def test_a_stored_zero_is_no_edge():
    matrix = scipy.sparse.csr_array(([1.0, 0.0], [1, 2], [0, 2, 2, 2]), shape=(3, 3))
    assert neighbor_lists(as_graph(matrix)) == [[1], [0], []]


edge_lists = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=40).filter(
            lambda edges: any(s != t for s, t in edges)
        ),
    )
)


@given(edge_lists, st.booleans())
def test_neighbors_are_those_of_the_edge_list(edges, directed):
    n, pairs = edges
    expected = [set() for _ in range(n)]
    for source, target in pairs:
        if source != target:
            expected[target].add(source)
            if not directed:
                expected[source].add(target)
    graph = as_graph(np.array(pairs).T, n, directed=directed)
    assert neighbor_lists(graph) == [sorted(neighbors) for neighbors in expected]


def test_more_edges_than_one_block():
    rng = np.random.default_rng(0)
    n = 1500
    edges = rng.integers(0, n, (2, 1_500_000))
    dense = np.zeros((n, n), dtype=bool)
    dense[edges[1], edges[0]] = True
    np.fill_diagonal(dense, False)
    for expected, directed in ((dense, True), (dense | dense.T, False)):
        expected = scipy.sparse.csr_array(expected)
        for form in (edges, scipy.sparse.csr_array(dense.T)):
            graph = as_graph(form, directed=directed)
            np.testing.assert_array_equal(graph.indptr, expected.indptr)
            np.testing.assert_array_equal(graph.indices, expected.indices)
        assert graph.num_edges > 2**20 / 2


def test_the_input_is_left_alone():
    edges = MESSY.copy()
    edges.flags.writeable = False
    as_graph(edges)
    matrix = sparse("coo")
    before = matrix.data.copy(), matrix.row.copy(), matrix.col.copy()
    as_graph(matrix)
    for now, then in zip((matrix.data, matrix.row, matrix.col), before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize(
    ("graph", "num_nodes", "error", "message"),
    [
        ([[0, 1, 5], [1, 2, 0]], 4, ValueError, r"edge_index must lie in 0\.\.3, got 5 in edge 2"),
        ([[0, 1], [1, -3]], None, ValueError, r"edge_index must lie in .*, got -3 in edge 1"),
        ([[0, 1], [1, -3]], 2, ValueError, r"edge_index must lie in 0\.\.1, got -3 in edge 1"),
        (np.zeros((5, 3), dtype=int), None, ValueError, r"edge_index must have shape \(2, E\), got \(5, 3\)"),
        (np.zeros(4, dtype=int), None, ValueError, r"edge_index must have shape \(2, E\), got \(4,\)"),
        ([[0, 1], [1]], None, ValueError, "edge_index must be a rectangular array"),
        ([[0.0, 1.0], [1.0, 2.0]], None, TypeError, "edge_index must hold integers, got dtype float64"),
        ([[True], [False]], None, TypeError, "edge_index must hold integers, got dtype bool"),
        ([["a"], ["b"]], None, TypeError, "edge_index must be an array of real numbers"),
        ([[], []], None, ValueError, "edge_index must hold at least one edge"),
        (np.zeros((2, 0), dtype=int), 3, ValueError, "edge_index must hold at least one edge"),
        ([[0, 1], [0, 1]], 3, ValueError, "at least one edge between two different nodes, got none for 3 nodes"),
        ([[0], [2**31]], None, ValueError, "graph must have at most 2147483646 nodes"),
        ([[0], [1]], 0, ValueError, "num_nodes must be at least 1"),
        ([[0], [1]], 2.5, TypeError, "num_nodes must be an integer"),
        (scipy.sparse.csr_array((2, 3)), None, ValueError, r"graph must be a square sparse matrix, got shape \(2, 3\)"),
        (scipy.sparse.csr_array((3, 3)), None, ValueError, "at least one edge between two different nodes"),
        (sparse("csr"), 5, ValueError, "graph must have 5 nodes, got 6"),
        (networkx(directed=True), 7, ValueError, "graph must have 7 nodes, got 6"),
        (as_graph(MESSY), 7, ValueError, "graph must have 7 nodes, got 6"),
        (nx.empty_graph(3), None, ValueError, "edge_index must hold at least one edge"),
        (nx.Graph(), None, ValueError, "edge_index must hold at least one edge"),
        (Data(x=torch.ones(2, 1)), None, ValueError, "graph must have an edge_index, got None in Data"),
        (None, None, TypeError, "edge_index must be an array of real numbers"),
    ],
)
def test_faults_are_named(graph, num_nodes, error, message):
    with pytest.raises(error, match=message):
        as_graph(graph, num_nodes)


def test_a_broken_csr_matrix_is_refused():
    matrix = scipy.sparse.csr_array(([1.0], [1], [0, 1, 1]), shape=(2, 2))
    matrix.indices[0] = 9
    with pytest.raises(ValueError, match=r"graph must have column indices in 0\.\.1"):
        as_graph(matrix)


@pytest.mark.parametrize(
    ("indptr", "indices", "error", "message"),
    [
        (np.array([0, 1], dtype=np.int32), np.zeros(1, np.int32), TypeError, "indptr must be an array of int64"),
        (np.array([0, 1]), np.zeros(1, np.int64), TypeError, "indices must be an array of int32"),
        ([0, 1], np.zeros(1, np.int32), TypeError, "indptr must be an array of int64"),
        (np.array([[0, 1]]), np.zeros(1, np.int32), ValueError, "indptr must be one-dimensional"),
        (np.array([0, 2]), np.zeros(1, np.int32), ValueError, "indptr must run from 0 to 1"),
        (np.array([0, 2, 1]), np.zeros(1, np.int32), ValueError, "indptr must not decrease"),
        (np.array([0, 1]), np.ones(1, np.int32), ValueError, r"indices must lie in 0\.\.0, got 1\.\.1"),
        (np.array([0, 1]), np.full(1, -1, np.int32), ValueError, r"indices must lie in 0\.\.0, got -1\.\.-1"),
        (np.array([0, 0, 2]), np.array([1, 2], np.int32), ValueError, r"indices must lie in .* got 1\.\.2 for node 1"),
        (np.array([0, 0, 1]), np.array([1], np.int32), ValueError, r"must ascend .* without the node itself.* node 1"),
        (np.array([0, 2, 2, 2]), np.array([2, 1], np.int32), ValueError, r"must ascend .*, got \[2 1\] for node 0"),
        (np.array([0, 2, 2, 2]), np.array([1, 1], np.int32), ValueError, r"must ascend .*, got \[1 1\] for node 0"),
    ],
)
def test_a_broken_graph_is_refused(indptr, indices, error, message):
    with pytest.raises(error, match=message):
        Graph(indptr, indices)


def test_the_arrays_may_be_memory_maps(tmp_path):
    graph = as_graph(MESSY)
    for name in ("indptr", "indices"):
        np.save(tmp_path / f"{name}.npy", getattr(graph, name))
    mapped = Graph(*(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("indptr", "indices")))
    assert neighbor_lists(mapped) == NEIGHBORS


@pytest.mark.parametrize("v", [-1, 6])
def test_neighbors_of_no_node(v):
    with pytest.raises(ValueError, match=rf"v must lie in 0\.\.5, got {v}"):
        as_graph(MESSY).neighbors(v)
