"""What does an EvidenceStore cost on top of the index below it?

Evidence of one query at a time through a store over an inverted file, next to the same search of its index by
``search_evidence`` (the vector is at hand) and by ``search_stored`` (the index looks it up): wanted is at most 50 us
more a query. Searches among the rows that a filter leaves, next to a stock IndexFlatIP whose search takes the ready
bitmap of these rows. Then adding, saving and loading, next to the index alone. All in turns; single queries by the
processor's clock, as the machine may be shared.

    python benchmarks/store.py
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np
from common import paired_times, save

import cfe_faiss as cfe

N, D, NLIST, K, ROUNDS, QUERIES = 100_000, 384, 256, 10, 5, 2000
CLASSES, CLUSTERS = ("billing", "delivery", "praise", "returns"), 200
SELECTIVITIES = (0.5, 0.1, 0.01, 0.001)
WANTED_US = 50.0
_PARTS = 1000


class Rows:
    """Clustered vectors with ids, classes that mostly follow the clusters, metadata and texts."""

    def __init__(self, n: int, d: int) -> None:
        rng = np.random.default_rng(0)
        cluster = rng.integers(0, CLUSTERS, n)
        centres = rng.normal(size=(CLUSTERS, d)).astype(np.float32)
        self.X = centres[cluster] + 1.5 * rng.standard_normal((n, d), dtype=np.float32)
        self.X /= np.linalg.norm(self.X, axis=1, keepdims=True)
        self.numbers = np.where(rng.random(n) < 0.9, cluster, rng.integers(0, CLUSTERS, n)) % len(
            CLASSES
        )
        self.part = rng.integers(0, _PARTS, n)
        self.ids = [f"document-{i}" for i in range(n)]
        self.labels = [CLASSES[number] for number in self.numbers]
        self.metadata = [
            {"part": part, "lang": "de" if part % 2 else "en", "source": f"https://example.org/{i}"}
            for i, part in enumerate(self.part.tolist())
        ]
        self.documents = [
            f"The text of document {i}, as long as a sentence or two are." for i in range(n)
        ]

    def put(self, store: cfe.EvidenceStore) -> None:
        store.add(self.ids, self.X, self.labels, self.metadata, self.documents)


def single_queries(rows: Rows, nlist: int, queries: int) -> dict[str, Any]:
    """Time each query with each way in turn, by the processor's clock; return the median microseconds of a query."""
    store = cfe.EvidenceStore(rows.X.shape[1], f"EvidenceIVF{nlist},Flat", CLASSES)
    store.index.cp.niter = 5
    store.train(rows.X)
    rows.put(store)
    index, found = store.index, 0
    keys, numbers = np.arange(len(rows.X))[:, None], rows.numbers[:, None]
    ways: dict[str, Callable[[int], Any]] = {
        "index.search_evidence": lambda i: index.search_evidence(rows.X[i : i + 1], numbers[i], K),
        "index.search_stored": lambda i: index.search_stored(keys[i], K),
        "store.evidence, a vector": lambda i: store.evidence(rows.X[i], K, label=rows.labels[i]),
        "store.evidence, an id": lambda i: store.evidence(rows.ids[i], K),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for i in [*range(20), *range(queries)]:  # the first ones are thrown away
        names = list(ways)
        for name in (
            names[i % len(names) :] + names[: i % len(names)]
        ):  # who comes first finds the caches cold
            start = time.process_time()
            ways[name](i)
            seconds[name].append(time.process_time() - start)
        found += len(store.evidence(rows.ids[i], K))
    us = {name: 1e6 * median(values[20:]) for name, values in seconds.items()}
    return {
        "nlist": nlist,
        "nprobe": index.nprobe,
        "us_per_query": us,
        "us_more": us["store.evidence, a vector"] - us["index.search_evidence"],
        "us_more_by_id": us["store.evidence, an id"] - us["index.search_stored"],
        "complete": found == K * (20 + queries),
    }


def filtered(rows: Rows, rounds: int) -> tuple[list[dict[str, Any]], float]:
    """Time searches under filters; return them, and the seconds of the first one, which sorts the column out."""
    store, stock = cfe.EvidenceStore(rows.X.shape[1]), faiss.IndexFlatIP(rows.X.shape[1])
    rows.put(store)
    stock.add(rows.X)
    start = time.perf_counter()
    store.count({"part": {"$lt": 1}})
    first = time.perf_counter() - start
    queries = range(10)
    results = []
    for share in (1.0, *SELECTIVITIES):
        below = int(share * _PARTS)
        where, mask = None if share == 1 else {"part": {"$lt": below}}, rows.part < below
        bits = np.packbits(mask, bitorder="little")
        params = faiss.SearchParameters(sel=faiss.IDSelectorBitmap(bits)) if share < 1 else None
        functions: dict[str, Callable[[], list[Any]]] = {
            "store.search": lambda where=where: [
                store.search(rows.X[q], K, where).ids for q in queries
            ],  # type: ignore[misc]
            "store.evidence": lambda where=where: [
                store.evidence(rows.ids[q], K, where=where).ids for q in queries
            ],  # type: ignore[misc]
            "stock search": lambda params=params: [
                stock.search(rows.X[q : q + 1], K, params=params) for q in queries
            ],  # type: ignore[misc]
        }
        medians, _ = paired_times(functions, rounds)
        ms = {name: 1e3 * value / len(queries) for name, value in medians.items()}
        exact = [
            [rows.ids[i] for i in stock.search(rows.X[q : q + 1], K, params=params)[1][0] if i >= 0]
            for q in queries
        ]
        same = np.mean(
            [set(a) == set(b) for a, b in zip(functions["store.search"](), exact, strict=True)]
        )
        results.append(
            {
                "share": share,
                "rows": int(mask.sum()),
                "ms_per_query": ms,
                "same_results": float(same),
            }
        )
    return results, first


def whole(rows: Rows, rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    """Time adding, saving and loading everything, through a store and of the index alone."""
    stores: dict[str, Any] = {}

    def add_to_store() -> None:
        stores["store"] = cfe.EvidenceStore(rows.X.shape[1])
        rows.put(stores["store"])

    def add_to_index() -> None:
        stores["index"] = cfe.IndexEvidenceFlat(rows.X.shape[1])
        stores["index"].add_with_labels(rows.X, rows.numbers)

    steps: dict[str, dict[str, Callable[[], Any]]] = {
        "add": {"store": add_to_store, "index": add_to_index},
        "save": {
            "store": lambda: stores["store"].save(folder / "store"),
            "index": lambda: cfe.write_index(stores["index"], folder / "index"),
        },
        "load": {
            "store": lambda: cfe.EvidenceStore.load(folder / "store"),
            "index": lambda: cfe.read_index(folder / "index"),
        },
    }
    return {step: paired_times(functions, rounds)[0] for step, functions in steps.items()}


def measure(n: int, d: int, nlist: int, queries: int, rounds: int) -> dict[str, Any]:
    rows = Rows(n, d)
    searches, first = filtered(rows, rounds)
    with tempfile.TemporaryDirectory() as folder:
        seconds = whole(rows, rounds, Path(folder))
    return {
        "rows": n,
        "dimension": d,
        "k": K,
        "wanted_us": WANTED_US,
        "single": single_queries(rows, nlist, queries),
        "filtered": searches,
        "first_filter_seconds": first,
        "seconds": seconds,
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=N)
    parser.add_argument("--dimension", type=int, default=D)
    parser.add_argument("--nlist", type=int, default=NLIST)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    args = parser.parse_args(argv)
    result = measure(args.rows, args.dimension, args.nlist, args.queries, args.rounds)
    for name, value in result.items():
        print(f"{name}: {value}")
    print(f"written to {save('store', result)}")


if __name__ == "__main__":
    main()
