"""Drawings of a report as SVG; every text in them is escaped.

Colours come from the classes of ``templates/figure.css``, for light and for dark paper. Classes of nodes differ in
shape as well as in colour. Charts have no width of their own: they fill the cell of their table.
"""

import math
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from cfe_faiss.audit.reporting.document import Column, Table
from cfe_faiss.audit.reporting.drawings import STYLES, Neighbourhood, Plot
from cfe_faiss.audit.reporting.formats import interval, shown, undefined, written
from cfe_faiss.base.extras import extra
from cfe_faiss.files.outputs import MARK

with extra("audit"):
    from markupsafe import Markup

_ROW, _AXIS, _EDGE = 20, 22, 4
"""Height of a row in a file and of an axis in pixels; margin left and right in per cent."""
_LABEL, _CHART, _NUMBER, _LETTERS = 330, 400, 190, 44
"""Widths of a chart that is a file of its own, in pixels, and letters of a label."""


def strip(plot: Plot, column: Column, row: Mapping[str, Any]) -> Markup:
    """Return the row of a chart: guides, interval, number."""
    parts = [_line(_at(plot, guide), "0", _at(plot, guide), "100%", "guide") for guide in plot.guides]
    low, high = (row[key] for key in column.interval or (column.key, column.key))
    value, expected, before = row[column.key], row.get(plot.expected), row.get(plot.before)
    if not undefined(value) and not (undefined(low) or undefined(high)):
        parts.append(_line(_at(plot, low), "50%", _at(plot, high), "50%", "interval"))
    marks: list[tuple[Any, str, int]] = [(expected, "expected", 20), (before, "before", 34)]
    for mark_at, style, top in marks:
        if not undefined(mark_at):
            parts.append(_line(_at(plot, mark_at), f"{top}%", _at(plot, mark_at), f"{100 - top}%", style))
    if not undefined(value):
        parts.append(Markup('<circle class="value" cx="{}" cy="50%" r="4"/>').format(_at(plot, value)))
    return _chart(parts, "100%")


def axis(plot: Plot, kind: str) -> Markup:
    """Return the axis of a chart with its ticks."""
    parts = [_line(_at(plot, tick), "80%", _at(plot, tick), "100%", "axis") for tick in plot.ticks]
    parts += [_text(_at(plot, tick), 12, _tick(tick, kind), "tick", "middle") for tick in plot.ticks]
    return _chart(parts, str(_AXIS))


def standalone_chart(table: Table, column: Column) -> str:
    """Return a chart of a table as an SVG file of its own."""
    assert column.plot is not None
    label = next(name.key for name in table.columns if name.key != table.group)
    parts = [_placed(0, _AXIS, axis(column.plot, column.kind))]
    for place, row in enumerate(table.rows):
        y = _AXIS + _ROW * place
        name = shown(row[label], 300)
        name = name if len(name) <= _LETTERS else f"{name[: _LETTERS // 2]}…{name[-(_LETTERS // 2) :]}"
        low, high = (row[key] for key in column.interval or (column.key, column.key))
        number = (
            f"{written(row[column.key], column.kind)} {interval(low, high, column.kind) if column.interval else ''}"
        )
        parts += [
            _text(_LABEL - 8, y + 14, name, "label", "end"),
            _placed(y, _ROW, strip(column.plot, column, row)),
            _text(_LABEL + _CHART + 8, y + 14, number, "label", "start"),
        ]
    return _file(_framed(table.caption, _AXIS + _ROW * len(table.rows) + 4, parts, _LABEL + _CHART + _NUMBER))


def _placed(y: int, height: int, chart: Markup) -> Markup:
    return Markup('<svg x="{}" y="{}" width="{}" height="{}">{}</svg>').format(_LABEL, y, _CHART, height, chart)


def standalone_neighbourhood(drawing: Neighbourhood, name: str) -> str:
    """Return the drawing of a node as an SVG file of its own."""
    return _file(neighbourhood(drawing, name))


def mark(style: int) -> Markup:
    """Return the mark of a class, small enough for a line of text."""
    return Markup(
        '<svg class="figure legend" aria-hidden="true" viewBox="0 0 20 20" width="14" height="14">{}</svg>'
    ).format(_mark(10, 10, 7, style, False))


def neighbourhood(drawing: Neighbourhood, name: str) -> Markup:
    """Return a node and its neighbours, with ``name`` for readers who do not see the drawing."""
    side, radius = 300, 92
    centre, count = side / 2, len(drawing.neighbours)
    angles = [-math.pi / 2 + 2 * math.pi * (i + 0.5) / max(count, 1) for i in range(count)]
    places = [(centre + radius * math.cos(angle), centre + radius * math.sin(angle)) for angle in angles]
    chords = "".join(_chord(places[i], places[j], centre) for i, j in drawing.edges)
    spokes = "".join(f"M{centre:.0f} {centre:.0f}L{x:.1f} {y:.1f}" for x, y in places)
    parts = [
        Markup('<path class="{}" d="{}"/>').format(*path) for path in (("chord", chords), ("edge", spokes)) if path[1]
    ]
    for (x, y), angle, neighbour in zip(places, angles, drawing.neighbours, strict=True):
        parts.append(_mark(x, y, 8, neighbour.style, neighbour.shared))
        across, down = math.cos(angle), math.sin(angle)
        anchor = "middle" if abs(across) < 0.3 else "start" if across > 0 else "end"
        parts.append(_text(x + 14 * across, y + 16 * down + 4, shown(neighbour.name, 9), "tick", anchor))
    parts.append(_mark(centre, centre, 17, drawing.style, False))
    return _framed(name, side, parts, side)


def _file(drawing: Markup) -> str:
    style = files("cfe_faiss.audit.reporting").joinpath("templates", "figure.css").read_text(encoding="utf-8")
    inline = str(drawing).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    start = inline.index(">") + 1
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n'
    return f"{head}{inline[:start]}<style>{style}</style>{inline[start:]}\n"


def _framed(name: str, height: float, parts: Iterable[Markup], width: float) -> Markup:
    frame = Markup(
        '<svg class="figure" role="img" viewBox="0 0 {:.0f} {:.0f}" width="{:.0f}" height="{:.0f}">'
        "<title>{}</title>{}</svg>"
    )
    return frame.format(width, height, width, height, shown(name, 300), Markup("").join(parts))


def _chart(parts: Iterable[Markup], height: str) -> Markup:
    """Return a chart that is as wide as its cell; the numbers in the other cells say the same to a screen reader."""
    return Markup('<svg class="figure" aria-hidden="true" width="100%" height="{}">{}</svg>').format(
        height, Markup("").join(parts)
    )


def _at(plot: Plot, value: float) -> str:
    """Return the place of a number in per cent of the width; numbers beyond the scale lie at its end."""
    low, high = plot.ticks[0], plot.ticks[-1]
    share = (min(max(value, low), high) - low) / (high - low)
    return f"{_EDGE + (100 - 2 * _EDGE) * share:.2f}%"


def _tick(tick: float, kind: str) -> str:
    text = f"{100 * tick:g}%" if kind == "share" else f"{tick:g}"
    return text.replace("-", "\N{MINUS SIGN}")


def _text(x: float | str, y: float, text: str, style: str, anchor: str) -> Markup:
    place = x if isinstance(x, str) else f"{x:.1f}"
    return Markup('<text class="{}" x="{}" y="{:.1f}" text-anchor="{}">{}</text>').format(style, place, y, anchor, text)


def _line(x1: str, y1: str, x2: str, y2: str, style: str) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(style, x1, y1, x2, y2)


def _chord(start: tuple[float, float], end: tuple[float, float], centre: float) -> str:
    """Return the path of a curve between two places on the ring that keeps clear of the node in the middle."""
    x, y = ((start[i] + end[i]) / 2 - centre for i in (0, 1))
    away = math.hypot(x, y)
    # Two opposite places have the centre between them: the curve then bends to one side.
    across = (-(end[1] - start[1]), end[0] - start[0])
    x, y = (x, y) if away > 1 else (across[0] / 4, across[1] / 4)
    bend = max(1.0, 46 / max(math.hypot(x, y), 1))
    middle = centre + x * bend, centre + y * bend
    return "M{:.0f} {:.0f}Q{:.0f} {:.0f} {:.0f} {:.0f}".format(*start, *middle, *end)


def _mark(x: float, y: float, r: float, style: int, shared: bool) -> Markup:
    kind = style % STYLES
    words = f"class class-{kind}" + (" shared" if shared else "")
    if kind == 0:
        return Markup('<circle class="{}" cx="{:.1f}" cy="{:.1f}" r="{}"/>').format(words, x, y, r)
    if kind == 1:
        return Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{}" height="{}"/>').format(
            words, x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8
        )
    corners = {2: (3, -90), 3: (4, -90), 4: (3, 90), 5: (5, -90)}[kind]
    angles = [math.radians(corners[1] + 360 * i / corners[0]) for i in range(corners[0])]
    outline = " ".join(f"{x + 1.2 * r * math.cos(a):.1f},{y + 1.2 * r * math.sin(a):.1f}" for a in angles)
    return Markup('<polygon class="{}" points="{}"/>').format(words, outline)
