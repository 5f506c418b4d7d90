"""Exclusion in the words of Lucene's and Weaviate's tests of filters, and rows with several groups.

*Correlation* (-1 to 1): where the rows that pass the filter lie, relative to the query. Here the rows of
other groups pass. At -1 groups are regions, so that near rows are excluded; at 0 groups are drawn at
random; at 1 neighbours are of different groups, so that near rows pass. With several groups each row has
two of ten, and a query excludes each row with a group of its own (``exclude_labels=``). Peers, tuning and
timing are those of :mod:`benchmarks.engine.growth`.

    python -m benchmarks.exclusion.correlation
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

import cfe_faiss as cfe
from benchmarks.common import RESULTS
from benchmarks.engine import growth, growth_page, rivals
from benchmarks.engine.graphs import SEED, K
from benchmarks.exclusion.data import Shape, make
from cfe_faiss.base import threads

TITLE = "Exclusion by correlation, and rows with several groups"
COMMAND = "python -m benchmarks.exclusion.correlation"
PATH = RESULTS / "correlation.json"
CHART = "correlation.png"
CORRELATIONS = (-1.0, -0.5, 0.0, 0.5, 1.0)
SEVERAL = "two groups of a row"
GROUPS, D, N = 10, 64, 30_000
FACTORS = [1.0, 2.0]
_ASKED = 2  # groups


def correlated(correlation: float, n: int = N) -> rivals.Task:
    """Return the task of rows with one group each."""
    X, labels = make(Shape(round(-100 * correlation), "equal", GROUPS, D, n))
    rng = np.random.default_rng(SEED)
    queries = {
        c: rng.permutation(np.flatnonzero(labels == c))[: rivals.QUERIES] for c in range(_ASKED)
    }
    return rivals.Task(f"correlation {correlation:g}", FACTORS, X, labels, queries)


def several(n: int = N) -> tuple[rivals.Task, NDArray[np.int64], NDArray[np.int64]]:
    """Return a task, the two groups of each row as one label (n,), and the labels to exclude, (1, m).

    The classes of the task are 0 for rows with a group of the queries', and 1 for those that pass.
    """
    pairs = list(combinations(range(GROUPS), 2))
    X, labels = make(Shape(0, "equal", len(pairs), D, n))
    excluded = np.array([i for i, pair in enumerate(pairs) if set(pair) & set(pairs[0])])
    rows = np.flatnonzero(labels == 0)
    queries = {0: np.random.default_rng(SEED).permutation(rows)[: rivals.QUERIES]}
    passes = ~np.isin(labels, excluded)
    task = rivals.Task(SEVERAL, FACTORS, X, passes.astype(np.int64), queries)
    return task, labels, excluded[None]


def ours(
    task: rivals.Task, labels: NDArray[np.int64], excluded: NDArray[np.int64]
) -> Iterator[rivals.Built]:
    """Our index over all rows, with ``exclude_labels=``."""
    for factor in task.factors:
        nlist = round(factor * len(task.X) ** 0.5)
        before = rivals.held_bytes()
        start = time.process_time()
        index = cfe.IndexEvidenceIVF(task.X.shape[1], nlist)
        index.train(task.X)
        index.add_with_labels(task.X, labels)
        index.prepare()
        seconds = time.process_time() - start

        def find(_: int, nprobe: int, index: Any = index) -> rivals.Search:
            label = np.zeros(1, np.int64)
            return lambda x: index.search_evidence(x, label, K, nprobe, exclude_labels=excluded)[1]

        rows = {0: np.arange(len(task.X))}
        about = "ours", {"nlist": nlist}, find, find, rows, nlist, seconds
        yield rivals.Built(*about, memory=rivals.held_bytes() - before)


def near_own(task: rivals.Task) -> float:
    """Return the share of excluded rows among the K nearest of all, for the queries."""
    shares = []
    for label, rows in task.queries.items():
        near = faiss.knn(task.X[rows], task.X, K + 1)[1]
        shares.append(float((task.labels[near[:, 1:]] == label).mean()))
    return float(np.mean(shares))


def draw(content: dict[str, Any]) -> None:
    """Draw the time of a query against the correlation, a panel for each recall."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    for axes, at in zip(figure.subplots(1, 2, sharey=True), range(2), strict=True):
        for family, (colour, _) in growth_page.FAMILIES.items():
            points = []
            for cell in content["measured"]:
                found = growth_page.fastest(cell["cells"][at]["records"], family)
                if found and cell["data"] != SEVERAL:
                    correlation = float(cell["data"].removeprefix("correlation "))
                    points.append((correlation, 1e6 * found[1]["seconds"]))
            growth_page.curve(axes, points, family, colour)
        axes.set(yscale="log", title=f"recall {content['measured'][0]['cells'][at]['target']}")
        axes.set_xticks(CORRELATIONS)
        growth_page.plain(axes.yaxis, {us: f"{us:g}" for us in (10, 20, 50, 100, 200, 500, 1000)})
    axes.legend(fontsize="small")
    figure.supxlabel("correlation (-1: near rows are excluded; 1: near rows pass)")
    figure.supylabel("one query, microseconds")
    figure.savefig(RESULTS / CHART, dpi=120, metadata={"Software": None})


def page(content: dict[str, Any]) -> str:
    near = [
        f"{cell['data'].removeprefix('correlation ')}: {100 * cell['near own']:.0f} %"
        for cell in content["measured"]
    ]
    return "\n\n".join(
        [
            f"![Time of one query against the correlation]({CHART})",
            f"The ten nearest rows outside the query's groups. {growth_page.in_short(content)}",
            growth_page.losses(content),
            "Lucene's and Weaviate's tests of filters call it *correlation*: whether the rows that pass are near the "
            "query. Here the rows of other groups pass. At -1 a group is a region, at 0 groups are drawn at random, at "
            f"1 neighbours are of different groups. {N:,} rows with {D} dimensions, {GROUPS} groups. *Two groups of a "
            "row*: each row has two of the ten groups, and the rows that share a group with the query are excluded "
            "(`exclude_labels=`; groups are drawn at random). Excluded of the ten nearest rows: "
            f"{'; '.join(near)}. At -1, HNSW over the other groups and 4 sqrt(n) lists were tried, too.",
            growth_page.speeds(content),
            growth_page.how(content),
            "With two groups of a row the checks of `exclude_labels=` take about as long as our search. "
            "Ten million rows are in [growth](growth.md), more groups and sizes in [another run](exclusion_short.md).",
            growth_page.details(content),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=N)
    args = parser.parse_args()
    tasks: list[tuple[rivals.Task, Callable[..., Iterator[rivals.Built]]]] = [
        (correlated(correlation, args.rows), rivals.ours) for correlation in CORRELATIONS
    ]
    task, labels, excluded = several(args.rows)
    tasks.append((task, partial(ours, labels=labels, excluded=excluded)))
    peers = [rivals.PEERS[name] for name in ("rabitqlib", "IVF", "HNSW")]
    measured = json.loads(PATH.read_text())["measured"] if PATH.exists() else []
    for asked, mine in tasks:
        if asked.name in [cell["data"] for cell in measured]:
            continue  # resumes
        with threads.single_threaded_blas():
            found = growth.measure(asked, [mine, *peers])
        growth.store(PATH, found | {"near own": near_own(asked)})


if __name__ == "__main__":
    main()
