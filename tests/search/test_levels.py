"""Every instruction set gives the same bits."""

from reference import outputs_of_levels

RUN = """
import hashlib, numpy as np, cfe_faiss as cfe
from cfe_faiss.search import derived
derived._MANY_ROWS = 1400
digest, random = hashlib.sha256(), np.random.RandomState(5)

def note(*results):
    for array in (part for result in results for part in result):
        digest.update(np.ascontiguousarray(array).tobytes())

for metric, d in (("ip", 21), ("l2", 21), ("cosine", 64), ("cosine", 96), ("cosine", 384), ("ip", 500), ("l2", 1100)):
    centres, n = random.standard_normal((20, d)), 1500
    X = (centres[np.arange(n) % 20] + random.standard_normal((n, d))).astype(np.float32)
    labels = random.randint(0, 3, n)
    index = cfe.IndexEvidenceIVF(d, 30, metric=metric)
    index.cp.niter = 2
    index.train(X)
    index.add_with_labels(X[:1400], labels[:1400])
    note(index.search_stored(k=5, nprobe=2), index.search_certified(k=5, nprobe=6), [index.centroids()])
    index.add_with_labels(X[1400:], labels[1400:])
    note(index.search_per_label(X[:9], labels[:9], 3), index.search_stored(np.arange(3), 5, recall=0.8))
    for q in range(40):
        query = X[q : q + 1], labels[q : q + 1], 7
        note(index.search_evidence(*query, 3), index.search_evidence(*query, recall=0.8))
    digest.update(repr(index.recall_by_class(0.95, 7, queries=1)).encode())
for d in (7, 16, 45, 500):
    X, labels = (random.random_sample((900, d)) < 0.2).astype(np.float32), np.arange(900) % 3
    index = cfe.IndexEvidenceFlat(d, "tanimoto")
    index.add_with_labels(X, labels)
    note(index.search_stored(k=5), index.range_search_evidence(X[:9], labels[:9], 0.3))
    note(*(index.search_evidence(X[q : q + 1], labels[q : q + 1], 7) for q in range(40)))
    note(index.search_evidence(X[:50], labels[:50], 9, per_group=2))
print(digest.hexdigest())
"""


def test_every_instruction_set_gives_the_same_bits() -> None:
    assert len(outputs_of_levels(RUN)) == 1
