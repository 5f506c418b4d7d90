import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from audit_report_helpers import text_of

import cfe_faiss as cfe
from cfe_faiss import audit

SECTIONS = [
    "groups",
    "discrimination",
    "consistency",
    "pairs",
    "cases",
    "balance",
    "errors",
    "flip",
    "situation",
    "only_in",
    "method",
]


def test_files_and_result(audited):
    names = [file.name for file in audited.report.files[:4]]
    assert names == ["report.html", "report.json", "report.xml", "report.csv"]
    assert all(file.stat().st_size for file in audited.report.files)
    assert audited.report.numbers == json.loads(audited.report.files[1].read_text())
    assert repr(audited.report).endswith("6 checks, fail)")


def test_the_sections_stand_in_their_order(audited):
    assert [section["id"] for section in audited.report.numbers["sections"]] == SECTIONS
    places = [audited.page.index(f'<h2 id="{name}"') for name in ["subject", *SECTIONS]]
    assert places == sorted(places)
    assert all(section["missing"] is None for section in audited.report.numbers["sections"])


def test_the_page_judges_nothing(audited):
    text = text_of(audited.page).lower()
    assert not re.search(r"\b(compliant|non-compliant|fair|unfair|discriminatory|lawful use)\b", text)


def test_what_was_audited_is_said(audited):
    text = text_of(audited.page)
    for words in ("cfe-faiss audit --out report.html", "SHA-256 of the predictions", "0" * 64, "Person responsible"):
        assert words in text
    assert audited.report.numbers["subject"]["Seed"] == "3"
    assert f"numpy {np.__version__}" in audited.report.numbers["subject"]["Versions"]


def test_group_rates_are_those_of_the_function(audited):
    metrics = audit.group_metrics(
        y_true=audited.data.y, y_pred=audited.finder.labels, sensitive_features=audited.people["member"], favourable=1
    )
    section = audited.report.numbers["sections"][0]
    rows = next(table for table in section["tables"] if table["id"] == "selection: member")["rows"]
    expected = metrics.table[metrics.table["feature"] == "member"]
    assert [row["rate"] for row in rows[1:]] == expected["rate"].tolist()
    assert [row["count"] for row in rows[1:]] == expected["count"].tolist()


def test_two_audits_of_the_same_have_the_same_numbers(audited, tmp_path):
    again = audit.report(
        audited.finder,
        tmp_path / "report.html",
        sensitive=["member", "sex", "race"],
        favourable="granted",
        pairs=60,
        progress=False,
    )
    sections = [part for part in audited.report.numbers["sections"] if part["id"] != "flip"]
    assert [part for part in again.numbers["sections"] if part["id"] != "flip"] == sections


def test_without_anything_the_sections_say_what_is_missing(tmp_path):
    data = SimpleNamespace(x=np.eye(6, dtype=np.float32) + 0.1, edge_index=[[0, 1, 2, 3], [1, 2, 3, 4]])
    finder = cfe.EvidenceFinder.from_data(data, [0, 1, 0, 1, 2, 2])
    written = audit.report(finder, tmp_path / "a.html", pairs=10, progress=False)
    missing = {section["id"]: section["missing"] for section in written.numbers["sections"]}
    assert [name for name, reason in missing.items() if reason is None] == [
        "discrimination",
        "consistency",
        "pairs",
        "cases",
        "method",
    ]
    assert "true classes" in missing["errors"]
    assert "No model" in missing["flip"]
    assert (written.outcome, written.passed) == ("no conditions", False)
    page = (tmp_path / "a.html").read_text()
    assert all(f'<h2 id="{name}"' in page for name in SECTIONS)
    assert "No true classes are known" in page


def test_all_nodes_of_one_class(tmp_path):
    data = SimpleNamespace(x=np.eye(4, dtype=np.float32), edge_index=[[0, 1, 2], [1, 2, 3]], y=np.zeros(4, int))
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


def test_favourable_by_number_and_by_name_agree(audited, tmp_path):
    options = {"sensitive": ["member"], "pairs": 10, "progress": False}
    one = audit.report(audited.finder, tmp_path / "a.html", favourable=1, **options)
    two = audit.report(audited.finder, tmp_path / "b.html", favourable="granted", **options)
    assert one.numbers["sections"] == two.numbers["sections"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sensitive": ["nobody"]}, ValueError, "sensitive must name attributes"),
        ({"sensitive": "sex"}, TypeError, "sensitive must be a sequence"),
        ({"favourable": "no class"}, ValueError, "favourable must be among the classes"),
        ({"favourable": "Granted"}, ValueError, "did you mean 'granted'"),
        ({"favourable": 7}, ValueError, "favourable must be among the classes"),
        ({"favourable": [0, 1]}, ValueError, "favourable must be one class"),
        ({"cases": 20, "pairs": 10}, ValueError, "cases must be at most pairs"),
        ({"confidence": 1}, ValueError, "confidence must lie strictly"),
        ({"require": [0.8]}, TypeError, "require must hold texts or Condition objects"),
        ({"require": [audit.Condition("flipped", at_most=0.1)]}, ValueError, "must come with"),
        ({"require": ["excess[sex]<=0.1"]}, ValueError, "must be about sensitive"),
    ],
)
def test_bad_arguments(audited, tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        audit.report(audited.finder, tmp_path / "report.html", progress=False, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "error"), [("report.pdf", ValueError), ("missing/report.html", FileNotFoundError)])
def test_bad_paths(audited, tmp_path, name, error):
    with pytest.raises(error, match="path must"):
        audit.report(audited.finder, tmp_path / name)


def test_schema_and_templates_are_in_the_package():
    folder = Path(audit.report.__globals__["__file__"]).parent
    assert (folder / "schema.json").is_file()
    assert {file.name for file in (folder / "templates").iterdir()} >= {"report.html.j2", "report.css", "figure.css"}


def test_importing_audit_loads_neither_templates_nor_pandas():
    code = (
        "import sys, cfe_faiss.audit as audit; audit.Condition.parse('accuracy>=0.5'); "
        "print([name for name in ('jinja2', 'markupsafe', 'pandas') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"\d+; edge_weight for the model only"),
        ({"directed": True, "edge_weight": True}, r"\d+, directed, by weight"),
        (None, "not known"),
    ],
)
def test_every_kind_of_graph_and_own_vectors(tmp_path: Path, options, words: str) -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(80, 4)).astype(np.float32), rng.integers(0, 2, 80)
    people = {"sex": rng.integers(0, 2, 80), "age": rng.integers(20, 60, 80)}
    data = SimpleNamespace(x=x, edge_index=rng.integers(0, 80, (2, 200)), edge_weight=rng.random(200))
    if options is None:
        finder = cfe.EvidenceFinder.from_vectors(x, labels, features=people)
    else:
        finder = cfe.EvidenceFinder.from_data(data, labels, features=people, **options)
    report = audit.report(finder, tmp_path / "report.html", sensitive=["sex"])
    assert re.fullmatch(words, report.numbers["subject"]["Connections"])
    assert next(section for section in report.numbers["sections"] if section["id"] == "cases")["missing"] is None
