import pickle
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, with_rows
from reference_constraints import best_rows, cases, ranked_pairs
from torch_geometric.data import Data

import cfe_faiss as cfe
from cfe_faiss import Constraints
from cfe_faiss import pairs as module
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.graph import as_graph
from cfe_faiss.search import conditions, exact, join, tiles


def indexes(case):
    stored = case.stored
    d = stored.X.shape[1]
    made = [cfe.IndexEvidenceIDMap2(d), cfe.IndexEvidenceIVF(d, 4, 2)]
    made[1].train(stored.X)
    for index in made:
        index.add_with_ids(stored.X, stored.ids)
        index.relabel(stored.labels, stored.ids)
    return made


def finder_of(case, index):
    n = len(case.stored.ids)
    graph = as_graph(case.edges, n) if case.edges.size else None
    labels = case.stored.labels.astype(np.int32)
    return cfe.EvidenceFinder(case.stored.X, labels, index, graph, as_attributes(case.frame))


@contextmanager
def small_steps():
    """Let a search take a few rows or pairs at a time, however few there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "_FIRST", 1)
        patch.setattr(exact, "_MOST", 3)
        patch.setattr(tiles, "CHUNK", 16)
        patch.setattr(tiles, "TILE", 16 * 16)
        patch.setattr(conditions, "_SURROUNDINGS", 100)
        yield


@contextmanager
def joined():
    """Let all pairs be found by the join, whatever it costs."""
    with small_steps(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WORTH_BLOCKS", -1)
        patch.setattr(join, "_BLOCK", 6)
        for price in ("_ROW_TEST", "_COARSE_PAIR", "_FINE_PAIR", "_SCORED_PAIR"):
            patch.setattr(join, price, 0)
        yield


def listed(pairs):
    return list(zip(pairs.source.tolist(), pairs.target.tolist(), pairs.similarity, strict=True))


# --- equal to brute force ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [nullcontext, small_steps])
@given(st.one_of(cases(), cases(reuse=True)), st.integers(0, 2**32 - 1))
def test_local_equals_brute_force(steps, case, seed):
    n, k = len(case.stored.ids), case.stored.k
    some = np.random.default_rng(seed).integers(0, n, 7)
    expected = [(None, best_rows(case, np.arange(n), k)), (some, best_rows(case, some, k))]
    for index in indexes(case):
        finder = finder_of(case, index)
        for nodes, (D, I) in expected:
            with steps():
                found = finder.local(nodes, k, where=case.given["where"])
            assert_array_equal(found.evidence, I)
            assert_array_equal(found.similarity, D)
            assert found.recall == 1.0


@pytest.mark.parametrize("steps", [nullcontext, small_steps, joined])
@given(st.one_of(cases(), cases(graph=False)))
def test_pairs_equal_brute_force(steps, case):
    expected = ranked_pairs(case)
    for index in indexes(case):
        with steps():
            wanted = expected[: case.stored.k]
            assert listed(cfe.global_evidence(index, case.stored.k, **case.given)) == wanted
            for threshold in (-1, 0.5):
                found = [
                    pair
                    for pairs in cfe.evidence_pairs(index, threshold, block=7, **case.given)
                    for pair in listed(pairs)
                ]
                assert sorted(found) == sorted(pair for pair in expected if pair[2] >= threshold)


@pytest.mark.parametrize("steps", [small_steps, joined])
@given(st.one_of(cases(reuse=True), cases(graph=False, reuse=True)))
def test_limited_pairs_equal_brute_force(steps, case):
    expected = ranked_pairs(case)
    for index in indexes(case):
        with steps():
            wanted = expected[: case.stored.k]
            assert listed(cfe.global_evidence(index, case.stored.k, **case.given)) == wanted
        blocks = cfe.evidence_pairs(index, 0.25, **case.given)
        found = [pair for pairs in blocks for pair in listed(pairs)]
        assert found == [pair for pair in expected if pair[2] >= np.float32(0.25)]


@given(cases(graph=False))
def test_best_pair_of_each_node(case):
    D, I = best_rows(case, np.arange(len(case.stored.ids)), 1)
    own = {
        (min(a, b), max(a, b), s)
        for a, b, s in zip(case.stored.ids.tolist(), I[:, 0].tolist(), D[:, 0], strict=True)
        if b >= 0
    }
    expected = sorted(own, key=lambda pair: (-pair[2], pair[0], pair[1]))[: case.stored.k]
    for index in indexes(case):
        found = listed(cfe.global_evidence(index, case.stored.k, per_node=True, **case.given))
        assert found == expected


@given(cases(), st.booleans(), st.floats(-1, 1, width=32))
def test_parameters_of_an_index_equal_brute_force(case, as_table, threshold):
    """Queries that are stored vectors, said by their ids or described by a table."""
    where = {
        name: value
        for name, value in case.where.items()
        if not as_table or name not in ("min_hops", "common_neighbors")
    }
    case = case._replace(where=where)
    rows = np.flatnonzero(case.stored.labels >= 0)[:8]
    n, k = len(case.stored.ids), case.stored.k
    D, I = best_rows(case, rows, max(k, n))
    every_D, every_I, D, I = D[:, :n], I[:, :n], D[:, :k], I[:, :k]
    queries = case.frame.iloc[rows] if as_table else case.stored.ids[rows]
    for index in indexes(case):
        params = cfe.EvidenceParameters(case.stored.labels[rows], queries=queries, **case.given)
        found = index.search(case.stored.X[rows], k, params=params)
        assert_same_arrays(found, (D, I))
        lims, range_D, range_I = index.range_search(case.stored.X[rows], threshold, params=params)
        reached = (every_I >= 0) & (every_D > np.float32(threshold))
        assert_array_equal(np.diff(lims), reached.sum(axis=1))
        assert_array_equal(range_I, every_I[reached])
        assert_array_equal(range_D, every_D[reached])


@pytest.mark.parametrize(
    "description",
    ["EvidenceIVF4,SQ8", "EvidenceIVF4,SQfp16", "EvidenceIVF4,PQ2,RFlat", "EvidenceIVF4,Flat"],
)
def test_every_kind_of_index(description):
    """Without conditions that rule anything out, bit for bit the exact search of what the index holds."""
    X, labels = clustered(600, 8, 3)
    index = with_rows(cfe.index_factory(8, description), X, labels)
    finder = cfe.EvidenceFinder(
        X, labels.astype(np.int32), index, attributes=as_attributes({"a": np.zeros(600)})
    )
    for nodes in (None, np.arange(50)):
        found = finder.local(nodes, 7, where=Constraints(exact="a"))
        expected = index.search_stored(nodes, 7, exact=True)
        assert_same_arrays((found.similarity, found.evidence), expected)


# --- what is missing, and where attributes come from ------------------------------------------------------------------


@pytest.fixture
def small():
    index = cfe.IndexEvidenceIDMap2(2)
    index.add_with_labels(
        np.array([[1, 0], [0.8, 0.6], [0, 1], [0.6, 0.8]], np.float32), [0, 1, 0, 1]
    )
    return index


TABLE = {"age": [30.0, 34.0, np.nan, 36.0], "sex": ["f", "m", "m", None]}


def test_missing_values_are_counted_and_shown(small):
    finder = cfe.EvidenceFinder(
        np.eye(4, 2), np.array([0, 1, 0, 1], np.int32), small, attributes=as_attributes(TABLE)
    )
    where = Constraints(caliper={"age": 10}, permitted={"sex": ["m"]})
    found = finder.local(k=2, where=where)
    assert_array_equal(found.evidence, [[1, -1], [-1, -1], [-1, -1], [-1, -1]])
    assert found.missing == {"age": 1, "sex": 1}
    wanted = "LocalEvidence(4 nodes, k=2, exact, left out: 1 without age, 1 without sex)"
    assert repr(found) == wanted
    pairs = finder.top_pairs(5, where=where)
    assert listed(pairs)[0][:2] == (0, 1)
    assert len(pairs) == 1
    assert repr(pairs).startswith("PairEvidence(1 pair, ")
    assert repr(pairs).endswith(", left out: 1 without age, 1 without sex)")
    expected = {"age": 1, "sex": 1}
    assert next(cfe.evidence_pairs(small, -1, where=where, attributes=TABLE)).missing == expected
    assert finder.top_pairs(5).missing == {}


def test_a_graph_whose_last_nodes_have_no_edge(small):
    options = {"where": Constraints(min_hops=2)}
    pairs = cfe.global_evidence(small, 9, graph=[[0], [1]], **options)
    assert {pair[:2] for pair in listed(pairs)} == {(0, 3), (1, 2), (2, 3)}
    graph = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    with pytest.raises(ValueError, match="2 nodes and the id 3"):
        cfe.global_evidence(small, 9, graph=graph, **options)


def test_parameters_limit_how_often_evidence_is_used():
    index = cfe.IndexEvidenceIDMap2(2)
    index.add_with_labels(np.array([[1, 0], [0.8, 0.6]], np.float32), [1, 1])
    xq = np.array([[0.9, 0.1], [1, 0]], np.float32)
    params = cfe.EvidenceParameters(0, where=Constraints(replace=False))
    assert_array_equal(index.search(xq, 2, params=params)[1], [[1, -1], [0, -1]])
    with pytest.raises(ValueError, match="range search"):
        index.range_search(xq, 0.5, params=params)


def test_target_by_name():
    where = Constraints(target=["yes", 2])
    assert where.target == (2, "yes")
    assert where.describe() == ["evidence of class 2 or yes"]
    data = Data(x=torch.eye(4) + 1, edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
    finder = cfe.EvidenceFinder.from_data(data, ["no", "yes", "open", "open"])
    by_name, by_number = Constraints(target="open"), Constraints(target=1)
    assert_array_equal(finder.local(where=by_name).evidence, finder.local(where=by_number).evidence)
    pairs = listed(finder.top_pairs(9, where=by_name))
    assert pairs == listed(finder.top_pairs(9, where=by_number)) != []
    with pytest.raises(ValueError, match=r"target .*got 'maybe'"):
        finder.local(where=Constraints(target="maybe"))
    numbered = cfe.EvidenceFinder.from_vectors(np.eye(4) + 1, ["1", "2", "3", "3"])
    for target in (3, "3"):
        found = set(numbered.local([0], where=Constraints(target=target)).evidence.ravel().tolist())
        assert found == {2, 3, -1}
    with pytest.raises(TypeError, match=r"where\.target .*got 'yes'"):
        cfe.global_evidence(finder.index, 3, where=Constraints(target="yes"))


def test_an_empty_index():
    index = cfe.IndexEvidenceIDMap2(2)
    where = Constraints(exact="a")
    assert len(cfe.global_evidence(index, 3, where=where, attributes={"a": [1.0]})) == 0
    assert not list(cfe.evidence_pairs(index, 0, where=Constraints(replace=False)))
    params = cfe.EvidenceParameters(
        0, where=Constraints(exact="a"), attributes={"a": [1.0]}, queries={"a": [1.0]}
    )
    for each in (params, cfe.EvidenceParameters(0, where=Constraints(replace=False))):
        assert_array_equal(index.search(np.eye(1, 2), 2, params=each)[1], [[-1, -1]])
    assert_array_equal(index.range_search(np.eye(1, 2), 0, params=params)[0], [0, 0])


# --- the constraints themselves ---------------------------------------------------------------------------------------


def test_words_and_copies():
    where = Constraints(
        exact=["sex"],
        antiexact="town",
        caliper={"age": 5, "income": -100},
        std_caliper={"debt": 0.2},
        permitted={"income": (0, np.inf), "town": ["b", "a"]},
        target=np.array([1]),
        max_changed=1,
        min_hops=3,
        common_neighbors=False,
        replace=False,
    )
    assert where.describe() == [
        "the same sex",
        "different town",
        "age at most 5 apart",
        "income at least 100 apart",
        "debt at most 0.2 standard deviations apart",
        "evidence with income from 0 to inf",
        "evidence with town a or b",
        "evidence of class 1",
        "at most 1 attribute different",
        "at least 3 hops apart",
        "no neighbour in common",
        "each node in at most 1 pair",
    ]
    assert pickle.loads(pickle.dumps(where)) == where
    assert repr(Constraints()) == "Constraints()"
    assert not Constraints()
    assert Constraints(max_changed=0)
    assert repr(Constraints(ratio=1, target=0)) == "Constraints(target=(0,), ratio=1)"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"exact": 3}, TypeError, "exact must be names of attributes, got 3"),
        ({"antiexact": [3]}, TypeError, "antiexact must be names of attributes, got 3"),
        ({"exact": ["a", "a"]}, ValueError, "exact .*got 'a' more than once"),
        ({"exact": "a", "antiexact": ["b", "a"]}, ValueError, "exact and antiexact .* got 'a'"),
        ({"exact": "a", "caliper": {"a": -1}}, ValueError, "caliper .*got 'a'"),
        ({"exact": "a", "std_caliper": {"a": 1}}, ValueError, "std_caliper must"),
        ({"antiexact": "a", "caliper": {"a": 0}}, ValueError, "caliper of 'a' must be above 0"),
        ({"antiexact": "a", "caliper": {"a": -2}}, ValueError, "antiexact has no effect"),
        ({"caliper": "a"}, TypeError, "caliper .*got 'a'"),
        ({"caliper": {1: 2}}, TypeError, "caliper .*got 1"),
        ({"caliper": {"a": np.nan}}, ValueError, r"caliper\['a'\] must lie in .* got nan"),
        ({"caliper": {"a": np.inf}}, ValueError, r"caliper\['a'\] must lie in .* got inf"),
        ({"std_caliper": {"a": "1"}}, TypeError, r"std_caliper\['a'\] must be a number, got '1'"),
        ({"permitted": {"a": []}}, ValueError, r"permitted\['a'\] .*got \[\]"),
        ({"permitted": {"a": (2, 1)}}, ValueError, r"permitted\['a'\] .*got \(2, 1\)"),
        ({"permitted": {"a": (1, 2, 3)}}, ValueError, r"permitted\['a'\] must be a range \(low"),
        ({"permitted": {"a": (1, np.nan)}}, ValueError, r"permitted\['a'\] .*got nan"),
        ({"permitted": {"a": ("x", "y")}}, TypeError, r"permitted\['a'\] .*got 'x'"),
        ({"permitted": {"a": [None]}}, ValueError, r"permitted\['a'\] must hold values .* got"),
        ({"target": []}, ValueError, "target must hold at least one class, got \\[\\]"),
        ({"target": -1}, ValueError, "target must lie in .* got -1"),
        ({"target": 0.5}, TypeError, "target must be integers"),
        ({"target": 2**63}, ValueError, "target must lie in"),
        ({"max_changed": -1}, ValueError, "max_changed must be at least 0, got -1"),
        ({"max_changed": 1, "antiexact": ["a", "b"]}, ValueError, "max_changed must be at least 2"),
        ({"min_hops": 1}, ValueError, "min_hops must be at least 2, got 1"),
        ({"min_hops": 2.5}, TypeError, "min_hops must be an integer, got 2.5"),
        ({"common_neighbors": 0}, TypeError, "common_neighbors must be True or False, got 0"),
        ({"ratio": 0}, ValueError, "ratio must be at least 1, got 0"),
        ({"ratio": 2, "replace": False}, ValueError, "ratio .*got 2"),
        ({"replace": None}, TypeError, "replace must be True or False, got None"),
    ],
)
def test_arguments_that_contradict_or_have_no_effect(arguments, error, message):
    with pytest.raises(error, match=message):
        Constraints(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"exact": "height"}, ValueError, "where.exact .*got 'height'"),
        ({"permitted": {"height": [1]}}, ValueError, "where.permitted must name attributes"),
        ({"caliper": {"sex": 1}}, TypeError, "where.caliper .*got 'sex'"),
        ({"std_caliper": {"sex": 1}}, TypeError, "where.std_caliper .*got 'sex'"),
        ({"std_caliper": {"one": 1}}, ValueError, "where.std_caliper .*got 'one'"),
        ({"caliper": {"far": 1}}, ValueError, "where.caliper must name attributes of finite"),
        ({"caliper": {"age": 1}, "std_caliper": {"age": -9}}, ValueError, "contradict each other"),
        ({"permitted": {"sex": (1, 2)}}, TypeError, r"permitted\['sex'\] must be a list of texts"),
        ({"permitted": {"sex": ["f", "x"]}}, ValueError, r"permitted\['sex'\] .*got 'x'"),
        ({"permitted": {"age": ["old"]}}, TypeError, r"permitted\['age'\] must hold numbers.*got"),
        ({"target": 5}, ValueError, r"where.target must be predicted classes .*\(0, 1\), got 5"),
        ({"max_changed": 4}, ValueError, "where.max_changed must be below 4"),
        ({"max_changed": 3, "exact": "sex"}, ValueError, "where.max_changed must be below 3"),
        ({"min_hops": 2}, ValueError, "graph must be given"),
        ({"common_neighbors": False}, ValueError, "graph must be given"),
    ],
)
def test_constraints_that_do_not_fit_the_nodes(small, arguments, error, message):
    table = {**TABLE, "one": [1, 1, 1, 1], "far": [1, 2, 3, np.inf]}
    for search in (
        lambda **given: cfe.global_evidence(small, 3, **given),
        lambda **given: cfe.evidence_pairs(small, 0, **given),
        lambda **given: small.search(
            np.eye(1, 2), 1, params=cfe.EvidenceParameters(0, queries=[0], **given)
        ),
    ):
        with pytest.raises(error, match=message):
            search(where=Constraints(**arguments), attributes=table)


def test_arguments_that_where_needs_or_excludes(small):
    where = Constraints(exact="sex")
    labels = np.array([0, 1, 0, 1], np.int32)
    finder = cfe.EvidenceFinder(np.eye(4, 2), labels, small, attributes=as_attributes(TABLE))
    bare = cfe.EvidenceFinder(np.eye(4, 2), labels, small)
    alone, far = Constraints(replace=False), Constraints(min_hops=2)
    few = {"sex": ["f", "m"]}
    given = {"where": where, "attributes": TABLE}

    def searched(**options):
        return small.search(np.eye(1, 2), 1, params=cfe.EvidenceParameters(0, **options))

    for call, error, message in (
        (lambda: bare.local(where=where), ValueError, "attributes must be given"),
        (lambda: bare.top_pairs(where=where), ValueError, "attributes must be given"),
        (lambda: finder.local(where="sex"), TypeError, "where .*got str"),
        (lambda: finder.local(where=where, recall=0.9), ValueError, "recall must be left out"),
        (lambda: finder.local(where=where, nprobe=3), ValueError, "nprobe must be left out"),
        (lambda: finder.local(where=where, exact=False), ValueError, "exact must be left out"),
        (lambda: finder.top_pairs(where=where, exact=False), ValueError, "exact=False, nprobe"),
        (lambda: finder.top_pairs(where=alone, per_node=True), ValueError, "per_node=True"),
        (lambda: cfe.global_evidence(small, 3, attributes=TABLE), ValueError, "attributes must"),
        (lambda: cfe.evidence_pairs(small, 0, graph=[[0], [1]]), ValueError, "graph must be left"),
        (lambda: cfe.EvidenceParameters(0, queries=[1]), ValueError, "params.queries must be left"),
        (lambda: cfe.EvidenceParameters(0, 3, where=where), ValueError, "params.nprobe must"),
        (lambda: searched(**given), ValueError, "params.queries must"),
        (lambda: searched(**given, queries=[0, 1]), ValueError, "describe 1 queries"),
        (lambda: searched(**given, queries=[9]), ValueError, "params.queries must be in"),
        (lambda: searched(**given, queries={"a": [1]}), ValueError, "must have the attr"),
        (lambda: searched(**given, queries={"sex": [1]}), TypeError, "must hold texts"),
        (
            lambda: searched(where=far, graph=[[0], [1]], queries={"sex": ["f"]}),
            ValueError,
            "must be stored ids",
        ),
        (
            lambda: cfe.global_evidence(small, 3, where=where, attributes=few),
            ValueError,
            "got no row for 2",
        ),
    ):
        with pytest.raises(error, match=message):
            call()
