import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, cosines, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss._native import has_bytes
from cfe_faiss.search import derived, lists
from cfe_faiss.search.answer import pad_results
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Effort, Plan, Queries

ELEMENTS = ["float", "byte"] if has_bytes() else ["float"]


@pytest.fixture(params=ELEMENTS)
def element(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(derived, "by_dimension", lambda *_: derived.Choice(request.param, "byte"))
    return request.param


def grouped(
    index: cfe.IndexEvidenceIVF,
    queries: Queries,
    k: int,
    nprobe: int,
    complete: bool = False,
    allowed: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    plan = Plan("groups", nprobe, Effort(complete=complete, routing="evidence"))
    return pad_results(
        *lists.search(dataclasses.replace(queries, k=k, allowed=allowed), plan, None), k
    )


def near_twins(n: int, d: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors whose similarities are all nearly 1, as those of KS vectors may be, and some zero vectors."""
    rng = np.random.default_rng(0)
    X = rng.random(d) + noise * rng.normal(size=(n, d))
    X[:3] = 0
    return X.astype(np.float32), rng.integers(0, 3, n)


def test_each_query_finds_the_best_of_the_lists_of_its_group(element: str) -> None:
    X, labels = clustered(900, 12, 3)
    index = with_rows(cfe.IndexEvidenceIVF(12, 15), X, labels)
    storage, homes = index.storage(), np.repeat(np.arange(15), np.diff(index.storage().starts))
    queries = Queries.of_rows(storage, np.arange(900))
    _, I = grouped(index, queries, 5, 3)
    groups, nearest = lists.routed(index.routes(), queries, 3)
    assert_array_equal(np.sort(groups.order), np.arange(900))
    vectors, ids = storage.rows(np.arange(900))
    S = cosines(vectors, vectors)
    for g in range(len(groups)):
        group = groups.order[groups.starts[g] : groups.starts[g + 1]]
        assert 1 <= len(group) <= 16
        assert len(set(homes[group].tolist())) == 1
        mean = unit(vectors[group].mean(axis=0)[None])
        assert_array_equal(nearest[g], index.routes().lists(mean, groups.labels[g : g + 1], 3)[0])
        for q in group:
            eligible = np.flatnonzero(
                np.isin(homes, nearest[g]) & (storage.labels != storage.labels[q])
            )
            best = eligible[np.lexsort((ids[eligible], -S[q, eligible]))][:5]
            assert_array_equal(I[q, : len(best)], ids[best])


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_small_budget_of_memory_changes_nothing(partitions: int) -> None:
    X, labels = clustered(900, 20, 4)
    index = with_rows(cfe.IndexEvidenceIVF(20, 12, partitions), X, labels)
    expected = index.search_stored(None, 10, nprobe=5)
    passes = len(lists.shards(index.storage(), np.ones(12 * partitions, bool), 1000, 1))
    assert passes == 12 * partitions
    for memory in (1, 20_000):
        assert_same_arrays(index.search_stored(None, 10, nprobe=5, memory=memory), expected)


# --- rotated rows -----------------------------------------------------------------------------------------------------


needs_bytes = pytest.mark.skipif(not has_bytes(), reason="only bytes are rotated")


def indexed(X: np.ndarray, labels: np.ndarray, nlist: int) -> cfe.IndexEvidenceIVF:
    return with_rows(cfe.IndexEvidenceIVF(X.shape[1], nlist), X, labels)


@needs_bytes
@pytest.mark.parametrize("noise", [1e-6, 1e-3, 0.1, 10.0])
def test_rotated_rows_are_found_as_others_are(
    noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "by_dimension", lambda *_: derived.Choice("byte", "byte"))
    X, labels = near_twins(700, 42, noise)
    found = []
    for rotated in (False, True):
        if rotated:
            monkeypatch.setattr(derived, "_WORTH_ROTATING", 1)
            monkeypatch.setattr(derived, "_PREFIX", 8)
            monkeypatch.setattr(derived, "_LONGEST_TAIL", 1.0)
        index = indexed(X, labels, 12)
        kept = Derived.of(index.storage()).blocks
        assert kept is not None
        assert kept.element == "byte"
        assert kept.rotated == rotated
        results = [index.search_stored(k=10, nprobe=nprobe) for nprobe in (1, 4, 12)]
        results += [index.search_stored(k=10, nprobe=4, memory=1)]
        found.append(results)
    for before, after in zip(*found, strict=True):
        for expected, result in zip(before, after, strict=True):
            assert_array_equal(result, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_damaged_rows_give_no_directions(value: float) -> None:
    X = np.random.default_rng(0).normal(size=(40, 70)).astype(np.float32)
    X[7] = value
    R, tail = derived.directions_of(X)
    assert (len(R), tail) == (0, np.inf)


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [3, 18, 200])
def test_blocks_take_about_as_much_memory_as_was_planned(element: str, d: int) -> None:
    X, labels = near_twins(1600, d, 1.0)
    index = indexed(X, labels, 4)  # keeps the memory of the lists alive
    kept = Derived.of(index.storage()).blocks
    assert kept is not None
    assert kept.element == element
    most = derived.bytes_of_block(d, element) * (1600 // 16 + 3)
    assert 0.6 * most < kept.memory < most + 4 * (4 * d + 8 * 4)
