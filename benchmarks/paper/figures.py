"""Line charts of the experiments: one panel per graph, mean over the seeds with a band of one standard deviation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

# Okabe and Ito's palette; markers differ too, for readers who see no colours.
STYLES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#E69F00", "^"),
    ("#CC79A7", "D"),
    ("#009E73", "v"),
    ("#7F7F7F", "P"),
)


def panels(
    titles: Sequence[str], columns: int = 3, width: float = 4.2, height: float = 3.2
) -> tuple[Figure, list[Any]]:
    """Return a figure and one pair of axes per title."""
    columns = min(columns, len(titles))
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[len(titles) :]:
        unused.axis("off")
    for one, title in zip(axes, titles, strict=False):
        one.set_title(title, fontsize=10)
        one.grid(alpha=0.3)
    return figure, axes[: len(titles)]


def lines(
    axes: Any, x: Sequence[float], curves: Mapping[str, Sequence[Sequence[float]]], log: bool = True
) -> None:
    """Draw curves, each (seeds, len(x)); a seed without a value there has NaN or None."""
    for (name, values), (colour, marker) in zip(curves.items(), STYLES, strict=False):
        numbers = np.array(values, dtype=float)
        seen = ~np.isnan(numbers).all(axis=0)
        middle, around = np.nanmean(numbers[:, seen], axis=0), np.nanstd(numbers[:, seen], axis=0)
        at = np.asarray(x, dtype=float)[seen]
        axes.plot(at, middle, color=colour, marker=marker, markersize=4, linewidth=1.3, label=name)
        axes.fill_between(
            at, middle - around, middle + around, color=colour, alpha=0.15, linewidth=0
        )
    if log:
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(x, [f"{value:,}" for value in x])


def finish(figure: Figure, axes: Sequence[Any], xlabel: str, ylabel: str) -> Figure:
    """Label the axes, and set one legend for all panels below them."""
    for one in axes:
        one.set_xlabel(xlabel, fontsize=9)
        one.set_ylabel(ylabel, fontsize=9)
        one.tick_params(labelsize=8)
    handles = {
        label: handle
        for one in axes
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=6,
        fontsize=8,
        frameon=False,
    )
    return figure
