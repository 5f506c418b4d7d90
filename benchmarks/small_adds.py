"""How long do 10,000 adds of one vector take where 100,000 are stored, next to stock indexes?

Ours and the stock index take turns, some hundred adds each. What the first search after them takes longer than the
second is told as well: nothing is saved by leaving the work to it. Results are compared with those of an index to which
everything was added at once. Then each add to the inverted file is followed by a search of one query. Wanted: at most
10 times as long as the stock index takes.

    python benchmarks/small_adds.py
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from common import save
from numpy.typing import NDArray
from single_query import synthetic

import cfe_faiss as cfe

STORED, ADDS, D = 100_000, 10_000, 128
TURN = 500
SEARCHED = 1000  # adds that are each followed by a search
K, NPROBE, QUERIES = 10, 16, 300
WANTED = 10.0
_WARM = 1000
Add = Callable[[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]], object]


def stock_ivf(X: NDArray[np.float32], nlist: int) -> Any:
    index = faiss.IndexIVFFlat(
        faiss.IndexFlatIP(X.shape[1]), X.shape[1], nlist, faiss.METRIC_INNER_PRODUCT
    )
    index.cp.spherical = True
    index.cp.niter = 10
    index.train(X)
    return index


def ours_ivf(X: NDArray[np.float32], nlist: int) -> Any:
    index = cfe.IndexEvidenceIVF(X.shape[1], nlist)
    index.cp.niter = 10
    index.train(X)
    return index


def in_turns(
    adders: dict[str, Add], X: NDArray[np.float32], labels: NDArray[np.int64], stored: int
) -> dict[str, float]:
    """Add what is stored at once, and the rest one by one; return the seconds of each for the latter."""
    ids = np.arange(len(X))
    for add in adders.values():
        add(X[:stored], labels[:stored], ids[:stored])
    seconds = dict.fromkeys(adders, 0.0)
    for begin in range(stored, len(X), TURN):
        for name, add in adders.items():
            start = time.perf_counter()
            for i in range(begin, min(begin + TURN, len(X))):
                add(X[i : i + 1], labels[i : i + 1], ids[i : i + 1])
            seconds[name] += time.perf_counter() - start
    return seconds


def searched_adds(
    ours: Any, stock: Any, X: NDArray[np.float32], labels: NDArray[np.int64]
) -> dict[str, float]:
    """Add vectors one by one and search for each after it was added; return the seconds that this takes each index."""
    stock.nprobe = NPROBE
    first = ours.ntotal
    seconds = {"ours": 0.0, "stock": 0.0}
    ours.search_evidence(X[:1], labels[:1], K, nprobe=NPROBE)
    for i in range(len(X)):
        x, label, own = X[i : i + 1], labels[i : i + 1], np.array([first + i])
        start = time.perf_counter()
        ours.add_with_labels(x, label, own)
        ours.search_evidence(x, label, K, nprobe=NPROBE)
        middle = time.perf_counter()
        stock.add_with_ids(x, own)
        stock.search(x, K)
        seconds["ours"] += middle - start
        seconds["stock"] += time.perf_counter() - middle
    return seconds


def first_search(search: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a search finds, and how much longer it takes the first time."""
    start = time.perf_counter()
    search()
    first = time.perf_counter() - start
    start = time.perf_counter()
    found = search()
    return found, first - (time.perf_counter() - start)


def one_by_one(index: Any, X: NDArray[np.float32], labels: NDArray[np.int64], **effort: int) -> Any:
    found = [
        index.search_evidence(X[i : i + 1], labels[i : i + 1], K, **effort) for i in range(len(X))
    ]
    return tuple(np.concatenate(arrays) for arrays in zip(*found, strict=True))


def same(ours: Any, at_once: Any, search: Callable[[Any], Any]) -> bool:
    pairs = zip(search(ours), search(at_once), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


def measure(stored: int, adds: int, d: int) -> dict[str, Any]:
    faiss.omp_set_num_threads(1)
    if stored > _WARM:
        measure(_WARM, 100, d)  # loads and makes whatever is made once in a process
    X, labels = synthetic(stored + adds + SEARCHED, d)
    X, labels, searched = X[:-SEARCHED], labels[:-SEARCHED], (X[-SEARCHED:], labels[-SEARCHED:])
    nlist = 4 * int(stored**0.5)
    ids = np.arange(len(X))
    pick = np.random.default_rng(1).permutation(len(X))[:QUERIES]
    pairs: dict[str, tuple[Callable[[], Any], Any, Callable[[Any], Any]]] = {
        "ivf": (
            lambda: ours_ivf(X[:stored], nlist),
            stock_ivf(X[:stored], nlist),
            lambda index: one_by_one(index, X[pick], labels[pick], nprobe=NPROBE),
        ),
        "flat": (
            lambda: cfe.IndexEvidenceIDMap2(d),
            faiss.IndexIDMap2(faiss.IndexFlatIP(d)),
            lambda index: one_by_one(index, X[pick], labels[pick]),
        ),
    }
    result = {}
    for kind, (make, stock, search) in pairs.items():
        ours, at_once = make(), make()
        adders: dict[str, Add] = {
            "ours": lambda x, y, i, index=ours: index.add_with_labels(x, y, i),  # type: ignore[misc]
            "stock": lambda x, _, i, index=stock: index.add_with_ids(x, i),  # type: ignore[misc]
        }
        seconds = in_turns(adders, X, labels, stored)
        found, settled = first_search(lambda index=ours, search=search: search(index))  # type: ignore[misc]
        at_once.add_with_labels(X, labels, ids)
        equal = same(ours, at_once, search) and same(
            ours, at_once, lambda index: index.search_stored(pick, K)
        )
        result[kind] = {
            "seconds": seconds,
            "us_per_add": {name: 1e6 * value / adds for name, value in seconds.items()},
            "first_search_longer_by": settled,
            "ratio": (seconds["ours"] + max(settled, 0.0)) / seconds["stock"],
            "results_as_if_added_at_once": bool(equal and len(found[0]) == len(pick)),
        }
        if kind == "ivf":
            seconds = searched_adds(ours, stock, *searched)
            result[kind]["us_per_add_and_search"] = {
                name: 1e6 * value / SEARCHED for name, value in seconds.items()
            }
        print(f"{stored:,} stored, {kind}: {result[kind]}", flush=True)
    return {
        "stored": stored,
        "adds": adds,
        "dimension": d,
        "nlist": nlist,
        "wanted": WANTED,
        "indexes": result,
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stored", type=int, default=STORED)
    parser.add_argument("--adds", type=int, default=ADDS)
    parser.add_argument("--dimension", type=int, default=D)
    parser.add_argument("--name", default="small_adds", help="of the result")
    args = parser.parse_args(argv)
    print(f"written to {save(args.name, measure(args.stored, args.adds, args.dimension))}")


if __name__ == "__main__":
    main()
