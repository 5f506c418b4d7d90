import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from commands import D, N
from reference import with_rows

import cfe_faiss as cfe
from cfe_faiss.cli import main
from cfe_faiss.datasets import load
from cfe_faiss.models import gcn, train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a graph, vectors and predicted classes, and the index files of two kinds made from them."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, D)).astype(np.float32)
    edges = rng.integers(N, size=(2, 900))
    labels = rng.integers(4, size=N)
    np.save(folder / "x.npy", x)
    np.savetxt(folder / "x.csv", x, delimiter=",", header="a,b,c,d,e,f", comments="", fmt="%.9g")
    np.save(folder / "e.npy", edges)
    np.savetxt(folder / "e.txt", edges.T, fmt="%d")
    scipy.sparse.save_npz(
        folder / "e.npz", scipy.sparse.coo_matrix((np.ones(900), edges), shape=(N, N)).tocsr()
    )
    np.save(folder / "y.npy", labels)
    np.savetxt(folder / "y.txt", labels, fmt="%d")
    flat = with_rows(cfe.IndexEvidenceIDMap2(D), x, labels, ids=np.arange(N) * 10)
    cfe.write_index(flat, folder / "flat.cfe")
    ivf = with_rows(cfe.IndexEvidenceIVF(D, 12, 2), x, labels)
    cfe.write_index(ivf, folder / "ivf.cfe")
    return folder


@pytest.fixture
def output(capsys):
    """Run a command that succeeds, and return what it writes to standard output; it says nothing else."""

    def run(*arguments, notes=""):
        assert main([str(argument) for argument in arguments]) == 0
        captured = capsys.readouterr()
        assert captured.err == notes
        return captured.out

    return run


@pytest.fixture
def error(capsys):
    """Run a command that fails, and return its only line of complaint."""

    def run(*arguments):
        assert main([str(argument) for argument in arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert re.fullmatch(r"cfe-faiss: error: .+\n", captured.err)
        return captured.err

    return run


@pytest.fixture(scope="module")
def people(folder):
    """Attributes of the nodes of the index files, and in ``people.csv``."""
    rng = np.random.default_rng(1)
    people = pd.DataFrame({"sex": rng.choice(["f", 'm, "or" so'], 10 * N)})
    people["age"] = rng.integers(18, 80, 10 * N)
    people["zero"] = 0
    people.to_csv(folder / "people.csv", index=False)
    return people


@pytest.fixture(scope="session")
def patients(tmp_path_factory):
    """An index of the patients, built by the command."""
    path = tmp_path_factory.mktemp("patients") / "patients.cfe"
    found = main(["build", str(path), "--dataset", "patients", "--model", "sage", "--seed", "2"])
    assert found == 0
    return path


@dataclass(frozen=True)
class OwnFolder:
    """The patients in files as users keep them, and what these hold."""

    path: Path
    data: Any
    ids: np.ndarray
    probabilities: np.ndarray

    def options(self, *names):
        """The options of the command line that name files."""
        known = {
            "features": ["--features", "people.csv", "--id", "patient"],
            "edges": ["--edges", "edges.csv"],
            "predictions": ["--predictions", "pred.csv"],
            "truth": ["--truth", "people.csv:diagnosis"],
            "split": ["--split", "split.csv"],
        }
        return [part for name in names for part in known[name]]


@pytest.fixture(scope="session")
def own_folder(tmp_path_factory):
    """Tables of the patients in shuffled orders, with ids that are texts, and a class with a comma in its name."""
    path = tmp_path_factory.mktemp("own")
    data = load("patients")
    n = len(data.x)
    rng = np.random.default_rng(0)
    ids = np.array([f"P-{number:03d}" for number in rng.permutation(n)], object)
    model = gcn(data)
    train(model, data)
    with torch.no_grad():
        probabilities = torch.softmax(model.eval()(data.x, data.edge_index), 1).double().numpy()
    frame = pd.DataFrame(data.x_raw.numpy().astype(float), columns=data.feature_names)
    frame.insert(0, "patient", ids)
    frame["sex"] = rng.choice(["female", "male"], n)
    frame["clinic"] = rng.choice(["North, old", "South"], n)
    frame["diagnosis"] = np.array(["malignant, sure", "benign"])[data.y]
    frame.to_csv(path / "people.csv", index=False)
    frame.to_parquet(path / "people.parquet", index=False)
    source, target = data.edge_index.numpy()
    pd.DataFrame({"from": ids[source], "to": ids[target]}).to_csv(path / "edges.csv", index=False)
    order = rng.permutation(n)
    columns = {"patient": ids, "malignant, sure": probabilities[:, 0]}
    columns["benign"] = probabilities[:, 1]
    pd.DataFrame(columns).iloc[order].to_csv(path / "pred.csv", index=False)
    parts = np.where(data.train_mask, "train", np.where(data.val_mask, "val", "test"))
    pd.DataFrame({"patient": ids, "part": parts}).iloc[order].to_csv(
        path / "split.csv", index=False
    )
    test = data.test_mask.numpy()
    pd.DataFrame({"patient": ids, "asked": test.astype(int)}).to_csv(path / "mask.csv", index=False)
    pd.DataFrame({"patient": ids[test]}).to_csv(path / "list.csv", index=False)
    return OwnFolder(path, data, ids, probabilities)


@pytest.fixture
def inside(own_folder, monkeypatch):
    """The folder of the patients' files, and the process in it."""
    monkeypatch.chdir(own_folder.path)
    return own_folder
