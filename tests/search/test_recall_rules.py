"""``recall=`` and certificates keep their promise; ``benchmarks/recall_kept.py`` measures more cells."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, quick, with_rows

import cfe_faiss as cfe

N, D, K, TARGET = 4000, 24, 10, 0.9


@pytest.fixture(scope="module", params=["cosine", "ip"])
def index(request: pytest.FixtureRequest) -> Any:
    rng = np.random.default_rng(1)
    X = (rng.normal(size=(N, 6)) @ rng.normal(size=(6, D)) + 0.2 * rng.normal(size=(N, D))).astype(
        np.float32
    )
    labels = np.where(X[:, 0] > 0, rng.integers(0, 2, N), rng.integers(0, 4, N))
    index = cfe.IndexEvidenceIVF(D, 60, metric=request.param)
    return with_rows(index, X, np.where(np.arange(N) % 40 == 0, -1, labels))


@pytest.mark.parametrize(
    "step", [1, 9]
)  # all rows are searched in groups, some rows partly one by one
@pytest.mark.parametrize("rule", ["other", "any", "ids", "any, ids", "within", "any, within"])
def test_recall_is_reached(index: Any, rule: str, step: int) -> None:
    ids = None if step == 1 else np.arange(0, N, step)
    how: dict[str, Any] = {"neighbors": "any" if "any" in rule else "other"}
    D, I = index.search_stored(ids, 40, exact=True, **how)
    if "ids" in rule:
        how["exclude"] = I[:, :5].copy()
    if "within" in rule:
        how["within"] = (
            -1 if index.metric == "cosine" else -np.inf,
            float(np.median(D[I[:, 0] >= 0, 10])),
        )
    expected = index.search_stored(ids, K, exact=True, **how)[1]
    found = index.search_stored(ids, K, recall=TARGET, **how)[1]
    wanted = (expected >= 0).sum(axis=1)
    assert ((found >= 0).sum(axis=1) == wanted).all()  # rows are complete
    hits = np.array([np.isin(a[a >= 0], b).sum() for a, b in zip(expected, found, strict=True)])
    assert (hits[wanted > 0] / wanted[wanted > 0]).mean() >= TARGET


@pytest.mark.parametrize(
    "make", ["EvidenceIVF40,Flat", "EvidenceIVF40,SQ8", "EvidenceIVF40,PQ3,RFlat"]
)
def test_many_rows_are_certified_in_few_dimensions_and_more_with_more_lists(make: str) -> None:
    X, labels = clustered(4000, 3, 3)
    index = with_rows(quick(cfe.index_factory(3, make)), X, labels)
    exact_D, _ = index.search_stored(None, 5, exact=True)
    shares = []
    for nprobe in (4, 12, 40):
        D, _, certified = index.search_certified(None, 5, nprobe)
        assert_array_equal(D[certified], exact_D[certified])
        shares.append(certified.mean())
    assert shares[-1] == 1
    if "PQ" not in make:  # screening by codes does not score every vector of a probed list
        assert 0.1 < shares[0] < shares[1]
    some, _, certified = index.search_certified([3, 99], 5, 40)
    assert some.shape == (2, 5)
    assert certified.all()


def test_a_recall_that_needs_nearly_all_lists_is_exact() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 128)).astype(np.float32)
    labels = rng.integers(0, 3, 900)
    index = with_rows(cfe.IndexEvidenceIVF(128, 20), X, labels)
    first = index.search_evidence(X[5:6], labels[5:6], 10, recall=0.95)
    assert_same_arrays(index.search_evidence(X[5:6], labels[5:6], 10, recall=0.95), first)
    expected = index.search_stored(k=10, exact=True)
    assert_same_arrays(index.search_stored(k=10, recall=0.9999), expected)
    D, I = index.search_stored(k=10, recall=0.3)
    assert 0.3 <= cfe.metrics.recall(I, expected[1], D, expected[0]) < 1
