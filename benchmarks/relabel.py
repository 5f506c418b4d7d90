"""How long does it take to give stored vectors new classes, next to training and adding them, and to compare models?

1,000,000 x 128, 4,096 lists: all new classes, and 1,000 of them. Wanted: under 5 % of training and adding.

:func:`cfe_faiss.audit.compare_models` on 30,000 people, two threads, without tests: its time with two models less that
with one is the cost of a further model. Wanted: at most 1.2 times one ``relabel`` of an exact index and the search that
the comparison makes, for the k nearest of all rows or for all pairs above a similarity.

    python benchmarks/relabel.py
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import paired_times, save
from numpy.typing import NDArray
from single_query import synthetic

import cfe_faiss as cfe
from cfe_faiss import audit

N, D, NLIST = 1_000_000, 128, 4096
PEOPLE, COLUMNS, K, REPEATS = 30_000, 32, 10, 5
PAIRS = 50_000  # about the number of pairs above the similarity


def new_classes() -> dict[str, Any]:
    """Time new classes for stored vectors."""
    X, labels = synthetic(N, D)
    index = cfe.IndexEvidenceIVF(D, NLIST)
    seconds = {}
    for name, step in (
        ("train", lambda: index.train(X)),
        ("add", lambda: index.add_with_labels(X, labels)),
        ("relabel", lambda: index.relabel((labels * 3 + 1) % 7)),
        ("relabel 1,000", lambda: index.relabel(np.zeros(1000, int), np.arange(1000))),
    ):
        start = time.perf_counter()
        step()
        seconds[name] = time.perf_counter() - start
        print(f"{name}: {seconds[name]:.2f} s")
    share = seconds["relabel"] / (seconds["train"] + seconds["add"])
    print(f"relabelling takes {share:.1%} of training and adding")
    return {"n": N, "d": D, "nlist": NLIST, "seconds": seconds, "share": share}


def models(
    number: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], list[NDArray[np.int64]]]:
    """Return people and the classes that some models predict, which differ for 5 % of the people."""
    X = rng.normal(size=(PEOPLE, COLUMNS)).astype(np.float32)
    first = (X[:, 0] + 0.3 * rng.normal(size=PEOPLE) > 0).astype(np.int64)
    return X, [
        np.where(rng.random(PEOPLE) < 0.05, 1 - first, first) if i else first for i in range(number)
    ]


def compared() -> dict[str, dict[str, float]]:
    """Time the comparison of models, and what one further model must cost at least."""
    X, (first, second, third) = models(3, np.random.default_rng(0))
    finder = cfe.EvidenceFinder.from_vectors(X, first)
    index = cfe.IndexEvidenceFlat(COLUMNS)
    index.add_with_labels(X, first)
    threshold = float(cfe.global_evidence(index, k=PAIRS).similarity[-1])
    searches: dict[str, tuple[dict[str, Any], Callable[[], object]]] = {
        "k nearest": ({"k": K}, lambda: index.search_stored(None, K)),
        "threshold": ({"threshold": threshold}, lambda: list(cfe.evidence_pairs(index, threshold))),
    }
    seconds = {}
    for name, (how, search) in searches.items():

        def relabel_and_search(search: Callable[[], object] = search) -> None:
            index.relabel(second)
            search()

        steps = {
            "one model": partial(audit.compare_models, finder, {"v2": second}, **how),
            "two models": partial(audit.compare_models, finder, {"v2": second, "v3": third}, **how),
            "relabel and search": relabel_and_search,
        }
        seconds[name] = paired_times(steps, REPEATS)[0]
        seconds[name]["further model"] = seconds[name]["two models"] - seconds[name]["one model"]
        seconds[name]["ratio"] = (
            seconds[name]["further model"] / seconds[name]["relabel and search"]
        )
        print(name, seconds[name], flush=True)
    return seconds


def main() -> None:
    of_models = {
        "people": PEOPLE,
        "columns": COLUMNS,
        "k": K,
        "pairs": PAIRS,
        "seconds": compared(),
    }
    print(f"written to {save('relabel', {**new_classes(), 'models': of_models})}")


if __name__ == "__main__":
    main()
