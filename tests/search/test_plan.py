"""Whichever engine is chosen for all rows of an index, the results are those of the exact index."""

from typing import Any

import numpy as np
import pytest
from reference import assert_same_arrays, clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss import _native


@pytest.mark.parametrize("has_bytes", [False, *([True] if _native.has_bytes() else [])])
@pytest.mark.parametrize("routing", ["evidence", "nearest"])
@pytest.mark.parametrize("d", [12, 128])
def test_all_rows_are_searched_exactly(
    d: int, routing: Any, has_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "has_bytes", lambda: has_bytes)
    X, labels = clustered(900, d, 3)
    index = with_rows(cfe.IndexEvidenceIVF(d, 20, routing=routing), X, labels)
    exact = with_rows(cfe.IndexEvidenceIDMap2(d), X, labels)
    efforts: list[dict[str, Any]] = [{"exact": True}, {"nprobe": 20}, {"recall": 1.0}]
    for k in (5, 64, 65):  # one product of all pairs is for few results
        expected = exact.search_stored(k=k)
        for effort in efforts:
            assert_same_arrays(index.search_stored(k=k, **effort), expected)
            assert_same_arrays(index.search_stored(k=k, memory=1 << 20, **effort), expected)
            few = index.search_stored(np.arange(79), k, **effort)
            assert_same_arrays(few, [part[:79] for part in expected])


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
