"""FAISS's objects own their memory: reads, copies and unpicklings in any number leave the process sound."""

import pytest
from reference import output_of

CHILD = """
import copy, gc, io, pickle, sys, tempfile
from pathlib import Path

import faiss
import numpy as np

import cfe_faiss as cfe

D, N = 8, 300
X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
LABELS = np.arange(N) % 3


def made(description, ids=None, after=None):
    index = cfe.index_factory(D, description)
    if not index.is_trained:
        index.train(X)
    index.add_with_labels(X, LABELS, **({} if ids is None else {"ids": ids}))
    if after is not None:
        after(index)
    return index


def again(index):
    index.remove_ids([5])
    index.add_with_labels(X[5:6], LABELS[5:6], ids=[5])


def one_by_one(index):
    for last in range(N - 1, N - 6, -1):
        index.remove_ids([last])


with_ids = "IDMap2,EvidenceFlat"
indexes = [
    made("EvidenceFlat"),
    made("EvidenceFlat", after=one_by_one),
    made("EvidenceFlat", after=lambda index: index.remove_ids([0, 7])),
    made(with_ids, np.arange(N)[::-1].copy()),
    made(with_ids, after=again),
    made(with_ids, after=one_by_one),
    made("EvidenceIVF4,Flat", after=one_by_one),
    made("EvidenceIVF4x2,Flat", np.arange(N)[::-1].copy()),
    made("EvidenceIVFauto,Flat"),
    made("EvidenceIVF4,SQ8"),
    made("EvidenceIVF4,SQfp16"),
    made("EvidenceIVF4,PQ2,RFlat"),
    made("EvidenceIVF4_HNSW4,Flat"),
    made("PCA4,EvidenceIVF4,Flat"),
]
stores = []
for kind in (None, "EvidenceIVF4,Flat"):
    store = cfe.EvidenceStore(D, kind)
    store.add([str(i) for i in range(N)], X, LABELS.tolist())
    for last in range(N - 1, N - 4, -1):
        store.delete([str(last)])
    stores.append(store)


def copies_of(index, path):
    yield copy.copy(index)
    yield copy.deepcopy(index)
    yield pickle.loads(pickle.dumps(index))
    if isinstance(index, faiss.IndexPreTransform):
        return
    yield cfe.clone_index(index)
    yield cfe.read_index(path)
    yield cfe.read_index(path, faiss.IO_FLAG_MMAP)
    yield cfe.deserialize_index(cfe.serialize_index(index))


def memory():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096


with tempfile.TemporaryDirectory() as folder:
    paths = [Path(folder, str(number)) for number in range(len(indexes))]
    for index, path in zip(indexes, paths):
        if not isinstance(index, faiss.IndexPreTransform):
            cfe.write_index(index, path)
    folders = [Path(folder, f"store-{number}") for number in range(len(stores))]
    for store, path in zip(stores, folders):
        store.save(path)
    used, count = 0, 0
    for number in range(ROUNDS):
        if number == ROUNDS // 4:
            used = memory()
        for index, path in zip(indexes, paths):
            for twin in copies_of(index, path):
                count += 1
                assert type(twin) is type(index), (twin, index)
                assert twin.ntotal == index.ntotal
                if number == 0:
                    for query in (lambda one: one.search(X[:5, : one.d], 3)[1], lambda one: one.reconstruct(3)):
                        assert np.array_equal(query(twin), query(index))
        for store, path in zip(stores, folders):
            for twin in (cfe.EvidenceStore.load(path), cfe.EvidenceStore.load(path, mmap=True), copy.deepcopy(store)):
                count += 1
                assert twin.evidence("0", k=3).ids == store.evidence("0", k=3).ids
    grown = memory() - used
    assert count >= 500, count
    assert grown < 12 << 20, grown

faiss.IndexFlatIP(3).add(np.zeros((1, 3), np.float32))
faiss.IndexIDMap2(faiss.IndexFlatL2(3)).add_with_ids(np.zeros((1, 3), np.float32), np.array([7]))
print("sound", count)
"""


def test_many_reads_copies_and_loads_leave_the_process_sound() -> None:
    pytest.importorskip("pyarrow")  # of stores
    code = CHILD.replace("ROUNDS", "16")
    assert "sound" in output_of(code)
