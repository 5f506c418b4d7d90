"""The engine's benchmark on tiny graphs: peers search right, runs resume."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.engine.peers import PEERS

PAPER = [peer.name for peer in PEERS if peer.name.startswith("LocalCE-I")]
NAMES = [peer.name for peer in PEERS if peer.name not in PAPER]


@pytest.fixture(scope="module")
def engine() -> Any:
    """Return a function from a name to a module of the benchmark."""
    return lambda name: importlib.import_module(f"benchmarks.engine.{name}")


@pytest.fixture(scope="module")
def folder(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a graph with clusters that mix four classes."""
    rng = np.random.default_rng(0)
    n, d = 600, 12
    cluster = rng.integers(0, 15, n)
    labels = np.where(rng.random(n) < 0.7, cluster % 4, rng.integers(0, 4, n))
    X = rng.normal(size=(15, d))[cluster] + 0.6 * rng.normal(size=(n, d))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    path = tmp_path_factory.mktemp("engine") / "short" / "tiny" / "graph"
    engine("graphs").write(path, "tiny", X, labels * 3 + 5, "random clusters")
    return path


@pytest.fixture
def in_process(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run modules that the command starts in this process, which has loaded the packages once."""
    start = engine("run").child

    def run_here(module: str, *arguments: str) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", [module, *arguments])
            engine(module).main()

    def patch_all(*modules: str) -> None:
        def child(module: str, *arguments: str, timeout: float | None = None) -> str | None:
            return (
                run_here(module, *arguments)
                if module in modules
                else start(module, *arguments, timeout=timeout)
            )

        monkeypatch.setattr(engine("run"), "child", child)
        monkeypatch.setattr(engine("paired"), "_QUERIES", 200)
        monkeypatch.setattr(engine("paired"), "_MANY_ROUNDS", engine("paired")._ROUNDS)

    return patch_all


def peer_named(name: str) -> Any:
    peer = next(peer for peer in PEERS if peer.name == name)
    if peer.needs:
        pytest.importorskip(peer.needs, reason=f"{peer.needs} is not installed (extra benchmarks)")
    return peer


def test_a_graph_is_kept_whole(engine: Any, folder: Path) -> None:
    graph = engine("graphs").load(folder)
    assert graph.labels.min() == 0
    assert graph.labels.max() == 3
    similarities = graph.X.astype(np.float64) @ graph.X.T.astype(np.float64)
    similarities[graph.labels[:, None] == graph.labels] = -2
    np.testing.assert_allclose(graph.D, np.sort(similarities)[:, ::-1][:, :10], atol=1e-6)
    assert engine("graphs").quality(graph, np.arange(graph.n), graph.D, graph.I) == {
        "recall": 1,
        "as_ratio": 1,
        "short_rows": 0,
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_peer_at_its_largest_setting_is_exact_even_after_a_round_trip(
    engine: Any, folder: Path, name: str, tmp_path: Path
) -> None:
    graph, peer = engine("graphs").load(folder), peer_named(name)
    parameters = peer.grid(graph)[0]
    if "reorder" in parameters:
        parameters["reorder"] = graph.n  # codes are exact where everything is computed anew
    if "fetched" in parameters:
        parameters["fetched"] = graph.n
    index = peer.build(graph, parameters)
    peer.save(index, tmp_path)
    everything = np.arange(graph.n)
    for kept in (index, peer.load(tmp_path)):
        searcher = peer.searcher(kept, graph)
        D, I = searcher.on(everything)(searcher.largest)
        assert I.shape == (graph.n, 10)
        assert not (graph.labels[I] == graph.labels[:, None]).any()
        np.testing.assert_allclose(D, graph.D, atol=1e-5)
        assert engine("graphs").quality(graph, everything, D, I)["recall"] > 0.999
        some = np.array([17, 3, 400])
        np.testing.assert_allclose(searcher.on(some)(searcher.largest)[0], graph.D[some], atol=1e-5)
        for query in some:
            np.testing.assert_allclose(
                searcher.one(int(query), searcher.largest)[0][0], graph.D[query], atol=1e-5
            )


@pytest.mark.parametrize("name", NAMES)
def test_rows_with_few_eligible_vectors_are_padded(
    engine: Any, folder: Path, name: str, tmp_path: Path
) -> None:
    whole, peer = engine("graphs").load(folder), peer_named(name)
    labels = np.zeros(40, np.int64)
    labels[[0, 13, 39]] = 1
    engine("graphs").write(tmp_path / "few", "few", whole.X[:40], labels, "a part")
    graph = engine("graphs").load(tmp_path / "few")
    searcher = peer.searcher(peer.build(graph, peer.grid(graph)[0]), graph)
    _, I = searcher.on(np.arange(40))(searcher.largest)
    assert ((I >= 0).sum(axis=1) == np.where(labels == 0, 3, 10)).all()
    one = searcher.one(5, searcher.largest)[1]
    assert sorted(one[0, :3].tolist()) == [0, 13, 39]
    assert (one[0, 3:] == -1).all()


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_index_and_its_ablations_run(
    engine: Any, folder: Path, name: str, tmp_path: Path
) -> None:
    graph, peer = engine("graphs").load(folder), peer_named(name)
    records = engine("sweep").sweep(graph, peer, engine("sweep").Effort(0.01), tmp_path)
    assert {record["mode"] for record in records} == {"all", "single"}
    assert all(0 < record["recall"] < 1 for record in records)


def test_one_command_writes_json_pictures_and_page_and_resumes(
    engine: Any, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], in_process: Any
) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    names = ["ours", "IVFFlat, bitmap"]
    command = ["short", "--graphs", "tiny", "--budget", "0.4", "--builds", "1", "--peers", *names]
    command += ["--work", str(folder.parents[2]), "--results", str(tmp_path)]
    in_process("sweep", "paired")
    engine("run").main(command)
    result = json.loads((tmp_path / "engine_short.json").read_text())
    (graph,) = result["graphs"]
    assert {record["peer"] for record in graph["records"]} == set(names)
    assert result["environment"]["packages"]["faiss-cpu"] == faiss.__version__
    best = graph["paired"]["all"]["0.95"]["ours"]
    assert best["recall"] >= 0.95
    assert best["seconds"] == np.median(best["times"])
    assert set(graph["paired"]["build"]["seconds"]) == {"ours", "IVFFlat"}
    page = (tmp_path / "engine_short.md").read_text()
    assert "![tiny](engine_short/tiny.png)" in page
    assert f"{best['per_second']:,.0f}" in page
    assert (tmp_path / "engine_short" / "tiny.png").stat().st_size > 10_000

    capfd.readouterr()
    engine("run").main(command)
    assert "tiny | " not in capfd.readouterr().out
    assert json.loads((tmp_path / "engine_short.json").read_text())["graphs"] == [graph]
    in_process("paired")  # the other in a process of its own, as users run it
    engine("run").main([*command, "--again", "ours"])
    out = capfd.readouterr().out
    assert "tiny | ours" in out
    assert "tiny | IVFFlat" not in out


def test_a_tie_counts_whatever_an_index_rounds_it_to(
    engine: Any, folder: Path, tmp_path: Path
) -> None:
    graphs, nodes = engine("graphs"), np.arange(60)
    # every vector three times
    X, labels = (np.repeat(graphs.load(folder).X[:20], 3, axis=0), nodes // 3 % 2)
    graphs.write(tmp_path / "thrice", "thrice", X, labels, "each three times")
    graph = graphs.load(tmp_path / "thrice")
    D, I = graph.D - np.float32(2e-7), graph.I.copy()
    I[:, -1] += 2  # the last of ten is the first of three that tie
    assert graphs.quality(graph, nodes, D, I)["recall"] == 1
    assert graphs.quality(graph, nodes, D - 1, I)["recall"] == pytest.approx(0.9)
    I[:30, -1] = -1
    assert graphs.quality(graph, nodes, D, I)["short_rows"] == 0.5
    assert graphs.quality(graph, nodes, D, I)["recall"] == pytest.approx(0.95)
