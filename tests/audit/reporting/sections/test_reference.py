"""Reference groups, truth that one decision shows, better ends, and sections to skip in a report."""

import json

import numpy as np
import pandas as pd
import pytest

import cfe_faiss as cfe
from cfe_faiss import audit


def people(n=900, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"income": rng.normal(size=n), "debt": rng.normal(size=n)})
    frame["sex"] = rng.choice(["f", "m"], n, p=[0.6, 0.4])
    score = frame["income"] - frame["debt"] - 0.8 * (frame["sex"] == "f") + 0.3 * rng.normal(size=n)
    frame["loan"] = np.where(score > 0, "yes", "no")
    frame["repaid"] = np.where(
        frame["loan"] == "no", None, np.where(rng.random(n) < 0.9, "yes", "no")
    )
    return frame


def report(frame, folder, truth=None, **options):
    columns = frame if truth else frame.drop(columns="repaid")
    finder = cfe.EvidenceFinder.from_table(columns, "loan", truth=truth, sensitive=["sex"])
    options = {"favourable": "yes", "progress": False, "skip": ["sensitivity"]} | options
    audit.report(finder, folder / "r.html", **options)
    return json.loads((folder / "r.json").read_text())


def test_a_condition_fails_where_the_largest_group_is_at_a_disadvantage(tmp_path):
    numbers = report(people(), tmp_path, require=["impact_ratio[sex]>=0.8"])
    checks = {check["group"]: check["outcome"] for check in numbers["conditions"]["rows"]}
    assert checks == {"f": "fail", "m": "pass"}
    assert any("sex = f" in line and "selected less often" in line for line in numbers["named"])


@pytest.mark.filterwarnings("ignore:no true class:cfe_faiss.InputWarning")
def test_differences_and_ratios_of_a_reference_at_a_disadvantage_fail(tmp_path):
    frame = people()
    frame.loc[frame["sex"] == "f", "loan"] = "no"  # nobody of the largest group is selected
    require = ["impact_ratio[sex]>=0.8", "selection_rate_difference[sex]>=-0.2"]
    numbers = report(frame, tmp_path, require=require)
    failed = {
        (check["condition"], check["group"])
        for check in numbers["conditions"]["rows"]
        if check["outcome"] == "fail"
    }
    assert {group for _, group in failed} == {"f"}
    assert len(failed) == 2
    assert any("sex = f" in line and "selected less often" in line for line in numbers["named"])


@pytest.mark.filterwarnings("ignore::cfe_faiss.InputWarning")
def test_truth_that_one_decision_shows_is_said_and_not_counted(tmp_path):
    with pytest.warns(cfe.InputWarning, match="truth is known"):
        numbers = report(people(), tmp_path, truth="repaid")
    text = json.dumps(numbers)
    assert "are right" not in text
    assert "true class is known only of" in text
    sections = {section["id"]: section for section in numbers["sections"]}
    assert sections["error_rates"]["missing"]
    assert sections["errors"]["missing"]
    rows = sections["outcomes"]["tables"][0]["rows"]
    frame = people().dropna(subset=["repaid"])
    for row in rows:
        own = frame[frame["sex"] == row["value"]]
        assert (row["count"], row["rate"]) == (
            len(own),
            pytest.approx((own["repaid"] == "yes").mean()),
        )


def test_the_refused_person_of_the_strongest_case_is_at_least_as_good(tmp_path):
    numbers = report(people(), tmp_path, better={"income": "high", "debt": "low"})
    (case,) = [section for section in numbers["sections"] if section["id"] == "strongest_case"]
    rows = {row["attribute"]: row for row in case["tables"][0]["rows"]}
    refused, granted = ("a", "b") if rows["Decision"]["a"] == "no" else ("b", "a")
    if "income" in rows:
        assert rows["income"][refused] >= rows["income"][granted]
    if "debt" in rows:
        assert rows["debt"][refused] <= rows["debt"][granted]
    assert any(
        "at least as good in income (high) and debt (low)" in line for line in case["findings"]
    )


def test_skipped_sections_are_left_out_and_unknown_ones_are_errors(tmp_path):
    numbers = report(people(), tmp_path, skip=["sensitivity", "balance"])
    assert not {"sensitivity", "balance"} & {section["id"] for section in numbers["sections"]}
    with pytest.raises(ValueError, match="skip"):
        report(people(), tmp_path, skip=["sensibility"])
    with pytest.raises(ValueError, match="reference"):
        report(people(), tmp_path, reference={"sex": "x"})
    with pytest.raises(ValueError, match="better"):
        report(people(), tmp_path, better={"wage": "high"})


def test_columns_that_determine_the_decision_are_on_the_page(tmp_path):
    frame = people()
    frame["outcome"] = np.where(frame["loan"] == "yes", "paid", None)
    with pytest.warns(cfe.InputWarning):
        numbers = report(frame, tmp_path)
    assert any(
        "outcome (known for “yes” only) determines the decision" in line
        for line in numbers["scope"]
    )


@pytest.mark.filterwarnings("ignore::cfe_faiss.InputWarning")
def test_a_column_that_everybody_lacks_hides_no_case(tmp_path):
    numbers = report(people().assign(empty=np.nan), tmp_path)
    (case,) = [section for section in numbers["sections"] if section["id"] == "strongest_case"]
    assert case["tables"]
    assert not any("are left out" in line for line in case["findings"])


def test_an_interrupted_report_prints_what_it_has(tmp_path, monkeypatch, capsys):
    from cfe_faiss.audit.reporting import content

    make = content.make_section

    def make_or_interrupt(part, inputs):
        if part.name == "counts":
            raise KeyboardInterrupt
        return make(part, inputs)

    monkeypatch.setattr(content, "make_section", make_or_interrupt)
    with pytest.raises(KeyboardInterrupt):
        report(people(), tmp_path)
    printed = capsys.readouterr().err
    assert "interrupted" in printed
    assert "sex = f: people of this group" in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options",
    [
        {"better": {"income": "high"}, "favourable": None},
        {"better": {}},
        {"better": "income"},
        {"reference": {"sex": "m"}, "sensitive": []},
        {"person": "income", "sensitive": []},
        {"person": "whom"},
        {"skip": ["consistency"], "require": ["consistency<=0.2"]},
    ],
)
def test_options_without_effect_are_errors(options, tmp_path):
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        report(people(), tmp_path, **options)
    assert not list(tmp_path.iterdir())


def case_of(numbers):
    (case,) = [section for section in numbers["sections"] if section["id"] == "strongest_case"]
    return case


def test_the_nearest_better_pair_is_searched_beyond_the_closest_pairs(tmp_path):
    frame = people(400).drop(columns="sex").assign(sex="f")
    frame["debt"] = frame["debt"].round(1)
    better = {"debt": "low", "income": "high"}
    closest = case_of(report(frame, tmp_path, better=better, pairs=1, cases=1, overwrite=True))
    assert any("at least as good" in line and "No pair" not in line for line in closest["findings"])
    assert not case_of(report(frame, tmp_path, better=better, overwrite=True))["missing"]


def test_a_page_says_that_no_refused_person_is_as_good(tmp_path):
    frame = people(400)
    frame["loan"] = np.where(frame["income"] > 0.2, "yes", "no")
    with pytest.warns(cfe.InputWarning, match="determines"):
        case = case_of(report(frame, tmp_path, better={"income": "high"}))
    assert any("No pair" in line and "income (high)" in line for line in case["findings"])
