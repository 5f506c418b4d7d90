import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_array_equal
from reference import Stored, clustered, evidence, stored_vectors, top_pairs

import cfe_faiss as cfe
from cfe_faiss.index import exact


def both_indexes(stored: Stored) -> list[cfe.IndexEvidenceFlat | cfe.IndexEvidenceIVF]:
    flat = cfe.IndexEvidenceFlat(stored.X.shape[1])
    ivf = cfe.IndexEvidenceIVF(stored.X.shape[1], 4, 2)
    ivf.train(stored.X)
    for index in (flat, ivf):
        index.add_with_ids(stored.X, stored.ids)
        index.relabel(stored.labels, stored.ids)
    return [flat, ivf]


def listed(pairs: cfe.Pairs) -> list[tuple[int, int, np.float32]]:
    return list(zip(pairs.source.tolist(), pairs.target.tolist(), pairs.similarity, strict=True))


@given(stored_vectors(least=4, lowest_label=-1))
def test_exact_pairs_equal_brute_force(stored: Stored) -> None:
    for index in both_indexes(stored):
        assert listed(cfe.global_evidence(index, stored.k)) == top_pairs(stored)[: stored.k]


@given(stored_vectors(least=4, lowest_label=-1))
def test_searched_pairs_are_the_exact_ones_when_the_search_is_exact(stored: Stored) -> None:
    for index in both_indexes(stored):
        pairs = cfe.global_evidence(index, stored.k, exact=False, nprobe=8)
        assert listed(pairs) == top_pairs(stored)[: stored.k]


@given(stored_vectors(least=4, lowest_label=-1))
def test_per_node_is_algorithm_3(stored: Stored) -> None:
    D, I = evidence(stored._replace(xq=stored.X, labels_q=np.where(stored.labels < 0, -2, stored.labels), k=1))
    best = {
        (min(v, u), max(v, u), s)
        for v, u, s, label in zip(stored.ids.tolist(), I[:, 0].tolist(), D[:, 0], stored.labels, strict=True)
        if u >= 0 and label >= 0
    }
    expected = sorted(best, key=lambda pair: (-pair[2], pair[0], pair[1]))[: stored.k]
    for index in both_indexes(stored):
        assert listed(cfe.global_evidence(index, stored.k, per_node=True)) == expected
        assert listed(cfe.global_evidence(index, stored.k, per_node=True, exact=False, nprobe=8)) == expected


def test_many_panels_and_a_small_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_PANEL", 64)
    monkeypatch.setattr(exact, "_TILE", 64 * 64)
    monkeypatch.setattr(exact, "_BUFFER", 100)
    X, labels = clustered(700, 10, 4)
    stored = Stored(
        np.concatenate([X, X[:50]]), np.concatenate([labels, labels[:50] + 1]), np.arange(750), X, labels, 9
    )
    for index in both_indexes(stored):
        for k in (1, 60, 3000):
            assert listed(cfe.global_evidence(index, k)) == top_pairs(stored)[:k]


def test_pairs_have_a_length() -> None:
    index = cfe.IndexEvidenceFlat(2)
    index.add_with_labels(np.eye(2), [0, 1])
    assert len(cfe.global_evidence(index, 5)) == 1


@pytest.mark.parametrize(("k", "error"), [(0, ValueError), (1.5, TypeError), (-3, ValueError)])
def test_bad_k(k: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="k must be"):
        cfe.global_evidence(cfe.IndexEvidenceFlat(2), k)  # type: ignore[arg-type]


def test_bad_nprobe() -> None:
    with pytest.raises(ValueError, match="nprobe must be at least 1, got 0"):
        cfe.global_evidence(cfe.IndexEvidenceFlat(2), 3, exact=False, nprobe=0)


def test_nothing_stored_gives_no_pairs() -> None:
    for exactly in (True, False):
        assert_array_equal(cfe.global_evidence(cfe.IndexEvidenceFlat(2), 3, exact=exactly).source, [])
