import pickle

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import Stored, clustered, evidence, similarities, stored_vectors, unit

import cfe_faiss as cfe

X, LABELS = clustered(1500, 16, 3)
LISTS = 20


def trained(
    d: int, nlist: int, M: int, partitions: int, T: np.ndarray, **options: float
) -> cfe.IndexEvidenceIVFPQ:
    index = cfe.IndexEvidenceIVFPQ(d, nlist, M, partitions, **options)  # type: ignore[arg-type]
    index.pq.cp.niter = 3
    index.train(np.tile(T, (-(-256 // len(T)), 1)))
    return index


@pytest.fixture(scope="module")
def empty() -> bytes:
    return pickle.dumps(trained(16, LISTS, 4, 2, X))


def filled(empty: bytes) -> cfe.IndexEvidenceIVFPQ:
    index: cfe.IndexEvidenceIVFPQ = pickle.loads(empty)
    index.add_with_labels(X, LABELS)
    return index


@given(
    stored_vectors(least=12, lowest_label=-1),
    st.integers(1, 8),
    st.integers(1, 3),
    st.integers(1, 2),
    st.booleans(),
)
def test_probing_everything_is_exact_and_less_is_complete(
    stored: Stored, nlist: int, partitions: int, nprobe: int, fine: bool
) -> None:
    d = stored.X.shape[1]
    index = trained(d, nlist, d if fine else 1, partitions, stored.X, k_factor=1)
    index.add_with_ids(stored.X, stored.ids)
    index.relabel(stored.labels, stored.ids)
    expected_D, expected_I = evidence(stored)
    D, I = index.search_evidence(stored.xq, stored.labels_q, stored.k, nlist * partitions)
    assert_array_equal(I, expected_I)
    assert_array_equal(D, expected_D)
    D, I = index.search_evidence(stored.xq, stored.labels_q, stored.k, nprobe)
    assert_array_equal(I >= 0, expected_I >= 0)
    S = similarities(stored.xq, stored.X)
    place = {i: r for r, i in enumerate(stored.ids.tolist())}
    for q, k in zip(*np.nonzero(I >= 0), strict=True):
        assert D[q, k] == S[q, place[I[q, k]]]
        assert stored.labels[place[I[q, k]]] not in (-1, stored.labels_q[q])


def test_a_search_looks_at_the_best_by_their_codes(empty: bytes) -> None:
    index = filled(empty)
    stock = index.to_stock()
    stock.nprobe = LISTS
    stock.make_direct_map()
    approximate = unit(X[:50]) @ stock.reconstruct_n(0, len(X)).T
    S = similarities(X[:50], X)
    index.k_factor = 2
    _, I = index.search_evidence(
        X[:50], LABELS[:50], 10, 2 * LISTS - 1
    )  # all lists of both partitions except one
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
        for a, b in zip(
            plain.search_stored(k=7, nprobe=nprobe),
            changed.search_stored(k=7, nprobe=nprobe),
            strict=True,
        ):
            assert_array_equal(a, b)
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
    assert (index.ntotal, index.nlist, index.nprobe, index.k_factor, stock.ntotal) == (
        len(X),
        8,
        3,
        5,
        len(X),
    )
    assert cfe.IndexEvidenceIVFPQ.from_stock(stock, LABELS, nprobe=5).nprobe == 5
    assert_array_equal(index.members().labels, LABELS)
    assert_array_equal(index.reconstruct_n(), unit(X))
    assert_array_equal(index.search(unit(X[:50]), 4)[1], stock.search(unit(X[:50]), 4)[1])
    flat = cfe.IndexEvidenceIDMap2(16)
    flat.add_with_labels(X, LABELS)
    for a, b in zip(index.search_stored(k=5, nprobe=8), flat.search_stored(k=5), strict=True):
        assert_array_equal(a, b)


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
        (
            lambda: ivfpq(),
            TypeError,
            r"refine must be a faiss\.IndexRefine of an IndexIVFPQ, got IndexIVFPQ",
        ),
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
        (
            lambda: refined(ivfpq(nbits=4), faiss.IndexFlatIP(16)),
            ValueError,
            "8-bit codes of residuals, got nbits = 4",
        ),
        (
            lambda: refined(ivfpq(residual=False), faiss.IndexFlatIP(16)),
            ValueError,
            "residuals, got .*by_residual = False",
        ),
        (
            lambda: refined(ivfpq(first_id=5), faiss.IndexFlatIP(16)),
            ValueError,
            r"must have the ids 0\.\.1499",
        ),
    ],
)
def test_other_stock_indexes_are_an_error(
    make: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cfe.IndexEvidenceIVFPQ.from_stock(make(), LABELS)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cfe.IndexEvidenceIVFPQ(10, 4, 3), "M must divide d = 10, got 3"),
        (lambda: cfe.IndexEvidenceIVFPQ(10, 4, 0), "M must be at least 1, got 0"),
        (
            lambda: cfe.IndexEvidenceIVFPQ(10, 4, 2, k_factor=0.5),
            r"k_factor must lie in \[1, 1e\+09\], got 0.5",
        ),
        (
            lambda: cfe.IndexEvidenceIVFPQ(10, 4, 2).train(np.eye(10)),
            "x must hold at least 256 training vectors, got 10",
        ),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_a_failed_training_leaves_the_index_untrained() -> None:
    index = cfe.IndexEvidenceIVFPQ(10, 4, 2)
    with pytest.raises(ValueError, match="256 training vectors"):
        index.train(np.eye(10))
    assert not index.is_trained
    with pytest.raises(ValueError, match="must be trained"):
        index.add(np.eye(10))


def test_a_bad_factor_is_an_error_of_the_search(empty: bytes) -> None:
    index = filled(empty)
    index.k_factor = 0
    with pytest.raises(ValueError, match="k_factor must lie in"):
        index.search_stored([3], k=2, nprobe=3)
