"""A finder after a change: graph, vectors, predictions and index; the old one stays as it is."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from interrupts import raises_at
from numpy.testing import assert_array_equal
from torch_geometric.data import Data

import cfe_faiss as cfe

N, D = 30, 3
KINDS = ["EvidenceFlat", "EvidenceIVF5,Flat", "EvidenceIVF5x2,Flat"]


def model(x, edge_index):
    """Predict a class from the features of a node and of the sources of its edges."""
    sums = torch.zeros_like(x).index_add_(0, edge_index[1], x[edge_index[0]])
    return (x + sums)[:, :2]


def drawn_data(seed):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, N, (2, 50))
    edges = np.unique(np.hstack([edges, edges[::-1]]), axis=1)
    return Data(
        x=torch.from_numpy(rng.normal(size=(N, D)).astype(np.float32)),
        edge_index=torch.from_numpy(edges),
    )


def assert_same_evidence(one, two):
    assert_array_equal(one.vectors, two.vectors)
    assert_array_equal(one.labels, two.labels)
    for name in ("indptr", "indices"):
        assert_array_equal(getattr(one.graph, name), getattr(two.graph, name))
    assert_array_equal(one.index.members().ids, two.index.members().ids)
    found, expected = one.local(k=4), two.local(k=4)
    assert_array_equal(found.evidence, expected.evidence)
    assert_array_equal(found.similarity, expected.similarity)


class Mirror:
    """Edges and features as plain arrays, changed beside a finder."""

    def __init__(self, seed, index, directed):
        self.data, self.options = drawn_data(seed), {"directed": directed, "index": index}
        self.finder = cfe.EvidenceFinder.from_data(self.data, model, **self.options)
        self.rng, self.gone = np.random.default_rng(seed), np.empty(0, np.int64)

    def change(self):
        """Change the arrays at random and return the arguments of the same update."""
        x, edges = self.data.x.numpy(), self.data.edge_index.numpy()
        n, rng = len(x), self.rng
        nodes = np.setdiff1d(np.arange(n), self.gone)
        leaves, changed = rng.choice(nodes, 3, replace=False)[: rng.integers(1, 4)], {}
        for node in np.setdiff1d(nodes, leaves)[:2].tolist():
            changed[node] = rng.normal(size=D).astype(np.float32) / 3
        dropped = edges[:, rng.choice(np.flatnonzero(edges[0] != edges[1]), 2)]
        new = rng.normal(size=(int(rng.integers(0, 3)), D)).astype(np.float32) / 3
        ends = np.append(np.setdiff1d(nodes, leaves), np.arange(n, n + len(new)))
        added = rng.choice(ends, (2, 4))
        self.gone = np.append(self.gone, leaves)
        x = np.concatenate([x, new])
        for node, row in changed.items():
            x[node] = row
        x[self.gone] = 0
        both = (
            (lambda edges: edges)
            if self.options["directed"]
            else (lambda edges: np.hstack([edges, edges[::-1]]))
        )
        # Whether all edges have their reverse decides how the finder adds them.
        is_both = set(map(tuple, edges[::-1].T.tolist())) <= set(map(tuple, edges.T.tolist()))
        out = set(map(tuple, both(dropped).T.tolist()))
        left = {
            (s, t)
            for s, t in edges.T.tolist()
            if (s, t) not in out and not {s, t} & set(leaves.tolist())
        }
        left |= set(map(tuple, (both(added) if is_both else added).T.tolist()))
        self.data = Data(x=torch.from_numpy(x), edge_index=torch.tensor(sorted(left)).T)
        changes = {"x": changed, "remove_nodes": leaves, "remove_edges": dropped}
        return changes | {"add_nodes": new, "add_edges": added}

    def expected(self):
        nodes = np.setdiff1d(np.arange(len(self.data.x)), self.gone)
        return cfe.EvidenceFinder.from_data(self.data, model, nodes=nodes, **self.options)


@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.booleans())
def test_every_version_equals_a_new_finder(seed, index, directed):
    mirror = Mirror(seed, index, directed)
    for _ in range(3):
        before = mirror.finder.vectors, mirror.finder.labels, mirror.gone
        mirror.finder, changed = mirror.finder.updated(**mirror.change())
        expected = mirror.expected()
        assert_same_evidence(mirror.finder, expected)
        n = len(before[0])
        differs = (before[0] != expected.vectors[:n]).any(axis=1) | (
            before[1] != expected.labels[:n]
        )
        differs[mirror.gone] = False
        assert_array_equal(changed, [*np.flatnonzero(differs), *range(n, len(expected.labels))])


@pytest.mark.parametrize("index", KINDS)
def test_the_old_finder_answers_as_before(index):
    mirror = Mirror(0, index, False)
    old, expected = mirror.finder, mirror.expected()
    local, pairs = old.local([3, 4], k=3), old.top_pairs(5)
    frames = local.to_frame(), pairs.to_frame()
    mirror.finder, _ = old.updated(**mirror.change())
    assert_same_evidence(mirror.finder, mirror.expected())
    assert_same_evidence(old, expected)
    pd.testing.assert_frame_equal(local.to_frame(), frames[0])
    pd.testing.assert_frame_equal(pairs.to_frame(), frames[1])
    assert local.finder is old
    with pytest.raises(AttributeError, match="labels"):
        old.labels = mirror.finder.labels
    assert_same_evidence(pickle.loads(pickle.dumps(mirror.finder)), mirror.finder)


def test_predictions_spare_the_call_of_the_model():
    data = drawn_data(1)
    finder = cfe.EvidenceFinder.from_data(data, model)
    predicted = np.arange(N) % 3
    finder, changed = finder.updated(add_edges=[[0], [1]], predictions=predicted)
    assert_array_equal(finder.labels, predicted)
    assert finder.model is None
    assert {0, 1} <= set(changed.tolist())
    with pytest.raises(ValueError, match=r"predictions must be given .* since the finder"):
        finder.updated(add_edges=[[0], [2]])
    assert_array_equal(finder.updated(predictions=predicted)[1], [])
    finder, changed = finder.updated(predictions=np.roll(predicted, 1))
    assert_array_equal(changed, np.arange(N))
    assert_array_equal(finder.index.members().labels, np.roll(predicted, 1))


def test_only_searched_nodes_are_in_the_index():
    finder = cfe.EvidenceFinder.from_data(drawn_data(2), model, nodes=np.arange(10))
    finder, _ = finder.updated(
        x={20: [0, 0, 0.1], 3: [0, 0.1, 0]}, add_nodes=[[0.1, 0.1, 0.1]], remove_nodes=[4, 21]
    )
    assert_array_equal(finder.index.members().ids, [0, 1, 2, 3, 5, 6, 7, 8, 9, N])
    assert_array_equal(finder.index.reconstruct_batch([3, N]), finder.vectors[[3, N]])


def test_left_out_columns_and_ids():
    data = drawn_data(3)
    data.feature_names, data.node_ids = ["a", "b", "c"], [f"p{i}" for i in range(N)]
    finder = cfe.EvidenceFinder.from_data(data, model, without=["b"])
    row = [0.1, 9.0, 0.2]
    frame = pd.DataFrame(np.zeros((N + 1, 1)), columns=["kind"])
    with pytest.raises(ValueError, match="features must hold the attributes of all rows"):
        finder.updated(x={"p4": row})
    finder, changed = finder.updated(
        x={"p4": row}, add_nodes=[row], ids=["new"], add_edges=[["new"], ["p0"]], features=frame
    )
    assert {"p4", "new", "p0"} <= set(changed.tolist())
    assert finder.data.x[4].tolist() == pytest.approx(row)
    assert (finder.data.edge_index[:, -2:] == torch.tensor([[0, N], [N, 0]])).all()
    expected = cfe.ks_vectors(finder.data.x[:, [0, 2]], finder.graph)
    assert_array_equal(finder.vectors, expected)
    assert finder.local(["new"], 1).to_frame()["node"].tolist() == ["new"]
    with pytest.raises(ValueError, match="ids must be given for 1 new rows, got None"):
        finder.updated(add_nodes=[row], features=frame)


@pytest.mark.filterwarnings("ignore:class .* never among the others:cfe_faiss.InputWarning")
def test_true_classes_and_masks_of_new_nodes_are_unknown():
    data = drawn_data(4)
    data.y, data.train_mask = torch.ones(N, dtype=torch.long), torch.ones(N, dtype=torch.bool)
    finder = cfe.EvidenceFinder.from_data(data, model)
    finder, _ = finder.updated(add_nodes=[[1.0, 0.0, 0.0]])
    assert finder.truth is not None
    assert finder.truth.tolist() == [1] * N + [-1]
    assert finder.data.y.tolist() == [1] * N + [-1]
    assert finder.data.train_mask.tolist() == [True] * N + [False]
    assert data.y.tolist() == [1] * N


def test_features_of_integers_stay_integers():
    data = Data(x=torch.arange(12).reshape(4, 3), edge_index=torch.tensor([[0, 1], [1, 0]]))
    finder = cfe.EvidenceFinder.from_data(data, lambda x, edge_index: x[:, 0] % 2)
    with pytest.raises(ValueError, match=r"x .*got float64"):
        finder.updated(x={1: [0.5, 1.0, 2.0]})
    finder, _ = finder.updated(x={1: [5.0, 1.0, 2.0]})
    assert finder.data.x[1].tolist() == [5, 1, 2]
    assert finder.data.x.dtype == torch.int64


def test_data_with_values_of_edges_needs_predictions():
    data = drawn_data(5)
    data.edge_weight = torch.ones(data.edge_index.shape[1])

    def weighted(x, edge_index, edge_weight):
        return model(x, edge_index)

    finder = cfe.EvidenceFinder.from_data(data, weighted, edge_weight=True)
    arguments = {"add_edges": [[0], [9]], "edge_weight": [2.0]}
    with pytest.raises(ValueError, match=r"predictions must be given .* its data has values"):
        finder.updated(**arguments)
    finder, _ = finder.updated(**arguments, predictions=np.arange(N) % 2)
    assert finder.data is None
    assert_array_equal(finder.vectors, cfe.ks_vectors(data.x, finder.graph))


def test_vectors_without_a_graph():
    X = np.random.default_rng(0).normal(size=(20, D)).astype(np.float32)
    finder = cfe.EvidenceFinder.from_vectors(
        X, lambda X: X[:, 0] > 0, ids=[f"p{i}" for i in range(20)]
    )
    finder, changed = finder.updated(
        x={"p3": 4 * X[7]}, add_nodes=X[8:9], ids=["q"], remove_nodes=["p5", "p6"]
    )
    assert changed.tolist() == ["p3", "q"]
    after = np.concatenate([X, X[8:9]])
    after[3] = 4 * X[7]
    expected = cfe.EvidenceFinder.from_vectors(
        after, after[:, 0] > 0, nodes=np.setdiff1d(np.arange(21), [5, 6])
    )
    found = finder.local(k=3)
    assert_array_equal(found.evidence, expected.local(k=3).evidence)
    assert_array_equal(found.similarity, expected.local(k=3).similarity)
    for arguments, message in (
        ({"x": {"p5": X[0]}}, "x must be in the index, got 'p5'"),
        ({"add_edges": [[0], [1]]}, "add_edges is for a finder with a graph"),
        ({"x": {"p3": X[0]}, "remove_nodes": ["p3"]}, "x must name rows that stay"),
        ({"x": {"p3": X[0, :2]}}, r"x must have rows of shape \(3,\), got \(2,\) for node 'p3'"),
        ({"x": {"p3": [np.nan, 0, 0]}}, "x must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            finder.updated(**arguments)


def test_a_table_gets_new_predictions_and_loses_rows():
    frame = pd.DataFrame(
        {"id": list("abcd"), "income": [30, 31, 50, 80], "loan": ["1", "2", "1", "2"]}
    )
    finder = cfe.EvidenceFinder.from_table(frame, "loan", id="id")
    finder, changed = finder.updated(predictions=[2, 2, 1, 2])
    assert changed.tolist() == ["a"]
    assert finder.labels.tolist() == [1, 1, 0, 1]
    finder, _ = finder.updated(remove_nodes=["b"], predictions=["2", "2", "1", "2"])
    assert finder.local(["c"], 3).to_frame()["evidence"].tolist() == ["a", "d"]
    with pytest.raises(ValueError, match="x and add_nodes must be left out for a table"):
        finder.updated(x={"a": [1.0]}, predictions=["2", "2", "1", "2"])
    with pytest.raises(ValueError, match="predictions must be among the class names"):
        finder.updated(predictions=["2", "2", "1", "3"])


@pytest.mark.filterwarnings("ignore:no predicted class:cfe_faiss.InputWarning")
@pytest.mark.parametrize("index", KINDS)
@pytest.mark.parametrize("way", ["graph", "vectors", "table"])
def test_rows_lose_and_get_their_class(way, index):
    rng = np.random.default_rng(0)
    data = drawn_data(0)
    if way == "table":
        table = pd.DataFrame(data.x.numpy(), columns=list("abc"))
        make = partial(cfe.EvidenceFinder.from_table, table, index="EvidenceFlat")
    elif way == "vectors":
        make = partial(cfe.EvidenceFinder.from_vectors, data.x, index=index)
    else:
        make = partial(cfe.EvidenceFinder.from_data, data, index=index)
    versions = []
    for share in (0.2, 0, 0.5, 0.3, 0):
        labels = rng.integers(0, 2, N)
        labels[rng.random(N) < share] = -1
        versions.append(labels)
    finder = make(versions[0])
    part = make(np.abs(versions[0]), nodes=np.arange(20))
    for labels in versions:
        expected = make(labels)
        changed_before = finder.labels != labels
        finder, changed = finder.updated(predictions=labels)
        assert_array_equal(changed, np.flatnonzero(changed_before))
        assert_array_equal(finder.index.members().ids, expected.index.members().ids)
        for name in ("ids", "labels"):
            values = [getattr(one.index.members(), name) for one in (finder, expected)]
            assert_array_equal(*values)
        found = [one.local(k=4, exact=True).evidence for one in (finder, expected)]
        assert_array_equal(*found)
        part, _ = part.updated(predictions=labels)
        assert part.index.members().ids.max() < 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"remove_edges": [[0], [0]]}, "remove_edges must hold edges of the graph"),
        ({"add_edges": [[0, 1]]}, r"add_edges must have shape \(2, m\), got \(1, 2\)"),
        ({"add_edges": [[0], [N + 1]]}, "add_edges must lie in"),
        ({"edge_weight": [1.0]}, "edge_weight must be None"),
        ({"add_nodes": [[1.0]]}, r"add_nodes must have shape \(n, 3\)"),
        ({"predictions": [0, 1]}, "predictions must be classes of shape"),
        ({"ids": [7]}, "ids must be left out"),
    ],
)
def test_a_refused_update_changes_nothing(arguments, message):
    finder, expected = (cfe.EvidenceFinder.from_data(drawn_data(6), model) for _ in range(2))
    with pytest.raises(ValueError, match=message):
        finder.updated(**({"x": {0: [0.1, 0.1, 0.1]}} | arguments))
    assert_same_evidence(finder, expected)


@pytest.mark.parametrize("index", ["EvidenceFlat", "EvidenceIVF4,Flat"])
@pytest.mark.parametrize("step", [151, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_error_at_any_line_leaves_the_finder_as_it_is(index, error, step):
    def made():
        mirror = Mirror(7, index, False)
        finder, arguments = mirror.finder, mirror.change()
        return finder, lambda: finder.updated(**arguments)

    old, change = made()
    new, _ = change()
    line = 1 + (error is MemoryError)
    while True:
        finder, change = made()
        raised = raises_at(line, error, change)
        assert_same_evidence(finder, old)
        assert_same_evidence(change()[0], new)
        if not raised:
            break
        line += step
