"""
Evidence over text documents
============================

Tickets of a help desk, and a classifier that marks them urgent or routine. For a ticket, the store returns the most
similar ones with the other mark: what would have been answered differently. Needs the extras ``store`` and ``plot``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression

import cfe_faiss as cfe

# %%
# Tickets, an embedding, a classifier
# -----------------------------------
# 210 made-up tickets; the embedding counts letters, so that the example needs no network. With real ones, take a
# sentence embedding and the labels of your own classifier.

things = ["card", "account", "order", "invoice", "app"]
routine = ["How do I change my {}{}", "Please send me a copy of my {}{}", "Where do I find my {}{}"]
urgent = ["Somebody else is using my {}{}", "My {} was charged twice{}", "I cannot open my {}{}"]
places = [
    "",
    " in the shop",
    " at home",
    " on my phone",
    " after the move",
    " for a friend",
    " since Monday",
]
texts = [
    text.format(thing, place) for text in routine + urgent for thing in things for place in places
]
truth = ["routine"] * (len(texts) // 2) + ["urgent"] * (len(texts) // 2)

embed = HashingVectorizer(
    n_features=256, analyzer="char_wb", ngram_range=(2, 4), alternate_sign=False
).transform
vectors = embed(texts).toarray().astype(np.float32)
learnt = np.random.default_rng(0).permutation(len(texts))[:60]
classifier = LogisticRegression(C=10).fit(vectors[learnt], np.array(truth)[learnt])

# %%
# The store
# ---------
# It holds ids, vectors, predicted classes, metadata and texts, and takes class names as they are.

store = cfe.EvidenceStore(256)
ids = [f"ticket-{number}" for number in range(len(texts))]
predicted = classifier.predict(vectors)
store.add(
    ids,
    vectors,
    labels=list(predicted),
    metadata=[{"words": len(text.split())} for text in texts],
    documents=texts,
)
print(store)

# %%
# Evidence of a new ticket, and of a stored one under a filter.

new = "My card was charged for a friend"
label = str(classifier.predict(embed([new]))[0])
print(f"{label}: {new}")
for hit in store.evidence(embed([new]).toarray()[0], k=3, label=label):
    print(f"  {hit.label}, similarity {hit.similarity:.2f}: {hit.document}")

print(f"\n{predicted[0]}: {texts[0]}")
for hit in store.evidence("ticket-0", k=3, where={"words": {"$lte": 6}}):
    print(f"  {hit.label}, similarity {hit.similarity:.2f}: {hit.document}")

# %%
# All tickets in the plane of their two principal components. A line joins each of the 15 closest pairs of different
# predictions.

flat = PCA(2).fit_transform(vectors)
pairs = cfe.global_evidence(store.index, 15)
for source, target in zip(pairs.source, pairs.target, strict=True):
    plt.plot(*flat[[source, target]].T, color="grey", linewidth=0.8, zorder=1)
for name, marker in (("routine", "o"), ("urgent", "^")):
    plt.scatter(*flat[predicted == name].T, s=18, marker=marker, label=name, zorder=2)
plt.legend(title="predicted")
plt.xlabel("first principal component")
plt.ylabel("second principal component")
plt.show()
