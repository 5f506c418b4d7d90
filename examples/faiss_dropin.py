"""
An evidence index in code for stock FAISS
=========================================

Code that was written for ``faiss.IndexIVFFlat`` runs with an evidence index instead, with the same answers; then what
only the evidence index can do.
"""

# sphinx_gallery_thumbnail_path = "_static/thumb_faiss_dropin.svg"

import tempfile
from pathlib import Path

import faiss
import numpy as np
from faiss.contrib.evaluation import knn_intersection_measure
from sklearn.linear_model import LogisticRegression

import cfe_faiss as cfe

N, D, NLIST = 2000, 32, 40
rng = np.random.default_rng(0)
classes = rng.integers(3, size=N)
xb = (rng.normal(size=(N, D)) + 0.8 * rng.normal(size=(3, D))[classes]).astype(np.float32)
faiss.normalize_L2(xb)
xq = xb[:100]

# %%
# A program that trains, adds, searches, removes, writes and reads, and knows stock FAISS only.


def use(index):
    """Use an inverted file as any FAISS program does, and return what it answers."""
    index.train(xb)
    index.add_with_ids(xb, np.arange(N) + 10**6)
    index.nprobe = 8
    found_few = index.search(xq, 5)[1]
    found = index.search(xq, 5, params=faiss.SearchParametersIVF(nprobe=NLIST))[1]
    lims, _, in_range = index.range_search(xq, 0.6, params=faiss.SearchParametersIVF(nprobe=NLIST))
    assert index.remove_ids(np.arange(10) + 10**6) == 10
    with tempfile.TemporaryDirectory() as folder:
        faiss.write_index(index, str(Path(folder) / "index.faiss"))
        index = faiss.read_index(str(Path(folder) / "index.faiss"))
    return found_few, found, lims, np.sort(in_range), index.ntotal, index.nprobe


# %%
# It runs with either index. In all lists the answers are the same; in a few they depend on how lists are clustered.

stock = use(faiss.IndexIVFFlat(faiss.IndexFlatIP(D), D, NLIST, faiss.METRIC_INNER_PRODUCT))
evidence = cfe.IndexEvidenceIVF(D, NLIST)
ours = use(evidence)
print("is a faiss.IndexIVFFlat:", isinstance(evidence, faiss.IndexIVFFlat))
print(
    "same answers in all lists:",
    all(np.array_equal(a, b) for a, b in zip(stock[1:], ours[1:], strict=True)),
)
recalls = [knn_intersection_measure(found_few, found) for found_few, found, *_ in (stock, ours)]
print(
    f"found in 8 of {NLIST} lists: {recalls[0]:.2f} by stock FAISS, {recalls[1]:.2f} by the evidence index"
)

# %%
# Told the classes that a classifier predicts, the evidence index finds the nearest vectors of other classes.

predicted = LogisticRegression().fit(xb[::4], classes[::4]).predict(xb)
evidence.relabel(predicted[10:])  # of the vectors that are left, in ascending order of their ids
queries, labels = xb[10:15], predicted[10:15]
D_other, I_other = evidence.search(queries, 3, params=cfe.EvidenceParameters(labels=labels))
print(
    "the nearest of other classes:",
    [f"{D_other[i, 0]:.2f} of class {predicted[I_other[i, 0] - 10**6]}" for i in range(5)],
)
print("the queries' classes:", labels.tolist())

# %%
# Masks and ids say what may be evidence, as FAISS's selectors do; the search stays exact among what they select. Copies
# and bytes keep the classes.

mask = xb[10:, 0] > 0  # of the vectors that are left, in ascending order of their ids
D_some, I_some = evidence.search_evidence(queries, labels, 3, sel=mask, exact=True)
print("all of the mask:", bool(mask[I_some - 10**6 - 10].all()))
again = cfe.deserialize_index(cfe.serialize_index(cfe.clone_index(evidence)))
I_again = again.search_evidence(queries, labels, 3, sel=mask, exact=True)[1]
print("the same from bytes:", np.array_equal(I_again, I_some))
