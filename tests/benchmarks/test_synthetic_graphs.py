import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cfe_faiss.graph import as_graph

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
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
