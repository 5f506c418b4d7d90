"""
First evidence: two patients side by side
=========================================

A graph network learns to tell malignant from benign tumours. Which two patients are most alike and yet get different
predictions, and where does one see that they are alike? Needs the extras ``gnn`` and ``plot``.
"""

import io

import matplotlib.pyplot as plt

import cfe_faiss as cfe
from cfe_faiss.datasets import load
from cfe_faiss.models import gcn, train
from cfe_faiss.plot import evidence_figure

# %%
# A graph and a model
# -------------------
# 569 patients, each joined to the 5 nearest others; it comes with scikit-learn. Any PyG ``Data`` and any model serve.

data = load("patients")
model = gcn(data)
train(model, data)

# %%
# Evidence
# --------
# The five most similar pairs of test patients that the network puts in different classes.

finder = cfe.EvidenceFinder.from_data(data, model, nodes=data.test_mask)
pairs = finder.top_pairs(5)
print(pairs.to_frame().round(4).to_string(index=False))

# %%
# The closest pair: both neighbourhoods, and the features that differ most.

source, target = int(pairs.source[0]), int(pairs.target[0])
picture = io.BytesIO()
evidence_figure(
    data, source, target, finder.labels, similarity=float(pairs.measure64()[0])
).savefig(picture, dpi=150, bbox_inches="tight")
picture.seek(0)
drawn = plt.imread(picture)
plt.figure(figsize=(8, 8 * drawn.shape[0] / drawn.shape[1]))
plt.imshow(drawn)
plt.axis("off")
plt.tight_layout(pad=0)
plt.show()

# %%
# What makes them alike
# ---------------------
# Their KS vectors, which hold the features of a node and of its neighbourhood, go up and down together. Below them, the
# vector of a patient who has nothing in common with the first: similarity is the inner product of two such vectors.

ordinary = int(abs(finder.vectors @ finder.vectors[source]).argmin())
curves, (alike, apart) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, sharey=True)
for axes, other in ((alike, target), (apart, ordinary)):
    axes.plot(finder.vectors[source], "o-", markersize=3, label=f"node {source}")
    axes.plot(finder.vectors[other], "s--", markersize=3, label=f"node {other}")
    axes.set_title(
        f"similarity {cfe.ks_similarity(finder.vectors, source, other):.2f}",
        loc="left",
        fontsize=10,
    )
    axes.legend(loc="upper center", ncols=2, fontsize=8)
    axes.axhline(0, color="grey", linewidth=0.5)
apart.set_xlabel("component of the KS vector, one for each feature")
plt.tight_layout()
plt.show()
