"""How long does exact evidence of all nodes take, next to grouping the nodes by class over ``faiss.knn``?

The peer is what a FAISS user would write: for each class, ``faiss.knn`` of its nodes against all others. Ours
multiplies each unordered pair once. Wanted: no slower on Facebook.

    CFE_DATA=... python benchmarks/exact_all_nodes.py
"""

import faiss
import graphs
import numpy as np
from common import paired_times, save

import cfe_faiss as cfe

K = 10
REPEATS = 7


def by_class(X: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    D, I = np.empty((len(X), K), np.float32), np.empty((len(X), K), np.int64)
    for label in np.unique(labels):
        own, others = np.flatnonzero(labels == label), np.flatnonzero(labels != label)
        D[own], found = faiss.knn(X[own], X[others], K, metric=faiss.METRIC_INNER_PRODUCT)
        I[own] = others[found]
    return D, I


def main() -> None:
    results = []
    for name in graphs.NAMES:
        graph = graphs.graph(name)
        index = cfe.IndexEvidenceFlat(graph.X.shape[1])
        index.add_with_labels(graph.X, graph.labels)
        D, I = index.search_stored(k=K)
        peer_D, peer_I = by_class(graph.X, graph.labels)
        medians, times = paired_times(
            {
                "ours": lambda index=index: index.search_stored(k=K),  # type: ignore[misc]
                "faiss_knn_by_class": lambda graph=graph: by_class(graph.X, graph.labels),  # type: ignore[misc]
            },
            REPEATS,
        )
        ours, peer = medians["ours"], medians["faiss_knn_by_class"]
        print(f"{name}: ours {ours:.3f} s, faiss.knn by class {peer:.3f} s: {peer / ours:.2f}x")
        results.append(
            {
                "graph": name,
                "nodes": len(graph.X),
                "dimension": graph.X.shape[1],
                "median_seconds": medians,
                "seconds": times,
                "speedup": peer / ours,
                "peer_recall": cfe.metrics.recall(peer_I, I, peer_D, D),
                "largest_difference": float(np.abs(peer_D - D).max()),
            }
        )
    print(f"written to {save('exact_all_nodes', {'k': K, 'graphs': results})}")


if __name__ == "__main__":
    main()
