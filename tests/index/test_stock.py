"""FAISS's methods on evidence indexes, as used by programs written for FAISS."""

import threading
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, quick, unit

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex

IVF = ["EvidenceIVF8,Flat", "EvidenceIVF8x2,Flat", "EvidenceIVF8,SQ8", "EvidenceIVF8,PQ4,RFlat"]
KINDS = ["IDMap2,EvidenceFlat", *IVF]
IVF = KINDS[1:]
N, D = 400, 8
RAW, LABELS = clustered(N, D, 3)
X = unit(RAW)


def filled(kind: str) -> EvidenceIndex:
    index = quick(cfe.index_factory(D, kind))
    if kind != "IDMap2,EvidenceFlat":
        index.train(X)
    index.add_with_labels(X, LABELS)
    return index


@pytest.mark.parametrize("kind", IVF)
def test_methods_of_inverted_files_answer_as_the_stock_index(kind: str) -> None:
    index = filled(kind)
    stock = faiss.downcast_index(index)
    near, lists = index.quantizer.search(X[:7], index.nprobe)
    for name, argument in (("search_preassigned", 3), ("range_search_preassigned", 0.7)):
        answer = getattr(index, name)(X[:7], argument, lists, near)
        assert_same_arrays(answer, getattr(stock, name)(X[:7], argument, lists, near))
    found = index.search_and_return_codes(X[:7], 3, include_listnos=True)
    assert_same_arrays(found, stock.search_and_return_codes(X[:7], 3, include_listnos=True))


@pytest.mark.parametrize("kind", KINDS)
def test_reading_waits_while_the_index_changes(kind: str) -> None:
    index, near = filled(kind), threading.Event()
    found: list[Any] = []

    def read() -> None:
        near.set()
        found.append(index.assign(X[:1], 1))

    with index.changing():
        thread = threading.Thread(target=read)
        thread.start()
        near.wait()
        thread.join(0.05)
        assert found == []
    thread.join()
    assert_array_equal(found[0], index.search(X[:1], 1)[1])


@pytest.mark.parametrize("kind", KINDS)
def test_threads_may_share_parameters(kind: str) -> None:
    index, sel = filled(kind), faiss.IDSelectorBatch(np.arange(0, N, 2))
    shared = (
        faiss.SearchParameters(sel=sel)
        if kind == "IDMap2,EvidenceFlat"
        else faiss.SearchParametersIVF(sel=sel, nprobe=8)
    )
    expected = index.search(X[:50], 5, params=shared)[1]
    assert (expected % 2 == 0).all()
    found: list[Any] = []

    def search() -> None:
        for _ in range(30):
            found.append(index.search(X[:50], 5, params=shared)[1])
            index.range_search(X[:5], 0.9, params=shared)

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 120
    for I in found:
        assert_array_equal(I, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_comes_with_its_vectors(kind: str) -> None:
    index = filled(kind)
    params = cfe.EvidenceParameters(
        LABELS[:9], nprobe=16 if index.has_lists else None, sel=range(100, 103)
    )
    D_, I, R = index.search_and_reconstruct(X[:9], 5, params=params)
    expected = index.search(X[:9], 5, params=params)
    assert_same_arrays((D_, I), expected)
    assert R.shape == (9, 5, D)
    assert_array_equal(R[I >= 0], index.reconstruct_batch(I[I >= 0]))
    assert (I < 0).any()
    assert np.isnan(R[I < 0]).all()
    out = np.empty((9, 5, D), np.float32)
    assert index.search_and_reconstruct(X[:9], 5, params=params, R=out)[2] is out
    with pytest.raises(ValueError, match=r"R must be a float32 array of shape \(9, 5, 8\)"):
        index.search_and_reconstruct(X[:9], 5, params=params, R=out[:2])
    for search in (index.search, index.search_and_reconstruct):
        with pytest.raises(TypeError, match="numeric_type together with EvidenceParameters"):
            search(X[:9], 5, params=params, numeric_type=faiss.Float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.float32, np.int8])
def test_vectors_of_any_type_and_layout(kind: str, dtype: Any) -> None:
    given = (np.asarray(RAW * 8, dtype)).astype(dtype)
    expected = filled_with(kind, given.astype(np.float32))
    for x in (given, np.asfortranarray(given), np.repeat(given, 2, axis=0)[::2], given.tolist()):
        index = filled_with(kind, x)
        assert_same_arrays(index.search_stored(k=3), expected.search_stored(k=3))
    names = {np.float16: faiss.Float16, np.float32: faiss.Float32, np.int8: faiss.Int8}
    if dtype in names:
        index = quick(cfe.index_factory(D, kind))
        if kind != "IDMap2,EvidenceFlat":
            index.train(RAW * 8, numeric_type=names[dtype])
        index.add_with_ids(RAW * 8, np.arange(N), numeric_type=names[dtype])
        index.relabel(LABELS)
        assert_array_equal(index.search_stored(k=3)[1], expected.search_stored(k=3)[1])
        index.reset()
        index.add(RAW * 8, numeric_type=names[dtype])
        assert index.ntotal == N


def filled_with(kind: str, x: Any) -> EvidenceIndex:
    index = quick(cfe.index_factory(D, kind))
    if kind != "IDMap2,EvidenceFlat":
        index.train(x)
    index.add_with_labels(x, LABELS)
    return index


def test_another_numeric_type_is_refused() -> None:
    index = cfe.IndexEvidenceIDMap2(D)
    for use in (
        lambda: index.add(X, numeric_type=9),
        lambda: index.add_with_ids(X, np.arange(N), numeric_type=9),
    ):
        with pytest.raises(ValueError, match=r"numeric_type .*got 9"):
            use()
    assert index.ntotal == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "PQ" not in kind])
def test_codes_can_be_added(kind: str) -> None:
    index = filled(kind)
    codes = index.sa_encode(X[:20])
    index.add_sa_codes(codes, np.arange(20) + 1000)
    index.add_sa_codes(codes[:0])
    assert index.ntotal == N + 20
    assert_array_equal(index.members().labels[N:], np.full(20, -1))
    index.relabel((LABELS[:20] + 1) % 3, np.arange(20) + 1000)
    D_, I = index.search_evidence(
        X[:20], LABELS[:20], 1, **({} if kind == "IDMap2,EvidenceFlat" else {"exact": True})
    )
    assert_array_equal(I[:, 0], np.arange(20) + 1000)
    assert D_.min() > 0.99
    for wrong in (codes[:, 1:], codes.astype(np.int64), codes[0]):
        with pytest.raises(ValueError, match=r"codes must be uint8 of shape \(n, \d+\), got"):
            index.add_sa_codes(wrong)
    with pytest.raises(ValueError, match="ids must not be in the index yet, got 7"):
        index.add_sa_codes(codes[:1], [7])
    assert index.ntotal == N + 20


def test_codes_of_a_product_quantizer_do_not_tell_the_vectors() -> None:
    index = filled("EvidenceIVF8,PQ4,RFlat")
    with pytest.raises(NotImplementedError, match="codes do not tell the vectors"):
        index.add_sa_codes(index.sa_encode(X[:3]))
    assert index.ntotal == N


def flat_stock() -> faiss.IndexFlatIP:
    stock = faiss.IndexFlatIP(D)
    stock.add(X[:7])
    return stock


@pytest.mark.parametrize("kind", KINDS)
def test_what_can_be_merged_is_said_before(kind: str) -> None:
    index = filled(kind)
    for other in (
        filled("EvidenceIVF8,Flat"),
        filled(kind),
        filled("EvidenceIVF8,SQ8").to_stock(),
        flat_stock(),
    ):
        index.check_compatible_for_merge(other)
        index.merge_from(other, 10 * index.ntotal)
        assert other.ntotal == 0
    for wrong, error in (
        (index, ValueError),
        (cfe.IndexEvidenceIDMap2(D + 1), ValueError),
        (filled("EvidenceIVF8,PQ4,RFlat").to_stock(), TypeError),
        (faiss.IndexHNSWFlat(D, 4), TypeError),
    ):
        for use in (index.check_compatible_for_merge, index.merge_from):
            with pytest.raises(error, match="otherIndex must be"):
                use(wrong)


@pytest.mark.parametrize("name", ["IndexIVFFlatPanorama", "IndexIVFFlatDedup"])
def test_lists_of_another_form_are_refused(name: str) -> None:
    if not hasattr(faiss, name):
        pytest.skip(f"this FAISS has no {name}")
    parts = (4,) if "Panorama" in name else ()
    stock = getattr(faiss, name)(faiss.IndexFlatL2(D), D, 8, *parts)
    twice = np.repeat(RAW[: len(RAW) // 2], 2, axis=0)
    stock.train(twice)
    stock.add(twice)
    index = cfe.IndexEvidenceIDMap2(D, "l2")
    for use in (
        index.merge_from,
        index.check_compatible_for_merge,
        lambda other: cfe.IndexEvidenceIVF.from_stock(other, np.zeros(len(twice))),
    ):
        message = rf"in its lists, got |the {name} must have its"
        with pytest.raises((TypeError, ValueError), match=message):
            use(stock)
    assert (index.ntotal, stock.ntotal) == (0, len(twice))


@pytest.mark.parametrize("kind", KINDS)
def test_plain_searches_name_a_wrong_argument(kind: str) -> None:
    index = filled(kind)
    for search in (index.search, index.search_and_reconstruct):
        assert_array_equal(search(RAW[:3].tolist(), 2)[1], search(RAW[:3], np.int64(2))[1])
        with pytest.raises(ValueError, match="k must be at least 1, got 0"):
            search(RAW[:3], 0)
        with pytest.raises(ValueError, match=rf"x must have shape \(n, {D}\), got \({D},\)"):
            search(RAW[0], 2)
    with pytest.raises(ValueError, match=rf"x must have shape \(n, {D}\), got \(3, {D - 1}\)"):
        index.range_search(RAW[:3, 1:], 0.5)
