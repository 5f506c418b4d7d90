from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import cfe_faiss as cfe
from cfe_faiss.audit import fine_tune
from cfe_faiss.audit.intervals import bootstrap_mean
from cfe_faiss.datasets import load
from cfe_faiss.models import gcn, predict, train

SHORT = {"epochs": 8}


@pytest.fixture(scope="module")
def data():
    return load("patients")


@pytest.fixture(scope="module")
def model(data):
    model = gcn(data)
    train(model, data, epochs=40)
    return model


@pytest.fixture(scope="module")
def pairs(data, model):
    return cfe.EvidenceFinder.from_data(data, model, nodes=data.test_mask).top_pairs(30)


def state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def tuned_by(model, data, pairs, **options):
    labels = np.zeros(1, np.int32)
    index = cfe.IndexEvidenceIDMap2(1)
    finder = cfe.EvidenceFinder(np.zeros((1, 1), np.float32), labels, index, model=model, data=data)
    return fine_tune(finder, pairs=pairs, **options)


def by_hand(model, data, pairs, seed, *, with_evidence=True):
    """Train a copy, and return its weights and which of the remaining test nodes are right."""
    evidence = sorted({*pairs.source.tolist(), *pairs.target.tolist()})
    tuning, tuned = data.clone(), deepcopy(model)
    if with_evidence:
        tuning.train_mask[evidence], tuning.val_mask[evidence] = True, False
    train(tuned, tuning, seed=seed, **SHORT)
    remaining = [v for v in range(len(data.x)) if data.test_mask[v] and v not in evidence]
    return tuned.state_dict(), (predict(tuned, data) == data.y.numpy())[remaining]


@pytest.fixture(scope="module")
def result(data, model, pairs):
    return tuned_by(model, data, pairs, seeds=[3, 0], **SHORT)


def test_runs_equal_training_by_hand(data, model, pairs, result):
    evidence = np.union1d(pairs.source, pairs.target)
    remaining = np.setdiff1d(np.flatnonzero(data.test_mask), evidence)
    before = (predict(model, data) == data.y.numpy())[remaining]
    after = np.array([by_hand(model, data, pairs, seed)[1] for seed in (3, 0)])
    control = np.array(
        [by_hand(model, data, pairs, seed, with_evidence=False)[1] for seed in (3, 0)]
    )
    runs = result.runs
    assert runs["seed"].tolist() == [3, 0]
    assert set(runs["tuned"]) == {len(evidence)}
    assert set(runs["nodes"]) == {len(remaining)}
    assert_allclose(runs["before"], before.mean())
    assert_allclose(runs["after"], after.mean(axis=1))
    assert_allclose(runs["control"], control.mean(axis=1))
    assert runs["fixed"].tolist() == (after & ~before).sum(axis=1).tolist()
    assert runs["broken"].tolist() == (~after & before).sum(axis=1).tolist()

    summary = result.summary.set_index("measure")
    for name, values in (("after", after), ("control", control)):
        assert_allclose(summary.loc[name, "mean"], values.mean())
        assert_allclose(summary.loc[name, "std"], values.mean(axis=1).std(ddof=1))
        found = summary.loc[name, ["low", "high"]].tolist()
        assert_allclose(found, bootstrap_mean(values.mean(axis=0)))
    gain = (after.astype(float) - control).mean(axis=0)
    assert_allclose(summary.loc["after - control", "mean"], gain.mean())
    interval = summary.loc["after - control", ["low", "high"]].tolist()
    assert_allclose(interval, bootstrap_mean(gain, bounds=(-1, 1)))
    assert_allclose(summary.loc["after - before", "mean"], (after.astype(float) - before).mean())
    assert set(summary["seeds"]) == {2}
    assert set(summary["nodes"]) == {len(remaining)}


def test_nothing_of_the_callers_changes(data, model, pairs):
    weights = state(model)
    masks = {name: data[name].clone() for name in ("train_mask", "val_mask", "test_mask")}
    model.train()
    random = torch.get_rng_state()
    tuned_by(model, data, pairs, seeds=[1], **SHORT)
    assert model.training
    assert torch.equal(torch.get_rng_state(), random)
    assert same(weights, model.state_dict())
    assert all(
        parameter.grad is None or not parameter.grad.any() for parameter in model.parameters()
    )
    assert all(torch.equal(data[name], mask) for name, mask in masks.items())
    model.eval()


def test_in_place_takes_the_first_seed(data, model, pairs, result):
    other = deepcopy(model)
    inplace = tuned_by(other, data, pairs, seeds=[3, 0], inplace=True, **SHORT)
    assert same(other.state_dict(), by_hand(model, data, pairs, 3)[0])
    assert not other.training
    assert inplace.runs.equals(result.runs)


def test_evidence_as_validation_nodes_chooses_the_weights(data, model, pairs):
    evidence = np.union1d(pairs.source, pairs.target)
    tuning, tuned = data.clone(), deepcopy(model)
    tuning.val_mask = torch.zeros_like(data.val_mask)
    tuning.val_mask[evidence] = True
    train(tuned, tuning, seed=0, **SHORT)
    other = deepcopy(model)
    runs = tuned_by(other, data, pairs, role="validation", seeds=[0], inplace=True, **SHORT).runs
    assert same(other.state_dict(), tuned.state_dict())
    remaining = np.setdiff1d(np.flatnonzero(data.test_mask), evidence)
    found = runs.loc[0, "after"]
    assert found == pytest.approx((predict(tuned, data) == data.y.numpy())[remaining].mean())
    as_training = tuned_by(model, data, pairs, seeds=[0], **SHORT).runs
    names = ["tuned", "nodes", "control"]
    assert runs.loc[0, names].equals(as_training.loc[0, names])


def test_no_pairs_and_no_remaining_nodes(data, model):
    nothing = SimpleNamespace(source=np.empty(0, np.int64), target=np.empty(0, np.int64))
    result = tuned_by(model, data, nothing, seeds=[0], **SHORT)
    assert result.runs.loc[0, ["tuned", "nodes"]].tolist() == [0, int(data.test_mask.sum())]
    assert result.runs.loc[0, "after"] == result.runs.loc[0, "control"]
    assert result.summary["std"].isna().all()
    tested = np.flatnonzero(data.test_mask)
    result = tuned_by(
        model, data, SimpleNamespace(source=tested, target=tested), seeds=[0, 1], **SHORT
    )
    assert set(result.runs["nodes"]) == {0}
    assert result.runs[["before", "after", "control"]].isna().all(axis=None)
    assert result.summary[["mean", "std", "low", "high"]].isna().all(axis=None)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model": lambda x, edge_index: x}, TypeError, "model .*got function"),
        ({"data": SimpleNamespace(x=[[1.0]])}, ValueError, "data must have edge_index"),
        ({"pairs": [(0, 1)]}, TypeError, "pairs must have source"),
        ({"pairs": SimpleNamespace(source=[0], target=[569])}, ValueError, "pairs must"),
        ({"seeds": []}, ValueError, "seeds must be one seed at least"),
        ({"seeds": [1, 1]}, ValueError, "seeds must be one seed at least, each once"),
        ({"seeds": [-1]}, ValueError, "seeds must be at least 0"),
        ({"role": "test"}, ValueError, r"role must be one of \(training, validation\), got 'test'"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1"),
    ],
)
def test_faults(data, model, pairs, change, error, message):
    with pytest.raises(error, match=message):
        tuned_by(**({"model": model, "data": data, "pairs": pairs} | change))


def test_nodes_without_a_true_class_are_left_out(data, model, pairs):
    unknown = data.clone()
    evidence = np.union1d(pairs.source, pairs.target)
    rest = np.setdiff1d(np.flatnonzero(data.test_mask), evidence)
    unknown.y[[evidence[0], *rest[:10]]] = -1
    runs = tuned_by(model, unknown, pairs, seeds=[0], **SHORT).runs
    assert runs[["tuned", "nodes"]].iloc[0].tolist() == [len(evidence) - 1, len(rest) - 10]
    right = predict(model, data)[rest[10:]] == data.y.numpy()[rest[10:]]
    assert runs["before"][0] == pytest.approx(right.mean())
