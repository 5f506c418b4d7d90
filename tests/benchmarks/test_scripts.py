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


def calibration_rates(script):
    # compares the first samples with compare_rates itself
    assert 0 <= script.level(("30, 100, 300, 1,000", 0.5, 30))["differs"] <= 0.2
    assert script.power((0.6, 2, 500, 30))["stated"] > 0.9
    assert script.odds(("2 x 100", (0.8, 0.2, 0.1), 30))["difference"] >= 0.8
    assert 0.2 < script.neighbours(("0.5 everywhere", 60, 3, 2))["expected"] < 0.8


def calibration_links(script):
    cell = script.Cell("few", links=200, nodes=40, features=2, harm=True, by_source=True)
    row = script.measured(cell, 1)
    assert set(row["counts"]) == {"ours", "independent", "person=source"}
    assert set(row["disjoint"]) == {"direction", "situation"}
    found = script.tested(
        script.Cell("popular", popularity=1.0, links=200, nodes=40, features=2), 3
    )
    for ours, plain in zip(found["ours"], found["independent"], strict=True):
        assert ours.reason or abs(ours.statistic) <= abs(plain.statistic)


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


def synthetic_graphs(script):
    for data in (script.amazon_shape(5000, seed=3, homophily=0.4), script.pubmed_shape()):
        n = data.graph.num_nodes
        sources = np.repeat(np.arange(n), np.diff(data.graph.indptr))
        one, other = sources * n + data.graph.indices, data.graph.indices * np.int64(n) + sources
        np.testing.assert_array_equal(np.sort(other), one)  # undirected and simple
        assert np.isfinite(data.x).all()
    data, again = (script.amazon_shape(5000, seed=3, homophily=0.4) for _ in range(2))
    degrees = np.diff(data.graph.indptr)
    ends = np.bincount(data.labels, degrees) / degrees.sum()
    alike = np.mean(np.repeat(data.labels, degrees) == data.labels[data.graph.indices])
    # Newman's assortativity ("Mixing patterns in networks", 2003, eq. 2)
    assert (alike - ends @ ends) / (1 - ends @ ends) == pytest.approx(0.4, abs=0.03)
    np.testing.assert_array_equal(data.x, again.x)
    assert data.to_data(seed=2).validate()


def fair_models(script):
    models = importlib.import_module("cfe_faiss.models")
    data = models_data()
    plain, fair = models.gcn(data), script.fairgnn(data)
    models.train(plain, data, lr=0.05, epochs=80)
    report = script.train_fair(fair, data, known=50, alpha=20, epochs=60)
    before, after = models.evaluate(plain, data), models.evaluate(fair, data)
    assert after.parity_difference < 0.6 * before.parity_difference
    assert report.test_accuracy == pytest.approx(after.accuracy)


def models_data():
    """Two groups; the class follows the group in part, edges join the same class; features tell both."""
    import torch
    from torch_geometric.data import Data

    rng, n = np.random.default_rng(0), 1200
    s = rng.integers(0, 2, n)
    y = (rng.random(n) < np.where(s == 1, 0.65, 0.35)).astype(np.int64)
    x = np.column_stack([y + rng.normal(0, 0.7, n), s + rng.normal(0, 0.2, n), rng.normal(0, 1, n)])
    ring = np.argsort(y, kind="stable")
    edges = np.hstack([[ring, np.roll(ring, 1)], [np.roll(ring, 1), ring]])
    split = rng.integers(0, 3, n)
    masks = {f"{name}_mask": split == i for i, name in enumerate(("train", "val", "test"))}
    arrays = {"edge_index": edges, "y": y, "sensitive": s} | masks
    tensors = {name: torch.tensor(array) for name, array in arrays.items()}
    return Data(x=torch.tensor(x, dtype=torch.float32), **tensors)


RUNS = [recall_kept, calibration, calibration_findings, calibration_rates, audit_report]
RUNS += [false_pairs, tanimoto, per_group, synthetic_graphs, fair_models]
RUNS += [calibration_links, link_vectors]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_small_run(script, run):
    run(script(run.__name__))


@pytest.mark.parametrize("name", ["calibration", "report", "scale_page"])
def test_a_page_is_what_its_script_writes(script, name):
    module = script(name)
    assert module.PAGE.read_text() == module.page(), f"run benchmarks/{name}.py"
