"""The time of ``per_group``: at most m results of a class, against a plain search and against sorting all rows.

Rows are chunks of documents, which are their classes, in clusters: chunks of a document are near each other. The other
way sorts all rows of each query and drops the excess in Python. Both give the same ids, which is checked.

    python benchmarks/per_group.py     # writes results/per_group.json
"""

import time
from typing import Any

import faiss
import numpy as np
from common import paired_times, save, table
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import cfe_faiss as cfe
from cfe_faiss.base.threads import use_threads

TITLE = "At most m results of a class"

ROWS, DIMENSION, CHUNKS, QUERIES, K = 20_000, 128, 20, 30, 10
LIMITS, SORTED, REPEATS = (1, 2, 5), 2, 3


def greedy(
    I: NDArray[np.int64], labels: NDArray[np.int64], limit: int, k: int
) -> NDArray[np.int64]:
    """Return the first k ids of each row with at most ``limit`` of a class."""
    result = []
    for ranking in I.tolist():
        counts: dict[int, int] = {}
        chosen = []
        for id_ in ranking:
            label = int(labels[id_])
            counts[label] = counts.get(label, 0) + 1
            if counts[label] <= limit:
                chosen.append(id_)
            if len(chosen) == k:
                break
        result.append(chosen)
    return np.array(result)


def measure(spread: float, rows: int = ROWS, repeats: int = REPEATS) -> dict[str, Any]:
    """Return times per query in ms, for chunks that lie around their document with a spread."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(rows // CHUNKS), CHUNKS)
    centres = rng.normal(size=(rows // CHUNKS, DIMENSION))
    X = (centres[labels] + spread * rng.normal(size=(rows, DIMENSION))).astype(np.float32)
    xq = (centres[:QUERIES] + spread * rng.normal(size=(QUERIES, DIMENSION))).astype(np.float32)
    index = cfe.IndexEvidenceFlat(DIMENSION)
    index.add_with_labels(X, labels)

    def search(k: int = K, **options: Any) -> Any:
        return index.search_evidence(xq, None, k, neighbors="any", **options)[1]

    functions: dict[Any, Any] = {"plain": search}
    for limit in LIMITS:
        functions[f"per_group={limit}"] = lambda limit=limit: search(per_group=limit)
    ranking = search(rows)
    for limit in LIMITS:
        np.testing.assert_array_equal(search(per_group=limit), greedy(ranking, labels, limit, K))
    functions["all rows sorted"] = lambda: greedy(search(rows), labels, SORTED, K)
    medians, _ = paired_times(functions, repeats, time.process_time)
    times = {name: 1000 * seconds / QUERIES for name, seconds in medians.items()}
    return {"spread": spread, "rows": rows, "milliseconds": times}


def page(content: dict[str, Any]) -> str:
    rows = []
    for cell in content["sets"]:
        times = cell["milliseconds"]
        ratios = (f"{time:.3g} ({time / times['plain']:.2g}x)" for time in times.values())
        rows.append((f"{cell['spread']:g}", *ratios))
    head = ("spread", *content["sets"][0]["milliseconds"])
    return (
        f"Exact top-{content['k']} search of {content['queries']} queries among {content['sets'][0]['rows']:,} chunks, "
        f"{content['chunks']} of each document, with at most m chunks of a document. Chunks lie around their document "
        "with a spread relative to that of the documents. Processor time in ms for each query, in turns on one thread; "
        "in brackets, how many times that of a plain search without a limit. The last column is the other way to the "
        "same ids: to sort all rows and drop the excess, for m = 2.\n\n" + table(head, rows)
    )


def main() -> None:
    """Measure near and far chunks on one thread and save the result."""
    use_threads(1)
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        save(
            "per_group",
            {"k": K, "chunks": CHUNKS, "queries": QUERIES, "sets": [measure(0.3), measure(1.5)]},
        )


if __name__ == "__main__":
    main()
