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
    """Draw a patient among the neighbours."""
    graph = as_graph(data.edge_index, len(data.x))
    neighbours = graph.neighbors(node)
    common = set(neighbours) & {other, *graph.neighbors(other)}
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.4, 1.4), aspect="equal")
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
            markersize=11,
            markeredgecolor="black",
            markeredgewidth=2.6 if neighbour in common else 0.6,
        )
        if neighbour == other:
            axes.text(x, y + 0.25, other, fontsize=11, weight="bold", ha="center")
    axes.plot(
        0,
        0,
        MARKERS[labels[node]],
        color=COLOURS[labels[node]],
        markersize=34,
        markeredgecolor="black",
    )
    axes.text(
        0, 0, node, color=INK[labels[node]], fontsize=11, weight="bold", ha="center", va="center"
    )


def write_classes(figure: Figure, x: float, data: Any, node: int, label: int) -> None:
    """Write what a patient is, and what the model predicts."""
    true = int(data.y[node])
    is_right = label == true
    figure.text(x, 0.46, f"is {class_name(data, true)}", fontsize=11)
    figure.text(x, 0.31, f"predicted {class_name(data, label)}", fontsize=11)
    if not is_right:
        figure.text(x, 0.16, "which is wrong", fontsize=11, color=WRONG, weight="bold")


def draw_table(axes: Any, data: Any, source: int, target: int) -> None:
    """Write the features that differ most, in their units and in standard deviations."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    x_source, x_target, x_deviations = 0.6, 0.81, 1.0
    axes.text(0, 0.88, "differ most in", fontsize=10, color=GREY)
    for x, name in ((x_source, source), (x_target, target), (x_deviations, "std. dev.")):
        axes.text(x, 0.88, name, fontsize=11, color=GREY, ha="right")
    for line, row in enumerate(differing_features(data, source, target, FEATURES)):
        y = 0.71 - 0.165 * line
        axes.text(0, y, row.name, fontsize=11)
        axes.text(x_source, y, format_value(row.source), fontsize=11, ha="right")
        axes.text(x_target, y, format_value(row.target), fontsize=11, ha="right")
        change = f"{row.difference:+.2f}".replace("-", "\u2212")
        axes.text(x_deviations, y, change, fontsize=11, ha="right")
    most = abs(differing_features(data, source, target, 1)[0].difference)
    note = f"all {data.x.shape[1]} features: at most {most:.2f} std. dev. apart"
    axes.text(0, 0.03, note, fontsize=10, color=GREY)


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
    figure = Figure(figsize=(11, 1.95), facecolor="white")
    wrong = sum(finder.labels[node] != data.y[node] for node in (source, target))
    figure.text(
        0.01,
        0.87,
        f"Two {class_name(data, int(data.y[source]))} tumours, similarity "
        f"{pairs.measure64()[0]:.2f}. The model misses {'one' if wrong == 1 else 'both'}.",
        fontsize=15,
        weight="bold",
    )
    legend = "joined: the most similar patients\nthick: the other patient, or a neighbour of both"
    figure.text(0.99, 0.835, legend, fontsize=9.5, color=GREY, ha="right", linespacing=1.4)
    draw_patient(figure.add_axes((0.0, 0.0, 0.155, 0.82)), data, source, target, finder.labels)
    write_classes(figure, 0.158, data, source, int(finder.labels[source]))
    draw_table(figure.add_axes((0.325, 0.0, 0.365, 0.8)), data, source, target)
    write_classes(figure, 0.715, data, target, int(finder.labels[target]))
    draw_patient(figure.add_axes((0.845, 0.0, 0.155, 0.82)), data, target, source, finder.labels)
    figure.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    main()
