"""Level and power of ``mining.verdict_conflicts`` on simulated judges, at nominal 5 %.

A judge draws each verdict on an input from the input's distribution over the classes. Without conflicts, the two
inputs of each pair share it; with them, a share of the pairs has two independent ones. "overall" is the share of runs
whose verdict is "conflicts", "a pair" the share of runs that name at least one pair (q <= 0.05); in runs with
conflicts, "right" is the share of named pairs that do have one. "one mood" breaks the null's independence: all verdicts
of one repeat lean to the same side, as those of a model that is trained again for each repeat.

    python benchmarks/verdicts.py
"""

import itertools
from typing import Any

import numpy as np
from common import percent, save, table
from numpy.typing import NDArray

from cfe_faiss import mining

TITLE = "Verdicts of a judge"

RUNS = 200
PAIRS = (20, 100)
REPEATS = (2, 3, 5, 10)
JUDGES = {"certain": 0.1, "wavering": 1.0}
"""Concentration of the distributions of verdicts: 0.1 is nearly always of one opinion."""
CLASSES = (2, 4)
SHARES = (0.0, 0.1, 0.3)


def verdicts(
    rng: np.random.Generator, chances: NDArray[np.float64], repeats: int, mood: float
) -> NDArray[np.int64]:
    """Return verdicts of n inputs, (n, repeats)."""
    classes = chances.shape[1]
    leaning = mood * rng.normal(size=(1, repeats, classes))
    noise = rng.gumbel(size=(len(chances), repeats, classes))
    return (np.log(chances + 1e-12)[:, None] + leaning + noise).argmax(axis=2)


def cell(
    pairs: int, repeats: int, classes: int, judge: str, share: float, mood: float
) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    overall = named = nothing = 0
    right: list[float] = []
    for _ in range(RUNS):
        centres = rng.normal(size=(pairs, 16))
        X = np.concatenate([centres, centres + 1e-4 * rng.normal(size=centres.shape)])
        concentration = np.full(classes, JUDGES[judge])
        first = rng.dirichlet(concentration, pairs)
        differs = np.arange(pairs) < round(share * pairs)
        second = np.where(differs[:, None], rng.dirichlet(concentration, pairs), first)
        drawn = verdicts(rng, np.concatenate([first, second]), repeats, mood)
        found = mining.verdict_conflicts(X, drawn, 0.999)
        if len(found) != pairs:
            raise ValueError(f"{pairs} pairs must be found, got {len(found)}")
        significant = found.q_value <= 0.05
        overall += found.verdict == "conflicts"
        nothing += found.verdict == "cannot tell"
        named += bool(significant.any())
        right += differs[found.source[significant] % pairs].tolist()
    return {
        "pairs": pairs,
        "repeats": repeats,
        "classes": classes,
        "judge": judge,
        "share": share,
        "mood": mood,
        "overall": overall / RUNS,
        "cannot tell": nothing / RUNS,
        "a pair": named / RUNS,
        "named": len(right) / RUNS,
        "right": float(np.mean(right)) if right else None,
    }


def page(content: dict[str, Any]) -> str:
    parts = []
    for share in dict.fromkeys(row["share"] for row in content["cells"]):
        rows = [
            (
                row["pairs"],
                row["repeats"],
                row["classes"],
                row["judge"],
                percent(row["overall"]),
                percent(row["cannot tell"]),
                percent(row["a pair"]),
                f"{row['named']:.1f}",
                percent(row["right"]),
            )
            for row in content["cells"]
            if row["share"] == share
        ]
        title = "Level: no conflicts" if not share else f"Power: {percent(share)} of the pairs"
        head = ("pairs", "repeats", "classes", "judge", "overall", "cannot tell", "a pair", "named")
        parts.append(f"## {title}\n\n{table((*head, 'right'), rows)}")
    level = [row for row in content["cells"] if not row["share"]]
    moods = [
        (row["repeats"], row["judge"], percent(row["overall"]), percent(row["a pair"]))
        for row in content["moods"]
    ]
    return (
        "A simulated judge gives verdicts on pairs of nearly identical inputs. The null: both inputs of a pair have "
        "one distribution of verdicts. With conflicts, a share of the pairs has two independent distributions, which "
        f"may be alike by chance. {content['runs']} runs a cell, nominal 5 %. *overall*: runs whose verdict is "
        "'conflicts'. *a pair*: runs that name a pair (q <= 0.05). *named*: pairs named per run. *right*: share of the "
        "named pairs that have two distributions. A *certain* judge is nearly always of one opinion on an input, a "
        "*wavering* one is not.\n\n"
        f"Without conflicts the overall test accuses in {percent(min(row['overall'] for row in level))} to "
        f"{percent(max(row['overall'] for row in level))} of the runs of a cell, "
        f"{percent(sum(row['overall'] for row in level) / len(level))} on average, and a pair is named in at most "
        f"{percent(max(row['a pair'] for row in level))}.\n\n"
        + "\n\n".join(parts)
        + "\n\n## One mood for all verdicts of a repeat\n\nAll verdicts of one repeat lean to the same side, as those "
        "of a model that is trained again for each repeat; 100 pairs, two classes, no conflicts. The null's "
        "independence is broken; the test accuses less, and finds less:\n\n"
        + table(("repeats", "judge", "overall", "a pair"), moods)
    )


def main() -> None:
    cells = [
        cell(*setting, share, 0.0)
        for share in SHARES
        for setting in itertools.product(PAIRS, REPEATS, CLASSES, JUDGES)
    ]
    moods = [cell(100, repeats, 2, judge, 0.0, 1.0) for repeats in REPEATS for judge in JUDGES]
    save("verdicts", {"runs": RUNS, "cells": cells, "moods": moods})
    for share in SHARES:
        shown = [one for one in cells if one["share"] == share]
        print(share, max(one["overall"] for one in shown), max(one["a pair"] for one in shown))


if __name__ == "__main__":
    main()
