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


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_of_the_engine_at_its_largest_setting_is_exact(graph, name, tmp_path):
    loaded, everything = part("engine.graphs").load(graph), np.arange(600)
    peer = next(peer for peer in part("engine.peers").PEERS if peer.name == name)
    index = peer.build(loaded, peer.grid(loaded)[0])
    peer.save(index, tmp_path)
    for kept in (index, peer.load(tmp_path)):
        searcher = peer.searcher(kept, loaded)
        D, I = searcher.on(everything)(searcher.largest)
        np.testing.assert_allclose(D, loaded.D, atol=1e-5)
        assert not (loaded.labels[I] == loaded.labels[:, None]).any()
        assert part("engine.graphs").quality(loaded, everything, D, I)["recall"] > 0.999


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


def test_exclusion_writes_json_a_chart_and_a_page(tmp_path, in_process):
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    name = "groups-50-zipf-300-8-600"
    peers = ["ours", "IVFFlat, drop own", "IVFFlat per other classes"]
    command = ["small", "--graphs", name, "--peers", *peers, "--budget", "0.1", "--threads", "1"]
    command += ["--shared", "--work", str(tmp_path / "work"), "--results", str(tmp_path)]
    part("exclusion.run").main(command)
    result = json.loads((tmp_path / "exclusion_small.json").read_text())
    assert {record["peer"] for record in result["graphs"][0]["records"]} == set(peers[:2])
    page = (tmp_path / "exclusion_small.md").read_text()
    assert "The machine did other work during this run" in page
    assert "IVFFlat per other classes (not tried: " in page
    assert f"| {name} | 600 x 8 | 300 | 0.95 |" in page
    assert (tmp_path / "exclusion_small" / f"{name}.png").stat().st_size > 10_000


def test_groups_follow_position_or_stand_apart_from_it():
    data = part("exclusion.data")
    shares = []
    for position in ("100", "0", "apart100"):
        X, groups = data.make(data.parse(f"groups-{position}-equal-5-16-1000"))
        np.testing.assert_array_equal(np.bincount(groups), 200)
        near = faiss.knn(X, X, 6)[1][:, 1:]
        shares.append((groups[near] == groups[:, None]).mean())
    assert shares[0] > 0.8
    assert 0.15 < shares[1] < 0.25
    assert shares[2] < 0.8 * shares[1]


def test_peers_of_one_query_reach_the_recall_and_are_weighed(tmp_path):
    correlation, growth, page = (
        part(name) for name in ("exclusion.correlation", "engine.growth", "engine.growth_page")
    )
    task, labels, excluded = correlation.several(n=12_000)
    mine = lambda task: correlation.ours(task, labels, excluded)  # noqa: E731
    found = growth.measure(task, [mine, growth.PEERS["IVF"]])
    growth.store(tmp_path / "result.json", found)
    (cell,) = json.loads((tmp_path / "result.json").read_text())["measured"]
    for at in cell["cells"]:
        assert set(at["records"]) == {"ours", "IVF, selector"}
        for record in at["records"].values():
            assert record["recall"] >= at["target"]
            assert record["memory_bytes"] > 0
    assert "IVF, selector" in page.speeds({"measured": [cell]})


def test_the_readme_holds_the_number_of_the_newest_result():
    page = part("exclusion.page")
    result = json.loads((ROOT / "benchmarks" / "results" / f"{page.NEWEST}.json").read_text())
    sentence = " ".join(page.in_short(result).split())
    assert sentence in " ".join((ROOT / "README.md").read_text().split())
