"""The page of a run: how far each index is from the fastest, where a peer beats us, and one chart per data set.

python -m benchmarks.exclusion.page RESULT.json
"""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import folded
from benchmarks.engine.page import (
    losses,
    machine,
    section,
    shared,
    speeds,
    versus,
)
from benchmarks.engine.page import main as write_page

NEWEST = "exclusion_short"
"""Result that the project's README and the pages of the documentation name."""


def in_short(result: dict[str, Any]) -> str:
    """Return the sentence that the project's README holds."""
    found = [versus(result, graph, "all", result["targets"][0])[0] for graph in result["graphs"]]
    ratios = [ratio for ratio in found if ratio]
    measured = {record["peer"] for graph in result["graphs"] for record in graph["records"]}
    peers = sum(not about["ours"] for name, about in result["peers"].items() if name in measured)
    said = ", a first run on a busy machine" if result["environment"]["shared"] else ""
    return (
        f"The nearest rows outside a group: {median(ratios):.1f} times as fast as the best of {peers} peers (median of "
        f"{len(ratios)} data sets, {min(ratios):.1f} to {max(ratios):.1f}{said}), "
        f"[a benchmark](benchmarks/results/{NEWEST}.md) that you can run."
    )


def write(result: dict[str, Any], path: Path, pictures: dict[str, Path]) -> Path:
    """Write the page of a result beside its JSON, and return where it is."""
    page, threads = path.with_suffix(".md"), result["environment"]["threads"]
    notes = [
        f"- {name}: {about['notes']}" for name, about in result["peers"].items() if about["notes"]
    ]
    notes += [f"- left out: {name}: {reason}" for name, reason in result["left_out"].items()]
    parts = [
        "# Nearest rows outside a group",
        "Which index finds the k nearest rows that are *not* in the query's group, and how fast? Groups are classes, "
        "documents, patients, or splits of data. They are independent of the vectors or follow them, equal or of Zipf "
        "sizes, from two groups to pairs of rows.",
        shared(result),
        f"## All rows, {threads[0]} thread{'s' * (threads[0] > 1)}",
        speeds(result, "all"),
        "## One query at a time, one thread",
        speeds(result, "single"),
        "## Where a peer beats us",
        "\n".join(f"- {sentence}" for sentence in losses(result)) or "Nowhere in this run.",
        "## Run it",
        f"`python -m benchmarks.exclusion.run {result['form']}`; {machine(result)}. The run generates the data and "
        "compares its ground truth with a brute-force search in float64 for some queries. Each index is tuned with the "
        f"same budget and threads, and the best are timed in turns. All numbers are in [{path.name}]({path.name}). The "
        "pages of [the engine](engine_real.md) tell more about tuning and timing.",
        "*Bitmap*, *selector*, *two ranges*: one index with a filter. *Per class*: one index per group. *Per other "
        "classes*: one index per group over all other groups. *Drop own*: one index without a filter, which "
        "fetches more rows than asked for.",
        folded("The peers", "\n".join(notes)),
        "## Each data set",
        *(
            section(result, graph, str(pictures[graph["graph"]].relative_to(path.parent)))
            for graph in result["graphs"]
        ),
    ]
    page.write_text("\n\n".join(part for part in parts if part) + "\n")
    return page


def main() -> None:
    write_page(write)
    print(f"README.md: {in_short(json.loads(Path(sys.argv[1]).read_text()))}")


if __name__ == "__main__":
    main()
