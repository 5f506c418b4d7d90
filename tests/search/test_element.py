"""The choice of an element type for blocks; whichever is chosen, results are those of the exact index."""

from typing import Any

import numpy as np
import pytest
from reference import assert_same_arrays, clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss import _native
from cfe_faiss.search import derived
from cfe_faiss.search.derived import Derived


def built(X: np.ndarray, labels: np.ndarray, nlist: int) -> cfe.IndexEvidenceIVF:
    return with_rows(cfe.IndexEvidenceIVF(X.shape[1], nlist), X, labels)


def test_the_same_index_has_the_same_choice_and_memory_in_every_process() -> None:
    for d in (9, 128):
        X, labels = clustered(800, d, 3)
        choices = set()
        for _ in range(3):
            index = built(X, labels, 12)
            index.search_stored(k=3, nprobe=4)
            index.search_evidence(X[:1], labels[:1], 3)
            derived = Derived.of(index.storage())
            choices.add((derived.choice, tuple(sorted(derived.kept))))
        assert len(choices) == 1


def test_floats_are_taken_where_bytes_are_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = clustered(300, 200, 3)
    snapshot = built(X, labels, 3).storage()
    monkeypatch.setattr(_native, "has_bytes", lambda: False)
    for pinned in (None, derived.Choice("byte", "byte")):
        assert derived.choose(snapshot, pinned, keeps_blocks=True) == ("float", "float")


@pytest.mark.skipif(not _native.has_bytes(), reason="blocks hold floats here")
def test_bytes_are_taken_where_floats_exceed_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = clustered(300, 4, 3)
    snapshot = built(X, labels, 3).storage()
    found = derived.choose(snapshot, None, keeps_blocks=True)
    assert found == ("float", derived.by_dimension(4, _native.level()).single)
    monkeypatch.setattr(derived, "MEMORY", 100)
    assert derived.choose(snapshot, None, keeps_blocks=True).batch == "byte"
    assert derived.choose(snapshot, None, keeps_blocks=False).single == "float"


@pytest.mark.parametrize("labels", [np.full(60, -1), np.zeros(60, int)])
def test_an_index_without_queries_or_evidence_has_an_element(labels: np.ndarray) -> None:
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    index = built(X, labels, 4)
    assert Derived.of(index.storage()).choice.batch in ("float", "byte")
    for effort in ({"exact": True}, {"recall": 0.9}):
        assert (index.search_stored(k=3, **effort)[1] == -1).all()


@pytest.mark.parametrize("has_bytes", [False, *([True] if _native.has_bytes() else [])])
@pytest.mark.parametrize("routing", ["evidence", "nearest"])
@pytest.mark.parametrize("d", [12, 128])
def test_all_rows_are_searched_exactly(
    d: int, routing: Any, has_bytes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "has_bytes", lambda: has_bytes)
    X, labels = clustered(900, d, 3)
    index = with_rows(cfe.IndexEvidenceIVF(d, 20, routing=routing), X, labels)
    exact = with_rows(cfe.IndexEvidenceIDMap2(d), X, labels)
    efforts: list[dict[str, Any]] = [{"exact": True}, {"nprobe": 20}, {"recall": 1.0}]
    for k in (5, 64, 65):  # one product of all pairs is for few results
        expected = exact.search_stored(k=k)
        for effort in efforts:
            assert_same_arrays(index.search_stored(k=k, **effort), expected)
            assert_same_arrays(index.search_stored(k=k, memory=1 << 20, **effort), expected)
            few = index.search_stored(np.arange(79), k, **effort)
            assert_same_arrays(few, [part[:79] for part in expected])
