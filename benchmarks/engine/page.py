"""The results page: where we lose, ours beside the best peer, and every peer at its best setting.

python -m benchmarks.engine.page RESULT.json
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import folded, table
from benchmarks.engine.sweep import WHOLE, best, rate

OURS = "ours"
PACKAGES = ("hnswlib", "scann", "glass", "usearch", "qdrant-client", "rabitqlib")
Row = tuple[str, ...]


def at(
    graph: dict[str, Any], mode: str, target: float, threads: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return each peer's best record that reaches a recall, fastest first; those timed in turns say so.

    With other ``threads`` than those it was tuned with, only what was timed in turns.
    """
    if threads is not None:
        timed = graph["paired"].get("threads", {}).get(threads, {}).get(str(target), {})
        return dict(
            sorted(
                ((name, {**row, "in_turns": True}) for name, row in timed.items()), key=_slowness
            )
        )
    rows = {}
    for peer in dict.fromkeys(record["peer"] for record in graph["records"]):
        in_turns = graph["paired"][mode].get(str(target), {}).get(peer)
        found = in_turns or best([r for r in graph["records"] if r["peer"] == peer], mode, target)
        if found:
            rows[peer] = {**found, "in_turns": in_turns is not None}
    return dict(sorted(rows.items(), key=_slowness))


def _slowness(row: tuple[str, dict[str, Any]]) -> float:
    return -rate(row[1])


def best_peer(result: dict[str, Any], rows: dict[str, dict[str, Any]]) -> str | None:
    return next((name for name in rows if not result["peers"][name]["ours"]), None)


def versus(
    result: dict[str, Any],
    graph: dict[str, Any],
    mode: str,
    target: float,
    threads: str | None = None,
) -> tuple[float | None, str | None]:
    """Return how many times faster ours is than the best peer, and that peer; None where one of them has no result."""
    rows = at(graph, mode, target, threads)
    peer = best_peer(result, rows)
    if OURS not in rows or peer is None:
        return None, peer
    return rate(rows[OURS]) / rate(rows[peer]), peer


def tails(
    result: dict[str, Any], graph: dict[str, Any], target: float
) -> tuple[float, float, str] | None:
    """Return the p99 of one query with ours, and with the peer of the best median, and that peer's name."""
    rows = at(graph, "single", target)
    peer = best_peer(result, rows)
    return (
        None
        if OURS not in rows or peer is None
        else (rows[OURS]["p99_us"], rows[peer]["p99_us"], peer)
    )


def speeds(result: dict[str, Any], mode: str) -> str:
    """Return a table of ours and the best peer on each data set, at each recall, with their files and builds."""
    rows = []
    for graph in result["graphs"]:
        for target in result["targets"]:
            found = at(graph, mode, target)
            ours, peer = found.get(OURS), best_peer(result, found)
            theirs = found[peer] if peer else None
            rows.append(
                (
                    graph["graph"],
                    f"{graph['nodes']:,} x {graph['dimension']}",
                    f"{graph['classes']:,}",
                    str(target),
                    f"{rate(ours):,.0f}" if ours else "not reached",
                    f"{rate(theirs):,.0f} ({peer})" if theirs else "none reaches it",
                    f"{rate(ours) / rate(theirs):.2f}x" if ours and theirs else "",
                    " / ".join(megabytes(row["file_bytes"]) for row in (ours, theirs) if row),
                    " / ".join(f"{row['build_seconds']:,.2f}" for row in (ours, theirs) if row),
                )
            )
    head = ("data set", "vectors", "groups", "recall >=", "ours, q/s", "best peer, q/s", "ratio")
    return table((*head, "file, MB", "build, s"), rows)


def faster(rows: dict[str, dict[str, Any]]) -> str:
    """Return the names of those that are faster than ours, and how much."""
    ours = rows[OURS]
    return "; ".join(  # names have commas
        f"{name} {rate(row) / rate(ours):.2f}x"
        for name, row in rows.items()
        if rate(row) > rate(ours)
    )


def losses(result: dict[str, Any]) -> list[str]:
    """Return a sentence for each comparison that another index wins."""
    found = []
    for graph in result["graphs"]:
        kinds: list[tuple[str, str, str | None]] = [
            ("all", "all nodes", None),
            ("single", "one query, median", None),
        ]
        kinds += [
            ("all", f"all nodes, {threads} threads", threads)
            for threads in graph["paired"].get("threads", {})
        ]
        for mode, what, threads in kinds:
            for target in result["targets"]:
                rows = at(graph, mode, target, threads)
                where = f"{graph['graph']}, {what}, recall >= {target}"
                if OURS not in rows:
                    found.append(f"{where}: ours does not reach it in its budget")
                elif names := faster(rows):
                    found.append(f"{where}: faster than ours are {names}")
        for target in result["targets"]:
            if (told := tails(result, graph, target)) and told[0] > told[1]:
                where = f"{graph['graph']}, one query, p99, recall >= {target}"
                found.append(f"{where}: ours {told[0]:,.0f} us, {told[2]} {told[1]:,.0f} us")
        build = graph["paired"]["build"]
        if build and build["seconds"]["ours"] > build["seconds"]["IVFFlat"]:
            ratio = build["seconds"]["ours"] / build["seconds"]["IVFFlat"]
            found.append(
                f"{graph['graph']}, train + add: ours takes {ratio:.2f}x as long as stock IVFFlat"
            )
    return found


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
        f"{graph['nodes']:,} x {graph['dimension']}, {graph['classes']} classes, the largest with "
        f"{graph['largest_class']:.0%} of the nodes; {graph['source']}; sha256 {graph['sha256']}; recall against exact "
        f"results of {graph['queries_with_exact_results']:,} nodes; {graph['budget_seconds']:,.3g} s for each peer"
        + (
            f", {graph['builds']} build{'s' * (graph['builds'] > 1)} of each."
            if graph.get("builds")
            else "."
        ),
        f"![{graph['graph']}]({picture})",
    ]
    threads = list(graph["paired"].get("threads", {}))
    head = ("index", "built with", "setting", "recall", "AS / exact", "short rows")
    tail = ("speed / ours", "build, s", "file, MB", "memory, MB", "in turns")
    for mode, columns in (
        ("all", ("queries/s", "queries timed")),
        ("single", ("p50, us", "p99, us")),
    ):
        for target in result["targets"]:
            rows = at(graph, mode, target)
            title = "All nodes" if mode == "all" else "One query at a time"
            parts.append(f"**{title}, recall >= {target}**")
            if rows:
                parts.append(
                    table(
                        (*head, *columns, *tail),
                        [peer_row(*row, rows.get(OURS)) for row in rows.items()],
                    )
                )
            for number in threads if mode == "all" else ():
                with_more = at(graph, mode, target, number).items()
                speeds = ", ".join(f"{name} {row['per_second']:,.0f}" for name, row in with_more)
                parts.append(f"With {number} threads, queries/s: {speeds}.")
            short = []
            for peer in result["peers"]:
                mine = [
                    r["recall"] for r in graph["records"] if (r["peer"], r["mode"]) == (peer, mode)
                ]
                if peer not in rows:
                    short.append(
                        f"{peer} ({f'best recall {max(mine):.3f}' if mine else 'nothing in its budget'})"
                    )
            if short:
                parts.append(f"Did not reach it: {', '.join(short)}.")
    if graph["wrong"]:
        parts.append(
            f"Not complete: {', '.join(f'{name} ({wrong})' for name, wrong in graph['wrong'].items())}."
        )
    return folded(graph["graph"], "\n\n".join(parts))


def machine(result: dict[str, Any]) -> str:
    """Return the processor and the versions of a run."""
    where = result["environment"]
    known = {"faiss-cpu": where["packages"]["faiss-cpu"], "NumPy": where["packages"]["numpy"]}
    known |= {name: where[name] for name in PACKAGES if where.get(name)}
    versions = ", ".join(f"{name} {version}" for name, version in known.items())
    return f"{', '.join([where['processor'], *where.get('instruction_sets', ())])}, {versions}"


def shared(result: dict[str, Any]) -> str:
    """Return a warning if the machine did other work during the run."""
    if not result["environment"].get("shared"):
        return ""
    return (
        "**The machine did other work during this run.** The numbers show that the benchmark works, and only roughly "
        "where each index stands."
    )


def write(result: dict[str, Any], path: Path, pictures: dict[str, Path]) -> Path:
    """Write the page of a result beside its JSON, and return where it is."""
    page = path.with_suffix(".md")
    notes = [
        f"- {name}: {about['notes']}" for name, about in result["peers"].items() if about["notes"]
    ]
    notes += [f"- left out: {name}: {reason}" for name, reason in result["left_out"].items()]
    lost = losses(result)
    threads = result["environment"]["threads"]
    first, *more = threads if isinstance(threads, list) else [threads]
    parts = [
        f"# The engine against its peers: {result['form']} run",
        shared(result),
        "## Where a peer beats us",
        "\n".join(f"- {sentence}" for sentence in lost) or "Nowhere in this run.",
        "## All nodes, one thread: ours / best peer",
        speeds(result, "all"),
        "## One query at a time: ours / best peer",
        speeds(result, "single"),
        "## How it was measured",
        f"`python -m benchmarks.engine.run {result['form']}`, {machine(result)}. All numbers are in "
        f"[{path.name}]({path.name}).",
        f"Top {result['k']} evidence; recall counts ties as found. Each index is built with all of its grid; "
        "its search parameter is raised until the recall is reached, and what lies between is divided down to a tenth, "
        "within a budget of time, in which the first build does not count, and a search that has to be of all nodes, "
        f"as ours has, counts up to {WHOLE:g} times less. Settings are found with {first} thread{'s' * (first > 1)}, "
        "over all nodes where that fits the budget, else over a sample in batches of one class (column *queries timed*)"
        + (f"; with {', '.join(map(str, more))} threads the best of them are timed" if more else "")
        + "; single queries on one thread, at least 2,000 in random order. "
        "Peers get the queries of a class at once, those near each other one after another, with selectors made "
        "beforehand. The best settings of ours, of the best peers and of all that come near are then timed in turns, "
        "medians. All nodes with one thread are timed by its processor time, which other users of the machine do not "
        "lengthen; all else by the clock. OpenMP threads sleep while they wait, since the peers are slower on a shared "
        "machine if they spin. "
        "*File* is the index on disk, *memory* what the process grew by while building it, with two threads.",
        folded("The peers", "\n".join(notes)),
        "## Each data set",
        *(
            section(result, graph, str(pictures[graph["graph"]].relative_to(path.parent)))
            for graph in result["graphs"]
        ),
    ]
    page.write_text("\n\n".join(part for part in parts if part) + "\n")
    return page


def main(write: Callable[[dict[str, Any], Path, dict[str, Path]], Path] = write) -> None:
    from benchmarks.engine import plots

    path = Path(sys.argv[1])
    result = json.loads(path.read_text())
    print(f"written to {write(result, path, plots.draw(result, path.with_suffix('')))}")


if __name__ == "__main__":
    main()
