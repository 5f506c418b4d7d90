"""How long does it take to find the 1,000 best pairs of a whole index, exactly, next to comparing all pairs?

Both give the same pairs with the same bits, which is checked. Also: all pairs above a threshold, streamed. The graphs:
Bail and Facebook, and a synthetic one of AmazonProducts' shape. At its full size only ours is run (wanted: at most
180 s on two cores), and the equality is checked on a random cut.

    CFE_DATA=... python benchmarks/global_pairs.py            # up to 100,000 nodes
    python benchmarks/global_pairs.py --nodes 1569960         # the full size, and a cut of 100,000
"""

import argparse
import os
import resource
import time
from collections.abc import Callable
from typing import Any

import graphs
import numpy as np
from common import save
from numpy.typing import NDArray
from synthetic_graphs import amazon_shape

import cfe_faiss as cfe
from cfe_faiss.search.exact import all_pairs, find_best

K = 1000
CUT = 100_000
SEED = 0
WANTED = 180.0


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def indexed(X: NDArray[np.float32], labels: NDArray[Any]) -> cfe.IndexEvidenceFlat:
    index = cfe.IndexEvidenceFlat(X.shape[1])
    index.add_with_labels(X, labels)
    return index


def ours(name: str, index: cfe.IndexEvidenceFlat) -> tuple[cfe.Pairs, dict[str, Any]]:
    pairs, seconds = timed(lambda: cfe.global_evidence(index, K))
    threshold = float(pairs.similarity[-1])
    streamed, stream_seconds = timed(lambda: sum(map(len, cfe.evidence_pairs(index, threshold))))
    if streamed < K:
        raise RuntimeError(f"{streamed} pairs were streamed, expected at least {K}")
    print(
        f"{name}: {index.ntotal:,} nodes: {seconds:.2f} s; above {threshold:.4f}, streamed: {stream_seconds:.2f} s"
    )
    return pairs, {
        "graph": name,
        "nodes": index.ntotal,
        "dimension": index.d,
        "seconds": seconds,
        "threshold": threshold,
        "stream_seconds": stream_seconds,
        "streamed": streamed,
        "load": os.getloadavg()[0],
    }


def compared(name: str, index: cfe.IndexEvidenceFlat) -> dict[str, Any]:
    cfe.global_evidence(index, K)  # whatever is slower the first time
    pairs, result = ours(name, index)
    expected, seconds = timed(lambda: find_best(all_pairs(index.storage()), K))
    found = pairs.source, pairs.target, pairs.similarity
    equal = all(np.array_equal(x, y) for x, y in zip(found, expected, strict=True))
    print(
        f"{name}: comparing all pairs {seconds:.2f} s: {seconds / result['seconds']:.1f}x; equal: {equal}"
    )
    if not equal:
        raise RuntimeError("the two results differ")
    return {
        **result,
        "comparing_all_seconds": seconds,
        "speedup": seconds / result["seconds"],
        "equal": equal,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=CUT, help="of the synthetic graph")
    parser.add_argument("--homophily", type=float, default=0.5, help="of the synthetic graph")
    arguments = parser.parse_args()
    data = amazon_shape(arguments.nodes, homophily=arguments.homophily, seed=SEED)
    X, labels = cfe.ks_vectors(data.x, data.graph), data.labels
    del data
    cut = np.sort(np.random.default_rng(SEED).permutation(len(X))[:CUT])
    results = [compared("amazon-synthetic", indexed(X[cut], labels[cut]))]
    if len(X) > CUT:
        index = indexed(X, labels)
        del X
        _, full = ours("amazon-synthetic", index)
        results.append({**full, "wanted_seconds": WANTED, "peak_gib": peak_gib()})
    else:
        for name in ("bail", "facebook"):
            graph = graphs.graph(name)
            results.append(compared(name, indexed(graph.X, graph.labels)))
    name = "global_pairs" if len(results) == 3 else "global_pairs_full"
    print(f"written to {save(name, {'k': K, 'homophily': arguments.homophily, 'graphs': results})}")


def peak_gib() -> float:
    """Return the largest resident size so far; Linux counts in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    main()
