import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GCNConv, PairNorm

import cfe_faiss as cfe
from cfe_faiss import audit, models
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.audit.flipping import adjacency
from cfe_faiss.audit.intervals import wilson

# of models that do not predict one class only
SEEDS = {"gcn": 0, "gat": 0, "gin": 0, "mpnn": 1, "sage": 0}
NAMES = ["sex", "a", "b", "c"]


def graph(n, edges, seed=0):
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((n, 4)).astype(np.float32)
    raw[:, 0] = rng.integers(0, 2, n)
    ends = rng.integers(0, n, (2, edges))
    x = torch.tensor((raw - raw.mean(axis=0)) / raw.std(axis=0))
    return Data(
        x=x,
        x_raw=torch.tensor(raw),
        edge_index=torch.tensor(np.concatenate([ends, ends[::-1]], axis=1)),
        y=torch.tensor(rng.integers(0, 2, n)),
        feature_names=NAMES,
        train_mask=torch.ones(n, dtype=torch.bool),
    )


def flip(model, data, name, **options):
    """Return the test of a finder without KS vectors, which a flip does not need."""
    labels = np.zeros(len(data.x), np.int32)
    finder = cfe.EvidenceFinder(
        np.zeros((len(labels), 1), np.float32), labels, cfe.IndexEvidenceIDMap2(1)
    )
    return audit.flip(
        replace(finder, model=model, data=data, attributes=as_attributes(data)), name, **options
    )


def naive(model, data, nodes, values=None, column=0):
    """Return node, value given and class after, one pass of the model for each."""
    raw = data.x_raw[:, column].numpy()
    scaled = {
        float(value): data.x[int(np.flatnonzero(raw == value)[0]), column]
        for value in np.unique(raw)
    }
    found = []
    for node in nodes:
        for value in sorted(scaled) if values is None else values:
            if value == raw[node]:
                continue
            values_of = data.x[:, column].clone()
            values_of[node] = scaled[value]
            changed = with_column(data, column, values_of)
            found.append((int(node), value, int(models.predict(model, changed)[node])))
    return found


def with_column(data, column, values):
    """Return the data with values in a column of the features."""
    changed = copy.copy(data)
    changed.x = data.x.clone()
    changed.x[:, column] = values
    return changed


def entries(test):
    return list(zip(test.node.tolist(), test.flipped.tolist(), test.after.tolist(), strict=True))


@pytest.mark.parametrize("kind", models.NAMES)
def test_one_at_a_time_equals_the_naive_loop(kind):
    data = graph(80, 64)
    model = models.build(kind, data, seed=SEEDS[kind])
    features = data.x.clone()
    test = flip(model, data, "sex")
    assert torch.equal(data.x, features)
    assert entries(test) == naive(model, data, range(80))
    assert 1 <= test.hops <= 4
    np.testing.assert_array_equal(test.before, models.predict(model, data)[test.node])
    assert test.changed.any()
    assert not test.changed.all()


class Deep(torch.nn.Module):
    """Ten steps of propagation in one layer."""

    def __init__(self):
        super().__init__()
        self.linear, self.steps = torch.nn.Linear(4, 2), APPNP(10, 0.1)

    def forward(self, x, edge_index):
        return self.steps(self.linear(x), edge_index)


class Normed(torch.nn.Module):
    """A layer whose normalisation sees all nodes."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = GCNConv(4, 2), PairNorm()

    def forward(self, x, edge_index):
        return self.norm(self.conv(x, edge_index))


def test_reach_is_that_of_the_model():
    torch.manual_seed(0)
    chain = graph(60, 0)
    ends = torch.arange(59)
    chain.edge_index = torch.stack([torch.cat([ends, ends + 1]), torch.cat([ends + 1, ends])])
    deep = Deep()
    test = flip(deep, chain, "sex")
    assert test.hops == 10
    assert entries(test) == naive(deep, chain, range(60))
    normed = Normed()
    alone = flip(normed, chain, "sex")
    assert alone.hops == 60
    assert entries(alone) == naive(normed, chain, range(60))
    pieces = graph(60, 30)
    alone = flip(normed, pieces, "sex")
    assert alone.hops is None
    assert entries(alone) == naive(normed, pieces, range(60))
    blind = flip(lambda x, edge_index: x[:, :2], chain, "sex")
    assert blind.hops == 0
    # Classes hide NaN: each node gets a pass of its own.
    classes = flip(lambda x, edge_index: (x[:, 0] > x[:, 1]).long(), chain, "sex")
    assert classes.hops is None
    found = entries(classes)
    assert found == naive(lambda x, edge_index: (x[:, 0] > x[:, 1]).long(), chain, range(60))


def test_hops_that_are_too_few_are_found_out():
    data = graph(40, 60)

    def neighbours(x, edge_index):
        total = torch.zeros(len(x)).index_add(0, edge_index[1], x[edge_index[0], 0])
        return torch.stack([total, torch.zeros(len(x))], dim=1)

    with pytest.raises(ValueError, match="hops must be as far as the model reaches, got 0"):
        flip(neighbours, data, "sex", hops=0)
    assert entries(flip(neighbours, data, "sex", hops=1)) == naive(neighbours, data, range(40))


def test_all_at_once_exchanges_two_values():
    data = graph(100, 150)
    model = models.gcn(data, seed=2)
    test = flip(model, data, "sex", at_once=True)
    low, high = data.x[:, 0].min(), data.x[:, 0].max()
    changed = with_column(data, 0, torch.where(data.x[:, 0] == low, high, low))
    np.testing.assert_array_equal(test.after, models.predict(model, changed))
    np.testing.assert_array_equal(test.flipped, 1 - data.x_raw[:, 0].numpy())
    assert repr(test) == f"FlipTest(sex, all at once: {test.changed.sum()} of 100 nodes change)"
    with pytest.raises(ValueError, match="hops must not be given with at_once"):
        flip(model, data, "sex", at_once=True, hops=2)


def test_more_values_and_some_nodes():
    data = graph(80, 100)
    rng = np.random.default_rng(3)
    data.x_raw[:, 2] = torch.tensor(rng.integers(1, 4, 80) * 10.0)
    data.x[:, 2] = (data.x_raw[:, 2] - 20) / 8
    model = models.gcn(data, seed=4)
    nodes = np.array([3, 9, 40, 41])
    test = flip(model, data, "b", nodes=nodes)
    assert entries(test) == naive(model, data, nodes, column=2)
    assert len(test) == 8
    some = flip(model, data, "b", values=[30, 10])
    assert entries(some) == naive(model, data, range(80), [10.0, 30.0], column=2)
    at_once = flip(model, data, "b", values=[10], at_once=True)
    expected = models.predict(model, with_column(data, 2, (10 - 20) / 8))[at_once.node]
    np.testing.assert_array_equal(at_once.after, expected)
    assert (data.x_raw[at_once.node, 2] != 10).all()
    with pytest.raises(ValueError, match="values must be given"):
        flip(model, data, "a")
    with pytest.raises(ValueError, match="values must be among those that occur"):
        flip(model, data, "b", values=[15])


def test_columns_of_one_attribute_move_together():
    rng = np.random.default_rng(5)
    n = 40
    colour = rng.integers(0, 3, n)
    raw = np.zeros((n, 4), np.float32)
    raw[np.arange(n), colour] = 1
    raw[:2, :3] = 0
    raw[:, 3] = rng.standard_normal(n)
    x = torch.tensor(raw) * torch.tensor([2.0, 3.0, 4.0, 1.0]) - 1
    names = ["colour=red", "colour=green", "colour=blue", "a"]
    data = Data(
        x=x,
        x_raw=torch.tensor(raw),
        edge_index=torch.zeros(2, 0, dtype=torch.long),
        feature_names=names,
    )
    seen = []

    def model(x, edge_index):
        seen.append(x.clone())
        return torch.stack([x[:, 0], x[:, 1] + x[:, 2]], dim=1)

    columns = {"red": names[0], "green": names[1], "blue": names[2]}
    test = flip(model, data, "colour", columns=columns)
    assert test.unknown == 2
    assert len(test) == 2 * (n - 2)
    assert set(test.value) == {"red", "green", "blue"}
    possible = {(1.0, -1.0, -1.0), (-1.0, 2.0, -1.0), (-1.0, -1.0, 3.0), (-1.0, -1.0, -1.0)}
    found = {tuple(row) for x in seen for row in x[:, :3].tolist() if not np.isnan(row).any()}
    assert found == possible
    data.feature_attributes = ["colour"] * 3 + ["a"]
    pd.testing.assert_frame_equal(flip(model, data, "colour").to_frame(), test.to_frame())


def test_rates_by_direction_and_group():
    raw = np.array([[0, 5], [0, 5], [0, 9], [1, 9], [1, 5], [np.nan, 5]], np.float32)
    data = SimpleNamespace(
        x=torch.tensor(np.nan_to_num(raw, nan=0.5)),
        x_raw=torch.tensor(raw),
        edge_index=torch.zeros(2, 0, dtype=torch.long),
        feature_names=["sex", "age"],
    )

    def model(x, edge_index):
        return torch.stack([x[:, 0] * (x[:, 1] < 6), torch.full((len(x),), 0.7)], dim=1)

    test = flip(model, data, "sex", by=["age"])
    assert test.unknown == 1
    assert test.to_frame()["changed"].tolist() == [True, True, False, False, True]
    rates = test.rates.set_index(["feature", "group", "value", "flipped"])
    assert rates.loc[("all", "all", "all", "all"), ["nodes", "changed"]].tolist() == [5, 3]
    assert rates.loc[("all", "all", 0, 1), ["nodes", "changed"]].tolist() == [3, 2]
    assert rates.loc[("age", "5", 1, 0), ["nodes", "changed", "share"]].tolist() == [1, 1, 1]
    assert rates.loc[("age", "9", "all", "all"), ["nodes", "changed"]].tolist() == [2, 0]
    low, high = wilson([3], [5])
    assert rates.loc[("all", "all", "all", "all"), ["low", "high"]].tolist() == [low[0], high[0]]
    expected = [[0, 1, 1, 0, 2], [0, 1, 1, 1, 1], [1, 0, 0, 1, 1], [1, 0, 1, 1, 1]]
    assert test.transitions.values.tolist() == expected
    assert test.changed_nodes.tolist() == [0, 1, 4]


def test_an_estimator_sees_its_own_features_only():
    data = graph(120, 100, seed=6)
    x = data.x.numpy()
    model = LogisticRegression().fit(x, x[:, 0] + x[:, 1] > 0)
    bare = SimpleNamespace(x=x, x_raw=data.x_raw.numpy(), feature_names=NAMES)
    test = flip(model, bare, "sex")
    changed = x.copy()
    changed[:, 0] = np.where(x[:, 0] == x[:, 0].min(), x[:, 0].max(), x[:, 0].min())
    np.testing.assert_array_equal(test.after, model.predict(changed))
    assert test.hops == 0
    assert test.changed.any()
    with pytest.raises(ValueError, match="hops must not be given for a model that sees"):
        flip(model, bare, "sex", hops=1)
    with pytest.raises(ValueError, match="finder must have a model"):
        flip(None, bare, "sex")


@pytest.mark.filterwarnings(
    "ignore:Sparse CSR tensor support is in beta", "ignore:Sparse invariant checks"
)
def test_adj_t_and_directed_edges():
    data = graph(60, 90)
    # some edges lead in one direction only
    data.edge_index = torch.unique(data.edge_index[:, ::2], dim=1)
    model = GCNConv(4, 2)
    values = torch.ones(data.edge_index.shape[1])
    matrix = torch.sparse_coo_tensor(
        data.edge_index.flip(0), values, (60, 60), check_invariants=True
    ).to_sparse_csr()
    given = Data(
        **{name: value for name, value in data.to_dict().items() if name != "edge_index"},
        adj_t=matrix,
    )
    test = flip(model, given, "sex")
    assert entries(test) == entries(flip(model, data, "sex")) == naive(model, data, range(60))
    assert (adjacency(given, 60) != adjacency(data, 60)).nnz == 0


def test_what_is_refused():
    data = graph(20, 20)
    model = models.gcn(data, seed=0)
    constant, scaled = copy.copy(data), copy.copy(data)
    constant.x_raw = torch.zeros(20, 4)
    scaled.x = data.x + torch.arange(20)[:, None]
    lone = SimpleNamespace(x=data.x_raw, edge_index=None, feature_names=NAMES)
    for of, name, options, error, message in (
        (data, "age", {}, ValueError, "name must be a feature"),
        (data, "colour", {"columns": {"red": "red"}}, ValueError, "columns must name features"),
        (data, "sex", {"nodes": [20]}, ValueError, "nodes must lie in"),
        (data, "sex", {"by": "a"}, TypeError, "by must be a sequence"),
        (constant, "sex", {}, ValueError, "two values at least"),
        (scaled, "sex", {}, ValueError, "one value for each of"),
        (lone, "sex", {}, ValueError, "data must have edge_index"),
    ):
        with pytest.raises(error, match=message):
            flip(model, of, name, **options)


def test_values_of_a_table_may_be_given_as_they_are():
    table = pd.DataFrame(
        {"member": [True, False] * 4, "code": pd.Categorical([1, 2] * 4), "income": np.arange(8.0)}
    )
    finder = cfe.EvidenceFinder.from_table(
        table, lambda frame: (frame["income"] + 4 * frame["member"] > 5).to_numpy()
    )
    for name, values in (("member", [True]), ("member", "True"), ("code", [1])):
        expected = {str(values if values == "True" else values[0])}
        assert set(audit.flip(finder, name, values=values).flipped) == expected
