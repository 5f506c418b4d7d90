"""Metrics "ip" and "l2": every search equals brute force in float64, and every change keeps the definition."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import assert_same_arrays, quick, similarity, squared_distance, with_rows

import cfe_faiss as cfe
from cfe_faiss import _native
from cfe_faiss.search import derived
from cfe_faiss.search.derived import Derived

METRICS = ["ip", "l2"]
KINDS = [
    "IDMap2,EvidenceFlat",
    "EvidenceIVF4,Flat",
    "EvidenceIVF4,SQfp16",
    "EvidenceIVF4,SQ8",
    "EvidenceIVF4,PQ1,RFlat",
]
# By default, indexes without codes with both metrics, and each kind of codes with one.
PAIRS = [
    pytest.param(kind, metric, marks=[pytest.mark.slow] * (i > 1 and i % 2 == j))
    for i, kind in enumerate(KINDS)
    for j, metric in enumerate(METRICS)
]
CONSTANTS = {"ip": faiss.METRIC_INNER_PRODUCT, "l2": faiss.METRIC_L2}

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
    """An index, its rows in ascending order of their ids, and queries."""

    index: Any
    metric: str
    ids: NDArray[np.int64]
    labels: NDArray[np.int32]
    X: Floats
    xq: Floats
    labels_q: NDArray[np.int64]
    k: int


def distances(metric: str, x: Floats, y: Floats) -> Any:
    """Return D of all pairs, as FAISS defines it."""
    return (similarity if metric == "ip" else squared_distance)(x[:, None], y)


def distances_of(metric: str, x: Floats, y: Floats) -> Any:
    """Return the same, some rows at a time."""
    rows = max(1, 20_000 // y.size)
    return np.concatenate([distances(metric, x[i : i + rows], y) for i in range(0, len(x), rows)])


def distances_of_found(metric: str, x: Floats, y: Floats) -> Any:
    """Return D of each row and those found for it, (n, k, d)."""
    return (similarity if metric == "ip" else squared_distance)(x[:, None], y)


def expected(case: Case, D: Any, found: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.int64]]:
    """Return the k best of the pairs in a mask, (nq, n)."""
    sign = -1 if case.metric == "ip" else 1
    padding = sign * np.finfo(np.float32).max
    best_D, best_I = np.full((len(D), case.k), padding, np.float32), np.full((len(D), case.k), -1)
    for q, row in enumerate(D):
        rows = np.flatnonzero(found[q])
        best = rows[np.lexsort((case.ids[rows], sign * row[rows]))][: case.k]
        best_D[q, : len(best)], best_I[q, : len(best)] = row[best], case.ids[best]
    return best_D, best_I


def other(case: Case, labels: NDArray[Any]) -> Any:
    return (case.labels >= 0) & (case.labels != labels[:, None])


@st.composite
def cases(draw: st.DrawFn, kind: str, metric: str) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = [
        name
        for name in DATA
        if kind.endswith("Flat") or name not in ("large", "tiny", "outlier", "lengths")
    ]
    vectors = DATA[draw(st.sampled_from(names))]
    d = draw(st.sampled_from([1, 3, 8, 16, 19, 33]))
    n = draw(st.integers(4, 120))
    nq = draw(st.integers(1, 12))
    classes = draw(st.integers(1, 4))
    X = vectors(rng, n + nq, d).astype(np.float32)
    X, xq = X[:n], X[n:]
    labels, ids = rng.integers(-1, classes, n), rng.permutation(2 * n)[:n]
    index: Any = quick(cfe.index_factory(d, kind, metric))  # type: ignore[arg-type]
    if not index.is_trained:
        index.train(np.concatenate([X, X[rng.integers(0, n, 300)]]))
    index.add_with_ids(X, ids)
    index.relabel(labels, ids)
    if draw(st.booleans()):  # changes after the first searches, whose derived data is carried over
        index.search_stored(k=2)
        index.remove_ids(ids[: n // 4])
        index.add_with_labels(X[:3], rng.integers(0, classes, 3), np.arange(2 * n, 2 * n + 3))
    known = index.members()
    labels_q = rng.integers(0, classes + 1, nq)
    rows = index.reconstruct_batch(known.ids)
    return Case(
        index, metric, known.ids, known.labels, rows, xq, labels_q, draw(st.integers(1, 30))
    )


@pytest.mark.parametrize(("kind", "metric"), PAIRS)
@given(data=st.data())
def test_exact_searches_equal_brute_force(kind: str, metric: str, data: st.DataObject) -> None:
    case = data.draw(cases(kind, metric))
    index, k = case.index, case.k
    D, found = distances(metric, case.xq, case.X), other(case, case.labels_q)
    wanted = expected(case, D, found)
    assert_same_arrays(index.search_evidence(case.xq, case.labels_q, k, exact=True), wanted)
    for q in range(len(case.xq)):
        one = slice(q, q + 1)
        some = index.search_evidence(case.xq[one], case.labels_q[one], k, exact=True)
        assert_same_arrays(some, [part[one] for part in wanted])
        if index.has_lists:
            some = index.search_evidence(case.xq[one], case.labels_q[one], k, index.nlist)
            assert_same_arrays(some, [part[one] for part in wanted])
    sel = np.arange(len(case.ids)) % 3 > 0
    answer = index.search_evidence(case.xq, case.labels_q, k, exact=True, sel=sel)
    assert_same_arrays(answer, expected(case, D, found & sel))
    of_rows = distances(metric, case.X, case.X)
    apart = case.ids[:, None] != case.ids
    evidence = other(case, case.labels) & (case.labels[:, None] >= 0)
    assert_same_arrays(index.search_stored(k=k, exact=True), expected(case, of_rows, evidence))
    *some, certified = index.search_certified(k=k, exact=True)
    assert_same_arrays(some, expected(case, of_rows, evidence))
    assert certified.all()
    own = (case.labels >= 0) & (case.labels == case.labels[:, None]) & apart
    answer = index.search_stored(k=k, exact=True, neighbors="own")
    assert_same_arrays(answer, expected(case, of_rows, own))
    answer = index.search_stored(k=k, exact=True, neighbors="any")
    assert_same_arrays(answer, expected(case, of_rows, apart))
    any_row = np.ones(D.shape, bool)
    answer = index.search_evidence(case.xq, None, k, exact=True, neighbors="any")
    assert_same_arrays(answer, expected(case, D, any_row))


@pytest.mark.parametrize(("kind", "metric"), PAIRS)
@given(data=st.data())
def test_ranges_and_pairs_equal_brute_force(kind: str, metric: str, data: st.DataObject) -> None:
    case = data.draw(cases(kind, metric))
    index, k = case.index, case.k
    D, found = distances(metric, case.xq, case.X), other(case, case.labels_q)
    low, high = (float(end) for end in np.quantile(D, [0.3, 0.6], method="nearest"))
    inside = (np.float32(low) <= D) & (np.float32(high) >= D)
    some = index.search_evidence(case.xq, case.labels_q, k, exact=True, within=(low, high))
    assert_same_arrays(some, expected(case, D, found & inside))
    threshold = high if metric == "l2" else low
    near = (np.float32(threshold) >= D) if metric == "l2" else (np.float32(threshold) <= D)
    every = expected(case._replace(k=len(case.ids)), D, found & near)
    real = every[1] >= 0
    lims, D_found, I_found = index.range_search_evidence(case.xq, case.labels_q, threshold)
    answer = (np.diff(lims), D_found, I_found)
    assert_same_arrays(answer, (real.sum(axis=1), every[0][real], every[1][real]))
    of_rows = distances(metric, case.X, case.X)
    source, target = np.nonzero(np.triu(other(case, case.labels) & (case.labels[:, None] >= 0), 1))
    values = of_rows[source, target]
    order = np.lexsort((case.ids[target], case.ids[source], values if metric == "l2" else -values))
    pairs = cfe.global_evidence(index, 7)
    best = order[:7]
    wanted = (case.ids[source[best]], case.ids[target[best]])
    assert_same_arrays((pairs.source, pairs.target), wanted)
    assert_array_equal(pairs.similarity, values[best])
    reached = values <= np.float32(threshold) if metric == "l2" else values >= np.float32(threshold)
    assert sum(map(len, cfe.evidence_pairs(index, threshold))) == int(reached.sum())


@pytest.mark.parametrize(("kind", "metric"), PAIRS[2:])
@given(data=st.data())
def test_searches_of_some_lists_are_complete_and_certificates_true(
    kind: str, metric: str, data: st.DataObject
) -> None:
    case = data.draw(cases(kind, metric))
    D = distances(metric, case.X, case.X)
    evidence = other(case, case.labels) & (case.labels[:, None] >= 0)
    wanted = expected(case, D, evidence)
    places = np.full(int(case.ids.max()) + 1, -1)
    places[case.ids] = np.arange(len(case.ids))
    for nprobe in (1, 2):
        found_D, found_I, certified = case.index.search_certified(k=case.k, nprobe=nprobe)
        assert_array_equal((found_I >= 0).sum(axis=1), (wanted[1] >= 0).sum(axis=1))
        q, place = np.nonzero(found_I >= 0)
        assert evidence[q, places[found_I[q, place]]].all()
        assert_array_equal(found_D[q, place], D[q, places[found_I[q, place]]])
        found = (found_D[certified], found_I[certified])
        assert_same_arrays(found, [part[certified] for part in wanted])


# More than the few dimensions above: bytes are rotated, and compared in parts.
WIDE: dict[str, Draw] = DATA | {
    "clusters": lambda rng, n, d: (
        5 * rng.normal(size=(9, d))[rng.integers(0, 9, n)] + rng.normal(size=(n, d))
    ),
    "far clusters": lambda rng, n, d: (
        1e4 * rng.normal(size=(9, d))[rng.integers(0, 9, n)] + rng.normal(size=(n, d))
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
    ids = np.arange(len(X))
    case = Case(index, metric, ids, labels.astype(np.int32), X, xq, rng.integers(0, 4, len(xq)), 12)
    return case, expected(case, distances_of(metric, xq, X), other(case, case.labels_q))


# By default, each kind of vectors in two or three numbers of dimensions, the largest among them, which is rotated.
SHAPES = [
    pytest.param(name, d, marks=[] if d == 130 or (i + j) % 3 == 0 else [pytest.mark.slow])
    for i, name in enumerate(WIDE)
    for j, d in enumerate([1, 3, 18, 33, 130])
]


@pytest.mark.parametrize("element", ["float", *(["byte"] if _native.has_bytes() else [])])
@pytest.mark.parametrize("metric", METRICS)
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
@pytest.mark.parametrize("metric", METRICS)
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
    D = distances_of(metric, case.xq, np.where(sound[:, None], case.X, 0))
    wanted = expected(case, D, other(case, case.labels_q) & sound)
    assert_same_arrays(case.index.search_evidence(case.xq, case.labels_q, case.k, 5), wanted)


def many(metric: str, n: int = 6000, d: int = 24) -> tuple[Any, Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    X = (
        rng.normal(size=(60, d))[rng.integers(0, 60, n)] + rng.normal(scale=0.4, size=(n, d))
    ).astype(np.float32)
    X *= rng.lognormal(sigma=0.4, size=(n, 1)).astype(np.float32)
    labels = np.where(rng.random(n) < 0.8, X[:, 0] > 0, rng.integers(0, 3, n)).astype(np.int64)
    index = with_rows(cfe.IndexEvidenceIVF(d, 80, metric=metric), X, labels)  # type: ignore[arg-type]
    return index, X, labels


@pytest.mark.parametrize("metric", METRICS)
def test_a_recall_is_kept_for_each_class(metric: str) -> None:
    index, X, labels = many(metric)
    exact = index.search_stored(k=10, exact=True)
    for queries in (slice(None), slice(0, 200)):
        D, I = index.search_stored(np.arange(len(X))[queries], 10, recall=0.9)
        shares = [
            cfe.metrics.recall(
                I[own], exact[1][queries][own], D[own], exact[0][queries][own], metric
            )
            for own in (labels[queries] == label for label in range(3))
        ]
        assert min(shares) >= 0.85, shares
        assert_array_equal(D, distances_of_found(metric, X[: len(I)], X[I]))
    scanned = index.nprobe_for(0.9)
    assert scanned < 80
    D, I = index.search_stored(k=10, nprobe=80)
    assert_same_arrays((D, I), exact)


@pytest.mark.parametrize("metric", METRICS)
def test_faiss_finds_the_same_neighbours(metric: str) -> None:
    index, X, _ = many(metric, 2000)
    stock = faiss.IndexFlat(24, CONSTANTS[metric])
    stock.add(X)
    D, I = stock.search(X[:50], 5)
    found_D, found_I = index.search_evidence(X[:50], None, 5, exact=True, neighbors="any")
    assert_array_equal(found_I, I)
    np.testing.assert_allclose(found_D, D, rtol=1e-4, atol=1e-3)
    assert index.metric_type == CONSTANTS[metric] == index.to_stock().metric_type
    assert_array_equal(index.reconstruct_batch(np.arange(9)), X[:9])


@pytest.mark.parametrize("metric", ["cosine", *METRICS])
@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_files_keep_the_metric(kind: str, metric: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X, labels = (3 * rng.normal(size=(400, 6))).astype(np.float32), np.arange(400) % 3
    index = with_rows(quick(cfe.index_factory(6, kind, metric)), X, labels, np.arange(400) + 7)
    index.prepare(k=4)
    cfe.write_index(index, tmp_path / "index")
    cfe.verify_index(tmp_path / "index")
    wanted = index.search_stored(k=4)
    copies = [
        pickle.loads(pickle.dumps(index)),
        cfe.clone_index(index),
        cfe.read_index(tmp_path / "index"),
    ]
    copies += [cfe.read_index(tmp_path / "index", faiss.IO_FLAG_MMAP)]
    for copy in copies:
        assert copy.metric == metric
        assert_same_arrays(copy.search_stored(k=4), wanted)
        found = copy.search_evidence(X[:1], [1], 3, exact=True)
        assert_same_arrays(found, index.search_evidence(X[:1], [1], 3, exact=True))
    assert faiss.read_index(str(tmp_path / "index")).metric_type == index.metric_type
    assert repr(metric) in repr(index) or metric == "cosine"


@pytest.mark.parametrize("metric", METRICS)
def test_from_stock_keeps_the_metric(metric: Any) -> None:
    rng = np.random.default_rng(2)
    X, labels = (3 * rng.normal(size=(300, 6))).astype(np.float32), np.arange(300) % 3
    flat = faiss.index_factory(6, "Flat", CONSTANTS[metric])
    ivf = faiss.index_factory(6, "IVF8,Flat", CONSTANTS[metric])
    coded = faiss.IndexIVFScalarQuantizer(
        ivf.quantizer, 6, 8, faiss.ScalarQuantizer.QT_fp16, CONSTANTS[metric], False
    )
    for stock in (flat, ivf, coded):
        stock.train(X)
        stock.add(X)
    wanted = with_rows(cfe.IndexEvidenceIDMap2(6, metric), X, labels)
    for index in (
        cfe.IndexEvidenceIDMap2.from_stock(flat, labels),
        cfe.IndexEvidenceIVF.from_stock(ivf, labels),
    ):
        assert index.metric == metric
        assert_same_arrays(index.search_stored(k=5, exact=True), wanted.search_stored(k=5))
    halves = cfe.IndexEvidenceIVFScalarQuantizer.from_stock(coded, labels)
    assert halves.metric == metric
    found = halves.reconstruct_batch(np.arange(300))
    assert_array_equal(found, X.astype(np.float16).astype(np.float32))
    codes = faiss.index_factory(6, "IVF8,PQ3x8np", CONSTANTS[metric])
    refined = faiss.IndexRefineFlat(codes)
    refined.train(X)
    refined.add(X)
    again = cfe.IndexEvidenceIVFPQ.from_stock(refined, labels)
    assert again.metric == metric
    assert_same_arrays(again.search_stored(k=5, exact=True), wanted.search_stored(k=5))
    (D, I), (D_exact, I_exact) = again.search_stored(k=5, nprobe=7), wanted.search_stored(k=5)
    assert cfe.metrics.recall(I, I_exact, D, D_exact, metric) > 0.9
    other_metric = "ip" if metric == "l2" else "l2"
    with pytest.raises(ValueError, match="metric must fit that of flat"):
        cfe.IndexEvidenceIDMap2.from_stock(flat, labels, metric=other_metric)  # type: ignore[arg-type]
    if metric == "ip":
        assert_array_equal(
            cfe.IndexEvidenceIVF.from_stock(ivf, labels, metric="cosine").search_stored(
                k=3, exact=True
            )[1],
            filled("IDMap2,EvidenceFlat", "cosine", X, labels).search_stored(k=3)[1],
        )


def filled(kind: str, metric: Any, X: Floats, labels: Any) -> Any:
    return with_rows(quick(cfe.index_factory(X.shape[1], kind, metric)), X, labels)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_merging_keeps_the_definition(kind: str) -> None:
    X = np.random.default_rng(3).normal(size=(60, 4)).astype(np.float32) * 5
    labels = np.arange(60) % 2
    for metric in METRICS:
        one = filled(kind, metric, X[:30], labels[:30])
        two = filled(kind, metric, X[30:], labels[30:])
        one.merge_from(two, 30)
        assert two.ntotal == 0
        assert_array_equal(one.reconstruct_batch(np.arange(60)), X)
        answer = one.search_stored(k=3, exact=True)
        assert_same_arrays(answer, filled(kind, metric, X, labels).search_stored(k=3, exact=True))
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
    half: Any = filled("EvidenceIVF4,SQfp16", "l2", np.eye(4, dtype=np.float32), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="vectors must have components up to 65504"):
        half.add_with_labels([[1e5, 0, 0, 0]], [1])
    assert half.ntotal == 4


RUN = """
import hashlib, numpy as np, cfe_faiss as cfe
rng = np.random.default_rng(0)
X, labels = (rng.normal(size=(900, 21)) * rng.lognormal(size=(900, 1)) + 3).astype(np.float32), np.arange(900) % 3
digest = hashlib.sha256()
for metric in ("ip", "l2"):
    index = cfe.IndexEvidenceIVF(21, 24, metric=metric)
    index.train(X)
    index.add_with_labels(X[:800], labels[:800])
    results = [index.search_stored(k=5, nprobe=2), index.search_certified(k=5, nprobe=6)]
    index.add_with_labels(X[800:], labels[800:])
    results += [index.search_evidence(X[q : q + 1], labels[q : q + 1], 7, 3) for q in range(40)]
    results += [index.search_per_label(X[:9], labels[:9], 3), [index.centroids()]]
    for array in (part for result in results for part in result):
        digest.update(np.ascontiguousarray(array).tobytes())
print(digest.hexdigest())
"""


def test_every_instruction_set_gives_the_same_bits() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", RUN],
            env={**os.environ, "CFE_SIMD": level, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for level in _native.available_levels()
    }
    assert len(found) == 1
