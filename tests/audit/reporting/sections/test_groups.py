from types import SimpleNamespace

import numpy as np
import pytest

import cfe_faiss as cfe
from cfe_faiss.audit.reporting.inputs import Settings, checked
from cfe_faiss.audit.reporting.sections.groups import groups_section


def section(people, labels, sensitive, favourable=1, y=None):
    n = len(labels)
    x = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    data = SimpleNamespace(x=x, edge_index=np.stack([np.arange(n - 1), np.arange(1, n)]), y=y)
    finder = cfe.EvidenceFinder.from_data(data, labels, features=people)
    settings = Settings(k=1, pairs=1, cases=1, bins=4, confidence=0.95)
    return groups_section(checked(finder, sensitive, favourable, settings))


def test_rates_by_hand():
    people = {"sex": ["f"] * 4 + ["m"] * 6}
    found = section(people, [1, 0, 0, 0, 1, 1, 1, 0, 0, 0], ["sex"], y=np.array([1, 1, 0, 0, 1, 0, 1, 0, 0, -1]))
    selection, errors = found.tables
    everyone, f, m = selection.rows
    assert (everyone["value"], everyone["count"], everyone["rate"]) == ("all nodes", 10, 0.4)
    assert (f["selected"], f["rate"], f["ratio"]) == (1, 0.25, 0.5)
    assert (m["selected"], m["rate"], m["ratio"], m["ratio_low"]) == (3, 0.5, 1, None)
    assert (errors.rows[1]["fnr"], errors.rows[1]["positives"], errors.rows[1]["fpr"]) == (0.5, 2, 0)
    assert (errors.rows[2]["judged"], errors.rows[2]["negatives"], errors.rows[2]["fpr"]) == (5, 3, 1 / 3)
    assert "Impact ratio by sex: cannot tell; 0.500 for the group f (n = 4;" in " ".join(found.findings)


def test_the_summary_names_each_attribute_and_the_intersection_with_the_least_ratio():
    people = {"sex": ["f", "f", "m", "m"] * 3, "city": ["A", "B", "A", "B"] * 3, "home": ["own"] * 6 + ["rent"] * 6}
    labels = [1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1]
    text = section(people, labels, ["sex", "city", "home"]).headline
    assert text.count("Impact ratio by") == 4
    assert "by sex & city: cannot tell; 0.333 for the group f & B (n = 3;" in text


def test_measures_of_conditions():
    found = section({"sex": ["f"] * 4 + ["m"] * 4}, [1, 0, 0, 0, 1, 1, 0, 0], ["sex"])
    values = {(m.metric, m.attribute, m.group): m.value for m in found.measures}
    assert values["impact_ratio", "sex", "f"] == 0.5
    assert values["selection_rate", None, "all nodes"] == 0.375
    assert values["selection_rate_difference", "sex", "f"] == -0.25
    assert ("impact_ratio", None, "all nodes") not in values
    assert np.isnan(values["accuracy", "sex", "f"])


def test_a_group_that_is_not_ranked_is_not_judged():
    found = section({"city": ["A"] * 100 + ["B"] * 90 + ["C"] * 29}, [0, 1] * 95 + [0] * 29, ["city"])
    unjudged = {m.group: m.unjudged for m in found.measures if m.metric == "impact_ratio"}
    assert unjudged == {"A": "", "B": "", "C": "the group is not ranked"}
    assert all(m.unjudged == "" for m in found.measures if m.metric == "selection_rate")


def test_unknown_attributes_are_counted_and_bound_the_ratios():
    found = section({"sex": ["f", "f", None, "m", "m", "m"]}, [1, 0, 1, 1, 1, 0], ["sex"])
    table = found.tables[0]
    unknown = [row for row in table.rows if row["unknown"]]
    assert [row["count"] for row in unknown] == [1]
    assert {column.key for column in table.columns} >= {"ratio_least", "ratio_most"}
    assert "For 1 node the attribute is not known" in table.notes[0]
    assert not [measure for measure in found.measures if measure.group == "unknown"]


def test_small_groups_are_shown_and_named():
    found = section({"city": ["A"] * 99 + ["B"]}, [0, 1] * 50, ["city"])
    assert [row["value"] for row in found.tables[0].rows] == ["all nodes", "A", "B"]
    assert "Groups that are too small to be ranked: B (1)." in found.findings


def test_tables_of_local_law_144():
    rng = np.random.default_rng(0)
    races = ["Asian", "White (Not Hispanic or Latino)", "Hispanic or Latino", "Two or more races"]
    people = {
        "Gender": np.array(["Female", "Male"])[rng.integers(0, 2, 500)],
        "race": np.array([*races, None], dtype=object)[rng.choice(5, 500, p=[0.3, 0.4, 0.27, 0.01, 0.02])],
    }
    labels = rng.integers(0, 2, 500)
    law = [t for t in section(people, labels, ["race", "Gender"]).tables if t.id.startswith("local law 144")]
    assert [table.id.partition(": ")[2] for table in law] == ["Sex", "Race/Ethnicity", "Intersectional"]
    race = law[1].rows
    assert [row["category"] for row in race[:2]] == [races[2], races[1]]
    assert race[-1]["category"] == "Unknown"
    assert race[-1]["applicants"] == sum(value is None for value in people["race"])
    assert [row["category"] for row in race if row["excluded"]] == ["Two or more races"]
    assert sum(row["applicants"] for row in law[0].rows) == 500
    for row in race[:-1]:
        own = people["race"] == row["category"]
        assert row["selected"] == labels[own].sum()
        assert row["selection_rate"] == pytest.approx(labels[own].mean())


@pytest.mark.parametrize("sensitive", [["sex"], ["race"]])
def test_no_law_tables_of_one_attribute(sensitive):
    people = {"sex": ["f", "m"] * 4, "race": ["a", "b"] * 4}
    assert not [t for t in section(people, [0, 1] * 4, sensitive).tables if t.id.startswith("local law")]


def test_each_class_in_turn_without_a_favourable_one():
    found = section({"sex": ["f", "m"] * 3}, [0, 1, 2, 0, 1, 2], ["sex"], favourable=None)
    assert [table.id for table in found.tables] == [f"selection: sex, class {c}" for c in range(3)]
    assert found.measures == ()


def test_a_page_of_many_classes_stays_short():
    people = {name: ["a", "b"] * 20 for name in ("sex", "race")}
    labels = np.repeat(np.arange(20), 2)
    found = section(people, labels, ["sex", "race"], favourable=None, y=labels)
    assert len(found.tables) == 20 * 3 * 2
    assert sum(table.limit > 0 for table in found.tables) == 24
    assert "96 more tables like these stand in the CSV and JSON files beside this page." in found.findings
