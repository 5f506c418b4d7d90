"""The benchmark scripts on tiny cases: they run and compare equal results, and their pages are those of the results."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import cfe_faiss as cfe
from cfe_faiss.attributes.table import as_attributes

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


def vectors(n=1500, d=12):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, d))[rng.integers(0, 40, n)] + 0.4 * rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), rng.integers(0, 3, n)


def graph(n=60, d=4):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    return SimpleNamespace(x=x, edge_index=rng.integers(0, n, (2, 3 * n // 2)), y=np.arange(n) % 3)


def first_use(script, folder):
    x, edges = graph(300, 8).x.astype(np.float32), graph(300).edge_index
    np.savez(folder / "graph.npz", x=x, edge_index=edges, labels=np.arange(300) % 3)
    steps = script.child_steps(str(folder / "graph.npz"))
    assert [tuple(steps[time]) for time in ("first", "second")] == [script.STEPS] * 2
    assert set(script.fresh("--child-import")) == {"numpy and faiss", "cfe_faiss"}


def small_adds(script, folder):
    indexes = script.measure(600, 30, 8)["indexes"]
    assert set(indexes) == {"ivf", "flat"}
    assert all(row["results_as_if_added_at_once"] for row in indexes.values())


def mining(script, folder):
    functions = script.measure(600, 8, 1)["functions"]
    assert all(row["same_results"] for row in functions.values())


def ks_updates(script, folder):
    script.load = lambda name: graph()
    assert all(run["same_bits"] for run in script.measure("small", 3)["runs"])


def metrics(script, folder):
    script.load = lambda name: vectors(400, 6)
    for run in script.measure("small"):
        rivals = run["rivals"]
        assert [rivals[name]["recall"] for name in ("ours, exact", script.EXACT)] == [1, 1]
        assert rivals["ours"]["recall"] >= 0.9


def changes(script, folder):
    found = script.measure(1200, 8, 1.0, 5)
    assert found["same_results_as_a_copy"]
    assert set(found["changes"]) == {"relabel", "remove", "add", "upsert", "update", "move"}


def drift(script, folder):
    script.load, rng = lambda name: graph(300, 6), np.random.default_rng(0)
    labels, versions = script.synthetic("clusters move", rng, 700)
    first, *_, last = script.measure("clusters move", labels, list(versions)[::7], rng)["steps"]
    assert last["drift"] > first["drift"]
    for kind in ("random edges", "random features"):
        found = script.measure(kind, *script.graph_versions("small", kind, rng), rng)
        assert len(found["steps"]) == 2


def store(script, folder):
    found = script.measure(1200, 8, 6, 10, 1)
    assert found["single"]["complete"]
    assert [row["same_results"] for row in found["filtered"]] == [1.0] * 5


def levels(script, folder):
    X, labels = vectors()
    np.savez(folder / "graph.npz", X=X, labels=labels)
    (row,) = script.run("generic", folder / "graph.npz", [(20, 4)])
    (again,) = script.child(str(folder / "graph.npz"), [(20, 4)])
    assert row["digest"] == again["digest"]


def paper_preset(script, folder):
    assert set(script.compare(*vectors(), 3, 1)["threads"]) == {"1", "2"}


def memory(script, folder):
    script.CODECS = ("SQ8",)  # each takes a process
    for steps in script.measure("tiny", *vectors(), folder)["bytes_per_vector"].values():
        assert list(steps) == ["opened", "after single queries", "after all nodes"]


def recall_kept(script, folder):
    X, labels = vectors()
    one = script.Set("x", "a set", X, labels, X[:50], labels[:50], "EvidenceIVF20,Flat")
    for cell in script.measured(one)["asked for"]["0.95"].values():
        assert 0.9 < cell["mean"] <= 1


def langchain_store(script, folder):
    searches = script.measure(600, 16, 5, 1)["searches_by_threads"]["1"]
    assert all(rivals["ours"]["recall"] == 1.0 for rivals in searches.values())


def constraints(script, folder):
    X, labels = vectors()
    index = cfe.IndexEvidenceIDMap2(X.shape[1])
    index.add_with_labels(X, labels)
    table = as_attributes({"a": labels % 2, "b": np.arange(len(X)) % 5})
    finder = cfe.EvidenceFinder(X, labels.astype(np.int32), index, attributes=table)
    found = script.compared("a and b", finder, {"exact": "b", "antiexact": "a"})
    assert found["complete_rows"] == 1


def calibration(script, folder):
    cells = importlib.import_module("calibration_cells")
    results = {part: {} for part in ("cells", "families", "changes", "real")}
    results["costs"] = {"3,000 x 12": [1.0, 0.9]}
    assert script.run_cell("flip_50", cells.CELLS["flip_50"], results, 1)
    assert not script.run_cell("flip_50", cells.CELLS["flip_50"], results, 1)
    assert script.run_families(results, "rare", 1)
    assert script.run_change("better_flip_50", cells.CHANGES["better_flip_50"], results, 1)
    assert results["changes"]["better_flip_50"]["rates"] == {"advantaged": 1}


def calibration_findings(script, folder):
    nothing, race = (script.findings(planted, 600, 1) for planted in ("nothing", "race"))
    assert nothing["right"] + nothing["another"] == 1
    assert race["named"] >= race["stand"]


def calibration_rates(script, folder):
    # compares the first samples with compare_rates itself
    assert 0 <= script.level(("30, 100, 300, 1,000", 0.5, 30))["differs"] <= 0.2
    assert script.power((0.6, 2, 500, 30))["stated"] > 0.9
    assert script.odds(("2 x 100", (0.8, 0.2, 0.1), 30))["difference"] >= 0.8
    assert 0.2 < script.neighbours(("0.5 everywhere", 60, 3, 2))["expected"] < 0.8


def audit_report(script, folder):
    found = script.measure("mixed", 400, 24)
    assert (found["rows"], found["columns"]) == (400, 24)


def synthetic_graphs(script, folder):
    for data in (script.amazon_shape(5000, seed=3, homophily=0.4), script.pubmed_shape()):
        n = data.graph.num_nodes
        sources = np.repeat(np.arange(n), np.diff(data.graph.indptr))
        one, other = sources * n + data.graph.indices, data.graph.indices * np.int64(n) + sources
        np.testing.assert_array_equal(np.sort(other), one)  # undirected and simple
        assert np.isfinite(data.x).all()
    data, again = (script.amazon_shape(5000, seed=3, homophily=0.4) for _ in range(2))
    assert script.measured_homophily(data.graph, data.labels) == pytest.approx(0.4, abs=0.03)
    np.testing.assert_array_equal(data.x, again.x)
    assert data.to_data(seed=2).validate()


def fair_models(script, folder):
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


RUNS = [first_use, small_adds, mining, ks_updates, metrics, changes, drift, store, levels]
RUNS += [paper_preset, memory, recall_kept, langchain_store, constraints, calibration]
RUNS += [calibration_findings, calibration_rates, audit_report, synthetic_graphs, fair_models]
SMALLER = {
    "small_adds": {"QUERIES": 20, "SEARCHED": 10},
    "ks_updates": {"SIZES": (1, 3)},
    "metrics": {"SAMPLE": 40, "TIMED": 50, "SINGLE": 5, "REPEATS": 1},
    "drift": {"QUERIES": 60, "SHARES": (0.2,)},
    "recall_kept": {"RECALLS": (0.95,)},
    "langchain_store": {"CLUSTERS": 8},
    "constraints": {"REPEATS": 1},
}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_small_run(script, run, tmp_path):
    if run in (langchain_store, store):
        pytest.importorskip({langchain_store: "langchain_community", store: "pyarrow"}[run])
    module = script(run.__name__)
    for name, value in SMALLER.get(run.__name__, {}).items():
        assert hasattr(module, name)
        setattr(module, name, value)  # the module is forgotten after the test
    run(module, tmp_path)


@pytest.mark.parametrize("name", ["calibration", "report", "scale_page"])
def test_a_page_is_what_its_script_writes(script, name):
    module = script(name)
    assert module.PAGE.read_text() == module.page(), f"run benchmarks/{name}.py"
