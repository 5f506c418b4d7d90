import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from reference import Stored, clustered, evidence, stored_vectors
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_distances
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import cfe_faiss as cfe

SAMPLES = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]])
NAMES = np.array(["good", "good", "bad", "bad"])
PROBED_FULLY = cfe.EvidenceNeighbors(n_neighbors=5, index="EvidenceIVF6x2,Flat", nprobe=12)


@parametrize_with_checks([cfe.EvidenceNeighbors(), cfe.EvidenceNeighbors(index=None), PROBED_FULLY])
def test_scikit_learn_checks(estimator: cfe.EvidenceNeighbors, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def fitted() -> cfe.EvidenceNeighbors:
    return cfe.EvidenceNeighbors(n_neighbors=3).fit(SAMPLES, NAMES)


def fit(stored: Stored, **parameters: Any) -> cfe.EvidenceNeighbors:
    return cfe.EvidenceNeighbors(stored.k, **parameters).fit(stored.X, stored.labels)


def expected(stored: Stored) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    similarity, indices = evidence(stored)
    return np.where(indices < 0, np.float32(np.inf), np.clip(1 - similarity, 0, 2)), indices


@given(stored_vectors(least=1, arbitrary_ids=False), st.sampled_from([str, float, int]))
def test_kneighbors_equals_brute_force(stored: Stored, kind: type) -> None:
    assume(len(stored.xq) > 0)
    neighbors = cfe.EvidenceNeighbors(stored.k).fit(stored.X, stored.labels.astype(kind))
    distances, indices = neighbors.kneighbors(stored.xq, stored.labels_q.astype(kind))
    assert (distances.dtype, indices.dtype) == (np.float32, np.int64)
    assert_array_equal(distances, expected(stored)[0])
    assert_array_equal(indices, expected(stored)[1])


@given(stored_vectors(least=1, arbitrary_ids=False))
def test_fitted_rows_are_searched_as_queries(stored: Stored) -> None:
    neighbors = fit(stored)
    distances, indices = neighbors.kneighbors()
    asked_distances, asked_indices = neighbors.kneighbors(stored.X, stored.labels)
    assert_array_equal(distances, asked_distances)
    assert_array_equal(indices, asked_indices)
    found = indices >= 0
    assert (stored.labels[indices][found] != np.repeat(stored.labels[:, None], stored.k, axis=1)[found]).all()


@given(stored_vectors(least=1, arbitrary_ids=False))
def test_order_of_samples_does_not_matter(stored: Stored) -> None:
    assume(len(stored.xq) > 0)
    order = np.random.default_rng(len(stored.X)).permutation(len(stored.X))
    neighbors = fit(stored)
    shuffled = fit(stored._replace(X=stored.X[order], labels=stored.labels[order]))
    distances, indices = neighbors.kneighbors(stored.xq, stored.labels_q)
    other_distances, other_indices = shuffled.kneighbors(stored.xq, stored.labels_q)
    assert_array_equal(distances, other_distances)
    # Ties go to the smaller index, which is another sample after shuffling; the last distance may tie with more.
    inner = distances < distances[:, -1:]
    other_indices = np.where(other_indices < 0, -1, order[other_indices])
    for one, two, kept in zip(indices, other_indices, inner, strict=True):
        assert set(one[kept]) == set(two[kept])


@settings(max_examples=20)
@given(stored_vectors(least=6, arbitrary_ids=False))
def test_inverted_file_probed_fully_is_exact(stored: Stored) -> None:
    assume(len(stored.xq) > 0)
    distances, indices = fit(stored, index="EvidenceIVF6x2,Flat", nprobe=12).kneighbors(stored.xq, stored.labels_q)
    assert_array_equal(distances, expected(stored)[0])
    assert_array_equal(indices, expected(stored)[1])


def test_distances_are_scikit_learns_cosine_distances() -> None:
    X, labels = clustered(200, 16, 3)
    neighbors = cfe.EvidenceNeighbors(7).fit(X, labels)
    distances, indices = neighbors.kneighbors()
    far = np.where(labels[:, None] == labels, np.inf, cosine_distances(X))
    assert_allclose(distances, np.sort(far, axis=1)[:, :7], atol=1e-6)
    assert_allclose(distances, np.take_along_axis(far, indices, axis=1), atol=1e-6)


def test_distances_stay_in_their_range() -> None:
    X = np.random.default_rng(0).normal(size=(300, 40))
    same = cfe.EvidenceNeighbors(1).fit(X, np.arange(300) % 3).kneighbors(X, np.full(300, 3))[0]
    opposite = cfe.EvidenceNeighbors(300).fit(X, np.arange(300) % 3).kneighbors(-X, np.full(300, 3))[0]
    assert_allclose(same, 0, atol=1e-6)
    assert same.min() == 0
    assert_allclose(opposite[:, -1], 2, atol=1e-6)
    assert opposite.max() == 2


def test_short_rows_are_padded_with_infinity(fitted: cfe.EvidenceNeighbors) -> None:
    distances, indices = fitted.kneighbors()
    assert_array_equal(indices, [[2, 3, -1], [2, 3, -1], [1, 0, -1], [1, 0, -1]])
    assert_allclose(distances[0], [0.4, 1, np.inf], atol=1e-6)
    only = cfe.EvidenceNeighbors(2).fit(SAMPLES, ["one"] * 4)
    assert_array_equal(only.kneighbors(return_distance=False), np.full((4, 2), -1))
    assert_array_equal(only.kneighbors()[0], np.full((4, 2), np.inf))


def test_new_label_leaves_nothing_out(fitted: cfe.EvidenceNeighbors) -> None:
    assert_array_equal(fitted.kneighbors([[1, 0]], ["never seen"], 4, False), [[0, 1, 2, 3]])


@pytest.mark.parametrize(
    "labels", [[True, False, True, True], [-3, 7, -3, -3], [1.0, 0.0, 1.0, 1.0], list("baab"), pd.Series(list("baab"))]
)
def test_labels_of_any_kind(labels: Any) -> None:
    neighbors = cfe.EvidenceNeighbors(4).fit(SAMPLES, labels)
    values = np.asarray(labels)
    assert_array_equal(neighbors.classes_, np.unique(values))
    _, indices = neighbors.kneighbors(SAMPLES, labels)
    for row, label in zip(indices, values, strict=True):
        assert set(row[row >= 0]) == set(np.flatnonzero(values != label))


def test_attributes(fitted: cfe.EvidenceNeighbors) -> None:
    assert list(fitted.classes_) == ["bad", "good"]
    assert (fitted.n_features_in_, fitted.n_samples_fit_) == (2, 4)
    assert isinstance(fitted.index_, cfe.IndexEvidenceFlat)
    assert not hasattr(fitted, "feature_names_in_")
    assert isinstance(clone(PROBED_FULLY).fit(*clustered(50, 4, 2)).index_, cfe.IndexEvidenceIVF)


def test_query_parameters_are_read_at_query_time() -> None:
    X, labels = clustered(2000, 16, 3)
    neighbors = cfe.EvidenceNeighbors(5, index="EvidenceIVF64,Flat", nprobe=1).fit(X, labels)
    exact = cfe.EvidenceNeighbors(5).fit(X, labels)
    few = neighbors.kneighbors(X[:300], labels[:300])[0]
    full = neighbors.set_params(nprobe=64).kneighbors(X[:300], labels[:300])[0]
    truth = exact.kneighbors(X[:300], labels[:300])[0]
    assert_array_equal(full, truth)
    assert few.mean() > truth.mean()
    assert neighbors.set_params(n_neighbors=2).kneighbors(X[:3], labels[:3])[1].shape == (3, 2)


@pytest.mark.parametrize("estimator", [cfe.EvidenceNeighbors(5), PROBED_FULLY])
def test_pickles(estimator: cfe.EvidenceNeighbors) -> None:
    X, labels = clustered(80, 6, 3)
    neighbors = clone(estimator).fit(X, labels)
    copied = pickle.loads(pickle.dumps(neighbors))
    for one, two in zip(neighbors.kneighbors(X, labels), copied.kneighbors(X, labels), strict=True):
        assert_array_equal(one, two)
    assert copied.get_params() == estimator.get_params()


def test_pandas() -> None:
    frame = pd.DataFrame(SAMPLES, columns=["age", "income"])
    neighbors = cfe.EvidenceNeighbors(2).fit(frame, pd.Series(NAMES, dtype="category"))
    assert list(neighbors.feature_names_in_) == ["age", "income"]
    assert_array_equal(neighbors.kneighbors(frame, pd.Series(NAMES))[1], neighbors.kneighbors()[1])
    with pytest.raises(ValueError, match="feature names should match"):
        neighbors.kneighbors(frame.rename(columns={"age": "height"}), NAMES)


def test_evidence_of_a_classifier_in_a_pipeline() -> None:
    data = load_breast_cancer()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(data.data, data.target)
    scaled, predicted = model[0].transform(data.data), model.predict(data.data)
    distances, indices = cfe.EvidenceNeighbors(3).fit(scaled, predicted).kneighbors(scaled, predicted)
    assert (predicted[indices] != predicted[:, None]).all()
    assert (np.diff(distances, axis=1) >= 0).all()


def test_samples_are_left_as_they_were() -> None:
    X = np.array([[3, 4], [4, 3]], np.float32)
    neighbors = cfe.EvidenceNeighbors(1).fit(X, [0, 1])
    neighbors.kneighbors(X, [0, 1])
    assert_array_equal(X, [[3, 4], [4, 3]])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([[1, 0]],), ValueError, "labels must be given with X"),
        ((None, ["good"]), ValueError, "labels must be given with X only"),
        (([[1, 0]], ["good", "bad"]), ValueError, r"labels must have shape \(1,\).*got \(2,\)"),
        (([[1, 0]], "good"), ValueError, r"labels must have shape \(1,\).*got \(\)"),
        (([[1, 0]], [1]), TypeError, r"labels must be strings as in fit, got \[1\]"),
        (([[1, 0]], [None]), TypeError, "labels must be strings as in fit"),
        (([[1, 0]], [np.nan]), ValueError, "labels contains NaN"),
        (([[1, 0, 0]], ["good"]), ValueError, "X has 3 features, but EvidenceNeighbors is expecting 2"),
        (([[1, np.nan]], ["good"]), ValueError, "X contains NaN"),
        (([[1, 1e300]], ["good"]), ValueError, "infinity or a value too large"),
        ((csr_array([[1.0, 0]]), ["good"]), TypeError, "Sparse data"),
        (([[1, 0]], ["good"], 0), ValueError, "n_neighbors must be at least 1, got 0"),
        ((None, None, 1.5), TypeError, "n_neighbors must be an integer, got 1.5"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_wrong_queries(
    fitted: cfe.EvidenceNeighbors, arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        fitted.kneighbors(*arguments)


def test_strings_are_no_numbers() -> None:
    neighbors = cfe.EvidenceNeighbors(1).fit(SAMPLES, [0, 0, 1, 1])
    for wrong in (["1"], [None]):
        with pytest.raises(TypeError, match="labels must be numbers as in fit"):
            neighbors.kneighbors([[1, 0]], wrong)


@pytest.mark.parametrize(
    ("parameters", "labels", "error", "message"),
    [
        ({"n_neighbors": 0}, NAMES, ValueError, "n_neighbors must be at least 1"),
        ({"nprobe": 0}, NAMES, ValueError, "nprobe must be at least 1"),
        ({"index": "Flat"}, NAMES, ValueError, "description must begin with"),
        ({"index": cfe.IndexEvidenceFlat(2)}, NAMES, TypeError, "index must be a description or None"),
        ({"index": "EvidenceIVF9,Flat"}, NAMES, ValueError, "a sample per list, 9, got n_samples = 4"),
        ({}, None, ValueError, "requires y to be passed"),
        ({}, NAMES[:3], ValueError, "inconsistent numbers of samples"),
        ({}, [0.1, 0.7, 0.2, 0.9], ValueError, "continuous"),
    ],
)
def test_wrong_fits(parameters: dict[str, Any], labels: Any, error: type[Exception], message: str) -> None:
    neighbors = cfe.EvidenceNeighbors(**parameters)
    with pytest.raises(error, match=message):
        neighbors.fit(SAMPLES, labels)
    with pytest.raises(NotFittedError):
        neighbors.kneighbors()


def test_scikit_learn_is_loaded_with_the_estimator_only() -> None:
    code = (
        "import sys, cfe_faiss\n"
        "assert 'EvidenceNeighbors' in dir(cfe_faiss) and 'sklearn' not in sys.modules\n"
        "assert cfe_faiss.EvidenceNeighbors is cfe_faiss.neighbors.EvidenceNeighbors and 'sklearn' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(AttributeError, match="no attribute 'Neighbors'"):
        cfe.Neighbors  # noqa: B018
