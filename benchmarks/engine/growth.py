"""One query on one thread, from 30,000 rows to millions: ours against the fastest peers.

Data, classes and the way to tune and to time are those of :mod:`benchmarks.engine.high`. Peers are
HNSW with a selector, stock IVF with a selector, and over the rows of other classes: stock IVF,
superkmeans as its trainer, rabitqlib, HNSW and ScaNN. Each cell is written when it is there.

    python -m benchmarks.engine.growth text-64-30000-mixed text-384-300000-alike
    python -m benchmarks.engine.growth text-64-3000000-mixed --factors 2 --classes 1
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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.common import RESULTS, environment
from benchmarks.engine import dropping, high, others
from benchmarks.engine.batches import filled, hnsw_of, ivf_of
from benchmarks.engine.graphs import SEED, K, vectors
from benchmarks.engine.sweep import TARGETS
from cfe_faiss import _native
from cfe_faiss.base import threads

PATH = RESULTS / "growth.json"
HNSW = ((32, 80), (16, 200))
BITS = (high.RAW, 7, 9)  # of rabitqlib
FIRST_EF = K
UNLABELLED = ("text-", "paragraphs-", "cora_features")
SMALL = 1e7  # numbers in the rows, up to which all parameters are tried
GRAPHS = 1e8  # numbers in the rows, up to which a graph is built here
_LARGEST_EF = 4096
Array = NDArray[Any]


def ours(task: high.Task) -> Iterator[high.Built]:
    """Our index, searched with ``recall=`` and with ``nprobe=``."""
    start = time.process_time()
    seconds = 0.0
    for built in high.ours(task):
        if built.name == "ours":
            seconds = time.process_time() - start
        yield replace(built, seconds=seconds)
        start = time.process_time()


def over_others(
    task: high.Task, name: str, parameters: dict[str, Any], build: Callable[[int, Array], Any]
) -> high.Built:
    """Return a peer with an index over the rows of other classes, and processor time of one."""
    start = time.process_time()
    built = high.over_others(task, name, parameters, build)
    return replace(built, seconds=(time.process_time() - start) / len(task.queries))


def scann(task: high.Task) -> Iterator[high.Built]:
    """ScaNN over the rows of other classes: floats in its leaves, or codes whose best are compared again."""
    for factor in task.factors if find_spec("scann") else ():
        for parameters in ({}, {"reorder": others.REORDER[0]}, {"reorder": others.REORDER[1]}):
            built_with: dict[str, Any] = {"leaves / sqrt(n)": factor, **parameters}
            name = "ScaNN, codes" if parameters else "ScaNN, floats"

            def build(_: int, X: Array, built_with: dict[str, Any] = built_with) -> Any:
                return others.Scann.build(X, built_with)

            yield over_others(task, name, built_with, build)


def stock_ivf(task: high.Task) -> Iterator[high.Built]:
    """Stock IVF over all rows, with a bitmap of the rows of other classes."""
    selectors = bitmaps(task)
    for factor in task.factors:
        nlist = round(factor * len(task.X) ** 0.5)
        start = time.process_time()
        index = ivf_of(task.X, nlist)
        seconds = time.process_time() - start

        def find(label: int, nprobe: int, index: Any = index) -> high.Search:
            params = faiss.SearchParametersIVF(sel=selectors[label], nprobe=nprobe)
            return lambda x: index.search(x, K, params=params)[1]

        yield high.Built(
            "IVF, selector", {"nlist": nlist}, find, find, all_rows(task), nlist, seconds
        )


def hnsw(task: high.Task, folder: Path | None = None) -> Iterator[high.Built]:
    """HNSW over all rows, with a selector; it stays in a folder, for all rules of classes.

    A very large one has to be there: it takes too long beside the others.
    """
    selectors = bitmaps(task)
    for M, width in HNSW[: 2 if task.X.size <= SMALL else 1]:
        parameters = {"M": M, "efConstruction": width}
        index, seconds = graph_of(task, parameters, folder)
        if index is None:
            return

        def find(label: int, ef: int, index: Any = index) -> high.Search:
            params = faiss.SearchParametersHNSW(sel=selectors[label], efSearch=ef)
            return lambda x: index.search(x, K, params=params)[1]

        yield high.Built(
            *("HNSW, selector", parameters, find, find, all_rows(task)),
            *(_LARGEST_EF, seconds, FIRST_EF),
        )


def graph_of(task: high.Task, parameters: dict[str, int], folder: Path | None) -> tuple[Any, float]:
    """Return a graph of all rows, or None, and its seconds of processor time; from the folder if it is there."""
    name = f"{task.name.rsplit('-', 1)[0]}-{parameters['M']}-{parameters['efConstruction']}"
    path = folder / f"{name}.hnsw" if folder else None
    if path and path.exists():
        seconds = json.loads(path.with_suffix(".json").read_text())
        return faiss.read_index(str(path)), float(seconds)
    if task.X.size > GRAPHS:
        return None, 0.0
    start = time.process_time()
    index = hnsw_of(task.X, parameters)
    seconds = time.process_time() - start
    if path:
        faiss.write_index(index, str(path))
        path.with_suffix(".json").write_text(json.dumps(seconds))
    return index, seconds


def hnsw_of_others(task: high.Task) -> Iterator[high.Built]:
    """HNSW over the rows of other classes."""
    if task.X.size > GRAPHS:
        return
    for M, width in HNSW[: 2 if task.X.size <= SMALL else 1]:
        parameters = {"M": M, "efConstruction": width}

        def build(_: int, X: Array, parameters: dict[str, int] = parameters) -> Any:
            return dropping.Hnsw(hnsw_of(X, parameters))

        built = over_others(task, "HNSW, others", parameters, build)
        yield replace(built, first=FIRST_EF, largest=_LARGEST_EF)


def clusters_of_others(task: high.Task) -> Iterator[high.Built]:
    """Stock IVF and rabitqlib over the rows of other classes, in the same lists."""
    for factor in task.factors:
        start = time.process_time()
        clusters = {c: others.clustered(task.others(c), factor) for c in task.queries}
        shared = (time.process_time() - start) / len(clusters)
        lists: dict[str, Any] = {others.LIST_FACTOR: factor}

        def in_lists(c: int, X: Array, clusters: Any = clusters) -> Any:
            return ivf_in(clusters[c][0], X)

        built = over_others(task, "IVF, others", lists, in_lists)
        yield replace(built, seconds=built.seconds + shared)
        for bits in BITS[: 3 if task.X.size <= SMALL else 2]:
            indexes: dict[int, others.Rabitq] = {}
            for precise in (False,) if bits == high.RAW else (False, True):
                parameters = {"bits": bits, "precise": precise, **lists}

                def build(
                    c: int, X: Array, p: Any = parameters, of: Any = clusters, known: Any = indexes
                ) -> others.Rabitq:
                    if c not in known:
                        known[c] = others.Rabitq.build(X, p, of[c])
                    return others.Rabitq(known[c].index, p["precise"])

                name = "rabitqlib, raw" if bits == high.RAW else "rabitqlib, codes"
                again = over_others(task, name, parameters, build)
                built = again if not precise else replace(again, seconds=built.seconds)
                yield replace(built, seconds=built.seconds + shared)


def superkmeans(task: high.Task) -> Iterator[high.Built]:
    """Stock IVF over the rows of other classes, whose means superkmeans trains."""
    if find_spec("superkmeans") is None:
        return
    from superkmeans import SuperKMeans  # type: ignore[import-not-found]

    def build(_: int, X: NDArray[np.float32], factor: float) -> Any:
        number = round(factor * len(X) ** 0.5)
        means = SuperKMeans(number, X.shape[1], n_threads=1, angular=True).train(X)
        return ivf_in(means, X)

    for factor in task.factors:
        yield over_others(
            task,
            "IVF by superkmeans, others",
            {others.LIST_FACTOR: factor},
            partial(build, factor=factor),
        )


def ivf_in(means: NDArray[np.float32], X: NDArray[np.float32]) -> dropping.Ivf:
    """Return stock IVF of rows in lists with these means."""
    quantizer = faiss.IndexFlatIP(X.shape[1])
    quantizer.add(np.ascontiguousarray(means, np.float32))
    return dropping.Ivf(
        filled(faiss.IndexIVFFlat(quantizer, X.shape[1], len(means), faiss.METRIC_INNER_PRODUCT), X)
    )


def bitmaps(task: high.Task) -> dict[int, Any]:
    return {
        label: faiss.IDSelectorBitmap(np.packbits(task.labels != label, bitorder="little"))
        for label in task.queries
    }


def all_rows(task: high.Task) -> dict[int, Array]:
    return {label: np.arange(len(task.X)) for label in task.queries}


PEERS: dict[str, Callable[..., Iterator[high.Built]]] = {
    "ours": ours,
    "rabitqlib": clusters_of_others,
    "superkmeans": superkmeans,
    "IVF": stock_ivf,
    "HNSW": hnsw,
    "HNSW, others": hnsw_of_others,
    "ScaNN": scann,
}
Best = dict[tuple[float, str], tuple[high.Built, dict[str, Any]]]


@threads.limit_faiss_threads(1)
def measure(
    task: high.Task, peers: Iterable[Callable[[high.Task], Iterator[high.Built]]]
) -> dict[str, Any]:
    """Tune each peer for each recall, time the best of each in turns, and weigh their indexes."""
    best: Best = {}
    load = [os.getloadavg()[0]]
    for peer in peers:
        for built in peer(task):
            for target in TARGETS:
                record = high.cheapest(task, built, "one", target)
                print(f"{time.ctime()} {task.name} {index_of(built)} {target} {record}", flush=True)
                key = target, built.name
                if record and (key not in best or record["seconds"] < best[key][1]["seconds"]):
                    about = {"parameters": built.parameters, "build_seconds": built.seconds}
                    best[key] = built, record | about
    cells = []
    for target in TARGETS:
        chosen = {peer: found for (at, peer), found in best.items() if at == target}
        high.in_turns(task, chosen, "one")
        records = {peer: record for peer, (_, record) in chosen.items()}
        cells.append({"target": target, "records": records})
        load.append(os.getloadavg()[0])
    del chosen, built
    weigh(best, len(task.queries))
    return {
        "data": task.name,
        "level": _native.level(),
        "rows": len(task.X),
        "dimension": task.X.shape[1],
        "classes asked": len(task.queries),
        "factors": task.factors,
        "load": max(load),
        "cells": cells,
    }


def index_of(built: high.Built) -> str:
    """Return a text that is equal for what shares an index."""
    parameters = {key: value for key, value in built.parameters.items() if key != "precise"}
    return f"{built.name.removesuffix(', nprobe=')} {parameters}"


def weigh(best: Best, classes: int) -> None:
    """Drop the indexes one by one, and add to their records the bytes that this frees, of one class."""
    of_index: dict[str, list[tuple[float, str]]] = {}
    for key, (built, _) in best.items():
        of_index.setdefault(index_of(built), []).append(key)
    del built
    for index, keys in of_index.items():
        copies = classes if "others" in index or "rabitqlib" in index else 1
        before = high.held_bytes()
        records = [best.pop(key)[1] for key in keys]
        freed = before - high.held_bytes()
        for record in records:
            record["memory_bytes"] = freed // copies


def store(path: Path, cell: dict[str, Any]) -> None:
    """Put a cell into a result, in place of an earlier one of the same data and instruction set."""
    measured = json.loads(path.read_text())["measured"] if path.exists() else []
    same = cell["data"], cell["level"]
    kept = [other for other in measured if (other["data"], other["level"]) != same]
    result = {"environment": environment(), "measured": [*kept, cell]}
    path.write_text(json.dumps(result, indent=1) + "\n")


def task_of(name: str, args: argparse.Namespace) -> high.Task:
    """Return the task of a data set: a graph of the engine's benchmark has classes; others have a rule for them."""
    if name.startswith(UNLABELLED):
        return high.Task.of(name, args)
    X, labels, _ = vectors(name)
    rng = np.random.default_rng(SEED)
    asked = np.bincount(labels).argsort()[-args.classes :].tolist()
    queries = {c: rng.permutation(np.flatnonzero(labels == c))[: high.QUERIES] for c in asked}
    return high.Task(name, args.factors, np.ascontiguousarray(X, np.float32), labels, queries)


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
