"""Time and index space as they grow, against the bounds of section 5.1: exponents that are fitted to measured growth.

Graphs of AmazonProducts' shape with two neighbours a node on average (small ones cannot have more), whose classes stand
for a model's predictions. One size after the other with the paper's p and m; then m at the largest size with one
partition, where the scan of a cluster is most of a query; then p at a smaller size. CPU time of one thread: builds once
per seed; queries one at a time, the fastest of five rounds of the same nodes. Space is the size of the file of the
index less that of the exact index, which holds the vectors.

An exponent b of cost ~ x^b is the slope of log cost on log x by least squares, one for each seed.
"""

import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from figures import finish, lines, panels
from setting import ALPHA, CLUSTERS, LAYERS, PARTITIONS, THETA, Bench, one_thread
from sources import TINY
from synthetic_graphs import amazon_shape
from verdict import SHAPE, Case, Claim, markdown, rows_of

import cfe_faiss as cfe

NAME = "complexity"
SIZES = (4_000, 8_000, 16_000, 32_000, 64_000)
TINY_SIZES = (900, 1_300)
MIDDLE = 8_000
NUMBERS = (5, 10, 20, 40, 80)  # of partitions, of clusters
DEGREE = 2
K, QUERIES, ROUNDS = 10, 50, 5
TINY_QUERIES = 5
INDEXES = ("LocalCE-B", "LocalCE-I", "ours")
VARIED = {"nodes": "n", "partitions": "p", "clusters": "m"}


def measure(bench: Bench) -> dict[str, Any]:
    sizes = TINY_SIZES if bench.quick else SIZES
    middle = TINY_SIZES[0] if bench.quick else MIDDLE
    numbers = bench.few(NUMBERS)
    rows = []
    for seed in bench.seeds:
        for n in sizes:
            rows += part(bench, "nodes", n, PARTITIONS, CLUSTERS, seed)
        for m in numbers:
            rows += part(bench, "clusters", sizes[-1], 1, m, seed)
        for p in numbers:
            rows += part(bench, "partitions", middle, p, CLUSTERS, seed)
    return {"k": K, "queries": number_of_queries(bench), "degree": DEGREE, "rows": rows}


def number_of_queries(bench: Bench) -> int:
    return TINY_QUERIES if bench.quick else QUERIES


def part(bench: Bench, varied: str, n: int, p: int, m: int, seed: int) -> list[dict[str, Any]]:
    queries = number_of_queries(bench)
    settings = {"n": n, "p": p, "m": m, "k": K, "queries": queries, "degree": DEGREE}
    costs: list[dict[str, Any]] = bench.part(
        NAME, f"{varied}-{n}-{p}-{m}-{seed}", settings, lambda: one(n, p, m, seed, queries)
    )
    found = {"source": TINY if bench.quick else SHAPE, "varied": varied, "seed": seed}
    return [
        {**found, "nodes": n, "partitions": p, "clusters": m, **row}
        for row in costs
        if varied == "nodes" or row["index"] == "LocalCE-I"
    ]


@lru_cache(maxsize=1)
def embedded(n: int, seed: int) -> tuple[Any, Any, float]:
    """Return KS vectors, classes, and the CPU seconds that the vectors took."""
    made = amazon_shape(n, degree=DEGREE if n >= SIZES[0] else 0.5, seed=seed)
    with one_thread():
        X, seconds = timed(
            lambda: cfe.ks_vectors(made.x, made.graph, num_layers=LAYERS, alpha=ALPHA)
        )
    return X, made.labels, seconds


def one(n: int, p: int, m: int, seed: int, queries: int) -> list[dict[str, Any]]:
    X, labels, ks_seconds = embedded(n, seed)
    d = X.shape[1]
    rows, exact_bytes = [], 0
    with one_thread():
        for name in INDEXES:
            index, built = timed(lambda name=name: filled(name, X, labels, p, m, seed))
            size = size_of(index)
            exact_bytes = size if name == "LocalCE-B" else exact_bytes
            chosen = np.random.default_rng(seed).choice(n, min(queries, n), replace=False)
            rows.append(
                {
                    "index": name,
                    "ks_seconds": ks_seconds,
                    "build_seconds": built,
                    "query_seconds": query_seconds(index, X[chosen], labels[chosen]),
                    "bytes": size,
                    "extra_bytes": size - exact_bytes,
                    "vector_bytes": 4 * n * d,
                }
            )
    return rows


def filled(name: str, X: Any, labels: Any, p: int, m: int, seed: int) -> Any:
    d = X.shape[1]
    if name == "LocalCE-B":
        index: Any = cfe.IndexEvidenceFlat(d)
    elif name == "LocalCE-I":
        index = cfe.IndexEvidenceIVF.paper(d, partitions=p, clusters=m, theta=THETA)
    else:
        index = cfe.IndexEvidenceIVF(d, nlist=2 * int(len(X) ** 0.5))
    if not index.is_trained:
        index.cp.seed = 1 + seed
        index.train(X)
    index.add_with_labels(X, labels)
    return index


def query_seconds(index: Any, xq: Any, labels: Any) -> float:
    """Return the CPU seconds of one query, the fastest round of several."""
    index.search_evidence(xq[:1], labels[:1], K)  # makes what is made once
    rounds = []
    for _ in range(ROUNDS):
        _, seconds = timed(
            lambda: [
                index.search_evidence(xq[i : i + 1], labels[i : i + 1], K) for i in range(len(xq))
            ]
        )
        rounds.append(seconds / len(xq))
    return min(rounds)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def size_of(index: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        cfe.write_index(index, path)
        return path.stat().st_size


def costs(result: dict[str, Any], varied: str, index: str, key: str) -> dict[int, dict[int, float]]:
    """Return the cost at each number of what is varied, by seed."""
    found: dict[int, dict[int, float]] = {}
    for row in rows_of(result, varied=varied, index=index):
        found.setdefault(row["seed"], {})[row[varied]] = row[key]
    return found


def exponents(result: dict[str, Any], varied: str, index: str, key: str) -> list[float]:
    """Return the fitted exponent of each seed."""
    found = costs(result, varied, index, key).values()
    return [float(np.polyfit(np.log(list(own)), np.log(list(own.values())), 1)[0]) for own in found]


# What is fitted: what varies, the index, the column, its name, and the exponent of the paper's bound.
FITTED = (
    ("nodes", "LocalCE-B", "ks_seconds", "KS vectors, CPU s", 1.0),
    ("nodes", "LocalCE-B", "query_seconds", "one query, CPU s", 1.0),
    ("nodes", "LocalCE-I", "query_seconds", "one query, CPU s", 1.0),
    ("clusters", "LocalCE-I", "query_seconds", "one query, CPU s", -1.0),
    ("nodes", "LocalCE-I", "build_seconds", "construction, CPU s", 1.0),
    ("partitions", "LocalCE-I", "build_seconds", "construction, CPU s", 1.0),
    ("clusters", "LocalCE-I", "build_seconds", "construction, CPU s", 1.0),
    ("nodes", "LocalCE-I", "extra_bytes", "extra space, bytes", 1.0),
    ("partitions", "LocalCE-I", "extra_bytes", "extra space, bytes", 1.0),
    ("nodes", "ours", "query_seconds", "one query, CPU s", None),
    ("nodes", "ours", "build_seconds", "construction, CPU s", None),
    ("nodes", "ours", "extra_bytes", "extra space, bytes", None),
)


def table(result: dict[str, Any]) -> str:
    rows = []
    for varied, index, key, title, bound in FITTED:
        values = exponents(result, varied, index, key)
        low, high = Case("", values, least=0).interval()
        own = costs(result, varied, index, key)
        at = sorted(next(iter(own.values())))
        first, last = (np.mean([of_seed[x] for of_seed in own.values()]) for x in (at[0], at[-1]))
        form = ",.0f" if "bytes" in key else ".3g"
        row = {
            "cost": title,
            "index": index,
            "against": f"{VARIED[varied]} = {at[0]:,} to {at[-1]:,} ({len(at)} values)",
            "at the first": f"{first:{form}}",
            "at the last": f"{last:{form}}",
            "exponent": f"{np.mean(values):.2f}",
            "95 % interval": f"{low:.2f} to {high:.2f}",
            "the paper's bound": "-" if bound is None else f"{bound:g}",
        }
        rows.append(row)
    shares, smaller = space(result), TINY_SIZES[0] if result["quick"] else MIDDLE
    text = (
        f"{len(result['seeds'])} seeds, k = {result['k']}. While n varies, p = {PARTITIONS} and m = {CLUSTERS}; while "
        f"m does, p = 1 and n is the largest; while p does, n = {smaller:,} and m = {CLUSTERS}. The bounds: "
        "construction O(m p n (d + S)), S the time of one intersection of caps, which we tabulate once for all nodes; "
        "a query O(k n / m + p); KS vectors O(L d n N), N the neighbours of a node; space O(p n) besides the vectors. "
        f"What LocalCE-I stores besides the vectors is {shares['LocalCE-I']:.2f} of their size at the largest n, 4 "
        f"bytes for each node and partition; ours, with one partition, {shares['ours']:.2f}. Ours has 2 sqrt(n) lists, "
        "so that its construction is O(d n^1.5)."
    )
    return f"{text}\n\n{markdown(rows)}"


def space(result: dict[str, Any]) -> dict[str, float]:
    """Return what each index stores besides the exact one, as a share of the vectors, at the largest size."""
    largest = max(row["nodes"] for row in result["rows"])
    rows = rows_of(result, varied="nodes", nodes=largest)
    return {row["index"]: row["extra_bytes"] / row["vector_bytes"] for row in rows}


def draw(result: dict[str, Any]) -> Any:
    shown = (
        ("query_seconds", "one query"),
        ("build_seconds", "construction"),
        ("extra_bytes", "extra bytes"),
    )
    figure, axes = panels([title for _, title in shown], columns=3)
    for one_axes, (key, _) in zip(axes, shown, strict=True):
        curves, at = {}, []
        for index in INDEXES if key != "extra_bytes" else INDEXES[1:]:
            own = costs(result, "nodes", index, key)
            at = sorted(next(iter(own.values())))
            curves[index] = [[of_seed[n] for n in at] for of_seed in own.values()]
        lines(one_axes, at, curves)
        one_axes.set_xticks(at, [f"{n // 1000}k" for n in at])
        one_axes.set_yscale("log")
    return finish(figure, axes, "nodes", "CPU seconds, or bytes")


def claims(result: dict[str, Any]) -> list[Claim]:
    source = result["rows"][0]["source"]

    def case(name: str, fitted: tuple[str, str, str], **bound: float) -> Case:
        return Case(name, exponents(result, *fitted), source=source, **bound)  # type: ignore[arg-type]

    exact, query = ("nodes", "LocalCE-B", "query_seconds"), ("nodes", "LocalCE-I", "query_seconds")
    falling = [-b for b in exponents(result, "clusters", *query[1:])]
    build, extra = "build_seconds", "extra_bytes"
    fits = (
        "exponent b of cost ~ x^b, one for each seed, over all sizes; the bounds are upper ones, "
        "and at most 1.2 passes"
    )
    return [
        Claim(
            "The query time of LocalCE-B increases linearly with the number of test nodes.",
            "Figure 5 b, section 5.1",
            "exponent b of CPU time ~ n^b, one for each seed, over all sizes; linear means from 0.8 to 1.2",
            [case("from below", exact, least=0.8), case("from above", exact, most=1.2)],
            "Larger sizes no longer fit into the caches, which adds to the exponent.",
        ),
        Claim(
            "The online time of LocalCE-I is O(k n / m + p): at most linear in n, and less with more clusters.",
            "section 5.1",
            f"{fits}; in m an exponent below 0",
            [
                case("in n", query, most=1.2),
                Case("in m, negated", falling, above=0, source=source),
            ],
            "The paper calls it reduced by a factor of the number of clusters, an exponent of -1 in m: the fixed cost "
            "of a call and the choice among the p m centroids remain.",
        ),
        Claim(
            "Index construction takes O(m p n (d + S)).",
            "section 5.1",
            f"{fits}, in n, p and m, each alone",
            [
                case(f"in {VARIED[v]}", (v, "LocalCE-I", build), most=1.2)
                for v in ("nodes", "partitions", "clusters")
            ],
            "Larger sizes no longer fit into the caches, which adds to the exponent in n; KS vectors show it, too.",
        ),
        Claim(
            "The additional space of the index is O(p n).",
            "section 5.1",
            f"{fits}, in n and p, each alone",
            [
                case(f"in {VARIED[v]}", (v, "LocalCE-I", extra), most=1.2)
                for v in ("nodes", "partitions")
            ],
        ),
    ]
