"""``recall=`` keeps its promise under every rule; ``benchmarks/recall_rules.py`` measures more cells."""

from typing import Any

import numpy as np
import pytest

import cfe_faiss as cfe

N, D, K, TARGET = 4000, 24, 10, 0.9


@pytest.fixture(scope="module")
def index() -> Any:
    rng = np.random.default_rng(1)
    X = (rng.normal(size=(N, 6)) @ rng.normal(size=(6, D)) + 0.2 * rng.normal(size=(N, D))).astype(
        np.float32
    )
    labels = np.where(X[:, 0] > 0, rng.integers(0, 2, N), rng.integers(0, 4, N))
    index: Any = cfe.IndexEvidenceIVF(D, 60)
    index.train(X)
    index.add_with_ids(X, np.arange(N))
    index.relabel(np.where(np.arange(N) % 40 == 0, -1, labels))
    return index


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
        how["within"] = (-1, float(np.median(D[I[:, 0] >= 0, 10])))
    expected = index.search_stored(ids, K, exact=True, **how)[1]
    found = index.search_stored(ids, K, recall=TARGET, **how)[1]
    wanted = (expected >= 0).sum(axis=1)
    assert ((found >= 0).sum(axis=1) == wanted).all()  # rows are complete
    hits = np.array([np.isin(a[a >= 0], b).sum() for a, b in zip(expected, found, strict=True)])
    assert (hits[wanted > 0] / wanted[wanted > 0]).mean() >= TARGET
