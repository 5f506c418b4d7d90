import copy
import pickle

import faiss
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import assert_same_arrays, clustered, quick, unit

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex

Index = EvidenceIndex
CODECS = {"ivf": "Flat", "fp16": "SQfp16", "sq8": "SQ8", "pq": "PQ4,RFlat"}
KINDS = ["flat", *CODECS]
N, D, CLASSES = 400, 8, 3
X, LABELS = clustered(N, D, CLASSES)
IDS = np.random.default_rng(5).permutation(10**6)[:N].astype(np.int64)


def empty(kind: str) -> Index:
    if kind == "flat":
        return cfe.IndexEvidenceIDMap2(D)
    index = quick(cfe.index_factory(D, f"EvidenceIVF6x2,{CODECS[kind]}"))
    index.train(X)
    index.nprobe = 12
    return index


def kept(kind: str, vectors: np.ndarray) -> np.ndarray:
    """Return unit vectors after the codec of an index kind."""
    return (
        empty(kind).sa_decode(empty(kind).sa_encode(vectors))
        if kind in ("fp16", "sq8")
        else vectors
    )


def filled(kind: str) -> Index:
    index = empty(kind)
    index.add_with_labels(X, LABELS, IDS)
    return index


def assert_same_results(one: Index, two: Index) -> None:
    assert_same_arrays(one.search_stored(k=6), two.search_stored(k=6))


@pytest.mark.parametrize("kind", KINDS)
def test_stored_vectors_come_back_by_id(kind: str) -> None:
    index = filled(kind)
    vectors = kept(kind, unit(X))
    assert_allclose(vectors, unit(X), atol=0.02)
    assert_array_equal(index.reconstruct(int(IDS[3])), vectors[3])
    assert_array_equal(index.reconstruct_batch(IDS[5:9]), vectors[5:9])
    assert_array_equal(index.reconstruct_batch([]), np.empty((0, D)))
    into = np.empty(D, np.float32)
    assert index.reconstruct(IDS[3], into) is into
    numbered = empty(kind)
    numbered.add_with_labels(X, LABELS)
    assert_array_equal(numbered.reconstruct_n(), vectors)
    assert_array_equal(numbered.reconstruct_n(7, 5), vectors[7:12])
    for error in (ValueError, RuntimeError):  # like other invalid arguments, and like FAISS
        with pytest.raises(error, match="key must be in the index, got 1000001"):
            index.reconstruct(1000001)
        with pytest.raises(error, match="key must be at least 0, got -1"):
            index.reconstruct(-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))]
)
def test_copies_and_pickles_keep_everything(kind: str, duplicate: object) -> None:
    index = filled(kind)
    again = duplicate(index)  # type: ignore[operator]
    assert type(again) is type(index)
    assert repr(again) == repr(index)
    assert_same_results(again, index)
    again.relabel(np.arange(N) % 4)
    again.remove_ids(IDS[:10])
    assert index.ntotal == N
    assert_same_results(index, filled(kind))


@pytest.mark.parametrize(
    ("kind", "other_kind"),
    [
        *(
            (kind, other)
            for kind in ("flat", "ivf", "pq")
            for other in ("flat", "ivf", "pq", "stock")
        ),
        *((kind, other) for kind in ("fp16", "sq8") for other in ("flat", kind, "stock")),
        ("ivf", "stock fp16"),
    ],
)
def test_merging_moves_vectors_and_labels(kind: str, other_kind: str) -> None:
    index, half = empty(kind), N // 2
    index.add_with_labels(X[:half], LABELS[:half], IDS[:half])
    stock = other_kind.startswith("stock")
    other = empty((other_kind.split()[1:] or ["ivf"])[0] if stock else other_kind)
    other.add_with_labels(X[half:], LABELS[half:], IDS[half:])
    if stock:
        other = other.to_stock()
    index.merge_from(other)
    assert (index.ntotal, other.ntotal) == (N, 0)
    if stock:
        assert (index.members().labels == -1).sum() == N - half
        index.relabel(LABELS[half:], IDS[half:])
    if other_kind == "stock fp16":  # rounded by the stock index
        assert_allclose(index.search_stored(k=6)[0], filled(kind).search_stored(k=6)[0], atol=1e-3)
        return
    assert_same_results(index, filled(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_merging_adds_to_the_ids_and_refuses_before_it_moves(kind: str) -> None:
    index, other = filled(kind), filled(kind)
    with pytest.raises(ValueError, match="ids must not be in the index yet"):
        index.merge_from(other)
    assert (index.ntotal, other.ntotal) == (N, N)
    index.merge_from(other, 10**7)
    assert_array_equal(np.sort(index.members().ids), np.sort(np.concatenate([IDS, IDS + 10**7])))
    for wrong in (index, cfe.IndexEvidenceIDMap2(D + 1), None):
        with pytest.raises(ValueError, match=f"otherIndex must be another index of {D} dimensions"):
            index.merge_from(wrong)
    with pytest.raises(TypeError, match="otherIndex must be an evidence index"):
        index.merge_from(faiss.IndexHNSWFlat(D, 4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_class_index_is_a_stock_index_of_one_class(kind: str) -> None:
    index = filled(kind)
    for label in range(CLASSES):
        part = index.class_index(label)
        assert type(part) is type(faiss.downcast_index(index))
        own = label == LABELS
        assert part.ntotal == own.sum()
        if kind != "pq":  # the stock PQ index has codes only
            expected = faiss.knn(
                unit(X[:30]), kept(kind, unit(X))[own], 3, metric=faiss.METRIC_INNER_PRODUCT
            )[1]
            assert_array_equal(part.search(unit(X[:30]), 3)[1], IDS[own][expected])
    assert index.class_index(99).ntotal == 0
    assert_same_results(index, filled(kind))


def test_a_stock_index_becomes_an_evidence_index_and_back() -> None:
    stock = faiss.IndexIVFFlat(faiss.IndexFlatIP(D), D, 6, faiss.METRIC_INNER_PRODUCT)
    stock.train(unit(X))
    stock.add_with_ids(unit(X), IDS)
    stock.nprobe = 3
    index = cfe.IndexEvidenceIVF.from_stock(stock, LABELS[np.argsort(IDS)])
    assert (index.ntotal, index.nlist, index.nprobe) == (N, 6, 3)
    assert cfe.IndexEvidenceIVF.from_stock(stock, LABELS[np.argsort(IDS)], nprobe=5).nprobe == 5
    found = index.search_stored(k=5, nprobe=6)[1]
    assert_array_equal(found, filled("flat").search_stored(k=5)[1])
    for j in range(6):
        ids = [
            faiss.rev_swig_ptr(ivf.invlists.get_ids(j), ivf.invlists.list_size(j))
            for ivf in (stock, index)
        ]
        assert_array_equal(np.sort(ids[0]), np.sort(ids[1]))
    assert_array_equal(index.to_stock().search(unit(X), 3)[1], stock.search(unit(X), 3)[1])
    assert stock.ntotal == N
    with pytest.raises(TypeError, match=r"ivf must be a faiss\.IndexIVFFlat, got IndexFlatIP"):
        cfe.IndexEvidenceIVF.from_stock(faiss.IndexFlatIP(D), [])
    with pytest.raises(ValueError, match="ivf must be trained"):
        cfe.IndexEvidenceIVF.from_stock(faiss.IndexIVFFlat(faiss.IndexFlatL2(D), D, 6), [])
    with pytest.raises(ValueError, match=r"labels must have shape \(400,\)"):
        cfe.IndexEvidenceIVF.from_stock(stock, [0])
    with pytest.raises(ValueError, match="nprobe must be at least 1, got 0"):
        cfe.IndexEvidenceIVF.from_stock(stock, np.zeros(stock.ntotal, int), nprobe=0)


@pytest.mark.parametrize("kind", CODECS)
def test_a_direct_map_follows_every_change(kind: str) -> None:
    index = empty(kind)
    stock = type(index)._stock
    index.add_with_labels(X[:300], LABELS[:300])
    index.make_direct_map()
    index.add_with_labels(X[300:], LABELS[300:])
    index.relabel(np.arange(N) % 5)
    for i in (0, 299, 300, N - 1):
        if kind != "pq":
            assert_array_equal(stock.reconstruct(index, i), index.reconstruct(i))
        assert_allclose(stock.reconstruct(index, i), index.reconstruct(i), atol=0.5)
    index.make_direct_map(False)
    index.set_direct_map_type(faiss.DirectMap.Hashtable)
    index.remove_ids(np.arange(100))
    found = stock.reconstruct(index, 150)
    assert_allclose(found, index.reconstruct(150), atol=0.5 if kind == "pq" else 0)


def test_copy_subset_to_a_stock_index() -> None:
    index = filled("ivf")
    target = faiss.IndexIVFFlat(index.quantizer, D, 6, faiss.METRIC_INNER_PRODUCT)
    index.copy_subset_to(target, faiss.InvertedLists.SUBSET_TYPE_ID_RANGE, 0, 500_000)
    assert target.ntotal == (IDS < 500_000).sum()
    assert_allclose(target.search(unit(X[:5]), 1)[0] <= 1.000001, True)


def test_an_index_trained_on_zero_vectors_goes_on_after_a_round_trip() -> None:
    index = cfe.IndexEvidenceIVF(3, 4, 2)
    index.train(np.zeros((6, 3)))
    again = pickle.loads(pickle.dumps(index))
    again.add_with_labels(np.eye(3), [0, 1, 1])
    assert_array_equal(again.search_stored([0], k=2)[1], [[1, 2]])


@pytest.mark.parametrize("kind", CODECS)
def test_what_would_lose_labels_is_refused(kind: str) -> None:
    index = filled(kind)
    with pytest.raises(NotImplementedError, match="add_core would lose labels: "):
        index.add_core(1, 2)
    assert_same_results(index, filled(kind))


@pytest.mark.parametrize("kind", ["ivf", "sq8", "pq"])
@pytest.mark.parametrize("duplicate", [lambda index: index, copy.copy])
def test_lists_that_were_permuted_cannot_be_changed_or_copied(duplicate: object, kind: str) -> None:
    index: Index = duplicate(filled(kind))  # type: ignore[operator]
    expected = index.search_stored(k=3, nprobe=12)[1]
    order = np.roll(np.arange(6), 1)
    faiss.downcast_index(index.quantizer).permute_entries(order)
    faiss.downcast_InvertedLists(index.invlists).permute_invlists(faiss.swig_ptr(order))
    assert_array_equal(index.search_stored(k=3, nprobe=12)[1], expected)
    for change in (
        lambda: index.add_with_labels(X[:1], [0], [10**7]),
        lambda: index.relabel(LABELS),
        lambda: index.remove_ids(IDS[:1]),
        lambda: copy.copy(index),
    ):
        with pytest.raises(RuntimeError, match="the inverted lists were changed by other means"):
            change()
    assert index.ntotal == N


def test_supplementary_partitions_that_faiss_cannot_train() -> None:
    index = cfe.IndexEvidenceIVF(D, 6, 2)
    faiss.IndexPreTransform(index).train(unit(X))
    with pytest.raises(ValueError, match="supplementary partitions must be trained, too"):
        index.add_with_labels(X, LABELS)
    index.train(X)
    index.add_with_labels(X, LABELS, IDS)
    assert_array_equal(index.search_stored(k=3, nprobe=12)[1], filled("flat").search_stored(k=3)[1])
