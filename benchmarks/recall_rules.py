"""Does ``recall=`` keep its promise under every rule? Measured on several data sets, metrics, rules and queries.

The mean recall of all queries must reach the target, and that of each class with at least 100 stored rows the target
less 0.01. Rows must be complete. New queries are few, so their mean may fall short by two standard errors.

    python benchmarks/recall_rules.py                    # writes results/recall_rules.json and prints what falls short
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from common import save
from numpy.typing import NDArray

import cfe_faiss as cfe

ROWS, NEW, CLASSES, NLIST, K = 6000, 400, 4, 77, 10
TARGETS = 0.9, 0.97
CLASS_SLACK, LEAST_CLASS = 0.01, 100


def data_sets(rng: np.random.Generator, rows: int) -> dict[str, NDArray[np.float32]]:
    """Return vectors around centres, near a subspace, and without structure."""
    centres = rng.normal(size=(50, 24))
    near_subspace = rng.normal(size=(rows, 6)) @ rng.normal(size=(6, 32)) + 0.2 * rng.normal(
        size=(rows, 32)
    )
    around_centres = centres[rng.integers(0, 50, rows)] + 0.7 * rng.normal(size=(rows, 24))
    vectors = {
        "clusters": around_centres,
        "subspace": near_subspace,
        "noise": rng.normal(size=(rows, 12)),
    }
    return {name: X.astype(np.float32) for name, X in vectors.items()}


def labels_of(rng: np.random.Generator, X: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return classes of which some follow the vectors; every 40th row has none."""
    labels = rng.integers(0, CLASSES, len(X))
    labels = np.where(X[:, 0] > 0, labels % 2, labels)
    return np.where(np.arange(len(X)) % 40 == 0, -1, labels)


def rules_for(index: Any, metric: str) -> dict[str, dict[str, Any]]:
    """Return rules by name; True stands for values that depend on the queries."""
    D, I = index.search_stored(k=40, exact=True)
    near, middle, far = (float(np.median(D[I[:, 0] >= 0, place])) for place in (2, 10, 30))
    end = -np.inf if metric != "l2" else np.inf
    return {
        "none": {},
        "any": {"neighbors": "any"},
        "own": {"neighbors": "own"},
        "ids": {"exclude": True},
        "labels": {"exclude_labels": True},
        "within, near": {"within": tuple(sorted((far, -end)))},
        "within, middle": {"within": tuple(sorted((near, far)))},
        "within, far": {"within": tuple(sorted((middle, end)))},
        "any, ids": {"neighbors": "any", "exclude": True},
        "any, within": {"neighbors": "any", "within": tuple(sorted((middle, end)))},
    }


def searches(
    index: Any, X: NDArray[np.float32], labels: NDArray[np.int64]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of a set of queries, its search function, and its classes."""
    stored, some = labels[:ROWS], np.arange(0, ROWS, 9)
    new = np.maximum(labels[ROWS:], 0)
    yield "all rows", lambda **how: index.search_stored(None, K, **how), stored
    yield "some rows", lambda **how: index.search_stored(some, K, **how), stored[some]
    yield "new", lambda **how: index.search_evidence(X[ROWS:], new, K, **how), new


def filled_in(search: Any, labels: NDArray[np.int64], rules: dict[str, Any]) -> dict[str, Any]:
    """Return rules for these queries: the five nearest ids, or another class, are excluded."""
    rules = dict(rules)
    if rules.get("exclude") is True:
        policy = {name: value for name, value in rules.items() if name == "neighbors"}
        rules["exclude"] = search(exact=True, **policy)[1][:, :5].copy()
    if rules.get("exclude_labels") is True:
        rules["exclude_labels"] = ((np.maximum(labels, 0) + 1) % 2)[:, None]
    return rules


def measure(
    search: Any, labels: NDArray[np.int64], target: float, rules: dict[str, Any]
) -> dict[str, Any]:
    """Return the mean recall, the least of a class, and what the promise lacks."""
    expected = search(exact=True, **rules)[1]
    found = search(recall=target, **rules)[1]
    wanted = (expected >= 0).sum(axis=1)
    hits = np.array([np.isin(a[a >= 0], b).sum() for a, b in zip(expected, found, strict=True)])
    recalls = hits[wanted > 0] / wanted[wanted > 0]
    of_queries = labels[wanted > 0]
    classes = [recalls[of_queries == label] for label in range(CLASSES)]
    least = min((part.mean() for part in classes if len(part) >= LEAST_CLASS), default=1.0)
    error = 2 * float(recalls.std() / np.sqrt(max(1, len(recalls))))
    return {
        "target": target,
        "mean": float(recalls.mean()),
        "least_class": float(least),
        "complete": bool(((found >= 0).sum(axis=1) == wanted).all()),
        "falls_short": bool(
            recalls.mean() < target - error or least < target - CLASS_SLACK - 2 * error
        ),
    }


def main() -> None:
    """Measure every combination and save the result."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    cells: list[dict[str, Any]] = []
    for metric in ("cosine", "ip", "l2"):
        rng = np.random.default_rng(1)
        for name, X in data_sets(rng, ROWS + NEW).items():
            labels, index = (
                labels_of(rng, X),
                cfe.IndexEvidenceIVF(X.shape[1], NLIST, metric=metric),
            )
            index.train(X[:ROWS])
            index.add_with_ids(X[:ROWS], np.arange(ROWS))
            index.relabel(labels[:ROWS])
            for rule, options in rules_for(index, metric).items():
                for queries, search, classes in searches(index, X, labels):
                    rules = filled_in(search, classes, options)
                    for target in TARGETS:
                        cell = {"data": name, "metric": metric, "rule": rule, "queries": queries}
                        cells.append(cell | measure(search, classes, target, rules))
                        if cells[-1]["falls_short"] or not cells[-1]["complete"]:
                            print(cells[-1], flush=True)
    print(f"{sum(cell['falls_short'] for cell in cells)} of {len(cells)} fall short")
    save("recall_rules", {"rows": ROWS, "nlist": NLIST, "k": K, "cells": cells})


if __name__ == "__main__":
    main()
