import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import (
    PADDING,
    Stored,
    assert_same_arrays,
    clustered,
    evidence,
    similarities,
    with_rows,
)

import cfe_faiss as cfe
from cfe_faiss.search import exact, tiles


def flat_of(stored: Stored) -> cfe.IndexEvidenceIDMap2:
    index = cfe.IndexEvidenceIDMap2(stored.X.shape[1])
    index.add_with_labels(stored.X, np.maximum(stored.labels, 0), stored.ids)
    index.relabel(stored.labels, stored.ids)
    return index


def test_many_chunks_threads_and_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "CHUNK", 64)
    monkeypatch.setattr(tiles, "TILE", 64 * 64)
    monkeypatch.setattr(exact, "_BUFFER", 100)
    X, labels = clustered(1000, 24, 5)
    stored = Stored(X, labels, np.arange(1000), X, labels, 7)
    index = flat_of(stored)
    expected_D, expected_I = evidence(stored)
    for D, I in (index.search_stored(k=7), index.search_evidence(X, labels, 7)):
        assert_array_equal(I, expected_I)
        assert_array_equal(D, expected_D)
    lims, _, ids = index.range_search_evidence(X, labels, 0.5)
    S = similarities(X, X)
    found = np.diff(lims)
    assert_array_equal(found, ((np.float32(0.5) <= S) & (labels[:, None] != labels)).sum(axis=1))
    assert len(ids) > 1000


def test_identical_vectors_come_back_by_id() -> None:
    index = cfe.IndexEvidenceIDMap2(3)
    ids = np.random.default_rng(0).permutation(5000)
    index.add_with_labels(np.tile(np.float32([1, 2, 2]), (5000, 1)), np.zeros(5000, int), ids)
    D, I = index.search_evidence([[2, 4, 4]], [1], 100)
    assert_array_equal(I[0], np.arange(100))
    assert len(set(D[0].tolist())) == 1
    np.testing.assert_allclose(D, 1, atol=2e-7)


def test_vectors_are_normalised_in_a_copy() -> None:
    X = np.float32([[3, 4], [0, 0], [0, 2]])
    before = X.copy()
    index = with_rows(cfe.IndexEvidenceIDMap2(2), X, [0, 1, 2])
    assert_array_equal(X, before)
    assert_array_equal(index.reconstruct(0), np.float32([0.6, 0.8]))
    assert_same_arrays(index.search_evidence([[0, 10]], [0], 2), ([[1, 0]], [[2, 1]]))


def test_is_a_faiss_index_that_stock_code_can_search() -> None:
    X, labels = clustered(300, 8, 3)
    index = with_rows(cfe.IndexEvidenceIDMap2(8), X, labels, np.arange(300) * 7)
    assert isinstance(index, faiss.Index)
    assert index.ntotal == 300
    _, I = index.search(X[:5], 1)
    assert_array_equal(I[:, 0], np.arange(5) * 7)


def test_adding_later_relabelling_and_resetting() -> None:
    X, labels = clustered(400, 8, 3)
    one, two = cfe.IndexEvidenceIDMap2(8), cfe.IndexEvidenceIDMap2(8)
    one.add_with_labels(X, labels)
    two.add(X[:150])
    two.add_with_labels(X[150:300], labels[150:300])
    two.add_with_ids(X[300:], np.arange(300, 400))
    D, I = two.search_stored(k=3)
    assert (I[:150] == -1).all()
    assert (I[150:300] >= 150).all()
    two.relabel(labels[:150], np.arange(150))
    two.relabel(labels[300:], np.arange(300, 400))
    assert_same_arrays(one.search_stored(k=3), two.search_stored(k=3))
    two.relabel(np.zeros(400, int))
    D, I = two.search_stored(k=3)
    assert (I == -1).all()
    assert (D == PADDING).all()
    two.reset()
    assert two.ntotal == 0
    assert two.search_stored(k=3)[0].shape == (0, 3)


def test_a_change_behind_our_back_is_noticed() -> None:
    index = with_rows(cfe.IndexEvidenceIDMap2(4), np.eye(4), [0, 0, 1, 1])
    faiss.IndexIDMap2.add_with_ids(index, np.eye(4, dtype=np.float32), np.arange(4) + 10)
    with pytest.raises(RuntimeError, match="8 vectors and 4 labels"):
        index.search_stored(k=1)
