"""What a FAISS user would build instead of ours, each as well as we can.

A peer searches a batch of queries of one class for vectors of other classes. Queries of a class are asked together, so
that one selector serves them all, and those of one inverted list after another, which suits the cache; selectors and
order are made outside the timing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.common import merged, search_with_each
from benchmarks.engine import ours
from benchmarks.engine.graphs import Graph, K
from benchmarks.engine.searcher import FIRST_NPROBE, Results, Searcher

NLIST_FACTORS = (4, 2, 8, 1)
HNSW_GRID = ((32, 80), (16, 80), (32, 200), (64, 200))
THREADS = 2
FIRST_EF = 64


@dataclass(frozen=True, slots=True)
class Peer:
    """How an index is built, searched, and kept in a folder; ``grid``: parameters to build with, best guess first."""

    name: str
    grid: Callable[[Graph], list[dict[str, int]]]
    build: Callable[[Graph, dict[str, int]], Any]
    searcher: Callable[[Any, Graph], Searcher]
    save: Callable[[Any, Path], None] = lambda index, folder: faiss.write_index(index, str(folder / "index"))
    load: Callable[[Path], Any] = lambda folder: faiss.read_index(str(folder / "index"))
    needs: str | None = None
    notes: str = ""
    ours: bool = False


def available(peer: Peer) -> bool:
    return peer.needs is None or find_spec(peer.needs) is not None


# --- queries of one class at a time -----------------------------------------------------------------------------------


def by_class(
    graph: Graph,
    search: Callable[[NDArray[np.float32], int, int], Results],
    *,
    smallest: int = 1,
    largest: int = 1,
    first: int = 1,
    lists: NDArray[np.int32] | None = None,
) -> Searcher:
    """Return a searcher from ``search(xq, label, setting)``; queries of a class are ordered by ``lists`` (n,)."""

    def on(queries: NDArray[np.int64]) -> Callable[[int], Results]:
        order = np.lexsort((queries if lists is None else lists[queries], graph.labels[queries]))
        batches = np.split(order, np.flatnonzero(np.diff(graph.labels[queries[order]])) + 1)

        def run(setting: int) -> Results:
            D, I = np.empty((len(queries), K), np.float32), np.empty((len(queries), K), np.int64)
            for batch in batches:
                asked = queries[batch]
                D[batch], I[batch] = search(graph.X[asked], int(graph.labels[asked[0]]), setting)
            return D, I

        return run

    def one(query: int, setting: int) -> Results:
        return search(graph.X[query : query + 1], int(graph.labels[query]), setting)

    return Searcher(one, on, smallest, largest, min(first, largest))


def rows_by_label(graph: Graph) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the nodes ordered by class (n,), and where each class begins among them (C + 1,)."""
    return np.argsort(graph.labels, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(graph.labels))])


def nodes_of(order: NDArray[np.int64]) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Return what turns places in the order by class into nodes, and padding into padding."""
    nodes = np.append(order, -1)
    return lambda I: nodes[I]


# --- exact ------------------------------------------------------------------------------------------------------------


def exact_searcher(index: NDArray[np.float32], graph: Graph) -> Searcher:
    order, starts = rows_by_label(graph)
    nodes = nodes_of(order)

    def search(xq: NDArray[np.float32], label: int, _: int) -> Results:
        parts = []
        for low, high in ((0, starts[label]), (starts[label + 1], graph.n)):
            if low < high:
                k = int(min(K, high - low))
                D, I = np.full((len(xq), K), -3.4e38, np.float32), np.full((len(xq), K), -1, np.int64)
                D[:, :k], found = faiss.knn(xq, index[low:high], k, metric=faiss.METRIC_INNER_PRODUCT)
                I[:, :k] = found + low
                parts.append((D, I))
        D, I = merged(parts)
        return D, nodes(I)

    return by_class(graph, search)


# --- stock IVF --------------------------------------------------------------------------------------------------------


def nlists(graph: Graph) -> list[dict[str, int]]:
    return [{"nlist": min(graph.n, round(factor * graph.n**0.5))} for factor in NLIST_FACTORS]


def ivf(graph: Graph, parameters: dict[str, int], X: NDArray[np.float32] | None = None) -> Any:
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(graph.d), graph.d, parameters["nlist"], faiss.METRIC_INNER_PRODUCT)
    index.cp.spherical = True
    index.cp.min_points_per_centroid = 1
    X = graph.X if X is None else X
    index.train(X)
    index.add(X)
    return index


def lists_of(index: Any, nodes: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the list of every node (n,); ``nodes``: the node of each stored id."""
    lists = np.empty(len(nodes), np.int32)
    for number in range(index.nlist):
        size = index.invlists.list_size(number)
        if size:
            lists[nodes[faiss.rev_swig_ptr(index.invlists.get_ids(number), size)]] = number
    return lists


def bitmaps(graph: Graph) -> Callable[[int], Any]:
    @cache
    def others(label: int) -> Any:
        return faiss.IDSelectorBitmap(np.packbits(graph.labels != label, bitorder="little"))

    return others


def ivf_bitmap_searcher(index: Any, graph: Graph) -> Searcher:
    others = bitmaps(graph)

    @cache
    def parameters(label: int, nprobe: int) -> Any:
        return faiss.SearchParametersIVF(sel=others(label), nprobe=nprobe)

    def search(xq: NDArray[np.float32], label: int, nprobe: int) -> Results:
        return index.search(xq, K, params=parameters(label, nprobe))

    lists = lists_of(index, np.arange(graph.n))
    return by_class(graph, search, largest=index.nlist, first=FIRST_NPROBE, lists=lists)


def ivf_sorted(graph: Graph, parameters: dict[str, int]) -> Any:
    return ivf(graph, parameters, graph.X[rows_by_label(graph)[0]])


def ivf_ranges_searcher(index: Any, graph: Graph) -> Searcher:
    """Search the ids below a class's run, and those above it.

    For a batch one coarse search serves both; for one query two plain searches cost less Python.
    """
    order, starts = rows_by_label(graph)
    nodes = nodes_of(order)
    index.parallel_mode = 3  # otherwise search_preassigned takes one thread

    @cache
    def parameters(label: int, nprobe: int) -> list[Any]:
        runs = ((0, int(starts[label])), (int(starts[label + 1]), graph.n))
        selectors = [faiss.IDSelectorRange(low, high, True) for low, high in runs if low < high]
        return [faiss.SearchParametersIVF(sel=selector, nprobe=nprobe) for selector in selectors]

    def search(xq: NDArray[np.float32], label: int, nprobe: int) -> Results:
        selected = parameters(label, nprobe)
        if len(xq) == 1:
            D, I = merged([index.search(xq, K, params=params) for params in selected])
        else:
            D, I = search_with_each(index, xq, K, selected, nprobe)
        return D, nodes(I)

    return by_class(graph, search, largest=index.nlist, first=FIRST_NPROBE, lists=lists_of(index, order))


# --- HNSW -------------------------------------------------------------------------------------------------------------


def hnsw_grid(graph: Graph) -> list[dict[str, int]]:
    return [{"M": M, "efConstruction": ef} for M, ef in HNSW_GRID]


def hnsw_of(X: NDArray[np.float32], parameters: dict[str, int]) -> Any:
    index = faiss.IndexHNSWFlat(X.shape[1], parameters["M"], faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = parameters["efConstruction"]
    index.add(X)
    return index


def hnsw_searcher(index: Any, graph: Graph) -> Searcher:
    others = bitmaps(graph)

    @cache
    def parameters(label: int, ef: int) -> Any:
        return faiss.SearchParametersHNSW(sel=others(label), efSearch=ef)

    def search(xq: NDArray[np.float32], label: int, ef: int) -> Results:
        return index.search(xq, K, params=parameters(label, ef))

    return by_class(graph, search, smallest=K, largest=max(K, graph.n), first=FIRST_EF)


def hnsw_per_class(graph: Graph, parameters: dict[str, int]) -> list[Any]:
    order, starts = rows_by_label(graph)
    return [hnsw_of(graph.X[order[a:b]], parameters) for a, b in pairwise(starts)]


def save_each(indexes: list[Any], folder: Path) -> None:
    for label, index in enumerate(indexes):
        faiss.write_index(index, str(folder / str(label)))


def load_each(folder: Path) -> list[Any]:
    return [faiss.read_index(str(folder / str(label))) for label in range(len(list(folder.iterdir())))]


def per_class_searcher(indexes: list[Any], graph: Graph) -> Searcher:
    order, starts = rows_by_label(graph)
    nodes = [nodes_of(order[a:b]) for a, b in pairwise(starts)]

    @cache
    def parameters(ef: int) -> Any:
        return faiss.SearchParametersHNSW(efSearch=ef)

    def search(xq: NDArray[np.float32], label: int, ef: int) -> Results:
        best = faiss.ResultHeap(len(xq), K, keep_max=True)
        for other, index in enumerate(indexes):
            if other != label:
                D, I = index.search(xq, K, params=parameters(ef))
                best.add_result(D, nodes[other](I))
        best.finalize()
        return best.D, best.I

    return by_class(graph, search, smallest=K, largest=max(K, int(np.diff(starts).max())), first=2 * K)


# --- hnswlib ----------------------------------------------------------------------------------------------------------


def hnswlib_index(graph: Graph, parameters: dict[str, int]) -> Any:
    import hnswlib

    index = hnswlib.Index(space="ip", dim=graph.d)
    index.init_index(graph.n, M=parameters["M"], ef_construction=parameters["efConstruction"], random_seed=0)
    index.add_items(graph.X, num_threads=THREADS)
    return index


def load_hnswlib(folder: Path) -> Any:
    import hnswlib

    d = int((folder / "d").read_text())
    index = hnswlib.Index(space="ip", dim=d)
    index.load_index(str(folder / "index"))
    return index


def save_hnswlib(index: Any, folder: Path) -> None:
    (folder / "d").write_text(str(index.dim))
    index.save_index(str(folder / "index"))


def hnswlib_searcher(index: Any, graph: Graph) -> Searcher:
    @cache
    def others(label: int) -> Callable[[int], int]:
        return (graph.labels != label).astype(np.uint8).tobytes().__getitem__

    def query(xq: NDArray[np.float32], k: int, allowed: Callable[[int], int]) -> Results:
        """As knn_query, but with padded rows where that refuses a batch for a row with fewer than k results."""
        try:
            I, distances = index.knn_query(xq, k, num_threads=1, filter=allowed)
        except RuntimeError:
            if len(xq) == 1:
                if k == 1:
                    return np.empty((1, 0), np.float32), np.empty((1, 0), np.int64)
                return query(xq, k - 1, allowed)
            D, I = np.full((len(xq), K), -3.4e38, np.float32), np.full((len(xq), K), -1, np.int64)
            for row in range(len(xq)):
                found, ids = query(xq[row : row + 1], k, allowed)
                D[row, : found.shape[1]], I[row, : found.shape[1]] = found, ids
            return D, I
        return 1 - distances, I.astype(np.int64)

    def search(xq: NDArray[np.float32], label: int, ef: int) -> Results:
        index.set_ef(ef)
        D, I = query(xq, K, others(label))
        short = ((0, 0), (0, K - I.shape[1]))
        return np.pad(D, short, constant_values=-3.4e38), np.pad(I, short, constant_values=-1)

    return by_class(graph, search, smallest=K, largest=max(K, graph.n), first=FIRST_EF)


# --- all of them ------------------------------------------------------------------------------------------------------


def _no_parameters(graph: Graph) -> list[dict[str, int]]:
    return [{}]


PEERS = (
    Peer("ours", nlists, ours.build, ours.searcher, ours.save, ours.load, ours=True),
    Peer("ours, exact", _no_parameters, ours.build_exact, ours.exact_searcher, ours.save, ours.load, ours=True),
    Peer(
        "faiss.knn per class",
        _no_parameters,
        lambda graph, _: graph.X[rows_by_label(graph)[0]],
        exact_searcher,
        lambda index, folder: np.save(folder / "index.npy", index),
        lambda folder: np.load(folder / "index.npy"),
        notes="rows sorted by class; the rows before and after the class's own are searched and merged",
    ),
    Peer("IVFFlat, bitmap", nlists, ivf, ivf_bitmap_searcher),
    Peer(
        "IVFFlat, two ranges",
        nlists,
        ivf_sorted,
        ivf_ranges_searcher,
        notes="rows sorted by class, IDSelectorRange(assume_sorted=True); a batch has one coarse search for both",
    ),
    Peer("HNSW, selector", hnsw_grid, lambda graph, parameters: hnsw_of(graph.X, parameters), hnsw_searcher),
    Peer("HNSW per class", hnsw_grid, hnsw_per_class, per_class_searcher, save_each, load_each),
    Peer(
        "hnswlib, filter",
        hnsw_grid,
        hnswlib_index,
        hnswlib_searcher,
        save_hnswlib,
        load_hnswlib,
        needs="hnswlib",
        notes="its filter is a Python call per visited vector, and allows one thread only",
    ),
    *(
        Peer(
            name,
            _no_parameters,
            partial(ours.build_paper, **variant),
            ours.paper_searcher,
            ours.save,
            ours.load,
            notes="our code for the paper's p = 50, m = 10, theta = pi/3; looks into one cluster only",
        )
        for name, variant in ours.PAPER.items()
    ),
)
