"""Texts and tables of sections.toml, filled with the words and numbers of one audit."""

import math
import string
import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, wraps
from importlib.resources import files
from types import MappingProxyType
from typing import Any, TypeVar

from cfe_faiss.audit.reporting.document import Column, Plot, Section, Table
from cfe_faiss.audit.reporting.formats import number, plural, shown

_Values = Mapping[str, Any]
_NONE: _Values = MappingProxyType({})


class Wording:
    """Texts of one audit. Subclasses give its words and say what it has."""

    @property
    def words(self) -> _Values:
        """Words of the audit by their names in sections.toml."""
        raise NotImplementedError

    def has(self, need: str) -> bool:
        """Return whether the audit has something that a text or a section needs."""
        raise NotImplementedError

    def say(self, key: str, values: _Values = _NONE, **more: Any) -> str:
        """Return a sentence of sections.toml, ``says.<key>``, filled with values."""
        part, _, name = key.partition(".")
        return self._filled(texts()["says"][part][name], {**values, **more})

    def table(
        self, name: str, rows: Iterable[_Values], values: _Values = _NONE, columns: Iterable[Column] = ()
    ) -> Table:
        """Return a table of sections.toml with rows, and with further columns behind its own."""
        text, rows = texts()["tables"][name], tuple(rows)
        kept = [column for column in text["columns"] if self._holds(column, values)]
        return Table(
            id=self._filled(text.get("id", name), values),
            caption=self._filled(text["caption"], values),
            reading=self._filled(text["reading"], values),
            columns=(*(self._column(column, rows, values) for column in kept), *columns),
            rows=rows,
            limit=text.get("limit", 60),
            notes=self.sentences(text.get("notes", ()), values),
            group=text.get("group", ""),
        )

    def section(
        self,
        name: str,
        values: _Values = _NONE,
        *,
        missing: str = "",
        tables: Mapping[str, Iterable[_Values]] | Iterable[Table] = (),
        findings: Iterable[str] = (),
        limits: Iterable[str] = (),
        **parts: Any,
    ) -> Section:
        """Return a section of sections.toml.

        Parameters
        ----------
        name, values
            Its name, and the numbers in its texts.
        missing
            Name of the reason why it is empty, see ``missing`` in sections.toml.
        tables
            Rows of tables by name, or tables.
        findings, limits
            Sentences behind the sentences of sections.toml.
        parts
            Further fields of :class:`Section`.
        """
        text = texts()["sections"][name]
        empty = Section(name, text["title"], self._filled(text["purpose"], values), is_open=text.get("is_open", False))
        if missing:
            return replace(empty, missing=self._filled(texts()["missing"][missing], values))
        if isinstance(tables, Mapping):
            tables = [self.table(name, rows, values) for name, rows in tables.items()]
        return replace(
            empty,
            tables=tuple(tables),
            headline=self._filled(text.get("headline", ""), values),
            findings=(*self.sentences(text.get("findings", ()), values), *findings),
            limits=(*self.sentences(text.get("limits", ()), values), *limits),
            **parts,
        )

    def lacking(self, name: str) -> str:
        """Return the first need of a section that the audit does not meet; empty if it meets all."""
        return next((need for need in texts()["sections"][name].get("needs", ()) if not self.has(need)), "")

    def _filled(self, text: str, values: _Values) -> str:
        words = ChainMap(dict(values), dict(self.words))
        return _Formatter(words["person"], words["people"]).vformat(text, (), words)

    def _holds(self, entry: Any, values: _Values) -> bool:
        """Return whether an entry appears: it has no condition, or the condition holds."""
        condition = entry.get("when", "") if isinstance(entry, Mapping) else ""
        name = condition.removeprefix("not ")
        return not name or bool(values[name] if name in values else self.has(name)) == (name == condition)

    def sentences(self, entries: Sequence[Any], values: _Values) -> tuple[str, ...]:
        """Return the sentences of sections.toml that apply, filled with values."""
        kept = (entry for entry in entries if self._holds(entry, values))
        return tuple(self._filled(entry if isinstance(entry, str) else entry["text"], values) for entry in kept)

    def _column(self, text: Mapping[str, Any], rows: Sequence[_Values], values: _Values) -> Column:
        fields = {name: part for name, part in text.items() if name != "when"}
        if "plot" in fields:
            fields["plot"] = _plot(fields["plot"], rows, values)
        return Column(**fields | {"title": self._filled(text["title"], values)})


MAKERS: dict[str, Callable[[Any], Section]] = {}
"""Functions of the sections by name."""
_Audit = TypeVar("_Audit", bound=Wording)


def section_of(name: str) -> Callable[[Callable[[_Audit], Section]], Callable[[_Audit], Section]]:
    """Register the function of a section. The section says what is missing if a need is not met."""

    def decorate(make: Callable[[_Audit], Section]) -> Callable[[_Audit], Section]:
        @wraps(make)
        def made(audit: _Audit) -> Section:
            missing = audit.lacking(name)
            return audit.section(name, missing=missing) if missing else make(audit)

        MAKERS[name] = made
        return made

    return decorate


class _Formatter(string.Formatter):
    """Formats numbers by their kinds and counts by their nouns, and shortens texts."""

    def __init__(self, person: str, people: str) -> None:
        self._nouns = person, people

    def format_field(self, value: Any, format_spec: str) -> Any:
        if format_spec.startswith("#"):
            return plural(value, *((format_spec[1:],) if format_spec[1:] else self._nouns))
        return shown(value) if not format_spec else str(value) if format_spec == "raw" else number(value, format_spec)


@cache
def texts() -> dict[str, Any]:
    """Return the content of sections.toml."""
    return tomllib.loads(files("cfe_faiss.audit.reporting").joinpath("sections.toml").read_text(encoding="utf-8"))


def _plot(text: Mapping[str, Any], rows: Sequence[_Values], values: _Values) -> Plot:
    guides = [values[guide] if isinstance(guide, str) else guide for guide in text.get("guides", ())]
    known = tuple(float(guide) for guide in guides if guide is not None)
    marks = {name: text[name] for name in ("expected", "before") if name in text}
    if "ticks" in text:
        return Plot(tuple(text["ticks"]), known, **marks)
    low, high = text.get("clip", (-math.inf, math.inf))
    numbers = [min(max(row[key], low), high) for row in rows for key in text["around"] if row[key] is not None]
    return Plot.around([*numbers, *text.get("also", ())], known, **marks)
