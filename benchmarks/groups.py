"""What do many groups, rules, and results per label cost?

Rivals take turns on the same 50,000 x 128 rows, clusters with overlapping groups; times are medians.

- Groups: 25,000 groups of two rows against two classes, in time per eligible row that is scanned.
- Rules: `exclude`, `neighbors` and `within` against the same search without them.
- Labels: `search_per_label` against one search per label with `sel`; recall of both.
- Pairs: `global_evidence` against `evidence_pairs` at the similarity of its last pair.

    python benchmarks/groups.py

writes results/groups.json.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from common import save
from numpy.typing import NDArray

import cfe_faiss as cfe

ROWS, D, K, NPROBE, LABELS, REPEATS = 50_000, 128, 10, 16, 5, 5


def rows(n: int, *, intrinsic: int = D) -> NDArray[np.float32]:
    """Return n vectors around n / 100 centres, near a subspace of ``intrinsic`` dimensions."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(max(2, n // 100), intrinsic))
    X = centres[rng.integers(len(centres), size=n)] + 0.5 * rng.normal(size=(n, intrinsic))
    if intrinsic < D:
        X = X @ rng.normal(size=(intrinsic, D)) + 0.1 * rng.normal(size=(n, D))
    return X.astype(np.float32)


def in_turns(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Return the median time of each call, in seconds, after one call of each to derive its data."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: median(some) for name, some in times.items()}


def index_of(X: NDArray[np.float32], labels: NDArray[np.int64]) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF(D, "auto")
    index.train(X)
    index.add_with_labels(X, labels)
    index.prepare(K, None)
    return index


def eligible_share(index: cfe.IndexEvidenceIVF) -> float:
    """Return the mean share of the rows in a list that are eligible to a row of this list."""
    with index.holding() as snapshot:
        lists = np.repeat(np.arange(index.nlist), np.diff(snapshot.starts))
        _, number, counts = np.unique(
            [lists, snapshot.labels], axis=1, return_inverse=True, return_counts=True
        )
        sizes = np.diff(snapshot.starts)[lists]
        return float((1 - counts[number.reshape(-1)] / sizes).mean())


def groups(X: NDArray[np.float32], repeats: int) -> dict[str, Any]:
    n = len(X)
    rng = np.random.default_rng(1)
    parts = {"two classes": rng.integers(2, size=n), "groups of two": rng.permutation(n) // 2}
    indexes = {name: index_of(X, labels) for name, labels in parts.items()}
    flats = {name: cfe.IndexEvidenceFlat(D) for name in parts}
    for name, flat in flats.items():
        flat.add_with_labels(X, parts[name])
    some = np.arange(0, n, max(1, n // 2000))
    found: dict[str, Any] = {}
    ways: dict[str, Callable[[str], Callable[[], Any]]] = {
        "all rows, nprobe": lambda name: lambda: indexes[name].search_stored(k=K, nprobe=NPROBE),
        "single queries, nprobe": lambda name: (
            lambda: [
                indexes[name].search_evidence(X[i : i + 1], parts[name][i : i + 1], K, NPROBE)
                for i in some.tolist()
            ]
        ),
        "all rows, exact": lambda name: lambda: indexes[name].search_stored(k=K, exact=True),
        "2,000 rows, flat": lambda name: lambda: flats[name].search_stored(some, K),
    }
    for way, call in ways.items():
        seconds = in_turns({name: call(name) for name in parts}, repeats if "nprobe" in way else 1)
        shares = {
            name: eligible_share(indexes[name]) if "nprobe" in way else None for name in parts
        }
        per_row = {
            name: seconds[name] / (share or _all(parts[name])) for name, share in shares.items()
        }
        found[way] = {
            "seconds": seconds,
            "per scanned row": per_row["groups of two"] / per_row["two classes"],
        }
        print(way, found[way], flush=True)
    return found


def _all(labels: NDArray[np.int64]) -> float:
    """Return the mean share of all rows that are eligible to a row."""
    counts = np.bincount(labels)
    return float(1 - (counts / counts.sum()) @ (counts / counts.sum()))


def rules(X: NDArray[np.float32], repeats: int) -> dict[str, Any]:
    n = len(X)
    labels = np.random.default_rng(1).integers(LABELS, size=n)
    index = index_of(X, labels)
    ids = np.arange(0, n, 10)
    excluded = index.search_stored(ids, 3, NPROBE)[1]
    how: dict[str, dict[str, Any]] = {
        "plain": {},
        "exclude": {"exclude": excluded},
        "exclude_labels": {"exclude_labels": labels[ids, None] * 0 + 1},
        "within": {"within": (-1, 0.9)},
        "any": {"neighbors": "any"},
        "own": {"neighbors": "own"},
    }
    found = {}
    for way, asked in (("batch", ids), ("one", ids[:1])):
        calls = {
            name: lambda rule=rule, asked=asked: index.search_stored(
                asked,
                K,
                NPROBE,
                **{
                    name: part[: len(asked)] if "exclude" in name else part
                    for name, part in rule.items()
                },
            )
            for name, rule in how.items()
        }
        found[way] = in_turns(calls, repeats)
        print(way, found[way], flush=True)
    return found


def per_label(X: NDArray[np.float32], repeats: int) -> dict[str, Any]:
    n = len(X)
    labels = np.random.default_rng(1).integers(LABELS, size=n)
    index = index_of(X, labels)
    ids = np.arange(0, n, 50)
    Q, asked = X[ids], labels[ids] * 0 + LABELS  # a label without rows: all labels are others
    masks = [labels == label for label in range(LABELS)]
    exact = index.search_per_label(Q, asked, K, exact=True)[1].reshape(-1, K)
    found: dict[str, Any] = {}
    for nprobe in (1, 2, 4, 8):
        calls = {
            "search_per_label": lambda nprobe=nprobe: index.search_per_label(Q, asked, K, nprobe)[
                1
            ],
            "one search per label": lambda nprobe=nprobe: np.stack(
                [index.search_evidence(Q, asked, K, nprobe, sel=mask)[1] for mask in masks], axis=1
            ),
        }
        part = found[f"nprobe {nprobe}"] = {"seconds": in_turns(calls, repeats)}
        for name, call in calls.items():
            I = call().reshape(-1, K)
            part[f"recall, {name}"] = float(
                np.mean([np.isin(a, b).mean() for a, b in zip(I, exact, strict=True)])
            )
        print(nprobe, part, flush=True)
    return found


def pairs(repeats: int, n: int) -> dict[str, Any]:
    found = {}
    for intrinsic in (16, D):
        X = rows(n, intrinsic=intrinsic)
        flat = cfe.IndexEvidenceFlat(D)
        flat.add_with_labels(X, np.random.default_rng(1).integers(LABELS, size=n))
        last = float(cfe.global_evidence(flat, 1000).similarity[-1])
        calls = {
            "global_evidence": lambda flat=flat: cfe.global_evidence(flat, 1000),
            "evidence_pairs": lambda flat=flat, last=last: sum(
                map(len, cfe.evidence_pairs(flat, last))
            ),
        }
        found[f"{intrinsic} dimensions"] = {
            "similarity": last,
            **in_turns(calls, repeats if intrinsic < D else 1),
        }
        print(intrinsic, found[f"{intrinsic} dimensions"], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--only", choices=["groups", "rules", "labels", "pairs"])
    arguments = parser.parse_args()
    n, repeats = arguments.rows, arguments.repeats
    X = rows(n)
    parts: dict[str, Callable[[], Any]] = {
        "groups": lambda: groups(X, repeats),
        "rules": lambda: rules(X, repeats),
        "labels": lambda: per_label(X, repeats),
        "pairs": lambda: pairs(repeats, n),
    }
    wanted = {name: part() for name, part in parts.items() if arguments.only in (None, name)}
    if arguments.only is None:
        save("groups", {"rows": n, "d": D, "k": K, "nprobe": NPROBE, **wanted})


if __name__ == "__main__":
    main()
