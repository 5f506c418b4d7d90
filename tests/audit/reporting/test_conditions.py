import math
from functools import partial
from typing import Any

import pytest

from cfe_faiss.audit import Condition
from cfe_faiss.audit.reporting import Report
from cfe_faiss.audit.reporting.conditions import as_conditions, check_all

Rows = dict[str, list[dict[str, Any]]]


def measure(name, cases, attribute, group, value, n, low=None, high=None, ranked=True):
    row = {"attribute": attribute, "place": group, "ranked": ranked, "ratio": None, "count": 0}
    row |= {"accuracy": None, "judged": 0}
    return row | {name: value, cases: n, f"{name}_low": low, f"{name}_high": high}


ratio, accuracy = partial(measure, "ratio", "count"), partial(measure, "accuracy", "judged")
RATIOS = {
    "groups": [
        ratio("sex", "f", 0.75, 40, 0.7, 0.79),
        ratio("sex", "m", 1.0, 60),
        ratio("sex", "d", 0.5, 35, 0.4, 0.6, ranked=False),
        ratio("city", "A", 0.5, 10, 0.4, 0.6),
    ]
}
ACCURACIES = {
    "groups": [accuracy(None, "all people", 0.9, 100, 0.84, 0.95), accuracy("sex", "x", None, 50)]
}


def outcomes(condition, sensitive=("sex",)):
    return [
        (check.attribute, check.group, check.outcome)
        for check in check_all([condition], RATIOS, sensitive)
    ]


def test_each_group_is_checked():
    condition = Condition("impact_ratio", at_least=0.8)
    found = [("sex", "f", "fail"), ("sex", "m", "pass"), ("sex", "d", "cannot tell")]
    assert outcomes(condition) == found
    assert outcomes(condition, ["sex", "city"]) == [*found, ("city", "A", "cannot tell")]
    answer = outcomes(Condition("impact_ratio", "city", at_most=0.6, min_cases=10), [])
    assert answer == [("city", "A", "pass")]


@pytest.mark.parametrize(
    ("bounds", "interval", "outcome"),
    [
        ({"at_least": 0.8}, (0.8, 1.1), "pass"),
        ({"at_least": 0.8}, (math.nextafter(0.8, 0), 1.1), "cannot tell"),
        ({"at_least": 0.8}, (0.5, 0.8), "cannot tell"),
        ({"at_least": 0.8}, (0.5, math.nextafter(0.8, 0)), "fail"),
        ({"at_most": 0.1}, (0.0, 0.1), "pass"),
        ({"at_most": 0.1}, (0.1, 0.2), "cannot tell"),
        ({"at_most": 0.1}, (0.11, 0.2), "fail"),
        ({"at_least": 0.8, "at_most": 1.25}, (0.8, 1.25), "pass"),
        ({"at_least": 0.8, "at_most": 1.25}, (0.9, 1.3), "cannot tell"),
        ({"at_least": 0.8, "at_most": 1.25}, (1.3, 1.4), "fail"),
        ({"at_least": 0.8, "at_most": 1.25}, (0.1, 0.7), "fail"),
    ],
)
def test_the_whole_interval_decides(bounds, interval, outcome):
    low, high = interval
    (check,) = check_all(
        [Condition("accuracy", **bounds)],
        {"groups": [accuracy(None, "all", (low + high) / 2, 50, low, high)]},
        (),
    )
    assert check.outcome == outcome
    assert (check.reason == "") == (outcome != "cannot tell")


def test_a_count_without_an_interval_decides_alone():
    for share, outcome in ((0.1, "pass"), (0.11, "fail")):
        row = {"attribute": "sex", "place": "f to m", "share": share, "nodes": 100}
        (check,) = check_all([Condition("flipped", "sex", at_most=0.1)], {"flip": [row]}, ["sex"])
        assert check.outcome == outcome


def test_few_cases_and_undefined_numbers_cannot_tell():
    def reasons(condition, rows=RATIOS):
        return [check.reason for check in check_all([condition], rows, ["sex"])]

    found = reasons(Condition("accuracy", at_least=0.8), ACCURACIES)
    assert found == ["", "the number is not defined"]
    few = "fewer than 50 cases"
    found = reasons(Condition("impact_ratio", "sex", at_least=0.8, min_cases=50))
    assert found == [few, "", "the group is not ranked"]
    assert reasons(Condition("flipped", "sex", at_most=0)) == ["no such group"]
    assert Condition("accuracy", at_least=0.8).min_cases == 30


def test_outcome_of_a_report(tmp_path):
    def outcome(rows, *require):
        report = Report((tmp_path,), check_all(as_conditions(require), rows, ["sex"]), {})
        return report.outcome, report.passed

    assert outcome(RATIOS) == ("no conditions", False)
    assert outcome(ACCURACIES, "accuracy<=0.95") == ("cannot tell", False)
    assert outcome(RATIOS, "impact_ratio[city]>=0.8", "impact_ratio[sex]>=0.8") == ("fail", False)
    report = Report((tmp_path,), check_all(as_conditions("accuracy>=0.8"), ACCURACIES, []), {})
    assert (report.outcome, report.passed) == ("pass", True)


def test_a_model_is_the_bound_of_the_others():
    counts = {"v1": 100.0, "v2": 90.0, "v3": 101.0}
    rows = [
        {"attribute": None, "place": name, "evidence": count, "n": 500}
        for name, count in counts.items()
    ]
    measures = {"models": rows}
    condition = Condition.parse("evidence_pairs <= v1")
    assert condition == Condition("evidence_pairs", at_most="v1")
    found = [(check.group, check.outcome) for check in check_all([condition], measures, ())]
    assert found == [("v2", "pass"), ("v3", "fail")]
    both = Condition("evidence_pairs", at_least=95, at_most="v1")
    assert str(both) == "evidence_pairs >= 95 and evidence_pairs <= v1"
    assert [check.outcome for check in check_all([both], measures, ())] == ["fail", "fail"]
    (check,) = check_all([Condition("evidence_pairs", at_most=99)], {"models": rows[:1]}, ())
    assert check.outcome == "fail"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("impact_ratio>=0.8", Condition("impact_ratio", at_least=0.8)),
        (
            " impact_ratio [ sex & race ] >= .8 ",
            Condition("impact_ratio", "sex & race", at_least=0.8),
        ),
        ("flipped[a>=b]<=1e-2", Condition("flipped", "a>=b", at_most=0.01)),
        ("equalised_odds_difference<=1e-1", Condition("equalised_odds_difference", at_most=0.1)),
    ],
)
def test_parse(text, condition):
    assert Condition.parse(text) == condition
    assert Condition.parse(str(condition)) == condition


@pytest.mark.parametrize(
    "text",
    [
        "",
        "impact_ratio",
        *(f"impact_ratio{end}" for end in (">0.8", ">=", ">=1.2.3", ">=nan", ">=inf", ">=v1")),
        *("evidence_pairs>=", "evidence_pairs>v1"),
    ],
)
def test_parse_refuses(text):
    with pytest.raises(ValueError, match="must read like"):
        Condition.parse(text)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"metric": "parity", "at_least": 1}, ValueError, "metric must be one of"),
        ({"metric": "accuracy"}, ValueError, "at_least or at_most"),
        ({"metric": "accuracy", "at_least": 1, "at_most": 0}, ValueError, "at_least must be"),
        ({"metric": "accuracy", "at_least": "1"}, TypeError, "at_least must be a number"),
        ({"metric": "accuracy", "at_least": math.nan}, ValueError, "at_least"),
        ({"metric": "accuracy", "at_least": 1, "min_cases": 0}, ValueError, "min_cases"),
    ],
)
def test_bad_conditions(options, error, words):
    with pytest.raises(error, match=words):
        Condition(**options)
