"""The sparse matrix says what the edges say, whatever comes next."""

import copy
import io
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.nn.models import GCN, GIN, GraphSAGE
from torch_geometric.utils import to_torch_csr_tensor

from cfe_faiss.models import gcn, gin, sage

KINDS = {
    "gcn": (gcn, GCN, {}),
    "gin": (gin, GIN, {"norm": "batch_norm"}),
    "sage": (sage, GraphSAGE, {}),
}


def stock(name, model, patients, hidden=16):
    """Return PyG's own network with the weights of ours."""
    _, kind, options = KINDS[name]
    network = kind(patients.x.shape[1], hidden, 2, 2, dropout=0.5, **options)
    network.load_state_dict(model.network.state_dict())
    return network


@pytest.mark.parametrize("name", KINDS)
@given(seed=st.integers(0, 10_000))
def test_the_matrix_gives_what_the_edges_give(patients, name, seed):
    """Directed edges, parallel ones, self-loops, nodes without neighbours."""
    rng = np.random.default_rng(seed)
    edges = torch.from_numpy(rng.integers(0, rng.integers(2, 570), (2, rng.integers(1, 2000))))
    model = KINDS[name][0](patients, seed=seed).eval()
    expected = stock(name, model, patients).eval()(patients.x, edges)
    torch.testing.assert_close(model(patients.x, edges), expected, rtol=1e-4, atol=1e-4)


def test_another_graph_and_a_changed_one_are_seen(patients):
    model = gcn(patients).eval()
    edges = patients.edge_index.clone()
    first = model(patients.x, edges)
    assert torch.equal(model(patients.x, edges), first)
    fewer = model(patients.x, edges[:, :500])
    assert not torch.equal(fewer, first)
    edges[:, 500:] = 0
    changed = model(patients.x, edges)
    assert not torch.equal(changed, first)
    assert torch.equal(changed, gcn(patients).eval()(patients.x, edges))
    assert model(patients.x[:50], edges % 50).shape == (50, 2)


def test_copies_and_files_do_not_hold_the_graph(patients):
    model = gcn(patients).eval()
    expected = model(patients.x, patients.edge_index)
    file = io.BytesIO()
    torch.save(model, file)
    assert file.tell() < patients.edge_index.nbytes
    assert torch.equal(copy.deepcopy(model)(patients.x, patients.edge_index), expected)


def test_a_matrix_is_taken_as_well(patients):
    model = sage(patients).eval()
    expected = model(patients.x, patients.edge_index)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of sparse tensors
        matrix = to_torch_csr_tensor(patients.edge_index.flip(0), size=(569, 569))
        torch.testing.assert_close(model(patients.x, matrix), expected)


@pytest.mark.parametrize(
    "edges",
    [
        torch.tensor([[0], [569]]),
        torch.tensor([[-1], [0]]),
        torch.ones(3, 2).long(),
        torch.ones(2, 3),
    ],
)
def test_edges_that_are_refused(patients, edges):
    with pytest.raises(ValueError, match="edge_index must"):
        gcn(patients)(patients.x, edges)


@pytest.mark.parametrize("name", KINDS)
def test_explainers_mask_single_edges(patients, name):
    model = KINDS[name][0](patients)
    explainer = Explainer(
        model,
        GNNExplainer(epochs=3),
        explanation_type="model",
        edge_mask_type="object",
        model_config={
            "mode": "multiclass_classification",
            "task_level": "node",
            "return_type": "raw",
        },
    )
    mask = explainer(patients.x, patients.edge_index).edge_mask
    assert mask.shape == (patients.num_edges,)
    assert mask.unique().numel() > 5
