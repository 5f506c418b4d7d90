"""Figure of explanations: importance of features for a row and its evidence."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cfe_faiss.attributes.table import feature_names
from cfe_faiss.base.checks import Doubles, Ints, as_array
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import format_similarity
from cfe_faiss.plot import (
    FAINT,
    INK,
    PAPER,
    RULE,
    class_styles,
    draw_node,
    format_value,
    node_name,
    shorten,
    write,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cfe_faiss.integrations.pyg.explain import ExplainedEvidence

_DRAWN = 3
"""Rows of evidence that are drawn."""
_NEIGHBORS = 12
_EDGES = 30
"""Most neighbours of a node, and most edges of a graph, that are drawn."""
# inches
_WIDTH = 11.0
_TITLE = 1.6
_ROW = 0.42
_AXIS = 0.6
_PANEL = 3.0


def draw(explained: "ExplainedEvidence", top: int) -> "Figure":
    """Return the figure described by :meth:`ExplainedEvidence.figure`."""
    with extra("plot"):
        from matplotlib.figure import Figure

    importance = explained.feature_importance()
    raw = explained.values(raw=True)[0]
    deviations = explained.deviations()
    _, sides, d = raw.shape
    features = np.argsort(-importance[0], kind="stable")[:top]
    names = feature_names(explained.graphs[0], d)
    columns = np.repeat(features, sides)
    side_of = np.tile(np.arange(sides), len(features))
    rows = explained.nodes[: 1 + _DRAWN]
    labels = explained.found.labels
    with_edges = explained.explanations[0].get("edge_mask") is not None
    bands = [_TITLE, _ROW * len(columns), _AXIS, _PANEL * sides if with_edges else 0.01]
    height = sum(bands) + 0.5
    figure = Figure(figsize=(_WIDTH, height), facecolor="white")
    ends: Any = {"left": 0.04, "right": 0.98, "top": 1 - 0.15 / height, "bottom": 0.3 / height}
    grid = figure.add_gridspec(len(bands), 1, height_ratios=bands, hspace=0, **ends)
    _draw_title(figure.add_subplot(grid[0]), explained, rows)
    beside = grid[1].subgridspec(1, 3, width_ratios=(3, 4, 4), wspace=0.05)
    styles = class_styles(labels)
    colour = styles[int(labels[rows[0]])][0]
    links = explained.finder.links
    of_ends = [""] if links is None else [f" of {end}" for end in links.compared_ids[rows[0]]]
    texts = [
        f"{shorten(names[column] + of_ends[side], 26)} = "
        + format_value(float(raw[0, side, column])).replace("-", "−")
        for column, side in zip(columns, side_of, strict=True)
    ]
    _draw_names(figure.add_subplot(beside[0]), texts)
    noun = explained.finder.noun
    _draw_importance(figure.add_subplot(beside[1]), noun, importance[: len(rows), columns], colour)
    values = deviations[: len(rows), side_of, columns]
    _draw_values(figure.add_subplot(beside[2]), values, colour)
    if with_edges:
        panels = grid[3].subgridspec(sides, len(rows), wspace=0.05)
        for side, place in np.ndindex(sides, len(rows)):
            _draw_edges(figure.add_subplot(panels[side, place]), explained, place, side, styles)
    return figure


def _draw_title(axes: "Axes", explained: "ExplainedEvidence", nodes: Ints) -> None:
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    finder = explained.finder
    noun = finder.noun
    names = [shorten(str(name), 16) for name in finder.names(nodes)]
    kinds = [finder.class_name(int(label)) for label in finder.labels[nodes]]
    title = f"What matters for {noun} {names[0]}, predicted {shorten(kinds[0], 24)}, and for its evidence"
    write(axes, 0, 1, title, 16, va="top", weight="bold")
    similarities = explained.found.measure64()[0]
    texts = [
        f"{rank}: {noun} {names[rank]}, predicted {shorten(kinds[rank], 20)}, similarity "
        f"{format_similarity(float(similarities[rank - 1]))}"
        for rank in range(1, len(nodes))
    ]
    write(axes, 0, 0.72, "\n".join(texts), 10.5, va="top", color=FAINT, linespacing=1.35)


def _table(axes: "Axes", rows: int, title: str) -> None:
    axes.set(ylim=(rows - 0.5, -0.5), yticks=[])
    axes.set_title(title, fontsize=10.5, weight="bold", color=INK, pad=6)
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="x", length=0, labelsize=9, labelcolor=FAINT)
    for row in range(0, rows, 2):
        axes.axhspan(row - 0.5, row + 0.5, color=PAPER, zorder=0, linewidth=0)


def _draw_names(axes: "Axes", texts: list[str]) -> None:
    _table(axes, len(texts), "")
    axes.set(xlim=(0, 1), xticks=[])
    for y, text in enumerate(texts):
        write(axes, 0.98, y, text, 10, ha="right")


def _draw_importance(axes: "Axes", noun: str, importance: Doubles, colour: str) -> None:
    rows = np.arange(importance.shape[1])
    _table(axes, len(rows), f"importance: bar {noun}, numbers evidence")
    axes.barh(rows, importance[0], height=0.55, color=colour, alpha=0.55, zorder=1)
    _draw_evidence(axes, importance[1:])
    axes.set_xlim(0, 1.06)


def _draw_values(axes: "Axes", values: Doubles, colour: str) -> None:
    rows = np.arange(values.shape[1])
    _table(axes, len(rows), "value, in standard deviations from the mean")
    axes.axvline(0, color=RULE, linewidth=1, zorder=1)
    axes.hlines(rows, values.min(axis=0), values.max(axis=0), color=RULE, linewidth=1.5, zorder=1)
    axes.plot(values[0], rows, "o", markersize=11, color=colour, alpha=0.55, zorder=2)
    _draw_evidence(axes, values[1:])
    pad = 0.08 * max(float(np.ptp(values)), 0.5)
    axes.set_xlim(float(values.min(initial=0)) - pad, float(values.max(initial=0)) + pad)


def _draw_evidence(axes: "Axes", places: Doubles) -> None:
    """Write the rank of each evidence at its value, one below the other."""
    rows = np.arange(places.shape[1])
    for rank, row in enumerate(places):
        below = 0.26 * (rank - (len(places) - 1) / 2)
        marker = f"${rank + 1}$"
        axes.plot(row, rows + below, ls="none", marker=marker, ms=6.5, color=INK, zorder=3)


def _draw_edges(
    axes: "Axes", explained: "ExplainedEvidence", place: int, side: int, styles: dict[int, Any]
) -> None:
    """Draw the most important edges: into a node, into an end of a link, or of a whole graph."""
    finder = explained.finder
    row = int(explained.nodes[place])
    labels = explained.found.labels
    graph = explained.graphs[0 if finder.graphs is None else row]
    ends = as_array("data.edge_index", graph.edge_index)
    mask = as_array("edge_mask", explained.explanations[place].edge_mask)
    importance = mask / (mask.max(initial=0) or 1)
    is_read = (ends[0] != ends[1]) & (importance > 0)
    centre = None
    name = str(finder.names(row))
    if finder.graphs is None:
        centre = row if finder.links is None else int(finder.links.compared[row, side])
        name = node_name(graph, centre)
        is_read &= ends[1] == centre
    edges = np.flatnonzero(is_read)
    edges = edges[np.argsort(-importance[edges], kind="stable")]
    drawn_edges = edges[: _EDGES if centre is None else _NEIGHBORS]
    ring = [
        node for node in dict.fromkeys(ends[:, drawn_edges].T.ravel().tolist()) if node != centre
    ]
    angles = math.pi / 2 - 2 * math.pi * np.arange(len(ring)) / max(len(ring), 1)
    places = dict(zip(ring, np.column_stack([np.cos(angles), np.sin(angles)]), strict=True))
    places |= {} if centre is None else {centre: np.zeros(2)}
    axes.set_facecolor(PAPER)
    axes.set(xticks=[], yticks=[], xlim=(-1.5, 1.5), ylim=(-1.6, 1.4), aspect="equal")
    axes.spines[:].set_visible(False)
    for edge in drawn_edges:
        x, y = np.column_stack([places[node] for node in ends[:, edge].tolist()])
        width = 0.4 + 4 * importance[edge]
        axes.plot(x, y, color=INK, linewidth=width, zorder=1, solid_capstyle="butt")
    for node in ring:
        look = styles[int(labels[node])] if finder.noun == "node" else (RULE, "o")
        x, y = places[node]
        draw_node(axes, x, y, look, 10)
        write(axes, 1.25 * x, 1.25 * y, shorten(node_name(graph, node), 8), 8, ha="center")
    if centre is not None:
        draw_node(axes, 0, 0, styles[int(labels[row])], 22)
    rank = f"evidence {place}" if place else f"the {finder.noun}"
    more = (
        f", {len(edges) - len(drawn_edges):,} edges more" if len(edges) > len(drawn_edges) else ""
    )
    text = f"{rank}, {shorten(name, 12)}{more}"
    write(axes, 0, -1.52, text, 9.5, ha="center", color=FAINT)
