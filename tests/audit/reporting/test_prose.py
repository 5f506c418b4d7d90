import re
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from audit_report_helpers import inputs_of

import cfe_faiss.audit.reporting
from cfe_faiss.audit.reporting.content import SECTIONS, Part, Prose, make_section
from cfe_faiss.audit.reporting.document import Section, Table, first_lines, number
from cfe_faiss.audit.reporting.sections.model_tests import _text

GOLDEN = Path(__file__).with_name("golden")
TEMPLATES = files("cfe_faiss.audit.reporting").joinpath("templates", "sections")


@pytest.fixture
def inputs(audited):
    return inputs_of(audited.finder, ["sex"], 1)


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
        *[
            "title",
            "purpose",
            "headline",
            "named",
            "described",
            "undetermined",
            "findings",
            "limits",
        ]
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
    assert first_lines("\na\n\nb\n", 2, "below.") == "a\nb"
    assert first_lines("a\nb\nc", 1, "below.") == "a\n2 more are below."
    assert first_lines("a\nb\nc", 2, "below.") == "a\nb\n1 more is below."


def test_distances_and_amounts_have_no_exponents():
    numbers = [number(value, "distance") for value in (0.0, 0.00001234, 0.04075, 12345678.9)]
    assert numbers == ["0", "0.00001234", "0.04075", "12,345,679"]
    assert [_text(value) for value in (1e6, 1234567.5, np.float32(0.1))] == [
        "1000000",
        "1234567.5",
        "0.1",
    ]


def findings_of(inputs, **values):
    """Return the sentences on the closest pairs."""
    known = {"total": 9, "most": 0.9, "least": 0.8, "attributes": 3, "equal": 0}
    known |= {"only_sensitive": 0, "both_lack": {}, "conditions": [], "missing": {}}
    return Prose(inputs, "pairs", known | values).lines("findings")


def test_counts_of_pairs_are_sentences(inputs):
    head, *others = findings_of(inputs, count=8)
    assert head.startswith("Of 9 pairs with different decisions, the 8 closest are listed. Their")
    assert others == [
        "In none of these 8 pairs do the two agree in every attribute.",
        "In none of these 8 pairs do the two differ in sex only.",
    ]
    _, *others = findings_of(inputs, count=8, equal=1, only_sensitive=8, both_lack={"age": 2})
    assert others == [
        "In 1 of these 8 pairs the two agree in every attribute: only their connections differ.",
        "In 2 of these 8 pairs the two both lack age: nothing says that they agree in it.",
        "In all of these 8 pairs the two differ in sex only.",
    ]
    head, *others = findings_of(inputs, count=1, least=0.9, only_sensitive=1)
    assert head.endswith("the closest is listed. Its similarity is 0.900000.")
    assert others == [
        "In this pair the two do not agree in every attribute.",
        "In this pair the two differ in sex only.",
    ]
    head, other = findings_of(inputs, count=9, attributes=0)
    assert head.startswith("All 9 pairs with different decisions are listed.")
    assert "differ in sex only" in other
    head, *_ = findings_of(inputs, count=1, total=1)
    assert head.startswith("The only pair with different decisions is listed.")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.txt")), ids=lambda path: path.stem)
def test_sample_reports_say_nothing_twice_and_nothing_of_what_is_not_there(path):
    text = path.read_text(encoding="utf-8").partition("<?xml")[0]
    lines = text.splitlines()
    assert not [line for line, after in pairwise(lines) if line == after and len(line) > 40]
    judging = r"\b(non-)?compliant\b|\b(un)?fair\b|\bdiscriminatory\b|\blawful use\b"
    assert not re.search(judging, text.lower())
    impossible = (r"\b0 of\b", r"\ball [01]\b", r"\b1 \w+s (are|have|can)\b", r"\bThe 1\b", r"\.  ")
    for words in impossible:
        assert not [line for line in lines if re.search(words, line) and "|" not in line]
    if "Connections" not in lines:
        assert not re.search(r"\b([Gg]raph|edges|neighbours' sake)\b", text)
    if "True classes\nunknown" in text:
        assert "True classes are the classes on record" not in text
        assert "people with a true class only" not in text
