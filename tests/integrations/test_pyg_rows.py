"""PyG's explainers of links and of whole graphs, with real models, against plain computations."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn import GAE, GCNConv, global_mean_pool
from torch_geometric.nn.models import GCN

import cfe_faiss as cfe
from cfe_faiss.integrations.pyg import EvidenceExplainer, explain_beside

N, D = 40, 5
LINKS = {"mode": "binary_classification", "task_level": "edge", "return_type": "raw"}
GRAPHS = {"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"}


class Predictor(torch.nn.Module):
    """Decoder of PyG's autoencoder of graphs over its encoder."""

    def __init__(self):
        super().__init__()
        self.autoencoder = GAE(GCN(D, 8, 2, 8))

    def forward(self, x, edge_index, edge_label_index):
        z = self.autoencoder.encode(x, edge_index)
        return self.autoencoder.decoder(z, edge_label_index, sigmoid=False)


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(D, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x, edge_index, batch):
        return self.head(global_mean_pool(self.conv(x, edge_index).relu(), batch))


def people(seed, named=True):
    """Return a graph and different links, with names of nodes or without, and a model of links."""
    rng = np.random.default_rng(seed)
    ends = rng.permutation(np.argwhere(np.triu(np.ones((N, N)), 1)))[:120]
    ends[::2] = ends[::2, ::-1]
    data = Data(
        x=torch.from_numpy(rng.normal(size=(N, D)).astype(np.float32)),
        edge_index=torch.from_numpy(rng.integers(0, N, (2, 100))),
        edge_label_index=torch.from_numpy(ends.T.copy()),
    )
    if named:
        data.node_ids = [f"p{i}" for i in range(N)]
        data.feature_names = ["age", "income", "size", "weight", "height"]
    torch.manual_seed(seed)
    return data, Predictor()


def molecules(seed, count=12):
    rng = np.random.default_rng(seed)
    graphs = []
    for _ in range(count):
        n = int(rng.integers(2, 9))
        x = rng.normal(size=(n, D)) + 4 * rng.normal(size=D)
        edges = torch.from_numpy(rng.integers(0, n, (2, 2 * n)))
        graphs.append(Data(x=torch.from_numpy(x).float(), edge_index=edges))
    torch.manual_seed(seed)
    return graphs, Classifier()


def explainer(model, algorithm, config, kind="attributes", **options):
    return Explainer(model, algorithm, "model", config, kind, **options)


def masks(model, finder, config, args, kwargs, k):
    """Return the explanation by evidence for each kind of masks."""
    found = {}
    for kind in ("attributes", "common_attributes", "object"):
        ready = explainer(model, EvidenceExplainer(finder, k), config, kind)
        found[kind] = ready(*args, **kwargs)
        assert found[kind].validate()
    return found


def check_masks(found, differences):
    """Compare the masks with differences in SD between nodes and counterparts, by node."""
    rows = np.zeros(found["attributes"].node_mask.shape)
    for node, difference in differences.items():
        rows[node] = difference
    top = rows.max(initial=0)
    assert_allclose(found["attributes"].node_mask, rows / (top or 1), atol=1e-4)
    total = rows.sum(axis=0)
    assert_allclose(found["common_attributes"].node_mask[0], total / (total.max() or 1), atol=1e-4)


@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.booleans())
def test_masks_of_links_compare_both_ends(seed, directed, named, single):
    data, model = people(seed, named)
    finder = cfe.EvidenceFinder.from_links(data, model, directed=directed, index="EvidenceFlat")
    place = int(np.random.default_rng(seed).integers(120))
    links, index = data.edge_label_index, place
    if single:
        links, index = links[:, [place]], None
    kwargs = {"edge_label_index": links if directed else links.flip(0), "index": index}
    found = masks(model, finder, LINKS, (data.x, data.edge_index), kwargs, 3)
    expected = finder.local(finder.names([place]), 3)
    evidence = expected.evidence[0][expected.evidence[0] >= 0]
    one = found["attributes"]
    assert_array_equal(one.evidence, evidence)
    assert_array_equal(one.evidence_ends, data.edge_label_index[:, evidence])
    assert_array_equal(one.evidence_label, finder.labels[evidence])
    x, X = data.x.numpy(), cfe.ks_vectors(data.x, data.edge_index, directed=directed)
    a, b = data.edge_label_index[:, place].tolist()
    differences = {a: np.zeros(D), b: np.zeros(D)}
    objects = np.zeros(N)
    for other, similarity in zip(evidence, expected.similarity[0], strict=False):
        c, d = data.edge_label_index[:, other].tolist()
        # The similarity of two links is the mean over the two pairs of ends that are compared.
        if abs((X[a] @ X[c] + X[b] @ X[d]) / 2 - similarity) > 1e-5:
            c, d = d, c
        assert (X[a] @ X[c] + X[b] @ X[d]) / 2 == pytest.approx(similarity, abs=1e-5)
        for end, counterpart in ((a, c), (b, d)):
            differences[end] += np.abs(x[counterpart] - x[end]) / x.std(axis=0) / len(evidence)
        objects[[c, d]] = np.maximum(objects[[c, d]], max(similarity, 0))
    check_masks(found, differences)
    objects[[a, b]] = 1
    assert_allclose(found["object"].node_mask[:, 0], objects, atol=1e-6)


@given(st.integers(0, 10**6), st.booleans(), st.booleans())
def test_masks_of_graphs_compare_nodes_with_the_most_similar_ones(seed, directed, batched):
    graphs, model = molecules(seed)
    finder = cfe.EvidenceFinder.from_graphs(graphs, model, directed=directed)
    place = int(np.random.default_rng(seed).integers(12))
    whole = Batch.from_data_list(graphs if batched else [graphs[place]])
    kwargs = {"batch": whole.batch, "index": place if batched else None}
    found = masks(model, finder, GRAPHS, (whole.x, whole.edge_index), kwargs, 2)
    expected = finder.local([place], 2).evidence[0]
    evidence = expected[expected >= 0]
    assert_array_equal(found["object"].evidence, evidence)
    X = [cfe.ks_vectors(one.x, one.edge_index, directed=directed) for one in graphs]
    nodes = np.flatnonzero(whole.batch == (place if batched else 0))
    spread = np.vstack([one.x for one in graphs]).std(axis=0)
    differences = {node: np.zeros(D) for node in nodes}
    gaps = np.zeros(whole.num_nodes)
    for other in evidence:
        S = X[place] @ X[other].T
        near = graphs[other].x.numpy()[S.argmax(axis=1)]
        for node, counterpart, similarity in zip(nodes, near, S.max(axis=1), strict=True):
            change = np.abs(counterpart - whole.x[node].numpy()) / spread
            differences[node] += change / len(evidence)
            gaps[node] += (1 - similarity) / len(evidence)
    check_masks(found, differences)
    assert_allclose(found["object"].node_mask[:, 0], gaps.clip(0, 1), atol=1e-5)


@pytest.mark.parametrize("named", [True, False])
def test_links_and_their_evidence_beside_gnn_explainer(named, tmp_path):
    data, model = people(3, named)
    finder = cfe.EvidenceFinder.from_links(data, model)
    algorithm = GNNExplainer(epochs=5)
    of_links = explainer(model, algorithm, LINKS, edge_mask_type="object")
    a, b = data.edge_label_index[:, 7].tolist()
    pair = (f"p{b}", f"p{a}") if named else (b, a)
    explained = explain_beside(of_links, finder, data, pair, k=2)
    assert_array_equal(explained.nodes[1:], finder.local([pair], 2).evidence[0])
    assert f"link {finder.names(7)}, 2 evidence" in repr(explained)
    for row, one in zip(explained.nodes, explained.explanations, strict=True):
        assert_array_equal(one.edge_label_index[:, 0], data.edge_label_index[:, row])
    table = explained.features(top=2)
    x = data.x.numpy()
    numbers = {str(name): i for i, name in enumerate(getattr(data, "node_ids", range(N)))}
    names = getattr(data, "feature_names", [f"feature {i}" for i in range(D)])
    for line in table.to_dict("records"):
        v, u = numbers[str(line["end"])], numbers[str(line["evidence_end"])]
        column = names.index(line["feature"])
        assert line["link_value"] == x[v, column]
        assert line["evidence_value"] == x[u, column]
        expected = (x[u, column] - x[v, column]) / x[:, column].std()
        assert line["difference"] == pytest.approx(expected, abs=1e-4)
    assert set(table["link"]) == {finder.names(7)}
    assert table.groupby(["evidence", "feature"]).size().eq(2).all()
    frame = explained.to_frame(top=D)
    assert frame["explained_difference"].tolist() == pytest.approx([1, 1])
    assert {"link", "shared_edges"} <= set(frame)
    assert "link_importance" in explained.edges(top=2)
    explained.figure(top=3).savefig(tmp_path / "links.png")
    assert (tmp_path / "links.png").stat().st_size > 1000


def test_graphs_and_their_evidence_beside_gnn_explainer(tmp_path):
    graphs, model = molecules(5)
    names = [f"molecule {i}" for i in range(12)]
    finder = cfe.EvidenceFinder.from_graphs(graphs, model, ids=names)
    of_graphs = explainer(model, GNNExplainer(epochs=5), GRAPHS, edge_mask_type="object")
    explained = explain_beside(of_graphs, finder, graphs, "molecule 4", k=2)
    evidence = finder.local(["molecule 4"], 2).evidence[0]
    assert_array_equal(explained.nodes, [4, *evidence])
    spread = np.vstack([one.x for one in graphs]).std(axis=0)
    for line in explained.features(top=2).to_dict("records"):
        column = int(line["feature"].removeprefix("feature "))
        mean, other = (
            graphs[names.index(line[side])].x[:, column].mean().item()
            for side in ("graph", "evidence")
        )
        assert line["graph_value"] == pytest.approx(mean, abs=1e-5)
        assert line["difference"] == pytest.approx((other - mean) / spread[column], abs=1e-4)
    assert "shared_edges" not in explained.to_frame()
    explained.figure(top=3).savefig(tmp_path / "graphs.png")
    assert (tmp_path / "graphs.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="edges must be of one graph"):
        explained.edges()


def test_edge_weights_of_each_graph_reach_the_model():
    class Weighted(Classifier):
        def forward(self, x, edge_index, batch, edge_weight):
            h = self.conv(x, edge_index, edge_weight).relu()
            return self.head(global_mean_pool(h, batch))

    graphs, _ = molecules(8)
    for one in graphs:
        one.edge_weight = torch.rand(one.num_edges)
    model = Weighted()
    finder = cfe.EvidenceFinder.from_graphs(graphs, model)
    row = int(finder.top_pairs(1).source[0])
    of_graphs = explainer(model, GNNExplainer(epochs=2), GRAPHS)
    explained = explain_beside(of_graphs, finder, graphs, row, k=1)
    assert explained.explanations[0].edge_weight is graphs[row].edge_weight


def test_errors():
    data, model = people(1)
    finder = cfe.EvidenceFinder.from_links(data, model)
    ready = explainer(model, EvidenceExplainer(finder), LINKS)
    links = data.edge_label_index
    with pytest.raises(ValueError, match="index must be one link, got None"):
        ready(data.x, data.edge_index, edge_label_index=links)
    absent = torch.tensor([[0], [0]])
    with pytest.raises(ValueError, match=r"edge_label_index must name rows .*'p0 - p0'"):
        ready(data.x, data.edge_index, edge_label_index=absent)
    with pytest.raises(ValueError, match="x must have a row for each of the finder's 40 nodes"):
        ready(data.x.repeat(2, 1), data.edge_index, edge_label_index=links, index=3)
    with pytest.raises(ValueError, match="support the given explanation settings"):
        explainer(model, EvidenceExplainer(finder), {**LINKS, "task_level": "node"})
    other = cfe.EvidenceFinder.from_links(data, 1 - finder.labels)
    with pytest.raises(ValueError, match=r"got class . for link p.* - p.*, for which the model"):
        explainer(model, EvidenceExplainer(other), LINKS)(
            data.x, data.edge_index, edge_label_index=links, index=0
        )
    graphs, model = molecules(1)
    of_graphs = cfe.EvidenceFinder.from_graphs(graphs, model)
    ready = explainer(model, EvidenceExplainer(of_graphs), GRAPHS)
    one = graphs[0]
    batch = torch.zeros(one.num_nodes, dtype=torch.int64)
    with pytest.raises(ValueError, match="must be a graph of EvidenceFinder"):
        ready(one.x + 1, one.edge_index, batch=batch)
    with pytest.raises(ValueError, match="data must be the finder's 12 graphs, got 3"):
        explain_beside(explainer(model, GNNExplainer(), GRAPHS), of_graphs, graphs[:3], 0)
    bare = [Data(edge_index=one.edge_index, num_nodes=one.num_nodes) for one in graphs]
    with pytest.raises(ValueError, match="finder must be of graphs with features x"):
        EvidenceExplainer(cfe.EvidenceFinder.from_graphs(bare, of_graphs.labels))
