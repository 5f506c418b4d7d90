"""The public benchmark of exclusion: data sets are as named, and a small run writes JSON, chart and page."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def exclusion():
    """Make ``benchmarks`` importable, whatever started pytest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield lambda name: importlib.import_module(f"benchmarks.exclusion.{name}")


@pytest.mark.parametrize("position", [0, 60, 100])
@pytest.mark.parametrize("sizes", ["equal", "zipf"])
@pytest.mark.parametrize("groups", ["2", "50", "half"])
def test_groups_are_as_named(exclusion, position, sizes, groups):
    shape = exclusion("data").parse(f"groups-{position}-{sizes}-{groups}-16-2000")
    X, labels = exclusion("data").make(shape)
    assert (X.shape, X.dtype) == ((2000, 16), np.float32)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1, atol=1e-6)
    counts = np.bincount(labels)
    assert len(counts) == (1000 if groups == "half" else int(groups))
    assert counts.min() >= 1
    if sizes == "equal":
        assert np.ptp(counts) <= 1
    else:
        assert 1.5 < (counts[0] - 1) / (counts[1] - 1) < 2.5
    again = exclusion("data").make(shape)
    np.testing.assert_array_equal(X, again[0])
    np.testing.assert_array_equal(labels, again[1])


def test_the_readme_holds_the_number_of_the_newest_result(exclusion):
    page = exclusion("page")
    result = json.loads((ROOT / "benchmarks" / "results" / f"{page.NEWEST}.json").read_text())
    sentence = " ".join(page.in_short(result).split())
    assert sentence in " ".join((ROOT / "README.md").read_text().split())


def run_in_this_process(monkeypatch):
    """Run the modules that the command starts here; test_engine.py starts their processes."""

    def child(module, *arguments, timeout=None):
        main = importlib.import_module(f"benchmarks.engine.{module}")
        if module == "graphs":
            main.prepare(arguments[0], Path(arguments[1]))
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [module, *arguments])
            main.main()

    monkeypatch.setattr(importlib.import_module("benchmarks.engine.run"), "child", child)
    paired = importlib.import_module("benchmarks.engine.paired")
    monkeypatch.setattr(paired, "_QUERIES", 200)
    monkeypatch.setattr(paired, "_MANY_ROUNDS", paired._ROUNDS)


def test_a_run_writes_json_a_chart_and_a_page(exclusion, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    run_in_this_process(monkeypatch)
    name, peers = "groups-50-zipf-20-8-600", ["ours", "IVFFlat, drop own", "SQ fast scan, bitmap"]
    command = [
        "small",
        "--graphs",
        name,
        "--peers",
        *peers,
        "--budget",
        "0.1",
        "--threads",
        "1",
        "--shared",
    ]
    exclusion("run").main([*command, "--work", str(tmp_path / "work"), "--results", str(tmp_path)])
    result = json.loads((tmp_path / "exclusion_small.json").read_text())
    assert {record["peer"] for record in result["graphs"][0]["records"]} == set(peers[:2])
    page = (tmp_path / "exclusion_small.md").read_text()
    assert "The machine did other work during this run" in page
    assert f"![{name}](exclusion_small/{name}.png)" in page
    assert "SQ fast scan, bitmap (not tried: " in page
    assert f"| {name} | 600 x 8 | 20 | 0.95 |" in page
    assert (tmp_path / "exclusion_small" / f"{name}.png").stat().st_size > 10_000
