"""Write benchmarks/README.md, its chart, and the pages of small scripts from the JSON results.

No figure on these pages is typed by hand.

    python -m benchmarks.report
"""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import RESULTS, folded, result, table
from benchmarks.engine.growth_page import lost
from benchmarks.engine.high_page import lost_in_high_dimension
from benchmarks.engine.page import losses, machine, versus

sys.path.append(str(Path(__file__).parent))  # scripts import each other by name

PAGE = Path(__file__).with_name("README.md")
CHART = RESULTS / "speed.png"
RUNS = ("engine_tables", "engine_core", "engine_core_200k", "engine_real", "engine_1569960")
"""Results of the engine's benchmark; of two runs of a data set on one kind of processor the first counts."""
LEVELS = ("AVX-512 VNNI", "AVX2")
MODES = {"all": "all rows", "single": "one query"}
TARGET = 0.95
ORIGINS = RESULTS / "origins.md"
"""Table of the commits that recorded the results, which only a clone with its history knows."""


def runs() -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Return level, name of the result, result and data set of every comparison."""
    found: dict[tuple[str, str], tuple[str, str, dict[str, Any], dict[str, Any]]] = {}
    for name in RUNS:
        content = result(name)
        level = LEVELS["avx512_vnni" not in content["environment"]["instruction_sets"]]
        for graph in content["graphs"]:
            found.setdefault((level, graph["graph"]), (level, name, content, graph))
    return list(found.values())


def ratios(level: str, mode: str, target: float = TARGET) -> list[float]:
    """Return how many times as fast as the best peer ours is, for each data set where both reach the recall."""
    found = [
        versus(content, graph, mode, target)[0] for at, _, content, graph in runs() if at == level
    ]
    return [ratio for ratio in found if ratio]


def peer_count(content: dict[str, Any]) -> int:
    measured = {record["peer"] for graph in content["graphs"] for record in graph["records"]}
    return sum(not content["peers"][name]["ours"] for name in measured)


def span(level: str, mode: str) -> str:
    found = ratios(level, mode)
    return f"{median(found):.1f} times as fast ({min(found):.1f} to {max(found):.1f})"


def draw() -> None:
    """Draw ours against the best peer: a row for each data set, a panel for each kind of search."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    names = list(dict.fromkeys(graph["graph"] for _, _, _, graph in runs()))
    sizes = {graph["graph"]: f"{graph['nodes']:,} x {graph['dimension']:,}" for *_, graph in runs()}
    figure = Figure(figsize=(11, 3.7), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (mode, title) in zip(panels, MODES.items(), strict=True):
        axes.axvline(1, color="black", linewidth=1)
        for level, marker, colour, shift in zip(
            LEVELS, ("o", "s"), ("#0072B2", "#E69F00"), (-0.16, 0.16), strict=True
        ):
            points = [
                (versus(content, graph, mode, TARGET)[0], names.index(graph["graph"]))
                for at, _, content, graph in runs()
                if at == level
            ]
            axes.plot(
                [ratio for ratio, _ in points],
                [row + shift for _, row in points],
                marker,
                color=colour,
                markeredgecolor="black",
                markersize=8,
                label=level,
            )
        axes.set(xscale="log", xlim=(0.6, 12), ylim=(len(names) - 0.4, -0.6))
        axes.xaxis.set_major_locator(FixedLocator([1, 2, 3, 5, 10]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:g}x"))
        axes.set_title(title, loc="left", fontsize=13, weight="bold")
        axes.grid(axis="x", color="#D0D7DE")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.axvspan(0.6, 1, color="#F6E5E4", zorder=0)
    panels[0].set_yticks(
        range(len(names)), [f"{re.sub(r'-[0-9]+$', '', name)}, {sizes[name]}" for name in names]
    )
    panels[1].legend(loc="upper right", title="processor", framealpha=1)
    figure.supxlabel(
        "speed of cfe_faiss / speed of the best tuned peer (left of 1x: the peer is faster)"
    )
    figure.savefig(CHART, dpi=130, metadata={"Software": None})


def comparison(level: str, name: str, content: dict[str, Any], graph: dict[str, Any]) -> list[str]:
    cells = []
    for mode in MODES:
        found = [versus(content, graph, mode, target) for target in content["targets"]]
        speeds = " / ".join(f"{ratio:.1f}" if ratio else "-" for ratio, _ in found)
        peers = dict.fromkeys(peer for ratio, peer in found if ratio)
        cells.append(f"{speeds} ({'; '.join(map(str, peers))})" if peers else speeds)
    size = f"{graph['nodes']:,} x {graph['dimension']:,}"
    return [f"[{graph['graph']}](results/{name}.md)", size, level, *cells]


def origin(name: str) -> list[str]:
    """Return a row that says where a result comes from: the commit that recorded it, and the machine."""
    path = str(RESULTS / f"{name}.json")
    command = ["git", "log", "-1", "--format=%h, %ad", "--date=short", "--", path]
    recorded = subprocess.run(command, capture_output=True, text=True, check=True, cwd=RESULTS)
    return [f"[{name}](results/{name}.md)", recorded.stdout.strip(), machine(result(name))]


def where_we_lose() -> list[str]:
    """Return the sentences of all runs on what another index does better, without the tails of one query."""
    return [
        f"{level}: {sentence}"
        for level, _, content, graph in runs()
        for sentence in losses({**content, "graphs": [graph]})
        if "p99" not in sentence
    ]


def page() -> str:
    """Return the page of measurements."""
    peers = max(map(peer_count, {name: content for _, name, content, _ in runs()}.values()))
    counts = {
        level: len({graph["graph"] for at, *_, graph in runs() if at == level}) for level in LEVELS
    }
    speeds = [
        f"{level}, {counts[level]} data sets: all rows {span(level, 'all')}, one query {span(level, 'single')}."
        for level in LEVELS
    ]
    origins = ORIGINS.read_text() if ORIGINS.exists() else ""
    return (
        "\n\n".join(
            [
                "# Measurements",
                f"![Speed of cfe_faiss against the best tuned peer, by data set](results/{CHART.name})",
                "The top-10 evidence at a recall@10 of at least 0.95, on one thread, against the fastest of up "
                f"to {peers} tuned peers: FAISS's IVF and HNSW with selectors, one index per class, hnswlib, ScaNN, "
                f"pyglass, exact search. {' '.join(speeds)} These are medians over the data sets, with the least and "
                "the largest; each ratio is of one run on two cores, timed in turns.",
                "**Where we lose.** On Cora, with 1,433 features, and AVX2: ScaNN is faster for all rows, HNSW for "
                "one query, and exact search reaches 0.99 sooner, so that `recall=` chooses ours. On Facebook with "
                "AVX2 our lists did not reach 0.99 for all rows in the time of the run. On Cora stock IVF trains and "
                f"adds faster. {lost_in_high_dimension()} {lost('growth', 'As rows grow')} "
                + lost("correlation", "By correlation of groups"),
                "Bail, german, cora and facebook are real graphs, and the others are made up: *clumps* is a table of "
                "mostly binary and ordinal columns, so that many similarities are equal or nearly so; *crowded* has "
                "similarities that lie close together, and classes that mix everywhere; *clusters* has 200 clusters of "
                "different size; *amazon* has the shape of AmazonProducts, with neighbours of mostly other (low) or "
                "the same (high) class.",
                "## More measurements",
                LINKS.strip(),
                "## Details",
                folded(
                    "Every data set, at recall 0.95 / 0.99, with the best peer",
                    table(
                        ("data set", "vectors", "processor", "all rows", "one query"),
                        [comparison(*run) for run in runs()],
                    ),
                ),
                folded(
                    "Every comparison that another index wins",
                    "\n".join(f"- {sentence}" for sentence in where_we_lose()),
                ),
                folded("Commit, date and machine of each run", origins.strip()),
                folded(
                    "Run it",
                    "`CFE_DATA=... python -m benchmarks.engine.run short` measures all data sets and peers that are "
                    "installed (extra `benchmarks`); `python -m benchmarks.report` writes this page and its chart.",
                ),
            ]
        )
        + "\n"
    )


LINKS = """\
- [One query as rows grow](results/growth.md): up to millions of rows, and few dimensions, rabitqlib among peers
- [Nearest rows outside a group](results/exclusion_short.md): groups of any number and size, more peers
- [Exclusion by correlation](results/correlation.md), as Lucene and Weaviate test filters, and rows with several groups
- [Recall that is asked for](results/recall_kept.md): whether `recall=` is kept, for each class
- [Rates of false pairs](results/false_pairs.md) of thresholds, and [the time](results/watch_speed.md) of `watch=`
- [Element types](results/block_elements.md): from how many dimensions on bytes are faster than floats, bits than bytes
- [High dimension](results/high_dimension.md): 384 to 1,433 dimensions, against rabitqlib and others
- [Tanimoto similarity](results/tanimoto.md): exact search of fingerprints beside NumPy, RDKit and FAISS
- [At most m results of a class](results/per_group.md): what `per_group=` costs, beside a search without it
- [What conditions and changes cost](results/costs.md): also filters, new classes, mapped shards
- [Jobs over a folder](results/scale.md): time and memory of each stage up to 15.7 million nodes
- [Damaged files](results/fuzz_files.md) and [damaged shards](results/fuzz_shards.md): crashes, hangs and wrong results
- [Calibration of direct tests](results/calibration.md), and [of links](results/calibration_links.md): level and power
- [Vectors of links](results/link_vectors.md): which of them find links with similar ends
- [Rates of groups](results/calibration_rates.md): level, power and coverage of impact ratios and equalised odds
- [Findings and directions](results/calibration_findings.md): one cause, one finding; better ends of columns
- [Intervals of the audits](results/coverage.md) and [of tests of a model](results/interval_coverage.md): what they hold
- [Wrong labels](results/label_errors.md) beside cleanlab, and [verdicts of a judge](results/verdicts.md): level, power
- [Time of the report](results/audit_report.md): 30,000 rows of 100 columns
- [Real tables](results/real_tables.md): fifteen messy public files, each audited with one command
- [The paper's claims](paper/README.md): which hold on public data, which do not, and which stay undecided
"""


SCRIPTS = (
    *("audit_report", "block_elements", "calibration_links", "costs", "coverage", "false_pairs"),
    *("fuzz_files", "fuzz_shards", "interval_coverage", "label_errors", "link_vectors"),
    *("per_group", "recall_kept", "tanimoto", "verdicts", "watch_speed"),
    *("engine.growth_page", "engine.high_page", "exclusion.correlation"),
)
"""Modules with the title of a page in ``TITLE``, and with ``page``, which writes it from the result."""


def small_page(script: str) -> str:
    """Return the page of one of the small scripts."""
    module = module_of(script)
    content = result(result_of(script))
    where = content["environment"]
    packages = where["packages"]
    command = getattr(module, "COMMAND", f"python benchmarks/{script}.py")
    return (
        f"# {module.TITLE}\n\n{module.page(content)}\n\n`{command}`, {where['processor']}, "
        f"{where['threads']} threads, faiss-cpu {packages['faiss-cpu']}, NumPy {packages['numpy']}.\n"
    )


def module_of(script: str) -> Any:
    return importlib.import_module(script if "." not in script else f"benchmarks.{script}")


def result_of(script: str) -> str:
    """Return the name of a script's result and page."""
    names = {"engine.high_page": "high_dimension", "engine.growth_page": "growth"}
    return names.get(script, script.rpartition(".")[2])


def main() -> None:
    ORIGINS.write_text(
        table(("run", "recorded", "processor and versions"), map(origin, RUNS)) + "\n"
    )
    draw()
    PAGE.write_text(page())
    for script in SCRIPTS:
        (RESULTS / f"{result_of(script)}.md").write_text(small_page(script))
        if hasattr(module_of(script), "draw"):
            module_of(script).draw(result(result_of(script)))
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
