import json
import re
from html import unescape
from importlib.resources import files

import jsonschema
import torch

from cfe_faiss.audit.reporting.content import SECTIONS, make_section

_SCHEMA = files("cfe_faiss.audit.reporting").joinpath("schema.json").read_text(encoding="utf-8")
SCHEMA = jsonschema.Draft202012Validator(json.loads(_SCHEMA))
"""The schema of report.json."""


def text_of(page: str) -> str:
    """Return the text of a page that a reader sees."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", " ", body))


def table_of(report, section, table):
    """Return a table of a report as report.json holds it."""
    (found,) = [part for part in report.numbers["sections"] if part["id"] == section]
    return next(one for one in found["tables"] if one["id"] == table)


def section_of(inputs, name):
    """Return a section of a report of some inputs."""
    return make_section(next(part for part in SECTIONS if part.name == name), inputs)


def model(x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
    """Judge by income, a little by membership, and by the neighbours' income."""
    score = x[:, 1] + 0.3 * x[:, 0]
    near = torch.zeros_like(score).index_add(0, edge_index[1], score[edge_index[0]])
    return (score + 0.1 * near > 0.2).long()
