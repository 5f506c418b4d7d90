"""The engine's benchmark on tiny graphs: peers search right, the sweep finds the cheapest setting, runs resume."""

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import faiss
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
NAMES = [
    "ours",
    "ours, exact",
    "faiss.knn per class",
    "IVFFlat, bitmap",
    "IVFFlat, two ranges",
    "HNSW, selector",
    "IVFFlat, drop own",
    "Panorama, bitmap",
    "PQ fast scan, bitmap",
    "SQ fast scan, bitmap",
    "HNSW, drop own",
    "IVFFlat per class",
    "HNSW per class",
    "IVFFlat per other classes",
    "HNSW per other classes",
    "ScaNN, floats, per other classes",
    "ScaNN, codes, per other classes",
    "pyglass HNSW per other classes",
    "hnswlib, filter",
    "hnswlib, drop own",
    "usearch per other classes",
    "usearch, drop own",
    "ScaNN, floats, drop own",
    "Qdrant, local",
]
PAPER = ["LocalCE-I", "LocalCE-I w/o WC", "LocalCE-I w/o SP"]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Any:
    """Make ``benchmarks`` importable, whatever started pytest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield lambda name: importlib.import_module(f"benchmarks.engine.{name}")


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


def peer_named(engine: Any, name: str) -> Any:
    peer = next(peer for peer in engine("peers").PEERS if peer.name == name)
    if peer.needs:
        pytest.importorskip(peer.needs, reason=f"{peer.needs} is not installed (extra benchmarks)")
    return peer


def test_every_peer_is_tested(engine: Any) -> None:
    assert [peer.name for peer in engine("peers").PEERS] == NAMES + PAPER


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


def test_a_sample_of_exact_results_belongs_to_its_queries(
    engine: Any, tmp_path: Path, folder: Path, monkeypatch: Any
):
    graphs = engine("graphs")
    whole = graphs.load(folder)
    monkeypatch.setattr(graphs, "_ALL", 10)
    monkeypatch.setattr(graphs, "_FEWEST", 50)
    monkeypatch.setattr(graphs, "_TRUTH", 0)
    graphs.write(tmp_path / "part", "part", whole.X, whole.labels, "a copy")
    part = graphs.load(tmp_path / "part")
    assert len(part.queries) == 50
    np.testing.assert_array_equal(part.I, whole.I[part.queries])


@pytest.mark.parametrize("name", NAMES)
def test_a_peer_at_its_largest_setting_is_exact_even_after_a_round_trip(
    engine: Any, folder: Path, name: str, tmp_path: Path
) -> None:
    graph, peer = engine("graphs").load(folder), peer_named(engine, name)
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
    whole, peer = engine("graphs").load(folder), peer_named(engine, name)
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
    graph, peer = engine("graphs").load(folder), peer_named(engine, name)
    records = engine("sweep").sweep(graph, peer, engine("sweep").Effort(0.01), tmp_path)
    assert {record["mode"] for record in records} == {"all", "single"}
    assert all(0 < record["recall"] < 1 for record in records)


def test_as_many_indexes_are_built_as_asked_for(engine: Any, folder: Path, tmp_path: Path) -> None:
    graph, sweep = engine("graphs").load(folder), engine("sweep")
    for builds in (1, 2):
        effort = sweep.Effort(60.0, builds=builds)
        records = sweep.sweep(graph, peer_named(engine, "ours"), effort, tmp_path / str(builds))
        assert {record["build"] for record in records} == set(range(builds))
        state = sweep.read(tmp_path / str(builds))
        assert engine("run").is_done(state, graph.info, effort)
        assert not engine("run").is_done(state, graph.info, sweep.Effort(60.0))


@pytest.mark.parametrize("first", [1, 8, 300])
@pytest.mark.parametrize("needed", [1, 7, 60])
def test_frontier_finds_the_smallest_setting_to_a_tenth(
    engine: Any, first: int, needed: int
) -> None:
    searcher = replace_first(engine("searcher"), first)
    asked: dict[int, float] = {}

    def recall_at(setting: int) -> float:
        assert setting not in asked
        asked[setting] = 0.5 + 0.45 * setting / needed
        return asked[setting]

    engine("sweep").frontier(recall_at, searcher, (0.95, 0.99), 60.0)
    found = min(setting for setting, recall in asked.items() if recall >= 0.95)
    assert needed <= found <= 1.1 * needed
    assert len(asked) < 25


def test_frontier_needs_few_evaluations_where_the_miss_falls_with_a_power_of_the_setting(
    engine: Any,
) -> None:
    asked: dict[int, float] = {}

    def recall_at(setting: int) -> float:
        asked[setting] = 1 - 0.6 * setting**-0.8
        return asked[setting]

    engine("sweep").frontier(recall_at, replace_first(engine("searcher"), 8), (0.95, 0.99), 60.0)
    for target, needed in ((0.95, 22.4), (0.99, 166.8)):
        found = min(setting for setting, recall in asked.items() if recall >= target)
        assert needed <= found <= 1.1 * needed
    assert len(asked) <= 10


def test_frontier_stops_in_time_and_evaluates_once_in_any_case(engine: Any) -> None:
    asked: list[int] = []

    def recall_at(setting: int) -> float:
        asked.append(setting)
        return 0.0

    engine("sweep").frontier(recall_at, replace_first(engine("searcher"), 8), (0.95,), 0.0)
    assert asked == [8]


def replace_first(searcher: ModuleType, first: int) -> Any:
    none = searcher.Searcher(lambda query, setting: None, lambda queries: None, 1, 500)
    return replace(none, first=first)


def test_a_sample_of_small_classes_is_as_large_as_asked_for(engine: Any) -> None:
    labels = np.repeat(np.arange(5000), 2)
    nodes = engine("sweep").sample(labels, 3000)
    assert 3000 <= len(nodes) <= 3002
    assert len(np.unique(labels[nodes])) == len(nodes) // 2


def test_a_sample_has_large_batches_of_few_classes(engine: Any) -> None:
    labels = np.random.default_rng(0).integers(0, 50, 100_000)
    nodes = engine("sweep").sample(labels, 4096)
    assert len(np.unique(nodes)) == 4096
    assert (np.bincount(labels[nodes])[np.unique(labels[nodes])] == 1024).all()
    np.testing.assert_array_equal(engine("sweep").sample(labels, 100_000), np.arange(100_000))


def test_pareto_keeps_what_nothing_beats(engine: Any) -> None:
    points = [(0.9, 10.0), (0.95, 12.0), (0.95, 11.0), (0.93, 11.5), (1.0, 30.0), (0.8, 10.0)]
    records = [{"mode": "single", "recall": recall, "p50_us": p50} for recall, p50 in points]
    kept = [(record["recall"], record["p50_us"]) for record in engine("plots").pareto(records)]
    assert kept == [(0.9, 10.0), (0.95, 11.0), (1.0, 30.0)]


def made_up(ours: float, peer: float, recall: float = 0.96) -> dict[str, Any]:
    """Return a result of two indexes on Bail with these queries per second."""
    common = {
        "mode": "all",
        "recall": recall,
        "parameters": {},
        "setting": 1,
        "as_ratio": 1.0,
        "short_rows": 0.0,
    }
    sizes = {
        "queries": 10,
        "seconds": 1.0,
        "build_seconds": 1.0,
        "file_bytes": 1,
        "memory_bytes": None,
    }
    records = [
        {**common, **sizes, "peer": n, "per_second": s}
        for n, s in (("ours", ours), ("IVFFlat, bitmap", peer))
    ]
    about = {
        "graph": "bail",
        "nodes": 10,
        "records": records,
        "paired": {"all": {}, "single": {}, "threads": {}, "build": None},
    }
    peers = {"ours": {"ours": True, "notes": ""}, "IVFFlat, bitmap": {"ours": False, "notes": ""}}
    return {"targets": [0.95, 0.99], "peers": peers, "graphs": [about]}


def test_the_page_tells_what_was_met(engine: Any) -> None:
    page = engine("page")
    assert page.wanted(made_up(300.0, 100.0))[0] == (
        "all nodes, recall >= 0.95",
        "bail",
        "3x",
        "3.00x",
        "IVFFlat, bitmap",
        "met",
    )
    assert page.wanted(made_up(299.0, 100.0))[0][-1] == "**not met**"
    at_99 = page.wanted(made_up(300.0, 100.0))[1]
    assert at_99[3:] == ("ours does not reach it", "", "**not met**")
    assert (
        "bail, all nodes, recall >= 0.95: faster than ours are IVFFlat, bitmap 2.00x"
        in page.losses(made_up(50.0, 100.0))
    )


def test_the_summary_is_that_of_the_results(engine: Any) -> None:
    summary = engine("summary")
    assert summary.PAGE.read_text() == summary.page(), "run python -m benchmarks.engine.summary"


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
    X, labels = (
        np.repeat(graphs.load(folder).X[:20], 3, axis=0),
        nodes // 3 % 2,
    )  # every vector three times
    graphs.write(tmp_path / "thrice", "thrice", X, labels, "each three times")
    graph = graphs.load(tmp_path / "thrice")
    D, I = graph.D - np.float32(2e-7), graph.I.copy()
    I[:, -1] += 2  # the last of ten is the first of three that tie
    assert graphs.quality(graph, nodes, D, I)["recall"] == 1
    assert graphs.quality(graph, nodes, D - 1, I)["recall"] == pytest.approx(0.9)
    I[:30, -1] = -1
    assert graphs.quality(graph, nodes, D, I)["short_rows"] == 0.5
    assert graphs.quality(graph, nodes, D, I)["recall"] == pytest.approx(0.95)


def test_crowded_graphs_link_nearest_neighbours_and_mix_classes(engine: Any) -> None:
    graphs = engine("graphs")
    X, labels = graphs.crowded(8, 3, 1500)
    assert X.shape == (1500, 8)
    np.testing.assert_array_equal(np.unique(labels), [0, 1, 2])
    similarities = X @ X.T
    assert np.quantile(similarities, 0.01) > 0.9
    nearest = np.sort(similarities, axis=1)[:, ::-1][:, 1:11]
    assert np.median(nearest[:, -1]) > 0.999
    near = np.argsort(-similarities, axis=1)[:, 1:11]
    assert 0.2 < (labels[near] != labels[:, None]).mean() < 0.7
    again, drawn = graphs.crowded(8, 3, 1500)
    np.testing.assert_array_equal(X, again)
    np.testing.assert_array_equal(labels, drawn)


@pytest.mark.parametrize("largest", [1000, 50])
def test_neighbor_edges_go_both_ways(
    engine: Any, monkeypatch: pytest.MonkeyPatch, largest: int
) -> None:
    graphs = engine("graphs")
    monkeypatch.setattr(graphs, "_ALL", largest)
    x = np.random.default_rng(0).random((200, 5), np.float32)
    edges = graphs.neighbor_edges(x, 4)
    pairs = set(map(tuple, edges.T.tolist()))
    assert len(pairs) == edges.shape[1]
    assert all(source != target and (target, source) in pairs for source, target in pairs)
    distances = np.square(x[:, None] - x[None]).sum(axis=2)
    nearest = np.argsort(distances, axis=1)[:, 1:5]
    assert all((node, other) in pairs for node in range(200) for other in nearest[node].tolist())


def test_an_index_per_class_is_not_tried_where_its_copies_are_too_large(engine: Any) -> None:
    told = engine("others").infeasible({"classes": 107, "nodes": 1_569_960, "dimension": 200})
    assert told == "not tried: 107 indexes would hold 133 GB of vectors"
    assert engine("others").infeasible({"classes": 4, "nodes": 22_470, "dimension": 128}) is None


def test_settings_not_tried_are_on_the_page(
    engine: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_process: Any
) -> None:
    pytest.importorskip("matplotlib", reason="the extra plot is not installed")
    in_process("sweep", "paired")
    monkeypatch.setattr(engine("others"), "_MEMORY", 0)
    command = [
        "short",
        "--graphs",
        "tiny",
        "--budget",
        "0.2",
        "--peers",
        "IVFFlat, bitmap",
        "IVFFlat per other classes",
    ]
    command += [
        "--threads",
        "1",
        "--work",
        str(folder.parents[2]),
        "--results",
        str(tmp_path),
        "--name",
        "small",
    ]
    engine("run").main([*command, "--again", "IVFFlat per other classes"])
    assert (
        "IVFFlat per other classes (not tried: 4 indexes would hold 0 GB"
        in (tmp_path / "engine_small.md").read_text()
    )
    (graph,) = json.loads((tmp_path / "engine_small.json").read_text())["graphs"]
    assert {record["threads"] for record in graph["records"]} == {1}
    assert graph["paired"]["threads"] == {}


def test_indexes_of_many_classes_are_not_tried(engine: Any) -> None:
    info = {"classes": 2000, "nodes": 4000, "dimension": 32}
    told = {peer.name: peer.infeasible(info) for peer in engine("peers").PEERS}
    assert told["IVFFlat per class"] == "not tried: a query would search 1,999 indexes"
    assert told["HNSW per other classes"] == "not tried: 2,000 indexes"
    assert told["Qdrant, local"] == "not tried: its local mode compares 4,000 payloads in Python"
    assert told["IVFFlat, drop own"] is None


def test_an_index_that_drops_own_rows_fetches_the_largest_group_if_it_is_small(
    engine: Any, folder: Path
) -> None:
    graph, dropping = engine("graphs").load(folder), engine("dropping")
    grid = dropping.grid(engine("others").ivf_grid)
    assert [one["fetched"] for one in grid(graph)[:4]] == [
        10 + int(np.bincount(graph.labels).max())
    ] * 4
    two = replace(graph, labels=np.arange(graph.n) % 2)
    assert [one["fetched"] for one in grid(two)[:4]] == [40, 100, 20, 250]


def test_a_wrong_ground_truth_is_an_error(engine: Any, folder: Path) -> None:
    graph = engine("graphs").load(folder)
    check = engine("graphs").check_truth
    check(graph.X, graph.labels, graph.queries, graph.D)
    with pytest.raises(ValueError, match="the exact results of node"):
        check(graph.X, graph.labels, graph.queries, graph.D + np.float32(1e-4))


def test_few_queries_are_padded_as_faiss_pads(engine: Any) -> None:
    D, I = engine("others").padded(np.ones((2, 3), np.float32), np.ones((2, 3), np.uint32))
    assert D.shape == I.shape == (2, 10)
    assert (I[:, 3:] == -1).all()
    assert (D[:, 3:] < -3e38).all()


def test_codes_of_pyglass_are_recomputed(engine: Any, folder: Path) -> None:
    peer = peer_named(engine, "pyglass HNSW per other classes")
    graph = engine("graphs").load(folder)
    index = peer.build(graph, {"R": 16, "L": 100, "codes": 1})
    D, I = peer.searcher(index, graph).on(np.arange(graph.n))(graph.n)
    np.testing.assert_allclose(D, (graph.X[:, None] * graph.X[I]).sum(axis=2), atol=1e-5)


def single_result(ours: float, peer: float, ours_p99: float, peer_p99: float) -> dict[str, Any]:
    result = made_up(1.0, 1.0)
    for record, p50, p99 in zip(
        result["graphs"][0]["records"], (ours, peer), (ours_p99, peer_p99), strict=True
    ):
        record |= {"mode": "single", "p50_us": p50, "p99_us": p99}
    return result


def test_the_slowest_queries_count_as_well(engine: Any) -> None:
    page = engine("page")
    slow = single_result(10.0, 20.0, 90.0, 60.0)
    (row,) = page.tail_rows(slow)
    assert row == (
        "one query, p99, recall >= 0.95",
        "bail",
        "1x",
        "90 us, theirs 60 us",
        "IVFFlat, bitmap",
        "**not met**",
    )
    assert "bail, one query, p99, recall >= 0.95: ours 90 us, IVFFlat, bitmap 60 us" in page.losses(
        slow
    )
    assert page.tail_rows(single_result(10.0, 20.0, 50.0, 60.0))[0][-1] == "met"


def test_two_threads_are_compared_with_one(engine: Any) -> None:
    page, result = engine("page"), made_up(300.0, 100.0)
    (graph,) = result["graphs"]
    faster = {
        r["peer"]: {**r, "per_second": s}
        for r, s in zip(graph["records"], (530.0, 600.0), strict=True)
    }
    graph["paired"]["threads"] = {"2": {"0.95": faster}}
    gain, ratio = page.thread_rows(result)
    assert gain[2:4] == ("1.8x", "1.77x")
    assert gain[-1] == "**not met**"
    assert ratio[3:5] == ("0.88x", "IVFFlat, bitmap")
    assert (
        "bail, all nodes, 2 threads, recall >= 0.95: faster than ours are IVFFlat, bitmap 1.13x"
        in page.losses(result)
    )


@pytest.mark.parametrize(
    ("name", "wanted"), [("bail", 3.0), ("crowded-8-2-20000", 2.0), ("bail-2", None)]
)
def test_floors_may_stand_for_many_graphs(engine: Any, name: str, wanted: float | None) -> None:
    assert engine("page").floor(engine("page").ALL_NODES, name) == wanted
