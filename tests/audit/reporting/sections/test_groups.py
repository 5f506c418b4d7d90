from types import SimpleNamespace

import numpy as np
import pytest
from audit_report_helpers import inputs_of, section_of

import cfe_faiss as cfe
from cfe_faiss.audit import Condition
from cfe_faiss.audit.reporting.conditions import check_all

pytestmark = pytest.mark.filterwarnings("ignore:no true class:cfe_faiss.InputWarning")


def made(section, people, labels, sensitive, favourable=1, y=None):
    n = len(labels)
    x = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    data = SimpleNamespace(x=x, edge_index=np.stack([np.arange(n - 1), np.arange(1, n)]), y=y)
    finder = cfe.EvidenceFinder.from_data(data, labels, features=people)
    return section_of(inputs_of(finder, sensitive, favourable), section)


def test_rates_by_hand():
    people = {"sex": ["f"] * 4 + ["m"] * 6}
    labels, y = [1, 0, 0, 0, 1, 1, 1, 0, 0, 0], np.array([1, 1, 0, 0, 1, 0, 1, 0, 0, -1])
    rates, disparities = made("groups", people, labels, ["sex"], y=y).tables
    f, m = rates.rows
    assert (f["group"], f["selected"], f["rate"], f["ratio"]) == ("sex = f", 1, 0.25, 0.5)
    assert (m["selected"], m["rate"], m["ratio"], m["ratio_low"]) == (3, 0.5, 1, None)
    assert [row["verdict"] for row in disparities.rows] == ["cannot tell", "reference"]
    assert rates.charts[0].plot.guides == (0.4,)
    odds, errors = made("error_rates", people, labels, ["sex"], y=y).tables
    f, m = errors.rows
    assert (f["fnr"], f["positives"], f["fpr"]) == (0.5, 2, 0)
    assert (m["judged"], m["negatives"], m["fpr"]) == (5, 3, 1 / 3)
    assert odds.rows[0]["equalised_odds_difference"] is None  # too few of either true class


def test_the_largest_gap_of_errors_is_the_headline():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    people = {"sex": np.repeat(["f", "m"], 200), "city": rng.choice(["A", "B"], 400)}
    labels = np.where((people["sex"] == "f") & (rng.random(400) < 0.3), 1 - y, y)
    found = made("error_rates", people, labels, ["sex", "city"], y=y)
    row = next(row for row in found.tables[0].rows if row["feature"] == "sex")
    of_f = people["sex"] == "f"
    gaps = [(labels != y)[of_f & (y == c)].mean() for c in (0, 1)]
    assert row["equalised_odds_difference"] == pytest.approx(max(gaps))
    largest = max(found.tables[0].rows, key=lambda row: row["equalised_odds_difference"])
    assert f"{100 * largest['equalised_odds_difference']:.1f} points" in found.headline
    assert found.headline.endswith(f"by {largest['feature']}.")
    (of_sex,) = (measure for measure in found.measured if measure["attribute"] == "sex")
    low, value, high = (of_sex[f"equalised_odds_difference{end}"] for end in ("_low", "", "_high"))
    assert value == row["equalised_odds_difference"]
    assert low < value < high
    assert of_sex["judged"] == 400


def test_measures_of_conditions():
    found = made("groups", {"sex": ["f"] * 4 + ["m"] * 4}, [1, 0, 0, 0, 1, 1, 0, 0], ["sex"])
    rows = {(row["attribute"], row["place"]): row for row in found.measured}
    assert rows["sex", "f"]["ratio"] == 0.5
    assert rows[None, "all nodes"]["rate"] == 0.375
    assert rows["sex", "f"]["difference"] == -0.25
    assert rows["sex", "f"]["accuracy"] is None
    checks = check_all(
        [Condition("impact_ratio", at_least=0.8)], {"groups": found.measured}, ["sex"]
    )
    assert [check.group for check in checks] == ["f", "m"], "everyone has no impact ratio"


def test_a_group_that_is_not_ranked_is_not_judged():
    found = made(
        "groups", {"city": ["A"] * 100 + ["B"] * 90 + ["C"] * 29}, [0, 1] * 95 + [0] * 29, ["city"]
    )

    def reasons(metric):
        condition = Condition(metric, "city", at_least=0, min_cases=1)
        return {
            check.group: check.reason
            for check in check_all([condition], {"groups": found.measured}, ["city"])
        }

    assert reasons("impact_ratio") == {"A": "", "B": "", "C": "the group is not ranked"}
    assert reasons("selection_rate") == {"A": "", "B": "", "C": ""}
    assert "Too small to be ranked: city = C (29)." in found.undetermined


def test_tables_of_local_law_144():
    rng = np.random.default_rng(0)
    races = ["Asian", "White (Not Hispanic or Latino)", "Hispanic or Latino", "Two or more races"]
    people = {
        "Gender": np.array(["Female", "Male"])[rng.integers(0, 2, 500)],
        "race": np.array([*races, None], dtype=object)[
            rng.choice(5, 500, p=[0.3, 0.4, 0.27, 0.01, 0.02])
        ],
    }
    labels = rng.integers(0, 2, 500)
    law = made("counts", people, labels, ["race", "Gender"]).tables[1:]
    assert [table.id for table in law] == [
        f"local law 144: {part}" for part in ("Sex", "Race/Ethnicity", "Intersectional")
    ]
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
    assert len(made("counts", people, [0, 1] * 4, sensitive).tables) == 1


def test_a_page_of_many_classes_stays_short():
    people = {name: ["a", "b"] * 20 for name in ("sex", "race")}
    labels = np.arange(40) % 14
    found = made("groups", people, labels, ["sex", "race"], favourable=None, y=labels)
    rates, _ = found.tables
    assert len(rates.rows) > rates.limit
