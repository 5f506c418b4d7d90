"""Pairs whose refused person is at least as good: exact, against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cfe_faiss as cfe
from cfe_faiss import audit

pd = pytest.importorskip("pandas")


def brute_force(values, refused):
    return {
        (int(r), int(g))
        for r in np.flatnonzero(refused)
        for g in np.flatnonzero(~refused)
        if (values[r] >= values[g]).all()  # False beside NaN
    }


@given(st.integers(0, 10**6), st.integers(2, 60), st.integers(1, 4), st.sampled_from([2, 3]))
def test_equals_brute_force(seed, n, columns, classes):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    values = rng.integers(5, size=(n, columns)).astype(float)
    values[rng.random((n, columns)) < 0.1] = np.nan
    labels = rng.integers(classes, size=n)
    labels[:2] = 0, 1
    features = {f"c{j}": values[:, j] for j in range(columns)}
    finder = cfe.EvidenceFinder.from_vectors(X, labels, features=features)
    ends = rng.choice(["high", "low"], columns)
    better = {f"c{j}": str(end) for j, end in enumerate(ends)}
    signs = np.where(ends == "high", 1, -1)
    refused = labels == 0
    expected = brute_force(values * signs, refused)
    result = audit.dominated(finder, unfavourable=0, better=better, k=10**4)
    assert result.count == len(expected) == len(result)
    found = set(zip(result.pairs.source.tolist(), result.pairs.target.tolist(), strict=True))
    assert found == expected
    assert result.refused == len({r for r, _ in expected})
    assert result.unknown == np.isnan(values).any(axis=1).sum()
    first = audit.dominated(finder, unfavourable=0, better=better, k=3)
    assert first.count == len(expected)
    pd.testing.assert_frame_equal(first.table, result.table[:3])


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"income": rng.normal(40, 12, n).round(1), "debt": rng.gamma(2, 6, n).round(1)}
    )
    frame["noise"] = rng.normal(size=n)
    frame["school"] = rng.choice(["none", "basic", "high"], n)
    frame["loan"] = np.where(frame.income - frame.debt + rng.normal(0, 4, n) > 26, "yes", "no")
    return frame


def test_values_are_listed_from_worst_to_best_and_nodes_are_respected():
    frame = table()
    finder = cfe.EvidenceFinder.from_table(frame, "loan")
    nodes = np.arange(0, 400, 2)
    better = {"income": "high", "school": ["none", "basic", "high"]}
    result = audit.dominated(finder, unfavourable="no", better=better, nodes=nodes, k=5)
    grades = np.column_stack([frame.income, frame.school.map({"none": 0, "basic": 1, "high": 2})])
    grades[1::2] = np.nan
    assert result.count == len(brute_force(grades, (frame.loan == "no").to_numpy()))
    assert (result.table.refused_income >= result.table.granted_income).all()
    assert (result.table[["refused", "granted"]] % 2 == 0).all(axis=None)


def test_directions_are_learned_and_noise_has_none():
    finder = cfe.EvidenceFinder.from_table(table(), "loan")
    result = audit.dominated(finder, unfavourable="no")
    assert result.estimated
    assert result.better == {"income": "high", "debt": "low"}


@pytest.mark.parametrize(
    ("better", "message"),
    [
        ({}, "better"),
        (["income"], "better"),
        ({"wage": "high"}, "better"),
        ({"income": "up"}, "better.*income"),
        ({"school": "high"}, "worst to best"),
        ({"school": ["none", "basic"]}, "'high'"),
    ],
)
def test_errors_name_the_argument(better, message):
    finder = cfe.EvidenceFinder.from_table(table(), "loan")
    with pytest.raises((TypeError, ValueError), match=message):
        audit.dominated(finder, unfavourable="no", better=better)


def test_no_direction_is_an_error():
    rng = np.random.default_rng(0)
    finder = cfe.EvidenceFinder.from_vectors(
        rng.normal(size=(50, 2)), rng.integers(2, size=50), features={"a": rng.normal(size=50)}
    )
    with pytest.raises(ValueError, match="better"):
        audit.dominated(finder, unfavourable=0)
