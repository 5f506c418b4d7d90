import csv
import io
import os
import re
from xml.etree import ElementTree as ET

import jsonschema
import numpy as np
import pytest
from audit_report_helpers import SCHEMA, inputs_of, rows_of

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit.groups import DEFAULT_BINS
from cfe_faiss.audit.reporting import files as report_files
from cfe_faiss.audit.reporting.content import SECTIONS, collect

NAMES = [part.name for part in SECTIONS]


@pytest.fixture(scope="module")
def lines(audited):
    return list(csv.DictReader(io.StringIO(audited.report.files[3].read_text())))


def test_json_keeps_the_schema(audited):
    SCHEMA.check_schema(SCHEMA.schema)
    SCHEMA.validate(audited.report.numbers)
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(audited.report.numbers | {"confidence": 2})


@pytest.fixture(scope="module")
def with_optional_sections():
    """A finder, and options of a report with other models and truth that one decision shows."""
    rng, n = np.random.default_rng(0), 60
    labels = np.array(["refused", "granted"])[np.arange(n) % 2]
    repaid = rng.choice(["refused", "granted"], n)
    truth = np.where(labels == "granted", repaid, None)
    people = {"sex": ["f", "m", "m"] * (n // 3)}
    with pytest.warns(cfe.InputWarning, match="no true class for 30 of 60 rows"):
        finder = cfe.EvidenceFinder.from_vectors(
            rng.normal(size=(n, 2)), labels, truth=truth, features=people
        )
    options = {"compare": {"v2": np.roll(labels, 3)}, "favourable": "granted"}
    return finder, options | {"pairs": 4, "cases": 1, "sensitive": ["sex"], "progress": False}


@pytest.mark.parametrize("skip", [[], *([name] for name in NAMES), NAMES], ids=" ".join)
def test_a_report_without_a_section_keeps_the_schema(with_optional_sections, tmp_path, skip):
    finder, options = with_optional_sections
    numbers = audit.report(finder, tmp_path / "r.html", skip=skip, **options).numbers
    SCHEMA.validate(numbers)
    found = [section["id"] for section in numbers["sections"]]
    assert found == [name for name in NAMES if name not in skip]


def test_csv_holds_the_numbers_of_json(audited, lines):
    rows = rows_of(audited.report, "consistency", "consistency")
    rows = [row for row in rows if row["share"] is not None]
    found = [line for line in lines if line["table"] == "consistency" and line["number"] == "share"]
    assert [float(line["value"]) for line in found] == [row["share"] for row in rows]
    assert [float(line["low"]) for line in found] == [row["low"] for row in rows]
    assert [int(line["n"]) for line in found] == [row["nodes"] for row in rows]
    sections = {line["section"] for line in lines}
    assert sections >= {"conditions", "groups", "discrimination", "cases", "flip"}


def test_csv_holds_no_formula(tmp_path):
    sex = ["-2+3+cmd|' /C calc'!A0", "=1+1\x00", "m"] * 20
    X = np.eye(4)[[0, 1, 2, 3] * 15]
    finder = cfe.EvidenceFinder.from_vectors(X, [0, 1] * 30, features={"=a": sex})
    options = {"favourable": 1, "pairs": 5, "cases": 2, "progress": False}
    written = audit.report(finder, tmp_path / "a.html", sensitive=["=a"], **options)
    lines = csv.reader(io.StringIO(written.files[3].read_text()))
    fields = {field for line in lines for field in line}
    assert any(field.startswith("'=a") for field in fields)
    for field in fields:
        assert not re.match(r"\s*[=+@]", field)
        assert not field.startswith("-") or re.fullmatch(r"-[\d.e-]+", field)
        assert "\x00" not in field


def test_xml_counts_what_failed(audited):
    suites = ET.parse(audited.report.files[2]).getroot()
    (suite,) = suites
    failed = [check for check in audited.report.checks if check.outcome == "fail"]
    assert failed
    assert suite.attrib["tests"] == str(len(audited.report.checks)) == str(len(suite))
    assert (
        suite.attrib["failures"] == str(len(failed)) == str(len(suite.findall("testcase/failure")))
    )
    message = suite.find("testcase/failure").attrib["message"]
    assert f"n = {failed[0].n}" in message
    assert "impact_ratio[member] >= 1.5" in message


def test_characters_that_xml_forbids_leave_it_whole(tmp_path):
    name = "\ufffe\uffff\x0b\x1f\u202e"
    finder = cfe.EvidenceFinder.from_vectors(
        np.eye(4)[[0, 1] * 40], [0, 1] * 40, features={name: [f"a{name}", "b"] * 40}
    )
    written = audit.report(
        finder,
        tmp_path / "a.html",
        sensitive=[name],
        favourable=1,
        require=[audit.Condition("impact_ratio", name, at_least=0.8)],
        subject=audit.Subject(title=name),
        figures=tmp_path / "figures",
        pairs=5,
        cases=2,
        progress=False,
    )
    for file in written.files:
        text = file.read_text(encoding="utf-8")
        assert not set(name) & set(text) or file.suffix in (".json", ".csv")
        if file.suffix in (".xml", ".svg"):
            ET.fromstring(text.encode())
    assert len(name) * "\ufffd" in written.files[2].read_text(encoding="utf-8")


def test_figures_are_files(audited):
    names = {file.name for file in (audited.folder / "figures").iterdir()}
    charts = {"rates_rate", "disparities_ratio", "balance_distance", "case_1_a", "case_10_b"}
    assert {name.removesuffix(".svg") for name in names} >= charts
    for file in (audited.folder / "figures").iterdir():
        assert ET.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert set(audited.report.files[4:]) == set((audited.folder / "figures").iterdir())


def test_an_interrupted_report_leaves_no_half_file(audited, tmp_path, monkeypatch):
    (tmp_path / "report.html").write_text("before")
    content = _content(audited)

    def interrupt(*_):
        raise KeyboardInterrupt

    for name in ("page", "junit", "long_table"):
        with monkeypatch.context() as patch:
            patch.setattr(report_files, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                report_files.write_all(content, tmp_path / "report.html", None)
        assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
        assert (tmp_path / "report.html").read_text() == "before"


@pytest.mark.parametrize("full_at", [0, 1, 2, 3])
def test_a_full_disk_leaves_no_half_file(audited, tmp_path, monkeypatch, full_at):
    content = _content(audited)
    sync, written = os.fsync, []

    def fill(descriptor):
        written.append(descriptor)
        if len(written) > full_at:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fill)
        with pytest.raises(OSError, match="No space left"):
            report_files.write_all(content, tmp_path / "report.html", None)
    assert len(written) > full_at
    assert list(tmp_path.iterdir()) == []
    report_files.write_all(content, tmp_path / "report.html", None)
    assert len(list(tmp_path.iterdir())) == 4


def _content(audited):
    inputs = inputs_of(audited.finder, [], k=2, pairs=5, cases=2, bins=DEFAULT_BINS)
    return collect(inputs, (), progress=False)
