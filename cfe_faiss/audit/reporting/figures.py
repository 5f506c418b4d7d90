"""Drawings of a report as SVG: what is drawn is plain data, and every text in it is escaped.

Colours come from the classes that ``templates/figure.css`` describes, for light and for dark paper. Classes of nodes
are told apart by shape as well as by colour.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import singledispatch
from importlib.resources import files

from cfe_faiss.audit.reporting.drawings import STYLES, Curve, DotPlot, Drawing, LovePlot, Neighbourhood
from cfe_faiss.audit.reporting.formats import shown
from cfe_faiss.extras import extra
from cfe_faiss.files.outputs import MARK

with extra("audit"):
    from markupsafe import Markup

_WIDTH, _LABELS, _RIGHT, _ROW = 760, 280, 24, 24
_TOP, _BOTTOM = 12, 44
_LABEL_LENGTH = 32


@singledispatch
def svg(drawing: Drawing, name: str) -> Markup:
    """Return a drawing as inline SVG, with ``name`` as what it is called for those who do not see it."""
    raise TypeError(f"drawing must be one of those of this module, got {type(drawing).__name__}")


def standalone(drawing: Drawing, name: str) -> str:
    """Return a drawing as an SVG file of its own."""
    style = files("cfe_faiss.audit.reporting").joinpath("templates", "figure.css").read_text(encoding="utf-8")
    inline = str(svg(drawing, name)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    start = inline.index(">") + 1
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<!-- {MARK} -->\n'
    return f"{head}{inline[:start]}<style>{style}</style>{inline[start:]}\n"


def mark(style: int) -> Markup:
    """Return what stands for a class, small enough for a line of text."""
    return Markup(
        '<svg class="figure legend" aria-hidden="true" viewBox="0 0 20 20" width="14" height="14">{}</svg>'
    ).format(_mark(10, 10, 7, style, False))


@svg.register
def _(drawing: DotPlot, name: str) -> Markup:
    place = _across(0, 1)
    height = _TOP + _ROW * len(drawing.rows) + _BOTTOM
    parts = [_axis(place, [0, 0.2, 0.4, 0.6, 0.8, 1], height, drawing.axis)]
    for row, dot in enumerate(drawing.rows):
        y = _TOP + _ROW * (row + 0.5)
        parts += [_label(dot.label, y), _line(place(dot.low), y, place(dot.high), y, "interval")]
        if dot.expected is not None:
            x = place(dot.expected)
            parts.append(_line(x, y - 8, x, y + 8, "expected"))
        parts.append(Markup('<circle class="value" cx="{:.1f}" cy="{:.1f}" r="4.5"/>').format(place(dot.value), y))
    return _framed(name, height, parts)


@svg.register
def _(drawing: LovePlot, name: str) -> Markup:
    most = max([drawing.guide * 2, *(max(row.all_nodes, row.pairs) for row in drawing.rows)])
    ticks = _ticks(most)
    place = _across(0, ticks[-1])
    height = _TOP + _ROW * len(drawing.rows) + _BOTTOM
    guide = place(drawing.guide)
    parts = [_axis(place, ticks, height, drawing.axis), _line(guide, _TOP, guide, height - _BOTTOM, "guide")]
    for row, line in enumerate(drawing.rows):
        y = _TOP + _ROW * (row + 0.5)
        parts += [_label(line.label, y), _line(place(line.all_nodes), y, place(line.pairs), y, "change")]
        parts.append(
            Markup('<rect class="before" x="{:.1f}" y="{:.1f}" width="9" height="9"/>').format(
                place(line.all_nodes) - 4.5, y - 4.5
            )
        )
        parts.append(Markup('<circle class="value" cx="{:.1f}" cy="{:.1f}" r="4.5"/>').format(place(line.pairs), y))
    return _framed(name, height, parts)


@svg.register
def _(drawing: Curve, name: str) -> Markup:
    height, left, top, bottom = 320, 64, 16, 52
    steps = [math.log(x) for x in drawing.x]
    span = (steps[-1] - steps[0]) or 1.0
    lowest = min([drawing.level, *drawing.low])
    step = 0.1 if lowest >= 0.5 else 0.2
    count = math.ceil((1 - min(lowest, 0.9)) / step - 1e-9)
    floor = max(0.0, 1 - count * step)

    def across(x: float) -> float:
        return left + (_WIDTH - left - _RIGHT) * (math.log(x) - steps[0]) / span

    def down(y: float) -> float:
        return top + (height - top - bottom) * (1 - y) / (1 - floor)

    parts = []
    for tick in [1 - step * i for i in range(count + 1)]:
        parts.append(_line(left, down(tick), _WIDTH - _RIGHT, down(tick), "grid"))
        parts.append(_text(left - 8, down(tick) + 4, f"{100 * tick:.0f}%", "tick", "end"))
    for x in drawing.x:
        parts.append(_text(across(x), height - bottom + 18, f"{x:,.0f}", "tick", "middle"))
    parts.append(_text((left + _WIDTH - _RIGHT) / 2, height - 8, drawing.x_axis, "axis", "middle"))
    parts.append(
        Markup('<text class="axis" text-anchor="middle" transform="translate(14 {:.1f}) rotate(-90)">{}</text>').format(
            (top + height - bottom) / 2, drawing.y_axis
        )
    )
    band = [(across(x), down(y)) for x, y in zip(drawing.x, drawing.high, strict=True)]
    band += [(across(x), down(y)) for x, y in zip(drawing.x[::-1], drawing.low[::-1], strict=True)]
    parts.append(Markup('<polygon class="band" points="{}"/>').format(_points(band)))
    level = down(drawing.level)
    parts.append(_line(left, level, _WIDTH - _RIGHT, level, "guide"))
    parts.append(_text(_WIDTH - _RIGHT, level - 6, drawing.level_name, "tick", "end"))
    line = [(across(x), down(y)) for x, y in zip(drawing.x, drawing.y, strict=True)]
    parts.append(Markup('<polyline class="line" points="{}"/>').format(_points(line)))
    parts += [Markup('<circle class="value" cx="{:.1f}" cy="{:.1f}" r="4"/>').format(x, y) for x, y in line]
    return _framed(name, height, parts)


@svg.register
def _(drawing: Neighbourhood, name: str) -> Markup:
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
    return _framed(name, side, parts, width=side)


def _framed(name: str, height: float, parts: Iterable[Markup], width: float = _WIDTH) -> Markup:
    frame = Markup(
        '<svg class="figure" role="img" viewBox="0 0 {:.0f} {:.0f}" width="{:.0f}" height="{:.0f}">'
        "<title>{}</title>{}</svg>"
    )
    return frame.format(width, height, width, height, name, Markup("").join(parts))


def _across(low: float, high: float) -> Callable[[float], float]:
    def place(value: float) -> float:
        return _LABELS + (_WIDTH - _LABELS - _RIGHT) * (min(max(value, low), high) - low) / (high - low)

    return place


def _axis(place: Callable[[float], float], ticks: Sequence[float], height: float, axis: str) -> Markup:
    bottom = height - _BOTTOM
    lines = [_line(place(tick), _TOP, place(tick), bottom, "grid") for tick in ticks]
    lines += [_text(place(tick), bottom + 16, f"{tick:g}", "tick", "middle") for tick in ticks]
    lines.append(_text((place(ticks[0]) + place(ticks[-1])) / 2, height - 8, axis, "axis", "middle"))
    return Markup("").join(lines)


def _ticks(most: float) -> list[float]:
    """Return round numbers from 0 to at least ``most``."""
    rough = most / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [round(step * i, 10) for i in range(math.ceil(most / step * 0.999) + 1)]


def _label(label: str, y: float) -> Markup:
    short = label if len(label) <= _LABEL_LENGTH else f"{label[: _LABEL_LENGTH - 1]}…"
    return _text(_LABELS - 14, y + 4, short, "label", "end")


def _text(x: float, y: float, text: str, style: str, anchor: str) -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(style, x, y, anchor, text)


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    return Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(style, x1, y1, x2, y2)


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


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
    outline = [(x + 1.2 * r * math.cos(angle), y + 1.2 * r * math.sin(angle)) for angle in angles]
    return Markup('<polygon class="{}" points="{}"/>').format(words, _points(outline))
