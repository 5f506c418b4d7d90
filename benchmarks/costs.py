"""What conditions, changes, shards and filters cost beside the search or the work that they save, and a query of FAISS.

One thread, processor time, calls in turns. Vectors are clusters of normal ones, drawn at random.

- Top 10 of all rows of a table under ``exact`` and ``antiexact``, beside the same search without conditions.
- New classes of all vectors of an index, beside training it and adding them.
- A single query of a store, beside ``faiss.IndexFlatIP``; with a filter, beside FAISS's search of a bitmap of the rows.
- 100 rows put into a store in place of others, beside making the store.
- Single queries of an index in shards that each read new lists, beside the same queries again.

    python benchmarks/costs.py
"""

import tempfile
import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from common import paired_times, save, table
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

TITLE = "What conditions and changes cost"

REPEATS = 7
TABLE, ROWS, VECTORS = 20_000, 100_000, 200_000
Floats = NDArray[np.float32]


def clusters(n: int, d: int) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, d))[rng.integers(0, 500, n)] + rng.normal(size=(n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), rng.integers(0, 3, n)


def ratio(ours: Callable[[], object], other: Callable[[], object], repeats: int = REPEATS) -> Any:
    """Return the seconds of both, and how many times as long ours takes."""
    median, _ = paired_times({"ours": ours, "other": other}, repeats, time.process_time)
    return {**median, "ratio": median["ours"] / median["other"]}


def timed(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def compared(ours: float, other: float) -> dict[str, float]:
    return {"ours": ours, "other": other, "ratio": ours / other}


def conditions() -> Any:
    X, labels = clusters(TABLE, 18)
    rng = np.random.default_rng(1)
    people = {"sex": rng.choice(["f", "m"], TABLE), "town": rng.choice(list("abcde"), TABLE)}
    finder = cfe.EvidenceFinder.from_vectors(X, labels, features=people)
    where = cfe.Constraints(exact="sex", antiexact="town")
    return ratio(lambda: finder.local(k=10, where=where), lambda: finder.local(k=10), 3)


def relabelled() -> Any:
    X, labels = clusters(VECTORS, 64)
    index = cfe.IndexEvidenceIVF(64, nlist=1024)
    made = timed(lambda: index.train(X)) + timed(lambda: index.add_with_labels(X, labels))
    return compared(timed(lambda: index.relabel((labels + 1) % 3)), made)


def store_and_faiss() -> dict[str, Any]:
    X, labels = clusters(ROWS, 384)
    ids = [f"row {number}" for number in range(ROWS)]
    years = np.random.default_rng(1).integers(2000, 2025, ROWS)
    metadata = [{"year": int(year)} for year in years]
    store, stock = cfe.EvidenceStore(384), faiss.IndexFlatIP(384)
    made = timed(lambda: store.add(ids, X, labels, metadata))
    stock.add(X)
    rows = np.flatnonzero(years == 2020)
    selected = faiss.SearchParameters(sel=faiss.IDSelectorBatch(rows))
    first = timed(lambda: store.search(X[0], k=10, where={"year": 2020}))
    later = ratio(
        lambda: store.search(X[0], k=10, where={"year": 2020}),
        lambda: stock.search(X[:1], 10, params=selected),
    )
    few = slice(0, 100)
    changed = timed(lambda: store.upsert(ids[few], X[few], labels[few], metadata[few]))
    return {
        "query": ratio(lambda: store.search(X[0], k=10), lambda: stock.search(X[:1], 10)),
        "first filter": compared(first, later["ours"]),
        "filter": later,
        "upsert": compared(changed, made),
    }


def new_lists() -> Any:
    X, labels = clusters(ROWS, 64)
    index = cfe.IndexEvidenceIVF(64, nlist=1024)
    index.train(X)
    index.add_with_labels(X, labels)
    with tempfile.TemporaryDirectory() as folder:
        write_shards(index, folder, shards=4)
        sharded = ShardedEvidenceIndex.open(folder)
        sharded.search_evidence(X[:1], labels[:1], 10, nprobe=1)  # makes what is made once
        chosen = np.random.default_rng(2).choice(ROWS, 200, replace=False)

        def query() -> None:
            for row in chosen:
                sharded.search_evidence(X[row : row + 1], labels[row : row + 1], 10, nprobe=1)

        first = timed(query)
        return compared(first, np.median([timed(query) for _ in range(REPEATS)]))


COSTS = {
    "conditions": ("top 10 of all rows, `exact` and `antiexact`", "without conditions"),
    "relabel": ("new classes of 200,000 vectors", "training and adding them"),
    "query": ("one query of a store of 100,000 rows", "`faiss.IndexFlatIP`"),
    "filter": ("the same with a filter", "FAISS with a selector of the rows"),
    "first filter": ("the first filter on a key", "a later one"),
    "upsert": ("100 rows put into a store in place of others", "making the store"),
    "new lists": ("queries that read new lists of a mapped index", "the same queries again"),
}


def page(content: dict[str, Any]) -> str:
    rows = []
    for name, (ours, other) in COSTS.items():
        times = content[name]
        seconds = (f"{1000 * times[key]:,.1f} ms" for key in ("ours", "other"))
        rows.append((ours, other, *seconds, f"{times['ratio']:.2g}"))
    return (
        "What conditions, changes, filters and mapped shards cost beside the work that they save, or beside a query of "
        "FAISS: processor time on one thread. Compare the ratios; times depend on the machine.\n\n"
        + table(("ours", "beside", "ours takes", "the other takes", "ratio"), rows)
    )


def main() -> None:
    faiss.omp_set_num_threads(1)
    found = {"conditions": conditions(), "relabel": relabelled(), **store_and_faiss()}
    print(f"written to {save('costs', found | {'new lists': new_lists()})}")


if __name__ == "__main__":
    main()
