"""Write results/scale.md from the JSON results of scale.py and partition.py: no figure on that page is typed by hand.

python benchmarks/scale_page.py
"""

import heapq
import json
import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from common import RESULTS
from report import table

WORKERS = (1, 2, 4, 8, 16, 32, 64)
GIB = 1 << 30
OF_EDGES = ("sort", "graph", "step-1", "step-2", "vectors")
"""Stages whose work is for each edge; of the others it is for each node."""
ON_PAPER = (15_699_600, 100_000_000, 1_000_000_000)
DEGREE = 168.4  # directed edges of a node
DIMENSIONS = (64, 200)
DAYS = 1.0  # in which all is to be done
CORES = 32  # of a machine on paper

Run = dict[str, Any]


def runs() -> list[Run]:
    """Return the jobs that were measured with two workers, from the smallest graph on."""
    found = [json.loads(path.read_text()) for path in RESULTS.glob("scale_growth_*_2.json")]
    return sorted(found, key=lambda run: int(run["nodes"]))


def stage(run: Run, name: str) -> dict[str, Any] | None:
    return next((one for one in run["stages"] if one["stage"] == name), None)


def names(of: Iterable[Run]) -> list[str]:
    last = list(of)[-1]
    return [one["stage"] for one in last["stages"]]


def cpu(run: Run, name: str) -> float:
    one = stage(run, name)
    return sum(one["cpu_seconds"]) if one else math.nan


def exponent(sizes: list[float], values: list[float]) -> float:
    """Return b of the law a * size ** b that fits best in logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def growth() -> str:
    of = runs()
    rows = []
    for name in names(of):
        values = [cpu(run, name) for run in of]
        base = "edges" if name in OF_EDGES else "nodes"
        sizes = [float(run[base]) for run in of]
        known = [(s, v) for s, v in zip(sizes, values, strict=True) if v > 0.05]
        power = f"{base} ^ {exponent(*map(list, zip(*known, strict=True))):.2f}" if len(known) > 1 else ""
        rows.append((name, *(f"{v:,.1f}" for v in values), power))
    whole = [sum(cpu(run, name) for name in names(of)) for run in of]
    rows.append(
        ("all", *(f"{v:,.0f}" for v in whole), f"nodes ^ {exponent([float(r['nodes']) for r in of], whole):.2f}")
    )
    head = ("processor seconds", *(f"{run['nodes']:,}" for run in of), "grows as")
    return table(head, rows)


def largest() -> str:
    run = runs()[-1]
    rows = []
    for one in run["stages"]:
        memory = run["memory_of_workers"].get(one["stage"], {})
        rows.append(
            (
                one["stage"],
                one["tasks"],
                f"{sum(one['seconds']) / run['workers']:,.0f} s",
                f"{sum(one['cpu_seconds']):,.0f} s",
                f"{one['bytes_written'] / GIB:.1f} GB",
                f"{memory['anonymous'] / GIB:.2f} GB" if memory else "",
                f"{memory['resident'] / GIB:.2f} GB" if memory else "",
            )
        )
    head = ("stage", "tasks", "time / workers", "processor time", "written", "memory", "with mapped files")
    return table(head, rows)


def makespan(run: Run, workers: int) -> float:
    """Return how long the tasks of all stages take on so many workers, each stage after the one before."""
    total = 0.0
    for one in run["stages"]:
        free = [0.0] * workers
        for seconds in one["cpu_seconds"]:
            heapq.heappush(free, heapq.heappop(free) + seconds)
        total += max(free)
    return total


def schedules() -> str:
    rows = []
    for run in runs()[-2:]:
        times = [makespan(run, workers) for workers in WORKERS]
        rows.append((f"{run['nodes']:,}", *(f"{times[0] / one:.1f}" for one in times)))
    return table(("nodes", *(f"{workers} workers" for workers in WORKERS)), rows)


def rate(run: Run, name: str) -> float:
    """Return the processor seconds of a stage for each unit of its work, in the law that the page explains."""
    return cpu(run, name) / work(name, run["nodes"], run["edges"] * 2 / run["nodes"], run["d"])


def work(name: str, n: float, degree: float, d: float) -> float:
    if name in ("sort", "graph"):
        return n * degree
    if name in ("step-1", "step-2", "vectors"):
        return n * degree * d
    if name in ("assign", "evidence", "pairs"):
        return n**1.5 * d
    return n * d


def written(name: str, n: float, degree: float, d: float, run: Run) -> float:
    """Return how many bytes a stage writes."""
    one = stage(run, name)
    if one is None:
        return 0.0
    scale = n / run["nodes"]
    if name in ("step-0", "step-1", "step-2", "vectors", "shard"):
        scale *= d / run["d"]
    return float(one["bytes_written"] * scale)


def read(name: str, n: float, degree: float, d: float) -> float:
    """Return how many bytes the tasks of a machine read from the common disk, if it reads each file once."""
    per_node = {
        "sort": 4 * degree,
        "graph": 8 * degree,
        "step-0": 4 * d,
        "step-1": 4 * degree + 8 * d,
        "step-2": 4 * degree + 8 * d,
        "vectors": 4 * degree + 8 * d,
        "assign": 4 * d,
        "shard": 4 * d,
        "evidence": 4 * d + 12,
    }
    return per_node.get(name, 0.0) * n


def on_paper() -> str:
    of = runs()
    run = of[-1]
    rows = []
    for n in ON_PAPER:
        for d in DIMENSIONS:
            seconds = sum(rate(run, name) * work(name, n, DEGREE, d) for name in names(of))
            disk = [written(name, n, DEGREE, d, run) for name in names(of)]
            largest_pair = max(a + b for a, b in pairwise(disk))
            network = sum(read(name, n, DEGREE, d) for name in names(of))
            machines = math.ceil(seconds / (DAYS * 86_400 * CORES))
            rows.append(
                (
                    f"{n:,}",
                    d,
                    f"{seconds / 3600:,.0f} h",
                    f"{disk[-1] / GIB:,.0f} GB",
                    f"{largest_pair / GIB:,.0f} GB",
                    f"{network / GIB:,.0f} GB",
                    f"{machines:,}",
                )
            )
    return table(("nodes", "d", "core hours", "results", "disk", "read by a machine", f"machines for a day"), rows)


def main() -> None:
    print(growth(), largest(), schedules(), on_paper(), sep="\n\n")


if __name__ == "__main__":
    main()
