from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal
from torch_geometric.data import Data

import cfe_faiss as cfe
from cfe_faiss.data.predict import predictions_of
from cfe_faiss.datasets import load
from cfe_faiss.models import evaluate, gcn, predict

PATIENTS = load("patients")
MODEL = gcn(PATIENTS)
LABELS = predict(MODEL, PATIENTS)
TEXTS = np.array(PATIENTS.class_names)[LABELS]
with torch.no_grad():
    LOGITS = MODEL.eval()(PATIENTS.x, PATIENTS.edge_index).numpy()

KINDS = {
    "module": MODEL,
    "function": lambda x, edge_index: MODEL.eval()(x, edge_index),
    "of data": lambda data: MODEL.eval()(data.x, data.edge_index),
    "numbers": LABELS,
    "texts": TEXTS,
    "logits": LOGITS,
    "probabilities": torch.from_numpy(LOGITS).softmax(dim=1),
    "frame": pd.DataFrame(LOGITS, columns=PATIENTS.class_names)[["benign", "malignant"]],
    "series": pd.Series(TEXTS).sample(frac=1, random_state=0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_the_predictions_are(kind):
    model = KINDS[kind]
    found = predictions_of(model, PATIENTS)
    assert_array_equal(found.labels, LABELS)
    assert found.class_names == ("malignant", "benign")
    assert_array_equal(predict(model, PATIENTS), LABELS)
    finder = cfe.EvidenceFinder.from_data(PATIENTS, model)
    assert_array_equal(finder.labels, LABELS)
    assert finder.class_names == ("malignant", "benign")
    judged = evaluate(model, PATIENTS)
    assert judged.accuracy == evaluate(LABELS, PATIENTS).accuracy
    assert np.isnan(judged.auc) == (found.scores is None)
    if found.scores is not None:
        assert judged.auc == pytest.approx(evaluate(LOGITS, PATIENTS).auc)


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
