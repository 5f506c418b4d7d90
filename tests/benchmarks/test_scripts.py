"""The benchmark scripts on tiny cases: they run and compare equal results, and their pages are those of the results."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def test_recall_kept_measures_means_and_lists(
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


def test_calibration_of_findings_counts_what_is_planted(script: Any) -> None:
    findings = script("calibration_findings")
    nothing, race = (findings.findings(planted, 600, 1) for planted in ("nothing", "race"))
    assert nothing["right"] + nothing["another"] == 1
    assert race["named"] >= race["stand"]
    learned = findings.directions(300, 0.5, 2)
    assert learned["right"] + learned["wrong"] <= 1


@pytest.mark.parametrize("name", ["calibration", "report", "scale_page"])
def test_a_page_is_what_its_script_writes(script: Any, name: str) -> None:
    written_by = script(name)
    assert written_by.PAGE.read_text() == written_by.page(), f"run benchmarks/{name}.py"


def test_calibration_of_rates_agrees_with_the_audit(script: Any) -> None:
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


def test_the_time_of_a_report_is_that_of_a_table_with_all_kinds_of_columns(script: Any) -> None:
    audit_report = script("audit_report")
    frame = audit_report.mixed(400, 24)
    assert frame.isna().any().any()
    assert {name.split()[0] for name in frame} >= {"number", "amount", "count", "category", "sex"}
    found = audit_report.measure("mixed", 400, 24)
    assert (found["rows"], found["columns"]) == (400, 24)
    assert found["seconds"] > 0
    assert found["processors"] > 0
    assert found["choices"] >= 0
