from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import clustered

import cfe_faiss as cfe
from cfe_faiss import _native
from cfe_faiss.search import recall, searcher
from cfe_faiss.search.engine import Engine
from cfe_faiss.search.plan import SearchArguments, is_batched, known_nprobe, plan


@pytest.fixture(scope="module")
def index() -> cfe.IndexEvidenceIVF:
    X, labels = clustered(900, 12, 3)
    index = cfe.IndexEvidenceIVF(12, 20)
    index.train(X)
    index.add_with_labels(X, labels)
    return index


def arguments(**wanted: Any) -> SearchArguments:
    return SearchArguments.of(**{"nprobe": None, "recall": None, "exact": False, "memory": None} | wanted)


def test_how_hard_to_search_is_said_in_one_way() -> None:
    assert arguments(recall=1.0) == arguments(exact=True)
    assert arguments(nprobe=3).nprobe == 3
    assert arguments(memory=7).memory == 7
    for two in ({"nprobe": 3, "recall": 0.9}, {"nprobe": 3, "exact": True}, {"recall": 0.9, "exact": True}):
        with pytest.raises(ValueError, match="only one of nprobe, recall and exact may be given"):
            arguments(**two)
    for wrong in ({"nprobe": 0}, {"recall": 0.0}, {"recall": 1.1}, {"memory": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            arguments(**wrong)


def test_few_queries_are_searched_alone_and_many_in_groups(index: cfe.IndexEvidenceIVF) -> None:
    lists = index._all_lists()
    for nq, nprobe, batched in ((1, 5, False), (79, 20, True), (79, 5, False), (900, 5, True), (7, 20, False)):
        made = plan(lists, nq, 10, arguments(nprobe=nprobe), 16)
        assert (made.engine is Engine.BATCHED) == made.batched == is_batched(lists, nq, nprobe) == batched
        assert made.nprobe == nprobe


def test_lists_looked_into(index: cfe.IndexEvidenceIVF) -> None:
    lists = index._all_lists()
    assert plan(lists, 1, 10, arguments(), 16).nprobe == 16
    assert plan(lists, 1, 10, arguments(exact=True), 16).nprobe == 20
    assert known_nprobe(lists, 10, 0.9, 0) is None
    found = plan(lists, 1, 10, arguments(recall=0.9), 16).calibration
    assert found is recall.calibration(lists, 10, 0.9, batched=False)
    assert [known_nprobe(lists, 10, 0.9, label) for label in range(3)] == list(found.nprobe.values())
    assert known_nprobe(lists, 10, 0.9, 7) == found.other == found.most  # nothing is known of this class


def test_new_queries_at_a_recall_are_searched_alone(index: cfe.IndexEvidenceIVF) -> None:
    lists = index._all_lists()
    assert plan(lists, 900, 10, arguments(recall=0.9), 16).engine is Engine.BATCHED
    assert plan(lists, 900, 10, arguments(recall=0.9), 16, stored=False).engine is Engine.SINGLE
    assert plan(lists, 900, 10, arguments(nprobe=5), 16, stored=False).engine is Engine.BATCHED


def test_every_pair_is_multiplied_once_where_bytes_are_not(
    index: cfe.IndexEvidenceIVF, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = index._all_lists()
    monkeypatch.setattr(_native, "has_bytes", lambda: False)
    assert plan(lists, 900, 10, arguments(exact=True), 16, all_rows=True).engine is Engine.PAIRS
    assert plan(lists, 900, 10, arguments(nprobe=19), 16, all_rows=True).engine is Engine.BATCHED
    assert plan(lists, 900, 10, arguments(exact=True), 16).engine is Engine.BATCHED
    monkeypatch.setattr(_native, "has_bytes", lambda: True)
    assert plan(lists, 900, 10, arguments(exact=True), 16, all_rows=True).engine is Engine.BATCHED


def test_a_single_query_at_a_known_recall_is_not_searched_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = clustered(900, 12, 3)
    index = cfe.IndexEvidenceIVF(12, 20)
    index.train(X)
    index.add_with_labels(X, labels)
    x, label = X[5:6].copy(), labels[5:6].copy()
    first = index.search_evidence(x, label, 10, recall=0.95)
    monkeypatch.setattr(searcher, "search", lambda *_, **__: pytest.fail("took the long way"))
    for expected, found in zip(first, index.search_evidence(x, label, 10, recall=0.95), strict=True):
        assert_array_equal(found, expected)


def test_nearest_lists_are_never_searched_in_groups() -> None:
    X, labels = clustered(900, 12, 3)
    index = cfe.IndexEvidenceIVF(12, 20, routing="nearest")
    index.train(X)
    index.add_with_labels(X, labels)
    assert plan(index._all_lists(), 900, 10, arguments(exact=True), 16, all_rows=True).engine is Engine.SINGLE
    assert np.array_equal(index.search_members(k=3, exact=True)[1], index.search_members(k=3, nprobe=20)[1])
