"""Our indexes as the benchmark uses them: all that it knows of them is here."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cfe_faiss as cfe
from benchmarks.engine.graphs import Graph, K
from benchmarks.engine.searcher import FIRST_NPROBE, Results, Searcher

PAPER: dict[str, dict[str, bool]] = {
    "LocalCE-I": {},
    "LocalCE-I w/o WC": {"weighted": False},
    "LocalCE-I w/o SP": {"supplementary": False},
}


def _filled(index: Any, graph: Graph) -> Any:
    if not index.is_trained:
        index.train(graph.X)
    index.add_with_labels(graph.X, graph.labels)
    return index


def build(graph: Graph, parameters: dict[str, int]) -> Any:
    return _filled(cfe.IndexEvidenceIVF(graph.d, parameters["nlist"]), graph)


def build_exact(graph: Graph, parameters: dict[str, int]) -> Any:
    return _filled(cfe.IndexEvidenceFlat(graph.d), graph)


def build_paper(graph: Graph, parameters: dict[str, int], **variant: bool) -> Any:
    return _filled(cfe.IndexEvidenceIVF.paper(graph.d, **variant), graph)


def save(index: Any, folder: Path) -> None:
    cfe.write_index(index, folder / "index")


def load(folder: Path) -> Any:
    return cfe.read_index(folder / "index")


def searcher(index: Any, graph: Graph) -> Searcher:
    """All nodes are searched list by list, some nodes query by query: two algorithms."""

    def on(queries: NDArray[np.int64]) -> Callable[[int], Results]:
        ids = None if len(queries) == graph.n else queries
        return lambda nprobe: index.search_stored(ids, K, nprobe=nprobe)

    def one(query: int, nprobe: int) -> Results:
        return index.search_evidence(
            graph.X[query : query + 1], graph.labels[query : query + 1], K, nprobe
        )

    return Searcher(one, on, 1, index.nlist, first=min(FIRST_NPROBE, index.nlist), whole=True)


def exact_searcher(index: Any, graph: Graph) -> Searcher:
    def on(queries: NDArray[np.int64]) -> Callable[[int], Results]:
        ids = None if len(queries) == graph.n else queries
        return lambda _: index.search_stored(ids, K)

    def one(query: int, _: int) -> Results:
        return index.search_evidence(graph.X[query : query + 1], graph.labels[query : query + 1], K)

    return Searcher(one, on, 1, 1)


def paper_searcher(index: Any, graph: Graph) -> Searcher:
    """Algorithm 2: one cluster, whatever is asked."""

    def on(queries: NDArray[np.int64]) -> Callable[[int], Results]:
        return lambda _: index.search_stored(queries, K, nprobe=1)

    def one(query: int, _: int) -> Results:
        return index.search_evidence(
            graph.X[query : query + 1], graph.labels[query : query + 1], K, 1
        )

    return Searcher(one, on, 1, 1)
