"""Plain NumPy references and hypothesis strategies: what the package's results are held against."""

import os
import subprocess
import sys
from typing import Any, NamedTuple

import faiss
import numpy as np
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from cfe_faiss._native import available_levels
from cfe_faiss.coarse.routes import Routes, SecondLevel

PADDING = np.finfo(np.float32).min


class Stored(NamedTuple):
    """Some vectors with labels and ids, and queries with labels."""

    X: NDArray[np.float32]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    xq: NDArray[np.float32]
    labels_q: NDArray[np.int64]
    k: int


def assert_same_arrays(found: Any, expected: Any) -> None:
    """Two results hold as many arrays, and these are equal."""
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one, other)


def unit(X: NDArray[Any]) -> NDArray[np.float32]:
    norms = np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
    return np.divide(X, norms, out=np.zeros(X.shape), where=norms > 0).astype(np.float32)


def with_rows(index: Any, X: Any, labels: Any, ids: Any = None) -> Any:
    """Return an index that is trained on vectors, if it can be, and holds them with their labels; -1 is unknown."""
    if not index.is_trained:
        index.train(X)
    codes = np.asarray(labels)
    if codes.dtype.kind != "i" or (codes >= 0).all():
        index.add_with_labels(X, labels, ids)
        return index
    if ids is None:
        index.add(X)
    else:
        index.add_with_ids(X, ids)
    index.relabel(labels, ids)
    return index


def quick(index: Any) -> Any:
    """Return an index that ends the training of a product quantizer early: 256 codewords would take seconds."""
    if hasattr(index, "pq"):
        index.pq.cp.niter = 2
    return index


def similarity(x: NDArray[np.float32], y: NDArray[np.float32]) -> Any:
    """Return the inner products of rows with the bits of the core: float64 sums in the order written down there."""
    return _sums(x.astype(np.float64) * y.astype(np.float64)).astype(np.float32)


LEAST_OF_EQUAL = np.float32(1 - 11 * 2.0**-24)


def as_cosines(products: Any, x: NDArray[np.float32], y: NDArray[np.float32]) -> Any:
    """Return cosines from rounded products of x and y, whose rows are broadcast: in [-1, 1], and 1 for equal rows."""
    products = np.clip(products, np.float32(-1), np.float32(1))
    near = np.asarray(products >= LEAST_OF_EQUAL)
    if not near.any():
        return products
    left, right = np.broadcast_arrays(x, y)
    equal = np.zeros_like(near)
    equal[near] = (left[near] == right[near]).all(axis=-1)
    return np.where(equal, np.float32(1), products)


def cosine(x: NDArray[np.float32], y: NDArray[np.float32]) -> Any:
    """Return the scores of unit rows with the bits of the core."""
    return as_cosines(similarity(x, y), x, y)


def cosines(X: NDArray[np.float32], Y: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores of all pairs of unit rows, (len(X), len(Y)), from float64 products in any order."""
    products = (X.astype(np.float64) @ Y.astype(np.float64).T).astype(np.float32)
    return np.asarray(as_cosines(products, X[:, None], Y[None]))


def squared_distance(x: NDArray[np.float32], y: NDArray[np.float32]) -> Any:
    """Return the squared distances of rows with the bits of the core."""
    return _sums((x.astype(np.float64) - y.astype(np.float64)) ** 2).astype(np.float32)


def tanimoto(x: NDArray[np.float32], y: NDArray[np.float32]) -> Any:
    """Return the share of the ones of two rows that both have, by sets: 1 for two rows without ones."""
    left, right = x != 0, y != 0
    common = (left & right).sum(axis=-1).astype(np.float64)
    either = (left | right).sum(axis=-1)
    return np.divide(common, either, out=np.ones(common.shape), where=either > 0).astype(np.float32)


def unit_copy(X: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return rows with the bits that an index stores: unit rows and zero rows as they are, others normalised."""
    norms = np.sqrt(_sums(X.astype(np.float64) ** 2))[:, None]
    divided = X / np.where(norms > 0, norms, 1)
    return np.where((norms == 0) | (np.abs(norms - 1) <= 3e-7), X, divided).astype(np.float32)


def _sums(terms: NDArray[np.float64]) -> Any:
    products = np.moveaxis(terms, -1, 0)
    whole = len(products) // 16 * 16
    sums = np.zeros((16, *products.shape[1:]))
    for start in range(0, whole, 16):
        sums += products[start : start + 16]
    sums = sums[:8] + sums[8:]
    while len(sums) > 1:
        sums = sums[::2] + sums[1::2]
    total = sums[0]
    for product in products[whole:]:
        total = total + product
    return total


def weight_matrix(
    n: int, edges: NDArray[Any], weights: NDArray[Any], *, directed: bool = False
) -> NDArray[np.float64]:
    """Return W, where W[v, u] is the weight with which u counts among the neighbours of v; 0 is no edge."""
    into = np.zeros((n, n))
    np.add.at(into, (edges[1], edges[0]), np.asarray(weights, np.float64))
    np.fill_diagonal(into, 0)
    if directed:
        return into
    return np.where((into > 0) & (into.T > 0), (into + into.T) / 2, into + into.T)


def weighted_ks_vectors(
    x: NDArray[Any], W: NDArray[np.float64], num_layers: int, alpha: float
) -> NDArray[np.float64]:
    """Return KS vectors by the formula with weights, node by node, in float64."""

    def unit_of(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.where(norms > 0, norms, 1)

    x = x.astype(np.float64)
    total = x.copy()
    for _ in range(num_layers):
        units, new = unit_of(x), alpha * x
        for v, weights in enumerate(W):
            if weights.any():
                new[v] += (1 - alpha) * ((weights * (units @ units[v])) @ x) / weights.sum()
        x = new
        total += x
    return unit_of(total)


def similarities(xq: NDArray[Any], X: NDArray[Any]) -> NDArray[np.float32]:
    return cosines(unit(xq), unit(X))


def evidence(stored: Stored) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rank all eligible vectors of every query by (similarity descending, id ascending); pad like FAISS."""
    return evidence_of_rows(stored._replace(X=unit(stored.X)))


def evidence_of_rows(stored: Stored) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rank as :func:`evidence` does, by inner products with the vectors as they are."""
    return evidence_of_units(stored._replace(xq=unit(stored.xq)))


def evidence_of_units(stored: Stored) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rank as :func:`evidence_of_rows` does, for unit queries. Normalising them again could change their last bit."""
    S = cosines(stored.xq, stored.X)
    D = np.full((len(S), stored.k), PADDING, np.float32)
    I = np.full((len(S), stored.k), -1, np.int64)
    for q in range(len(S)):
        eligible = np.flatnonzero((stored.labels != stored.labels_q[q]) & (stored.labels >= 0))
        best = eligible[np.lexsort((stored.ids[eligible], -S[q, eligible]))][: stored.k]
        D[q, : len(best)], I[q, : len(best)] = S[q, best], stored.ids[best]
    return D, I


def top_pairs(stored: Stored) -> list[tuple[int, int, np.float32]]:
    """Return all pairs with different known labels, best first, ties by ids, smaller id first."""
    S = similarities(stored.X, stored.X)
    pairs = [
        (min(a, b), max(a, b), S[i, j])
        for i, a in enumerate(stored.ids.tolist())
        for j, b in enumerate(stored.ids.tolist())
        if i < j
        and stored.labels[i] != stored.labels[j]
        and min(stored.labels[i], stored.labels[j]) >= 0
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))


@st.composite
def stored_vectors(
    draw: st.DrawFn, *, lowest_label: int = 0, least: int = 0, arbitrary_ids: bool = True
) -> Stored:
    """Draw vectors from a coarse grid: repeats, ties, zero vectors, single classes and empty sets are common."""
    d = draw(st.integers(1, 20))
    n, nq = draw(st.integers(least, 60)), draw(st.integers(0, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    spread, classes = draw(st.integers(0, 3)), draw(st.integers(1, 4))
    ids = (
        rng.choice(2**62 if arbitrary_ids else n, n, replace=False)
        if arbitrary_ids
        else np.arange(n)
    )
    return Stored(
        X=rng.integers(-spread, spread + 1, (n, d)).astype(np.float32),
        labels=rng.integers(lowest_label, classes, n),
        ids=ids.astype(np.int64),
        xq=rng.integers(-spread, spread + 1, (nq, d)).astype(np.float32),
        labels_q=rng.integers(0, classes + 1, nq),
        k=draw(st.integers(1, 70)),
    )


def clustered(
    n: int, d: int, classes: int, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return vectors around a few centres, and labels that mostly follow the centres."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(12, d))
    centre = rng.integers(0, len(centres), n)
    labels = np.where(rng.random(n) < 0.8, centre % classes, rng.integers(0, classes, n))
    return (centres[centre] + 0.4 * rng.normal(size=(n, d))).astype(np.float32), labels


def exact_rows(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Return rows shorter than 1 whose products are exact and often equal."""
    return (rng.integers(-4, 5, (n, d)) / 16).astype(np.float32)


def routes_of(
    rng: np.random.Generator, lists: int, partitions: int, labels: NDArray[np.int32], d: int = 5
) -> Routes:
    """Return routes with any means: not all lists are filled, and not all that have an entry without its label."""
    total = lists * partitions
    filled = rng.random(total) < rng.choice([0.1, 0.8, 1])
    entries = (rng.random((len(labels), total)) < rng.choice([0.1, 0.9])) & filled
    labels, entries = labels[entries.any(axis=1)], entries[entries.any(axis=1)]
    number = int(entries.sum())
    return Routes(
        nlist=lists,
        means=exact_rows(rng, total, d),
        filled=filled,
        labels=labels,
        starts=np.append(0, np.cumsum(entries.sum(axis=1))).astype(np.int64),
        class_lists=np.nonzero(entries)[1].astype(np.int64),
        class_means=exact_rows(rng, number, d),
        class_filled=rng.random(number) < 0.8,
        second_level=SecondLevel.none(d),
    )


def ranked_lists(
    routes: Routes, X: NDArray[np.float32], labels: NDArray[np.int32], lists: int
) -> NDArray[np.int64]:
    """Rank the first lists for each query one by one, by (score descending, list ascending); then -1."""
    best = np.full((len(X), lists), -1)
    for q, label in enumerate(labels):
        scores = np.where(routes.filled, X[q] @ routes.means.T, -np.inf)
        for i in np.flatnonzero(routes.labels == label):
            for e in range(routes.starts[i], routes.starts[i + 1]):
                j = routes.class_lists[e]
                scores[j] = X[q] @ routes.class_means[e] if routes.class_filled[e] else -np.inf
        order = np.argsort(-scores[:lists], kind="stable")
        order = order[scores[order] > -np.inf]
        best[q, : len(order)] = order
    return best


def kept_rows(index: Any, X: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the rows that an index with a scalar quantizer keeps of some vectors.

    In rows whose length is not a multiple of 8 we round a component of an 8-bit code twice, after the product and after
    the sum, as FAISS does from 1.14 on.
    """
    codes = index.sq.compute_codes(X)
    if index.sq.qtype != faiss.ScalarQuantizer.QT_8bit or index.d % 8 == 0:
        rows: NDArray[np.float32] = index.sq.decode(codes)
        return rows
    low, width = faiss.vector_to_array(index.sq.trained).reshape(2, -1)
    return low + (codes + np.float32(0.5)) / np.float32(255) * width


def lists_of_rows(index: Any) -> np.ndarray:
    """Return the list of each storage row of an inverted file in each partition, (partitions, n)."""
    state = index.storage()
    n, nlist, numbers = state.n, index.nlist, np.arange(index.nlist)
    lists = np.empty((index.partitions, n), np.int64)
    lists[0] = np.repeat(numbers, np.diff(state.starts))
    sizes = np.diff(state.reference_starts).reshape(-1, nlist)
    for i, rows in enumerate(state.references.reshape(index.partitions - 1, n)):
        lists[i + 1, rows] = np.repeat(numbers, sizes[i])
    return lists


def output_of(code: str, *arguments: Any, **environment: str) -> str:
    """Return what code prints in a process of its own, which must end without an error."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def outputs_of_levels(code: str) -> set[str]:
    """Return what code prints at the instruction sets of this processor."""
    levels = available_levels()
    return {output_of(code, CFE_SIMD=level, OPENBLAS_NUM_THREADS="1") for level in levels}
