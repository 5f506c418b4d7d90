"""Level and power of two choices of the report: which findings stand, and which direction of a column is better.

- Findings: one value of an attribute, two, or an intersection of two is planted, or nothing. Six groups of
  attributes and intersections are tested. Counted is how often the findings that stand (`same_as` is empty) are
  the planted ones, how often there is another one, and how often a planted one is missing.
- Directions: decisions depend on two of six numbers, which are correlated. Counted is how often a column has its
  direction, the wrong one, or, for the others, any.

    python benchmarks/calibration_findings.py [--runs 40] [--direction-runs 400]

writes results/calibration_findings.json and results/calibration_findings.md.
"""

import argparse
from typing import Any

import numpy as np
from common import RESULTS, environment, percent, save, table

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit.attribute_pairs import learned_directions

PLANTED: dict[str, list[tuple[str, str]]] = {
    "nothing": [],
    "race": [("race", "black")],
    "race and sex": [("race", "black"), ("sex", "f")],
    "race of one sex": [("race & sex", "black & f")],
}
CROSSED = [("race", "sex"), ("race", "region")]
PEOPLE = (1000, 2000)
ROWS = (300, 2000)
CORRELATIONS = (0.0, 0.5)
OUTCOMES = {"right": "right", "another": "another stands", "missing": "a planted one is missing"}


def findings(planted: str, n: int, runs: int) -> dict[str, Any]:
    """Return how often the findings of a cell are right."""
    wanted = set(PLANTED[planted])
    counts = {"right": 0, "another": 0, "missing": 0, "named": 0, "stand": 0}
    for run in range(runs):
        rng = np.random.default_rng([n, run])
        X = rng.normal(size=(n, 4))
        race = rng.choice(["black", "white", "asian", "other"], n, p=[0.3, 0.4, 0.2, 0.1])
        sex = rng.choice(["f", "m"], n)
        region = np.where(rng.random(n) < np.where(race == "black", 0.95, 0.2), "south", "north")
        people = {"race": race, "sex": sex, "region": region}
        values = people | {"race & sex": np.char.add(np.char.add(race, " & "), sex)}
        score = X[:, 0] + 0.3 * rng.normal(size=n)
        for attribute, value in wanted:
            score -= (0.9 if "&" in attribute else 0.6) * (values[attribute] == value)
        finder = cfe.EvidenceFinder.from_vectors(X, (score > 0).astype(int), features=people)
        effects = audit.direct_effects(
            finder, sensitive=[*people], unfavourable=0, intersections=CROSSED
        )
        named = effects.table[effects.table["named"]]
        standing = named[named["same_as"] == ""]
        stand = {*zip(standing["attribute"], standing["value"], strict=True)}
        counts["right"] += stand == wanted
        counts["another"] += bool(stand - wanted)
        counts["missing"] += bool(wanted - stand)
        counts["named"] += len(named.groupby(["attribute", "value"]))
        counts["stand"] += len(stand)
    return {
        "planted": planted,
        "people": n,
        "runs": runs,
        **{name: count / runs for name, count in counts.items()},
    }


def directions(n: int, correlation: float, runs: int) -> dict[str, Any]:
    """Return how often columns on which decisions depend, and others, have a direction."""
    counts = {"right": 0, "wrong": 0, "others": 0}
    truth = {"x0": "high", "x1": "low"}
    for run in range(runs):
        rng = np.random.default_rng([n, run, int(10 * correlation)])
        X = np.sqrt(1 - correlation) * rng.normal(size=(n, 6)) + np.sqrt(correlation) * rng.normal(
            size=(n, 1)
        )
        granted = X[:, 0] - 0.5 * X[:, 1] + rng.normal(size=n) > 0
        features = {f"x{column}": X[:, column] for column in range(6)}
        finder = cfe.EvidenceFinder.from_vectors(X, granted.astype(int), features=features)
        learned = learned_directions(finder, np.arange(n), ~granted)
        counts["right"] += sum(learned.get(name) == end for name, end in truth.items())
        counts["wrong"] += sum(learned.get(name) not in (None, end) for name, end in truth.items())
        counts["others"] += sum(name not in truth for name in learned)
    shares = {name: count / runs / (4 if name == "others" else 2) for name, count in counts.items()}
    return {"rows": n, "correlation": correlation, "runs": runs, **shares}


def page(result: dict[str, Any]) -> str:
    """Return the page of the results."""
    found, learned = result["findings"], result["directions"]
    parts = [
        "# Findings that stand, and directions that are learned",
        "Written by `python benchmarks/calibration_findings.py`.",
        "## One cause, one finding",
        "Planted effects on race (four values), sex and region, which goes along with race; their values and two "
        "intersections are tested, with both direct tests. *Named*: values that a test names, mirror images among "
        "them. *Stand*: those that no stronger finding explains. *Right*: exactly the planted ones stand.",
        table(
            ("planted", "people", "runs", "named", "stand", *OUTCOMES.values()),
            [
                [
                    *(row[name] for name in ("planted", "people", "runs")),
                    f"{row['named']:.1f}",
                    f"{row['stand']:.2f}",
                    *(percent(row[name]) for name in OUTCOMES),
                ]
                for row in found
            ],
        ),
        "## Better ends of columns",
        "Six numbers, of which decisions depend on two. *Right* and *wrong* are shares of these two columns with their "
        "direction, or the other one; *others*: share of the other four with any direction (nominal: 0.3 %).",
        table(
            ("rows", "correlation of the columns", "runs", "right", "wrong", "others"),
            [
                [row["rows"], row["correlation"], row["runs"]]
                + [percent(row[name]) for name in ("right", "wrong", "others")]
                for row in learned
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--direction-runs", type=int, default=400)
    given = parser.parse_args()
    result = {
        "directions": [
            directions(n, correlation, given.direction_runs)
            for n in ROWS
            for correlation in CORRELATIONS
        ],
        "findings": [findings(planted, n, given.runs) for n in PEOPLE for planted in PLANTED],
    }
    print(save("calibration_findings", result | {"environment": environment()}))
    (RESULTS / "calibration_findings.md").write_text(page(result))


if __name__ == "__main__":
    main()
