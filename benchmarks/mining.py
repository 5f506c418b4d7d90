"""How long does mining take, next to the libraries that it equals, and are the results the same?

Each function of ``cfe_faiss.mining`` and its original take turns on the same rows: clusters with overlapping groups.
An original that is not installed is left out.

    pip install imbalanced-learn sentence-transformers datasets
    python benchmarks/mining.py

writes results/mining.json.
"""

import argparse
import time
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np
from common import save
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from cfe_faiss import mining

ROWS, D, GROUPS, K = 50_000, 128, 5, 3
THRESHOLD = 0.9
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Task = tuple[str, Callable[[], Any], Callable[[], Any], Callable[[Any, Any], bool]]


def rows(n: int, d: int, seed: int = 0) -> tuple[Floats, Ints]:
    """Return n vectors around n / 100 centres, and groups that depend on the centre for half of the rows."""
    rng = np.random.default_rng(seed)
    centre = rng.integers(0, max(2, n // 100), n)
    X = rng.normal(size=(centre.max() + 1, d))[centre] + 0.5 * rng.normal(size=(n, d))
    groups = np.where(rng.random(n) < 0.5, centre % GROUPS, rng.integers(0, GROUPS, n))
    return X.astype(np.float32), groups


def tomek(X: Floats, y: Ints) -> Task:
    from imblearn.under_sampling import TomekLinks

    def original() -> Ints:
        sampler = TomekLinks(sampling_strategy="all")
        sampler.fit_resample(X, y)
        return np.setdiff1d(np.arange(len(X)), sampler.sample_indices_)

    def ours() -> Ints:
        return np.sort(mining.tomek_links(X, y).ravel())

    return "tomek_links, imbalanced-learn", ours, original, np.array_equal


def trust(X: Floats, y: Ints) -> Task:
    queries = rows(max(10, len(X) // 50), X.shape[1], 1)[0]
    predicted = np.random.default_rng(0).choice(y, len(queries))

    def original() -> Any:
        """Do as the authors' code, which has one k-d tree for each class, with the nearest row of each."""
        far = np.column_stack(
            [cKDTree(X[y == one]).query(queries)[0] for one in range(y.max() + 1)]
        )
        own = far[np.arange(len(far)), predicted]
        far[np.arange(len(far)), predicted] = np.inf
        return far.min(axis=1) / (own + 1e-12)

    return (
        "trust_scores, k-d trees",
        lambda: mining.trust_scores(X, y, queries, predicted),
        original,
        np.allclose,
    )


def balanced(X: Floats, batches: Ints) -> Task:
    def original() -> Floats:
        """Do as bbknn with computation="faiss"; it cannot be imported beside coverage.py."""
        parts = []
        for one in np.unique(batches):
            index = faiss.IndexFlatL2(X.shape[1])
            index.add(X[batches == one])
            parts.append(np.sqrt(np.maximum(index.search(X, K)[0], 0)))
        return np.sort(np.hstack(parts), axis=1)

    def ours() -> Floats:
        return mining.batch_balanced_neighbors(X, batches, K)[0].astype(np.float32)

    def same(one: Any, two: Any) -> bool:
        return float(np.abs(one - two).max()) < 1e-2 * float(
            one.max()
        )  # FAISS's distances are rounded

    return "batch_balanced_neighbors, bbknn with FAISS", ours, original, same


def negatives(X: Floats, _: Ints) -> Task:
    import torch
    from sentence_transformers.util import mine_hard_negatives

    datasets: Any = import_module("datasets")
    n = len(X) // 2
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    anchors, corpus = units[:n], units[n:]
    near = faiss.knn(anchors, corpus, 1, metric=faiss.METRIC_INNER_PRODUCT)[1][:, 0]
    vectors = {f"anchor {i}": one for i, one in enumerate(anchors)} | {
        f"text {i}": one for i, one in enumerate(corpus)
    }
    data = datasets.Dataset.from_dict(
        {"anchor": [f"anchor {i}" for i in range(n)], "positive": [f"text {i}" for i in near]}
    )

    def encode(names: list[str], **_: Any) -> Any:
        return np.stack([vectors[name] for name in names])

    stub = SimpleNamespace(
        device="cpu",
        encode_query=encode,
        encode_document=encode,
        similarity=lambda x, y: torch.as_tensor(x) @ torch.as_tensor(y).T,
        similarity_pairwise=lambda x, y: (torch.as_tensor(x) * torch.as_tensor(y)).sum(dim=1),
    )
    texts = [f"text {i}" for i in range(len(corpus))]

    def original() -> Any:
        mined = mine_hard_negatives(
            data,
            stub,
            corpus=texts,
            num_negatives=K,
            relative_margin=0.05,
            output_format="triplet",
            verbose=False,
        )
        return list(zip(mined["anchor"], mined["negative"], strict=True))

    def ours() -> Any:
        _, I = mining.hard_negatives(anchors, corpus, near, K, relative_margin=0.05)
        return [
            (f"anchor {i}", f"text {I[i, j]}") for i, j in zip(*np.nonzero(I >= 0), strict=True)
        ]

    def same(one: Any, two: Any) -> bool:
        # The original's scores are float32 products, so candidates with almost equal scores may change places.
        return len(set(one) ^ set(two)) <= len(one) // 1000

    return "hard_negatives, sentence-transformers", ours, original, same


def leaks(X: Floats, groups: Ints) -> Task:
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    splits = (groups == 0).astype(np.int64)

    def original() -> set[tuple[int, int]]:
        """Search the rows of one split in a stock index of the other one."""
        train, test = (np.flatnonzero(splits == one) for one in (0, 1))
        index = faiss.IndexFlatIP(X.shape[1])
        index.add(units[train])
        lims, _, found = index.range_search(units[test], THRESHOLD)
        pairs = zip(
            np.repeat(test, np.diff(lims).astype(np.int64)).tolist(),
            train[found].tolist(),
            strict=True,
        )
        return {(min(pair), max(pair)) for pair in pairs}

    def ours() -> set[tuple[int, int]]:
        pairs = mining.near_duplicates(X, splits, THRESHOLD)
        both = zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)
        return {(min(pair), max(pair)) for pair in both}

    def same(one: Any, two: Any) -> bool:
        return len(one ^ two) <= len(two) // 1000  # similarities at the threshold, by rounding

    return "near_duplicates, FAISS's range search", ours, original, same


def measure(n: int, d: int, repeats: int = 3) -> dict[str, Any]:
    """Return the seconds of each function and of its original, the least of ``repeats`` turns, and the comparison."""
    X, groups = rows(n, d)
    found: dict[str, Any] = {}
    for make in (tomek, trust, balanced, negatives, leaks):
        try:
            name, ours, original, same = make(X, groups)
        except ImportError as error:
            print(f"{make.__name__}: {error}")
            continue
        seconds: dict[str, list[float]] = {"ours": [], "original": []}
        results: dict[str, Any] = {}
        for _ in range(repeats):
            for who, call in (("ours", ours), ("original", original)):
                start = time.perf_counter()
                results[who] = call()
                seconds[who].append(time.perf_counter() - start)
        least = {who: min(times) for who, times in seconds.items()}
        found[name] = {
            "seconds": least,
            "same_results": bool(same(results["ours"], results["original"])),
        }
        print(
            f"{name}: {least['ours']:.3f} s against {least['original']:.3f} s",
            found[name]["same_results"],
        )
    return {"rows": n, "d": d, "functions": found}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--d", type=int, default=D)
    parser.add_argument("--dry", action="store_true", help="write no results")
    arguments = parser.parse_args()
    measured = measure(arguments.rows, arguments.d)
    if not arguments.dry:
        save("mining", measured)
