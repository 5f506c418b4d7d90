import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import with_rows

import cfe_faiss as cfe
from cfe_faiss.cli import main, scale
from cfe_faiss.scale import Job

pytestmark = pytest.mark.usefixtures("shared_workers")


@pytest.fixture
def inputs(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "features": rng.normal(size=(300, 6)).astype(np.float32),
        "edges": rng.integers(0, 300, (2, 900)),
        "labels": rng.integers(0, 2, 300),
        "edge-weight": rng.exponential(size=900),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return [part for name in arrays for part in (f"--{name}", str(tmp_path / f"{name}.npy"))]


def test_a_job_is_run_looked_at_and_resumed(inputs, tmp_path, capsys):
    folder = str(tmp_path / "job")
    options = ["-k", "3", "--exact", "--nlist", "10", "--pairs", "5"]
    options += ["--workers", "1", "--memory", "1GB"]
    assert main(["scale", "run", folder, *inputs, *options]) == 0
    assert "is finished: evidence in" in capsys.readouterr().err
    job = Job(folder)
    X = np.concatenate([*job.vectors()])
    features, edges, weights = (
        np.load(tmp_path / f"{name}.npy") for name in ("features", "edges", "edge-weight")
    )
    assert_array_equal(X, cfe.ks_vectors(features, edges, edge_weight=weights))
    flat = with_rows(cfe.IndexEvidenceIDMap2(6), X, np.load(tmp_path / "labels.npy"))
    found = np.sort(job.evidence().to_table()["evidence"])
    assert_array_equal(found, np.sort(flat.search_stored(k=3)[1].ravel()))
    assert main(["scale", "status", folder, "--json"]) == 0
    stages = json.loads(capsys.readouterr().out)
    expected = ["evidence", "groups", "sketch", "pairs", "top"]
    assert [stage["stage"] for stage in stages][-5:] == expected
    assert all(stage["finished"] == stage["of"] for stage in stages)
    assert stages[-1]["cpu_seconds"] > 0
    assert main(["scale", "status", folder]) == 0
    lines = capsys.readouterr().out.splitlines()
    wanted = ["stage", "finished", "of", "written", "peak", "memory", "time", "processors", "left"]
    assert lines[0].split() == wanted
    assert lines[-1].split()[0] == "top"
    assert lines[-1].endswith("0.0 s")
    assert main(["scale", "resume", folder]) == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "unknown"),
        (0.04, "0.0 s"),
        (59, "59.0 s"),
        (90, "2 min"),
        (7260, "2 h 01 min"),
    ],
)
def test_times_have_units(value, text):
    assert scale._time(value) == text


def test_errors_are_one_line(inputs, tmp_path, capsys):
    assert main(["scale", "status", str(tmp_path / "nothing")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    np.save(tmp_path / "features.npy", np.full((300, 6), np.nan))
    assert main(["scale", "run", str(tmp_path / "job"), *inputs, "--workers", "1"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "stage step-0, block 0: ValueError: features must be finite in float32" in error
