"""One query, and batches, in high dimension and at growing sizes: ours against the fastest peers.

Data: see :mod:`benchmarks.engine.graphs`. Classes are *mixed*, ten equal parts of the order along a
random direction, or *alike*, ten clusters of k-means. Queries are rows of one or two classes of
middle size. A peer has an index over the rows of other classes for each of these, as its user would
build for each class, and ours has one index of all rows.

    CFE_DATA=... python -m benchmarks.engine.high cora_features-mixed paragraphs-384-alike
    CFE_SIMD=avx2 FAISS_OPT_LEVEL=AVX2 python -m benchmarks.engine.high text-768-100000-mixed
"""

import argparse
import ctypes
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

import cfe_faiss as cfe
from benchmarks.common import RESULTS, environment
from benchmarks.engine import dropping, others
from benchmarks.engine.batches import hnsw_of, ivf_of
from benchmarks.engine.graphs import SEED, K, unlabelled
from benchmarks.engine.sweep import TARGETS, private_bytes
from cfe_faiss import _native
from cfe_faiss.base import threads
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Calibration

CLASSES = 10
QUERIES, BATCH = 200, 1000  # of each class that is asked
ROUNDS, BATCH_ROUNDS = 9, 5
HNSW = {"M": 32, "efConstruction": 80}
_GRAPH_NUMBERS = 4e7  # in the rows, up to which HNSW is built
_BLOCK, _TIES, _FIRST_EF, _STEP = 50, 1e-5, 16, 1.1
_SETTINGS = 1 << 20  # above any number of lists
RAW = 32  # bits of rabitqlib: codes of 1 bit, and floats
CALIBRATED = "ours, calibrated"
PATH = RESULTS / "high_dimension.json"
Array = NDArray[Any]
Search = Callable[[Array], Array]  # of queries (q, d); places (q, K)


@dataclass(frozen=True)
class Task:
    """Rows (n, d), classes (n,), the queries of each class that is asked, and lists / sqrt(n)."""

    name: str
    factors: list[float]
    X: NDArray[np.float32]
    labels: NDArray[np.int64]
    queries: dict[int, Array]

    @classmethod
    def of(cls, name: str, args: argparse.Namespace) -> "Task":
        base, rule = name.rsplit("-", 1)
        path = args.work / f"{base}.npy"
        if not path.exists():
            np.save(path, unlabelled(base)[0])
        X = np.load(path)
        rng = np.random.default_rng(SEED)
        if rule == "mixed":
            places = (X @ rng.standard_normal(X.shape[1], np.float32)).argsort().argsort()
            labels = places * CLASSES // len(X)
        else:
            clusters = faiss.Kmeans(X.shape[1], CLASSES, spherical=True, seed=SEED)
            clusters.train(X)
            labels = clusters.assign(X)[1]
        middle = np.bincount(labels).argsort()[(CLASSES - args.classes) // 2 :][: args.classes]
        rows = {c: rng.permutation(np.flatnonzero(labels == c))[:BATCH] for c in middle.tolist()}
        return cls(name, args.factors, X, labels.astype(np.int64), rows)

    @cached_property
    def least(self) -> dict[int, NDArray[np.float32]]:
        """The similarity of each query to its K-th best row of another class."""
        found = {}
        for label, rows in self.queries.items():
            best = faiss.knn(
                self.X[rows], self.others(label), K, metric=faiss.METRIC_INNER_PRODUCT
            )[0]
            found[label] = best[:, -1] - _TIES
        return found

    def others(self, label: int) -> NDArray[np.float32]:
        return self.X[self.labels != label]

    def recall(self, label: int, I: Array) -> float:
        """Return the recall of rows I for the first queries of a class; equal similarity counts."""
        xq = self.X[self.queries[label][: len(I)]]
        similarities = np.einsum("qkd,qd->qk", self.X[I], xq)
        allowed = (I >= 0) & (self.labels[I] != label)
        good = allowed & (similarities >= self.least[label][: len(I), None])
        return float(good.sum(axis=1).clip(max=K).mean() / K)


@dataclass(frozen=True)
class Built:
    """An index that was built: ``one`` and ``batch``, with a class and a setting, return searches.

    They return places in ``rows`` of the class.
    """

    name: str
    parameters: dict[str, Any]
    one: Callable[[int, int], Search]
    batch: Callable[[int, int], Search]
    rows: dict[int, Array]
    largest: int
    seconds: float
    first: int = 1
    memory: int = 0


def ours(task: Task) -> Iterator[Built]:
    """Search with ``recall=``, and with ``nprobe=``.

    A setting of the first is the lists that its calibration names, or -1000 x recall: as peers are
    tuned, the least that reaches the recall for the queries, and as calibrated.
    """
    everything = {label: np.arange(len(task.X)) for label in task.queries}
    for factor in task.factors:
        nlist = round(factor * len(task.X) ** 0.5)
        before = held_bytes()
        start = time.perf_counter()
        index = cfe.IndexEvidenceIVF(task.X.shape[1], nlist)
        index.train(task.X)
        index.add_with_labels(task.X, task.labels)
        index.prepare()
        seconds = time.perf_counter() - start
        memory = held_bytes() - before

        def by_recall(label: int, setting: int, index: Any = index) -> Search:
            one, many, recall = np.array([label]), np.full(BATCH, label), -setting / 1000
            if setting > 0:
                recall = setting / _SETTINGS
                key = K, recall, False, index.complete, "evidence", None
                Derived.of(index.storage()).calibrations[key] = Calibration({}, setting, {})
            return (
                lambda xq: index.search_evidence(  # type: ignore[no-any-return]
                    xq, one if len(xq) == 1 else many[: len(xq)], K, recall=recall
                )[1]
            )

        def by_nprobe(label: int, nprobe: int, index: Any = index) -> Search:
            one, many = np.array([label]), np.full(BATCH, label)
            return (
                lambda xq: index.search_evidence(  # type: ignore[no-any-return]
                    xq, one if len(xq) == 1 else many[: len(xq)], K, nprobe
                )[1]
            )

        for name, search in (("ours", by_recall), ("ours, nprobe=", by_nprobe)):
            about = name, {"nlist": nlist}, search, search, everything, nlist, seconds
            yield Built(*about, memory=memory)


def over_others(
    task: Task, name: str, parameters: dict[str, Any], build: Callable[[int, Array], Any]
) -> Built:
    """Return a peer with an index over the rows of other classes, for each class that is asked."""
    before = held_bytes()
    start = time.perf_counter()
    indexes = {label: build(label, task.others(label)) for label in task.queries}
    seconds = (time.perf_counter() - start) / len(indexes)
    memory = (held_bytes() - before) // len(indexes)
    rows = {label: np.flatnonzero(task.labels != label) for label in task.queries}

    def find(label: int, setting: int) -> Search:
        index = indexes[label]
        if isinstance(index, others.Rabitq):
            search, precise = index.index.search, index.precise
            return lambda x: search(x, K, setting, precise, 1)[0]  # type: ignore[no-any-return]
        return lambda x: index.find(x, setting)[1]  # type: ignore[no-any-return]

    largest = max(1, round(2 * max(task.factors) * len(task.X) ** 0.5))
    return Built(name, parameters, find, find, rows, largest, seconds, memory=memory)


def held_bytes() -> int:
    """Return the memory of this process, after it gave back what is free."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return private_bytes() or 0


def rabitqlib(task: Task) -> Iterator[Built]:
    for factor in task.factors:
        start = time.perf_counter()
        clusters = {c: others.clustered(task.others(c), factor) for c in task.queries}
        shared = (time.perf_counter() - start) / len(clusters)
        for bits, precise in others.RABITQ_BITS:
            parameters = {"bits": bits, "precise": precise, others.LIST_FACTOR: factor}
            built = over_others(
                task,
                "rabitqlib, raw" if bits == RAW else "rabitqlib, codes",
                parameters,
                lambda c, X, p=parameters, known=clusters: others.Rabitq.build(X, p, known[c]),
            )
            yield Built(**{**vars(built), "seconds": built.seconds + shared})


def scann(task: Task) -> Iterator[Built]:
    parameters = {"leaves / sqrt(n)": 1.0, "reorder": 100}
    yield over_others(task, "ScaNN", parameters, lambda _, X: others.Scann.build(X, parameters))


def ivf(task: Task) -> Iterator[Built]:
    nlist = round(len(task.X) ** 0.5)
    yield over_others(
        task, "IVFFlat", {"nlist": nlist}, lambda _, X: dropping.Ivf(ivf_of(X, nlist))
    )


def hnsw(task: Task) -> Iterator[Built]:
    before = held_bytes()
    start = time.perf_counter()
    index = hnsw_of(task.X, HNSW)
    seconds = time.perf_counter() - start
    memory = held_bytes() - before
    selectors = {
        label: faiss.IDSelectorBitmap(np.packbits(task.labels != label, bitorder="little"))
        for label in task.queries
    }

    def find(label: int, ef: int) -> Search:
        params = faiss.SearchParametersHNSW(sel=selectors[label], efSearch=ef)
        return lambda x: index.search(x, K, params=params)[1]  # type: ignore[no-any-return]

    everything = {label: np.arange(len(task.X)) for label in task.queries}
    about = "HNSW, selector", HNSW, find, find, everything, 4096, seconds, _FIRST_EF
    yield Built(*about, memory)


PEERS = {
    "ours": ours,
    "rabitqlib": rabitqlib,
    "ScaNN": scann,
    "IVFFlat": ivf,
    "HNSW, selector": hnsw,
}


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
        if peer == "ScaNN" and find_spec("scann") is None:
            continue
        if peer == "HNSW, selector" and task.X.size > _GRAPH_NUMBERS:
            continue
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
    parser.add_argument("--peers", nargs="+", choices=tuple(PEERS), default=list(PEERS))
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
