import pickle
import subprocess
import sys

import faiss
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference import assert_same_arrays, clustered, evidence, stored_vectors
from scipy.sparse import csr_array, csr_matrix, random_array
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics.pairwise import cosine_distances
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import cfe_faiss as cfe

SAMPLES = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]])
NAMES = np.array(["good", "good", "bad", "bad"])
PROBED_FULLY = cfe.EvidenceNeighbors(n_neighbors=5, index="EvidenceIVF6x2,Flat", nprobe=12)
WITH_CLASSIFIER = cfe.EvidenceNeighbors(n_neighbors=2, estimator=LogisticRegression())
TRANSFORMING_CHECKS = (
    "check_dict_unchanged",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_transformer_data_not_an_array",
    "check_transformer_general",
)


def scikit_learn_checks(estimator, check):
    """The checks that call ``transform(X)`` fail where it needs more: what a classifier predicts for X."""
    needs_labels = not estimator.estimator and estimator.neighbors != "any"
    if needs_labels and check.func.__name__ in TRANSFORMING_CHECKS:
        with pytest.raises(ValueError, match="labels"):
            check(estimator)
    else:
        check(estimator)


@parametrize_with_checks(
    [
        cfe.EvidenceNeighbors(),
        WITH_CLASSIFIER,
        cfe.EvidenceNeighbors(n_neighbors=2, neighbors="any", n_jobs=1),
    ]
)
def test_scikit_learn_checks(estimator, check):
    scikit_learn_checks(estimator, check)


@pytest.mark.slow
@parametrize_with_checks(
    [
        PROBED_FULLY,
        cfe.EvidenceNeighbors(index=None, estimator=make_pipeline(StandardScaler(), GaussianNB())),
    ]
)
def test_scikit_learn_checks_of_other_parameters(estimator, check):
    scikit_learn_checks(estimator, check)


@pytest.fixture(scope="module")
def fitted():
    return cfe.EvidenceNeighbors(n_neighbors=3).fit(SAMPLES, NAMES)


def fit(stored, **parameters):
    return cfe.EvidenceNeighbors(stored.k, **parameters).fit(stored.X, stored.labels)


def expected(stored):
    similarity, indices = evidence(stored)
    return np.where(indices < 0, np.float32(np.inf), np.clip(1 - similarity, 0, 2)).astype(
        np.float64
    ), indices


@given(stored_vectors(least=1, arbitrary_ids=False), st.sampled_from([str, float, int]))
def test_kneighbors_equals_brute_force(stored, kind):
    assume(len(stored.xq) > 0)
    neighbors = cfe.EvidenceNeighbors(stored.k).fit(stored.X, stored.labels.astype(kind))
    distances, indices = neighbors.kneighbors(stored.xq, labels=stored.labels_q.astype(kind))
    assert (distances.dtype, indices.dtype) == (np.float64, np.int64)
    assert_same_arrays((distances, indices), expected(stored))


@given(stored_vectors(least=1, arbitrary_ids=False))
def test_fitted_rows_are_searched_as_queries(stored):
    neighbors = fit(stored)
    distances, indices = neighbors.kneighbors()
    assert_same_arrays((distances, indices), neighbors.kneighbors(stored.X, labels=stored.labels))
    found = indices >= 0
    assert (
        stored.labels[indices][found] != np.repeat(stored.labels[:, None], stored.k, axis=1)[found]
    ).all()


def test_any_neighbors_take_no_labels():
    neighbors = cfe.EvidenceNeighbors(2, neighbors="any").fit(SAMPLES, NAMES)
    assert_array_equal(neighbors.kneighbors([[1, 0.1]], return_distance=False), [[0, 1]])
    for X in (None, SAMPLES):
        with pytest.raises(ValueError, match="labels must be given with"):
            neighbors.kneighbors(X, labels=NAMES)
    with pytest.raises(ValueError, match="neighbors must be"):
        cfe.EvidenceNeighbors(neighbors="all").fit(SAMPLES, NAMES)
    with pytest.raises(ValueError, match="estimator must be None"):
        cfe.EvidenceNeighbors(neighbors="any", estimator=LogisticRegression()).fit(SAMPLES, NAMES)


def test_n_jobs_is_the_number_of_threads_of_a_search(monkeypatch):
    seen, before = [], faiss.omp_get_max_threads()
    search = cfe.IndexEvidenceIDMap2.search_stored

    def watched(*args, **options):
        seen.append(faiss.omp_get_max_threads())
        return search(*args, **options)

    monkeypatch.setattr(cfe.IndexEvidenceIDMap2, "search_stored", watched)
    for n_jobs in (None, 1, 3):
        cfe.EvidenceNeighbors(2, n_jobs=n_jobs).fit(SAMPLES, NAMES).kneighbors()
    assert seen == [before, 1, 3]
    assert faiss.omp_get_max_threads() == before


@given(stored_vectors(least=6, arbitrary_ids=False))
def test_inverted_file_probed_fully_is_exact(stored):
    assume(len(stored.xq) > 0)
    neighbors = fit(stored, index="EvidenceIVF6x2,Flat", nprobe=12)
    answer = neighbors.kneighbors(stored.xq, labels=stored.labels_q)
    assert_same_arrays(answer, expected(stored))


def test_distances_stay_in_their_range():
    X = np.random.default_rng(0).normal(size=(300, 40))
    neighbors, new = cfe.EvidenceNeighbors(300).fit(X, np.arange(300) % 3), np.full(300, 3)
    same, opposite = (neighbors.kneighbors(x, labels=new)[0] for x in (X, -X))
    assert_allclose(same[:, 0], 0, atol=1e-6)
    assert same.min() == 0
    assert_allclose(opposite[:, -1], 2, atol=1e-6)
    assert opposite.max() == 2


def test_query_parameters_are_read_at_query_time():
    X, labels = clustered(2000, 16, 3)
    neighbors = cfe.EvidenceNeighbors(5, index="EvidenceIVF64,Flat", nprobe=1).fit(X, labels)
    exact = cfe.EvidenceNeighbors(5).fit(X, labels)
    few = neighbors.kneighbors(X[:300], labels=labels[:300])[0]
    full = neighbors.set_params(nprobe=64).kneighbors(X[:300], labels=labels[:300])[0]
    truth = exact.kneighbors(X[:300], labels=labels[:300])[0]
    assert_array_equal(full, truth)
    assert few.mean() > truth.mean()
    found = neighbors.set_params(n_neighbors=2).kneighbors(X[:3], labels=labels[:3])[1].shape
    assert found == (3, 2)


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
        (([[1, 0, 0]], ["good"]), ValueError, "X has 3 features, but EvidenceNeighbors"),
        (([[1, np.nan]], ["good"]), ValueError, "X contains NaN"),
        (([[1, 1e300]], ["good"]), ValueError, "infinity or a value too large"),
        ((csr_array([[1.0, 0, 0]]), ["good"]), ValueError, "X has 3 features"),
        ((csr_array([[1.0, np.inf]]), ["good"]), ValueError, "contains infinity"),
        (([[1, 0]], ["good"], 0), ValueError, "n_neighbors must be at least 1, got 0"),
        ((None, None, 1.5), TypeError, "n_neighbors must be an integer, got 1.5"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_wrong_queries(fitted, arguments, error, message):
    X, labels, n_neighbors = (*arguments, None, None)[:3]
    with pytest.raises(error, match=message):
        fitted.kneighbors(X, n_neighbors, labels=labels)


@pytest.mark.parametrize(
    ("parameters", "labels", "error", "message"),
    [
        ({"n_neighbors": 0}, NAMES, ValueError, "n_neighbors must be at least 1"),
        ({"nprobe": 0}, NAMES, ValueError, "nprobe must be at least 1"),
        ({"radius": -0.1}, NAMES, ValueError, r"radius must lie in \[0, inf\], got -0.1"),
        ({"estimator": KMeans(2)}, NAMES, TypeError, r"estimator must be a classifier, got KMeans"),
        ({"estimator": LogisticRegression()}, None, ValueError, "requires y to be passed"),
        ({"estimator": LinearRegression()}, [0, 0, 1, 1], TypeError, "estimator must"),
        ({"index": "Flat"}, NAMES, ValueError, "description must begin with"),
        ({"index": cfe.IndexEvidenceIDMap2(2)}, NAMES, TypeError, "index must be a description"),
        ({"index": "EvidenceIVF9,Flat"}, NAMES, ValueError, "a sample per list, 9, got n_samples"),
        ({}, None, ValueError, "requires y to be passed"),
        ({}, NAMES[:3], ValueError, "inconsistent numbers of samples"),
        ({}, [0.1, 0.7, 0.2, 0.9], ValueError, "continuous"),
    ],
)
def test_wrong_fits(parameters, labels, error, message):
    neighbors = cfe.EvidenceNeighbors(**parameters)
    with pytest.raises(error, match=message):
        neighbors.fit(SAMPLES, labels)
    with pytest.raises(NotFittedError):
        neighbors.kneighbors()


# --- graphs and radii -------------------------------------------------------------------------------------------------


@given(
    stored_vectors(least=1, arbitrary_ids=False), st.sampled_from([0, 0.05, 0.5, 1, 1.5, 2, np.inf])
)
def test_radius_neighbors_equal_brute_force(stored, radius):
    assume(len(stored.xq) > 0)
    distances, indices = expected(stored._replace(k=len(stored.X)))
    near = distances <= radius
    near[indices < 0] = False
    neighbors = fit(stored)
    for found, truth in zip(
        neighbors.radius_neighbors(stored.xq, radius, labels=stored.labels_q),
        (distances, indices),
        strict=True,
    ):
        assert found.shape == (len(stored.xq),)
        for row, wanted, within in zip(found, truth, near, strict=True):
            assert row.dtype == truth.dtype
            assert_array_equal(row, wanted[within])
    graph = neighbors.radius_neighbors_graph(
        stored.xq, radius, mode="distance", labels=stored.labels_q
    )
    assert_array_equal(np.diff(graph.indptr), near.sum(axis=1))
    assert_array_equal(graph.data, distances[near])


def test_radius_is_included_and_read_at_query_time(fitted):
    distances = fitted.kneighbors()[0]
    at = float(distances[0, 0])
    found = [list(row) for row in fitted.radius_neighbors(radius=at, return_distance=False)]
    assert found == [[2], [2, 3], [1, 0], [1]]
    below = np.nextafter(np.float32(at), np.float32(0))
    assert 2 not in fitted.radius_neighbors(radius=below, return_distance=False)[0]
    wide = clone(fitted).set_params(radius=np.inf).fit(SAMPLES, NAMES)
    assert [len(row) for row in wide.radius_neighbors()[0]] == [2, 2, 2, 2]
    assert [len(row) for row in wide.set_params(radius=0).radius_neighbors()[0]] == [0, 0, 0, 0]


@pytest.mark.parametrize("method", ["kneighbors_graph", "radius_neighbors_graph"])
def test_graphs(method):
    X, labels = clustered(60, 5, 3)
    neighbors = cfe.EvidenceNeighbors(70, radius=np.inf).fit(X, labels)
    near = getattr(neighbors, method)(mode="connectivity")
    far = getattr(neighbors, method)(mode="distance")
    assert near.shape == far.shape == (60, 60)
    assert near.format == far.format == "csr"
    assert near.dtype == far.dtype == np.float64
    assert isinstance(near, csr_matrix)
    assert near.indices.dtype == near.indptr.dtype == np.int32
    assert_array_equal(near.toarray(), labels[:, None] != labels)
    found = far.toarray()
    assert_allclose(found, np.where(labels[:, None] != labels, cosine_distances(X), 0), atol=1e-6)
    for start, stop in zip(far.indptr, far.indptr[1:], strict=False):
        assert (np.diff(far.data[start:stop]) >= 0).all()
    with pytest.raises(ValueError, match=r"mode must be .* got 'minkowski'"):
        getattr(neighbors, method)(mode="minkowski")


# --- sparse samples ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("index", ["EvidenceFlat", "EvidenceIVF4,Flat"])
def test_sparse_samples_are_as_dense_ones(layout, index, monkeypatch):
    rng = np.random.default_rng(0)
    X = random_array((90, 40), density=0.2, format=layout, rng=rng, dtype=np.float64)
    labels, labels_q = rng.integers(3, size=90), rng.integers(3, size=17)
    dense = cfe.EvidenceNeighbors(4, radius=0.6, index=index).fit(X.toarray(), labels)
    monkeypatch.setattr("cfe_faiss.neighbors._BLOCK", 7 * 40)  # blocks of 7 rows
    sparse = cfe.EvidenceNeighbors(4, radius=0.6, index=index).fit(X, labels)
    xq = X.tocsr()[:17].asformat(layout)
    for queries in ((None, None), (xq, labels_q)):
        of_dense = None if queries[0] is None else xq.toarray()
        found = sparse.kneighbors(queries[0], labels=queries[1])
        assert_same_arrays(found, dense.kneighbors(of_dense, labels=queries[1]))
        one = sparse.radius_neighbors_graph(queries[0], mode="distance", labels=queries[1])
        two = dense.radius_neighbors_graph(of_dense, mode="distance", labels=queries[1])
        assert_array_equal(one.toarray(), two.toarray())
        assert one.nnz == two.nnz


@pytest.fixture(scope="module")
def alone():
    """Return the output of a new process: whether scikit-learn is loaded with the estimator, and memory of a fit."""
    # On Linux a new process begins with its parent's largest memory as ru_maxrss; VmHWM is its own.
    code = (
        "import pathlib, resource, sys, numpy as np, cfe_faiss as cfe\n"
        "print('EvidenceNeighbors' in dir(cfe) and 'sklearn' not in sys.modules)\n"
        "print(cfe.EvidenceNeighbors is cfe.neighbors.EvidenceNeighbors and 'sklearn' in sys.modules)\n"
        "from scipy.sparse import csr_array\n"
        "def most():\n"
        "    status = pathlib.Path('/proc/self/status')\n"
        "    if status.exists():\n"
        "        return 1024 * int(status.read_text().partition('VmHWM:')[2].split()[0])\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "n, d = 10_000, 4_000\n"
        "X = csr_array((np.ones(n), np.arange(n) % d, np.arange(n + 1)), shape=(n, d))\n"
        "y = np.arange(n) % 2\n"
        "neighbors = cfe.EvidenceNeighbors(1).fit(X[:10], y[:10])\n"
        "before = most()\n"
        "neighbors.fit(X, y).kneighbors(X[:100], labels=y[:100])\n"
        "print((most() - before) / (4 * n * d))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_sparse_samples_are_never_all_dense_besides_the_index(alone):
    # A dense copy, its normalised copy and the index would be three.
    assert 1 < float(alone[2]) < 2.5


def test_training_takes_no_more_rows_than_it_uses():
    X, labels = clustered(1200, 6, 3)
    neighbors = cfe.EvidenceNeighbors(5, index="EvidenceIVF4,Flat", nprobe=4).fit(X, labels)
    assert neighbors.index_.ntotal == 1200
    exact = cfe.EvidenceNeighbors(5).fit(X, labels)
    assert_array_equal(neighbors.kneighbors()[1], exact.kneighbors()[1])


# --- with a classifier, in pipelines ----------------------------------------------------------------------------------


def test_estimator_predicts_the_labels():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    classifier = LogisticRegression().fit(X[:300], y[:300])
    given = cfe.EvidenceNeighbors(3).fit(X[:300], classifier.predict(X[:300]))
    for inside in (LogisticRegression(), FrozenEstimator(classifier)):
        neighbors = cfe.EvidenceNeighbors(3, estimator=inside).fit(X[:300], y[:300])
        assert_array_equal(neighbors.estimator_.predict(X), classifier.predict(X))
        for one, two in [
            (neighbors.kneighbors(), given.kneighbors()),
            (
                neighbors.kneighbors(X[300:]),
                given.kneighbors(X[300:], labels=classifier.predict(X[300:])),
            ),
            (
                neighbors.kneighbors(X[300:], labels=1 - y[300:]),
                given.kneighbors(X[300:], labels=1 - y[300:]),
            ),
        ]:
            assert_same_arrays(one, two)
    # A fitted classifier needs no classes: its predictions are all there is to know.
    frozen = cfe.EvidenceNeighbors(3, estimator=FrozenEstimator(classifier)).fit(X[:300])
    assert_array_equal(frozen.kneighbors()[1], given.kneighbors()[1])
    assert given.estimator_ is None


def test_pipeline_with_a_classifier_inside():
    data = load_breast_cancer(as_frame=True)
    evidence = cfe.EvidenceNeighbors(3, estimator=LogisticRegression())
    pipeline = make_pipeline(StandardScaler(), evidence)
    found = pipeline.fit_transform(data.data, data.target)
    assert_array_equal(found, pipeline.transform(data.data))
    assert_array_equal(found, pipeline[-1].kneighbors()[0])
    expected = ["evidenceneighbors0", "evidenceneighbors1", "evidenceneighbors2"]
    assert list(pipeline.get_feature_names_out()) == expected
    framed = clone(pipeline).set_output(transform="pandas")
    frame = framed.fit(data.data, data.target).transform(data.data[5:9])
    assert list(frame.columns) == expected
    assert list(frame.index) == [5, 6, 7, 8]
    assert_array_equal(frame, found[5:9])
    copied = pickle.loads(pickle.dumps(pipeline))
    assert_array_equal(copied.transform(data.data), found)


class Weighed(LogisticRegression):
    """What it was fitted with is kept."""

    def fit(self, X, y, sample_weight=None):
        self.weights_ = sample_weight
        return super().fit(X, y, sample_weight)


def test_metadata_reaches_the_classifier_and_transform():
    X, labels = clustered(50, 4, 2)
    weights = np.linspace(0.5, 2, 50)
    plain = cfe.EvidenceNeighbors(2, estimator=Weighed()).fit(X, labels, sample_weight=weights)
    assert_array_equal(plain.estimator_.weights_, weights)
    with config_context(enable_metadata_routing=True):
        requested = cfe.EvidenceNeighbors(
            2, estimator=Weighed().set_fit_request(sample_weight=True)
        )
        pipeline = make_pipeline(MinMaxScaler(), requested).fit(X, labels, sample_weight=weights)
        assert_array_equal(pipeline[-1].estimator_.weights_, weights)
        with pytest.raises(ValueError, match=r"sample_weight.* are passed but are not explicitly"):
            cfe.EvidenceNeighbors(2, estimator=Weighed()).fit(X, labels, sample_weight=weights)
        given = cfe.EvidenceNeighbors(2).set_transform_request(labels=True)
        pipeline = make_pipeline(StandardScaler(), given).fit(X, labels)
        assert_array_equal(pipeline.transform(X, labels=labels), pipeline[-1].kneighbors()[0])
    with pytest.raises(TypeError, match="fit takes sample_weight only for an estimator"):
        cfe.EvidenceNeighbors(2).fit(X, labels, sample_weight=weights)


def test_sparse_samples_reach_the_classifier():
    X = random_array((80, 30), density=0.3, format="csr", rng=np.random.default_rng(1))
    y = np.arange(80) % 2
    sparse = cfe.EvidenceNeighbors(3, estimator=LogisticRegression()).fit(X, y)
    dense = cfe.EvidenceNeighbors(3, estimator=LogisticRegression()).fit(X.toarray(), y)
    assert_allclose(sparse.transform(X), dense.transform(X.toarray()), atol=1e-6)


def test_transform_needs_labels_or_an_estimator(fitted):
    with pytest.raises(ValueError, match="labels must be given with X"):
        fitted.transform(SAMPLES)
    with pytest.raises(ValueError, match="X must be given"):
        fitted.transform(None)
    with pytest.raises(NotFittedError):
        clone(fitted).get_feature_names_out()
    assert_array_equal(fitted.transform(SAMPLES, NAMES), fitted.kneighbors()[0])


def test_scikit_learn_is_loaded_with_the_estimator_only(alone):
    assert alone[:2] == ["True", "True"]
    with pytest.raises(AttributeError, match="no attribute 'Neighbors'"):
        cfe.Neighbors  # noqa: B018


@pytest.mark.parametrize("index", ["EvidenceFlat", "EvidenceIVF4,Flat"])
@pytest.mark.parametrize("metric", ["l2", "ip"])
def test_distances_follow_the_metric(metric, index):
    rng = np.random.default_rng(0)
    X, y = rng.integers(-9, 10, (80, 3)).astype(np.float32), rng.integers(0, 3, 80)
    neighbors = cfe.EvidenceNeighbors(4, index=index, metric=metric, exact=True).fit(X, y)
    distances = -(X @ X.T) if metric == "ip" else ((X[:, None] - X) ** 2).sum(axis=2)
    distances[y[:, None] == y] = np.inf
    D, I = neighbors.kneighbors()
    np.testing.assert_array_equal(D, np.sort(distances, axis=1)[:, :4])
    np.testing.assert_array_equal(np.take_along_axis(distances, I, axis=1), D)
    radius = float(np.median(distances[np.isfinite(distances)]))
    within, rows = neighbors.radius_neighbors(radius=radius)
    for own, found, all_of_it in zip(rows, within, distances, strict=True):
        assert sorted(own.tolist()) == np.flatnonzero(all_of_it <= radius).tolist()
        assert (np.diff(found) >= 0).all()
    np.testing.assert_array_equal(neighbors.kneighbors(X[:3], labels=y[:3])[0], D[:3])
    with pytest.raises(ValueError, match="metric must be"):
        cfe.EvidenceNeighbors(metric="manhattan").fit(X, y)


@pytest.mark.parametrize("kind", [cfe.EvidenceNeighbors, cfe.EvidenceTransformer])
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "ip"])
def test_the_metric_of_fit_holds_until_the_next(kind, metric):
    fitted = kind(2, metric=metric, neighbors="other").fit(SAMPLES, NAMES)
    before = (
        fitted.kneighbors()[0],
        fitted.radius_neighbors_graph(radius=1, mode="distance").toarray(),
    )
    for other in ("cosine", "euclidean", "sqeuclidean", "ip"):
        fitted.set_params(metric=other)
        assert_same_arrays(
            (
                fitted.kneighbors()[0],
                fitted.radius_neighbors_graph(radius=1, mode="distance").toarray(),
            ),
            before,
        )
    assert fitted.effective_metric_ == metric


@pytest.mark.parametrize("neighbors", ["other", "any"])
def test_the_neighbors_of_fit_hold_until_the_next(neighbors):
    fitted = cfe.EvidenceTransformer(1, neighbors=neighbors).fit(SAMPLES, NAMES)
    labels = NAMES if neighbors == "other" else None
    before = fitted.kneighbors()[1], fitted.transform(SAMPLES, labels).toarray()
    fitted.set_params(neighbors="any" if neighbors == "other" else "other")
    found = (fitted.kneighbors()[1], fitted.transform(SAMPLES, labels).toarray())
    assert_same_arrays(found, before)
