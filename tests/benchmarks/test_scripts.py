"""The benchmark scripts on tiny cases: what they measure is what they say, and the page can be written from it."""

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cfe_faiss as cfe
from cfe_faiss.attributes.table import as_attributes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def script() -> Any:
    """Make the scripts importable by name, as they import each other, and forget them afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture(scope="module")
def vectors() -> Any:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 12))[rng.integers(0, 40, 1500)] + 0.4 * rng.normal(size=(1500, 12))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), rng.integers(0, 3, 1500)


def test_first_use_takes_every_step_twice_in_a_fresh_process(script: Any, tmp_path: Path) -> None:
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


def test_small_adds_give_what_adding_at_once_gives(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_adds = script("small_adds")
    monkeypatch.setattr(small_adds, "QUERIES", 20)
    monkeypatch.setattr(small_adds, "SEARCHED", 10)
    found = small_adds.measure(600, 30, 8)["indexes"]
    assert set(found) == {"ivf", "flat"}
    for row in found.values():
        assert row["results_as_if_added_at_once"]
        assert row["us_per_add"]["stock"] == pytest.approx(1e6 * row["seconds"]["stock"] / 30)
    assert min(found["ivf"]["us_per_add_and_search"].values()) > 0


def test_mining_gives_what_the_originals_give(script: Any) -> None:
    functions = script("mining").measure(600, 8, 1)["functions"]
    assert len(functions) >= 3
    assert all(
        row["same_results"] and min(row["seconds"].values()) > 0 for row in functions.values()
    )


def test_updates_of_ks_vectors_equal_full_computations(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = script("ks_updates")
    monkeypatch.setattr(updates, "SIZES", (1, 3))
    rng = np.random.default_rng(0)
    data = SimpleNamespace(x=rng.normal(size=(60, 4)), edge_index=rng.integers(0, 60, (2, 90)))
    monkeypatch.setattr(updates, "load", lambda name: data)
    found = updates.measure("small", 3)
    assert len(found["runs"]) == 12
    assert all(run["same_bits"] for run in found["runs"])
    (tmp_path / "ks_updates.json").write_text(json.dumps({"graphs": [found]}))
    report = script("report")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert "the same, bit for bit" in report.ks_updates()


def test_metrics_are_compared_at_the_recall(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    (tmp_path / "metrics.json").write_text(
        json.dumps({"recall": 0.95, "wanted": 0.9, "results": found})
    )
    report = script("report")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert "| small, 400 x 6 | ip |" in report.metrics()


def test_changes_give_the_results_of_a_copy(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = script("changes").measure(1200, 8, 1.0, 5)
    (tmp_path / "changes.json").write_text(json.dumps({"runs": [found]}))
    report = script("report")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    section = report.changes()
    assert "| 1,200 x 8, upsert |" in section
    assert "the same results as" in section
    assert found["same_results_as_a_copy"]
    assert set(found["changes"]) == {"relabel", "remove", "add", "upsert", "update", "move"}
    for row in found["changes"].values():
        assert 0 < row["change"]["median_us"] <= row["change_and_search"]["max_us"]


def test_drift_and_losses_rise_together(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drift, rng = script("drift"), np.random.default_rng(0)
    monkeypatch.setattr(drift, "QUERIES", 60)
    data = SimpleNamespace(
        x=rng.normal(size=(300, 6)), edge_index=rng.integers(0, 300, (2, 900)), y=np.arange(300) % 3
    )
    monkeypatch.setattr(drift, "load", lambda name: data)
    monkeypatch.setattr(drift, "SHARES", (0.2,))

    def ends_of(n: int, **how: bool) -> Any:
        labels, versions = drift.synthetic("clusters move", rng, n, **how)
        return labels, list(versions)[::7]

    runs = [drift.measure("clusters move", *ends_of(700), rng)]
    other = drift.measure("clusters move", *ends_of(700, lengths=True), rng, "ip")
    assert other["steps"][-1]["drift"] > other["steps"][0]["drift"]
    for kind in ("random edges", "random features"):
        runs.append(drift.measure(kind, *drift.graph_versions("small", kind, rng), rng))
    first, last = runs[0]["steps"][0], runs[0]["steps"][-1]
    assert first["kept"] == first["trained"]
    assert last["drift"] > first["drift"]
    assert last["rows_ratio"] > 1
    assert [len(run["steps"]) for run in runs[1:]] == [2, 2]
    for name, some in (("drift", runs), ("drift_others", [other])):
        content = {"runs": some, "correlations": drift.correlations(some)}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    assert {*content["correlations"]} == {"drift", "imbalance"}
    report = script("report")
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    assert "| clusters move | 1.5 |" in report.drift()


def test_a_store_returns_what_its_index_does(script: Any) -> None:
    pytest.importorskip("pyarrow", reason='needs pip install "cfe-faiss[store]"')
    found = script("store").measure(1200, 8, 6, 10, 1)
    assert found["single"]["complete"]
    assert min(found["single"]["us_per_query"].values()) > 0
    assert [row["same_results"] for row in found["filtered"]] == [1.0] * 5
    assert found["filtered"][0]["rows"] == 1200
    assert set(found["seconds"]) == {"add", "save", "load"}


def test_small_adds_notice_other_results(script: Any) -> None:
    small_adds = script("small_adds")
    assert small_adds.same(1, 1, lambda _: (np.ones(3), np.zeros(3)))
    assert not small_adds.same(1, 2, lambda number: (np.ones(3), np.full(3, number)))


def test_levels_that_the_machine_lacks_are_left_out(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = script("levels")
    row = {"nlist": 5, "nprobe": 2, "digest": "a"}

    def run(level: str, path: Path, settings: Any) -> Any:
        times = {"avx512": 1.0, "avx2": 2.0, "generic": 6.0}
        return [{**row, "seconds": times[level]}] if level in times else "ValueError: not here"

    monkeypatch.setattr(levels, "run", run)
    found = levels.compare(Path(), [(5, 2)], 3)
    assert found["left_out"] == {"neon": "ValueError: not here"}
    (setting,) = found["settings"]
    assert setting["ratio"] == {"avx512": 1.0, "avx2": 2.0, "generic": 6.0}
    assert setting["same_bits"]


def test_each_level_has_its_process(script: Any, vectors: Any, tmp_path: Path) -> None:
    levels = script("levels")
    np.savez(tmp_path / "graph.npz", X=vectors[0], labels=vectors[1])
    (row,) = levels.run("generic", tmp_path / "graph.npz", [(20, 4)])
    (again,) = levels.child(str(tmp_path / "graph.npz"), [(20, 4)])
    assert row["digest"] == again["digest"]


def test_the_papers_preset_is_timed_with_kmeans(script: Any, vectors: Any) -> None:
    found = script("paper_preset").compare(*vectors, 3, 1)
    assert set(found["threads"]) == {"1", "2"}
    assert set(found["threads"]["1"]["ours_takes"]) == {
        "kmeans",
        "kmeans, assigned",
        "kmeans, sampled",
    }


def test_memory_is_reported_for_each_index_and_step(
    script: Any, vectors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = script("memory")
    assert memory.CODECS[:3] == ("Flat", "SQfp16", "SQ8")
    monkeypatch.setattr(memory, "CODECS", ("SQ8", "PQ32,RFlat"))  # each takes a process
    found = memory.measure("tiny", *vectors, tmp_path)["bytes_per_vector"]
    assert [name.rpartition(",")[2] for name in found] == ["EvidenceFlat", "SQ8"]
    for steps in found.values():
        assert list(steps) == ["opened", "after single queries", "after all nodes"]


def test_memory_is_compared_with_what_it_was(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = script("memory")
    before = [{"graph": "a", "bytes_per_vector": {"EvidenceFlat": {"after all nodes": 200.0}}}]
    (tmp_path / "memory_2deb883.json").write_text(json.dumps({"graphs": before}))
    monkeypatch.setattr(memory, "RESULTS", tmp_path)
    now = [{"graph": "a", "bytes_per_vector": {"EvidenceFlat": {"after all nodes": 150.0}}}]
    assert memory.against(now) == {"a": {"EvidenceFlat": 0.75}}


def test_recall_kept_judges_means_and_classes(
    script: Any, vectors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recall_kept = script("recall_kept")
    monkeypatch.setattr(recall_kept, "RECALLS", (0.95,))
    X, labels = vectors
    one = recall_kept.Set("x", "a set", X, labels, X[:50], labels[:50], "EvidenceIVF20,Flat")
    row = recall_kept.measured(one)
    for cell in row["asked for"]["0.95"].values():
        assert 0.9 < cell["mean"] <= 1
        assert 1 <= cell["lists"] <= 20
        assert 1 <= cell["lists for the mean"] <= 20
    labels = np.repeat([0, 1], (5000, 200))
    values = np.append(np.full(5000, 0.96), np.tile([0.85, 1.0], 100))
    stored, sampled = (
        recall_kept.Reached(values, labels, noisy).told(0.95, [0, 1]) for noisy in (False, True)
    )
    assert stored["least class"] == pytest.approx((0.925, 1))
    assert stored["mean below"] == (0, 0)
    assert stored["classes below"] == (1, 1)
    assert sampled["classes below"] == (1, 1)
    few = recall_kept.Reached(values[-10:], labels[-10:], True).told(0.95, [0, 1])
    assert few["mean below"] == few["classes below"] == (1, 0)  # within the noise of ten queries
    cells = [
        {mode: {**told, "lists": 3.0, "lists for the mean": 6.0} for mode in recall_kept.MODES}
        for told in (stored, few)
    ]
    rows = [
        {"kind": "x", "set": f"set {i}", "asked for": {"0.95": cell}}
        for i, cell in enumerate(cells)
    ]
    told = recall_kept.summary(rows)["all"]["new, one by one"]["0.95"]
    assert told["means below"] == [1, 0]
    assert told["classes below"] == [2, 1]
    assert told["least class"][1:] == (1, "set 0")
    assert told["ratio"] == pytest.approx(0.5)


def test_sets_of_recall_kept_have_the_classes_that_are_wanted(script: Any) -> None:
    recall_kept = script("recall_kept")
    for one in (
        recall_kept.clusters(3, 2),
        *(recall_kept.skewed(shares, 3) for shares in recall_kept.SHARES),
    ):
        np.testing.assert_allclose(np.linalg.norm(one.X, axis=1), 1, atol=1e-5)
        assert one.X.dtype == np.float32
        assert len(one.new) == len(one.new_labels) == recall_kept.NEW
        share = recall_kept.SHARES.get(one.kind)
        counts = np.bincount(one.labels)
        assert len(counts) >= 2
        if share is not None:
            assert len(counts) == len(share)
    held_out = recall_kept.held_out("real", "a", one.X, one.labels, 15_000)
    assert len(held_out.X) == 15_000
    assert len(held_out.new) == 5000


def test_the_langchain_stores_hold_the_same_and_recall_is_exact(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert set(searches) == {
        "search",
        "filtered, 50.0%",
        "filtered, 1.0%",
        "filtered, 0.1%",
        "evidence",
    }
    for name, rivals in searches.items():
        assert rivals["ours"]["recall"] == 1.0
        assert min(row["ms_per_query"] for row in rivals.values()) > 0
        if "theirs, fetch_k all" in rivals:
            assert rivals["theirs, fetch_k all"]["recall"] == 1.0
        if name == "filtered, 1.0%":
            assert rivals["theirs"]["recall"] < 1.0
    assert searches["search"]["theirs"]["recall"] == 1.0


def test_recall_counts_documents_that_are_equally_similar(script: Any) -> None:
    pytest.importorskip(
        "langchain_community", reason='needs pip install "cfe-faiss[test-integrations]"'
    )
    langchain_store = script("langchain_store")
    corpus = langchain_store.Corpus(50, 4, 2)
    documents = [SimpleNamespace(id=id_) for id_ in corpus.ids]
    order = [np.argsort(-(corpus.X @ q)) for q in corpus.Q]
    best = [[documents[i] for i in places[:4]] for places in order]
    every = [np.ones(50, bool)] * 2
    assert langchain_store.recall(best, corpus, every) == 1.0
    assert langchain_store.recall([best[0], best[1][:2]], corpus, every) == 0.75
    assert langchain_store.recall([[], []], corpus, [np.zeros(50, bool)] * 2) == 1.0


def test_the_page_has_a_section_for_each_script(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = script("report")
    results = {
        "first_use": {
            "wanted": {"beyond_second_use_in_all": 2.0, "import_seconds": 0.5},
            "beyond_second_use": {"ks": 0.5},
            "beyond_second_use_in_all": 0.5,
            "import_seconds": 0.25,
        },
        "small_adds": {
            "adds": 10,
            "stored": 100,
            "dimension": 8,
            "wanted": 10.0,
            "indexes": {
                "ivf": {
                    "us_per_add": {"ours": 3.0, "stock": 1.0},
                    "us_per_add_and_search": {"ours": 8.0, "stock": 2.0},
                    "first_search_longer_by": 0.125,
                    "ratio": 3.5,
                    "results_as_if_added_at_once": False,
                }
            },
        },
        "levels": {
            "wanted": 2.5,
            "graphs": [
                {
                    "graph": "bail",
                    "settings": [
                        {
                            "nlist": 5,
                            "nprobe": 2,
                            "seconds": {"avx2": 0.5},
                            "ratio": {"avx2": 1.0},
                            "same_bits": True,
                        }
                    ],
                    "left_out": {"neon": "not here"},
                }
            ],
        },
        "paper_preset": {
            "graph": "facebook",
            "partitions": 50,
            "clusters": 10,
            "niter": 25,
            "threads": {
                "1": {"median_seconds": {"ours": 1.0, "kmeans": 2.0}, "ours_takes": {"kmeans": 0.5}}
            },
        },
        "memory": {"graphs": [memory_of(150.0)]},
        "memory_2deb883": {"graphs": [memory_of(200.0)]},
        "langchain_store": {
            "documents": 100,
            "dimension": 8,
            "k": 4,
            "median_seconds": {"add": {"ours": {"wall": 1.0}, "theirs": {"wall": 2.0}}},
            "bytes_on_disk": {"ours": 10**6, "theirs": 2 * 10**6},
            "searches_by_threads": {
                "1": {
                    "search": {
                        "ours": {"ms_per_query": 1.0, "recall": 1.0},
                        "theirs": {"ms_per_query": 4.0, "recall": 0.5},
                    }
                }
            },
        },
        "recall_kept": {
            "summary": {
                "all": {
                    "stored rows": {
                        "0.9": {
                            "sets": 2,
                            "mean": 0.91,
                            "least mean": [0.8, "y"],
                            "means below": [1, 0],
                            "classes": 3,
                            "least class": [0.7, 4, "z"],
                            "classes below": [2, 1],
                            "lists": 7.0,
                            "ratio": 1.25,
                        }
                    }
                }
            }
        },
    }
    environment = {
        "processor": "a processor",
        "threads": 1,
        "packages": {"faiss-cpu": "1", "numpy": "2"},
    }
    for name, content in results.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"environment": environment, **content}))
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "PAGE", tmp_path / "README.md")
    report.main()
    page = (tmp_path / "README.md").read_text()
    for row in (
        "| **in all** | **0.50 s** |",
        "| ivf | 3.0 us | 1.0 us | 0.125 s | 3.50 | **no** |",
        "| bail | 5 | 2 | avx2 | 500.0 ms | 1.00x | yes |",
        "neon (not here)",
        "| 1 | kmeans | 2.00 s | 0.50 |",
        "| a 10 x 4 | EvidenceFlat | 150 (200) | 0.75 |",
        "| all | stored rows | 0.9 | 2 | 0.9100 | 0.8000 (y) | 1 (0) | 3 | 0.7000 (z, class 4) | 2 (1) | 7.0 | 1.25 |",
        "| add | wall | 1.00 s | 2.00 s | 0.50 |",
        "| search | 1 | theirs | 4.00 ms | 0.25 | 0.500 |",
    ):
        assert row in page
    assert "left out: KS vectors" in capsys.readouterr().out


def memory_of(held: float) -> dict[str, Any]:
    about = {"graph": "a", "nodes": 10, "dimension": 4}
    return {**about, "bytes_per_vector": {"EvidenceFlat": {"after all nodes": held}}}


def test_calibration_counts_outcomes_and_goes_on(script: Any) -> None:
    calibration, cells = script("calibration"), script("calibration_cells")
    results: dict[str, Any] = {part: {} for part in ("cells", "families", "changes", "real")}
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
    page = calibration.page(results)
    for line in (
        "| strongly correlated, 50 % carry | 1 |",
        "| a flipped border mended, 50 % carry | 1 | 100 |",
        "one-hot table sorted by the attribute, independent | 1",
        "30 % of the border flipped, 50 % carry | 2",
    ):
        assert line in page


def test_cells_of_calibration_are_what_they_say(script: Any) -> None:
    cells = script("calibration_cells")
    for name, cell in cells.CELLS.items():
        if cell.n > 1500 or cell.rule == "boosting":
            continue
        people = cells.people(name, cell, 7)
        assert people.X.shape[0] == len(people.carries) == len(people.decisions)
        assert len(people.X) == cell.n or people.persons is not None
        assert people.carries.mean() == pytest.approx(
            cell.share, abs=0.06 if people.persons is None else 0.1
        )
        if cell.rule == "threshold" and people.persons is None:
            assert (people.decisions == 0).mean() == pytest.approx(
                cell.refused, abs=0.07 if cell.harm else 1e-3
            )
        again = cells.people(name, cell, 7)
        np.testing.assert_array_equal(again.decisions, people.decisions)
    order = cells.people("table_50", cells.CELLS["table_50"], 7).carries
    assert (np.diff(order.astype(int)) >= 0).all(), "sorted by the attribute"


def test_coverage_counts_what_the_intervals_hold(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    coverage = script("coverage")
    monkeypatch.setattr(coverage, "GRAPHS", 2)
    row = coverage.shuffled("three copies of each", 60, 0.5, 16)
    assert row["tied"] == 1
    assert row["expected"] == pytest.approx(row["share"], abs=0.05)
    assert row["expected"] < row["without_ties"] / 1.5
    for point in coverage.accuracies(200, "model", 10):
        assert 0 < point["held"] <= 1


def test_peers_under_constraints_find_what_we_find(
    script: Any, vectors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraints = script("constraints")
    monkeypatch.setattr(constraints, "REPEATS", 1)
    X, labels = vectors
    index = cfe.IndexEvidenceIDMap2(X.shape[1])
    index.add_with_labels(X, labels)
    table = as_attributes({"a": labels % 2, "b": np.arange(len(X)) % 5})
    finder = cfe.EvidenceFinder(X, labels.astype(np.int32), index, attributes=table)
    found = constraints.compared("a and b", finder, {"exact": "b", "antiexact": "a"})
    assert set(found["fastest_cpu_seconds"]) == {
        "unconstrained",
        "constrained",
        "numpy",
        "faiss.knn by value",
    }
    assert found["complete_rows"] == 1
    other = finder.local(k=constraints.K, where=cfe.Constraints(exact="a"))
    peer = constraints.by_numpy(X, labels, cfe.Constraints(exact="b"), table)
    with pytest.raises(RuntimeError, match="differ"):
        constraints.check("another", other, peer)


def test_calibration_of_findings_counts_what_is_planted(script: Any) -> None:
    findings = script("calibration_findings")
    nothing, race = (findings.findings(planted, 600, 1) for planted in ("nothing", "race"))
    assert nothing["right"] + nothing["another"] == 1
    assert race["named"] >= race["stand"]
    learned = findings.directions(300, 0.5, 2)
    assert learned["right"] + learned["wrong"] <= 1
    page = findings.page({"findings": [nothing, race], "directions": [learned]})
    assert "| race | 600 | 1 |" in page
    assert "| 300 | 0.5 | 2 |" in page


@pytest.mark.parametrize("name", ["calibration", "report", "scale_page"])
def test_a_page_is_what_its_script_writes(script: Any, name: str) -> None:
    written_by = script(name)
    assert written_by.PAGE.read_text() == written_by.page(), f"run benchmarks/{name}.py"


def test_calibration_of_rates_agrees_with_the_audit(script: Any) -> None:
    rates = script("calibration_rates")
    level = rates.level(
        ("30, 100, 300, 1,000", 0.5, 30)
    )  # compares the first samples with compare_rates itself
    assert 0 <= level["differs"] <= 0.2
    assert level["ratios"] >= 0.8
    power = rates.power((0.6, 2, 500, 30))
    assert power["differs"] > 0.9
    assert power["stated"] > 0.9
    odds = rates.odds(("2 x 100", (0.8, 0.2, 0.1), 30))
    assert odds["difference"] >= 0.8
    near = rates.neighbours(("0.5 everywhere", 60, 3, 2))
    assert 0.2 < near["expected"] < 0.8
    page = rates.page(
        {"runs": 30, "level": [level], "power": [power], "odds": [odds], "neighbours": [near]}
    )
    assert "| 30, 100, 300, 1,000 | 0.5 |" in page
    assert "| 0.5 everywhere | 60 | 3 | 2 |" in page
