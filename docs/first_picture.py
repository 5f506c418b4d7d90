"""Draw the picture of README and of the site's first page: ``python docs/first_picture.py``."""

import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import cfe_faiss as cfe
from cfe_faiss.datasets import load
from cfe_faiss.graph import as_graph
from cfe_faiss.models import gcn, train
from cfe_faiss.plot import class_name, differing_features, format_value

PICTURE = Path(__file__).parent / "_static" / "first_pair.png"
COLOURS = ("#0072B2", "#E69F00")
MARKERS = ("o", "s")
INK = ("white", "black")
WRONG = "#B3261E"
GREY = "#57606A"
FEATURES = 4


def draw_patient(axes: Any, data: Any, node: int, other: int, labels: Any) -> None:
    """Draw a patient among the neighbours, with both classes below."""
    graph = as_graph(data.edge_index, len(data.x))
    neighbours = graph.neighbors(node)
    common = set(neighbours) & {other, *graph.neighbors(other)}
    axes.set(xlim=(-1.6, 1.6), ylim=(-2.35, 1.4), aspect="equal")
    axes.axis("off")
    for place, neighbour in enumerate(neighbours):
        angle = 2 * math.pi * (place + 0.5) / len(neighbours)
        x, y = 1.15 * math.cos(angle), 1.15 * math.sin(angle)
        axes.plot([0, x], [0, y], color="#8C959F", linewidth=1.2, zorder=1)
        axes.plot(
            x,
            y,
            MARKERS[labels[neighbour]],
            color=COLOURS[labels[neighbour]],
            markersize=13,
            markeredgecolor="black",
            markeredgewidth=2.6 if neighbour in common else 0.6,
        )
        if neighbour == other:
            axes.text(x, y + 0.22, other, fontsize=12, weight="bold", ha="center")
    axes.plot(
        0,
        0,
        MARKERS[labels[node]],
        color=COLOURS[labels[node]],
        markersize=40,
        markeredgecolor="black",
    )
    axes.text(
        0, 0, node, color=INK[labels[node]], fontsize=14, weight="bold", ha="center", va="center"
    )
    right = labels[node] == data.y[node]
    axes.text(
        0,
        -1.75,
        f"is {class_name(data, int(data.y[node]))}",
        fontsize=13,
        ha="center",
    )
    axes.text(
        0,
        -2.2,
        f"predicted {class_name(data, int(labels[node]))}" + ("" if right else ": wrong"),
        fontsize=13,
        ha="center",
        color="black" if right else WRONG,
        weight="normal" if right else "bold",
    )


def draw_table(axes: Any, data: Any, source: int, target: int) -> None:
    """Write the features that differ most, in their units and in standard deviations."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    x_source, x_target, x_deviations = 0.58, 0.8, 1.0
    axes.text(0, 0.88, "differ most in", fontsize=12, color=GREY)
    for x, name in ((x_source, source), (x_target, target), (x_deviations, "std. dev.")):
        axes.text(x, 0.88, name, fontsize=12, color=GREY, ha="right")
    for line, row in enumerate(differing_features(data, source, target, FEATURES)):
        y = 0.74 - 0.135 * line
        axes.text(0, y, row.name, fontsize=13)
        axes.text(x_source, y, format_value(row.source), fontsize=13, ha="right")
        axes.text(x_target, y, format_value(row.target), fontsize=13, ha="right")
        axes.text(
            x_deviations,
            y,
            f"{row.difference:+.2f}".replace("-", "\u2212"),
            fontsize=13,
            ha="right",
        )
    columns = data.x.shape[1]
    most = abs(differing_features(data, source, target, 1)[0].difference)
    note = (
        f"all {columns} features: at most {most:.2f} std. dev. apart\n"
        "joined: the most similar patients\n"
        "thick: the other patient, or a neighbour of both"
    )
    axes.text(0, 0.02, note, fontsize=10.5, color=GREY, linespacing=1.5)


def main() -> None:
    """Train the model of ``cfe-faiss demo`` and draw its first pair."""
    data = load("patients")
    model = gcn(data)
    train(model, data)
    finder = cfe.EvidenceFinder.from_data(
        data, model, nodes=data.test_mask, features={"true class": data.y}
    )
    pairs = finder.top_pairs(1, where=cfe.Constraints(exact="true class"))
    source, target = int(pairs.source[0]), int(pairs.target[0])
    figure = Figure(figsize=(11, 3.3), facecolor="white")
    wrong = sum(finder.labels[node] != data.y[node] for node in (source, target))
    figure.text(
        0.02,
        0.915,
        f"Two {class_name(data, int(data.y[source]))} tumours, similarity "
        f"{pairs.measure64()[0]:.2f}. The model misses {'one' if wrong == 1 else 'both'}.",
        fontsize=17,
        weight="bold",
    )
    draw_patient(figure.add_axes((0.0, 0.0, 0.27, 0.9)), data, source, target, finder.labels)
    draw_table(figure.add_axes((0.29, 0.1, 0.42, 0.74)), data, source, target)
    draw_patient(figure.add_axes((0.73, 0.0, 0.27, 0.9)), data, target, source, finder.labels)
    figure.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    main()
