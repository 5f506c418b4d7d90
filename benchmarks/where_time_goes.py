"""Where does the time of an all-nodes search go, and what is left to gain?

One thread, processor time for a query, k = 10, at the settings that engine_short.json found for recall@10 >= 0.95 and
0.99, and in one list only: what is left then is the same for any recall. The parts are called one after the other, as
a search does. *Products* is the scan of the blocks where no row can be among the results: what is read and multiplied
at least. *Keeping rows* is the rest of the scan: thresholds, exact scores and their order.

    CFE_DATA=... python benchmarks/where_time_goes.py
"""

import json
import time
from collections.abc import Callable
from typing import Any

import faiss
import graphs
import numpy as np
from common import RESULTS, save
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import cfe_faiss as cfe
from cfe_faiss.search.derived import Derived, blocks_of
from cfe_faiss.search.lists import routed
from cfe_faiss.search.query import Queries

K = 10
GRAPHS = ("bail", "facebook")
REPEATS = 7
OUT_OF_REACH = np.float32(1e9)


def settings(name: str) -> list[tuple[int, int]]:
    """Return the number of lists and nprobe that were found for ours, for one recall after the other."""
    content = json.loads((RESULTS / "engine_short.json").read_text())
    found = next(graph for graph in content["graphs"] if graph["graph"] == name)["paired"]["all"]
    return [
        (rows["ours"]["parameters"]["nlist"], rows["ours"]["setting"]) for rows in found.values()
    ]


def least(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a function returns, and the least processor time of this thread that it took."""
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        result = function()
        times.append(time.thread_time() - start)
    return result, min(times)


def parts(index: Any, nprobe: int) -> dict[str, float]:
    """Return the seconds that each part of a search of all nodes takes."""
    lists = Derived.of(index.storage())
    storage, routes = lists.snapshot, lists.routes_for()
    queries = Queries.of_rows(storage, np.arange(storage.n))
    (groups, looked_into), grouped = least(lambda: routed(routes, queries, nprobe))
    X = storage.rows(groups.order)[0]
    sums = np.add.reduceat(X, groups.starts[:-1])
    means = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    _, routing = least(lambda: routes.lists(means, groups.labels, nprobe))
    labels = queries.labels[groups.order]

    blocks = lists.blocks or blocks_of(storage, lists.choice.batch)

    def scanned(D: NDArray[np.float32], I: NDArray[np.int64], resume: bool) -> None:
        blocks.search(X, labels, groups.starts, looked_into, groups.order, D, I, resume=resume)

    # With results that no row reaches, nothing is kept.
    _, full = least(
        lambda: scanned(
            np.full((len(X), K), OUT_OF_REACH), np.zeros((len(X), K), np.int64), resume=True
        )
    )
    D, I = np.empty((len(X), K), np.float32), np.empty((len(X), K), np.int64)
    _, scan = least(lambda: scanned(D, I, resume=False))
    _, whole = least(lambda: index.search_stored(k=K, nprobe=nprobe))
    told = {
        "groups": grouped - routing,
        "routing": routing,
        "products": full,
        "keeping rows": scan - full,
    }
    return {**told, "everything else": whole - sum(told.values()), "whole": whole}


def main() -> None:
    results = []
    for name in GRAPHS:
        graph = graphs.graph(name)
        found = settings(name)
        for nlist, nprobe in ((found[0][0], 1), *found):
            index = cfe.IndexEvidenceIVF(graph.X.shape[1], nlist)
            index.train(graph.X)
            index.add_with_labels(graph.X, graph.labels)
            index.complete = False
            exact_D, exact_I = index.search_stored(k=K, exact=True)
            D, I = index.search_stored(k=K, nprobe=nprobe)
            recall = cfe.metrics.recall(I, exact_I, D, exact_D)
            faiss.omp_set_num_threads(1)
            with threadpool_limits(1):
                index.search_stored(k=K, nprobe=nprobe)  # makes what searches keep
                seconds = parts(index, nprobe)
            rows = {part: 1e6 * value / len(graph.X) for part, value in seconds.items()}
            results.append(
                {"graph": name, "recall": recall, "nlist": nlist, "nprobe": nprobe, "us": rows}
            )
            print(results[-1], flush=True)
    save("where_time_goes", {"question": __doc__.splitlines()[0], "results": results})


if __name__ == "__main__":
    main()
