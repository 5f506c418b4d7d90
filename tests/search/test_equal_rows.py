"""Cosines of equal rows are exactly 1, and no cosine lies outside [-1, 1].

Random searches of such rows are compared in :mod:`test_random_operations`.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import cosine, with_rows

import cfe_faiss as cfe
from cfe_faiss import _native, mining

seeds = st.integers(0, 2**32 - 1)


def near_rows(d: int, seed: int, number: int = 20) -> NDArray[np.float32]:
    """Return rows normalised in float32, many of which are equal, equal but for last bits, or opposite."""
    rng = np.random.default_rng(seed)
    few = rng.normal(size=(number, d)).astype(np.float32)
    few /= np.linalg.norm(few, axis=1, keepdims=True)
    shifted = (few * (1 + rng.choice([-1, 0, 1], few.shape) * np.float32(2.0**-23))).astype(
        np.float32
    )
    zeros = np.zeros((2, d), np.float32)
    return np.concatenate([few, few, few, shifted, 0 - few, 0 - shifted, zeros])


def test_equal_rows_of_large_sets_are_pairs_of_a_join() -> None:
    X = near_rows(24, 0, number=700)
    labels = np.arange(len(X)) // 700
    index = with_rows(cfe.IndexEvidenceIDMap2(24), X, labels)
    pairs = next(cfe.evidence_pairs(index, 1.0))
    found = {*zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)}
    answer = {(i + 700 * a, i + 700 * b) for i in range(700) for a, b in ((0, 1), (0, 2), (1, 2))}
    assert answer <= found
    assert (pairs.similarity == 1).all()
    best = cfe.global_evidence(index, len(found), exact=True)  # by the join
    assert {*zip(best.source.tolist(), best.target.tolist(), strict=True)} == found


def test_users_of_searches_find_equal_rows() -> None:
    X = near_rows(384, 1, number=200)[:200]
    twice = np.concatenate([X, X])
    pairs = mining.near_duplicates(twice, np.repeat(["train", "test"], 200), 1.0)
    assert_array_equal(np.sort(pairs.source), np.arange(200))
    for kind in (None, "EvidenceIVF4,Flat"):
        store = cfe.EvidenceStore(384, kind)
        store.add([f"{i:03}" for i in range(200)], X, ["a"] * 200)
        for row, hits in enumerate(store.search(X, k=3, threshold=1.0)):
            assert (hits.ids[0], hits.similarity[0]) == (f"{row:03}", 1)
    neighbors = cfe.EvidenceNeighbors(metric="cosine").fit(twice, np.repeat([0, 1], 200))
    distances, indices = neighbors.radius_neighbors(radius=0)
    for row in range(400):
        assert (row + 200) % 400 in indices[row]
        assert (distances[row] == 0).all()
    assert cfe.ks_similarity(X, np.arange(200), np.arange(200)).tolist() == [1] * 200


@given(d=st.integers(1, 70), seed=seeds)
def test_scores_are_symmetric_and_those_of_equal_rows_are_1(d: int, seed: int) -> None:
    X = near_rows(d, seed, number=3)
    first, second = (part.ravel() for part in np.indices((len(X), len(X))))
    scores = np.empty(len(first), np.float32)
    _native.row_scores(0, X, X, first, second, scores)
    assert_array_equal(scores, cosine(X[first], X[second]))
    S = scores.reshape(len(X), len(X))
    assert_array_equal(S, S.T)
    assert_array_equal(np.diag(S), [1] * (len(X) - 2) + [0, 0])
    assert np.abs(S).max() <= 1


@pytest.mark.parametrize("kind", ["IDMap2,EvidenceFlat", "EvidenceIVF6,Flat"])
def test_squared_distances_of_equal_rows_are_0(kind: str) -> None:
    X = near_rows(40, 5) * 3
    index = with_rows(cfe.index_factory(40, kind, "l2"), X, np.arange(len(X)) // 20)
    D, I = index.search_stored(np.arange(20), 2)
    assert_array_equal(I, [[i + 20, i + 40] for i in range(20)])
    assert (D == 0).all()
