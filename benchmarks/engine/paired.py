"""The fastest peers of one graph, timed in turns in one process: the load of a shared machine drifts, their ratio less.

python -m benchmarks.engine.paired GRAPH_FOLDER RUN_FOLDER RESULT.json THREADS [THREADS ...]
"""

import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np

from benchmarks.common import paired_times
from benchmarks.engine import ours, peers
from benchmarks.engine.graphs import Graph, load, quality
from benchmarks.engine.peers import PEERS, THREADS, Peer
from benchmarks.engine.sweep import TARGETS, best, clock, rate, read, sample
from cfe_faiss.base import threads

NEAR = 4.0  # times slower than the fastest is still timed again
BEST = 4  # peers that are timed again in any case
_LONG = 60.0  # seconds of a round from which on there are fewer
_ROUNDS, _FEW_ROUNDS, _MANY_ROUNDS = 7, 3, 51
_ENOUGH = 10.0  # seconds of all rounds: as many as that takes where they are short
_BUILDS = 3  # at least, but fewer where they take long
_QUERIES = 2000  # asked one by one, at least
_BLOCK = 10  # queries that one peer answers before the next has its turn


def slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def contenders(folder: Path, mode: str, target: float) -> dict[str, dict[str, Any]]:
    """Return the best records that reach the recall: of ours, the fastest peers, and all that come near the fastest."""
    found = {}
    for peer in PEERS:
        state = read(folder / slug(peer.name))
        record = best(state["records"], mode, target) if state else None
        if record:
            found[peer.name] = record
    fastest = max((rate(record) for record in found.values()), default=0.0)
    others = [peer.name for peer in PEERS if peer.name in found and not peer.ours]
    always = {"ours", *sorted(others, key=lambda name: -rate(found[name]))[:BEST]}
    return {
        name: record
        for name, record in found.items()
        if name in always or rate(record) * NEAR >= fastest
    }


def loaded(
    graph: Graph, folder: Path, records: dict[str, dict[str, Any]]
) -> dict[str, tuple[Peer, Any]]:
    by_name = {peer.name: peer for peer in PEERS}
    return {
        name: (by_name[name], by_name[name].load(folder / slug(name) / str(record["build"])))
        for name, record in records.items()
    }


def compare_all(graph: Graph, folder: Path, target: float, threads: int) -> dict[str, Any]:
    """Time searches of all nodes, or of a sample, in turns; the settings are those that were found."""
    records = contenders(folder, "all", target)
    if not records:
        return {}
    runs = {}
    for name, (peer, index) in loaded(graph, folder, records).items():
        run = peer.searcher(index, graph).on(sample(graph.labels, records[name]["queries"]))
        runs[name] = lambda run=run, setting=records[name]["setting"]: run(setting)
    round_takes = sum(record["seconds"] for record in records.values())
    rounds = (
        _FEW_ROUNDS
        if round_takes > _LONG
        else int(np.clip(_ENOUGH / round_takes, _ROUNDS, _MANY_ROUNDS))
    )
    faiss.omp_set_num_threads(threads)
    medians, times = paired_times(runs, rounds, clock(threads))
    found = {}
    for name, record in records.items():
        seconds = medians[name]
        timed = {
            "seconds": seconds,
            "times": times[name],
            "per_second": record["queries"] / seconds,
        }
        found[name] = {**record, **timed, "threads": threads}
    return found


def compare_single(graph: Graph, folder: Path, target: float) -> dict[str, Any]:
    """Ask each peer a few queries in turn, all queries twice; the first time warms up.

    Queries come in random order, and so do the peers at each turn. The recall told is that of these queries.
    """
    records = contenders(folder, "single", target)
    if not records:
        return {}
    searchers = {
        name: peer.searcher(index, graph)
        for name, (peer, index) in loaded(graph, folder, records).items()
    }
    rng = np.random.default_rng(4)
    rows = np.concatenate(
        [rng.permutation(len(graph.queries)) for _ in range(-(-_QUERIES // len(graph.queries)))]
    )
    rows = rows[:_QUERIES]
    times: dict[str, list[float]] = {}
    results: dict[str, list[Any]] = {}
    faiss.omp_set_num_threads(1)
    with threads.single_threaded_blas():
        for _ in range(2):
            times, results = ({name: [] for name in records} for _ in range(2))
            for block in np.array_split(graph.queries[rows], max(1, len(rows) // _BLOCK)):
                for name in rng.permutation(list(records)).tolist():
                    one, setting = searchers[name].one, records[name]["setting"]
                    for query in block.tolist():
                        start = time.perf_counter()
                        result = one(query, setting)
                        times[name].append(time.perf_counter() - start)
                        results[name].append(result)
    found = {}
    for name, record in records.items():
        p50, p99 = np.percentile(times[name], [50, 99]) * 1e6
        D, I = (np.concatenate(arrays) for arrays in zip(*results[name], strict=True))
        reached = quality(graph, rows, D, I)
        found[name] = {**record, **reached, "queries": len(rows), "p50_us": p50, "p99_us": p99}
    return found


def compare_builds(graph: Graph, folder: Path) -> dict[str, Any] | None:
    """Time train + add of ours and of a stock IVFFlat with as many lists, in turns."""
    state = read(folder / slug("ours"))
    record = best(state["records"], "all", TARGETS[0]) if state else None
    if record is None:
        return None
    parameters = record["parameters"]
    times: dict[str, list[float]] = {"ours": [], "IVFFlat": []}
    for i in range(_MANY_ROUNDS):
        taken = sum(map(sum, times.values()))
        if taken > (_ENOUGH if i >= _BUILDS else 2 * _LONG):
            break
        for name, build in (("ours", ours.build), ("IVFFlat", peers.ivf)):
            start = time.perf_counter()
            build(graph, parameters)
            times[name].append(time.perf_counter() - start)
    return {
        "parameters": parameters,
        "times": times,
        "seconds": {name: median(all_) for name, all_ in times.items()},
    }


def main() -> None:
    graph, folder = load(Path(sys.argv[1])), Path(sys.argv[2])
    first, *others = map(int, sys.argv[4:])
    result: dict[str, Any] = {
        "all": {},
        "single": {},
        "threads": {str(number): {} for number in others},
    }
    for target in TARGETS:
        result["all"][str(target)] = compare_all(graph, folder, target, first)
        for number in others:
            result["threads"][str(number)][str(target)] = compare_all(graph, folder, target, number)
        result["single"][str(target)] = compare_single(graph, folder, target)
    faiss.omp_set_num_threads(THREADS)
    result["build"] = compare_builds(graph, folder)
    Path(sys.argv[3]).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
