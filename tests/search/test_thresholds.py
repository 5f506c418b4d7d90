"""Constraints, pairs and stores at infinite, huge and ordinary thresholds; rules: :mod:`test_random_operations`."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import quick, with_rows

import cfe_faiss as cfe

N, D, CLASSES = 60, 4, 3
KINDS = [
    "IDMap2,EvidenceFlat",
    "EvidenceIVF4,Flat",
    "EvidenceIVF4,SQfp16",
    "EvidenceIVF4,SQ8",
    "EvidenceIVF4,PQ2,RFlat",
]
HUGE = [math.inf, -math.inf, 1e300, -1e300, 3.4e38, -3.4e38, float(np.finfo(np.float32).max)]

LEAST = {"cosine": -1.0, "ip": -math.inf, "l2": 0.0}
"""Least threshold that has a meaning."""


class Case(NamedTuple):
    """An index, its rows as stored, and the node attributes."""

    index: Any
    metric: str
    X: NDArray[np.float32]
    labels: NDArray[np.int64]
    age: NDArray[np.int64]
    edges: NDArray[np.int64]


def made(kind: str, metric: str) -> Case:
    rng = np.random.default_rng(7)
    X = rng.integers(-3, 4, (N, D)).astype(np.float32) + 0.25  # many ties, no zero vector
    labels = np.where(np.arange(N) % 10 == 9, -1, rng.integers(0, CLASSES, N))
    index: Any = quick(
        cfe.index_factory(D, kind, **({} if metric == "cosine" else {"metric": metric}))
    )
    if not index.is_trained:
        index.train(np.concatenate([X, rng.normal(size=(300, D)).astype(np.float32)]))
    with_rows(index, X, labels)
    return Case(index, metric, X, labels, rng.integers(0, 4, N), rng.integers(0, N, (2, N)))


@pytest.fixture(
    scope="module",
    params=[(kind, metric) for kind in KINDS for metric in ("cosine", "ip", "l2")],
    ids=str,
)
def case(request: pytest.FixtureRequest) -> Case:
    return made(*request.param)


def distances(case: Case) -> NDArray[np.float64]:
    """Return D of all pairs of rows, as the index finds them without rules, (N, N)."""
    D = np.full((N, N), np.nan)
    values, ids = case.index.search_evidence(case.X, None, N, exact=True, neighbors="any")
    for q in range(N):
        D[q, ids[q][ids[q] >= 0]] = values[q][ids[q] >= 0]
    return D


def holds(
    metric: str, D: NDArray[np.float64], threshold: float, *, strictly: bool = False
) -> NDArray[np.bool_]:
    """Return where D is at the threshold or nearer."""
    limit = np.clip(threshold, -1e35, 1e35)
    limit = float(np.float32(limit))
    if metric == "l2":
        return limit > D if strictly else limit >= D
    return limit < D if strictly else limit <= D


@st.composite
def thresholds(draw: st.DrawFn, case: Case) -> float:
    if draw(st.booleans()):
        return draw(st.sampled_from(HUGE))
    values = distances(case)
    return float(values[draw(st.integers(0, N - 1)), draw(st.integers(0, N - 1))])


@given(data=st.data())
def test_constraints_hold_at_every_threshold(case: Case, data: st.DataObject) -> None:
    graph, threshold = data.draw(st.booleans()), data.draw(thresholds(case))
    where = cfe.Constraints(caliper={"age": 1}, **({"min_hops": 2} if graph else {}))
    about = {"attributes": {"age": case.age}, "graph": case.edges if graph else None}
    near = np.zeros((N, N), bool)
    if graph:
        near[case.edges[0], case.edges[1]] = near[case.edges[1], case.edges[0]] = True
    D, labels = distances(case), case.labels
    pairs = (labels[:, None] != labels) & (labels >= 0)[:, None] & (labels >= 0)
    pairs &= (np.abs(case.age[:, None] - case.age) <= 1) & ~near
    known = np.flatnonzero(labels >= 0)[:6]
    params = cfe.EvidenceParameters(labels[known], where=where, queries=known, **about)
    lims = case.index.range_search(case.X[known], threshold, params=params)[0]
    answer = np.diff(lims).tolist()
    expected = (pairs & holds(case.metric, D, threshold, strictly=True))[known].sum(axis=1).tolist()
    assert answer == expected
    if not LEAST[case.metric] <= threshold <= (1 if case.metric == "cosine" else math.inf):
        with pytest.raises(ValueError, match="threshold must lie in"):
            next(cfe.evidence_pairs(case.index, threshold))
        return
    found = list(cfe.evidence_pairs(case.index, threshold, where=where, **about))
    # both sides may be decoded
    values, ids = case.index.search_stored(None, N, exact=True, neighbors="any")
    of_pairs = np.full((N, N), np.nan)
    for q in range(N):
        of_pairs[q, ids[q][ids[q] >= 0]] = values[q][ids[q] >= 0]
    reached = holds(case.metric, of_pairs, threshold)
    above = np.triu(pairs & reached)
    assert sum(map(len, found)) == above.sum()
    plain = list(cfe.evidence_pairs(case.index, threshold))
    different = (labels[:, None] != labels) & (labels >= 0)[:, None] & (labels >= 0)
    above = np.triu(different & reached)
    assert sum(map(len, plain)) == above.sum()


@pytest.mark.parametrize("metric", ["cosine", "ip", "l2"])
def test_the_best_pairs_of_an_index_are_never_padding(metric: str) -> None:
    case = made("IDMap2,EvidenceFlat", metric)
    where = cfe.Constraints(min_hops=2)
    every = cfe.global_evidence(case.index, N * N, where=where, graph=case.edges)
    near = set(zip(*case.edges.tolist(), strict=True)) | set(
        zip(*case.edges[::-1].tolist(), strict=True)
    )
    assert not near & set(zip(every.source.tolist(), every.target.tolist(), strict=True))
    assert np.isfinite(every.similarity).all()


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("threshold", [*HUGE, 0.5])
def test_a_store_keeps_its_classes_at_every_threshold(metric: Any, threshold: float) -> None:
    case = made("IDMap2,EvidenceFlat", metric)
    store = cfe.EvidenceStore(D, metric=metric)
    known = np.flatnonzero(case.labels >= 0)
    store.add([str(row) for row in known], case.X[known], case.labels[known].tolist())
    if threshold < LEAST[metric]:
        for use in (
            store.pairs,
            store.groups,
            lambda least: store.search(case.X[0], threshold=least),
            lambda least: store.evidence(str(known[0]), threshold=least),
            lambda least: store.add(["new"], case.X[:1], [0], watch=least),
            store.similarity_curve().rate,
        ):
            with pytest.raises(ValueError, match=r"threshold must lie in \[0, inf\]"):
                use(threshold)
        return
    above = holds(metric, distances(case)[np.ix_(known, known)], threshold)
    different = case.labels[known][:, None] != case.labels[known]
    assert sum(map(len, store.pairs(threshold))) == np.triu(above & different).sum()
    assert len(store.search(case.X[known[0]], k=N, threshold=threshold)) == above[0].sum()
    hits = store.evidence(str(known[0]), k=N, threshold=threshold)
    assert len(hits) == (above & different)[0].sum()


def test_nan_is_an_error_that_names_the_argument() -> None:
    index = made("IDMap2,EvidenceFlat", "l2").index
    x, nan = np.ones((1, D), np.float32), math.nan
    with pytest.raises(ValueError, match="threshold"):
        index.range_search_evidence(x, [0], nan)
    with pytest.raises(ValueError, match="thresh"):
        index.range_search(x, nan, params=cfe.EvidenceParameters(0))
    with pytest.raises(ValueError, match="threshold"):
        next(cfe.evidence_pairs(index, nan))
    for within in ((nan, 1.0), (0.0, nan)):
        with pytest.raises(ValueError, match="within"):
            index.search_evidence(x, [0], 1, within=within)


def test_limited_use_is_refused_in_a_range_search_with_and_without_rules() -> None:
    case = made("IDMap2,EvidenceFlat", "cosine")
    for how in ({}, {"neighbors": "any"}, {"exclude": [[1]]}):
        params = cfe.EvidenceParameters([0], where=cfe.Constraints(ratio=1), **how)
        with pytest.raises(ValueError, match="must not limit how often evidence is used"):
            case.index.range_search(case.X[:1], 0.5, params=params)
