"""Write benchmarks/README.md, its chart, and the pages of small scripts from the JSON results.

No figure on these pages is typed by hand.

    python -m benchmarks.report
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.common import RESULTS, folded
from benchmarks.engine.page import losses, machine, versus

PAGE = Path(__file__).with_name("README.md")
CHART = RESULTS / "speed.png"
RUNS = ("engine_tables", "engine_core", "engine_core_200k", "engine_real", "engine_1569960")
"""Results of the engine's benchmark; of two runs of a data set on one kind of processor the first counts."""
LEVELS = ("AVX-512 VNNI", "AVX2")
MODES = {"all": "all rows", "single": "one query"}
TARGET = 0.95
ORIGINS = RESULTS / "origins.md"
"""Table of the commits that recorded the results, which only a clone with its history knows."""


def result(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
    figure = Figure(figsize=(11, 4.2), layout="constrained")
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
                "Bail, german, cora and facebook are real graphs, and the others are made up: *clumps* is a table of "
                "mostly binary and ordinal columns, so that many similarities are equal or nearly so; *crowded* has "
                "similarities that lie close together, and classes that mix everywhere; *clusters* has 200 clusters of "
                "different size; *amazon* has the shape of AmazonProducts, with neighbours of mostly other (low) or "
                "the same (high) class.",
                "**Where we lose.** On Cora, with 1,433 features, and AVX2: ScaNN is faster for all rows, HNSW for "
                "one query, and exact search reaches 0.99 sooner, so that `recall=` chooses ours. On Facebook with "
                "AVX2 our lists did not reach 0.99 for all rows in the time of the run. On Cora stock IVF trains and "
                f"adds faster. {lost_in_high_dimension()}",
                "## More measurements",
                "\n".join(f"- [{title}]({link}): {text}" for title, link, text in LINKS),
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


LINKS = (
    (
        "Nearest rows outside a group",
        "results/exclusion_short.md",
        "generated data with any number and size of groups, and more peers; others can run it",
    ),
    (
        "Recall that is asked for",
        "results/recall_kept.md",
        "whether `recall=` is kept, for each class",
    ),
    (
        "Element types",
        "results/block_elements.md",
        "from how many dimensions on bytes are faster than floats, and bits than bytes",
    ),
    (
        "High dimension",
        "results/high_dimension.md",
        "one query and batches in 384 to 1,433 dimensions, against rabitqlib and others",
    ),
    (
        "Jobs over a folder",
        "results/scale.md",
        "time and memory of each stage up to 15.7 million nodes",
    ),
    (
        "Damaged files",
        "results/fuzz_files.md",
        "and [damaged shards](results/fuzz_shards.md): crashes, hangs and wrong results",
    ),
    (
        "Calibration of direct tests",
        "results/calibration.md",
        "false alarms without an effect, planted effects found",
    ),
    (
        "Rates of groups",
        "results/calibration_rates.md",
        "level, power and coverage of impact ratios and equalised odds",
    ),
    (
        "Findings and directions",
        "results/calibration_findings.md",
        "one cause, one finding; better ends of columns",
    ),
    (
        "Intervals of the audits",
        "results/coverage.md",
        "and [of the tests of a model](results/interval_coverage.md): what they cover",
    ),
    ("Time of the report", "results/audit_report.md", "30,000 rows of 100 columns"),
    (
        "Real tables",
        "results/real_tables.md",
        "fifteen messy public files, each audited with one command",
    ),
    (
        "The paper's claims",
        "paper/README.md",
        "which hold on public data, which do not, and which stay undecided",
    ),
)


def fuzz_files() -> str:
    content = result("fuzz_files")
    rows = [(outcome, f"{count:,}") for outcome, count in content["counts"].items()]
    return (
        f"{content['cases']:,} mutated index files given to the reader in processes whose crash would be noticed; "
        f"crashes, hangs and wrong results: {content['wrong']}.\n\n"
        + table(("outcome", "files"), rows)
    )


def fuzz_shards() -> str:
    content = result("fuzz_shards")
    rows = [(outcome, f"{count:,}") for outcome, count in content["counts"].items()]
    return (
        f"{content['cases']:,} times one file of an index in shards was damaged, the list of shards among them, and "
        "the index opened and searched in every way that reads a list; crashes, hangs, and other results without an "
        f"error: {content['wrong']}.\n\n" + table(("outcome", "cases"), rows)
    )


def recall_kept() -> str:
    content = result("recall_kept")
    unfinished = (
        "**The run is not finished: sets of some kinds are missing.**\n\n"
        if "unfinished" in content
        else ""
    )
    cells = [
        (kind, mode, wanted, told)
        for kind, modes in content["summary"].items()
        for mode, by_recall in modes.items()
        for wanted, told in by_recall.items()
    ]
    rows = []
    for kind, mode, wanted, told in cells:
        means, classes, least = told["means below"], told["classes below"], told["least class"]
        rows.append(
            (
                kind,
                mode,
                wanted,
                told["sets"],
                f"{told['mean']:.4f}",
                f"{told['least mean'][0]:.4f} ({told['least mean'][1]})",
                f"{means[0]} ({means[1]})",
                told["classes"],
                f"{least[0]:.4f} ({least[2]}, class {least[1]})" if least else "-",
                f"{classes[0]} ({classes[1]})",
                f"{told['lists']:.1f}",
                f"{told['ratio']:.2f}",
            )
        )
    head = (
        "sets",
        "search",
        "asked for",
        "number",
        "mean",
        "least mean",
        "means below",
        "classes",
        "least class",
    )
    return (
        "The recall@10 that `recall=` gives on sets for which nothing was tuned: small synthetic ones of shapes drawn "
        "at random; classes 99:1, 90:10, and 20 classes of Zipf sizes; codecs and partitions; crowded graphs; and the "
        "real ones, wholly and with a fifth of the nodes as new queries. Wanted: every mean reaches the recall, and "
        "every class with at least 100 stored rows reaches the recall less .01.\n\n"
        "Stored rows are all measured, so their recall is known. New queries are a sample, about 10,000 of a synthetic "
        "set: in brackets is how many means or classes are below beyond the noise of that, by a one-sided test at 1 % "
        "each.\n\n"
        "The cost is in the last two columns: the lists that a query probes, in the mean over the sets, and how many "
        "times as many these are as for a promise for the mean alone (geometric mean over the sets). The promise "
        "of earlier versions takes the smallest `nprobe` whose mean recall over 2,000 stored rows (500 for single "
        "queries) reaches what is asked for with 95 % confidence.\n\n"
        + unfinished
        + table((*head, "classes below", "lists", "ratio"), rows)
    )


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def interval_coverage() -> str:
    content = result("interval_coverage")
    rows = []
    for name, title in (
        ("ratio", "ratio of shares (Koopman)"),
        ("difference", "difference of shares (Newcombe)"),
    ):
        held = [row[name] for row in content["two_shares"]]
        rows.append((title, len(held), percent(min(held)), percent(max(held))))
    for clusters, sizes in dict.fromkeys(
        (row["clusters"], row["sizes"]) for row in content["clustered"]
    ):
        held = [
            row["held"]
            for row in content["clustered"]
            if (row["clusters"], row["sizes"]) == (clusters, sizes)
        ]
        rows.append(
            (
                f"share in {clusters:,} clusters {sizes}",
                len(held),
                percent(min(held)),
                percent(max(held)),
            )
        )
    return (
        "How often 95 % intervals hold the truth: of two shares by enumeration, of clustered cases (`only_in`) in "
        f"{content['runs']:,} simulated samples each. Wanted: 93 % at least. Where a sixth of the clusters hold four "
        "fifths of the cases, no interval made from few of them does.\n\n"
        + table(("interval", "settings", "least", "most"), rows)
    )


def coverage() -> str:
    content = result("coverage")
    shuffled = [
        (
            row["vectors"],
            f"{row['nodes']:,}",
            row["share_of_first_class"],
            percent(row["tied"]),
            f"{row['share']:.4f}",
            f"{row['expected']:.4f}",
            f"{row['without_ties']:.4f}",
            percent(row["held"]),
        )
        for row in content["consistency"]
    ]
    accuracy = [
        (
            f"{row['nodes']:,}",
            row["drawn_anew"],
            row["k"],
            f"{row['accuracy']:.3f}",
            percent(row["held"]),
        )
        for row in content["accuracy"]
    ]
    return (
        "How often do 95 % intervals of the audits hold what they should? Vectors in six clusters, classes with noisy "
        f"linear borders, {content['graphs']} graphs a cell.\n\n"
        "**Consistency, classes shuffled over the nodes.** `expected` should equal the mean share, ties or not; "
        "beside it what it would be without counting ties. Wilson's interval takes nodes for independent.\n\n"
        + table(
            (
                "vectors",
                "nodes",
                "first of two classes",
                "nodes with ties",
                "mean share",
                "mean expected",
                "without ties",
                "Wilson's interval holds expected",
            ),
            shuffled,
        )
        + "\n\n**Accuracy within the evidence.** The band of `error_rate_by_evidence` against the mean accuracy, if "
        "true classes are redrawn for the same predictions, and if the model is trained again on other nodes.\n\n"
        + table(("nodes", "redrawn", "k", "mean accuracy", "holds"), accuracy)
    )


def audit_report() -> str:
    content = result("audit_report")
    rows = [
        (
            run["table"],
            f"{run['rows']:,} x {run['columns']}",
            f"{run['seconds']:.0f} s",
            f"{run['processors']:.0f} s",
            run["choices"],
        )
        for run in content["runs"]
    ]
    return (
        "`cfe-faiss audit` from the CSV to the written report: a table of numbers, skewed amounts, counts, categories "
        "and missing cells with two sensitive attributes and a truth, drawn at random, and the public table of "
        f"credit cards. Wanted: {content['wanted']:.0f} s for 30,000 rows of 100 columns on two cores. On a busy "
        "machine the clock says little, and the time of all processors more: "
        f"{content['load']:.0f} processes waited for the cores at the end of this run. Choices are those of the "
        "sensitivity of the findings.\n\n"
        + table(("table", "size", "clock", "processors", "choices"), rows)
    )


def lost_in_high_dimension() -> str:
    """Return a sentence on the comparisons that a peer wins."""
    lost, winners, number = [], set(), 0
    for found in result("high_dimension")["measured"]:
        for cell in found["cells"]:
            records = {name: record["seconds"] for name, record in cell["records"].items()}
            rivals = [name for name in records if not name.startswith("ours")]
            best = min(rivals, key=records.__getitem__)
            number += 1
            if records[best] < records["ours"]:
                lost.append(f"{found['data']} ({found['level']})")
                winners.add(best)
    return (
        "In [high dimension](results/high_dimension.md) a peer with one index for each class is faster in "
        f"{len(lost)} of {number} comparisons ({'; '.join(sorted(winners))}): {', '.join(dict.fromkeys(lost))}."
    )


def high_dimension() -> str:
    rows, builds = [], []
    for found in result("high_dimension")["measured"]:
        about = (found["data"], found["level"])
        for cell in found["cells"]:
            records = dict(cell["records"])
            calibrated = records.pop("ours, calibrated", None)
            mine = records.pop("ours", None)
            by_nprobe = records.pop("ours, nprobe=", None)
            search = "one query" if cell["mode"] == "one" else "batch"
            if mine is None or not records:
                continue
            best = min(records, key=lambda name: records[name]["seconds"])
            if by_nprobe:
                records["ours, nprobe="] = by_nprobe
            times = {name: f"{1e6 * record['seconds']:.1f}" for name, record in records.items()}
            others = "; ".join(f"{name} {us}" for name, us in times.items() if name != best)
            rows.append(
                (
                    *about,
                    search,
                    cell["target"],
                    f"{records[best]['seconds'] / mine['seconds']:.2f}",
                    f"{1e6 * mine['seconds']:.1f}",
                    f"{best} {times[best]}",
                    others,
                    f"{1e6 * calibrated['seconds']:.1f} ({calibrated['recall']:.4f})"
                    if calibrated
                    else "",
                )
            )
            if search == "one query":
                parameters = {"ours": mine, **records}
                builds += [
                    (
                        *(*about, cell["target"], name, record["parameters"], record["setting"]),
                        f"{record['recall']:.4f}",
                        f"{record['build_seconds']:.1f}",
                    )
                    for name, record in parameters.items()
                ]
    load = max(found["load"] for found in result("high_dimension")["measured"])
    return (
        "The top-10 evidence of one query at a time, by the clock, and of 1,000 queries of a class, by processor time "
        "of one thread: microseconds a query, medians, all in turns. Ours is one index of all rows, searched with "
        "`recall=` (in bits of the rows) and with `nprobe=` (in bytes; a batch in groups). rabitqlib, ScaNN and "
        "IVFFlat have an index of the rows of other classes for each class: ten copies. Every index has the least "
        "setting that reaches the recall for the queries, and the faster of two numbers of lists. The last column is "
        "what `recall=` chooses by its calibration, with the recall that it reached. *codes*: codes of rabitqlib with "
        "7 or 9 bits, whose similarities are estimates; *raw*: codes of one bit, and floats; ours are exact.\n\n"
        "*mixed*: ten equal classes along a random direction; *alike*: ten clusters of k-means. `cora_features` are "
        "2,708 KS vectors of 1,433 numbers; `paragraphs-384` real texts, about 100,000 paragraphs of Python packages "
        "(tf-idf and SVD); `text-D-N` is generated, N rows with D dimensions. At the level avx2 ours has no AVX-512 "
        f"instructions, but rabitqlib does. The load was up to {load:.0f} on two cores, so that caches were cold and "
        "times are long; ratios are of one run. Not measured: memory, the spread over runs, more lists or classes "
        "than the tables name, and HNSW, IVFFlat and ScaNN where they have no figure.\n\n"
        + table(
            (
                *("data", "level", "search", "recall", "best peer / ours", "ours, us"),
                *("best peer, us", "others, us", "calibrated, us (recall)"),
            ),
            rows,
        )
        + "\n\n"
        + folded(
            "Parameters of one query, recall, and build in seconds (of a peer: of one class)",
            table(
                ("data", "level", "target", "index", "built with", "setting", "recall", "build, s"),
                builds,
            ),
        )
    )


def block_elements() -> str:
    rows = []
    for level, content in result("block_elements")["levels"].items():
        rule = content["rule"]
        rows.append((level, *(rule[kind] for kind in ("batch", "single_few", "single_many"))))
    return (
        "The number of dimensions from which on blocks of bytes are faster than floats, by instruction set: in the "
        "geometric mean over several data sets for all rows; for single queries, from which on they take at most 0.9 "
        "of the time, as they need memory beside the vectors.\n\n"
        + table(
            ("instruction set", "all rows", "one query, few lists", "one query, many lists"), rows
        )
        + "\n\n"
        + block_bits()
    )


def block_bits() -> str:
    content = result("block_bits")
    rows = [
        (level, d, *(f"{mean_of(found['measurements'], kind, d):.2f}" for kind in kinds))
        for level, found in content["levels"].items()
        for kinds in [("single_few", "single_many")]
        for d in sorted({row["d"] for row in found["measurements"]})
    ]
    return (
        f"The time of one query with a target recall in bits, as a share of its time in bytes, with {content['few']} "
        f"and with {content['many']} of {content['nlist']} lists of {content['rows']:,} rows: geometric means over the "
        f"data sets (`python benchmarks/block_elements.py --bits`, {content['environment']['processor']}). Searches "
        "read bits from 384 dimensions on.\n\n"
        + table(("instruction set", "dimensions", "few lists", "many lists"), rows)
    )


def mean_of(rows: list[dict[str, Any]], key: str, d: int) -> float:
    """Return the geometric mean of the times over the data sets of a dimension."""
    return geometric_mean([row[key] for row in rows if row["d"] == d])


SECTIONS: dict[str, tuple[str, Callable[[], str]]] = {
    "audit_report": ("Time of the report of an audit", audit_report),
    "block_elements": ("Element types of blocks", block_elements),
    "coverage": ("Intervals of the audits", coverage),
    "fuzz_files": ("Damaged files", fuzz_files),
    "fuzz_shards": ("Damaged shards", fuzz_shards),
    "high_dimension": ("High dimension", high_dimension),
    "interval_coverage": ("Intervals of the tests of a model", interval_coverage),
    "recall_kept": ("Recall that is asked for", recall_kept),
}


COMMANDS = {"high_dimension": "python -m benchmarks.engine.high"}


def small_page(name: str) -> str:
    """Return the page of one of the small scripts."""
    title, section = SECTIONS[name]
    where = result(name)["environment"]
    packages = where["packages"]
    command = COMMANDS.get(name, f"python benchmarks/{name}.py")
    return (
        f"# {title}\n\n{section()}\n\n`{command}`, {where['processor']}, {where['threads']} threads, "
        f"faiss-cpu {packages['faiss-cpu']}, NumPy {packages['numpy']}.\n"
    )


def main() -> None:
    ORIGINS.write_text(
        table(("run", "recorded", "processor and versions"), map(origin, RUNS)) + "\n"
    )
    draw()
    PAGE.write_text(page())
    for name in SECTIONS:
        (RESULTS / f"{name}.md").write_text(small_page(name))
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
