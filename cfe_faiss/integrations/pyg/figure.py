"""Figure of explanations: importance of features for a node and its evidence."""

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
    class_name,
    class_styles,
    feature_matrix,
    format_value,
    node_name,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cfe_faiss.integrations.pyg.explain import ExplainedEvidence

_DRAWN = 3
"""Evidence nodes that are drawn."""
_NEIGHBORS = 12
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
    columns = np.argsort(-importance[0], kind="stable")[:top]
    nodes = explained.nodes[: 1 + _DRAWN]
    labels = explained.found.labels
    with_edges = explained.explanations[0].get("edge_mask") is not None
    table = _ROW * len(columns) + _AXIS
    height = _TITLE + table + (_PANEL if with_edges else 0) + 0.5
    figure = Figure(figsize=(_WIDTH, height), facecolor="white")
    bands = [_TITLE, table, *([_PANEL] if with_edges else [])]
    grid = figure.add_gridspec(
        len(bands),
        1,
        height_ratios=bands,
        left=0.04,
        right=0.98,
        top=1 - 0.15 / height,
        bottom=0.3 / height,
        hspace=0,
    )
    _draw_title(figure.add_subplot(grid[0]), explained, nodes)
    beside = grid[1].subgridspec(1, 3, width_ratios=(3, 4, 4), wspace=0.05)
    styles = class_styles(labels)
    colour = styles[int(labels[nodes[0]])][0]
    _draw_names(figure.add_subplot(beside[0]), explained, columns)
    _draw_importance(figure.add_subplot(beside[1]), importance[: len(nodes), columns], colour)
    x = np.asarray(as_array("data.x", explained.data.x), np.float64)[:, columns]
    spread = x.std(axis=0)
    values = (x[nodes] - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
    _draw_values(figure.add_subplot(beside[2]), values, colour)
    if with_edges:
        panels = grid[2].subgridspec(1, len(nodes), wspace=0.05)
        for place in range(len(nodes)):
            _draw_neighbors(figure.add_subplot(panels[place]), explained, place, styles)
    return figure


def _draw_title(axes: "Axes", explained: "ExplainedEvidence", nodes: Ints) -> None:
    axes.axis("off")
    axes.set(xlim=(0, 1), ylim=(0, 1))
    data = explained.data
    labels = explained.found.labels
    name = shorten(node_name(data, int(nodes[0])), 16)
    kind = shorten(class_name(data, int(labels[nodes[0]])), 24)
    title = f"What matters for node {name}, predicted {kind}, and for its evidence"
    axes.text(0, 1, title, va="top", fontsize=16, weight="bold", color=INK, parse_math=False)
    similarities = explained.found.measure64()[0]
    texts = [
        f"{rank}: node {shorten(node_name(data, int(node)), 16)}, predicted "
        f"{shorten(class_name(data, int(labels[node])), 20)}, KS "
        f"{format_similarity(float(similarities[rank - 1]))}"
        for rank, node in enumerate(nodes[1:], start=1)
    ]
    axes.text(
        0,
        0.72,
        "\n".join(texts),
        va="top",
        fontsize=10.5,
        color=FAINT,
        parse_math=False,
        linespacing=1.35,
    )


def _table(axes: "Axes", rows: int, title: str) -> None:
    axes.set(ylim=(rows - 0.5, -0.5), yticks=[])
    axes.set_title(title, fontsize=10.5, weight="bold", color=INK, pad=6)
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="x", length=0, labelsize=9, labelcolor=FAINT)
    for row in range(0, rows, 2):
        axes.axhspan(row - 0.5, row + 0.5, color=PAPER, zorder=0, linewidth=0)


def _draw_names(axes: "Axes", explained: "ExplainedEvidence", columns: Ints) -> None:
    raw = feature_matrix(explained.data)
    names = feature_names(explained.data, raw.shape[1])
    _table(axes, len(columns), "")
    axes.set(xlim=(0, 1), xticks=[])
    for y, column in enumerate(columns):
        text = (
            f"{shorten(names[column], 24)} = {format_value(float(raw[explained.nodes[0], column]))}"
        )
        axes.text(
            0.98,
            y,
            text.replace("-", "−"),
            ha="right",
            va="center",
            fontsize=10,
            color=INK,
            parse_math=False,
        )


def _draw_importance(axes: "Axes", importance: Doubles, colour: str) -> None:
    rows = np.arange(importance.shape[1])
    _table(axes, len(rows), "importance: bar the node, numbers its evidence")
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
        axes.plot(
            row,
            rows + below,
            linestyle="none",
            marker=f"${rank + 1}$",
            markersize=6.5,
            color=INK,
            zorder=3,
        )


def _draw_neighbors(
    axes: "Axes", explained: "ExplainedEvidence", place: int, styles: dict[int, Any]
) -> None:
    """Draw a node surrounded by the sources of its most important edges."""
    node = int(explained.nodes[place])
    data = explained.data
    labels = explained.found.labels
    sources, targets = as_array("data.edge_index", data.edge_index)
    importance = explained.edge_importance()[place]
    edges = np.flatnonzero((targets == node) & (sources != node) & (importance > 0))
    edges = edges[np.argsort(-importance[edges], kind="stable")]
    shown = edges[:_NEIGHBORS]
    axes.set_facecolor(PAPER)
    axes.set(xticks=[], yticks=[], xlim=(-1.5, 1.5), ylim=(-1.6, 1.4), aspect="equal")
    axes.spines[:].set_visible(False)
    for turn, edge in enumerate(shown):
        angle = math.pi / 2 - 2 * math.pi * turn / len(shown)
        x = math.cos(angle)
        y = math.sin(angle)
        colour, marker = styles[int(labels[sources[edge]])]
        axes.plot(
            [0, x],
            [0, y],
            color=INK,
            linewidth=0.4 + 4 * importance[edge],
            zorder=1,
            solid_capstyle="butt",
        )
        axes.plot(x, y, marker=marker, markersize=10, color=colour, markeredgecolor=INK, zorder=2)
        name = shorten(node_name(data, int(sources[edge])), 8)
        axes.text(
            1.25 * x,
            1.25 * y,
            name,
            ha="center",
            va="center",
            fontsize=8,
            color=INK,
            parse_math=False,
        )
    colour, marker = styles[int(labels[node])]
    axes.plot(0, 0, marker=marker, markersize=22, color=colour, markeredgecolor=INK, zorder=3)
    rank = "the node" if place == 0 else f"evidence {place}"
    more = f", {len(edges) - len(shown):,} edges more" if len(edges) > len(shown) else ""
    text = f"{rank}, {shorten(node_name(data, node), 12)}{more}"
    axes.text(0, -1.52, text, ha="center", va="center", fontsize=9.5, color=FAINT, parse_math=False)
