"""Cosines of equal rows are exactly 1 in every search, and no cosine lies outside [-1, 1]."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import (
    LEAST_OF_EQUAL,
    PADDING,
    assert_same_arrays,
    cosine,
    cosines,
    quick,
    unit,
    with_rows,
)

import cfe_faiss as cfe
from cfe_faiss import _native, mining

KINDS = [
    "IDMap2,EvidenceFlat",
    "EvidenceIVF6,Flat",
    "EvidenceIVF6x2,Flat",
    "EvidenceIVF6,PQ1,RFlat",
]
CODECS = ["EvidenceIVF6,SQ8", "EvidenceIVF6x2,SQfp16"]
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


class Filled:
    """An index of near rows, and the scores of all pairs of its rows in ascending order of ids."""

    def __init__(self, kind: str, d: int, seed: int) -> None:
        X, rng = near_rows(d, seed), np.random.default_rng(seed)
        order = rng.permutation(len(X))
        self.index: Any = quick(cfe.index_factory(d, kind))
        if not self.index.is_trained:
            self.index.train(np.concatenate([X, rng.normal(size=(300, d)).astype(np.float32)]))
        if self.index.k_factor is not None:
            self.index.k_factor = len(X)  # score all rows of the lists
        self.index.add_with_labels(X[order], rng.integers(0, 3, len(X)), order)
        known = self.index.members()
        self.ids, self.labels = known.ids, known.labels
        self.X = self.index.reconstruct_batch(known.ids)
        self.xq = self.X if self.index.keeps_vectors else unit(self.X)
        self.S = cosines(self.xq, self.X)

    def best(
        self, k: int, eligible: NDArray[np.bool_]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the k best of the eligible rows of each query."""
        D, I = np.full((len(self.S), k), PADDING, np.float32), np.full((len(self.S), k), -1)
        for q, scores in enumerate(self.S):
            rows = np.flatnonzero(eligible[q])
            rows = rows[np.lexsort((self.ids[rows], -scores[rows]))][:k]
            D[q, : len(rows)], I[q, : len(rows)] = scores[rows], self.ids[rows]
        return D, I


def assert_same(found: Any, expected: Any) -> None:
    assert_same_arrays(found, expected)


@pytest.mark.parametrize("kind", [*KINDS, *CODECS])
@given(d=st.sampled_from([1, 2, 3, 7, 16, 40, 200]), seed=seeds, k=st.sampled_from([1, 2, 5, 150]))
def test_every_search_finds_equal_rows_first(kind: str, d: int, seed: int, k: int) -> None:
    case = Filled(kind, d, seed)
    index, labels, xq = case.index, case.labels, case.xq
    differ = labels[:, None] != labels
    expected = case.best(k, differ)
    for effort in ({"exact": True}, {"nprobe": 12} if index.has_lists else {}):
        assert_same(index.search_evidence(xq, labels, k, **effort), expected)
        for q in (0, 3, 50, len(xq) - 1):
            found = index.search_evidence(xq[q : q + 1], labels[q : q + 1], k, **effort)
            assert_same(found, [part[q : q + 1] for part in expected])
        few = index.search_evidence(xq[:9], labels[:9], k, within=(-1, 1), **effort)
        assert_same(few, [part[:9] for part in expected])
        for within in (
            (1, 1),
            (float(LEAST_OF_EQUAL), float(np.nextafter(np.float32(1), np.float32(0)))),
            (-1, -1),
        ):
            held = differ & (np.float32(within[0]) <= case.S) & (np.float32(within[1]) >= case.S)
            found = index.search_evidence(xq, labels, k, within=within, **effort)
            assert_same(found, case.best(k, held))
        any_class = index.search_evidence(xq, labels, k, neighbors="any", **effort)
        assert_same(any_class, case.best(k, np.ones_like(differ)))
    for threshold in (1.0, -1.0, float(LEAST_OF_EQUAL)):
        lims, D, I = index.range_search_evidence(xq, labels, threshold)
        for q in range(len(xq)):
            rows = np.flatnonzero(differ[q] & (case.S[q] >= np.float32(threshold)))
            rows = rows[np.lexsort((case.ids[rows], -case.S[q, rows]))]
            assert_array_equal(I[lims[q] : lims[q + 1]], case.ids[rows])
            assert_array_equal(D[lims[q] : lims[q + 1]], case.S[q, rows])


@pytest.mark.parametrize("kind", KINDS)
@given(d=st.sampled_from([1, 2, 3, 7, 16, 40, 200]), seed=seeds)
def test_stored_rows_and_pairs(kind: str, d: int, seed: int) -> None:
    case = Filled(kind, d, seed)
    index, ids = case.index, case.ids
    differ = case.labels[:, None] != case.labels
    for k in (1, 3):
        expected = case.best(k, differ)
        assert_same(index.search_stored(k=k, exact=True), expected)
        if not index.has_lists:
            continue
        assert_same(index.search_stored(k=k, nprobe=12), expected)
        D, I, certified = index.search_certified(k=k, nprobe=2)
        assert_same((D[certified], I[certified]), [part[certified] for part in expected])
    first, second = np.nonzero(np.triu(differ, 1))
    scores = case.S[first, second]
    order = np.lexsort((ids[second], ids[first], -scores))
    pairs = cfe.global_evidence(index, 30, exact=True)
    assert_array_equal(pairs.similarity, scores[order[:30]])
    assert_array_equal(pairs.source, ids[first[order[:30]]])
    assert_array_equal(pairs.target, ids[second[order[:30]]])
    equal = {(ids[a], ids[b]) for a, b in zip(first[scores == 1], second[scores == 1], strict=True)}
    found = next(cfe.evidence_pairs(index, 1.0))
    assert {*zip(found.source.tolist(), found.target.tolist(), strict=True)} == equal
    assert (found.similarity == 1).all()


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
