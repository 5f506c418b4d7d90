import re
from importlib.resources import files
from pathlib import Path

import pytest

import cfe_faiss.audit.reporting
from cfe_faiss.audit.reporting.content import SECTIONS, Part, Prose, make_section
from cfe_faiss.audit.reporting.document import Section, Table, first_lines
from cfe_faiss.audit.reporting.inputs import Settings, check_inputs

TEMPLATES = files("cfe_faiss.audit.reporting").joinpath("templates", "sections")


@pytest.fixture
def inputs(audited):
    return check_inputs(
        audited.finder, ["sex"], 1, Settings(k=1, pairs=1, cases=1, bins=4, confidence=0.9)
    )


def test_every_section_has_a_template_and_every_template_a_section():
    names = {file.name.removesuffix(".txt.j2") for file in TEMPLATES.iterdir()}
    assert names - {part.name for part in SECTIONS} == {"scope", "conditions", "missing"}
    assert {part.name for part in SECTIONS} <= names
    for part in SECTIONS:
        text = TEMPLATES.joinpath(f"{part.name}.txt.j2").read_text(encoding="utf-8")
        assert "{% macro title() %}" in text
        assert "{% macro purpose() %}" in text


def test_every_macro_has_a_reader():
    parts = {
        "title",
        "purpose",
        "headline",
        "named",
        "described",
        "undetermined",
        "findings",
        "limits",
    }
    package = Path(cfe_faiss.audit.reporting.__file__).parent
    sources = " ".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    named = parts | {name.replace(" ", "_") for name in re.findall(r'"([\w ]+)', sources)}
    for file in TEMPLATES.iterdir():
        text = file.read_text(encoding="utf-8")
        for macro in re.findall(r"macro (\w+)", text):
            assert macro in named or f"{{{{ {macro}(" in text, (file.name, macro)


def test_a_number_without_a_value_is_an_error(inputs):
    part = Part("balance", lambda inputs: Section({"over": 1}))
    with pytest.raises(Exception, match="is undefined"):
        make_section(part, inputs)


def test_the_lines_of_a_table_are_caption_reading_and_notes(inputs):
    values = {"count": 2, "conditions": ["the same sex"], "missing": {"age": 3}}
    table = Prose(inputs, "pairs", values).table(Table("closest_pairs", (), ()))
    assert table.caption == "The closest 2 pairs of nodes with different decisions"
    assert table.reading.startswith("One pair a line")
    assert table.notes[0].endswith("under them. 3 nodes without a known age can be in no pair.")


def test_needs_are_named_before_anything_is_computed(inputs):
    part = Part(
        "models",
        lambda inputs: pytest.fail("its needs are not met"),
        ("sensitive", "probabilities"),
    )
    assert make_section(part, inputs).missing == "No probabilities are known."


def test_first_lines_count_the_others():
    assert first_lines("\na\n\nb\n", 2, "are below.") == "a\nb"
    assert first_lines("a\nb\nc", 1, "are below.") == "a\n2 more are below."
