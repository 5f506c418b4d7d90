"""How fast are "l2" and "ip" on vectors of any length, next to "cosine" and to stock FAISS of the same metric?

All rows and one query at a time at recall@10 = 0.95, on one thread, in turns: our inverted file and exact search, and
FAISS's: an inverted file with a selector, one per class, HNSW with a selector, and exact search of each class. Each
rival gets the smallest setting that reaches the recall on a sample of rows, unless it takes much longer than exact
search. Rivals are timed on a part of the rows. Wanted: .9 of the ratio to the best rival that "cosine" has on the same
rows.

    CFE_DATA=... python benchmarks/metrics.py [DATA ...]

DATA: bail, facebook (raw features, classes of a GCN), mixture (20,000 x 384, lognormal lengths). Writes
results/metrics.json.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple

import faiss
import numpy as np
from common import paired_times, save
from numpy.typing import NDArray

import cfe_faiss as cfe

K, RECALL, SAMPLE, TIMED, SINGLE, REPEATS = 10, 0.95, 500, 2000, 200, 7
WANTED = 0.9
CONSTANTS = {
    "cosine": faiss.METRIC_INNER_PRODUCT,
    "l2": faiss.METRIC_L2,
    "ip": faiss.METRIC_INNER_PRODUCT,
}
EXACT, SLOW = "exact, per class", 3  # rivals that take longer than SLOW exact searches are left out
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Results = tuple[Floats, Ints]


class Data(NamedTuple):
    """Vectors, of unit length for "cosine", their classes, and FAISS's constant of the metric."""

    X: Floats
    labels: Ints
    metric: int


class Rival(NamedTuple):
    """Searches the rows of a class, (nq,), with a setting; ``steps`` are the settings, fastest first."""

    search: Callable[[Floats, int, int], Results]
    steps: list[int]


@cache
def load(name: str) -> tuple[Floats, Ints]:
    """Return vectors (n, d) and classes (n,)."""
    if name == "mixture":
        rng = np.random.default_rng(0)
        centre = rng.integers(0, 200, 20_000)
        X = rng.normal(size=(200, 384))[centre] + rng.normal(size=(20_000, 384))
        X *= rng.lognormal(sigma=0.7, size=(20_000, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
        return X.astype(np.float32), np.where(
            rng.random(20_000) < 0.5, centre % 4, rng.integers(0, 4, 20_000)
        )
    from graphs import graph  # loads torch

    from cfe_faiss.datasets import load as load_graph

    return np.asarray(load_graph(name).x, np.float32), graph(name).labels


def merged(parts: list[Results], metric: int) -> Results:
    D, I = (np.stack(arrays) for arrays in zip(*parts, strict=True))
    best: Results = faiss.merge_knn_results(D, I, keep_max=metric == faiss.METRIC_INNER_PRODUCT)
    return best


def settings(most: int) -> list[int]:
    """Return settings up to ``most``, each about a quarter larger than the one before."""
    values = np.unique(np.minimum(most, np.ceil(1.25 ** np.arange(60)).astype(int)))
    return values.tolist()


def ivf_of(X: Floats, metric: int, nlist: int) -> Any:
    index = faiss.index_factory(X.shape[1], f"IVF{nlist},Flat", metric)
    index.cp.min_points_per_centroid = 1
    index.train(X)
    index.add(X)
    return index


def rivals(data: Data) -> Iterator[tuple[str, Rival]]:
    """Yield FAISS's indexes; inverted files have 2 sqrt(n) lists."""
    X, labels, metric = data
    classes = np.unique(labels).tolist()
    rows = {c: np.flatnonzero(labels == c) for c in classes}

    def of_others(label: int, search: Callable[[int], Results]) -> Results:
        parts = [(c, *search(c)) for c in classes if c != label]
        return merged([(D, np.where(I < 0, -1, rows[c][I])) for c, D, I in parts], metric)

    own = {c: X[some] for c, some in rows.items()}
    yield (
        EXACT,
        Rival(
            lambda xq, label, _: of_others(
                label, lambda c: faiss.knn(xq, own[c], K, metric=metric)
            ),
            [0],
        ),
    )

    selectors = {
        c: faiss.IDSelectorBitmap(np.packbits(labels != c, bitorder="little")) for c in classes
    }
    ivf = ivf_of(X, metric, 2 * int(len(X) ** 0.5))

    def selected(xq: Floats, label: int, nprobe: int) -> Results:
        return ivf.search(
            xq, K, params=faiss.SearchParametersIVF(sel=selectors[label], nprobe=nprobe)
        )

    yield "IVF and selector", Rival(selected, settings(ivf.nlist))

    each = {c: ivf_of(some, metric, max(1, 2 * int(len(some) ** 0.5))) for c, some in own.items()}

    def per_class(xq: Floats, label: int, nprobe: int) -> Results:
        return of_others(
            label, lambda c: each[c].search(xq, K, params=faiss.SearchParametersIVF(nprobe=nprobe))
        )

    yield "IVF per class", Rival(per_class, settings(max(index.nlist for index in each.values())))

    graph = faiss.IndexHNSWFlat(X.shape[1], 32, metric)
    graph.hnsw.efConstruction = 80
    graph.add(X)

    def hnsw(xq: Floats, label: int, ef: int) -> Results:
        return graph.search(
            xq, K, params=faiss.SearchParametersHNSW(sel=selectors[label], efSearch=ef)
        )

    yield "HNSW and selector", Rival(hnsw, [step for step in settings(2000) if step >= K])


def search_rows(rival: Rival, data: Data, rows: Ints, setting: int) -> Results:
    """Search rows class by class."""
    D, I = np.empty((len(rows), K), np.float32), np.empty((len(rows), K), np.int64)
    for label in np.unique(data.labels[rows]).tolist():
        own = np.flatnonzero(data.labels[rows] == label)
        D[own], I[own] = rival.search(data.X[rows[own]], label, setting)
    return D, I


def recall_of(found: Results, exact: Results, metric: int) -> float:
    """Return the recall, where a result as near as the last exact one counts, up to rounding."""
    sign = 1 if metric == faiss.METRIC_L2 else -1
    last = sign * exact[0][:, -1:]
    return float(((sign * found[0] <= last + 1e-4 * abs(last)) & (found[1] >= 0)).mean())


def tuned(
    rival: Rival, data: Data, rows: Ints, exact: Results, longest: float
) -> tuple[int, float, float]:
    """Return the smallest setting that reaches the recall, the recall, and the seconds for the rows.

    ``longest`` ends the search for it.
    """
    for setting in rival.steps:
        start = time.perf_counter()
        recall = recall_of(search_rows(rival, data, rows, setting), exact, data.metric)
        spent = time.perf_counter() - start
        if recall >= RECALL or spent > longest:
            break
    return setting, recall, spent


def our_indexes(data: Data, metric: Any) -> tuple[Any, Any]:
    """Return our exact index and our inverted file."""
    X, labels, _ = data
    flat = cfe.IndexEvidenceFlat(X.shape[1], metric=metric)
    flat.add_with_labels(X, labels)
    ivf = cfe.IndexEvidenceIVF(X.shape[1], "auto", metric=metric)
    ivf.train(X)
    ivf.add_with_labels(X, labels)
    ivf.prepare(K, RECALL)
    return flat, ivf


Runs = dict[tuple[str, str], tuple[Callable[[], object], int]]
"""By metric and rival: a search, and the number of its rows."""


def measure(name: str) -> list[dict[str, Any]]:
    """Return the settings, recalls and times of one data set, for each metric; all metrics are timed in turns."""
    results: list[dict[str, Any]] = []
    every: Runs = {}
    single: Runs = {}
    for metric in CONSTANTS:
        result, of_all, alone = tuned_rivals(name, metric)
        results.append(result)
        every |= {(metric, rival): run for rival, run in of_all.items()}
        single |= {(metric, rival): run for rival, run in alone.items()}
    for key, runs in (("all_rows_us", every), ("one_query_us", single)):
        times = paired_times({of: run for of, (run, _) in runs.items()}, REPEATS)[0]
        for result in results:
            for rival, figures in result["rivals"].items():
                if (of := (result["metric"], rival)) in times:
                    figures[key] = times[of] / runs[of][1] * 1e6
    for result in results:
        for rival, figures in result["rivals"].items():
            print(
                name,
                result["metric"],
                rival,
                {key: round(value, 3) for key, value in figures.items()},
                flush=True,
            )
    return results


def tuned_rivals(name: str, metric: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return settings and recalls for one metric, and the searches of all rows and of one query, by rival."""
    X, labels = load(name)
    if metric == "cosine":
        X = X.copy()
        faiss.normalize_L2(X)
    data, n = Data(X, labels, CONSTANTS[metric]), len(X)
    flat, ours = our_indexes(data, metric)
    rng = np.random.default_rng(0)
    sample, timed = rng.choice(n, SAMPLE, replace=False), rng.choice(n, TIMED, replace=False)
    exact = flat.search_stored(sample, K)
    turns = count()

    def one_by_one(search: Callable[[Floats, Ints], object]) -> None:
        for _ in range(SINGLE):
            row = int(sample[next(turns) % SAMPLE])
            search(X[row : row + 1], labels[row : row + 1])

    every: dict[str, tuple[Callable[[], object], int]] = {
        "ours": (lambda: ours.search_stored(k=K, recall=RECALL), n),
        "ours, exact": (lambda: flat.search_stored(k=K), n),
    }
    single: dict[str, Callable[[], object]] = {
        "ours": lambda: one_by_one(
            lambda xq, label: ours.search_evidence(xq, label, K, recall=RECALL)
        ),
        "ours, exact": lambda: one_by_one(lambda xq, label: flat.search_evidence(xq, label, K)),
    }
    found = {
        name: recall_of(index.search_stored(sample, K, **effort), exact, data.metric)
        for name, index, effort in (("ours", ours, {"recall": RECALL}), ("ours, exact", flat, {}))
    }
    figures: dict[str, Any] = {name: {"recall": recall} for name, recall in found.items()}
    longest = math.inf
    for rival_name, rival in rivals(data):
        setting, recall, spent = tuned(rival, data, sample, exact, longest)
        figures[rival_name] = {"recall": recall, "setting": setting}
        if rival_name == EXACT:
            longest = SLOW * spent
        if recall < RECALL:
            continue
        every[rival_name] = partial(search_rows, rival, data, timed, setting), TIMED

        def one(xq: Floats, label: Ints, rival: Rival = rival, setting: int = setting) -> Results:
            return rival.search(xq, int(label[0]), setting)

        single[rival_name] = partial(one_by_one, one)
    one_query = {rival_name: (search, SINGLE) for rival_name, search in single.items()}
    return (
        {"data": name, "metric": metric, "n": n, "d": X.shape[1], "rivals": figures},
        every,
        one_query,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="*", default=["bail", "facebook", "mixture"])
    names = parser.parse_args().data
    faiss.omp_set_num_threads(1)
    results = [result for name in names for result in measure(name)]
    print(save("metrics", {"recall": RECALL, "wanted": WANTED, "results": results}))


if __name__ == "__main__":
    main()
