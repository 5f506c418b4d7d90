"""Searches under rules: the fast engines find what the general engine finds, in complete rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_masked
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import assert_same_arrays, clustered, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss.coarse import routes
from cfe_faiss.coarse.routes import LARGE_CLASS_ROWS
from cfe_faiss.rows.metric import PADDING, Metric, flipped
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards
from cfe_faiss.search.query import Effort, Query, Rules

N, DIM, CLASSES = 1200, 6, 5
IVF_KINDS = [
    f"EvidenceIVF16{kind}" for kind in (",Flat", "x2,Flat", ",SQfp16", ",SQ8", ",PQ2,RFlat")
]
KINDS = [(kind, "cosine") for kind in ("IDMap2,EvidenceFlat", *IVF_KINDS, "sharded")]
KINDS += [("IDMap2,EvidenceFlat", "l2"), (IVF_KINDS[0], "ip"), (IVF_KINDS[0], "l2")]
MORE = [("IDMap2,EvidenceFlat", "ip"), (IVF_KINDS[3], "ip"), (IVF_KINDS[3], "l2")]
SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in (*MORE, KINDS[3], KINDS[4])]
X, LABELS = clustered(N, DIM, CLASSES)
LABELS = np.where(np.arange(N) % 19 == 0, -1, LABELS)
XQ, LABELS_Q = clustered(40, DIM, CLASSES)


@pytest.fixture(
    scope="module",
    params=[*(kind for kind in KINDS if kind not in (KINDS[3], KINDS[4])), *SLOW],
    ids=str,
)
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    kind, metric = request.param
    sharded, options = kind == "sharded", {} if metric == "cosine" else {"metric": metric}
    index: Any = cfe.index_factory(DIM, "EvidenceIVF16,Flat" if sharded else kind, **options)
    if not index.is_trained:
        index.train(X)
    index.add_with_ids(X, np.arange(N) * 3)
    index.relabel(LABELS)
    if not sharded:
        return index
    folder = tmp_path_factory.mktemp("shards")
    write_shards(index, folder, 3)
    return ShardedEvidenceIndex.open(folder)


# Ranges of D that leave out the best, the others, or nearly all; clustered rows have lengths of about 2 to 6.
RANGES: dict[str, list[tuple[float, float]]] = {
    "cosine": [(-1, 0.99), (0.9, 0.995), (0.5, np.inf), (-1, 0)],
    "ip": [(-np.inf, 9), (5, 9.5), (4, np.inf), (-3, 0)],
    "l2": [(0.5, np.inf), (0.5, 2), (0, 2), (20, 30)],
}


@st.composite
def options(draw: st.DrawFn, nq: int, metric: str = "cosine") -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found: dict[str, Any] = {"neighbors": draw(st.sampled_from(["other", "own", "any"]))}
    if draw(
        st.booleans()
    ):  # near rows, so that some are among the best; also ids that are not stored
        found["exclude"] = [rng.integers(0, 3 * N, rng.integers(0, 6)).tolist() for _ in range(nq)]
    if draw(st.booleans()):
        same = rng.integers(0, CLASSES, (1, 1)).repeat(nq, axis=0)
        found["exclude_labels"] = (
            same if draw(st.booleans()) else rng.integers(-1, CLASSES, (nq, 2))
        )
    if draw(st.booleans()):
        found["within"] = draw(st.sampled_from(RANGES[metric]))
    if draw(st.booleans()):
        found["sel"] = rng.random(N) < draw(st.sampled_from([0.05, 0.7]))
    return found


def expected(index: Any, query: Query) -> Any:
    with index.holding() as snapshot:
        return reference_masked.search(query.bind(snapshot))


def stored_form(index: Any, X: NDArray[np.float32]) -> NDArray[np.float32]:
    return unit(X) if index.metric == "cosine" else X.astype(np.float32)


def rules_of(how: dict[str, Any]) -> Rules | None:
    return Rules.of(
        how.get("exclude"), how.get("exclude_labels"), how.get("within"), how["neighbors"]
    )


@given(data=st.data())
def test_fast_engines_keep_every_rule(index: Any, data: st.DataObject) -> None:
    nq, k = data.draw(st.sampled_from([1, 3, 40])), data.draw(st.integers(1, 8))
    how = data.draw(options(nq, index.metric))
    efforts: list[dict[str, Any]] = [
        {"exact": True},
        *([{"nprobe": 2}, {"recall": 0.9}] if index.has_lists else [{}]),
    ]
    effort = data.draw(st.sampled_from(efforts))
    if data.draw(st.booleans()):
        query = Query(k, X=stored_form(index, XQ[:nq]), labels=LABELS_Q[:nq].astype(np.int32))
        query = replace(query, sel=how.get("sel"), rules=rules_of(how))
        D, I = index.search_evidence(XQ[:nq], LABELS_Q[:nq], k, **how, **effort)
        params = cfe.EvidenceParameters(LABELS_Q[:nq], **how, **effort)
        assert_array_equal(index.search(XQ[:nq], k, params=params)[1], I)
    else:
        ids = np.arange(nq) * 3
        query = Query(k, ids=ids, sel=how.get("sel"), rules=rules_of(how))
        D, I = index.search_stored(ids, k, **how, **effort)
        *found, certified = index.search_certified(ids, k, **how, **effort)
        if query.rules is not None:
            assert certified.all()
            assert_array_equal(found[1], expected(index, query)[1])
    best, ids = expected(index, query)
    best = flipped(best, index.metric)
    assert_array_equal((I >= 0).sum(axis=1), (ids >= 0).sum(axis=1))  # rows are complete
    if "exact" in effort or not index.has_lists:
        assert_array_equal(I, ids)
        assert_array_equal(D, best)
    every = expected(
        index,
        Query(N, query.threshold, query.X, query.labels, query.ids, query.sel, rules=query.rules),
    )
    D = flipped(D, index.metric)
    for q in range(nq):  # all results keep the rules, with their similarities, best first
        scores = dict(zip(every[1][q].tolist(), every[0][q].tolist(), strict=True))
        row = I[q][I[q] >= 0].tolist()
        assert [scores[i] for i in row] == D[q][: len(row)].tolist()
        assert row == sorted(row, key=lambda i: (-scores[i], i))
        assert (D[q][len(row) :] == PADDING).all()


@given(data=st.data())
def test_range_searches_keep_every_rule(index: Any, data: st.DataObject) -> None:
    how, nq = data.draw(options(9, index.metric)), 9
    query = Query(N, X=stored_form(index, XQ[:nq]), labels=LABELS_Q[:nq].astype(np.int32))
    D, I = expected(index, replace(query, sel=how.get("sel"), rules=rules_of(how)))
    threshold = {"cosine": 0.8, "ip": 6.0, "l2": 2.0}[index.metric]
    above = (I >= 0) & (np.float32(-threshold if index.metric == "l2" else threshold) <= D)
    lims, *found = index.range_search_evidence(XQ[:nq], LABELS_Q[:nq], threshold, **how)
    assert_array_equal(np.diff(lims), above.sum(axis=1))
    assert_array_equal(flipped(found[0], index.metric), D[above])
    assert_array_equal(found[1], I[above])


def test_all_stored_rows_keep_the_rules(index: Any) -> None:
    known = index.members()
    ranges = {"within": RANGES[index.metric][1]}
    efforts: list[dict[str, Any]] = [{"exact": True}]
    if index.has_lists:
        efforts += [{"nprobe": 1}, {"recall": 0.8}]
    for how in ({"neighbors": "any"}, {"exclude": known.ids[:, None] // 3 * 3 + [3, 6]}, ranges):
        with index.holding() as snapshot:
            queries = Query(4, rules=rules_of({"neighbors": "other", **how})).bind(snapshot)
            scores, ids = reference_masked.scores_of(queries), snapshot.row_ids
            best = reference_masked.search(queries)
        for effort in efforts:
            D, I = index.search_stored(k=4, **how, **effort)
            D = flipped(D, index.metric)
            assert_array_equal(I >= 0, best[1] >= 0)  # rows are complete
            if "exact" in effort:
                assert_array_equal(I, best[1])
            query, place = np.nonzero(I >= 0)  # results are admitted, with their scores, best first
            rows = np.argsort(ids)[np.searchsorted(np.sort(ids), I[query, place])]
            assert_array_equal(D[query, place], scores[query, rows])
            assert (np.diff(D, axis=1) <= 0).all()


def test_a_recall_holds_for_the_results_that_remain() -> None:
    X, labels = clustered(6000, 16, 4)
    index = with_rows(cfe.IndexEvidenceIVF(16, 100), X, labels)
    ids = np.arange(0, 6000, 3)
    best = index.search_stored(ids, 6, exact=True)[1]
    for how in ({"exclude": best[:, :5]}, {"neighbors": "any"}, {"within": (-1, 0.97)}):
        exact, found = (
            index.search_stored(ids, 10, **how, **effort)[1]
            for effort in ({"exact": True}, {"recall": 0.9})
        )
        reached = np.array(
            [np.isin(one, other).mean() for one, other in zip(exact, found, strict=True)]
        )
        assert reached.mean() >= 0.9
        assert min(reached[labels[ids] == label].mean() for label in range(4)) >= 0.89


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
    index.train(X)
    index.add_with_ids(X, np.arange(N) * 3)
    index.relabel(np.where(LABELS == 4, 3, LABELS))
    large = routes.large_classes(index.storage())
    assert 0 < len(large) < 4
    xq, labels_q, ages = XQ, LABELS_Q % 4, {"age": np.arange(3 * N) % 7}
    where = cfe.Constraints(caliper={"age": 2})
    about = {"where": where, "attributes": ages}
    for how in (
        {},
        {"within": RANGES[metric][1]},
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


@given(data=st.data())
def test_each_label_has_its_best_rows(index: Any, data: st.DataObject) -> None:
    nq, k = data.draw(st.sampled_from([1, 12])), data.draw(st.integers(1, 9))
    drawn = data.draw(options(nq, index.metric))
    how = {name: part for name, part in drawn.items() if name in ("sel", "exclude", "within")}
    labels_q = LABELS_Q[:nq] + data.draw(st.sampled_from([0, 3]))  # some labels are not stored
    D, I = index.search_per_label(XQ[:nq], labels_q, k, **how, exact=data.draw(st.booleans()))
    D = flipped(D, index.metric)
    assert D.shape == I.shape == (nq, CLASSES, k)
    rules = rules_of({"neighbors": "own", **how})
    for label in range(CLASSES):
        own = np.full(nq, label, np.int32)
        best, ids = expected(
            index,
            Query(k, X=stored_form(index, XQ[:nq]), labels=own, sel=how.get("sel"), rules=rules),
        )
        other = labels_q != label
        assert_array_equal(I[other, label], ids[other])
        assert_array_equal(D[other, label], best[other])
        assert (I[~other, label] == -1).all()
        assert (D[~other, label] == PADDING).all()


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
    index: Any = cfe.index_factory(DIM, "EvidenceIVF16,Flat")
    index.train(X)
    index.add_with_ids(X, np.arange(N) * 3)
    index.relabel(LABELS)
    queries = XQ.astype(np.float32)
    converted = [
        index.search_evidence(XQ[q : q + 1].tolist(), LABELS_Q[q : q + 1], 5, 2, **how)
        for q in range(20)
    ]
    for q, expected_row in enumerate(converted):
        found = index.search_evidence(queries[q : q + 1], LABELS_Q[q : q + 1], 5, 2, **how)
        assert_same_arrays(found, expected_row)


def test_any_row_needs_no_label(index: Any) -> None:
    expected = index.search_evidence(XQ, LABELS_Q, 3, neighbors="any", exact=True)
    for labels in (None, np.full(len(XQ), -1)):
        found = index.search_evidence(XQ, labels, 3, neighbors="any", exact=True)[1]
        assert_array_equal(found, expected[1])
    lims, _, I = index.range_search_evidence(XQ, None, float(expected[0][0, 2]), neighbors="any")
    assert set(expected[1][0].tolist()) <= set(I[: lims[1]].tolist())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"exclude": [[1]]}, "exclude must hold one sequence for each of 2 queries, got 1"),
    ({"exclude": [1, 2]}, "exclude must hold one sequence for each of 2 queries, got 1 among them"),
    ({"exclude": 3}, "exclude must hold one sequence for each of 2 queries, got 3"),
    ({"exclude": [[1], [-7]]}, "exclude must lie in 0..2\\*\\*63-2, got -7"),
    ({"exclude": [[1], [0.5]]}, "exclude must be integers, got 0.5"),
    ({"exclude_labels": [[0], [77]]}, "exclude_labels must hold stored labels, got 77"),
    (
        {"exclude_labels": [[0]]},
        "exclude_labels must hold one sequence for each of 2 queries, got 1",
    ),
    ({"within": (0.9, 0.2)}, "within must be \\(low, high\\) with low <= high, got \\(0.9, 0.2\\)"),
    ({"within": 0.9}, "within must be two numbers, \\(low, high\\), got 0.9"),
    ({"within": (0.1, "x")}, "within must be a number, got 'x'"),
    ({"neighbors": "mine"}, "neighbors must be 'other', 'own' or 'any', got 'mine'"),
    (
        {"neighbors": "own", "labels_q": None},
        "labels_q must have shape \\(2,\\), one label per vector",
    ),
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
