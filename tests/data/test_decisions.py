"""Favourable classes, truth in words of its own and thresholds, in reports, audits and on the command line."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.cli import main

N = 240
RNG = np.random.default_rng(0)
SMALL = {"pairs": 20, "cases": 1, "progress": False, "overwrite": True}


@pytest.fixture
def people():
    frame = pd.DataFrame(
        {
            "person": [f"p{i}" for i in range(N)],
            "income": RNG.normal(40, 12, N).round(1),
            "debt": RNG.gamma(2, 6, N).round(1),
            "sex": RNG.choice(["f", "m"], N),
            "score": RNG.integers(0, 11, N),
        }
    )
    frame["loan"] = np.select(
        [frame["score"] > 7, frame["score"] > 4], ["prime", "standard"], "refused"
    )
    frame["granted"] = np.where(frame["score"] > 4, "yes", "no")
    frame["outcome"] = np.where(RNG.random(N) < 0.6, "repaid", "defaulted")
    frame.loc[:9, "outcome"] = None
    return frame


def finder_of(people, decision, **options):
    columns = ["person", "income", "debt", "sex", decision, *options.get("more", ())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cfe.InputWarning)
        truth = options.get("truth")
        return cfe.EvidenceFinder.from_table(
            people[columns], decision, id="person", sensitive=["sex"], truth=truth
        )


def numbers_of(finder, path, **options):
    return audit.report(finder, path, **SMALL, **options).numbers


def rows_of(numbers, section, table):
    found = next(one for one in numbers["sections"] if one["id"] == section)
    return next(one["rows"] for one in found["tables"] if one["id"] == table)


def test_several_classes_count_together_as_one(people, tmp_path):
    several = finder_of(people, "loan")
    favourable = ["prime", "standard"]
    require = ["impact_ratio[sex]>=0.1"]
    numbers = numbers_of(several, tmp_path / "a.html", favourable=favourable, require=require)
    one = numbers_of(
        finder_of(people, "granted"), tmp_path / "b.html", favourable="yes", require=require
    )
    assert numbers["subject"]["Favourable class"] == "prime or standard"
    names = "value", "count", "selected", "rate"
    rates = [
        [[row[name] for name in names] for row in rows_of(each, "groups", "rates")]
        for each in (numbers, one)
    ]
    assert rates[0] == rates[1]
    assert numbers["conditions"] == one["conditions"]
    for section, table in (("groups", "disparities"), ("tests", "all_tests")):
        verdicts = [
            [row["verdict"] for row in rows_of(each, section, table)] for each in (numbers, one)
        ]
        assert verdicts[0] == verdicts[1]
    assert rows_of(numbers, "tests", "all_tests") == rows_of(one, "tests", "all_tests")


def test_truth_in_words_of_its_own(people, tmp_path):
    known = people["outcome"].notna()
    for decision, favourable in (("granted", "yes"), ("loan", ["prime", "standard"])):
        finder = finder_of(people, decision, truth="outcome", more=["outcome"])
        options = {"favourable": favourable, "truth_favourable": "repaid"}
        numbers = numbers_of(finder, tmp_path / "a.html", **options)
        right = ((people["granted"] == "yes") == (people["outcome"] == "repaid"))[known]
        rows = rows_of(numbers, "error_rates", "error_rates")
        assert sum(row["judged"] for row in rows) == known.sum()
        assert sum(row["accuracy"] * row["judged"] for row in rows) == pytest.approx(right.sum())
        curve = audit.error_rate_by_evidence(finder, ks=[5], **options)
        assert curve["overall"].iloc[0] == pytest.approx(right.mean())
        unfavourable = "no" if decision == "granted" else "refused"
        compared = audit.compare_models(
            finder, {"v2": people[decision]}, unfavourable=unfavourable, truth_favourable="repaid"
        )
        assert compared.models["accuracy"].tolist() == pytest.approx([right.mean()] * 2)
        with pytest.raises(ValueError, match=r"class in common, got .* and defaulted, repaid"):
            numbers_of(finder, tmp_path / "a.html", favourable=favourable)
        with pytest.raises(ValueError, match=r"truth_favourable must be among the classes .*did"):
            numbers_of(
                finder, tmp_path / "a.html", favourable=favourable, truth_favourable="repayd"
            )
        with pytest.raises(ValueError, match="truth_favourable must come with favourable"):
            numbers_of(finder, tmp_path / "a.html", truth_favourable="repaid")


def audited(folder, table, *options):
    path, page = folder / "t.csv", folder / "r.html"
    table.to_csv(path, index=False)
    words = f"audit --features {path} --id person --sensitive sex --out {page} --overwrite".split()
    words += ["--pairs", "20", "--cases", "1", *(text.replace("@", str(path)) for text in options)]
    status = main(words)
    return status, json.loads(page.with_suffix(".json").read_text()) if status == 0 else {}


def test_the_command_line(people, tmp_path, capsys):
    table = people.drop(columns=["granted", "score"])
    options = ["--predictions", "@:loan", "--truth", "@:outcome", "--truth-favourable", "repaid"]
    status, together = audited(tmp_path, table, *options, "--favourable", "prime", "standard")
    assert status == 0
    notes = capsys.readouterr().err
    assert notes.count("no true class for 10 of 240 rows") == 1
    assert "never among the others" not in notes
    _, repeated = audited(
        tmp_path, table, *options, "--favourable", "prime", "--favourable", "standard"
    )
    names = ("rates", "disparities")
    for name in names:
        assert rows_of(together, "groups", name) == rows_of(repeated, "groups", name)
    assert audited(tmp_path, table, *options[:4], "--favourable", "prime")[0] == 2
    assert "truth_favourable" in capsys.readouterr().err
    assert audited(tmp_path, table, *options, "--favourable", "primed")[0] == 2
    assert "did you mean 'prime'" in capsys.readouterr().err


def test_a_threshold_on_the_command_line(people, tmp_path):
    table = people.drop(columns=["granted", "loan", "outcome"])
    for text, granted in (("score>=5", people["score"] >= 5), ("score<5", people["score"] < 5)):
        status, numbers = audited(tmp_path, table, "--threshold", text)
        assert status == 0
        assert numbers["subject"]["Favourable class"] == text
        assert numbers["subject"]["Model"] == f"threshold {text}"
        rates = rows_of(numbers, "groups", "rates")
        found = [row["selected"] for row in rates]
        assert found == [int(granted[people["sex"] == sex].sum()) for sex in ("f", "m")]
    assert audited(tmp_path, table, "--threshold", "score")[0] == 2
    assert audited(tmp_path, table, "--threshold", "score>5", "--predictions", "@:sex")[0] == 2
    truth = table.assign(good=np.where(RNG.random(N) < 0.5, 1, 0))
    words = ["--threshold", "score>=5", "--truth", "@:good", "--truth-favourable", "1"]
    assert audited(tmp_path, truth, *words)[0] == 0
