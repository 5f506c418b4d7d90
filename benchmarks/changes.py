"""How long do changes of one row take, each followed by a search, where 100,000 and 3,000,000 rows are stored?

A row is relabelled, removed and added again (as an upsert) by its id, and its vector replaced by a near one ("update")
and by that of another row ("move"). Each change is followed by a search of one query,
which derives the data of the changed lists again, and by a second search, which is warm. The first lookup of an id maps
all ids; it is timed on its own. In the end the results are compared with those of a copy, which carries no data over.
Wanted for a change with the search after it: 0.5 ms at 100,000 rows, 2 ms at 3,000,000.

    python benchmarks/changes.py
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import faiss
import numpy as np
from common import save
from numpy.typing import NDArray
from single_query import synthetic

import cfe_faiss as cfe

SHAPES = ((100_000, 128, 0.5), (3_000_000, 16, 2.0))
CHANGES = 300  # of each kind
K, NPROBE, QUERIES = 10, 16, 200
_PER_LIST = 40  # rows to train with
Step = Callable[[int], object]


def steps_of(index: Any, X: NDArray[np.float32], labels: NDArray[np.int64]) -> dict[str, Step]:
    """Return the changes of the row with a given id, by name. Each leaves the row in the index."""

    def add(i: int) -> None:
        index.add_with_labels(X[i : i + 1], labels[i : i + 1], [i])

    def upsert(i: int) -> None:
        index.remove_ids([i])
        add(i)

    return {
        "relabel": lambda i: index.relabel([int(labels[i] + 1) % 7], [i]),
        "remove": lambda i: index.remove_ids([i]),
        "add": add,
        "upsert": upsert,
        "update": lambda i: index.update_vectors(
            [i], 0.99 * X[i : i + 1] + 0.01 * X[i - 1 : i or None]
        ),
        "move": lambda i: index.update_vectors([i], X[i - 1 : i or None]),
    }


def seconds(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def quantiles(times: NDArray[np.float64]) -> dict[str, float]:
    half, most = np.quantile(times, [0.5, 0.99]).tolist()
    return {"median_us": 1e6 * half, "p99_us": 1e6 * most, "max_us": 1e6 * float(times.max())}


def measure(n: int, d: int, wanted_ms: float, changes: int = CHANGES) -> dict[str, Any]:
    faiss.omp_set_num_threads(1)
    X, labels = synthetic(n, d)
    index = cfe.IndexEvidenceIVF(d, 4 * int(n**0.5))
    index.cp.niter = 4
    index.train(X[: _PER_LIST * index.nlist])
    index.add_with_labels(X, labels)

    def search() -> None:
        index.search_evidence(X[:1], labels[:1], K, NPROBE)

    search()
    steps = steps_of(index, X, labels)
    result = {"n": n, "d": d, "nlist": index.nlist, "wanted_ms": wanted_ms}
    result["first_lookup_seconds"] = seconds(lambda: index.reconstruct(0))
    chosen = np.random.default_rng(1).permutation(n)[:changes].tolist()
    kinds: dict[str, Any] = {}
    for name, step in steps.items():
        times = np.array(
            [[seconds(partial(step, i)), seconds(search), seconds(search)] for i in chosen]
        )
        kinds[name] = {
            "change": quantiles(times[:, 0]),
            "change_and_search": quantiles(times[:, 0] + times[:, 1]),
            "warm_search": quantiles(times[:, 2]),
        }
        print(f"{n:,} x {d}, {name}: {kinds[name]}", flush=True)
    copy = cfe.clone_index(index)
    pick = np.random.default_rng(2).permutation(n)[:QUERIES].tolist()
    found = [
        [one.search_evidence(X[i : i + 1], labels[i : i + 1], K, NPROBE) for i in pick]
        for one in (index, copy)
    ]
    equal = all(
        np.array_equal(a, b)
        for ours, other in zip(*found, strict=True)
        for a, b in zip(ours, other, strict=True)
    )
    return {**result, "changes": kinds, "same_results_as_a_copy": equal}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changes", type=int, default=CHANGES, help="of each kind")
    parser.add_argument("--name", default="changes", help="of the result")
    args = parser.parse_args(argv)
    runs = [measure(*shape, args.changes) for shape in SHAPES]
    print(f"written to {save(args.name, {'runs': runs})}")


if __name__ == "__main__":
    main()
