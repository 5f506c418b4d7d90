"""Write results/scale.md from the JSON results of scale.py: no figure on that page is typed by hand.

python -m benchmarks.scale_page
"""

import json
from statistics import median
from typing import Any

import numpy as np

from benchmarks.common import RESULTS, table

PAGE = RESULTS / "scale.md"
GIB = 1 << 30
OF_EDGES = ("sort", "graph", "step-1", "step-2", "vectors")
"""Stages whose work is for each edge; of the others it is for each node."""

Run = dict[str, Any]


def runs(workers: int = 2) -> list[Run]:
    """Return the jobs that were measured with so many workers, from the smallest graph on."""
    found = [
        json.loads(path.read_text()) for path in RESULTS.glob(f"scale_growth_*_{workers}.json")
    ]
    return sorted(found, key=lambda run: int(run["nodes"]))


def stage(run: Run, name: str) -> dict[str, Any]:
    return next(one for one in run["stages"] if one["stage"] == name)


def names() -> list[str]:
    return [one["stage"] for one in runs()[-1]["stages"]]


def cpu(run: Run, name: str) -> float:
    return float(sum(stage(run, name)["cpu_seconds"]))


def whole(run: Run) -> float:
    """Return the processor time of all stages."""
    return sum(cpu(run, one["stage"]) for one in run["stages"])


def exponent(known: list[tuple[float, float]]) -> float:
    """Return b of the law a * size ** b that fits sizes and values best in logarithms."""
    sizes, values = np.log(np.array(known)).T
    return float(np.polyfit(sizes, values, 1)[0])


def growth() -> str:
    of = runs()
    rows = []
    for name in names():
        values = [cpu(run, name) for run in of]
        base = "edges" if name in OF_EDGES else "nodes"
        # What takes less is the start of a task, which does not grow.
        known = [(run[base], value) for run, value in zip(of, values, strict=True) if value > 0.5]
        law = f"{base} ^ {exponent(known):.2f}" if len(known) > 1 else ""
        rows.append((name, *(f"{value:,.1f} s" for value in values), law))
    law = f"nodes ^ {exponent([(run['nodes'], whole(run)) for run in of]):.2f}"
    rows.append(("all", *(f"{whole(run):,.0f} s" for run in of), law))
    rows.append(("recall@10", *(f"{run['recall']:.3f}" for run in of), ""))
    rows.append(("most memory of a worker, with mapped files", *(peak(run) for run in of), ""))
    sizes = ", ".join(f"{run['edges'] * 2:,}" for run in of)
    blocks = [str(stage(run, "step-1")["tasks"]) for run in of]
    return (
        f"Processor time of each stage, d = {of[-1]['d']}, two workers; {sizes} directed edges. Fitted exponents, in "
        "edges where the work is for each edge:\n\n"
        + table(("stage", *(f"{run['nodes']:,} nodes" for run in of), "grows as"), rows)
        + "\n\nTraining takes all vectors where there are fewer than 1,048,576, and 256 for each of 4 sqrt(n) lists "
        "beyond: from there on its work grows as n. A step of KS vectors costs more where there are more blocks, whose "
        f"rows are read one block after the other: {', '.join(blocks)} here."
    )


def peak(run: Run) -> str:
    return f"{max(one['peak_bytes'] for one in run['stages']) / GIB:.2f} GB"


def largest() -> str:
    run = runs()[-1]
    rows = []
    for one in run["stages"]:
        memory = run.get("memory_of_workers", {}).get(one["stage"])
        rows.append(
            (
                one["stage"],
                one["tasks"],
                f"{sum(one['seconds']) / min(run['workers'], one['tasks']):,.0f} s",
                f"{sum(one['cpu_seconds']):,.0f} s",
                f"{one['bytes_written'] / GIB:.2f} GB",
                f"{one['peak_bytes'] / GIB:.2f} GB",
                f"{memory['anonymous'] / GIB:.2f} GB" if memory else "",
            )
        )
    head = (
        "stage",
        "tasks",
        "time / workers",
        "processor time",
        "written",
        "memory of a worker, with mapped files",
    )
    again = searched_again(run)
    found = f"recall@10 {run['recall']:.4f} over 1,000 nodes that were compared with all others"
    if again:
        found += (
            f". The job had measured its nprobe on a few whole lists: {stage(run, 'join')['results']['nprobe']}; on "
            f"random groups, as `recall=` is measured since, it is {again['nprobe']}: {len(again['searched'])} of "
            f"{again['shards']} shards searched with it have a recall of {again['recall']:.4f}, and all would take "
            f"{evidence_again(again):,.0f} s of processor time"
        )
    return (
        f'{run["nodes"]:,} nodes, {run["edges"] * 2:,} directed edges, d = {run["d"]}, `memory="{run["memory"]}"`, '
        f"two workers; other work ran beside it, so processor times say more than times; {found}:\n\n"
        + table((*head, "of all workers, without"), rows)
    )


def searched_again(run: Run) -> dict[str, Any]:
    """Return what came of it when some shards of a job were searched once more."""
    path = RESULTS / f"scale_evidence_{run['nodes']}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def evidence_again(again: dict[str, Any]) -> float:
    """Return the processor time of the evidence of all nodes, from that of some shards."""
    return float(sum(again["cpu_seconds"]) * again["nodes"] / sum(again["searched"]))


def workers() -> str:
    """Compare one worker on one core with two workers on two, by the clock."""
    (one,) = runs(1)
    two = next(run for run in runs(2) if run["nodes"] == one["nodes"])
    seconds = [run["wall_seconds"] for run in (one, two)]
    return (
        f"By the clock, {one['nodes']:,} nodes took {seconds[0]:,.0f} s with one worker on {one['cores']} core "
        f"({whole(one):,.0f} s of processor time) and {seconds[1]:,.0f} s with two on {two['cores']} "
        f"({whole(two):,.0f} s): {seconds[0] / seconds[1]:.2f} times as fast. `train` is one task, which all others "
        "wait for; it has all cores of its machine."
    )


def times_of(run: Run) -> tuple[float, float, float]:
    """Return the time of all, the processor time, and the time of the evidence of all nodes, of a way to compute it."""
    if "seconds" in run:  # in memory
        seconds = run["seconds"]
        return seconds["whole"], seconds["whole_cpu"], seconds["evidence"]
    of_evidence = [one for one in run["stages"] if one["stage"] in ("join", "evidence")]
    evidence = sum(sum(one["seconds"]) / min(2, one["tasks"]) for one in of_evidence)
    return run["wall_seconds"], sum(sum(one["cpu_seconds"]) for one in run["stages"]), evidence


def compared() -> str:
    content = json.loads((RESULTS / "scale_compare.json").read_text())
    turns, recall = content["turns"], content["turns"][-1]["local"]["recall"]
    times = {way: [times_of(turn[way]) for turn in turns] for way in ("memory", "local", "ray")}
    medians = {
        way: [median(column) for column in zip(*rows, strict=True)] for way, rows in times.items()
    }
    called = {"memory": "in memory", "local": "job, local", "ray": "job, Ray"}
    rows = [
        (called[way], *(f"{value:,.0f} s" for value in values)) for way, values in medians.items()
    ]
    against_memory = [
        local / memory for local, memory in zip(medians["local"], medians["memory"], strict=True)
    ]
    return (
        f"{content['nodes']:,} nodes, d = {content['d']}, two workers or two threads, {len(turns)} turn(s), medians; "
        f"from files to evidence of all nodes at `recall=0.95` ({recall:.3f} over 1,000 nodes) "
        "and the top 1,000 pairs:\n\n"
        + table(("", "all", "processor time", "evidence of all nodes, its nprobe measured"), rows)
        + f"\n\nA local job takes {against_memory[0]:.2f} times as long as arrays in memory (evidence alone: "
        f"{against_memory[2]:.2f}; wanted: at most 1.5), and Ray {medians['ray'][0] / medians['local'][0]:.2f} times "
        f"as long as local workers, the start of its cluster included (wanted: at most 1.25)."
    )


def page() -> str:
    environment = runs()[-1]["environment"]
    version = environment["packages"]["faiss-cpu"]
    where = f"{environment['processor']}, {environment['cores']} cores, faiss-cpu {version}"
    parts = [
        "# Jobs over a folder",
        "From `python benchmarks/scale.py`, written by `python -m benchmarks.scale_page` "
        f"({where}). Graphs are synthetic, of AmazonProducts' shape.",
        "## Against memory, and Ray against local",
        compared(),
        "## The largest graph",
        largest(),
        "## Growth with the graph",
        growth(),
        "## Growth with the workers",
        workers(),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
