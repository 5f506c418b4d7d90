"""Every engine finds what brute force in float64 finds, under every rule and constraint."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import PADDING, assert_same_arrays, cosine, quick, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss.search import exact, lists
from cfe_faiss.search.answer import pad_results
from cfe_faiss.search.query import Effort, Plan, Queries, Query, Rules

KINDS = [
    "IDMap2,EvidenceFlat",
    *(f"EvidenceIVF4{kind}" for kind in (",Flat", "x3,Flat", ",SQfp16", ",SQ8", ",PQ1,RFlat")),
]
# By default, an index without lists, one with, and one with codes beside its vectors.
SOME_KINDS = [
    kind if kind in (KINDS[0], KINDS[2], KINDS[-1]) else pytest.param(kind, marks=pytest.mark.slow)
    for kind in KINDS
]
EXACT = Effort(exact=True)


class Case(NamedTuple):
    """An index after some changes, its rows, and queries."""

    index: Any
    ids: NDArray[np.int64]
    labels: NDArray[np.int32]
    X: NDArray[np.float32]
    xq: NDArray[np.float32]
    labels_q: NDArray[np.int32]
    k: int
    rng: np.random.Generator


def vectors(rng: np.random.Generator, n: int, d: int, spread: int) -> NDArray[np.float32]:
    """Draw from a coarse grid, so that ties, repeated vectors and zero vectors are common."""
    return rng.integers(-spread, spread + 1, (n, d)).astype(np.float32)


@st.composite
def cases(draw: st.DrawFn, kind: str) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    d = draw(st.integers(1, 6))
    n = draw(st.integers(4, 50))
    nq = draw(st.integers(1, 8))
    spread = draw(st.integers(0, 3))
    classes = draw(st.integers(1, 4))
    X = vectors(rng, n, d, spread)
    labels = rng.integers(-1, classes, n)
    ids = rng.permutation(2 * n)[:n]
    index: Any = quick(cfe.index_factory(d, kind))
    if not index.is_trained:
        index.train(np.concatenate([X, rng.normal(size=(300, d)).astype(np.float32)]))
    index.add_with_ids(X, ids)
    index.relabel(labels, ids)
    if draw(st.booleans()):  # changes after the first searches, whose derived data is carried over
        index.search_stored(k=2)
        index.remove_ids(ids[: n // 4])
        index.add_with_labels(
            vectors(rng, 5, d, spread), rng.integers(0, classes, 5), np.arange(2 * n, 2 * n + 5)
        )
        index.relabel(rng.integers(-1, classes, 3), np.arange(2 * n, 2 * n + 3))
    known = index.members()
    xq, labels_q = vectors(rng, nq, d, spread), rng.integers(0, classes + 1, nq).astype(np.int32)
    rows = index.reconstruct_batch(known.ids)
    return Case(index, known.ids, known.labels, rows, xq, labels_q, draw(st.integers(1, 60)), rng)


def brute_force(case: Case, query: Query, may_find: Any = True) -> Any:
    """Return D, I of a query by ranking all rows; ``may_find`` is a mask, (nq, n), of further conditions."""
    rules = query.rules or Rules()
    asked = case.ids if query.ids is None else np.asarray(query.ids)
    own = np.searchsorted(case.ids, asked)
    X, labels = (case.X[own], case.labels[own]) if query.X is None else (query.X, query.labels)
    scores, known = cosine(X[:, None], case.X), (case.labels >= 0) & (labels[:, None] >= 0)
    same = case.labels == labels[:, None]
    found = {"any": np.ones_like(known), "own": known & same, "other": known & ~same}[
        rules.neighbors
    ]
    found = found & may_find & (True if query.sel is None else query.sel)
    if query.X is None:
        found &= case.ids != asked[:, None]
    if rules.excluded_labels is not None:
        of_row = case.labels[:, None] == rules.excluded_labels[:, None]
        found &= (case.labels < 0) | ~of_row.any(axis=2)
    if rules.excluded_ids is not None:
        found &= ~(case.ids[:, None] == rules.excluded_ids[:, None]).any(axis=2)
    if rules.within is not None:
        low, high = np.float32(rules.within)
        found &= (low <= scores) & (scores <= high)
    D, I = np.full((len(X), query.k), PADDING, np.float32), np.full((len(X), query.k), -1)
    for q in range(len(X)):
        rows = np.flatnonzero(found[q])
        best = rows[np.lexsort((case.ids[rows], -scores[q, rows]))][: query.k]
        D[q, : len(best)], I[q, : len(best)] = scores[q, best], case.ids[best]
    return D, I


def questions(case: Case) -> Iterator[Query]:
    """Yield the queries about new and stored vectors, among all rows and some."""
    new = Query(case.k, X=unit(case.xq), labels=case.labels_q)
    stored, some = Query(case.k), Query(case.k, ids=case.ids[::3])
    for query in (new, stored, some):
        yield query
        yield dataclasses.replace(query, sel=case.rng.random(len(case.ids)) < 0.6)


def assert_all_ways(queries: Queries, expected: Any) -> None:
    """Every way of the exact engine finds the same: tiles, rows in place, and each pair once."""
    found = [exact._search_tiles(queries, None), exact._search_in_place(queries)]
    if queries.all_rows:
        found.append(exact._search_all_rows(queries, None))
    for D, I in found:
        assert_same_arrays(pad_results(D, I, queries.k), expected)


def all_engines(queries: Queries) -> Iterator[Any]:
    """Yield the D, I of each engine, given all lists."""
    plan = Plan("lists", queries.snapshot.lists, case_effort(queries))
    yield exact.search(queries)
    if queries.snapshot.lists:
        yield lists.search(queries, plan, None)
        if queries.neighbors != "own":
            yield lists.search(queries, plan._replace(engine="groups"), None)


def case_effort(queries: Queries) -> Effort:
    return Effort(queries.snapshot.lists, complete=True, routing="evidence", k_factor=1.0)


@st.composite
def rules(draw: st.DrawFn, case: Case, nq: int) -> Rules:
    low = draw(st.sampled_from([-1.0, 0.0, 0.5, 0.8]))
    return Rules(
        draw(st.sampled_from(["other", "own", "any"])),
        case.rng.choice(case.labels, (nq, 2)) if draw(st.booleans()) else None,
        case.rng.choice(np.append(case.ids, -1), (nq, 3)) if draw(st.booleans()) else None,
        (low, draw(st.sampled_from([low, 0.8, 0.95, 1.1]))) if draw(st.booleans()) else None,
    )


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_rule_holds(kind: str, data: st.DataObject) -> None:
    case = data.draw(cases(kind))
    for query in questions(case):
        nq = (
            len(case.xq)
            if query.X is not None
            else len(case.ids if query.ids is None else np.asarray(query.ids))
        )
        ruled = dataclasses.replace(query, rules=data.draw(st.none() | rules(case, nq)))
        expected = brute_force(case, ruled)
        assert_same_arrays(case.index.answer(ruled, EXACT), expected)
        with case.index.holding() as snapshot:
            queries = ruled.bind(snapshot)
            assert_all_ways(queries, expected)
            for D, I in all_engines(queries):
                assert_same_arrays(pad_results(D, I, query.k), expected)
            found = exact.search_range(dataclasses.replace(queries), 0.25)
        every = brute_force(case, dataclasses.replace(ruled, k=len(case.ids)))
        above = (every[1] >= 0) & (every[0] >= np.float32(0.25))
        assert_same_arrays(
            (np.diff(found[0]), *found[1:]), (above.sum(axis=1), every[0][above], every[1][above])
        )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "IVF" in kind])
@given(data=st.data())
def test_every_rule_holds_for_one_query_in_any_form(kind: str, data: st.DataObject) -> None:
    case = data.draw(cases(kind))
    excluding = data.draw(rules(case, len(case.xq)))
    mask = case.rng.random(len(case.ids)) < 0.6
    sel = data.draw(st.sampled_from([None, mask, case.ids[mask], case.ids[mask].tolist()]))
    selected = None if sel is None else mask
    names = {"excluded_labels": "exclude_labels", "excluded_ids": "exclude"}
    expected = brute_force(
        case,
        Query(case.k, X=unit(case.xq), labels=case.labels_q, sel=selected, rules=excluding),
    )
    every_list = case.index.storage().lists
    for q in range(len(case.xq)):
        options: dict[str, Any] = {
            "neighbors": excluding.neighbors,
            "within": excluding.within,
            "sel": sel,
        }
        for field, name in names.items():
            values = getattr(excluding, field)
            if values is not None:
                row = values[q : q + 1].astype(np.int64)
                options[name] = data.draw(st.sampled_from([row, row.tolist(), list(row)]))
        one = slice(q, q + 1)
        for x in (case.xq[one], case.xq[one].tolist()):
            found = case.index.search_evidence(x, case.labels_q[one], case.k, every_list, **options)
            assert_same_arrays(found, (expected[0][one], expected[1][one]))
        few = case.index.search_evidence(case.xq[one], case.labels_q[one], case.k, 1, **options)
        assert_array_equal(few[1] >= 0, expected[1][one] >= 0)


@pytest.mark.parametrize("kind", SOME_KINDS)
@given(data=st.data())
def test_constraints_hold_with_and_without_rules(kind: str, data: st.DataObject) -> None:
    case = data.draw(cases(kind))
    rng, nodes = case.rng, int(case.ids.max()) + 1
    age, sex = rng.integers(0, 6, nodes), rng.integers(0, 3, nodes)
    edges, hops = rng.integers(0, nodes, (2, nodes)), data.draw(st.booleans())
    where: dict[str, Any] = data.draw(
        st.sampled_from(
            [
                {"caliper": {"age": 1}},
                {"exact": ["sex"]},
                {"antiexact": ["sex"], "caliper": {"age": 3}},
            ]
        )
    )
    graph = {"min_hops": 2} if hops else {}
    near = np.eye(nodes, dtype=bool)
    near[edges[0], edges[1]] = near[edges[1], edges[0]] = True
    a, b = case.ids[:, None], case.ids
    meets = np.abs(age[a] - age[b]) <= where.get("caliper", {"age": 9})["age"]
    meets &= (sex[a] == sex[b]) | ("exact" not in where)
    meets &= (sex[a] != sex[b]) | ("antiexact" not in where)
    meets &= ~near[a, b] | (not hops)
    about = {"attributes": {"age": age, "sex": sex}, "graph": edges if hops else None}
    query = Query(case.k, where=cfe.Constraints(**where, **graph), **about)
    expected = brute_force(case, query, meets)
    assert_same_arrays(case.index.answer(query, EXACT), expected)
    often = dataclasses.replace(query, where=cfe.Constraints(**where, **graph, ratio=len(case.ids)))
    assert_same_arrays(case.index.answer(often, EXACT), expected)
    with case.index.holding() as snapshot:
        queries = query.bind(snapshot)
        assert_same_arrays(pad_results(*exact._search_tiles(queries, None), case.k), expected)
    ruled = dataclasses.replace(query, rules=data.draw(rules(case, len(case.ids))))
    assert_same_arrays(case.index.answer(ruled, EXACT), brute_force(case, ruled, meets))


def test_rules_exclude_limited_use() -> None:
    index = with_rows(cfe.IndexEvidenceIDMap2(2), np.eye(2), [0, 1])
    query = Query(1, where=cfe.Constraints(replace=False), rules=Rules("own"))
    with pytest.raises(ValueError, match="must not limit how often evidence is used together"):
        index.answer(query, EXACT)
