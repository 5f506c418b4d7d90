"""What a FAISS user would build instead of ours, each as well as we can.

A peer searches a batch of queries of one class for vectors of other classes. Queries of a class are asked together, so
that one selector serves them all, and those of one inverted list after another, which suits the cache; selectors and
order are made outside the timing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.common import merged, search_with_each
from benchmarks.engine import dropping, others, ours
from benchmarks.engine.batches import (
    PADDING,
    by_class,
    hnsw_of,
    ivf_of,
    lists_of,
    nearby,
    nodes_of,
    rows_by_label,
)
from benchmarks.engine.graphs import Graph, K
from benchmarks.engine.searcher import FIRST_NPROBE, Results, Searcher

NLIST_FACTORS = (4, 2, 8, 1, 3, 1.5, 6, 0.5, 12)
HNSW_GRID = ((32, 80), (16, 80), (32, 200), (64, 200), (24, 120), (12, 80), (48, 400))
THREADS = 2  # to build with
FIRST_EF = 64


@dataclass(frozen=True, slots=True)
class Peer:
    """How an index is built, searched, and kept in a folder.

    Attributes
    ----------
    grid
        The parameters to build with, best guess first.
    needs
        A module that has to be installed.
    infeasible
        Why a graph, of which its info.json is given, is not for this peer; None where it is.
    """

    name: str
    grid: Callable[[Graph], list[dict[str, Any]]]
    build: Callable[[Graph, dict[str, Any]], Any]
    searcher: Callable[[Any, Graph], Searcher]
    save: Callable[[Any, Path], None] = lambda index, folder: faiss.write_index(
        index, str(folder / "index")
    )
    load: Callable[[Path], Any] = lambda folder: faiss.read_index(str(folder / "index"))
    needs: str | None = None
    infeasible: Callable[[dict[str, Any]], str | None] = lambda info: None
    notes: str = ""
    ours: bool = False


def available(peer: Peer) -> bool:
    return peer.needs is None or find_spec(peer.needs) is not None


# --- exact ------------------------------------------------------------------------------------------------------------


def exact_searcher(index: NDArray[np.float32], graph: Graph) -> Searcher:
    order, starts = rows_by_label(graph)
    nodes = nodes_of(order)

    def search(xq: NDArray[np.float32], label: int, _: int) -> Results:
        parts = []
        for low, high in ((0, starts[label]), (starts[label + 1], graph.n)):
            if low < high:
                k = int(min(K, high - low))
                D, I = (
                    np.full((len(xq), K), PADDING, np.float32),
                    np.full((len(xq), K), -1, np.int64),
                )
                D[:, :k], found = faiss.knn(
                    xq, index[low:high], k, metric=faiss.METRIC_INNER_PRODUCT
                )
                I[:, :k] = found + low
                parts.append((D, I))
        D, I = merged(parts)
        return D, nodes(I)

    return by_class(graph, search)


# --- stock IVF --------------------------------------------------------------------------------------------------------


def nlists(graph: Graph) -> list[dict[str, int]]:
    return [{"nlist": min(graph.n, round(factor * graph.n**0.5))} for factor in NLIST_FACTORS]


def ivf(graph: Graph, parameters: dict[str, int], X: NDArray[np.float32] | None = None) -> Any:
    return ivf_of(graph.X if X is None else X, parameters["nlist"])


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

    return by_class(
        graph, search, largest=index.nlist, first=FIRST_NPROBE, lists=lists_of(index, order)
    )


# --- HNSW -------------------------------------------------------------------------------------------------------------


def hnsw_grid(graph: Graph) -> list[dict[str, int]]:
    return [{"M": M, "efConstruction": ef} for M, ef in HNSW_GRID]


def hnsw_searcher(index: Any, graph: Graph) -> Searcher:
    others = bitmaps(graph)

    @cache
    def parameters(label: int, ef: int) -> Any:
        return faiss.SearchParametersHNSW(sel=others(label), efSearch=ef)

    def search(xq: NDArray[np.float32], label: int, ef: int) -> Results:
        return index.search(xq, K, params=parameters(label, ef))

    return by_class(
        graph, search, smallest=K, largest=max(K, graph.n), first=FIRST_EF, lists=nearby(graph)
    )


def save_each(indexes: list[Any], folder: Path) -> None:
    for label, index in enumerate(indexes):
        faiss.write_index(index, str(folder / str(label)))


def load_each(folder: Path) -> list[Any]:
    return [
        faiss.read_index(str(folder / str(label))) for label in range(len(list(folder.iterdir())))
    ]


# --- hnswlib ----------------------------------------------------------------------------------------------------------


def hnswlib_searcher(filtered: dropping.Hnswlib, graph: Graph) -> Searcher:
    index = filtered.index

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
            D, I = np.full((len(xq), K), PADDING, np.float32), np.full((len(xq), K), -1, np.int64)
            for row in range(len(xq)):
                found, ids = query(xq[row : row + 1], k, allowed)
                D[row, : found.shape[1]], I[row, : found.shape[1]] = found, ids
            return D, I
        return 1 - distances, I.astype(np.int64)

    def search(xq: NDArray[np.float32], label: int, ef: int) -> Results:
        index.set_ef(ef)
        D, I = query(xq, K, others(label))
        short = ((0, 0), (0, K - I.shape[1]))
        return np.pad(D, short, constant_values=PADDING), np.pad(I, short, constant_values=-1)

    return by_class(graph, search, smallest=K, largest=max(K, graph.n), first=FIRST_EF)


# --- all of them ------------------------------------------------------------------------------------------------------


def _no_parameters(graph: Graph) -> list[dict[str, int]]:
    return [{}]


PEERS = (
    Peer("ours", nlists, ours.build, ours.searcher, ours.save, ours.load, ours=True),
    Peer(
        "ours, exact",
        _no_parameters,
        ours.build_exact,
        ours.exact_searcher,
        ours.save,
        ours.load,
        ours=True,
    ),
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
    Peer(
        "HNSW, selector",
        hnsw_grid,
        lambda graph, parameters: hnsw_of(graph.X, parameters),
        hnsw_searcher,
    ),
    Peer(
        "IVFFlat, drop own",
        dropping.grid(others.ivf_grid),
        **dropping.parts(dropping.Ivf, lists=True),
    ),
    Peer(
        "IVFFlat per other classes",
        others.ivf_grid,
        others.ivf,
        others.ivf_searcher,
        save_each,
        load_each,
        infeasible=others.infeasible,
        notes="one index for each class, over the vectors of all other classes",
    ),
    Peer(
        "HNSW per other classes",
        others.hnsw_grid,
        others.hnsw,
        others.hnsw_searcher,
        save_each,
        load_each,
        infeasible=others.infeasible,
    ),
    Peer(
        "ScaNN, floats, per other classes",
        others.scann_float_grid,
        others.scann,
        others.scann_searcher,
        others.save,
        partial(others.load, others.Scann),
        needs="scann",
        infeasible=others.infeasible,
        notes="a tree, floats in its leaves",
    ),
    Peer(
        "ScaNN, codes, per other classes",
        others.scann_codes_grid,
        others.scann,
        others.scann_searcher,
        others.save,
        partial(others.load, others.Scann),
        needs="scann",
        infeasible=others.infeasible,
        notes="a tree, asymmetric hashing with two dimensions a code, the best computed anew in floats",
    ),
    Peer(
        "rabitqlib per other classes",
        others.rabitq_grid,
        others.rabitq,
        others.scann_searcher,
        others.save,
        partial(others.load, others.Rabitq),
        needs="rabitqlib",
        infeasible=others.infeasible,
        notes="IVF of RaBitQ codes; bits 32: one bit a dimension, the best computed anew in floats",
    ),
    Peer(
        "pyglass HNSW per other classes",
        others.glass_grid,
        others.glass,
        others.graph_searcher,
        others.save,
        partial(others.load, others.Glass),
        needs="glass",
        infeasible=others.infeasible,
        notes="built from the source of zilliztech/pyglass, whose name on PyPI belongs to another project; codes 1: "
        "8 bits, the best computed anew",
    ),
    Peer(
        "hnswlib, filter",
        hnsw_grid,
        lambda graph, parameters: dropping.Hnswlib.build(graph.X, parameters),
        hnswlib_searcher,
        lambda index, folder: index.save(folder),
        dropping.Hnswlib.load,
        needs="hnswlib",
        notes="its filter is a Python call per visited vector, and allows one thread only",
    ),
    Peer(
        "ScaNN, floats, drop own",
        dropping.grid(others.scann_float_grid),
        **dropping.parts(others.Scann, lists=True),
        needs="scann",
    ),
    *(
        Peer(
            name,
            _no_parameters,
            partial(ours.build_paper, **variant),
            ours.paper_searcher,
            ours.save,
            ours.load,
            notes="our code for the paper's p = 50, m = 10, theta = pi/3; probes one cluster only",
        )
        for name, variant in ours.PAPER.items()
    ),
)
