import hashlib
import json
import re
import shlex
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest

import cfe_faiss as cfe
from cfe_faiss import Constraints
from cfe_faiss.attributes.table import as_attributes
from cfe_faiss.cli import main
from cfe_faiss.cli.inputs import constraints
from cfe_faiss.cli.parser import PARSER

SMALL = ["--pairs", "20", "--cases", "1"]


def written(folder):
    return {path.name for path in folder.iterdir()}


def test_own_files(inside, tmp_path, capsys):
    arguments = [
        *("audit", *inside.options("features", "edges", "predictions", "truth")),
        *("--sensitive", "sex", "clinic", "--without", "sex", "--favourable", "benign"),
        *("--exact", "clinic"),
        *("--require", "impact_ratio[sex]>=0.5", "--out", str(tmp_path / "report.html"), *SMALL),
    ]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    files = [tmp_path / f"report.{kind}" for kind in ("html", "json", "xml", "csv")]
    assert captured.out.splitlines()[:4] == [str(path) for path in files]
    line = r"^(pass|cannot tell): impact_ratio\[sex\] >= 0\.5, sex = female: 0\.\d{4} \(n = \d+"
    assert re.search(line, captured.out, re.M)
    page, numbers = files[0].read_text(), files[1].read_text()
    found = shlex.join(["cfe-faiss", *arguments])
    assert found in json.dumps(json.loads(numbers), ensure_ascii=False).replace('\\"', '"')
    for name in ("people.csv", "edges.csv", "pred.csv"):
        digest = hashlib.sha256((inside.path / name).read_bytes()).hexdigest()
        assert digest in page
        assert digest in numbers
    assert "malignant, sure" in page
    assert re.search(r"P-\d{3}", page)
    assert ET.parse(files[2]).getroot().tag in ("testsuites", "testsuite")


@pytest.fixture
def table(tmp_path):
    """A table of people whose classes are 1 and 2."""
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"income": rng.normal(size=300), "sex": rng.choice(["f", "m"], 300)})
    people["class"] = np.where(people["income"] > np.where(people["sex"] == "f", 1, 0), 1, 2)
    people.to_csv(tmp_path / "people.csv", index=False)
    return str(tmp_path / "people.csv")


def test_a_condition_that_fails_is_status_1(table, tmp_path, capsys):
    options = ["--features", table, "--predictions", f"{table}:class", "--sensitive", "sex", *SMALL]
    (tmp_path / "out").mkdir()
    arguments = ["audit", *options, "--favourable", "2", "--out", str(tmp_path / "out" / "r.html")]
    assert main([*arguments, "--require", "impact_ratio>=3"]) == 1
    assert "fail: impact_ratio >= 3, sex = " in capsys.readouterr().out
    assert written(tmp_path / "out") == {"r.html", "r.json", "r.xml", "r.csv"}
    few = [*arguments, "--require", "impact_ratio>=3", "--min-cases", "100000"]
    assert main(few) == 0
    assert "cannot tell: impact_ratio >= 3, sex = " in capsys.readouterr().out
    assert main([*few, "--strict"]) == 1


def test_a_data_set_whose_model_is_trained(tmp_path, capsys):
    out = tmp_path / "r.html"
    figures = tmp_path / "figures"
    files = ["--out", str(out), "--figures", str(figures)]
    assert main(["audit", "--dataset", "patients", *files, *SMALL]) == 0
    errors = capsys.readouterr().err
    assert "--favourable" in errors
    assert errors.count("\n") == 1
    assert json.loads(out.with_suffix(".json").read_text())
    assert all(path.suffix == ".svg" for path in figures.iterdir())


def test_constraints_are_read():
    people = as_attributes(
        {"age": [20.0, 30.0, 40.0], "sex": ["f", "m", "f"], "a=b": [1.0, 2.0, 3.0]}
    )

    def read(line):
        return constraints(
            PARSER.parse_args(["audit", "--dataset", "german", *line.split()]),
            people,
            ["no", "yes"],
        )

    assert read("") is None
    assert read("--max-changed 0") == Constraints(max_changed=0)
    assert read("--exact sex --antiexact age") == Constraints(exact=["sex"], antiexact=["age"])
    assert read("--caliper age=5 a=b=-0.5") == Constraints(caliper={"age": 5, "a=b": -0.5})
    assert read("--std-caliper age=.2") == Constraints(std_caliper={"age": 0.2})
    found = read("--permitted age=20:35 sex=f,m")
    assert found == Constraints(permitted={"age": (20, 35), "sex": ["f", "m"]})
    assert read("--permitted age=:35") == Constraints(permitted={"age": (-float("inf"), 35)})
    assert read("--permitted age=20,40") == Constraints(permitted={"age": [20.0, 40.0]})
    found = read("--target yes --max-changed 2 --min-hops 3")
    assert found == Constraints(target="yes", max_changed=2, min_hops=3)
    assert read("--no-common-neighbours --ratio 1") == Constraints(common_neighbors=False, ratio=1)


OWN = "--features people.csv --id patient --edges edges.csv --predictions pred.csv --truth people.csv:diagnosis"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{OWN} --require impact_ratio", "a condition must read like impact_ratio>=0.8"),
        (f"{OWN} --strict", "--strict has no effect without --require"),
        (f"{OWN} --min-cases 5", "--min-cases has no effect without --require"),
        (f"{OWN} --sensitive race", "race"),
        (f"{OWN} --without race", "--without must name a column of people.csv"),
        (f"{OWN} --target good", "--target must be among the classes"),
        (f"{OWN} --caliper sex", "--caliper must be like NAME=VALUE, with a name of mean radius"),
        (f"{OWN} --permitted sex=", "permitted"),
        (f"{OWN} --exact race", "race"),
        (f"{OWN} --out nowhere/r.html", "nowhere: there is no such folder to write"),
        (f"{OWN} --out r.txt", r"must end in \.html"),
        (f"{OWN} --cut radius=1", "--cut must be like NAME=VALUE, with a name of mean radius"),
        (f"{OWN} --bins 3 --cut age=25,65", "argument --cut: not allowed with argument --bins"),
        (f"{OWN} --sensitive Sex", "did you mean 'sex'"),
        ("--features people.csv --id patient --edges edges.csv", "--features needs --predictions"),
    ],
)
def test_errors_are_one_line(inside, tmp_path, error, line, expected):
    before = written(inside.path)
    assert re.search(expected, error("audit", *line.split()))
    assert written(inside.path) == before


@pytest.fixture
def second(inside):
    """Predictions of another model: every tenth patient gets the other class."""
    labels = inside.probabilities.argmax(axis=1)
    labels[::10] = 1 - labels[::10]
    names = np.array(["malignant, sure", "benign"])
    path = inside.path / "second.csv"
    pd.DataFrame({"patient": inside.ids, "class": names[labels]}).sample(
        frac=1, random_state=0
    ).to_csv(path, index=False)
    return path


def test_models_are_compared(inside, second, tmp_path, capsys):
    arguments = [
        *("audit", *inside.options("features", "predictions", "truth"), *SMALL),
        *("--sensitive", "sex"),
        *("--favourable", "benign", "--compare", "second.csv", "--compare", "same=pred.csv"),
        *("--out", f"{tmp_path}/r.html"),
    ]
    found = main([*arguments, "--require", "evidence_pairs<=v1", "--require", "changed_share<=0.2"])
    assert found == 1
    written_lines = capsys.readouterr().out.splitlines()
    assert sum("fail: evidence_pairs <= v1, v2: " in line for line in written_lines) == 1
    assert sum("pass: evidence_pairs <= v1, same: " in line for line in written_lines) == 1
    assert sum("pass: changed_share <= 0.2, " in line for line in written_lines) == 3
    numbers = json.loads((tmp_path / "r.json").read_text())
    (section,) = [part for part in numbers["sections"] if part["id"] == "models"]
    rows = section["tables"][0]["rows"]
    tenth = -(-len(inside.ids) // 10)
    expected = [("v1", None), ("v2", tenth), ("same", 0)]
    assert [(row["model"], row["changed"]) for row in rows] == expected
    assert hashlib.sha256(second.read_bytes()).hexdigest() in (tmp_path / "r.html").read_text()


def test_models_of_a_data_set(tmp_path, capsys):
    labels = [str(i % 2) for i in range(569)]
    (tmp_path / "first.txt").write_text("\n".join(labels))
    (tmp_path / "second.txt").write_text(
        "\n".join(["malignant", "benign"][i % 3 > 0] for i in range(569))
    )
    options = ["--dataset", "patients", "--predictions", str(tmp_path / "first.txt")]
    options += ["--nodes", "all", *SMALL]
    out = tmp_path / "r.html"
    found = main(["audit", *options, "--compare", str(tmp_path / "second.txt"), "--out", str(out)])
    assert found == 0
    rows = json.loads(out.with_suffix(".json").read_text())["sections"]
    models = next(part for part in rows if part["id"] == "models")["tables"][0]["rows"]
    assert models[1]["changed"] == sum((i % 2) != (i % 3 > 0) for i in range(569))
    capsys.readouterr()


def test_a_page_about_one_patient(inside, tmp_path, output):
    options = inside.options("features", "predictions", "truth")
    name = str(inside.ids[7])
    text = output("case", name, *options, "-k", "3")
    assert text.startswith(f"{name}: decided '")
    assert "True class" in text
    assert "Probability of" in text
    expected = f"{tmp_path}/case.html\n"
    assert output("case", name, *options, "-k", "3", "--out", tmp_path / "case.html") == expected
    page = (tmp_path / "case.html").read_text()
    finder = cfe.EvidenceFinder.from_table(
        pd.read_csv("people.csv"), pd.read_csv("pred.csv").set_index("patient").loc[inside.ids].to_numpy(),
        class_names=["malignant, sure", "benign"], id="patient", truth="diagnosis",
    )  # fmt: skip
    assert page == finder.case(name, 3).to_html()
    assert main(["case", name, *options, "--out", str(tmp_path / "case.html")]) == 0, (
        "its own page is replaced"
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"audit {OWN} --compare second.csv --require evidence_pairs<=v3", "require .*got 'v3'"),
        (f"audit {OWN} --compare a=second.csv --compare a=pred.csv", "--compare .*got 'a' again"),
        (f"audit {OWN} --compare v1=second.csv", "--compare .*got 'v1' again"),
        (f"audit {OWN} --compare 7=second.csv", "names in compare .*got '7'"),
        (f"audit {OWN} --compare nowhere.csv", "nowhere.csv: No such file"),
        (f"audit {OWN} --compare people.csv:clinic", r"--compare v2 must be among"),
        (f"audit {OWN} --compare second.csv --out second.html", "second.csv is an input"),
        (f"case P-9999 {OWN}", "NODE .*got 'P-9999'; did you"),
        (f"case P-001 {OWN} --out people.csv", "people.csv is an input of this call"),
        (f"case P-001 {OWN} --exact race", "race"),
    ],
)
def test_errors_of_comparisons_and_cases(inside, second, error, line, expected):
    before = written(inside.path)
    assert re.search(expected, error(*line.split()))
    assert written(inside.path) == before


def test_options_of_the_audit(tmp_path, capsys):
    """Reference, better ends, persons and skipped sections reach the report; the last line is the outcome."""
    rng, n = np.random.default_rng(0), 400
    frame = pd.DataFrame({"who": [f"w{row // 2}" for row in range(n)]})
    for name in ("income", "debt"):
        frame[name] = rng.normal(size=n)
    frame["sex"] = rng.choice(["f", "m"], n, p=[0.6, 0.4])
    frame["loan"] = np.where(
        frame["income"] - frame["debt"] - (frame["sex"] == "f") > 0, "yes", "no"
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    table, page = str(tmp_path / "t.csv"), str(tmp_path / "r.html")
    options = "--favourable yes --sensitive sex --without who --person who"
    given = ["audit", "--features", table, "--predictions", table, "loan", *options.split()]
    given += ["--better", "income=high", "debt=low", "--skip", "sensitivity"]
    given += ["--out", page, "--overwrite"]
    assert main([*given, "--reference", "sex=m", "--require", "impact_ratio[sex]>=0.8"]) == 1
    outcome = capsys.readouterr().out.splitlines()[-1]
    assert outcome.startswith("failed: impact_ratio[sex] >= 0.8, sex = f: 0.")
    assert main(given) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no conditions"
    for wrong in (
        ["--reference", "sex=x"],
        ["--better", "wage=high"],
        ["--skip", "sense"],
        ["--person", "whom"],
    ):
        assert main([*given, *wrong]) == 2
        assert wrong[0].removeprefix("--") in capsys.readouterr().err
