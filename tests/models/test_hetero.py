"""Models of heterogeneous graphs: PyG's own, every signature, and what errors say."""

import pytest
import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import GATConv, HANConv, HeteroConv, HGTConv, Linear, SAGEConv, to_hetero
from torch_geometric.nn.models import GraphSAGE

from cfe_faiss.data.call import call
from cfe_faiss.data.predict import predictions_of
from cfe_faiss.models import predict

WRITES, WRITTEN = ("author", "writes", "paper"), ("paper", "rev_writes", "author")


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["author"].x = torch.randn(20, 8, generator=generator)
    data["author"].y = torch.randint(0, 2, (20,), generator=generator)
    data["paper"].x = torch.randn(12, 5, generator=generator)
    edges = torch.stack(
        [torch.arange(20).repeat(3), torch.randint(0, 12, (60,), generator=generator)]
    )
    data[WRITES].edge_index, data[WRITTEN].edge_index = edges, edges.flip(0)
    return data


class HGT(torch.nn.Module):
    """As in PyG's examples: one tensor for the node type that is asked for."""

    def __init__(self, data):
        super().__init__()
        self.lin_dict = torch.nn.ModuleDict({kind: Linear(-1, 16) for kind in data.node_types})
        self.conv = HGTConv(16, 16, data.metadata(), heads=2)
        self.lin = Linear(16, 3)

    def forward(self, x_dict, edge_index_dict):
        x_dict = {kind: self.lin_dict[kind](x).relu() for kind, x in x_dict.items()}
        return self.lin(self.conv(x_dict, edge_index_dict)["author"])


class Stack(torch.nn.Module):
    def __init__(self, data):
        super().__init__()
        self.conv = HeteroConv({kind: SAGEConv((-1, -1), 3) for kind in data.edge_types})

    def forward(self, x_dict, edge_index_dict):
        return self.conv(x_dict, edge_index_dict)


MODELS = {
    "HGT": HGT,
    "module with HeteroConv": Stack,
    "HeteroConv": lambda data: Stack(data).conv,
    "HAN": lambda data: HANConv(-1, 3, data.metadata()),
    "to_hetero": lambda data: to_hetero(GraphSAGE((-1, -1), 16, 2, 3), data.metadata()),
    "compiled": lambda data: torch.compile(Stack(data), backend="eager"),
}


# test_call.py compiles a network by default.
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if name == "compiled" else []) for name in MODELS
]


@pytest.mark.parametrize("name", NAMES)
def test_models_of_pyg(data, name):
    torch.manual_seed(4)
    model = MODELS[name](data)
    with torch.no_grad():
        output = model(data.x_dict, data.edge_index_dict)
    output = output if name == "HGT" else output["author"]
    model.train()
    assert predict(model, data, node_type="author").tolist() == output.argmax(dim=1).tolist()
    assert model.training


@pytest.mark.filterwarnings("ignore:There exist node types:UserWarning")
def test_node_types_that_get_no_message(data):
    del data[WRITTEN]
    model = Stack(data)
    assert predict(model, data, node_type="paper").shape == (12,)
    with pytest.raises(ValueError, match="output must have the node type 'author', got 'paper'"):
        predict(model, data, node_type="author")


def test_node_types_that_are_refused(data):
    model = HGT(data)
    for wrong in (None, "venue"):
        message = rf"must be one of the node types \(author, paper\), got {wrong!r}"
        with pytest.raises(ValueError, match=message):
            predict(model, data, node_type=wrong)
    with pytest.raises(ValueError, match=r"output must be logits .* of shape \(12, C\) .* got"):
        predict(model, data, node_type="paper")
    del data["author"].x
    with pytest.raises(ValueError, match="data must have x of node type 'author', got HeteroData"):
        predict(model, data, node_type="author")


def test_what_a_signature_asks_for(data):
    data["author"].pos = torch.zeros(20, 2)
    data.time = 7
    x, edges = data.x_dict, data.edge_index_dict
    assert call(lambda data, hard=False: data, data) is data
    assert call(lambda graph: graph, data) is data
    assert call(lambda x_dict: x_dict, data).keys() == x.keys()
    assert call(lambda x_dict, hard=False: hard, data) is False
    assert call(lambda x, edge_index=None: edge_index, data).keys() == edges.keys()
    assert call(lambda *args, **kwargs: kwargs, data) == {}

    def more(x_dict, edge_index_dict, pos_dict, time, *, hard=False):
        return pos_dict["author"], time

    assert call(more, data) == (data["author"].pos, 7)
    with pytest.raises(ValueError, match=r"data .*got HeteroData without it"):
        call(lambda x_dict, edge_index_dict, batch_dict: x_dict, data)


def test_values_of_edges_are_passed_or_refused(data):
    data[WRITES].edge_attr = torch.rand(60, 2)
    wanted = data.edge_attr_dict
    assert call(lambda x_dict, edges, edge_attr_dict=None: edge_attr_dict, data) == wanted
    assert call(lambda x, edge_index, edge_attr: edge_attr, data) == data.edge_attr_dict
    without = data.clone()
    del without[WRITES].edge_attr
    for model in (Stack(data), HGT(data), lambda x, e: x):
        expected = predict(model, without, node_type="author")
        assert predict(model, data, node_type="author").tolist() == expected.tolist()
    data[WRITES].edge_weight = torch.rand(60)
    with pytest.raises(ValueError, match=r"data has edge_weight for \('author', 'writes'"):
        predict(lambda x, e: x, data, node_type="author")
    del data[WRITES].edge_weight
    attentive = GATConv((-1, -1), 3, edge_dim=2, add_self_loops=False)
    layer = HeteroConv({WRITES: attentive, WRITTEN: SAGEConv((-1, -1), 3)})
    with torch.no_grad():
        expected = layer(data.x_dict, data.edge_index_dict, edge_attr_dict=data.edge_attr_dict)[
            "paper"
        ]
    assert predict(layer, data, node_type="paper").tolist() == expected.argmax(dim=1).tolist()


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_transposed_matrices_stand_for_edges(data):
    model = Stack(data)
    expected = predict(model, data, node_type="author")
    matrix = torch.sparse_coo_tensor(
        data[WRITTEN].edge_index.flip(0), torch.ones(60), (20, 12)
    ).to_sparse_csr()
    data[WRITTEN].adj_t = matrix
    del data[WRITTEN].edge_index
    assert predict(model, data, node_type="author").tolist() == expected.tolist()
    for kind in data.edge_types:
        for name in list(data[kind].keys()):
            del data[kind][name]
    with pytest.raises(ValueError, match="data must have edge_index or adj_t of some edge type"):
        predict(model, data, node_type="author")


def test_estimators_and_ready_predictions(data):
    found = predictions_of(data["author"].y, data, node_type="author")
    assert found.labels.tolist() == data["author"].y.tolist()
    with pytest.raises(ValueError, match="node_type must be one of"):
        predictions_of(data["author"].y, data)

    class Estimator:
        def predict(self, x):
            return (x[:, 0] > 0).astype(int)

    expected = (data["paper"].x[:, 0] > 0).int().tolist()
    assert predictions_of(Estimator(), data, node_type="paper").labels.tolist() == expected
