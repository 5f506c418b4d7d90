"""Drawings of a report as SVG; every text in them is escaped.

Colours come from the classes of ``templates/figure.css``, for light and for dark paper. Classes of nodes differ in
shape as well as in colour. Charts have no width: they fill the cell of their table.
"""

import math
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from cfe_faiss.audit.reporting.document import STYLES, Column, Neighbourhood, Plot, Table
from cfe_faiss.audit.reporting.formats import MINUS, interval, is_undefined, show, show_value
from cfe_faiss.base.extras import extra
from cfe_faiss.files.outputs import MARK

with extra("audit"):
    from markupsafe import Markup

_ROW, _AXIS, _EDGE = 20, 22, 6
"""Height of a row in a file and of an axis in pixels; margin left and right in per cent."""
_LABEL, _CHART, _NUMBER, _LETTERS = 330, 400, 190, 44
"""Widths of label, chart and number in a file, in pixels, and letters of a label."""
_CORNERS = {1: (4, -45), 2: (3, -90), 3: (4, -90), 4: (3, 90), 5: (5, -90)}
"""Number of corners, and angle of the first, of each mark but the circle."""


def strip(column: Column, row: Mapping[str, Any]) -> Markup:
    """Return the row of a chart: guides, interval, number."""
    plot = _plot(column)
    parts = [_line(plot, guide, guide, 0, 100, "guide") for guide in plot.guides]
    value, (low, high) = row[column.key], column.bounds(row)
    if not is_undefined(value) and low is not None and high is not None:
        parts.append(_line(plot, low, high, 50, 50, "interval"))
    for key, style, top in ((plot.expected, "expected", 20), (plot.before, "before", 34)):
        if not is_undefined(row.get(key)):
            parts.append(_line(plot, row[key], row[key], top, 100 - top, style))
    if not is_undefined(value):
        parts.append(_element("circle", class_="value", cx=_at(plot, value), cy="50%", r=4))
    return _chart(parts, "100%")


def axis(column: Column) -> Markup:
    """Return the axis of a chart with its ticks."""
    plot = _plot(column)
    parts = [_line(plot, tick, tick, 80, 100, "axis") for tick in plot.ticks]
    for tick in plot.ticks:
        text = f"{100 * tick:g}%" if column.kind == "share" else f"{tick:g}"
        parts.append(_text(_at(plot, tick), 12, text.replace("-", MINUS), "tick", "middle"))
    return _chart(parts, str(_AXIS))


def standalone_chart(table: Table, column: Column) -> str:
    """Return a chart of a table as an SVG file."""
    label = next(name.key for name in table.columns if name.key != table.group)
    parts = [_place_chart(0, _AXIS, axis(column))]
    for y, row in enumerate(table.rows):
        y = _AXIS + _ROW * y
        name = show(row[label], 300)
        name = name if len(name) <= _LETTERS else f"{name[: _LETTERS // 2]}…{name[-(_LETTERS // 2) :]}"
        number = f"{show_value(row[column.key], column.kind)} {interval(column.bounds(row), column.kind)}"
        parts += [
            _text(_LABEL - 8, y + 14, name, "label", "end"),
            _place_chart(y, _ROW, strip(column, row)),
            _text(_LABEL + _CHART + 8, y + 14, number, "label", "start"),
        ]
    return as_file(_frame(table.caption, _AXIS + _ROW * len(table.rows) + 4, parts, _LABEL + _CHART + _NUMBER))


def mark(style: int) -> Markup:
    """Return the mark of a class, small enough for a line of text."""
    size = {"viewBox": "0 0 20 20", "width": 14, "height": 14}
    return _element("svg", _mark(10, 10, 7, style, False), class_="figure legend", aria_hidden="true", **size)


def neighbourhood(drawing: Neighbourhood, name: str) -> Markup:
    """Return a node and its neighbours, with ``name`` for screen readers."""
    side, radius = 300, 92
    centre, count = side / 2, len(drawing.neighbours)
    angles = [-math.pi / 2 + 2 * math.pi * (i + 0.5) / max(count, 1) for i in range(count)]
    places = [(centre + radius * math.cos(angle), centre + radius * math.sin(angle)) for angle in angles]
    paths = {
        "chord": "".join(_chord(places[i], places[j], centre) for i, j in drawing.edges),
        "edge": "".join(f"M{centre:.0f} {centre:.0f}L{x:.1f} {y:.1f}" for x, y in places),
    }
    parts = [_element("path", class_=style, d=path) for style, path in paths.items() if path]
    for (x, y), angle, neighbour in zip(places, angles, drawing.neighbours, strict=True):
        parts.append(_mark(x, y, 8, neighbour.style, neighbour.shared))
        across, down = math.cos(angle), math.sin(angle)
        anchor = "middle" if abs(across) < 0.3 else "start" if across > 0 else "end"
        parts.append(_text(x + 14 * across, y + 16 * down + 4, show(neighbour.name, 9), "tick", anchor))
    parts.append(_mark(centre, centre, 17, drawing.style, False))
    return _frame(name, side, parts, side)


def _element(tag: str, content: Markup | str = "", **attributes: Any) -> Markup:
    """Return an element; a name such as class_ or text_anchor stands for class or text-anchor."""
    pair = Markup(' {}="{}"')
    texts = {name: f"{value:.1f}" if isinstance(value, float) else value for name, value in attributes.items()}
    listed = Markup("").join(pair.format(name.rstrip("_").replace("_", "-"), text) for name, text in texts.items())
    return Markup("<{0}{1}>{2}</{0}>" if content else "<{0}{1}/>").format(tag, listed, content)


def _plot(column: Column) -> Plot:
    assert column.plot is not None
    return column.plot


def _place_chart(y: int, height: int, chart: Markup) -> Markup:
    return _element("svg", chart, x=_LABEL, y=y, width=_CHART, height=height)


def as_file(drawing: Markup) -> str:
    """Return a drawing as an SVG file."""
    style = files("cfe_faiss.audit.reporting").joinpath("templates", "figure.css").read_text(encoding="utf-8")
    inline = str(drawing).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    start = inline.index(">") + 1
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n'
    return f"{head}{inline[:start]}<style>{style}</style>{inline[start:]}\n"


def _frame(name: str, height: int, parts: Iterable[Markup], width: int) -> Markup:
    content = _element("title", show(name, 300)) + Markup("").join(parts)
    size = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height}
    return _element("svg", content, class_="figure", role="img", **size)


def _chart(parts: Iterable[Markup], height: str) -> Markup:
    """Return a chart as wide as its cell. Screen readers read the numbers in the other cells."""
    return _element("svg", Markup("").join(parts), class_="figure", aria_hidden="true", width="100%", height=height)


def _at(plot: Plot, value: float) -> str:
    """Return the place of a number in per cent of the width; the end of the scale for numbers beyond it."""
    low, high = plot.ticks[0], plot.ticks[-1]
    share = (min(max(value, low), high) - low) / (high - low)
    return f"{_EDGE + (100 - 2 * _EDGE) * share:.2f}%"


def _text(x: float | str, y: float, text: str, style: str, anchor: str) -> Markup:
    return _element("text", text, class_=style, x=x, y=float(y), text_anchor=anchor)


def _line(plot: Plot, start: float, end: float, top: int, bottom: int, style: str) -> Markup:
    """Return a line between two numbers of a scale, at heights in per cent."""
    return _element("line", class_=style, x1=_at(plot, start), y1=f"{top}%", x2=_at(plot, end), y2=f"{bottom}%")


def _chord(start: tuple[float, float], end: tuple[float, float], centre: float) -> str:
    """Return the path of a curve between two places on the ring that bends around the node in the middle."""
    x, y = ((start[i] + end[i]) / 2 - centre for i in (0, 1))
    # Two places on opposite sides have the centre between them: the curve then bends to one side.
    x, y = (x, y) if math.hypot(x, y) > 1 else ((start[1] - end[1]) / 4, (end[0] - start[0]) / 4)
    bend = max(1.0, 46 / max(math.hypot(x, y), 1))
    middle = centre + x * bend, centre + y * bend
    return "M{:.0f} {:.0f}Q{:.0f} {:.0f} {:.0f} {:.0f}".format(*start, *middle, *end)


def _mark(x: float, y: float, r: float, style: int, shared: bool) -> Markup:
    kind = style % STYLES
    words = f"class class-{kind}" + (" shared" if shared else "")
    if kind == 0:
        return _element("circle", class_=words, cx=float(x), cy=float(y), r=r)
    corners, first = _CORNERS[kind]
    angles = [math.radians(first + 360 * i / corners) for i in range(corners)]
    outline = " ".join(f"{x + 1.2 * r * math.cos(a):.1f},{y + 1.2 * r * math.sin(a):.1f}" for a in angles)
    return _element("polygon", class_=words, points=outline)
