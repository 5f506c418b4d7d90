"""
Recall against queries per second
=================================

Evidence of a FAISS index by hand, and of an evidence index. A stock ``faiss.IndexIVFFlat`` with a selector that leaves
the query's class out scans lists that hold mostly vectors of that class, since these are near. The evidence index ranks
lists by their members of *other* classes. Needs the extra ``plot``.

This is one made-up data set and one thread. More peers, each tuned, on real graphs: see the measurements of the site.
"""

import time

import faiss
import matplotlib.pyplot as plt
import numpy as np

import cfe_faiss as cfe

# %%
# 20,000 vectors around 200 centres; most vectors of a centre have the class of that centre.

faiss.omp_set_num_threads(1)
rng = np.random.default_rng(0)
n, d, nlist, k = 20_000, 64, 300, 10
centre = rng.integers(200, size=n)
X = (rng.normal(size=(200, d))[centre] + rng.normal(size=(n, d))).astype(np.float32)
faiss.normalize_L2(X)
labels = np.where(rng.random(n) < 0.9, centre % 5, rng.integers(5, size=n))
queries = rng.permutation(n)[:1000]

exact = cfe.IndexEvidenceFlat(d)
exact.add_with_labels(X, labels)
D_exact, I_exact = exact.search_stored(queries, k)

# %%
# Both indexes have the same number of lists. The stock one needs a selector for each class; its queries go class by
# class.

ours = cfe.IndexEvidenceIVF(d, nlist)
ours.train(X)
ours.add_with_labels(X, labels)

stock = faiss.IndexIVFFlat(faiss.IndexFlatIP(d), d, nlist, faiss.METRIC_INNER_PRODUCT)
stock.train(X)
stock.add(X)
others = [
    faiss.IDSelectorBitmap(np.packbits(labels != label, bitorder="little")) for label in range(5)
]


def search_stock(nprobe):
    """Return the evidence of the queries as the stock index finds it."""
    D, I = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    for label, selector in enumerate(others):
        rows = np.flatnonzero(labels[queries] == label)
        params = faiss.SearchParametersIVF(nprobe=nprobe, sel=selector)
        D[rows], I[rows] = stock.search(X[queries[rows]], k, params=params)
    return D, I


def search_ours(nprobe):
    """Return the evidence of the queries as the evidence index finds it."""
    return ours.search_stored(queries, k, nprobe)


# %%
# The fastest of three runs at each number of lists.

curves = {}
for name, search in {
    "stock IVF and selectors": search_stock,
    "evidence index": search_ours,
}.items():
    points = []
    for nprobe in (1, 2, 4, 8, 16, 32, 64, 128):
        search(nprobe)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            D, I = search(nprobe)
            times.append(time.perf_counter() - start)
        points.append((cfe.metrics.recall(I, I_exact, D, D_exact), len(queries) / min(times)))
    curves[name] = points

for (name, points), marker in zip(curves.items(), "so", strict=True):
    plt.plot(*zip(*points, strict=True), marker=marker, label=name)
plt.yscale("log")
plt.xlabel(f"recall@{k} of evidence")
plt.ylabel("queries per second")
plt.legend()
plt.grid(which="both", alpha=0.3)
plt.show()
