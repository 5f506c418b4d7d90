"""The results page: what was wanted and whether it was met, where we lose, and every peer at its best setting.

python -m benchmarks.engine.page RESULT.json
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.engine.sweep import best, rate

OURS = "ours"
FULL = 1_569_960
# Wanted of all-nodes throughput, as a multiple of the best peer's: graph, recall, multiple.
FLOORS = {
    ("bail", 0.95): 4.0,
    ("bail", 0.99): 3.0,
    ("facebook", 0.95): 2.0,
    ("facebook", 0.99): 1.3,
    **{(f"amazon-{level}-{FULL}", 0.95): 5.0 for level in ("low", "high")},
    **{(f"amazon-{level}-{FULL}", 0.99): 4.0 for level in ("low", "high")},
}
FULL_SECONDS = 60.0
Row = tuple[str, ...]


def at(graph: dict[str, Any], mode: str, target: float) -> dict[str, dict[str, Any]]:
    """Return each peer's best record that reaches a recall, fastest first; those timed in turns say so."""
    rows = {}
    for peer in dict.fromkeys(record["peer"] for record in graph["records"]):
        in_turns = graph["paired"][mode].get(str(target), {}).get(peer)
        found = in_turns or best([r for r in graph["records"] if r["peer"] == peer], mode, target)
        if found:
            rows[peer] = {**found, "in_turns": in_turns is not None}
    return dict(sorted(rows.items(), key=lambda row: -rate(row[1])))


def versus(result: dict[str, Any], graph: dict[str, Any], mode: str, target: float) -> tuple[float | None, str | None]:
    """Return how many times faster ours is than the best peer, and that peer; None where one of them has no result."""
    rows = at(graph, mode, target)
    peer = next((name for name in rows if not result["peers"][name]["ours"]), None)
    if OURS not in rows or peer is None:
        return None, peer
    return rate(rows[OURS]) / rate(rows[peer]), peer


def verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "**not met**"


def wanted(result: dict[str, Any]) -> list[Row]:
    """Return rows of: what, graph, wanted, measured, best peer, verdict."""
    rows = []
    for mode, what in (("all", "all nodes"), ("single", "one query, median")):
        for target in result["targets"]:
            for graph in result["graphs"]:
                if mode == "single":
                    floor = 1.0 if target == min(result["targets"]) else None
                else:
                    floor = FLOORS.get((graph["graph"], target))
                ratio, peer = versus(result, graph, mode, target)
                reached = OURS in at(graph, mode, target)
                met = None if floor is None else reached and (ratio is None or ratio >= floor)
                told = f"{ratio:.2f}x" if ratio else "no peer reaches it" if reached else "ours does not reach it"
                rows.append(
                    (
                        f"{what}, recall >= {target}",
                        graph["graph"],
                        f"{floor:g}x" if floor else "",
                        told,
                        peer or "",
                        verdict(met),
                    )
                )
    for graph in result["graphs"]:
        ours = at(graph, "all", 0.95).get(OURS)
        if graph["nodes"] == FULL and ours:
            met = ours["seconds"] < FULL_SECONDS
            took = f"{ours['seconds']:.1f} s"
            rows.append(("all nodes, built", graph["graph"], f"{FULL_SECONDS:.0f} s", took, "", verdict(met)))
        build = graph["paired"]["build"]
        if build:
            ratio = build["seconds"]["IVFFlat"] / build["seconds"]["ours"]
            lists = f"IVFFlat, {build['parameters']['nlist']:,} lists"
            rows.append(("train + add", graph["graph"], "1x", f"{ratio:.2f}x", lists, verdict(ratio >= 1)))
    return rows


def losses(result: dict[str, Any]) -> list[str]:
    """Return a sentence for each comparison that another index wins."""
    found = []
    for graph in result["graphs"]:
        for mode, what in (("all", "all nodes"), ("single", "one query")):
            for target in result["targets"]:
                rows = at(graph, mode, target)
                where = f"{graph['graph']}, {what}, recall >= {target}"
                if OURS not in rows:
                    found.append(f"{where}: ours does not reach it in its budget")
                    continue
                faster = [
                    f"{name} {rate(row) / rate(rows[OURS]):.2f}x"
                    for name, row in rows.items()
                    if rate(row) > rate(rows[OURS])
                ]
                if faster:
                    found.append(f"{where}: faster than ours are {', '.join(faster)}")
        build = graph["paired"]["build"]
        if build and build["seconds"]["ours"] > build["seconds"]["IVFFlat"]:
            ratio = build["seconds"]["ours"] / build["seconds"]["IVFFlat"]
            found.append(f"{graph['graph']}, train + add: ours takes {ratio:.2f}x as long as stock IVFFlat")
    return found


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *map(list, rows)])


def megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.1f}"


def peer_row(name: str, row: dict[str, Any], ours: dict[str, Any] | None) -> Row:
    built = ", ".join(f"{key} {value:,}" for key, value in row["parameters"].items())
    if row["mode"] == "all":
        speed: Row = (f"{row['per_second']:,.0f}", f"{row['queries']:,}")
    else:
        speed = (f"{row['p50_us']:,.0f}", f"{row['p99_us']:,.0f}")
    return (
        name,
        built,
        str(row["setting"]),
        f"{row['recall']:.4f}",
        f"{row['as_ratio']:.4f}",
        f"{row['short_rows']:.4f}",
        *speed,
        f"{rate(row) / rate(ours):.2f}x" if ours else "",
        f"{row['build_seconds']:,.2f}",
        megabytes(row["file_bytes"]),
        megabytes(row["memory_bytes"]),
        "yes" if row["in_turns"] else "no",
    )


def section(result: dict[str, Any], graph: dict[str, Any], picture: str) -> str:
    """Return one graph's part of the page."""
    parts = [
        f"## {graph['graph']}",
        f"{graph['nodes']:,} x {graph['dimension']}, {graph['classes']} classes, the largest with "
        f"{graph['largest_class']:.0%} of the nodes; {graph['source']}; sha256 {graph['sha256']}; recall against exact "
        f"results of {graph['queries_with_exact_results']:,} nodes; {graph['budget_seconds']:,.0f} s for each peer.",
        f"![{graph['graph']}]({picture})",
    ]
    head = ("index", "built with", "setting", "recall", "AS / exact", "short rows")
    tail = ("speed / ours", "build, s", "file, MB", "memory, MB", "in turns")
    for mode, columns in (("all", ("queries/s", "queries timed")), ("single", ("p50, us", "p99, us"))):
        for target in result["targets"]:
            rows = at(graph, mode, target)
            title = "All nodes" if mode == "all" else "One query at a time"
            parts.append(f"**{title}, recall >= {target}**")
            if rows:
                parts.append(table((*head, *columns, *tail), [peer_row(*row, rows.get(OURS)) for row in rows.items()]))
            short = []
            for peer in result["peers"]:
                mine = [r["recall"] for r in graph["records"] if (r["peer"], r["mode"]) == (peer, mode)]
                if peer not in rows:
                    short.append(f"{peer} ({f'best recall {max(mine):.3f}' if mine else 'nothing in its budget'})")
            if short:
                parts.append(f"Did not reach it: {', '.join(short)}.")
    if graph["wrong"]:
        parts.append(f"Not complete: {', '.join(f'{name} ({wrong})' for name, wrong in graph['wrong'].items())}.")
    return "\n\n".join(parts)


def write(result: dict[str, Any], path: Path, pictures: dict[str, Path]) -> Path:
    """Write the page of a result beside its JSON, and return where it is."""
    where, page = result["environment"], path.with_suffix(".md")
    notes = [f"- {name}: {about['notes']}" for name, about in result["peers"].items() if about["notes"]]
    notes += [f"- left out: {name}: {reason}" for name, reason in result["left_out"].items()]
    lost = losses(result)
    parts = [
        f"# The engine against its peers: {result['form']} run",
        f"`python -m benchmarks.engine.run {result['form']}`, {where['processor']}, faiss-cpu "
        f"{where['packages']['faiss-cpu']}, NumPy {where['packages']['numpy']}, hnswlib {where['hnswlib']}. All "
        f"numbers are in [{path.name}]({path.name}).",
        f"Top {result['k']} evidence; recall counts ties as found. Each index is built with all of its grid; "
        "its search parameter is raised until the recall is reached, and what lies between is divided down to a tenth, "
        f"within a budget of time. Throughput is with {where['threads']} threads, over all nodes where that fits the "
        "budget, else over a sample in batches of one class (column *queries timed*); single queries on one thread. "
        "Peers get the queries of a class at once, in the order of their lists, with selectors made beforehand. The "
        "best settings of ours, of the best peer and of all that come near are then timed in turns, medians. OpenMP "
        "threads sleep while they wait, since the peers are slower on a shared machine if they spin. *File* is the "
        "index on disk, *memory* what the process grew by while building it.",
        "\n".join(notes),
        "## What was wanted",
        table(("what", "graph", "wanted", "ours / best peer", "best peer", ""), wanted(result)),
        "## Where we lose",
        "\n".join(f"- {sentence}" for sentence in lost) or "Nowhere in this run.",
        *(section(result, graph, str(pictures[graph["graph"]].relative_to(path.parent))) for graph in result["graphs"]),
    ]
    page.write_text("\n\n".join(part for part in parts if part) + "\n")
    return page


def main() -> None:
    from benchmarks.engine import plots

    path = Path(sys.argv[1])
    result = json.loads(path.read_text())
    print(f"written to {write(result, path, plots.draw(result, path.with_suffix('')))}")


if __name__ == "__main__":
    main()
