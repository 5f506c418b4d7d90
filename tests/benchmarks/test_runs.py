"""Benchmarks of several steps in one small run each: they write their results, and resume."""

import importlib
import json
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True, scope="module")
def importable():
    """Make ``benchmarks`` importable, whatever started pytest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield


def part(name):
    return importlib.import_module(f"benchmarks.{name}")


@pytest.fixture
def in_process(monkeypatch):
    """Run the modules that a command starts in this process, which has loaded the packages once."""

    def child(module, *arguments, timeout=None):
        main = part(f"engine.{module}")
        if module == "graphs":
            main.prepare(arguments[0], Path(arguments[1]))
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [module, *arguments])
            main.main()

    monkeypatch.setattr(part("engine.run"), "child", child)
    monkeypatch.setattr(part("engine.paired"), "_QUERIES", 200)
    monkeypatch.setattr(part("engine.paired"), "_MANY_ROUNDS", part("engine.paired")._ROUNDS)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """Return the folder of a graph with clusters that mix four classes."""
    rng = np.random.default_rng(0)
    cluster = rng.integers(0, 15, 600)
    labels = np.where(rng.random(600) < 0.7, cluster % 4, rng.integers(0, 4, 600))
    X = rng.normal(size=(15, 12))[cluster] + 0.6 * rng.normal(size=(600, 12))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    folder = tmp_path_factory.mktemp("engine") / "short" / "tiny" / "graph"
    part("engine.graphs").write(folder, "tiny", X, labels * 3 + 5, "random clusters")
    return folder


PEERS = ["ours", "IVFFlat, bitmap"]


def test_the_engine_writes_json_pictures_and_page_and_resumes(graph, tmp_path, capfd, in_process):
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    command = ["short", "--graphs", "tiny", "--budget", "0.4", "--builds", "1", "--peers", *PEERS]
    command += ["--work", str(graph.parents[2]), "--results", str(tmp_path)]
    part("engine.run").main(command)
    result = json.loads((tmp_path / "engine_short.json").read_text())
    (measured,) = result["graphs"]
    assert {record["peer"] for record in measured["records"]} == set(PEERS)
    assert result["environment"]["packages"]["faiss-cpu"] == faiss.__version__
    best = measured["paired"]["all"]["0.95"]["ours"]
    assert best["recall"] >= 0.95
    page = (tmp_path / "engine_short.md").read_text()
    assert "![tiny](engine_short/tiny.png)" in page
    assert f"{best['per_second']:,.0f}" in page
    assert (tmp_path / "engine_short" / "tiny.png").stat().st_size > 10_000
    capfd.readouterr()
    part("engine.run").main(command)
    assert "tiny | " not in capfd.readouterr().out
    assert json.loads((tmp_path / "engine_short.json").read_text())["graphs"] == [measured]


def test_the_readme_holds_the_number_of_the_newest_result():
    page = part("exclusion.page")
    result = json.loads((ROOT / "benchmarks" / "results" / f"{page.NEWEST}.json").read_text())
    sentence = " ".join(page.in_short(result).split())
    assert sentence in " ".join((ROOT / "README.md").read_text().split())
