"""Predicting: what a model may return, and that asking it leaves no trace."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal
from torch_geometric.data import Data
from weights import equal, weights

import cfe_faiss as cfe
from cfe_faiss.data.call import outputs
from cfe_faiss.data.predict import predictions_of
from cfe_faiss.datasets import load
from cfe_faiss.models import evaluate, gcn, predict


def test_prediction_is_the_largest_logit_in_evaluation_mode(patients, trained):
    model, _ = trained
    with torch.no_grad():
        expected = model(patients.x, patients.edge_index).argmax(dim=1).numpy()
    model.train()
    labels = predict(model, patients)
    assert labels.dtype == np.int64
    assert labels.shape == (569,)
    assert_array_equal(labels, expected)
    model.eval()


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was_found(patients, fails):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(30)
            self.frozen = torch.nn.Dropout()
            self.linear = torch.nn.Linear(30, 2)
            self.seen = None

        def forward(self, x, edge_index):
            modes = (self.training, self.norm.training, self.frozen.training)
            self.seen = (*modes, torch.is_grad_enabled())
            torch.rand(3)
            if fails:
                raise RuntimeError("the model's own error")
            return self.linear(self.frozen(self.norm(x)))

    model = Model()
    model.frozen.eval()
    model.linear.weight.grad = torch.full_like(model.linear.weight, 2)
    modes = [part.training for part in model.modules()]
    assert sorted(set(modes)) == [False, True]
    before, state = weights(model), torch.get_rng_state()
    if fails:
        with pytest.raises(RuntimeError, match="the model's own error"):
            predict(model, patients)
    else:
        predict(model, patients)
    assert model.seen == (False, False, False, False)
    assert [part.training for part in model.modules()] == modes
    assert equal(before, weights(model))
    assert bool((model.linear.weight.grad == 2).all())
    assert bool((torch.get_rng_state() == state).all())
    assert torch.is_grad_enabled()


@dataclass
class Dataclass:
    logits: torch.Tensor
    loss: float


EXPECTED = np.arange(569) % 3
LOGITS = torch.from_numpy(np.eye(3, dtype=np.float32)[EXPECTED])


@pytest.mark.parametrize(
    "output",
    [
        LOGITS,
        LOGITS.to(torch.bfloat16),
        LOGITS.clone().requires_grad_(),
        LOGITS.numpy().astype(np.float64),
        LOGITS.log(),
        torch.from_numpy(EXPECTED),
        EXPECTED.astype(np.int32),
        EXPECTED.tolist(),
        list(np.eye(3)[EXPECTED]),
    ],
)
def test_outputs_that_a_model_may_give(patients, output):
    labels = predict(lambda x, edge_index: output, patients)
    assert_array_equal(labels, EXPECTED)
    assert labels.dtype == np.int64


def test_one_logit_decides_between_two_classes(patients):
    logits = torch.linspace(-1, 1, 569)[:, None]
    assert_array_equal(predict(lambda x, edge_index: logits, patients), (logits > 0).flatten())
    both = torch.cat([torch.zeros_like(logits), logits], dim=1)
    one, two = (
        evaluate(lambda x, edge_index, y=y: y, patients, patients.test_mask) for y in (logits, both)
    )
    assert one == two
    with pytest.raises(ValueError, match="must be logits where there is one column, got numbers"):
        predict(lambda x, edge_index: logits.sigmoid(), patients)


def test_one_logit_in_batches(patients):
    patients = patients.clone()
    patients.x, nodes = patients.x[:9], torch.arange(9)
    logits = torch.linspace(-1, 1, 9)[:, None]
    batches = [
        patients.clone().update({"n_id": nodes[i : i + 1], "batch_size": 1, "x": logits[i : i + 1]})
        for i in nodes
    ]
    expected = (logits > 0).flatten()
    assert_array_equal(predict(lambda x, edge_index: x, patients, loader=batches), expected)
    with pytest.raises(ValueError, match="must be logits where there is one column"):
        predict(lambda x, edge_index: x.sigmoid(), patients, loader=batches)


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        (LOGITS[:5], ValueError, r"\(569, C\) with C >= 2 .* got shape \(5, 3\)"),
        (torch.from_numpy(EXPECTED[:, None]), ValueError, r"got shape \(569, 1\)"),
        (LOGITS[:, 0] + 0.25, TypeError, "output must be integers.*got"),
        (torch.from_numpy(EXPECTED[:5]), ValueError, r"got shape \(5,\)"),
        (torch.from_numpy(EXPECTED - 1), ValueError, "output .*got none"),
        (torch.full((569, 2), math.nan), ValueError, "got NaN for node 0"),
        (None, TypeError, "output must be an array of real numbers"),
        ({"logits": LOGITS}, TypeError, r"got dict of logits=Tensor \(569, 3\): hand"),
        ((LOGITS, LOGITS[:5]), TypeError, r"got tuple of Tensor \(569, 3\), Tensor \(5, 3\): hand"),
        ((LOGITS, None), TypeError, r"got tuple of Tensor \(569, 3\), NoneType"),
        ([LOGITS, LOGITS], TypeError, r"got list of Tensor \(569, 3\), Tensor"),
        (Dataclass(LOGITS, 0.5), TypeError, r"got Dataclass of logits=Tensor \(569, 3\)"),
        (SimpleNamespace(logits=LOGITS), TypeError, r"SimpleNamespace of logits=Tensor \(569, 3\)"),
    ],
)
def test_outputs_that_are_refused(patients, output, error, message):
    with pytest.raises(error, match=message):
        predict(lambda x, edge_index: output, patients)


def test_predict_names_wrong_arguments(patients):
    with pytest.raises(TypeError, match="model must be a model, got the class Linear"):
        predict(torch.nn.Linear, patients)
    with pytest.raises(ValueError, match=r"model \(the predictions\) must be .* got shape \(2,\)"):
        predict([1, 2], patients)
    with pytest.raises(TypeError, match=r"model must be callable .* got list"):
        outputs([0, 1], patients)
    data = patients.clone()
    del data.edge_index
    with pytest.raises(ValueError, match="data must have edge_index"):
        predict(gcn(patients), data)


# --- every kind of predictions --------------------------------------------------------------------------------------


PATIENTS = load("patients")
GCN = gcn(PATIENTS)
GCN_LABELS = predict(GCN, PATIENTS)
TEXTS = np.array(PATIENTS.class_names)[GCN_LABELS]
with torch.no_grad():
    GCN_LOGITS = GCN.eval()(PATIENTS.x, PATIENTS.edge_index).numpy()

KINDS = {
    "module": GCN,
    "function": lambda x, edge_index: GCN.eval()(x, edge_index),
    "of data": lambda data: GCN.eval()(data.x, data.edge_index),
    "numbers": GCN_LABELS,
    "texts": TEXTS,
    "logits": GCN_LOGITS,
    "probabilities": torch.from_numpy(GCN_LOGITS).softmax(dim=1),
    "frame": pd.DataFrame(GCN_LOGITS, columns=PATIENTS.class_names)[["benign", "malignant"]],
    "series": pd.Series(TEXTS).sample(frac=1, random_state=0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_the_predictions_are(kind):
    model = KINDS[kind]
    found = predictions_of(model, PATIENTS)
    assert_array_equal(found.labels, GCN_LABELS)
    assert found.class_names == ("malignant", "benign")
    assert_array_equal(predict(model, PATIENTS), GCN_LABELS)
    finder = cfe.EvidenceFinder.from_data(PATIENTS, model)
    assert_array_equal(finder.labels, GCN_LABELS)
    assert finder.class_names == ("malignant", "benign")
    judged = evaluate(model, PATIENTS)
    assert judged.accuracy == evaluate(GCN_LABELS, PATIENTS).accuracy
    assert np.isnan(judged.auc) == (found.scores is None)
    if found.scores is not None:
        assert judged.auc == pytest.approx(evaluate(GCN_LOGITS, PATIENTS).auc)


def test_no_torch_object_is_needed_without_a_call():
    x = np.eye(4)
    data = SimpleNamespace(x=x, edge_index=[[0, 1], [1, 2]], class_names=["no", "yes"])
    assert_array_equal(predictions_of(["yes", "no", "no", "yes"], data).labels, [1, 0, 0, 1])
    finder = cfe.EvidenceFinder.from_data(data, ["yes", "no", "no", "yes"])
    assert finder.class_name(finder.labels[0]) == "yes"
    # a function of NumPy arrays
    assert_array_equal(predictions_of(lambda x, edge_index: x[:, :2], data).labels, [0, 1, 0, 0])


def test_texts_are_not_guessed_to_be_true_classes():
    data = Data(
        x=torch.eye(4), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 1, 0])
    )
    data.test_mask = torch.ones(4, dtype=torch.bool)
    for ask in (cfe.EvidenceFinder.from_data, lambda data, model: evaluate(model, data)):
        with pytest.raises(ValueError, match=r"data must have class_names, .*: the model predicts"):
            ask(data, ["yes", "no", "no", "yes"])
