"""FAISS's indexes that hold other indexes, over evidence indexes of every kind, and evidence through them."""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from reference import clustered, unit

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex

KINDS = [
    "IDMap2,EvidenceFlat",
    "EvidenceIVF12,Flat",
    "EvidenceIVF12,SQ8",
    "EvidenceIVF12,PQ4,RFlat",
]
N, D, NLIST, CLASSES = 600, 16, 12, 3
RAW, LABELS = clustered(N, D, CLASSES)
X = unit(RAW)
# With the OpenBLAS of FAISS 1.13 a similarity depends in the last bit on the number of rows.
ROUNDING = 2e-7 if tuple(map(int, faiss.__version__.split(".")[:2])) < (1, 14) else 0
CHANGED = r"the index holds \d+ vectors and \d+ labels"


def empty(kind: str) -> EvidenceIndex:
    index = cfe.index_factory(D, kind)
    if index.has_lists:
        index.train(X)
        index.nprobe = NLIST
    return index


def search_part(index: Any, x: Any, k: int) -> Any:
    """Search FAISS's part of an index in C++, which does not refine codes."""
    return faiss.downcast_index(index).search(x, k)


def filled(kind: str, rows: slice = slice(None)) -> EvidenceIndex:
    index = empty(kind)
    index.add_with_labels(X[rows], LABELS[rows], np.arange(N)[rows])
    return index


def others(kind: str, label: int) -> Any:
    """Return stock parameters that leave a class out, for whatever searches in C++."""
    sel = faiss.IDSelectorBatch(np.flatnonzero(label != LABELS))
    if kind == "IDMap2,EvidenceFlat":
        return faiss.SearchParameters(sel=sel)
    return faiss.SearchParametersIVF(sel=sel, nprobe=NLIST)


def exact(kind: str) -> dict[str, Any]:
    return {} if kind == "IDMap2,EvidenceFlat" else {"exact": True}


def params_of(nq: int, kind: str) -> cfe.EvidenceParameters:
    return cfe.EvidenceParameters(labels=LABELS[:nq], **exact(kind))


def assert_same(one: tuple[NDArray[Any], ...], two: tuple[NDArray[Any], ...]) -> None:
    for found, expected in zip(one, two, strict=True):
        assert_allclose(found, expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_shards_search_every_shard(kind: str, threaded: bool) -> None:
    halves = [filled(kind, slice(None, N // 2)), filled(kind, slice(N // 2, None))]
    shards = faiss.IndexShards(D, threaded, False)  # ids as they are
    for half in halves:
        shards.add_shard(half)
    assert shards.ntotal == N
    assert_same(shards.search(X[:40], 3), search_part(filled(kind), X[:40], 3))
    if kind == "IDMap2,EvidenceFlat" and threaded:
        return  # FAISS's id maps put their own selectors into the parameters, which its threads share
    found = shards.search(X[:40], 3, params=others(kind, 0))[1]
    assert (LABELS[found] != 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_replicas_answer_like_the_index(kind: str) -> None:
    index = filled(kind)
    replicas = faiss.IndexReplicas(D)
    for replica in (index, cfe.clone_index(index), index.to_stock()):
        replicas.addIndex(replica)
    assert (replicas.ntotal, replicas.count()) == (N, 3)
    assert_same(replicas.search(X[:40], 3), search_part(index, X[:40], 3))
    index.relabel((LABELS + 1) % 3)  # moves rows of a list; FAISS goes on
    assert_array_equal(replicas.search(X[:40], 3)[1], search_part(index, X[:40], 3)[1])
    assert replicas.at(0).ntotal == N


@pytest.mark.parametrize("kind", KINDS)
def test_refinement_of_a_filled_index(kind: str) -> None:
    index = filled(kind)
    refined = faiss.IndexRefineFlat(index, faiss.swig_ptr(X))
    refined.k_factor = 20
    flat = filled("IDMap2,EvidenceFlat")
    assert_array_equal(refined.search(X[:40], 3)[1], flat.search(X[:40], 3)[1])
    params = faiss.IndexRefineSearchParameters(k_factor=20, base_index_params=others(kind, 1))
    D_found, I_found = refined.search(X[:40], 3, params=params)
    D_exact, I_exact = flat.search(X[:40], 3, params=cfe.EvidenceParameters(labels=1))
    assert_array_equal(I_found, I_exact)
    np.testing.assert_allclose(D_found, D_exact, atol=1e-6)


@pytest.mark.parametrize("kind", ["EvidenceFlat", *KINDS[1:]])
def test_an_id_map_may_fill_an_index_of_which_only_plain_searches_are_then_asked(kind: str) -> None:
    index, ids = empty(kind), np.random.default_rng(2).permutation(10**6)[:N]
    mapped = faiss.IndexIDMap2(index)
    mapped.add_with_ids(X, ids)
    assert_array_equal(mapped.search(X[:30], 3)[1], ids[search_part(filled(kind), X[:30], 3)[1]])
    with pytest.raises(RuntimeError, match=CHANGED):
        index.search_stored(k=2)
    if (
        kind == "EvidenceIVF12,Flat"
    ):  # what FAISS has filled becomes an evidence index, with the labels
        index = cfe.IndexEvidenceIVF.from_stock(faiss.downcast_index(mapped.index), LABELS)
        expected = filled("IDMap2,EvidenceFlat").search_stored(k=3)
        assert_same(index.search_stored(k=3, exact=True), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_an_id_map_takes_no_filled_index(kind: str) -> None:
    with pytest.raises(RuntimeError, match="index must be empty"):
        faiss.IndexIDMap2(filled(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_transform_in_front(kind: str, tmp_path: Path) -> None:
    wide = np.random.default_rng(1).normal(size=(N, 2 * D)).astype(np.float32)
    pca = faiss.PCAMatrix(2 * D, D)
    pca.train(wide)
    index = cfe.index_factory(D, kind)
    if kind != "IDMap2,EvidenceFlat":
        index.train(pca.apply(wide))
        index.nprobe = NLIST
    index.add_with_labels(pca.apply(wide), LABELS)
    chain = faiss.IndexPreTransform(pca, index)
    assert_same(chain.search(wide[:30], 4), search_part(index, pca.apply(wide[:30]), 4))
    found = chain.search(
        wide[:30], 4, params=faiss.SearchParametersPreTransform(index_params=others(kind, 2))
    )[1]
    assert (LABELS[found] != 2).all()
    # Both parts are written by their own functions: FAISS would write the stock index.
    faiss.write_VectorTransform(pca, str(tmp_path / "pca"))
    cfe.write_index(index, tmp_path / "index")
    pca = faiss.read_VectorTransform(str(tmp_path / "pca"))
    index = cfe.read_index(tmp_path / "index")
    assert (
        LABELS[index.search_evidence(pca.apply(wide[:9]), LABELS[:9], 3)[1]] != LABELS[:9, None]
    ).all()
