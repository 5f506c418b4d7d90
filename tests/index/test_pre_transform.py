"""An evidence index behind transforms: FAISS's methods, copies, and changes that fail."""

import copy
import pickle
import threading

import faiss
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import assert_same_arrays, clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss.index.factory import IndexEvidencePreTransform

RAW, LABELS = clustered(600, 16, 3)


def filled(kind: str = "PCAR8,EvidenceIVF12,Flat") -> IndexEvidencePreTransform:
    return with_rows(cfe.index_factory(16, kind), RAW, LABELS)


@pytest.mark.parametrize("kind", ["PCAR8,L2norm,EvidenceFlat", "PCA8,EvidenceIVF12,SQ8"])
def test_copies_hold_transforms_and_evidence(kind: str) -> None:
    index = filled(kind)
    for twin in (pickle.loads(pickle.dumps(index)), copy.copy(index), copy.deepcopy(index)):
        found = twin.search_evidence(RAW[:9], LABELS[:9], 5)
        assert_same_arrays(found, index.search_evidence(RAW[:9], LABELS[:9], 5))
        twin.remove_ids([0])
        assert (twin.ntotal, index.ntotal) == (599, 600)


def test_files_of_faiss_tell_the_number_of_vectors() -> None:
    index = filled()
    index.remove_ids([3])
    assert faiss.deserialize_index(faiss.serialize_index(index)).ntotal == 599
    index.reset()
    assert faiss.clone_index(index).ntotal == 0


def test_searches_of_faiss_wait_for_changes() -> None:
    index, found = filled(), []
    searches = (
        lambda: index.search(RAW[:3], 2),
        lambda: index.range_search(RAW[:3], 0.5),
        lambda: index.search_and_reconstruct(RAW[:3], 2),
        lambda: index.assign(RAW[:3], 2),
        lambda: index.reconstruct(3),
        lambda: index.reconstruct_n(0, 3),
    )
    threads = [threading.Thread(target=lambda one=one: found.append(one())) for one in searches]
    with index.evidence.changing():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(0.05)
        assert not found
    for thread in threads:
        thread.join(60)
    assert len(found) == len(searches)


def test_methods_of_faiss_give_its_results() -> None:
    index = filled()
    stock = faiss.deserialize_index(faiss.serialize_index(index))
    params = faiss.SearchParametersPreTransform(index_params=faiss.SearchParametersIVF(nprobe=2))
    for how in ({}, {"params": params}):
        assert_same_arrays(index.search(RAW[:5], 3, **how), stock.search(RAW[:5], 3, **how))
    found, expected = (one.search_and_reconstruct(RAW[:5], 3) for one in (index, stock))
    for one, two in zip(found, expected, strict=True):
        assert_allclose(one, two, atol=1e-5)
    assert_allclose(index.reconstruct_n(4, 3), stock.reconstruct_n(4, 3), atol=1e-5)
    assert_allclose(index.reconstruct_batch([4, 6]), stock.reconstruct_n(4, 3)[::2], atol=1e-5)
    D, I = np.empty((5, 3), np.float32), np.empty((5, 3), np.int64)
    assert index.search(RAW[:5], 3, D=D, I=I)[1] is I
    assert_array_equal(index.assign(RAW[:5], 3), I)


def test_evidence_under_rules() -> None:
    index, evidence = filled(), cfe.EvidenceParameters(labels=LABELS[:5], exact=True)
    D, I = index.search_evidence(RAW[:5], LABELS[:5], 3, exact=True)
    assert_array_equal(index.search_and_reconstruct(RAW[:5], 3, params=evidence)[1], I)
    lims, _, found = index.range_search_evidence(RAW[:5], LABELS[:5], D.min(), exclude=I[:, :1])
    assert I[0, 0] not in found[: lims[1]]
    each = index.search_per_label(RAW[:5], LABELS[:5], 1, exact=True)
    assert_array_equal(each[0].max(axis=(1, 2)), D[:, 0])


def test_training_is_whole_or_not_at_all() -> None:
    index, other = (cfe.index_factory(16, "PCA8,EvidenceIVF20,Flat") for _ in range(2))
    with pytest.raises(ValueError, match="at least nlist = 20 training vectors, got 10"):
        index.train(RAW[:10])
    assert not index.is_trained
    for one in (index, other):
        one.train(RAW)
        one.add_with_labels(RAW, LABELS)
    assert_array_equal(index.search(RAW[:5], 3)[0], other.search(RAW[:5], 3)[0])


def test_merging_keeps_labels() -> None:
    index = filled()
    other = copy.copy(index)
    index.merge_from(other, 600)
    expected = (1200, 0, LABELS[100])
    assert (index.ntotal, other.ntotal, index.evidence.members().labels[700]) == expected
    with pytest.raises(ValueError, match="otherIndex must have the same transforms"):
        index.merge_from(cfe.index_factory(16, "PCAR8,EvidenceIVF12,Flat"))
    with pytest.raises(TypeError, match="otherIndex must be an IndexEvidencePreTransform"):
        index.merge_from(index.evidence)


def test_a_chain_needs_an_evidence_index() -> None:
    for wrong in (None, faiss.IndexFlatIP(4)):
        with pytest.raises(TypeError, match="evidence must be an evidence index"):
            cfe.IndexEvidencePreTransform([], wrong)
