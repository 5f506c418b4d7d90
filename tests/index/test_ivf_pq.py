import pickle

import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, similarities, unit, with_rows

import cfe_faiss as cfe

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


def test_few_and_many_queries_agree(empty: bytes) -> None:
    index = filled(empty)
    D, I = index.search_evidence(X[:40], LABELS[:40], 6, 5)
    for v in range(40):
        one = index.search_evidence(X[v : v + 1], LABELS[v : v + 1], 6, 5)
        assert_array_equal(one[0][0], D[v])
        assert_array_equal(one[1][0], I[v])


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


def test_a_stock_index_that_refines_becomes_an_evidence_index() -> None:
    ivf = faiss.IndexIVFPQ(faiss.IndexFlatIP(16), 16, 8, 4, 8, faiss.METRIC_INNER_PRODUCT)
    ivf.pq.cp.min_points_per_centroid = ivf.cp.min_points_per_centroid = 1
    stock = faiss.IndexRefineFlat(ivf)
    stock.k_factor = 5
    stock.train(unit(X))
    stock.add(unit(X))
    ivf.nprobe = 3
    index = cfe.IndexEvidenceIVFPQ.from_stock(stock, LABELS)
    expected = (len(X), 8, 3, 5, len(X))
    assert (index.ntotal, index.nlist, index.nprobe, index.k_factor, stock.ntotal) == expected
    assert cfe.IndexEvidenceIVFPQ.from_stock(stock, LABELS, nprobe=5).nprobe == 5
    assert_array_equal(index.members().labels, LABELS)
    assert_array_equal(index.reconstruct_n(), unit(X))
    assert_array_equal(index.search(unit(X[:50]), 4)[1], stock.search(unit(X[:50]), 4)[1])
    flat = with_rows(cfe.IndexEvidenceIDMap2(16), X, LABELS)
    assert_same_arrays(index.search_stored(k=5, nprobe=8), flat.search_stored(k=5))


def refined(base: object, flat: object) -> object:
    for part in (base, flat):
        if not part.is_trained:  # type: ignore[attr-defined]
            part.train(unit(X))  # type: ignore[attr-defined]
        if part.ntotal == 0:  # type: ignore[attr-defined]
            part.add(unit(X))  # type: ignore[attr-defined]
    return faiss.IndexRefine(base, flat)


def ivfpq(
    metric: int = faiss.METRIC_INNER_PRODUCT,
    nbits: int = 8,
    residual: bool = True,
    first_id: int = 0,
) -> object:
    made = faiss.IndexIVFPQ(faiss.IndexFlat(16, metric), 16, 2, 4, nbits, metric)
    made.pq.cp.min_points_per_centroid = 1
    made.by_residual = residual
    made.train(unit(X))
    made.add_with_ids(unit(X), np.arange(first_id, first_id + len(X)))
    return made


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ivfpq(), TypeError, "refine .*got IndexIVFPQ"),
        (
            lambda: refined(faiss.IndexFlatIP(16), faiss.IndexFlatIP(16)),
            TypeError,
            "got one of an IndexFlatIP by",
        ),
        (
            lambda: faiss.IndexRefineFlat(faiss.index_factory(16, "IVF4,PQ4x8")),
            ValueError,
            "refine must be trained",
        ),
        (lambda: refined(ivfpq(nbits=4), faiss.IndexFlatIP(16)), ValueError, "codes of residuals"),
        (
            lambda: refined(ivfpq(residual=False), faiss.IndexFlatIP(16)),
            ValueError,
            "residuals, got .*by_residual = False",
        ),
        (lambda: refined(ivfpq(first_id=5), faiss.IndexFlatIP(16)), ValueError, r"ids 0\.\.1499"),
    ],
)
def test_other_stock_indexes_are_an_error(
    make: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cfe.IndexEvidenceIVFPQ.from_stock(make(), LABELS)  # type: ignore[operator]


def test_a_bad_factor_is_an_error_of_the_search(empty: bytes) -> None:
    index = filled(empty)
    index.k_factor = 0
    with pytest.raises(ValueError, match="k_factor must lie in"):
        index.search_stored([3], k=2, nprobe=3)
