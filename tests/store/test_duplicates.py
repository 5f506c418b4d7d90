"""Groups of near duplicates and the best pairs of a store, against SciPy on all rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from stores import INDEXES, filled

import cfe_faiss as cfe
from cfe_faiss import pairs


def distances(X: Any, metric: str) -> Any:
    rows = X.astype(np.float64)
    if metric == "l2":
        return ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    return 2 - rows @ rows.T


def nearly(a: Any, b: Any) -> bool:
    return bool(np.abs(np.asarray(a) - np.asarray(b)).max() < 1e-5)


@given(
    seed=st.integers(0, 99),
    threshold=st.floats(0.3, 0.99),
    metric=st.sampled_from(["cosine", "l2", "ip"]),
)
def test_groups_are_those_of_complete_linkage(seed: int, threshold: float, metric: Any) -> None:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(12, 5))
    X = centres[rng.integers(12, size=70)] + 0.3 * rng.normal(size=(70, 5))
    X = (X / np.linalg.norm(X, axis=1)[:, None]).astype(np.float32)
    store = cfe.EvidenceStore(5, metric=metric)
    ids = [f"{i}" for i in range(75)]
    store.add(ids, np.vstack([np.ones((5, 5)), X]), rng.choice(["a", "b"], 75).tolist())
    store.delete(ids[:5])
    rows = store.get().vectors
    limit = 1 - threshold if metric == "l2" else threshold
    away = distances(rows, metric)
    np.fill_diagonal(away, 0)
    cut = limit if metric == "l2" else 2 - limit
    wanted = fcluster(linkage(squareform(away, checks=False), "complete"), cut, "distance")
    groups = store.groups(limit)
    members = [{int(id_) - 5 for id_ in group.ids} for group in groups]
    numbers, counts = np.unique(wanted, return_counts=True)
    expected = [set(np.flatnonzero(wanted == c).tolist()) for c in numbers[counts > 1]]
    assert sorted(map(sorted, members)) == sorted(map(sorted, expected))
    assert [len(group) for group in groups] == sorted(counts[counts > 1].tolist(), reverse=True)
    for group in groups:
        places = [int(id_) - 5 for id_ in group.ids]
        inside = away[np.ix_(places, places)]
        assert places == sorted(places)
        sums = inside.sum(axis=1)
        assert sums[group.ids.index(group.representative)] <= sums.min() + 1e-5
        largest = inside.max()
        assert nearly(group.similarity, largest if metric == "l2" else 2 - largest)


def test_groups_of_fingerprints() -> None:
    store = cfe.EvidenceStore(4, metric="tanimoto")
    store.add(list("abc"), [[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]])
    (group,) = store.groups(0.5)
    assert group.ids == ["a", "b"]
    assert nearly(group.similarity, 2 / 3)
    with pytest.raises(ValueError, match="threshold"):
        store.groups(1.5)


def test_copies_of_any_class_are_one_group_and_a_chain_is_not() -> None:
    store = cfe.EvidenceStore(2)
    angles = np.radians([0, 0, 0, 10, 20, 30, 90])
    X = np.column_stack([np.cos(angles), np.sin(angles)])
    store.add(list("abcdefg"), X, ["x", "y", None, "x", "x", "x", "x"])
    assert [group.ids for group in store.groups(1.0)] == [["a", "b", "c"]]
    groups = store.groups(float(np.cos(np.radians(10.5))))
    assert [group.ids for group in groups] == [["a", "b", "c"], ["d", "e"]] or [
        group.ids for group in groups
    ] == [["a", "b", "c", "d"], ["e", "f"]]
    assert cfe.EvidenceStore(2).groups(0.5) == []


def test_memory_of_one_huge_component_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = filled(60)
    monkeypatch.setattr(pairs, "_MOST_LINKED_ROWS", 50)
    with pytest.raises(ValueError, match="threshold"):
        store.groups(-1.0)
    monkeypatch.setattr(pairs, "_MOST_PAIRS", 50)
    with pytest.raises(ValueError, match="threshold"):
        store.groups(-1.0)
    for wrong in (None, "0.5", 1.5, float("nan")):
        with pytest.raises((TypeError, ValueError), match="threshold"):
            store.groups(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", INDEXES)
def test_top_pairs_are_the_best_of_all_pairs(index: str) -> None:
    store, _ = filled(300, index=index)
    store.delete(store.ids[:7])
    pairs = store.top_pairs(25)
    every: dict[tuple[str, str], float] = {}
    for block in store.pairs(-1):
        every |= zip(
            zip(block.source, block.target, strict=True), block.similarity.tolist(), strict=True
        )
    assert pairs.similarity.tolist() == sorted(every.values(), reverse=True)[:25]
    ends = zip(pairs.source, pairs.target, strict=True)
    assert [every[source, target] for source, target in ends] == pairs.similarity.tolist()
    assert len(store.top_pairs(25, recall=0.9)) == 25
