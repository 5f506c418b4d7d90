"""EvidenceNeighbors and EvidenceTransformer give what scikit-learn's neighbours give, and their clients take them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.cluster import DBSCAN, SpectralClustering
from sklearn.linear_model import LogisticRegression
from sklearn.manifold import TSNE, Isomap
from sklearn.neighbors import KNeighborsTransformer, NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import cfe_faiss as cfe

METRICS = ("euclidean", "sqeuclidean", "cosine")


def samples(n=120, d=6, seed=0):
    """Return samples in float32 precision, without equal distances."""
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32).astype(np.float64)


@parametrize_with_checks(
    [cfe.EvidenceTransformer(), cfe.EvidenceTransformer(2, mode="connectivity", metric="cosine")]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@given(st.sampled_from(METRICS), st.integers(1, 8), st.integers(0, 50))
def test_neighbors_equal_those_of_scikit_learn(metric, k, seed):
    X = samples(40, 3, seed)
    ours = cfe.EvidenceNeighbors(k, neighbors="any", metric=metric).fit(X)
    theirs = NearestNeighbors(n_neighbors=k, metric=metric).fit(X)
    tolerance = {"rtol": 1e-6, "atol": 1e-6 if metric == "cosine" else 0}
    for arguments in ((), (X[:9] + 0.5,), (X[:9] + 0.5, 3), (None, 2)):
        D, I = ours.kneighbors(*arguments)
        expected = theirs.kneighbors(*arguments)
        assert D.dtype == np.float64
        assert_allclose(D, expected[0], **tolerance)
        assert_array_equal(I, expected[1])
        for mode in ("connectivity", "distance"):
            graph = ours.kneighbors_graph(*arguments, mode=mode)
            assert type(graph) is csr_matrix
            assert graph.dtype == np.float64
            assert {graph.indices.dtype, graph.indptr.dtype} == {np.dtype(np.int32)}
            answer = graph.toarray()
            wanted = theirs.kneighbors_graph(*arguments, mode=mode).toarray()
            assert_allclose(answer, wanted, **tolerance)
    radius = float(np.median(theirs.kneighbors()[0])) * 1.01
    found, rows = ours.radius_neighbors(X, radius)
    expected, expected_rows = theirs.radius_neighbors(X, radius, sort_results=True)
    for one, two, row, expected_row in zip(found, expected, rows, expected_rows, strict=True):
        assert_allclose(one, two, atol=1e-6)
        assert sorted(row) == sorted(expected_row)
        assert (np.diff(one) >= 0).all()


def test_a_radius_of_zero_finds_equal_samples():
    X = np.vstack([samples(5), samples(5)])
    y = np.repeat([0, 1], 5)
    for metric in ("euclidean", "sqeuclidean", "l2"):
        neighbors = cfe.EvidenceNeighbors(metric=metric, radius=0).fit(X, y)
        expected = [[i + 5] for i in range(5)] + [[i] for i in range(5)]
        assert [row.tolist() for row in neighbors.radius_neighbors()[1]] == expected


def test_labels_have_one_kind():
    for y, wrong in (
        ([True, False, True], [1]),
        ([1, 0, 1], [True]),
        (["1", "0", "1"], [1]),
        ([1, 0, 1], ["1"]),
    ):
        neighbors = cfe.EvidenceNeighbors(1).fit(np.eye(3), y)
        with pytest.raises(TypeError, match=r"labels must be .* as in fit"):
            neighbors.kneighbors(np.eye(3)[:1], labels=wrong)
        assert set(neighbors.kneighbors(np.eye(3), 2, labels=y)[1][0].tolist()) == {1, -1}


def test_predictions_are_those_of_the_estimator():
    X = samples()
    y = X[:, 0] > 0
    neighbors = cfe.EvidenceNeighbors(1, estimator=LogisticRegression()).fit(X, y)
    assert_array_equal(neighbors.predict(X), LogisticRegression().fit(X, y).predict(X))
    assert not hasattr(cfe.EvidenceNeighbors(1).fit(X, y), "predict")


# --- EvidenceTransformer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize("metric", METRICS)
def test_graphs_equal_those_of_scikit_learn(mode, metric):
    X = samples()
    ours = cfe.EvidenceTransformer(4, mode=mode, metric=metric)
    theirs = KNeighborsTransformer(n_neighbors=4, mode=mode, metric=metric)
    for one, two in (
        (ours.fit_transform(X), theirs.fit_transform(X)),
        (ours.transform(X + 0.1), theirs.transform(X + 0.1)),
    ):
        assert type(one) is csr_matrix
        assert_array_equal(one.indptr, two.indptr)
        found = one.toarray()
        assert_allclose(found, two.toarray(), rtol=1e-6, atol=2e-6 if metric == "cosine" else 1e-12)
    expected = ["evidencetransformer0", "evidencetransformer1"]
    assert ours.get_feature_names_out().tolist()[:2] == expected


def test_graphs_of_other_classes():
    X, y = samples(), np.arange(120) % 3
    transformer = cfe.EvidenceTransformer(2, neighbors="other", metric="cosine")
    graph = transformer.fit_transform(X, y)
    found = graph.indices.reshape(-1, 2)
    assert_array_equal(found, cfe.EvidenceNeighbors(2).fit(X, y).kneighbors()[1])
    assert_array_equal(transformer.transform(X[:5], y[:5]).toarray(), graph.toarray()[:5])


def test_estimators_take_precomputed_graphs():
    X = samples()
    pipeline = make_pipeline(
        cfe.EvidenceTransformer(10), Isomap(n_neighbors=10, metric="precomputed")
    )
    found = abs(pipeline.fit_transform(X))
    assert_allclose(found, abs(Isomap(n_neighbors=10).fit_transform(X)), atol=1e-3)
    embedded = [
        make_pipeline(
            transformer,
            TSNE(metric="precomputed", init="random", perplexity=9, random_state=0, max_iter=250),
        )
        for transformer in (cfe.EvidenceTransformer(28), KNeighborsTransformer(n_neighbors=28))
    ]
    assert_allclose(*(one.fit_transform(X) for one in embedded), atol=1e-3)
    graph = cfe.EvidenceTransformer(119).fit_transform(X)
    found = DBSCAN(eps=1, metric="precomputed").fit(graph).labels_
    assert_array_equal(found, DBSCAN(eps=1).fit(X).labels_)
    evidence = cfe.EvidenceNeighbors(60).fit(X, np.arange(120) % 2).kneighbors_graph()
    clusters = SpectralClustering(2, affinity="precomputed", random_state=0)
    assert clusters.fit(evidence).labels_.shape == (120,)


def test_samplers_of_imbalanced_learn_take_transformers():
    pytest.importorskip("imblearn")
    from imblearn.over_sampling import ADASYN, SMOTE
    from imblearn.under_sampling import EditedNearestNeighbours, NearMiss

    X = samples()
    y = X[:, 0] + 0.7 * X[:, 1] > 0.9
    for sampler, name, k in (
        (SMOTE, "k_neighbors", 5),
        (ADASYN, "n_neighbors", 5),
        (EditedNearestNeighbours, "n_neighbors", 3),
        (NearMiss, "n_neighbors", 2),
    ):
        options = {"random_state": 0} if sampler in (SMOTE, ADASYN) else {}
        # the others leave out the first neighbour, the sample itself
        asked = k if sampler is NearMiss else k + 1
        found = sampler(**{name: cfe.EvidenceTransformer(asked)}, **options).fit_resample(X, y)
        expected = sampler(**{name: k}, **options).fit_resample(X, y)
        assert_allclose(found[0], expected[0])
        assert_array_equal(found[1], expected[1])
