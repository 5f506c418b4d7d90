"""Pages of tuned peers that were timed in turns: ours against the best, with memory and time to build.

That of :mod:`benchmarks.engine.growth` is here; :mod:`benchmarks.exclusion.correlation` has the same tables.
"""

from statistics import median
from typing import Any

from benchmarks.common import RESULTS, folded, result, table

TITLE = "One query, from 30,000 to millions of rows"
COMMAND = "python -m benchmarks.engine.growth"
CHART = "growth.png"
Record = dict[str, Any]
FAMILIES = {  # colour and beginnings of the names
    "cfe_faiss": ("#0072B2", ("ours",)),
    "rabitqlib": ("#D55E00", ("rabitqlib",)),
    "FAISS IVF": ("#009E73", ("IVF",)),
    "FAISS HNSW": ("#CC79A7", ("HNSW",)),
    "ScaNN": ("#E69F00", ("ScaNN",)),
}


def fastest(records: dict[str, Record], family: str) -> tuple[str, Record] | None:
    """Return the name and the record of the fastest index of a family, or None."""
    found = {n: r for n, r in records.items() if n.startswith(FAMILIES[family][1])}
    if not found:
        return None
    name = min(found, key=lambda n: float(found[n]["seconds"]))
    return name, found[name]


def compared(content: dict[str, Any]) -> list[tuple[Record, float, Record, str, Record]]:
    """Return data set, recall, our record, and the name and the record of the best peer, of each comparison."""
    rows = []
    for cell in content["measured"]:
        for at in cell["cells"]:
            ours = fastest(at["records"], "cfe_faiss")
            rivals = [fastest(at["records"], family) for family in list(FAMILIES)[1:]]
            if ours:
                peer, theirs = min(filter(None, rivals), key=lambda pair: float(pair[1]["seconds"]))
                rows.append((cell, at["target"], ours[1], peer, theirs))
    return rows


def named(cell: Record) -> tuple[str, str]:
    return str(cell["data"]), str(cell["level"])


def times_as_fast(ours: Record, theirs: Record) -> float:
    return float(theirs["seconds"] / ours["seconds"])


def in_short(content: dict[str, Any]) -> str:
    """Return a sentence on all comparisons."""
    rows = compared(content)
    if not rows:
        return "Nothing was measured yet."
    ratios = [times_as_fast(ours, theirs) for _, _, ours, _, theirs in rows]
    first = sum(ratio >= 1 for ratio in ratios)
    return (
        f"cfe_faiss is first in {first} of {len(ratios)} comparisons with the best of all peers, {median(ratios):.1f} "
        f"times as fast in the median ({min(ratios):.1f} to {max(ratios):.1f})."
    )


def lost(name: str, title: str) -> str:
    """Return a sentence on the comparisons of a result that a peer wins, for the page of all measurements."""
    rows = compared(result(name))
    winners = [peer for _, _, ours, peer, theirs in rows if theirs["seconds"] < ours["seconds"]]
    names = f" ({'; '.join(sorted(set(winners)))})" if winners else ""
    return (
        f"[{title}](results/{name}.md): a peer is faster in {len(winners)} of {len(rows)}{names}."
    )


def losses(content: dict[str, Any]) -> str:
    """Return the comparisons that a peer wins: time, memory of one index, and time to build one."""
    rows = compared(content)
    slower = [
        f"{' with '.join(named(cell))} at {target}: {peer} is {1 / times_as_fast(ours, theirs):.2f} times as fast"
        for cell, target, ours, peer, theirs in rows
        if theirs["seconds"] < ours["seconds"]
    ]
    more, longer = (
        [ours[key] / theirs[key] for *_, ours, _, theirs in rows if theirs[key] > 0]
        for key in ("memory_bytes", "build_seconds")
    )
    return (
        f"**Where we lose.** {'; '.join(slower) or 'No peer is faster here'}. Our index takes {median(more):.1f} times "
        f"the memory of the fastest peer's index of one class ({min(more):.1f} to {max(more):.1f}), and "
        f"{median(longer):.1f} times its time to build ({min(longer):.1f} to {max(longer):.1f}); *others* needs such "
        "an index for each class, and ours is one for all."
    )


def speeds(content: dict[str, Any]) -> str:
    """Return a table of ours and the best peer, with memory and time to build."""
    rows = [
        (
            *named(cell),
            target,
            f"**{times_as_fast(ours, theirs):.2f}**",
            us(ours),
            f"{us(theirs)} ({peer})",
            f"{megabytes(ours)} / {megabytes(theirs)}",
            f"{ours['build_seconds']:,.1f} / {theirs['build_seconds']:,.1f}",
        )
        for cell, target, ours, peer, theirs in compared(content)
    ]
    head = (
        "data",
        "level",
        "recall",
        "times as fast",
        "ours, us",
        "best peer, us",
        "memory, MB",
        "build, s",
    )
    return table(head, rows)


def us(record: Record) -> str:
    return f"{1e6 * record['seconds']:.1f}"


def megabytes(record: Record) -> str:
    return f"{record['memory_bytes'] / 1e6:,.0f}"


def details(content: dict[str, Any]) -> str:
    """Return a folded table of every index at its best setting."""
    rows = []
    for cell in content["measured"]:
        for at in cell["cells"]:
            for name, record in sorted(at["records"].items(), key=lambda pair: pair[1]["seconds"]):
                built = ", ".join(f"{key} {value}" for key, value in record["parameters"].items())
                build = f"{record['build_seconds']:,.1f}"
                reached = f"{record['recall']:.4f}"
                about = (name, us(record), reached, built, record["setting"])
                rows.append((*named(cell), at["target"], *about, megabytes(record), build))
    head = (
        "data",
        "level",
        "recall",
        "index",
        "us",
        "reached",
        "built with",
        "setting",
        "MB",
        "build, s",
    )
    return folded("Every index at its best setting", table(head, rows))


def trainer(content: dict[str, Any]) -> str:
    """Return a sentence on superkmeans in place of FAISS's k-means, as trainer of stock IVF."""
    records = [at["records"] for cell in content["measured"] for at in cell["cells"]]
    pairs = [
        (of["IVF by superkmeans, others"], of["IVF, others"])
        for of in records
        if "IVF by superkmeans, others" in of
    ]
    query, build = (
        median(ours[key] / faiss[key] for ours, faiss in pairs)
        for key in ("seconds", "build_seconds")
    )
    return (
        f"superkmeans as trainer of stock IVF: {build:.2f} times the build of FAISS's k-means (5 iterations, default "
        f"settings of superkmeans) and {query:.2f} times its query, medians of {len(pairs)} comparisons."
    )


def how(content: dict[str, Any]) -> str:
    """Return how the figures were measured, for both pages."""
    load = max(cell["load"] for cell in content["measured"])
    return (
        "One thread; median time of a query by the clock, in nine rounds of turns with ours; 200 queries of each "
        "class that is asked (two, or one of the largest sets). Each index has the least setting that reaches the "
        "recall for these queries, and the fastest of its parameters, so every recall is slightly flattered. "
        "*Selector*: one index of all rows. *Others*, rabitqlib, ScaNN: an index by hand over the rows that the class"
        " may find; memory and time are of one of them. *raw*: rabitqlib's codes of one bit, and floats; *codes*: 7 "
        "or 9 bits, whose similarities are estimates. Ours is the faster of `recall=` and `nprobe=`. Memory is what "
        "the index adds to the process; build is processor time. For ours both include what `prepare` makes: the "
        "calibration of "
        f"`recall=`, and blocks for batches. Other programs shared the two cores (load up to {load:.0f}), so times are "
        "long; compare ratios."
    )


def plain(axis: Any, names: dict[float, str]) -> None:
    """Set the names of ticks of a logarithmic axis."""
    axis.set_ticks(list(names), list(names.values()))
    axis.set_ticks([], minor=True)


def curve(axes: Any, points: list[tuple[float, float]], family: str, colour: str) -> None:
    """Draw a family's line of points, if there are any."""
    axes.grid(color="#D0D7DE")
    axes.spines[["top", "right"]].set_visible(False)
    if points:
        places, times = zip(*sorted(points), strict=True)
        axes.plot(places, times, "o-", color=colour, label=family)


def draw(content: dict[str, Any]) -> None:
    """Draw time against rows: a row of panels for each recall, a column for dimension and classes."""
    from matplotlib.figure import Figure

    kinds = sorted(
        {
            (cell["dimension"], cell["data"].rpartition("-")[2])
            for cell in content["measured"]
            if cell["data"].startswith(("text-64", "text-384"))
        },
        key=lambda kind: (kind[0], kind[1] == "alike"),
    )
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = figure.subplots(2, len(kinds), sharex=True, sharey=True, squeeze=False)
    for row, target in zip(panels, (0.95, 0.99), strict=True):
        for axes, (d, rule) in zip(row, kinds, strict=True):
            for family, (colour, _) in FAMILIES.items():
                points = []
                for cell in content["measured"]:
                    if named(cell) == (f"text-{d}-{cell['rows']}-{rule}", "avx512"):
                        (at,) = (at for at in cell["cells"] if at["target"] == target)
                        found = fastest(at["records"], family)
                        points += [(cell["rows"], 1e6 * found[1]["seconds"])] if found else []
                curve(axes, points, family, colour)
            axes.set_title(f"{d} dimensions, {rule}, recall {target}", fontsize=9)
            axes.set(xscale="log", yscale="log")
            plain(axes.xaxis, {3e4: "30,000", 3e5: "300,000", 3e6: "3 million"})
            plain(axes.yaxis, {time: f"{time:g}" for time in (10, 20, 50, 100, 200, 500, 1000)})
    panels[0][0].legend(fontsize="small")
    figure.supxlabel("rows")
    figure.supylabel("one query, microseconds")
    figure.savefig(RESULTS / CHART, dpi=120, metadata={"Software": None})


def page(content: dict[str, Any]) -> str:
    cells = sorted(content["measured"], key=lambda c: (c["dimension"], c["rows"], named(c)))
    content = content | {"measured": cells}
    parts: dict[bool, dict[str, Any]] = {
        of_text: {
            "measured": [c for c in content["measured"] if c["data"].startswith("text") == of_text]
        }
        for of_text in (True, False)
    }
    missing: dict[str, list[str]] = {}
    for cell in content["measured"]:
        missing.setdefault(cell["left out"], []).append(" with ".join(named(cell)))
    left_out = [f"{', '.join(names)}: {text}" for text, names in missing.items() if text]
    return "\n\n".join(
        [
            f"![Time of one query against the number of rows]({CHART})",
            f"The ten nearest rows of another class for one query. {in_short(parts[True])}",
            losses(parts[True]),
            speeds(parts[True]),
            "`text-D-N` is generated: N rows with D dimensions, like embeddings of texts. *mixed*: ten equal classes "
            "along a random direction; *alike*: ten clusters of k-means, so that near rows are of the query's class. "
            "At the level avx2 ours and FAISS have no AVX-512 instructions, but rabitqlib does.",
            "## Few dimensions",
            in_short(parts[False]),
            losses(parts[False]),
            speeds(parts[False]),
            "Bail is a real table; the others are generated. pyglass, the best "
            "peer of some [other runs](engine_tables.md), is on no package index; searches of all rows are there.",
            "## How it was measured",
            how(content),
            trainer(content),
            f"Not measured, or otherwise: {'. '.join(left_out)}. Not measured: text-384-3000000-alike, and millions of "
            "rows with avx2.",
            details(content),
        ]
    )
