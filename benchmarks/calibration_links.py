"""Do the direct tests hold their level for links, which depend on each other where they share a node?

Links between nodes in two groups, decided from their ends; the attribute is whether a link crosses the groups. Without
effect (level) and with a planted one: 60 % of the borderline links across groups are refused. Four ways to count links:
as the product does (``EvidenceFinder.from_links``), as if they were independent, as rows of their source
(``person=source``), and on links that share no node at all, which are people as in ``calibration.py`` (the node case).
Also how often the audit of rates, which counts links as independent, finds different shares within and across groups.

    python benchmarks/calibration_links.py --runs 200

writes results/calibration_links.json and its page, and goes on where it was stopped. Seeds start at 50,000; nothing was
tuned on them.
"""

import argparse
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from common import RESULTS, result, save, table
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.audit.direct_test import ScoreTest, question
from cfe_faiss.audit.groups import DEFAULT_BINS

TITLE = "Direct tests of links"

NAME = "calibration_links"
FIRST_SEED = 50_000
K = 10
ALPHA = 0.05
COUNTED = ("ours", "independent", "person=source")
TESTS = ("direction", "situation")
BORDER, FLIPPED = 0.3, 0.6
Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """A population of links.

    ``share`` of the nodes is in the second group. ``correlation`` of the group with the first feature, in logits.
    ``popularity``: standard deviation of an effect of each node that no feature tells, where that of the features is 1.
    ``hubs``: whether few nodes have most links. ``disjoint``: every node has one link.
    """

    title: str
    share: float = 0.5
    correlation: float = 0.0
    popularity: float = 0.0
    hubs: bool = False
    disjoint: bool = False
    directed: bool = False
    harm: bool = False
    by_source: bool = False
    nodes: int = 200
    links: int = 1000
    features: int = 6


LEVELS = (
    Cell("half in each group"),
    Cell("20 % in one group", share=0.2),
    Cell("half, popular nodes", popularity=1.0),
    Cell("20 %, popular nodes", share=0.2, popularity=1.0, by_source=True),
    Cell("half, group correlated with a feature", correlation=1.0),
    Cell("20 %, correlated, popular nodes", share=0.2, correlation=1.0, popularity=1.0),
    Cell("20 %, popular nodes, directed links", share=0.2, popularity=1.0, directed=True),
    Cell("20 %, popular nodes, hubs", share=0.2, popularity=1.0, hubs=True),
    Cell("20 %, popular nodes, 60 nodes", share=0.2, popularity=1.0, nodes=60, by_source=True),
)
EFFECTS = tuple(
    replace(LEVELS[place], harm=True, by_source=False, nodes=300, links=1500)
    for place in (0, 1, 3, 5)
)
CELLS = LEVELS + EFFECTS


def ends_of(cell: Cell, rng: np.random.Generator) -> tuple[int, Ints]:
    """Return the number of nodes, and different links without loops, (m, 2)."""
    if cell.disjoint:
        return 2 * cell.links, np.arange(2 * cell.links).reshape(-1, 2)
    weights = 1 / np.arange(1, cell.nodes + 1) if cell.hubs else np.ones(cell.nodes)
    first, second = np.triu_indices(cell.nodes, 1)
    chances = weights[first] * weights[second]
    chosen = rng.choice(len(first), cell.links, replace=False, p=chances / chances.sum())
    ends = np.stack([first, second], axis=1)[chosen]
    turned = rng.random(len(ends)) < 0.5
    ends[turned] = ends[turned, ::-1]
    return cell.nodes, ends


def near(z: Doubles, k: int = 3) -> Ints:
    """Join each node with its nearest others, as edges (2, n k)."""
    from sklearn.neighbors import NearestNeighbors

    found = NearestNeighbors(n_neighbors=k).fit(z).kneighbors(return_distance=False)
    return np.stack([np.repeat(np.arange(len(z)), k), found.reshape(-1)])


def drawn(cell: Cell, seed: int) -> tuple[Any, Ints, Ints, Ints]:
    """Return a graph, links, their decisions (0 is refused), and the group of each node."""
    rng = np.random.default_rng(seed)
    n, ends = ends_of(cell, rng)
    z = rng.normal(size=(n, cell.features))
    logits = np.log(cell.share / (1 - cell.share)) + cell.correlation * z[:, 0]
    group = (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    mixing = rng.normal(size=(cell.features, cell.features)) / cell.features
    a, b = z[ends[:, 0]], z[ends[:, 1]]
    of_both = 0.5 * (a[:, 1] + b[:, 1]) - 0.3 * abs(a[:, 0] - b[:, 0])
    score = (a * (b @ (mixing + mixing.T))).sum(axis=1) + of_both
    if cell.directed:
        score = score + 0.5 * (a[:, 2] - b[:, 2])
    score = (score - score.mean()) / score.std()
    popular = rng.normal(size=n)[ends].sum(axis=1) / np.sqrt(2)
    score = score + cell.popularity * popular + 0.5 * rng.normal(size=len(ends))
    decisions = score > np.median(score)
    if cell.harm:
        crosses = group[ends[:, 0]] != group[ends[:, 1]]
        distance = abs(score - np.median(score))
        border = crosses & (distance <= np.quantile(distance, BORDER))
        decisions = decisions & ~(border & (rng.random(len(ends)) < FLIPPED))
    data = SimpleNamespace(x=z.astype(np.float32), edge_index=near(z))
    return data, ends, decisions.astype(np.int64), group


def tested(cell: Cell, seed: int) -> dict[str, list[ScoreTest]]:
    """Return both tests of the links across groups, for each way to count links."""
    data, ends, decisions, group = drawn(cell, seed)
    finder = cfe.EvidenceFinder.from_links(
        data,
        decisions,
        ends,
        features={"group": group},
        sensitive=["group"],
        directed=cell.directed,
    )
    asked = (finder, finder.sensitive[0], ("value", "across"), 0, None, DEFAULT_BINS)
    sample, crosses, _ = question(*asked, None)
    contrasts = [sample.evidence_contrast, sample.situation_contrast(K)]
    found = {"ours": sample.test(crosses, contrasts)[1]}
    apart = replace(sample, ends=None)
    vars(apart)["basis"] = sample.basis  # computed once
    found["independent"] = apart.test(crosses, contrasts)[1]
    if cell.by_source:
        of_source, crosses, _ = question(*asked, ends[:, 0])
        of_source = replace(of_source, ends=None)
        contrasts = [of_source.evidence_contrast, of_source.situation_contrast(K)]
        found["person=source"] = of_source.test(crosses, contrasts)[1]
    return found


def rates_differ(cell: Cell, seed: int) -> tuple[bool, bool]:
    """Return whether the audit of rates finds different shares within and across, at 5 %.

    First with the nodes at the ends of links, then of independent rows.
    """
    _, ends, decisions, group = drawn(cell, seed)
    crosses = np.where(group[ends[:, 0]] == group[ends[:, 1]], "within", "across")
    found = [
        audit.group_metrics(
            y_pred=decisions, sensitive_features={"ends": crosses}, favourable=1, ends=nodes
        )
        for nodes in (ends, None)
    ]
    ours, independent = (bool((metrics.summary["p"] <= ALPHA).any()) for metrics in found)
    return ours, independent


def measured(cell: Cell, runs: int) -> dict[str, Any]:
    """Return how often each test finds a disadvantage, an advantage, or cannot tell."""
    counts = {
        way: {test: {"against": 0, "in favour": 0, "cannot tell": 0} for test in TESTS}
        for way in COUNTED[: 3 if cell.by_source else 2]
    }
    differ = [0, 0]
    for seed in range(FIRST_SEED, FIRST_SEED + runs):
        for way, results in tested(cell, seed).items():
            for test, one in zip(TESTS, results, strict=True):
                counts[way][test]["cannot tell"] += bool(one.reason)
                is_found = not one.reason and one.p_value <= ALPHA
                counts[way][test]["against"] += is_found and one.statistic > 0
                counts[way][test]["in favour"] += is_found and one.statistic < 0
        if not cell.correlation:
            differ = [sum(pair) for pair in zip(differ, rates_differ(cell, seed), strict=True)]
    row = {**asdict(cell), "runs": runs, "counts": counts, "rates differ": differ}
    if cell.harm:
        apart = replace(cell, disjoint=True)
        found = [
            tested(apart, seed)["independent"] for seed in range(FIRST_SEED, FIRST_SEED + runs)
        ]
        row["disjoint"] = {
            test: sum(
                not one[i].reason and one[i].p_value <= ALPHA and one[i].statistic > 0
                for one in found
            )
            for i, test in enumerate(TESTS)
        }
    return row


def page(content: dict[str, Any]) -> str:
    tests = ("direction", "situation")

    def shares(counts: dict[str, Any], runs: int, sides: tuple[str, ...]) -> str:
        found = [100 * sum(counts[test][side] for side in sides) / runs for test in tests]
        return " / ".join(f"{share:.1f}" for share in found)

    both = ("against", "in favour")
    levels, powers = [], []
    for row in content["cells"]:
        runs = row["runs"]
        ours = row["counts"]["ours"]
        plain = row["counts"]["independent"]
        silent, silent_by_source = (
            " / ".join(str(counts[test]["cannot tell"]) for test in tests)
            for counts in (ours, row["counts"].get("person=source", ours))
        )
        if row["harm"]:
            disjoint = " / ".join(f"{100 * row['disjoint'][test] / runs:.0f}" for test in tests)
            sides = [shares(counts, runs, ("against",)) for counts in (ours, plain)]
            powers.append((row["title"], runs, *sides, disjoint, silent))
        else:
            source = row["counts"].get("person=source")
            levels.append(
                (
                    row["title"],
                    runs,
                    shares(ours, runs, both),
                    shares(plain, runs, both),
                    "" if source is None else f"{shares(source, runs, both)} ({silent_by_source})",
                    ""
                    if row["correlation"]
                    else " / ".join(f"{100 * count / runs:.1f}" for count in row["rates differ"]),
                    silent,
                )
            )
    ways = ("ours, %", "as independent, %")
    fewest = min(row["runs"] for row in content["cells"] if not row["harm"])
    return (
        "How often the direct tests of links name a difference between links within and across two groups: without an "
        f"effect (level, nominal 5 %), and where {content['flipped']:.0%} of the borderline links across are refused "
        f"(power; borderline: the {content['border']:.0%} nearest to the decision). Each share is of the evidence "
        "contrast / the situation contrast. Links share nodes, so they depend on each other: *popular* nodes have an "
        "effect of their own on all their links, as large as that of their features, which no vector tells. 1,000 "
        "links of 200 nodes with 6 features, if nothing else is said; 1,500 of 300 for power. A share of 5 % has a "
        f"Monte-Carlo error of {100 * (0.05 * 0.95 / fewest) ** 0.5:.1f} points over {fewest} runs.\n\n"
        "**As independent**: the same test without the variance of links that share an end. **By source**: "
        "`person=` the first end. **Rates**: `group_metrics` of within and across with `ends=`, and without; no "
        "numbers where the rates do differ. **Disjoint**: as many links without a common node, which is the "
        "case of people.\n\n"
        "## Level: no effect\n\n"
        + table(
            (
                "links",
                "runs",
                *ways,
                "by source, % (cannot tell)",
                "rates: with ends / as independent, %",
                "cannot tell (ours)",
            ),
            levels,
        )
        + "\n\n## Power: planted effect found\n\n"
        + table(("links", "runs", *ways, "disjoint, %", "cannot tell (ours)"), powers)
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200, help="of a level; half for an effect")
    args = parser.parse_args(argv)
    known = result(NAME)["cells"] if (RESULTS / f"{NAME}.json").is_file() else []
    rows = []
    for cell in CELLS:
        runs = max(1, args.runs // 2) if cell.harm else args.runs
        same = [row for row in known if asdict(cell).items() <= row.items() and row["runs"] >= runs]
        rows.append(same[0] if same else measured(cell, runs))
        print(rows[-1], flush=True)
        save(NAME, {"border": BORDER, "flipped": FLIPPED, "cells": rows})

    import report

    (report.RESULTS / f"{NAME}.md").write_text(report.small_page(NAME))


if __name__ == "__main__":
    main()
