from contextlib import contextmanager

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import clustered, evidence, stored_vectors, top_pairs, with_rows

import cfe_faiss as cfe
from cfe_faiss import pairs as module
from cfe_faiss.search import exact, join, tiles


def both_indexes(stored):
    flat = cfe.IndexEvidenceIDMap2(stored.X.shape[1])
    ivf = cfe.IndexEvidenceIVF(stored.X.shape[1], 4, 2)
    ivf.train(stored.X)
    for index in (flat, ivf):
        index.add_with_ids(stored.X, stored.ids)
        index.relabel(stored.labels, stored.ids)
    return [flat, ivf]


@contextmanager
def joined():
    """Let all pairs be found by blocks of a few rows, however few vectors there are and whatever it costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WORTH_BLOCKS", -1)
        patch.setattr(join, "_BLOCK", 6)
        patch.setattr(join, "_BUFFER", 1)
        for price in ("_ROW_TEST", "_COARSE_PAIR", "_FINE_PAIR", "_SCORED_PAIR"):
            patch.setattr(join, price, 0)
        yield


def listed(pairs):
    return list(zip(pairs.source.tolist(), pairs.target.tolist(), pairs.similarity, strict=True))


@contextmanager
def small_steps():
    """Let a search take a few rows at a time, and hold few pairs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "CHUNK", 16)
        patch.setattr(tiles, "TILE", 16 * 16)
        patch.setattr(exact, "_BUFFER", 100)
        yield


@pytest.mark.parametrize("steps", [small_steps, joined])
@given(stored_vectors(least=4, lowest_label=-1))
def test_pairs_equal_brute_force(steps, stored):
    for index in both_indexes(stored):
        with steps():
            assert listed(cfe.global_evidence(index, stored.k)) == top_pairs(stored)[: stored.k]


@pytest.mark.parametrize(
    "d", [2, 16, 90, *(pytest.param(d, marks=pytest.mark.slow) for d in (15, 40))]
)
def test_joined_pairs_of_clusters(d):
    X, labels = clustered(500, d, 4, seed=d)
    X[100:140], X[200:260], X[300:310] = X[0], 0, -X[0]
    index = with_rows(cfe.IndexEvidenceIDMap2(d), X, labels)
    for k in (1, 30, 2000):
        expected = cfe.global_evidence(index, k)
        with joined():
            assert listed(cfe.global_evidence(index, k)) == listed(expected)


@given(
    stored_vectors(least=4, lowest_label=-1), st.sampled_from([-1, -0.5, 0, 1e-7, 0.3, 0.5, 0.9, 1])
)
def test_pairs_above_a_threshold(stored, threshold):
    expected = [pair for pair in top_pairs(stored) if pair[2] >= np.float32(threshold)]
    for index in both_indexes(stored):
        with joined():
            in_blocks = list(cfe.evidence_pairs(index, threshold, block=stored.k))
        for blocks in (in_blocks, list(cfe.evidence_pairs(index, threshold, block=stored.k))):
            assert all(0 < len(pairs) <= stored.k for pairs in blocks)
            for pairs in map(listed, blocks):
                assert pairs == sorted(pairs, key=lambda p: (-p[2], p[0], p[1]))
            every = [pair for pairs in blocks for pair in listed(pairs)]
            assert sorted(every, key=lambda p: (-p[2], p[0], p[1])) == expected


def test_an_index_must_not_change_while_its_pairs_are_iterated_over():
    X, labels = clustered(300, 5, 4)
    index = with_rows(cfe.IndexEvidenceIDMap2(5), X, labels)
    blocks = cfe.evidence_pairs(index, 0.0, block=10)
    next(blocks)
    index.remove_ids(np.arange(3))
    with pytest.raises(RuntimeError, match="index has changed"):
        list(blocks)


@given(stored_vectors(least=4, lowest_label=-1))
def test_searched_pairs_are_the_exact_ones_when_the_search_is_exact(stored):
    for index in both_indexes(stored):
        pairs = cfe.global_evidence(
            index, stored.k, exact=False, nprobe=8 if index.has_lists else None
        )
        assert listed(pairs) == top_pairs(stored)[: stored.k]


@given(stored_vectors(least=4, lowest_label=-1))
def test_per_node_is_algorithm_3(stored):
    D, I = evidence(
        stored._replace(xq=stored.X, labels_q=np.where(stored.labels < 0, -2, stored.labels), k=1)
    )
    best = {
        (min(v, u), max(v, u), s)
        for v, u, s, label in zip(
            stored.ids.tolist(), I[:, 0].tolist(), D[:, 0], stored.labels, strict=True
        )
        if u >= 0 and label >= 0
    }
    expected = sorted(best, key=lambda pair: (-pair[2], pair[0], pair[1]))[: stored.k]
    for index in both_indexes(stored):
        assert listed(cfe.global_evidence(index, stored.k, per_node=True)) == expected
        nprobe = 8 if index.has_lists else None
        searched = {"exact": False, "nprobe": nprobe}
        assert listed(cfe.global_evidence(index, stored.k, per_node=True, **searched)) == expected


@pytest.mark.parametrize(
    ("search", "arguments", "error", "message"),
    [
        (cfe.global_evidence, {"k": 0}, ValueError, "k must be"),
        (cfe.global_evidence, {"k": 1.5}, TypeError, "k must be"),
        (cfe.global_evidence, {"k": 3, "exact": False, "nprobe": 0}, ValueError, "nprobe .* got 0"),
        (cfe.evidence_pairs, {"threshold": 1.5}, ValueError, r"threshold must lie .* got 1.5"),
        (cfe.evidence_pairs, {"threshold": np.nan}, ValueError, "threshold must lie .* got nan"),
        (cfe.evidence_pairs, {"threshold": 0.5, "block": 0}, ValueError, "block .* got 0"),
    ],
)
def test_wrong_arguments_are_named_at_once(search, arguments, error, message):
    with pytest.raises(error, match=message):
        search(cfe.IndexEvidenceIDMap2(2), **arguments)


@pytest.mark.parametrize("kind", ["EvidenceFlat", "EvidenceIVF3,Flat", "EvidenceIVF3x2,SQ8"])
def test_an_empty_trained_index_has_no_pairs(kind):
    X, labels = clustered(60, 4, 2)
    index = cfe.index_factory(4, kind)
    if kind != "EvidenceFlat":
        index.train(X)
    assert list(cfe.evidence_pairs(index, 0.5)) == []
    for exactly in (True, False):
        assert len(cfe.global_evidence(index, 3, exact=exactly)) == 0
    index.add_with_labels(X, labels)
    assert len(next(cfe.evidence_pairs(index, 0.5)))
    index.reset()
    assert list(cfe.evidence_pairs(index, 0.5)) == []


def current(index):
    with index.holding() as snapshot:
        return snapshot


def test_an_index_that_faiss_trains_meanwhile_is_another_state():
    index = cfe.IndexEvidenceIVF(4, 3)
    before = current(index)
    assert current(index) is before
    faiss.IndexPreTransform(index).train(clustered(60, 4, 2)[0])
    assert current(index) is not before
    assert current(index).is_trained


@pytest.mark.parametrize(
    "wrong", [faiss.IndexFlatIP(4), cfe.index_factory(4, "L2norm,EvidenceFlat"), None]
)
def test_only_evidence_indexes_have_pairs(wrong):
    for use in (
        lambda: cfe.global_evidence(wrong, 3),
        lambda: cfe.evidence_pairs(wrong, 0.5),
        lambda: cfe.EvidenceFinder.from_index(wrong),
    ):
        message = f"index must be an evidence index, got {type(wrong).__name__}"
        with pytest.raises(TypeError, match=message):
            use()
