"""Do the intervals of the audits hold what they say, where pairs of nodes and evidence share nodes?

Vectors lie in clusters, classes have noisy linear borders between them, so that few nodes are the evidence of many.

- Consistency: classes are shuffled over the nodes; counted is how often Wilson's interval holds ``expected``, and
  whether shares are on average what is expected, with copies and with few distinct rows, too.
- Accuracy within the evidence: how often does Wilson's interval hold the mean accuracy, if the true classes are drawn
  anew, each node for itself; and if the model is trained anew on another sample.

    python benchmarks/coverage.py [--trials 2000]
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from common import percent, save, table
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss.audit import consistency, error_rate_by_evidence

TITLE = "Intervals of the audits"

NODES = (30, 300, 3000)
GRAPHS = 20


def nodes_of(n: int, classes: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return vectors in six clusters, and classes with borders that are linear but for noise."""
    rng = np.random.default_rng([n, classes, seed])
    X = rng.normal(size=(6, 5))[rng.integers(0, 6, n)] + 0.7 * rng.normal(size=(n, 5))
    labels = (X @ rng.normal(size=(5, classes)) + rng.normal(size=(n, classes))).argmax(axis=1)
    labels[:classes] = np.arange(classes)  # each class has a node
    return X.astype(np.float32), labels


def index_of(X: NDArray[np.float32], labels: NDArray[np.int64]) -> cfe.IndexEvidenceFlat:
    index = cfe.IndexEvidenceFlat(X.shape[1])
    index.add_with_labels(X, labels)
    return index


def graphs(
    n: int, classes: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64], np.random.Generator]]:
    for seed in range(GRAPHS):
        yield *nodes_of(n, classes, seed), np.random.default_rng([seed, n, classes, 1])


def shuffled(kind: str, n: int, first: float, trials: int) -> dict[str, Any]:
    """Return how consistent classes come out that are shuffled over the nodes."""
    lines = []
    for seed in range(4):
        rng = np.random.default_rng([seed, n, int(100 * first)])
        if kind == "clusters":
            X, _ = nodes_of(n, 2, seed)
        elif kind == "three copies of each":
            X = np.repeat(rng.normal(size=(n // 3, 5)), 3, axis=0).astype(np.float32)
        else:
            X = rng.integers(0, 3, (n, 6)).astype(np.float32) - 1
        labels = (np.arange(len(X)) >= first * len(X)).astype(np.int64)
        index = index_of(X, labels)
        for _ in range(max(trials // 80, 5)):
            index.relabel(rng.permutation(labels))
            lines.append(consistency(cfe.EvidenceFinder.from_index(index)).loc[0])
    frame = pd.DataFrame(lines)
    held = (frame["low"] <= frame["expected"]) & (frame["expected"] <= frame["high"])
    return {
        "vectors": kind,
        "nodes": n,
        "share_of_first_class": first,
        "shuffles": len(frame),
        "tied": float((frame["tied"] / frame["nodes"]).mean()),
        "share": float(frame["share"].mean()),
        "expected": float(frame["expected"].mean()),
        "without_ties": 2 * first * (1 - first) * n / (n - 1),
        "held": float(held.mean()),
    }


def accuracies(n: int, drawn: str, trials: int) -> list[dict[str, Any]]:
    """Return how often the band of the accuracy holds its mean, true classes or models drawn anew."""
    ks = (10, 50, 200)
    held: dict[int, list[bool]] = {k: [] for k in ks}
    means: dict[int, list[float]] = {k: [] for k in ks}
    for X, _, rng in graphs(n, 2):
        true = rng.normal(size=5)
        chance = 1 / (1 + np.exp(-3 * X @ true))
        y = (rng.random(n) < chance).astype(np.int64)
        index = index_of(X, learnt(X, y, rng))
        own = []
        for _ in range(max(trials // (10 * GRAPHS), 5)):
            if drawn == "true classes":
                y = (rng.random(n) < chance).astype(np.int64)
            else:
                index.relabel(learnt(X, y, rng))
            own.append(error_rate_by_evidence(cfe.EvidenceFinder.from_index(index, truth=y), ks=ks))
        for i, k in enumerate(ks):
            points = pd.DataFrame([frame.loc[i] for frame in own])
            mean = points["accuracy"].mean()
            means[k].append(float(mean))
            held[k] += ((points["low"] <= mean) & (mean <= points["high"])).tolist()
    return [
        {
            "nodes": n,
            "drawn_anew": drawn,
            "k": k,
            "accuracy": float(np.mean(means[k])),
            "held": float(np.mean(held[k])),
        }
        for k in ks
    ]


def learnt(
    X: NDArray[np.float32], y: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the classes by a least-squares model that has learnt from 60 of the nodes."""
    seen = rng.choice(len(X), 60, replace=False)
    with_one = np.column_stack([X, np.ones(len(X))])
    weights = np.linalg.lstsq(with_one[seen], 2.0 * y[seen] - 1, rcond=None)[0]
    labels: NDArray[np.int64] = (with_one @ weights > 0).astype(np.int64)
    return labels


def page(content: dict[str, Any]) -> str:
    shuffled = [
        {
            "vectors": row["vectors"],
            "nodes": f"{row['nodes']:,}",
            "first of two classes": row["share_of_first_class"],
            "nodes with ties": percent(row["tied"]),
            "mean share": f"{row['share']:.4f}",
            "mean expected": f"{row['expected']:.4f}",
            "without ties": f"{row['without_ties']:.4f}",
            "Wilson's interval holds expected": percent(row["held"]),
        }
        for row in content["consistency"]
    ]
    accuracy = [
        {
            "nodes": f"{row['nodes']:,}",
            "redrawn": row["drawn_anew"],
            "k": row["k"],
            "mean accuracy": f"{row['accuracy']:.3f}",
            "holds": percent(row["held"]),
        }
        for row in content["accuracy"]
    ]
    first, second = (
        table(rows[0], (row.values() for row in rows)) for rows in (shuffled, accuracy)
    )
    return (
        "How often do 95 % intervals of the audits hold what they should? Vectors in six clusters, classes with noisy "
        f"linear borders, {content['graphs']} graphs a cell.\n\n"
        "**Consistency, classes shuffled over the nodes.** `expected` should equal the mean share, ties or not; "
        "beside it what it would be without counting ties. Wilson's interval takes nodes for independent.\n\n"
        f"{first}\n\n**Accuracy within the evidence.** The band of `error_rate_by_evidence` against the mean accuracy, "
        "if true classes are redrawn for the same predictions, and if the model is trained again on other nodes.\n\n"
        f"{second}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=2000, help="attributes per cell")
    trials = parser.parse_args().trials
    content: dict[str, Any] = {"trials": trials, "graphs": GRAPHS}
    content["consistency"] = [
        shuffled(kind, n, first, trials)
        for kind in ("clusters", "three copies of each", "six columns of three values")
        for n in NODES
        for first in (0.5, 0.9)
    ]
    content["accuracy"] = [
        row
        for drawn in ("true classes", "model")
        for n in NODES[1:]
        for row in accuracies(n, drawn, trials)
    ]
    print(f"written to {save('coverage', content)}")


if __name__ == "__main__":
    main()
