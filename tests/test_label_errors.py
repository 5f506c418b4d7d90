"""Scores of labels, and conflicts of verdicts, equal their definitions on small data."""

import itertools
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits

from cfe_faiss import mining

LABELS = ("b", "a", 1, "1", True)


@st.composite
def labelled_rows(draw):
    """Return rows, some of them equal, with labels of every kind, some missing, and groups."""
    n, d, seed = draw(st.integers(2, 30)), draw(st.integers(1, 4)), draw(st.integers(0, 999))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if draw(st.booleans()):
        X = np.round(X)
    kinds = [*LABELS[: draw(st.integers(1, 5))], None]
    y = [kinds[code] for code in rng.integers(0, len(kinds), n)]
    y[0] = "b"
    groups = rng.integers(0, draw(st.integers(1, n)), n) if draw(st.booleans()) else None
    return X.astype(np.float32), y, groups, draw(st.integers(1, 12))


def name(label):
    return None if label is None else (type(label).__name__, label)


def judged(X, y, groups, k, i):
    """Return score, shares of votes by label, and the rows of other groups, by the definition."""
    x = X.astype(np.float64)
    D = np.sqrt(((x - x[i]) ** 2).sum(axis=1))
    others = [
        j for j in range(len(y)) if y[j] is not None and groups[j] != groups[i] and y[i] is not None
    ]
    voters = sorted(others, key=lambda j: (D[j], j))[:k]
    if not voters:
        return np.nan, {}, others, D
    sizes = Counter(name(y[j]) for j in others)
    last = D[voters[-1]] or 1.0
    votes = Counter()
    for j in voters:
        votes[name(y[j])] += np.exp(-2 * (D[j] / last) ** 2) / sizes[name(y[j])] ** 0.5
    shares = {label: vote / sum(votes.values()) for label, vote in votes.items()}
    mine = shares.get(name(y[i]), 0.0)
    best = max((share for label, share in shares.items() if label != name(y[i])), default=0.0)
    return (1 + mine - best) / 2, shares, others, D


@given(labelled_rows())
def test_scores_and_evidence_equal_brute_force(case):
    X, y, groups, k = case
    found = mining.label_errors(X, np.array([*y, 0], object)[:-1], groups=groups, k=k)
    numbers = np.arange(len(y)) if groups is None else groups
    for i in range(len(y)):
        score, shares, others, D = judged(X, y, numbers, k, i)
        assert_allclose(found.score[i], score, atol=1e-9)
        assert name(found.given[i]) == name(y[i])
        suggested = name(found.suggested[i])
        if np.isnan(score):
            assert suggested is None
        else:  # of equal shares the given label first
            assert shares[suggested] >= max(shares.values()) - 1e-9
            assert suggested == name(y[i]) or score < 0.5 - 1e-13
        sides = (
            (suggested, found.evidence[i], found.evidence_measure[i]),
            (name(y[i]), found.support[i], found.support_measure[i]),
        )
        for label, row, measure in sides:
            rows = [j for j in others if name(y[j]) == label and label is not None]
            if not rows:
                assert row == -1
                assert np.isnan(measure)
                continue
            assert row == min(rows, key=lambda j: (D[j], j))
            assert_allclose(measure, D[row], rtol=1e-9)


def test_rows_and_frame_are_sorted_and_agree():
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    wrong = rng.choice(len(y), 90, replace=False)
    labels = y.copy()
    labels[wrong] = (y[wrong] + rng.integers(1, 10, 90)) % 10
    for metric, measure in (("l2", "distance"), ("cosine", "similarity")):
        found = mining.label_errors(X, labels, metric=metric)
        rows = found.rows(0.5)
        assert np.isin(rows[:90], wrong).mean() > 0.85
        assert (found.suggested == y)[np.intersect1d(rows, wrong)].mean() > 0.95
        assert (np.diff(found.score[rows]) >= 0).all()
        frame = found.to_frame()
        assert len(frame) == len(y)
        assert frame["score"].is_monotonic_increasing
        pd.testing.assert_frame_equal(found.to_frame(below=0.5), frame.head(len(rows)))
        row, near, value = frame.iloc[0][["row", "evidence", f"evidence_{measure}"]]
        x, z = X[int(row)], X[int(near)]
        cosine = x @ z / np.linalg.norm(x) / np.linalg.norm(z)
        assert_allclose(value, np.linalg.norm(x - z) if metric == "l2" else cosine, rtol=1e-5)
        assert labels[int(near)] == frame["suggested"][0]
    with pytest.raises(ValueError, match="below"):
        found.rows(2)


@given(labelled_rows())
def test_cosine_is_the_distance_of_unit_rows(case):
    X, y, groups, _ = case
    X = X + np.float32(0.1) * np.random.default_rng(1).normal(size=X.shape).astype(np.float32)
    if X.shape[1] == 1:
        return  # only two directions: all are ties
    y = np.array([*y, 0], object)[:-1]
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosine = mining.label_errors(X, y, groups=groups, k=len(y), metric="cosine")
    l2 = mining.label_errors(unit, y, groups=groups, k=len(y))
    assert_allclose(cosine.score, l2.score, atol=1e-2)
    known = cosine.support >= 0
    assert_allclose(
        cosine.support_measure[known], 1 - l2.support_measure[known] ** 2 / 2, atol=1e-5
    )


@given(st.integers(0, 999))
def test_tanimoto_is_the_jaccard_similarity_of_sets(seed):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, (20, 6))
    y = rng.choice(["a", "b"], 20)
    common = X @ X.T
    either = X.sum(axis=1)[:, None] + X.sum(axis=1) - common
    S = np.where(either > 0, common / np.maximum(either, 1), 1.0)
    found = mining.label_errors(X, y, k=5, metric="tanimoto")
    for i in range(20):
        others = [j for j in range(20) if j != i]
        voters = sorted(others, key=lambda j: (-S[i, j].astype(np.float32), j))[:5]
        last = 1 - S[i, voters[-1]] or 1.0
        votes = Counter()
        for j in voters:
            size = (y[others] == y[j]).sum()
            votes[y[j]] += np.exp(-2 * (1 - S[i, j]) / last) / size**0.5
        margin = 2 * votes[y[i]] / sum(votes.values()) - 1
        assert_allclose(found.score[i], (1 + margin) / 2, atol=1e-5)
        if found.support[i] >= 0:
            nearest = max(S[i, j] for j in others if y[j] == y[i])
            assert_allclose(found.support_measure[i], nearest, atol=1e-6)
    pairs = mining.near_duplicates(X, np.arange(20), 0.5, metric="tanimoto")
    assert len(pairs) == (np.triu(S, 1) >= 0.5).sum()
    assert len(mining.verdict_conflicts(X, [["x", "y"]] * 20, 0.5, metric="tanimoto")) <= 10
    with pytest.raises(ValueError, match="must hold only 0 and 1 for metric 'tanimoto'"):
        mining.label_errors(X + 1, y, metric="tanimoto")


def test_no_row_judges_itself_through_a_copy_of_its_group():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(40, 3)), 9 + rng.normal(size=(40, 3))])
    y = np.repeat(["a", "b"], 40)
    copies, labels = np.concatenate([X, np.repeat(X[:1], 9, axis=0)]), np.append(y, ["b"] * 9)
    labels[0] = "b"
    person = np.append(np.arange(80), np.zeros(9, int))
    apart = mining.label_errors(copies, labels, groups=person, k=8)
    assert (apart.score[person == 0] < 0.1).all()
    assert (person[apart.evidence] != person).all()
    assert (person[apart.support] != person).all()
    alone = mining.label_errors(copies, labels, k=8)
    assert (alone.score[person == 0] > 0.9).all()
    # whatever a group says of itself, it is judged by the others
    other = labels.copy()
    other[person == 0] = rng.choice(["a", "b", "c"], 10)
    again = mining.label_errors(copies, other, groups=person, k=8)
    assert (again.suggested[person == 0] == "a").all()


def test_unknown_labels_are_no_value():
    X = np.arange(8.0)[:, None]
    y = pd.Series(["a", None, "a", "a", "b", pd.NA, "b", "b"], dtype="string")
    found = mining.label_errors(X, y, k=3)
    rows = [1, 5]
    assert np.isnan(found.score[rows]).all()
    assert [*found.suggested[rows], *found.given[rows]] == [None] * 4
    assert (found.evidence[rows] == -1).all()
    assert not np.isin(found.support, rows).any()
    assert not np.isin(found.rows(1.0), rows).any()
    fewer = mining.label_errors(np.delete(X, rows, axis=0), y.drop(rows), k=3)
    assert_allclose(np.delete(found.score, rows), fewer.score)
    numbers = mining.label_errors(X, [1, 1, 1, 1, -1, -1, -1, 1], k=3)  # -1 is a label here
    assert numbers.suggested.dtype == np.int64
    assert numbers.suggested[7] == -1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1.0], [2.0]], ["a"]), r"y must have shape \(2,\)"),
        (([[1.0], [2.0]], [None, None]), "y must hold a known label"),
        ((np.empty((0, 2)), []), "y must hold a known label"),
        (([[1.0], [np.nan]], ["a", "b"]), "X"),
        (([[1.0], [2.0]], [["a"], ["b"]]), "y must have shape"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        mining.label_errors(*arguments)


def test_errors_of_options():
    X = [[1.0], [2.0]]
    with pytest.raises(TypeError, match=r"groups must hold a group .* missing group at position 1"):
        mining.label_errors(X, ["a", "b"], groups=["p", None])
    with pytest.raises(ValueError, match="k must be"):
        mining.label_errors(X, ["a", "b"], k=0)
    with pytest.raises(ValueError, match="metric must be one of"):
        mining.label_errors(X, ["a", "b"], metric="ip")
    one = mining.label_errors(X, ["a", "b"], groups=["p", "p"])
    assert np.isnan(one.score).all()
    assert "0 below" in repr(one)


@given(st.integers(0, 999), st.integers(0, 3))
def test_near_duplicates_by_distance_equal_brute_force(seed, digits):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 3)).round(digits)
    groups = rng.integers(0, 3, 25)
    x = X.astype(np.float32).astype(np.float64)
    D = np.sqrt(((x[:, None] - x) ** 2).sum(axis=2))
    for threshold in (0.0, 0.7):
        pairs = mining.near_duplicates(X, groups, threshold, metric="l2")
        limit = np.float32(threshold**2)
        near = np.triu((D**2).astype(np.float32) <= limit) & (groups[:, None] != groups)
        found = set(zip(pairs.source, pairs.target, strict=True))
        assert found == set(zip(*np.nonzero(near), strict=True))
        assert_allclose(pairs.similarity, D[pairs.source, pairs.target] ** 2, rtol=1e-6)
    with pytest.raises(ValueError, match="threshold"):
        mining.near_duplicates(X, groups, -1, metric="l2")


def test_too_many_near_duplicates_are_refused_before_they_fill_the_memory(monkeypatch):
    X = np.zeros((20, 2))
    groups = np.arange(20)
    monkeypatch.setattr(mining.miners, "_MOST_PAIRS", 190)
    assert len(mining.near_duplicates(X, groups, 0, metric="l2")) == 190
    monkeypatch.setattr(mining.miners, "_MOST_PAIRS", 189)
    with pytest.raises(ValueError, match="threshold must be one of nearer rows, got 0 with over"):
        mining.near_duplicates(X, groups, 0, metric="l2")


# --- verdicts ---------------------------------------------------------------------------------------------------------


def excess(first, second):
    """Return disagreement and noise of two lists of verdicts, by counting pairs."""
    disagreement = np.mean([a != b for a in first for b in second])
    noise = [
        np.mean([a != b for a, b in itertools.combinations(one, 2)]) for one in (first, second)
    ]
    return disagreement, np.mean(noise)


verdict_lists = st.lists(st.sampled_from(["x", "y", 1, None]), min_size=0, max_size=5)


@given(verdict_lists, verdict_lists)
def test_tests_of_pairs_equal_all_divisions_of_the_verdicts(first, second):
    found = mining.verdict_conflicts([[1.0, 0], [1, 0]], [first, second], 1.0)
    first, second = ([name(one) for one in side if one is not None] for side in (first, second))
    if min(len(first), len(second)) < 2:
        assert len(found) == 0
        assert found.verdict == "cannot tell"
        return
    disagreement, noise = excess(first, second)
    assert_allclose([found.disagreement[0], found.noise[0]], [disagreement, noise])
    pool = first + second
    sums = []
    for chosen in itertools.combinations(range(len(pool)), len(first)):
        sides = [pool[i] for i in chosen], [pool[i] for i in range(len(pool)) if i not in chosen]
        sums.append(np.subtract(*excess(*sides)))
    sums = np.array(sums)
    assert_allclose(sums.mean(), 0, atol=1e-9)
    p = np.mean(sums >= disagreement - noise - 1e-9)
    assert_allclose([found.p_value[0], found.q_value[0]], p)
    assert_allclose(found.overall_p_value, p, atol=0.03)
    assert_allclose(found.least_p_value, np.mean(sums >= sums.max() - 1e-9))


@given(st.integers(0, 999), st.sampled_from(["l2", "cosine"]))
def test_each_input_is_in_one_pair_and_nearer_pairs_come_first(seed, metric):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(12, 2))
    verdicts = rng.choice(["good", "bad"], (12, 3)).astype(object)
    verdicts[0, 1:] = None  # a single verdict has no noise
    found = mining.verdict_conflicts(X, verdicts, 1.0 if metric == "l2" else 0.8, metric=metric)
    pairs = mining.near_duplicates(X, np.arange(12), 1.0 if metric == "l2" else 0.8, metric=metric)
    free, expected = {*range(1, 12)}, []
    for pair in zip(pairs.source.tolist(), pairs.target.tolist(), strict=True):
        if free >= {*pair}:
            free -= {*pair}
            expected.append(pair)
    assert list(zip(found.source.tolist(), found.target.tolist(), strict=True)) == expected
    frame = found.to_frame()
    assert frame["p_value"].is_monotonic_increasing
    assert ("distance" if metric == "l2" else "similarity") in frame


def test_planted_conflicts_are_found_and_noise_is_not():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 8))
    X = np.concatenate([centres, centres + 1e-4])
    chances = np.tile(rng.choice([0.05, 0.5, 0.95], 60), 2)
    noisy = rng.random((120, 6)) < chances[:, None]
    assert mining.verdict_conflicts(X, noisy, 0.999).verdict == "no finding"
    chances[:20] = 1 - np.round(chances[:20])
    found = mining.verdict_conflicts(X, rng.random((120, 6)) < chances[:, None], 0.999)
    assert found.verdict == "conflicts"
    named = found.source[found.q_value <= 0.05]
    assert len(named) >= 5
    assert (named % 60 < 20).mean() > 0.9
    same = mining.verdict_conflicts(X, np.ones((120, 6)), 0.999)
    assert same.verdict == "cannot tell"


def test_verdicts_of_a_table():
    verdicts = [["a", "b", "a"], ["b", "b", "a"], ["a", "a", "a"], ["b", "a", "b"]]
    X = [[1.0, 0], [1, 0.1], [0, 1], [0.1, 1]]
    ours = mining.verdict_conflicts(X, pd.DataFrame(verdicts), 0.9)
    wanted = mining.verdict_conflicts(X, verdicts, 0.9)
    assert ours.p_value.tolist() == wanted.p_value.tolist()
    assert ours.disagreement.tolist() == wanted.disagreement.tolist()


def test_errors_of_verdicts():
    X = [[1.0, 0], [1, 0]]
    with pytest.raises(ValueError, match="verdicts must hold one sequence for each of 2 rows"):
        mining.verdict_conflicts(X, [["a", "b"]], 1.0)
    with pytest.raises(TypeError, match="verdicts must hold one sequence"):
        mining.verdict_conflicts(X, ["yes", "no"], 1.0)
    many = np.arange(60).reshape(2, 30)
    with pytest.raises(ValueError, match="verdicts must be few classes, got 60"):
        mining.verdict_conflicts(X, many, 1.0)
    with pytest.raises(ValueError, match="threshold"):
        mining.verdict_conflicts(X, [["a", "b"]] * 2, 2.0)
    table = mining.verdict_conflicts(X, [["a", "b"]] * 2, 1.0).to_frame()
    assert_array_equal(table[["source", "target"]], [[0, 1]])
