"""Models: what training reaches and repeats, and that predicting leaves no trace."""

import dataclasses
import math

import numpy as np
import pytest

from cfe_faiss.datasets import load
from cfe_faiss.models import TrainingReport, gcn, predict, train

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def patients():
    return load("patients")


@pytest.fixture(scope="module")
def trained(patients):
    model = gcn(patients)
    return model, train(model, patients)


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(a, b):
    return a.keys() == b.keys() and all(bool((a[name] == b[name]).all()) for name in a)


# ---------------------------------------------------------------- gcn


def test_gcn_has_the_layers_asked_for(patients):
    model = gcn(patients, hidden=7, num_layers=3)
    assert [(conv.in_channels, conv.out_channels) for conv in model.convs] == [(30, 7), (7, 7), (7, 2)]
    assert model(patients.x, patients.edge_index).shape == (569, 2)


def test_first_weights_follow_the_seed_alone(patients):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = weights(gcn(patients, seed=1))
    assert bool((torch.get_rng_state() == before).all())
    torch.manual_seed(4)
    assert equal(first, weights(gcn(patients, seed=1)))
    assert not equal(first, weights(gcn(patients, seed=2)))


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


# ---------------------------------------------------------------- train


def test_training_reaches_what_a_gcn_reaches(trained):
    _, report = trained
    assert report.test_accuracy > 0.93
    assert report.val_accuracy > 0.93
    assert report.best_epoch <= report.epochs <= 200


def test_the_report_is_that_of_the_weights_left(patients, trained):
    model, report = trained
    assert not any(part.training for part in model.modules())
    right = torch.from_numpy(predict(model, patients)) == patients.y
    for name in ("train", "val", "test"):
        share = right[patients[f"{name}_mask"]].double().mean()
        assert getattr(report, f"{name}_accuracy") == pytest.approx(float(share), abs=1e-6)
    with torch.no_grad():
        logits = model(patients.x, patients.edge_index)[patients.val_mask]
    log_odds = logits.log_softmax(dim=1)
    expected = -log_odds[torch.arange(len(log_odds)), patients.y[patients.val_mask]].mean()
    assert report.val_loss == pytest.approx(float(expected), abs=1e-6)


def test_early_stopping_returns_to_the_best_epoch(patients):
    # With a huge rate the loss soon rises, and patience epochs later training ends.
    model = gcn(patients)
    report = train(model, patients, lr=0.5, patience=4, epochs=100)
    assert report.epochs == report.best_epoch + 4 < 100
    again = gcn(patients)
    short = train(again, patients, lr=0.5, patience=4, epochs=report.best_epoch)
    assert (short.best_epoch, short.val_loss) == (report.best_epoch, report.val_loss)
    assert equal(weights(model), weights(again))


def test_training_follows_the_seed_alone(patients):
    def run(seed):
        model = gcn(patients)
        return train(model, patients, epochs=5, seed=seed), weights(model)

    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = run(1)
    assert bool((torch.get_rng_state() == before).all())
    torch.manual_seed(4)
    again, other = run(1), run(2)
    assert first[0] == again[0]
    assert equal(first[1], again[1])
    assert not equal(first[1], other[1])


def test_the_graph_is_left_as_it_was(patients):
    before = {key: value.clone() for key, value in patients.to_dict().items() if isinstance(value, torch.Tensor)}
    train(gcn(patients), patients, epochs=2)
    assert equal(before, {key: patients[key] for key in before})


def test_class_weights_make_classes_count_alike(patients):
    """A model of one constant: weighted, its best guess is even odds; unweighted, the share in the training set."""

    class Constant(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.logits = torch.nn.Parameter(torch.zeros(4))

        def forward(self, x, edge_index):
            return self.logits.expand(len(x), 4)

    def odds(class_weights):
        data = patients.clone()
        data.val_mask = data.train_mask
        model = Constant()
        train(model, data, epochs=400, lr=0.05, weight_decay=0, patience=400, class_weights=class_weights)
        logits = model.logits.detach()
        return math.exp(logits[1] - logits[0])

    in_training = patients.y[patients.train_mask].bincount()
    assert odds(True) == pytest.approx(1, abs=0.01)
    assert odds(False) == pytest.approx(float(in_training[1] / in_training[0]), abs=0.02)


def test_class_weights_where_a_class_has_no_training_node(patients):
    data = patients.clone()
    data.y = data.y.clone()
    data.y[data.train_mask] = 1
    assert math.isfinite(train(gcn(data), data, epochs=2, class_weights=True).test_accuracy)


def test_an_interrupted_training_leaves_the_best_weights(patients):
    class Interrupted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = gcn(patients)
            self.calls = 0

        def forward(self, x, edge_index):
            self.calls += 1
            if self.calls == 6:  # the validation of epoch 3, after its step
                raise KeyboardInterrupt
            return self.network(x, edge_index)

    model = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        train(model, patients)
    reference = gcn(patients)
    report = train(reference, patients, epochs=2)
    assert report.best_epoch == 2
    assert equal(weights(model.network), weights(reference))
    assert not model.training


def test_empty_test_mask_gives_nan(patients):
    data = patients.clone()
    data.test_mask = torch.zeros(569, dtype=torch.bool)
    report = train(gcn(data), data, epochs=1)
    assert math.isnan(report.test_accuracy)
    assert report.train_accuracy > 0


@pytest.mark.parametrize("name", ["x", "edge_index", "y", "train_mask", "val_mask", "test_mask"])
def test_training_names_what_the_data_lacks(patients, name):
    data = patients.clone()
    del data[name]
    with pytest.raises(ValueError, match=f"data must have {name}"):
        train(gcn(patients), data)


@pytest.mark.parametrize("name", ["train_mask", "val_mask"])
def test_training_needs_nodes(patients, name):
    data = patients.clone()
    data[name] = torch.zeros(569, dtype=torch.bool)
    with pytest.raises(ValueError, match=f"{name} must hold at least one node, got none of 569"):
        train(gcn(data), data)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"epochs": 0}, ValueError),
        ({"patience": 0}, ValueError),
        ({"lr": -1}, ValueError),
        ({"lr": math.nan}, ValueError),
        ({"weight_decay": -1}, ValueError),
        ({"epochs": 1.5}, TypeError),
        ({"seed": -1}, ValueError),
    ],
)
def test_wrong_arguments_of_train(patients, arguments, error):
    with pytest.raises(error, match=next(iter(arguments))):
        train(gcn(patients), patients, **arguments)


def test_training_refuses_what_is_no_classifier_of_these_classes(patients):
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got function"):
        train(lambda x, edge_index: x, patients)
    with pytest.raises(ValueError, match=r"logits of shape \(569, C\) with C >= 2, got \(569, 1\)"):
        train(torch.nn.Bilinear(30, 1, 1), _with_second_input(patients))


def _with_second_input(patients):
    data = patients.clone()
    data.edge_index = torch.ones(569, 1)
    return data


def test_a_loss_that_is_not_finite_is_an_error(patients):
    data = patients.clone()
    data.x = data.x.clone()
    data.x[0, 0] = math.nan
    with pytest.raises(ValueError, match="validation loss is nan after epoch 1"):
        train(gcn(data), data)


def test_the_report_is_frozen(trained):
    _, report = trained
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.epochs = 1
    assert isinstance(report, TrainingReport)


def test_progress_is_quiet_when_piped(patients, capfd):
    train(gcn(patients), patients, epochs=2, progress=True)
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- predict


def test_prediction_is_the_largest_logit_in_evaluation_mode(patients, trained):
    model, _ = trained
    with torch.no_grad():
        expected = model(patients.x, patients.edge_index).argmax(dim=1).numpy()
    model.train()
    labels = predict(model, patients)
    assert labels.dtype == np.int64
    assert labels.shape == (569,)
    np.testing.assert_array_equal(labels, expected)
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
            self.seen = (self.training, self.norm.training, self.frozen.training, torch.is_grad_enabled())
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


def test_a_random_model_predicts_the_same_every_time(patients):
    labels = predict(lambda x, edge_index: torch.rand(len(x), 3), patients)
    assert set(labels) == {0, 1, 2}
    torch.manual_seed(5)
    np.testing.assert_array_equal(predict(lambda x, edge_index: torch.rand(len(x), 3), patients), labels)


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
    ],
    ids=["float32", "bfloat16", "with gradients", "array", "minus infinity", "classes", "class array", "class list"],
)
def test_outputs_that_a_model_may_give(patients, output):
    labels = predict(lambda x, edge_index: output, patients)
    np.testing.assert_array_equal(labels, EXPECTED)
    assert labels.dtype == np.int64


def test_equal_logits_give_the_smaller_class(patients):
    assert not predict(lambda x, edge_index: torch.ones(len(x), 3), patients).any()


@pytest.mark.parametrize(
    ("output", "error", "message"),
    [
        (LOGITS[:5], ValueError, r"\(569, C\) with C >= 2 .* got shape \(5, 3\)"),
        (LOGITS[:, :1], ValueError, r"got shape \(569, 1\)"),
        (LOGITS[:, 0], ValueError, r"got shape \(569,\), dtype float32"),
        (torch.from_numpy(EXPECTED[:5]), ValueError, r"got shape \(5,\)"),
        (torch.from_numpy(EXPECTED - 1), ValueError, "output must lie in 0"),
        (torch.full((569, 2), math.nan), ValueError, "got NaN for node 0"),
        (None, TypeError, "output must be an array of real numbers"),
        ({"logits": LOGITS}, TypeError, "output must be an array of real numbers"),
        ((LOGITS, LOGITS[:5]), ValueError, "got tuple"),
    ],
    ids=["nodes", "one column", "float classes", "classes", "negative", "nan", "none", "dict", "tuple"],
)
def test_outputs_that_are_refused(patients, output, error, message):
    with pytest.raises(error, match=message):
        predict(lambda x, edge_index: output, patients)


def test_predict_names_what_is_wrong_with_its_arguments(patients):
    with pytest.raises(TypeError, match=r"model must be callable .* got list"):
        predict([1, 2], patients)
    data = patients.clone()
    del data.edge_index
    with pytest.raises(ValueError, match="data must have edge_index"):
        predict(gcn(patients), data)


# ---------------------------------------------------------------- what the models are for


def test_patients_have_near_pairs_that_the_model_treats_differently(patients, trained):
    model, _ = trained
    labels = predict(model, patients)
    source, target = patients.edge_index.numpy()
    assert (labels[source] != labels[target]).sum() > 20
    assert 150 < (labels == 0).sum() < 260


def test_cora(data_root):
    data = load("cora", data_root)
    report = train(gcn(data, hidden=16), data, epochs=60)
    assert report.test_accuracy > 0.85
