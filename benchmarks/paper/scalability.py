"""Figure 5 b: query time and index construction against the number of test nodes, up to the Amazon shape.

AmazonProducts where its files are there, else a synthetic graph of its shape, whose classes stand for a model's
predictions. The largest size holds every node; a quarter of them is V_test of our split. Takes long and up to 12 GB,
and is therefore left out of ``run.py`` unless it gets ``--amazon``. How the times grow is fitted in ``complexity.py``.
"""

from functools import cache
from typing import Any

import numpy as np
from efficiency import PAPER_SECONDS, VARIANTS, timed
from figures import finish, lines, panels
from setting import ALPHA, LAYERS, Bench, titled
from sources import amazon
from verdict import SHAPE, Case, Claim, cell, markdown, rows_of

import cfe_faiss as cfe

NAME = "scalability"
NODES = 1_569_960
SHARES = (1 / 64, 1 / 16, 1 / 4, 1)
PART = " **Only a part: the larger sizes, up to all nodes, were not run for this page.**"
K, QUERIES = 10, 50
# Times of seeds differ little and the full size takes long: one seed there, all of them up to here.
ALL_SEEDS_UP_TO = 30_000


@cache
def embedded(bench: Bench) -> tuple[Any, Any, str]:
    if bench.amazon is not None:
        X, labels = (
            np.load(bench.amazon / f"{name}.npy", mmap_mode="r") for name in ("X", "labels")
        )
        return X, labels, SHAPE
    graph, source = amazon(bench.quick)
    return (
        cfe.ks_vectors(graph.x, graph.edges, num_layers=LAYERS, alpha=ALPHA),
        graph.labels,
        source,
    )


def measure(bench: Bench) -> dict[str, Any]:
    total = 2000 if bench.quick else NODES
    rows = []
    for share in (0.5, 1) if bench.quick else SHARES:
        n = int(total * share)
        for seed in bench.seeds if n <= ALL_SEEDS_UP_TO else bench.seeds[:1]:
            settings = {"k": K, "queries": QUERIES, "nodes": n}
            rows += bench.part(NAME, f"{n}-{seed}", settings, lambda n=n, s=seed: one(bench, n, s))
    return {"k": K, "queries": QUERIES, "rows": rows}


def one(bench: Bench, n: int, seed: int) -> list[dict[str, Any]]:
    X, labels, source = embedded(bench)
    nodes = np.sort(np.random.default_rng(seed).permutation(len(X))[:n])
    return [
        {"source": source, "seed": seed, "nodes": n, **row}
        for variant in VARIANTS  # one index in memory at a time
        for row in timed(X[nodes], labels[nodes], seed, [K], QUERIES, [variant])
    ]


def series(result: dict[str, Any], index: str, key: str) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for row in rows_of(result, index=index):
        value = row[key][0] if key == "query_seconds" else row[key]
        found.setdefault(row["nodes"], []).append(value)
    return found


def table(result: dict[str, Any]) -> str:
    rows = [
        {
            "nodes": f"{n:,}",
            "index": index,
            "one query, us": cell([1e6 * value for value in times], 0),
            "build, s": cell(series(result, index, "build_seconds")[n], 1),
            "seeds": len(times),
        }
        for index in VARIANTS
        for n, times in series(result, index, "query_seconds").items()
    ]
    text = (
        f"Graph: {result['rows'][0]['source']}. One core, one query at a time, k = {result['k']}, median of up to "
        f"{result['queries']} queries; smaller sizes are random nodes, whose vectors see the whole graph; mean ± "
        "standard deviation over seeds where there is more than one. The paper's "
        f"index construction took {PAPER_SECONDS['amazon']} s."
        + ("" if result["quick"] or max(row["nodes"] for row in result["rows"]) == NODES else PART)
    )
    return f"{text}\n\n{markdown(rows)}"


def draw(result: dict[str, Any]) -> Any:
    where = titled("amazon", result["rows"][0]["source"])
    figure, axes = panels([f"{where}: query", f"{where}: construction"], columns=2, width=5)
    for one_axes, key in zip(axes, ("query_seconds", "build_seconds"), strict=True):
        found = {index: series(result, index, key) for index in VARIANTS}
        sizes = sorted(found[VARIANTS[0]])
        lines(
            one_axes,
            sizes,
            {index: [[float(np.mean(own[n])) for n in sizes]] for index, own in found.items()},
        )
        one_axes.set_yscale("log")
    return finish(figure, axes, "test nodes", "seconds")


def claims(result: dict[str, Any]) -> list[Claim]:
    exact = series(result, "LocalCE-B", "query_seconds")
    source = result["rows"][0]["source"]
    below = []
    for index in VARIANTS[1:4]:
        times = series(result, index, "query_seconds")
        ratios = [float(np.mean(exact[n]) / np.mean(own)) for n, own in times.items()]
        below.append(Case(f"{index}, all sizes", ratios, least=1, source=source))
    return [
        Claim(
            "The index-based algorithms also increase, but are always faster than LocalCE-B.",
            "Figure 5 b",
            "time of LocalCE-B / time of the index (the numbers are sizes, not seeds)",
            below,
        ),
    ]
