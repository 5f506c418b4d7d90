"""Figure of one pair of counterfactual evidence, and the features in which its nodes differ."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from cfe_faiss.attributes.table import Attributes, feature_names
from cfe_faiss.base.checks import Doubles, Floats, Int32s, as_count, as_labels, as_matrix, as_number
from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import cell_text, format_measure
from cfe_faiss.data import classes
from cfe_faiss.graph.csr import Graph, Surroundings, as_graph, surroundings


@dataclass(frozen=True)
class FeatureDifference:
    """One feature of two nodes.

    Parameters
    ----------
    name
        Name of the feature.
    source, target
        Its values, unscaled; None if missing.
    difference
        (target - source) / standard deviation of the feature over all nodes; NaN for texts, and
        where one is missing.
    """

    name: str
    source: Any
    target: Any
    difference: float


def differing_features(
    data: Any, source: int, target: int, count: int | None = None
) -> list[FeatureDifference]:
    """Return the features in which two nodes differ, the largest difference first.

    Differences are compared in standard deviations of the feature over all nodes; equal ones keep
    the features' order.

    Parameters
    ----------
    data
        PyG ``Data`` or any object with ``x`` of shape (n, d); with ``x_raw``, (n, d), the values
        are read from there; with ``feature_names``, d names, these name the features.
    source, target
        Nodes, 0..n-1.
    count
        Largest number of features to return; default: all that differ.

    Returns
    -------
    list of FeatureDifference
        Empty for two nodes with the same features. O(n) time for each feature that differs.

    Raises
    ------
    TypeError
        If the features are not numbers, or a node or ``count`` is not an integer.
    ValueError
        If the shapes do not fit, a feature is NaN or infinite, a node is out of range, or ``count``
        < 1.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(x=[[20, 1], [40, 1], [60, 0]], feature_names=["age", "employed"])
    >>> [row.name for row in differing_features(data, 0, 1)]
    ['age']
    >>> differing_features(data, 1, 2, count=1)
    [FeatureDifference(name='employed', source=1.0, target=0.0, difference=-2.1213203435596424)]
    """
    values = feature_matrix(data)
    names = feature_names(data, values.shape[1])
    source = as_node("source", source, len(values))
    target = as_node("target", target, len(values))
    limit = None if count is None else as_count("count", count)
    change = values[target].astype(np.float64) - values[source]
    columns = np.flatnonzero(change)
    change = change[columns]
    # column by column, so that a large matrix is never copied to float64
    change /= np.array([values[:, column].std(dtype=np.float64) for column in columns])
    order = np.argsort(-np.abs(change), kind="stable")[:limit]
    return [
        FeatureDifference(names[c], float(values[source, c]), float(values[target, c]), float(z))
        for c, z in zip(columns[order], change[order], strict=True)
    ]


def _differing_attributes(
    attributes: Attributes, source: int, target: int
) -> list[FeatureDifference]:
    (pair,) = attributes.differences(np.array([source]), np.array([target]))
    ends = attributes.take(np.array([source, target]))
    return [
        FeatureDifference(name, ends[name].of(0), ends[name].of(1), change)
        for name, change in pair.items()
    ]


def feature_matrix(data: Any) -> Floats:
    """Return the unscaled features, (n, d), float32: ``data.x_raw``, or ``data.x`` without it.

    Raises
    ------
    TypeError
        If they are not numbers.
    ValueError
        If they are not a matrix or not finite.
    """
    raw = getattr(data, "x_raw", None)
    return as_matrix("data.x", data.x) if raw is None else as_matrix("data.x_raw", raw)


def class_name(data: Any, label: int) -> str:
    """Return ``data.class_names[label]``, or "class <label>" where it has none for it.

    Examples
    --------
    >>> class_name(None, 3)
    'class 3'
    """
    return str(classes.class_name(getattr(data, "class_names", None), label))


def node_name(data: Any, node: int) -> str:
    """Return ``data.node_ids[node]``, or the node's number where its user has given no ids.

    Examples
    --------
    >>> node_name(None, 3)
    '3'
    """
    ids = getattr(data, "node_ids", None)
    return str(node if ids is None else ids[node])


def format_value(value: Any) -> str:
    """Return a feature's value for a reader: whole numbers in full, others to four digits.

    Examples
    --------
    >>> format_value(12500.0), format_value(0.30710003), format_value(1001.25)
    ('12,500', '0.3071', '1,001')
    """
    if value is None or isinstance(value, str):
        return shorten(cell_text(value), 16)
    whole = value == round(value) or abs(value) >= 1e3
    return f"{value:,.0f}" if whole and abs(value) < 1e9 else f"{value:,.4g}"


def as_node(name: str, value: Any, n: int) -> int:
    """Return ``value`` as the number of one of n nodes.

    Raises
    ------
    TypeError
        If it is not an integer.
    ValueError
        If it is not in 0..n-1.
    """
    node = as_count(name, value, 0)
    if node >= n:
        raise ValueError(f"{name} must lie in 0..{n - 1}, got {node}")
    return node


__all__ = ["evidence_figure"]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Palette of Okabe and Ito, with grey instead of black: readers with any common colour blindness can
# distinguish it. Its length and the number of markers have no common divisor, so classes differ in
# both until all combinations are used.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#7F7F7F")
_MARKERS = ("o", "s", "^", "D", "v", "p", "X", "h", "P")
_LEGEND_COLUMNS = 4
_UNCROWDED = 14
_STYLES = len(_COLOURS) * len(_MARKERS)
INK = "#1F2328"
FAINT = "#656D76"
PAPER = "#F6F8FA"
RULE = "#D0D7DE"

# Sizes in inches
_WIDTH = 11.0
_MARGIN = 0.45
_COLUMN = 4.9
_PANEL = 4.65


@dataclass(frozen=True)
class _Node:
    """One of the two nodes, or other rows: its name, classes by number, and its neighbours."""

    id: int
    noun: str
    name: str
    predicted: int
    true: int | None
    near: Surroundings | None


_Styles: TypeAlias = dict[int, tuple[str, str]]


def evidence_figure(  # noqa: PLR0913
    data: Any,
    source: int,
    target: int,
    labels: Any,
    *,
    similarity: float | None = None,
    distance: float | None = None,
    max_neighbors: int = 12,
    features: int = 8,
    attributes: Attributes | None = None,
) -> "Figure":
    """Draw two similar nodes that a model treats differently.

    The figure shows the neighbourhoods of the two nodes side by side. Colour and shape of a node
    stand for its predicted class. Below are the features that differ most, in their units and in
    standard deviations over all nodes.

    Parameters
    ----------
    data
        PyG ``Data`` or any object with ``x``, shape (n, d), and ``edge_index``, shape (2, E), or
        ``adj_t``, read as undirected. Optional: ``x_raw``, (n, d), the features in their units;
        ``feature_names``, d names; ``y``, (n,), true classes (-1: not known); ``class_names``;
        ``node_ids``, (n,), names of the nodes.
    source, target
        The two nodes, 0..n-1.
    labels
        Shape (n,), integers: the class that the model predicts for each node.
    similarity
        KS similarity of the two nodes, for the line below the title; see
        :func:`cfe_faiss.base.text.format_similarity`. A float counts as float64.
    distance
        In its place the distance of two rows of a table.
    max_neighbors
        Most neighbours drawn for each node: shared neighbours first, then by ascending number. The
        figure gives the number of the others.
    features
        Most features shown.
    attributes
        Attributes of the nodes, texts among them, in place of the features of ``data``, whose
        ``graph`` is a :class:`cfe_faiss.graph.Graph` or None then.

    Returns
    -------
    matplotlib.figure.Figure
        Without a window or backend; write it with ``figure.savefig("pair.png")``.

    Raises
    ------
    ImportError
        If Matplotlib is missing.
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If shapes do not fit, a node is out of range, a count is below 1, the graph has no edges, or
        both nodes are predicted the same class.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> data = SimpleNamespace(
    ...     x=[[1.0, 3.0], [1.1, 5.0], [0.9, 3.0]], edge_index=[[0, 1], [2, 2]], y=[0, 1, 0]
    ... )
    >>> figure = evidence_figure(data, 0, 1, labels=[0, 1, 0], similarity=0.98)
    >>> figure.axes[0].texts[0].get_text()
    'Nodes 0 and 1: similar, yet predicted differently'
    """
    with extra("plot"):
        from matplotlib.figure import Figure

    n, d = feature_matrix(data).shape if attributes is None else attributes.frame.shape
    predicted = as_labels("labels", labels, n, unknown=attributes is not None)
    y_true = getattr(data, "y", None)
    truth = None if y_true is None else as_labels("data.y", y_true, n, unknown=True)
    source = as_node("source", source, n)
    target = as_node("target", target, n)
    if predicted[source] == predicted[target]:
        raise ValueError(
            f"source and target must be predicted different classes, got class {predicted[source]} "
            f"for both"
        )
    noun = getattr(data, "noun", "node")
    subtitle = ""
    if similarity is not None:
        as_number("similarity", similarity, -1.001, 1.001)
        kind = "KS similarity" if noun == "node" else "similarity"
        subtitle = f"{kind} {format_measure('similarity', similarity)}"
    if distance is not None:
        as_number("distance", distance, 0.0, math.inf)
        subtitle = f"distance {format_measure('distance', distance)}"
    max_neighbors = as_count("max_neighbors", max_neighbors)
    features = as_count("features", features)
    graph: Graph | None
    if attributes is None:
        differing = differing_features(data, source, target)
        graph = as_graph(data, n)
    else:
        differing = _differing_attributes(attributes, source, target)
        graph = None if data.graph is None else data.graph.undirected()

    pair = []
    for v, other in ((source, target), (target, source)):
        true = None if truth is None or truth[v] < 0 else int(truth[v])
        near = None if graph is None else surroundings(graph, v, other, predicted, max_neighbors)
        pair.append(_Node(v, noun, node_name(data, v), int(predicted[v]), true, near))
    drawn = [node.near.drawn for node in pair if node.near is not None]
    styles = class_styles(predicted[np.concatenate([[source, target], *drawn])])
    legend = [shorten(class_name(data, label), 22) for label in styles]
    if any(node.near is not None and node.near.shared.any() for node in pair):
        legend.append("in both neighbourhoods")
    rows = differing[:features]
    heights = {  # in inches
        "title": 0.9 if subtitle else 0.5,
        "header": 1.05,
        "panel": _PANEL,
        "legend": 0.235 * (1 + math.ceil(len(legend) / _LEGEND_COLUMNS)) + 0.35,
        "heading": 0.85,
        "table": 0.33 * len(rows),
        "axis": 0.3 if rows else 0.01,
    }
    if not drawn:
        del heights["panel"]
    height = sum(heights.values()) + 2 * _MARGIN
    figure = Figure(figsize=(_WIDTH, height), facecolor="white")
    x = _MARGIN / _WIDTH
    y = _MARGIN / height
    places: dict[str, Any] = {"left": x, "right": 1 - x, "top": 1 - y, "bottom": y, "hspace": 0}
    mosaic: Any = [
        [f"{name} 0", f"{name} 1"] if name in ("header", "panel") else [name, name]
        for name in heights
    ]
    axes = figure.subplot_mosaic(
        mosaic,
        height_ratios=list(heights.values()),
        gridspec_kw=places | {"wspace": (_WIDTH - 2 * _MARGIN) / _COLUMN - 2},
    )
    _draw_title(axes["title"], pair, subtitle)
    for side, node in enumerate(pair):
        _draw_header(axes[f"header {side}"], data, node, styles)
        if node.near is not None:
            panel = axes[f"panel {side}"]
            _draw_neighbourhood(panel, data, node, node.near, predicted, styles)
    _draw_legend(axes["legend"], legend, styles)
    _draw_heading(axes["heading"], noun, len(rows), len(differing), d)
    axes["axis"].axis("off")
    axes["table"].axis("off")
    if rows:
        _draw_features(axes["table"], rows, pair, styles)
    return figure


def histogram_figure(values: Any, measure: str, title: str) -> "Figure":
    """Draw how a measure, (n,) finite values, is distributed."""
    with extra("plot"):
        from matplotlib.figure import Figure

    figure = Figure(facecolor="white", layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=measure, ylabel="number")
    axes.hist(values, bins=40, color=_COLOURS[0])
    return figure


def class_styles(labels: Int32s) -> _Styles:
    """Return colour and marker of each class, the same ones in every picture."""
    present = np.unique(labels)
    numbers = present if present[-1] < _STYLES else np.arange(len(present))
    return {
        int(label): (_COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)])
        for label, number in zip(present, numbers, strict=True)
    }


def shorten(text: str, length: int) -> str:
    """Return ``text`` in at most ``length`` characters, cut in the middle."""
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail].rstrip()}…{text[-tail:].lstrip()}"


def ink_on(colour: str) -> str:
    """Return black or white for text on ``colour``, by the brightness of the colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else INK


def write(axes: "Axes", x: float, y: float, text: str, size: float, **style: Any) -> None:
    """Write a text, vertically centred, in ink by default; "$" is a plain character."""
    axes.text(x, y, text, fontsize=size, parse_math=False, **{"va": "center", "color": INK} | style)


def draw_node(
    axes: "Axes", x: float, y: float, look: tuple[str, str], size: float, edge: float = 1.0
) -> None:
    """Draw a node in the colour and with the marker of its class, see :func:`class_styles`."""
    outline: Any = {"markeredgecolor": INK, "markeredgewidth": edge, "zorder": 3}
    axes.plot(x, y, color=look[0], marker=look[1], markersize=size, **outline)


def _draw_title(axes: "Axes", pair: list[_Node], subtitle: str) -> None:
    axes.axis("off")
    names = " and ".join(shorten(node.name, 16) for node in pair)
    title = f"{pair[0].noun.capitalize()}s {names}: similar, yet predicted differently"
    write(axes, 0, 1, title, 19, va="top", weight="bold")
    if subtitle:
        write(axes, 0, 0.4, subtitle, 13, color=FAINT)


def _draw_header(axes: "Axes", data: Any, node: _Node, styles: _Styles) -> None:
    _card(axes)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    draw_node(axes, 0.06, 0.43, styles[node.predicted], 19)
    write(axes, 0.12, 0.72, f"{node.noun.capitalize()} {shorten(node.name, 28)}", 14, weight="bold")
    for y, word, label in (
        (0.43, "Predicted class", node.predicted),
        (0.18, "True class", node.true),
    ):
        if label is not None:
            write(axes, 0.12, y, f"{word}: {shorten(class_name(data, label), 32)}", 11.5)


def _card(axes: "Axes") -> None:
    axes.set_facecolor(PAPER)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _draw_neighbourhood(
    axes: "Axes", data: Any, node: _Node, near: Surroundings, predicted: Int32s, styles: _Styles
) -> None:
    from matplotlib.collections import LineCollection, PathCollection
    from matplotlib.patheffects import withStroke

    _card(axes)
    low = -1.7
    high = 1.4
    across = (high - low) * _COLUMN / _PANEL  # equal scales on both axes
    axes.set(xlim=(-across / 2, across / 2), ylim=(low, high))
    count = len(near.drawn)
    crowded = count > _UNCROWDED
    scale = min(1.0, _UNCROWDED / max(count, 1))
    radius = 0.75 if crowded else 0.95
    # Half a step of rotation keeps the place straight above the node free of names.
    angles = math.pi / 2 - 2 * math.pi * (np.arange(count) + 0.5) / max(count, 1)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    places = radius * directions
    chords = [_chord(places[i], places[j]) for i, j in near.edges]
    axes.add_collection(
        PathCollection(
            chords, facecolors="none", edgecolors=FAINT, linewidths=0.9, alpha=0.45, zorder=1
        )
    )
    axes.add_collection(
        LineCollection([((0, 0), place) for place in places], colors=INK, linewidths=1.4, zorder=2)
    )
    for v, shared, (x, y) in zip(near.drawn, near.shared, directions, strict=True):
        edge = 3.0 if shared else 0.8
        draw_node(axes, radius * x, radius * y, styles[int(predicted[v])], 9 + 9 * scale, edge)
        reach = radius + 0.13 + 0.07 * scale
        side = "left" if x > 0 else "right"
        write(
            axes,
            reach * x,
            reach * y,
            shorten(node_name(data, v), 10),
            7 + 3.5 * scale,
            ha="center" if abs(x) < 0.2 and not crowded else side,
            # Names of a crowded ring point outwards, so that they take only their height on the
            # ring.
            rotation=math.degrees(math.atan2(y * np.sign(x), abs(x))) if crowded else 0,
            rotation_mode="anchor",
            weight="bold" if shared else "normal",
        )
    colour, marker = styles[node.predicted]
    draw_node(axes, 0, 0, (colour, marker), 44, 1.6)
    name = shorten(node.name, 10)
    # The name is at the widest part of the shape. The stroke keeps a longer name readable.
    write(
        axes,
        0,
        {"^": -0.07, "v": 0.07}.get(marker, 0.0),
        name,
        min(14.0, 48 / len(name)),
        ha="center",
        va="center_baseline",
        weight="bold",
        color=ink_on(colour),
        path_effects=[withStroke(linewidth=2.5, foreground=colour)],
        zorder=5,
    )
    write(axes, 0, -1.5, _surroundings(data, node, near), 10.5, ha="center", color=FAINT)


def _surroundings(data: Any, node: _Node, near: Surroundings) -> str:
    if near.degree == 0:
        return "no neighbours"
    plural = "s" if near.degree > 1 else ""
    name = shorten(class_name(data, node.predicted), 24)
    words = f"{near.degree:,} neighbour{plural}, {near.same:,} predicted {name}"
    hidden = near.degree - len(near.drawn)
    return f"{words}\n(+{hidden:,} more, not drawn)" if hidden else words


def _chord(start: Doubles, end: Doubles) -> Any:
    """Return a curve between two places on the ring that bends around the node in the middle."""
    from matplotlib.path import Path

    middle = (start + end) / 2
    across = np.array([end[1] - start[1], start[0] - end[0]]) / 2
    bend = 0.6 * middle + 0.6 * (1 - math.hypot(*middle)) * across
    return Path(np.array([start, bend, end]), [Path.MOVETO, Path.CURVE3, Path.CURVE3])


def _draw_legend(axes: "Axes", labels: list[str], styles: _Styles) -> None:
    """Draw a legend of the classes, and of the thick outline for one further label."""
    axes.axis("off")
    looks = [(*style, 0.8) for style in styles.values()] + [("white", "o", 3.0)]
    for label, (colour, marker, width) in zip(labels, looks, strict=False):
        axes.plot(
            [],
            [],
            linestyle="none",
            marker=marker,
            markersize=11,
            color=colour,
            markeredgecolor=INK,
            markeredgewidth=width,
            label=label,
        )
    legend = axes.legend(
        title="Predicted class",
        title_fontproperties={"size": 10.5, "weight": "bold"},
        loc="center",
        ncols=min(len(labels), _LEGEND_COLUMNS),
        frameon=False,
        fontsize=10.5,
        labelcolor=INK,
        borderpad=0,
        borderaxespad=0,
        handletextpad=0.3,
        columnspacing=2.0,
        labelspacing=0.5,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _draw_heading(axes: "Axes", noun: str, shown: int, differing: int, d: int) -> None:
    axes.axis("off")
    heading = "The features that differ"
    note = f"{differing:,} of {d:,} differ"
    if differing == 0:
        heading = f"The two {noun}s have the same features"
        note = ""
    elif differing > shown:
        heading += " most"
        note += f", the {shown} largest are shown"
    write(axes, 0, 0.62, heading, 14, weight="bold")
    write(axes, 1, 0.62, note, 10.5, ha="right", color=FAINT)


def _draw_features(
    axes: "Axes", rows: list[FeatureDifference], pair: list[_Node], styles: _Styles
) -> None:
    """Draw a table of three columns: names with both values, a chart, and differences."""
    for shaded in range(0, len(rows), 2):
        axes.axhspan(shaded - 0.5, shaded + 0.5, color=PAPER, zorder=0, linewidth=0)
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.5, -0.5))
    chart = axes.inset_axes((6.2 / 10.4, 0, 3.3 / 10.4, 1))
    chart.set(ylim=(len(rows) - 0.5, -0.5), yticks=[])
    chart.spines[:].set_visible(False)
    chart.patch.set_visible(False)
    titles = [
        (x, f"{node.noun} {shorten(node.name, 10)}")
        for x, node in zip((0.435, 0.566), pair, strict=True)
    ]
    for x, title in (*titles, (0.99, "difference in standard deviations")):
        write(axes, x, -0.9, title, 11, ha="right", weight="bold")
    for y, row in enumerate(rows):
        write(axes, 0.009, y, shorten(row.name, 40), 11)
        is_number = math.isfinite(row.difference)
        numbers = (
            format_value(row.source),
            format_value(row.target),
            f"{row.difference:+.2f}" if is_number else "",
        )
        for x, number in zip((0.435, 0.566, 0.99), numbers, strict=True):
            write(axes, x, y, number.replace("-", "−"), 11, ha="right")
        if not is_number:
            continue
        chart.plot([0, row.difference], [y, y], color=FAINT, linewidth=2, zorder=2)
        for x, node in zip((0.0, row.difference), pair, strict=True):
            draw_node(chart, x, y, styles[node.predicted], 8.5)
    reached = [0.0, *(row.difference for row in rows if math.isfinite(row.difference))]
    pad = 0.1 * (max(reached) - min(reached) or 1.0)
    chart.set_xlim(min(reached) - pad, max(reached) + pad)
    chart.axvline(0, color=RULE, linewidth=1, zorder=1)
    chart.tick_params(axis="x", length=0, labelsize=9.5, labelcolor=FAINT)
    chart.locator_params(axis="x", nbins=5)
