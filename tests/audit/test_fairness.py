import math
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import Stored, clustered, similarities, stored_vectors

import cfe_faiss as cfe
from cfe_faiss.audit import consistency
from cfe_faiss.audit.intervals import wilson


def index_of(stored: Stored, nlist: int | None) -> cfe.IndexEvidenceFlat | cfe.IndexEvidenceIVF:
    d = stored.X.shape[1]
    index = cfe.IndexEvidenceFlat(d) if nlist is None else cfe.IndexEvidenceIVF(d, nlist)
    if nlist is not None:
        index.train(stored.X)
    index.add_with_ids(stored.X, stored.ids)
    if len(stored.ids):
        index.relabel(stored.labels, stored.ids)
    return index


def shares(index: Any, features: Any = None, **options: Any) -> pd.DataFrame:
    return consistency(cfe.EvidenceFinder.from_index(index, features=features), **options)


def judged_by_hand(stored: Stored, nodes: list[int]) -> list[tuple[int, bool, float]]:
    """Return (place, closer, chance of being closer, ties) of every node that can be judged."""
    S, labels = similarities(stored.X, stored.X), stored.labels
    rows = []
    for v in [stored.ids.tolist().index(node) for node in dict.fromkeys(nodes)]:
        others = [u for u in range(len(labels)) if u != v and labels[u] >= 0]
        other = [S[v, u] for u in others if labels[u] != labels[v]]
        same = [S[v, u] for u in others if labels[u] == labels[v]]
        if labels[v] >= 0 and other and same:
            ties = int((np.array(other + same) == max(other + same)).sum())
            chance = math.comb(len(other), ties) / math.comb(len(others), ties)
            rows.append((v, max(other) > max(same), chance, ties))
    return rows


@given(stored=stored_vectors(lowest_label=-1, arbitrary_ids=False), draw=st.data())
def test_against_node_by_node(stored: Stored, draw: st.DataObject) -> None:
    n = len(stored.ids)
    some = st.lists(st.sampled_from(stored.ids.tolist()), max_size=8) if n else st.just([])
    nodes = draw.draw(st.none() | some)
    groups = np.array(draw.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.int64)
    nlist = draw.draw(st.sampled_from([None, 3])) if n > 3 else None
    index = index_of(stored, nlist)
    frame = pd.DataFrame({"group": groups}, index=pd.Index(stored.ids, dtype=np.int64))
    found = shares(index, frame, nodes=nodes, nprobe=nlist, confidence=0.9)
    rows = judged_by_hand(stored, stored.ids.tolist() if nodes is None else nodes)
    assert found.loc[0, "feature"] == "all"
    assert found["value"].tolist() == ["", *map(str, sorted(set(groups.tolist())))]
    for row in found.itertuples():
        part = [r for r in rows if row.feature == "all" or str(groups[r[0]]) == row.value]
        count, closer = len(part), sum(r[1] for r in part)
        assert (row.nodes, row.closer) == (count, closer)
        low, high = wilson([closer], [count], 0.9)
        assert row.tied == sum(r[3] > 1 for r in part)
        share, expected = (closer / count, np.mean([r[2] for r in part])) if count else (math.nan, math.nan)
        wanted = (share, low[0], high[0], expected, share - expected)
        np.testing.assert_allclose((row.share, row.low, row.high, row.expected, row.difference), wanted, atol=1e-9)


def test_without_features_only_the_line_of_all() -> None:
    X, labels = clustered(200, 5, 2)
    index = cfe.IndexEvidenceFlat(5)
    index.add_with_labels(X, labels)
    assert shares(index)["feature"].tolist() == ["all"]


def test_copies_are_as_close_as_can_be_and_not_closer() -> None:
    index = cfe.IndexEvidenceFlat(3)
    index.add_with_labels(np.repeat(np.random.default_rng(0).normal(size=(5, 3)), 4, axis=0), [0, 0, 1, 1] * 5)
    assert shares(index).loc[0, ["nodes", "closer"]].tolist() == [20, 0]


@pytest.mark.parametrize("nlist", [None, 2])
def test_ties_are_expected_as_often_as_they_occur(nlist: int | None) -> None:
    # All ways to give three of seven nodes the other class: shares are on average what is expected, exactly.
    X = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0.6, 0.8], [-1, 0]], np.float32)
    index = index_of(Stored(X, np.zeros(7, int), np.arange(7), X[:0], np.zeros(0, int), 1), nlist)
    found, expected = [], []
    for chosen in combinations(range(7), 3):
        index.relabel(np.isin(np.arange(7), chosen).astype(int))
        row = shares(index, nprobe=nlist).loc[0]
        assert (row["nodes"], row["tied"]) == (7, 5)
        found.append(row["share"])
        expected.append(row["expected"])
    assert np.mean(found) == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize(("copies", "expected"), [(1, 0.67), (2, 0.67), (4, 0.29), (40, 0)])
def test_random_classes_of_copies_do_not_look_consistent(copies: int, expected: float) -> None:
    rng = np.random.default_rng(2)
    index = cfe.IndexEvidenceFlat(6)
    index.add_with_labels(np.repeat(rng.normal(size=(60, 6)), copies, axis=0), rng.permutation(60 * copies) % 3)
    found = shares(index).loc[0]
    assert found["expected"] == pytest.approx(expected, abs=0.02)
    assert found["tied"] == (60 * copies if copies > 2 else 0)
    assert abs(found["difference"]) < 0.1


def test_a_large_tie_set_is_counted_in_full_where_it_matters() -> None:
    # Of two nodes of a rare class one has 3,000 nearest nodes: the other one is not among them but by chance.
    X = np.concatenate([np.tile([1.0, 0.0], (3000, 1)), [[0.9, 0.4], [-1.0, 0.0]]])
    index = cfe.IndexEvidenceFlat(2)
    index.add_with_labels(X, [0] * 3000 + [1, 1])
    found = shares(index, {"rare": [0] * 3000 + [1, 1]}, nodes=[0, 3000])
    assert found["closer"].tolist() == [1, 0, 1]
    assert found["tied"].tolist() == [2, 1, 1]
    np.testing.assert_allclose(found["expected"], [0.5 / 3001, 0, 1 / 3001], atol=1e-9)


def test_classes_at_random_come_out_as_expected_and_separate_ones_as_consistent() -> None:
    rng = np.random.default_rng(0)
    X, classes = rng.normal(size=(600, 4)), rng.choice(3, 600, p=[0.6, 0.3, 0.1])
    index = cfe.IndexEvidenceFlat(4)
    index.add_with_labels(X, classes)
    row = shares(index, pd.DataFrame({"class": classes}))
    assert ((row["low"] <= row["expected"]) & (row["expected"] <= row["high"])).all()
    index.relabel((X[:, 0] > 0).astype(int))
    assert shares(index).loc[0, "share"] < 0.15


def test_faults() -> None:
    index = cfe.IndexEvidenceFlat(3)
    index.add_with_labels(np.eye(3), [0, 1, 0])
    with pytest.raises(ValueError, match=r"nodes must lie in 0\.\.2, got 3"):
        shares(index, nodes=[3])
    with pytest.raises(ValueError, match="index must hold row numbers below 1, got 2"):
        shares(index, pd.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match="finder must know attributes"):
        shares(index, columns=["a"])
    with pytest.raises(ValueError, match="confidence must lie"):
        shares(index, confidence=1.0)
