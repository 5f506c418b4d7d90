import re
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from audit_report_helpers import inputs_of

from cfe_faiss.audit.reporting.content import SECTIONS, Part, make_section
from cfe_faiss.audit.reporting.document import Section, number
from cfe_faiss.audit.reporting.sections.variations import _text

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


def test_a_number_without_a_value_is_an_error(inputs):
    part = Part("balance", lambda inputs: Section({"over": 1}))
    with pytest.raises(Exception, match="is undefined"):
        make_section(part, inputs)


def test_needs_are_named_before_anything_is_computed(inputs):
    part = Part(
        "models",
        lambda inputs: pytest.fail("its needs are not met"),
        ("sensitive", "probabilities"),
    )
    assert make_section(part, inputs).missing == "No probabilities are known."


def test_distances_and_amounts_have_no_exponents():
    numbers = [number(value, "distance") for value in (0.0, 0.00001234, 0.04075, 12345678.9)]
    assert numbers == ["0", "0.00001234", "0.04075", "12,345,679"]
    found = [_text(value) for value in (1e6, 1234567.5, np.float32(0.1))]
    assert found == ["1000000", "1234567.5", "0.1"]


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
