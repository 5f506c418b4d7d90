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
                f"adds faster. {lost_in_high_dimension()}",
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
- [Nearest rows outside a group](results/exclusion_short.md): groups of any number and size, more peers
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


def outcomes(content: dict[str, Any], noun: str) -> str:
    rows = [(outcome, f"{count:,}") for outcome, count in content["counts"].items()]
    return table(("outcome", noun), rows)


def fuzz_files() -> str:
    content = result("fuzz_files")
    return (
        f"{content['cases']:,} mutated index files given to the reader in processes whose crash would be noticed; "
        f"crashes, hangs and wrong results: {content['wrong']}.\n\n{outcomes(content, 'files')}"
    )


def fuzz_shards() -> str:
    content = result("fuzz_shards")
    return (
        f"{content['cases']:,} times one file of an index in shards was damaged, the list of shards among them, and "
        "the index opened and searched in every way that reads a list; crashes, hangs, and other results without an "
        f"error: {content['wrong']}.\n\n{outcomes(content, 'cases')}"
    )


def recall_kept() -> str:
    content = result("recall_kept")
    rows = [
        recall_row(kind, mode, wanted, told)
        for kind, modes in content["summary"].items()
        for mode, by_recall in modes.items()
        for wanted, told in by_recall.items()
    ]
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
        + table(rows[0], (row.values() for row in rows))
    )


def recall_row(kind: str, mode: str, wanted: str, told: dict[str, Any]) -> dict[str, object]:
    means, classes, least = told["means below"], told["classes below"], told["least class"]
    return {
        "sets": kind,
        "search": mode,
        "asked for": wanted,
        "number": told["sets"],
        "mean": f"{told['mean']:.4f}",
        "least mean": f"{told['least mean'][0]:.4f} ({told['least mean'][1]})",
        "means below": f"{means[0]} ({means[1]})",
        "classes": told["classes"],
        "least class": f"{least[0]:.4f} ({least[2]}, class {least[1]})" if least else "-",
        "classes below": f"{classes[0]} ({classes[1]})",
        "lists": f"{told['lists']:.1f}",
        "ratio": f"{told['ratio']:.2f}",
    }


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def interval_coverage() -> str:
    content = result("interval_coverage")
    titles = {
        "ratio": "ratio of shares (Koopman)",
        "difference": "difference of shares (Newcombe)",
    }
    held: dict[str, list[float]] = {
        title: [row[name] for row in content["two_shares"]] for name, title in titles.items()
    }
    for row in content["clustered"]:
        title = f"share in {row['clusters']:,} clusters {row['sizes']}"
        held.setdefault(title, []).append(row["held"])
    rows = [
        (title, len(shares), percent(min(shares)), percent(max(shares)))
        for title, shares in held.items()
    ]
    return (
        "How often 95 % intervals hold the truth: of two shares by enumeration, of clustered cases (`only_in`) in "
        f"{content['runs']:,} simulated samples each. Wanted: 93 % at least. Where a sixth of the clusters hold four "
        "fifths of the cases, no interval made from few of them does.\n\n"
        + table(("interval", "settings", "least", "most"), rows)
    )


def coverage() -> str:
    content = result("coverage")
    shuffled = [
        {
            "vectors": row["vectors"],
            "nodes": f"{row['nodes']:,}",
            "first of two classes": row["share_of_first_class"],
            "nodes with ties": percent(row["tied"]),
            "mean share": f"{row['share']:.4f}",
            "mean expected": f"{row['expected']:.4f}",
            "without ties": f"{row['without_ties']:.4f}",
            "Wilson's interval holds expected": percent(row["held"]),
        }
        for row in content["consistency"]
    ]
    accuracy = [
        {
            "nodes": f"{row['nodes']:,}",
            "redrawn": row["drawn_anew"],
            "k": row["k"],
            "mean accuracy": f"{row['accuracy']:.3f}",
            "holds": percent(row["held"]),
        }
        for row in content["accuracy"]
    ]
    first, second = (
        table(rows[0], (row.values() for row in rows)) for rows in (shuffled, accuracy)
    )
    return (
        "How often do 95 % intervals of the audits hold what they should? Vectors in six clusters, classes with noisy "
        f"linear borders, {content['graphs']} graphs a cell.\n\n"
        "**Consistency, classes shuffled over the nodes.** `expected` should equal the mean share, ties or not; "
        "beside it what it would be without counting ties. Wilson's interval takes nodes for independent.\n\n"
        f"{first}\n\n**Accuracy within the evidence.** The band of `error_rate_by_evidence` against the mean accuracy, "
        "if true classes are redrawn for the same predictions, and if the model is trained again on other nodes.\n\n"
        f"{second}"
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
                lost.append(found["data"].partition("_")[0].partition("-")[0].capitalize())
                winners.add(best)
    where = "In [high dimension](results/high_dimension.md) a peer with one index for each class is faster in "
    if not lost:
        return f"{where}none of {number} comparisons."
    names = ", ".join(dict.fromkeys(lost))
    return f"{where}{len(lost)} of {number} comparisons ({'; '.join(sorted(winners))}), on {names}."


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
        "`recall=` (in bits of the rows, then in bytes of few, the best in floats) and with `nprobe=` (in bytes; a "
        "batch in groups). rabitqlib, ScaNN and IVFFlat have an index of the rows of other classes for "
        "each class: ten copies. Every index has the least setting that reaches the recall for the queries, and the "
        "faster of two numbers of lists. The last column is "
        "what `recall=` chooses by its calibration, with the recall that it reached. *codes*: codes of rabitqlib with "
        "7 or 9 bits, whose similarities are estimates; *raw*: codes of one bit, and floats; ours are exact.\n\n"
        "*mixed*: ten equal classes along a random direction; *alike*: ten clusters of k-means. `cora_features` are "
        "2,708 KS vectors of 1,433 numbers; `paragraphs-384` real texts, about 100,000 paragraphs of Python packages "
        "(tf-idf and SVD); `text-D-N` is generated, N rows with D dimensions. At the level avx2 ours has no AVX-512 "
        f"instructions, but rabitqlib does. The load was up to {load:.0f} on two cores, so that caches were cold and "
        "times are long; ratios are of one run. Not measured: memory, the spread over runs, more lists or classes "
        "than the tables name, and HNSW, IVFFlat and ScaNN where they have no figure.\n\n"
        "On Cora a third of our time compares bits, whose table look-ups keep the processor's ports busy; the rest is "
        "ranking of lists, ten rows of floats, and the call from Python. Bits that were prefetched farther ahead, or "
        "of the next list, saved nothing. Three pairs of rows are of an earlier core without bytes between bits "
        "and floats, which was slower: paragraphs-384-alike and text-768-100000-alike with avx512, "
        "and text-768-100000-mixed with avx2.\n\n"
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


def tanimoto() -> str:
    rows = []
    faster = []
    for cell in result("tanimoto")["sets"]:
        for mode, times in cell["milliseconds"].items():
            ours = times["cfe_faiss"]
            faster += [
                f"{way} for {mode} of {cell['data']} fingerprints"
                for way, taken in times.items()
                if taken < ours
            ]
            peers = (times.get(way) for way in ("NumPy", "RDKit", "FAISS"))
            shown = (f"{time:.3g} ({time / ours:.2g}x)" if time else "-" for time in peers)
            rows.append((f"{cell['data']}, {cell['bits']:,} bits", mode, f"{ours:.3g}", *shown))
    return (
        'Exact top-10 evidence of fingerprints by `metric="tanimoto"`, two classes, beside one product of matrices in '
        "NumPy, RDKit's `BulkTanimotoSimilarity` of bit vectors with the choice of the best in NumPy, and FAISS's "
        "`METRIC_Jaccard` with a selector. Processor time in ms for each query, in turns on one thread, among 10,000 "
        "rows or fewer; in brackets, how many times ours it takes: below 1x the other is faster. All return the same "
        "similarities. We keep 4 bytes a bit, and so read 32 times as much memory as RDKit: that decides single "
        "queries of long fingerprints. FAISS was not run for all rows, which would take minutes.\n\n"
        f"Faster than ours: {'; '.join(faster) or 'none'}.\n\n"
        + table(("fingerprints", "search", "cfe_faiss", "NumPy", "RDKit", "FAISS"), rows)
    )


def per_group() -> str:
    content = result("per_group")
    rows = []
    for cell in content["sets"]:
        times = cell["milliseconds"]
        ratios = (f"{time:.3g} ({time / times['plain']:.2g}x)" for time in times.values())
        rows.append((f"{cell['spread']:g}", *ratios))
    head = ("spread", *content["sets"][0]["milliseconds"])
    return (
        f"Exact top-{content['k']} search of {content['queries']} queries among {content['sets'][0]['rows']:,} chunks, "
        f"{content['chunks']} of each document, with at most m chunks of a document. Chunks lie around their document "
        "with a spread relative to that of the documents. Processor time in ms for each query, in turns on one thread; "
        "in brackets, how many times that of a plain search without a limit. The last column is the other way to the "
        "same ids: to sort all rows and drop the excess, for m = 2.\n\n" + table(head, rows)
    )


COSTS = {
    "conditions": ("top 10 of all rows, `exact` and `antiexact`", "without conditions"),
    "relabel": ("new classes of 200,000 vectors", "training and adding them"),
    "query": ("one query of a store of 100,000 rows", "`faiss.IndexFlatIP`"),
    "filter": ("the same with a filter", "FAISS with a selector of the rows"),
    "first filter": ("the first filter on a key", "a later one"),
    "upsert": ("100 rows put into a store in place of others", "making the store"),
    "new lists": ("queries that read new lists of a mapped index", "the same queries again"),
}


def costs() -> str:
    content = result("costs")
    rows = []
    for name, (ours, other) in COSTS.items():
        times = content[name]
        seconds = (f"{1000 * times[key]:,.1f} ms" for key in ("ours", "other"))
        rows.append((ours, other, *seconds, f"{times['ratio']:.2g}"))
    return (
        "What conditions, changes, filters and mapped shards cost beside the work that they save, or beside a query of "
        "FAISS: processor time on one thread. Compare the ratios; times depend on the machine.\n\n"
        + table(("ours", "beside", "ours takes", "the other takes", "ratio"), rows)
    )


def false_pairs() -> str:
    content = result("false_pairs")
    rows = []
    for name, cell in content["sets"].items():
        size = f"{cell['rows']:,} ({cell['groups']:,}) x {cell['d']}"
        rates = [
            (
                f"{100 * rate['mean']:.2f} ± {100 * rate['error']:.2f} %"
                + (f" ({rate['none']} without)" if rate["none"] else ""),
                percent(rate["held"]),
            )
            for rate in cell["rates"].values()
        ]
        rows.append((name, cell["kind"], size, f"{cell['new']:,}", *rates[0], *rates[1]))
    texts = ", ".join(f"{name} {number}" for name, number in content["texts of"].items())
    above = [
        f"{name} at {100 * float(nominal):g} % ({100 * rate['mean']:.2f} %)"
        for name, cell in content["sets"].items()
        for nominal, rate in cell["rates"].items()
        if rate["mean"] > float(nominal) + 3 * rate["error"]
    ]
    verdict = (
        f"Above nominal by more than three standard errors: {'; '.join(above)}."
        if above
        else "No mean is above nominal by more than three standard errors."
    )
    return (
        "The share of new rows with a false pair at the thresholds of `similarity_curve` for 1 and 5 %: a part of the "
        "groups gives the curve, the rows of the others are new. Real sets are split at random "
        f"{content['splits']} times, simulated ones drawn anew {content['draws']} times; mean and its standard error. "
        "`holds`: how often the 95 % interval of the threshold holds the threshold at which exactly that share of the "
        "new rows has a pair. For real sets the new rows are few, and their own noise counts against the interval. "
        f"{verdict}\n\n"
        "Where copies are more than the rate there is no threshold (`without`), which counts as no false pair. Where "
        "3 % of the known rows are near copies of a row of another group, the curve takes these pairs for false ones: "
        "its thresholds lie among the copies, no new row reaches them, and the interval does not hold. The rate is "
        "kept; but at 1 % at most 1 % of the known rows lie above the threshold, where 6 % are in such pairs.\n\n"
        + table(
            ("set", "kind", "known rows (groups)", "new", "at 1 %", "holds", "at 5 %", "holds"),
            rows,
        )
        + f"\n\nDocstrings are those of {texts}; their groups are modules, and texts that occur twice are left out. "
        "Rows of the other real sets are each a group, and pairs of different classes count."
    )


def watch_speed() -> str:
    content = result("watch_speed")
    rows = [
        (name, *(f"{1000 * seconds:.2f} ms" for seconds in quantiles.values()))
        for name, quantiles in content["seconds"].items()
    ]
    ratios = content["ratios of p99"]
    p99, medians = (
        [quantiles[q] for quantiles in content["seconds"].values()] for q in ("0.99", "0.5")
    )
    return (
        f"One row is added to a store of {content['rows']:,} x {content['d']} with {content['lists']} lists, "
        f"{content['turns']:,} times with `watch=` and, in turns, as many times after an `evidence` search in as many "
        f"lists ({content['nprobe']}, for a recall of .99) with the same k and threshold; one thread. `watch` measures "
        "this number when a tenth of the rows has changed, which is not in these times; `recall=` measures after every "
        "change. Wanted: the 99th percentile with `watch` is at most that of search and add. The ratio is "
        f"{p99[0] / p99[1]:.2f}, in fifths of the run {min(ratios):.2f} to {max(ratios):.2f}; of the medians "
        f"{medians[0] / medians[1]:.2f}. `watch` finds {content['recall']:.4f} of the exact ten rows. "
        "The slow turns of both are those in which a search renews what the index derives from its rows, after enough "
        "lists have changed; other processes shared the machine.\n\n"
        + table(("", "median", "p90", "p99"), rows)
    )


def decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def pivoted(rows: list[dict[str, Any]], line: str, columns: tuple[str, ...]) -> str:
    """Return a table of precisions: a line for each value of one field, a column for each value of the others.

    The best of each column is bold.
    """
    cells: dict[str, dict[str, float]] = {}
    for row in rows:
        column = ", ".join(percent(row[name]) if name == "rate" else row[name] for name in columns)
        cells.setdefault(column, {})[row[line]] = row["precision"]
    best = {column: max(values.values()) for column, values in cells.items()}
    names = dict.fromkeys(row[line] for row in rows)
    body = [
        (
            name,
            *(
                f"**{values[name]:.3f}**"
                if values[name] == best[column]
                else decimals(values[name])
                for column, values in cells.items()
            ),
        )
        for name in names
    ]
    return table((line, *cells), body)


def label_errors() -> str:
    content = result("label_errors")
    sets = content["sets"]
    precision_of: dict[str, dict[str, float]] = {}
    for row in sets:
        precision_of.setdefault(row["set"], {})[row["score"]] = row["precision"]
    lost = []
    for name, values in precision_of.items():
        winner = max(values, key=values.__getitem__)
        if winner != "ours":
            lost.append(f"{name} ({winner}, {values[winner]:.3f} against {values['ours']:.3f})")
    losses_text = f"**Another score is better on** {'; '.join(lost)}." if lost else ""
    chosen = sorted(content["candidates"], key=lambda row: -row["precision"])
    flagged = [
        (
            row["set"],
            row["way"],
            f"{row['planted']:,} of {row['rows']:,}",
            f"{row['found']:,}",
            f"{row['right']:,}",
            percent(row["suggested"]),
            "-" if row["without planted"] is None else f"{row['without planted']:,}",
        )
        for row in content["flagged"]
    ]
    people: dict[str, dict[str, list[float]]] = {}
    for row in content["people"]:
        people.setdefault(row["set"], {}).setdefault(row["way"], []).append(row["precision"])
    grouped = [
        (name, *(f"{sum(values) / len(values):.3f}" for values in ways.values()))
        for name, ways in people.items()
    ]
    return (
        "Labels are made wrong in data sets, and rows are put in the order of suspicion. The number is the precision "
        "at k for k planted errors: the share of planted errors among the k most suspicious rows. Labels that were "
        "wrong before count as right. Means over three kinds of errors (any other class; some classes into others, at "
        "different rates; into the next class where classes meet), 5 and 20 % of the labels, and two seeds. "
        f"cleanlab {content['cleanlab']} gets out-of-sample probabilities of 10 nearest neighbours and of a logistic "
        "regression, 5 folds.\n\n"
        + pivoted(sets, "score", ("set",))
        + f"\n\n{losses_text}\n\nBy kind and share of the errors, over all seven sets:\n\n"
        + pivoted(content["noise"], "score", ("noise", "rate"))
        + "\n\n## How many are wrong?\n\nOf 5 % planted errors of any class: rows below a score, and the rows that "
        "cleanlab's `find_label_issues` names. The last column is the number of rows below the score where nothing is "
        "planted: classes overlap in tables, so a score below 0.5 alone is no proof. The default, 0.25, was set by "
        "this table.\n\n"
        + table(
            (
                "set",
                "way",
                "planted",
                "named",
                "of them planted",
                "true label suggested",
                "named without planted errors",
            ),
            flagged,
        )
        + "\n\n## Groups\n\nEach row four times with a little noise, all four with one label, which is wrong for 5 % "
        "of the groups. Rows of one group support each other unless `groups=` keeps them apart:\n\n"
        + table(("set", *next(iter(people.values()))), grouped)
        + "\n\n## How the score was chosen\n\nOn other data: "
        + ", ".join(content["chosen on"])
        + ". Nearer votes count more, and each is divided by the root of the size of its class, k=50. A first choice "
        "divided by the size itself, on these sets without the table of mortgages, where it was poor: that table was "
        "one of the report then, and changed sides with the table of arrests. So the other six sets of the report "
        "were seen once before the final choice, and arrests was not.\n\n"
        + folded(
            "All candidates",
            table(
                ("candidate", "precision at k", "average precision"),
                [
                    (row["score"], decimals(row["precision"]), decimals(row["average precision"]))
                    for row in chosen
                ],
            ),
        )
    )


def verdicts() -> str:
    content = result("verdicts")
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


def link_vectors() -> str:
    content = result("link_vectors")
    columns = {
        "recall": "recall@10",
        "similarity": "similarity of ends",
        "weaker end": "of the less similar end",
        "agreement": "10 nearest agree",
    }
    tables = []
    for row in content["graphs"]:
        title = (
            f"## {row['graph']}: {row['links']:,} links, {row['features']:,} features, "
            f"{row['share']:.0%} predicted\n\n"
        )
        lines = [
            (kind, *(f"{values[name]:.3f}" for name in columns))
            for kind, values in row["kinds"].items()
        ]
        tables.append(title + table(("vector of a link", *columns.values()), lines))
    rival = "sum and absolute difference"
    ours = list(content["graphs"][0]["kinds"])[1]
    better = {
        name: sum(row["kinds"][ours][name] > row["kinds"][rival][name] for row in content["graphs"])
        for name in columns
    }
    return (
        "Which vector of an undirected link finds links with similar ends? The first line of each table is the goal, "
        "which no vector reaches: all pairs compared, each with the better of the two ways to match the ends. The "
        "second line is what `EvidenceFinder.from_links` takes. For each link: the 10 most similar links of another "
        "predicted class without a common end. *Recall*: share of them that are as similar as the 10 best. "
        "*Similarity*: mean KS score of the matched ends, and of the less similar ones. *10 nearest agree*: how often "
        "the majority of the 10 nearest links of either class has the class of the link. KS vectors are of the edges "
        "that the model (GCN, inner product) was trained on.\n\n"
        f"Both ends in the order of the main axis find more of these links than the sum and absolute difference on "
        f"{better['recall']} of {len(content['graphs'])} graphs; the 10 nearest agree more often on "
        f"{better['agreement']}. The sum and absolute difference is the same as the smaller and the larger value of "
        "each column: it does not know which differences belong together. The products of the difference do, with up "
        "to 300 more columns.\n\n" + "\n\n".join(tables)
    )


def calibration_links() -> str:
    content = result("calibration_links")
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
    "calibration_links": ("Direct tests of links", calibration_links),
    "costs": ("What conditions and changes cost", costs),
    "coverage": ("Intervals of the audits", coverage),
    "false_pairs": ("Rates of false pairs", false_pairs),
    "fuzz_files": ("Damaged files", fuzz_files),
    "fuzz_shards": ("Damaged shards", fuzz_shards),
    "high_dimension": ("High dimension", high_dimension),
    "interval_coverage": ("Intervals of the tests of a model", interval_coverage),
    "label_errors": ("Wrong labels", label_errors),
    "link_vectors": ("Vectors of links", link_vectors),
    "per_group": ("At most m results of a class", per_group),
    "recall_kept": ("Recall that is asked for", recall_kept),
    "tanimoto": ("Tanimoto similarity", tanimoto),
    "verdicts": ("Verdicts of a judge", verdicts),
    "watch_speed": ("Evidence when a row is added", watch_speed),
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
