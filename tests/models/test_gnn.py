"""Networks: their layers, their first weights, what they reach."""

import pytest
import torch
from weights import equal, weights

from cfe_faiss.models import NAMES, build, gat, gcn, train
from cfe_faiss.models.gnn import EdgeFunction


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"hidden": 0}, ValueError),
        ({"num_layers": 0}, ValueError),
        ({"dropout": 1.5}, ValueError),
        ({"hidden": 2.0}, TypeError),
        ({"seed": -1}, ValueError),
    ],
)
def test_wrong_arguments_of_gcn(patients, arguments, error):
    with pytest.raises(error, match=next(iter(arguments))):
        gcn(patients, **arguments)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_learns(patients, name):
    model = build(name, patients, seed=1)
    assert model(patients.x, patients.edge_index).shape == (569, 2)
    assert train(model, patients, lr=0.02, epochs=35).test_accuracy > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_every_model_follows_its_seed(patients, name):
    first = weights(build(name, patients, seed=1, hidden=8, num_layers=3, dropout=0.1))
    assert equal(first, weights(build(name, patients, seed=1, hidden=8, num_layers=3, dropout=0.1)))
    assert not equal(
        first, weights(build(name, patients, seed=2, hidden=8, num_layers=3, dropout=0.1))
    )


def test_names_and_heads_that_are_refused(patients):
    with pytest.raises(ValueError, match=r"name .*got 'mlp'"):
        build("mlp", patients)
    with pytest.raises(ValueError, match=r"hidden must be a multiple of heads \(3\), got 16"):
        gat(patients, heads=3)


def test_an_edge_function_is_that_of_its_docstring():
    """m_vu = relu(A h_v + B h_u + b), h'_v = C h_v + D mean_u(m_vu), by a loop over the edges."""
    torch.manual_seed(0)
    layer = EdgeFunction(3, 5)
    x = torch.randn(4, 3)
    source, target = torch.tensor([[0, 1, 1, 3], [1, 2, 2, 2]])
    expected = layer.of_itself(x)
    for v in (1, 2):
        messages = [
            torch.relu(layer.of_target(x[v]) + layer.of_source(x[u])) for u in source[target == v]
        ]
        expected[v] = expected[v] + layer.of_messages(sum(messages) / len(messages))
    torch.testing.assert_close(layer(x, torch.stack([source, target])), expected)


def test_an_edge_function_draws_all_weights_anew():
    layer = EdgeFunction(3, 5)
    before = {name: weight.clone() for name, weight in layer.state_dict().items()}
    layer.reset_parameters()
    assert all((weight != before[name]).all() for name, weight in layer.state_dict().items())
