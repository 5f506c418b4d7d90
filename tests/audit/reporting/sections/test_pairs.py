from types import SimpleNamespace

import numpy as np
import pytest
from audit_report_helpers import inputs_of

import cfe_faiss as cfe
from cfe_faiss.audit.reporting.sections.pairs import cases_section, find_pairs, pairs_section

pytestmark = pytest.mark.filterwarnings("ignore:no true class:cfe_faiss.InputWarning")


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(1)
    n = 60
    x = rng.normal(size=(n, 4)).astype(np.float32)
    x[30] = x[3]
    edges = rng.integers(0, n, (2, 150))
    people = {
        "age": rng.integers(20, 24, n).astype(float),
        "sex": np.array(["f", "m", None])[rng.integers(0, 3, n)],
    }
    data = SimpleNamespace(
        x=x, edge_index=edges, y=rng.integers(-1, 2, n), class_names=["no", "yes"]
    )
    finder = cfe.EvidenceFinder.from_data(
        data, rng.integers(0, 2, n), features=people, nodes=np.arange(5, n)
    )
    return inputs_of(finder, ["sex"], k=3, pairs=40, cases=10)


@pytest.fixture(scope="module")
def brute(inputs):
    """Return all pairs of audited nodes with different predictions, most similar first, in float64."""
    X = inputs.finder.vectors[inputs.nodes].astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    left, right = np.triu_indices(len(X), 1)
    unlike = inputs.labels[left] != inputs.labels[right]
    left, right = left[unlike], right[unlike]
    similarity = (X[left] * X[right]).sum(axis=1)
    order = np.argsort(-similarity, kind="stable")
    return inputs.nodes[left[order]], inputs.nodes[right[order]], similarity[order]


def test_pairs_are_the_closest_of_all(inputs, brute):
    pairs = find_pairs(inputs)
    assert pairs_section(inputs).values["total"] == len(brute[0])
    assert pairs.found.source.tolist() == brute[0][:40].tolist()
    assert pairs.found.target.tolist() == brute[1][:40].tolist()
    np.testing.assert_allclose([row["similarity"] for row in pairs.rows], brute[2][:40], atol=1e-9)


def test_differing_attributes(inputs):
    pairs = find_pairs(inputs)
    frame = inputs.attributes.to_frame()
    for place in range(len(pairs.found)):
        one, two = (frame.loc[nodes[place]] for nodes in (pairs.found.source, pairs.found.target))
        differ = [
            name
            for name in frame
            if not (one[name] == two[name] or (one[name] is None and two[name] is None))
        ]
        assert list(pairs.differing[place]) == differ
    table = pairs_section(inputs).tables[0]
    found = [row["attributes_differing"] for row in table.rows]
    assert found == [len(names) for names in pairs.differing]


def test_case_files(inputs, brute):
    section = cases_section(inputs)
    assert len(section.cases) == 10
    for place, case in enumerate(section.cases):
        assert case.rank.startswith(f"{place + 1} of {len(brute[0]):,} pairs")
        assert [side.row for side in case.sides] == [brute[0][place], brute[1][place]]
        assert float(case.similarity) == pytest.approx(brute[2][place], abs=1e-5)
        for side in case.sides:
            graph, labels = inputs.finder.graph, inputs.finder.labels
            near = graph.neighbors(side.row)
            assert side.predicted == ["no", "yes"][labels[side.row]]
            assert side.surroundings.startswith(f"{len(near)} neighbour") or not len(near)
            assert {int(neighbour.name) for neighbour in side.neighbours} <= set(near.tolist())
            assert len(side.neighbours) == min(12, len(near))
            for i, j in side.edges:
                one, two = (int(side.neighbours[place].name) for place in (i, j))
                assert two in graph.neighbors(one)


def test_differences_are_in_units_and_standard_deviations(inputs):
    section = cases_section(inputs)
    spread = float(np.std(inputs.attributes["age"].numbers))
    found = 0
    for case in section.cases:
        decision, true_class, *rows = case.differences.rows
        assert (decision["a"], decision["b"]) == tuple(side.predicted for side in case.sides)
        expected = tuple(side.true or "unknown" for side in case.sides)
        assert (true_class["a"], true_class["b"]) == expected
        sizes = [abs(row["difference"] or 0) for row in rows]
        assert sizes == sorted(sizes, reverse=True)
        for row in rows:
            if row["attribute"] == "age":
                found += 1
                assert row["difference"] == pytest.approx((row["b"] - row["a"]) / spread)
            else:
                assert row["difference"] is None
                assert {row["a"], row["b"]} <= {"f", "m", "unknown"}
    assert found


def test_ties_share_a_rank():
    x = np.eye(6, dtype=np.float32)[[0, 0, 0, 1, 1, 1]]
    data = SimpleNamespace(x=x, edge_index=[[0, 1, 3, 4], [1, 2, 4, 5]])
    finder = cfe.EvidenceFinder.from_data(data, [0, 1, 0, 1, 0, 0])
    ranks = [case.rank for case in cases_section(inputs_of(finder, [], pairs=4, cases=4)).cases]
    expected = {"1 of 8 pairs, together with 3 others that the search cannot tell from it"}
    assert set(ranks) == expected


@pytest.mark.parametrize(("classes", "styles"), [(3, [0, 2]), (50, [0, 1])])
def test_classes_keep_their_look_as_long_as_there_are_enough(classes, styles):
    data = SimpleNamespace(x=np.eye(4, dtype=np.float32), edge_index=[[0, 1, 2], [1, 2, 3]])
    finder = cfe.EvidenceFinder.from_data(data, [0, classes - 1, 0, classes - 1], nodes=[0, 1])
    (case,) = cases_section(inputs_of(finder, [])).cases
    assert case.legend == tuple(zip(styles, ["class 0", f"class {classes - 1}"], strict=True))
    assert {side.style for side in case.sides} == set(styles)
