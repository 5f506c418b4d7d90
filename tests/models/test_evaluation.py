"""Evaluation against counts by hand."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from cfe_faiss.models import evaluate, predict


def graph(y, sensitive=None, mask=None):
    y = torch.tensor(y)
    data = Data(
        y=y, test_mask=torch.ones(len(y), dtype=torch.bool) if mask is None else torch.tensor(mask)
    )
    if sensitive is not None:
        data.sensitive = torch.tensor(sensitive)
    return data


def test_eight_nodes_counted_by_hand():
    #                 s=0: three of five called 1        s=1: one of three
    data = graph([1, 1, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1, 1, 1])
    found = evaluate(np.array([1, 0, 1, 0, 1, 1, 0, 0]), data)
    assert (found.n, found.group_sizes, found.positive_group_sizes) == (8, (5, 3), (3, 2))
    assert found.accuracy == 5 / 8
    assert found.f1 == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))
    assert found.parity_difference == pytest.approx(3 / 5 - 1 / 3)
    assert found.opportunity_difference == pytest.approx(2 / 3 - 1 / 2)
    assert math.isnan(found.auc)


def test_only_the_mask_counts():
    data = graph([1, 0, 1, 0], [0, 1, 0, 1], [True, True, False, False])
    predictions = np.array([1, 0, 0, 1])
    assert evaluate(predictions, data).accuracy == 1
    assert evaluate(predictions, data, ~data.test_mask).accuracy == 0
    everything = evaluate(predictions, data, np.ones(4, dtype=bool))
    assert (everything.n, everything.accuracy, everything.group_sizes) == (4, 0.5, (2, 2))


@given(seed=st.integers(0, 10_000))
def test_auc_is_the_share_of_pairs_in_the_right_order(seed):
    rng = np.random.default_rng(seed)
    y = np.concatenate([[0, 1, 2], rng.integers(0, 3, 20)])
    logits = rng.normal(size=(23, 3)).astype(np.float32)
    share = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)

    def area(c):
        return (share[y == c, c][:, None] > share[y != c, c]).mean()

    expected = np.mean([area(c) for c in range(3)])
    assert evaluate(logits, graph(y)).auc == pytest.approx(expected)
    assert evaluate(share, graph(y)).auc == pytest.approx(expected)
    binary = (y > 0).astype(int)
    ahead = (logits[binary == 1, 1] - logits[binary == 1, 0])[:, None] - (
        logits[:, 1] - logits[:, 0]
    )[binary == 0]
    assert evaluate(logits[:, :2], graph(binary)).auc == pytest.approx((ahead > 0).mean())
    assert evaluate(np.zeros((23, 2)), graph(binary)).auc == 0.5


def test_f1_of_more_classes_is_their_mean():
    found = evaluate(np.array([0, 0, 1, 2, 2, 0]), graph([0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]))
    assert found.f1 == pytest.approx((4 / 5 + 2 / 3 + 1 / 2) / 3)
    assert math.isnan(found.parity_difference)
    assert math.isnan(found.opportunity_difference)
    assert found.group_sizes == (3, 3)


def test_what_cannot_be_said_is_nan():
    bare = evaluate(np.array([[0.0, 1.0]] * 3), graph([1, 1, 1]))
    assert math.isnan(bare.auc)
    assert math.isnan(bare.parity_difference)
    assert bare.group_sizes == bare.positive_group_sizes == ()
    alone = evaluate(np.array([1, 0, 1]), graph([1, 1, 0], [0, 0, 0]))
    assert (alone.group_sizes, alone.positive_group_sizes) == ((3, 0), (2, 0))
    assert math.isnan(alone.parity_difference)
    no_positives = evaluate(np.array([1, 0]), graph([1, 0], [0, 1]))
    assert no_positives.parity_difference == 1
    assert math.isnan(no_positives.opportunity_difference)


def test_a_model_and_its_output_get_equal_measures(patients, trained):
    model, report = trained
    found = evaluate(model, patients)
    with torch.no_grad():
        assert evaluate(model(patients.x, patients.edge_index), patients) == found
    assert found.accuracy == pytest.approx(report.test_accuracy)
    assert found.n == int(patients.test_mask.sum())
    assert found.auc > 0.95
    of_classes = evaluate(predict(model, patients), patients)
    assert math.isnan(of_classes.auc)
    assert dataclasses.replace(of_classes, auc=found.auc) == found


@pytest.mark.parametrize(
    ("model", "mask", "message"),
    [
        (np.zeros(3, dtype=int), None, r"got shape \(3,\)"),
        (np.zeros(4, dtype=int), np.full(4, 0.5), r"mask .*got float64 \(4,\)"),
        (np.zeros(4, dtype=int), np.ones(3, dtype=bool), r"got bool \(3,\)"),
        (np.zeros(4, dtype=int), np.zeros(4, dtype=bool), "mask .*got none of 4"),
    ],
)
def test_what_is_refused(model, mask, message):
    with pytest.raises(ValueError, match=message):
        evaluate(model, graph([0, 1, 0, 1]), mask)


def test_a_sensitive_attribute_of_three_values_is_refused():
    with pytest.raises(ValueError, match=r"data\.sensitive must be 0 or 1, got 2"):
        evaluate(np.zeros(3, dtype=int), graph([0, 1, 0], [0, 1, 2]))


def test_nodes_without_a_true_class_are_left_out():
    data = graph([1, 0, -1, 1], [0, 1, -1, -1])
    found = evaluate(np.array([1, 1, 0, 1]), data)
    assert (found.n, found.accuracy, found.group_sizes) == (3, pytest.approx(2 / 3), (1, 1))
    assert data.test_mask.all()
    with pytest.raises(ValueError, match="mask must hold a node with a true class"):
        evaluate(np.array([1, 1, 0, 1]), graph([-1, -1, -1, -1]))
