"""How long does the paper's preset take to train and add on Facebook, next to plain k-means?

The peer: 50 plain ``faiss.Kmeans`` of 10 centroids with as many iterations over all vectors, spherical, each seeded
anew; and the assignment of all vectors to the centroids, which adding needs. In turns. Wanted: no slower than the
k-means. As faiss.Kmeans is called by default, it takes a sample of 256 vectors a centroid: told beside.

    CFE_DATA=... python benchmarks/paper_preset.py
"""

import argparse
from typing import Any

import faiss
import numpy as np
from common import paired_times, save
from numpy.typing import NDArray

import cfe_faiss as cfe

PARTITIONS, CLUSTERS = 50, 10
REPEATS = 5


def ours(
    X: NDArray[np.float32], labels: NDArray[np.int64], partitions: int
) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF.paper(X.shape[1], partitions, CLUSTERS)
    index.train(X)
    index.add_with_labels(X, labels)
    return index


def kmeans(
    X: NDArray[np.float32], niter: int, partitions: int, sampled: bool, assigned: bool
) -> None:
    most = 256 if sampled else len(X)
    for seed in range(partitions):
        kept = faiss.Kmeans(
            X.shape[1],
            CLUSTERS,
            niter=niter,
            spherical=True,
            seed=seed + 1,
            max_points_per_centroid=most,
        )
        kept.train(X)
        if assigned:
            kept.assign(X)


def compare(
    X: NDArray[np.float32], labels: NDArray[np.int64], partitions: int, repeats: int
) -> dict[str, Any]:
    niter = cfe.IndexEvidenceIVF.paper(X.shape[1]).cp.niter
    results = {}
    for threads in (1, 2):
        faiss.omp_set_num_threads(threads)
        medians, times = paired_times(
            {
                "ours": lambda: ours(X, labels, partitions),
                "kmeans": lambda: kmeans(X, niter, partitions, False, False),
                "kmeans, assigned": lambda: kmeans(X, niter, partitions, False, True),
                "kmeans, sampled": lambda: kmeans(X, niter, partitions, True, False),
            },
            repeats,
        )
        ratios = {
            name: medians["ours"] / value for name, value in medians.items() if name != "ours"
        }
        results[str(threads)] = {"median_seconds": medians, "seconds": times, "ours_takes": ratios}
        print(f"{threads} threads: {medians}", flush=True)
    return {"niter": niter, "partitions": partitions, "clusters": CLUSTERS, "threads": results}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=REPEATS)
    args = parser.parse_args(argv)
    import graphs

    graph = graphs.graph("facebook")
    found = compare(graph.X, graph.labels, PARTITIONS, args.repeats)
    print(f"written to {save('paper_preset', {'graph': graph.name, **found})}")


if __name__ == "__main__":
    main()
