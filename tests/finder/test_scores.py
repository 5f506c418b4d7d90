"""Scores in place of classes: similar rows whose scores differ."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import cosine

import cfe_faiss as cfe

N, D = 60, 4
KINDS = ["EvidenceFlat", "EvidenceIVF6,Flat"]


def made(seed, index="EvidenceFlat"):
    """Return a finder, all similarities and all differences of scores."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, N) / 4
    finder = cfe.EvidenceFinder.from_vectors(rng.normal(size=(N, D)), scores=scores, index=index)
    S = cosine(finder.vectors[:, None], finder.vectors[None])
    np.fill_diagonal(S, -np.inf)
    return finder, S, abs(scores[:, None] - scores)


@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.sampled_from([0.25, 0.6, 1.0]))
def test_local_evidence_differs_by_the_gap(seed, index, gap):
    finder, S, gaps = made(seed, index)
    found = finder.local(k=5, min_gap=gap)
    S[gaps < gap] = -np.inf
    order = np.argsort(-S, axis=1, kind="stable")[:, :5]
    expected = np.where(np.isfinite(np.take_along_axis(S, order, axis=1)), order, -1)
    assert_array_equal(found.evidence, expected)
    assert found.recall == 1


@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.floats(-1, 1), st.integers(1, 9))
def test_the_widest_pairs_above_a_similarity(seed, index, low, k):
    finder, S, gaps = made(seed, index)
    pairs = finder.widest_pairs(k, similarity=low)
    source, target = np.nonzero(np.triu((np.float32(low) <= S) & (gaps > 0)))
    order = np.lexsort((target, source, -gaps[source, target]))[:k]
    assert_array_equal(pairs.source, source[order])
    assert_array_equal(pairs.target, target[order])
    assert_array_equal(pairs.similarity, S[source, target][order])


def test_a_table_with_a_column_of_scores():
    frame = pd.DataFrame(
        {"rooms": [1, 2, 2, 9], "kind": list("abba"), "price": [100, 210, 320, 900]},
        index=list("wxyz"),
    )
    finder = cfe.EvidenceFinder.from_table(frame, scores="price", sensitive=["kind"])
    assert repr(finder).startswith("EvidenceFinder(4 rows, d=1, scores from 100 to 900, ")
    assert "<th>median</th>" in finder._repr_html_()
    found = finder.local(["x"], k=3, min_gap=110).to_frame()
    expected = ["node", "evidence", "rank", "distance", "node_score", "evidence_score"]
    assert list(found.columns) == expected
    assert found["evidence"].tolist() == ["y", "w", "z"]
    pair = finder.widest_pairs(1, distance=0.5).to_frame(attributes=True).iloc[0]
    expected = ("w", "y", 100, "b")
    assert (pair["source"], pair["target"], pair["source_score"], pair["target_kind"]) == expected
    same = cfe.Constraints(exact="kind")
    answer = finder.local(["x"], k=3, min_gap=110, where=same).to_frame()["evidence"].tolist()
    assert answer == ["y"]
    # w with z, x with y
    assert len(finder.widest_pairs(9, distance=99, where=cfe.Constraints(max_changed=1))) == 2


X = np.random.default_rng(1).normal(size=(5, D))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda of: of(X, scores=[1, 2]), r"scores .*got \(2,\)"),
        (
            lambda of: of(X, scores=[1, 2, 3, 4, np.nan]),
            r"scores .*got nan in row 4 .*1 of 5 rows: ",
        ),
        (lambda of: of(X, [0, 1, 0, 1, 0], scores=range(5)), "model must be left out with scores"),
        (lambda of: of(X), "model or scores must be given"),
        (lambda of: of(X, scores=np.arange(5)).local(), "min_gap .*got None"),
        (lambda of: of(X, scores=np.arange(5)).local(min_gap=0), "min_gap must be above 0, got 0"),
        (lambda of: of(X, scores=np.arange(5)).local(min_gap=1, recall=0.9), "recall must be left"),
        (lambda of: of(X, scores=np.arange(5)).top_pairs(), "top_pairs is for classes"),
        (lambda of: of(X, scores=np.arange(5)).updated(), "updated is for a finder with classes"),
        (lambda of: of(X, [0, 1, 0, 1, 0]).local(min_gap=1), "min_gap must be left out"),
        (lambda of: of(X, [0, 1, 0, 1, 0]).widest_pairs(similarity=0.5), "widest_pairs"),
    ],
)
def test_wrong_arguments(use, message):
    with pytest.raises(ValueError, match=message):
        use(cfe.EvidenceFinder.from_vectors)
