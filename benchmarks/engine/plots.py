"""Recall against speed of every setting that was measured, with the Pareto frontier of each peer."""

from pathlib import Path
from typing import Any

MODES = {
    "all": "all nodes, queries per second",
    "single": "one query at a time, median, microseconds",
}
STYLES = ("o", "s", "^", "v", "D", "P", "X", "<", ">", "*")
_LOWEST = 0.7  # recall; below it, nothing is of interest


def cost(record: dict[str, Any]) -> float:
    """Return the time of a query in seconds."""
    return float(1 / record["per_second"] if record["mode"] == "all" else record["p50_us"] / 1e6)


def pareto(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records that no other one beats in both recall and speed, by ascending recall."""
    kept: list[dict[str, Any]] = []
    for record in sorted(records, key=lambda record: (-record["recall"], cost(record))):
        if not kept or cost(record) < cost(kept[-1]):
            kept.append(record)
    return kept[::-1]


def draw(result: dict[str, Any], folder: Path) -> dict[str, Path]:
    """Draw one picture for each graph, and return where they are."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for graph in result["graphs"]:
        figure, axes = plt.subplots(1, len(MODES), figsize=(14, 4.6), layout="constrained")
        for axis, (mode, title) in zip(axes, MODES.items(), strict=True):
            for number, peer in enumerate(result["peers"]):
                mine = [r for r in graph["records"] if (r["peer"], r["mode"]) == (peer, mode)]
                points = pareto([record for record in mine if record["recall"] >= _LOWEST])
                speeds = [r["per_second"] if mode == "all" else r["p50_us"] for r in points]
                style = {
                    "color": "black" if peer == "ours" else f"C{number % 10}",
                    "marker": STYLES[number % len(STYLES)],
                    "markersize": 4,
                }
                width = 2.5 if peer == "ours" else 1.0
                axis.plot(
                    [r["recall"] for r in points], speeds, label=peer, linewidth=width, **style
                )
            for target in result["targets"]:
                axis.axvline(target, color="0.8", linewidth=0.8, zorder=0)
            axis.set(
                xlabel=f"recall@{result['k']}", title=title, yscale="log", xlim=(_LOWEST, 1.005)
            )
        figure.legend(
            *axes[-1].get_legend_handles_labels(), fontsize="x-small", loc="outside right upper"
        )
        figure.suptitle(
            f"{graph['graph']}: {graph['nodes']:,} x {graph['dimension']}, {graph['classes']} classes"
        )
        paths[graph["graph"]] = folder / f"{graph['graph']}.png"
        figure.savefig(paths[graph["graph"]], dpi=110)
        plt.close(figure)
    return paths
