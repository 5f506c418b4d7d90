import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from reference import Stored, clustered, similarities, stored_vectors, with_rows

import cfe_faiss as cfe
from cfe_faiss.audit import consistency
from cfe_faiss.audit.groups import canonical_order
from cfe_faiss.audit.intervals import clustered_wilson
from cfe_faiss.audit.neighbours import exchanges, near_cells


def index_of(stored, nlist):
    d = stored.X.shape[1]
    index = cfe.IndexEvidenceIDMap2(d) if nlist is None else cfe.IndexEvidenceIVF(d, nlist)
    if nlist is not None:
        index.train(stored.X)
    index.add_with_ids(stored.X, stored.ids)
    if len(stored.ids):
        index.relabel(stored.labels, stored.ids)
    return index


def shares(index, features=None, **options):
    return consistency(cfe.EvidenceFinder.from_index(index, features=features), **options)


def nearest_by_hand(stored):
    """Return the places of the nodes that are nearest to each place, of those with a class."""
    S = similarities(stored.X, stored.X)
    known = np.flatnonzero(stored.labels >= 0)
    found = {}
    for v in known.tolist():
        others = known[known != v]
        if len(others):
            found[v] = set(others[S[v, others] == S[v, others].max()].tolist())
    return found


def judged_by_hand(stored, nodes):
    """Return the places of the nodes that have another node of their class, and one of another class."""
    known = stored.labels[stored.labels >= 0]
    places = [stored.ids.tolist().index(node) for node in dict.fromkeys(nodes)]
    own = [(v, (known == stored.labels[v]).sum()) for v in places if stored.labels[v] >= 0]
    return [v for v, count in own if 1 < count < len(known)]


def clusters_by_hand(nearest, places):
    """Return the sets of nodes that are connected by being nearest to a judged one."""
    clusters = []
    for v in places:
        joined = {v} | nearest[v]
        apart = [cluster for cluster in clusters if not cluster & joined]
        clusters = [*apart, joined.union(*(cluster for cluster in clusters if cluster & joined))]
    return clusters


@given(stored=stored_vectors(lowest_label=-1, arbitrary_ids=False), draw=st.data())
def test_against_node_by_node(stored, draw):
    n = len(stored.ids)
    some = st.lists(st.sampled_from(stored.ids.tolist()), max_size=8) if n else st.just([])
    nodes = draw.draw(st.none() | some)
    groups = np.array(draw.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.int64)
    nlist = draw.draw(st.sampled_from([None, 3])) if n > 3 else None
    index = index_of(stored, nlist)
    frame = pd.DataFrame({"group": groups}, index=pd.Index(stored.ids, dtype=np.int64))
    found = shares(index, frame, nodes=nodes, nprobe=nlist, confidence=0.9)
    nearest = nearest_by_hand(stored)
    # more equally near nodes are left out, see Notes
    assume(all(len(own) <= 16 for own in nearest.values()))
    judged = judged_by_hand(stored, stored.ids.tolist() if nodes is None else nodes)
    clusters = clusters_by_hand(nearest, judged)
    values = sorted(set(groups.tolist()))
    assert found["value"].tolist() == ["", *map(str, values)]
    for row in found.itertuples():
        part = [v for v in judged if row.feature == "all" or str(groups[v]) == row.value]
        closer = [v for v in part if all(stored.labels[u] != stored.labels[v] for u in nearest[v])]
        expected = (len(part), len(closer), sum(len(nearest[v]) > 1 for v in part))
        assert (row.nodes, row.closer, row.tied) == expected
        counts = [(len(own & set(closer)), len(own & set(part))) for own in clusters]
        low, high = clustered_wilson(
            *np.array([*counts, (0, 0)]).T, 0.9 if row.feature == "all" else 1 - 0.1 / len(values)
        )
        share = len(closer) / len(part) if part else math.nan
        np.testing.assert_allclose((row.share, row.low, row.high), (share, low, high), atol=1e-9)
        assert not row.expected_low > row.expected + 1e-12
        assert not row.expected > row.expected_high + 1e-12
        assert not abs(row.share - row.expected - row.difference) > 1e-12


def test_expected_is_the_mean_over_exchanges_within_cells():
    X, labels = clustered(80, 4, 3)
    stored = Stored(X, labels, np.arange(80), X[:0], np.zeros(0, int), 1)
    nearest = {v: next(iter(own)) for v, own in nearest_by_hand(stored).items()}
    index = index_of(stored, None)
    found = shares(index, confidence=0.8).loc[0]
    rows = canonical_order(index.reconstruct_batch(stored.ids))
    cells = near_cells(index.reconstruct_batch(stored.ids[rows]))
    assert 5 <= np.bincount(cells).min() <= np.bincount(cells).max() <= 10
    drawn = []
    for order in exchanges(cells):
        assert (cells[order] == cells).all()
        changed = labels.copy()
        changed[rows] = labels[rows][order]
        drawn.append(np.mean([changed[v] != changed[u] for v, u in nearest.items()]))
    assert found["expected"] == pytest.approx(np.mean(drawn))
    expected = pytest.approx(tuple(np.quantile(drawn, [0.1, 0.9])))
    assert (found["expected_low"], found["expected_high"]) == expected


@pytest.mark.parametrize("copies", [1, 2, 4, 40])
def test_random_classes_of_copies_are_as_expected(copies):
    rng = np.random.default_rng(2)
    index = cfe.IndexEvidenceIDMap2(6)
    index.add_with_labels(
        np.repeat(rng.normal(size=(60, 6)), copies, axis=0), rng.permutation(60 * copies) % 3
    )
    found = shares(index).loc[0]
    assert found["tied"] == (60 * copies if copies > 2 else 0)
    assert found["share"] <= found["expected_high"]
    assert found["expected"] == pytest.approx(found["share"], abs=0.1)


def test_level_and_power():
    """Random classes are above the range in about 2.5 % of samples, pairs of copies with different classes always."""
    above = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        index = cfe.IndexEvidenceIDMap2(4)
        index.add_with_labels(rng.normal(size=(200, 4)), rng.choice(3, 200, p=[0.6, 0.3, 0.1]))
        row = shares(index).loc[0]
        above += row["share"] > row["expected_high"]
    assert above <= 4
    X = np.repeat(rng.normal(size=(100, 4)), 2, axis=0)
    index = with_rows(cfe.IndexEvidenceIDMap2(4), X, np.arange(200) % 2)
    row = shares(index).loc[0]
    assert row["share"] == 1
    assert row["expected_high"] < 0.8


def test_faults():
    index = with_rows(cfe.IndexEvidenceIDMap2(3), np.eye(3), [0, 1, 0])
    with pytest.raises(ValueError, match=r"nodes must lie in 0\.\.2, got 3"):
        shares(index, nodes=[3])
    with pytest.raises(ValueError, match="index must hold row numbers below 1, got 2"):
        shares(index, pd.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match="finder must know attributes"):
        shares(index, columns=["a"])
    with pytest.raises(ValueError, match="confidence must lie"):
        shares(index, confidence=1.0)
