"""Which number tells when it pays to train an inverted file again?

The vectors of an index are replaced in place, step by step: clusters that move, clusters that are exchanged, a common
shift, and KS vectors of real graphs whose edges or features are replaced by random ones (`KSVectors.update`). With
`--others` the first two, with vectors of different lengths, for the metrics "ip" and "l2". After each step the index
that was trained at first is compared with one trained on the same vectors: recall@10 at nprobe = 16, and rows scanned
at recall@10 = 0.95 (one query at a time, 1,000 stored queries). Candidates for the number are `index.drift()` (the
share of rows that the mean of another list is nearer to), FAISS's imbalance factor and, for "cosine", the angle between
centroids and means of lists and the loss of similarity of rows to their centroids since training.

    CFE_DATA=... python benchmarks/drift.py
    python benchmarks/drift.py --others
"""

import argparse
from collections.abc import Iterator
from itertools import product
from typing import Any

import faiss
import numpy as np
from common import save
from numpy.typing import NDArray
from scipy.stats import spearmanr

import cfe_faiss as cfe
from cfe_faiss.coarse.partitions import list_sums
from cfe_faiss.datasets import load
from cfe_faiss.graph import as_graph
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.lists import rank_lists

N, D, CLASSES = 20_000, 64, 7
K, NPROBE, QUERIES, RECALL = 10, 16, 1000, 0.95
SWEEP = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
GRAPHS = (("facebook", "random edges"), ("bail", "random edges"), ("facebook", "random features"))
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
CANDIDATES = ("drift", "centroids_moved", "similarity_lost", "imbalance")
MOVES = "clusters move", "clusters are exchanged"
Floats = NDArray[np.float32]
Versions = Iterator[tuple[float, Floats]]


def unit(X: NDArray[Any]) -> Floats:
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)


def synthetic(
    kind: str, rng: np.random.Generator, n: int = N, *, lengths: bool = False
) -> tuple[NDArray[np.int64], Versions]:
    """Return labels and versions of vectors around n / 50 centres, each with the size of its change.

    The vectors have unit length or, with ``lengths``, lengths drawn at first from a lognormal distribution.
    """
    centres, others = rng.normal(size=(2, n // 50, D))
    centre, noise = rng.integers(0, len(centres), n), 0.6 * rng.normal(size=(n, D))
    labels = np.where(rng.random(n) < 0.9, centre % CLASSES, rng.integers(0, CLASSES, n))
    order, direction = rng.permutation(n), rng.normal(size=D)
    scale = rng.lognormal(sigma=0.3, size=(n, 1)).astype(np.float32) if lengths else np.float32(1)

    def versions() -> Versions:
        if kind == "clusters move":
            for angle in (0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5):
                yield (
                    angle,
                    scale
                    * unit((np.cos(angle) * centres + np.sin(angle) * others)[centre] + noise),
                )
        if kind == "clusters are exchanged":
            for share in (0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0):
                is_new = (order < share * n)[:, None]
                yield share, scale * unit(np.where(is_new, others[centre], centres[centre]) + noise)
        if kind == "common shift":
            for length in (0, 0.25, 0.5, 1.0, 1.5, 2.0):
                yield length, scale * unit(centres[centre] + noise + length * direction)

    return labels, versions()


def graph_versions(
    name: str, kind: str, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Versions]:
    """Return true classes of a graph and versions of its KS vectors, with ever more random edges or features."""
    data = load(name)
    x = np.asarray(data.x).astype(np.float32)
    graph = as_graph(data)
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edges = np.stack([graph.indices, targets])[:, graph.indices < targets]
    edges = edges[:, rng.permutation(edges.shape[1])]

    def versions() -> Versions:
        ks, nodes, last = cfe.KSVectors(x, graph), rng.permutation(len(x)), 0.0
        yield 0.0, ks.vectors.copy()
        for share in SHARES:
            some = edges[:, int(last * edges.shape[1]) : int(share * edges.shape[1])]
            chosen = nodes[int(last * len(x)) : int(share * len(x))]
            if kind == "random edges":
                ks.update(remove_edges=some, add_edges=rng.integers(0, graph.num_nodes, some.shape))
            else:  # each column is drawn on its own
                drawn = x[rng.integers(0, len(x), (len(chosen), x.shape[1])), np.arange(x.shape[1])]
                ks.update(x=dict(zip(chosen.tolist(), drawn, strict=True)))
            last = share
            yield share, ks.vectors.copy()

    return np.asarray(data.y).astype(np.int64), versions()


def trained(X: Floats, labels: NDArray[np.int64], metric: str) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF(X.shape[1], 4 * int(len(X) ** 0.5), metric=metric)
    index.train(X)
    index.add_with_labels(X, labels)
    return index


def candidates(index: cfe.IndexEvidenceIVF) -> dict[str, float]:
    """Return the numbers that might tell, of an index as it is; ``similarity`` is that of rows with their centroids."""
    with index.holding() as snapshot:
        sizes, sums = np.diff(snapshot.starts), list_sums(snapshot)
        found = {
            "drift": index.drift(),
            "imbalance": float(len(sizes) * (sizes**2).sum() / sizes.sum() ** 2),
        }
        if snapshot.metric == "cosine":
            similarity = float((sums * snapshot.centroids[0]).sum())
            found["centroids_moved"] = 1 - similarity / float(np.linalg.norm(sums, axis=1).sum())
            found["similarity"] = similarity / len(sizes)
    return found


def searched(index: cfe.IndexEvidenceIVF, ids: NDArray[np.int64]) -> dict[str, float]:
    """Return recall and scanned rows at NPROBE, and the scanned rows at the recall."""
    D_exact, I_exact = index.search_stored(ids, K, exact=True)
    points = []
    with index.holding() as snapshot:
        rows, sizes = snapshot.find(ids), np.diff(snapshot.starts)
        X, labels, effort = (
            snapshot.rows(rows)[0].copy(),
            snapshot.labels[rows],
            index.default_effort(),
        )
        for nprobe in SWEEP:
            if nprobe > index.nlist:
                break
            lists = rank_lists(Derived.of(snapshot), X, labels, nprobe, effort)
            scanned = float(np.where(lists >= 0, sizes[lists], 0).sum(axis=1).mean())
            points.append((nprobe, scanned))
    recalls: list[float] = []
    for nprobe, _ in points:
        found = [index.search_stored([i], K, nprobe) for i in ids.tolist()]
        D, I = (np.concatenate(parts) for parts in zip(*found, strict=True))
        recalls.append(cfe.metrics.recall(I, I_exact, D, D_exact))
        if recalls[-1] >= RECALL and nprobe >= NPROBE:
            break
    scanned = [rows for _, rows in points[: len(recalls)]]
    at = [nprobe for nprobe, _ in points].index(NPROBE)
    return {
        "recall": recalls[at],
        "rows_at_nprobe": scanned[at],
        "rows_at_recall": float(
            np.exp(np.interp(RECALL, np.maximum.accumulate(recalls), np.log(scanned)))
        ),
    }


def measure(
    name: str,
    labels: NDArray[np.int64],
    versions: Versions,
    rng: np.random.Generator,
    metric: str = "cosine",
) -> dict[str, Any]:
    faiss.omp_set_num_threads(1)
    steps: list[dict[str, Any]] = []
    kept: cfe.IndexEvidenceIVF | None = None
    for size, X in versions:
        fresh = trained(X, labels, metric)
        if kept is None:
            kept, ids = (
                trained(X, labels, metric),
                rng.choice(len(X), min(QUERIES, len(X)), replace=False),
            )
        else:
            kept.update_vectors(np.arange(len(X)), X)
        step = {
            "size": size,
            "kept": searched(kept, ids),
            "trained": searched(fresh, ids),
            **candidates(kept),
        }
        if metric == "cosine":
            step["similarity_lost"] = 1 - step["similarity"] / (steps or [step])[0]["similarity"]
        step["drift_trained"] = fresh.drift()
        step["rows_ratio"] = step["kept"]["rows_at_recall"] / step["trained"]["rows_at_recall"]
        step["recall_lost"] = step["trained"]["recall"] - step["kept"]["recall"]
        steps.append(step)
        print(
            name,
            {key: value for key, value in step.items() if not isinstance(value, dict)},
            flush=True,
        )
    return {"name": name, "n": len(labels), "d": X.shape[1], "steps": steps}


def correlations(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return Spearman's correlation of each candidate with each loss, over all steps of all runs together."""
    steps = [step for run in runs for step in run["steps"]]
    return {
        name: {
            loss: float(
                spearmanr([step[name] for step in steps], [step[loss] for step in steps]).statistic
            )
            for loss in ("rows_ratio", "recall_lost")
        }
        for name in CANDIDATES
        if all(name in step for step in steps)
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--others", action="store_true", help='measure "ip" and "l2" instead of "cosine"'
    )
    args = parser.parse_args(argv)
    rng, runs = np.random.default_rng(0), []
    if args.others:
        for metric, kind in product(("ip", "l2"), MOVES):
            runs.append(
                measure(f"{kind}, {metric}", *synthetic(kind, rng, lengths=True), rng, metric)
            )
    else:
        for kind in (*MOVES, "common shift"):
            runs.append(measure(kind, *synthetic(kind, rng), rng))
        for name, kind in GRAPHS:
            runs.append(measure(f"{name}, {kind}", *graph_versions(name, kind, rng), rng))
    path = save(
        "drift_others" if args.others else "drift",
        {"runs": runs, "correlations": correlations(runs)},
    )
    print(f"written to {path}")


if __name__ == "__main__":
    main()
