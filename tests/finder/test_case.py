import re

import numpy as np
import pytest

import cfe_faiss as cfe
from cfe_faiss.datasets import load


@pytest.fixture(scope="module")
def finder(data_root):
    data = load("german", data_root)
    return cfe.EvidenceFinder.from_data(data, data.y.numpy()[::-1].copy())


def test_german_case(finder):
    case = finder.case(17, 4)
    found = finder.local([17], k=4)
    assert case.table.columns.tolist() == ["17", *map(str, found.evidence[0])]
    rows = [17, *found.evidence[0].tolist()]
    assert finder.truth is not None
    for line, labels in (("Decision", finder.labels), ("True class", finder.truth)):
        assert case.table.loc[line].tolist() == [finder.class_name(labels[row]) for row in rows]
    similarity = [float(text) for text in case.table.loc["Similarity"][1:]]
    np.testing.assert_allclose(similarity, found.measure64()[0], atol=1e-6)
    assert finder.attributes is not None
    differing = case.table.index[3:].tolist()
    assert sorted([*differing, *case.agreeing]) == sorted(finder.attributes)
    distances = []
    for name in differing:
        numbers = np.asarray(finder.attributes[name].numbers, float)
        texts = case.table.loc[name].tolist()
        answer = [text.endswith(" *") for text in texts]
        assert answer == [bool(number != numbers[17]) for number in numbers[rows]]
        np.testing.assert_allclose(
            [float(text.removesuffix(" *")) for text in texts], numbers[rows], rtol=1e-5
        )
        distances.append(np.abs(numbers[rows[1:]] - numbers[17]).mean() / numbers.std())
    assert (np.diff(distances) <= 1e-9).all(), "attributes that differ most come first"
    for name, value in case.agreeing.items():
        assert (np.asarray(finder.attributes[name].numbers)[rows] == float(value)).all()


def test_text_and_page_hold_the_same(finder):
    case = finder.case(17, 4)
    text, page = str(case), case.to_html()
    assert text.startswith("17: decided '")
    for part in (*case.table.index, *case.table.to_numpy().ravel(), *case.agreeing):
        assert part[:20] in text
        assert part[:20] in page
    assert case._repr_html_() in page
    assert repr(case) == f"Case({case.title}, 4 decided otherwise)"


def test_hostile_texts_missing_values_and_probabilities():
    bad = "<b>\x1b[2J\u202e" + "x" * 100
    people = {"job": [bad, "b", None], "age": [30.0, np.nan, 31.5]}
    people |= {"same": ["s"] * 3, "Decision": ["p", "q", "p"]}
    shares = [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]]
    finder = cfe.EvidenceFinder.from_vectors(
        [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]],
        shares,
        features=people,
        ids=["<i>", "u", "w"],
        class_names=["<no>", "yes"],
    )
    case = finder.case("<i>")
    assert case.table.loc["Probability of <no>"].tolist() == ["0.900", "0.200", "0.300"]
    assert case.table.loc["age"].tolist() == ["30", "unknown *", "31.5 *"]
    expected = [["<no>", "yes", "yes"], ["p", "q *", "p"]]
    assert case.table.loc["Decision"].to_numpy().tolist() == expected
    assert case.agreeing == {"same": "s"}
    page, text = case.to_html(), str(case)
    assert "<i>" not in page
    assert "&lt;no&gt;" in page
    assert "\x1b" not in page + text
    assert "\u202e" not in page + text
    assert max(map(len, text.splitlines())) < 120


def test_a_page_has_room_for_40_lines():
    X = np.random.default_rng(0).normal(size=(30, 100))
    finder = cfe.EvidenceFinder.from_vectors(
        X, np.arange(30) % 2, features={f"f{i:02}": X[:, i] for i in range(100)}
    )
    case = finder.case(0, 2)
    assert len(case.table) == 102
    assert len(re.findall(r"^f\d\d ", str(case), re.M)) == 38 == case.to_html().count("<th>f")
    assert "62 more attributes differ less." in str(case)


def test_nobody_decided_otherwise_and_no_attributes():
    alone = cfe.EvidenceFinder.from_vectors(np.eye(3), [0, 0, 0], features={"a": [1, 2, 3]}).case(1)
    assert alone.table.columns.tolist() == ["1"]
    assert "None is decided otherwise." in str(alone)
    assert "None is decided otherwise." in alone.to_html()
    plain = cfe.EvidenceFinder.from_vectors(np.eye(3), [0, 1, 1]).case(0, 2)
    assert plain.table.index.tolist() == ["Decision", "Similarity"]
    assert plain.agreeing == {}


def test_conditions_and_errors(finder):
    case = finder.case(17, where=cfe.Constraints(exact=["Gender"]))
    assert "Gender" in case.agreeing
    for arguments, message in (((5000,), "id must"), ((17, 0), "k must be at least 1")):
        with pytest.raises(ValueError, match=message):
            finder.case(*arguments)
    some = cfe.EvidenceFinder.from_vectors(np.eye(4), [0, 1, 0, 1], nodes=[0, 1])
    with pytest.raises(ValueError, match="id must be in the index, got 3"):
        some.case(3)
