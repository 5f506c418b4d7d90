import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import clustered, evidence, stored_vectors, with_rows

import cfe_faiss as cfe
from cfe_faiss.audit import discrimination_scores


def filled(stored):
    index = cfe.IndexEvidenceIDMap2(stored.X.shape[1])
    index.add_with_ids(stored.X, stored.ids)
    if len(stored.ids):
        index.relabel(stored.labels, stored.ids)
    return index


def scores_of(index, features, **options):
    return discrimination_scores(cfe.EvidenceFinder.from_index(index, features=features), **options)


def by_hand(stored, values, nodes, k):
    """Per value: for each node its score, the same by chance of other classes, and its number of evidences."""
    of, label = dict(zip(stored.ids.tolist(), values, strict=True)), {}
    label = dict(zip(stored.ids.tolist(), stored.labels.tolist(), strict=True))
    queries = stored._replace(xq=stored.X, labels_q=stored.labels, k=k)
    found = dict(zip(stored.ids.tolist(), evidence(queries)[1].tolist(), strict=True))
    scores = {value: [] for value in values}
    for node in dict.fromkeys(nodes):
        best = [u for u in found[node] if u >= 0]
        if label[node] < 0 or not best:
            continue
        others = [u for u in of if label[u] not in (-1, label[node])]
        own_share = sum(of[u] != of[node] for u in best) / len(best)
        by_chance = sum(of[u] != of[node] for u in others) / len(others)
        scores[of[node]].append((own_share, by_chance, len(best)))
    return {value: tuple(np.array(rows).reshape(-1, 3).T) for value, rows in scores.items()}


@given(stored=stored_vectors(lowest_label=-1, arbitrary_ids=False), draw=st.data())
def test_against_node_by_node(stored, draw):
    k = draw.draw(st.integers(1, 12))
    values = draw.draw(
        st.lists(st.sampled_from("abc"), min_size=len(stored.ids), max_size=len(stored.ids))
    )
    some = (
        st.lists(st.sampled_from(stored.ids.tolist()), max_size=8)
        if len(stored.ids)
        else st.just([])
    )
    nodes = draw.draw(st.none() | some)
    frame = pd.DataFrame({"f": values}, index=pd.Index(stored.ids, dtype=np.int64))
    index = filled(stored)
    found = scores_of(index, frame, nodes=nodes, k=k)
    wanted = by_hand(stored, values, stored.ids.tolist() if nodes is None else nodes, k)
    assert set(found["value"]) == set(values)
    members = [value for value, label in zip(values, stored.labels, strict=True) if label >= 0]
    for row in found.itertuples():
        scores, by_class, counts = wanted[row.value]
        answer = (row.feature, row.sensitive, row.nodes, row.evidence)
        assert answer == ("f", False, len(scores), counts.sum())
        if not len(scores):
            names = ["score", "expected", "difference", "class_expected"]
            assert found.loc[row.Index, names].isna().all()
            continue
        m, n = members.count(row.value), len(members)
        found_numbers = (row.score, row.expected, row.class_expected)
        wanted_numbers = (scores.mean(), (n - m) / (n - 1), by_class.mean())
        np.testing.assert_allclose(found_numbers, wanted_numbers, atol=1e-9)
        assert row.difference == pytest.approx(row.score - row.expected, abs=1e-12)
    known = found["difference"].dropna().to_numpy()
    assert (np.diff(known) <= 0).all()
    assert found["difference"][len(known) :].isna().all()


@pytest.fixture(scope="module")
def graph():
    X, labels = clustered(400, 8, 3)
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {"sex": rng.choice(["f", "m"], 400), "age": rng.integers(18, 80, 400), "noise": X[:, 0]}
    )
    index = with_rows(cfe.IndexEvidenceIVF(8, 12), X, labels)
    return index, frame


def test_an_intersection_is_the_attribute_of_both(graph):
    index, frame = graph
    both = scores_of(
        index, frame, k=5, columns=[], bins={"age": [30, 60]}, intersections=[("sex", "age")]
    )
    joined = pd.DataFrame(
        {"sex & age": frame["sex"] + " & " + pd.cut(frame["age"], [0, 29, 60, 99]).astype(str)}
    )
    alone = scores_of(index, joined, k=5)
    pd.testing.assert_frame_equal(both.drop(columns="value"), alone.drop(columns="value"))
    expected = {f"{sex} & {age}" for sex in "fm" for age in ("< 30", "30-60", "> 60")}
    assert set(both["value"]) == expected


def test_options_reach_the_search(graph):
    index, frame = graph
    nodes = np.arange(0, 400, 3)
    _, I = index.search_stored(nodes, 4, 1)
    sex = frame["sex"].to_numpy()
    lacking = (sex[I] != sex[nodes][:, None]).mean(axis=1)
    options = {"columns": ["sex"], "nprobe": 1}
    found = scores_of(index, frame, nodes=nodes, k=4, **options)
    for row in found.itertuples():
        assert row.score == pytest.approx(lacking[sex[nodes] == row.value].mean())
    exact = scores_of(index, frame, nodes=nodes, k=4, columns=["sex"], nprobe=12)
    assert not exact["score"].equals(found["score"])


def test_sensitive_attributes_stand_first(graph):
    index, frame = graph
    found = scores_of(
        index, frame, k=5, intersections=[("sex", "age")], sensitive=["sex & age", "noise"]
    )
    assert found["sensitive"].tolist() == sorted(found["sensitive"], reverse=True)
    assert set(found["feature"][found["sensitive"]]) == {"sex & age", "noise"}
    for _, block in found.groupby("sensitive"):
        assert (np.diff(block["difference"].dropna()) <= 0).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k": 0}, ValueError, "k must be at least 1"),
        ({"nodes": [400]}, ValueError, "nodes must lie in 0..399, got 400"),
        ({"nodes": [0.5]}, TypeError, "nodes must be integers"),
        ({"features": pd.DataFrame({"a": [1]})}, ValueError, "index .*got 399"),
        ({"sensitive": ["race"]}, ValueError, "sensitive .*got 'race'"),
        ({"sensitive": "sex"}, TypeError, "sensitive must be a sequence of names"),
    ],
)
def test_faults(graph, change, error, message):
    index, frame = graph
    with pytest.raises(error, match=message):
        scores_of(**({"index": index, "features": frame} | change))
