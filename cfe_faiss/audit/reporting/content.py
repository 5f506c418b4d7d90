"""From inputs to the content of a report: numbers, their words, and the subject."""

import hashlib
import json
import platform
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from cfe_faiss.attributes.table import Attributes
from cfe_faiss.audit.intervals import share_columns
from cfe_faiss.audit.reporting.conditions import OUTCOMES, Check, Condition, check_all
from cfe_faiss.audit.reporting.document import (
    Column,
    Section,
    Table,
    as_json,
    first_lines,
    join_words,
    list_first,
    number,
    plural,
    show,
    visible,
    with_article,
)
from cfe_faiss.audit.reporting.inputs import Inputs, Part
from cfe_faiss.audit.reporting.sections import SECTIONS
from cfe_faiss.base.checks import UNKNOWN, Array, check_known
from cfe_faiss.base.extras import extra, find_version
from cfe_faiss.data.roles import leaks

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


_TEXTS = Environment(undefined=_Unknown, loader=FunctionLoader(template), finalize=visible)
"""Environment of plain texts. They call functions of document.py by their names."""
for _function in (first_lines, join_words, list_first, number, plural, show, with_article):
    _TEXTS.filters[_function.__name__] = _function


class Prose:
    """Macros of the template of a section, filled with its values and the words of the report."""

    def __init__(self, inputs: Inputs, name: str, values: Mapping[str, Any]) -> None:
        words = {**inputs.words, "has": inputs.has, **values}
        self._macros = _TEXTS.get_template(f"sections/{name}.txt.j2").make_module(words)

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
        of the table; that of "local law 144: Sex", one of several of this kind, is
        ``local_law_144`` and gets "Sex".
        """
        name, *parts = table.id.split(": ")
        caption, *lines = self.lines(macro or name.replace(" ", "_"), *parts)
        return replace(table, caption=caption, reading="".join(lines[:1]), notes=tuple(lines[1:]))


def make_section(part: Part, inputs: Inputs) -> Section:
    """Return a section: its numbers and their words, or why there are none."""
    unmet = next((need for need in part.needs if not inputs.has(need)), "")
    section = Section(missing=unmet) if unmet else part.numbers(inputs)
    prose = Prose(inputs, part.name, section.values)
    title = prose.line("title")
    purpose = prose.line("purpose")
    if section.missing:
        shared = Prose(inputs, "missing", section.values)
        reason = prose.line(section.missing) or shared.line(section.missing)
        return Section(
            id=part.name, title=title, purpose=purpose, is_open=part.is_open, missing=reason
        )
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
        cases=tuple(
            replace(case, differences=prose.table(case.differences, "case"))
            for case in section.cases
        ),
        measured=[inputs.placed(row) for row in section.measured],
    )


COMMAND = "Command to rerun"
"""Name of the fact that may differ between equal audits."""

_PACKAGES = (
    "cfe-faiss",
    "faiss-cpu",
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "torch_geometric",
    "pandas",
)
_NAMES = 40
"""Names in one line, and characters of each, at most."""
FORMAT = 2
"""The version of report.json, see schema.json."""
_CONDITIONS = (
    Column("condition", "Condition"),
    Column("attribute", "Attribute"),
    Column("group", "Group"),
    Column("value", "Value", "number", interval=("low", "high"), n="n"),
    Column("n", "n", "count"),
    Column("outcome", "Outcome"),
    Column("reason", "Reason"),
)


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a report.

    Attributes
    ----------
    numbers
        Content of report.json, see schema.json.
    sections
        In order.
    checks
        One for every condition and group.
    checks_table
        The checks as a table.
    explorer
        Path and text of the page that shows the closest pairs; None without one.
    """

    numbers: dict[str, Any]
    sections: tuple[Section, ...]
    checks: tuple[Check, ...]
    checks_table: Table
    explorer: tuple[Path, str] | None = None


def collect(inputs: Inputs, conditions: Sequence[Condition], progress: bool) -> Content:
    """Run every audit but those to skip."""
    skip = inputs.settings.skip
    for name in skip:
        check_known("skip must name sections", name, [part.name for part in SECTIONS])
    parts = [
        part
        for part in SECTIONS
        if part.name not in skip and (not part.is_optional or all(map(inputs.has, part.needs)))
    ]
    sections: list[Section] = []
    # None: no bar if standard error is not a terminal.
    disable = None if progress else True
    try:
        with tqdm(parts, "Auditing", disable=disable, file=sys.stderr, leave=False) as bar:
            inputs = replace(inputs, show_step=bar.set_postfix_str)
            for part in bar:
                bar.set_postfix_str(part.name.replace("_", " "))
                sections.append(make_section(part, inputs))
    except KeyboardInterrupt:
        _print_unfinished(sections)
        raise
    measured = {section.id: section.measured for section in sections}
    checks = check_all(conditions, measured, inputs.attributes_and_pairs)
    rows = [
        asdict(check)
        | {"condition": str(check.condition), "attribute": check.attribute or inputs.everyone}
        for check in sorted(checks, key=lambda check: OUTCOMES.index(check.outcome))
    ]
    checks_table = Prose(inputs, "conditions", {}).table(
        Table("conditions", _CONDITIONS, rows, limit=200)
    )
    reasons = dict.fromkeys(section.missing for section in sections if section.missing)
    not_shown = [
        f"{', '.join(section.title for section in sections if section.missing == reason)}: "
        f"{reason[:1].lower()}{reason[1:]}"
        for reason in reasons
    ]
    known = facts(inputs)
    as_written = [as_json(section) | {"missing": section.missing or None} for section in sections]
    # The command names output files: equal audits have equal ids in all folders.
    text = json.dumps([known | {COMMAND: ""}, as_written], sort_keys=True)
    numbers = {
        "format": "cfe-faiss report",
        "format_version": FORMAT,
        "id": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16],
        "title": inputs.subject.title,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": version("cfe-faiss"),
        "confidence": inputs.settings.confidence,
        "subject": known,
        "scope": [*scope(inputs)],
        "named": [line for section in sections for line in section.named],
        "described": [line for section in sections for line in section.described],
        "undetermined": [
            *(line for section in sections for line in section.undetermined),
            *not_shown,
        ],
        "conditions": {"outcome": _outcome(checks), **as_json(checks_table)},
        "sections": as_written,
    }
    return Content(numbers, tuple(sections), checks, checks_table)


def _outcome(checks: Sequence[Check]) -> str:
    """Return the outcomes of the conditions in a sentence."""
    if not checks:
        return "No conditions."
    counts = Counter(check.outcome for check in checks)
    numbers = ", ".join(f"{counts[outcome]:,} {outcome}" for outcome in OUTCOMES)
    return f"{plural(len(checks), 'check')}: {numbers}."


def _print_unfinished(sections: Sequence[Section]) -> None:
    """Print the sentences of the sections before an interrupt on standard error."""
    lines = [
        f"interrupted; complete: "
        f"{join_words([section.title for section in sections]) or 'no section'}"
    ]
    for section in sections:
        lines += [line for line in (section.headline, *section.named, *section.described) if line]
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def scope(inputs: Inputs) -> tuple[str, ...]:
    """Return sentences on the audit for readers who know neither the data nor the model."""
    finder = inputs.finder
    total = len(finder.labels)
    count = len(inputs.nodes)
    part = ("" if count == total else f"{count:,} of ") + plural(
        total, inputs.words["person"], inputs.words["people"]
    )
    values = {
        "data": inputs.subject.data,
        "model": inputs.subject.model,
        "part": part,
        "features": finder.vectors.shape[1],
        "leaks": [
            f"{show(name)} (known for {join_words(known)} only)" if known else show(name)
            for name, known in _leaks(inputs).items()
        ],
        "removed": [show(name) for name in finder.removed.columns] if finder.removed else [],
    }
    shares = (
        {"selected": np.isin(inputs.labels, inputs.favourable)} if inputs.has("favourable") else {}
    )
    if inputs.truth is not None:
        shares["right"] = (inputs.truth == inputs.labels)[inputs.truth != UNKNOWN]
        values["judged"] = len(shares["right"])
    for name, hits in shares.items():
        found = share_columns(name, hits.sum(), len(hits), inputs.settings.confidence)
        values |= {column: float(value) for column, value in found.items()}
    return Prose(inputs, "scope", values).lines("scope")


def _leaks(inputs: Inputs) -> dict[str, list[str]]:
    """Return the columns that determine the decisions, and decisions known to them only."""
    finder = inputs.finder
    if finder.graph is not None:
        return {}
    left_out = () if finder.removed is None else finder.removed.columns
    compared = [attribute for name, attribute in inputs.attributes.items() if name not in left_out]
    return {
        name: [f"“{show(inputs.class_names[label])}”" for label in known]
        for name, known in leaks(compared, inputs.labels, finder.model is None).items()
    }


def facts(inputs: Inputs) -> dict[str, str]:
    """Return the known facts about the subject by name."""
    finder = inputs.finder
    subject = inputs.subject
    graph = finder.graph
    removed = finder.removed
    sizes = np.bincount(inputs.labels[inputs.labels >= 0], minlength=len(inputs.class_names))
    classes = [
        f"{show(name, _NAMES)} {size:,}"
        for name, size in zip(inputs.class_names, sizes, strict=True)
        if size
    ]
    known = 0 if finder.truth is None else int((finder.truth[inputs.nodes] >= 0).sum())
    people = inputs.words["people"]
    favourable = " or ".join(show(name, _NAMES) for name in inputs.favourable_names)
    packages = {name: find_version(name) for name in _PACKAGES}
    connections = ""
    if graph is not None:
        connections = (
            f"{graph.num_edges:,}, directed" if graph.directed else f"{graph.num_edges // 2:,}"
        )
        unused = "".join(f"; {name} for the model only" for name in finder.model_only)
        connections += unused if graph.weights is None else ", by weight"
    found = {
        "Data": inputs.subject.data,
        "Model": inputs.subject.model,
        f"Audited {people}": f"{len(inputs.nodes):,} of {len(finder.labels):,}",
        "Connections": connections,
        "Predicted classes": ", ".join(classes),
        "Favourable class": favourable or "none was named; each class is reported in turn",
        "True classes": f"known for {plural(known, inputs.words['person'], people)}"
        if known
        else "unknown",
        f"Attributes ({len(inputs.attributes):,})": list_first(_shorten(inputs.attributes), _NAMES),
        "Sensitive attributes": join_words(_shorten(inputs.sensitive))
        if inputs.sensitive
        else "none named",
        "Left out of the comparison": ""
        if removed is None
        else join_words(_shorten(removed.columns)),
        "Columns that remain in it and tell something left out": ""
        if removed is None
        else ", ".join(show(removed.describe(proxy), 2 * _NAMES) for proxy in removed.proxies[:8]),
        "Seed": "not given" if subject.seed is None else str(subject.seed),
        COMMAND: subject.command or "not given",
        "Versions": ", ".join(
            [f"Python {platform.python_version()}"]
            + [f"{name} {text}" for name, text in packages.items() if text]
        ),
        "SHA-256 of the predictions": digest(finder.labels),
        "SHA-256 of the vectors": digest(finder.vectors),
    }
    if graph is not None:
        weights = [] if graph.weights is None else [graph.weights]
        found["SHA-256 of the connections"] = digest(graph.indptr, graph.indices, *weights)
    for name, labels in list((inputs.models or {}).items())[1:]:
        found[f"SHA-256 of the predictions of {show(name, _NAMES)}"] = digest(labels)
    found |= {f"SHA-256 of {show(name, 60)}": text for name, text in subject.files.items()}
    return {name: text for name, text in found.items() if text}


def _shorten(names: "Sequence[str] | Attributes") -> list[str]:
    return [show(name, _NAMES) for name in names]


def digest(*arrays: Array) -> str:
    r"""Return the SHA-256 of arrays: dtype ("<f4"), shape and bytes of each, in C order.

    Examples
    --------
    >>> content = b"<i4 (2,)" + b"\1\0\0\0\2\0\0\0"
    >>> digest(np.array([1, 2], np.int32)) == hashlib.sha256(content).hexdigest()
    True
    """
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype.str} {array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()
