from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import clustered

import cfe_faiss as cfe
from cfe_faiss.search.derived import Derived
from cfe_faiss import _native
from cfe_faiss.search import answer as searcher, exact, grouped, recall, single
from cfe_faiss.search.answer import is_batched, known_nprobe, plan_of
from cfe_faiss.search.query import Effort, Plan, Queries


def plan(lists: Derived, nq: int, k: int, effort: Effort, own: int, *, all_rows: bool = False, how: str = "evidence") -> Plan:
    rows = np.arange(nq) % lists.snapshot.n
    queries = Queries.of_rows(lists.snapshot, rows, k, rows if all_rows else None)
    return plan_of(queries, effort.over(Effort(own, complete=True, routing=how)))



@pytest.fixture(scope="module")
def index() -> cfe.IndexEvidenceIVF:
    X, labels = clustered(900, 12, 3)
    index = cfe.IndexEvidenceIVF(12, 20)
    index.train(X)
    index.add_with_labels(X, labels)
    return index


def arguments(**wanted: Any) -> Effort:
    return Effort.of(**{"nprobe": None, "recall": None, "exact": False, "memory": None} | wanted)


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
    lists = Derived.of(index.storage())
    for nq, nprobe, batched in ((1, 5, False), (79, 20, True), (79, 5, False), (900, 5, True), (7, 20, False)):
        made = plan(lists, nq, 10, arguments(nprobe=nprobe), 16)
        assert (made.engine is grouped.search) == is_batched(lists.snapshot, nq, nprobe, made.effort) == batched
        assert made.nprobe == nprobe


def test_lists_looked_into(index: cfe.IndexEvidenceIVF) -> None:
    lists = Derived.of(index.storage())
    assert plan(lists, 1, 10, arguments(), 16).nprobe == 16
    assert plan(lists, 1, 10, arguments(exact=True), 16).nprobe == 20
    assert known_nprobe(lists.snapshot, 10, 0.9) is None
    found = plan(lists, 1, 10, arguments(recall=0.9), 16).nprobe
    assert known_nprobe(lists.snapshot, 10, 0.9) == found == recall.nprobe_for(
        lists, 10, Effort(recall=0.9, routing="evidence"), batched=False
    )


def test_every_pair_is_multiplied_once_where_bytes_are_not(
    index: cfe.IndexEvidenceIVF, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = Derived.of(index.storage())
    monkeypatch.setattr(_native, "has_bytes", lambda: False)
    assert plan(lists, 900, 10, arguments(exact=True), 16, all_rows=True).engine is exact.search_stored
    assert plan(lists, 900, 10, arguments(nprobe=19), 16, all_rows=True).engine is grouped.search
    assert plan(lists, 900, 10, arguments(exact=True), 16).engine is grouped.search
    monkeypatch.setattr(_native, "has_bytes", lambda: True)
    assert plan(lists, 900, 10, arguments(exact=True), 16, all_rows=True).engine is grouped.search


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
    assert plan(Derived.of(index.storage()), 900, 10, arguments(exact=True), 16, all_rows=True, how="nearest").engine is single.search
    assert np.array_equal(index.search_members(k=3, exact=True)[1], index.search_members(k=3, nprobe=20)[1])
