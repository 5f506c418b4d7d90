"""Does the whole job at AmazonProducts' size run on two cores and 24 GB, and how long does each step take?

A synthetic graph of its shape is generated; then KS vectors, training, adding, top-10 evidence of all nodes, and the
exact top-1000 pairs. In memory, a stock IndexIVFFlat of as many lists is trained, filled and searched as well: with a
bitmap or two ranges of ids for each class, on a sample of nodes, at more and more lists until it reaches the recalls
wanted. Every step is
a process of its own, which reads what the one before has left in a folder, so that its peak memory is its own. The
result is written after every step; run again, the command goes on where it stopped.

    python benchmarks/full_scale.py                      # everything, 1,569,960 nodes
    python benchmarks/full_scale.py --part ks            # KS vectors only, next to sparse products of torch
    python benchmarks/full_scale.py --nodes 20000        # a small one
    python benchmarks/full_scale.py --on-disk            # from memory-mapped arrays, by blocks
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from common import RESULTS, paired_times, save, search_with_each
from numpy.typing import NDArray
from synthetic_graphs import amazon_shape, measured_homophily

import cfe_faiss as cfe
from cfe_faiss.base import threads
from cfe_faiss.graph import Graph, as_graph

NODES = 1_569_960
LAYERS = 3
K, PAIRS = 10, 1000
QUERIES = 1000  # nodes whose evidence is compared with the exact one
TIMED = 5_000  # nodes that the stock index is timed on
RECALLS = (0.95, 0.99)
WANTED = 1.25  # times three sparse products
BLOCKS = 8  # in which vectors are added, on disk
SEED = 0

Step = Callable[["Job"], dict[str, Any]]


class Job(argparse.Namespace):
    """The command line."""

    nodes: int
    homophily: float
    nlist: int
    nprobe: int
    memory: int
    repeats: int
    on_disk: bool
    folder: Path

    def read(self, name: str, mode: str = "r") -> NDArray[Any]:
        """Return an array of the folder: memory-mapped if the job is to run on disk."""
        array: NDArray[Any] = np.load(
            self.folder / f"{name}.npy", mmap_mode=mode if self.on_disk else None
        )  # type: ignore[arg-type]
        return array

    def write(self, **arrays: NDArray[Any]) -> None:
        for name, array in arrays.items():
            np.save(self.folder / f"{name}.npy", array)

    def graph(self) -> Graph:
        return Graph(self.read("indptr"), self.read("indices"))

    def index(self, name: str, flags: int = 0) -> Any:
        return cfe.read_index(str(self.folder / f"{name}.faiss"), flags)

    def report(self, step: str) -> Path:
        return self.folder / f"{step}.json"

    def parameters(self) -> dict[str, Any]:
        names = ("nodes", "homophily", "nlist", "nprobe", "on_disk") + (
            ("memory",) if self.on_disk else ()
        )
        return {name: getattr(self, name) for name in names}


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def generate(job: Job) -> dict[str, Any]:
    amazon_shape(2000)  # so that what is made once in a process is there
    data, seconds = timed(lambda: amazon_shape(job.nodes, homophily=job.homophily, seed=SEED))
    degrees = np.diff(data.graph.indptr)
    job.write(x=data.x, indptr=data.graph.indptr, indices=data.graph.indices, labels=data.labels)
    return {
        "seconds": seconds,
        "directed_edges": data.graph.num_edges,
        "median_degree": float(np.median(degrees)),
        "largest_degree": int(degrees.max()),
        "homophily": measured_homophily(data.graph, data.labels),
    }


def warm_up_ks() -> None:
    cfe.ks_vectors(np.ones((3, 2), np.float32), as_graph([[0, 1], [1, 2]]))


def ks(job: Job) -> dict[str, Any]:
    warm_up_ks()
    x, graph = job.read("x"), job.graph()
    if not job.on_disk:
        X, seconds = timed(lambda: cfe.ks_vectors(x, graph, LAYERS))
        job.write(X=X)
        return {"seconds": seconds}
    out = np.lib.format.open_memmap(
        job.folder / "X.npy", mode="w+", dtype=np.float32, shape=x.shape
    )
    _, seconds = timed(
        lambda: cfe.ks_vectors(
            x, graph, LAYERS, out=out, workspace=job.folder, memory=job.memory, progress=True
        )
    )
    return {"seconds": seconds}


def ks_against_products(job: Job) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads.num_threads())
    x, graph = job.read("x"), job.graph()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        matrix = torch.sparse_csr_tensor(
            # int32 offsets and indices: torch's faster choice.
            torch.from_numpy(graph.indptr.astype(np.int32)),
            torch.from_numpy(graph.indices),
            torch.ones(graph.num_edges),
            size=(job.nodes, job.nodes),
            check_invariants=False,
        )
    dense, out = torch.from_numpy(x), np.empty_like(x)

    def products() -> None:
        for _ in range(LAYERS):
            matrix @ dense

    functions = {
        "ks_vectors": lambda: cfe.ks_vectors(x, graph, LAYERS, out=out),
        "products": products,
    }
    medians, times = paired_times(functions, job.repeats)
    return {
        "seconds": times,
        "median_seconds": medians,
        "ratio_of_medians": medians["ks_vectors"] / medians["products"],
        "ratio_of_minima": min(times["ks_vectors"]) / min(times["products"]),
        "wanted": f"a ratio of at most {WANTED}",
    }


def train(job: Job) -> dict[str, Any]:
    X = job.read("X")
    index = cfe.IndexEvidenceIVF(X.shape[1], job.nlist)
    points = index.cp.max_points_per_centroid * job.nlist
    # FAISS would take its sample from a copy of all vectors.
    sample = np.array(X[:: math.ceil(len(X) / points)]) if job.on_disk else X
    _, seconds = timed(lambda: index.train(sample))
    cfe.write_index(index, str(job.folder / "trained.faiss"))
    return {"seconds": seconds}


def add(job: Job) -> dict[str, Any]:
    index, X, labels = job.index("trained"), job.read("X"), job.read("labels")
    step = math.ceil(len(X) / BLOCKS) if job.on_disk else len(X)

    def all_blocks() -> None:
        for first in range(0, len(X), step):
            block = slice(first, first + step)
            index.add_with_labels(X[block], labels[block], np.arange(len(X))[block])

    _, seconds = timed(all_blocks)
    cfe.write_index(index, str(job.folder / "filled.faiss"))
    return {"seconds": seconds, "vectors": index.ntotal}


def filled(job: Job) -> Any:
    return job.index("filled", faiss.IO_FLAG_MMAP if job.on_disk else 0)


def search(job: Job) -> dict[str, Any]:
    index = filled(job)
    warm_up()
    index.search_stored([0], K, nprobe=job.nprobe)  # makes what searches keep
    queries = sampled(job)
    exact = exact_evidence(job, queries)
    settings = []
    for nprobe in (job.nprobe, 2 * job.nprobe, 4 * job.nprobe, 8 * job.nprobe):
        (D, I), seconds = timed(
            lambda nprobe=nprobe: index.search_stored(k=K, nprobe=nprobe, progress=True)
        )
        recall = cfe.metrics.recall(I[queries], exact[1], D[queries], exact[0])
        settings.append(
            {
                "nprobe": nprobe,
                "seconds": seconds,
                "nodes_per_second": job.nodes / seconds,
                "recall": recall,
                "short_rows": float((I < 0).any(axis=1).mean()),
            }
        )
        if len(settings) == 1:
            job.write(D=D, I=I)
        if recall >= RECALLS[-1]:
            break
    return {**settings[0], "settings": settings}


def warm_up() -> None:
    """Search all nodes of a small index, so that what is made once in a process is there."""
    X = np.random.default_rng(SEED).normal(size=(4000, 8))
    index = cfe.IndexEvidenceIVF(8, 20)
    index.train(X)
    index.add_with_labels(X, np.arange(4000) % 3)
    index.search_stored(k=K, nprobe=4)


def sampled(job: Job) -> NDArray[np.int64]:
    return np.random.default_rng(SEED).choice(job.nodes, min(QUERIES, job.nodes), replace=False)


def stock(job: Job) -> dict[str, Any]:
    """A stock index, as its users would use it: vectors sorted by class, and one batch of queries for each class."""
    X, labels = job.read("X"), job.read("labels")
    order = np.argsort(labels, kind="stable")
    X_by_class = X[order]
    index = faiss.IndexIVFFlat(
        faiss.IndexFlatIP(X.shape[1]), X.shape[1], job.nlist, faiss.METRIC_INNER_PRODUCT
    )
    index.cp.spherical = True
    index.parallel_mode = 3  # otherwise search_preassigned takes one thread
    _, train_seconds = timed(lambda: index.train(X))
    _, add_seconds = timed(lambda: index.add(X_by_class))
    queries = sampled(job)
    exact = exact_evidence(job, queries)
    timed_queries = np.random.default_rng(SEED + 1).choice(
        job.nodes, min(TIMED, job.nodes), replace=False
    )
    classes, starts = np.unique(labels[order], return_index=True)
    ends = np.append(starts[1:], len(labels))
    bits = [np.packbits(labels[order] != c, bitorder="little") for c in classes]
    bitmaps = [[faiss.IDSelectorBitmap(some)] for some in bits]
    ranges = [
        [
            faiss.IDSelectorRange(low, high, True)
            for low, high in ((0, int(a)), (int(b), len(labels)))
            if low < high
        ]
        for a, b in zip(starts, ends, strict=True)
    ]

    def evidence(nodes: NDArray[np.int64], selectors: list[list[Any]], nprobe: int) -> Any:
        D, I = np.empty((len(nodes), K), np.float32), np.empty((len(nodes), K), np.int64)
        for c, chosen in zip(classes, selectors, strict=True):
            own = np.flatnonzero(labels[nodes] == c)
            if len(own):
                params = [
                    faiss.SearchParametersIVF(sel=selector, nprobe=nprobe) for selector in chosen
                ]
                D[own], I[own] = search_with_each(index, X[nodes[own]], K, params, nprobe)
        return D, order[I]

    settings: list[dict[str, Any]] = []
    for how, selectors in (("bitmap", bitmaps), ("two ranges", ranges)):
        nprobe, recall = max(1, job.nprobe // 4), 0.0
        while recall < RECALLS[-1] and nprobe < job.nlist:
            D, I = evidence(queries, selectors, nprobe)
            _, seconds = timed(
                lambda nprobe=nprobe, selectors=selectors: evidence(
                    timed_queries, selectors, nprobe
                )
            )
            recall = cfe.metrics.recall(I, exact[1], D, exact[0])
            speed = len(timed_queries) / seconds
            settings.append(
                {"how": how, "nprobe": nprobe, "nodes_per_second": speed, "recall": recall}
            )
            nprobe = math.ceil(1.5 * nprobe)
    return {"train_seconds": train_seconds, "add_seconds": add_seconds, "settings": settings}


def exact_evidence(
    job: Job, queries: NDArray[np.int64]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the K best of all vectors with other labels, by comparing with all of them in blocks."""
    X, labels = job.read("X"), job.read("labels")
    xq, labels_q = np.array(X[queries]), labels[queries]
    D, I = np.full((len(queries), K), -np.inf, np.float32), np.full((len(queries), K), -1, np.int64)
    step = 50_000
    for first in range(0, len(X), step):
        block = slice(first, first + step)
        scores = xq @ X[block].T
        scores[labels_q[:, None] == labels[block]] = -np.inf
        D = np.concatenate([D, scores], axis=1)
        I = np.concatenate(
            [I, np.tile(np.arange(first, first + scores.shape[1]), (len(queries), 1))], axis=1
        )
        best = np.argsort(-D, axis=1, kind="stable")[:, :K]
        D, I = np.take_along_axis(D, best, axis=1), np.take_along_axis(I, best, axis=1)
    return D, I


def pairs(job: Job) -> dict[str, Any]:
    index, labels = filled(job), job.read("labels")
    found, seconds = timed(lambda: cfe.global_evidence(index, PAIRS, exact=True, progress=True))
    job.write(source=found.source, target=found.target, similarity=found.similarity)
    if (labels[found.source] == labels[found.target]).any():
        raise RuntimeError("a pair of the same class came back")
    return {
        "seconds": seconds,
        "pairs": len(found),
        "best": float(found.similarity[0]),
        "worst": float(found.similarity[-1]),
    }


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (generate, ks, ks_against_products, train, add, search, pairs, stock)
}
PARTS = {
    "generate": ["generate"],
    "ks": ["generate", "ks", "ks_against_products"],
    "all": list(STEPS),
}


def peak_memory() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    status = Path("/proc/self/status")
    if (
        status.exists()
    ):  # what getrusage tells starts from the memory of the process that started this one
        return next(
            1024 * int(line.split()[1])
            for line in status.read_text().splitlines()
            if "VmHWM" in line
        )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def run_alone(job: Job, name: str) -> None:
    """Run a step in a process of its own."""
    subprocess.run([sys.executable, __file__, *sys.argv[1:], "--step", name], check=True)


def reported(job: Job, name: str) -> dict[str, Any] | None:
    """Return what a step has reported, or None if it has not been run with these parameters."""
    path = job.report(name)
    report: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return report["result"] if report.get("parameters") == job.parameters() else None


def command_line() -> Job:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, default="all")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--homophily", type=float, default=0.5)
    parser.add_argument("--nlist", type=int, help="default: 4 sqrt(nodes)")
    parser.add_argument("--nprobe", type=int, default=32)
    parser.add_argument(
        "--on-disk", action="store_true", help="from memory-mapped arrays, by blocks"
    )
    parser.add_argument(
        "--memory", type=int, default=1 << 30, help="bytes for the blocks of KS vectors, on disk"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="timed rounds next to the sparse products"
    )
    parser.add_argument(
        "--folder", type=Path, help="of the arrays between the steps; default: a temporary one"
    )
    parser.add_argument("--result", type=Path, help="JSON file; default: in benchmarks/results")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    job = parser.parse_args(namespace=Job())
    name = f"full_scale_{job.nodes}{'_on_disk' if job.on_disk else ''}"
    job.nlist = job.nlist or round(4 * math.sqrt(job.nodes))
    job.folder = job.folder or Path(tempfile.gettempdir()) / f"cfe_faiss_{name}"
    job.result = job.result or RESULTS / f"{name}.json"
    return job


def main() -> None:
    job = command_line()
    if job.step:
        result = STEPS[job.step](job)
        # Where others use the machine, processor time says more than the clock. All of the process, reading included.
        result |= {"process_cpu_seconds": time.process_time(), "peak_memory_bytes": peak_memory()}
        job.report(job.step).write_text(
            json.dumps({"parameters": job.parameters(), "result": result})
        )
        return
    job.folder.mkdir(parents=True, exist_ok=True)
    print(f"arrays in {job.folder}")
    steps: dict[str, Any] = {}
    for name in PARTS[job.part]:
        if job.on_disk and name in ("ks_against_products", "stock"):  # both work in memory only
            continue
        if reported(job, name) is None:
            run_alone(job, name)
        steps[name] = reported(job, name)
        content = {
            "question": __doc__.splitlines()[0],
            "parameters": job.parameters(),
            "steps": steps,
        }
        save(str(job.result.resolve().with_suffix("")), content)
        told = {key: value for key, value in steps[name].items() if key != "peak_memory_bytes"}
        print(
            f"{name}: peak memory {steps[name]['peak_memory_bytes'] / 1e9:.2f} GB, {told}",
            flush=True,
        )
    print(f"results in {job.result}")


if __name__ == "__main__":
    main()
