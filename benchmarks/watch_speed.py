"""What does `watch` cost when one row is added, beside a plain add and one evidence search for the same row?

100,000 rows of 384 dimensions, five classes, an inverted file of 512 lists, one thread. In turns, one row
is added with `watch=` to one store, and searched by `evidence` in as many lists and then added to an equal store.
Wanted: the 99th percentile of the first is at most that of the second. And how many of the rows that `exact=True`
would report are reported.

    python benchmarks/watch_speed.py [turns]
"""

import sys
import time
from copy import copy
from typing import Any

import faiss
import numpy as np
from common import save

import cfe_faiss as cfe
from cfe_faiss.store import Watch

N, D, CLASSES, LATENT, NLIST = 100_000, 384, 5, 12, 512
K = 10
RECALL = 0.99
TURNS = 600
PARTS = 5
PROBES = 500
RATE = 0.05


def rows(n: int, seed: int) -> tuple[Any, Any]:
    """Return rows that lie near a plane of few dimensions, as embeddings do, and their classes."""
    axes = np.random.default_rng(0).normal(size=(LATENT, D))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, LATENT)) @ axes + rng.normal(size=(n, D))
    return X.astype(np.float32), rng.integers(CLASSES, size=n)


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else TURNS
    X, labels = rows(N, 1)
    store = cfe.EvidenceStore(D, f"EvidenceIVF{NLIST},Flat")
    store.index.cp.niter = 5
    store.train(X)
    store.add([f"{i}" for i in range(N)], X, labels)
    lists = store.index.nprobe_for(RECALL, K)  # as many as `watch` probes
    print(f"{lists} lists", flush=True)
    threshold = store.similarity_curve(sample=2000).threshold(RATE)
    watch = Watch(threshold, K)
    times: dict[str, list[float]] = {"watch": [], "search, then add": []}
    twin = copy(
        store
    )  # so that both change alike, and renew what they derive from the rows at the same turns
    faiss.omp_set_num_threads(1)
    for turn, (x, label) in enumerate(zip(*rows(turns, 2), strict=True)):
        row = [f"new-{turn}"], x[None], [int(label)]
        start = time.perf_counter()
        store.add(*row, watch=watch)
        middle = time.perf_counter()
        twin.evidence(x, K, int(label), nprobe=lists, threshold=threshold)
        twin.add(*row)
        times["watch"].append(middle - start)
        times["search, then add"].append(time.perf_counter() - middle)
    hits = exact = 0
    for x, label in zip(*rows(PROBES, 3), strict=True):
        wanted = store.evidence(x, K, int(label), exact=True).ids
        (found,) = store.add(["probe"], x[None], [int(label)], watch=Watch(-1.0, K)) or []
        store.delete(["probe"])
        hits += len(set(found.ids) & set(wanted))
        exact += len(wanted)
    skip = turns // 20  # first use
    quantiles = {
        name: {str(q): float(np.quantile(values[skip:], q)) for q in (0.5, 0.9, 0.99)}
        for name, values in times.items()
    }
    parts = {name: np.array_split(values[skip:], PARTS) for name, values in times.items()}
    ratios = [
        float(np.quantile(a, 0.99) / np.quantile(b, 0.99))
        for a, b in zip(*parts.values(), strict=True)
    ]
    content = {
        "rows": N,
        "d": D,
        "lists": NLIST,
        "nprobe": lists,
        "turns": turns - skip,
        "rate": RATE,
        "seconds": quantiles,
        "ratios of p99": ratios,
        "recall": hits / exact,
    }
    print(content)
    print(f"written to {save('watch_speed', content)}")


if __name__ == "__main__":
    main()
