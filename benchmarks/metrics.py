"""How fast are the metrics "l2" and "ip" on vectors of any length, next to stock FAISS of the same metric?

All rows and one query at a time at recall@10 = 0.95, on one thread, in turns: our inverted file and exact search, a
stock inverted file with a selector, one stock inverted file per class, and HNSW with a selector. Each rival gets the
smallest setting that reaches the recall on a sample of rows.

    python benchmarks/metrics.py [DATA ...]

DATA: bail, facebook (raw features, classes of a GCN), mixture (20,000 x 384, lognormal lengths). Writes
results/metrics.json.
"""

import argparse
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

import faiss
import numpy as np
from common import paired_times, save
from numpy.typing import NDArray

import cfe_faiss as cfe

K, RECALL, SAMPLE, SINGLE, REPEATS = 10, 0.95, 500, 200, 3
CONSTANTS = {"l2": faiss.METRIC_L2, "ip": faiss.METRIC_INNER_PRODUCT}
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Results = tuple[Floats, Ints]


class Data(NamedTuple):
    """Vectors, their classes, and the metric."""

    X: Floats
    labels: Ints
    metric: str


class Rival(NamedTuple):
    """Searches the rows of a class, (nq,), with a setting; ``steps`` are the settings, fastest first."""

    search: Callable[[Floats, int, int], Results]
    steps: list[int]


def load(name: str) -> tuple[Floats, Ints]:
    """Return vectors (n, d) and classes (n,)."""
    if name == "mixture":
        rng = np.random.default_rng(0)
        centre = rng.integers(0, 200, 20_000)
        X = rng.normal(size=(200, 384))[centre] + rng.normal(size=(20_000, 384))
        X *= rng.lognormal(sigma=0.7, size=(20_000, 1)) / np.linalg.norm(X, axis=1, keepdims=True)
        return X.astype(np.float32), np.where(rng.random(20_000) < 0.5, centre % 4, rng.integers(0, 4, 20_000))
    from graphs import graph  # loads torch

    from cfe_faiss.datasets import load as load_graph

    return np.asarray(load_graph(name).x, np.float32), graph(name).labels


def merged(parts: list[Results], metric: str) -> Results:
    D, I = (np.stack(arrays) for arrays in zip(*parts, strict=True))
    best: Results = faiss.merge_knn_results(D, I, keep_max=metric == "ip")
    return best


def settings(most: int) -> list[int]:
    """Return settings up to ``most``, each about a quarter larger than the one before."""
    values = np.unique(np.minimum(most, np.ceil(1.25 ** np.arange(60)).astype(int)))
    return values.tolist()


def ivf_of(X: Floats, metric: str, nlist: int) -> Any:
    index = faiss.index_factory(X.shape[1], f"IVF{nlist},Flat", CONSTANTS[metric])
    index.cp.min_points_per_centroid = 1
    index.train(X)
    index.add(X)
    return index


def rivals(data: Data) -> Iterator[tuple[str, Rival]]:
    """Yield FAISS's indexes; inverted files have 2 sqrt(n) lists."""
    X, labels, metric = data
    classes = np.unique(labels).tolist()
    selectors = {c: faiss.IDSelectorBitmap(np.packbits(labels != c, bitorder="little")) for c in classes}
    ivf = ivf_of(X, metric, 2 * int(len(X) ** 0.5))

    def selected(xq: Floats, label: int, nprobe: int) -> Results:
        return ivf.search(xq, K, params=faiss.SearchParametersIVF(sel=selectors[label], nprobe=nprobe))

    yield "IVF and selector", Rival(selected, settings(ivf.nlist))

    rows = {c: np.flatnonzero(labels == c) for c in classes}
    each = {c: ivf_of(X[own], metric, max(1, 2 * int(len(own) ** 0.5))) for c, own in rows.items()}

    def per_class(xq: Floats, label: int, nprobe: int) -> Results:
        parts = []
        for c in classes:
            if c != label:
                D, I = each[c].search(xq, K, params=faiss.SearchParametersIVF(nprobe=nprobe))
                parts.append((D, np.where(I < 0, -1, rows[c][I])))
        return merged(parts, metric)

    yield "IVF per class", Rival(per_class, settings(max(index.nlist for index in each.values())))

    graph = faiss.IndexHNSWFlat(X.shape[1], 32, CONSTANTS[metric])
    graph.hnsw.efConstruction = 80
    graph.add(X)

    def hnsw(xq: Floats, label: int, ef: int) -> Results:
        return graph.search(xq, K, params=faiss.SearchParametersHNSW(sel=selectors[label], efSearch=ef))

    yield "HNSW and selector", Rival(hnsw, [step for step in settings(2000) if step >= K])


def search_rows(rival: Rival, data: Data, rows: Ints, setting: int) -> Results:
    """Search rows class by class."""
    D, I = np.empty((len(rows), K), np.float32), np.empty((len(rows), K), np.int64)
    for label in np.unique(data.labels[rows]).tolist():
        own = np.flatnonzero(data.labels[rows] == label)
        D[own], I[own] = rival.search(data.X[rows[own]], label, setting)
    return D, I


def recall_of(found: Results, exact: Results, metric: str) -> float:
    """Return the recall, where a result as near as the last exact one counts, up to rounding."""
    sign = 1 if metric == "l2" else -1
    last = sign * exact[0][:, -1:]
    return float(((sign * found[0] <= last + 1e-4 * abs(last)) & (found[1] >= 0)).mean())


def measure(name: str, metric: str) -> dict[str, Any]:
    """Return the settings, recalls and times of one data set and metric."""
    data = Data(*load(name), metric)
    X, labels, n = data.X, data.labels, len(data.X)
    flat = cfe.IndexEvidenceFlat(X.shape[1], metric=metric)  # type: ignore[arg-type]
    flat.add_with_labels(X, labels)
    ours = cfe.IndexEvidenceIVF(X.shape[1], "auto", metric=metric)  # type: ignore[arg-type]
    ours.train(X)
    ours.add_with_labels(X, labels)
    ours.prepare(K, RECALL)
    sample = np.random.default_rng(0).choice(n, SAMPLE, replace=False)
    exact = flat.search_stored(sample, K)
    result: dict[str, Any] = {"data": name, "metric": metric, "n": n, "d": X.shape[1], "rivals": {}}
    every: dict[str, Callable[[], object]] = {
        "ours": lambda: ours.search_stored(k=K, recall=RECALL),
        "ours, exact": lambda: flat.search_stored(k=K),
    }
    turns = count()

    def next_row() -> int:
        return int(sample[next(turns) % SINGLE])

    def one_of_ours(index: Any, **effort: Any) -> None:
        for _ in range(SINGLE):
            row = next_row()
            index.search_evidence(X[row : row + 1], labels[row : row + 1], K, **effort)

    single: dict[str, Callable[[], object]] = {
        "ours": lambda: one_of_ours(ours, recall=RECALL),
        "ours, exact": lambda: one_of_ours(flat),
    }
    result["rivals"]["ours"] = {"recall": recall_of(ours.search_stored(sample, K, recall=RECALL), exact, metric)}
    for rival_name, rival in rivals(data):
        for setting in rival.steps:
            reached = recall_of(search_rows(rival, data, sample, setting), exact, metric)
            if reached >= RECALL:
                break
        result["rivals"][rival_name] = {"recall": reached, "setting": setting}

        def one_of_rival(rival: Rival = rival, setting: int = setting) -> None:
            for _ in range(SINGLE):
                row = next_row()
                rival.search(X[row : row + 1], int(labels[row]), setting)

        every[rival_name] = lambda rival=rival, setting=setting: search_rows(rival, data, np.arange(n), setting)
        single[rival_name] = one_of_rival
    for what, functions, rows in (("all_rows_us", every, n), ("one_query_us", single, SINGLE)):
        for rival_name, seconds in paired_times(functions, REPEATS)[0].items():
            result["rivals"].setdefault(rival_name, {})[what] = seconds / rows * 1e6
    for rival_name, figures in result["rivals"].items():
        print(name, metric, rival_name, {key: round(value, 3) for key, value in figures.items()}, flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", nargs="*", default=["bail", "facebook", "mixture"])
    names = parser.parse_args().data
    faiss.omp_set_num_threads(1)
    print(save("metrics", {"results": [measure(name, metric) for name in names for metric in CONSTANTS]}))


if __name__ == "__main__":
    main()
