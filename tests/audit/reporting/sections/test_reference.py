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


def section_of(numbers, name):
    return next(section for section in numbers["sections"] if section["id"] == name)


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
    assert section_of(numbers, "error_rates")["missing"]
    assert section_of(numbers, "errors")["missing"]
    rows = section_of(numbers, "outcomes")["tables"][0]["rows"]
    frame = people().dropna(subset=["repaid"])
    for row in rows:
        own = frame[frame["sex"] == row["value"]]
        expected = (len(own), pytest.approx((own["repaid"] == "yes").mean()))
        assert (row["count"], row["rate"]) == expected


def test_columns_that_determine_the_decision_are_on_the_page(tmp_path):
    frame = people()
    frame["outcome"] = np.where(frame["loan"] == "yes", "paid", None)
    with pytest.warns(cfe.InputWarning):
        numbers = report(frame, tmp_path)
    sentence = "outcome (known for “yes” only) determines the decision"
    assert any(sentence in line for line in numbers["scope"])


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


def test_the_nearest_better_pair_is_searched_beyond_the_closest_pairs(tmp_path):
    frame = people(400).drop(columns="sex").assign(sex="f")
    frame["debt"] = frame["debt"].round(1)
    better = {"debt": "low", "income": "high"}
    closest = section_of(
        report(frame, tmp_path, better=better, pairs=1, cases=1, overwrite=True), "strongest_case"
    )
    assert any("at least as good" in line and "No pair" not in line for line in closest["findings"])
    numbers = report(frame, tmp_path, better=better, overwrite=True)
    assert not section_of(numbers, "strongest_case")["missing"]


def test_a_page_says_that_no_refused_person_is_as_good(tmp_path):
    frame = people(400)
    frame["loan"] = np.where(frame["income"] > 0.2, "yes", "no")
    with pytest.warns(cfe.InputWarning, match="determines"):
        numbers = report(frame, tmp_path, better={"income": "high"})
    case = section_of(numbers, "strongest_case")
    assert any("No pair" in line and "income (high)" in line for line in case["findings"])
