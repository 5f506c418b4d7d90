"""Files of weights: whole or not there, and read without running what they hold."""

import pickle

import pytest
import torch
from weights import equal, weights

from cfe_faiss.models import gcn, load, sage, save, train


def test_weights_come_back(patients, tmp_path):
    model, other = gcn(patients, seed=1), gcn(patients, seed=2)
    save(model, tmp_path / "weights")
    load(other, tmp_path / "weights")
    assert equal(weights(model), weights(other))
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_a_failed_write_leaves_the_old_file(patients, tmp_path):
    class Broken(torch.nn.Module):
        def state_dict(self):
            return {"weight": torch.ones(3), "lock": (value for value in ())}

    path = tmp_path / "weights"
    save(gcn(patients), path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match="generator"):
        save(Broken(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_weights_of_another_model_are_refused(patients, tmp_path):
    save(gcn(patients), tmp_path / "weights")
    for other in (gcn(patients, hidden=8), gcn(patients, num_layers=3), sage(patients)):
        before = weights(other)
        with pytest.raises(ValueError, match="must hold the weights of a model of this kind, got"):
            load(other, tmp_path / "weights")
        assert equal(weights(other), before)


class Trap:
    """Its pickle makes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_reading_runs_nothing(patients, tmp_path):
    sprung = tmp_path / "sprung"
    torch.save({"weights": Trap(sprung)}, tmp_path / "of torch")
    (tmp_path / "of pickle").write_bytes(pickle.dumps(Trap(sprung), protocol=2))
    for name in ("of torch", "of pickle"):
        with pytest.raises(ValueError, match="must be a file that this package saved"):
            load(gcn(patients), tmp_path / name)
        with pytest.raises(ValueError, match="must be a file that this package saved"):
            train(gcn(patients), patients, checkpoint=tmp_path / name)
    assert not sprung.exists()


def test_files_of_another_kind_are_refused(patients, tmp_path):
    path = tmp_path / "weights"
    save(gcn(patients), path)
    for content in (path.read_bytes()[:-200], b"", b"not a file of torch", b"PK\x03\x04 cut off"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="must be a file that this package saved"):
            load(gcn(patients), path)
    torch.save([torch.ones(3)], path)
    with pytest.raises(ValueError, match="got list"):
        load(gcn(patients), path)


def test_foreign_files_are_replaced_only_when_asked(patients, tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"mine")
    model = gcn(patients)
    with pytest.raises(ValueError, match="has not written"):
        save(model, path)
    with pytest.raises(ValueError, match="must be a file that this package saved"):
        train(model, patients, epochs=1, checkpoint=path)
    assert path.read_bytes() == b"mine"
    save(model, path, overwrite=True)
    save(model, path)
    other = gcn(patients, seed=1)
    load(other, path)
    assert equal(weights(model), weights(other))


def test_torch_that_runs_code_from_files_is_refused(patients, tmp_path, monkeypatch):
    save(gcn(patients), tmp_path / "weights")
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(ImportError, match=r"torch 2\.9\.1\+cpu loads files unsafely: pip install"):
        load(gcn(patients), tmp_path / "weights")
