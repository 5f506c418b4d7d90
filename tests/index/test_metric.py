"""Blocks of many queries equal brute force in every metric; metrics "ip" and "l2" keep their definition.

Random searches and changes in every metric are compared in :mod:`test_random_operations`.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray
from reference import (
    assert_same_arrays,
    cosine,
    quick,
    similarity,
    squared_distance,
    unit_copy,
    with_rows,
)

import cfe_faiss as cfe
from cfe_faiss import _native
from cfe_faiss.search import derived
from cfe_faiss.search.derived import Derived

METRICS = ["ip", "l2"]
ALL_METRICS = ["cosine", *METRICS]

Floats = NDArray[np.float32]
Draw = Callable[[np.random.Generator, int, int], NDArray[Any]]
DATA: dict[str, Draw] = {
    "grid": lambda rng, n, d: rng.integers(-2, 3, (n, d)),  # ties, repeated and zero vectors
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "offset": lambda rng, n, d: rng.normal(size=(n, d)) + 1000,
    "near duplicates": lambda rng, n, d: (
        rng.normal(size=(1, d)) * (1 + 1e-6 * rng.normal(size=(n, d)))
    ),
    "lengths": lambda rng, n, d: rng.normal(size=(n, d)) * rng.lognormal(sigma=3, size=(n, 1)),
    "outlier": lambda rng, n, d: (
        rng.normal(size=(n, d)) * np.where(np.arange(n) == n // 2, 1e6, 1)[:, None]
    ),
    "large": lambda rng, n, d: 1e13 * rng.uniform(-1, 1, (n, d)) / np.sqrt(d),
    "tiny": lambda rng, n, d: 1e-20 * rng.normal(size=(n, d)),
}


class Case(NamedTuple):
    """An index whose ids are 0, 1, ..., its rows, and queries."""

    index: Any
    metric: str
    labels: NDArray[np.int64]
    X: Floats
    xq: Floats
    labels_q: NDArray[np.int64]
    k: int


def distances_of_found(metric: str, x: Floats, y: Floats) -> Any:
    """Return D, as FAISS defines it, of each row and those found for it, (n, k, d), or those of all, (m, d)."""
    return {"cosine": cosine, "ip": similarity, "l2": squared_distance}[metric](x[:, None], y)


def expected(case: Case, sound: Any = True) -> tuple[Floats, NDArray[np.int64]]:
    """Return the k best rows of another class for each query, among those that are sound."""
    X = np.where(np.broadcast_to(sound, len(case.X))[:, None], case.X, 0)
    found = (case.labels != case.labels_q[:, None]) & sound
    sign = 1 if case.metric == "l2" else -1
    padding = sign * np.finfo(np.float32).max
    shape = len(case.xq), case.k
    best_D, best_I = np.full(shape, padding, np.float32), np.full(shape, -1)
    for q, x in enumerate(case.xq):
        D = distances_of_found(case.metric, x[None], X)[0]
        rows = np.flatnonzero(found[q])
        best = rows[np.lexsort((rows, sign * D[rows]))][: case.k]
        best_D[q, : len(best)], best_I[q, : len(best)] = D[best], best
    return best_D, best_I


# Bytes are rotated in many dimensions, and compared in parts.
WIDE: dict[str, Draw] = DATA | {
    "clusters": lambda rng, n, d: (
        5 * rng.normal(size=(9, d))[rng.integers(0, 9, n)] + rng.normal(size=(n, d))
    ),
    "far clusters": lambda rng, n, d: (
        1e4 * rng.normal(size=(9, d))[rng.integers(0, 9, n)] + rng.normal(size=(n, d))
    ),
    "last bits": lambda rng, n, d: np.where(
        np.arange(d) == 1, rng.choice([-1e-38, -1e-20, 1e-38, 1e-20], (n, 1)), 1.0
    ),
    "twins": lambda rng, n, d: (
        np.repeat(rng.normal(size=(n // 2 + 1, d)), 2, axis=0)[:n] + 1e-5 * rng.normal(size=(n, d))
    ),
    "few values": lambda rng, n, d: np.where(
        rng.random((n, d)) < 2 / d, rng.lognormal(size=(n, d)), 0
    ),
}


@lru_cache(maxsize=4)  # for each element of blocks
def in_blocks(name: str, metric: str, d: int) -> tuple[Case, Any]:
    """Return an index of many rows, queries that are rows, near rows or of another length, and their evidence."""
    rng = np.random.default_rng(d)
    X = WIDE[name](rng, 700, d).astype(np.float32)
    X, xq = X[:650], X[600:] * rng.choice(np.float32([1, 1, 1.0001, 0, 0.01, 20]), (100, 1))
    if name == "large":
        xq /= 40
    labels = rng.integers(0, 3, len(X))
    index = filled("EvidenceIVF5,Flat", metric, X, labels)
    if metric == "cosine":
        X, xq = unit_copy(X), unit_copy(xq)
    case = Case(index, metric, labels, X, xq, rng.integers(0, 4, len(xq)), 12)
    return case, expected(case)


# By default, each kind of vectors in two or three numbers of dimensions, the largest among them, which is rotated.
SHAPES = [
    pytest.param(name, d, marks=[] if d == 130 or (i + j) % 3 == 0 else [pytest.mark.slow])
    for i, name in enumerate(WIDE)
    for j, d in enumerate([1, 3, 18, 33, 130])
]


@pytest.mark.parametrize("element", ["float", *(["byte"] if _native.has_bytes() else [])])
@pytest.mark.parametrize("metric", ALL_METRICS)
@pytest.mark.parametrize(("name", "d"), SHAPES)
def test_blocks_give_what_brute_force_gives(
    name: str, d: int, metric: str, element: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "_WORTH_ROTATING", 1)
    monkeypatch.setattr(derived, "_LONGEST_TAIL", 1.0)
    case, wanted = in_blocks(name, metric, d)
    case = case._replace(index=cfe.clone_index(case.index))
    case.index.choice = element
    assert_same_arrays(case.index.search_evidence(case.xq, case.labels_q, case.k, 5), wanted)
    kept = Derived.of(case.index.storage()).kept[element]
    assert kept is not None
    assert kept.rotated == (element == "byte" and d == 130)
    for q in range(0, len(case.xq), 3):
        one = slice(q, q + 1)
        some = case.index.search_evidence(case.xq[one], case.labels_q[one], case.k, 5)
        assert_same_arrays(some, [part[one] for part in wanted])
    some_lists = case.index.search_evidence(case.xq, case.labels_q, case.k, 2)
    case.index.choice = "float"
    assert_same_arrays(some_lists, case.index.search_evidence(case.xq, case.labels_q, case.k, 2))


@pytest.mark.skipif(not _native.has_bytes(), reason="blocks hold floats here")
@pytest.mark.parametrize("metric", ALL_METRICS)
@pytest.mark.parametrize(
    "searched", [False, True]
)  # whether the means by which lists are ranked are known before
def test_damaged_rows_in_bytes_are_passed_over(metric: str, searched: bool) -> None:
    case = in_blocks.__wrapped__("clusters", metric, 18)[0]
    if searched:
        case.index.search_evidence(case.xq, case.labels_q, case.k, 5)
    damage = np.float32([np.inf, -np.inf, np.nan, 3e38])
    sound = case.labels >= 0
    for j in range(5):
        size = case.index.invlists.list_size(j)
        rows = (
            faiss.rev_swig_ptr(case.index.invlists.get_codes(j), 72 * size)
            .view(np.float32)
            .reshape(size, 18)
        )
        ids = faiss.rev_swig_ptr(case.index.invlists.get_ids(j), size)
        rows[:: j + 1, j] = damage[j % 4]
        sound[ids[:: j + 1]] = False
    case.index.choice = "byte"
    found = case.index.search_evidence(case.xq, case.labels_q, case.k, 5)
    assert_same_arrays(found, expected(case, sound))


def filled(kind: str, metric: Any, X: Floats, labels: Any) -> Any:
    return with_rows(quick(cfe.index_factory(X.shape[1], kind, metric)), X, labels)


@pytest.mark.parametrize("kind", ["IDMap2,EvidenceFlat", "EvidenceIVF4,Flat"])
def test_only_indexes_of_one_metric_are_merged(kind: str) -> None:
    X = np.random.default_rng(3).normal(size=(60, 4)).astype(np.float32) * 5
    labels = np.arange(60) % 2
    for metric, wrong in (("ip", "l2"), ("l2", "cosine"), ("cosine", "ip")):
        one = filled(kind, metric, X[:30], labels[:30])
        two = filled(kind, wrong, X[30:], labels[30:])
        before = [index.search_stored(k=3, exact=True) for index in (one, two)]
        message = f"otherIndex must have metric '{metric}', as this index, got {wrong}"
        with pytest.raises(ValueError, match=message):
            one.merge_from(two, 30)
        for index, found in zip((one, two), before, strict=True):
            assert_same_arrays(index.search_stored(k=3, exact=True), found)
    stock = faiss.IndexFlatL2(4)
    stock.add(X)
    with pytest.raises(ValueError, match="got metric_type 1"):
        filled(kind, "ip", X, labels).merge_from(stock, 60)


def test_wrong_arguments_are_refused() -> None:
    for wrong in ("L2", 7, None, True, "euclidean"):
        with pytest.raises(ValueError, match="metric must be 'cosine', 'ip', 'l2'"):
            cfe.IndexEvidenceIDMap2(3, wrong)  # type: ignore[arg-type]
    assert cfe.IndexEvidenceIDMap2(3, faiss.METRIC_L2).metric == "l2"
    assert cfe.IndexEvidenceIVF(3, 4, metric=faiss.METRIC_INNER_PRODUCT).metric == "ip"
    with pytest.raises(ValueError, match="partitions must be 1 for metric 'l2', got 2"):
        cfe.IndexEvidenceIVF(3, 4, 2, metric="l2")
    for metric in ("cosine", *METRICS):
        index: Any = cfe.IndexEvidenceIDMap2(2, metric)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="metric_type must stay"):
            index.metric_type = faiss.METRIC_L1
        index.metric_type = index.metric_type
    index = with_rows(cfe.IndexEvidenceIDMap2(2, "l2"), np.eye(2), [0, 1])
    for bad in ([[1e20, 0]], [[np.nan, 0]]):
        message = r"x must (have rows of length 1e\+14 at most|be finite)"
        with pytest.raises(ValueError, match=message):
            index.add_with_labels(bad, [1])
        with pytest.raises(ValueError, match="xq must"):
            index.search_evidence(bad, [1], 1)
    assert index.ntotal == 2
