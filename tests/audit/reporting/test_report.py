"""What whole reports name and leave open. test_golden.py holds their sentences."""

import json
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from audit_report_helpers import recorded, rows_of, text_of

import cfe_faiss as cfe
from cfe_faiss import audit


def people(n=240, direct=0.0, seed=3):
    """Return a table of people of two sexes; ``direct`` shifts the decisions about one of them."""
    rng = np.random.default_rng(seed)
    X, sex = rng.normal(size=(n, 4)), rng.choice(["f", "m"], n)
    granted = X[:, 0] + 0.3 * rng.normal(size=n) > np.where(sex == "f", direct, 0.0)
    labels = np.where(granted, "granted", "refused")
    features = {"sex": sex, "age": rng.integers(20, 70, n)}
    return cfe.EvidenceFinder.from_vectors(X, labels, features=features)


def earners(n=400):
    """Return vectors, attributes and decisions, of which those about the old are worse."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    features = {"age": rng.integers(18, 80, n), "income": rng.gamma(3, 4, n).round(1)}
    decisions = np.where(X[:, 0] + 0.6 * (features["age"] < 50) > 0, "granted", "refused")
    return X, features, decisions


def write(folder, finder, **options):
    """Return a small report."""
    defaults = {"favourable": "granted", "pairs": 20, "cases": 2, "progress": False}
    if not finder.sensitive:
        defaults["sensitive"] = ["sex"]
    return audit.report(finder, folder / "report.html", **defaults | options)


def all_tests(report):
    return rows_of(report, "tests", "all_tests")


@pytest.fixture(scope="module")
def of_people(tmp_path_factory):
    return write(tmp_path_factory.mktemp("people"), people())


def test_files_and_result(audited):
    names = [file.name for file in audited.report.files[:4]]
    assert names == ["report.html", "report.json", "report.xml", "report.csv"]
    assert all(file.stat().st_size for file in audited.report.files)
    assert audited.report.numbers == json.loads(audited.report.files[1].read_text())
    assert repr(audited.report).endswith("6 checks, fail)")
    assert f"numpy {np.__version__}" in audited.report.numbers["subject"]["Versions"]


CROSSED = [("member", "sex"), ("member", "race"), ("sex", "race")]
SENSITIVE = ["member", "sex", "race"]
FUNCTIONS = {
    ("consistency", "consistency"): (
        lambda audited: audit.consistency(audited.finder, columns=SENSITIVE, intersections=CROSSED),
        ("share", "low", "high", "expected", "nodes", "closer", "tied"),
    ),
    ("discrimination", "discrimination_scores"): (
        lambda audited: audit.discrimination_scores(
            audited.finder,
            k=10,
            intersections=CROSSED,
            sensitive=[*SENSITIVE, *map(" & ".join, CROSSED)],
        ),
        ("feature", "value", "score", "expected", "difference", "nodes", "sensitive"),
    ),
    ("errors", "errors_by_evidence"): (
        lambda audited: audit.error_rate_by_evidence(audited.finder),
        ("k", "pairs", "nodes", "errors", "accuracy", "low", "high", "overall"),
    ),
    ("groups", "rates"): (
        lambda audited: audit.group_metrics(
            y_true=audited.data.y,
            y_pred=audited.finder.labels,
            sensitive_features=audited.people[["member"]],
            favourable=1,
        ).table.query("feature == 'member'"),
        ("count", "selected", "rate"),
    ),
}


@pytest.mark.parametrize("place", FUNCTIONS, ids="-".join)
def test_a_table_of_the_report_is_that_of_the_function(audited, place):
    function, names = FUNCTIONS[place]
    frame, rows = function(audited), rows_of(audited.report, *place)
    rows = [row for row in rows if place[0] != "groups" or row["feature"] == "member"]
    for name in names:
        expected = [None if pd.isna(value) else value for value in frame[name].tolist()]
        assert [row[name] for row in rows] == expected


def test_the_accuracy_of_all_nodes_is_a_measure(audited):
    checks = audited.report.checks
    (check,) = [check for check in checks if check.condition.metric == "overall_accuracy"]
    right = audited.finder.labels == audited.data.y.numpy()
    assert (check.value, check.n, check.group) == (right.mean(), len(right), "all nodes")


def test_a_discrimination_score_is_a_description_and_never_a_headline(audited):
    numbers = audited.report.numbers
    assert not [line for line in [*numbers["named"], *numbers["described"]] if "score" in line]
    limits = recorded(audited.report, "discrimination")["limits"]
    assert any("not a test" in limit for limit in limits)


def test_equal_audits_have_equal_ids_wherever_they_are_written(tmp_path, of_people):
    command = audit.Subject(command=f"cfe-faiss audit --out {tmp_path}/report.html")
    assert write(tmp_path, people(), subject=command).numbers["id"] == of_people.numbers["id"]
    assert write(tmp_path, people(), k=5).numbers["id"] != of_people.numbers["id"]


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
        ({"require": ["evidence_pairs<=v1"]}, ValueError, "evidence_pairs must come with models"),
        ({"skip": ["sensibility"]}, ValueError, "skip"),
        ({"skip": ["consistency"], "require": ["consistency<=0.2"]}, ValueError, "skip"),
        ({"sensitive": ["sex"], "reference": {"sex": "x"}}, ValueError, "reference"),
        ({"reference": {"sex": "m"}}, ValueError, "reference"),
        ({"favourable": "granted", "better": {"wage": "high"}}, ValueError, "better"),
        ({"favourable": "granted", "better": {}}, ValueError, "better"),
        ({"favourable": "granted", "better": "income"}, ValueError, "better"),
        ({"better": {"income": "high"}}, ValueError, "better"),
        ({"person": "income"}, ValueError, "person"),
        ({"sensitive": ["sex"], "person": "whom"}, ValueError, "person"),
    ],
)
def test_wrong_arguments(audited, tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        audit.report(audited.finder, tmp_path / "report.html", progress=False, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "error"), [("report.pdf", ValueError), ("missing/report.html", FileNotFoundError)]
)
def test_wrong_paths(audited, tmp_path, name, error):
    with pytest.raises(error, match="path must"):
        audit.report(audited.finder, tmp_path / name)


def test_texts_that_no_file_can_hold_are_refused_by_name(tmp_path):
    features = {"sex": ["f", "\ud800", "m", "m"]}
    finder = cfe.EvidenceFinder.from_vectors(np.eye(4), [0, 1, 0, 1], features=features)
    message = r"attributes must hold Unicode texts, got the surrogate .* in 'sex'"
    with pytest.raises(ValueError, match=message):
        write(tmp_path, finder, favourable=1)
    assert list(tmp_path.iterdir()) == []


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
    ],
)
def test_the_subject_says_which_connections_count(tmp_path, options, words):
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(80, 4)).astype(np.float32), rng.integers(0, 2, 80)
    edges = {"edge_index": rng.integers(0, 80, (2, 200)), "edge_weight": rng.random(200)}
    features = {"sex": rng.integers(0, 2, 80)}
    data = SimpleNamespace(x=x, **edges)
    finder = cfe.EvidenceFinder.from_data(data, labels, features=features, **options)
    report = write(tmp_path, finder, favourable=None)
    assert re.fullmatch(words, report.numbers["subject"]["Connections"])


# --- what is named, and what stays open -------------------------------------------------------------------------------


def test_a_planted_effect_is_named_with_its_uncertainty(tmp_path):
    report = write(tmp_path, people(1200, direct=0.6))
    named = " ".join(report.numbers["named"])
    for words in (
        "sex = f: people of this group",
        "decided unfavourably more often than the vectors explain",
        "95% interval",
        "q < 0.001",
    ):
        assert words in named
    named_tests = {row["test"] for row in all_tests(report) if row["named"]}
    assert named_tests == {"impact ratio", "nearest neighbours", "closest pairs"}
    decision, *attributes = report.numbers["sections"][0]["tables"][0]["rows"]
    sex = next(row for row in attributes if row["attribute"] == "sex")
    sides = {(decision["a"], sex["a"]), (decision["b"], sex["b"])}
    assert sides == {("refused", "f"), ("granted", "m")}
    assert not recorded(report, "sensitivity")["tables"]  # the features are not known


def test_without_an_effect_nothing_is_named_and_few_people_leave_it_open(tmp_path):
    report = write(tmp_path, people(600, seed=0))
    assert report.numbers["named"] == []
    assert report.numbers["described"][0].startswith("No group is named: of 4 direct tests")
    few = " ".join(write(tmp_path, people(70), overwrite=True).numbers["undetermined"])
    assert "Direct effects of sex" in few
    assert "no impact ratio by sex was found, but one of 0.7 would be missed" in few


@pytest.mark.parametrize(("columns", "left_out"), [(3, 3), (45, 40)])
def test_the_page_says_how_many_attributes_are_left_out_in_turn(tmp_path, columns, left_out):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(600, columns)), columns=[f"x{i}" for i in range(columns)])
    frame["sex"] = rng.choice(["f", "m"], 600)
    frame["loan"] = np.where(frame["x0"] > (frame["sex"] == "f"), "yes", "no")
    finder = cfe.EvidenceFinder.from_table(frame, "loan", sensitive=["sex"])
    report = write(tmp_path, finder, favourable="yes")
    choices = [row["choice"] for row in rows_of(report, "sensitivity", "sensitivity")]
    assert [choice.startswith("without ") for choice in choices].count(True) == left_out
    assert "without x0" in choices  # decisions go along with it most
    sentence = f"{left_out} of {columns}, those that go along most with unfavourable decisions"
    limits = " ".join(recorded(report, "sensitivity")["limits"])
    assert (sentence in limits) == (left_out < columns)


def test_a_finding_does_not_contradict_itself_at_a_high_confidence(tmp_path):
    decisions = np.repeat(["granted", "refused", "granted", "refused"], [13, 27, 26, 14])
    X, sex = np.random.default_rng(0).normal(size=(80, 4)), np.repeat(["f", "m"], 40)
    finder = cfe.EvidenceFinder.from_vectors(X, decisions, features={"sex": sex})
    report = write(tmp_path, finder, confidence=0.999)
    row = next(row for row in all_tests(report) if row["test"] == "impact ratio")
    assert (row["named"], row["verdict"]) == (True, "below 1")
    assert any("selected less often" in line for line in report.numbers["named"])
    assert not any("none was found" in line for line in report.numbers["undetermined"])


def test_a_group_that_one_direct_test_can_tell_is_not_undetermined(tmp_path):
    rng = np.random.default_rng(0)
    X, town = rng.normal(size=(300, 3)), rng.choice(["a", "b", "c"], 300)
    decisions = np.where(X[:, 0] > 0, "granted", "refused")
    finder = cfe.EvidenceFinder.from_vectors(X, decisions, features={"town": town})
    report = write(tmp_path, finder, sensitive=["town"], pairs=50)
    rows = [row for row in all_tests(report) if row["test"] != "impact ratio"]
    judged = {row["group"] for row in rows if row["p"] is not None}
    assert any(row["p"] is None for row in rows if row["group"] in judged)
    open_lines = report.numbers["undetermined"]
    effects = [line for line in open_lines if line.startswith("Direct effects of")]
    assert not any(group in line for group in judged for line in effects)
    assert any(line.startswith("One of two direct tests of") for line in open_lines)


def test_without_pairs_errors_and_cases_are_missing(tmp_path):
    features = {"sex": ["f", "m", "f", "m"]}
    finder = cfe.EvidenceFinder.from_vectors(np.eye(4), [0] * 4, truth=[0] * 4, features=features)
    report = write(tmp_path, finder, favourable=None)
    assert all(recorded(report, name)["missing"] for name in ("pairs", "cases", "errors"))


# --- people and groups ------------------------------------------------------------------------------------------------


def test_all_sections_cut_numbers_alike_where_some_rows_are_audited(tmp_path):
    X, features, decisions = earners()
    finder = cfe.EvidenceFinder.from_vectors(
        X, decisions, features=features, sensitive=["age"], nodes=features["age"] > 40
    )
    report = write(tmp_path, finder)
    parts = [("groups", "rates"), ("counts", "counts"), ("consistency", "consistency")]
    groups = [{row["group"] for row in rows_of(report, *part)} - {"all people"} for part in parts]
    assert groups[0] == groups[1] == groups[2]
    assert {row["group"] for row in all_tests(report)} <= groups[0]


def test_other_attributes_may_be_cut_where_probabilities_are_known(tmp_path):
    X, features, decisions = earners()
    share = np.where(decisions == "granted", 0.7, 0.3)
    probabilities, names = np.column_stack([1 - share, share]), ["refused", "granted"]
    finder = cfe.EvidenceFinder.from_vectors(
        X, probabilities, class_names=names, features=features, sensitive=["age"]
    )
    report = write(tmp_path, finder, bins={"age": [30], "income": [5, 10]})
    groups = [row["group"] for row in rows_of(report, "calibration", "thresholds")]
    assert groups == ["all people", "age = <= 30", "age = > 30"]


def test_rows_without_a_predicted_class_are_not_audited(tmp_path):
    X, features, decisions = earners()
    index = cfe.IndexEvidenceIDMap2(4)
    granted = (decisions == "granted").astype(int)
    index.add_with_labels(X[20:], granted[20:], ids=np.arange(20, 400))
    index.add_with_ids(X[:20].astype(np.float32), np.arange(20))
    finder = cfe.EvidenceFinder.from_index(index, features=features, sensitive=["age"])
    report = write(tmp_path, finder, favourable=1)
    assert report.numbers["subject"]["Audited people"] == "380 of 400"
    assert sum(row["count"] for row in rows_of(report, "groups", "rates")) == 380


def test_the_strongest_case_shows_a_finding_on_bins(tmp_path):
    X, features, decisions = earners(2000)
    finder = cfe.EvidenceFinder.from_vectors(X, decisions, features=features, sensitive=["age"])
    report = write(tmp_path, finder, bins={"age": [49]}, pairs=200)
    findings = " ".join(recorded(report, "strongest_case")["findings"])
    assert "closest pair of age = > 49 and age = <= 49 that points in the direction" in findings


@pytest.mark.filterwarnings("ignore::cfe_faiss.InputWarning")
def test_attributes_of_one_value_and_rows_that_are_equal(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.integers(1, 3, 60), "sex": "f", "race": [None] * 60})
    table["town"] = rng.choice(["a", "b"], 60)
    decided = table["income"] + rng.integers(0, 2, 60) > 2
    finder = cfe.EvidenceFinder.from_table(
        table, lambda frame: decided.to_numpy(), sensitive=["sex", "race"]
    )
    report = write(tmp_path, finder, favourable=True, compare={"v2": ~decided})
    undetermined = " ".join(report.numbers["undetermined"])
    assert "no two values of sex are known, so it cannot be flipped." in undetermined
    rows = [row for row in all_tests(report) if row["test"] == "impact ratio"]
    assert {row["group"] for row in rows} == {"sex", "race", "sex & race"}


def test_braces_in_names_are_text(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.choice(["{granted!r}", "{0}"], 60)
    features = {"{sex}": ["{f}", "{{ 7 * 7 }} {% raw %}\n{# m #}"] * 30}
    finder = cfe.EvidenceFinder.from_vectors(rng.normal(size=(60, 3)), labels, features=features)
    subject = audit.Subject(title="{title}", people="{people}")
    report = write(tmp_path, finder, sensitive=["{sex}"], favourable="{granted!r}", subject=subject)
    text = text_of(report.files[0].read_text())
    for name in ("{granted!r}", "{0}", "{sex} = {f}", "{title}", "{people}"):
        assert name in text
    assert "{sex} = {{ 7 * 7 }} {% raw %} {# m #}" in text
