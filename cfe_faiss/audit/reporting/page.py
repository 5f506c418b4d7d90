"""The page: templates that are filled with a report, and nothing loaded from anywhere."""

import base64
import hashlib
from importlib.resources import files
from typing import Any

from cfe_faiss.audit.reporting import formats
from cfe_faiss.audit.reporting.content import Content
from cfe_faiss.audit.reporting.figures import axis, mark, neighbourhood, strip
from cfe_faiss.base.extras import extra

with extra("audit"):
    import jinja2
    from markupsafe import Markup

_TEMPLATES = files("cfe_faiss.audit.reporting").joinpath("templates")


def page(content: Content) -> str:
    """Return the whole page: every text in it is escaped, and browsers are told to run no script and no other style."""
    style = _text("figure.css") + _text("report.css")
    policy = f"default-src 'none'; style-src {_hash(style)}; img-src data:; base-uri 'none'; form-action 'none'"
    return _environment().get_template("report.html.j2").render(report=content, policy=policy, style=Markup(style))


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(_text),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "shown": formats.shown,
        "written": formats.written,
        "interval": formats.interval,
        "axis": axis,
        "strip": strip,
        "neighbourhood": neighbourhood,
        "legend": mark,
    }
    environment.filters.update(filters)
    return environment


def _text(name: str) -> str:
    return _TEMPLATES.joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return the name of an inline style in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
