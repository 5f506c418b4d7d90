import warnings
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import weight_matrix

from cfe_faiss.base.extras import extra
from cfe_faiss.graph import Graph, as_graph
from cfe_faiss.graph.csr import parts_for_the_model

with extra("gnn"):
    from torch_geometric import EdgeIndex
    from torch_geometric.data import Data
    from torch_geometric.transforms import ToSparseTensor

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


class SparseTensor:
    """As much of torch_sparse.SparseTensor as a graph is read by: that package has to be compiled for each torch."""

    def __init__(self, rows, columns, values, shape):
        order = np.lexsort((columns, rows))
        counts = np.bincount(rows, minlength=shape[0])
        self._csr = (
            torch.from_numpy(np.append(0, np.cumsum(counts))),
            torch.from_numpy(columns[order]),
        )
        self._values = None if values is None else torch.as_tensor(values)[torch.from_numpy(order)]
        self._shape = shape

    def csr(self):
        return *self._csr, self._values

    def sparse_sizes(self):
        return self._shape


def adj_t(layout, edges=MESSY, values=None, n=6):
    """Return a matrix as PyG transposes it: rows are targets."""
    values = torch.ones(edges.shape[1]) if values is None else torch.as_tensor(values)
    matrix = torch.sparse_coo_tensor(
        torch.from_numpy(edges[::-1].copy()),
        values,
        (n, n, *values.shape[1:]),
        check_invariants=True,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CS. tensor support is in beta")
        return {"coo": lambda: matrix, "csr": matrix.to_sparse_csr, "csc": matrix.to_sparse_csc}[
            layout
        ]()


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
    **{f"adj_t {layout}": adj_t(layout) for layout in ("coo", "csr", "csc")},
    "SparseTensor": SparseTensor(MESSY[1], MESSY[0], None, (6, 6)),
    "data with adj_t": Data(adj_t=adj_t("csr")),
    "data with SciPy": SimpleNamespace(edge_index=sparse("csr"), num_nodes=6),
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
    for v in (-1, 6):
        with pytest.raises(ValueError, match=rf"v must lie in 0\.\.5, got {v}"):
            graph.neighbors(v)


edge_lists = st.integers(2, 12).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=40
        ).filter(lambda edges: any(s != t for s, t in edges)),
    )
)


@given(edge_lists, st.booleans())
def test_neighbors_match_the_edge_list(edges, directed):
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
            assert_array_equal(graph.indptr, expected.indptr)
            assert_array_equal(graph.indices, expected.indices)
        assert graph.num_edges > 2**20 / 2


@pytest.mark.parametrize(
    ("graph", "num_nodes", "error", "message"),
    [
        ([[0, 1, 5], [1, 2, 0]], 4, ValueError, r"edge_index must lie in 0\.\.3, got 5 in edge 2"),
        ([[0, 1], [1, -3]], None, ValueError, r"edge_index must lie in .*, got -3 in edge 1"),
        ([[0, 1], [1, -3]], 2, ValueError, r"edge_index must lie in 0\.\.1, got -3 in edge 1"),
        (np.zeros((5, 3), dtype=int), None, ValueError, r"edge_index .*got \(5, 3\)"),
        (np.zeros(4, dtype=int), None, ValueError, r"edge_index .*got \(4,\)"),
        ([[0, 1], [1]], None, ValueError, "edge_index must be a rectangular array"),
        ([[0.0, 1.0], [1.0, 2.0]], None, TypeError, "edge_index .*got dtype float64"),
        ([[True], [False]], None, TypeError, "edge_index must hold integers, got dtype bool"),
        ([["a"], ["b"]], None, TypeError, "edge_index must be an array of real numbers"),
        ([[], []], None, ValueError, "edge_index must hold at least one edge, or num_nodes"),
        ([[0], [2**31]], None, ValueError, "graph must have at most 2147483646 nodes"),
        ([[0], [1]], 0, ValueError, "num_nodes must be at least 1"),
        ([[0], [1]], 2.5, TypeError, "num_nodes must be an integer"),
        (scipy.sparse.csr_array((2, 3)), None, ValueError, r"graph .*got shape \(2, 3\)"),
        (sparse("csr"), 5, ValueError, "graph must have 5 nodes, got 6"),
        (networkx(directed=True), 7, ValueError, "graph must have 7 nodes, got 6"),
        (as_graph(MESSY), 7, ValueError, "graph must have 7 nodes, got 6"),
        (nx.Graph(), None, ValueError, "graph .*got an empty NetworkX graph"),
        (torch.zeros(0, 0).to_sparse(), None, ValueError, "graph must have at least one node,"),
        (torch.ones(2, 3).to_sparse(), None, ValueError, r"graph .*got .*\(2, 3\)"),
        (adj_t("csr"), 5, ValueError, "graph must have 5 nodes, got 6"),
        (torch.eye(4).to_sparse_bsr((2, 2)), None, TypeError, r"COO, .*got torch\.sparse_bsr"),
        (Data(x=torch.ones(2, 1)), None, ValueError, "graph .*got Data without either"),
        (None, None, TypeError, "edge_index must be an array of real numbers"),
    ],
)
def test_faults_are_named(graph, num_nodes, error, message):
    with pytest.raises(error, match=message):
        as_graph(graph, num_nodes)


@pytest.mark.parametrize(
    "graph",
    [
        np.empty((2, 0), np.int64),
        torch.empty((2, 0)),
        [[], []],
        [[0, 2], [0, 2]],
        scipy.sparse.csr_array((3, 3)),
        torch.zeros(3, 3).to_sparse(),
        nx.empty_graph(3),
        Data(edge_index=torch.empty((2, 0), dtype=torch.long), num_nodes=3),
    ],
)
@pytest.mark.parametrize("directed", [False, True])
def test_graphs_without_edges(graph, directed):
    found = as_graph(graph, 3, directed=directed)
    assert (found.num_nodes, found.num_edges, neighbor_lists(found)) == (3, 0, [[], [], []])
    assert found.undirected().num_edges == 0


def test_a_broken_csr_matrix_is_refused():
    matrix = scipy.sparse.csr_array(([1.0], [1], [0, 1, 1]), shape=(2, 2))
    matrix.indices[0] = 9
    with pytest.raises(ValueError, match="graph must be a valid CSR matrix"):
        as_graph(matrix)


@pytest.mark.parametrize(
    ("indptr", "indices", "error", "message"),
    [
        (np.array([0, 1], dtype=np.int32), np.zeros(1, np.int32), TypeError, "indptr must"),
        (np.array([0, 1]), np.zeros(1, np.int64), TypeError, "indices must be an array of int32"),
        ([0, 1], np.zeros(1, np.int32), TypeError, "indptr must be an array of int64"),
        (np.array([[0, 1]]), np.zeros(1, np.int32), ValueError, "indptr must be one-dimensional"),
        (np.array([0, 2]), np.zeros(1, np.int32), ValueError, "indptr must run from 0 to 1"),
        (np.array([0, 2, 1]), np.zeros(1, np.int32), ValueError, "indptr must not decrease"),
        (np.array([0, 1]), np.ones(1, np.int32), ValueError, r"indices .*got 1\.\.1"),
        (np.array([0, 1]), np.full(1, -1, np.int32), ValueError, r"indices .*got -1\.\.-1"),
        (np.array([0, 0, 2]), np.array([1, 2], np.int32), ValueError, "indices must lie in .* got"),
        (np.array([0, 0, 1]), np.array([1], np.int32), ValueError, "ascend .* without the node"),
        (np.array([0, 2, 2, 2]), np.array([2, 1], np.int32), ValueError, r"ascend .*, got \[2 1\]"),
        (np.array([0, 2, 2, 2]), np.array([1, 1], np.int32), ValueError, r"ascend .*, got \[1 1\]"),
    ],
)
def test_a_broken_graph_is_refused(indptr, indices, error, message):
    with pytest.raises(error, match=message):
        Graph(indptr, indices)


# --- weights ---

# beside MESSY; 3 -> 5 is there twice, and both ways
WEIGHTS = np.array([1, 2, 4, 8, 0.5, 1, 0.25, 3])


def weights_of(graph):
    """Return W of tests/reference.py."""
    W = np.zeros((graph.num_nodes, graph.num_nodes))
    W[np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr)), graph.indices] = graph.weights
    return W


def test_weights_of_repeated_edges_are_summed_and_of_two_directions_averaged():
    graph = as_graph(MESSY, edge_weight=WEIGHTS)
    assert graph.weights.dtype == np.float32
    found = [graph.weights[graph.indptr[v] : graph.indptr[v + 1]].tolist() for v in range(6)]
    assert found == [[1, 2], [1, 2.25], [2], [2.25, 2.125], [], [2.125]]
    into = as_graph(MESSY, edge_weight=WEIGHTS, directed=True)
    found = [into.weights[into.indptr[v] : into.indptr[v + 1]].tolist() for v in range(6)]
    assert found == [[2], [1, 0.5], [], [4, 3], [], [1.25]]
    assert as_graph(MESSY).weights is None


def weighted_forms():
    matrix = scipy.sparse.coo_array((WEIGHTS, tuple(MESSY)), shape=(6, 6))
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(6))
    graph.add_weighted_edges_from(
        (*edge, weight) for edge, weight in zip(MESSY.T.tolist(), WEIGHTS, strict=True)
    )
    edges, weights = torch.from_numpy(MESSY), torch.from_numpy(WEIGHTS)
    data = Data(edge_index=edges, edge_weight=weights, num_nodes=6)
    return {
        "coo": matrix,
        "csr": matrix.tocsr(),
        "csc": matrix.tocsc(),
        **{f"adj_t {layout}": adj_t(layout, values=WEIGHTS) for layout in ("coo", "csr", "csc")},
        "half": adj_t("csr", values=WEIGHTS.astype(np.float16)),
        "SparseTensor": SparseTensor(MESSY[1], MESSY[0], WEIGHTS, (6, 6)),
        "networkx": graph,
        "data": data,
        "data with adj_t": Data(adj_t=adj_t("csr", values=WEIGHTS)),
        "data with both": Data(edge_index=edges, adj_t=adj_t("coo", values=WEIGHTS), num_nodes=6),
        "PyG's transform": ToSparseTensor(layout=torch.sparse_csr)(data.clone()),
        "data with SciPy": SimpleNamespace(edge_index=matrix, num_nodes=6),
    }


@pytest.mark.filterwarnings(
    "ignore:Sparse CS. tensor support is in beta", "ignore:Sparse invariant checks"
)
@pytest.mark.parametrize("directed", [False, True])
def test_weights_that_graphs_hold_count_when_they_are_asked_for(directed):
    expected = as_graph(MESSY, edge_weight=WEIGHTS, directed=directed)
    for name, form in weighted_forms().items():
        graph = as_graph(form, edge_weight=True, directed=directed)
        assert_array_equal(graph.indices, expected.indices, err_msg=name)
        assert_array_equal(graph.weights, expected.weights, err_msg=name)
        for unasked in (None, False):
            assert as_graph(form, edge_weight=unasked, directed=directed).weights is None


@given(edge_lists, st.booleans(), st.integers(0, 2**32 - 1))
def test_weights_match_the_edge_list(edges, directed, seed):
    n, pairs = edges
    ends = np.array(pairs).T
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 5, len(pairs)) / 4
    graph = as_graph(ends, n, edge_weight=weights, directed=directed)
    assert_array_equal(weights_of(graph), weight_matrix(n, ends, weights, directed=directed))
    assert (graph.weights > 0).all()
    order = rng.permutation(len(pairs))
    again = as_graph(ends[:, order], n, edge_weight=weights[order], directed=directed)
    assert_array_equal(again.weights, graph.weights)


@pytest.mark.parametrize("directed", [False, True])
def test_sums_of_weights_do_not_depend_on_the_order_of_repeated_edges(directed):
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 3, (2, 2000))
    weights = rng.exponential(size=2000) * 10.0 ** rng.integers(-9, 9, 2000)
    graph = as_graph(ends, edge_weight=weights, directed=directed)
    order = rng.permutation(2000)
    again = as_graph(ends[:, order], edge_weight=weights[order], directed=directed)
    assert_array_equal(again.weights, graph.weights)


@pytest.mark.parametrize("repeats", [255, 256, 257, 512])
def test_an_edge_counts_once_however_often_it_is_repeated(repeats):
    graph = as_graph([[0] * repeats + [1], [1] * repeats + [2]])
    assert graph.indices.tolist() == [1, 0, 2, 1]


def test_a_graph_keeps_its_weights_unless_they_are_refused():
    graph = as_graph(MESSY, edge_weight=WEIGHTS)
    assert as_graph(graph) is as_graph(graph, edge_weight=True) is graph
    assert as_graph(graph, edge_weight=False).weights is None
    plain = as_graph(MESSY)
    assert as_graph(plain, edge_weight=False) is plain


def test_edges_in_both_directions():
    directed = as_graph(MESSY, edge_weight=WEIGHTS, directed=True)
    assert directed.directed
    assert neighbor_lists(directed.undirected()) == NEIGHBORS
    assert directed.undirected().weights is None
    assert not directed.undirected().directed
    graph = as_graph(MESSY)
    assert graph.undirected() is graph


def test_values_of_several_numbers_are_no_weights():
    values = torch.ones(8, 2)
    for form in (adj_t("coo", values=values), SparseTensor(MESSY[1], MESSY[0], values, (6, 6))):
        assert neighbor_lists(as_graph(form, directed=True)) == SOURCES
        with pytest.raises(ValueError, match=r"graph .*got values of shape \(8, 2\)"):
            as_graph(form, edge_weight=True)


@pytest.mark.parametrize(
    ("graph", "edge_weight", "message"),
    [
        (sparse("csr"), np.ones(7), "edge_weight must be True or False for a sparse matrix,"),
        (adj_t("csr"), [1.0], "edge_weight must be True or False for a sparse matrix, .* got list"),
        (nx.path_graph(3), [1.0, 2.0], "edge_weight must be True or False for a NetworkX graph"),
        (as_graph(MESSY), WEIGHTS, "edge_weight must be left out for a Graph"),
        (as_graph(MESSY), True, "edge_weight must be left out for a Graph without weights"),
        (MESSY, True, "edge_weight=True needs a graph that holds weights"),
        (Data(edge_index=torch.from_numpy(MESSY), num_nodes=6), True, "needs edge_weight or adj_t"),
        (Data(adj_t=adj_t("csr"), edge_weight=torch.ones(8)), True, "needs .*got Data with edge_w"),
        (-sparse("csr"), True, r"the weights of graph must be 0 or positive, .* got -2\.5 in edge"),
        (adj_t("coo", values=-WEIGHTS), True, "the weights of graph must be 0 or positive"),
    ],
)
def test_wrong_weights_are_named(graph, edge_weight, message):
    with pytest.raises(ValueError, match=message):
        as_graph(graph, edge_weight=edge_weight)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        *(
            (np.array(pair, np.float32), ValueError, "weights must be positive and finite")
            for pair in ([1, -1], [0, 1], [np.nan, 1], [1, np.inf])
        ),
        (np.ones(1, np.float32), ValueError, "weights must have length 2, got 1"),
        (np.ones(2), TypeError, "weights must be an array of float32"),
        (np.ones((2, 1), np.float32), ValueError, "weights must be one-dimensional"),
    ],
)
def test_wrong_weights_of_a_graph_are_refused(weights, error, message):
    with pytest.raises(error, match=message):
        Graph(np.array([0, 1, 2]), np.array([1, 0], np.int32), weights)


def test_what_is_for_the_model_only():
    edges = torch.from_numpy(MESSY)
    assert parts_for_the_model(Data(edge_index=edges)) == ()
    expected = ("edge_weight", "edge_attr")
    assert parts_for_the_model(Data(edge_index=edges, edge_weight=1, edge_attr=1)) == expected
    assert parts_for_the_model(Data(adj_t=adj_t("csr", np.unique(MESSY, axis=1)))) == ()
    assert parts_for_the_model(Data(adj_t=adj_t("csr", values=WEIGHTS))) == ("values of adj_t",)
    assert parts_for_the_model(SimpleNamespace(edge_index=sparse("csr"))) == (
        "values of edge_index",
    )
