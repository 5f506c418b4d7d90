"""How long does an update of KS vectors take, next to the computation of all vectors of the same graph?

Random edges are added and removed, and features replaced, on real graphs (L = 3). Each update and each full computation
of `ks_vectors` on the changed graph are timed in turns, on one thread; the results are compared bit for bit. The second
ratio is to the share of a full computation that belongs to the surroundings: its rows and edges at most L hops from the
change. Wanted: 1.5 of that share, and never more than 1.2 full computations.

    CFE_DATA=... python benchmarks/ks_updates.py
"""

import argparse
import itertools
import time
from typing import Any

import faiss
import numpy as np
from common import save
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss.datasets import load
from cfe_faiss.graph import Graph, as_graph
from cfe_faiss.graph.changing import ChangingGraph

GRAPHS = ("facebook", "bail", "cora")
SIZES = (1, 10, 100, 1000)
KINDS = ("add edges", "remove edges", "features")
CHANGES, FEWEST = 25, 5  # updates of one edge or row; and of many
Floats = NDArray[np.float32]
Row = tuple[float, float, float, int, bool]
"""Seconds of an update and of a full computation, share and rows of the surroundings, and whether the bits agree."""
NUM_LAYERS = 3
WANTED = {"surroundings": 1.5, "full": 1.2}


def draw(
    rng: np.random.Generator, graph: Graph, size: int, kind: str
) -> tuple[Any, Any, NDArray[np.int64]]:
    """Return an update, the one that takes it back, and the nodes at its edges."""
    if kind == "features":
        nodes = rng.choice(graph.num_nodes, size, replace=False)
        return nodes, nodes, nodes
    if kind == "remove edges":
        ends = rng.choice(graph.num_edges, size, replace=False)
        owners = np.searchsorted(graph.indptr, ends, side="right") - 1
        edges = np.stack([graph.indices[ends].astype(np.int64), owners])
        return {"remove_edges": edges}, {"add_edges": edges}, np.unique(edges)
    edges = rng.integers(0, graph.num_nodes, (2, size))
    owners = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    present = np.isin(
        edges[1] * graph.num_nodes + edges[0], owners * graph.num_nodes + graph.indices
    )
    edges = edges[:, (edges[0] != edges[1]) & ~present]
    return {"add_edges": edges}, {"remove_edges": edges}, np.unique(edges)


def one_update(
    ks: cfe.KSVectors, graph: Graph, x: Floats, rng: np.random.Generator, kind: str, size: int
) -> Row:
    """Time an update and a full computation of the same version, and take the update back."""
    update, back, nodes = draw(rng, graph, size, kind)
    new_x = x
    if kind == "features":
        new_x = x.copy()
        new_x[nodes] = x[rng.choice(len(x), size)]
        update, back = ({"x": {int(v): some[v] for v in nodes}} for some in (new_x, x))
    first, later = (nodes, nodes[:0]) if kind == "features" else (nodes[:0], nodes)
    reached = ChangingGraph.of(graph).reach(first, later, NUM_LAYERS, np.inf, outgoing=True)
    assert reached is not None
    region = reached[-1]
    start = time.perf_counter()
    ks.update(**update)
    spent = time.perf_counter() - start
    changed = ks.graph
    start = time.perf_counter()
    expected = cfe.ks_vectors(new_x, changed, NUM_LAYERS)
    full = time.perf_counter() - start
    same = bool((expected.view(np.int32) == ks.vectors.view(np.int32)).all())
    ks.update(**back)
    edges = int(np.diff(graph.indptr)[region].sum())
    return (
        spent,
        full,
        (edges + len(region)) / (graph.num_edges + graph.num_nodes),
        len(region),
        same,
    )


def measure(name: str, changes: int) -> dict[str, Any]:
    faiss.omp_set_num_threads(1)
    data = load(name)
    graph, x = as_graph(data), np.array(data.x, np.float32)
    runs: list[dict[str, Any]] = []
    for store_layers, kind, size in itertools.product((True, False), KINDS, SIZES):
        ks, rng = (
            cfe.KSVectors(x, graph, NUM_LAYERS, store_layers=store_layers),
            np.random.default_rng(size),
        )
        rows = [
            one_update(ks, graph, x, rng, kind, size) for _ in range(max(FEWEST, changes // size))
        ]
        spent, full, share, reached, same = (np.array(column) for column in zip(*rows, strict=True))
        runs.append(
            {
                "stored_layers": store_layers,
                "change": kind,
                "size": size,
                "updates": len(rows),
                "same_bits": bool(same.all()),
                "median_rows": float(np.median(reached)),
                "median_ms": 1e3 * float(np.median(spent)),
                "median_full_ms": 1e3 * float(np.median(full)),
                "of_full": float(np.median(spent / full)),
                "of_surroundings": float(np.median(spent / (full * share))),
            }
        )
        print(name, runs[-1], flush=True)
    return {
        "graph": name,
        "nodes": len(x),
        "dimension": x.shape[1],
        "edges": graph.num_edges // 2,
        "runs": runs,
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=CHANGES, help="updates of one edge or row")
    parser.add_argument("--name", default="ks_updates", help="of the result")
    args = parser.parse_args(argv)
    graphs = [measure(name, args.changes) for name in GRAPHS]
    print(f"written to {save(args.name, {'wanted': WANTED, 'graphs': graphs})}")


if __name__ == "__main__":
    main()
