"""The files of a report, written all together or not at all.

They are the page, JSON, JUnit XML, CSV and drawings.

Every text in a drawing is escaped.
"""

import csv
import io
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from cfe_faiss.audit.reporting.content import Content, template
from cfe_faiss.audit.reporting.document import (
    MINUS,
    STYLES,
    Column,
    Plot,
    Side,
    Table,
    interval,
    is_undefined,
    show,
    show_value,
)
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import csv_text
from cfe_faiss.files.outputs import (
    MARK,
    REPORT_COLUMNS,
    check_outputs,
    new_files,
    new_folder,
    page_policy,
)

with extra("audit"):
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

_SIZES = {"ROW": 20, "AXIS": 22, "LABEL": 330, "CHART": 400, "NUMBER": 190}
"""Height of a row in a file and of an axis; widths of label, chart and number in a file.

In pixels.
"""
_EDGE = 6
_LETTERS = 44
"""Margin left and right in per cent, and letters of a label in a file."""
_SIDE = 300
_RADIUS = 92
"""Side of the drawing of a neighbourhood, and radius of its ring, in pixels."""
_CORNERS = {1: (4, -45), 2: (3, -90), 3: (4, -90), 4: (3, 90), 5: (5, -90)}
"""Number of corners, and angle of the first, of each mark but the circle."""


@cache
def environment() -> Environment:
    """Return the environment of all templates.

    They call functions of this package by their names.
    """
    templates = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(template),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = show, show_value, interval, is_undefined, at, neighbourhood
    templates.filters.update({function.__name__: function for function in filters})
    templates.globals.update(_SIZES, STYLES=STYLES, MINUS=MINUS, outline=outline)
    return templates


def draw(macro: str, *arguments: Any) -> Markup:
    """Return what a macro of figures.svg.j2 draws, such as a row ("strip") or an axis."""
    return Markup(getattr(environment().get_template("figures.svg.j2").module, macro)(*arguments))


def standalone_chart(table: Table, column: Column) -> str:
    """Return a chart of a table as an SVG file."""
    label = next(name.key for name in table.columns if name.key != table.group)
    names = [show(row[label], 300) for row in table.rows]
    half = _LETTERS // 2
    labels = [name if len(name) <= _LETTERS else f"{name[:half]}…{name[-half:]}" for name in names]
    return as_file(draw("standalone_chart", table, column, labels))


def neighbourhood(side: Side, name: str) -> Markup:
    """Return a node and its neighbours, with ``name`` for screen readers."""
    centre = _SIDE / 2
    count = len(side.neighbours)
    angles = [-math.pi / 2 + 2 * math.pi * (i + 0.5) / max(count, 1) for i in range(count)]
    ring = [(math.cos(angle), math.sin(angle)) for angle in angles]
    places = [
        (centre + _RADIUS * across, centre + _RADIUS * down, across, down) for across, down in ring
    ]
    paths = {
        "chord": "".join(_chord(places[i][:2], places[j][:2], centre) for i, j in side.edges),
        "edge": "".join(f"M{centre:.0f} {centre:.0f}L{x:.1f} {y:.1f}" for x, y, *_ in places),
    }
    return draw(
        "neighbourhood", side, name, _SIDE, paths, list(zip(places, side.neighbours, strict=True))
    )


def as_file(drawing: Markup) -> str:
    """Return a drawing as an SVG file."""
    inline = str(drawing).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    start = inline.index(">") + 1
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n'
    return f"{head}{inline[:start]}<style>{template('figure.css')}</style>{inline[start:]}\n"


def at(value: float, plot: Plot) -> str:
    """Return the place of a number in per cent of the width.

    The end of the scale for numbers beyond it.
    """
    low = plot.ticks[0]
    high = plot.ticks[-1]
    share = (min(max(value, low), high) - low) / (high - low)
    return f"{_EDGE + (100 - 2 * _EDGE) * share:.2f}%"


def _chord(start: tuple[float, float], end: tuple[float, float], centre: float) -> str:
    """Return the path of a curve between two places on a ring, around the node in its middle."""
    x, y = ((start[i] + end[i]) / 2 - centre for i in (0, 1))
    # Two places on opposite sides have the centre between them: the curve then bends to one side.
    x, y = (x, y) if math.hypot(x, y) > 1 else ((start[1] - end[1]) / 4, (end[0] - start[0]) / 4)
    bend = max(1.0, 46 / max(math.hypot(x, y), 1))
    middle = centre + x * bend, centre + y * bend
    return "M{:.0f} {:.0f}Q{:.0f} {:.0f} {:.0f} {:.0f}".format(*start, *middle, *end)


def outline(x: float, y: float, r: float, kind: int) -> str:
    """Return the corners of a mark."""
    corners, first = _CORNERS[kind]
    angles = [math.radians(first + 360 * i / corners) for i in range(corners)]
    return " ".join(
        f"{x + 1.2 * r * math.cos(a):.1f},{y + 1.2 * r * math.sin(a):.1f}" for a in angles
    )


def report_files(path: Path) -> tuple[Path, ...]:
    """Return the files of a report; the first is its page."""
    return path, *(path.with_suffix(suffix) for suffix in (".json", ".xml", ".csv"))


def write_all(
    content: Content,
    path: Path,
    folder: Path | None,
    *,
    inputs: Sequence[Path] = (),
    overwrite: bool = False,
) -> tuple[Path, ...]:
    """Write all files and return their names; after an error or Ctrl-C none of them has changed."""
    as_json = json.dumps(content.numbers, indent=1, allow_nan=False) + "\n"
    parts = page(content, path), as_json, junit(content), long_table(content)
    texts = dict(zip(report_files(path), parts, strict=True))
    if content.explorer is not None:
        texts |= dict([content.explorer])
    if folder is not None:
        texts |= {folder / f"{name}.svg": text for name, text in _drawings(content)}
    check_outputs(texts, inputs, overwrite=overwrite)
    with new_folder(folder or path.parent), new_files([*texts], overwrite=overwrite) as opened:
        for file, text in zip(opened, texts.values(), strict=True):
            file.write(text.encode("utf-8", "replace"))
    return tuple(texts)


def page(content: Content, path: Path = Path()) -> str:
    """Return the page, whose link to the explorer is relative to ``path``.

    Every text in it is escaped, and browsers are told to run no script and no other style.
    """
    link = ""
    if content.explorer is not None:
        link = quote(os.path.relpath(content.explorer[0], path.parent))
    style = template("figure.css") + template("report.css")
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            policy=page_policy(style),
            style=Markup(style),
            report=content.numbers,
            explorer=link,
            sections=content.sections,
            checks=content.checks_table,
        )
    )


def junit(content: Content) -> str:
    """Return the conditions as a JUnit test suite: one test case for each condition and group.

    A check that cannot tell is skipped. Without conditions there is one test case, which is
    skipped, so that the suite has not passed.
    """
    cases = [
        (show(check.condition, 200), show(check.name, 200), str(check.outcome), show(check, 500))
        for check in content.checks
    ] or [("conditions", "no conditions", "cannot tell", content.numbers["conditions"]["outcome"])]
    counts = Counter(outcome for _, _, outcome, _ in cases)
    totals = {
        "tests": len(cases),
        "failures": counts["fail"],
        "errors": 0,
        "skipped": counts["cannot tell"],
    }
    attributes = {"name": show(content.numbers["title"], 200)} | {
        name: str(count) for name, count in totals.items()
    }
    suites = ET.Element("testsuites", attributes)
    suite = ET.SubElement(suites, "testsuite", attributes)
    for classname, name, outcome, message in cases:
        case = ET.SubElement(suite, "testcase", {"classname": classname, "name": name})
        if outcome == "cannot tell":
            ET.SubElement(case, "skipped", {"message": message})
        elif outcome == "fail":
            ET.SubElement(case, "failure", {"message": message, "type": "condition"}).text = message
    ET.indent(suites)
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n'
        + ET.tostring(suites, encoding="unicode")
        + "\n"
    )


def long_table(content: Content) -> str:
    """Return a CSV file with one line per number.

    Its columns are ``REPORT_COLUMNS``.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(REPORT_COLUMNS)
    writer.writerows(_lines("conditions", content.checks_table))
    for section in content.sections:
        for table in (*section.tables, *(case.differences for case in section.cases)):
            writer.writerows(_lines(section.id, table))
    return out.getvalue()


def _lines(section: str, table: Table) -> Iterator[list[Any]]:
    names = [column.key for column in table.columns if not column.is_value]
    measured = [column for column in table.columns if column.is_value]
    for row in table.rows:
        name = " | ".join(str(row[key]) for key in names if row[key] not in (None, ""))
        for column in measured:
            value = row[column.key]
            n = None if column.n is None else row[column.n]
            if value is not None:
                cells = section, table.id, name, column.key, value, n, *column.bounds(row)
                yield [csv_text(cell) if isinstance(cell, str) else cell for cell in cells]


def _drawings(content: Content) -> Iterator[tuple[str, str]]:
    for section in content.sections:
        for table in section.tables:
            for column in table.charts if table.rows else ():
                yield (
                    re.sub(r"\W+", "_", f"{table.id}_{column.key}"),
                    standalone_chart(table, column),
                )
        for case in section.cases:
            for side, letter in zip(
                case.sides, "ab" if case.legend else "", strict=bool(case.legend)
            ):
                drawing = neighbourhood(side, f"{side.name} and its neighbours")
                yield f"case_{case.place}_{letter}", as_file(drawing)
