import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from reference import clustered, stored_vectors, top_pairs, with_rows

import cfe_faiss as cfe
from cfe_faiss.audit import error_rate_by_evidence
from cfe_faiss.audit.groups import canonical_order
from cfe_faiss.audit.intervals import wilson
from cfe_faiss.audit.neighbours import exchanges, near_cells

pytestmark = pytest.mark.filterwarnings(
    "ignore:(no true class|class .* never among):cfe_faiss.InputWarning"
)


def curve(index, y, **options):
    return error_rate_by_evidence(cfe.EvidenceFinder.from_index(index, truth=y), **options)


@given(stored=stored_vectors(lowest_label=-1, arbitrary_ids=False), draw=st.data())
def test_against_pair_by_pair(stored, draw):
    n = len(stored.ids)
    y = np.array(draw.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n)), np.int64)
    ks = draw.draw(st.lists(st.integers(1, 40), max_size=4))
    index = cfe.IndexEvidenceIDMap2(stored.X.shape[1])
    index.add_with_ids(stored.X, stored.ids)
    if n:
        index.relabel(stored.labels, stored.ids)
    found = curve(index, y, ks=ks, confidence=0.9)
    label = dict(zip(stored.ids.tolist(), stored.labels.tolist(), strict=True))
    pairs = top_pairs(stored)
    judged = [v for v in label if label[v] >= 0 and y[v] >= 0]
    overall = np.mean([label[v] == y[v] for v in judged]) if judged else math.nan
    assert found["k"].tolist() == sorted(set(ks))
    for row in found.itertuples():
        nodes = {v for pair in pairs[: row.k] for v in pair[:2]} & set(judged)
        errors = sum(label[v] != y[v] for v in nodes)
        assert (row.pairs, row.nodes, row.errors) == (min(row.k, len(pairs)), len(nodes), errors)
        accuracy = 1 - errors / len(nodes) if nodes else math.nan
        low, high = wilson([len(nodes) - errors], [len(nodes)], 0.9)
        expected = (accuracy, low[0], high[0], overall)
        assert_allclose((row.accuracy, row.low, row.high, row.overall), expected, atol=1e-12)
        assert row.overall_nodes == len(judged)
        low, high = wilson([sum(label[v] == y[v] for v in judged)], [len(judged)], 0.9)
        assert_allclose((row.overall_low, row.overall_high), (low[0], high[0]), atol=1e-12)
        assert not row.expected_low > row.expected + 1e-12
        assert not row.expected > row.expected_high + 1e-12


def test_expected_is_the_mean_over_exchanges_of_errors_within_cells():
    X, labels = clustered(90, 4, 3)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(90) < 0.3, (labels + 1) % 3, labels)
    y[:10] = -1
    index = with_rows(cfe.IndexEvidenceIDMap2(4), X, labels)
    found = curve(index, y, ks=[5, 20], confidence=0.8)
    pairs = cfe.global_evidence(index, 20)
    known = np.flatnonzero(y >= 0)
    known = known[canonical_order(index.reconstruct_batch(known))]
    right = (labels == y)[known]
    cells = near_cells(index.reconstruct_batch(known))
    for line, k in enumerate((5, 20)):
        nodes = np.union1d(pairs.source[:k], pairs.target[:k])
        own = np.flatnonzero(np.isin(known, nodes))
        drawn = [right[order][own].mean() for order in exchanges(cells)]
        row = found.loc[line]
        assert row["expected"] == pytest.approx(np.mean(drawn))
        expected = pytest.approx(tuple(np.quantile(drawn, [0.1, 0.9])))
        assert (row["expected_low"], row["expected_high"]) == expected


def test_ways_to_find_the_pairs():
    X, labels = clustered(300, 6, 3)
    y = np.where(np.arange(300) % 7, labels, 0)
    index = with_rows(cfe.IndexEvidenceIVF(6, 20), X, labels)
    for options in (
        {"per_node": True},
        {"exact": False, "nprobe": 1},
        {"exact": False, "per_node": True, "nprobe": 2},
    ):
        found = curve(index, y, ks=[60], **options)
        pairs = cfe.global_evidence(index, 60, **options)
        nodes = np.union1d(pairs.source, pairs.target)
        assert found.loc[0, "nodes"] == len(nodes)
        assert found.loc[0, "errors"] == (labels[nodes] != y[nodes]).sum()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"ks": [0]}, ValueError, "ks must be at least 1, got 0"),
        ({"ks": [1.5]}, TypeError, "ks must be an integer"),
        ({"y": [0, 1]}, ValueError, "index must hold row numbers below 2, got 2"),
        ({"y": [[0], [1], [0]]}, ValueError, r"truth must be classes of shape \(3,\)"),
        ({"y": None}, ValueError, "finder must know true classes"),
        ({"confidence": 0}, ValueError, "confidence must lie"),
    ],
)
def test_faults(change, error, message):
    index = with_rows(cfe.IndexEvidenceIDMap2(3), np.eye(3), [0, 1, 0])
    with pytest.raises(error, match=message):
        curve(**({"index": index, "y": [0, 1, 1]} | change))
