"""Our index against every peer on every graph: one command, one JSON, plots and a page.

    CFE_DATA=... python -m benchmarks.engine.run short
    CFE_DATA=... python -m benchmarks.engine.run full
    python -m benchmarks.engine.run short --graphs crowded-8-2-20000 --threads 1 2

Each peer on each graph runs in a process of its own and is written when it is there: the same command goes on where
it was stopped. The budget is in seconds, for a peer on a graph of up to 50,000 nodes, besides its first build; larger
ones get more, in proportion. Settings are found with the first number of threads; with the others, the best of them are
timed in turns. After a change of our code, measure it anew with ``--again ours``.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, environment
from benchmarks.engine import page, plots
from benchmarks.engine.graphs import CLUMPS, CLUSTERS, CROWDED, REAL, K
from benchmarks.engine.paired import slug
from benchmarks.engine.peers import PEERS, THREADS, Peer, available
from benchmarks.engine.sweep import TARGETS, WHOLE, Effort, read

ROOT = Path(__file__).parents[2]
GRAPHS = {
    "short": (
        *REAL,
        "amazon-low-20000",
        "amazon-high-20000",
        *(f"{shape}-20000" for shape in CROWDED),
    ),
    "tables": ("bail", *(f"{shape}-30000" for shape in (*CLUMPS, CLUSTERS))),
    "full": (
        *REAL,
        *(f"amazon-{level}-{n}" for n in (20_000, 200_000, 1_569_960) for level in ("low", "high")),
        *(f"{shape}-{n}" for n in (20_000, 200_000) for shape in CROWDED),
    ),
}
BUDGETS = {"short": 20.0, "tables": 20.0, "full": 60.0}
_SMALL = 50_000
_LEAST = 120.0  # seconds a peer may take in any case
_PATIENCE = 3.0  # times the budget, after which a peer that still builds is ended


def child(module: str, *arguments: str, timeout: float | None = None) -> str | None:
    """Run a module of this package in a process of its own; return what went wrong, if anything."""
    # Peers do better on a shared machine if idle OpenMP threads sleep; ours does not use OpenMP.
    threads = {
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": str(THREADS),
        "OPENBLAS_NUM_THREADS": str(THREADS),
    }
    command = [sys.executable, "-m", f"benchmarks.engine.{module}", *arguments]
    try:
        status = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **threads}, timeout=timeout
        ).returncode
    except subprocess.TimeoutExpired:
        return f"ended after {timeout:.0f} s"
    return f"failed with status {status}" if status else None


def is_done(state: dict[str, Any] | None, info: dict[str, Any], effort: Effort) -> bool:
    asked = effort.key(info)
    return bool(state and state["done"] and {key: state.get(key) for key in asked} == asked)


def sweep_peer(
    peer: Peer, graph_folder: Path, info: dict[str, Any], effort: Effort, folder: Path
) -> None:
    """Sweep one peer; what it had found before it took too long counts, one that failed is tried again next time."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wrong = not_for_it = peer.infeasible(info)
    if not not_for_it:
        timeout = max(_LEAST, _PATIENCE * effort.budget * (WHOLE if peer.ours else 1))
        of_effort = [str(effort.threads), *([] if effort.builds is None else [str(effort.builds)])]
        command = [
            "sweep",
            str(graph_folder),
            peer.name,
            str(effort.budget),
            str(folder),
            *of_effort,
        ]
        wrong = child(*command, timeout=timeout)
    state = read(folder) or {**effort.key(info), "records": []}
    state |= {
        "done": wrong is None or bool(not_for_it) or wrong.startswith("ended"),
        "wrong": wrong,
    }
    (folder / "records.json").write_text(json.dumps(state, indent=1))


def graph_result(
    name: str, effort: Effort, peers: list[Peer], again: list[str], work: Path, threads: list[int]
) -> dict[str, Any]:
    """Return what is known of one graph after measuring what is missing, and the peers named in ``again``.

    The budget is for a small graph; the best peers are timed in turns with each of ``threads``.
    """
    graph_folder, folder, paired = (
        work / name / "graph",
        work / name / "peers",
        work / name / "paired.json",
    )
    if not (graph_folder / "info.json").exists() and (
        wrong := child("graphs", name, str(graph_folder))
    ):
        raise RuntimeError(f"preparing {name} {wrong}")
    info = json.loads((graph_folder / "info.json").read_text())
    effort = replace(effort, budget=effort.budget * max(1.0, info["nodes"] / _SMALL))
    print(
        f"{name}: {info['nodes']:,} x {info['dimension']}, budget {effort.budget:,.3g} s for each peer",
        flush=True,
    )
    for peer in peers:
        if peer.name in again or not is_done(read(folder / slug(peer.name)), info, effort):
            print(f"  {peer.name}", flush=True)
            paired.unlink(missing_ok=True)
            sweep_peer(peer, graph_folder, info, effort, folder / slug(peer.name))
    timed = list(json.loads(paired.read_text())["threads"]) if paired.exists() else None
    if timed != [str(number) for number in threads[1:]]:
        print("  the fastest in turns", flush=True)
        if wrong := child(
            "paired", str(graph_folder), str(folder), str(paired), *map(str, threads)
        ):
            raise RuntimeError(f"timing {name} in turns {wrong}")
    states = {peer.name: read(folder / slug(peer.name)) or {"records": []} for peer in peers}
    return {
        **info,
        "budget_seconds": effort.budget,
        "builds": effort.builds,
        "records": [record for state in states.values() for record in state["records"]],
        "wrong": {name: state["wrong"] for name, state in states.items() if state.get("wrong")},
        "paired": json.loads(paired.read_text()),
    }


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Benchmark:
    """What a run measures and writes.

    Attributes
    ----------
    name
        Beginning of the names of the results.
    about
        Description on the command line.
    forms, budgets
        Graphs of each form of the run, and seconds for a peer on a small graph.
    write
        Writes the page: of a result, the path of its JSON, and the pictures.
    """

    name: str
    about: str | None
    forms: Mapping[str, tuple[str, ...]]
    budgets: Mapping[str, float]
    write: Callable[[dict[str, Any], Path, dict[str, Path]], Path]


ENGINE = Benchmark("engine", __doc__, GRAPHS, BUDGETS, page.write)


def arguments(argv: list[str] | None, benchmark: Benchmark) -> argparse.Namespace:
    work = Path(tempfile.gettempdir()) / f"cfe-{benchmark.name}"
    parser = argparse.ArgumentParser(
        description=benchmark.about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("form", choices=tuple(benchmark.forms))
    parser.add_argument("--graphs", nargs="+", help="instead of the form's own")
    parser.add_argument(
        "--peers", nargs="+", choices=[peer.name for peer in PEERS], help="instead of all"
    )
    parser.add_argument(
        "--again",
        nargs="+",
        default=[],
        help="peers to measure anew, as after a change of their code",
    )
    parser.add_argument(
        "--budget", type=float, help=f"seconds for a peer on a small graph: {benchmark.budgets}"
    )
    parser.add_argument(
        "--builds", type=int, help="of each peer, at most (default: as many as the budget allows)"
    )
    parser.add_argument(
        "--threads",
        nargs="+",
        type=int,
        default=[1, 2],
        help="to search with, the first to tune with",
    )
    parser.add_argument("--work", type=Path, default=work, help="graphs, indexes")
    parser.add_argument("--name", help="of the result, if it is not to be called as the form")
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder of the JSON, the plots and the page"
    )
    parser.add_argument(
        "--shared", action="store_true", help="say that the machine does other work meanwhile"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None, benchmark: Benchmark = ENGINE) -> None:
    args = arguments(argv, benchmark)
    peers = [peer for peer in PEERS if args.peers is None or peer.name in args.peers]
    missing = {peer.name: f"{peer.needs} is not installed" for peer in peers if not available(peer)}
    names = args.graphs or benchmark.forms[args.form]
    if find_spec("torch") is None:
        missing |= {f"the data set {name}": "it needs PyTorch" for name in names if name in REAL}
    for name, reason in missing.items():
        print(f"left out: {name}: {reason}")
    result: dict[str, Any] = {
        "environment": {
            **environment(),
            "threads": args.threads,
            "shared": args.shared,
            **{name: installed(name) for name in page.PACKAGES},
        },
        "form": args.form,
        "k": K,
        "targets": TARGETS,
        "peers": {
            peer.name: {"ours": peer.ours, "notes": peer.notes}
            for peer in peers
            if peer.name not in missing
        },
        "left_out": missing,
        "graphs": [],
    }
    path = args.results / f"{benchmark.name}_{args.name or args.form}.json"
    args.results.mkdir(parents=True, exist_ok=True)
    effort = Effort(args.budget or benchmark.budgets[args.form], args.threads[0], args.builds)
    work = args.work.resolve() / args.form
    kept = [peer for peer in peers if peer.name not in missing]
    for name in names:
        if f"the data set {name}" not in missing:
            result["graphs"].append(
                graph_result(name, effort, kept, args.again, work, args.threads)
            )
    # Only now: a run that is stopped leaves the results of the last one.
    path.write_text(json.dumps(result, indent=1) + "\n")
    pictures = plots.draw(result, path.with_suffix(""))
    print(f"written to {path} and {benchmark.write(result, path, pictures)}")


if __name__ == "__main__":
    main()
