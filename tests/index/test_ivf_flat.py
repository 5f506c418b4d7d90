import math
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, lists_of_rows, similarities, unit, with_rows

import cfe_faiss as cfe


def test_vectors_are_stored_once_in_a_correct_stock_index() -> None:
    X, labels = clustered(2000, 16, 4)
    index = with_rows(cfe.IndexEvidenceIVF(16, 20, 3), X, labels)
    assert isinstance(index, faiss.IndexIVFFlat)
    assert index.ntotal == index.invlists.compute_ntotal() == 2000
    stock = faiss.deserialize_index(faiss.serialize_index(index))
    assert type(stock) is faiss.IndexIVFFlat
    stock.nprobe = 20
    xq = unit(X[:50])
    D, I = stock.search(xq, 5)
    exact_D, exact_I = faiss.knn(xq, unit(X), 5, metric=faiss.METRIC_INNER_PRODUCT)
    assert_array_equal(I, exact_I)
    np.testing.assert_allclose(D, exact_D, atol=1e-6)
    for j in range(20):
        ids = faiss.rev_swig_ptr(index.invlists.get_ids(j), index.invlists.list_size(j))
        assert (np.diff(labels[ids]) >= 0).all()


def test_supplementary_partitions_refer_to_every_vector_once() -> None:
    X, labels = clustered(500, 8, 3)
    index = cfe.IndexEvidenceIVF(8, 7, 4)
    index.train(X)
    index.add_with_labels(X[:200], labels[:200])
    index.add_with_labels(X[200:], labels[200:])
    rows = index.members().rows
    centroids = index.centroids()
    for i in range(4):
        cosines = unit(X) @ centroids[i].T
        assigned = lists_of_rows(index)[i][rows]
        found = cosines[np.arange(500), assigned]
        np.testing.assert_allclose(found, cosines.max(axis=1), atol=1e-6)


def test_more_probes_find_more() -> None:
    X, labels = clustered(3000, 24, 3)
    index = with_rows(cfe.IndexEvidenceIVF(24, 40), X, labels)
    exact_D, exact_I = index.search_stored(k=10, nprobe=40)
    recalls = []
    for nprobe in (1, 4, 16, 40):
        D, I = index.search_stored(k=10, nprobe=nprobe)
        recalls.append(cfe.metrics.recall(I, exact_I, D, exact_D))
    assert recalls == sorted(recalls)
    assert recalls[-1] == 1


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


def trained() -> cfe.IndexEvidenceIVF:
    return with_rows(cfe.IndexEvidenceIVF(4, 2), np.eye(4), [0, 0, 1, 1])


def test_one_class_and_empty_indexes_give_padding() -> None:
    index = trained()
    index.relabel([1, 1, 1, 1])
    assert (index.search_stored(k=2)[1] == -1).all()
    index.reset()
    assert index.search_stored(k=2)[1].shape == (0, 2)
    assert_array_equal(index.search_evidence(np.eye(4), [0] * 4, 2)[1], np.full((4, 2), -1))
    index.add_with_labels(np.eye(4), [0, 1, 2, 3])
    assert (index.search_stored(k=2)[1] >= 0).all()


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
