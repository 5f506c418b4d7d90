import json
import re
from html import unescape
from importlib.resources import files

import jsonschema
import torch

from cfe_faiss.audit.reporting.content import SECTIONS, make_section
from cfe_faiss.audit.reporting.inputs import Settings, check_inputs

_SCHEMA = files("cfe_faiss.audit.reporting").joinpath("schema.json").read_text(encoding="utf-8")
SCHEMA = jsonschema.Draft202012Validator(json.loads(_SCHEMA))
"""The schema of report.json."""


def text_of(page):
    """Return the text of a page that a reader sees."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", body))


def recorded(report, section):
    """Return a section of a report as report.json holds it."""
    return next(part for part in report.numbers["sections"] if part["id"] == section)


def table_of(report, section, table):
    """Return a table of a report as report.json holds it."""
    return next(part for part in recorded(report, section)["tables"] if part["id"] == table)


def rows_of(report, section, table):
    """Return the rows of a table of a report."""
    return table_of(report, section, table)["rows"]


def inputs_of(finder, sensitive, favourable=None, **settings):
    """Return the inputs of the sections of a report; without settings, the smallest possible."""
    small = {"k": 1, "pairs": 1, "cases": 1, "bins": 4, "confidence": 0.95}
    return check_inputs(finder, sensitive, favourable, Settings(**small | settings))


def section_of(inputs, name):
    """Return a section of a report of some inputs."""
    return make_section(next(part for part in SECTIONS if part.name == name), inputs)


def model(x, edge_index):
    """Judge by income, a little by membership, and by the neighbours' income."""
    score = x[:, 1] + 0.3 * x[:, 0]
    near = torch.zeros_like(score).index_add(0, edge_index[1], score[edge_index[0]])
    return (score + 0.1 * near > 0.2).long()
