"""What do supplementary partitions and weighted clustering bring? The paper's index and its ablations, beside exact.

All nodes of each graph are searched for their top 10, predictions by a GCN, KS vectors with L = 3 and alpha = 0.5,
p = 50, m = 10, theta = pi/3; three seeds of the clustering. Wanted: LocalCE-I on Facebook built in at most 5 s.

    CFE_DATA=... python benchmarks/paper_index.py
"""

import time
from typing import Any

import graphs
import numpy as np
from common import save

import cfe_faiss as cfe
from cfe_faiss.coarse.partitions import assign
from cfe_faiss.coarse.routes import nearest_lists

K = 10
SEEDS = (1234, 2345, 3456)
VARIANTS: dict[str, dict[str, bool]] = {
    "LocalCE-I": {},
    "w/o WC": {"weighted": False},
    "w/o SP": {"supplementary": False},
}


def scanned_share(index: cfe.IndexEvidenceIVF, graph: graphs.Graph) -> float:
    """Return the share of the eligible vectors that lie in the one cluster that a node probes, mean over nodes."""
    lists = assign(graph.X, index.centroids()) + np.arange(index.partitions)[:, None] * index.nlist
    classes, labels = np.unique(graph.labels, return_inverse=True)
    counts = np.zeros((index.partitions * index.nlist, len(classes)), np.int64)
    for partition in lists:
        np.add.at(counts, (partition, labels), 1)
    chosen = nearest_lists(graph.X, index.centroids(), 1)[:, 0]
    inside = counts[chosen].sum(axis=1) - counts[chosen, labels]
    eligible = len(labels) - np.bincount(labels)[labels]
    return float((inside / eligible).mean())


def measure(variant: str, seed: int, graph: graphs.Graph, D: Any, I: Any) -> dict[str, Any]:
    index = cfe.IndexEvidenceIVF.paper(graph.X.shape[1], **VARIANTS[variant])
    index.cp.seed = seed
    start = time.perf_counter()
    index.train(graph.X)
    index.add_with_labels(graph.X, graph.labels)
    built = time.perf_counter()
    found_D, found_I = index.search_stored(k=K)
    searched = time.perf_counter()
    return {
        "variant": variant,
        "seed": seed,
        "build_seconds": built - start,
        "search_seconds": searched - built,
        "average_similarity": cfe.metrics.average_similarity(found_D),
        "average_similarity_ratio": cfe.metrics.average_similarity(found_D)
        / cfe.metrics.average_similarity(D),
        "recall": cfe.metrics.recall(found_I, I, found_D, D),
        "short_rows": float((found_I[:, -1] < 0).mean()),
        "eligible_scanned": scanned_share(index, graph),
    }


def main() -> None:
    results = []
    for name in graphs.NAMES:
        graph = graphs.graph(name)
        flat = cfe.IndexEvidenceFlat(graph.X.shape[1])
        flat.add_with_labels(graph.X, graph.labels)
        flat.search_stored(k=K)  # the first time is slower
        start = time.perf_counter()
        D, I = flat.search_stored(k=K)
        exact = {
            "search_seconds": time.perf_counter() - start,
            "average_similarity": cfe.metrics.average_similarity(D),
        }
        print(
            f"{name}: {graph.X.shape[0]:,} x {graph.X.shape[1]}, test accuracy {graph.test_accuracy:.3f}, "
            f"exact AS {exact['average_similarity']:.4f} in {exact['search_seconds']:.2f} s"
        )
        runs = [measure(variant, seed, graph, D, I) for variant in VARIANTS for seed in SEEDS]
        for variant in VARIANTS:
            own = [run for run in runs if run["variant"] == variant]
            text = f"  {variant:10}"
            for key in ("average_similarity_ratio", "recall", "short_rows", "eligible_scanned"):
                values = [run[key] for run in own]
                text += (
                    f"  {key.removeprefix('average_')} {np.mean(values):.4f} ± {np.std(values):.4f}"
                )
            print(text + f"  build {np.median([run['build_seconds'] for run in own]):.2f} s")
        results.append(
            {
                "graph": name,
                "nodes": graph.X.shape[0],
                "dimension": graph.X.shape[1],
                "test_accuracy": graph.test_accuracy,
                "exact": exact,
                "runs": runs,
            }
        )
    print(
        f"written to {save('paper_index', {'k': K, 'partitions': 50, 'clusters': 10, 'graphs': results})}"
    )


if __name__ == "__main__":
    main()
