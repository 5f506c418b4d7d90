"""Adding vectors one by one gives the same index as adding them at once, without a pass over the whole index."""

import tracemalloc

import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, lists_of_rows, quick

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex

N, D = 260, 8
X, LABELS = clustered(N, D, 4)
IDS = np.random.default_rng(3).permutation(5000)[:N]
KINDS = [
    "IDMap2,EvidenceFlat",
    *(f"EvidenceIVF7x2,{codec}" for codec in ("Flat", "SQ8", "SQfp16", "PQ4,RFlat")),
]


def empty(kind: str) -> EvidenceIndex:
    index = quick(cfe.index_factory(D, kind))
    if isinstance(index, faiss.IndexIVF):
        index.train(clustered(300, D, 3)[0])
        index.nprobe = 14
    return index


@pytest.mark.parametrize("own_ids", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_one_by_one_is_as_at_once(kind: str, own_ids: bool) -> None:
    one_by_one, at_once = empty(kind), empty(kind)
    ids = IDS if own_ids else np.arange(N)
    at_once.add_with_labels(X, LABELS, ids)
    one_by_one.add_with_labels(X[:90], LABELS[:90], ids[:90])
    for i in range(90, N):
        one_by_one.add_with_labels(
            X[i : i + 1], LABELS[i : i + 1], ids[i : i + 1] if own_ids else None
        )
        if i % 50 == 0:  # cached data of readers must not interfere
            assert len(one_by_one.search_stored(k=3)[0]) == i + 1
    assert_same_arrays(one_by_one.search_stored(k=6), at_once.search_stored(k=6))
    for name in ("ids", "labels"):
        assert_array_equal(getattr(one_by_one.members(), name), getattr(at_once.members(), name))
    assert_array_equal(one_by_one.reconstruct_batch(ids), at_once.reconstruct_batch(ids))
    if isinstance(one_by_one, faiss.IndexIVF):
        assert_array_equal(lists_of_rows(one_by_one), lists_of_rows(at_once))
        for j in range(7):
            size = at_once.invlists.list_size(j)
            lists = [
                faiss.rev_swig_ptr(index.invlists.get_ids(j), size)
                for index in (one_by_one, at_once)
            ]
            assert_array_equal(*lists)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_that_are_there_are_refused_one_by_one_and_many_at_once(kind: str) -> None:
    index = empty(kind)
    index.add_with_labels(X[:200], LABELS[:200], IDS[:200])
    for _ in range(2):
        message = f"ids must not be in the index yet, got {IDS[7]}, which is"
        with pytest.raises(ValueError, match=message):
            index.add_with_labels(X[:1], [0], IDS[7:8])
        message = f"ids must not be in the index yet, got {IDS[7]}, which is"
        with pytest.raises(ValueError, match=message):
            index.add_with_labels(X[:60], LABELS[:60], np.append(IDS[200:259], IDS[7]))
        index.add_with_labels(X[200:201], [0], IDS[200:201])
        index.remove_ids(IDS[200:201])
    assert index.remove_ids(IDS[:9]) == 9
    index.add_with_labels(X[7:8], LABELS[7:8], IDS[7:8])
    assert_array_equal(np.sort(index.members().ids), np.sort(np.append(IDS[9:200], IDS[7])))


def test_labels_that_stay_change_nothing() -> None:
    index = empty("IDMap2,EvidenceFlat")
    index.add_with_labels(X[:200], LABELS[:200])
    index.add_with_labels(X[200:205], [0, 1, 0, 1, 0])
    before = index.search_stored(k=4)
    index.relabel(index.members().labels)
    assert_same_arrays(before, index.search_stored(k=4))


def test_a_direct_map_of_type_array_takes_ids_in_a_row() -> None:
    index = empty("EvidenceIVF7x2,Flat")
    index.add_with_labels(X[:9], LABELS[:9])
    index.make_direct_map()
    for change in (
        lambda: index.add_with_labels(X[9:10], [0], [11]),
        lambda: index.remove_ids(np.array([3])),
    ):
        with pytest.raises(RuntimeError, match="a direct map of type Array takes"):
            change()
    assert index.ntotal == 9
    index.remove_ids(np.array([8]))
    index.add_with_labels(X[8:10], LABELS[8:10])
    assert_array_equal(faiss.IndexIVFFlat.reconstruct(index, 9), index.reconstruct(9))
    sparse = empty("EvidenceIVF7x2,Flat")
    sparse.add_with_labels(X[:2], LABELS[:2], [5, 9])
    with pytest.raises(RuntimeError):
        sparse.make_direct_map()
    assert sparse.direct_map.type == faiss.DirectMap.NoMap


@pytest.mark.parametrize("kind", KINDS)
def test_to_add_one_vector_makes_no_array_of_all(kind: str) -> None:
    index, n = empty(kind), 30_000
    many = np.random.default_rng(0).normal(size=(n, D)).astype(np.float32)
    index.add_with_labels(many, np.arange(n) % 4)
    index.add_with_labels(X[:1], [0])
    tracemalloc.start()
    try:
        for _ in range(3):
            index.add_with_labels(X[:1], [0])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < n  # bytes
