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
from common import save, table

import cfe_faiss as cfe
from cfe_faiss.store import Watch

TITLE = "Evidence when a row is added"

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


def page(content: dict[str, Any]) -> str:
    rows = [
        (name, *(f"{1000 * seconds:.2f} ms" for seconds in quantiles.values()))
        for name, quantiles in content["seconds"].items()
    ]
    ratios = content["ratios of p99"]
    p99, medians = (
        [quantiles[q] for quantiles in content["seconds"].values()] for q in ("0.99", "0.5")
    )
    return (
        f"One row is added to a store of {content['rows']:,} x {content['d']} with {content['lists']} lists, "
        f"{content['turns']:,} times with `watch=` and, in turns, as many times after an `evidence` search in as many "
        f"lists ({content['nprobe']}, for a recall of .99) with the same k and threshold; one thread. `watch` measures "
        "this number when a tenth of the rows has changed, which is not in these times; `recall=` measures after every "
        "change. Wanted: the 99th percentile with `watch` is at most that of search and add. The ratio is "
        f"{p99[0] / p99[1]:.2f}, in fifths of the run {min(ratios):.2f} to {max(ratios):.2f}; of the medians "
        f"{medians[0] / medians[1]:.2f}. `watch` finds {content['recall']:.4f} of the exact ten rows. "
        "The slow turns of both are those in which a search renews what the index derives from its rows, after enough "
        "lists have changed; other processes shared the machine.\n\n"
        + table(("", "median", "p90", "p99"), rows)
    )


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
