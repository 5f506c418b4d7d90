"""Stock indexes become evidence indexes: vectors, ids, lists and codes stay."""

from typing import Any

import faiss
import numpy as np
import pytest
from indexes import IDS, LABELS, RAW, D, N, X
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, kept_rows, with_rows

import cfe_faiss as cfe

IP, L2 = faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2
SQ8, FP16 = faiss.ScalarQuantizer.QT_8bit, faiss.ScalarQuantizer.QT_fp16
METRICS = {"ip": IP, "l2": L2}
IN_ORDER = LABELS[np.argsort(IDS)]  # of ids


def ivf_flat() -> Any:
    return faiss.IndexIVFFlat(faiss.IndexFlatIP(D), D, 6, IP)


def scalar(qtype: int = SQ8, metric: int = IP, residual: bool = False, scale: float = 1.0) -> Any:
    stock = faiss.IndexIVFScalarQuantizer(faiss.IndexFlat(D, metric), D, 6, qtype, metric, residual)
    if scale != 1:
        stock.train(scale * X)
        stock.add(scale * X)
    return stock


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (cfe.IndexEvidenceIVF, ivf_flat),
        (cfe.IndexEvidenceIVFScalarQuantizer, lambda: scalar(SQ8)),
        (cfe.IndexEvidenceIVFScalarQuantizer, lambda: scalar(FP16)),
    ],
)
def test_a_stock_index_with_lists_becomes_an_evidence_index_and_back(kind: Any, make: Any) -> None:
    stock = make()
    stock.train(X)
    stock.add_with_ids(X, IDS)
    stock.nprobe = 3
    index = kind.from_stock(stock, IN_ORDER)
    assert (index.ntotal, index.nlist, index.nprobe, stock.ntotal) == (N, 6, 3, N)
    assert kind.from_stock(stock, IN_ORDER, nprobe=5).nprobe == 5
    assert_array_equal(index.members().labels, IN_ORDER)
    kept = X if kind is cfe.IndexEvidenceIVF else kept_rows(stock, X)
    assert_array_equal(index.reconstruct_batch(IDS), kept)
    for j in range(6):
        ids = [
            faiss.rev_swig_ptr(one.invlists.get_ids(j), one.invlists.list_size(j))
            for one in (stock, index)
        ]
        assert_array_equal(np.sort(ids[0]), np.sort(ids[1]))
    assert_array_equal(index.search(X, 3)[1], stock.search(X, 3)[1])
    again = kind.from_stock(index.to_stock(), IN_ORDER)
    assert_same_arrays(again.search_stored(k=5), index.search_stored(k=5))
    with pytest.raises(ValueError, match=r"labels must have shape \(400,\)"):
        kind.from_stock(stock, [0])
    with pytest.raises(ValueError, match="nprobe must be at least 1, got 0"):
        kind.from_stock(stock, np.zeros(N, int), nprobe=0)
    with pytest.raises(ValueError, match="ivf must be trained"):
        kind.from_stock(make(), [])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: faiss.IndexFlatIP(D), TypeError, "ivf .*got IndexFlatIP"),
        (lambda: scalar(metric=L2, scale=1.0001), ValueError, "metric .*got 'cosine'"),
        (lambda: scalar(faiss.ScalarQuantizer.QT_4bit, scale=1.0001), ValueError, "QT_8bit .*got"),
        (lambda: scalar(residual=True, scale=1.0001), ValueError, "by_residual False, got"),
        (lambda: scalar(scale=2.0), ValueError, "must hold vectors of length 1 .*got one"),
        (lambda: scalar(scale=0.5), ValueError, "must hold vectors of length 1 .*got one"),
        (lambda: scalar(FP16, scale=0.5), ValueError, "must hold vectors of length 1 .*got"),
    ],
)
def test_other_indexes_with_scalar_codes_are_an_error(
    make: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cfe.IndexEvidenceIVFScalarQuantizer.from_stock(make(), LABELS, metric="cosine")
    if error is TypeError:
        with pytest.raises(error, match=message):
            cfe.IndexEvidenceIVF.from_stock(make(), LABELS)


def test_a_stock_index_that_refines_becomes_an_evidence_index() -> None:
    ivf = faiss.IndexIVFPQ(faiss.IndexFlatIP(D), D, 8, 4, 8, IP)
    ivf.pq.cp.min_points_per_centroid = ivf.cp.min_points_per_centroid = 1
    stock = faiss.IndexRefineFlat(ivf)
    stock.k_factor = 5
    stock.train(X)
    stock.add(X)
    ivf.nprobe = 3
    index = cfe.IndexEvidenceIVFPQ.from_stock(stock, LABELS)
    expected = (N, 8, 3, 5, N)
    assert (index.ntotal, index.nlist, index.nprobe, index.k_factor, stock.ntotal) == expected
    assert cfe.IndexEvidenceIVFPQ.from_stock(stock, LABELS, nprobe=5).nprobe == 5
    assert_array_equal(index.members().labels, LABELS)
    assert_array_equal(index.reconstruct_n(), X)
    assert_array_equal(index.search(X[:50], 4)[1], stock.search(X[:50], 4)[1])
    flat = with_rows(cfe.IndexEvidenceIDMap2(D), X, LABELS)
    assert_same_arrays(index.search_stored(k=5, nprobe=8), flat.search_stored(k=5))


def refined(base: Any, flat: Any) -> Any:
    for part in (base, flat):
        if not part.is_trained:
            part.train(X)
        if part.ntotal == 0:
            part.add(X)
    return faiss.IndexRefine(base, flat)


def ivfpq(metric: int = IP, nbits: int = 8, residual: bool = True, first_id: int = 0) -> Any:
    made = faiss.IndexIVFPQ(faiss.IndexFlat(D, metric), D, 2, 4, nbits, metric)
    made.pq.cp.min_points_per_centroid = 1
    made.by_residual = residual
    made.train(X)
    made.add_with_ids(X, np.arange(first_id, first_id + N))
    return made


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ivfpq(), TypeError, "refine .*got IndexIVFPQ"),
        (lambda: refined(faiss.IndexFlatIP(D), faiss.IndexFlatIP(D)), TypeError, "got one of an"),
        (lambda: faiss.IndexRefineFlat(faiss.index_factory(D, "IVF4,PQ4x8")), ValueError, "refine"),
        (lambda: refined(ivfpq(nbits=4), faiss.IndexFlatIP(D)), ValueError, "codes of residuals"),
        (lambda: refined(ivfpq(residual=False), faiss.IndexFlatIP(D)), ValueError, "by_residual"),
        (lambda: refined(ivfpq(first_id=5), faiss.IndexFlatIP(D)), ValueError, r"ids 0\.\.399"),
    ],
)
def test_other_indexes_with_product_codes_are_an_error(
    make: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cfe.IndexEvidenceIVFPQ.from_stock(make(), LABELS)


def index_with_ids() -> cfe.IndexEvidenceIDMap2:
    return with_rows(cfe.IndexEvidenceIDMap2(5), np.eye(5), [0, 1, 0, 1, 0], ids=[9, 3, 4, 5, 6])


def test_from_stock_keeps_the_ids_of_an_id_map() -> None:
    index = index_with_ids()
    labels = index.members().labels
    again = cfe.IndexEvidenceIDMap2.from_stock(index.to_stock(), labels, metric="cosine")
    assert_array_equal(again.search_stored(k=2)[1], index.search_stored(k=2)[1])
    with pytest.raises(TypeError, match=r"IndexEvidenceIDMap2\.from_stock"):
        cfe.IndexEvidenceFlat.from_stock(index.to_stock(), labels)
    flat = faiss.IndexFlatL2(5)
    flat.add(np.eye(5, dtype=np.float32))
    expected = [0, 1, 2, 3, 4]
    assert cfe.IndexEvidenceIDMap2.from_stock(flat, labels).members().ids.tolist() == expected


@pytest.mark.parametrize("metric", METRICS)
def test_from_stock_keeps_the_metric(metric: Any) -> None:
    rng = np.random.default_rng(2)
    X, labels = (3 * rng.normal(size=(300, 6))).astype(np.float32), np.arange(300) % 3
    flat = faiss.index_factory(6, "Flat", METRICS[metric])
    ivf = faiss.index_factory(6, "IVF8,Flat", METRICS[metric])
    coded = faiss.IndexIVFScalarQuantizer(
        ivf.quantizer, 6, 8, faiss.ScalarQuantizer.QT_fp16, METRICS[metric], False
    )
    for stock in (flat, ivf, coded):
        stock.train(X)
        stock.add(X)
    wanted = with_rows(cfe.IndexEvidenceIDMap2(6, metric), X, labels)
    for index in (
        cfe.IndexEvidenceIDMap2.from_stock(flat, labels),
        cfe.IndexEvidenceIVF.from_stock(ivf, labels),
    ):
        assert index.metric == metric
        assert_same_arrays(index.search_stored(k=5, exact=True), wanted.search_stored(k=5))
    halves = cfe.IndexEvidenceIVFScalarQuantizer.from_stock(coded, labels)
    assert halves.metric == metric
    found = halves.reconstruct_batch(np.arange(300))
    assert_array_equal(found, X.astype(np.float16).astype(np.float32))
    codes = faiss.index_factory(6, "IVF8,PQ3x8np", METRICS[metric])
    refined = faiss.IndexRefineFlat(codes)
    refined.train(X)
    refined.add(X)
    again = cfe.IndexEvidenceIVFPQ.from_stock(refined, labels)
    assert again.metric == metric
    assert_same_arrays(again.search_stored(k=5, exact=True), wanted.search_stored(k=5))
    (D, I), (D_exact, I_exact) = again.search_stored(k=5, nprobe=7), wanted.search_stored(k=5)
    assert cfe.metrics.recall(I, I_exact, D, D_exact, metric) > 0.9
    other_metric = "ip" if metric == "l2" else "l2"
    with pytest.raises(ValueError, match="metric must fit that of flat"):
        cfe.IndexEvidenceIDMap2.from_stock(flat, labels, metric=other_metric)  # type: ignore[arg-type]
    if metric == "ip":
        assert_array_equal(
            cfe.IndexEvidenceIVF.from_stock(ivf, labels, metric="cosine").search_stored(
                k=3, exact=True
            )[1],
            with_rows(cfe.IndexEvidenceIDMap2(6), X, labels).search_stored(k=3)[1],
        )


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


@pytest.mark.parametrize("other", ["evidence", "stock"])
@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        ("EvidenceIVF4,SQ8", "l2"),
        ("EvidenceIVF4,SQ8", "ip"),
        ("EvidenceIVF4x3,SQ8", "cosine"),
        ("EvidenceIVF4,Flat", "ip"),
    ],
)
def test_merged_vectors_stay_in_their_lists(kind: str, metric: str, other: str) -> None:
    # Components beyond the range of the codec move to its border, where another list may be nearer.
    far = 3 * RAW
    index, added, whole = (cfe.index_factory(D, kind, metric) for _ in range(3))
    for one in (index, added, whole):
        one.train(RAW)
    whole.add_with_labels(far, LABELS)
    index.add_with_labels(far[:200], LABELS[:200])
    added.add_with_labels(far[200:], LABELS[200:])
    index.merge_from(added.to_stock() if other == "stock" else added, 200)
    for number in range(4):
        merged, expected = (
            faiss.rev_swig_ptr(one.invlists.get_ids(number), one.invlists.list_size(number))
            for one in (index, whole)
        )
        assert_array_equal(np.sort(merged), np.sort(expected))
    if other == "evidence":
        for nprobe in (1, None):
            results = [one.search_stored(k=5, nprobe=nprobe) for one in (index, whole)]
            assert_same_arrays(results[0], results[1])
