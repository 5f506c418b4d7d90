"""Evidence of whole graphs: vectors, WL colours, models, attributes, errors."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import cosine
from torch_geometric.data import Batch, Data
from torch_geometric.datasets import ExplainerDataset, FakeDataset
from torch_geometric.datasets.graph_generator import BAGraph
from torch_geometric.datasets.motif_generator import CycleMotif, HouseMotif
from torch_geometric.nn import GCNConv, global_add_pool
from torch_geometric.utils import to_networkx

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.graph import as_graph
from cfe_faiss.graph.whole import wl_vectors


def drawn(seed, count=12, features=3):
    """Return graphs of 1 to 9 nodes, and the class of each."""
    rng = np.random.default_rng(seed)
    graphs = []
    for _ in range(count):
        n = int(rng.integers(1, 10))
        edges = torch.from_numpy(rng.integers(0, n, (2, int(rng.integers(0, 2 * n)))))
        x = torch.from_numpy(rng.normal(size=(n, features)).astype(np.float32))
        graphs.append(Data(x=x, edge_index=edges))
    return graphs, rng.integers(0, 2, count)


@given(st.integers(0, 10**6), st.integers(0, 4), st.booleans())
def test_vectors_are_sums_of_ks_vectors(seed, num_layers, directed):
    graphs, labels = drawn(seed)
    finder = cfe.EvidenceFinder.from_graphs(
        graphs, labels, num_layers=num_layers, directed=directed
    )
    options = {"num_layers": num_layers, "directed": directed}
    vectors = [cfe.ks_vectors(one.x, one.edge_index, **options) for one in graphs]
    sums = np.array([rows.sum(axis=0) for rows in vectors])
    expected = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    np.testing.assert_allclose(finder.vectors, expected, atol=1e-5)
    S = np.where(labels[:, None] != labels, cosine(finder.vectors[:, None], finder.vectors), -2)
    order = np.argsort(-S, axis=1, kind="stable")[:, :3]
    found = finder.local(k=3).evidence
    assert_array_equal(found, np.where(np.take_along_axis(S, order, axis=1) > -2, order, -1))
    assert repr(finder).startswith("EvidenceFinder(12 graphs, d=3, ")


def colours_by_hand(graph, depth):
    """Return the WL colours of every step as nested tuples, without any numbers."""
    colours = [()] * len(graph)
    steps = [colours]
    for _ in range(depth):
        colours = [(colours[v], tuple(sorted(colours[u] for u in graph[v]))) for v in graph]
        steps.append(colours)
    return steps


@given(st.integers(0, 10**6), st.integers(0, 4))
def test_wl_counts_equal_the_kernel_by_hand(seed, depth):
    rng = np.random.default_rng(seed)
    graphs = [
        nx.gnp_random_graph(int(rng.integers(1, 9)), 0.4, seed=int(rng.integers(1000)))
        for _ in range(6)
    ]
    kernel = np.zeros((6, 6))
    of_graphs = [colours_by_hand(graph, depth) for graph in graphs]
    for i, one in enumerate(of_graphs):
        for j, other in enumerate(of_graphs):
            kernel[i, j] = sum(
                a == b for here, there in zip(one, other, strict=True) for a in here for b in there
            )
    vectors = wl_vectors([as_graph(graph) for graph in graphs], depth)
    assert_array_equal(vectors @ vectors.T, kernel)
    finder = cfe.EvidenceFinder.from_graphs(graphs, [0, 1] * 3, num_layers=depth)
    lengths = np.sqrt(kernel.diagonal())
    np.testing.assert_allclose(
        finder.vectors @ finder.vectors.T, kernel / np.outer(lengths, lengths), atol=1e-5
    )


def test_colours_do_not_depend_on_the_order_of_nodes():
    graph = nx.gnp_random_graph(12, 0.3, seed=4)
    turned = nx.relabel_nodes(graph, dict(zip(range(12), np.roll(range(12), 5), strict=True)))
    a, b = wl_vectors([as_graph(graph), as_graph(turned)], 3)
    assert_array_equal(a, b)
    # the classic pair that one-dimensional WL cannot tell apart
    six, three = as_graph(nx.cycle_graph(6)), as_graph(nx.disjoint_union(*[nx.cycle_graph(3)] * 2))
    assert_array_equal(wl_vectors([six, three], 3), np.full((2, 4), 6))


class Classifier(torch.nn.Module):
    def __init__(self, d, classes, pools=True):
        super().__init__()
        self.conv = GCNConv(d, 16)
        self.head = torch.nn.Linear(16, classes)
        self.pools = pools

    def forward(self, x, edge_index, batch=None):
        h = self.conv(x, edge_index).relu()
        return self.head(global_add_pool(h, batch) if self.pools else h)


@pytest.fixture(scope="module")
def trained():
    """Return graphs of PyG's fake data set, and a classifier trained on them."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        data = FakeDataset(
            num_graphs=300, avg_num_nodes=8, avg_degree=3, num_channels=5, num_classes=3
        )
        graphs = data
        model = Classifier(5, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        batch = Batch.from_data_list(list(graphs))
        for _ in range(100):
            optimizer.zero_grad()
            logits = model(batch.x, batch.edge_index, batch.batch)
            torch.nn.functional.cross_entropy(logits, batch.y).backward()
            optimizer.step()
    return graphs, model


@pytest.mark.filterwarnings("ignore:class .* never among the others:cfe_faiss.InputWarning")
def test_a_model_of_pyg_is_called_with_batches(trained, tmp_path):
    graphs, model = trained
    finder = cfe.EvidenceFinder.from_graphs(graphs, model)
    with torch.no_grad():
        logits = [model(one.x, one.edge_index) for one in graphs]
    assert_array_equal(finder.labels, torch.cat(logits).argmax(dim=1))
    assert_array_equal(finder.truth, [int(one.y) for one in graphs])
    one_logit = cfe.EvidenceFinder.from_graphs(graphs, lambda data: data.x[data.ptr[:-1], 0])
    assert_array_equal(one_logit.labels, [int(one.x[0, 0] > 0) for one in graphs])
    names = [f"molecule {i}" for i in range(len(graphs))]
    for each in (finder, cfe.EvidenceFinder.from_graphs(graphs, model, ids=names)):
        pairs = each.top_pairs(5)
        name = each.names(pairs.source).tolist()[0]
        texts = [text.get_text() for text in pairs.plot().axes[0].texts]
        assert any(text.startswith(f"Graphs {name} and ") for text in texts)
        page = each.explore(tmp_path / "graphs.html", 10, overwrite=True)
        assert "10 pairs of graphs" in page.read_text(encoding="utf-8")
        case = str(each.case(name))
        assert case.startswith(f"{name}: decided")
        assert "nodes" in case
        assert "edges" in case
    errors = audit.error_rate_by_evidence(finder, ks=[20])
    assert errors["nodes"].iloc[0] > 0
    scores = audit.discrimination_scores(finder, k=3, columns=["nodes"])
    assert scores["nodes"].sum() == len(graphs)
    assert cfe.EvidenceFinder.from_graphs(iter(graphs), model).local(k=2).evidence.shape == (300, 2)


def test_graphs_of_pyg_without_features_are_compared_by_colours():
    motifs = [HouseMotif(), CycleMotif(6)] * 3 + [HouseMotif()]
    graphs = [
        ExplainerDataset(BAGraph(10 + i, 1), motif, num_motifs=1)[0]
        for i, motif in enumerate(motifs)
    ]
    graphs = [Data(edge_index=one.edge_index, num_nodes=one.num_nodes) for one in graphs]
    classes = ["house", "cycle"] * 3 + ["house"]
    names = [f"graph {i}" for i in range(7)]
    finder = cfe.EvidenceFinder.from_graphs(graphs, classes, ids=names)
    same = cfe.EvidenceFinder.from_graphs(
        [to_networkx(one, to_undirected=True) for one in graphs], classes, ids=names
    )
    assert_array_equal(finder.vectors, same.vectors)
    assert finder.local("graph 3", k=1).to_frame()["graph"].tolist() == ["graph 3"]
    table = finder.attributes.to_frame()
    assert table["nodes"].tolist() == [one.num_nodes for one in graphs]
    assert table["edges"].tolist() == [one.num_edges / 2 for one in graphs]


def test_a_function_of_other_graphs_gets_their_list():
    graphs = [nx.path_graph(3), nx.cycle_graph(4), nx.star_graph(3)]
    finder = cfe.EvidenceFinder.from_graphs(
        graphs, lambda listed: [nx.is_tree(one) for one in listed], features={"kind": list("aba")}
    )
    assert finder.class_names == ("False", "True")
    assert list(finder.attributes) == ["nodes", "edges", "kind"]


def test_scores_of_graphs():
    graphs, _ = drawn(1)
    finder = cfe.EvidenceFinder.from_graphs(graphs, scores=np.arange(12) / 12)
    found = finder.local([3], k=2, min_gap=0.5).evidence[0]
    assert (abs(found - 3) >= 6).all()


def test_sparse_features():
    graphs, labels = drawn(2)
    sparse = [
        SimpleNamespace(
            x=scipy.sparse.csr_array(one.x.numpy()),
            edge_index=one.edge_index,
            num_nodes=one.num_nodes,
        )
        for one in graphs
    ]
    vectors = [cfe.EvidenceFinder.from_graphs(given, labels).vectors for given in (graphs, sparse)]
    assert_array_equal(*vectors)


def of(graphs=None, model=(0, 1), **options):
    given = drawn(0, 2)[0] if graphs is None else graphs
    return cfe.EvidenceFinder.from_graphs(given, model, **options)


NO_EDGES = torch.empty(2, 0, dtype=torch.int64)
ONE = drawn(0, 1)[0][0]
BARE = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: of([]), ValueError, "graphs must hold at least one graph"),
        (lambda: of(BARE), ValueError, r"graphs\[0\] must be a graph"),
        (lambda: of(nx.path_graph(3)), ValueError, "put a single graph into a list"),
        (lambda: of(3), TypeError, "graphs must be a sequence"),
        (lambda: of([BARE, nx.Graph()]), ValueError, r"graphs\[1\]"),
        (
            lambda: of([ONE, Data(x=torch.empty(0, 3), edge_index=NO_EDGES)]),
            ValueError,
            r"graphs\[1\]",
        ),
        (lambda: of([BARE, Data(edge_index=NO_EDGES, num_nodes=0)]), ValueError, r"graphs\[1\]"),
        (lambda: of([ONE, BARE]), ValueError, r"got graphs\[1\] without x"),
        (lambda: of([ONE, drawn(0, 1, 4)[0][0]]), ValueError, r"graphs\[1\].x must have shape"),
        (
            lambda: of([ONE, BARE.clone().update({"x": torch.full((2, 3), torch.nan)})]),
            ValueError,
            r"graphs\[1\].x",
        ),
        (lambda: of(model=None), ValueError, "model or scores must be given"),
        (lambda: of(model=[0, 1, 1]), ValueError, r"classes of shape \(2,\)"),
        (lambda: of([BARE, BARE], lambda data: data), ValueError, "data must have x"),
        (lambda: of(model=Classifier(3, 2, pools=False)), ValueError, r"classes of shape \(2,\)"),
        (lambda: of(num_layers=-1), ValueError, "num_layers"),
        (lambda: of(ids=["a"]), ValueError, "ids must hold one id"),
        (lambda: of(scores=[1, 2]), ValueError, "model must be left out with scores"),
        (lambda: of().updated(predictions=[1, 1]), ValueError, "EvidenceFinder.from_graphs"),
        (lambda: of(features={"edges": [1, 2]}), ValueError, "must leave .*: edges"),
    ],
)
def test_wrong_arguments(use, error, message):
    with pytest.raises(error, match=message):
        use()


def test_an_estimator_is_refused():
    from sklearn.linear_model import LogisticRegression

    with pytest.raises(TypeError, match="model must be callable, or predictions"):
        of(model=LogisticRegression())
