"""Predicting by batches: PyG's own loaders, the whole graph's predictions, and batches that are refused."""

import numpy as np
import pytest
import torch
import torch_geometric.typing
from neighbor_loaders import all_neighbors
from torch_geometric import seed_everything
from torch_geometric.data import Data
from torch_geometric.datasets import FakeHeteroDataset
from torch_geometric.loader import NeighborLoader, RandomNodeLoader
from torch_geometric.nn import SAGEConv, to_hetero
from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

from cfe_faiss.data.predict import predictions_of
from cfe_faiss.models import predict

COMPILED = torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE
"""Whether PyG can sample neighbours itself: not without one of these, and not every torch has wheels of them."""


@pytest.fixture(scope="module")
def graph():
    """Return 200 nodes with random features and directed edges, and three nodes without any edge."""
    generator = torch.Generator().manual_seed(3)
    edges = torch.randint(0, 197, (2, 900), generator=generator)
    return Data(x=torch.randn(200, 8, generator=generator), edge_index=edges)


def network(kind):
    torch.manual_seed(1)
    return kind(8, 16, 2, 3, act="tanh")


@pytest.mark.parametrize(
    ("kind", "hops"),
    # GCN divides by the degree of the sources, too, whose edges a further hop brings.
    [(GraphSAGE, 2), (GAT, 2), (GIN, 2), (GCN, 3)],
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_with_all_neighbours_predictions_match_the_whole_graph(graph, kind, hops, shuffle):
    model = network(kind)
    loader = all_neighbors(graph, hops, batch_size=17, shuffle=shuffle)
    whole = predict(model, graph)
    assert len(np.unique(whole)) > 1
    np.testing.assert_array_equal(predict(model, graph, loader=loader), whole)


def test_edge_values_come_with_their_edges(graph):
    weighted = graph.clone()
    weighted.edge_weight = torch.rand(900, generator=torch.Generator().manual_seed(5))
    model = network(GCN)
    loader = all_neighbors(weighted, 3, batch_size=50)
    np.testing.assert_array_equal(predict(model, weighted, loader=loader), predict(model, weighted))
    with pytest.raises(ValueError, match="data has edge_weight, which GraphSAGE does not take"):
        predict(network(GraphSAGE), weighted, loader=loader)


@pytest.mark.skipif(not COMPILED, reason="NeighborLoader needs pyg-lib or torch-sparse")
@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without:UserWarning")
def test_neighbor_loader(graph):
    model = network(GraphSAGE)
    whole = predict(model, graph)
    everything = NeighborLoader(graph, num_neighbors=[-1, -1], batch_size=17, shuffle=True)
    np.testing.assert_array_equal(predict(model, graph, loader=everything), whole)
    drawn = predict(model, graph, loader=NeighborLoader(graph, num_neighbors=[2, 2], batch_size=17))
    assert 0.5 < (drawn == whole).mean() < 1


@pytest.fixture(scope="module")
def typed():
    seed_everything(0)
    data = FakeHeteroDataset(num_node_types=2, num_edge_types=4, avg_num_nodes=60, edge_dim=0)[0]
    data["v0"].class_names = ["a", "b", "c"]
    return data


def typed_network(data):
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = SAGEConv((-1, -1), 16), SAGEConv((-1, -1), 3)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index).relu(), edge_index)

    torch.manual_seed(2)
    model = to_hetero(Network(), data.metadata())
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)  # which makes the weights
    return model


def test_node_types_by_batches(typed):
    model = typed_network(typed)
    whole = predict(model, typed, node_type="v0")
    assert len(np.unique(whole)) > 1
    loader = all_neighbors(typed, 2, input_nodes="v0", batch_size=7, shuffle=True)
    np.testing.assert_array_equal(predict(model, typed, node_type="v0", loader=loader), whole)
    found = predictions_of(model, typed, node_type="v0", loader=loader)
    assert found.class_names == ("a", "b", "c")
    assert found.scores is None
    with pytest.raises(ValueError, match="got HeteroData without batch_size in batch 0"):
        predict(model, typed, node_type="v1", loader=loader)


def test_a_model_may_return_rows_of_the_first_nodes_only(graph):
    model = network(GraphSAGE)
    loader = all_neighbors(graph, 2, batch_size=17)
    found = predict(
        lambda batch: model(batch.x, batch.edge_index)[: batch.batch_size].detach(),
        graph,
        loader=loader,
    )
    np.testing.assert_array_equal(found, predict(model, graph))
    with pytest.raises(ValueError, match=r"output .*got 3"):
        predict(lambda batch: batch.x[:3], graph, loader=loader)


def test_no_more_than_one_batch_is_held_and_the_model_is_left_as_it_was(graph):
    calls = []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.dropout = torch.nn.Linear(8, 3), torch.nn.Dropout()

        def forward(self, x, edge_index):
            calls.append((len(x), self.training, torch.is_grad_enabled()))
            return self.linear(self.dropout(x))

    model, state = Model(), torch.get_rng_state()
    predict(model, graph, loader=all_neighbors(graph, 0, batch_size=32, shuffle=True))
    assert calls == [(32, False, False)] * 6 + [(8, False, False)]
    assert model.training
    assert model.dropout.training
    assert bool((torch.get_rng_state() == state).all())


def test_random_loaders_draw_the_same_every_time(graph):
    def seen(*_):
        order = []
        loader = all_neighbors(graph, 0, batch_size=32, shuffle=True)
        predict(lambda part: order.extend(part.n_id.tolist()) or part.x, graph, loader=loader)
        return order

    first = seen()
    torch.manual_seed(11)
    assert first == seen()
    assert first != sorted(first)


def test_batches_go_to_the_device_of_the_weights(graph):
    """The device "meta" stands for one that is not the graph's; it holds no numbers, so that the model makes them."""
    seen = []

    class Model(torch.nn.Module):
        def __init__(self, device):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(8, 2, device=device))

        def forward(self, x, edge_index):
            seen.append((x.device.type, edge_index.device.type))
            return torch.zeros(len(x), 2)

    for device in ("meta", "cpu"):
        predict(Model(device), graph, loader=all_neighbors(graph, 1, batch_size=100))
    assert seen == [("meta", "meta")] * 2 + [("cpu", "cpu")] * 2
    assert graph.x.device.type == "cpu"
    loader = all_neighbors(graph, 1, batch_size=200)
    predict(lambda x, edge_index: seen.append(x.device.type) or x, graph, loader=loader)
    assert seen[-1] == "cpu"


def batch(n_id, size, **more):
    return Data(
        x=torch.eye(4)[:, :2],
        edge_index=torch.empty(2, 0).long(),
        n_id=torch.tensor(n_id),
        batch_size=size,
        **more,
    )


SMALL = batch([0, 1, 2, 3], 4)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([batch([0, 1, 2, 3], 2), batch([2, 0, 1, 3], 1)], r"no batch with node 3 .*\(1 of 4"),
        ([], r"no batch with node 0 .*\(4 of 4 nodes are missing\)"),
        ([batch([0, 1, 2, 3], 2), batch([2, 1, 0, 3], 2)], "every node once, got node 1 twice"),
        ([batch([0, 3, 3, 2], 3)], "every node once, got node 3 twice"),
        ([batch([0, 1, 2, 4], 4)], r"n_id of batch 0 must lie in 0..3, got 4"),
        ([batch([0, 1, 2, -1], 4)], "n_id of batch 0 must lie in"),
        ([batch([0, 1], 3)], r"batch_size of batch 0 must lie in 0..2, its nodes, got 3"),
        ([Data(x=torch.eye(4))], "got Data without n_id and batch_size in batch 0. ClusterLoader"),
        ([batch([0, 1, 2, 3], None)], "got Data without batch_size in batch 0"),
        ([torch.tensor([0, 1])], "got Tensor without n_id and batch_size"),
    ],
)
def test_batches_that_are_refused(batches, message):
    with pytest.raises(ValueError, match=message):
        predict(lambda x: x, SMALL, loader=batches)


def test_outputs_for_batches_that_are_refused():
    loader = [batch([3, 2, 1, 0], 2), batch([1, 0, 3, 2], 2)]
    nan = torch.tensor([[0.0, 1.0], [1.0, float("nan")], [0.0, 1.0], [0.0, 1.0]])
    with pytest.raises(ValueError, match="output for batch 0 must not be NaN, got NaN for node 2"):
        predict(lambda x: nan, SMALL, loader=loader)
    with pytest.raises(ValueError, match=r"output .*got texts: give data class_names"):
        predict(lambda x: ["a", "b", "a", "a"], SMALL, loader=loader)
    named = SMALL.clone()
    named.class_names = ["a", "b"]
    assert predict(lambda x: ["a", "b", "a", "a"], named, loader=loader).tolist() == [1, 0, 1, 0]
    with pytest.raises(TypeError, match="got tuple of Tensor"):
        predict(lambda x: (x, x), SMALL, loader=loader)


def test_loaders_that_are_refused(graph):
    with pytest.raises(TypeError, match="loader must yield batches of the graph, got int"):
        predict(lambda x: x, SMALL, loader=3)
    with pytest.raises(ValueError, match=r"loader .*got list"):
        predict([0, 1, 0, 1], SMALL, loader=[SMALL])
    with pytest.raises(ValueError, match="RandomNodeLoader cut edges"):
        predict(lambda x: x, graph, loader=RandomNodeLoader(graph, num_parts=4))
