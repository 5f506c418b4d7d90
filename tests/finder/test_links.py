"""Evidence of links: vectors, shared ends, ids, models, attributes, audits."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import cosine
from torch_geometric.data import Data
from torch_geometric.nn.models import GCN
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import coalesce

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.finder.links import link_vectors

N, D = 14, 5
KINDS = ["EvidenceFlat", "EvidenceIVF4,Flat"]


def world(seed, m=40, directed=False):
    """Return a graph, links of it, and the class of each link."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, N, (2, 20))
    data = SimpleNamespace(x=rng.normal(size=(N, D)), edge_index=edges)
    ends = rng.permutation(np.argwhere(np.triu(np.ones((N, N)), 1)))[:m]
    if directed:
        ends[::2] = ends[::2, ::-1]
    return data, ends, rng.integers(0, 3, m)


def shares_end(ends):
    """Return which pairs of links share an end, (m, m)."""
    return (ends[:, None, :, None] == ends[None, :, None, :]).any(axis=(2, 3))


def best(S, allowed, k):
    """Return the k best allowed rows of each row, -1 for none."""
    scores = np.where(allowed, S, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.where(np.isfinite(np.take_along_axis(scores, order, axis=1)), order, -1)


@given(
    st.integers(0, 10**6), st.sampled_from(KINDS), st.booleans(), st.booleans(), st.integers(1, 30)
)
def test_local_evidence_equals_brute_force(seed, index, directed, shared_ends, k):
    data, ends, labels = world(seed, directed=directed)
    options = {"directed": directed, "shared_ends": shared_ends, "index": index}
    finder = cfe.EvidenceFinder.from_links(data, labels, ends, **options)
    X = cfe.ks_vectors(data.x, data.edge_index, directed=directed)
    halves = np.sqrt(2) * finder.vectors.reshape(len(ends), 2, D)
    is_given, is_turned = (
        np.isclose(halves, X[order], atol=1e-6).all(axis=(1, 2)) for order in (ends, ends[:, ::-1])
    )
    assert is_given.all() if directed else (is_given | is_turned).all()
    allowed = labels[:, None] != labels
    if not shared_ends:
        allowed &= ~shares_end(ends)
    S = cosine(finder.vectors[:, None], finder.vectors[None])
    assert_array_equal(finder.local(k=k).evidence, best(S, allowed, k)[:, :k])
    some = [7, 3]
    assert_array_equal(finder.local(finder.names(some), k=k).evidence, best(S, allowed, k)[some])


@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 40), st.booleans())
def test_best_pairs_share_no_end(seed, shared_ends, k, per_node):
    data, ends, labels = world(seed)
    finder = cfe.EvidenceFinder.from_links(data, labels, ends, shared_ends=shared_ends)
    pairs = finder.top_pairs(k, per_node=per_node)
    S = cosine(finder.vectors[:, None], finder.vectors[None])
    allowed = (labels[:, None] != labels) & (shared_ends | ~shares_end(ends))
    if per_node:
        nearest = best(S, allowed, 1)
        allowed = (np.arange(len(ends)) == nearest) | (np.arange(len(ends)) == nearest).T
    source, target = np.nonzero(np.triu(allowed))
    order = np.lexsort((target, source, -S[source, target]))[:k]
    assert_array_equal(pairs.source, source[order])
    assert_array_equal(pairs.target, target[order])


@given(st.integers(0, 10**6), st.sampled_from([0.25, 0.6]))
def test_scores_of_links_differ_by_the_gap(seed, gap):
    data, ends, _ = world(seed)
    scores = np.random.default_rng(seed).random(len(ends))
    finder = cfe.EvidenceFinder.from_links(data, None, ends, scores=scores)
    S = cosine(finder.vectors[:, None], finder.vectors[None])
    wide = abs(scores[:, None] - scores) >= gap
    assert_array_equal(
        finder.local(k=4, min_gap=gap).evidence, best(S, wide & ~shares_end(ends), 4)
    )
    pairs = finder.widest_pairs(1000, similarity=-1)
    assert len(pairs) == np.triu(~shares_end(ends)).sum()


@given(st.integers(0, 10**6))
def test_the_order_of_ends_matters_for_directed_links_only(seed):
    data, ends, labels = world(seed)
    finders = [
        cfe.EvidenceFinder.from_links(data, labels, links) for links in (ends, ends[:, ::-1])
    ]
    assert_array_equal(finders[0].vectors, finders[1].vectors)
    one, other = (finder.attributes.to_frame() for finder in finders)
    assert one.equals(other)
    pair = (int(ends[5, 1]), int(ends[5, 0]))
    assert_array_equal(finders[0].rows("nodes", [pair]), [5])
    X = np.random.default_rng(seed).normal(size=(N, D)).astype(np.float32)
    ordered = link_vectors(X, ends, directed=True)
    assert_array_equal(ordered[:, :D], link_vectors(X, ends[:, ::-1], directed=True)[:, D:])
    directed = cfe.EvidenceFinder.from_links(data, labels, ends, directed=True)
    with pytest.raises(ValueError, match="nodes must name rows by their ids"):
        directed.rows("nodes", [pair])


def people(sex="fmfmf"):
    x = [[1.0, 0.0], [0.9, 0.2], [0.1, 1.0], [0.0, 0.9], [0.5, 0.5]]
    names = ["ann", "ben", "cem", "dee", "eva"]
    data = SimpleNamespace(x=x, edge_index=[[0, 1, 2, 3], [1, 2, 3, 4]], node_ids=names)
    links = [("ann", "cem"), ("dee", "ben"), ("ann", "ben"), ("eva", "dee")]
    return data, links, {"sex": list(sex), "age": [20, 30, np.nan, 50, 60]}


def test_links_go_by_the_ids_of_their_nodes():
    data, links, features = people()
    decided = ["yes", "no", "no", "yes"]
    finder = cfe.EvidenceFinder.from_links(
        data, decided, links, features=features, sensitive=["sex"]
    )
    assert repr(finder).startswith("EvidenceFinder(4 links, d=4, 2 predicted classes")
    found = finder.local([("cem", "ann")], k=3)
    assert repr(found).startswith("LocalEvidence(1 link, ")
    frame = found.to_frame(attributes=True)
    assert frame[["link", "evidence"]].to_numpy().tolist() == [["ann - cem", "dee - ben"]]
    assert frame.loc[0, ["link_class", "evidence_class"]].tolist() == ["yes", "no"]
    assert_array_equal(finder.local(frame["link"]).evidence, finder.local(["ann - cem"]).evidence)
    assert_array_equal(finder.rows("nodes", np.array(links, object)), [0, 1, 2, 3])
    assert_array_equal(finder.rows("nodes", [True, False, False, True]), [0, 3])
    assert str(finder.case(("ann", "cem"))).startswith("ann - cem: decided 'yes'")
    title = found.plot().axes[0].texts[0].get_text()
    assert title == "Links ann - cem and dee - ben: similar, yet predicted differently"
    table = finder.attributes.to_frame()
    assert table["sex of ends"].tolist() == ["f & f", "m & m", "f & m", "f & m"]
    assert table["sex between ends"].tolist() == ["within", "within", "across", "across"]
    assert_array_equal(table["age, higher"], [np.nan, 50, 30, 60])
    assert table["degree, lower"].tolist() == [1, 2, 1, 1]
    assert table["common neighbours"].tolist() == [1, 1, 0, 0]
    assert finder.sensitive == ("sex between ends",)


def test_both_orders_are_two_links_with_direction_and_one_without():
    both = [(0, 1), (2, 3), (1, 0), (4, 5)]
    finder = of(both, [0, 1, 1, 0], directed=True)
    assert finder.names(np.arange(4)).tolist() == ["0 > 1", "2 > 3", "1 > 0", "4 > 5"]
    found = of(both, [0, 1, 1, 0], directed=True, shared_ends=True).local([(0, 1)], k=1)
    assert found.to_frame()["evidence"].tolist() != ["0 > 1"]


def test_directed_links_have_attributes_of_source_and_target():
    data, links, features = people(["f", "m", None, "m", "f"])
    finder = cfe.EvidenceFinder.from_links(
        data, [0, 1, 1, 0], links, features=features, sensitive=["sex"], directed=True
    )
    table = finder.attributes.to_frame()
    assert finder.names([1]).tolist() == ["dee > ben"]
    assert table["sex of target"].tolist() == [None, "m", "m", "m"]
    assert table["age of source"].tolist() == [20, 50, 20, 60]
    assert table["sex between ends"].tolist() == [None, "within", "across", "across"]


def test_ids_that_hold_the_sign_stay_apart():
    data, _, _ = people()
    data.node_ids = ["a", "a - b", "b - c", "c", "d"]
    links = [("a", "b - c"), ("a - b", "c"), ("d", "a")]
    finder = cfe.EvidenceFinder.from_links(data, [0, 1, 1], links)
    assert finder.names([0, 1]).tolist() == ["'a' - 'b - c'", "'a - b' - 'c'"]
    assert_array_equal(finder.rows("nodes", [("a - b", "c")]), [1])


def test_values_that_hold_the_sign_of_pairs_stay_apart():
    data, links, _ = people()
    features = {"team": ["a", "c", "b & c", "a & b", "d"]}
    finder = cfe.EvidenceFinder.from_links(data, [0, 1, 1, 0], links, features=features)
    first, second = finder.attributes["team of ends"].codes[:2]
    assert first != second


# --- models ---------------------------------------------------------------------------------------


class Predictor(torch.nn.Module):
    def __init__(self, outputs=1):
        super().__init__()
        self.encoder = GCN(6, 8, 2, 8)
        self.head = torch.nn.Linear(8, outputs)

    def forward(self, x, edge_index, edge_label_index):
        z = self.encoder(x, edge_index)
        ends = z[edge_label_index]
        return self.head(ends[0] * ends[1]).squeeze(-1)


@pytest.fixture(scope="module")
def trained():
    """Return a graph with two groups, with links to predict, and a trained model of PyG."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        group = torch.arange(120) % 2
        x = torch.randn(120, 6) + 2 * group[:, None]
        pairs = torch.combinations(torch.arange(120)).T
        joined = torch.rand(pairs.shape[1]) < torch.where(
            group[pairs[0]] == group[pairs[1]], 0.1, 0.01
        )
        edges = pairs[:, joined]
        data = Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1), group=group)
        train, _, test = RandomLinkSplit(is_undirected=True, num_test=0.4)(data)
        # Negative samples of PyG may hold a pair in both orders.
        test.edge_label_index, test.edge_label = coalesce(
            test.edge_label_index.sort(dim=0).values, test.edge_label, reduce="max"
        )
        model = Predictor()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(60):
            optimizer.zero_grad()
            logits = model(train.x, train.edge_index, train.edge_label_index)
            torch.nn.functional.binary_cross_entropy_with_logits(
                logits, train.edge_label
            ).backward()
            optimizer.step()
    return test, model


def test_a_model_of_pyg_is_called_with_the_links(trained):
    data, model = trained
    truth = data.edge_label.long()
    finder = cfe.EvidenceFinder.from_links(data, model, truth=truth)
    with torch.no_grad():
        logits = model(data.x, data.edge_index, data.edge_label_index).numpy()
    assert_array_equal(finder.labels, logits > 0)
    assert_array_equal(finder.truth, truth)
    assert_array_equal(finder.links.ends.T, data.edge_label_index)
    whole = cfe.EvidenceFinder.from_links(
        data, lambda data: model(data.x, data.edge_index, data.edge_label_index) > 0
    )
    assert_array_equal(whole.labels, logits > 0)
    assert whole.class_names == ("False", "True")
    two = cfe.EvidenceFinder.from_links(data, Predictor(2))
    assert two.probabilities is None
    assert set(two.labels.tolist()) <= {0, 1}
    assert not hasattr(data, "attributes")
    evidence = finder.local().evidence
    for row, found in enumerate(evidence):
        ends = finder.links.ends[found[found >= 0]]
        assert not np.isin(ends, finder.links.ends[row]).any()


def test_audits_pictures_and_pages_of_links(trained, tmp_path):
    data, model = trained
    finder = cfe.EvidenceFinder.from_links(
        data, model, features={"team": data.group}, sensitive=["team"], truth=data.edge_label.long()
    )
    effects = audit.direct_effects(finder, unfavourable=0)
    assert set(effects.table["attribute"]) == {"team between ends"}
    assert effects.table["gamma"].isna().all()
    scores = audit.discrimination_scores(finder, k=3, columns=["team between ends"])
    evidence = finder.local(k=3).evidence
    between = finder.attributes["team between ends"]
    codes = between.codes
    differs = np.where(evidence >= 0, codes[evidence] != codes[:, None], np.nan)
    for value in ("within", "across"):
        rows = codes == between.values.index(value)
        expected = np.nanmean(np.nanmean(differs[rows], axis=1))
        line = scores[scores["value"] == value].iloc[0]
        assert line["score"] == pytest.approx(expected)
    assert audit.consistency(finder, columns=["team between ends"])["nodes"].iloc[0] > 0
    errors = audit.error_rate_by_evidence(finder, ks=[10])
    pairs = finder.top_pairs(10)
    assert errors["nodes"].iloc[0] == len(np.union1d(pairs.source, pairs.target))
    assert pairs.plot().axes[0].texts[0].get_text().startswith("Links ")
    page = finder.explore(tmp_path / "links.html", 20)
    assert "20 pairs of links" in page.read_text(encoding="utf-8")
    marks = pairs.to_frame().assign(
        source_row=pairs.source, target_row=pairs.target, mark="relevant"
    )
    assert_array_equal(finder.reviewed(marks).source, pairs.source)
    written = audit.report(finder, tmp_path / "report.html", favourable=1)
    assert "links" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert written.outcome == "no conditions"


def test_attributes_are_left_out_of_the_vectors():
    data, ends, labels = world(4)
    data.feature_names = [f"column {i}" for i in range(D)]
    finder = cfe.EvidenceFinder.from_links(data, labels, ends, without=["column 1"])
    assert finder.vectors.shape == (len(ends), 2 * (D - 1))
    assert finder.removed.columns == ("column 1",)


def test_links_of_a_table():
    data, ends, labels = world(5)
    ours = cfe.EvidenceFinder.from_links(data, labels, pd.DataFrame(ends))
    assert ours.ids.tolist() == cfe.EvidenceFinder.from_links(data, labels, ends).ids.tolist()


def of(links=((0, 1), (2, 3), (4, 5)), model=(0, 1, 0), **options):
    data = SimpleNamespace(x=np.eye(6), edge_index=[[0, 1], [2, 3]], **options.pop("data", {}))
    return cfe.EvidenceFinder.from_links(data, model, links, **options)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda: of(None), ValueError, "links must be given, or data have edge_label_index"),
        (lambda: of([]), ValueError, "links must hold at least one link"),
        (lambda: of([(0, 1), (2, 3), (0, 1)]), ValueError, "each pair once.*'0 - 1' more"),
        (lambda: of([(0, 1), (2, 2), (4, 5)]), ValueError, "links must join two different nodes"),
        (lambda: of([(0, 1), (2, 9), (4, 5)]), ValueError, r"links must lie in 0..5, got 9"),
        (lambda: of([(0, 1, 2)]), ValueError, "links must hold pairs of node ids"),
        (lambda: of(np.array([[0, 1, 2], [3, 4, 5]])), ValueError, r"transpose it \(.T\)"),
        (lambda: of(model=[0, 1]), ValueError, r"classes of shape \(3,\)"),
        (lambda: of(model=None), ValueError, "model or scores must be given"),
        (lambda: of(scores=[1, 2, 3]), ValueError, "model must be left out with scores"),
        (lambda: of(model=None, scores=[1, 2]), ValueError, "scores"),
        (lambda: of(model=lambda x, edge_index: x), ValueError, "model must take edge_label_index"),
        (lambda: of(sensitive=["sex"]), ValueError, "sensitive must name attributes"),
        (lambda: of(features={"age": range(6)}, sensitive=["age", "sex"]), ValueError, "got 'sex'"),
        (lambda: of().local([(0, 2)]), ValueError, "nodes must name rows .*got '0 - 2'"),
        (lambda: of().local(["0 - 2"]), ValueError, "nodes must name rows by their ids"),
        (lambda: of().local(recall=0.9), ValueError, "recall must be left out .*links"),
        (lambda: of().local(where=cfe.Constraints(min_hops=2)), ValueError, "where.min_hops"),
        (lambda: of().updated(predictions=[0, 1, 1]), ValueError, "EvidenceFinder.from_links"),
        (lambda: of([(0, 1), (2, 3), (1, 0)]), ValueError, "directed=True .*'0 - 1' more"),
        (lambda: of(features={"degree": range(6)}), ValueError, "must leave .*: degree"),
    ],
)
def test_wrong_arguments(use, error, message):
    with pytest.raises(error, match=message):
        use()


def test_numbers_are_no_groups():
    rng = np.random.default_rng(0)
    data = SimpleNamespace(x=rng.normal(size=(20, 3)), edge_index=[[0], [1]])
    links = [(i, i + 1) for i in range(0, 20, 2)]
    with pytest.raises(ValueError, match="cut them into texts"):
        cfe.EvidenceFinder.from_links(
            data, [0, 1] * 5, links, features={"age": np.arange(20)}, sensitive=["age"]
        )


def test_a_report_of_links_counts_shared_ends_in_its_rates(tmp_path):
    rng = np.random.default_rng(3)
    n = 60
    links = np.array([(a, b) for a in range(n) for b in range(a + 1, n)])
    links = links[rng.permutation(len(links))[:900]]
    popular = rng.normal(size=n)
    decisions = np.where(popular[links].sum(axis=1) > 0, "yes", "no")
    data = SimpleNamespace(x=rng.normal(size=(n, 3)), edge_index=links[:80].T)
    teams = {"team": np.array(["a", "b", "c"])[np.arange(n) % 3]}
    finder = cfe.EvidenceFinder.from_links(
        data, decisions, links, features=teams, sensitive=["team"]
    )
    with pytest.raises(ValueError, match="person must be left out for links"):
        audit.report(finder, tmp_path / "r.html", favourable="yes", person=links[:, 0])
    assert not list(tmp_path.iterdir())
    audit.report(finder, tmp_path / "r.html", favourable="yes", skip=["sensitivity"])
    text = (tmp_path / "r.json").read_text()
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "independent draws" not in page
    assert "Γ" not in page
    sides = np.array(["within", "across"])[(links[:, 0] % 3 != links[:, 1] % 3).astype(int)]
    given = {"y_pred": decisions, "sensitive_features": {"sides": sides}, "favourable": "yes"}
    for ends, is_in_report in [(links, True), (None, False)]:
        table = audit.group_metrics(**given, ends=ends).table
        low = table.loc[table["value"] == "within", "rate_low"].iloc[0]
        assert (json.dumps(low) in text) == is_in_report
