"""One peer on one graph: build it with each of its parameters, and find the cheapest settings for the wanted recalls.

Runs in a process of its own, so that its memory can be told. Everything found is written at once.

    python -m benchmarks.engine.sweep GRAPH_FOLDER PEER BUDGET_SECONDS FOLDER THREADS [BUILDS]
"""

import json
import math
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.graphs import Graph, load, quality
from benchmarks.engine.peers import PEERS, THREADS, Peer
from benchmarks.engine.searcher import Results, Searcher
from cfe_faiss.base import threads

TARGETS = (0.95, 0.99)
MODES = ("all", "single")
SINGLE = 1000  # queries asked one by one
_BATCH = 1024  # of one class, where nodes are sampled for throughput
_CLOSE = 1.1  # ratio of settings that are not told apart
_MORE, _FAR = 1.04, 10.0  # times what is expected; and no further than so many steps
_FEWEST = 1000
_REPEATS = 5
_COLD = 0.2  # seconds
_WARM = 2000  # nodes, at least
_FIRST = 4  # even shares of the budget that are counted with for each mode of the first build: it gets half
_PASS = 1 / 64  # share of the budget that one timed search of many nodes may take, about
WHOLE = 8.0  # times less, at most, a search counts that has to be of all nodes


def rate(record: dict[str, Any]) -> float:
    """Return queries per second: of all nodes, or one by one at the median latency."""
    return float(record["per_second"] if record["mode"] == "all" else 1e6 / record["p50_us"])


def best(records: list[dict[str, Any]], mode: str, target: float) -> dict[str, Any] | None:
    """Return the fastest record of a mode that reaches a recall."""
    reaching = [
        record for record in records if record["mode"] == mode and record["recall"] >= target
    ]
    return max(reaching, key=rate, default=None)


def frontier(
    recall_at: Callable[[int], float],
    searcher: Searcher,
    targets: tuple[float, ...],
    seconds: float,
) -> None:
    """Evaluate settings until the smallest one that reaches each target is known to a tenth, or the time is over.

    The setting is raised up to the highest target, to its double at most, or halved below the lowest one, then what
    lies between is divided. No evaluation begins that would probably end too late; one takes place in any case.
    """
    deadline = time.monotonic() + seconds
    recalls: dict[int, float] = {}
    took: dict[int, float] = {}

    def evaluate(setting: int) -> float:
        start = time.monotonic()
        recalls[setting] = recall_at(setting)
        took[setting] = time.monotonic() - start
        return recalls[setting]

    def enough_time(needed: float) -> bool:
        return time.monotonic() + needed < deadline

    low = high = searcher.first
    reached, before = evaluate(high), None
    while reached < max(targets) and high < searcher.largest and enough_time(2 * took[high]):
        wanted = expected(recalls, before, high, max(targets)) if before else None
        before, high = (
            high,
            min(
                max(high + 1, math.ceil(wanted)) if wanted else 2 * high, 2 * high, searcher.largest
            ),
        )
        reached = evaluate(high)
    reached = recalls[low]
    while reached >= min(targets) and low > searcher.smallest and enough_time(took[low]):
        low = max(low // 2, searcher.smallest)
        reached = evaluate(low)
    for target in sorted(targets):
        while True:
            above = min(
                (setting for setting, recall in recalls.items() if recall >= target), default=0
            )
            below = max((setting for setting in recalls if setting < above), default=0)
            if (
                not below
                or above - below == 1
                or above <= _CLOSE * below
                or not enough_time(took[above])
            ):
                break
            ratio = above / below
            wanted = expected(recalls, below, above, target) or below * ratio**0.5
            wanted = min(max(wanted, below * ratio**0.25), below * ratio**0.75)
            evaluate(min(max(round(wanted), below + 1), above - 1))


def expected(recalls: dict[int, float], one: int, other: int, target: float) -> float | None:
    """Return the setting where the target should be reached, if what is missed falls with a power of the setting.

    It is a little more, so that the next evaluation is more often the last. None where two recalls do not tell.
    """
    misses = 1 - recalls[one], 1 - recalls[other]
    if not misses[0] > misses[1] > 0:
        return None
    exponent = math.log((1 - target) / misses[0]) / math.log(misses[1] / misses[0])
    return float(_MORE * one * (other / one) ** min(exponent, _FAR))


def sample(labels: NDArray[np.int64], size: int, seed: int = 2) -> NDArray[np.int64]:
    """Return about ``size`` nodes in batches of one class, classes by their share: as large as in a search of all.

    Where classes are small, there are more of them.
    """
    if size >= len(labels):
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    counts = np.bincount(labels)
    number = max(1, min(int((counts > 0).sum()), size // _BATCH))
    classes = rng.choice(
        len(counts), np.count_nonzero(counts), replace=False, p=counts / len(labels)
    )
    held = np.cumsum(np.minimum(counts[classes], size // number))
    classes = classes[: max(number, int(np.searchsorted(held, size)) + 1)]
    by_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
    return np.sort(
        np.concatenate([rng.permutation(by_class[label])[: size // number] for label in classes])
    )


def measure_all(graph: Graph, searcher: Searcher, setting: int, seconds: float) -> dict[str, Any]:
    """Return the quality of a setting, and the throughput over all nodes or over a sample that takes ``seconds``."""
    everything = np.arange(graph.n)
    asked = everything if searcher.whole else graph.queries
    run = searcher.on(asked)
    (D, I), took = timed(run, setting)
    if len(asked) > len(graph.queries):
        D, I = D[graph.queries], I[graph.queries]
    reached = quality(graph, np.arange(len(graph.queries)), D, I)
    if len(asked) < graph.n:
        affordable = int(len(asked) / took * seconds)
        asked = sample(
            graph.labels, graph.n if affordable > graph.n / 2 else max(_FEWEST, affordable)
        )
        run = searcher.on(asked)
        took = timed(run, setting)[1]
    if took < max(seconds, _COLD):  # else the first run was long enough not to be a cold one
        times = [timed(run, setting)[1]]
        while sum(times) + took < seconds and len(times) < _REPEATS:
            times.append(timed(run, setting)[1])
        took = median(times)
    return {**reached, "queries": len(asked), "seconds": took, "per_second": len(asked) / took}


def clock(threads: int) -> Callable[[], float]:
    """Return the clock for so many threads: one thread is timed by its processor time, which others do not lengthen."""
    return time.process_time if threads == 1 else time.perf_counter


def timed(run: Callable[[int], Results], setting: int) -> tuple[Results, float]:
    now = clock(int(faiss.omp_get_max_threads()))
    start = now()
    results = run(setting)
    return results, now() - start


def measure_single(graph: Graph, searcher: Searcher, setting: int) -> dict[str, Any]:
    """Return quality and latency of queries asked one by one, on one thread."""
    rows = np.random.default_rng(4).permutation(len(graph.queries))[:SINGLE]
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    times, found = [], []
    try:
        with threads.single_threaded_blas():
            for query in graph.queries[rows].tolist():
                start = time.perf_counter()
                results = searcher.one(query, setting)
                times.append(time.perf_counter() - start)
                found.append(results)
    finally:
        faiss.omp_set_num_threads(before)
    p50, p99 = np.percentile(times, [50, 99]) * 1e6
    D, I = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return {**quality(graph, rows, D, I), "queries": len(rows), "p50_us": p50, "p99_us": p99}


@dataclass(frozen=True, slots=True)
class Effort:
    """What a peer is swept with: a budget in seconds, threads to search with, and how many builds at most, if not all.

    It is written with what is found, with the graph's digest.
    """

    budget: float
    threads: int = 1
    builds: int | None = None

    def key(self, info: dict[str, Any]) -> dict[str, Any]:
        """Return what identifies the sweep of a graph with this effort; its result holds the same."""
        return {"sha256": info["sha256"], **asdict(self)}


def sweep(graph: Graph, peer: Peer, effort: Effort, folder: Path) -> list[dict[str, Any]]:
    """Build and search a peer with its parameters while the budget lasts; return and write all records.

    That is with each of its grid, or with the first ``builds`` of them.
    The first parameters are built and searched in any case, and this build does not count; each of their modes may take
    half of what is left of the budget, each mode of later builds twice an even share, and a half of an even share of
    the whole in any case. A search that has to be of all nodes counts by the share of nodes with exact results, which
    are what others search to find a setting, but at least by one in :data:`WHOLE`. Indexes that are the fastest for a
    mode and a target stay in the folder. Indexes are built with :data:`THREADS` threads.
    """
    folder.mkdir(parents=True, exist_ok=True)
    grid, budget, spent = peer.grid(graph)[: effort.builds], effort.budget, 0.0
    records: list[dict[str, Any]] = []
    for number, parameters in enumerate(grid):
        if spent > budget:
            break
        faiss.omp_set_num_threads(THREADS)
        before, start = private_bytes(), time.perf_counter()
        index = peer.build(graph, parameters)
        built, after = time.perf_counter() - start, private_bytes()
        spent += built if number else 0.0
        (folder / str(number)).mkdir(exist_ok=True)
        peer.save(index, folder / str(number))
        about = {
            "graph": graph.name,
            "peer": peer.name,
            "build": number,
            "parameters": parameters,
            "build_seconds": built,
            "file_bytes": sum(
                f.stat().st_size for f in (folder / str(number)).rglob("*") if f.is_file()
            ),
            "memory_bytes": None if before is None or after is None else after - before,
            "threads": effort.threads,
        }
        searcher = peer.searcher(index, graph)
        faiss.omp_set_num_threads(effort.threads)
        for place, mode in enumerate(MODES):

            def recall_at(
                setting: int, mode: str = mode, searcher: Searcher = searcher, about: Any = about
            ) -> float:
                if mode == "all":
                    found = measure_all(graph, searcher, setting, budget * _PASS)
                else:
                    found = measure_single(graph, searcher, setting)
                records.append({**about, "mode": mode, "setting": setting, **found})
                write(folder, {**effort.key(graph.info), "done": False, "records": records})
                print(f"    {line(records[-1])}", flush=True)
                return float(found["recall"])

            counted = (
                max(len(graph.queries) / graph.n, 1 / WHOLE)
                if searcher.whole and mode == "all"
                else 1.0
            )
            shares = len(MODES) * (len(grid) - number) - place if number else _FIRST
            share = max(2 * (budget - spent) / shares, budget / (2 * len(MODES) * len(grid)))
            start = time.monotonic()
            frontier(recall_at, searcher, TARGETS, share / counted)
            spent += counted * (time.monotonic() - start)
        winners = {
            record["build"] for mode in MODES for t in TARGETS if (record := best(records, mode, t))
        }
        for old in range(number + 1):
            if old not in winners:
                shutil.rmtree(folder / str(old), ignore_errors=True)
    write(folder, {**effort.key(graph.info), "done": True, "records": records})
    return records


def line(record: dict[str, Any]) -> str:
    """Return a record in one line, for people."""
    speed = (
        f"{record['per_second']:,.0f} q/s"
        if record["mode"] == "all"
        else f"p50 {record['p50_us']:,.0f} us"
    )
    sampled = f" ({record['queries']:,} queries)" if record["mode"] == "all" else ""
    return (
        f"{record['graph']} | {record['peer']} {record['parameters']} | {record['mode']}, {record['setting']}: "
        f"recall {record['recall']:.4f}, {speed}{sampled}"
    )


def write(folder: Path, state: dict[str, Any]) -> None:
    new = folder / "records.json.new"
    new.write_text(json.dumps(state, indent=1))
    new.replace(folder / "records.json")


def read(folder: Path) -> dict[str, Any] | None:
    path = folder / "records.json"
    return json.loads(path.read_text()) if path.exists() else None


def warm_up(graph: Graph, peer: Peer) -> None:
    """Build and search a small part of the graph: loads and starts whatever is made once in a process."""
    rows = np.argsort(graph.labels, kind="stable")[:: max(1, graph.n // _WARM)]
    labels = np.unique(graph.labels[rows], return_inverse=True)[1]
    part = replace(graph, X=np.ascontiguousarray(graph.X[rows]), labels=labels)
    searcher = peer.searcher(peer.build(part, peer.grid(part)[0]), part)
    for nodes in (np.arange(part.n), np.arange(3)):
        searcher.on(nodes)(searcher.first)
    searcher.one(0, searcher.first)


def private_bytes() -> int | None:
    """Return the memory that only this process holds, without mapped files; None where the system does not tell."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    fields = dict(text.split(":", 1) for text in status.read_text().splitlines())
    return int(fields["RssAnon"].split()[0]) * 1024


def main() -> None:
    graph, name, budget, folder = (
        load(Path(sys.argv[1])),
        sys.argv[2],
        float(sys.argv[3]),
        Path(sys.argv[4]),
    )
    effort = Effort(budget, *map(int, sys.argv[5:]))
    faiss.omp_set_num_threads(effort.threads)
    peer = next(peer for peer in PEERS if peer.name == name)
    warm_up(graph, peer)
    sweep(graph, peer, effort, folder)


if __name__ == "__main__":
    main()
