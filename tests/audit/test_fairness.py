import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import Stored, clustered, similarities, stored_vectors

import cfe_faiss as cfe
from cfe_faiss.audit import consistency, wilson


def index_of(stored: Stored, nlist: int | None) -> cfe.IndexEvidenceFlat | cfe.IndexEvidenceIVF:
    d = stored.X.shape[1]
    index = cfe.IndexEvidenceFlat(d) if nlist is None else cfe.IndexEvidenceIVF(d, nlist)
    if nlist is not None:
        index.train(stored.X)
    index.add_with_ids(stored.X, stored.ids)
    if len(stored.ids):
        index.relabel(stored.labels, stored.ids)
    return index


def judged_by_hand(stored: Stored, nodes: list[int]) -> list[tuple[int, bool, float]]:
    """Return (place, closer, share of other classes) of every node that can be judged."""
    S, labels = similarities(stored.X, stored.X), stored.labels
    rows = []
    for v in [stored.ids.tolist().index(node) for node in dict.fromkeys(nodes)]:
        others = [u for u in range(len(labels)) if u != v and labels[u] >= 0]
        other = [S[v, u] for u in others if labels[u] != labels[v]]
        same = [S[v, u] for u in others if labels[u] == labels[v]]
        if labels[v] >= 0 and other and same:
            rows.append((v, max(other) > max(same), len(other) / len(others)))
    return rows


@given(stored=stored_vectors(lowest_label=-1), draw=st.data())
def test_against_node_by_node(stored: Stored, draw: st.DataObject) -> None:
    n = len(stored.ids)
    some = st.lists(st.sampled_from(stored.ids.tolist()), max_size=8) if n else st.just([])
    nodes = draw.draw(st.none() | some)
    groups = np.array(draw.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.int64)
    nlist = draw.draw(st.sampled_from([None, 3])) if n > 3 else None
    index = index_of(stored, nlist)
    frame = pd.DataFrame({"group": groups}, index=pd.Index(stored.ids, dtype=np.int64))
    found = consistency(index, nodes, frame, nprobe=nlist, confidence=0.9)
    rows = judged_by_hand(stored, stored.ids.tolist() if nodes is None else nodes)
    assert found.loc[0, "feature"] == "all"
    assert found["value"].tolist() == ["", *map(str, sorted(set(groups.tolist())))]
    for row in found.itertuples():
        part = [r for r in rows if row.feature == "all" or str(groups[r[0]]) == row.value]
        count, closer = len(part), sum(r[1] for r in part)
        assert (row.nodes, row.closer) == (count, closer)
        low, high = wilson([closer], [count], 0.9)
        wanted = (closer / count, np.mean([r[2] for r in part])) if count else (math.nan, math.nan)
        np.testing.assert_allclose((row.share, row.expected, row.low, row.high), (*wanted, low[0], high[0]), atol=1e-12)


def test_without_features_only_the_line_of_all() -> None:
    X, labels = clustered(200, 5, 2)
    index = cfe.IndexEvidenceFlat(5)
    index.add_with_labels(X, labels)
    assert consistency(index)["feature"].tolist() == ["all"]


def test_copies_are_as_close_as_can_be_and_not_closer() -> None:
    index = cfe.IndexEvidenceFlat(3)
    index.add_with_labels(np.repeat(np.random.default_rng(0).normal(size=(5, 3)), 4, axis=0), [0, 0, 1, 1] * 5)
    assert consistency(index).loc[0, ["nodes", "closer"]].tolist() == [20, 0]


def test_classes_at_random_come_out_as_expected_and_separate_ones_as_consistent() -> None:
    rng = np.random.default_rng(0)
    X, classes = rng.normal(size=(600, 4)), rng.choice(3, 600, p=[0.6, 0.3, 0.1])
    index = cfe.IndexEvidenceFlat(4)
    index.add_with_labels(X, classes)
    row = consistency(index, features=pd.DataFrame({"class": classes}))
    assert ((row["low"] <= row["expected"]) & (row["expected"] <= row["high"])).all()
    index.relabel((X[:, 0] > 0).astype(int))
    assert consistency(index).loc[0, "share"] < 0.15


def test_faults() -> None:
    index = cfe.IndexEvidenceFlat(3)
    index.add_with_labels(np.eye(3), [0, 1, 0])
    with pytest.raises(ValueError, match="nodes must be in the index, got 3"):
        consistency(index, [3])
    with pytest.raises(ValueError, match="features must describe every node"):
        consistency(index, None, pd.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match="confidence must lie"):
        consistency(index, confidence=1.0)
