"""One index over all vectors: it finds more than k, and the vectors of the query's own class are dropped afterwards.

It needs no filter. It is exact in principle where groups are small, so that k and the largest group can be fetched, and
quick where groups do not depend on position, so that few of the vectors found are of the own group.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.engine import others
from benchmarks.engine.batches import PADDING, hnsw_of, ivf_of, nearby
from benchmarks.engine.graphs import Graph, K
from benchmarks.engine.others import LIST_FACTOR, Others
from benchmarks.engine.searcher import FIRST_NPROBE, Results, Searcher

FETCHED = "fetched"
_MOST = 250
_FETCHED = (40, 100, 20, _MOST)
_BUILDS = 4  # parameters of an index that are tried


@dataclass(frozen=True)
class Fetching:
    """An index over all vectors, and how many of them a query fetches."""

    index: Others
    fetched: int


def grid(
    parameters_of: Callable[[Graph], list[dict[str, Any]]],
) -> Callable[[Graph], list[dict[str, Any]]]:
    """Return the grid of an index with numbers of fetched vectors: one that is always enough, if that is not many."""

    def both(graph: Graph) -> list[dict[str, Any]]:
        enough = K + int(np.bincount(graph.labels).max())
        numbers = (enough,) if enough <= _MOST else _FETCHED
        return [
            {**parameters, FETCHED: min(graph.n, number)}
            for parameters in parameters_of(graph)[:_BUILDS]
            for number in numbers
        ]

    return both


def build(kind: Any, graph: Graph, parameters: dict[str, Any]) -> Fetching:
    return Fetching(
        others.of_rows(graph.X, lambda X: kind.build(X, parameters)), parameters[FETCHED]
    )


def save(index: Fetching, folder: Path) -> None:
    others.save([index.index], folder / "index")
    np.save(folder / f"{FETCHED}.npy", index.fetched)


def load(kind: Any, folder: Path) -> Fetching:
    return Fetching(others.load(kind, folder / "index")[0], int(np.load(folder / f"{FETCHED}.npy")))


def searcher(index: Fetching, graph: Graph, *, lists: bool) -> Searcher:
    """Return the searcher; the setting is a number of lists, or the width of a search of a graph."""
    label_of, nearest = np.append(graph.labels, -1), nearby(graph)

    def search(queries: NDArray[np.int64], xq: NDArray[np.float32], setting: int) -> Results:
        D, I = index.index.find(xq, setting, index.fetched)
        dropped = (label_of[I] == graph.labels[queries][:, None]) | (I < 0)
        kept = np.argsort(dropped, axis=1, kind="stable")[:, :K]
        gone = np.take_along_axis(dropped, kept, 1)
        D, I = np.take_along_axis(D, kept, 1), np.take_along_axis(I, kept, 1)
        return others.padded(np.where(gone, PADDING, D).astype(np.float32), np.where(gone, -1, I))

    def on(queries: NDArray[np.int64]) -> Callable[[int], Results]:
        order = np.argsort(nearest[queries], kind="stable")
        sorted_queries, xq, back = queries[order], graph.X[queries[order]], np.argsort(order)

        def run(setting: int) -> Results:
            D, I = search(sorted_queries, xq, setting)
            return D[back], I[back]

        return run

    def one(query: int, setting: int) -> Results:
        return search(np.array([query]), graph.X[query : query + 1], setting)

    least = 1 if lists else index.fetched
    first = FIRST_NPROBE if lists else 2 * index.fetched
    return Searcher(one, on, least, max(least, graph.n), min(first, graph.n))


class Ivf:
    """Stock IVFFlat."""

    def __init__(self, index: Any) -> None:
        self.index = index

    @classmethod
    def build(cls, X: NDArray[np.float32], parameters: dict[str, float]) -> "Ivf":
        return cls(ivf_of(X, min(len(X), max(1, round(parameters[LIST_FACTOR] * len(X) ** 0.5)))))

    @classmethod
    def load(cls, folder: Path) -> "Ivf":
        return cls(faiss.read_index(str(folder / "index")))

    def save(self, folder: Path) -> None:
        faiss.write_index(self.index, str(folder / "index"))

    def find(self, xq: NDArray[np.float32], setting: int, k: int = K) -> Results:
        return self.index.search(xq, k, params=self.parameters(setting))  # type: ignore[no-any-return]

    @staticmethod
    @cache
    def parameters(setting: int) -> Any:
        return faiss.SearchParametersIVF(nprobe=setting)


class Hnsw(Ivf):
    """Stock HNSWFlat."""

    @classmethod
    def build(cls, X: NDArray[np.float32], parameters: dict[str, Any]) -> "Hnsw":
        return cls(hnsw_of(X, parameters))

    @staticmethod
    @cache
    def parameters(setting: int) -> Any:
        return faiss.SearchParametersHNSW(efSearch=setting)


class Hnswlib:
    """HNSW of hnswlib, without a filter."""

    def __init__(self, index: Any) -> None:
        self.index = index

    @classmethod
    def build(cls, X: NDArray[np.float32], parameters: dict[str, int]) -> "Hnswlib":
        import hnswlib

        index = hnswlib.Index(space="ip", dim=X.shape[1])
        index.init_index(
            len(X), M=parameters["M"], ef_construction=parameters["efConstruction"], random_seed=0
        )
        index.add_items(X, num_threads=int(faiss.omp_get_max_threads()))
        return cls(index)

    @classmethod
    def load(cls, folder: Path) -> "Hnswlib":
        import hnswlib

        index = hnswlib.Index(space="ip", dim=int((folder / "d").read_text()))
        index.load_index(str(folder / "index"))
        return cls(index)

    def save(self, folder: Path) -> None:
        (folder / "d").write_text(str(self.index.dim))
        self.index.save_index(str(folder / "index"))

    def find(self, xq: NDArray[np.float32], ef: int, k: int = K) -> Results:
        self.index.set_ef(ef)
        I, distances = self.index.knn_query(xq, k, num_threads=int(faiss.omp_get_max_threads()))
        return 1 - distances, I.astype(np.int64)


def parts(kind: Any, *, lists: bool = False) -> dict[str, Any]:
    """Return how a kind of index is built, searched and kept, as arguments of a peer."""
    return {
        "build": partial(build, kind),
        "searcher": partial(searcher, lists=lists),
        "save": save,
        "load": partial(load, kind),
    }
