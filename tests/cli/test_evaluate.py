import json

import numpy as np
import pytest
from commands import frame_of, records

from cfe_faiss import audit, models
from cfe_faiss.datasets import load
from cfe_faiss.models import gcn, predict, train


@pytest.fixture
def inside(own_folder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(own_folder.path)
    return own_folder


def test_own_files(inside, output) -> None:
    options = inside.options("features", "predictions", "truth")
    for nodes, mask in ((), None), (("--nodes", "mask.csv"), inside.data.test_mask):
        (row,) = json.loads(output("evaluate", *options, *nodes, "--json"))
        mask = np.ones(len(inside.ids), bool) if mask is None else mask.numpy()
        found = models.evaluate(inside.probabilities, inside.data, mask)
        assert row == {"nodes": found.n, "accuracy": found.accuracy, "f1": found.f1, "auc": found.auc}


def test_groups(inside, output) -> None:
    options = [*inside.options("features", "predictions", "truth"), "--sensitive", "sex", "clinic"]
    text = output("evaluate", *options, "--favourable", "benign", "--csv")
    frame = frame_of(text, "csv")
    attributes = {
        name: [line[name] for line in records((inside.path / "people.csv").read_text(), "csv")]
        for name in ("sex", "clinic")
    }
    expected = audit.group_metrics(
        y_true=inside.data.y,
        y_pred=inside.probabilities,
        sensitive_features=attributes,
        favourable=1,
        class_names=["malignant, sure", "benign"],
    ).table
    assert list(frame.columns) == list(expected.columns)
    assert frame["value"].tolist() == expected["value"].tolist()
    np.testing.assert_allclose(frame["ratio"].astype(float), expected["ratio"], rtol=1e-12)
    assert "female & North, old" in output("evaluate", *options)


def test_unknown_true_classes_are_counted(inside, output) -> None:
    (inside.path / "gaps.csv").write_text("patient,diagnosis\n" + f"{inside.ids[3]},benign\n{inside.ids[4]},\n")
    note = f"cfe-faiss: note: no true class for {len(inside.ids) - 1} of {len(inside.ids)} nodes\n"
    options = inside.options("features", "predictions")
    (row,) = json.loads(output("evaluate", *options, "--truth", "gaps.csv", "--json", notes=note))
    assert row["nodes"] == 1


def test_data_sets(tmp_path, output) -> None:
    data = load("patients", seed=3)
    model = gcn(data, seed=3)
    train(model, data, seed=3)
    labels = predict(model, data)
    (row,) = json.loads(output("evaluate", "--dataset", "patients", "--seed", 3, "--json"))
    found = models.evaluate(labels, data)
    assert (row["nodes"], row["accuracy"], row["f1"]) == (found.n, found.accuracy, found.f1)
    np.save(tmp_path / "y.npy", labels)
    options = ("--dataset", "patients", "--seed", 3, "--predictions", tmp_path / "y.npy")
    assert json.loads(output("evaluate", *options, "--json")) == [row]
    np.savetxt(tmp_path / "y.csv", np.array(data.class_names)[labels], fmt="%s", header="class", comments="")
    options = ("--dataset", "patients", "--seed", 3, "--predictions", tmp_path / "y.csv")
    assert json.loads(output("evaluate", *options, "--json")) == [row]


def test_a_number_is_a_name_where_classes_are_numbers(tmp_path, monkeypatch, output, error) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_text("sex,truth,loan\n" + "f,1,2\nf,2,2\nm,1,1\nm,2,2\n" * 10)
    line = "evaluate --features p.csv --predictions p.csv:loan --truth p.csv:truth --sensitive sex --csv --favourable"
    assert frame_of(output(*line.split(), "1"), "csv")["selected"].astype(int).tolist() == [10, 0, 10]
    assert "--favourable must be among the classes (1, 2), got 0" in error(*line.split(), "0")
