"""The benchmark scripts on tiny cases: they run and compare equal results, and their pages are those of the results."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def script():
    """Make the scripts importable by name, as they import each other, and forget them afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS / "paper"))
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def recall_kept(script):
    script.RECALLS = (0.95,)  # the module is forgotten after the test
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 12))[rng.integers(0, 40, 1500)] + 0.4 * rng.normal(size=(1500, 12))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    labels = rng.integers(0, 3, 1500)
    one = script.Set("x", "a set", X, labels, X[:50], labels[:50], "EvidenceIVF20,Flat")
    for cell in script.measured(one)["asked for"]["0.95"].values():
        assert 0.9 < cell["mean"] <= 1


def false_pairs(script):
    script.DRAWS = script.SPLITS = 3  # the module is forgotten after the test
    for make in (script.documents, script.classes):
        found = script.counted(script.draws(make, 250))["rates"]["0.05"]
        assert 0 <= found["mean"] < 0.15
    rows = script.topics(np.random.default_rng(0), 600)
    assert script.counted(script.splits(rows, 2))["new"] == 300


def calibration(script):
    cells = importlib.import_module("calibration_cells")
    results = {part: {} for part in ("cells", "families", "changes", "real")}
    assert script.run_cell("flip_50", cells.CELLS["flip_50"], results, 1)
    assert not script.run_cell("flip_50", cells.CELLS["flip_50"], results, 1)
    assert script.run_families(results, "rare", 1)
    assert script.run_change("better_flip_50", cells.CHANGES["better_flip_50"], results, 1)
    assert results["changes"]["better_flip_50"]["rates"] == {"advantaged": 1}


def calibration_findings(script):
    nothing, race = (script.findings(planted, 600, 1) for planted in ("nothing", "race"))
    assert nothing["right"] + nothing["another"] == 1
    assert race["named"] >= race["stand"]


def link_vectors(script):
    script.MOST_LINKS = 150  # the module is forgotten after the test
    kinds = script.measured("patients")["kinds"]
    assert kinds["best matching"]["recall"] == 1
    assert kinds["sum"]["recall"] < kinds[script.OURS]["recall"] < 1


def audit_report(script):
    found = script.measure("mixed", 400, 24)
    assert (found["rows"], found["columns"]) == (400, 24)


def tanimoto(script):
    # compares the ways with each other itself
    times = script.measure("key-like", 300, 1)["milliseconds"]
    assert {"cfe_faiss", "FAISS", "NumPy"} <= times["one query"].keys()


def per_group(script):
    # compares the ways with each other itself
    assert len(script.measure(0.3, 2400, 1)["milliseconds"]) == 2 + len(script.LIMITS)


RUNS = [recall_kept, calibration, calibration_findings, audit_report]
RUNS += [false_pairs, tanimoto, per_group, link_vectors]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_small_run(script, run):
    run(script(run.__name__))


@pytest.mark.parametrize("name", ["calibration", "report", "scale_page"])
def test_a_page_is_what_its_script_writes(script, name):
    module = script(name)
    assert module.PAGE.read_text() == module.page(), f"run benchmarks/{name}.py"
