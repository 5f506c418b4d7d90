import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from audit_report_helpers import text_of

from cfe_faiss.audit.reporting.files import template

VOID = {"meta", "link", "input", "br"}


class Outline(HTMLParser):
    """Reads what a page is made of, and that its elements are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.elements = [], []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def outline(audited):
    parser = Outline()
    parser.feed(audited.page)
    assert not parser.open
    return parser.elements


def test_hostile_values_are_text(audited, outline):
    assert "img" not in [tag for tag, _ in outline]
    assert not [name for _, attributes in outline for name in attributes if name.startswith("on")]
    assert "script" not in [tag for tag, _ in outline]
    assert "</script><img src=x onerror=alert(1)>" in text_of(audited.page)


def test_nothing_is_loaded(outline):
    links = [
        value
        for _, attributes in outline
        for name, value in attributes.items()
        if name in ("src", "href")
    ]
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)


def test_the_browser_is_told_to_run_nothing_else(outline):
    policy = next(a["content"] for tag, a in outline if tag == "meta" and a.get("http-equiv"))
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe-inline" not in policy
    assert not [attributes for _, attributes in outline if "style" in attributes]


def test_headings_are_nested_and_anchors_lead_somewhere(outline):
    levels = [int(tag[1]) for tag, _ in outline if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [attributes["id"] for _, attributes in outline if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {attributes["href"][1:] for tag, attributes in outline if tag == "a"}
    assert anchors <= set(ids)


def test_tables_are_named_and_their_headings_have_a_scope(outline):
    tables = sum(tag == "table" for tag, _ in outline)
    assert tables
    assert sum(tag == "caption" for tag, _ in outline) == tables
    scopes = {attributes.get("scope") for tag, attributes in outline if tag == "th"}
    assert scopes <= {"col", "row", "rowgroup"}


def _luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, two):
    """Return the contrast of two colours as WCAG 2.2 defines it."""
    lighter, darker = sorted([_luminance(one), _luminance(two)], reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _schemes(name):
    css = template(name)
    light, dark = css.split("prefers-color-scheme: dark", 1)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", light))
    return colours, colours | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", dark))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(scheme):
    colours = _schemes("report.css")[scheme]
    for ink in ("ink", "soft", "link", "warn"):
        for paper in ("paper", "tint"):
            assert contrast(colours[ink], colours[paper]) >= 4.5, (ink, paper)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_drawings_have_the_contrast_of_wcag_aa(scheme):
    colours = _schemes("figure.css")[scheme]
    for ink in ("ink", "soft"):
        assert contrast(colours[ink], colours["paper"]) >= 4.5
    # Objects take 3:1. Marks of classes have an outline of ink.
    for mark in ("accent", "mark", "ink"):
        assert contrast(colours[mark], colours["paper"]) >= 3
