"""A table without a graph, on the command line, as its pages print it."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import records

import cfe_faiss as cfe
from cfe_faiss.cli import main

NAMES = ("--features", "people.csv", "--id", "person", "--predictions", "people.csv:loan")


@pytest.fixture
def people(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    n = 300
    frame = pd.DataFrame(
        {"person": [f"p{i}" for i in range(n)], "income": rng.gamma(10, 4, n).round(1)}
    )
    frame["job"] = rng.choice(["cook", "smith", "clerk"], n)
    frame["sex"] = rng.choice(["f", "m"], n)
    granted = frame["income"] - 8 * (frame["sex"] == "f") + rng.normal(0, 4, n) > 32
    frame["loan"] = np.where(granted, "granted", "refused")
    monkeypatch.chdir(tmp_path)
    frame.to_csv("people.csv", index=False)
    return frame


def test_from_csv_to_a_report_in_one_command(people, capsys):
    options = ["--sensitive", "sex", "--favourable", "granted", "--pairs", "20", "--cases", "2"]
    assert main(["audit", *NAMES, *options, "--require", "impact_ratio[sex]>=0.8"]) == 1
    captured = capsys.readouterr()
    assert "report.html" in captured.out
    assert captured.err == ""
    page = Path("report.html").read_text()
    finder = cfe.EvidenceFinder.from_table("people.csv", "loan", id="person", sensitive=["sex"])
    best = finder.names(finder.top_pairs(1).source)[0]
    assert re.search(rf"\b{best}\b", page)
    masked = ["--mask-ids", "--cut", "income=30,50", "--out", "masked.html"]
    assert main(["audit", *NAMES, *options, *masked]) == 0
    assert re.search(rf"\b{best}\b", Path("masked.html").read_text()) is None


def test_masked_reports_hold_no_ids_of_people(people, capsys):
    people.assign(person=[f"secret{i // 2}" for i in range(300)]).to_csv("people.csv", index=False)
    line = "--features people.csv --predictions people.csv:loan --favourable granted"
    options = "--sensitive sex --without person --person person --pairs 20 --cases 2 --mask-ids"
    assert main(["audit", *line.split(), *options.split()]) == 0
    written = capsys.readouterr().out.split()
    files = [Path(name) for name in written if name.endswith((".html", ".json", ".xml", ".csv"))]
    assert len(files) == 4
    assert not any("secret" in file.read_text() for file in files)


def test_values_of_repeated_options_are_joined(people, output, capsys):
    notes = "cfe-faiss: note: classes: 0 is granted, 1 is refused\n"
    without = ["--without", "sex", "--without", "job"]
    output(
        "build", "my.index", *NAMES, *without, notes=f"{notes}cfe-faiss: note: left out: sex, job\n"
    )
    line = ["global", "my.index", *NAMES, "-k", 5, "--csv"]
    both = ["--caliper", "income=1", "--exact", "job", "--exact", "sex"]
    assert output(*line, *both) == output(*line, *both[:4], "sex")
    assert main([*map(str, line), "--caliper", "income=1", "--caliper", "income=2"]) == 2
    assert "--caliper must name 'income' once" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cut", "income=50,30"], "--cut income must be"),
        (["--scale", "income=-2"], "--scale income must lie in"),
        (["--caliper", "job=5"], "--caliper must name"),
        (["-k", "0"], "-k must be at least 1"),
        (["--out", "r.pdf"], "--out must end in .html"),
    ],
)
def test_errors_of_arguments_are_in_the_words_of_options(people, capsys, options, message):
    assert main(["audit", *NAMES, "--sensitive", "sex", "--favourable", "granted", *options]) == 2
    assert message in capsys.readouterr().err


def test_an_index_and_its_evidence_in_the_users_ids(people, output):
    notes = "cfe-faiss: note: classes: 0 is granted, 1 is refused\ncfe-faiss: note: left out: sex\n"
    output("build", "my.index", *NAMES, "--without", "sex", notes=notes)
    finder = cfe.EvidenceFinder.from_table("people.csv", "loan", id="person", without=["sex"])
    rows = records(
        output("local", "my.index", *NAMES, "--nodes", "p3", "p5", "-k", 2, "--csv"), "csv"
    )
    expected = finder.local(["p3", "p5"], k=2).to_frame()
    assert [row["evidence"] for row in rows] == expected["evidence"].tolist()
    where = cfe.Constraints(exact=["job"], caliper={"income": 5}, target="granted")
    flags = ("--exact", "job", "--caliper", "income=5", "--target", "granted")
    asked = people["person"][people["loan"] == "refused"].head(20)
    short = finder.local(asked, k=1, where=where)
    missing = int((short.evidence[:, -1] < 0).sum())
    notes = f"cfe-faiss: note: fewer than 1 found for {missing} of 20 nodes\n" if missing else ""
    line = ("local", "my.index", *NAMES, "-k", 1, "--nodes", *asked, *flags, "--csv")
    rows = records(output(*line, notes=notes), "csv")
    assert [row["evidence"] for row in rows] == short.to_frame()["evidence"].tolist()
    where = cfe.Constraints(antiexact=["sex"])
    rows = records(
        output("global", "my.index", *NAMES, "-k", 5, "--antiexact", "sex", "--csv"), "csv"
    )
    found = [row["source"] for row in rows]
    assert found == finder.top_pairs(5, where=where).to_frame()["source"].tolist()


def test_columns_of_any_name_and_problems_in_the_words_of_options(people, capsys):
    table = people.rename(columns={"loan": "loan, 2024: result"}).assign(
        note=people["person"], age="30"
    )
    table.loc[4, "age"] = "?"
    table.to_csv("t.csv")
    source = ["--features", "t.csv", "--id", "person"]
    source += ["--predictions", "t.csv", "loan, 2024: result"]
    assert main(["build", "a.index", *source, "--without", "jobs"]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if "note:" not in line]
    for part in ("--without must name a column", "did you mean 'job'", "--na '?'", "--ignore note"):
        assert part in error
    assert main(["build", "a.index", *source, "--na", "?", "--ignore", "note"]) == 0
    notes = capsys.readouterr().err
    assert notes.count("missing values") == 1
    assert "age '?' 1 of 300 rows" in notes
    assert "Unnamed: 0" in notes


def test_suspicious_input_is_a_line_on_standard_error(people, capsys):
    table = people.drop(columns="person").assign(nr=np.arange(1, 301), rate="1,5")
    table.loc[::2, "rate"] = "2,5"
    table.to_csv("german.csv", index=False, sep=";", encoding="latin-1")
    source = ["--features", "german.csv", "--predictions", "german.csv:loan"]
    assert main(["build", "a.index", *source]) == 2
    assert re.search(r"'rate' .*'1,5'.* --decimal ,", capsys.readouterr().err)
    assert main(["build", "a.index", *source, "--decimal", ","]) == 0
    lines = capsys.readouterr().err.splitlines()
    (warning,) = [line for line in lines if line.startswith("cfe-faiss: warning: ")]
    assert "'nr'" in warning
    named = ["--decimal", ",", "--encoding", "latin-1", "--id", "nr"]
    assert main(["build", "b.index", *source, *named]) == 0
    assert "warning" not in capsys.readouterr().err
    table.drop(columns="rate").assign(
        truth=people["loan"].map({"granted": "yes", "refused": "no"})
    ).to_csv("t.csv", index=False)
    source = ["--features", "t.csv", "--predictions", "t.csv:loan"]
    source += ["--truth", "t.csv:truth", "--id", "nr"]
    assert main(["audit", *source]) == 2
    assert "predictions and truth must have a class in common" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "weight", "unit"),
    [
        ([], 1, None),
        (["--scale", "income=2"], 2, None),
        (["--as-is"], 1, 1),
        (["--as-is", "--scale", "income=3"], 3, 1),
    ],
)
def test_distances_of_a_table(people, output, options, weight, unit):
    notes = "cfe-faiss: note: classes: 0 is granted, 1 is refused\ncfe-faiss: note: left out: sex\n"
    output("build", "my.index", *NAMES, "--without", "sex", *options, notes=notes)
    rows = records(output("local", "my.index", *NAMES, "--nodes", "p3", "-k", 3, "--csv"), "csv")
    away = (
        weight * (people["income"] - people["income"][3]) / (unit or people["income"].std(ddof=0))
    )
    away = np.hypot(away, people["job"] != people["job"][3])
    expected = np.sort(away[people["loan"] != people["loan"][3]])[:3]
    np.testing.assert_allclose([float(row["distance"]) for row in rows], expected, rtol=1e-5)
    page = output("case", "p3", *NAMES, "--without", "sex", *options, "-k", 1)
    assert f"{expected[0]:.5g}" in page.partition("Distance")[2].partition("\n")[0]


def test_wrong_indexes_and_scales_of_a_table_are_named(people, capsys):
    for options, message in (
        (["--index", "paper"], "compares by cosine"),
        (["--scale", "incomes=2"], "did you mean 'income'?"),
    ):
        assert main(["build", "my.index", *NAMES, *options]) == 2
        assert message in capsys.readouterr().err


def test_classes_of_an_index_by_a_threshold_have_names(people, output, error):
    table = ["--features", "people.csv", "--id", "person", "--ignore", "loan"]
    threshold = ["--threshold", "income>=40"]
    note = "cfe-faiss: note: classes: 0 is income<40, 1 is income>=40\n"
    output("build", "people.cfe", *table, *threshold, notes=note)
    incomes = people.set_index("person")["income"]
    rows = records(output("local", "people.cfe", *table, *threshold, "-k", 2, "--json"), "json")
    assert {row["node_label"] for row in rows} == {"income<40", "income>=40"}
    for row in rows:
        assert (incomes[row["node"]] >= 40) == (row["node_label"] == "income>=40")
        assert (incomes[row["evidence"]] >= 40) == (row["evidence_label"] == "income>=40")
    target = ["--target", "income>=40", "--exact", "job"]
    unfound = f"cfe-faiss: note: fewer than 10 found for {(incomes >= 40).sum()} of 300 nodes\n"
    text = output("local", "people.cfe", *table, *threshold, *target, "--json", notes=unfound)
    rows = records(text, "json")
    assert {row["evidence_label"] for row in rows} == {"income>=40"}
    other = "--threshold must be what the index was built from, got another class"
    assert other in error("local", "people.cfe", *table, "--threshold", "income>=30")
    both = ["--predictions", "people.csv:loan"]
    assert "--predictions" in error("local", "people.cfe", *table, *threshold, *both)
