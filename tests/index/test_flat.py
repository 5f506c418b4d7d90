from random import Random

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import PADDING, Stored, clustered, evidence, similarities, stored_vectors

import cfe_faiss as cfe
from cfe_faiss.search import exact, tiles


def flat_of(stored: Stored) -> cfe.IndexEvidenceIDMap2:
    index = cfe.IndexEvidenceIDMap2(stored.X.shape[1])
    index.add_with_labels(stored.X, np.maximum(stored.labels, 0), stored.ids)
    index.relabel(stored.labels, stored.ids)
    return index


@given(stored_vectors(lowest_label=-1))
def test_search_evidence_equals_brute_force(stored: Stored) -> None:
    D, I = flat_of(stored).search_evidence(stored.xq, stored.labels_q, stored.k)
    expected_D, expected_I = evidence(stored)
    assert_array_equal(I, expected_I)
    assert_array_equal(D, expected_D)
    assert (D.dtype, I.dtype) == (np.float32, np.int64)


@given(stored_vectors(lowest_label=-1))
def test_search_stored_equals_searching_their_vectors(stored: Stored) -> None:
    index = flat_of(stored)
    ascending = np.argsort(stored.ids)
    members = stored._replace(
        xq=stored.X[ascending], labels_q=np.where(stored.labels < 0, -2, stored.labels)[ascending]
    )
    expected_D, expected_I = evidence(members)
    unknown = stored.labels[ascending] < 0
    expected_D[unknown], expected_I[unknown] = PADDING, -1
    D, I = index.search_stored(k=stored.k)
    assert_array_equal(I, expected_I)
    assert_array_equal(D, expected_D)
    some = ascending[::-2]
    D, I = index.search_stored(stored.ids[some], stored.k)
    assert_array_equal(I, expected_I[::-1][::2])
    assert_array_equal(D, expected_D[::-1][::2])


@given(stored_vectors(least=2), st.randoms())
def test_order_of_rows_does_not_matter(stored: Stored, random: object) -> None:
    shuffled = np.random.default_rng(len(stored.X)).permutation(len(stored.X))
    other = stored._replace(
        X=stored.X[shuffled], labels=stored.labels[shuffled], ids=stored.ids[shuffled]
    )
    for one, two in zip(
        flat_of(stored).search_evidence(stored.xq, stored.labels_q, stored.k),
        flat_of(other).search_evidence(stored.xq, stored.labels_q, stored.k),
        strict=True,
    ):
        assert_array_equal(one, two)


@given(stored_vectors(lowest_label=-1), st.floats(-1, 1, width=32))
def test_range_search_equals_brute_force(stored: Stored, threshold: float) -> None:
    lims, D, I = flat_of(stored).range_search_evidence(stored.xq, stored.labels_q, threshold)
    all_D, all_I = evidence(stored._replace(k=max(1, len(stored.X))))
    reaches = (all_I >= 0) & (all_D >= np.float32(threshold))
    assert_array_equal(lims, np.concatenate([[0], np.cumsum(reaches.sum(axis=1))]))
    assert_array_equal(D, all_D[reaches])
    assert_array_equal(I, all_I[reaches])


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
    assert_array_equal(
        np.diff(lims), ((np.float32(0.5) <= S) & (labels[:, None] != labels)).sum(axis=1)
    )
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
    index = cfe.IndexEvidenceIDMap2(2)
    index.add_with_labels(X, [0, 1, 2])
    assert_array_equal(X, before)
    assert_array_equal(index.reconstruct(0), np.float32([0.6, 0.8]))
    D, I = index.search_evidence([[0, 10]], [0], 2)
    assert_array_equal(I, [[2, 1]])
    assert_array_equal(D, [[1, 0]])


def test_is_a_faiss_index_that_stock_code_can_search() -> None:
    X, labels = clustered(300, 8, 3)
    index = cfe.IndexEvidenceIDMap2(8)
    index.add_with_labels(X, labels, np.arange(300) * 7)
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
    for a, b in zip(one.search_stored(k=3), two.search_stored(k=3), strict=True):
        assert_array_equal(a, b)
    two.relabel(np.zeros(400, int))
    D, I = two.search_stored(k=3)
    assert (I == -1).all()
    assert (D == PADDING).all()
    two.reset()
    assert two.ntotal == 0
    assert two.search_stored(k=3)[0].shape == (0, 3)


@pytest.mark.parametrize("kind", ["flat", "ivf"])
@given(stored=stored_vectors(least=12, lowest_label=-1), random=st.randoms(use_true_random=False))
def test_removing_equals_never_having_added(kind: str, stored: Stored, random: Random) -> None:
    index: cfe.IndexEvidenceIDMap2 | cfe.IndexEvidenceIVF = flat_of(stored)
    if kind == "ivf":
        index = cfe.IndexEvidenceIVF(stored.X.shape[1], 5, 2)
        index.train(stored.X)
        index.add_with_ids(stored.X, stored.ids)
        index.relabel(stored.labels, stored.ids)
    gone = np.array([random.random() < 0.5 for _ in stored.ids])
    absent = stored.ids.max() + 1
    assert index.remove_ids(np.append(stored.ids[gone], absent)) == gone.sum()
    rest = stored._replace(X=stored.X[~gone], labels=stored.labels[~gone], ids=stored.ids[~gone])
    expected_D, expected_I = evidence(rest)
    kwargs = {"nprobe": 10} if kind == "ivf" else {}
    D, I = index.search_evidence(stored.xq, stored.labels_q, stored.k, **kwargs)
    assert_array_equal(I, expected_I)
    assert_array_equal(D, expected_D)
    some = rest.ids[::2]
    assert index.remove_ids(faiss.IDSelectorBatch(some)) == len(some)
    assert_array_equal(index.members().ids, np.sort(rest.ids[1::2]))


def test_a_change_behind_our_back_is_noticed() -> None:
    index = cfe.IndexEvidenceIDMap2(4)
    index.add_with_labels(np.eye(4), [0, 0, 1, 1])
    faiss.IndexIDMap2.add_with_ids(index, np.eye(4, dtype=np.float32), np.arange(4) + 10)
    with pytest.raises(RuntimeError, match="8 vectors and 4 labels"):
        index.search_stored(k=1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda index: index.search_evidence(np.zeros((2, 5)), [0, 0], 1),
            ValueError,
            r"xq .*\(n, 4\), got \(2, 5\)",
        ),
        (lambda index: index.search_evidence(np.zeros(4), [0], 1), ValueError, r"xq .*got \(4,\)"),
        (
            lambda index: index.search_evidence([[0, 0, 0, np.nan]], [0], 1),
            ValueError,
            "xq .*finite.*row 0",
        ),
        (lambda index: index.search_evidence([["a"] * 4], [0], 1), TypeError, "xq .*real numbers"),
        (
            lambda index: index.search_evidence(np.zeros((2, 4)), [0], 1),
            ValueError,
            r"labels_q .*\(2,\).*got \(1,\)",
        ),
        (
            lambda index: index.search_evidence(np.zeros((1, 4)), [-1], 1),
            ValueError,
            "labels_q .*got -1",
        ),
        (
            lambda index: index.search_evidence(np.zeros((1, 4)), np.array([2**63], np.uint64), 1),
            ValueError,
            "labels_q .*got 9223",
        ),
        (
            lambda index: index.search_evidence(np.zeros((1, 4)), [0.5], 1),
            TypeError,
            "labels_q .*integers",
        ),
        (
            lambda index: index.search_evidence(np.zeros((1, 4)), [0], 0),
            ValueError,
            "k must be at least 1, got 0",
        ),
        (
            lambda index: index.search_evidence(np.zeros((1, 4)), [0], 1.5),
            TypeError,
            "k must be an integer, got 1.5",
        ),
        (
            lambda index: index.search_stored([99], 1),
            ValueError,
            "ids must be in the index, got 99",
        ),
        (lambda index: index.search_stored([-1], 1), ValueError, "ids .*got -1"),
        (
            lambda index: index.range_search_evidence(np.zeros((1, 4)), [0], np.nan),
            ValueError,
            "threshold .*nan",
        ),
        (
            lambda index: index.add_with_labels(np.zeros((1, 4)), [0], [1]),
            ValueError,
            "ids must not be in .*got 1",
        ),
        (
            lambda index: index.add_with_labels(np.zeros((2, 4)), [0, 0], [7, 7]),
            ValueError,
            "distinct, got 7",
        ),
        (
            lambda index: index.add_with_labels(np.zeros((2, 4)), [0, 0], [7]),
            ValueError,
            r"ids .*\(2,\).*got \(1,\)",
        ),
        (lambda index: index.relabel([0], [99]), ValueError, "ids must be in the index, got 99"),
        (lambda index: index.relabel([0, 0], [1, 1]), ValueError, "ids must be distinct"),
        (lambda index: cfe.IndexEvidenceIDMap2(0), ValueError, "d must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(
    call: object, error: type[Exception], message: str
) -> None:
    index = cfe.IndexEvidenceIDMap2(4)
    index.add_with_labels(np.eye(4), [0, 0, 1, 1])
    before = index.search_stored(k=4)
    with pytest.raises(error, match=message):
        call(index)  # type: ignore[operator]
    assert index.ntotal == 4
    for a, b in zip(before, index.search_stored(k=4), strict=True):
        assert_array_equal(a, b)


@given(st.integers(1, 40))
def test_k_larger_than_the_eligible_rows_pads(k: int) -> None:
    index = cfe.IndexEvidenceIDMap2(3)
    index.add_with_labels(np.eye(3), [0, 1, 1])
    D, I = index.search_evidence(np.eye(3)[:1], [0], k)
    assert D.shape == I.shape == (1, k)
    assert_array_equal(I[0, :2], [1, 2][: min(k, 2)])
    assert (I[0, 2:] == -1).all()
    assert (D[0, 2:] == PADDING).all()
