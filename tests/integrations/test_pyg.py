"""Evidence beside PyG's explanations: real explainers of real models, on a small real graph."""

import math
from unittest import TestCase

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch_geometric.explain import DummyExplainer, Explainer, GNNExplainer, ThresholdConfig
from torch_geometric.nn.models import GCN, GraphSAGE

import cfe_faiss as cfe
from cfe_faiss.datasets import load
from cfe_faiss.integrations.pyg import EvidenceExplainer, explain_beside
from cfe_faiss.models import gcn, train

CONFIG = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


@pytest.fixture(scope="module")
def patients():
    return load("patients")


@pytest.fixture(scope="module")
def model(patients):
    torch.manual_seed(0)
    model = GCN(30, 8, 2, 2)
    train(model, patients, epochs=40)
    return model


@pytest.fixture(scope="module")
def finder(patients, model):
    return cfe.EvidenceFinder.from_data(patients, model)


@pytest.fixture(scope="module")
def node(finder):
    """Return a node that has a neighbour for evidence, so that the model reads from some edges for both."""
    return int(finder.top_pairs(1).source[0])


def explainer(model, algorithm=None, **options):
    algorithm = GNNExplainer(epochs=8) if algorithm is None else algorithm
    masks = {"node_mask_type": "attributes", "edge_mask_type": "object"} | options
    return Explainer(model, algorithm, explanation_type="model", model_config=CONFIG, **masks)


@pytest.fixture(scope="module")
def explained(patients, model, finder, node):
    torch.manual_seed(1)
    return explain_beside(explainer(model), finder, patients, node, k=3)


def test_the_evidence_is_the_finders(explained, finder, node):
    found = finder.local([node], k=3)
    assert_array_equal(explained.nodes, [node, *found.evidence[0]])
    assert_array_equal(explained.found.similarity, found.similarity)
    assert len(explained.explanations) == 4
    assert repr(explained) == f"ExplainedEvidence(node {node}, 3 evidence, node_mask and edge_mask)"
    assert [int(one.index) for one in explained.explanations] == explained.nodes.tolist()


def test_importance_is_that_of_the_masks(explained):
    features, edges = explained.feature_importance(), explained.edge_importance()
    assert features.shape == (4, 30)
    assert edges.shape == (4, explained.data.num_edges)
    for row, one in zip(features, explained.explanations, strict=True):
        total = one.node_mask.sum(dim=0)  # as visualize_feature_importance sums
        assert_allclose(row, total / total.max(), rtol=1e-6)
    for row, one in zip(edges, explained.explanations, strict=True):
        assert_allclose(row, one.edge_mask / one.edge_mask.max(), rtol=1e-6)
        assert 0 < (row > 0).sum() < len(row)


def test_table_of_features(explained, patients):
    table = explained.features(top=5)
    importance = explained.feature_importance()
    names = patients.feature_names
    for place, (other, part) in enumerate(table.groupby("evidence", sort=False), start=1):
        assert other == explained.nodes[place]
        node = explained.nodes[0]
        best = [set(np.argsort(-importance[row])[:5]) for row in (0, place)]
        columns = [names.index(name) for name in part["feature"]]
        assert set(columns) == best[0] | best[1]
        assert part["node_importance"].is_monotonic_decreasing
        assert part["shared"].tolist() == [column in best[0] & best[1] for column in columns]
        assert_allclose(part["evidence_importance"], importance[place, columns])
        assert_allclose(part["node_value"], patients.x_raw[node, columns])
        assert_allclose(part["evidence_value"], patients.x_raw[other, columns])
        # x is standardised already
        expected = patients.x[other, columns] - patients.x[node, columns]
        assert_allclose(part["difference"], expected, rtol=1e-3)
    assert list(table["evidence"].unique()) == explained.nodes[1:].tolist()


def test_table_of_edges(explained, patients):
    table = explained.edges(top=4)
    importance = explained.edge_importance()
    wanted = patients.edge_index[:, table["edge"]]
    assert_array_equal(table[["source", "target"]].to_numpy().T, wanted)
    for place, (_, part) in enumerate(table.groupby("evidence", sort=False), start=1):
        edges = part["edge"].to_numpy()
        expected = set(np.argsort(-importance[0])[:4]) | set(np.argsort(-importance[place])[:4])
        assert set(edges) == expected
        read = (importance[0, edges] > 0) & (importance[place, edges] > 0)
        assert part["shared"].tolist() == read.tolist()


def test_table_of_the_evidence(explained):
    frame = explained.to_frame(top=5)
    pd.testing.assert_frame_equal(frame.iloc[:, :6], explained.found.to_frame())
    importance, x = explained.feature_importance(), explained.data.x.numpy()
    best = np.argsort(-importance[0])[:5]
    for place, (_, line) in enumerate(frame.iterrows(), start=1):
        change = ((x[explained.nodes[place]] - x[explained.nodes[0]]) / x.std(axis=0)) ** 2
        found = line["explained_difference"]
        assert found == pytest.approx(change[best].sum() / change.sum(), rel=1e-4)
        assert line["shared_features"] == len(set(best) & set(np.argsort(-importance[place])[:5]))
    assert frame["shared_edges"].iloc[0] > 0
    assert explained.to_frame(top=30)["explained_difference"].tolist() == pytest.approx([1, 1, 1])


def test_figure(explained, patients):
    figure = explained.figure(top=6)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert f"node {explained.nodes[0]}, predicted malignant" in texts[0]
    importance = explained.feature_importance()[0]
    best = np.argsort(-importance)[:6]
    bars = [
        bar.get_width()
        for axes in figure.axes
        for bar in axes.patches
        if 0 < bar.get_height() < 0.9
    ]
    assert_allclose(bars, importance[best])
    for name in np.array(patients.feature_names)[best]:
        assert any(name in text for text in texts)
    assert sum("evidence 2, " in text for text in texts) == 1


def test_figure_without_masks_of_edges(patients, model, finder, node):
    alone = explain_beside(explainer(model, edge_mask_type=None), finder, patients, node, k=5)
    assert alone.figure().axes
    assert "shared_edges" not in alone.to_frame()
    with pytest.raises(ValueError, match="must have edge_mask: set edge_mask_type of the"):
        alone.edges()


@pytest.mark.parametrize("kind", ["object", None])
def test_without_masks_of_features(patients, model, finder, node, kind):
    explained = explain_beside(explainer(model, node_mask_type=kind), finder, patients, node, k=1)
    assert list(explained.to_frame().columns)[-2:] == ["evidence_label", "shared_edges"]
    assert len(explained.edges(top=2)) >= 2
    message = "must have node_mask: set node_mask_type"
    if kind:
        message = "node_mask must have a column for each of 30 features"
    for method in (explained.features, explained.figure):
        with pytest.raises(ValueError, match=message):
            method()


@pytest.mark.parametrize("kind", ["common_attributes", "attributes"])
def test_other_masks_and_models(patients, kind):
    torch.manual_seed(3)
    for build in (lambda: GraphSAGE(30, 8, 2, 2), lambda: gcn(patients)):
        model = build()
        train(model, patients, epochs=20)
        finder = cfe.EvidenceFinder.from_data(patients, model)
        mode = [part.training for part in model.modules()]
        explained = explain_beside(
            explainer(model, node_mask_type=kind), finder, patients, node=97, k=1
        )
        assert explained.feature_importance().max(axis=1).tolist() == [1, 1]
        assert len(explained.features(top=3)) >= 3
        assert [part.training for part in model.modules()] == mode


def test_weights_of_edges_reach_the_explainer(patients):
    weighted = patients.clone()
    weighted.edge_weight = torch.linspace(0.5, 2, patients.num_edges)
    torch.manual_seed(0)
    model = GCN(30, 8, 2, 2)
    train(model, weighted, epochs=20)
    finder = cfe.EvidenceFinder.from_data(weighted, model)
    weights = {"edge_weight": weighted.edge_weight}
    ready = explainer(model, DummyExplainer())
    explained = explain_beside(ready, finder, weighted, 97, k=1, call_with=weights)
    assert explained.explanations[0].edge_weight is weighted.edge_weight


def test_what_a_model_requires_may_be_given_with_the_call(patients):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = GCN(30, 8, 2, 2)

        def forward(self, x, edge_index, scale):
            return self.network(x * scale, edge_index)

    torch.manual_seed(0)
    model = Scaled()
    with torch.no_grad():
        labels = model(patients.x, patients.edge_index, 2.0).argmax(dim=1)
    finder = cfe.EvidenceFinder.from_data(patients, labels)
    node = int(finder.top_pairs(1).source[0])
    explained = explain_beside(
        explainer(model), finder, patients, node, k=1, call_with={"scale": 2.0}
    )
    assert explained.explanations[0].scale == 2
    assert not hasattr(patients, "scale")


@pytest.mark.filterwarnings("ignore:class .* never among the others:cfe_faiss.InputWarning")
def test_errors_of_explain_beside(patients, model, finder, node):
    with pytest.raises(TypeError, match="explainer must be an Explainer of PyG, got GNNExplainer"):
        explain_beside(GNNExplainer(), finder, patients, node)
    with pytest.raises(TypeError, match=r"finder .*got IndexEvidenceIDMap2"):
        explain_beside(explainer(model), finder.index, patients, node)
    with pytest.raises(ValueError, match=r"node must lie in 0..568, got 569"):
        explain_beside(explainer(model), finder, patients, 569)
    with pytest.raises(ValueError, match="data must have the finder's 569 nodes, got 500"):
        explain_beside(explainer(model), finder, patients.subgraph(torch.arange(500)), node)
    same = cfe.EvidenceFinder.from_data(patients, np.zeros(569, int))
    message = f"node must have evidence, got {node}: all searched nodes are predicted"
    with pytest.raises(ValueError, match=message):
        explain_beside(explainer(model), same, patients, node)
    other = cfe.EvidenceFinder.from_data(patients, 1 - finder.labels)
    message = f"finder must hold the classes .* for node {node}, for which the model"
    with pytest.raises(ValueError, match=message):
        explain_beside(explainer(model), other, patients, node)


@pytest.fixture(scope="module")
def evidence(finder, node):
    return finder.local([node], k=4)


def of_evidence(model, finder, kind="attributes", k=4, **options):
    algorithm = EvidenceExplainer(finder, k=k, **options)
    return Explainer(model, algorithm, "model", CONFIG, node_mask_type=kind)


def test_an_explanation_by_evidence(patients, model, finder, node, evidence):
    explanation = of_evidence(model, finder)(patients.x, patients.edge_index, index=node)
    assert explanation.validate()
    assert_array_equal(explanation.evidence, evidence.evidence[0])
    assert_array_equal(explanation.similarity, evidence.similarity[0])
    assert_array_equal(explanation.evidence_label, finder.labels[evidence.evidence[0]])
    mask = explanation.node_mask.numpy()
    assert not np.delete(mask, node, axis=0).any()
    x = patients.x.numpy()
    expected = np.abs((x[evidence.evidence[0]] - x[node]) / x.std(axis=0)).mean(axis=0)
    assert_allclose(mask[node], expected / expected.max(), rtol=1e-3)


def test_kinds_of_node_masks(patients, model, finder, node, evidence):
    rows = of_evidence(model, finder)(patients.x, patients.edge_index, index=node).node_mask
    common = of_evidence(model, finder, "common_attributes")(
        patients.x, patients.edge_index, index=torch.tensor([node])
    )
    assert torch.equal(common.node_mask, rows[[node]])
    objects = of_evidence(model, finder, "object")(
        patients.x, patients.edge_index, index=node
    ).node_mask
    assert objects.shape == (569, 1)
    assert objects[node] == 1
    assert set(objects.flatten().nonzero().flatten().tolist()) == {node, *evidence.evidence[0]}
    assert_array_equal(objects[evidence.evidence[0], 0], evidence.similarity[0])


def test_pygs_own_tools_take_it(patients, model, finder, node, tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    algorithm = EvidenceExplainer(finder, k=2)
    top = Explainer(
        model, algorithm, "model", CONFIG, "attributes", threshold_config=ThresholdConfig("topk", 3)
    )
    explanation = top(patients.x, patients.edge_index, index=node)
    assert int((explanation.node_mask > 0).sum()) == 3
    explanation.visualize_feature_importance(
        str(tmp_path / "f.png"), patients.feature_names, top_k=3
    )
    assert (tmp_path / "f.png").stat().st_size > 1000
    assert repr(algorithm).startswith("EvidenceExplainer(EvidenceFinder(569 nodes")


def test_evidence_under_constraints_and_no_evidence(patients, model, finder, node):
    apart = cfe.Constraints(min_hops=3)
    explanation = of_evidence(model, finder, where=apart)(
        patients.x, patients.edge_index, index=node
    )
    expected = finder.local([node], k=4, where=apart)
    assert_array_equal(explanation.evidence, expected.evidence[0][expected.evidence[0] >= 0])
    few = cfe.EvidenceFinder.from_data(
        patients, model, nodes=np.flatnonzero(finder.labels == finder.labels[node])
    )
    alone = of_evidence(model, few)(patients.x, patients.edge_index, index=node)
    assert alone.evidence.shape == (0,)
    assert not alone.node_mask.any()


def test_errors_of_the_algorithm(patients, model, finder, node):
    with pytest.raises(TypeError, match="finder must be an EvidenceFinder, got int"):
        EvidenceExplainer(3)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        EvidenceExplainer(finder, k=0)
    settings = [
        ({"edge_mask_type": "object"}, "has no masks of edges"),
        ({"explanation_type": "phenomenon"}, "explains a model's predictions only"),
        ({"model_config": {**CONFIG, "task_level": "graph"}}, "explains classes of nodes only"),
        ({"model_config": {"mode": "regression", "task_level": "node"}}, "classes of nodes only"),
    ]
    for change, reason in settings:
        given = {
            "explanation_type": "model",
            "node_mask_type": "attributes",
            "model_config": CONFIG,
        } | change
        refused = pytest.raises(ValueError, match="does not support the given explanation settings")
        with TestCase().assertLogs() as logged, refused:
            Explainer(model, EvidenceExplainer(finder), **given)
        assert reason in "".join(logged.output)
    ready = of_evidence(model, finder)
    with pytest.raises(ValueError, match="index must be one node, got None"):
        ready(patients.x, patients.edge_index)
    with pytest.raises(ValueError, match="index must be one node, got 2"):
        ready(patients.x, patients.edge_index, index=torch.tensor([1, 2]))
    part = patients.subgraph(torch.arange(500))
    with pytest.raises(ValueError, match=r"x .*got 500"):
        ready(part.x, part.edge_index, index=3)
    other = cfe.EvidenceFinder.from_data(patients, 1 - finder.labels)
    message = f"got class . for node {node}, for which the model predicts"
    with pytest.raises(ValueError, match=message):
        of_evidence(model, other)(patients.x, patients.edge_index, index=node)


def test_equal_nodes_have_no_difference_to_explain(patients, model):
    twins = patients.clone()
    twins.x = twins.x.clone()
    twins.x[1] = twins.x[0]
    labels = np.zeros(569, int)
    labels[1] = 1
    masks = {"node_mask_type": "attributes", "edge_mask_type": "object"}
    wrapped = Explainer(Classes(labels), DummyExplainer(), "model", CONFIG, **masks)
    finder = cfe.EvidenceFinder.from_data(twins, labels)
    explained = explain_beside(wrapped, finder, twins, 0, k=1)
    assert explained.nodes.tolist() == [0, 1]
    assert math.isnan(explained.to_frame()["explained_difference"].iloc[0])
    assert not explained.features()["difference"].any()


class Classes(torch.nn.Module):
    """Given classes, as logits."""

    def __init__(self, labels):
        super().__init__()
        self.logits = torch.nn.functional.one_hot(torch.as_tensor(labels)).float()

    def forward(self, x, edge_index):
        return self.logits
