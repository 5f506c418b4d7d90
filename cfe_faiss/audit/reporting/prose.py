"""Words of the report: the template of a section turns its numbers into sentences.

Each section has a file ``templates/sections/NAME.txt.j2``. Its macros are the parts of the section,
and each line of a macro is one sentence. They hold plain text, for report.json and for the page,
which escapes it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from cfe_faiss.audit.reporting.conditions import measures_of
from cfe_faiss.audit.reporting.document import Section, Table
from cfe_faiss.audit.reporting.formats import (
    first_lines,
    join_words,
    list_first,
    number,
    plural,
    show,
    visible,
    with_article,
)
from cfe_faiss.audit.reporting.inputs import Inputs
from cfe_faiss.audit.reporting.sections import Part
from cfe_faiss.base.extras import extra

with extra("audit"):
    from jinja2 import Environment, FunctionLoader, StrictUndefined


def template(name: str) -> str:
    """Return a file of the folder templates."""
    folder = files("cfe_faiss.audit.reporting").joinpath("templates")
    return folder.joinpath(name).read_text(encoding="utf-8")


class _Unknown(StrictUndefined):
    """Name that a template does not know: an error wherever it is used."""

    def __format__(self, format_spec: str) -> str:
        return str(self)


@cache
def _environment() -> Environment:
    """Return the environment of plain texts. They call functions of formats.py by their names."""
    made = Environment(undefined=_Unknown, loader=FunctionLoader(template), finalize=visible)
    filters = first_lines, join_words, list_first, number, plural, show, with_article
    made.filters.update({function.__name__: function for function in filters})
    return made


class Prose:
    """Macros of the template of a section, filled with its values and the words of the report."""

    def __init__(self, inputs: Inputs, name: str, values: Mapping[str, Any]) -> None:
        words = {**inputs.words, "has": inputs.has, **values}
        self._macros = _environment().get_template(f"sections/{name}.txt.j2").make_module(words)

    def lines(self, macro: str, *arguments: object) -> tuple[str, ...]:
        """Return the sentences of a macro; none if the template lacks it."""
        if not hasattr(self._macros, macro):
            return ()
        text: str = getattr(self._macros, macro)(*arguments)
        return tuple(line for line in text.split("\n") if line.strip())

    def line(self, macro: str) -> str:
        """Return the sentences of a macro in one line; empty if the template lacks it."""
        return " ".join(self.lines(macro))

    def table(self, table: Table, macro: str = "") -> Table:
        """Return a table with its words.

        The lines of its macro are its caption, how to read it, and notes. The macro has the name
        of the table; that of "local law 144: Sex", one of several alike, is ``local_law_144`` and
        gets "Sex".
        """
        name, *parts = table.id.split(": ")
        caption, *lines = self.lines(macro or name.replace(" ", "_"), *parts)
        return replace(table, caption=caption, reading="".join(lines[:1]), notes=tuple(lines[1:]))


def make_section(part: Part, inputs: Inputs) -> Section:
    """Return a section: its numbers and their words, or why there are none."""
    unmet = next((need for need in part.needs if not inputs.has(need)), "")
    section = Section(missing=unmet) if unmet else part.numbers(inputs)
    prose = Prose(inputs, part.name, section.values)
    title, purpose = prose.line("title"), prose.line("purpose")
    if section.missing:
        shared = Prose(inputs, "missing", section.values)
        reason = prose.line(section.missing) or shared.line(section.missing)
        return Section(id=part.name, title=title, purpose=purpose, is_open=part.is_open, missing=reason)
    return replace(
        section,
        id=part.name,
        title=title,
        purpose=purpose,
        is_open=part.is_open,
        headline=prose.line("headline"),
        named=prose.lines("named"),
        described=prose.lines("described"),
        undetermined=prose.lines("undetermined"),
        findings=prose.lines("findings"),
        limits=(*prose.lines("limits"), *map(inputs.reword, section.limits)),
        tables=tuple(prose.table(table) for table in section.tables),
        cases=tuple(replace(case, differences=prose.table(case.differences, "case")) for case in section.cases),
        measures=tuple(measures_of(part.name, section.measured, inputs)),
    )
