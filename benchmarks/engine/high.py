"""One query, and batches, in high dimension and at growing sizes: ours against the fastest peers.

Data: see :mod:`benchmarks.engine.graphs`. Classes are *mixed*, ten equal parts of the order along a
random direction, or *alike*, ten clusters of k-means. Queries are rows of one or two classes of
middle size. A peer has an index over the rows of other classes for each of these, as its user would
build for each class, and ours has one index of all rows.

    CFE_DATA=... python -m benchmarks.engine.high cora_features-mixed paragraphs-384-alike
    CFE_SIMD=avx2 FAISS_OPT_LEVEL=AVX2 python -m benchmarks.engine.high text-768-100000-mixed
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np

from benchmarks.common import RESULTS, environment
from benchmarks.engine.rivals import PEERS, QUERIES, Array, Built, Task
from benchmarks.engine.sweep import TARGETS
from cfe_faiss import _native
from cfe_faiss.base import threads

ROUNDS, BATCH_ROUNDS = 9, 5
_BLOCK, _STEP = 50, 1.1
CALIBRATED = "ours, calibrated"
PATH = RESULTS / "high_dimension.json"
USUAL = "ours", "rabitqlib", "ScaNN", "HNSW"


def blocks(task: Task, mode: str) -> list[tuple[int, Array]]:
    """Return classes and rows of queries: batches, or queries that are asked one by one."""
    if mode == "batch":
        return list(task.queries.items())
    return [
        (label, rows[low : low + _BLOCK])
        for low in range(0, QUERIES, _BLOCK)
        for label, rows in task.queries.items()
    ]


def run(
    task: Task, built: Built, setting: int, asked: list[tuple[int, Array]], mode: str
) -> tuple[list[Array], list[float]]:
    """Return places, and seconds of each query, or of each batch by processor time."""
    places, times = [], []
    if mode == "batch":
        for label, rows in asked:
            start = time.process_time()
            places.append(built.batch(label, setting)(task.X[rows]))
            times.append((time.process_time() - start) / len(rows))
        return places, times
    for label, rows in asked:
        of_block = []
        search = built.one(label, setting)
        for row in rows.tolist():
            x = task.X[row : row + 1]
            start = time.perf_counter()
            found = search(x)
            times.append(time.perf_counter() - start)
            of_block.append(found)
        places.append(np.concatenate(of_block))
    return places, times


def reached(task: Task, built: Built, setting: int, mode: str) -> tuple[float, float]:
    """Return the recall, and the median seconds of a query."""
    asked = blocks(task, mode)
    places, times = run(task, built, setting, asked, mode)
    recalls = []
    for label in task.queries:
        found = [part for (of, _), part in zip(asked, places, strict=True) if of == label]
        I = np.concatenate(found).astype(np.int32)  # padding of rabitqlib is 2**32 - 1
        recalls.append(task.recall(label, np.where(I < 0, -1, built.rows[label][I])))
    return float(np.mean(recalls)), median(times)


def cheapest(task: Task, built: Built, mode: str, target: float) -> dict[str, Any] | None:
    """Return the least setting that reaches the recall, to a tenth."""
    low, high = 0, built.first
    while (found := reached(task, built, high, mode))[0] < target:
        if high >= built.largest:
            return None
        low, high = high, min(2 * high, built.largest)
    while low and high - low > 1 and high > _STEP * low:
        middle = (low + high) // 2
        between = reached(task, built, middle, mode)
        if between[0] >= target:
            high, found = middle, between
        else:
            low = middle
    return {"setting": high, "recall": found[0], "seconds": found[1]}


def in_turns(task: Task, chosen: dict[str, tuple[Built, dict[str, Any]]], mode: str) -> None:
    """Time the chosen settings in turns, a few queries or a batch of each at a time."""
    rng = np.random.default_rng(1)
    times: dict[str, list[list[float]]] = {name: [] for name in chosen}
    for _ in range(ROUNDS if mode == "one" else BATCH_ROUNDS):
        of_round: dict[str, list[float]] = {name: [] for name in chosen}
        for block in blocks(task, mode):
            for name in rng.permutation(list(chosen)).tolist():
                built, record = chosen[name]
                of_round[name] += run(task, built, record["setting"], [block], mode)[1]
        for name in chosen:
            times[name].append(of_round[name])
    for name, (_, record) in chosen.items():
        record["seconds"] = median(median(of_round) for of_round in times[name])


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Sweep each index, time the best setting of each in turns, and return all."""
    task = Task.of(name, args)
    modes = args.modes
    best: dict[tuple[str, float, str], tuple[Built, dict[str, Any]]] = {}
    for peer in args.peers:
        faiss.omp_set_num_threads(2)
        for built in PEERS[peer](task):
            faiss.omp_set_num_threads(1)
            for mode in modes:
                for target in TARGETS:
                    record = cheapest(task, built, mode, target)
                    print(name, built.name, built.parameters, mode, target, record, flush=True)
                    before = best.get((mode, target, built.name))
                    if record and (before is None or record["seconds"] < before[1]["seconds"]):
                        about = {
                            "parameters": built.parameters,
                            "build_seconds": built.seconds,
                            "memory_bytes": built.memory,
                        }
                        best[mode, target, built.name] = built, record | about
            faiss.omp_set_num_threads(2)
    faiss.omp_set_num_threads(1)
    cells = []
    for mode in modes:
        for target in TARGETS:
            chosen = {
                peer: found for (of, at, peer), found in best.items() if (of, at) == (mode, target)
            }
            if mode == "one" and "ours" in chosen:
                index, record = chosen["ours"]
                setting = round(-1000 * target)
                recall = reached(task, index, setting, mode)[0]
                chosen[CALIBRATED] = index, record | {"setting": setting, "recall": recall}
            in_turns(task, chosen, mode)
            records = {peer: record for peer, (_, record) in chosen.items()}
            cells.append({"mode": mode, "target": target, "records": records})
    return {
        "data": name,
        "level": _native.level(),
        "rows": len(task.X),
        "dimension": task.X.shape[1],
        "load": os.getloadavg()[0],
        "cells": cells,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", help="data set and rule of its classes")
    parser.add_argument("--modes", nargs="+", default=["one", "batch"])
    parser.add_argument("--peers", nargs="+", choices=tuple(PEERS), default=USUAL)
    parser.add_argument("--factors", nargs="+", type=float, default=[1, 2], help="lists / sqrt(n)")
    parser.add_argument("--classes", type=int, default=2, help="whose queries are asked")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "cfe-high")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    for name in args.names:
        with threads.single_threaded_blas():
            found = measure(name, args)
        result = json.loads(PATH.read_text()) if PATH.exists() else {"measured": []}
        same = (found["data"], found["level"])
        result["measured"] = [r for r in result["measured"] if (r["data"], r["level"]) != same] + [
            found
        ]
        result["environment"] = environment()
        PATH.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
