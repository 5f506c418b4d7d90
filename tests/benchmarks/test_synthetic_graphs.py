import sys
from functools import cache
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cfe_faiss as cfe
from cfe_faiss.graph import as_graph

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import synthetic_graphs
from synthetic_graphs import amazon_shape, measured_homophily, pubmed_shape

kept_amazon, kept_pubmed = cache(amazon_shape), cache(pubmed_shape)


@pytest.mark.parametrize("homophily", [0.0, 0.4, 0.8, 1.0])
def test_homophily_is_what_was_asked_for(homophily):
    data = kept_amazon(20_000, homophily=homophily)
    assert measured_homophily(data.graph, data.labels) == pytest.approx(homophily, abs=0.03)


@pytest.mark.parametrize(
    "make", [lambda: kept_amazon(20_000), lambda: amazon_shape(856), kept_pubmed]
)
def test_it_is_a_simple_undirected_graph(make):
    data = make()
    graph = data.graph
    sources = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    pairs = sources * graph.num_nodes + graph.indices
    assert (np.diff(pairs) > 0).all()
    assert (sources != graph.indices).all()
    np.testing.assert_array_equal(
        np.sort(graph.indices.astype(np.int64) * graph.num_nodes + sources), pairs
    )
    assert (data.x.dtype, data.labels.dtype) == (np.float32, np.int32)
    assert np.isfinite(data.x).all()


def test_amazon_has_its_shape():
    data = amazon_shape(20_000, degree=14)
    assert data.x.shape == (20_000, 200)
    assert data.graph.num_nodes == 20_000
    assert data.graph.num_edges == pytest.approx(14 * 20_000, rel=0.01)
    sizes = np.bincount(data.labels)
    assert len(sizes) == data.num_classes == 107
    assert sizes.min() > 0
    assert sizes.max() > 5 * np.median(sizes)
    degrees = np.diff(data.graph.indptr)
    assert degrees.max() > 20 * np.median(degrees)


def test_pubmed_has_its_shape():
    data = kept_pubmed()
    assert data.x.shape == (19_717, 500)
    assert data.graph.num_edges == pytest.approx(88_648, rel=0.01)
    assert (np.bincount(data.labels) > 1000).tolist() == [True] * 3


def test_degree_shrinks_with_the_communities():
    sizes = 2000, 5000, 20_000
    means = [kept_amazon(n).graph.num_edges / n for n in sizes]
    assert means == pytest.approx([0.25 * n / 428 for n in sizes], rel=0.05)


def test_classes_show_in_the_features():
    """The nearest class mean of other nodes names the class far more often than chance, and far from always."""
    data = kept_amazon(20_000, homophily=0.0)
    train, test = slice(0, None, 2), slice(1, None, 2)
    sums = np.zeros((107, 200))
    np.add.at(sums, data.labels[train], data.x[train])
    means = sums / np.bincount(data.labels[train], minlength=107)[:, None]
    far = (means**2).sum(axis=1) - 2 * data.x[test] @ means.T
    hits = (far.argmin(axis=1) == data.labels[test]).mean()
    assert 2 / 107 < hits < 0.5


def test_classes_mix_in_the_neighbourhood_of_ks_vectors():
    data = kept_amazon(20_000, homophily=0.4)
    X = cfe.ks_vectors(data.x, data.graph)
    _, I = faiss.knn(X[:500], X, 11, metric=faiss.METRIC_INNER_PRODUCT)
    same = (data.labels[I[:, 1:]] == data.labels[:500, None]).mean()
    assert 0.1 < same < 0.9


def test_own_parts_of_features_are_nearly_normal():
    one_place, zeros = np.zeros(20_000, np.int32), np.zeros(20_000, np.int32)
    x = synthetic_graphs._features(one_place, zeros, 3, 1, np.random.default_rng(0)) * (
        np.arange(1, 4) ** synthetic_graphs._DECAY
    )
    own = (x - x.mean(axis=0)) / synthetic_graphs._PARTS["own"]
    np.testing.assert_allclose(own.std(axis=0), 1, atol=0.02)
    np.testing.assert_allclose((own**3).mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(
        (own**4).mean(axis=0), 2.7, atol=0.15
    )  # a sum of four uniform numbers; normal: 3
    np.testing.assert_allclose(np.corrcoef(own.T), np.eye(3), atol=0.03)


def test_random_bits_are_splitmix64():
    # The first outputs of the published generator for the seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    bits = synthetic_graphs.random_bits(np.uint64(1234567), np.arange(3, dtype=np.uint64))
    assert bits.tolist() == expected


def same(one, other):
    return (
        np.array_equal(one.x, other.x)
        and np.array_equal(one.labels, other.labels)
        and np.array_equal(one.graph.indptr, other.graph.indptr)
        and np.array_equal(one.graph.indices, other.graph.indices)
    )


def test_the_seed_decides():
    made = amazon_shape(5000, seed=3)
    assert same(made, amazon_shape(5000, seed=3))
    assert not same(made, amazon_shape(5000, seed=4))


def test_blocks_do_not_change_the_graph(monkeypatch):
    made = amazon_shape(2000)
    monkeypatch.setattr(synthetic_graphs, "_AT_ONCE", 1000)
    assert same(made, amazon_shape(2000))


def test_to_data():
    data = amazon_shape(2000, seed=1)
    made = data.to_data(seed=2)
    assert made.validate()
    assert (made.num_nodes, made.num_edges, made.num_features) == (2000, data.graph.num_edges, 200)
    again = as_graph(made, directed=True)
    np.testing.assert_array_equal(again.indptr, data.graph.indptr)
    np.testing.assert_array_equal(again.indices, data.graph.indices)
    np.testing.assert_array_equal(made.y, data.labels)
    assert (made.train_mask.int() + made.val_mask.int() + made.test_mask.int() == 1).all()
    assert made.name == "amazon-synthetic"
    assert (len(made.feature_names), len(made.class_names)) == (200, 107)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30).filter(
        lambda edges: any(s != t for s, t in edges)
    ),
    st.lists(st.integers(0, 3), min_size=10, max_size=10),
)
def test_measured_homophily_is_newmans(edges, labels):
    graph = as_graph(np.array(edges).T, 10)
    mixing = np.zeros((4, 4))
    for v in range(10):
        for u in graph.neighbors(v):
            mixing[labels[v], labels[u]] += 1 / graph.num_edges
    chance = (mixing.sum(axis=0) * mixing.sum(axis=1)).sum()
    found = measured_homophily(graph, labels)
    if chance > 1 - 1e-9:
        assert np.isnan(found)
    else:
        assert found == pytest.approx((np.trace(mixing) - chance) / (1 - chance), abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n": 855}, ValueError, "n must be at least 856, got 855"),
        ({"n": 2e4}, TypeError, "n must be an integer, got 20000.0"),
        ({"homophily": 1.1}, ValueError, r"homophily must lie in \[0, 1\], got 1.1"),
        ({"homophily": "high"}, TypeError, "homophily must be a number"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"degree": 168}, ValueError, "degree must be at most .* for 2000 nodes, got 168"),
        ({"degree": 0.0}, ValueError, r"degree must lie in \[0.1, 1999\], got 0.0"),
        ({"degree": float("nan")}, ValueError, "degree must lie in .* got nan"),
    ],
)
def test_faults_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        amazon_shape(**{"n": 2000, **arguments})


def test_faults_of_labels_are_named():
    graph = as_graph([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"labels must have shape \(3,\)"):
        measured_homophily(graph, [0, 1])
