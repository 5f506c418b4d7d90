"""How long does exact evidence under constraints take, next to exact evidence without any and to brute force?

Bail, top-10 of all nodes. Ours under constraints and without any are timed in turns, by processor time. The peers:
NumPy, which compares all nodes and leaves out what the constraints rule out; and, for ``exact`` and ``antiexact``,
``faiss.knn`` of the nodes of each class and each of the values against all nodes that may be their evidence. All must
give the same similarities. Wanted: ``exact`` on one attribute and ``antiexact`` on another take at most 3 times as long
as the search without constraints.

    CFE_DATA=... python benchmarks/constraints.py
"""

import time
from collections.abc import Callable
from typing import Any

import faiss
import graphs
import numpy as np
from common import paired_times, save
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss.attributes.table import Attributes, as_attributes
from cfe_faiss.datasets import load
from cfe_faiss.graph import as_graph

K = 10
REPEATS = 5
WANTED = 3.0
CHUNK = 512
BETWEEN = ("exact", "antiexact")

WHERE = {
    "no condition": {},
    "exact WHITE, antiexact MARRIED": {"exact": "WHITE", "antiexact": "MARRIED"},
    "exact MALE, antiexact WHITE": {"exact": "MALE", "antiexact": "WHITE"},
    "exact SCHOOL, antiexact WHITE": {"exact": "SCHOOL", "antiexact": "WHITE"},
    "exact WHITE, antiexact AGE": {"exact": "WHITE", "antiexact": "AGE"},
    "exact on 10 attributes": {
        "exact": [
            "ALCHY",
            "JUNKY",
            "SUPER",
            "MARRIED",
            "FELON",
            "WORKREL",
            "PROPTY",
            "PERSON",
            "MALE",
            "FILE",
        ]
    },
    "caliper AGE 24": {"caliper": {"AGE": 24}},
    "permitted AGE, target 1": {"permitted": {"AGE": (240, 480)}, "target": 1},
    "at most 3 changed": {"max_changed": 3},
    "min_hops 2": {"min_hops": 2},
    "no common neighbour": {"common_neighbors": False},
    "exact WHITE, antiexact MARRIED, replace=False": {
        "exact": "WHITE",
        "antiexact": "MARRIED",
        "replace": False,
    },
}
Row = tuple[NDArray[np.float32], NDArray[np.int64]]


def by_numpy(
    X: NDArray[np.float32], labels: NDArray[Any], where: cfe.Constraints, table: Attributes
) -> Row:
    """Compare all nodes, under ``exact`` and ``antiexact``."""
    D, I = np.empty((len(X), K), np.float32), np.empty((len(X), K), np.int64)
    for start in range(0, len(X), CHUNK):
        rows = slice(start, start + CHUNK)
        S = X[rows] @ X.T
        allowed = labels[rows, None] != labels
        for name in where.exact:
            allowed &= table[name].codes[rows, None] == table[name].codes
        for name in where.antiexact:
            allowed &= table[name].codes[rows, None] != table[name].codes
        S[~allowed] = -np.inf
        best = np.argpartition(-S, K, axis=1)[:, :K]
        order = np.argsort(-np.take_along_axis(S, best, axis=1), axis=1)
        I[rows] = np.take_along_axis(best, order, axis=1)
        D[rows] = np.take_along_axis(S, I[rows], axis=1)
    return D, I


def by_faiss(
    X: NDArray[np.float32], labels: NDArray[Any], where: cfe.Constraints, table: Attributes
) -> Row:
    """Search the nodes of each class and each of the values together."""
    keys = np.stack([labels, *(table[name].codes for name in (*where.exact, *where.antiexact))])
    D, I = np.full((len(X), K), -np.inf, np.float32), np.full((len(X), K), -1, np.int64)
    same = len(where.exact)
    for key in np.unique(keys, axis=1).T:
        own = np.flatnonzero((key == keys.T).all(axis=1))
        differ = [0, *range(1 + same, len(key))]
        others = (key[1 : 1 + same] == keys[1 : 1 + same].T).all(axis=1) & (
            key[differ] != keys[differ].T
        ).all(axis=1)
        rows = np.flatnonzero(others)
        if len(rows):
            k = min(K, len(rows))
            D[own, :k], found = faiss.knn(X[own], X[rows], k, metric=faiss.METRIC_INNER_PRODUCT)
            I[own, :k] = rows[found]
    return D, I


def check(name: str, found: cfe.finder.LocalEvidence, peer: Row) -> None:
    """Raise RuntimeError unless two results agree, up to the rounding of float32 products."""
    ours = np.where(found.evidence >= 0, found.similarity, -np.inf)
    if not np.array_equal(np.isinf(ours), np.isinf(peer[0])) or not np.allclose(
        ours, peer[0], rtol=0, atol=1e-6
    ):
        raise RuntimeError(f"{name}: the results differ")


def compared(name: str, finder: cfe.EvidenceFinder, arguments: dict[str, Any]) -> dict[str, Any]:
    where = cfe.Constraints(**arguments)
    functions: dict[str, Callable[[], Any]] = {
        "unconstrained": lambda: finder.index.search_stored(k=K),
        "constrained": lambda: finder.local(k=K, where=where),
    }
    if finder.attributes is None:
        raise RuntimeError("there are no attributes")
    if set(arguments) <= set(BETWEEN):
        given = finder.vectors, finder.labels, where, finder.attributes
        functions["numpy"] = lambda: by_numpy(*given)
        check(name, functions["constrained"](), functions["numpy"]())
        if "AGE" not in where.antiexact:
            functions["faiss.knn by value"] = lambda: by_faiss(*given)
            check(name, functions["constrained"](), functions["faiss.knn by value"]())
    medians, times = paired_times(functions, REPEATS, time.process_time)
    fastest = {key: min(values) for key, values in times.items()}
    ratio = fastest["constrained"] / fastest["unconstrained"]
    pairs = finder.local(k=K, where=where).evidence >= 0
    said = ", ".join(f"{key} {seconds:.3f} s" for key, seconds in fastest.items())
    print(f"{name}: {said}: {ratio:.2f} times the search without constraints")
    return {
        "where": repr(where),
        "name": name,
        "complete_rows": float(pairs.all(axis=1).mean()),
        "median_cpu_seconds": medians,
        "fastest_cpu_seconds": fastest,
        "cpu_seconds": times,
        "ratio": ratio,
    }


def main() -> None:
    data = load("bail")
    graph = graphs.graph("bail")
    index = cfe.IndexEvidenceFlat(graph.X.shape[1])
    index.add_with_labels(graph.X, graph.labels)
    labels = graph.labels.astype(np.int32)
    finder = cfe.EvidenceFinder(graph.X, labels, index, as_graph(data), as_attributes(data))
    results: list[dict[str, Any]] = []
    for name, arguments in WHERE.items():
        results.append(compared(name, finder, arguments))
        save(
            "constraints",
            {
                "graph": "bail",
                "nodes": len(graph.X),
                "k": K,
                "wanted": WANTED,
                "constraints": results,
            },
        )


if __name__ == "__main__":
    main()
