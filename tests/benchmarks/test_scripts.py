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
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 12))[rng.integers(0, 40, 1500)] + 0.4 * rng.normal(size=(1500, 12))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), rng.integers(0, 3, 1500)


def test_first_use_takes_every_step_twice_in_a_fresh_process(script, tmp_path):
    first_use = script("first_use")
    rng = np.random.default_rng(0)
    edges, x = rng.integers(0, 300, (2, 2000)), rng.random((300, 8)).astype(np.float32)
    np.savez(tmp_path / "graph.npz", x=x, edge_index=edges, labels=rng.integers(0, 3, 300))
    found = first_use.child_steps(str(tmp_path / "graph.npz"))
    assert set(found) == {"first", "second"}
    for seconds in found.values():
        assert tuple(seconds) == first_use.STEPS
        assert min(seconds.values()) > 0
    assert set(first_use.fresh("--child-import")) == {"numpy and faiss", "cfe_faiss"}


def test_small_adds_give_what_adding_at_once_gives(script, monkeypatch):
    small_adds = script("small_adds")
    monkeypatch.setattr(small_adds, "QUERIES", 20)
    monkeypatch.setattr(small_adds, "SEARCHED", 10)
    found = small_adds.measure(600, 30, 8)["indexes"]
    assert set(found) == {"ivf", "flat"}
    for row in found.values():
        assert row["results_as_if_added_at_once"]
        assert row["us_per_add"]["stock"] == pytest.approx(1e6 * row["seconds"]["stock"] / 30)
    assert min(found["ivf"]["us_per_add_and_search"].values()) > 0


def test_mining_gives_what_the_originals_give(script):
    functions = script("mining").measure(600, 8, 1)["functions"]
    assert len(functions) >= 3
    assert all(
        row["same_results"] and min(row["seconds"].values()) > 0 for row in functions.values()
    )


def test_updates_of_ks_vectors_equal_full_computations(script, monkeypatch):
    updates = script("ks_updates")
    monkeypatch.setattr(updates, "SIZES", (1, 3))
    rng = np.random.default_rng(0)
    data = SimpleNamespace(x=rng.normal(size=(60, 4)), edge_index=rng.integers(0, 60, (2, 90)))
    monkeypatch.setattr(updates, "load", lambda name: data)
    found = updates.measure("small", 3)
    assert len(found["runs"]) == 12
    assert all(run["same_bits"] for run in found["runs"])


def test_metrics_are_compared_at_the_recall(script, monkeypatch):
    metrics = script("metrics")
    for name, value in {"SAMPLE": 40, "TIMED": 50, "SINGLE": 5, "REPEATS": 1}.items():
        monkeypatch.setattr(metrics, name, value)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(400, 6)).astype(np.float32), rng.integers(0, 3, 400)
    monkeypatch.setattr(metrics, "load", lambda name: data)
    found = metrics.measure("small")
    for run in found:
        exact = [run["rivals"][name]["recall"] for name in ("ours, exact", metrics.EXACT)]
        assert exact == [1, 1]
        assert run["rivals"]["ours"]["recall"] >= 0.9
        assert min(rival.get("all_rows_us", 1) for rival in run["rivals"].values()) > 0


def test_changes_give_the_results_of_a_copy(script):
    found = script("changes").measure(1200, 8, 1.0, 5)
    assert found["same_results_as_a_copy"]
    assert set(found["changes"]) == {"relabel", "remove", "add", "upsert", "update", "move"}
    for row in found["changes"].values():
        assert 0 < row["change"]["median_us"] <= row["change_and_search"]["max_us"]


def test_drift_and_losses_rise_together(script, monkeypatch):
    drift, rng = script("drift"), np.random.default_rng(0)
    monkeypatch.setattr(drift, "QUERIES", 60)
    data = SimpleNamespace(
        x=rng.normal(size=(300, 6)), edge_index=rng.integers(0, 300, (2, 900)), y=np.arange(300) % 3
    )
    monkeypatch.setattr(drift, "load", lambda name: data)
    monkeypatch.setattr(drift, "SHARES", (0.2,))

    def ends_of(n, **how):
        labels, versions = drift.synthetic("clusters move", rng, n, **how)
        return labels, list(versions)[::7]

    first, *_, last = drift.measure("clusters move", *ends_of(700), rng)["steps"]
    assert first["kept"] == first["trained"]
    assert last["drift"] > first["drift"]
    assert last["rows_ratio"] > 1
    other = drift.measure("clusters move", *ends_of(700, lengths=True), rng, "ip")["steps"]
    assert other[-1]["drift"] > other[0]["drift"]
    for kind in ("random edges", "random features"):
        found = drift.measure(kind, *drift.graph_versions("small", kind, rng), rng)
        assert len(found["steps"]) == 2


def test_a_store_returns_what_its_index_does(script):
    pytest.importorskip("pyarrow", reason='needs pip install "cfe-faiss[store]"')
    found = script("store").measure(1200, 8, 6, 10, 1)
    assert found["single"]["complete"]
    assert min(found["single"]["us_per_query"].values()) > 0
    assert [row["same_results"] for row in found["filtered"]] == [1.0] * 5
    assert found["filtered"][0]["rows"] == 1200
    assert set(found["seconds"]) == {"add", "save", "load"}


def test_each_level_has_its_process(script, vectors, tmp_path):
    levels = script("levels")
    np.savez(tmp_path / "graph.npz", X=vectors[0], labels=vectors[1])
    (row,) = levels.run("generic", tmp_path / "graph.npz", [(20, 4)])
    (again,) = levels.child(str(tmp_path / "graph.npz"), [(20, 4)])
    assert row["digest"] == again["digest"]


def test_the_papers_preset_is_timed_with_kmeans(script, vectors):
    found = script("paper_preset").compare(*vectors, 3, 1)
    assert set(found["threads"]) == {"1", "2"}
    assert set(found["threads"]["1"]["ours_takes"]) == {
        "kmeans",
        "kmeans, assigned",
        "kmeans, sampled",
    }


def test_memory_is_reported_for_each_index_and_step(script, vectors, tmp_path, monkeypatch):
    memory = script("memory")
    assert memory.CODECS[:3] == ("Flat", "SQfp16", "SQ8")
    monkeypatch.setattr(memory, "CODECS", ("SQ8", "PQ32,RFlat"))  # each takes a process
    found = memory.measure("tiny", *vectors, tmp_path)["bytes_per_vector"]
    assert [name.rpartition(",")[2] for name in found] == ["EvidenceFlat", "SQ8"]
    for steps in found.values():
        assert list(steps) == ["opened", "after single queries", "after all nodes"]


def test_recall_kept_measures_means_and_lists(script, vectors, monkeypatch):
    recall_kept = script("recall_kept")
    monkeypatch.setattr(recall_kept, "RECALLS", (0.95,))
    X, labels = vectors
    one = recall_kept.Set("x", "a set", X, labels, X[:50], labels[:50], "EvidenceIVF20,Flat")
    row = recall_kept.measured(one)
    for cell in row["asked for"]["0.95"].values():
        assert 0.9 < cell["mean"] <= 1
        assert 1 <= cell["lists"] <= 20
        assert 1 <= cell["lists for the mean"] <= 20


def test_the_langchain_stores_hold_the_same_and_recall_is_exact(script, monkeypatch):
    pytest.importorskip(
        "langchain_community", reason='needs pip install "cfe-faiss[test-integrations]"'
    )
    langchain_store = script("langchain_store")
    monkeypatch.setattr(langchain_store, "CLUSTERS", 8)
    found = langchain_store.measure(600, 16, 5, 1)
    assert {step: set(times) for step, times in found["seconds"].items()} == {
        step: {"ours", "theirs"} for step in ("add", "save", "load")
    }
    searches = found["searches_by_threads"]["1"]
    for name, rivals in searches.items():
        assert rivals["ours"]["recall"] == 1.0
        assert min(row["ms_per_query"] for row in rivals.values()) > 0
        if "theirs, fetch_k all" in rivals:
            assert rivals["theirs, fetch_k all"]["recall"] == 1.0
        if name == "filtered, 1.0%":
            assert rivals["theirs"]["recall"] < 1.0
    assert searches["search"]["theirs"]["recall"] == 1.0


def test_calibration_counts_outcomes_and_goes_on(script):
    calibration, cells = script("calibration"), script("calibration_cells")
    results = {part: {} for part in ("cells", "families", "changes", "real")}
    results["costs"] = {"3,000 x 12": [1.0, 0.9]}
    for name, runs in (("table_50", 1), ("graph_50", 1), ("flip_50", 2)):
        while calibration.run_cell(name, cells.CELLS[name], results, runs):
            pass
        counts = results["cells"][name]
        for test in calibration.TESTS:
            outcomes = {key: number for key, number in counts[test].items() if key != "few"}
            assert sum(outcomes.values()) == counts["runs"] == runs
    assert not calibration.run_cell("flip_50", cells.CELLS["flip_50"], results, 2)
    assert calibration.run_families(results, "rare", 1)
    assert 0 < results["families"]["rare"]["told"] <= 60
    for name in ("same_strong_50", "better_flip_50"):
        assert calibration.run_change(name, cells.CHANGES[name], results, 1)
        assert not calibration.run_change(name, cells.CHANGES[name], results, 1)
        for test in calibration.CHANGE_TESTS:
            outcomes = {
                key: number
                for key, number in results["changes"][name][test].items()
                if key != "few"
            }
            assert sum(outcomes.values()) == 1
    assert results["changes"]["better_flip_50"]["rates"] == {"advantaged": 1}


def test_peers_under_constraints_find_what_we_find(script, vectors, monkeypatch):
    constraints = script("constraints")
    monkeypatch.setattr(constraints, "REPEATS", 1)
    X, labels = vectors
    index = cfe.IndexEvidenceIDMap2(X.shape[1])
    index.add_with_labels(X, labels)
    table = as_attributes({"a": labels % 2, "b": np.arange(len(X)) % 5})
    finder = cfe.EvidenceFinder(X, labels.astype(np.int32), index, attributes=table)
    found = constraints.compared("a and b", finder, {"exact": "b", "antiexact": "a"})
    assert found["complete_rows"] == 1
    other = finder.local(k=constraints.K, where=cfe.Constraints(exact="a"))
    peer = constraints.by_numpy(X, labels, cfe.Constraints(exact="b"), table)
    with pytest.raises(RuntimeError, match="differ"):
        constraints.check("another", other, peer)


def test_calibration_of_findings_counts_what_is_planted(script):
    findings = script("calibration_findings")
    nothing, race = (findings.findings(planted, 600, 1) for planted in ("nothing", "race"))
    assert nothing["right"] + nothing["another"] == 1
    assert race["named"] >= race["stand"]
    learned = findings.directions(300, 0.5, 2)
    assert learned["right"] + learned["wrong"] <= 1


@pytest.mark.parametrize("name", ["calibration", "report", "scale_page"])
def test_a_page_is_what_its_script_writes(script, name):
    written_by = script(name)
    assert written_by.PAGE.read_text() == written_by.page(), f"run benchmarks/{name}.py"


def test_calibration_of_rates_agrees_with_the_audit(script):
    rates = script("calibration_rates")
    # compares the first samples with compare_rates itself
    level = rates.level(("30, 100, 300, 1,000", 0.5, 30))
    assert 0 <= level["differs"] <= 0.2
    assert level["ratios"] >= 0.8
    power = rates.power((0.6, 2, 500, 30))
    assert power["differs"] > 0.9
    assert power["stated"] > 0.9
    odds = rates.odds(("2 x 100", (0.8, 0.2, 0.1), 30))
    assert odds["difference"] >= 0.8
    near = rates.neighbours(("0.5 everywhere", 60, 3, 2))
    assert 0.2 < near["expected"] < 0.8


def test_the_time_of_a_report_is_that_of_a_table_with_all_kinds_of_columns(script):
    audit_report = script("audit_report")
    frame = audit_report.mixed(400, 24)
    assert frame.isna().any().any()
    assert {name.split()[0] for name in frame} >= {"number", "amount", "count", "category", "sex"}
    found = audit_report.measure("mixed", 400, 24)
    assert (found["rows"], found["columns"]) == (400, 24)
    assert found["seconds"] > 0
    assert found["processors"] > 0
    assert found["choices"] >= 0
