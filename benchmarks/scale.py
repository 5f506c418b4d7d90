"""Jobs over a folder: how long does each stage take, how much memory, and how do both grow?

Graphs have AmazonProducts' shape. Larger ones are made of several such graphs, each with its own communities, whose
edges lead into one another: every tenth edge ends at the same node of another of them. Nodes are numbered at random, so
that no block of nodes has neighbours of its own. Each job is a process of its own, with two workers that are processes,
too; what a stage takes is what its tasks have noted.

    python benchmarks/scale.py compare                          # 1,569,960 nodes: in memory, local and Ray, in turns
    python benchmarks/scale.py growth --parts 1 --nodes 100000  # one size; results are kept by size and workers
    taskset -c 0 python benchmarks/scale.py growth --nodes 400000 --workers 1  # on one core
    python benchmarks/scale.py growth --parts 10                # 15.7 million nodes, 2.6 billion directed edges
    python benchmarks/scale.py evidence --folder JOB            # of every tenth shard of a job's index, at recall .95
    python benchmarks/scale_page.py                             # writes results/scale.md
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, environment
from numpy.typing import NDArray
from synthetic_graphs import amazon_shape

import cfe_faiss as cfe
from cfe_faiss.graph import Graph
from cfe_faiss.scale import Job, ShardedEvidenceIndex
from cfe_faiss.scale.job_files import Manifest

NODES = 1_569_960
K, RECALL, PAIRS = 10, 0.95, 1000
D_OF_GROWTH = 64  # of 200 features, so that ten times the nodes fit on a disk
ELSEWHERE = 0.1  # of the edges of a part end in another one
EVERY = 10
QUERIES = 1000  # nodes whose evidence is compared with the exact one
SEED = 0


def write_inputs(folder: Path, nodes: int, parts: int, d: int, csr: bool) -> None:
    """Write features, edges and labels of a graph, a part of it at a time."""
    rng, n = np.random.default_rng(SEED), nodes * parts
    number = rng.permutation(n).astype(np.int32) if parts > 1 else np.arange(n, dtype=np.int32)
    x = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.float32, shape=(n, d))
    labels = np.empty(n, np.int32)
    pieces = []
    for part in range(parts):
        data = amazon_shape(nodes, seed=SEED + part)
        own = number[part * nodes : (part + 1) * nodes]
        x[own] = data.x[:, :d]
        labels[own] = data.labels
        if csr:
            np.save(folder / "indptr.npy", data.graph.indptr)
            np.save(folder / "indices.npy", data.graph.indices)
            break
        pieces.append(folder / f"edges-{part}.npy")
        np.save(pieces[-1], renumbered(data.graph, number, part, nodes, rng))
    np.save(folder / "y.npy", labels)
    if pieces:
        joined(pieces, folder / "edges.npy")


def renumbered(
    graph: Graph, number: NDArray[np.int32], part: int, nodes: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Return each edge of a part once, under the numbers that its nodes have among all parts."""
    parts = len(number) // nodes
    targets = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(graph.indptr))
    once = graph.indices < targets
    source, target = graph.indices[once], targets[once]
    where = np.full(len(source), part, np.int64)
    if parts > 1:
        leaving = np.flatnonzero(rng.random(len(source), dtype=np.float32) < ELSEWHERE)
        where[leaving] = rng.integers(0, parts, len(leaving))
    return np.stack(
        [number[source.astype(np.int64) + part * nodes], number[target + where * nodes]]
    )


def joined(pieces: list[Path], path: Path) -> None:
    """Write the arrays of edges of several files side by side into one."""
    counts = [np.load(piece, mmap_mode="r").shape[1] for piece in pieces]
    edges = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(2, sum(counts)))
    first = 0
    for piece, count in zip(pieces, counts, strict=True):
        edges[:, first : first + count] = np.load(piece, mmap_mode="r")
        first += count
        piece.unlink()
    edges.flush()


def run_job(folder: Path, inputs: Path, executor: str, workers: int, memory: str) -> dict[str, Any]:
    """Run a job from the beginning or from where it was, and return what its stages have noted."""
    csr = (inputs / "indptr.npy").exists()
    edges: Any = (inputs / "indptr.npy", inputs / "indices.npy") if csr else inputs / "edges.npy"
    start = time.perf_counter()
    job = Job(folder, inputs / "x.npy", edges, inputs / "y.npy", k=K, recall=RECALL, pairs=PAIRS)
    with memory_of_workers(job) as most:
        job.run(executor, workers=workers, memory=memory, progress=True)  # type: ignore[arg-type]
    seconds = time.perf_counter() - start
    return {
        "wall_seconds": seconds,
        "memory_of_workers": most,
        "stages": stages_of(job),
        **checked(job, inputs),
    }


@contextmanager
def memory_of_workers(job: Job) -> Iterator[dict[str, dict[str, int]]]:
    """Watch the workers: by stage, the most bytes that all of them together have had, alone and with mapped files."""
    most: dict[str, dict[str, int]] = {}
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            left = (
                status.name for status in job.status() if status.finished < (status.blocks or 0)
            )
            own = most.setdefault(next(left, "end"), {"anonymous": 0, "resident": 0})
            anonymous, resident = memory_of(descendants(os.getpid()))
            own["anonymous"], own["resident"] = (
                max(own["anonymous"], anonymous),
                max(own["resident"], resident),
            )

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def descendants(parent: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            children.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(
                int(path.parent.name)
            )
        except OSError:
            continue
    found, waiting = [], [parent]
    while waiting:
        own = children.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def memory_of(processes: list[int]) -> tuple[int, int]:
    """Return the bytes of some processes together: those that are in no file, and all that are resident."""
    anonymous = resident = 0
    for process in processes:
        try:
            lines = Path(f"/proc/{process}/status").read_text().splitlines()
        except OSError:
            continue
        sizes = {
            line.split(":")[0]: int(line.split()[1]) << 10
            for line in lines
            if line.startswith("Rss") or "VmRSS" in line
        }
        anonymous += sizes.get("RssAnon", 0)
        resident += sizes.get("VmRSS", 0)
    return anonymous, resident


def nprobe_of(job: Job) -> dict[str, int]:
    return {"nprobe": int(np.load(job.directory / "tune" / "000000.nprobe.npy")[0])}


def stages_of(job: Job) -> list[dict[str, Any]]:
    manifest = Manifest(job.directory)
    found = []
    for status in job.status():
        own = [
            task for (stage, _), task in sorted(manifest.finished.items()) if stage == status.name
        ]
        found.append(
            {
                "stage": status.name,
                "tasks": len(own),
                "seconds": [task.seconds for task in own],
                "cpu_seconds": [task.cpu_seconds for task in own],
                "peak_bytes": max((task.peak_bytes for task in own), default=0),
                "bytes_written": sum(file.size for task in own for file in task.files),
                "results": nprobe_of(job) if status.name == "tune" and own else {},
            }
        )
    return found


def checked(job: Job, inputs: Path) -> dict[str, Any]:
    """Return the recall of some nodes, of what is written, against a comparison with all vectors."""
    import pyarrow.compute as pc

    labels = np.load(inputs / "y.npy")
    nodes = np.sort(
        np.random.default_rng(SEED).choice(len(labels), min(QUERIES, len(labels)), replace=False)
    )
    table = job.evidence().to_table(filter=pc.field("node").isin(nodes))
    I, D = np.full((len(nodes), K), -1, np.int64), np.full((len(nodes), K), -np.inf, np.float32)
    places = np.searchsorted(nodes, table["node"].to_numpy()), table["rank"].to_numpy() - 1
    I[places], D[places] = table["evidence"].to_numpy(), table["similarity"].to_numpy()
    best_D, best_I = exact_evidence(list(job.vectors()), labels, nodes)
    return {"rows": job.evidence().count_rows(), "recall": cfe.metrics.recall(I, best_I, D, best_D)}


def exact_evidence(
    blocks: list[NDArray[np.float32]], labels: NDArray[np.int32], nodes: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the K best of all vectors with other labels, by comparing some nodes, ascending, with all of them."""
    starts = np.cumsum([0] + [len(block) for block in blocks])
    cuts = np.searchsorted(nodes, starts)
    xq = np.concatenate([X[nodes[cuts[i] : cuts[i + 1]] - starts[i]] for i, X in enumerate(blocks)])
    D, I = np.full((len(nodes), K), -np.inf, np.float32), np.full((len(nodes), K), -1, np.int64)
    for block, start in zip(blocks, starts[:-1], strict=True):
        for low in range(0, len(block), 50_000):
            X = block[low : low + 50_000]
            ids = np.arange(start + low, start + low + len(X))
            scores = xq @ X.T
            scores[labels[nodes][:, None] == labels[ids]] = -np.inf
            D = np.concatenate([D, scores], axis=1)
            I = np.concatenate([I, np.broadcast_to(ids, scores.shape)], axis=1)
            best = np.argpartition(-D, K, axis=1)[:, :K]
            D, I = np.take_along_axis(D, best, axis=1), np.take_along_axis(I, best, axis=1)
    order = np.argsort(-D, axis=1, kind="stable")
    return np.take_along_axis(D, order, axis=1), np.take_along_axis(I, order, axis=1)


def in_memory(inputs: Path) -> dict[str, Any]:
    """Do the same in one process, from arrays in memory."""
    seconds: dict[str, float] = {}

    def timed(name: str, start: tuple[float, float]) -> tuple[float, float]:
        seconds[name], seconds[f"{name}_cpu"] = (
            time.perf_counter() - start[0],
            time.process_time() - start[1],
        )
        return time.perf_counter(), time.process_time()

    begin = now = time.perf_counter(), time.process_time()
    x, labels = np.load(inputs / "x.npy"), np.load(inputs / "y.npy")
    graph = Graph(np.load(inputs / "indptr.npy"), np.load(inputs / "indices.npy"))
    now = timed("read", now)
    X = cfe.ks_vectors(x, graph)
    del x, graph
    now = timed("vectors", now)
    index = cfe.IndexEvidenceIVF(X.shape[1], 4 * math.isqrt(len(X)))
    index.train(X)
    now = timed("train", now)
    index.add_with_labels(X, labels)
    now = timed("add", now)
    _, I = index.search_stored(k=K, recall=RECALL)
    now = timed("evidence", now)
    cfe.global_evidence(index, PAIRS)
    timed("pairs", now)
    timed("whole", begin)
    return {"seconds": seconds, "rows": int((I >= 0).sum())}


def alone(*arguments: object) -> dict[str, Any]:
    """Run this script in a process of its own, and return what it has found."""
    command = [sys.executable, __file__, "one", *map(str, arguments)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def compare(arguments: argparse.Namespace) -> None:
    inputs = inputs_of(arguments, csr=True, d=200)
    turns: list[dict[str, Any]] = []
    for turn in range(arguments.repeats):
        found: dict[str, Any] = {}
        for way in ("memory", "local", "ray")[:: 1 if turn % 2 == 0 else -1]:
            place = arguments.folder / f"job-{way}"
            shutil.rmtree(place, ignore_errors=True)
            found[way] = alone(way, inputs, place, 2, arguments.memory)
            shutil.rmtree(place, ignore_errors=True)
            print(way, {k: v for k, v in found[way].items() if k != "stages"}, flush=True)
        turns.append(found)
        keep("scale_compare", {"nodes": arguments.nodes, "d": 200, "turns": turns})


def growth(arguments: argparse.Namespace) -> None:
    inputs = inputs_of(arguments, csr=False, d=D_OF_GROWTH)
    place = arguments.folder / f"job-{arguments.nodes * arguments.parts}-{arguments.workers}"
    found = alone("local", inputs, place, arguments.workers, arguments.memory)
    edges = int(np.load(inputs / "edges.npy", mmap_mode="r").shape[1])
    size = {"nodes": arguments.nodes * arguments.parts, "edges": edges, "d": D_OF_GROWTH}
    size["cores"] = len(os.sched_getaffinity(0))  # fewer than the machine has, under taskset
    name = f"scale_growth_{size['nodes']}_{arguments.workers}"
    keep(name, {**size, "workers": arguments.workers, "memory": arguments.memory, **found})
    shutil.rmtree(place)


def evidence(arguments: argparse.Namespace) -> None:
    """Search some shards of an index that a job has made, with as many lists as the recall takes now."""
    index = ShardedEvidenceIndex.open(arguments.folder / "index")
    start = time.process_time()
    nprobe = index.nprobe_for(RECALL, K)
    found: dict[str, Any] = {
        "nodes": index.ntotal,
        "d": index.d,
        "shards": len(index.shards),
        "nprobe": nprobe,
    }
    found |= {"nprobe_cpu_seconds": time.process_time() - start, "searched": [], "cpu_seconds": []}
    rng, ids, D, I = np.random.default_rng(SEED), [], [], []
    for number in range(0, len(index.shards), EVERY):
        start = time.process_time()
        of_shard, similarities, neighbors = index.search_shard(number, K, nprobe)
        found["cpu_seconds"].append(time.process_time() - start)
        found["searched"].append(len(of_shard))
        chosen = rng.choice(len(of_shard), QUERIES * EVERY // len(index.shards), replace=False)
        for all_of, some in ((ids, of_shard), (D, similarities), (I, neighbors)):
            all_of.append(some[chosen])
    best_D, best_I = index.search_stored(np.concatenate(ids), k=K, exact=True)
    found["recall"] = cfe.metrics.recall(np.concatenate(I), best_I, np.concatenate(D), best_D)
    keep(f"scale_evidence_{index.ntotal}", found)


def inputs_of(arguments: argparse.Namespace, csr: bool, d: int) -> Path:
    folder: Path = (
        arguments.folder
        / f"inputs-{arguments.nodes}-{arguments.parts}-{d}-{'csr' if csr else 'edges'}"
    )
    if not (folder / "y.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        write_inputs(folder, arguments.nodes, arguments.parts, d, csr)
        print(f"inputs written in {time.perf_counter() - start:.0f} s", flush=True)
    return folder


def keep(name: str, result: dict[str, Any]) -> None:
    content = {"environment": environment(), "question": __doc__.splitlines()[0], **result}
    (RESULTS / f"{name}.json").write_text(json.dumps(content) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("compare", "growth", "evidence", "one"))
    parser.add_argument("one", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=NODES, help="of a part")
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory", default="8GB")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("benchmarks/scale-data"))
    arguments = parser.parse_args()
    if arguments.what == "one":
        way, inputs, place, workers, memory = arguments.one
        found = (
            in_memory(Path(inputs))
            if way == "memory"
            else run_job(Path(place), Path(inputs), way, int(workers), memory)
        )
        print(json.dumps(found))
    else:
        {"compare": compare, "growth": growth, "evidence": evidence}[arguments.what](arguments)


if __name__ == "__main__":
    main()
