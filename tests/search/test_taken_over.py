"""Derived data is carried over small changes: results are those of a copy, which makes it anew."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss.search import derived
from cfe_faiss.search.derived import Derived

NLIST, N, K = 300, 3000, 5


def index_of(d: int, element: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return an index with blocks of this element type for many queries; one query has been searched."""
    choice = derived.Choice(element, "byte")
    monkeypatch.setattr(derived, "by_dimension", lambda *_: choice)
    X, labels = clustered(N, d, 4)
    index = cfe.IndexEvidenceIVF(d, NLIST)
    index.cp.niter = 2
    with_rows(index, X, labels)
    index.search_evidence(X[:1], labels[:1], K)
    return index


def is_carried_over(index: Any) -> bool:
    return Derived.of(index.storage()).carried is not None


def assert_as_made_anew(index: Any, seed: int = 0) -> None:
    fresh, rng = pickle.loads(pickle.dumps(index)), np.random.default_rng(seed)
    assert not is_carried_over(fresh)
    X, labels = rng.normal(size=(12, index.d)).astype(np.float32), rng.integers(0, 5, 12)
    for nprobe in (1, 7, 40, 90, NLIST):
        for i in range(len(X)):
            asked = X[i : i + 1], labels[i : i + 1], K, nprobe
            assert_same_arrays(index.search_evidence(*asked), fresh.search_evidence(*asked))


@pytest.mark.parametrize("element", ["byte", "float"])
@pytest.mark.parametrize("d", [9, 40])
def test_small_changes(d: int, element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index, rng = index_of(d, element, monkeypatch), np.random.default_rng(d)
    new, labels = clustered(40, d, 5)
    for i in range(4):
        index.add_with_labels(new[i : i + 1], labels[i : i + 1])
        assert_as_made_anew(index, i)
        if i % 2:
            index.search_stored(k=K, nprobe=10)  # makes blocks for many queries
    for i in range(4, 7):  # without a search in between
        index.add_with_labels(new[i : i + 1], labels[i : i + 1])
    index.remove_ids(rng.permutation(N)[:6])
    assert_as_made_anew(index)
    index.relabel(rng.integers(-1, 5, 5), rng.permutation(index.members().ids)[:5])
    assert is_carried_over(index)
    assert_as_made_anew(index)
    fresh = pickle.loads(pickle.dumps(index))
    found = index.search_stored(k=K, nprobe=20)[1]
    assert_array_equal(found, fresh.search_stored(k=K, nprobe=20)[1])
    index.add_with_labels(new[7:], labels[7:], np.arange(33) + 2 * N)
    assert_as_made_anew(index)


def test_a_list_may_become_empty_and_be_filled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(33, "byte", monkeypatch)
    starts, ids = index.storage().starts, index.storage().ids()
    removed = np.sort(ids[starts[17] : starts[18]])
    X = index.reconstruct_batch(removed)
    labels = index.members().labels[np.searchsorted(index.members().ids, removed)]
    index.remove_ids(removed)
    assert is_carried_over(index)
    assert_as_made_anew(index)
    index.add_with_labels(X, labels, removed)
    assert_as_made_anew(index)


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.remove_ids(np.arange(0, N, 7)),
        lambda index: (index.reset(), index.add_with_labels(*clustered(10, 9, 3))),
    ],
)
def test_nothing_is_carried_over_a_large_change(
    change: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_of(9, "byte", monkeypatch)
    index.add_with_labels(*clustered(1, 9, 3))
    change(index)
    assert not is_carried_over(index)
    assert_as_made_anew(index)


def test_a_small_change_rebuilds_little(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(40, "byte", monkeypatch)
    X, labels = clustered(20, 40, 4)

    def refused(*_: object) -> None:
        raise AssertionError("made anew")

    monkeypatch.setattr(derived, "blocks_of", refused)
    monkeypatch.setattr("cfe_faiss.coarse.routes.Routes.of", refused)
    for i in range(20):
        index.add_with_labels(X[i : i + 1], labels[i : i + 1])
        index.search_evidence(X[i : i + 1], labels[i : i + 1], K)
