import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss._native import has_bytes
from cfe_faiss.search import derived as blocks_module
from cfe_faiss.search.derived import Carried, Derived

NLIST, N, K = 300, 3000, 5


def index_of(
    d: int, element: str, monkeypatch: pytest.MonkeyPatch, classes: int = 4
) -> cfe.IndexEvidenceIVF:
    """Return an index with blocks of the given element type for batched search, and byte blocks for single queries.

    One query has been searched. Without byte blocks in the core, there are only float blocks for batched search.
    """
    monkeypatch.setattr(
        blocks_module, "by_dimension", lambda *_: blocks_module.Choice(element, "byte")
    )
    X, labels = clustered(N, d, classes)
    index = cfe.IndexEvidenceIVF(d, NLIST)
    index.cp.niter = 2
    index.train(X)
    index.add_with_labels(X, labels)
    index.search_evidence(X[:1], labels[:1], K)
    return index


def assert_as_made_anew(index: cfe.IndexEvidenceIVF, rng: np.random.Generator) -> None:
    """Compare an index with its copy, which carries nothing over."""
    fresh = pickle.loads(pickle.dumps(index))
    X, labels = rng.normal(size=(12, index.d)).astype(np.float32), rng.integers(0, 5, 12)
    for nprobe in (1, 7, 40, 90, NLIST):
        for i in range(len(X)):
            found = index.search_evidence(X[i : i + 1], labels[i : i + 1], K, nprobe)
            again = fresh.search_evidence(X[i : i + 1], labels[i : i + 1], K, nprobe)
            assert_same_arrays(found, again)


def taken_over(index: cfe.IndexEvidenceIVF) -> Carried | None:
    return Derived.of(index.storage()).carried


@pytest.mark.parametrize("element", ["byte", "float"])
@pytest.mark.parametrize("d", [9, 40])
def test_results_match_a_new_index(d: int, element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index, rng = index_of(d, element, monkeypatch), np.random.default_rng(d)
    new, labels = clustered(40, d, 5)
    for i in range(4):
        index.add_with_labels(new[i : i + 1], labels[i : i + 1])
        assert_as_made_anew(index, rng)
    for i in range(4, 7):  # without a search in between
        index.add_with_labels(new[i : i + 1], labels[i : i + 1])
    index.remove_ids(rng.permutation(N)[:6])
    assert_as_made_anew(index, rng)
    ids = rng.permutation(index.members().ids)[:5]
    index.relabel(rng.integers(-1, 5, 5), ids)
    assert taken_over(index) is not None
    assert_as_made_anew(index, rng)
    fresh = pickle.loads(pickle.dumps(index))
    found = index.search_stored(k=K, nprobe=20)[1]
    assert_array_equal(found, fresh.search_stored(k=K, nprobe=20)[1])
    index.add_with_labels(new[7:], labels[7:], np.arange(33) + 2 * N)
    assert_as_made_anew(index, rng)


def test_a_list_may_become_empty_and_be_filled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    index, rng = index_of(33, "byte", monkeypatch), np.random.default_rng(0)
    starts, ids = index.storage().starts, index.storage().ids()
    gone = np.sort(ids[starts[17] : starts[18]])
    X = index.reconstruct_batch(gone)
    labels = index.members().labels[np.searchsorted(index.members().ids, gone)]
    index.remove_ids(gone)
    assert taken_over(index) is not None
    assert_as_made_anew(index, rng)
    index.add_with_labels(X, labels, gone)
    assert_as_made_anew(index, rng)


def test_little_is_rebuilt_after_a_small_change(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(40, "byte", monkeypatch)
    X, labels = clustered(20, 40, 4)

    def refused(*_: object) -> None:
        raise AssertionError("made anew")

    monkeypatch.setattr(blocks_module, "blocks_of", refused)
    monkeypatch.setattr("cfe_faiss.coarse.routes.Routes.of", refused)
    for i in range(20):
        index.add_with_labels(X[i : i + 1], labels[i : i + 1])
        index.search_evidence(X[i : i + 1], labels[i : i + 1], K)


def test_all_is_rebuilt_after_a_large_change(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(40, "byte", monkeypatch)
    index.remove_ids(np.arange(0, N, 7))
    assert taken_over(index) is None
    assert_as_made_anew(index, np.random.default_rng(0))


def test_nothing_is_taken_over_of_what_was_emptied_or_read(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(9, "byte", monkeypatch)
    X, labels = clustered(10, 9, 3)
    index.add_with_labels(X[:1], labels[:1])
    index.reset()
    index.add_with_labels(X, labels)
    assert taken_over(index) is None
    assert_as_made_anew(index, np.random.default_rng(0))
    assert taken_over(pickle.loads(pickle.dumps(index))) is None


def test_old_blocks_are_let_go_once_there_are_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_of(40, "byte", monkeypatch)
    X, labels = clustered(2, 40, 4)
    index.add_with_labels(X[:1], labels[:1])
    index.search_evidence(X[:1], labels[:1], K)
    old = taken_over(index).blocks["byte"]
    index.search_stored(k=K, nprobe=10)
    assert taken_over(index) is None
    assert Derived.of(index.storage()).blocks is not old
    assert_as_made_anew(index, np.random.default_rng(1))


@pytest.mark.skipif(not has_bytes(), reason="blocks hold floats here")
def test_blocks_for_single_queries_outlive_new_ones_for_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = index_of(40, "float", monkeypatch)
    X, labels = clustered(3, 40, 4)
    for i in range(3):
        index.add_with_labels(X[i : i + 1], labels[i : i + 1])
        old = taken_over(index).blocks["byte"]
        assert old.element == "byte"
        index.search_stored(k=K, nprobe=10)
        assert Derived.of(index.storage()).blocks.element == "float"
        assert taken_over(index).blocks["byte"] is old
        assert_as_made_anew(index, np.random.default_rng(i))


@pytest.mark.skipif(not has_bytes(), reason="blocks hold floats here")
def test_blocks_that_single_queries_do_not_use_are_not_taken_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = index_of(40, "byte", monkeypatch)
    fresh = pickle.loads(pickle.dumps(index))  # has made no choice yet
    monkeypatch.setattr(
        blocks_module, "by_dimension", lambda *_: blocks_module.Choice("byte", "float")
    )
    X, labels = clustered(1, 40, 4)
    fresh.search_stored(k=K, nprobe=10)
    fresh.search_evidence(X, labels, K)
    assert Derived.of(fresh.storage()).kept["byte"] is not None
    fresh.add_with_labels(X, labels)
    assert not taken_over(fresh).blocks
    assert_as_made_anew(fresh, np.random.default_rng(0))


def test_an_index_of_several_partitions_rebuilds_all() -> None:
    X, labels = clustered(600, 8, 3)
    index = with_rows(cfe.IndexEvidenceIVF(8, 20, partitions=2), X, labels)
    index.search_evidence(X[:1], labels[:1], K)
    index.add_with_labels(X[:1], labels[:1])
    assert taken_over(index) is None
