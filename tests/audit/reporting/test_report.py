import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from audit_report_helpers import table_of, text_of

import cfe_faiss as cfe
from cfe_faiss import audit

OPEN = ["strongest_case", "groups", "tests"]
DETAILS = [
    *(
        "counts",
        "error_rates",
        "calibration",
        "sensitivity",
        "flip",
        "only_in",
        "pairs",
        "cases",
        "balance",
    ),
    *("discrimination", "consistency", "errors", "method", "subject"),
]


def test_files_and_result(audited):
    names = [file.name for file in audited.report.files[:4]]
    assert names == ["report.html", "report.json", "report.xml", "report.csv"]
    assert all(file.stat().st_size for file in audited.report.files)
    assert audited.report.numbers == json.loads(audited.report.files[1].read_text())
    assert repr(audited.report).endswith("6 checks, fail)")


def test_the_sections_stand_in_their_order(audited):
    assert [section["id"] for section in audited.report.numbers["sections"]] == [*OPEN, *DETAILS]
    first = ["scope", "findings", "undetermined"]
    places = [audited.page.index(f'<h2 id="{name}"') for name in [*first, *OPEN, "details"]]
    places += [audited.page.index(f'id="{name}" aria-label') for name in ["conditions", *DETAILS]]
    assert places == sorted(places)
    missing = {
        section["id"] for section in audited.report.numbers["sections"] if section["missing"]
    }
    assert missing == {"calibration"}


def test_the_page_judges_nothing(audited):
    text = text_of(audited.page).lower()
    assert not re.search(
        r"\b(compliant|non-compliant|fair|unfair|discriminatory|lawful use)\b", text
    )


def test_what_was_audited_is_said(audited):
    text = text_of(audited.page)
    for words in (
        "cfe-faiss audit --out report.html",
        "SHA-256 of the predictions",
        "0" * 64,
        "Person responsible",
    ):
        assert words in text
    assert audited.report.numbers["subject"]["Seed"] == "3"
    assert f"numpy {np.__version__}" in audited.report.numbers["subject"]["Versions"]


def test_group_rates_are_those_of_the_function(audited):
    metrics = audit.group_metrics(
        y_true=audited.data.y,
        y_pred=audited.finder.labels,
        sensitive_features=audited.people["member"],
        favourable=1,
    )
    rows = [
        row
        for row in table_of(audited.report, "groups", "rates")["rows"]
        if row["feature"] == "member"
    ]
    expected = metrics.table[metrics.table["feature"] == "member"]
    assert [row["rate"] for row in rows] == expected["rate"].tolist()
    assert [row["count"] for row in rows] == expected["count"].tolist()


def test_two_audits_with_the_class_by_name_and_by_number_have_the_same_numbers(audited, tmp_path):
    again = audit.report(
        audited.finder,
        tmp_path / "report.html",
        sensitive=["member", "sex", "race"],
        favourable=1,
        pairs=60,
        progress=False,
    )
    sections = [part for part in audited.report.numbers["sections"] if part["id"] != "flip"]
    assert [part for part in again.numbers["sections"] if part["id"] != "flip"] == sections


def test_without_anything_the_sections_say_what_is_missing(tmp_path):
    data = SimpleNamespace(
        x=np.eye(6, dtype=np.float32) + 0.1, edge_index=[[0, 1, 2, 3], [1, 2, 3, 4]]
    )
    finder = cfe.EvidenceFinder.from_data(data, [0, 1, 0, 1, 2, 2])
    written = audit.report(finder, tmp_path / "a.html", pairs=10, progress=False)
    missing = {section["id"]: section["missing"] for section in written.numbers["sections"]}
    assert [name for name, reason in missing.items() if reason is None] == [
        *(
            "strongest_case",
            "sensitivity",
            "pairs",
            "cases",
            "discrimination",
            "consistency",
            "method",
            "subject",
        )
    ]
    assert "true classes" in missing["errors"]
    assert "No model" in missing["flip"]
    assert (written.outcome, written.passed) == ("no conditions", False)
    page = (tmp_path / "a.html").read_text()
    assert all(f'id="{name}"' in page for name in [*OPEN, *DETAILS])
    assert "No true classes are known" in page


def test_all_nodes_of_one_class(tmp_path):
    data = SimpleNamespace(
        x=np.eye(4, dtype=np.float32), edge_index=[[0, 1, 2], [1, 2, 3]], y=np.zeros(4, int)
    )
    finder = cfe.EvidenceFinder.from_data(data, [0, 0, 0, 0])
    written = audit.report(finder, tmp_path / "a.html", progress=False)
    missing = {section["id"]: section["missing"] for section in written.numbers["sections"]}
    assert missing["pairs"]
    assert missing["cases"]
    assert missing["consistency"]


def test_pairs_keep_the_constraints(audited, tmp_path):
    written = audit.report(
        audited.finder,
        tmp_path / "report.html",
        sensitive=["member"],
        favourable=1,
        where=cfe.Constraints(exact=["member"]),
        pairs=20,
        progress=False,
    )
    section = next(part for part in written.numbers["sections"] if part["id"] == "pairs")
    assert all("member" not in row["differing"].split(", ") for row in section["tables"][0]["rows"])
    assert "the same member" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sensitive": ["nobody"]}, ValueError, "sensitive must name attributes"),
        ({"sensitive": "sex"}, TypeError, "sensitive must be a sequence"),
        ({"favourable": "no class"}, ValueError, "favourable must be among the classes"),
        ({"favourable": "Granted"}, ValueError, "did you mean 'granted'"),
        ({"favourable": 7}, ValueError, "favourable must be among the classes"),
        ({"truth_favourable": 1}, ValueError, "truth_favourable must come with"),
        ({"cases": 20, "pairs": 10}, ValueError, "cases must be at most pairs"),
        ({"confidence": 1}, ValueError, "confidence must lie strictly"),
        ({"require": [0.8]}, TypeError, "require must hold texts or Condition objects"),
        ({"require": [audit.Condition("flipped", at_most=0.1)]}, ValueError, "must come with"),
        ({"require": ["consistency[sex]<=0.1"]}, ValueError, "must be about sensitive"),
    ],
)
def test_bad_arguments(audited, tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        audit.report(audited.finder, tmp_path / "report.html", progress=False, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "error"), [("report.pdf", ValueError), ("missing/report.html", FileNotFoundError)]
)
def test_bad_paths(audited, tmp_path, name, error):
    with pytest.raises(error, match="path must"):
        audit.report(audited.finder, tmp_path / name)


def test_schema_and_templates_are_in_the_package():
    folder = Path(audit.report.__globals__["__file__"]).parent
    assert (folder / "schema.json").is_file()
    assert {file.name for file in (folder / "templates").iterdir()} >= {
        "report.html.j2",
        "report.css",
        "figure.css",
    }


def test_importing_audit_loads_no_heavy_package():
    code = (
        "import sys, cfe_faiss.audit as audit, cfe_faiss.plot; audit.Condition.parse('accuracy>=0.5'); "
        "heavy = 'jinja2', 'markupsafe', 'pandas', 'matplotlib', 'torch'; "
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"\d+; edge_weight for the model only"),
        ({"directed": True, "edge_weight": True}, r"\d+, directed, by weight"),
        (None, ""),
    ],
)
def test_every_kind_of_graph_and_own_vectors(tmp_path, options, words):
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(80, 4)).astype(np.float32), rng.integers(0, 2, 80)
    people = {"sex": rng.integers(0, 2, 80), "age": rng.integers(20, 60, 80)}
    data = SimpleNamespace(
        x=x, edge_index=rng.integers(0, 80, (2, 200)), edge_weight=rng.random(200)
    )
    if options is None:
        finder = cfe.EvidenceFinder.from_vectors(x, labels, features=people)
    else:
        finder = cfe.EvidenceFinder.from_data(data, labels, features=people, **options)
    report = audit.report(finder, tmp_path / "report.html", sensitive=["sex"])
    assert re.fullmatch(words, report.numbers["subject"].get("Connections", ""))
    assert (
        next(section for section in report.numbers["sections"] if section["id"] == "cases")[
            "missing"
        ]
        is None
    )


def people(n=240, direct=0.0, seed=3):
    """Return a table of people of two sexes; ``direct`` shifts the decisions about one of them."""
    rng = np.random.default_rng(seed)
    X, sex = rng.normal(size=(n, 4)), rng.choice(["f", "m"], n)
    granted = X[:, 0] + 0.3 * rng.normal(size=n) > np.where(sex == "f", direct, 0.0)
    labels = np.where(granted, "granted", "refused")
    return cfe.EvidenceFinder.from_vectors(
        X, labels, features={"sex": sex, "age": rng.integers(20, 70, n)}
    )


def write(folder, finder, **options):
    """Return the report of a table."""
    options = {
        "sensitive": ["sex"],
        "favourable": "granted",
        "pairs": 20,
        "cases": 2,
        "progress": False,
    } | options
    return audit.report(finder, folder / "report.html", **options)


@pytest.fixture(scope="module")
def of_people(tmp_path_factory):
    return write(tmp_path_factory.mktemp("people"), people())


@pytest.mark.parametrize("noun", ["", "applicants"])
def test_without_a_graph_nobody_is_a_node(tmp_path, of_people, noun):
    report = write(tmp_path, people(), subject=audit.Subject(people=noun)) if noun else of_people
    text = text_of(report.files[0].read_text())
    assert not re.search(
        r"\b(nodes?|connections?|edges|neighbourhoods?)\b", text.replace("Node Classification", "")
    )
    assert (noun or "people") in text
    assert not report.numbers["sections"][9]["cases"] or all(
        not side["neighbours"]
        for case in report.numbers["sections"][10]["cases"]
        for side in case["sides"]
    )


def test_a_planted_effect_is_named_with_its_uncertainty(tmp_path):
    report = write(tmp_path, people(1200, direct=0.6))
    named = " ".join(report.numbers["named"])
    assert "sex = f: people of this group" in named
    assert "decided unfavourably more often than the vectors explain" in named
    assert "does not mean “caused by”" in report.numbers["described"][0]
    assert re.search(r"impact ratio is 0\.\d+, below", named)
    assert "95% interval" in named
    assert "q < 0.001" in named
    rows = table_of(report, "tests", "all_tests")["rows"]
    assert {row["test"] for row in rows if row["named"]} == {
        "impact ratio",
        "nearest neighbours",
        "closest pairs",
    }
    case = report.numbers["sections"][0]["tables"][0]["rows"]
    decision, sex = case[0], next(row for row in case if row["attribute"] == "sex")
    assert {(decision["a"], sex["a"]), (decision["b"], sex["b"])} == {
        ("refused", "f"),
        ("granted", "m"),
    }
    choices = (
        table_of(report, "sensitivity", "sensitivity")["rows"]
        if report.numbers["sections"][6]["tables"]
        else []
    )
    assert not choices  # predictions alone: the features are not known


def test_without_an_effect_nothing_is_named(tmp_path):
    report = write(tmp_path, people(600, seed=0))
    assert report.numbers["named"] == []
    assert report.numbers["described"][0].startswith("No group is named: of 4 direct tests")
    assert "Findings" in text_of(report.files[0].read_text())


def test_few_people_are_no_absence_of_an_effect(tmp_path):
    report = write(tmp_path, people(70))
    undetermined = " ".join(report.numbers["undetermined"])
    assert "Direct effects of sex" in undetermined
    assert (
        "Impact ratios by sex: none was found, but a ratio of 0.7 would be missed" in undetermined
    )


def test_findings_are_varied(tmp_path):
    rng = np.random.default_rng(3)
    n = 600
    data = SimpleNamespace(
        x=rng.normal(size=(n, 4)).astype(np.float32),
        edge_index=rng.integers(0, n, (2, n)),
        feature_names=["a", "b", "c", "d"],
    )
    sex = rng.choice(["f", "m"], n)
    labels = (data.x[:, 0] > np.where(sex == "f", 0.8, 0)).astype(int)
    finder = cfe.EvidenceFinder.from_data(data, labels, features={"sex": sex})
    report = write(tmp_path, finder, favourable=1)
    rows = table_of(report, "sensitivity", "sensitivity")["rows"]
    choices = [row["choice"] for row in rows]
    assert choices == [
        *("as reported", "k = 5", "k = 20", "scaling: none", "scaling: standard", "scaling: rank"),
        *(f"without {name}" for name in "abcd"),
    ]
    assert rows[0]["holds_0"]
    assert rows[3]["p_0"] == rows[0]["p_0"]  # these features were not scaled
    assert (
        "sex = f"
        in next(part for part in report.numbers["sections"] if part["id"] == "sensitivity")[
            "tables"
        ][0]["columns"][1]["title"]
    )


def limits_of(report, name):
    section = next(part for part in report.numbers["sections"] if part["id"] == name)
    return " ".join(section["limits"])


@pytest.mark.parametrize(("work", "columns", "left_out"), [(1e12, 3, 3), (1e12, 45, 40), (0, 5, 1)])
def test_the_page_says_how_many_attributes_are_left_out_in_turn(
    tmp_path, monkeypatch, work, columns, left_out
):
    monkeypatch.setattr("cfe_faiss.audit.reporting.sections.model_tests._WORK", work)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, columns)), columns=[f"x{i}" for i in range(columns)])
    frame["sex"] = rng.choice(["f", "m"], 600)
    frame["loan"] = np.where(frame["x0"] > (frame["sex"] == "f"), "yes", "no")
    finder = cfe.EvidenceFinder.from_table(frame, "loan", sensitive=["sex"])
    report = write(tmp_path, finder, favourable="yes")
    choices = [row["choice"] for row in table_of(report, "sensitivity", "sensitivity")["rows"]]
    assert [choice.startswith("without ") for choice in choices].count(True) == left_out
    assert "without x0" in choices  # decisions go along with it most
    sentence = f"{left_out} of {columns}, those that go along most with unfavourable decisions"
    assert (sentence in limits_of(report, "sensitivity")) == (left_out < columns)


def test_equal_audits_have_equal_ids_wherever_they_are_written(tmp_path, of_people):
    command = audit.Subject(command=f"cfe-faiss audit --out {tmp_path}/report.html")
    assert write(tmp_path, people(), subject=command).numbers["id"] == of_people.numbers["id"]
    assert write(tmp_path, people(), k=5).numbers["id"] != of_people.numbers["id"]


def test_a_line_names_attribute_and_value(tmp_path):
    report = write(tmp_path, people(), sensitive=["sex", "age"])
    groups = {row["group"] for row in table_of(report, "groups", "rates")["rows"]}
    assert "sex = f" in groups
    assert any(re.fullmatch(r"sex = m, age = \d+-\d+", group) for group in groups)
    assert not re.search(r"\b[fm] & \d", text_of(report.files[0].read_text()))


def test_equal_vectors_have_a_similarity_of_one_or_nearly_so(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[1] = X[0] * 3
    finder = cfe.EvidenceFinder.from_vectors(X, [0, 1] * 20, features={"sex": ["f", "m"] * 20})
    text = text_of(write(tmp_path, finder, favourable=1).files[0].read_text())
    assert "0.9999999" not in text
    assert re.search(r"similarity is (1|> 0\.999999) of at most 1", text)


def test_texts_that_no_file_can_hold_are_refused_by_name(tmp_path):
    finder = cfe.EvidenceFinder.from_vectors(
        np.eye(4), [0, 1, 0, 1], features={"sex": ["f", "\ud800", "m", "m"]}
    )
    with pytest.raises(
        ValueError, match=r"attributes must hold Unicode texts, got the surrogate .* in 'sex'"
    ):
        write(tmp_path, finder, favourable=1)
    assert list(tmp_path.iterdir()) == []


def test_braces_in_names_are_text(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.choice(["{granted!r}", "{0}"], 60)
    sex = ["{f}", "{{ 7 * 7 }} {% raw %}\n{# m #}"] * 30
    finder = cfe.EvidenceFinder.from_vectors(
        rng.normal(size=(60, 3)), labels, features={"{sex}": sex}
    )
    subject = audit.Subject(title="{title}", people="{people}")
    report = write(tmp_path, finder, sensitive=["{sex}"], favourable="{granted!r}", subject=subject)
    text = text_of(report.files[0].read_text())
    assert all(
        name in text for name in ("{granted!r}", "{0}", "{sex} = {f}", "{title}", "{people}")
    )
    assert "{sex} = {{ 7 * 7 }} {% raw %} {# m #}" in text


def made_people(n=400):
    rng = np.random.default_rng(0)
    X, people = (
        rng.normal(size=(n, 4)),
        {"age": rng.integers(18, 80, n), "income": rng.gamma(3, 4, n).round(1)},
    )
    return X, people, np.where(X[:, 0] + 0.6 * (people["age"] < 50) > 0, "granted", "refused")


def test_all_sections_cut_numbers_alike_where_some_rows_are_audited(tmp_path):
    X, people, decisions = made_people()
    finder = cfe.EvidenceFinder.from_vectors(
        X, decisions, features=people, sensitive=["age"], nodes=people["age"] > 40
    )
    report = audit.report(
        finder, tmp_path / "r.html", favourable="granted", pairs=20, progress=False
    )
    parts = [("groups", "rates"), ("counts", "counts"), ("consistency", "consistency")]
    named = [
        {row["group"] for row in table_of(report, *part)["rows"]} - {"all people"} for part in parts
    ]
    assert named[0] == named[1] == named[2]
    assert {row["group"] for row in table_of(report, "tests", "all_tests")["rows"]} <= named[0]


def test_other_attributes_may_be_cut_where_probabilities_are_known(tmp_path):
    X, people, decisions = made_people()
    shares = np.where(decisions == "granted", 0.7, 0.3)
    finder = cfe.EvidenceFinder.from_vectors(
        X,
        np.column_stack([1 - shares, shares]),
        class_names=["refused", "granted"],
        features=people,
    )
    report = audit.report(
        finder,
        tmp_path / "r.html",
        sensitive=["age"],
        favourable="granted",
        bins={"age": [30], "income": [5, 10]},
        pairs=20,
        progress=False,
    )
    groups = [row["group"] for row in table_of(report, "calibration", "thresholds")["rows"]]
    assert groups == ["all people", "age = <= 30", "age = > 30"]


def test_rows_without_a_predicted_class_are_not_audited(tmp_path):
    X, people, decisions = made_people()
    index = cfe.IndexEvidenceIDMap2(4)
    index.add_with_labels(X[20:], (decisions == "granted")[20:].astype(int), ids=np.arange(20, 400))
    index.add_with_ids(X[:20].astype(np.float32), np.arange(20))
    finder = cfe.EvidenceFinder.from_index(index, features=people, sensitive=["age"])
    report = audit.report(finder, tmp_path / "r.html", favourable=1, pairs=20, progress=False)
    assert report.numbers["subject"]["Audited people"] == "380 of 400"
    assert sum(row["count"] for row in table_of(report, "groups", "rates")["rows"]) == 380


def test_the_strongest_case_shows_a_finding_on_bins(tmp_path):
    X, people, decisions = made_people(2000)
    finder = cfe.EvidenceFinder.from_vectors(X, decisions, features=people, sensitive=["age"])
    report = audit.report(
        finder,
        tmp_path / "r.html",
        favourable="granted",
        bins={"age": [49]},
        pairs=200,
        progress=False,
    )
    (case,) = [part for part in report.numbers["sections"] if part["id"] == "strongest_case"]
    assert "closest pair of age = > 49 and age = <= 49 that points in the direction" in " ".join(
        case["findings"]
    )


def test_a_finding_does_not_contradict_itself_at_a_high_confidence(tmp_path):
    decisions = np.repeat(["granted", "refused", "granted", "refused"], [13, 27, 26, 14])
    X, people = np.random.default_rng(0).normal(size=(80, 4)), {"sex": np.repeat(["f", "m"], 40)}
    finder = cfe.EvidenceFinder.from_vectors(X, decisions, features=people, sensitive=["sex"])
    report = audit.report(
        finder,
        tmp_path / "r.html",
        favourable="granted",
        pairs=20,
        confidence=0.999,
        progress=False,
    )
    row = next(
        row
        for row in table_of(report, "tests", "all_tests")["rows"]
        if row["test"] == "impact ratio"
    )
    assert (row["named"], row["verdict"]) == (True, "below 1")
    assert any("selected less often" in line for line in report.numbers["named"])
    assert not any("none was found" in line for line in report.numbers["undetermined"])


@pytest.mark.filterwarnings("ignore::cfe_faiss.InputWarning")
def test_attributes_of_one_value_and_rows_that_are_equal(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "income": rng.integers(1, 3, 60),
            "sex": "f",
            "race": [None] * 60,
            "town": rng.choice(["a", "b"], 60),
        }
    )
    decided = table["income"] + rng.integers(0, 2, 60) > 2
    finder = cfe.EvidenceFinder.from_table(
        table, lambda frame: decided.to_numpy(), sensitive=["sex", "race"]
    )
    report = audit.report(
        finder,
        tmp_path / "r.html",
        favourable=True,
        compare={"v2": ~decided},
        pairs=20,
        progress=False,
    )
    assert "no two values of sex are known, so it cannot be flipped." in " ".join(
        report.numbers["undetermined"]
    )
    rows = [
        row
        for row in table_of(report, "tests", "all_tests")["rows"]
        if row["test"] == "impact ratio"
    ]
    assert {row["group"] for row in rows} == {"sex", "race", "sex & race"}


def test_the_page_counts_the_tests_of_the_family(tmp_path):
    rng = np.random.default_rng(0)
    X, people = rng.normal(size=(500, 4)), {"sex": rng.choice(["f", "m"], 500)}
    first, other = (
        np.where(X[:, 0] + noise > 0, "granted", "refused")
        for noise in rng.normal(size=(2, 500)) / 2
    )
    finder = cfe.EvidenceFinder.from_vectors(X, first, features=people, sensitive=["sex"])
    report = audit.report(
        finder,
        tmp_path / "r.html",
        favourable="granted",
        compare={"v2": other},
        pairs=50,
        progress=False,
    )
    direct = audit.direct_effects(finder, unfavourable="refused").table
    changes = audit.compare_models(finder, {"v2": other}, unfavourable="refused").table
    table = table_of(report, "tests", "all_tests")
    told = 1 + int(direct["p"].notna().sum() + changes["p"].notna().sum())
    assert table["caption"] == f"All {1 + len(direct) + len(changes)} tests of this report"
    page = text_of((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert f"adjusted for all {told} tests that can tell" in page


def test_a_group_that_one_direct_test_can_tell_is_not_undetermined(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    people = {"town": rng.choice(["a", "b", "c"], 300)}
    finder = cfe.EvidenceFinder.from_vectors(
        X, np.where(X[:, 0] > 0, "granted", "refused"), features=people
    )
    report = audit.report(
        finder,
        tmp_path / "r.html",
        sensitive=["town"],
        favourable="granted",
        pairs=50,
        progress=False,
    )
    rows = [
        row
        for row in table_of(report, "tests", "all_tests")["rows"]
        if row["test"] != "impact ratio"
    ]
    told = {row["group"] for row in rows if row["p"] is not None}
    lines = [
        line for line in report.numbers["undetermined"] if line.startswith("Direct effects of")
    ]
    assert any(row["p"] is None for row in rows if row["group"] in told)
    assert not any(group in line for group in told for line in lines)
    assert any(
        line.startswith("One of two direct tests of") for line in report.numbers["undetermined"]
    )
