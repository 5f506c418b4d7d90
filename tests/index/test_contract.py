"""What every kind of index does: one suite over all of them.

Random changes and searches are compared with a model in :mod:`test_random_operations`.
"""

import copy
import pickle
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from indexes import CLASSES, FLAT, IDS, KINDS, LABELS, RAW, D, N, X, empty, filled, kept
from numpy.testing import assert_allclose, assert_array_equal
from reference import assert_same_arrays, clustered, quick

import cfe_faiss as cfe

pytestmark = pytest.mark.parametrize("kind", KINDS)
OTHER = clustered(N, D, CLASSES, seed=1)[0]


def assert_same_index(one: Any, two: Any) -> None:
    """Check that two indexes have the same rows and results."""
    known, other = one.members(), two.members()
    assert_same_arrays((known.ids, known.labels), (other.ids, other.labels))
    assert_array_equal(one.reconstruct_batch(known.ids), two.reconstruct_batch(known.ids))
    assert_same_arrays(one.search_stored(k=6), two.search_stored(k=6))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_stored_vectors_come_back_by_id(kind: str) -> None:
    index = filled(kind, IDS)
    vectors = kept(kind, X)
    assert_allclose(vectors, X, atol=0.02)
    assert_array_equal(index.reconstruct(int(IDS[3])), vectors[3])
    repeated = np.random.default_rng(1).integers(0, N, 2 * N)
    assert_array_equal(index.reconstruct_batch(IDS[repeated]), vectors[repeated])
    assert_array_equal(index.reconstruct_batch([]), np.empty((0, D)))
    into = np.empty(D, np.float32)
    assert index.reconstruct(IDS[3], into) is into
    numbered = filled(kind)
    assert_array_equal(numbered.reconstruct_n(), vectors)
    assert_array_equal(numbered.reconstruct_n(7, 5), vectors[7:12])
    for error in (ValueError, RuntimeError):  # like other invalid arguments, and like FAISS
        with pytest.raises(error, match="key must be in the index, got 1000001"):
            index.reconstruct(1000001)
        with pytest.raises(error, match="key must be at least 0, got -1"):
            index.reconstruct(-1)


def test_repeated_ids_are_searched_repeatedly(kind: str) -> None:
    index = filled(kind, IDS)
    asked = IDS[np.random.default_rng(1).integers(0, N, 2 * N)]
    everything = index.search_stored(k=2)[1]
    expected = everything[np.searchsorted(np.sort(IDS), asked)]
    assert_array_equal(index.search_stored(asked, k=2)[1], expected)


def test_a_class_index_is_a_stock_index_of_one_class(kind: str) -> None:
    index = filled(kind, IDS)
    for label in range(CLASSES):
        part = index.class_index(label)
        assert type(part) is type(faiss.downcast_index(index))
        own_class = label == LABELS
        assert part.ntotal == own_class.sum()
        if "PQ" not in kind:  # the stock PQ index has codes only
            rows = kept(kind, X)[own_class]
            expected = faiss.knn(X[:30], rows, 3, metric=faiss.METRIC_INNER_PRODUCT)[1]
            assert_array_equal(part.search(X[:30], 3)[1], IDS[own_class][expected])
    assert index.class_index(99).ntotal == 0


def test_evidence_comes_with_its_vectors(kind: str) -> None:
    index = filled(kind)
    params = cfe.EvidenceParameters(LABELS[:9], exact=True, sel=range(100, 103))
    scores, I, R = index.search_and_reconstruct(X[:9], 5, params=params)
    assert_same_arrays((scores, I), index.search(X[:9], 5, params=params))
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


def test_one_label_serves_all_queries_and_outputs_are_filled(kind: str) -> None:
    index = filled(kind)
    scores, I = np.empty((7, 5), np.float32), np.empty((7, 5), np.int64)
    found = index.search(X[:7], 5, params=cfe.EvidenceParameters(1, exact=True), D=scores, I=I)
    assert found[0] is scores
    assert found[1] is I
    assert_array_equal(I, index.search_evidence(X[:7], [1] * 7, 5, exact=True)[1])


def test_range_search_is_strict_and_evidence_ranges_are_inclusive(kind: str) -> None:
    metrics = ["cosine"] if "x2" in kind else ["cosine", "ip", "l2"]
    for metric in metrics:
        index = quick(cfe.index_factory(D, kind, metric))
        index.train(RAW)
        index.add_with_labels(RAW, LABELS)
        query, label = RAW[:1], LABELS[:1]
        threshold = float(index.search_evidence(query, label, 9, exact=True)[0][0, 5])
        params = cfe.EvidenceParameters(labels=int(label[0]))
        inclusive = index.range_search_evidence(query, label, threshold)
        strict = index.range_search(query, threshold, params=params)
        assert threshold in inclusive[1]
        assert_array_equal(strict[1], inclusive[1][inclusive[1] != threshold])
        view = index.excluding(int(label[0])).range_search(query, threshold)
        assert_array_equal(view[2], strict[2])
        worst = 1e300 if metric == "l2" else -1e300
        found = index.range_search(query, worst, params=params)[2]
        assert len(found) == (label[0] != LABELS).sum()


def test_a_view_leaves_a_class_out(kind: str) -> None:
    """It serves code that knows no classes."""
    index = filled(kind)
    view = index.excluding(2)
    expected = index.search_evidence(X[:9], [2] * 9, 5, exact=True)
    assert_array_equal(view.search(X[:9], 5)[1], expected[1])
    lims, scores, _ = view.range_search(X[:9], 0.5)
    assert_array_equal(scores, index.range_search_evidence(X[:9], [2] * 9, 0.5)[1])
    assert len(lims) == 10
    options: dict[str, Any] = {"nprobe": 1} if index.has_lists else {}
    make = faiss.SearchParametersIVF if index.has_lists else faiss.SearchParameters
    I = view.search(X[:9], 5, params=make(sel=faiss.IDSelectorRange(0, 100), **options))[1]
    assert (I < 100).all()
    assert (LABELS[I] != 2).all()
    assert (view.d, view.ntotal) == (D, N)
    assert_array_equal(view.reconstruct(3), index.reconstruct(3))
    assert repr(view) == f"{index!r}.excluding(2)"
    if index.has_lists:
        view.nprobe = 3
        assert index.nprobe == view.nprobe == 3
    with pytest.raises(AttributeError):
        view.unheard_of = 1
    with pytest.raises((TypeError, AttributeError)):
        faiss.IndexShards(D).add_shard(view)


# --- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("twin", [copy.copy, copy.deepcopy, cfe.clone_index])
def test_copies_keep_everything_and_share_nothing(kind: str, twin: Any) -> None:
    index = filled(kind, IDS)
    for again in (twin(index), pickle.loads(pickle.dumps(index))):
        assert type(again) is type(index)
        assert repr(again) == repr(index)
        assert_same_index(again, index)
        again.relabel(np.arange(N) % 4)
        again.remove_ids(IDS[:10])
        assert_same_index(index, filled(kind, IDS))


@pytest.mark.parametrize("given", [None, IDS])
def test_one_by_one_is_as_at_once(kind: str, given: Any) -> None:
    one_by_one, at_once = empty(kind), filled(kind, given)
    ids = np.arange(N) if given is None else given
    one_by_one.add_with_labels(RAW[:300], LABELS[:300], ids[:300])
    for i in range(300, N):
        one = slice(i, i + 1)
        one_by_one.add_with_labels(RAW[one], LABELS[one], None if given is None else ids[one])
        if i % 50 == 0:  # cached data of readers must not interfere
            assert len(one_by_one.search_stored(k=3)[0]) == i + 1
    assert_same_index(one_by_one, at_once)
    if at_once.has_lists:
        for j in range(at_once.nlist):
            size = at_once.invlists.list_size(j)
            lists = [
                faiss.rev_swig_ptr(index.invlists.get_ids(j), size)
                for index in (one_by_one, at_once)
            ]
            assert_array_equal(*lists)


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


def test_vectors_of_any_type_and_layout(kind: str) -> None:
    types = {np.float16: faiss.Float16, np.float32: faiss.Float32, np.int8: faiss.Int8}
    for dtype in (*types, np.float64):
        given = (RAW * 8).astype(dtype)
        before = given.copy()

        def with_rows_of(x: Any) -> Any:
            index = empty(kind, x)
            index.add_with_labels(x, LABELS)
            return index

        expected = with_rows_of(given.astype(np.float32))
        strided = np.repeat(given, 2, axis=0)[::2]
        for x in (given, np.asfortranarray(given), strided, given.tolist()):
            assert_same_arrays(with_rows_of(x).search_stored(k=3), expected.search_stored(k=3))
        assert_array_equal(given, before)
        if dtype not in types:
            continue
        index = quick(cfe.index_factory(D, kind))
        if index.has_lists:
            index.train(RAW * 8, numeric_type=types[dtype])
            index.nprobe = index.nlist * index.partitions
        index.add_with_ids(RAW * 8, np.arange(N), numeric_type=types[dtype])
        index.relabel(LABELS)
        assert_array_equal(index.search_stored(k=3)[1], expected.search_stored(k=3)[1])
        index.reset()
        index.add(RAW * 8, numeric_type=types[dtype])
        assert index.ntotal == N


def test_codes_can_be_added(kind: str) -> None:
    index = filled(kind)
    codes = index.sa_encode(X[:20])
    if "PQ" in kind:
        with pytest.raises(NotImplementedError, match="codes do not tell the vectors"):
            index.add_sa_codes(codes)
        return
    new = np.arange(20) + 1000
    index.add_sa_codes(codes, new)
    index.add_sa_codes(codes[:0])
    assert_array_equal(index.members().labels[N:], np.full(20, -1))
    index.relabel((LABELS[:20] + 1) % 3, new)
    scores, I = index.search_evidence(X[:20], LABELS[:20], 1, exact=True)
    assert_array_equal(I[:, 0], new)
    assert scores.min() > 0.99
    for wrong in (codes[:, 1:], codes.astype(np.int64), codes[0]):
        with pytest.raises(ValueError, match=r"codes must be uint8 of shape \(n, \d+\), got"):
            index.add_sa_codes(wrong)
    with pytest.raises(ValueError, match="ids must not be in the index yet, got 7"):
        index.add_sa_codes(codes[:1], [7])
    assert index.ntotal == N + 20


def test_default_ids_follow_the_largest_stored_id(kind: str, tmp_path: Path) -> None:
    index = empty(kind)
    index.add_with_labels(X[:10], LABELS[:10])
    index.remove_ids([2, 3])
    index.add(X[:2])
    assert_array_equal(index.members().ids, [0, 1, *range(4, 12)])
    index.add_with_labels(X[:1], [0], [100])
    cfe.write_index(index, tmp_path / "index")
    index = cfe.read_index(tmp_path / "index")
    index.add_with_labels(X[:2], [0, 1])
    assert index.members().ids[-3:].tolist() == [100, 101, 102]
    index.remove_ids([100, 102])
    index.add(X[:1])
    assert index.members().ids[-2:].tolist() == [101, 102]
    index.reset()
    index.add(X[:2])
    assert index.members().ids.tolist() == [0, 1]
    index.add_with_labels(X[:1], [0], [2**63 - 2])
    with pytest.raises(ValueError, match="ids must be given"):
        index.add(X[:1])
    assert index.ntotal == 3


def test_an_update_equals_a_removal_and_an_addition(kind: str) -> None:
    for count, labels in ((1, None), (60, 2), (N, None)):
        index, other = filled(kind, IDS), filled(kind, IDS)
        for one in (index, other):
            one.search_evidence(X[:1], LABELS[:1], 3)  # derived data is there, and carried over
        rows = np.random.default_rng(count).permutation(N)[:count]
        new = LABELS[rows] if labels is None else np.full(count, labels)
        index.update_vectors(IDS[rows], 5 * OTHER[rows], None if labels is None else new)
        other.remove_ids(IDS[rows])
        other.add_with_labels(5 * OTHER[rows], new, IDS[rows])
        assert_same_index(index, other)
        assert_same_index(cfe.clone_index(index), other)


def test_merging_moves_vectors_and_labels(kind: str) -> None:
    half = N // 2
    for other_kind in (FLAT, "EvidenceIVF8,Flat", kind, "stock"):
        stock = other_kind == "stock"
        index, other = empty(kind), empty("EvidenceIVF8,Flat" if stock else other_kind)
        index.add_with_labels(RAW[:half], LABELS[:half], IDS[:half])
        other.add_with_labels(RAW[half:], LABELS[half:], IDS[half:])
        if stock:
            other = other.to_stock()
        index.check_compatible_for_merge(other)
        index.merge_from(other)
        assert (index.ntotal, other.ntotal) == (N, 0)
        if stock:
            assert (index.members().labels == -1).sum() == N - half
            index.relabel(LABELS[half:], IDS[half:])
        assert_same_arrays(index.search_stored(k=6), filled(kind, IDS).search_stored(k=6))
    index.merge_from(filled("EvidenceIVF8,SQ8").to_stock(), 10**8)
    assert index.ntotal == 2 * N


def test_merging_adds_to_the_ids_and_refuses_before_it_moves(kind: str) -> None:
    index, other = filled(kind, IDS), filled(kind, IDS)
    with pytest.raises(ValueError, match="ids must not be in the index yet"):
        index.merge_from(other)
    assert (index.ntotal, other.ntotal) == (N, N)
    index.merge_from(other, 10**7)
    assert_array_equal(np.sort(index.members().ids), np.sort(np.concatenate([IDS, IDS + 10**7])))
    for wrong, error, message in (
        (index, ValueError, f"another index of {D} dimensions"),
        (cfe.IndexEvidenceIDMap2(D + 1), ValueError, f"another index of {D} dimensions"),
        (None, ValueError, f"another index of {D} dimensions"),
        (filled("EvidenceIVF8,PQ4,RFlat").to_stock(), TypeError, "an evidence index"),
        (faiss.IndexHNSWFlat(D, 4), TypeError, "an evidence index"),
    ):
        for use in (index.check_compatible_for_merge, index.merge_from):
            with pytest.raises(error, match=f"otherIndex must be {message}"):
                use(wrong)


# --- threads ----------------------------------------------------------------------------------------------------------


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


def test_threads_may_share_parameters(kind: str) -> None:
    index, sel = filled(kind), faiss.IDSelectorBatch(np.arange(0, N, 2))
    if index.has_lists:
        shared: Any = faiss.SearchParametersIVF(sel=sel, nprobe=8)
    else:
        shared = faiss.SearchParameters(sel=sel)
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


# --- arrays that an index hands out -----------------------------------------------------------------------------------

CHANGES = {
    "add": lambda index: index.add_with_labels(X, LABELS),
    "remove": lambda index: index.remove_ids([3]),
    "relabel": lambda index: index.relabel(np.zeros(N, np.int64)),
    "reset": lambda index: index.reset(),
}


def handed_out(index: Any) -> list[Any]:
    """Return the arrays of an index that are views."""
    storage, members = index.storage(), index.members()
    arrays = [members.ids, members.rows, members.labels, members.places]
    arrays += [storage.starts, storage.labels, storage.row_ids, storage.by_label]
    arrays += [*storage.class_counts, storage.native.labels(), storage.native.starts()]
    arrays += storage.native.view(0, 3) or ()
    if index.has_lists:
        routes = index.routes()
        arrays += [index.centroids(), *routes.arrays().values(), routes.filled, routes.class_filled]
        arrays += [storage.levels]
    return arrays


def test_arrays_are_read_only_and_outlive_the_index(kind: str) -> None:
    index = filled(kind)
    before = index.search_stored(k=3)
    arrays = handed_out(index)
    for array in arrays:
        with pytest.raises(ValueError, match=r"read-only|cannot set WRITEABLE"):
            array[:] = 0
    assert_same_arrays(index.search_stored(k=3), before)
    storage, copies = index.storage(), [array.copy() for array in arrays]
    del index
    others = [np.ones(10**5) for _ in range(50)]
    assert len(storage.rows(np.arange(3))[0]) == 3
    assert_same_arrays(arrays, copies)
    assert len(others) == 50


def test_copies_of_rows_may_be_written_to(kind: str) -> None:
    index = filled(kind)
    before = index.reconstruct_n(0, N)
    for rows in (np.arange(N), np.arange(5, 9), np.array([3, 1])):
        copied, ids = index.storage().rows(rows)
        assert_array_equal(copied, before[ids])
        copied[:] = 0
        ids[:] = 0
    assert_array_equal(index.reconstruct_n(0, N), before)


@pytest.mark.parametrize("change", CHANGES)
def test_storage_after_a_change(kind: str, change: str) -> None:
    index = filled(kind)
    storage, members = index.storage(), index.members()
    arrays = [storage.labels, members.ids, storage.rows(members.rows)[0]]
    copies = [array.copy() for array in arrays]
    CHANGES[change](index)
    for call in (
        lambda: storage.rows(np.arange(3)),
        storage.ids,
        lambda: storage.row_ids,
        storage.first_not_unit,
    ):
        with pytest.raises(RuntimeError, match="the index has changed since"):
            call()
    assert_same_arrays(arrays, copies)
    assert len(index.storage().row_ids) == index.ntotal


# --- wrong arguments --------------------------------------------------------------------------------------------------

# As arrays of the core, which it searches without a conversion if nothing is wrong.
ROW, ROWS = np.zeros((1, D), np.float32), np.zeros((2, D), np.float32)
LABEL = np.array([0])
NAN = np.full((1, D), np.nan, np.float32)
WRONG: list[tuple[str, tuple[Any, ...], type[Exception], str]] = [
    ("search_evidence", (np.zeros((2, 5)), [0, 0], 1), ValueError, r"xq .*\(n, 8\), got \(2, 5\)"),
    ("search_evidence", (ROW[0], LABEL, 1), ValueError, r"xq .*got \(8,\)"),
    ("search_evidence", (NAN, LABEL, 1), ValueError, "xq .*finite.*row 0"),
    ("search_evidence", ([["a"] * D], [0], 1), TypeError, "xq .*real numbers"),
    ("search_evidence", (ROWS, LABEL, 1), ValueError, r"labels_q .*\(2,\).*got \(1,\)"),
    ("search_evidence", (ROW, np.array([-1]), 1), ValueError, "labels_q .*got -1"),
    ("search_evidence", (ROW, np.array([2**63], np.uint64), 1), ValueError, "labels_q .*got 9223"),
    ("search_evidence", (ROW, np.array([0.5]), 1), TypeError, "labels_q .*integers"),
    ("search_evidence", (ROW, LABEL, 0), ValueError, "k .*got 0"),
    ("search_evidence", (ROW, LABEL, 1.5), TypeError, "k .*got 1.5"),
    ("search_evidence", (ROW, LABEL, 1, 0), ValueError, "nprobe .*got"),
    ("search_evidence", (ROW, np.array(0), 1), ValueError, r"labels_q must have shape \(1,\)"),
    ("search_evidence", (ROW, np.zeros(2, int), 1), ValueError, r"labels_q must have shape \(1,\)"),
    ("search_evidence", (ROW, np.array(["2020"], "M8[s]"), 1), TypeError, "labels_q must be integ"),
    ("search_evidence", (ROW, LABEL, True), TypeError, "k must be an integer"),
    ("search_stored", ([10**6], 1), ValueError, "ids .*got 1000000"),
    ("search_stored", ([-1], 1), ValueError, "ids .*got -1"),
    ("range_search_evidence", (ROW, LABEL, np.nan), ValueError, "threshold .*nan"),
    ("search", (ROW, 0), ValueError, "k must be at least 1, got 0"),
    ("search", (ROW[0], 2), ValueError, r"x must have shape \(n, 8\), got \(8,\)"),
    ("search_and_reconstruct", (ROW, 0), ValueError, "k must be at least 1, got 0"),
    ("search_and_reconstruct", (ROW[0], 2), ValueError, r"x must have shape \(n, 8\), got \(8,\)"),
    ("range_search", (ROW[:, 1:], 0.5), ValueError, r"x must have shape \(n, 8\), got \(1, 7\)"),
    ("add", (ROW, 9), ValueError, "numeric_type .*got 9"),
    ("add_with_ids", (ROW, [3], 9), ValueError, "numeric_type .*got 9"),
    ("add_with_labels", (ROW, [0], [1]), ValueError, "ids must not be in the index yet, got 1,"),
    ("add_with_labels", (X[:60], LABELS[:60], [*range(900, 959), 1]), ValueError, "got 1, which"),
    ("add_with_labels", (ROWS, [0, 0], [7, 7]), ValueError, "distinct, got 7"),
    ("add_with_labels", (ROWS, [0, 0], [7]), ValueError, r"ids .*\(2,\).*got \(1,\)"),
    ("remove_ids", ([[1, 2]],), ValueError, r"x must have shape \(m,\) as ids, got \(1, 2\)"),
    ("remove_ids", (np.ones(3, bool),), ValueError, r"x must have shape \(400,\) as a mask"),
    ("relabel", ([0], [10**6]), ValueError, "ids must be in the index, got 1000000"),
    ("relabel", ([0, 0], [1, 1]), ValueError, "ids must be distinct"),
    ("update_vectors", ([1, 10**6], ROWS), ValueError, "ids must be in the index, got 1000000"),
    ("update_vectors", ([1, 4, 1], X[:3]), ValueError, "ids must be distinct, got 1"),
    ("update_vectors", ([1.5], ROW), TypeError, "ids must be integers"),
    ("update_vectors", ([1, 4], X[:3]), ValueError, r"x .*got \(3, 8\)"),
    ("update_vectors", ([1], X[:1, :5]), ValueError, r"x must have shape \(n, 8\)"),
    ("update_vectors", ([1], [[np.nan] * D]), ValueError, "x must be finite"),
    ("update_vectors", ([1], ROW, [0, 1]), ValueError, r"labels must have shape \(1,\)"),
    ("update_vectors", ([1], ROW, [-2]), ValueError, "labels must"),
    ("prepare", (0,), ValueError, "k must be at least 1"),
    ("prepare", (10, 1.5), ValueError, "recall must be above 0"),
]


def test_wrong_arguments_are_named_and_change_nothing(kind: str) -> None:
    index = filled(kind, np.arange(N) + 1)
    for method, arguments, error, message in WRONG:
        with pytest.raises(error, match=message):
            getattr(index, method)(*arguments)
    if index.has_lists:
        with pytest.raises(ValueError, match="train must be called before"):
            index.train(RAW)
    assert_same_index(index, filled(kind, np.arange(N) + 1))
