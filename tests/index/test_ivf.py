"""Indexes with lists: partitions, training, direct maps, FAISS's methods of inverted files, drift."""

import copy
import math
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from indexes import IDS, LABELS, RAW, WITH_LISTS, D, N, X, empty, filled
from numpy.testing import assert_allclose, assert_array_equal
from reference import (
    assert_same_arrays,
    clustered,
    lists_of_rows,
    quick,
    similarities,
    unit,
    with_rows,
)

import cfe_faiss as cfe
from cfe_faiss.coarse import partitions

OTHER = clustered(N, D, 4, seed=1)[0]


@pytest.mark.parametrize("first", ["add", "relabel", "remove", "reset"])
def test_supplementary_lists_of_a_file_follow_changes(first: str, tmp_path: Path) -> None:
    X, labels = clustered(300, 8, 3)
    index = with_rows(cfe.IndexEvidenceIVF(8, 7, 3), X[:200], labels[:200])
    cfe.write_index(index, str(tmp_path / "index"))
    loaded = cfe.read_index(str(tmp_path / "index"))
    loaded.take_label_keys(None)
    for changed in (index, loaded):
        if first == "relabel":
            changed.relabel((labels[:50] + 1) % 3, ids=np.arange(50))
        elif first == "remove":
            changed.remove_ids(np.arange(0, 200, 3))
        elif first == "reset":
            changed.reset()
        changed.add_with_labels(X[200:], labels[200:], ids=np.arange(200, 300))
        changed.relabel(labels[200:210] * 0, ids=np.arange(200, 210))
    assert_same_arrays(lists_of_rows(loaded), lists_of_rows(index))
    assert_same_arrays(loaded.search_stored(k=5, nprobe=4), index.search_stored(k=5, nprobe=4))
    rows = index.members().rows
    stored = X if first in ("add", "relabel") else index.storage().rows(rows)[0]
    for of_partition, centroids in zip(lists_of_rows(index), index.centroids(), strict=True):
        cosines = unit(stored) @ centroids.T
        found = cosines[np.arange(len(stored)), of_partition[rows]]
        np.testing.assert_allclose(found, cosines.max(axis=1), atol=1e-6)


def test_search_takes_the_index_nprobe_by_default() -> None:
    X, labels = clustered(1000, 8, 2)
    index = with_rows(cfe.IndexEvidenceIVF(8, 30), X, labels)
    index.nprobe = 2
    assert_same_arrays(index.search_stored(k=5), index.search_stored(k=5, nprobe=2))


class TestPaper:
    def test_settings(self) -> None:
        index = cfe.IndexEvidenceIVF.paper(8)
        assert (index.partitions, index.nlist, index.nprobe) == (50, 10, 1)
        assert (index.theta, index.weighted, index.complete) == (math.pi / 3, True, False)
        assert cfe.IndexEvidenceIVF.paper(8, supplementary=False).partitions == 1
        assert not cfe.IndexEvidenceIVF.paper(8, weighted=False).weighted

    def test_looks_into_the_one_cluster_of_the_nearest_centroid(self) -> None:
        X, labels = clustered(800, 8, 3)
        index = with_rows(cfe.IndexEvidenceIVF.paper(8, partitions=5, clusters=6), X, labels)
        D, I = index.search_stored(k=20)
        cosines = unit(X) @ index.centroids().reshape(-1, 8).T
        partition, cluster = np.divmod(cosines.argmax(axis=1), 6)
        lists = lists_of_rows(index)[:, index.members().rows]
        S = similarities(X, X)
        for v in range(0, 800, 7):
            inside = (lists[partition[v]] == cluster[v]) & (labels != labels[v])
            best = np.flatnonzero(inside)
            best = best[np.lexsort((best, -S[v, best]))][:20]
            assert_array_equal(I[v, : len(best)], best)
            assert (I[v, len(best) :] == -1).all()
            assert_array_equal(D[v, : len(best)], S[v, best])

    def test_ablations_differ_from_the_whole(self) -> None:
        X, labels = clustered(800, 8, 3)
        results = []
        for kwargs in ({}, {"weighted": False}, {"supplementary": False}):
            index = cfe.IndexEvidenceIVF.paper(8, partitions=4, clusters=8, **kwargs)
            index.train(X)
            index.add_with_labels(X, labels)
            results.append(index.centroids())
        whole, unweighted, single = results
        assert_array_equal(whole[0], unweighted[0])
        assert not np.allclose(whole[1], unweighted[1])
        assert_array_equal(single[0], whole[0])


# --- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["ivf", "sq", "pq"])
def test_the_number_of_lists_may_be_left_to_training(kind: str, tmp_path: Path) -> None:
    X, labels = clustered(900, 8, 3)
    make = {
        "ivf": lambda: cfe.IndexEvidenceIVF(8, "auto", 2),
        "sq": lambda: cfe.IndexEvidenceIVFScalarQuantizer(8, "auto", partitions=2),
        "pq": lambda: cfe.IndexEvidenceIVFPQ(8, "auto", 4, partitions=2),
    }[kind]
    untrained = make()
    assert untrained.nlist == 0
    cfe.write_index(untrained, tmp_path / "untrained.index")
    for index in (untrained, cfe.read_index(tmp_path / "untrained.index")):
        index.train(X)
        assert index.nlist == 4 * 30
        assert index.centroids().shape == (2, 120, 8)
        index.add_with_labels(X, labels)
        I = index.search_stored(None, 5, exact=True)[1]
        flat = with_rows(cfe.IndexEvidenceIDMap2(8), index.reconstruct_n(0, 900), labels)
        if kind != "sq":
            assert_array_equal(I, flat.search_stored(None, 5)[1])
        assert (labels[I] != labels[:, None]).all()


@pytest.mark.parametrize("rows", ["zero", "equal", "some zero", "opposite"])
@pytest.mark.parametrize(
    "kind", ["EvidenceIVF1x2,Flat", "EvidenceIVF2x3,Flat", "EvidenceIVF1x2,SQ8"]
)
def test_an_index_trained_on_zero_or_equal_rows_takes_them(
    kind: str, rows: str, tmp_path: Path
) -> None:
    ends = {"zero": (0, 0), "equal": (1, 1), "some zero": (0, 1), "opposite": (-1, 1)}[rows]
    X = np.repeat(np.array(ends, np.float32), 10)[:, None] * np.ones((1, 4), np.float32)
    labels = np.arange(20) % 2
    index = cfe.index_factory(4, kind)
    index.train(X)
    index.add_with_labels(X[:15], labels[:15])
    cfe.write_index(index, tmp_path / "a.index")
    read = cfe.read_index(tmp_path / "a.index")
    for one in (index, read):
        one.add_with_labels(X[15:], labels[15:])
        D, I = one.search_stored(k=10, nprobe=6)
        assert (labels[I] != labels[:, None]).all()
        expected = -np.sort(-(unit(X) @ unit(X).T)[:, labels == 0], axis=1)[labels == 1]
        np.testing.assert_allclose(D[labels == 1], expected, atol=0.02 if "SQ8" in kind else 1e-6)


def test_supplementary_partitions_that_faiss_cannot_train() -> None:
    index = cfe.IndexEvidenceIVF(D, 6, 2)
    faiss.IndexPreTransform(index).train(X)
    with pytest.raises(ValueError, match="supplementary partitions must be trained, too"):
        index.add_with_labels(X, LABELS)
    index.train(X)
    index.add_with_labels(X, LABELS)
    expected = filled("IDMap2,EvidenceFlat").search_stored(k=3)[1]
    assert_array_equal(index.search_stored(k=3, nprobe=12)[1], expected)


@pytest.mark.parametrize("codec", ["Flat", "SQfp16", "SQ8", "PQ2,RFlat"])
def test_an_index_is_trained_before_it_is_filled(codec: str) -> None:
    nlist = 2 if "PQ" in codec else 5
    index = cfe.index_factory(4, f"EvidenceIVF{nlist},{codec}")
    with pytest.raises(ValueError, match=r"nlist = 5 .* got 4|256 training vectors, got 4"):
        index.train(np.eye(4))
    assert not index.is_trained
    for fill in (index.add, lambda X: index.add_with_labels(X, [0] * 4)):
        with pytest.raises(ValueError, match="must be trained"):
            fill(np.eye(4))


def test_an_untrained_index_merges_into_a_trained_one_as_no_vectors() -> None:
    index, empty = (cfe.index_factory(D, "EvidenceIVF4,Flat", "l2") for _ in range(2))
    index.train(RAW)
    index.add(RAW)
    index.merge_from(empty)
    assert index.ntotal == len(RAW)


# --- what FAISS does with lists -------------------------------------------------------------------


@pytest.mark.parametrize("kind", WITH_LISTS)
def test_methods_of_inverted_files_answer_as_the_stock_index(kind: str) -> None:
    index = filled(kind)
    index.nprobe = 4
    stock = faiss.downcast_index(index)
    near, lists = index.quantizer.search(X[:7], 4)
    for name, argument in (("search_preassigned", 3), ("range_search_preassigned", 0.7)):
        answer = getattr(index, name)(X[:7], argument, lists, near)
        assert_same_arrays(answer, getattr(stock, name)(X[:7], argument, lists, near))
    found = index.search_and_return_codes(X[:7], 3, include_listnos=True)
    assert_same_arrays(found, stock.search_and_return_codes(X[:7], 3, include_listnos=True))


@pytest.mark.parametrize("kind", WITH_LISTS)
def test_a_direct_map_follows_every_change(kind: str) -> None:
    index = empty(kind)
    stock = type(index)._stock
    index.add_with_labels(X[:300], LABELS[:300])
    index.make_direct_map()
    index.add_with_labels(X[300:], LABELS[300:])
    index.relabel(np.arange(N) % 5)
    for i in (0, 299, 300, N - 1):
        if "PQ" not in kind:
            assert_array_equal(stock.reconstruct(index, i), index.reconstruct(i))
        assert_allclose(stock.reconstruct(index, i), index.reconstruct(i), atol=0.5)
    index.make_direct_map(False)
    index.set_direct_map_type(faiss.DirectMap.Hashtable)
    index.remove_ids(np.arange(100))
    found = stock.reconstruct(index, 150)
    assert_allclose(found, index.reconstruct(150), atol=0.5 if "PQ" in kind else 0)


def test_a_direct_map_of_type_array_takes_ids_in_a_row() -> None:
    index = empty("EvidenceIVF8x2,Flat")
    index.add_with_labels(X[:9], LABELS[:9])
    index.make_direct_map()
    for change in (
        lambda: index.add_with_labels(X[9:10], [0], [11]),
        lambda: index.remove_ids(np.array([3])),
    ):
        with pytest.raises(RuntimeError, match="a direct map of type Array takes"):
            change()
    assert index.ntotal == 9
    index.remove_ids(np.array([8]))
    index.add_with_labels(X[8:10], LABELS[8:10])
    assert_array_equal(faiss.IndexIVFFlat.reconstruct(index, 9), index.reconstruct(9))
    sparse = empty("EvidenceIVF8x2,Flat")
    sparse.add_with_labels(X[:2], LABELS[:2], [5, 9])
    with pytest.raises(RuntimeError):
        sparse.make_direct_map()
    assert sparse.direct_map.type == faiss.DirectMap.NoMap


def test_copy_subset_to_a_stock_index() -> None:
    index = filled("EvidenceIVF8,Flat", IDS)
    target = faiss.IndexIVFFlat(index.quantizer, D, 8, faiss.METRIC_INNER_PRODUCT)
    index.copy_subset_to(target, faiss.InvertedLists.SUBSET_TYPE_ID_RANGE, 0, 500_000)
    assert target.ntotal == (IDS < 500_000).sum()
    assert_allclose(target.search(X[:5], 1)[0] <= 1.000001, True)


@pytest.mark.parametrize("kind", WITH_LISTS)
def test_what_would_lose_labels_is_refused(kind: str) -> None:
    index = filled(kind)
    with pytest.raises(NotImplementedError, match="add_core would lose labels: "):
        index.add_core(1, 2)
    assert_same_arrays(index.search_stored(k=6), filled(kind).search_stored(k=6))


@pytest.mark.parametrize(
    "kind", ["EvidenceIVF8x2,Flat", "EvidenceIVF8,SQ8", "EvidenceIVF8,PQ4,RFlat"]
)
@pytest.mark.parametrize("duplicate", [lambda index: index, copy.copy])
def test_lists_that_were_permuted_cannot_be_changed_or_copied(duplicate: object, kind: str) -> None:
    index: Any = duplicate(filled(kind, IDS))  # type: ignore[operator]
    expected = index.search_stored(k=3, nprobe=16)[1]
    order = np.roll(np.arange(8), 1)
    faiss.downcast_index(index.quantizer).permute_entries(order)
    faiss.downcast_InvertedLists(index.invlists).permute_invlists(faiss.swig_ptr(order))
    assert_array_equal(index.search_stored(k=3, nprobe=16)[1], expected)
    for change in (
        lambda: index.add_with_labels(X[:1], [0], [10**7]),
        lambda: index.relabel(LABELS),
        lambda: index.remove_ids(IDS[:1]),
        lambda: copy.copy(index),
        lambda: cfe.serialize_index(index),
    ):
        with pytest.raises(RuntimeError, match="the inverted lists were changed by other means"):
            change()
    assert index.ntotal == N


def test_changes_on_several_threads_are_those_of_one() -> None:
    n, rng = 60_000, np.random.default_rng(0)
    X, labels = rng.normal(size=(n, 64)).astype(np.float32), rng.integers(0, 7, n)
    files = []
    before = faiss.omp_get_max_threads()
    for number in (1, 2, 3):
        faiss.omp_set_num_threads(number)
        try:
            index = cfe.IndexEvidenceIVF(64, 30)
            index.take_centroids(unit(X[:30])[None])
            index.add_with_labels(X[: n // 2], labels[: n // 2])
            index.add_with_labels(X[n // 2 :], labels[n // 2 :])
            index.relabel((labels + 1) % 5)
            index.remove_ids(np.arange(0, n, 3))
            files.append(cfe.serialize_index(index))
        finally:
            faiss.omp_set_num_threads(before)
    assert_array_equal(files[1], files[0])
    assert_array_equal(files[2], files[0])


# --- updated vectors and drift --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        ("EvidenceIVF12,Flat", "cosine"),
        ("EvidenceIVF12_HNSW8,Flat", "cosine"),
        ("EvidenceIVF12,SQfp16", "cosine"),
        ("EvidenceIVF12,Flat", "ip"),
        ("EvidenceIVF12,Flat", "l2"),
    ],
)
def test_recall_and_certificates_hold_after_updates(kind: str, metric: Any) -> None:
    index: Any = cfe.index_factory(D, kind, metric)
    index.train(np.concatenate([X, OTHER]))
    index.add_with_labels(X, LABELS)
    index.search_stored(k=2)
    for count in (1, 60, N):
        rows = np.random.default_rng(count).permutation(N)[:count]
        index.update_vectors(rows, 5 * OTHER[rows], LABELS[rows])
        exact_D, exact_I = index.search_stored(k=5, exact=True)
        found = index.search_stored(k=5, recall=0.9)
        assert cfe.metrics.recall(found[1], exact_I, found[0], exact_D, metric) >= 0.9
        nprobe = 3 if metric == "cosine" else 11  # some rows are 5 times as long as others
        found_D, found_I, certified = index.search_certified(k=5, nprobe=nprobe)
        assert_array_equal(found_D[certified], exact_D[certified])
        assert_array_equal(found_I[certified], exact_I[certified])
        assert certified.any()


def test_drift_is_the_share_of_rows_nearer_to_the_mean_of_another_list() -> None:
    index = cfe.IndexEvidenceIVF(2, 2)
    index.train(np.array([[1, 0], [1, 0], [0, 1], [0, 1]], np.float32))
    index.add_with_labels(
        np.array([[1, 0], [1, 0], [1, 0], [0.8, 0.7], [0.7, 0.8]]), [0, 1, 0, 1, 0]
    )
    assert index.drift() == 0.2  # id 3
    index.update_vectors([0, 1, 2], np.array([[0.8, 0.7], [1, -1], [1, -1]]))
    sums = index.reconstruct_batch([0, 1, 2, 3]).sum(axis=0)
    means = np.stack([sums / np.linalg.norm(sums), index.reconstruct(4)])
    nearer = (index.reconstruct_batch(np.arange(5)) @ means.T).argmax(axis=1) != [0, 0, 0, 0, 1]
    assert index.drift() == nearer.mean() > 0.2
    index.remove_ids(np.arange(5))
    assert index.drift() == filled("IDMap2,EvidenceFlat").drift() == 0


def test_drift_is_measured_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled("EvidenceIVF8,Flat")
    index.update_vectors(np.arange(N), X + 1)
    exact = index.drift()
    monkeypatch.setattr(partitions, "SAMPLE", 250)
    assert index.drift() == index.drift() == pytest.approx(exact, abs=0.1)


@pytest.mark.parametrize("kind", [kind for kind in WITH_LISTS if "fp16" not in kind])
def test_drift_rises_with_the_share_of_other_vectors_and_training_ends_it(kind: str) -> None:
    index = filled(kind)
    seen = [index.drift()]
    for count in (N // 4, N):
        index.update_vectors(np.arange(count), OTHER[:count])
        seen.append(index.drift())
    assert seen == sorted(seen)
    fresh = with_rows(quick(cfe.index_factory(D, kind)), OTHER, LABELS)
    assert fresh.drift() < seen[-1] / 2
