"""One index per class over the vectors of all *other* classes: nothing has to be left out while it is searched.

It takes a copy of the vectors for each class but one, so it is for few classes or for small graphs.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.batches import PADDING, by_class, hnsw_of, ivf_of, nearby, nodes_of
from benchmarks.engine.graphs import Graph, K
from benchmarks.engine.searcher import Results, Searcher

NLIST_FACTORS = (2.0, 1.0, 4.0, 0.5, 3.0, 1.5, 6.0, 0.7, 8.0)
HNSW_GRID = ((16, 80), (32, 80), (16, 200), (32, 200), (24, 120), (12, 80), (48, 400), (8, 80))
LEAF_FACTORS = (2.0, 1.0, 4.0, 0.5, 3.0, 1.5)
REORDER = (40, 100, 20, 200)
GLASS_GRID = ((16, 100, 0), (32, 200, 0), (16, 100, 1), (32, 200, 1), (24, 150, 0), (24, 150, 1))
RABITQ_BITS = ((32, False), (7, False), (7, True), (9, False))  # bits, precise
LIST_FACTOR = "lists / sqrt(n)"
FIRST_EF = 2 * K
FIRST_NPROBE = 4
_ITERATIONS = 5
_LEAST_DIMENSIONS = 64  # of rabitqlib
MANY = 256  # classes above which an index for each is not tried
_MEMORY = 8e9  # bytes that copies of the vectors may take
_FEW = (
    256  # vectors up to which libraries that need many to train on are not asked: all are compared
)
_OPTIMIZED = 8  # classes up to which each index of pyglass tunes how far ahead it prefetches


class Others(Protocol):
    """An index over vectors: ``find(xq, setting, k)`` returns D and places among them."""

    def find(self, xq: NDArray[np.float32], setting: int, k: int = K) -> Results: ...

    def save(self, folder: Path) -> None: ...


def infeasible(info: dict[str, Any]) -> str | None:
    """Return why a graph has too many classes for its size, if it has."""
    if info["classes"] > MANY:
        return f"not tried: {info['classes']:,} indexes"
    needed = (info["classes"] - 1) * info["nodes"] * info["dimension"] * 4
    if needed <= _MEMORY:
        return None
    return f"not tried: {info['classes']} indexes would hold {needed / 1e9:,.0f} GB of vectors"


def rows_of_others(graph: Graph) -> list[NDArray[np.int64]]:
    """Return the nodes that are not of a class, for each class."""
    return [np.flatnonzero(graph.labels != label) for label in range(int(graph.labels.max()) + 1)]


def searcher_of(
    graph: Graph,
    find: Callable[[int, NDArray[np.float32], int], Results],
    lists: NDArray[np.int32],
    **limits: int,
) -> Searcher:
    """Return a searcher from ``find(label, xq, setting)``: D, and places among the nodes of other classes."""
    nodes = [nodes_of(rows) for rows in rows_of_others(graph)]

    def search(xq: NDArray[np.float32], label: int, setting: int) -> Results:
        D, I = find(label, xq, setting)
        return D, nodes[label](I)

    return by_class(graph, search, lists=lists, **limits)


def padded(D: NDArray[np.float32], I: NDArray[Any], k: int = K) -> Results:
    """Return results (q, k) of those that have fewer columns."""
    short = ((0, 0), (0, k - I.shape[1]))
    if not short[1][1]:
        return D, I.astype(np.int64)
    return np.pad(D, short, constant_values=PADDING), np.pad(
        I.astype(np.int64), short, constant_values=-1
    )


# --- stock IVF and HNSW -----------------------------------------------------------------------------------------------


def ivf_grid(graph: Graph) -> list[dict[str, float]]:
    return [{LIST_FACTOR: factor} for factor in NLIST_FACTORS]


def ivf(graph: Graph, parameters: dict[str, float]) -> list[Any]:
    def nlist(n: int) -> int:
        return min(n, max(1, round(parameters[LIST_FACTOR] * n**0.5)))

    return [ivf_of(graph.X[rows], nlist(len(rows))) for rows in rows_of_others(graph)]


def ivf_searcher(indexes: list[Any], graph: Graph) -> Searcher:
    lists = np.empty(graph.n, np.int32)
    for label, index in enumerate(indexes):
        own = np.flatnonzero(graph.labels == label)
        lists[own] = index.quantizer.search(graph.X[own], 1)[1][:, 0]

    @cache
    def parameters(nprobe: int) -> Any:
        return faiss.SearchParametersIVF(nprobe=nprobe)

    def find(label: int, xq: NDArray[np.float32], nprobe: int) -> Results:
        return indexes[label].search(xq, K, params=parameters(nprobe))  # type: ignore[no-any-return]

    return searcher_of(
        graph, find, lists, largest=max(index.nlist for index in indexes), first=FIRST_NPROBE
    )


def hnsw_grid(graph: Graph) -> list[dict[str, int]]:
    return [{"M": M, "efConstruction": ef} for M, ef in HNSW_GRID]


def hnsw(graph: Graph, parameters: dict[str, int]) -> list[Any]:
    return [hnsw_of(graph.X[rows], parameters) for rows in rows_of_others(graph)]


def hnsw_searcher(indexes: list[Any], graph: Graph) -> Searcher:
    @cache
    def parameters(ef: int) -> Any:
        return faiss.SearchParametersHNSW(efSearch=ef)

    def find(label: int, xq: NDArray[np.float32], ef: int) -> Results:
        return indexes[label].search(xq, K, params=parameters(ef))  # type: ignore[no-any-return]

    return searcher_of(
        graph, find, nearby(graph), smallest=K, largest=max(K, graph.n), first=FIRST_EF
    )


# --- libraries that are no part of FAISS ------------------------------------------------------------------------------


class Compared:
    """All vectors compared, where there are few."""

    def __init__(self, X: NDArray[np.float32]) -> None:
        self.X = X
        self.index = faiss.IndexFlatIP(X.shape[1])
        self.index.add(X)

    def find(self, xq: NDArray[np.float32], setting: int, k: int = K) -> Results:
        return self.index.search(xq, k)  # type: ignore[no-any-return]

    def save(self, folder: Path) -> None:
        np.save(folder / "compared.npy", self.X)


class Scann:
    """ScaNN: a tree, and in its leaves floats or codes of asymmetric hashing whose best are computed anew."""

    def __init__(self, searcher: Any) -> None:
        self.searcher = searcher
        self.threads = 0

    @classmethod
    def build(cls, X: NDArray[np.float32], parameters: dict[str, float]) -> "Scann":
        from scann.scann_ops.py import scann_ops_pybind

        leaves = max(1, round(parameters["leaves / sqrt(n)"] * len(X) ** 0.5))
        builder = scann_ops_pybind.builder(X, K, "dot_product").tree(
            num_leaves=leaves,
            num_leaves_to_search=min(leaves, FIRST_NPROBE),
            training_sample_size=len(X),
            spherical=True,
        )
        builder.set_n_training_threads(int(faiss.omp_get_max_threads()))
        if parameters.get("reorder"):
            builder = builder.score_ah(2, anisotropic_quantization_threshold=0.2).reorder(
                int(parameters["reorder"])
            )
        else:
            builder = builder.score_brute_force()
        return cls(builder.build())

    @classmethod
    def load(cls, folder: Path) -> "Scann":
        from scann.scann_ops.py import scann_ops_pybind

        return cls(scann_ops_pybind.load_searcher(str(folder)))

    def find(self, xq: NDArray[np.float32], leaves: int, k: int = K) -> Results:
        if len(xq) == 1:
            I, D = self.searcher.search(xq[0], k, leaves_to_search=leaves)
            return padded(D[None], I[None], k)
        threads = int(faiss.omp_get_max_threads())
        if threads != self.threads:
            self.searcher.set_num_threads(threads)
            self.threads = threads
        search = (
            self.searcher.search_batched if threads == 1 else self.searcher.search_batched_parallel
        )
        I, D = search(xq, k, leaves_to_search=leaves)
        missing = np.isnan(D)
        if missing.any():
            D, I = np.where(missing, PADDING, D), np.where(missing, -1, I.astype(np.int64))
        return padded(D, I, k)

    def save(self, folder: Path) -> None:
        self.searcher.serialize(str(folder), relative_path=True)


class Padded:
    """An index of rabitqlib for fewer than 64 dimensions, which it refuses: zeros behind change no product."""

    def __init__(self, index: Any) -> None:
        self.index, self.row = index, np.zeros((1, _LEAST_DIMENSIONS), np.float32)

    def search(self, x: NDArray[np.float32], *how: Any) -> Any:
        if len(x) > 1:
            return self.index.search(zeros_behind(x), *how)
        self.row[:, : x.shape[1]] = x
        return self.index.search(self.row, *how)


def zeros_behind(X: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.pad(X, ((0, 0), (0, max(0, _LEAST_DIMENSIONS - X.shape[1]))))


class Rabitq:
    """IVF of rabitqlib: codes of 1 to 9 bits a dimension, or (32) of 1 bit, the best computed anew in floats.

    ``precise``: its argument high_accuracy.
    """

    def __init__(self, index: Any, precise: bool) -> None:
        self.index, self.precise = index, precise

    @classmethod
    def build(
        cls, X: NDArray[np.float32], parameters: dict[str, float], clusters: Any = None
    ) -> "Rabitq":
        """``clusters``: means and the cluster of each row, to build with instead of new ones."""
        from rabitqlib import IvfIndex

        means, places = clusters or clustered(X, parameters[LIST_FACTOR])
        few = X.shape[1] < _LEAST_DIMENSIONS
        if few:
            X, means = zeros_behind(X), zeros_behind(means)
        index = IvfIndex(X.shape[1], len(X), len(means), int(parameters["bits"]), metric="ip")
        index.build(X, means, places, int(faiss.omp_get_max_threads()))
        return cls(Padded(index) if few else index, bool(parameters["precise"]))

    @classmethod
    def load(cls, folder: Path) -> "Rabitq":
        from rabitqlib import IvfIndex

        precise, few = map(int, (folder / "about").read_text().split())
        index = IvfIndex.load(str(folder / "index"))
        return cls(Padded(index) if few else index, bool(precise))

    def find(self, xq: NDArray[np.float32], nprobe: int, k: int = K) -> Results:
        threads = int(faiss.omp_get_max_threads())
        I, distances = self.index.search(xq, k, nprobe, self.precise, threads)
        return padded(1 - distances, I.view(np.int32), k)  # padding is 2**32 - 1

    def save(self, folder: Path) -> None:
        few = isinstance(self.index, Padded)
        (self.index.index if few else self.index).save(str(folder / "index"))
        (folder / "about").write_text(f"{int(self.precise)} {int(few)}")


def clustered(X: NDArray[np.float32], factor: float) -> Any:
    """Return means of factor x sqrt(n) clusters, and the cluster of each row."""
    number = min(len(X), max(1, round(factor * len(X) ** 0.5)))
    means = faiss.Kmeans(X.shape[1], number, niter=_ITERATIONS, spherical=True)
    means.cp.min_points_per_centroid = 1
    means.train(X)
    return means.centroids, means.assign(X)[1].astype(np.uint32)


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what C++ code prints."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


class Glass:
    """HNSW of pyglass, with floats, or with codes of 8 bits whose best are computed anew."""

    def __init__(self, graph: bytes, X: NDArray[np.float32], codes: int, optimize: bool) -> None:
        import glass

        self.graph, self.X, self.codes, self.optimize = graph, X, codes, optimize
        with TemporaryDirectory() as folder:
            (Path(folder) / "graph").write_bytes(graph)
            kept = glass.Graph(str(Path(folder) / "graph"))
        with quiet():
            self.searcher = glass.Searcher(
                kept, X, "IP", *(("SQ8U", "FP32") if codes else ("FP32",))
            )
            if optimize:
                self.searcher.optimize()
        self.ef = 0

    @classmethod
    def build(cls, X: NDArray[np.float32], parameters: dict[str, int], optimize: bool) -> "Glass":
        import glass

        glass.set_num_threads(int(faiss.omp_get_max_threads()))
        with TemporaryDirectory() as folder:
            path = Path(folder) / "graph"
            glass.Index("HNSW", "IP", "FP32", R=parameters["R"], L=parameters["L"]).build(X).save(
                str(path)
            )
            return cls(path.read_bytes(), X, parameters["codes"], optimize)

    @classmethod
    def load(cls, folder: Path) -> "Glass":
        about = np.load(folder / "about.npy")
        return cls(
            (folder / "graph").read_bytes(),
            np.load(folder / "X.npy"),
            int(about[0]),
            bool(about[1]),
        )

    def find(self, xq: NDArray[np.float32], ef: int, k: int = K) -> Results:
        if ef != self.ef:
            self.searcher.set_ef(ef)
            self.ef = ef
        if len(xq) == 1:
            I, D = self.searcher.search(xq[0], k)
            return -D[None], I[None]
        I, D = self.searcher.batch_search(xq, k, int(faiss.omp_get_max_threads()))
        return -D, I

    def save(self, folder: Path) -> None:
        (folder / "graph").write_bytes(self.graph)
        np.save(folder / "X.npy", self.X)
        np.save(folder / "about.npy", [self.codes, int(self.optimize)])


def of_each(graph: Graph, build: Callable[[NDArray[np.float32]], Others]) -> list[Others]:
    return [of_rows(np.ascontiguousarray(graph.X[rows]), build) for rows in rows_of_others(graph)]


def of_rows(X: NDArray[np.float32], build: Callable[[NDArray[np.float32]], Others]) -> Others:
    return build(X) if len(X) > _FEW else Compared(X)


def save(indexes: list[Others], folder: Path) -> None:
    for label, index in enumerate(indexes):
        (folder / str(label)).mkdir(parents=True)
        index.save(folder / str(label))


def load(kind: Any, folder: Path) -> list[Others]:
    def one(part: Path) -> Others:
        compared = part / "compared.npy"
        return Compared(np.load(compared)) if compared.exists() else kind.load(part)

    return [one(folder / str(label)) for label in range(len(list(folder.iterdir())))]


def scann_float_grid(graph: Graph) -> list[dict[str, float]]:
    return [{"leaves / sqrt(n)": factor} for factor in LEAF_FACTORS]


def scann_codes_grid(graph: Graph) -> list[dict[str, float]]:
    return [
        {"leaves / sqrt(n)": factor, "reorder": reorder}
        for factor in LEAF_FACTORS[:4]
        for reorder in REORDER
    ]


def scann(graph: Graph, parameters: dict[str, float]) -> list[Others]:
    return of_each(graph, lambda X: Scann.build(X, parameters))


def scann_searcher(indexes: list[Others], graph: Graph) -> Searcher:
    largest = max(1, round(max(LEAF_FACTORS) * graph.n**0.5))

    def find(label: int, xq: NDArray[np.float32], leaves: int) -> Results:
        return indexes[label].find(xq, leaves)

    return searcher_of(graph, find, nearby(graph), largest=largest, first=FIRST_NPROBE)


def rabitq_grid(graph: Graph) -> list[dict[str, float]]:
    return [
        {LIST_FACTOR: factor, "bits": bits, "precise": precise}
        for factor in NLIST_FACTORS[:3]
        for bits, precise in RABITQ_BITS
    ]


def rabitq(graph: Graph, parameters: dict[str, float]) -> list[Others]:
    return of_each(graph, lambda X: Rabitq.build(X, parameters))


def graph_searcher(indexes: list[Others], graph: Graph) -> Searcher:
    def find(label: int, xq: NDArray[np.float32], ef: int) -> Results:
        return indexes[label].find(xq, ef)

    return searcher_of(
        graph, find, nearby(graph), smallest=K, largest=max(K, graph.n), first=FIRST_EF
    )


def glass_grid(graph: Graph) -> list[dict[str, int]]:
    return [{"R": R, "L": L, "codes": codes} for R, L, codes in GLASS_GRID]


def glass(graph: Graph, parameters: dict[str, int]) -> list[Others]:
    optimize = int(graph.labels.max()) < _OPTIMIZED
    return of_each(graph, lambda X: Glass.build(X, parameters, optimize))
