"""One query on one thread, from 30,000 rows to millions: ours against the fastest peers.

Data and classes are those of :mod:`benchmarks.engine.rivals`. Peers are HNSW with a selector, stock
IVF with a selector, and over the rows of other classes: stock IVF, superkmeans as its trainer,
rabitqlib, HNSW and ScaNN. Each cell is written when it is there. Ours and one peer are in memory,
so that millions of rows fit; rules of classes that are measured together share our clustering.

    python -m benchmarks.engine.growth text-64-30000-mixed text-384-300000-alike
    python -m benchmarks.engine.growth text-384-3000000-mixed text-384-3000000-alike \\
        --peers ours rabitqlib --factors 2 --classes 1
    CFE_DATA=... python -m benchmarks.engine.growth bail clumps-mixed-30000 --factors 2 4 6
    CFE_SIMD=avx2 FAISS_OPT_LEVEL=AVX2 python -m benchmarks.engine.growth text-200-500000-mixed \\
        --peers ours rabitqlib --factors 1 2 --classes 1
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import RESULTS, environment
from benchmarks.engine import high
from benchmarks.engine.graphs import SEED, vectors
from benchmarks.engine.rivals import PEERS, QUERIES, Built, Task, hnsw
from benchmarks.engine.sweep import TARGETS
from cfe_faiss import _native
from cfe_faiss.base import threads

PATH = RESULTS / "growth.json"
UNLABELLED = ("text-", "paragraphs-", "cora_features")
Timed = tuple[Built, dict[str, Any]]


@threads.limit_faiss_threads(1)
def measure(task: Task, peers: Iterable[Callable[[Task], Iterator[Built]]]) -> dict[str, Any]:
    """Tune each index for each recall, and time it in turns with our fastest. Our indexes are first.

    The time of a peer is ours, times the ratio of both in their turns.
    """
    ours, *rivals = peers
    load = [os.getloadavg()[0]]
    best: dict[float, dict[str, Timed]] = {target: {} for target in TARGETS}
    for built in ours(task):
        for target, known in best.items():
            record = tuned(task, built, target)
            if record and faster(
                record, {name: found for name, (_, found) in known.items()}, built
            ):
                known[built.name] = built, record
    del built
    cells: dict[float, dict[str, dict[str, Any]]] = {}
    for target, known in best.items():
        high.in_turns(task, known, "one")
        cells[target] = {name: record for name, (_, record) in known.items()}
    for peer in rivals:
        for built in peer(task):
            for target, records in cells.items():
                record = tuned(task, built, target)
                if record is None:
                    continue
                index, mine = min(best[target].values(), key=lambda timed: timed[1]["seconds"])
                turns = {index.name: (index, dict(mine)), built.name: (built, record)}
                high.in_turns(task, turns, "one")
                record["seconds"] *= mine["seconds"] / turns[index.name][1]["seconds"]
                if faster(record, records, built):
                    records[built.name] = record
            load.append(os.getloadavg()[0])
            del built
    return {
        "data": task.name,
        "level": _native.level(),
        "rows": len(task.X),
        "dimension": task.X.shape[1],
        "classes asked": len(task.queries),
        "factors": task.factors,
        "load": max(load),
        "cells": [{"target": target, "records": records} for target, records in cells.items()],
    }


def tuned(task: Task, built: Built, target: float) -> dict[str, Any] | None:
    """Return the least setting of an index that reaches the recall, or None."""
    record = high.cheapest(task, built, "one", target)
    print(time.ctime(), task.name, built.name, built.parameters, target, record, flush=True)
    about = {"parameters": built.parameters, "build_seconds": built.seconds}
    return record and record | about | {"memory_bytes": built.memory}


def faster(record: dict[str, Any], known: dict[str, dict[str, Any]], built: Built) -> bool:
    """Return whether no index of this name is as fast."""
    return built.name not in known or record["seconds"] < known[built.name]["seconds"]


def store(path: Path, cell: dict[str, Any]) -> None:
    """Put a cell into a result, in place of an earlier one of the same data and instruction set."""
    measured = json.loads(path.read_text())["measured"] if path.exists() else []
    same = cell["data"], cell["level"]
    kept = [other for other in measured if (other["data"], other["level"]) != same]
    result = {"environment": environment(), "measured": [*kept, cell]}
    path.write_text(json.dumps(result, indent=1) + "\n")


def task_of(name: str, args: argparse.Namespace) -> Task:
    """Return the task of a data set: a graph of the engine's benchmark has classes; others have a rule for them."""
    if name.startswith(UNLABELLED):
        task = Task.of(name, args)
        return replace(task, queries={c: rows[:QUERIES] for c, rows in task.queries.items()})
    X, labels, _ = vectors(name)
    rng = np.random.default_rng(SEED)
    asked = np.bincount(labels).argsort()[-args.classes :].tolist()
    queries = {c: rng.permutation(np.flatnonzero(labels == c))[:QUERIES] for c in asked}
    return Task(name, args.factors, np.ascontiguousarray(X, np.float32), labels, queries)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", help="data set, and rule of classes")
    parser.add_argument("--peers", nargs="+", choices=tuple(PEERS), default=list(PEERS))
    parser.add_argument(
        "--factors", nargs="+", type=float, default=[1, 2, 4], help="lists / sqrt(n)"
    )
    parser.add_argument("--classes", type=int, default=2, help="whose queries are asked")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "cfe-high")
    parser.add_argument(
        "--left-out", default="", help="what was not measured, and why: for the page"
    )
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        peers = {peer: PEERS[peer] for peer in args.peers}
        if "HNSW" in peers:
            peers["HNSW"] = partial(hnsw, folder=args.work)
        with threads.single_threaded_blas():
            found = measure(task_of(name, args), peers.values())
        found["left out"] = args.left_out
        store(PATH, found)


if __name__ == "__main__":
    main()
