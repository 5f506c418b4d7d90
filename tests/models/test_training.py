"""Training: what it reaches and repeats, also after an interruption."""

import math

import numpy as np
import pytest
import torch
from torch_geometric.nn.models import GCN
from weights import equal, weights

from cfe_faiss.models import gcn, gin, predict, train


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
    before = {
        key: value.clone()
        for key, value in patients.to_dict().items()
        if isinstance(value, torch.Tensor)
    }
    train(gcn(patients), patients, epochs=2)
    assert equal(before, {key: patients[key] for key in before})


def test_class_weights_make_classes_count_equally(patients):
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
        options = {"epochs": 150, "lr": 0.05, "weight_decay": 0, "patience": 150}
        train(model, data, class_weights=class_weights, **options)
        logits = model.logits.detach()
        return math.exp(logits[1] - logits[0])

    in_training = patients.y[patients.train_mask].bincount()
    assert odds(True) == pytest.approx(1, abs=0.01)
    assert odds(False) == pytest.approx(float(in_training[1] / in_training[0]), abs=0.02)


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


def test_training_refuses_a_classifier_of_other_classes(patients):
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got function"):
        train(lambda x, edge_index: x, patients)
    three = _with_second_input(patients)
    three.y = three.y + torch.arange(569) % 2
    with pytest.raises(ValueError, match=r"logits of shape \(569, C\) with C >= 3, got \(569, 2\)"):
        train(torch.nn.Bilinear(30, 1, 2), three)


def test_a_model_of_one_logit_is_trained(patients):
    model = GCN(30, 16, 2, 1)
    report = train(model, patients, epochs=60)
    assert report.test_accuracy > 0.85
    with torch.no_grad():
        logits = model(patients.x, patients.edge_index).flatten()
    np.testing.assert_array_equal(predict(model, patients), logits > 0)


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


class StoppedError(Exception):
    """What the interrupted trainings below end with."""


class Breakable(torch.nn.Module):
    """A network with state of every kind (dropout, running means) that fails at a given call."""

    def __init__(self, patients, calls):
        super().__init__()
        self.network = gin(patients)
        self.calls = calls

    def forward(self, x, edge_index):
        self.calls -= 1
        if self.calls == 0:
            raise StoppedError
        return self.network(x, edge_index)


NEVER = -1


MORE_STOPS = [pytest.param(*stop, marks=pytest.mark.slow) for stop in [(20, 50), (60, 50), (21, 8)]]


@pytest.mark.parametrize(("calls", "patience"), [(1, 50), (21, 50), (45, 8), *MORE_STOPS])
def test_a_resumed_training_ends_as_if_never_interrupted(patients, tmp_path, calls, patience):
    def run(calls, checkpoint=None):
        model = Breakable(patients, calls)
        return model, train(
            model, patients, epochs=34, lr=0.05, patience=patience, checkpoint=checkpoint
        )

    straight, expected = run(NEVER)
    file = tmp_path / "state"
    with pytest.raises(StoppedError):
        run(calls, file)
    assert file.exists() == (calls > 20)
    model, report = run(NEVER, file)
    assert report == expected
    assert equal(weights(model), weights(straight))
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_an_ended_training_is_not_run_again(patients, tmp_path):
    first = gcn(patients)
    train(first, patients, epochs=25, checkpoint=tmp_path / "state")
    again = gcn(patients)
    calls = []
    again.register_forward_hook(lambda *_: calls.append(1))
    train(again, patients, epochs=25, checkpoint=tmp_path / "state")
    assert len(calls) == 1  # for the report
    assert equal(weights(first), weights(again))


def test_a_checkpoint_of_another_training_is_refused(patients, tmp_path):
    checkpoint, message = tmp_path / "state", r"checkpoint .*state must come from the same training"
    train(gcn(patients), patients, epochs=10, checkpoint=checkpoint)
    for change in (
        {"epochs": 20},
        {"lr": 0.02},
        {"seed": 1},
        {"class_weights": True},
        {"patience": 9},
        {"weight_decay": 0},
    ):
        with pytest.raises(ValueError, match=message):
            train(gcn(patients), patients, **{"epochs": 10, **change}, checkpoint=checkpoint)
    other, model = patients.clone(), gcn(patients, seed=1)
    other.x, before = patients.x + 1, weights(model)
    for network, data in ((model, patients), (gcn(patients), other)):
        with pytest.raises(ValueError, match=message):
            train(network, data, epochs=10, checkpoint=checkpoint)
    assert equal(weights(model), before)


def test_nodes_without_a_true_class_are_neither_right_nor_wrong(patients):
    data = patients.clone()
    some = torch.nonzero(data.test_mask).ravel()[:40]
    data.y[some] = -1
    report = train(model := gcn(data), data, epochs=3)
    known = data.test_mask & (data.y >= 0)
    right = torch.from_numpy(predict(model, data)) == data.y
    assert report.test_accuracy == pytest.approx(float(right[known].double().mean()))
    data.val_mask[some[0]] = True
    message = f"val_mask must hold nodes with a true class only, got y = -1 for node {some[0]}"
    with pytest.raises(ValueError, match=message):
        train(model, data, epochs=3)


def test_classes_of_training_are_integers(patients):
    data = patients.clone()
    data.y = data.y.float()
    with pytest.raises(TypeError, match=r"data.y must be integers, got dtype float32"):
        train(gcn(patients), data, epochs=3)
    data.y = patients.y[:, None]
    with pytest.raises(ValueError, match=r"data.y must have shape \(569,\)"):
        train(gcn(patients), data, epochs=3)
