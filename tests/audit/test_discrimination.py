import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import Stored, clustered, evidence, stored_vectors

import cfe_faiss as cfe
from cfe_faiss.audit import bootstrap_mean, discrimination_scores

COLUMNS = ["feature", "value", "score", "low", "high", "expected", "nodes", "evidence"]


def filled(stored: Stored) -> cfe.IndexEvidenceFlat:
    index = cfe.IndexEvidenceFlat(stored.X.shape[1])
    index.add_with_ids(stored.X, stored.ids)
    if len(stored.ids):
        index.relabel(stored.labels, stored.ids)
    return index


def by_hand(stored: Stored, values: list, nodes: list[int], k: int) -> dict[str, tuple]:
    """Per value: the mean score, the mean by chance, the counts, and the score of each node; node by node."""
    of, label = dict(zip(stored.ids.tolist(), values, strict=True)), {}
    label = dict(zip(stored.ids.tolist(), stored.labels.tolist(), strict=True))
    queries = stored._replace(xq=stored.X, labels_q=stored.labels, k=k)
    found = dict(zip(stored.ids.tolist(), evidence(queries)[1].tolist(), strict=True))
    scores: dict[str, list] = {value: [] for value in values}
    for node in dict.fromkeys(nodes):
        best = [u for u in found[node] if u >= 0]
        if label[node] < 0 or not best:
            continue
        others = [u for u in of if label[u] not in (-1, label[node])]
        scores[of[node]].append(
            (
                sum(of[u] != of[node] for u in best) / len(best),
                sum(of[u] != of[node] for u in others) / len(others),
                len(best),
            )
        )
    return {value: tuple(np.array(rows).reshape(-1, 3).T) for value, rows in scores.items()}


@given(stored=stored_vectors(lowest_label=-1), draw=st.data())
def test_against_node_by_node(stored: Stored, draw: st.DataObject) -> None:
    k = draw.draw(st.integers(1, 12))
    values = draw.draw(st.lists(st.sampled_from("abc"), min_size=len(stored.ids), max_size=len(stored.ids)))
    some = st.lists(st.sampled_from(stored.ids.tolist()), max_size=8) if len(stored.ids) else st.just([])
    nodes = draw.draw(st.none() | some)
    frame = pd.DataFrame({"f": values}, index=pd.Index(stored.ids, dtype=np.int64))
    found = discrimination_scores(filled(stored), nodes, frame, k, resamples=50)
    assert list(found.columns) == COLUMNS
    expected = by_hand(stored, values, stored.ids.tolist() if nodes is None else nodes, k)
    assert set(found["value"]) == set(values)
    for row in found.itertuples():
        scores, by_chance, counts = expected[row.value]
        assert (row.feature, row.nodes, row.evidence) == ("f", len(scores), counts.sum())
        low, high = bootstrap_mean(scores, resamples=50)
        wanted = (scores.mean(), low, high, by_chance.mean()) if len(scores) else (math.nan,) * 4
        np.testing.assert_allclose((row.score, row.low, row.high, row.expected), wanted, atol=1e-12)
    known = found["score"].dropna().to_numpy()
    assert (np.diff(known) <= 0).all()
    assert found["score"][len(known) :].isna().all()


@pytest.fixture(scope="module")
def graph() -> tuple[cfe.IndexEvidenceIVF, pd.DataFrame]:
    X, labels = clustered(400, 8, 3)
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], 400), "age": rng.integers(18, 80, 400), "noise": X[:, 0]})
    index = cfe.IndexEvidenceIVF(8, 12)
    index.train(X)
    index.add_with_labels(X, labels)
    return index, frame


def test_an_intersection_is_the_attribute_of_both(graph) -> None:
    index, frame = graph
    both = discrimination_scores(
        index, None, frame, 5, columns=[], bins={"age": [30, 60]}, intersections=[("sex", "age")]
    )
    joined = pd.DataFrame({"sex & age": frame["sex"] + " & " + pd.cut(frame["age"], [0, 29, 60, 99]).astype(str)})
    alone = discrimination_scores(index, None, joined, 5)
    columns = ["feature", "score", "low", "high", "expected", "nodes", "evidence"]
    pd.testing.assert_frame_equal(both[columns], alone[columns])
    assert set(both["value"]) == {f"{sex} & {age}" for sex in "fm" for age in ("< 30", "30-60", "> 60")}


def test_options_reach_the_search_and_the_interval(graph) -> None:
    index, frame = graph
    nodes = np.arange(0, 400, 3)
    _, I = index.search_members(nodes, 4, 1)
    sex = frame["sex"].to_numpy()
    lacking = (sex[I] != sex[nodes][:, None]).mean(axis=1)
    found = discrimination_scores(
        index, nodes, frame, 4, columns=["sex"], nprobe=1, confidence=0.8, resamples=100, seed=3
    )
    for row in found.itertuples():
        scores = lacking[sex[nodes] == row.value]
        assert row.score == pytest.approx(scores.mean())
        assert (row.low, row.high) == bootstrap_mean(scores, 0.8, 100, 3)
    exact = discrimination_scores(index, nodes, frame, 4, columns=["sex"], nprobe=12)
    assert not exact["score"].equals(found["score"])


def test_a_model_that_decides_by_an_attribute_is_found_out() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"used": rng.integers(0, 2, 300), "unused": rng.integers(0, 2, 300)})
    index = cfe.IndexEvidenceFlat(5)
    index.add_with_labels(rng.normal(size=(300, 5)), frame["used"])
    found = discrimination_scores(index, None, frame)
    assert found["feature"].tolist() == ["used", "used", "unused", "unused"]
    assert found["score"][:2].tolist() == [1, 1]
    inside = (found["low"] <= found["expected"]) & (found["expected"] <= found["high"])
    assert inside[2:].all()


def test_bail_as_in_table_2(data_root) -> None:
    from cfe_faiss.datasets import load

    data = load("bail", data_root)
    nodes = np.flatnonzero(data.test_mask)[:2000]
    index = cfe.IndexEvidenceFlat(18)
    index.add_with_labels(data.x.numpy()[nodes], data.y.numpy()[nodes], nodes)
    found = discrimination_scores(index, None, data, bins={"TIME": [0, 30], "SCHOOL": [8, 13]})
    names = {f"{row.feature} {row.value}": row.nodes for row in found.itertuples()}
    raw = dict(zip(data.feature_names, data.x_raw.numpy()[nodes].T, strict=True))
    assert names["WHITE 1"] == (raw["WHITE"] == 1).sum()
    assert names["FILE 3"] == (raw["FILE"] == 3).sum()
    assert names["TIME 0-30"] == ((raw["TIME"] >= 0) & (raw["TIME"] <= 30)).sum()
    assert names["TIME > 30"] == (raw["TIME"] > 30).sum()
    assert names["SCHOOL 8-13"] == ((raw["SCHOOL"] >= 8) & (raw["SCHOOL"] <= 13)).sum()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"k": 0}, ValueError, "k must be at least 1"),
        ({"nodes": [400]}, ValueError, "nodes must be in the index, got 400"),
        ({"nodes": [0.5]}, TypeError, "nodes must be integers"),
        ({"confidence": 1}, ValueError, "confidence must lie strictly between"),
        ({"resamples": 0}, ValueError, "resamples must be at least 1"),
        ({"features": pd.DataFrame({"a": [1]})}, ValueError, "features must describe every node of the index"),
    ],
)
def test_faults(graph, change: dict, error: type[Exception], message: str) -> None:
    index, frame = graph
    with pytest.raises(error, match=message):
        discrimination_scores(**({"index": index, "nodes": None, "features": frame} | change))
