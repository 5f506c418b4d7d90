"""The page of :mod:`benchmarks.engine.high`."""

from typing import Any

from benchmarks.common import folded, result, table

TITLE = "High dimension"
COMMAND = "python -m benchmarks.engine.high"


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


def megabytes(*records: dict[str, Any]) -> str:
    """Return the memory of indexes, where it was measured."""
    known = [record["memory_bytes"] for record in records if "memory_bytes" in record]
    return " / ".join(f"{held / 1e6:,.0f}" for held in known)


def page(content: dict[str, Any]) -> str:
    rows, builds = [], []
    for found in content["measured"]:
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
                    megabytes(mine, records[best]),
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
    load = max(found["load"] for found in content["measured"])
    return (
        "The top-10 evidence of one query at a time, by the clock, and of a class's queries (1,000; 271 on Cora), by "
        "processor time of one thread: microseconds a query, medians, all in turns. Ours is one index of all rows, "
        "searched with `recall=` (from 96 dimensions on, with 100,000 rows from 64, in bits of the rows, "
        "then in bytes of few, the best in floats) "
        "and with `nprobe=` (in bytes; a "
        "batch in groups). rabitqlib, ScaNN and IVFFlat have an index of the rows of other classes for "
        "each class: ten copies. Every index has the least setting that reaches the recall for the queries, and the "
        "fastest of the numbers of lists that were tried (sqrt(n), of some also 2 sqrt(n)). The last column is "
        "what `recall=` chooses by its calibration, with the recall that it reached. *codes*: codes of rabitqlib with "
        "7 or 9 bits, whose similarities are estimates; *raw*: codes of one bit, and floats; ours are exact.\n\n"
        "*mixed*: ten equal classes along a random direction; *alike*: ten clusters of k-means. `cora_features` are "
        "2,708 KS vectors of 1,433 numbers; `paragraphs-384` real texts, about 100,000 paragraphs of Python packages "
        "(tf-idf and SVD); `text-D-N` is generated, N rows with D dimensions. At the level avx2 ours has no AVX-512 "
        f"instructions, but rabitqlib does. The load was up to {load:.0f} on two cores, so that caches were cold and "
        "times are long; ratios are of one run. Memory is what a build added to the process: of ours, with what "
        "`prepare` makes, and of the best peer's index of one class. Not measured: memory where there is none, the "
        "spread over runs, more lists or classes than the tables name, and HNSW, IVFFlat and ScaNN where they have no "
        "figure.\n\n"
        "By a profile of a batch on Cora with AVX2, a fifth of our time compares bits, whose table look-ups keep the "
        "processor's ports busy. Ten rows of floats take 15 %, bytes 13 %, both as memory allows, "
        "ranking of lists 11 %. Queries of a batch share the ranking, and queries of one list follow each other, as "
        "they read the same rows; with shorter chains of sums this saved 13 % with AVX-512, and 5 % with AVX2, where "
        "ranking is bound by multiplications. "
        "Rows and bits that were prefetched farther ahead, into the second cache only, or not at all, saved "
        "nothing.\n\n"
        + table(
            (
                *("data", "level", "search", "recall", "best peer / ours", "ours, us"),
                *("best peer, us", "others, us", "memory, MB", "calibrated, us (recall)"),
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
