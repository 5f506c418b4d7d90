"""Calling models: real ones of PyG and of torch, and every signature that a user's own may have."""

import functools
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GraphNorm, global_mean_pool
from torch_geometric.nn.models import GAT, GCN, GIN, MLP, PNA, EdgeCNN, GraphSAGE

from cfe_faiss.data.call import arguments, call
from cfe_faiss.models import gcn, mpnn, predict, train

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])


@pytest.fixture
def data():
    x = torch.eye(4)
    return Data(x=x, edge_index=EDGES, y=torch.tensor([0, 1, 0, 1]))


@pytest.fixture
def weighted(data):
    data.edge_weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return data


def taken(model, data):
    """Return what a model is called with, by the names of the parts of data."""
    args, kwargs = arguments(model, data)
    names = {id(value): name for name, value in data.to_dict().items()} | {id(data): "data"}
    return [names[id(value)] for value in args], {
        key: names[id(value)] for key, value in kwargs.items()
    }


@pytest.mark.parametrize(
    ("model", "args", "kwargs"),
    [
        (lambda x, edge_index: x, ["x", "edge_index"], {}),
        (lambda a, b: a, ["x", "edge_index"], {}),
        (lambda a, b, /: a, ["x", "edge_index"], {}),
        (lambda x, adj: x, ["x", "edge_index"], {}),
        (lambda *args: args[0], ["x", "edge_index"], {}),
        (lambda *args, **kwargs: args[0], ["x", "edge_index"], {}),
        (functools.partial(lambda c, x, edge_index: x, 3), ["x", "edge_index"], {}),
        (lambda edge_index, x: x, [], {"x": "x", "edge_index": "edge_index"}),
        (lambda data: data.x, ["data"], {}),
        (lambda g: g.x, ["data"], {}),
        (lambda batch, hard=False: batch.x, ["data"], {}),
        (lambda anything: anything.x, ["data"], {}),
        (lambda x: x, ["x"], {}),
        (lambda x, batch=None: x, ["x"], {}),
        (lambda x, edge_index=None: x, ["x", "edge_index"], {}),
        (lambda x, edge_index, y: x, ["x", "edge_index"], {"y": "y"}),
        (lambda x, edge_index, *, y: x, ["x", "edge_index"], {"y": "y"}),
        (lambda x, edge_index, hard=False: x, ["x", "edge_index"], {}),
        (torch.nn.Linear(4, 2), ["x"], {}),
        (torch.nn.Sequential(torch.nn.Linear(4, 2)), ["x"], {}),
        (MLP([4, 8, 2]), ["x"], {}),
        (GCN(4, 8, 2, 2), ["x", "edge_index"], {}),
        (torch.compile(GCN(4, 8, 2, 2), backend="eager"), ["x", "edge_index"], {}),
        (print, ["x", "edge_index"], {}),
    ],
)
def test_what_a_signature_asks_for(data, model, args, kwargs):
    assert taken(model, data) == (args, kwargs)


@pytest.mark.parametrize(
    ("model", "kwargs"),
    [
        (lambda x, edge_index, edge_weight: x, {"edge_weight": "edge_weight"}),
        (lambda x, edge_index, edge_weight=None: x, {"edge_weight": "edge_weight"}),
        (lambda x, edge_index, **more: x, {"edge_weight": "edge_weight"}),
        (GCN(4, 8, 2, 2), {"edge_weight": "edge_weight"}),
        (torch.compile(GCN(4, 8, 2, 2), backend="eager"), {"edge_weight": "edge_weight"}),
    ],
)
def test_weights_are_passed(weighted, model, kwargs):
    assert taken(model, weighted) == (["x", "edge_index"], kwargs)


@pytest.mark.parametrize(
    ("model", "args", "kwargs"),
    [
        (lambda x, adj_t: x, ["x", "adj_t"], {}),
        (lambda x, adj: x, ["x", "adj_t"], {}),
        (lambda x, edge_index: x, ["x", "adj_t"], {}),
        (lambda edge_index, x: x, [], {"x": "x", "edge_index": "adj_t"}),
        (lambda x, edge_index, y: x, ["x", "adj_t"], {"y": "y"}),
        (lambda *args: args[0], ["x", "adj_t"], {}),
        (lambda data: data.x, ["data"], {}),
        (lambda x: x, ["x"], {}),
        (GCN(4, 8, 2, 2), ["x", "adj_t"], {}),
    ],
)
def test_adj_t_in_place_of_edge_index(data, model, args, kwargs):
    only = Data(x=data.x, y=data.y, adj_t=torch.eye(4).to_sparse())
    assert taken(model, only) == (args, kwargs)


@pytest.mark.parametrize("name", ["edge_weight", "edge_type"])
@pytest.mark.parametrize(
    "model",
    [
        lambda x, edge_index: x,
        lambda *args: args[0],
        GraphSAGE(4, 8, 2, 2),
        lambda x, adj: x,
        print,
    ],
)
def test_values_of_edges_are_not_ignored(data, name, model):
    data[name] = torch.ones(4)
    message = rf"data has {name}, which \S+ does not take: hand in .*lambda data: model"
    with pytest.raises(ValueError, match=message):
        call(model, data)


def test_pygs_networks_drop_what_their_layers_do_not_support(weighted):
    model = GAT(4, 8, 2, 2, edge_dim=1)
    with pytest.raises(ValueError, match="data has edge_weight, which GAT does not take"):
        call(model, weighted)
    del weighted.edge_weight
    weighted.edge_attr = torch.ones(4, 1)
    assert call(model, weighted).shape == (4, 2)
    model = GCN(4, 8, 2, 2)
    torch.testing.assert_close(call(model, weighted), model(weighted.x, weighted.edge_index))


def test_models_without_edge_attr_are_called_without_it(data):
    data.edge_attr = torch.rand(4, 3)
    models = [
        lambda x, edge_index: x,
        lambda x, adj: x,
        lambda *args: args[0],
        GraphSAGE(4, 8, 2, 2),
    ]
    for model in models:
        expected = model(data.x, data.edge_index)
        torch.testing.assert_close(call(model, data), expected)


def test_ways_around(weighted):
    model = gcn(weighted)
    with pytest.raises(ValueError, match="data has edge_weight, which OnMatrix does not take"):
        predict(model, weighted)
    plain = weighted.clone()
    del plain.edge_weight
    ignoring = predict(lambda data: model(data.x, data.edge_index), weighted)
    assert (ignoring == predict(model, plain)).all()


@pytest.mark.parametrize("build", [gcn, mpnn])
def test_training_ignores_no_weights_either(weighted, build):
    for mask in ("train_mask", "val_mask", "test_mask"):
        weighted[mask] = torch.ones(4, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"data has edge_weight, which .* does not take"):
        train(build(weighted), weighted, epochs=1)


def test_what_data_lacks(data):
    with pytest.raises(ValueError, match="data must have pos, which the model requires, got"):
        call(lambda x, edge_index, pos: x, data)
    with pytest.raises(ValueError, match="data must have pos, which the model requires, got"):
        call(lambda data, pos: pos, SimpleNamespace(x=data.x, edge_index=EDGES))


DEGREES = {"aggregators": ["mean"], "scalers": ["identity"], "deg": torch.tensor([0, 4])}
MODELS = {
    "GCN": lambda: GCN(4, 8, 2, 2),
    "GCN with jumping knowledge": lambda: GCN(4, 8, 3, 2, jk="cat"),
    "GraphSAGE with jumping knowledge": lambda: GraphSAGE(4, 8, 3, 2, jk="lstm"),
    "GAT": lambda: GAT(4, 8, 2, 2, heads=2, v2=True),
    "GIN": lambda: GIN(4, 8, 2, 2),
    "EdgeCNN": lambda: EdgeCNN(4, 8, 2, 2),
    "PNA": lambda: PNA(4, 8, 2, 2, **DEGREES),
    "MLP": lambda: MLP([4, 8, 2]),
    "compiled": lambda: torch.compile(GAT(4, 8, 2, 2), backend="eager"),
}


# PyTorch takes seconds to compile the first model.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "compiled")) for name in MODELS]
)
def test_networks_of_pyg(data, name):
    torch.manual_seed(0)
    model = MODELS[name]()
    model.eval()
    with torch.no_grad():
        expected = model(data.x) if name == "MLP" else model(data.x, data.edge_index)
    assert predict(model.train(), data).tolist() == expected.argmax(dim=1).tolist()
    assert model.training


@pytest.mark.parametrize(
    "build", [lambda: GAT(4, 8, 2, 2, edge_dim=3), lambda: PNA(4, 8, 2, 2, edge_dim=3, **DEGREES)]
)
def test_networks_of_pyg_with_values_of_edges(data, build):
    data.edge_attr = torch.rand(4, 3)
    torch.manual_seed(0)
    model = build().eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index, edge_attr=data.edge_attr)
    assert torch.equal(call(model, data), expected)


class Normed(torch.nn.Module):
    """Nodes are normalised within their graph."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = GCNConv(4, 2), GraphNorm(2)

    def forward(self, x, edge_index, batch):
        return self.norm(self.conv(x, edge_index), batch)


def test_batch_is_one_graph_where_data_does_not_say_more(data):
    model = Normed().eval()
    assert torch.equal(
        call(model, data), model(data.x, data.edge_index, torch.zeros(4, dtype=torch.long))
    )
    data.batch = torch.tensor([0, 0, 1, 1])
    assert torch.equal(call(model, data), model(data.x, data.edge_index, data.batch))
    optional = GCN(4, 8, 2, 2, norm="graph_norm").eval()
    assert torch.equal(call(optional, data), optional(data.x, data.edge_index, batch=data.batch))
    assert not torch.equal(call(optional, data), optional(data.x, data.edge_index))


def test_a_classifier_of_graphs_is_none_of_nodes(data):
    def model(x, edge_index, batch):
        return global_mean_pool(x, batch)

    with pytest.raises(ValueError, match=r"output must be logits .* of shape \(4, C\) .* got"):
        predict(model, data)


class Lit(torch.nn.Module):
    """As a LightningModule is written: the network inside, steps that take a batch, and a step that predicts."""

    def __init__(self):
        super().__init__()
        self.network = GCN(4, 8, 2, 2)

    def forward(self, data, mode="train"):
        return self.network(data.x, data.edge_index)

    def training_step(self, batch, batch_idx):
        return self(batch, "train").sum()

    def predict_step(self, batch, batch_idx):
        return self(batch, "test")

    def predict(self, *args):
        raise AssertionError("a module is called")


def test_modules_as_lightning_has_them(data):
    model = Lit()
    assert predict(model, data).tolist() == predict(model.network, data).tolist()
