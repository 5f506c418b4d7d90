"""The graphs of the engine's benchmark, each kept in a folder: vectors, predicted classes, and exact evidence.

All hold KS vectors with L = 3 and alpha = 0.5. Real graphs: classes that a GCN predicts. ``amazon-LEVEL-N``: a
synthetic graph of AmazonProducts' shape with N nodes, at low or high homophily; its own classes stand for predictions.
``crowded-D-C-N``: N nodes with D features and edges to nearest neighbours, so that similarities crowd together; each
of its C classes is drawn with a probability that is a smooth function of the features, so that classes mix everywhere.
``groups-...``: see :mod:`benchmarks.exclusion.data`.
``clumps-RULE-N``: N people of a table in which binary and ordinal columns dominate, so that many similarities are equal
or nearly so; RULE is linear, separated or mixed. ``clusters-D-N``: N nodes with D features in 200 clusters of different
size, and two classes. ``text-D-N``: N rows like embeddings of texts, ``paragraphs-D``: vectors of real texts, and
``cora_features``: the KS vectors of Cora; the classes of these three are not set, see :mod:`benchmarks.engine.high`.

    python -m benchmarks.engine.graphs NAME FOLDER
"""

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

import cfe_faiss as cfe

K = 10
REAL = ("german", "bail", "cora", "facebook")
HOMOPHILY = {"low": 0.2, "high": 0.8}
CROWDED = ("crowded-8-2", "crowded-12-3", "crowded-16-4")
CLUMPS = ("clumps-linear", "clumps-separated", "clumps-mixed")
CLUSTERS = "clusters-13"
SEED = 0
_TRUTH = 4e11  # multiplications that the exact results of a larger graph may take, about
_FEWEST = 2000
_ROUNDING = 1e-5  # more than any index is off
_HIDDEN, _NOISE, _SPREAD, _CONTRAST = (
    2,
    0.02,
    0.2,
    0.7,
)  # of crowded graphs: quantities behind the features
_NEIGHBORS, _PROBES = 10, 16
_CLUSTERS, _RARE = (
    200,
    0.22,
)  # clusters of clustered nodes; share of the rarer class of a mixed rule
_TOPICS, _SUBTOPICS = 50, 20  # of rows like texts
_PARAGRAPH, _PARAGRAPHS = 80, 100_000  # least letters; most paragraphs
_CHECKED, _BLOCK = 50, 1 << 16  # queries compared with float64; rows at a time
_ALL = 30_000  # nodes up to which there are exact results for all


@dataclass(frozen=True, slots=True)
class Graph:
    """Vectors (n, d), classes (n,) 0..C-1, and the exact evidence D, I (q, K) of the nodes ``queries`` (q,)."""

    name: str
    X: NDArray[np.float32]
    labels: NDArray[np.int64]
    queries: NDArray[np.int64]
    D: NDArray[np.float32]
    I: NDArray[np.int64]
    info: dict[str, Any]

    @property
    def n(self) -> int:
        return len(self.X)

    @property
    def d(self) -> int:
        return self.X.shape[1]


def vectors(name: str) -> tuple[NDArray[np.float32], NDArray[np.int64], str]:
    """Return the vectors of a graph, its classes, and where they come from."""
    if name in REAL:
        from benchmarks.graphs import graph as real_graph  # loads torch

        found = real_graph(name)
        return (
            found.X,
            found.labels,
            f"real graph, classes of a GCN (test accuracy {found.test_accuracy:.3f})",
        )
    if name.startswith("crowded-"):
        d, classes, n = map(int, name.split("-")[1:])
        X, labels = crowded(d, classes, n)
        return (
            X,
            labels,
            f"synthetic graph of nearest neighbours, {_NEIGHBORS} for each node, mixed classes",
        )
    if name.startswith("clumps-"):
        _, rule, n = name.split("-")
        X, labels = clumps(rule, int(n))
        return (
            X,
            labels,
            f"synthetic table with clumps, {_NEIGHBORS} nearest neighbours for each node, {rule} classes",
        )
    if name.startswith("clusters-"):
        d, n = map(int, name.split("-")[1:])
        X, labels = clusters(d, n)
        return (
            X,
            labels,
            f"synthetic graph of nearest neighbours, {_CLUSTERS} clusters, mixed classes",
        )
    if name.startswith(("text-", "paragraphs-", "cora_features")):
        X, source = unlabelled(name)
        return X, np.zeros(len(X), np.int64), source
    if name.startswith("groups-"):
        from benchmarks.exclusion.data import make, parse

        shape = parse(name)
        X, labels = make(shape)
        return X, labels, str(shape)
    _, level, n = name.split("-")
    from benchmarks.synthetic_graphs import amazon_shape

    data = amazon_shape(n=int(n), homophily=HOMOPHILY[level], seed=SEED)
    X = cfe.ks_vectors(data.x, data.graph, num_layers=3, alpha=0.5, progress=True)
    return (
        X,
        data.labels.astype(np.int64),
        f"synthetic graph of AmazonProducts' shape, homophily {HOMOPHILY[level]}",
    )


def crowded(
    d: int, classes: int, n: int, seed: int = SEED
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the KS vectors (n, d) and the classes (n,) of a graph whose nodes are linked to their nearest neighbours.

    As columns of a table are, features are functions of a few hidden quantities with noise, between 0 and 1: then all
    similarities are high, and propagation over edges between neighbours brings them closer still. The log-odds of the
    classes are sums of slow waves over the hidden quantities, and each node's class is drawn from them.
    """
    rng = np.random.default_rng([seed, d, classes, n])
    hidden = rng.normal(size=(n, _HIDDEN))
    signals = hidden @ rng.normal(size=(_HIDDEN, d)) / _HIDDEN**0.5 + _NOISE * rng.normal(
        size=(n, d)
    )
    x = (1 / (1 + np.exp(-_SPREAD * signals))).astype(np.float32)
    edges = neighbor_edges(x, _NEIGHBORS)
    X = cfe.ks_vectors(x, edges, num_layers=3, alpha=0.5)
    waves = np.cos(
        hidden @ rng.normal(size=(_HIDDEN, 4 * classes)) + rng.uniform(0, 2 * np.pi, 4 * classes)
    )
    log_odds = _CONTRAST * waves.reshape(n, classes, 4).sum(axis=2)
    drawn = (log_odds + rng.gumbel(size=(n, classes))).argmax(axis=1)  # a sample of the softmax
    return X, drawn.astype(np.int64)


def clumps(rule: str, n: int, seed: int = SEED) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the KS vectors (n, 13) and the classes (n,) of a table's rows, linked to their nearest neighbours.

    Three columns are binary, two ordinal, two are counts, and six are amounts with a long tail, which is all that is
    left of their range after scaling to 0..1. So rows form clumps, and many similarities within one are nearly equal.
    """
    rng = np.random.default_rng([seed, n])
    binary = rng.random((n, 3)) < (0.6, 0.45, 0.9)
    levels = np.stack(
        [rng.choice(4, n, p=(0.02, 0.35, 0.47, 0.16)), rng.binomial(3, 0.35, n)], axis=1
    )
    counts = np.minimum(rng.poisson(0.4, (n, 2)), 6)
    amounts = rng.lognormal(1.4 * rng.normal(size=(n, 1)), 1.2, (n, 6))
    x = np.concatenate([binary, levels, counts, amounts], axis=1)
    scaled = ((x - x.min(axis=0)) / np.ptp(x, axis=0)).astype(np.float32)
    X = cfe.ks_vectors(scaled, neighbor_edges(scaled, _NEIGHBORS), num_layers=3, alpha=0.5)
    return X, _classes(X, rule, rng)


def clusters(d: int, n: int, seed: int = SEED) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the KS vectors (n, d) and the classes (n,) of clustered nodes, linked to their nearest neighbours."""
    rng = np.random.default_rng([seed, d, n])
    of_cluster = rng.choice(_CLUSTERS, n, p=rng.dirichlet(np.ones(_CLUSTERS)))
    spread = _SPREAD * rng.lognormal(0, 0.5, _CLUSTERS)
    x = rng.normal(size=(_CLUSTERS, d))[of_cluster] + spread[of_cluster, None] * rng.normal(
        size=(n, d)
    )
    x = x.astype(np.float32)
    X = cfe.ks_vectors(x, neighbor_edges(x, _NEIGHBORS), num_layers=3, alpha=0.5)
    return X, _classes(X, "mixed", rng)


def unlabelled(name: str) -> tuple[NDArray[np.float32], str]:
    """Return vectors of length 1 (n, d) without classes, and where they come from."""
    kind, *numbers = name.split("-")
    if kind == "text":
        return text(*map(int, numbers)), "generated, like embeddings of texts"
    if kind == "paragraphs":
        return paragraphs(int(numbers[0])), "real texts: tf-idf of paragraphs of Python packages"
    data = cfe.datasets.load("cora")
    return cfe.ks_vectors(data.x, data.edge_index), "real graph, KS vectors"


def text(d: int, n: int, seed: int = SEED) -> NDArray[np.float32]:
    """Return rows (n, d) like embeddings of texts: each part below has a quarter of the energy.

    The parts are an offset of all rows, one of 50 topics, one of its 20 subtopics, and noise. All
    have the spectrum i^-0.8 in one random basis, and sizes of subtopics are log-normal.
    """
    rng = np.random.default_rng([seed, d, n])
    spectrum = np.arange(1, d + 1) ** -0.8
    spectrum = (spectrum / np.linalg.norm(spectrum)).astype(np.float32)
    weights = rng.lognormal(0, 1, _TOPICS * _SUBTOPICS)
    subtopics = rng.choice(len(weights), n, p=weights / weights.sum())

    def part(rows: int) -> NDArray[np.float32]:
        return rng.standard_normal((rows, d), np.float32) * spectrum

    means = np.repeat(part(_TOPICS), _SUBTOPICS, axis=0) + part(len(weights)) + part(1)
    basis = np.linalg.qr(rng.standard_normal((d, d), np.float32))[0]
    rows = np.empty((n, d), np.float32)
    for first in range(0, n, _BLOCK):
        of_some = subtopics[first : first + _BLOCK]
        some = (part(len(of_some)) + means[of_some]) @ basis
        rows[first : first + _BLOCK] = some / np.linalg.norm(some, axis=1, keepdims=True)
    return rows


def paragraphs(d: int) -> NDArray[np.float32]:
    """Return d latent semantic directions of the paragraphs of installed Python packages, (n, d)."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    found: set[str] = set()
    for folder in (Path(path) for path in sys.path if path.endswith("site-packages")):
        for path in folder.rglob("*.py"):
            for docstring in re.findall(r'"""(.*?)"""', path.read_text(errors="ignore"), re.S):
                pieces = (" ".join(piece.split()) for piece in re.split(r"\n\s*\n", docstring))
                found.update(piece for piece in pieces if len(piece) >= _PARAGRAPH)
    texts = np.array(sorted(found), object)
    texts = texts[np.random.default_rng(SEED).permutation(len(texts))[:_PARAGRAPHS]]
    words = TfidfVectorizer(sublinear_tf=True, min_df=3, max_features=50_000).fit_transform(texts)
    rows = TruncatedSVD(d, n_iter=3, random_state=SEED).fit_transform(words)
    rows = rows[np.linalg.norm(rows, axis=1) > _ROUNDING]
    return np.asarray(normalize(rows), np.float32)


def _classes(X: NDArray[np.float32], rule: str, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return two classes (n,): of a linear function of the vectors, of two clusters, or of a rule with interactions."""
    if rule == "separated":
        halves = faiss.Kmeans(X.shape[1], 2, spherical=True, seed=SEED)
        halves.train(X)
        return np.asarray(halves.assign(X)[1], np.int64)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    if rule == "linear":
        return np.asarray(z @ rng.normal(size=z.shape[1]) > 0, np.int64)
    if rule != "mixed":
        raise ValueError(f"the rule must be linear, separated or mixed, got {rule!r}")
    scores = z[:, 4] * z[:, 7] + np.sin(2 * z[:, 5]) + 0.7 * z[:, 8] ** 2 - z[:, 6] * z[:, 0]
    return np.asarray(scores > np.quantile(scores, 1 - _RARE), np.int64)


def neighbor_edges(x: NDArray[np.float32], neighbors: int) -> NDArray[np.int64]:
    """Return the edges (2, E) between each row and its nearest others, both ways, each once."""
    n, d = x.shape
    index = faiss.IndexFlatL2(d)
    if n > _ALL:
        index = faiss.IndexIVFFlat(index, d, round(n**0.5))
        index.nprobe = _PROBES
        index.train(x)
    index.add(x)
    found = index.search(x, neighbors + 1)[1]
    source = np.repeat(np.arange(n), neighbors + 1)
    proper = (found.ravel() >= 0) & (found.ravel() != source)
    pairs = np.stack([source[proper], found.ravel()[proper]])
    return np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)


def prepare(name: str, folder: Path) -> None:
    """Write a graph and its exact evidence into a folder."""
    X, labels, source = vectors(name)
    write(folder, name, X, labels, source)


def write(
    folder: Path, name: str, X: NDArray[np.float32], labels: NDArray[np.int64], source: str
) -> None:
    """Write vectors, classes and the exact evidence of all nodes, or of a fixed sample of a larger graph's."""
    X = np.ascontiguousarray(X, np.float32)
    classes, labels = np.unique(labels, return_inverse=True)
    n = len(X)
    wanted = n if n <= _ALL else max(_FEWEST, int(_TRUTH / X.size))
    queries = np.sort(np.random.default_rng(1).permutation(n)[:wanted])
    flat = cfe.IndexEvidenceFlat(X.shape[1])
    flat.add_with_labels(X, labels)
    D, I = flat.search_stored(queries if len(queries) < n else None, K, progress=True)
    check_truth(X, labels, queries, D)
    digest = hashlib.sha256()
    for array in (X, labels, queries):
        digest.update(np.ascontiguousarray(array))
    info = {
        "graph": name,
        "nodes": n,
        "dimension": X.shape[1],
        "classes": len(classes),
        "largest_class": float(np.bincount(labels).max() / n),
        "source": source,
        "sha256": digest.hexdigest()[:16],
        "queries_with_exact_results": len(queries),
        "exact_average_similarity": cfe.metrics.average_similarity(D),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for key, array in {"X": X, "labels": labels, "queries": queries, "D": D, "I": I}.items():
        np.save(folder / f"{key}.npy", array)
    (folder / "info.json").write_text(
        json.dumps(info, indent=2) + "\n"
    )  # last: it says that the rest is there


def check_truth(
    X: NDArray[np.float32], labels: NDArray[Any], queries: NDArray[np.int64], D: NDArray[Any]
) -> None:
    """Raise ValueError unless some exact results equal those of a brute-force search in float64."""
    for row in np.random.default_rng(3).permutation(len(queries))[:_CHECKED]:
        query = queries[row]
        blocks = [
            X[low : low + _BLOCK] @ X[query].astype(np.float64) for low in range(0, len(X), _BLOCK)
        ]
        best = np.sort(np.concatenate(blocks)[labels != labels[query]])[::-1][:K]
        if not np.allclose(D[row][: len(best)], best, rtol=0, atol=_ROUNDING):
            raise ValueError(f"the exact results of node {query} should be {best}, got {D[row]}")


def load(folder: Path) -> Graph:
    info = json.loads((folder / "info.json").read_text())
    X, labels, queries, D, I = (
        np.load(folder / f"{key}.npy") for key in ("X", "labels", "queries", "D", "I")
    )
    return Graph(info["graph"], X, labels, queries, D, I, info)


def quality(
    graph: Graph, rows: NDArray[np.int64], D: NDArray[np.float32], I: NDArray[np.int64]
) -> dict[str, float]:
    """Return recall, AS ratio and share of short rows of results D, I for the exact results' ``rows``.

    Where it matters whether a similarity ties with the last exact one, it is computed anew, the same way for every
    index, since each rounds in its own way.
    """
    exact_D, exact_I = graph.D[rows], graph.I[rows]
    D = D.copy()
    last = np.where(exact_I >= 0, exact_D, np.inf).min(axis=1)
    listed = (I[:, :, None] == exact_I[:, None, :]).any(axis=2)
    row, column = np.nonzero((I >= 0) & ~listed & (last[:, None] - _ROUNDING <= D))
    D[row, column] = cfe.ks_similarity(graph.X, graph.queries[rows][row], I[row, column])
    return {
        "recall": cfe.metrics.recall(I, exact_I, D, exact_D),
        "as_ratio": cfe.metrics.average_similarity(np.where(I < 0, 0, D))
        / cfe.metrics.average_similarity(exact_D),
        "short_rows": float(((I >= 0).sum(axis=1) < (exact_I >= 0).sum(axis=1)).mean()),
    }


if __name__ == "__main__":
    prepare(sys.argv[1], Path(sys.argv[2]))
