from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import clustered

import cfe_faiss as cfe
from cfe_faiss import _native
from cfe_faiss.rows.snapshot import Snapshot
from cfe_faiss.search import answer, recall
from cfe_faiss.search.answer import is_batched
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.query import Effort, Plan, Queries

OWN = Effort(16, complete=True, routing="evidence")


def plan(
    snapshot: Snapshot,
    nq: int,
    effort: Effort,
    *,
    every: bool = False,
    stored: bool = True,
    k: int = 10,
) -> Plan:
    members, order = snapshot.members, snapshot.members.places if every else None
    rows = members.rows[:nq]
    queries = Queries.of_rows(snapshot, rows, k, order)
    if not stored:
        queries = Queries(snapshot, snapshot.labels[rows], k, snapshot.rows(rows)[0])
    return answer.plan_search(queries, effort.with_defaults(OWN))


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
    for two in (
        {"nprobe": 3, "recall": 0.9},
        {"nprobe": 3, "exact": True},
        {"recall": 0.9, "exact": True},
    ):
        with pytest.raises(ValueError, match="only one of nprobe, recall and exact may be given"):
            arguments(**two)
    for wrong in ({"nprobe": 0}, {"recall": 0.0}, {"recall": 1.1}, {"memory": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            arguments(**wrong)


def test_few_queries_are_searched_alone_and_many_in_groups(index: cfe.IndexEvidenceIVF) -> None:
    snapshot = index.storage()
    for nq, nprobe, batched in (
        (1, 5, False),
        (79, 20, True),
        (79, 5, False),
        (900, 5, True),
        (7, 20, False),
    ):
        made = plan(snapshot, nq, arguments(nprobe=nprobe))
        assert (made.engine == "groups") == is_batched(snapshot, nq, nprobe, OWN) == batched
        assert made.nprobe == nprobe


def test_lists_looked_into(index: cfe.IndexEvidenceIVF) -> None:
    snapshot = index.storage()
    assert plan(snapshot, 1, arguments()).nprobe == 16
    assert plan(snapshot, 1, arguments(exact=True)).nprobe == 20
    effort = arguments(recall=0.9).with_defaults(OWN)
    assert Derived.of(snapshot).nprobe_for(10, 0.9, 0, complete=True) is None
    found = plan(snapshot, 1, effort).calibration
    assert found is recall.calibration(snapshot, 10, effort, batched=False)
    assert [
        Derived.of(snapshot).nprobe_for(10, 0.9, label, complete=True) for label in range(3)
    ] == list(found.nprobe.values())
    # class without a calibration
    assert Derived.of(snapshot).nprobe_for(10, 0.9, 7, complete=True) == found.other == found.most


def test_new_queries_at_a_recall_are_searched_alone(index: cfe.IndexEvidenceIVF) -> None:
    snapshot = index.storage()
    assert plan(snapshot, 900, arguments(recall=0.9)).engine == "groups"
    assert plan(snapshot, 900, arguments(recall=0.9), stored=False).engine == "lists"
    assert plan(snapshot, 900, arguments(nprobe=5), stored=False).engine == "groups"


def test_all_rows_are_searched_exactly_if_their_recall_needs_many_lists() -> None:
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(900, 128)), rng.integers(0, 3, 900)
    index = cfe.IndexEvidenceIVF(128, 20)
    index.train(X)
    index.add_with_labels(X, labels)
    snapshot = index.storage()
    many: dict[str, Any] = {"recall": 0.9999}
    made = plan(snapshot, 900, arguments(**many), every=True)
    assert (made.engine, made.nprobe, made.calibration) == ("exact", snapshot.lists, None)
    assert plan(snapshot, 900, arguments(recall=0.3), every=True).engine == "groups"
    assert plan(snapshot, 900, arguments(nprobe=19), every=True).engine == "groups"
    assert plan(snapshot, 900, arguments(**many)).engine == "groups"  # some rows
    if _native.has_bytes():  # else a search of all lists is exact, too
        assert plan(snapshot, 900, arguments(memory=1 << 20, **many), every=True).engine == "groups"
    for expected, found in zip(
        index.search_stored(k=10, exact=True), index.search_stored(k=10, **many), strict=True
    ):
        assert_array_equal(found, expected)


def test_the_product_of_all_pairs_needs_many_dimensions_and_few_results(
    index: cfe.IndexEvidenceIVF, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_native, "has_bytes", lambda: True)
    wide = cfe.IndexEvidenceIVF(128, 20)
    X = np.random.default_rng(0).normal(size=(900, 128))
    wide.train(X)
    wide.add_with_labels(X, np.arange(900) % 3)
    for made, k, engine in ((wide, 64, "exact"), (wide, 65, "groups"), (index, 5, "groups")):
        assert plan(made.storage(), 900, arguments(exact=True), every=True, k=k).engine == engine
        small = arguments(exact=True, memory=1 << 20)
        assert plan(made.storage(), 900, small, every=True, k=k).engine == "groups"
    monkeypatch.undo()
    for expected, found in zip(
        wide.search_stored(k=65, exact=True), wide.search_stored(k=64, exact=True), strict=True
    ):
        assert_array_equal(found, expected[:, :64])


def test_few_dimensions_are_searched_in_lists_at_any_recall(index: cfe.IndexEvidenceIVF) -> None:
    assert plan(index.storage(), 900, arguments(recall=0.9999), every=True).engine == "groups"


def test_every_pair_is_multiplied_once_where_bytes_are_not(
    index: cfe.IndexEvidenceIVF, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = index.storage()
    monkeypatch.setattr(_native, "has_bytes", lambda: False)
    assert plan(snapshot, 900, arguments(exact=True), every=True).engine == "exact"
    assert plan(snapshot, 900, arguments(nprobe=19), every=True).engine == "groups"
    assert plan(snapshot, 900, arguments(exact=True)).engine == "groups"
    monkeypatch.setattr(_native, "has_bytes", lambda: True)
    assert plan(snapshot, 900, arguments(exact=True), every=True).engine == "groups"


def test_a_single_query_at_a_known_recall_is_not_searched_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, labels = clustered(900, 12, 3)
    index = cfe.IndexEvidenceIVF(12, 20)
    index.train(X)
    index.add_with_labels(X, labels)
    x, label = X[5:6].copy(), labels[5:6].copy()
    first = index.search_evidence(x, label, 10, recall=0.95)
    monkeypatch.setattr(answer, "search", lambda *_, **__: pytest.fail("took the long way"))
    for expected, found in zip(
        first, index.search_evidence(x, label, 10, recall=0.95), strict=True
    ):
        assert_array_equal(found, expected)


def test_nearest_lists_are_never_searched_in_groups() -> None:
    X, labels = clustered(900, 12, 3)
    index = cfe.IndexEvidenceIVF(12, 20, routing="nearest")
    index.train(X)
    index.add_with_labels(X, labels)
    snapshot, effort = index.storage(), arguments(exact=True).with_defaults(index.default_effort())
    queries = Queries.of_rows(snapshot, snapshot.members.rows, 10, snapshot.members.places)
    assert answer.plan_search(queries, effort).engine == "lists"
    assert np.array_equal(
        index.search_stored(k=3, exact=True)[1], index.search_stored(k=3, nprobe=20)[1]
    )
