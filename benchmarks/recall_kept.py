"""Is the recall that is asked for kept on graphs for which nothing was tuned?

``recall=`` of .9, .95 and .99, for all nodes and for single queries, over many small synthetic graphs of different
shapes, drawn at random: size, dimension, number of lists and classes, how far clusters overlap and classes mix; crowded
graphs; and the real ones. Recall@10 is against exact search. Wanted: kept on average, over all graphs and over those of
each kind.

    CFE_DATA=... python benchmarks/recall_kept.py
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import save
from numpy.typing import NDArray

import cfe_faiss as cfe

RECALLS = (0.9, 0.95, 0.99)
K, QUERIES = 10, 200
GRAPHS, CROWDED = 40, 6
Arrays = tuple[NDArray[np.float32], NDArray[np.int64]]


def clusters(seed: int) -> Arrays:
    """Return vectors around centres whose spread, number and classes are drawn at random."""
    rng = np.random.default_rng(seed)
    n, d, classes = int(10 ** rng.uniform(2.7, 4)), int(2 ** rng.uniform(2, 7.6)), int(rng.integers(2, 21))
    centres = rng.normal(size=(max(2, int(n / 10 ** rng.uniform(0.7, 2.5))), d))
    centre = (len(centres) * rng.random(n) ** rng.uniform(1, 3)).astype(np.int64)  # of unequal sizes
    X = centres[centre] + rng.uniform(0.1, 1.5) * rng.normal(size=(n, d))
    labels = np.where(rng.random(n) < rng.random(), centre % classes, rng.integers(0, classes, n))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), labels.astype(np.int64)


def kept(X: NDArray[np.float32], labels: NDArray[np.int64], nlist: int) -> dict[str, dict[str, float]]:
    """Return the recall reached for each recall asked for, of all nodes and of single queries."""
    index = cfe.IndexEvidenceIVF(X.shape[1], nlist)
    index.cp.min_points_per_centroid = 1
    index.train(X)
    index.add_with_labels(X, labels)
    exact_D, exact_I = index.search_members(k=K, exact=True)
    rows = np.random.default_rng(1).permutation(len(X))[:QUERIES]
    reached: dict[str, dict[str, float]] = {"all nodes": {}, "single": {}}
    for recall in RECALLS:
        D, I = index.search_members(k=K, recall=recall)
        reached["all nodes"][str(recall)] = cfe.metrics.recall(I, exact_I, D, exact_D)
        found = [index.search_evidence(X[i : i + 1], labels[i : i + 1], K, recall=recall) for i in rows]
        D, I = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        exact = index.search_evidence(X[rows], labels[rows], K, exact=True)
        reached["single"][str(recall)] = cfe.metrics.recall(I, exact[1], D, exact[0])
    return reached


def graphs(number: int, crowded: int, real: bool) -> Iterator[tuple[str, str, Arrays]]:
    """Yield kind, name and arrays of every graph."""
    for seed in range(number):
        yield "clusters", f"clusters {seed}", clusters(seed)
    if crowded:
        from engine.graphs import crowded as crowded_graph

        for seed in range(crowded):
            d, classes = 8 + 2 * (seed % 5), 2 + seed % 3
            yield "crowded", f"crowded {d} {classes} {seed}", crowded_graph(d, classes, 5000, seed)
    if real:
        import graphs as real_graphs

        for name in real_graphs.NAMES:
            found = real_graphs.graph(name)
            yield "real", name, (found.X, found.labels)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and least recall by kind of graph (and of all), how it was asked, and what was asked for."""
    told: dict[str, Any] = {}
    for kind in ("all", *dict.fromkeys(row["kind"] for row in rows)):
        mine = [row for row in rows if kind in ("all", row["kind"])]
        told[kind] = {"graphs": len(mine)}
        for mode in ("all nodes", "single"):
            told[kind][mode] = {}
            for recall in map(str, RECALLS):
                values = [row["reached"][mode][recall] for row in mine]
                least = min(values)
                told[kind][mode][recall] = {
                    "mean": float(np.mean(values)),
                    "least": least,
                    "least_of": mine[values.index(least)]["graph"],
                    "kept": bool(np.mean(values) >= float(recall)),
                }
    return told


def measure(number: int, crowded: int, real: bool) -> dict[str, Any]:
    rows = []
    for i, (kind, name, (X, labels)) in enumerate(graphs(number, crowded, real)):
        nlist = max(1, round((1, 2, 4)[i % 3] * len(X) ** 0.5))
        row = {"kind": kind, "graph": name, "nodes": len(X), "dimension": X.shape[1], "nlist": nlist}
        rows.append({**row, "classes": len(np.unique(labels)), "reached": kept(X, labels, nlist)})
        print(rows[-1], flush=True)
    return {"k": K, "summary": summary(rows), "graphs": rows}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=GRAPHS)
    parser.add_argument("--crowded", type=int, default=CROWDED)
    parser.add_argument("--no-real", action="store_true")
    parser.add_argument("--name", default="recall_kept", help="of the result")
    args = parser.parse_args(argv)
    result = measure(args.graphs, args.crowded, not args.no_real)
    print(f"{result['summary']}\nwritten to {save(args.name, result)}")


if __name__ == "__main__":
    main()
