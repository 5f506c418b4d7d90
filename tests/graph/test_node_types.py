"""Node types: which data have them, and what errors say."""

from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from cfe_faiss.graph.node_types import as_node_type, is_heterogeneous, nodes_of


def test_nodes_of_one_type():
    data = HeteroData()
    data["author"].x = torch.eye(3)
    data["paper"].x = torch.eye(2)
    assert is_heterogeneous(data)
    assert as_node_type("node_type", data, "paper") == "paper"
    assert nodes_of(data, "author").x is data["author"].x
    for wrong in (None, "venue", 0):
        with pytest.raises(ValueError, match=rf"must be one of the node types \(author, paper\), got {wrong!r}"):
            nodes_of(data, wrong)


@pytest.mark.parametrize("data", [Data(x=torch.eye(2)), SimpleNamespace(x=[[1.0]])])
def test_nodes_without_types(data):
    assert not is_heterogeneous(data)
    assert nodes_of(data, None) is data
    with pytest.raises(ValueError, match=r"node_type is for HeteroData, got node_type='a' for (Data|SimpleNamespace)"):
        nodes_of(data, "a")
