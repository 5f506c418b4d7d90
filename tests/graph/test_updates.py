import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interrupts import raises_at
from numpy.testing import assert_array_equal

import cfe_faiss as cfe
from cfe_faiss.graph import as_graph
from cfe_faiss.graph.updates import KSVectors

N, D = 12, 3


class Mirror:
    """A graph as plain lists, changed beside a KSVectors object and computed from scratch after each change."""

    def __init__(self, seed, *, directed, weighted, **options):
        self.rng = np.random.default_rng(seed)
        self.directed, self.weighted = directed, weighted
        self.x = self.rng.normal(size=(N, D)).astype(np.float32)
        self.edges = {}
        self.gone = set()
        self.link(20)
        self.options = options
        self.ks = KSVectors(
            self.x, self.edge_index, edge_weight=self.weights, directed=directed, **options
        )

    @property
    def edge_index(self):
        return np.array(list(self.edges), np.int64).reshape(-1, 2).T

    @property
    def weights(self):
        return np.array(list(self.edges.values()), np.float32) if self.weighted else None

    @property
    def nodes(self):
        return np.setdiff1d(np.arange(len(self.x)), list(self.gone))

    def link(self, count):
        """Add random edges, and return them."""
        pairs = self.rng.choice(self.nodes, (count, 2))
        pairs = pairs if self.directed else np.sort(pairs, axis=1)
        new = {(int(s), int(t)): np.float32(self.rng.random() + 0.1) for s, t in pairs if s != t}
        new = {pair: weight for pair, weight in new.items() if pair not in self.edges}
        self.edges |= new
        return new

    def change(self):
        """Change the lists at random, and return the arguments of the same update."""
        arguments = {}
        edges = list(self.edges)
        chosen = [edges[i] for i in self.rng.choice(len(edges), min(2, len(edges)), replace=False)]
        arguments["remove_edges"] = np.array(chosen, np.int64).reshape(-1, 2).T
        for pair in chosen:
            del self.edges[pair]
        if self.rng.random() < 0.4 and len(self.nodes) > 4:
            leaving = self.rng.choice(self.nodes, 1)
            arguments["remove_nodes"] = leaving
            self.gone |= set(leaving.tolist())
            self.x[leaving] = 0
            self.edges = {
                pair: weight for pair, weight in self.edges.items() if not self.gone & set(pair)
            }
        if self.rng.random() < 0.5:
            rows = {
                int(v): self.rng.normal(size=D).astype(np.float32)
                for v in self.rng.choice(self.nodes, 2)
            }
            arguments["x"] = rows
            for node, row in rows.items():
                self.x[node] = row
        if self.rng.random() < 0.4:
            arguments["add_nodes"] = self.rng.normal(size=(2, D)).astype(np.float32)
            self.x = np.concatenate([self.x, arguments["add_nodes"]])
        new = self.link(3)
        arguments["add_edges"] = np.array(list(new), np.int64).reshape(-1, 2).T
        if self.weighted and new:
            arguments["edge_weight"] = list(new.values())
        return arguments

    def expected(self):
        options = {name: value for name, value in self.options.items() if name != "store_layers"}
        return cfe.ks_vectors(
            self.x, self.edge_index, edge_weight=self.weights, directed=self.directed, **options
        )


@given(
    st.integers(0, 10**6),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from([0, 0.4, 1]),
)
def test_every_version_equals_recomputation_bit_for_bit(
    seed, directed, weighted, store_layers, num_layers, alpha
):
    options = {"num_layers": num_layers, "alpha": alpha, "store_layers": store_layers}
    mirror = Mirror(seed, directed=directed, weighted=weighted, **options)
    assert_array_equal(mirror.ks.vectors, mirror.expected())
    for _ in range(4):
        before = mirror.ks.vectors.copy()
        gone = mirror.gone.copy()
        changed = mirror.ks.update(**mirror.change())
        after = mirror.expected()
        assert_array_equal(mirror.ks.vectors, after)
        graph = as_graph(
            mirror.edge_index, len(mirror.x), edge_weight=mirror.weights, directed=directed
        )
        for name in ("indptr", "indices", "weights"):
            assert_array_equal(getattr(mirror.ks.graph, name), getattr(graph, name))
        differs = np.ones(len(after), bool)
        differs[: len(before)] = (before != after[: len(before)]).any(axis=1)
        differs[list(mirror.gone - gone)] = False
        assert_array_equal(changed, np.flatnonzero(differs))
        assert_array_equal(mirror.ks.removed, sorted(mirror.gone))


def test_only_the_surroundings_of_a_change_are_returned():
    n = 100
    path = np.stack([np.arange(n - 1), np.arange(1, n)])
    x = np.random.default_rng(0).normal(size=(n, D))
    ks = KSVectors(x, path, num_layers=2)
    assert_array_equal(ks.update(x={50: x[50] / 2}), np.arange(48, 53))
    assert_array_equal(ks.update(add_edges=[[10], [90]]), [9, 10, 11, 89, 90, 91])
    assert_array_equal(ks.update(remove_edges=[[90], [10]]), [9, 10, 11, 89, 90, 91])
    assert_array_equal(ks.update(add_edges=[[20], [21]]), [])  # the edge is there
    assert_array_equal(ks.update(), [])


def test_vectors_are_read_only():
    ks = KSVectors(np.eye(3), [[0], [1]])
    with pytest.raises(ValueError, match="read-only"):
        ks.vectors[0] = 0
    assert len(ks) == 3
    assert repr(ks) == "KSVectors(3 nodes, d=3, num_layers=3, alpha=0.5)"


X = np.random.default_rng(3).normal(size=(5, D))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"remove_edges": [[0], [3]]}, ValueError, r"remove_edges .*got \(0, 3\)"),
        ({"remove_edges": [[0, 1, 2]]}, ValueError, r"remove_edges .*got \(1, 3\)"),
        ({"add_edges": [[0], [6]]}, ValueError, r"add_edges must lie in 0..5, got 6"),
        ({"add_edges": [[0.5], [1.0]]}, TypeError, "add_edges must be integers"),
        ({"add_edges": [[0], [4]]}, ValueError, "add_edges .*got 4, which was removed"),
        ({"x": {4: X[0]}}, ValueError, "x must name nodes of the graph, got 4, which was removed"),
        ({"x": {0: [1.0, 2.0]}}, ValueError, r"x .*got \(2,\) for node 0"),
        ({"x": {0: [1.0, 2.0, np.nan]}}, ValueError, "x must be finite"),
        ({"x": {9: X[0]}}, ValueError, "x must lie in 0..4, got 9"),
        ({"add_nodes": [[1.0, 2.0]]}, ValueError, r"add_nodes must have shape \(n, 3\)"),
        ({"add_nodes": [[1.0, 2.0, np.inf]]}, ValueError, "add_nodes must be finite"),
        ({"remove_nodes": [4]}, ValueError, "remove_nodes .*got 4, which was removed"),
        ({"remove_nodes": [0], "x": {0: X[0]}}, ValueError, "x .*got 0, which was removed"),
        ({"add_edges": [[0], [2]], "edge_weight": [1.0]}, ValueError, "edge_weight must be None"),
    ],
)
def test_a_refused_update_changes_nothing(arguments, error, message):
    ks = KSVectors(X, [[0, 1, 2, 3], [1, 2, 3, 4]])
    ks.update(remove_nodes=[4])
    before, graph = ks.vectors.copy(), ks.graph
    good = {"x": {1: X[0]}, "add_nodes": X[:1]}
    with pytest.raises(error, match=message):
        ks.update(**(good | arguments))
    assert_array_equal(ks.vectors, before)
    assert_array_equal(ks.graph.indices, graph.indices)


def test_weights_are_required_and_edges_with_weights_are_added_once():
    ks = KSVectors(X, [[0, 1], [1, 2]], edge_weight=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"edge_weight .*got None"):
        ks.update(add_edges=[[0], [2]])
    with pytest.raises(ValueError, match=r"add_edges .*got \(1, 0\): remove it first"):
        ks.update(add_edges=[[0], [1]], edge_weight=[3.0])
    with pytest.raises(ValueError, match=r"edge_weight .*got \[3.0\]"):
        ks.update(remove_edges=[[0], [1]], edge_weight=[3.0])
    with pytest.raises(ValueError, match="edge_weight must be 0 or positive"):
        ks.update(add_edges=[[0], [3]], edge_weight=[-3.0])
    ks.update(remove_edges=[[0], [1]], add_edges=[[0], [1]], edge_weight=[3.0])
    assert_array_equal(ks.vectors, cfe.ks_vectors(X, [[0, 1], [1, 2]], edge_weight=[3.0, 2.0]))


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("store_layers", [True, False])
def test_an_error_at_any_line_leaves_the_old_or_the_new_version(store_layers, step):
    arguments = {
        "x": {1: X[0]},
        "add_nodes": X[:1],
        "add_edges": [[5, 0], [0, 3]],
        "remove_edges": [[2], [3]],
    }
    x, edges = np.concatenate([X, X[:1]]), [[0, 1, 3, 5, 0], [1, 2, 4, 0, 3]]
    x[1] = X[0]
    old, new = cfe.ks_vectors(X, [[0, 1, 2, 3], [1, 2, 3, 4]]), cfe.ks_vectors(x, edges)
    line, seen = 1 + 3 * store_layers % step, set()
    while True:
        ks = KSVectors(X, [[0, 1, 2, 3], [1, 2, 3, 4]], store_layers=store_layers)
        raised = raises_at(
            line, KeyboardInterrupt, lambda ks=ks: ks.update(**arguments), where="graph"
        )
        is_old = len(ks) == len(X)
        assert_array_equal(ks.vectors, old if is_old else new)
        assert ks.graph.num_edges == (8 if is_old else 10)
        ks.update(**(arguments if is_old else {}))
        assert_array_equal(ks.vectors, new)
        seen.add(is_old)
        if not raised:
            break
        line += step
    assert seen == {True, False}


class ManyEdges:
    """Sorted entries of all neighbour lists, changed beside a KSVectors object by edges with repeats and loops."""

    def __init__(self, seed, *, directed, weighted, **options):
        self.rng, self.directed, self.weighted = np.random.default_rng(seed), directed, weighted
        self.x = self.rng.normal(size=(400, D)).astype(np.float32)
        self.nodes = np.arange(len(self.x))
        self.entries = {}
        edges, weights = self.link(12_000)
        self.ks = KSVectors(self.x, edges, 2, edge_weight=weights, directed=directed, **options)

    def link(self, count):
        """Add random edges, merged as in a graph of their own, and return them as given."""
        edges = self.rng.choice(self.nodes, (2, count))
        edges = np.hstack([edges, edges[:, : count // 5], edges[::-1, : count // 10]])
        if self.weighted:
            is_new = [
                (t, s) not in self.entries and (s, t) not in self.entries
                for s, t in edges.T.tolist()
            ]
            edges = edges[:, is_new]
        weights = (
            self.rng.integers(0, 9, edges.shape[1]).astype(float).tolist()
            if self.weighted
            else None
        )
        graph = as_graph(edges, len(self.x), edge_weight=weights, directed=self.directed)
        values = np.ones(graph.num_edges, np.float32) if graph.weights is None else graph.weights
        owners = np.repeat(np.arange(len(self.x)), np.diff(graph.indptr)).tolist()
        self.entries = (
            dict(zip(zip(owners, graph.indices.tolist(), strict=True), values, strict=True))
            | self.entries
        )
        return edges, weights

    def change(self, size):
        """Change the entries and rows at random, and return the arguments of the same update."""
        rng, listed = self.rng, list(self.entries)
        # some of them twice
        edges = np.array([listed[i] for i in rng.integers(0, len(listed), size)]).T[::-1]
        leaving = rng.choice(self.nodes, 2)
        both = {*zip(*edges.tolist(), strict=True)} if not self.directed else set()
        out, gone = {*zip(*edges[::-1].tolist(), strict=True)} | both, set(leaving.tolist())
        self.entries = {e: w for e, w in self.entries.items() if e not in out and not gone & set(e)}
        self.nodes = np.append(np.setdiff1d(self.nodes, leaving), len(self.x))
        new = rng.normal(size=(1, D)).astype(np.float32) / 4
        self.x = np.concatenate([self.x, new])
        self.x[leaving] = 0
        row = rng.normal(size=D).astype(np.float32) / 4
        self.x[self.nodes[0]] = row
        added, weights = self.link(size)
        arguments = {
            "remove_edges": edges,
            "remove_nodes": leaving,
            "add_nodes": new,
            "x": {int(self.nodes[0]): row},
        }
        return arguments | {"add_edges": added, "edge_weight": weights}


# By default, each pair of two of the three options.
@pytest.mark.parametrize(
    ("directed", "weighted", "store_layers"),
    [
        pytest.param(*options, marks=[pytest.mark.slow] * (sum(options) % 2))
        for options in itertools.product([False, True], repeat=3)
    ],
)
def test_sequences_of_small_and_large_changes_of_many_edges(directed, weighted, store_layers):
    mirror = ManyEdges(5, directed=directed, weighted=weighted, store_layers=store_layers)
    for size in (1, 5000, 1, 20, 9000, 1):
        arguments = mirror.change(size)
        mirror.ks.update(**arguments)
        graph = mirror.ks.graph
        entries = sorted(mirror.entries)
        expected = [v for v, _ in entries]
        assert_array_equal(np.repeat(np.arange(len(mirror.x)), np.diff(graph.indptr)), expected)
        assert_array_equal(graph.indices, [u for _, u in entries])
        if weighted:
            assert_array_equal(graph.weights, [mirror.entries[e] for e in entries])
        assert_array_equal(mirror.ks.vectors, cfe.ks_vectors(mirror.x, graph, 2))


@pytest.mark.parametrize("store_layers", [True, False])
@pytest.mark.parametrize("num_layers", [0, 1, 3])
def test_known_vectors_are_not_computed_again(num_layers, store_layers):
    mirror = Mirror(4, directed=False, weighted=False, num_layers=num_layers)
    known = mirror.expected()
    options = {"store_layers": store_layers, "vectors": known}
    mirror.ks = KSVectors(mirror.x, mirror.edge_index, num_layers, **options)
    assert_array_equal(mirror.ks.vectors, known)
    for _ in range(3):
        before = mirror.ks.vectors.copy()
        changed = mirror.ks.update(x={5: mirror.x[5] / 2})
        mirror.x[5] /= 2
        assert_array_equal(mirror.ks.vectors, mirror.expected())
        assert_array_equal(changed, np.flatnonzero((mirror.ks.vectors != before).any(axis=1)))
    assert (
        known == Mirror(4, directed=False, weighted=False, num_layers=num_layers).expected()
    ).all()
    with pytest.raises(ValueError, match=r"vectors must have shape \(12, 3\), got \(2, 3\)"):
        KSVectors(mirror.x, mirror.edge_index, vectors=known[:2])


@pytest.mark.parametrize(("directed", "weighted"), [(False, True), (True, False)])
def test_a_pickled_object_goes_on_alone(directed, weighted):
    mirror = Mirror(6, directed=directed, weighted=weighted)
    mirror.ks.update(**mirror.change())
    before = mirror.ks
    mirror.ks, vectors = pickle.loads(pickle.dumps(before)), before.vectors.copy()
    mirror.ks.update(**mirror.change())
    assert_array_equal(mirror.ks.vectors, mirror.expected())
    assert_array_equal(before.vectors, vectors)
