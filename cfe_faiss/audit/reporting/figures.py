"""Drawings of a report as SVG; every text in them is escaped.

Colours come from the classes of ``templates/figure.css``, for light and for dark paper. Classes of nodes differ in
shape as well as in colour. Charts have no width: they fill the cell of their table.
"""

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from cfe_faiss.audit.reporting.document import STYLES, Column, Neighbourhood, Plot, Table
from cfe_faiss.audit.reporting.formats import MINUS, interval, is_undefined, show, show_value
from cfe_faiss.base.extras import extra
from cfe_faiss.files.outputs import MARK

with extra("audit"):
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

_SIZES = {"ROW": 20, "AXIS": 22, "LABEL": 330, "CHART": 400, "NUMBER": 190}
"""Height of a row in a file and of an axis; widths of label, chart and number in a file; in pixels."""
_EDGE, _LETTERS = 6, 44
"""Margin left and right in per cent, and letters of a label in a file."""
_SIDE, _RADIUS = 300, 92
"""Side of the drawing of a neighbourhood, and radius of its ring, in pixels."""
_CORNERS = {1: (4, -45), 2: (3, -90), 3: (4, -90), 4: (3, 90), 5: (5, -90)}
"""Number of corners, and angle of the first, of each mark but the circle."""


def template(name: str) -> str:
    """Return a file of the folder templates."""
    return files("cfe_faiss.audit.reporting").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """Return the environment of all templates. They call functions of this package by their names."""
    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(template),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = show, show_value, interval, is_undefined, at, axis, strip, neighbourhood, mark
    made.filters.update({function.__name__: function for function in filters})
    made.globals.update(_SIZES, STYLES=STYLES, MINUS=MINUS, outline=outline)
    return made


def _draw(macro: str, *arguments: Any) -> Markup:
    return Markup(getattr(environment().get_template("figures.svg.j2").module, macro)(*arguments))


def strip(column: Column, row: Mapping[str, Any]) -> Markup:
    """Return the row of a chart: guides, interval, number."""
    return _draw("strip", column, row)


def axis(column: Column) -> Markup:
    """Return the axis of a chart with its ticks."""
    return _draw("axis", column)


def mark(style: int) -> Markup:
    """Return the mark of a class, small enough for a line of text."""
    return _draw("mark", style)


def standalone_chart(table: Table, column: Column) -> str:
    """Return a chart of a table as an SVG file."""
    label = next(name.key for name in table.columns if name.key != table.group)
    names, half = [show(row[label], 300) for row in table.rows], _LETTERS // 2
    labels = [name if len(name) <= _LETTERS else f"{name[:half]}…{name[-half:]}" for name in names]
    return as_file(_draw("standalone_chart", table, column, labels))


def neighbourhood(drawing: Neighbourhood, name: str) -> Markup:
    """Return a node and its neighbours, with ``name`` for screen readers."""
    centre, count = _SIDE / 2, len(drawing.neighbours)
    angles = [-math.pi / 2 + 2 * math.pi * (i + 0.5) / max(count, 1) for i in range(count)]
    ring = [(math.cos(angle), math.sin(angle)) for angle in angles]
    places = [(centre + _RADIUS * across, centre + _RADIUS * down, across, down) for across, down in ring]
    paths = {
        "chord": "".join(_chord(places[i][:2], places[j][:2], centre) for i, j in drawing.edges),
        "edge": "".join(f"M{centre:.0f} {centre:.0f}L{x:.1f} {y:.1f}" for x, y, *_ in places),
    }
    return _draw("neighbourhood", drawing, name, _SIDE, paths, list(zip(places, drawing.neighbours, strict=True)))


def as_file(drawing: Markup) -> str:
    """Return a drawing as an SVG file."""
    inline = str(drawing).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    start = inline.index(">") + 1
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n'
    return f"{head}{inline[:start]}<style>{template('figure.css')}</style>{inline[start:]}\n"


def at(value: float, plot: Plot) -> str:
    """Return the place of a number in per cent of the width; the end of the scale for numbers beyond it."""
    low, high = plot.ticks[0], plot.ticks[-1]
    share = (min(max(value, low), high) - low) / (high - low)
    return f"{_EDGE + (100 - 2 * _EDGE) * share:.2f}%"


def _chord(start: tuple[float, float], end: tuple[float, float], centre: float) -> str:
    """Return the path of a curve between two places on the ring that bends around the node in the middle."""
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
    return " ".join(f"{x + 1.2 * r * math.cos(a):.1f},{y + 1.2 * r * math.sin(a):.1f}" for a in angles)
