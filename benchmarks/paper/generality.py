"""Figure 4 e, f: average similarity of global evidence against k under five GNNs, and whether they name the same pairs.

V_test of each graph, exact search, the paper's Algorithm 3.
"""

from itertools import combinations
from typing import Any

import numpy as np
from figures import finish, lines, panels
from setting import ALPHA, GNNS, LAYERS, TITLES, Bench, flat_index, titled, trained
from verdict import Case, Claim, cell, graphs, markdown, rows_of

import cfe_faiss as cfe

NAME = "generality"
GRAPHS = ("cora", "german", "facebook", "pubmed")
KS = (10, 20, 50, 100, 200, 500)
SHOWN = 100
SLIGHT = 0.05


def measure(bench: Bench) -> dict[str, Any]:
    keys = [(name, kind) for name in bench.few(GRAPHS, 1) for kind in GNNS]
    rows = bench.parts(NAME, keys, {"ks": KS}, one)
    return {"ks": KS, "L": LAYERS, "alpha": ALPHA, "rows": rows}


def one(bench: Bench, name: str, kind: str, seed: int) -> dict[str, Any]:
    model = trained(bench, name, kind, seed)
    pairs = cfe.global_evidence(flat_index(bench, name, model), max(KS), per_node=True)
    return {
        "graph": name,
        "source": model.source,
        "gnn": kind,
        "seed": seed,
        "nodes": len(model.test),
        "pairs": len(pairs),
        "AS": [float(pairs.similarity[:k].sum() / k) if len(pairs) >= k else None for k in KS],
        "best": np.stack([pairs.source, pairs.target], axis=1)[:SHOWN].tolist(),
        "classes": len(np.unique(model.labels[model.test])),
        "metrics": model.metrics,
    }


def relative_range(result: dict[str, Any], graph: str, k: int) -> list[float | None]:
    """Return for each seed (largest - smallest AS) / mean AS over the GNNs that have k pairs."""
    at = list(result["ks"]).index(k)
    found = []
    for seed in result["seeds"]:
        of_seed = [row["AS"][at] for row in rows_of(result, graph=graph, seed=seed)]
        known = [value for value in of_seed if value is not None]
        found.append((max(known) - min(known)) / float(np.mean(known)) if len(known) > 1 else None)
    return found


def overlaps(result: dict[str, Any], graph: str) -> list[float | None]:
    """Return for each seed the mean Jaccard index of the best pairs of two GNNs, of those that have any."""
    found: list[float | None] = []
    for seed in result["seeds"]:
        lists = [row["best"] for row in rows_of(result, graph=graph, seed=seed) if row["best"]]
        best = [{tuple(pair) for pair in pairs} for pairs in lists]
        alike = [len(a & b) / len(a | b) for a, b in combinations(best, 2)]
        found.append(float(np.mean(alike)) if alike else None)
    return found


def table(result: dict[str, Any]) -> str:
    at = list(result["ks"]).index(SHOWN)
    rows = []
    for graph, source in graphs(result).items():
        for kind in GNNS:
            own = rows_of(result, graph=graph, gnn=kind)
            row = {
                "graph": TITLES[graph],
                "from": source,
                "GNN": kind.upper(),
                "test accuracy": cell([row["metrics"]["accuracy"] for row in own]),
                "test F1": cell([row["metrics"]["f1"] for row in own]),
                f"global AS@{SHOWN}": cell([row["AS"][at] for row in own], 4),
                "fewest pairs of a seed": f"{min(row['pairs'] for row in own):,}",
            }
            rows.append(row)
    alike = [
        {
            "graph": TITLES[graph],
            f"relative range of AS@{SHOWN} over the GNNs": cell(
                relative_range(result, graph, SHOWN), 4
            ),
            f"Jaccard index of two GNNs' best {SHOWN} pairs": cell(overlaps(result, graph)),
        }
        for graph in graphs(result)
    ]
    text = f"{len(result['seeds'])} seeds, mean ± standard deviation."
    return f"{text}\n\n{markdown(rows)}\n\n{markdown(alike)}"


def draw(result: dict[str, Any]) -> Any:
    names = graphs(result)
    figure, axes = panels([titled(graph, source) for graph, source in names.items()], columns=2)
    for one_axes, graph in zip(axes, names, strict=True):
        lines(
            one_axes,
            result["ks"],
            {
                kind.upper(): [row["AS"] for row in rows_of(result, graph=graph, gnn=kind)]
                for kind in GNNS
            },
        )
    return finish(figure, axes, "k", "global average similarity")


def claims(result: dict[str, Any]) -> list[Claim]:
    cases, same = [], []
    for graph, source in graphs(result).items():
        title = f"{TITLES[graph]}, k = {SHOWN}"
        ranges = relative_range(result, graph, SHOWN)
        cases.append(Case(title, ranges, most=SLIGHT, source=source))
        same.append(Case(title, overlaps(result, graph), least=0.5, source=source))
    return [
        Claim(
            "Different GNNs show similar trends, with slight difference in the average similarity.",
            "Figure 4 e, f",
            f"(largest - smallest AS) / mean AS over the five GNNs; slight means at most {SLIGHT:g}",
            cases,
        ),
        Claim(
            "The evidence is model-agnostic, read strictly: different GNNs lead to the same evidence.",
            "section 6.3 (our reading)",
            f"Jaccard index of the best {SHOWN} pairs of two GNNs, mean over the ten pairs of GNNs; same means at "
            "least a half",
            same,
            "The method works with any GNN, since it reads predictions only. Which pairs it finds depends on these.",
        ),
    ]
