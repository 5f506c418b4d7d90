"""Meta-paths: the graph that PyG's AddMetaPaths adds, and errors that name the step; data with node types."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch_geometric.typing
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import AddMetaPaths

import cfe_faiss as cfe
from cfe_faiss.graph.metapath import as_node_type, is_heterogeneous, nodes_of

WRITES, WRITTEN = ("author", "writes", "paper"), ("paper", "rev_writes", "author")
APPEARS, PUBLISHES = ("paper", "appears", "venue"), ("venue", "publishes", "paper")


@pytest.fixture
def data():
    """Return authors 0..3, papers 0..2 by 0 and 1, by 1 and 2, by 2, and one venue for the last two."""
    data = HeteroData()
    data["author"].x = torch.eye(4)
    data["author"].y = torch.tensor([0, 1, 0, 1])
    data["author"].train_mask = torch.tensor([True, False, True, False])
    data["author"].class_names = ["junior", "senior"]
    data["paper"].num_nodes = 3
    data["venue"].num_nodes = 1
    written = torch.tensor([[0, 1, 1, 2, 2], [0, 0, 1, 1, 2]])
    data[WRITES].edge_index, data[WRITTEN].edge_index = written, written.flip(0)
    data[APPEARS].edge_index = torch.tensor([[1, 2], [0, 0]])
    data[PUBLISHES].edge_index = torch.tensor([[0, 0], [1, 2]])
    return data


def edges(graph):
    return list(zip(*graph.edge_index.tolist(), strict=True))


def test_authors_of_one_paper(data):
    graph = cfe.metapath_graph(data, [WRITES, WRITTEN])
    assert edges(graph) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)]
    assert graph.num_nodes == 4
    assert graph.x is data["author"].x
    assert graph.y is data["author"].y
    assert graph.train_mask is data["author"].train_mask
    assert graph.class_names == ["junior", "senior"]
    assert "edge_weight" not in graph


def test_ways_to_write_a_step(data):
    expected = edges(cfe.metapath_graph(data, [WRITES, WRITTEN]))
    assert edges(cfe.metapath_graph(data, (("author", "paper"), ["paper", "author"]))) == expected
    assert edges(cfe.metapath_graph(data, [list(WRITES), WRITTEN])) == expected


# PyG's sparse products by MKL end the process on some processors; those without MKL do not.
@pytest.fixture(autouse=True, scope="module")
def without_mkl():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_geometric.typing, "NO_MKL", True)
        yield


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")  # of torch, in their transform
@given(st.integers(0, 1000), st.booleans(), st.booleans())
def test_the_same_as_pyg(seed, weighted, with_weights):
    """The edges and weights of PyG's transform, which keeps some edges twice where edges are parallel."""
    generator = torch.Generator().manual_seed(seed)
    data = HeteroData()
    sizes = {"a": 9, "b": 5, "c": 4}
    for kind, n in sizes.items():
        data[kind].num_nodes = n
    path = [("a", "to", "b"), ("b", "to", "c"), ("c", "to", "b"), ("b", "back", "a")]
    for start, name, end in path:
        ends = [torch.randint(0, sizes[kind], (12,), generator=generator) for kind in (start, end)]
        data[start, name, end].edge_index = torch.stack(ends)
        if with_weights:
            data[start, name, end].edge_weight = torch.randint(
                1, 4, (12,), generator=generator
            ).float()
    theirs = AddMetaPaths([path], weighted=weighted)(data.clone())["a", "metapath_0", "a"]
    expected = np.zeros((9, 9))
    np.add.at(
        expected, tuple(theirs.edge_index.numpy()), theirs.edge_weight.numpy() if weighted else 1
    )
    expected = expected if weighted else np.minimum(expected, 1)
    if theirs.edge_index.shape[1] == 0:
        with pytest.raises(ValueError, match="got no path along a -> b -> c -> b -> a"):
            cfe.metapath_graph(data, path, weighted=weighted)
        return
    graph = cfe.metapath_graph(data, path, weighted=weighted)
    ours = np.zeros((9, 9))
    np.add.at(ours, tuple(graph.edge_index.numpy()), graph.edge_weight.numpy() if weighted else 1)
    np.testing.assert_array_equal(ours, expected)
    assert graph.num_edges == (expected > 0).sum()


@pytest.mark.parametrize(
    ("metapath", "error", "message"),
    [
        ([], TypeError, "metapath must be a sequence of edge types, at least one, got"),
        ("author", TypeError, "metapath .*got 'author'"),
        (None, TypeError, "at least one, got None"),
        ([WRITES, APPEARS], ValueError, "must end at the node type where it starts, got author ->"),
        ([WRITES, PUBLISHES], ValueError, r"go .*got \('venue', .*after \('author', 'wr"),
        ([("author", "likes", "paper"), WRITTEN], ValueError, r"be .*got \('author', 'lik"),
        ([("author", "venue")], ValueError, r"got \('author', 'venue'\)"),
        ([3], ValueError, "must be of edge types of data .* got 3"),
    ],
)
def test_paths_that_are_refused(data, metapath, error, message):
    with pytest.raises(error, match=message):
        cfe.metapath_graph(data, metapath)


def test_data_that_are_refused(data):
    with pytest.raises(TypeError, match="data must be HeteroData, got Data"):
        cfe.metapath_graph(cfe.metapath_graph(data, [WRITES, WRITTEN]), [WRITES, WRITTEN])
    data["author", "reviews", "paper"].edge_index = torch.tensor([[0], [0]])
    with pytest.raises(ValueError, match=r"must name one edge type in each step, got \('author'"):
        cfe.metapath_graph(data, [("author", "paper"), WRITTEN])
    data[WRITES].edge_index = torch.tensor([[0, 4], [0, 0]])
    with pytest.raises(ValueError, match=r"edge_index of \('author', 'writes', 'paper'\)"):
        cfe.metapath_graph(data, [WRITES, WRITTEN])
    data[WRITES].edge_index = torch.tensor([0, 1])
    with pytest.raises(ValueError, match=r"must have shape \(2, E\), got \(2,\)"):
        cfe.metapath_graph(data, [WRITES, WRITTEN])
    del data[WRITES].edge_index
    data[WRITES].edge_weight = torch.ones(3)
    with pytest.raises(ValueError, match=r"data .*got edge_weight"):
        cfe.metapath_graph(data, [WRITES, WRITTEN])
    del data["paper"].num_nodes
    with pytest.raises(ValueError, match=r"data\['paper'\].num_nodes is not set"):
        cfe.metapath_graph(data, [WRITES, WRITTEN])


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_transposed_matrices_stand_for_edges(data):
    expected = cfe.metapath_graph(data, [WRITES, WRITTEN], weighted=True)
    ends = data[WRITES].edge_index.flip(0)
    data[WRITES].adj_t = torch.sparse_coo_tensor(ends, torch.ones(5), (3, 4)).to_sparse_csr()
    del data[WRITES].edge_index
    graph = cfe.metapath_graph(data, [WRITES, WRITTEN], weighted=True)
    assert edges(graph) == edges(expected)
    assert torch.equal(graph.edge_weight, expected.edge_weight)
    values = torch.tensor([2.0, 1, 1, 1, 0])
    data[WRITES].adj_t = torch.sparse_coo_tensor(ends, values, (3, 4))
    wanted = [2, 2, 1, 2, 1, 1, 1]
    assert cfe.metapath_graph(data, [WRITES, WRITTEN], weighted=True).edge_weight.tolist() == wanted
    assert edges(cfe.metapath_graph(data, [WRITES, WRITTEN])) == edges(expected)
    data[WRITES].adj_t = torch.sparse_coo_tensor(ends, values, (3, 5))
    with pytest.raises(ValueError, match=r"adj_t .*got \(3, 5\)"):
        cfe.metapath_graph(data, [WRITES, WRITTEN])


def test_no_path(data):
    data[WRITTEN].edge_index = data[WRITTEN].edge_index[:, :0]
    with pytest.raises(ValueError, match=r"metapath .*got no path along author -> paper -> author"):
        cfe.metapath_graph(data, [WRITES, WRITTEN])


def test_weights_that_are_refused(data):
    data[WRITES].edge_weight = torch.tensor([1.0, 2.0])
    with pytest.raises(ValueError, match=r"edge_weight .*got shape \(2,\)"):
        cfe.metapath_graph(data, [WRITES, WRITTEN], weighted=True)
    assert cfe.metapath_graph(data, [WRITES, WRITTEN]).num_edges == 7
    data[WRITES].edge_weight = torch.full((5,), float("nan"))
    with pytest.raises(ValueError, match="must be finite"):
        cfe.metapath_graph(data, [WRITES, WRITTEN], weighted=True)


def test_nodes_of_one_type():
    data = HeteroData()
    data["author"].x = torch.eye(3)
    data["paper"].x = torch.eye(2)
    assert is_heterogeneous(data)
    assert as_node_type("node_type", data, "paper") == "paper"
    assert nodes_of(data, "author").x is data["author"].x
    for wrong in (None, "venue", 0):
        message = rf"must be one of the node types \(author, paper\), got {wrong!r}"
        with pytest.raises(ValueError, match=message):
            nodes_of(data, wrong)


@pytest.mark.parametrize("data", [Data(x=torch.eye(2)), SimpleNamespace(x=[[1.0]])])
def test_nodes_without_types(data):
    assert not is_heterogeneous(data)
    assert nodes_of(data, None) is data
    with pytest.raises(ValueError, match="node_type is for HeteroData, got node_type='a'"):
        nodes_of(data, "a")
