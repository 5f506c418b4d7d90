"""Indexes whose vectors are codes: scalar quantizers, and product quantizers that refine."""

import pickle
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import (
    Stored,
    assert_same_arrays,
    clustered,
    cosines,
    similarities,
    top_pairs,
    unit,
    with_rows,
)

import cfe_faiss as cfe

QTYPES = [faiss.ScalarQuantizer.QT_8bit, faiss.ScalarQuantizer.QT_fp16]


def with_scalar_codes(qtype: int, X: Any, labels: Any) -> cfe.IndexEvidenceIVFScalarQuantizer:
    index = cfe.IndexEvidenceIVFScalarQuantizer(X.shape[1], 9, qtype=qtype)
    index.train(X)
    index.add_with_labels(X, labels)
    return index


@pytest.mark.parametrize("qtype", QTYPES)
def test_global_evidence_is_that_of_the_decoded_rows(qtype: int) -> None:
    X, labels = clustered(300, 10, 3)
    index = with_scalar_codes(qtype, X, labels)
    rows = index.reconstruct_n(0, 300)
    S = cosines(rows, rows)
    first, second = np.nonzero(np.triu(labels[:, None] != labels, 1))
    order = np.lexsort((second, first, -S[first, second]))[:40]
    for effort in ({"exact": True}, {"exact": False, "nprobe": 9}, {"nprobe": 9}):
        pairs = cfe.global_evidence(index, 40, **effort)
        assert_array_equal(pairs.source, first[order])
        assert_array_equal(pairs.target, second[order])
        assert_array_equal(pairs.similarity, S[first[order], second[order]])
    of_floats = top_pairs(Stored(X, labels, np.arange(300), X, labels, 3))[:40]
    error = np.abs(pairs.similarity - [score for *_, score in of_floats]).max()
    assert error < (1e-3 if qtype == QTYPES[1] else 1e-2)


def test_the_range_comes_from_a_sample_of_fixed_size(monkeypatch: pytest.MonkeyPatch) -> None:
    X = clustered(400, 6, 2)[0]
    one, two = (cfe.IndexEvidenceIVFScalarQuantizer(6, 4) for _ in range(2))
    monkeypatch.setattr(faiss.IndexIVFScalarQuantizer, "train_encoder_num_vectors", lambda self: 50)
    one.train(X)
    two.train(X)
    assert_array_equal(faiss.vector_to_array(one.sq.trained), faiss.vector_to_array(two.sq.trained))
    assert (np.ptp(unit(X), axis=0) >= faiss.vector_to_array(one.sq.trained)[6:]).all()


@pytest.mark.parametrize("metric", ["ip", "l2"])
@pytest.mark.parametrize("scale", [1e-20, 1e7, 9e13])
def test_levels_of_any_size_are_written_and_read(metric: Any, scale: float, tmp_path: Path) -> None:
    X, labels = clustered(300, 8, 3)
    X *= np.float32(scale / np.linalg.norm(X, axis=1).max())
    index = with_rows(cfe.index_factory(8, "EvidenceIVF4,SQ8", metric), X, labels)
    expected = index.search_evidence(X[:20], labels[:20], 5, exact=True)
    rows = index.reconstruct_batch(np.arange(300)).astype(np.float64)
    scores = X[:20].astype(np.float64) @ rows.T
    if metric == "l2":
        scores = -((X[:20, None].astype(np.float64) - rows) ** 2).sum(axis=-1)
    scores[labels[:20, None] == labels] = -np.inf
    wanted = np.argsort(-scores.astype(np.float32), axis=1, kind="stable")[:, :5]
    assert_array_equal(expected[1], wanted)
    cfe.write_index(index, tmp_path / "index")
    for other in (cfe.read_index(tmp_path / "index"), pickle.loads(pickle.dumps(index))):
        assert_array_equal(other.search_evidence(X[:20], labels[:20], 5, exact=True), expected)


# --- product quantizers ----------------------------------------------------------------------------

X, LABELS = clustered(1500, 16, 3)
LISTS = 20


@pytest.fixture(scope="module")
def empty() -> bytes:
    index = cfe.IndexEvidenceIVFPQ(16, LISTS, 4, 2)
    index.pq.cp.niter = 3
    index.train(X)
    return pickle.dumps(index)


def filled(empty: bytes) -> cfe.IndexEvidenceIVFPQ:
    index: cfe.IndexEvidenceIVFPQ = pickle.loads(empty)
    index.add_with_labels(X, LABELS)
    return index


def test_a_search_looks_at_the_best_by_their_codes(empty: bytes) -> None:
    index = filled(empty)
    stock = index.to_stock()
    stock.nprobe = LISTS
    stock.make_direct_map()
    approximate = unit(X[:50]) @ stock.reconstruct_n(0, len(X)).T
    S = similarities(X[:50], X)
    index.k_factor = 2
    # all lists of both partitions except one
    _, I = index.search_evidence(X[:50], LABELS[:50], 10, 2 * LISTS - 1)
    for v in range(50):
        scores = np.where(LABELS[v] != LABELS, approximate[v], -9)
        looked_at = np.argsort(-scores, kind="stable")[:20]
        if np.diff(np.sort(-scores)[18:21]).min() < 1e-5:
            continue  # a tie up to rounding
        best = looked_at[np.lexsort((looked_at, -S[v, looked_at]))][:10]
        assert_array_equal(I[v], best)


def test_more_looks_find_more(empty: bytes) -> None:
    index = filled(empty)
    exact = index.search_stored(k=10, nprobe=2 * LISTS)
    recalls = []
    for k_factor in (1, 2, 8, 150):
        index.k_factor = k_factor
        D, I = index.search_stored(k=10, nprobe=2 * LISTS - 1)
        recalls.append(cfe.metrics.recall(I, exact[1], D, exact[0]))
    assert recalls == sorted(recalls)
    assert recalls[0] < 0.9
    assert recalls[-1] == 1


def test_results_do_not_depend_on_how_the_index_came_about(empty: bytes) -> None:
    """Holds for few probed lists, too: among equal codes, the smaller id is scored."""
    rows = np.arange(len(X)) % 700  # every vector occurs two or three times
    plain, changed = pickle.loads(empty), pickle.loads(empty)
    plain.add_with_labels(X[rows], LABELS)
    for part in np.array_split(np.random.default_rng(3).permutation(len(X)), 4):
        changed.add_with_labels(X[rows[part]], (LABELS[part] + 1) % 3, part)
    changed.remove_ids(np.arange(100, 400))
    changed.relabel(np.delete(LABELS, slice(100, 400)))
    changed.add_with_labels(X[rows[100:400]], LABELS[100:400], np.arange(100, 400))
    for index in (plain, changed):
        index.k_factor = 1.5
    for nprobe in (1, 3, 2 * LISTS - 1):
        found = plain.search_stored(k=7, nprobe=nprobe)
        assert_same_arrays(found, changed.search_stored(k=7, nprobe=nprobe))
    assert_array_equal(changed.reconstruct_batch(np.arange(len(X))), unit(X)[rows])
    stock, other = plain.to_stock(), changed.to_stock()
    assert_array_equal(stock.search(unit(X[:50]), 5)[0], other.search(unit(X[:50]), 5)[0])


def test_copies_keep_the_factor_and_the_vectors(empty: bytes) -> None:
    index = filled(empty)
    index.k_factor = 3
    again = pickle.loads(pickle.dumps(index))
    assert again.k_factor == 3
    assert_array_equal(again.reconstruct_n(), unit(X))
    again.remove_ids(np.arange(1000))
    again.reset()
    assert index.ntotal == len(X)
    assert_array_equal(index.reconstruct_n(), unit(X))


def test_a_bad_factor_is_an_error_of_the_search(empty: bytes) -> None:
    index = filled(empty)
    index.k_factor = 0
    with pytest.raises(ValueError, match="k_factor must lie in"):
        index.search_stored([3], k=2, nprobe=3)


# --- product-quantizer codes are refined, as FAISS's own ------------------------------------------------------------

METRICS = {"ip": faiss.METRIC_INNER_PRODUCT, "l2": faiss.METRIC_L2}


def close(found: Any, expected: Any) -> None:
    assert_array_equal(found[1], expected[1])
    for one, two in zip(found, expected, strict=True):
        assert_allclose(one, two, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_plain_searches_of_codes_are_refined(metric: str) -> None:
    x = np.random.default_rng(0).normal(size=(3000, 32)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x[1000:] *= 2
    xq = x[:100]
    stock = faiss.index_factory(32, "IVF16,PQ8,RFlat", METRICS[metric])
    trained: Any = cfe.index_factory(32, "EvidenceIVF16,PQ8,RFlat", metric)
    base = faiss.downcast_index(stock.base_index)
    base.pq.cp.min_points_per_centroid = 1
    for one in (trained, stock):
        one.train(x)
        one.add(x)
        one.k_factor = 8
    trained.nprobe = base.nprobe = 16
    truth = faiss.knn(xq, x, 10, metric=METRICS[metric])[1]
    shift = 10**4 * np.arange(100)[:, None]  # the same id of another query is another result
    missed = [
        np.setdiff1d(truth + shift, one.search(xq, 10)[1] + shift).size / 1000
        for one in (trained, stock)
    ]
    assert missed[0] <= missed[1] + 0.01
    index = cfe.IndexEvidenceIVFPQ.from_stock(stock, np.arange(3000) % 3)
    close(index.search(xq, 10), stock.search(xq, 10))
    assert_array_equal(index.assign(xq, 3), stock.assign(xq, 3))
    assert_array_equal(index.sa_encode(xq), index.to_stock().sa_encode(xq))
    D, I, R = index.search_and_reconstruct(xq, 3)
    assert_array_equal(R[0], x[I[0]])
    assert_array_equal(index.search(xq, 10, D=(out := np.empty((100, 10), np.float32)))[0], out)
    sel = faiss.IDSelectorRange(500, 900)
    params = faiss.IndexRefineSearchParameters(
        k_factor=12, base_index_params=faiss.SearchParametersIVF(nprobe=3, sel=sel)
    )
    close(index.search(xq, 4, params=params), stock.search(xq, 4, params=params))
    threshold = float(np.median(D))
    lims, D_range, I_range = index.range_search(xq, threshold)
    exact = faiss.IndexFlat(32, METRICS[metric])
    exact.add(x)
    expected = exact.range_search(xq, threshold)
    assert len(I_range) > 0.97 * len(expected[2])
    assert (D_range < threshold).all() if metric == "l2" else (D_range > threshold).all()
    assert lims[-1] == len(I_range)
