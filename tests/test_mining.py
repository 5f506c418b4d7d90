"""Mining equals float64 brute force, and the libraries that mine the same things on their own test data."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from reference import tanimoto
from sklearn.datasets import load_digits, load_iris

from cfe_faiss import mining

METRICS = ("l2", "cosine", "tanimoto")


def distances(X, Y, metric):
    """Return the distance of each pair of rows in float64, (n, m)."""
    x, y = X.astype(np.float64), Y.astype(np.float64)
    result: NDArray[np.float64]
    if metric == "l2":
        result = np.sqrt(((x[:, None] - y) ** 2).sum(axis=2))
        return result
    if metric == "tanimoto":
        result = 1 - tanimoto(X[:, None], Y[None]).astype(np.float64)
        return result
    x, y = (one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-300) for one in (x, y))
    result = 1 - x @ y.T
    return result


def suited(X, metric):
    """Return rows that a metric takes: their signs for the Tanimoto similarity."""
    return (X > 0).astype(np.float32) if metric == "tanimoto" else X


def ordered(D):
    return np.argsort(D, axis=1, kind="stable")


@st.composite
def rows(draw):
    """Return rows with classes: far from the origin, of large norms, of few distinct values, or almost equal."""
    n, d, seed = draw(st.integers(1, 60)), draw(st.integers(1, 9)), draw(st.integers(0, 1000))
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    kind = draw(st.sampled_from(["normal", "offset", "norms", "grid", "near", "equal", "huge"]))
    if kind == "offset":
        X = 1000 + X
    elif kind == "norms":
        X *= np.exp(4 * rng.normal(size=(n, 1)))
    elif kind == "grid":
        X = np.round(X)
    elif kind == "near":
        X = X[rng.integers(0, n, n)] + 1e-6 * rng.normal(size=(n, d))
        X[0] = 1000
    elif kind == "equal":
        X[:] = X[0]
    elif kind == "huge":
        X *= 1e18
    return X.astype(np.float32), rng.integers(0, draw(st.integers(1, 4)), n)


@given(rows(), st.sampled_from(METRICS))
def test_nearest_enemies_equal_brute_force(case, metric):
    X, y = case
    X = suited(X, metric)
    D, I = mining.nearest_enemies(X, y, metric=metric)
    expected = np.where(y[:, None] != y, distances(X, X, metric), np.inf)
    tolerance = {"rtol": 1e-12} if metric == "l2" else {"atol": 1e-6}
    assert_allclose(D, expected.min(axis=1), **tolerance)
    found = I >= 0
    assert_array_equal(found, np.isfinite(expected).any(axis=1))
    answer = expected[np.flatnonzero(found), I[found]]
    assert_allclose(answer, expected.min(axis=1)[found], **tolerance)
    if metric == "l2":
        assert_array_equal(I[found], expected.argmin(axis=1)[found])


def links_of(X, y, metric="l2"):
    """Return the Tomek links by their definition."""
    D = distances(X, X, metric)
    np.fill_diagonal(D, np.inf)
    nearest, n = D.argmin(axis=1), np.arange(len(X))
    linked = (nearest[nearest] == n) & (y[nearest] != y) & (n < nearest)
    return np.column_stack([n, nearest])[linked]


@given(rows())
def test_tomek_links_equal_brute_force(case):
    X, y = case
    links = mining.tomek_links(X, y)
    assert links.dtype == np.int64
    assert_array_equal(links, links_of(X, y))


@given(rows(), st.integers(1, 3), st.sampled_from(METRICS))
def test_batch_balanced_neighbors_equal_brute_force(case, k, metric):
    X, batches = case
    X = suited(X, metric)
    sizes = np.bincount(batches)
    if sizes[sizes > 0].min() < k:
        with pytest.raises(ValueError, match="k must be at most"):
            mining.batch_balanced_neighbors(X, batches, k, metric=metric)
        return
    D, I = mining.batch_balanced_neighbors(X, batches, k, metric=metric)
    assert D.shape == I.shape == (len(X), k * np.count_nonzero(sizes))
    assert (np.diff(D, axis=1) >= 0).all()
    full = distances(X, X, metric)
    best = [np.sort(full[:, batches == one], axis=1)[:, :k] for one in np.unique(batches)]
    tolerance = {"rtol": 1e-12} if metric == "l2" else {"atol": 1e-6}
    assert_allclose(D, np.sort(np.hstack(best), axis=1), **tolerance)
    for one in np.unique(batches):
        assert ((batches[I] == one).sum(axis=1) == k).all()
    assert_allclose(np.take_along_axis(full, I, axis=1), D, **tolerance)


@given(rows(), st.sampled_from(METRICS))
def test_trust_scores_are_ratios_of_distances(case, metric):
    X, y = case
    rng = np.random.default_rng(len(X))
    queries = (X[rng.integers(0, len(X), 7)] + 0.1 * rng.normal(size=(7, X.shape[1]))).astype(
        np.float32
    )
    X = suited(X, metric)
    queries = suited(queries, metric)
    predicted = rng.choice(y, 7)
    full = distances(queries, X, metric)
    own = np.where(predicted[:, None] == y, full, np.inf).min(axis=1)
    other = np.where(predicted[:, None] != y, full, np.inf).min(axis=1)
    scores = mining.trust_scores(X, y, queries, predicted, metric=metric)
    if metric == "l2":
        assert_allclose(scores, other / (own + 1e-12), rtol=1e-9)
    else:
        sure = own > 1e-3
        assert_allclose(scores[sure], other[sure] / own[sure], rtol=2e-3, atol=1e-5)


@given(rows(), st.sampled_from(METRICS))
def test_trust_scores_of_training_rows_leave_each_row_out(case, metric):
    X, y = case
    X = suited(X, metric)
    predicted = np.random.default_rng(len(X)).choice(y, len(X))
    full = distances(X, X, metric)
    np.fill_diagonal(full, np.inf)
    own = np.where(predicted[:, None] == y, full, np.inf).min(axis=1)
    other = np.where(predicted[:, None] != y, full, np.inf).min(axis=1)
    with np.errstate(invalid="ignore"):
        expected = np.where(np.isinf(own), 0, other / (own + 1e-12))
    for queries in (X, X.copy(), X.tolist()):
        scores = mining.trust_scores(X, y, queries, predicted, metric=metric)
        if metric == "l2":
            assert_allclose(scores, expected, rtol=1e-9)
        else:
            sure = own > 1e-3
            assert_allclose(scores[sure], expected[sure], rtol=2e-3, atol=1e-5)
            assert (scores[np.isinf(own)] == 0).all()
    assert len(X) < 2 or not np.isnan(scores).any()


def test_trust_scores_of_training_rows_are_no_rounding_errors():
    X, y = load_iris(return_X_y=True)
    X = np.unique(X, axis=0)
    y = X[:, 2] > 2.5
    scores = mining.trust_scores(X, y, X, y)
    assert np.isfinite(scores).all()
    assert 1 < np.median(scores) < 1e3
    part = np.arange(len(X)) % 2 == 0  # other queries are compared with all rows
    assert (mining.trust_scores(X, y, X[part], y[part]) > 1e6).all()


def test_no_corpus_row_is_a_negative_of_itself():
    _, C, _ = texts(12, 1)
    S = C.astype(np.float64) @ C.T.astype(np.float64)
    np.fill_diagonal(S, -np.inf)
    groups = np.arange(len(C)) % 4
    listed_rows = mining.hard_negatives(C, C, [[] for _ in C], 3)[1]
    assert_array_equal(listed_rows, np.argsort(-S, axis=1, kind="stable")[:, :3])
    by_group = mining.hard_negatives(C, C, (groups, groups), 3)[1]
    others = np.where(groups[:, None] != groups, S, -np.inf)
    assert_array_equal(by_group, np.argsort(-others, axis=1, kind="stable")[:, :3])
    # a row listed as its own positive sets no margin
    own = [[i, (i + 1) % len(C)] for i in range(len(C))]
    found = mining.hard_negatives(C, C, own, 2, absolute_margin=0.1)
    expected = mining.hard_negatives(C, C, [rows[1:] for rows in own], 2, absolute_margin=0.1)
    assert_array_equal(found[1], expected[1])


# --- groups -----------------------------------------------------------------------------------------------------------

X4 = np.array([[1.0, 0], [1, 0.01], [0, 1], [0.01, 1]])
CALLS = {
    "groups": lambda groups: mining.near_duplicates(X4, groups, 0.9),
    "y": lambda groups: mining.nearest_enemies(X4, groups),
    "y, of links": lambda groups: mining.tomek_links(X4, groups),
    "y, of scores": lambda groups: mining.trust_scores(X4, groups, X4 + 1, [1, 1, 1, 1]),
    "y_pred": lambda groups: mining.trust_scores(X4, ["a", "b", "c", "d"], X4 + 1, groups),
    "batches": lambda groups: mining.batch_balanced_neighbors(X4, groups, 1),
    "anchor_groups": lambda groups: mining.hard_negatives(X4, X4, (groups, [1, 2, 3, 4]), 1),
    "corpus_groups": lambda groups: mining.hard_negatives(X4, X4, ([1, 2, 3, 4], groups), 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_missing_groups_are_refused(name):
    for missing in (None, np.nan, pd.NA, pd.NaT):
        for form in (list, pd.Series, lambda items: np.array([*items, 0], object)[:-1]):
            message = f"^{name.partition(',')[0]} must hold a group.* missing .* position 2"
            with pytest.raises(TypeError, match=message):
                CALLS[name](form(["a", "b", missing, "c"]))
    for column in (
        pa.array([1, 1, None, 2]),
        pl.Series([1, 1, None, 2]),
        pd.Series([1, 1, None, 2], dtype="Int64"),
    ):
        with pytest.raises(TypeError, match="missing group at position 2"):
            CALLS[name](column)


def test_groups_of_other_kinds_stay_apart():
    X = np.ones((6, 2))
    groups = np.array([1, "1", True, "True", 0, False], object)
    for given_groups in (groups, groups.tolist(), pd.Series(groups)):
        assert len(mining.near_duplicates(X, given_groups, 0.9)) == 15
        assert mining.nearest_enemies(X, given_groups)[1].tolist() == [1, 0, 0, 0, 0, 0]
        assert mining.batch_balanced_neighbors(X, given_groups, 1)[1].shape == (6, 6)
    big = np.array([2**63, 2**63 + 1], np.uint64)
    anchors, corpus = np.eye(2), np.eye(2) + 0.1
    assert mining.hard_negatives(anchors, corpus, (big, [1, -1]), 2)[1].tolist() == [[0, 1], [1, 0]]
    assert mining.hard_negatives(anchors, corpus, (big, big), 2)[1].tolist() == [[1, -1], [0, -1]]
    with pytest.raises(ValueError, match="y_pred must hold classes of y, got '1' at position 1"):
        mining.trust_scores(X, groups == 1, X[:2] + 1, [True, "1"])


# --- near duplicates --------------------------------------------------------------------------------------------------


@given(rows(), st.floats(-1, 1))
def test_near_duplicates_equal_brute_force(case, threshold):
    X, groups = case
    pairs = mining.near_duplicates(X, groups, threshold)
    similarity = 1 - distances(X, X, "cosine")
    assert_allclose(pairs.similarity, similarity[pairs.source, pairs.target], atol=1e-6)
    assert (np.diff(pairs.similarity) <= 0).all()
    assert (groups[pairs.source] != groups[pairs.target]).all()
    wanted = (groups[:, None] != groups) & np.triu(np.ones((len(X), len(X)), bool), 1)
    found = set(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True))
    assert len(found) == len(pairs)
    found |= {(two, one) for one, two in found}
    for sure, name in ((threshold + 1e-6, "least"), (threshold - 1e-6, "most")):
        there = set(zip(*np.nonzero(wanted & (similarity >= sure)), strict=True))
        assert there <= found if name == "least" else len(pairs) <= len(there)


def test_a_copied_row_is_a_leak():
    X, _ = load_digits(return_X_y=True)
    X = np.vstack([X, X[[3, 7]]])
    splits = np.where(np.arange(len(X)) < 1500, "train", "test")
    pairs = mining.near_duplicates(X, splits, 1 - 1e-6)
    assert {(3, len(X) - 2), (7, len(X) - 1)} <= {
        (int(min(pair)), int(max(pair))) for pair in zip(pairs.source, pairs.target, strict=True)
    }


# --- hard negatives ---------------------------------------------------------------------------------------------------

OPTIONS = [
    {},
    {"range_min": 2},
    {"range_min": 1, "range_max": 9},
    {"max_score": 0.5},
    {"min_score": 0.3},
    {"max_score": 0.6, "min_score": 0.1, "range_min": 1, "range_max": 20},
    {"relative_margin": 0.05},
    {"absolute_margin": 0.1},
    {"absolute_margin": -0.1},
    {"relative_margin": 0.2, "absolute_margin": 0.1, "max_score": 0.7},
    {"relative_margin": 0.0, "range_max": 4},
]


def texts(n, positives):
    """Return vectors of n questions, of a corpus with ``positives`` answers to each, and the answers' rows."""
    rng = np.random.default_rng(n)
    topics = rng.normal(size=(n, 12))
    answers = np.repeat(topics, positives, axis=0) + 0.9 * rng.normal(size=(n * positives, 12))
    others = topics[rng.integers(0, n, 3 * n)] + 1.2 * rng.normal(size=(3 * n, 12))
    A, C = (
        one / np.linalg.norm(one, axis=1, keepdims=True)
        for one in (topics + 0.5 * rng.normal(size=topics.shape), np.vstack([others, answers]))
    )
    rows = 3 * n + np.arange(n * positives).reshape(n, positives)
    return A.astype(np.float32), C.astype(np.float32), rows


def negatives(A, C, positives, k, **options):
    """Return the negatives by the documented rules, one anchor at a time."""
    most = max(map(len, positives))
    is_cut = bool({"max_score", "relative_margin", "absolute_margin"} & options.keys())
    first = options.get("range_min", 0)
    last = options.get("range_max", first + (10 * k if is_cut else k) + most)
    found = []
    for a, own in zip(A, positives, strict=True):
        S = C.astype(np.float64) @ a
        s = S[own].min()
        kept = [
            row
            for row in np.argsort(-S, kind="stable")[: last + most].tolist()
            if row not in own
            and S[row] <= options.get("max_score", 2)
            and S[row] >= options.get("min_score", -2)
            and (
                "relative_margin" not in options
                or S[row] <= s - abs(s) * options["relative_margin"]
            )
            and ("absolute_margin" not in options or S[row] <= s - options["absolute_margin"])
        ]
        found.append(kept[first:last][:k])
    return found


def listed(I):
    return [[row for row in rows if row >= 0] for rows in I.tolist()]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("positives", [1, 2])
def test_hard_negatives_follow_the_rules(options, positives):
    A, C, own = texts(40, positives)
    D, I = mining.hard_negatives(A, C, own, 3, **options)
    assert (D.dtype, D.shape) == (np.dtype(np.float32), (40, 3))
    assert (I.dtype, I.shape) == (np.dtype(np.int64), (40, 3))
    assert listed(I) == negatives(A, C, own, 3, **options)
    assert (D[I < 0] == np.finfo(np.float32).min).all()
    row, place = np.nonzero(I >= 0)
    assert_allclose(D[row, place], np.einsum("ij,ij->i", A[row], C[I[row, place]]), atol=1e-6)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("positives", [1, 2])
def test_hard_negatives_equal_sentence_transformers(options, positives):
    datasets = pytest.importorskip("datasets")
    original = pytest.importorskip("sentence_transformers.util").mine_hard_negatives
    torch = pytest.importorskip("torch")
    A, C, own = texts(40, positives)
    vectors = {f"question {i}": one for i, one in enumerate(A)} | {
        f"text {i}": one for i, one in enumerate(C)
    }

    def encode(names, **_):
        return np.stack([vectors[name] for name in names])

    stub = SimpleNamespace(
        device="cpu",
        encode_query=encode,
        encode_document=encode,
        similarity=lambda x, y: torch.as_tensor(x) @ torch.as_tensor(y).T,
        similarity_pairwise=lambda x, y: (torch.as_tensor(x) * torch.as_tensor(y)).sum(dim=1),
    )
    pairs = [
        (f"question {i}", f"text {row}") for i, rows in enumerate(own.tolist()) for row in rows
    ]
    data = datasets.Dataset.from_list([{"anchor": one, "positive": two} for one, two in pairs])
    corpus = [f"text {i}" for i in range(len(C))]
    mined = original(
        data,
        stub,
        corpus=corpus,
        num_negatives=3,
        verbose=False,
        output_format="triplet",
        **options,
    )
    theirs = {f"question {i}": [] for i in range(len(A))}
    for row in mined:
        number = int(row["negative"].split()[1])
        if number not in theirs[row["anchor"]]:
            theirs[row["anchor"]].append(number)
    assert listed(mining.hard_negatives(A, C, own, 3, **options)[1]) == list(theirs.values())


def test_anchors_without_positives():
    A, C, _ = texts(5, 1)
    D, I = mining.hard_negatives(A, C, [[], [1], [], [2, 3], []], 2, relative_margin=0.1)
    assert (I[[0, 2, 4]] >= 0).all()
    far = mining.hard_negatives(A, C, (["a"] * 5, ["b"] * len(C)), 2, absolute_margin=0.1)
    assert_array_equal(far[1], np.argsort(-(A @ C.T), axis=1)[:, :2])
    assert D.shape == (5, 2)


# --- the libraries ----------------------------------------------------------------------------------------------------


def test_tomek_links_equal_imbalanced_learn():
    pytest.importorskip("imblearn")
    from imblearn.under_sampling import TomekLinks
    from imblearn.under_sampling._prototype_selection.tests.test_tomek_links import X, Y

    rng = np.random.default_rng(0)
    for data, classes in ((X, Y), load_iris(return_X_y=True), load_digits(return_X_y=True)):
        if data is not X:  # without equal distances, for which the result depends on the algorithm
            data, classes = data + 0.01 * rng.normal(size=data.shape), rng.permutation(classes)
        data = data.astype(np.float32)
        sampler = TomekLinks(sampling_strategy="all")
        sampler.fit_resample(data, classes)
        removed = np.setdiff1d(np.arange(len(data)), sampler.sample_indices_)
        assert len(removed)
        assert_array_equal(np.sort(mining.tomek_links(data, classes).ravel()), removed)


def test_balanced_neighbors_equal_bbknn():
    matrix = pytest.importorskip("bbknn.matrix")
    X, _ = load_iris(return_X_y=True)
    X = np.unique(X, axis=0).astype(np.float32)
    batches = np.random.default_rng(0).integers(0, 3, len(X))
    parameters = {"computation": "cKDTree", "neighbors_within_batch": 3}
    parameters |= {"n_pcs": 4, "metric": "euclidean"}
    theirs, rows = matrix.get_graph(X, batches.astype(str), parameters)
    D, I = mining.batch_balanced_neighbors(X, batches, 3)
    assert_allclose(D, np.sort(theirs, axis=1), rtol=1e-9)
    clear = np.diff(np.sort(theirs, axis=1), axis=1).min(axis=1) > 1e-9
    assert_array_equal(I[clear], np.take_along_axis(rows, ordered(theirs), axis=1)[clear])


# --- errors -----------------------------------------------------------------------------------------------------------

X3 = np.eye(3, dtype=np.float32)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: mining.nearest_enemies(X3, [0, 1, 1], metric="ip"), "metric must be"),
        (lambda: mining.nearest_enemies(X3, [0, 1]), "y must have shape"),
        (lambda: mining.nearest_enemies(X3[:0], []), "X must have at least one row"),
        (lambda: mining.batch_balanced_neighbors(X3[:0], [], 2), "X must have at least one row"),
        (lambda: mining.tomek_links(X3, [0, 1, np.nan]), "y must hold"),
        (lambda: mining.tomek_links(X3, [0, None, 1]), "y must hold"),
        (lambda: mining.trust_scores(X3, [0, 1, 1], X3, [0, 1, 2]), "y_pred .*got 2"),
        (lambda: mining.trust_scores(X3, [0, 1, 1], X3[:, :2], [0, 1, 1]), "Xq must have shape"),
        (lambda: mining.batch_balanced_neighbors(X3, [0, 1, 1], 2), "k must be at most"),
        (lambda: mining.near_duplicates(X3, [0, 1, 1], 2), "threshold must lie in"),
        (lambda: mining.near_duplicates(X3, [0, 1], 0.5), "groups must have shape"),
        (lambda: mining.hard_negatives(X3, X3, [0, 1], 1), "positives must have one entry"),
        (lambda: mining.hard_negatives(X3, X3, [0, 1, 3], 1), "positives must lie in"),
        (lambda: mining.hard_negatives(X3, X3, ([0, 1, 2],), 1), "positives must be"),
        (lambda: mining.hard_negatives(X3, X3, ([0, 1], [0, 1, 2]), 1), "anchor_groups must"),
        (lambda: mining.hard_negatives(X3, X3, [0, 1, 2], 0), "k must be at least 1"),
        (lambda: mining.hard_negatives(X3, X3, [0, 1, 2], 1, 3, 3), "range_max must be above"),
        (lambda: mining.hard_negatives(X3, X3, [0, 1, 2], 1, max_score="a"), "max_score must be"),
    ],
)
def test_bad_arguments_are_named(call, said):
    with pytest.raises((TypeError, ValueError), match=said):
        call()
