from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from neighbor_loaders import all_neighbors
from numpy.testing import assert_array_equal
from reference import clustered, with_rows
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.nn.models import GCN
from torch_geometric.transforms import ToSparseTensor

import cfe_faiss as cfe
import cfe_faiss.models
from cfe_faiss.base.text import cell_text
from cfe_faiss.finder import PairEvidence
from cfe_faiss.graph import as_graph

pytestmark = pytest.mark.filterwarnings(
    "ignore:class .* never among the others:cfe_faiss.InputWarning"
)


@pytest.fixture(scope="module")
def data():
    x, y = clustered(300, 10, 3)
    edges = np.random.default_rng(0).integers(0, 300, (2, 900))
    return Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(edges), y=torch.from_numpy(y))


@pytest.fixture(scope="module")
def model(data):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GCN(10, 8, 2, 3, dropout=0.5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(30):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
            optimizer.step()
    return model


def test_local_and_pairs_equal_the_index_by_hand(data, model):
    finder = cfe.EvidenceFinder.from_data(data, model)
    with torch.no_grad():
        labels = model.eval()(data.x, data.edge_index).argmax(dim=1).numpy()
    assert_array_equal(finder.labels, labels)
    X = cfe.ks_vectors(data.x, data.edge_index, num_layers=3, alpha=0.5)
    assert_array_equal(finder.vectors, X)
    index = with_rows(cfe.IndexEvidenceIDMap2(10), X, labels)
    D, I = index.search_stored([97, 5], k=4)
    found = finder.local([97, 5], k=4)
    assert_array_equal(found.evidence, I)
    assert_array_equal(found.similarity, D)
    everything = finder.local(k=4)
    assert_array_equal(everything.nodes, np.arange(300))
    assert_array_equal(everything.evidence[97], I[0])
    pairs, expected = finder.top_pairs(k=20), cfe.global_evidence(index, 20)
    assert len(pairs) == 20
    assert_array_equal(pairs.source, expected.source)
    assert_array_equal(pairs.target, expected.target)
    per_node = finder.top_pairs(k=20, per_node=True)
    assert_array_equal(per_node.source, cfe.global_evidence(index, 20, per_node=True).source)


def test_nodes_restrict_the_search_but_not_the_vectors(data, model):
    mask = torch.zeros(300, dtype=torch.bool)
    mask[100:200] = True
    by_mask = cfe.EvidenceFinder.from_data(data, model, nodes=mask)
    by_number = cfe.EvidenceFinder.from_data(data, model, nodes=np.arange(100, 200)[::-1])
    whole = cfe.EvidenceFinder.from_data(data, model)
    assert_array_equal(by_mask.vectors, whole.vectors)
    found = by_mask.local(k=5)
    assert_array_equal(found.nodes, np.arange(100, 200))
    assert ((found.evidence >= 100) & (found.evidence < 200)).all()
    assert_array_equal(found.evidence, by_number.local(k=5).evidence)
    with pytest.raises(ValueError, match="nodes must be in the index, got 5"):
        by_mask.local([150, 5], k=1)


def test_the_index_is_the_callers_choice(data, model):
    flat = cfe.EvidenceFinder.from_data(data, model)
    for index in ("EvidenceIVF8x2,Flat", cfe.IndexEvidenceIVF(10, 8, 2)):
        ivf = cfe.EvidenceFinder.from_data(data, model, index=index)
        assert isinstance(ivf.index, cfe.IndexEvidenceIVF)
        assert_array_equal(ivf.local(k=5).evidence, flat.local(k=5).evidence)


def test_how_hard_to_search(data, model, monkeypatch):
    flat = cfe.EvidenceFinder.from_data(data, model).local(k=5)
    expected = (1.0, None, "LocalEvidence(300 nodes, k=5, exact)")
    assert (flat.recall, flat.nprobe, repr(flat)) == expected
    finder = cfe.EvidenceFinder.from_data(data, model, index="EvidenceIVF30,Flat")
    finder.index.nprobe = 1  # the index's own setting plays no part where the result is exact
    exact = finder.local(k=5)
    assert_array_equal(exact.similarity, flat.similarity)
    assert repr(finder.local([3], k=5)) == "LocalEvidence(1 node, k=5, exact)"
    few_lists = finder.local(k=5, nprobe=1)
    assert_array_equal(few_lists.similarity, finder.index.search_stored(k=5, nprobe=1)[0])
    assert (few_lists.similarity < exact.similarity).any()
    assert repr(few_lists) == "LocalEvidence(300 nodes, k=5, nprobe=1)"
    assert finder.local(k=5, exact=False).nprobe == 1
    some = finder.local(k=5, recall=0.9)
    assert_array_equal(some.similarity, finder.index.search_stored(k=5, recall=0.9)[0])
    expected = (0.9, None, "LocalEvidence(300 nodes, k=5, recall=0.9)")
    assert (some.recall, some.nprobe, repr(some)) == expected
    monkeypatch.setattr("cfe_faiss.finder.inputs.EXACT_UP_TO", 299)
    many = finder.local(k=5)
    assert (many.recall, repr(many)) == (0.99, "LocalEvidence(300 nodes, k=5, recall=0.99)")
    assert_array_equal(many.similarity, finder.index.search_stored(k=5, recall=0.99)[0])
    found = cfe.metrics.recall(many.evidence, exact.evidence, many.similarity, exact.similarity)
    assert found > 0.97


def test_recall_by_class_tells_what_was_measured(data, model):
    finder = cfe.EvidenceFinder.from_data(data, model, index="EvidenceIVF30,Flat")
    exact = dict.fromkeys(np.unique(finder.labels).tolist(), 1.0)
    for found in (
        cfe.EvidenceFinder.from_data(data, model).local(k=5),
        finder.local(k=5),
        finder.local(k=5, recall=1.0),
        finder.local(k=5, where=cfe.Constraints(min_hops=2)),
    ):
        assert found.recall_by_class == exact
    assert finder.local(k=5, nprobe=3).recall_by_class is None
    all_rows, few = finder.local(k=5, recall=0.9), finder.local([3, 4], k=5, recall=0.9)
    assert all_rows.recall_by_class == finder.index.recall_by_class(0.9, 5)
    assert few.recall_by_class == finder.index.recall_by_class(0.9, 5, queries=2)
    assert all(0.89 <= reached <= 1 for reached in all_rows.recall_by_class.values())


def test_ways_to_search_do_not_mix(data, model):
    finder = cfe.EvidenceFinder.from_data(data, model)
    with pytest.raises(ValueError, match="only one of nprobe, recall and exact may be given"):
        finder.local(recall=0.9, nprobe=4)
    with pytest.raises(ValueError, match=r"nprobe .*got nprobe=4 for IndexEvidenceIDMap2"):
        finder.local(nprobe=4)
    with pytest.raises(ValueError, match=r"recall must be above 0 .*got 1\.5"):
        finder.local(recall=1.5)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"model": [0] * 299}, ValueError, r"model .*\(300,\).*got shape \(299,\)"),
        ({"model": [0.5] * 300}, TypeError, "model .*must be integers"),
        ({"nodes": [300]}, ValueError, r"nodes must lie in 0\.\.299, got 300"),
        ({"nodes": [True] * 3}, ValueError, r"nodes .*got \(3,\)"),
        ({"nodes": []}, ValueError, "the number of nodes must be at least 1"),
        ({"index": "IVF4,Flat"}, ValueError, "description must begin with"),
        ({"index": 7}, TypeError, "index must be an evidence index or its description, got int"),
        ({"index": cfe.IndexEvidenceIDMap2(3)}, ValueError, "index must be empty and of 10"),
        ({"data": SimpleNamespace(x=np.eye(3))}, ValueError, "data must have edge_index or adj_t"),
        ({"data": Data(edge_index=torch.zeros(2, 0))}, ValueError, "data must have x, got Data"),
        ({"data": SimpleNamespace(x=None, edge_index=[[0], [1]])}, ValueError, "data must have x,"),
        ({"edge_weight": True}, ValueError, "edge_weight=True .*got Data without either"),
        ({"edge_weight": [1.0] * 3}, ValueError, r"edge_weight .*got \(3,\)"),
        ({"edge_weight": -np.ones(900)}, ValueError, "edge_weight must be 0 or positive, .*got"),
        ({"alpha": 2.0}, ValueError, "alpha must lie in"),
    ],
)
def test_bad_input_is_named(data, kwargs, error, message):
    arguments = {"data": data, "model": [0] * 300} | kwargs
    with pytest.raises(error, match=message):
        cfe.EvidenceFinder.from_data(arguments.pop("data"), arguments.pop("model"), **arguments)


def test_what_is_known_of_the_nodes(data):
    labels = np.arange(300) % 2
    finder = cfe.EvidenceFinder.from_data(data, labels)
    assert finder.attributes is None
    assert finder.class_names is None
    assert finder.truth is not None
    assert_array_equal(finder.truth, data.y)
    assert finder.graph is not None
    assert_array_equal(finder.graph.indices, as_graph(data.edge_index, 300).indices)
    named = data.clone()
    named.feature_names, named.class_names = [f"f{j}" for j in range(10)], ["a", "b", "c"]
    finder = cfe.EvidenceFinder.from_data(named, labels)
    assert finder.class_names == ("a", "b", "c")
    assert finder.attributes is not None
    assert_array_equal(finder.attributes["f3"].numbers, data.x[:, 3])
    by_hand = cfe.EvidenceFinder(finder.vectors, finder.labels, finder.index)
    assert (by_hand.graph, by_hand.attributes, by_hand.truth, by_hand.class_names) == (None,) * 4


@pytest.mark.parametrize("y", [np.zeros((300, 2), int), np.linspace(0, 1, 300)])
def test_targets_that_are_not_one_class_of_each_node_are_no_true_classes(data, y):
    plain = SimpleNamespace(x=data.x, edge_index=data.edge_index, y=y)
    assert cfe.EvidenceFinder.from_data(plain, np.arange(300) % 2).truth is None


def test_frames_with_attributes_and_true_classes(data):
    named = data.clone()
    named.class_names = ["a", "b", "c"]
    town = np.array(["x", "y", None], dtype=object)[np.arange(300) % 3]
    finder = cfe.EvidenceFinder.from_data(
        named, np.arange(300) % 2, features={"town": town, "age": np.arange(300)}
    )
    frame = finder.local([7, 4], k=2).to_frame(attributes=True)
    names = "node evidence rank similarity node_label evidence_label node_class evidence_class"
    names += " node_true evidence_true node_town evidence_town node_age evidence_age"
    assert list(frame.columns) == names.split()
    assert frame["node_age"].tolist() == frame["node"].tolist()
    assert frame["evidence_age"].tolist() == frame["evidence"].tolist()
    assert frame["node_town"].tolist() == ["y"] * 4
    expected = [town[node] for node in frame["evidence"]]
    assert frame["evidence_town"].isna().tolist() == [value is None for value in expected]
    wanted = [value for value in expected if value is not None]
    assert frame["evidence_town"].dropna().tolist() == wanted
    assert frame["node_class"].tolist() == ["b", "b", "a", "a"]
    found = frame["evidence_true"].tolist()
    assert found == [named.class_names[c] for c in data.y.numpy()[frame["evidence"]]]
    pairs = finder.top_pairs(3)
    frame = pairs.to_frame(attributes=True)
    names = "source_class target_class source_true target_true"
    names += " source_town target_town source_age target_age"
    assert list(frame.columns[5:]) == names.split()
    assert frame["target_age"].tolist() == pairs.target.tolist()


def test_similarities_in_float64(data):
    finder = cfe.EvidenceFinder.from_data(data, np.arange(300) % 2, nodes=[0, 1, 2, 3, 4])
    local = finder.local(k=4)
    exact = local.measure64()
    assert exact.dtype == np.float64
    assert_array_equal(np.isnan(exact), local.evidence < 0)
    found = local.evidence >= 0
    assert 0 < found.sum() < found.size
    np.testing.assert_allclose(exact[found], local.similarity[found], atol=1e-6)
    assert_array_equal(local.to_frame()["similarity"], exact[found])
    pairs = finder.top_pairs(3)
    answer = pairs.measure64()
    expected = cfe.ks_similarity(finder.vectors, pairs.source, pairs.target, dtype=np.float64)
    assert_array_equal(answer, expected)
    assert_array_equal(pairs.to_frame()["similarity"], pairs.measure64())


def test_texts_of_results_show_no_array_and_no_1_that_is_none():
    x = np.eye(4, dtype=np.float32)[[0, 0, 0, 1]]
    x[2, 2] = 1e-5
    data = SimpleNamespace(x=x, edge_index=[[0], [1]], y=[0, 1, 0, 1])
    finder = cfe.EvidenceFinder.from_data(data, [0, 1, 1, 0], num_layers=0)
    assert repr(finder) == (
        "EvidenceFinder(4 nodes, d=4, 2 predicted classes, IndexEvidenceIDMap2(d=4, ntotal=4), true classes)"
    )
    assert repr(finder.top_pairs(1)) == "PairEvidence(1 pair, similarity 1)"
    assert repr(finder.top_pairs(2)) == "PairEvidence(2 pairs, similarity 1 to 0.99999999995)"
    expected = "Pairs(2 pairs, similarity > 0.999999 to > 0.999999)"
    assert repr(cfe.global_evidence(finder.index, 2)) == expected
    alone = cfe.EvidenceFinder.from_data(data, [0, 0, 0, 0])
    assert repr(alone.top_pairs(2)) == "PairEvidence(0 pairs)"
    assert len(alone.top_pairs(2).to_frame()) == 0


def test_predictions_by_batches(data, model):
    whole = cfe.EvidenceFinder.from_data(data, model)
    batched = cfe.EvidenceFinder.from_data(
        data, model, loader=all_neighbors(data, 3, batch_size=40, shuffle=True)
    )
    assert_array_equal(batched.labels, whole.labels)
    assert_array_equal(batched.local(k=3).evidence, whole.local(k=3).evidence)
    with pytest.raises(ValueError, match=r"loader .*got no batch with node 0"):
        cfe.EvidenceFinder.from_data(data, model, loader=[])


WRITES, WRITTEN = ("author", "writes", "paper"), ("paper", "rev_writes", "author")


@pytest.fixture(scope="module")
def academia():
    """Return 90 authors of 60 papers."""
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["author"].x = torch.randn(90, 6, generator=generator)
    data["author"].y = torch.randint(0, 3, (90,), generator=generator)
    data["author"].class_names = ["a", "b", "c"]
    data["author"].feature_names = [f"f{i}" for i in range(6)]
    data["author"].test_mask = torch.arange(90) % 3 == 0
    data["paper"].x = torch.randn(60, 4, generator=generator)
    edges = torch.stack([torch.arange(180) % 90, torch.randint(0, 60, (180,), generator=generator)])
    data[WRITES].edge_index, data[WRITTEN].edge_index = edges, edges.flip(0)
    return data


class Academia(torch.nn.Module):
    """As in PyG's examples: layers for each edge type, outputs by node type."""

    def __init__(self, data):
        super().__init__()
        torch.manual_seed(0)
        self.first = HeteroConv({kind: SAGEConv((-1, -1), 8) for kind in data.edge_types})
        self.second = HeteroConv({kind: SAGEConv((-1, -1), 3) for kind in data.edge_types})

    def forward(self, x_dict, edge_index_dict):
        hidden = {kind: x.tanh() for kind, x in self.first(x_dict, edge_index_dict).items()}
        return self.second(hidden, edge_index_dict)


def test_one_node_type_along_a_metapath(academia):
    model = Academia(academia)
    finder = cfe.EvidenceFinder.from_data(
        academia, model, node_type="author", metapath=[WRITES, WRITTEN]
    )
    with torch.no_grad():
        expected = model(academia.x_dict, academia.edge_index_dict)["author"].argmax(dim=1).numpy()
    assert len(np.unique(expected)) == 3
    assert_array_equal(finder.labels, expected)
    graph = cfe.metapath_graph(academia, [WRITES, WRITTEN])
    assert_array_equal(finder.vectors, cfe.ks_vectors(graph.x, graph.edge_index))
    assert finder.class_names == ("a", "b", "c")
    assert_array_equal(finder.truth, academia["author"].y)
    assert list(finder.attributes) == [f"f{i}" for i in range(6)]
    weighted = cfe.EvidenceFinder.from_data(
        academia, model, metapath=[WRITES, WRITTEN], edge_weight=True
    )
    counts = cfe.metapath_graph(academia, [WRITES, WRITTEN], weighted=True)
    assert float(counts.edge_weight.max()) > 1
    assert_array_equal(weighted.vectors, cfe.ks_vectors(graph.x, counts, edge_weight=True))
    assert not np.array_equal(weighted.vectors, finder.vectors)
    same = cfe.EvidenceFinder.from_data(graph, expected)
    assert_array_equal(finder.local(k=4).evidence, same.local(k=4).evidence)


def test_choices_of_a_node_type(academia):
    model, path = Academia(academia), [("author", "paper"), ("paper", "author")]
    grades = pd.DataFrame({"grade": np.arange(90) % 4})
    masked = cfe.EvidenceFinder.from_data(
        academia, model, metapath=path, nodes=academia["author"].test_mask, features=grades
    )
    assert_array_equal(masked.index.members().ids, np.arange(0, 90, 3))
    assert list(masked.attributes) == ["grade"]
    assert masked.local(k=2, where=cfe.Constraints(exact=["grade"])).evidence.shape == (30, 2)
    loader = all_neighbors(academia, 2, input_nodes="author", batch_size=20)
    batched = cfe.EvidenceFinder.from_data(academia, model, metapath=path, loader=loader)
    assert_array_equal(batched.labels, masked.labels)
    ready = cfe.EvidenceFinder.from_data(
        academia, academia["author"].y, metapath=path, without=["f1"]
    )
    assert ready.removed.columns == ("f1",)
    assert_array_equal(ready.labels, academia["author"].y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "metapath .*got None"),
        ({"node_type": "venue", "metapath": [WRITES, WRITTEN]}, "node_type .*got 'venue'"),
        ({"node_type": "paper", "metapath": [WRITES, WRITTEN]}, "start .*got one of 'author'"),
        ({"node_type": "author", "metapath": [WRITES]}, "metapath must end at the node type"),
    ],
)
def test_node_types_and_metapaths_that_are_refused(academia, options, message):
    with pytest.raises(ValueError, match=message):
        cfe.EvidenceFinder.from_data(academia, Academia(academia), **options)


def test_graphs_of_one_node_type_have_no_metapath(data, model):
    with pytest.raises(ValueError, match=r"node_type .*got node_type='author' for Data"):
        cfe.EvidenceFinder.from_data(data, model, node_type="author")
    with pytest.raises(ValueError, match="metapath is for HeteroData, got metapath="):
        cfe.EvidenceFinder.from_data(data, model, metapath=[WRITES, WRITTEN])


@pytest.mark.filterwarnings("ignore:(no true class|class .* never among):cfe_faiss.InputWarning")
def test_frames_need_attributes_or_true_classes_which_may_have_no_names():
    x = np.eye(4, dtype=np.float32)
    plain = cfe.EvidenceFinder.from_vectors(x, [0, 1, 0, 1])
    with pytest.raises(ValueError, match="attributes=True needs a finder that knows attributes"):
        plain.top_pairs(3).to_frame(attributes=True)
    found = plain.top_pairs(3)
    by_hand = PairEvidence(found.source, found.target, found.similarity, found.labels)
    assert_array_equal(by_hand.to_frame()["similarity"], found.similarity)
    finder = cfe.EvidenceFinder.from_vectors(x, [0, 1, 0, 1], truth=[1, -1, 2, 0])
    frame = finder.top_pairs(9).to_frame(attributes=True).set_index(["source", "target"])
    assert frame.loc[(1, 2), "source_true"] is pd.NA
    assert frame.loc[(1, 2), "target_true"] == 2
    assert "source_class" not in frame


def test_shares_that_miss_the_sum_of_1_are_named(data):
    shares = np.full((len(data.x), 3), 0.33)
    message = "sums up to 0.01 from 1, so they are taken for scores"
    with pytest.warns(cfe.InputWarning, match=message):
        assert cfe.EvidenceFinder.from_data(data, shares).probabilities is None
    assert cfe.EvidenceFinder.from_data(data, shares / 0.99).probabilities is not None


# --- kinds of graphs ---

TORCH_SPARSE = pytest.mark.filterwarnings(
    "ignore:Sparse CS. tensor support is in beta", "ignore:Sparse invariant checks"
)


@pytest.fixture
def weighted(data):
    given = data.clone()
    given.edge_weight = torch.from_numpy(
        np.random.default_rng(1).exponential(size=900).astype(np.float32)
    )
    return given


def test_directed_edges_stay_directed(data, model):
    finder = cfe.EvidenceFinder.from_data(data, model, directed=True)
    assert_array_equal(finder.vectors, cfe.ks_vectors(data.x, data.edge_index, directed=True))
    assert_array_equal(finder.labels, cfe.EvidenceFinder.from_data(data, model).labels)
    assert "directed edges" in repr(finder)
    source, target = data.edge_index[:, 0].tolist()
    assert finder.graph is not None
    assert source in finder.graph.neighbors(target)
    far = cfe.Constraints(min_hops=2)
    undirected = cfe.EvidenceFinder.from_data(data, model).graph
    # A hop may go against the direction of an edge.
    for nodes, evidence in ((source, target), (target, source)):
        assert evidence not in finder.local([nodes], k=299, where=far).evidence
    assert undirected is not None
    pairs = finder.top_pairs(500, where=far)
    assert all(
        v not in undirected.neighbors(u) for v, u in zip(pairs.source, pairs.target, strict=True)
    )


def test_weights_are_for_the_model_unless_they_are_asked_for(weighted, model):
    finder = cfe.EvidenceFinder.from_data(weighted, model)
    assert finder.model_only == ("edge_weight",)
    assert "edge_weight for the model only" in repr(finder)
    assert_array_equal(finder.vectors, cfe.ks_vectors(weighted.x, weighted.edge_index))
    with torch.no_grad():
        labels = model.eval()(weighted.x, weighted.edge_index, weighted.edge_weight).argmax(dim=1)
    assert_array_equal(finder.labels, labels)

    taken = cfe.EvidenceFinder.from_data(weighted, model, edge_weight=True)
    X = cfe.ks_vectors(weighted.x, weighted.edge_index, edge_weight=weighted.edge_weight)
    assert_array_equal(taken.vectors, X)
    assert_array_equal(taken.labels, labels)
    assert taken.model_only == ()
    assert "weighted edges" in repr(taken)

    own = np.arange(900) + 1.0
    finder = cfe.EvidenceFinder.from_data(weighted, model, edge_weight=own, directed=True)
    expected = cfe.ks_vectors(weighted.x, weighted.edge_index, edge_weight=own, directed=True)
    assert_array_equal(finder.vectors, expected)
    assert_array_equal(finder.labels, labels)
    assert "directed edges, weighted edges, edge_weight for the model only" in repr(finder)


@TORCH_SPARSE
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_coo])
@pytest.mark.parametrize("directed", [False, True])
def test_adj_t_in_place_of_edge_index(weighted, model, layout, directed):
    adj_t = ToSparseTensor(layout=torch.sparse_coo)(weighted.clone()).adj_t
    converted = {torch.sparse_csr: adj_t.to_sparse_csr, torch.sparse_csc: adj_t.to_sparse_csc}
    matrix = converted[layout]() if layout in converted else adj_t
    data = Data(x=weighted.x, y=weighted.y, adj_t=matrix)
    labels = cfe.models.predict(model, weighted)
    finder = cfe.EvidenceFinder.from_data(data, labels, directed=directed)
    wanted = cfe.ks_vectors(weighted.x, weighted.edge_index, directed=directed)
    assert_array_equal(finder.vectors, wanted)
    assert finder.model_only == ("values of adj_t",)
    taken = cfe.EvidenceFinder.from_data(data, labels, directed=directed, edge_weight=True)
    expected = cfe.ks_vectors(
        weighted.x, weighted.edge_index, edge_weight=weighted.edge_weight, directed=directed
    )
    np.testing.assert_allclose(taken.vectors, expected, atol=1e-6)


def test_graphs_without_edges(data, model):
    lone = Data(x=data.x, edge_index=torch.empty((2, 0), dtype=torch.long))
    finder = cfe.EvidenceFinder.from_data(lone, model)
    np.testing.assert_allclose(finder.vectors, torch.nn.functional.normalize(data.x), atol=1e-6)
    assert "no edges" in repr(finder)
    assert len(finder.top_pairs(5, where=cfe.Constraints(min_hops=3))) == 5
    found = finder.top_pairs(5, where=cfe.Constraints(common_neighbors=False)).source
    assert_array_equal(found, finder.top_pairs(5).source)


# --- own vectors ---


def test_own_vectors_need_neither_graph_nor_model(data):
    X, labels = data.x.numpy() * 3, np.arange(300) % 3
    frame = pd.DataFrame({"age": np.arange(300)})
    finder = cfe.EvidenceFinder.from_vectors(
        X, labels, features=frame, truth=data.y, class_names=["a", "b", "c"]
    )
    by_hand = with_rows(cfe.IndexEvidenceIDMap2(10), X, labels)
    found = finder.local([3, 5], k=4)
    assert_array_equal(found.evidence, by_hand.search_stored([3, 5], 4)[1])
    pairs = finder.top_pairs(7)
    assert_array_equal(pairs.source, cfe.global_evidence(by_hand, 7).source)
    shown = found.to_frame(attributes=True)
    assert shown["evidence_age"].tolist() == shown["evidence"].tolist()
    assert shown["node_class"].tolist() == ["a"] * 4 + ["c"] * 4
    assert shown["node_true"].tolist() == [["a", "b", "c"][data.y[v]] for v in [3] * 4 + [5] * 4]
    near = cfe.Constraints(caliper={"age": 10}, target="b")
    allowed = finder.local([3], k=50, where=near).evidence
    assert (np.abs(allowed[allowed >= 0] - 3) <= 10).all()
    assert_array_equal(X, data.x.numpy() * 3)
    assert finder.graph is None


def test_forms_of_own_vectors():
    x, y = clustered(80, 6, 2)
    plain = cfe.EvidenceFinder.from_vectors(x, y)
    for X in (
        x.tolist(),
        torch.from_numpy(x),
        scipy.sparse.csr_array(x),
        torch.from_numpy(x).to_sparse(),
    ):
        assert_array_equal(cfe.EvidenceFinder.from_vectors(X, y).vectors, plain.vectors)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"X": np.ones(4)}, ValueError, r"X must have shape \(n, d\), got \(4,\)"),
        ({"X": np.full((4, 2), np.nan)}, ValueError, "X must be finite in float32"),
        ({"X": [["a"]] * 4}, TypeError, "X must be an array of real numbers"),
        ({"model": [0, 1]}, ValueError, r"model .*got shape \(2,\)"),
        ({"model": [0, 1, -2, 0]}, ValueError, r"model .* must lie in 0\.\."),
        ({"model": ["a", "b", "c", "a"], "class_names": ["a", "b"]}, ValueError, "model .* must"),
        ({"truth": [0, 1]}, ValueError, r"truth must be classes of shape \(4,\)"),
        (
            {
                "truth": ["a", "b", "x", "a"],
                "model": ["a", "b", "b", "a"],
                "class_names": ["a", "b"],
            },
            ValueError,
            "truth must be among the class names",
        ),
        ({"nodes": [4]}, ValueError, r"nodes must lie in 0\.\.3, got 4"),
        ({"index": cfe.IndexEvidenceIDMap2(3)}, ValueError, "index must be empty and of 2"),
        ({"features": {"a": [1, 2]}}, ValueError, "the attributes must describe every node"),
    ],
)
def test_bad_own_vectors_are_named(kwargs, error, message):
    with pytest.raises(error, match=message):
        cfe.EvidenceFinder.from_vectors(**({"X": np.ones((4, 2)), "model": [0, 1, 0, 1]} | kwargs))


def test_true_classes_of_one_column_and_of_floats(data):
    predicted = np.zeros(len(data.x), int)
    column = data.clone()
    column.y = data.y[:, None]
    np.testing.assert_array_equal(cfe.EvidenceFinder.from_data(column, predicted).truth, data.y)
    column.y = data.y.float()
    with pytest.warns(cfe.InputWarning, match="data.y holds floats, which are no true classes"):
        assert cfe.EvidenceFinder.from_data(column, predicted).truth is None


_CELLS = {
    "age": [*map(str, range(20, 60)), None, "n/a"],
    "city": ["here", "there"] * 20 + ["here", ""],
}


@pytest.mark.parametrize("way", ["pandas", "mapping", "polars", "arrow"])
def test_attributes_mean_the_same_as_columns_of_a_table(way, data):
    frame = pd.DataFrame({**_CELLS, "code": pd.Categorical(_CELLS["age"])})
    if way != "pandas":
        frame = frame.drop(columns="code")
    given = {
        "pandas": lambda: frame,
        "mapping": lambda: dict(frame.items()),
        "polars": lambda: pytest.importorskip("polars").from_pandas(frame),
        "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(frame),
    }[way]()
    vectors = np.random.default_rng(0).normal(size=(42, 3))
    decisions = ["yes", "no"] * 21
    finder = cfe.EvidenceFinder.from_vectors(vectors, decisions)
    small = Data(x=torch.from_numpy(vectors), edge_index=torch.empty((2, 0), dtype=torch.int64))
    problem = (
        r"features: column 'age' holds numbers, but 'n/a' \(row 42\) cannot be read as one: give None in place of "
        "'n/a' if they are missing, or pandas categories for 'age' if all are codes of categories"
    )
    for make in (
        lambda features: cfe.EvidenceFinder.from_vectors(vectors, decisions, features=features),
        lambda features: cfe.EvidenceFinder.from_data(small, decisions, features=features),
        lambda features: cfe.EvidenceFinder.from_index(finder.index, features=features),
        lambda features: finder.updated(predictions=[0, 1] * 21, features=features)[0],
    ):
        with pytest.raises(ValueError, match=problem):
            make(given)
    mended = frame.replace({"age": {"n/a": None}})
    note = "^missing values: age 2, city 1"
    with pytest.warns(cfe.base.checks.InputNote, match=note):
        made = cfe.EvidenceFinder.from_vectors(vectors, decisions, features=mended)
    assert made.attributes is not None
    assert_array_equal(made.attributes["age"].numbers, [*range(20, 60), np.nan, np.nan])
    assert made.attributes["city"].values == ("here", "there")
    if way == "pandas":
        assert made.attributes["code"].numbers is None


# --- frames of results ----------------------------------------------------------------------------------------------


def frame_of(**options):
    """Return the frame of the pairs (0, 1) and (2, 0)."""
    labels = np.array([0, 1, 1], np.int32)
    index = with_rows(cfe.IndexEvidenceIDMap2(2), np.eye(3)[:, :2], labels)
    finder = cfe.EvidenceFinder.from_index(index, **options)
    pairs = PairEvidence(np.array([0, 2]), np.array([1, 0]), np.float32([0, 0]), labels, finder)
    return pairs.to_frame(attributes=True)


def test_attributes_of_both_sides():
    people = {"town": ["x", None, "y"], "age": [20.0, 30.0, np.nan], "label": ["a", "b", "c"]}
    frame = frame_of(features=people)
    names = [f"{side}_{name}" for name in ("town", "age", "label") for side in ("source", "target")]
    assert list(frame.columns[5:]) == [*names[:4], *(f"{name} (attribute)" for name in names[4:])]
    assert list(frame["source_town"]) == ["x", "y"]
    assert pd.isna(frame["target_town"][0])
    assert frame["target_town"][1] == "x"
    np.testing.assert_array_equal(frame["source_age"], [20, np.nan])
    assert list(frame["source_label (attribute)"]) == ["a", "c"]


def test_amounts_keep_all_digits_before_the_point():
    shown = [
        cell_text(value) for value in (1234567.25, -3e7, 0.1234567, np.float64("nan"), 12, None)
    ]
    assert shown == ["1234567", "-30000000", "0.123457", "nan", "12", "unknown"]
