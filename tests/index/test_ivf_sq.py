import pickle
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import (
    Stored,
    assert_same_arrays,
    clustered,
    cosines,
    kept_rows,
    similarities,
    top_pairs,
    unit,
    with_rows,
)

import cfe_faiss as cfe

QTYPES = [faiss.ScalarQuantizer.QT_8bit, faiss.ScalarQuantizer.QT_fp16]


def sq_of(
    stored: Stored, nlist: int, partitions: int, qtype: int
) -> cfe.IndexEvidenceIVFScalarQuantizer:
    index = cfe.IndexEvidenceIVFScalarQuantizer(stored.X.shape[1], nlist, partitions, qtype=qtype)
    index.train(stored.X[:nlist])  # the other vectors may be outside the codec's range
    index.add_with_ids(stored.X, stored.ids)
    index.relabel(stored.labels, stored.ids)
    return index


def as_kept(index: cfe.IndexEvidenceIVFScalarQuantizer, stored: Stored) -> Stored:
    return stored._replace(X=kept_rows(index, unit(stored.X)) if len(stored.X) else stored.X)


@pytest.mark.parametrize("qtype", QTYPES)
def test_global_evidence_is_that_of_the_decoded_rows(qtype: int) -> None:
    X, labels = clustered(300, 10, 3)
    stored = Stored(X, labels, np.arange(300), X, labels, 6)
    index = sq_of(stored, 9, 1, qtype)
    rows = as_kept(index, stored).X
    S = cosines(rows, rows)
    first, second = np.nonzero(np.triu(labels[:, None] != labels, 1))
    order = np.lexsort((second, first, -S[first, second]))[:40]
    for effort in ({"exact": True}, {"exact": False, "nprobe": 9}, {"nprobe": 9}):
        pairs = cfe.global_evidence(index, 40, **effort)
        assert_array_equal(pairs.source, first[order])
        assert_array_equal(pairs.target, second[order])
        assert_array_equal(pairs.similarity, S[first[order], second[order]])


def test_8_bits_are_nearly_as_good_as_32() -> None:
    X, labels = clustered(2000, 32, 3)
    S = similarities(X[:100], X)
    for qtype, error in zip(QTYPES, (5e-3, 5e-4), strict=True):
        index = with_rows(cfe.IndexEvidenceIVFScalarQuantizer(32, 20, qtype=qtype), X, labels)
        D, I = index.search_evidence(X[:100], labels[:100], 10, 20)
        assert np.abs(D - np.take_along_axis(S, I, axis=1)).max() < error


@pytest.mark.parametrize("qtype", QTYPES)
def test_a_stock_index_becomes_an_evidence_index_code_by_code(qtype: int) -> None:
    X, labels = clustered(500, 12, 3)
    ids = np.random.default_rng(0).permutation(10**6)[:500].astype(np.int64)
    stock = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(12), 12, 7, qtype, faiss.METRIC_INNER_PRODUCT, False
    )
    stock.train(unit(X))
    stock.add_with_ids(unit(X), ids)
    stock.nprobe = 3
    index = cfe.IndexEvidenceIVFScalarQuantizer.from_stock(stock, labels[np.argsort(ids)])
    assert (index.ntotal, index.nlist, index.nprobe, stock.ntotal) == (500, 7, 3, 500)
    changed = cfe.IndexEvidenceIVFScalarQuantizer.from_stock(
        stock, labels[np.argsort(ids)], nprobe=5
    )
    assert changed.nprobe == 5
    assert_array_equal(index.members().labels, labels[np.argsort(ids)])
    kept = kept_rows(stock, unit(X))
    assert_array_equal(index.reconstruct_batch(ids), kept)
    assert_same_arrays(index.search(unit(X), 4), stock.search(unit(X), 4))
    again = cfe.IndexEvidenceIVFScalarQuantizer.from_stock(
        index.to_stock(), labels[np.argsort(ids)]
    )
    assert_same_arrays(again.search_stored(k=5), index.search_stored(k=5))


def stock(
    qtype: int = QTYPES[0],
    metric: int = faiss.METRIC_INNER_PRODUCT,
    residual: bool = False,
    scale: float = 1.0,
) -> object:
    X = scale * unit(clustered(100, 4, 2)[0])
    made = faiss.IndexIVFScalarQuantizer(faiss.IndexFlat(4, metric), 4, 2, qtype, metric, residual)
    made.train(X)
    made.add(X)
    return made


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: faiss.IndexFlatIP(4), TypeError, "ivf .*got IndexFlatIP"),
        (lambda: stock(metric=faiss.METRIC_L2), ValueError, "metric .*got 'cosine'"),
        (lambda: stock(faiss.ScalarQuantizer.QT_4bit), ValueError, "QT_8bit .*got qtype 1"),
        (lambda: stock(residual=True), ValueError, "by_residual False, got .*by_residual True"),
        (lambda: stock(scale=2.0), ValueError, "must hold vectors of length 1 .*got one of length"),
        (lambda: stock(scale=0.5), ValueError, "must hold vectors of length 1 .*got one of length"),
        (lambda: stock(QTYPES[1], scale=0.5), ValueError, "must hold vectors of length 1 .*got"),
    ],
)
def test_other_stock_indexes_are_an_error(
    make: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cfe.IndexEvidenceIVFScalarQuantizer.from_stock(make(), [0] * 100, metric="cosine")  # type: ignore[operator]


def test_vectors_that_are_all_equal() -> None:
    """With ranges of width 0, each component decodes to the same value for every code."""
    index = cfe.IndexEvidenceIVFScalarQuantizer(3, 2)
    index.train(np.ones((5, 3)))
    index.add_with_labels([[1, 1, 1], [-1, 2, 0], [0, 0, 0]], [0, 1, 2])
    D, I = index.search_stored(k=2)
    assert_array_equal(I, [[1, 2], [0, 2], [0, 1]])
    assert np.ptp(D) < 1e-6


def test_the_range_comes_from_a_sample_of_fixed_size(monkeypatch: pytest.MonkeyPatch) -> None:
    X = clustered(400, 6, 2)[0]
    one, two = (cfe.IndexEvidenceIVFScalarQuantizer(6, 4) for _ in range(2))
    monkeypatch.setattr(faiss.IndexIVFScalarQuantizer, "train_encoder_num_vectors", lambda self: 50)
    one.train(X)
    two.train(X)
    assert_array_equal(faiss.vector_to_array(one.sq.trained), faiss.vector_to_array(two.sq.trained))
    assert (np.ptp(unit(X), axis=0) >= faiss.vector_to_array(one.sq.trained)[6:]).all()


def test_the_reference_of_pairs_agrees() -> None:
    """``top_pairs`` normalises its rows, which changes float16 rows by rounding only."""
    X, labels = clustered(60, 8, 2)
    stored = Stored(X, labels, np.arange(60), X, labels, 3)
    pairs = cfe.global_evidence(sq_of(stored, 4, 1, QTYPES[1]), 5)
    assert np.abs(pairs.similarity - [s for *_, s in top_pairs(stored)[:5]]).max() < 1e-3


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
