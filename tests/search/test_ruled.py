"""Searches under rules in large classes and many lists, and rules that are refused.

Random rules are compared in :mod:`test_random_operations`, and in every engine in :mod:`test_masked`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import assert_same_arrays, clustered, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss.coarse import routes
from cfe_faiss.coarse.routes import LARGE_CLASS_ROWS
from cfe_faiss.rows.metric import Metric
from cfe_faiss.search.query import Effort, Query, Rules, SearchOptions

N, DIM, CLASSES = 1200, 6, 5
X, LABELS = clustered(N, DIM, CLASSES)
LABELS = np.where(np.arange(N) % 19 == 0, -1, LABELS)
XQ, LABELS_Q = clustered(40, DIM, CLASSES)


RANGES = {"cosine": (0.9, 0.995), "ip": (5, 9.5), "l2": (0.5, 2)}


def expected(index: Any, query: Query) -> Any:
    return index.answer(query, Effort(exact=True))


def stored_form(index: Any, X: NDArray[np.float32]) -> NDArray[np.float32]:
    return unit(X) if index.metric == "cosine" else X.astype(np.float32)


def rules_of(how: dict[str, Any]) -> Rules | None:
    return Rules.of(cast("SearchOptions", how))


def test_rows_of_a_large_class_come_from_its_nearest_lists() -> None:
    n = 4 * LARGE_CLASS_ROWS
    X, _ = clustered(n + 10, 8, 4)
    labels = np.arange(n) % 2
    index: Any = cfe.IndexEvidenceIVF(8, 64)
    index.train(X[:4000])
    index.add_with_labels(X[:n], labels)
    queries, own = X[n:], np.arange(10) % 2
    best = index.search_evidence(queries, own, 5, neighbors="own", exact=True)
    assert_array_equal(labels[best[1]], np.repeat(own[:, None], 5, axis=1))
    near = index.search_evidence(queries, own, 5, neighbors="own", nprobe=8)
    assert_array_equal(labels[near[1]], labels[best[1]])
    assert np.isin(near[1], best[1]).mean() >= 0.8
    every = index.search_evidence(queries, own, 5, neighbors="own", nprobe=64)
    assert_array_equal(every[1], best[1])
    sel = np.flatnonzero(labels == 0)[:7]  # fewer than the lists hold
    few = index.search_evidence(queries, own, 9, neighbors="own", nprobe=1, sel=sel)[1]
    assert_array_equal(np.sort(few[own == 0][:, :7]), np.tile(sel, (5, 1)))
    assert (few[own == 1] == -1).all()


@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_classes_that_are_ranked_in_lists_keep_every_rule(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "LARGE_CLASS_ROWS", 230)  # some of the five classes are as large
    options_of = {} if metric == "cosine" else {"metric": metric}
    index: Any = cfe.index_factory(DIM, "EvidenceIVF16,Flat", **options_of)
    with_rows(index, X, np.where(LABELS == 4, 3, LABELS), np.arange(N) * 3)
    large = routes.large_classes(index.storage())
    assert 0 < len(large) < 4
    xq, labels_q, ages = XQ, LABELS_Q % 4, {"age": np.arange(3 * N) % 7}
    where = cfe.Constraints(caliper={"age": 2})
    about = {"where": where, "attributes": ages}
    for how in (
        {},
        {"within": RANGES[metric]},
        {"exclude": [[3 * q] for q in range(40)]},
        {"sel": LABELS > 0},
    ):
        options = {"neighbors": "own", **how}
        query = Query(
            6, X=stored_form(index, xq), labels=labels_q.astype(np.int32), sel=how.get("sel")
        )
        best = expected(index, replace(query, rules=rules_of(options)))[1]
        assert_array_equal(index.search_evidence(xq, labels_q, 6, 16, **options)[1], best)
        some = index.search_evidence(xq, labels_q, 6, 1, **options)[1]
        assert_array_equal(some >= 0, best >= 0)
        for q in range(5):
            one = {"exclude": how["exclude"][q : q + 1]} if "exclude" in how else how
            row = index.search_evidence(
                xq[q : q + 1], labels_q[q : q + 1], 6, 1, neighbors="own", **one
            )[1]
            assert_array_equal(row[0], some[q])
        stored = Query(6, rules=rules_of({**options, "exclude": None}), sel=how.get("sel"), **about)
        assert_array_equal(index.answer(stored, Effort(nprobe=1))[1], expected(index, stored)[1])


@pytest.mark.parametrize(
    ("metric", "partitions", "mixed"),
    [("cosine", 1, True), ("cosine", 2, False), ("l2", 1, False), ("ip", 1, True)],
)
def test_each_large_label_comes_from_its_nearest_lists(
    metric: Metric, partitions: int, mixed: bool
) -> None:
    n = 4 * LARGE_CLASS_ROWS
    X, near_labels = clustered(n + 20, 8, 3)  # most lists hold few rows of some label
    labels = np.where(np.arange(n) < 100, 7, np.arange(n) % 3 if mixed else near_labels[:n])
    index: Any = cfe.IndexEvidenceIVF(8, 160, partitions=partitions, metric=metric)
    index.train(X[:8000])
    index.add_with_labels(X[:n], labels)
    own = np.arange(20) % 4
    exact, near = (
        index.search_per_label(X[n:], own, 5, **how)[1] for how in ({"recall": 0.9}, {"nprobe": 5})
    )
    assert exact.shape == (20, 4, 5)
    assert_array_equal(near >= 0, exact >= 0)
    assert_array_equal((exact < 0).all(axis=2), (own[:, None] == np.arange(4)) & (own[:, None] < 3))
    stored = np.array([0, 1, 2, 7])
    wanted = np.broadcast_to(stored[:, None], near.shape)[near >= 0]
    assert_array_equal(labels[near][near >= 0], wanted)
    assert np.mean([np.isin(a, b).mean() for a, b in zip(near, exact, strict=True)]) >= 0.8
    assert_array_equal(index.search_per_label(X[n:], own, 5, 160 * partitions)[1], exact)
    for how in ({"within": (-np.inf, np.inf)}, {"exclude": [[]] * 20}):  # drop nothing
        assert_array_equal(index.search_per_label(X[n:], own, 5, 160 * partitions, **how)[1], exact)
        assert_array_equal(index.search_per_label(X[n:], own, 5, 5, **how)[1] >= 0, exact >= 0)
    few = np.flatnonzero(labels == 1)[-7:]  # fewer than the near lists hold
    rows = index.search_per_label(X[n:], own, 9, 1, sel=few)[1][own != 1, 1]
    assert_array_equal(np.sort(rows[:, :7]), np.tile(few, (len(rows), 1)))


def test_rows_that_are_nearly_all_excluded_leave_complete_results() -> None:
    X, near_labels = clustered(6000, 8, 4)
    labels = np.where(np.arange(6000) % 50 == 0, near_labels, 9)
    index = with_rows(cfe.IndexEvidenceIVF(8, 64), X, labels)
    for ids in ([50], np.arange(0, 2000, 50)):
        rules: dict[str, Any] = {"exclude_labels": [[9]] * len(ids)}
        found, exact = (
            index.search_stored(ids, 5, **rules, **how)[1]
            for how in ({"nprobe": 2}, {"exact": True})
        )
        assert (labels[exact] < 4).all()
        assert (labels[exact] != labels[ids][:, None]).all()
        assert (labels[found] < 4).all()
        assert_array_equal(index.search_stored(ids, 5, 64, **rules)[1], exact)


def test_an_empty_index_has_no_label() -> None:
    index: Any = cfe.IndexEvidenceIVF(DIM, 4)
    assert index.search_per_label(XQ[:3], LABELS_Q[:3], 2)[0].shape == (3, 0, 2)


RULES_OF_ONE: list[dict[str, Any]] = [
    {"neighbors": "any"},
    {"neighbors": "own"},
    {"exclude": [[3, 9]]},
    {"exclude_labels": [[1]]},
    {"within": (0.3, 0.97)},
    {"neighbors": "any", "exclude": [[6]], "within": (-1, 0.99)},
]


@pytest.mark.parametrize("how", RULES_OF_ONE, ids=str)
def test_one_query_as_it_is_finds_what_a_converted_one_finds(how: dict[str, Any]) -> None:
    index = with_rows(cfe.IndexEvidenceIVF(DIM, 16), X, LABELS, np.arange(N) * 3)
    queries = XQ.astype(np.float32)
    converted = [
        index.search_evidence(XQ[q : q + 1].tolist(), LABELS_Q[q : q + 1], 5, 2, **how)
        for q in range(20)
    ]
    for q, expected_row in enumerate(converted):
        own_label = LABELS_Q[q : q + 1]
        for labels_q in (own_label, own_label.tolist()):
            found = index.search_evidence(queries[q : q + 1], labels_q, 5, 2, **how)
            assert_same_arrays(found, expected_row)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"exclude": [[1]]}, "exclude must hold one sequence for each of 2 rows, got 1"),
    ({"exclude": [1, 2]}, "exclude must hold one sequence for each of 2 rows, got 1 among them"),
    ({"exclude": 3}, "exclude must hold one sequence for each of 2 rows, got 3"),
    ({"exclude": [[1], [-7]]}, "exclude must lie in 0..2\\*\\*63-2, got -7"),
    ({"exclude": [[1], [0.5]]}, "exclude must be integers, got 0.5"),
    ({"exclude_labels": [[0], [77]]}, "exclude_labels must hold stored labels, got 77"),
    ({"exclude_labels": [[0]]}, "exclude_labels must hold one sequence .*got 1"),
    ({"within": (0.9, 0.2)}, "within must be \\(low, high\\) with low <= high, got \\(0.9, 0.2\\)"),
    ({"within": 0.9}, "within must be two numbers, \\(low, high\\), got 0.9"),
    ({"within": (0.1, "x")}, "within must be a number, got 'x'"),
    ({"neighbors": "mine"}, "neighbors must be 'other', 'own' or 'any', got 'mine'"),
    ({"neighbors": "own", "labels_q": None}, "labels_q must have shape \\(2,\\)"),
]


@pytest.mark.parametrize(("how", "message"), WRONG)
def test_wrong_rules_are_named(how: dict[str, Any], message: str, tmp_path: Path) -> None:
    index = with_rows(cfe.IndexEvidenceIDMap2(DIM), X[:9], np.arange(9) % 2)
    labels: NDArray[Any] | None = how.get("labels_q", LABELS_Q[:2])
    options = {name: value for name, value in how.items() if name != "labels_q"}
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        index.search_evidence(XQ[:2], labels, 3, **options)
    with pytest.raises((ValueError, TypeError), match=f"^{message}"):
        index.range_search_evidence(XQ[:2], labels, 0.3, **options)
    if labels is not None:
        with pytest.raises((ValueError, TypeError), match=f"^{message}"):
            index.search_stored([0, 1], 3, **options)
        with pytest.raises((ValueError, TypeError), match=f"^params.{message}"):
            index.search(XQ[:2], 3, params=cfe.EvidenceParameters(labels, **options))


@pytest.mark.parametrize(
    "how",
    [
        {"exclude_labels": [[77]]},
        {"exclude_labels": np.array([[0, -1, 77, 1]])},
        {"exclude_labels": [["a"]]},
        {"exclude_labels": np.array([[-2]])},
        {"exclude": [[3], [4]]},
        {"exclude": np.array([[3, -7]])},
        {"exclude": [[2.5]]},
        {"within": (0.9, 0.2)},
        {"within": (0.1, True)},
        {"neighbors": "mine"},
        {"recall": 0.9, "nprobe": 2},
        {"recall": [0.9]},
        {"recall": 0.9, "k": [5]},
        {"recall": 2.0},
        {"labels_q": np.array([[1]], object), "recall": 0.9},
        {"without": 1},
        {"sel": np.zeros(3, bool)},
        {"sel": "all"},
    ],
    ids=str,
)
def test_a_wrong_query_gets_the_same_error_in_any_form(how: dict[str, Any]) -> None:
    index = with_rows(cfe.IndexEvidenceIVF(DIM, 8), X, np.maximum(LABELS, 0))
    arguments = {"xq": XQ[:1].astype(np.float32), "labels_q": LABELS_Q[:1], "k": 5}
    index.search_evidence(**arguments)
    index.search_evidence(**arguments, recall=0.9)
    messages = []
    for x in (arguments["xq"], arguments["xq"].tolist()):
        with pytest.raises((ValueError, TypeError)) as caught:
            index.search_evidence(**{**arguments, "xq": x, **how})
        messages.append((caught.type, str(caught.value)))
    assert messages[0] == messages[1]
