from itertools import pairwise, permutations, product

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import cfe_faiss as cfe
from cfe_faiss import audit

S = np.array([[1, 0.5, 0, 0.2], [0.5, 1, 0.8, 0], [0, 0.8, 1, 0], [0.2, 0, 0, 1]])
Y = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [1.0, 1.0]])


def finder_of(vectors, labels, nodes):
    index = cfe.IndexEvidenceIDMap2(vectors.shape[1])
    index.add_with_labels(vectors[nodes], labels[nodes], ids=nodes)
    return cfe.EvidenceFinder(vectors, labels.astype(np.int32), index)


def random_graph(rng, n):
    matrix = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.4), 1)
    return matrix + matrix.T


@given(n=st.integers(2, 25), seed=st.integers(0, 10**6))
def test_individual_bias_is_the_trace(n, seed):
    rng = np.random.default_rng(seed)
    graph, outputs = random_graph(rng, n), rng.standard_normal((n, 3))
    laplacian = np.diag(graph.sum(axis=1)) - graph
    # What a node's similarity to itself is must not matter.
    sparse = scipy.sparse.csc_matrix(graph + np.diag(rng.random(n)))
    found = audit.individual_bias(outputs, sparse)
    assert found.bias == pytest.approx(np.trace(outputs.T @ laplacian @ outputs), abs=1e-9)
    assert (found.nodes, found.pairs) == (n, (graph > 0).sum() / 2)
    assert found.weight == pytest.approx(graph.sum() / 2)
    if found.pairs:
        assert found.per_weight == pytest.approx(found.bias / found.weight)
        assert found.low <= found.per_weight <= found.high
    distances = [((outputs[i] - outputs[j]) ** 2).sum() for i in range(n) for j in range(i)]
    assert found.expected == pytest.approx(np.mean(distances))


def test_interval_of_individual_bias_equals_direct_code():
    rng = np.random.default_rng(0)
    n = 30
    graph, outputs = random_graph(rng, n), rng.standard_normal((n, 2))
    found = audit.individual_bias(outputs, graph)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if graph[i, j] > 0]
    residual = [
        graph[i, j] * (((outputs[i] - outputs[j]) ** 2).sum() - found.per_weight) for i, j in pairs
    ]
    variance = sum(
        residual[a] * residual[b]
        for a, b in product(range(len(pairs)), repeat=2)
        if set(pairs[a]) & set(pairs[b])
    )
    half = 1.959964 * np.sqrt(variance) / found.weight
    assert found.high - found.per_weight == pytest.approx(half, rel=1e-6)


def test_interval_of_individual_bias_holds_the_mean():
    rng = np.random.default_rng(1)
    # Outputs are independent; a pair's expected squared distance is 2 everywhere.
    n, held = 200, 0
    graph = scipy.sparse.csr_array(random_graph(rng, n))
    for _ in range(300):
        found = audit.individual_bias(rng.standard_normal((n, 1)), graph)
        held += found.low <= 2 <= found.high
    assert 0.92 <= held / 300 <= 0.98


def test_group_disparity_by_hand():
    found = audit.group_disparity(Y, S, ["a", "a", "b", None])
    # a: 0-1, 0-3, 1-0, 1-2: (1 + .2 + 1 + .4) / 4; b: 2-1: .4
    assert found.table[["group", "nodes", "pairs"]].values.tolist() == [["a", 2, 4], ["b", 1, 1]]
    assert found.table["bias"].tolist() == pytest.approx([2.6 / 4, 0.4])
    assert found.disparity == found.gdif == pytest.approx(0.65 / 0.4)
    assert found.unknown == 1


@given(n=st.integers(3, 20), seed=st.integers(0, 10**6))
def test_group_disparity_is_the_trace_of_each_group(n, seed):
    rng = np.random.default_rng(seed)
    graph, outputs = random_graph(rng, n), rng.standard_normal((n, 2))
    group = np.r_[0, 1, 2, rng.integers(0, 3, n - 3)]
    found = audit.group_disparity(outputs, graph, group)
    for p in range(3):
        inside = (group == p)[:, None].astype(float) + (group == p)[None]
        weighted = graph * inside
        trace = np.trace(outputs.T @ (np.diag(weighted.sum(axis=1)) - weighted) @ outputs)
        count = (graph[group == p] > 0).sum()
        expected = trace / count if count else np.nan
        np.testing.assert_allclose(found.table["bias"].iloc[p], expected, atol=1e-9)
    known = found.table["bias"].dropna().tolist()
    ratios = [max(a / b, b / a) for place, a in enumerate(known) for b in known[:place]]
    if ratios:
        assert found.gdif == pytest.approx(sum(ratios))
        assert found.disparity == pytest.approx(max(ratios))
    else:
        assert np.isnan([found.gdif, found.disparity]).all()


def brute_ndcg(graph, outputs, k):
    """Return NDCG@k of every node, the mean over all orders of nodes with equal cosines."""
    n = len(graph)
    length = np.linalg.norm(outputs, axis=1)
    result = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        cosine = {
            j: round(float(outputs[i] @ outputs[j] / (length[i] * length[j])), 9) for j in others
        }
        gain = {j: 2 ** graph[i][j] - 1 for j in others}
        dcgs = []
        for order in permutations(others):
            if all(cosine[a] >= cosine[b] for a, b in pairwise(order)):
                dcgs.append(sum(gain[j] / np.log2(place + 2) for place, j in enumerate(order[:k])))
        ideal = sum(
            g / np.log2(place + 2)
            for place, g in enumerate(sorted(gain.values(), reverse=True)[:k])
        )
        result.append(np.mean(dcgs) / ideal if ideal > 0 else np.nan)
    return result


@given(n=st.integers(2, 6), k=st.integers(1, 7), seed=st.integers(0, 10**6), few=st.booleans())
def test_ndcg_is_the_mean_over_all_orders_of_ties(n, k, seed, few):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, n)
    outputs = (
        rng.integers(0, 2, (n, 2)) + np.array([0.5, 1]) if few else rng.standard_normal((n, 2))
    )
    found = audit.ranking_ndcg(outputs, graph, k)
    expected = brute_ndcg(graph, outputs, k)
    np.testing.assert_allclose(found.per_node, expected, atol=1e-9)
    assert found.judged == np.isfinite(expected).sum()


def test_ndcg_of_the_same_ranking_is_1_and_of_one_output_what_chance_gives():
    rng = np.random.default_rng(2)
    angle = np.sort(rng.random(40))
    outputs = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    graph = np.clip(outputs @ outputs.T, 0, 1)
    assert audit.ranking_ndcg(outputs, graph).mean == pytest.approx(1)
    same = audit.ranking_ndcg(np.ones((40, 2)), graph)
    assert same.mean == pytest.approx(same.expected)
    assert same.mean < 1
    assert same.low <= same.mean <= same.high


def test_a_finder_gives_its_own_similarities():
    rng = np.random.default_rng(3)
    n = 700
    nodes = np.flatnonzero(rng.random(n) < 0.9)
    vectors = cfe.ks_vectors(rng.standard_normal((n, 4)), rng.integers(0, n, (2, 2000)))
    labels = rng.integers(0, 2, n)
    finder = finder_of(vectors, labels, nodes)
    ks = vectors[nodes].astype(np.float64) @ vectors[nodes].T.astype(np.float64)
    np.fill_diagonal(ks, -2)
    nearest = np.argsort(-ks, axis=1, kind="stable")[:, :5]
    expected = np.zeros((n, n))
    for row, node in enumerate(nodes):
        for column in nearest[row]:
            value = max(ks[row, column], 0)
            expected[node, nodes[column]] = expected[nodes[column], node] = value
    graph = audit.similarity_graph(finder, 5)
    np.testing.assert_allclose(graph.toarray(), expected, atol=1e-6)
    outputs = rng.standard_normal((n, 3))
    found, given = audit.ranking_ndcg(outputs, finder), np.zeros((n, n))
    given[np.ix_(nodes, nodes)] = np.clip(ks, 0, 1)
    inside = audit.ranking_ndcg(outputs[nodes], given[np.ix_(nodes, nodes)])
    np.testing.assert_allclose(found.per_node[nodes], inside.per_node, atol=1e-5)
    assert np.isnan(np.delete(found.per_node, nodes)).all()
    assert abs(found.mean - found.expected) < 0.02
    assert audit.individual_bias(outputs, finder, k=5).pairs == graph.nnz / 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: audit.individual_bias([[0.0], [1.0]], [[0, 1, 0], [1, 0, 0]]),
            "similarity must have",
        ),
        (lambda: audit.individual_bias([[0.0], [1.0]], [[0, -1], [-1, 0]]), "numbers >= 0"),
        (lambda: audit.individual_bias([[0.0], [1.0]], [[0, np.nan], [np.nan, 0]]), "finite"),
        (lambda: audit.individual_bias([[0.0], [1.0]], [[0, 1], [0.5, 0]]), "symmetric"),
        (lambda: audit.ranking_ndcg([[0.0]], S), r"Y must have shape \(4, C\)"),
        (lambda: audit.ranking_ndcg([0.0, 1.0, 2, 3], S), r"Y must have shape \(4, C\)"),
        (lambda: audit.ranking_ndcg(np.full((4, 1), np.inf), S), r"Y must have shape \(4, C\)"),
        (lambda: audit.group_disparity(Y, S, ["a", "b"]), "groups must have shape"),
        (lambda: audit.group_disparity(Y, S, ["a", "a", "a", None]), "two groups at least"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_without_pairs_nothing_is_defined():
    none = np.zeros((4, 4))
    found = audit.individual_bias(Y, none)
    assert (found.bias, found.pairs) == (0, 0)
    assert np.isnan([found.per_weight, found.low, found.high]).all()
    assert np.isnan(audit.group_disparity(Y, none, list("aabb")).disparity)
    ranked = audit.ranking_ndcg(Y, none)
    assert ranked.judged == 0
    assert np.isnan([ranked.mean, ranked.low, ranked.high, ranked.expected]).all()
