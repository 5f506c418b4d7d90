"""Tasks of one query at a time and of batches, and tuned indexes for them: ours and its peers.

Peers are indexes of all rows with a selector, and indexes over the rows of other classes. Build
times are processor time, of one class.
"""

import argparse
import ctypes
import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

import cfe_faiss as cfe
from benchmarks.engine import dropping, others
from benchmarks.engine.batches import filled, hnsw_of, ivf_of
from benchmarks.engine.graphs import SEED, K, unlabelled
from benchmarks.engine.sweep import private_bytes
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Calibration

CLASSES = 10
QUERIES, BATCH = 200, 1000  # of each class that is asked
HNSW = ((32, 80), (16, 200))
RAW = 32  # bits of rabitqlib: codes of 1 bit, and floats
BITS = (RAW, 7, 9)  # of rabitqlib
SMALL = 1e7  # numbers in the rows, up to which all parameters are tried
GRAPHS = 1e8  # numbers in the rows, up to which a graph is built here
_TIES, _LARGEST_EF = 1e-5, 4096
_SETTINGS = 1 << 20  # above any number of lists
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
        X = np.asarray(np.load(path, mmap_mode="r"))  # the class memmap would need a conversion
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


_trained: dict[tuple[str, int], tuple[Any, float]] = {}


def trained(task: Task, nlist: int) -> tuple[Any, float]:
    """Return our index with lists but without rows, and the seconds for these: for all rules of classes."""
    key = task.name.removesuffix("-mixed").removesuffix("-alike"), nlist
    if key not in _trained:
        start = time.process_time()
        index = cfe.IndexEvidenceIVF(task.X.shape[1], nlist)
        index.train(task.X)
        _trained[key] = index, time.process_time() - start
    index, seconds = _trained[key]
    return cfe.clone_index(index), seconds


def ours(task: Task) -> Iterator[Built]:
    """Search with ``recall=``, and with ``nprobe=``.

    A setting of the first is the lists that its calibration names, or -1000 x recall: as peers are
    tuned, the least that reaches the recall for the queries, and as calibrated.
    """
    everything = {label: np.arange(len(task.X)) for label in task.queries}
    for factor in task.factors:
        nlist = round(factor * len(task.X) ** 0.5)
        index, seconds = trained(task, nlist)
        before = held_bytes()
        start = time.process_time()
        index.add_with_labels(task.X, task.labels)
        index.prepare()
        seconds += time.process_time() - start
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
    start = time.process_time()
    indexes = {label: build(label, task.others(label)) for label in task.queries}
    seconds = (time.process_time() - start) / len(indexes)
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


def scann(task: Task) -> Iterator[Built]:
    """ScaNN over the rows of other classes: floats in its leaves, or codes whose best are compared again."""
    for factor in task.factors if find_spec("scann") else ():
        for parameters in ({}, {"reorder": others.REORDER[0]}, {"reorder": others.REORDER[1]}):
            built_with: dict[str, Any] = {"leaves / sqrt(n)": factor, **parameters}
            name = "ScaNN, codes" if parameters else "ScaNN, floats"

            def build(_: int, X: Array, built_with: dict[str, Any] = built_with) -> Any:
                return others.Scann.build(X, built_with)

            yield over_others(task, name, built_with, build)


def stock_ivf(task: Task) -> Iterator[Built]:
    """Stock IVF over all rows, with a bitmap of the rows of other classes."""
    selectors = bitmaps(task)
    for factor in task.factors:
        nlist = round(factor * len(task.X) ** 0.5)
        before, start = held_bytes(), time.process_time()
        index = ivf_of(task.X, nlist)
        seconds, memory = time.process_time() - start, held_bytes() - before

        def find(label: int, nprobe: int, index: Any = index) -> Search:
            params = faiss.SearchParametersIVF(sel=selectors[label], nprobe=nprobe)
            return lambda x: index.search(x, K, params=params)[1]  # type: ignore[no-any-return]

        about = "IVF, selector", {"nlist": nlist}, find, find, all_rows(task), nlist, seconds
        yield Built(*about, memory=memory)


def hnsw(task: Task, folder: Path | None = None) -> Iterator[Built]:
    """HNSW over all rows, with a selector; it stays in a folder, for all rules of classes.

    A very large one has to be there: it takes too long beside the others.
    """
    selectors = bitmaps(task)
    for M, width in HNSW[: 2 if task.X.size <= SMALL else 1]:
        parameters = {"M": M, "efConstruction": width}
        before = held_bytes()
        index, seconds = graph_of(task, parameters, folder)
        memory = held_bytes() - before
        if index is None:
            return

        def find(label: int, ef: int, index: Any = index) -> Search:
            params = faiss.SearchParametersHNSW(sel=selectors[label], efSearch=ef)
            return lambda x: index.search(x, K, params=params)[1]  # type: ignore[no-any-return]

        about = "HNSW, selector", parameters, find, find, all_rows(task)
        yield Built(*about, _LARGEST_EF, seconds, K, memory)


def graph_of(task: Task, parameters: dict[str, int], folder: Path | None) -> tuple[Any, float]:
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


def hnsw_of_others(task: Task) -> Iterator[Built]:
    """HNSW over the rows of other classes."""
    if task.X.size > GRAPHS:
        return
    for M, width in HNSW[: 2 if task.X.size <= SMALL else 1]:
        parameters = {"M": M, "efConstruction": width}

        def build(_: int, X: Array, parameters: dict[str, int] = parameters) -> Any:
            return dropping.Hnsw(hnsw_of(X, parameters))

        built = over_others(task, "HNSW, others", parameters, build)
        yield replace(built, first=K, largest=_LARGEST_EF)


def clusters_of_others(task: Task) -> Iterator[Built]:
    """Stock IVF and rabitqlib over the rows of other classes, in the same lists."""
    for factor in task.factors:
        start = time.process_time()
        clusters = {c: others.clustered(task.others(c), factor) for c in task.queries}
        shared = (time.process_time() - start) / len(clusters)
        lists: dict[str, Any] = {others.LIST_FACTOR: factor}

        def in_lists(c: int, X: Array, clusters: Any = clusters) -> Any:
            return ivf_in(clusters[c][0], X)

        def with_shared(built: Built, shared: float = shared) -> Built:
            return replace(built, seconds=built.seconds + shared)

        yield with_shared(over_others(task, "IVF, others", lists, in_lists))
        for bits in BITS[: 3 if task.X.size <= SMALL else 2]:
            indexes: dict[int, others.Rabitq] = {}
            cost: dict[str, Any] = {}
            for precise in (False,) if bits == RAW else (False, True):
                parameters = {"bits": bits, "precise": precise, **lists}

                def build(
                    c: int, X: Array, p: Any = parameters, of: Any = clusters, known: Any = indexes
                ) -> others.Rabitq:
                    if c not in known:
                        known[c] = others.Rabitq.build(X, p, of[c])
                    return others.Rabitq(known[c].index, p["precise"])

                name = "rabitqlib, raw" if bits == RAW else "rabitqlib, codes"
                built = replace(over_others(task, name, parameters, build), **cost)
                cost = {"seconds": built.seconds, "memory": built.memory}
                yield with_shared(built)
                del built  # two of them may be more than memory


def superkmeans(task: Task) -> Iterator[Built]:
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


def bitmaps(task: Task) -> dict[int, Any]:
    return {
        label: faiss.IDSelectorBitmap(np.packbits(task.labels != label, bitorder="little"))
        for label in task.queries
    }


def all_rows(task: Task) -> dict[int, Array]:
    return {label: np.arange(len(task.X)) for label in task.queries}


PEERS: dict[str, Callable[..., Iterator[Built]]] = {
    "ours": ours,
    "rabitqlib": clusters_of_others,
    "superkmeans": superkmeans,
    "IVF": stock_ivf,
    "HNSW": hnsw,
    "HNSW, others": hnsw_of_others,
    "ScaNN": scann,
}
