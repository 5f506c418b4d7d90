from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference import Stored, clustered, lists_of_rows, stored_vectors, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss.coarse import routes as routing
from cfe_faiss.coarse.routes import SecondLevel, nearest_lists


def test_lists_are_ranked_over_all_partitions() -> None:
    X = unit(clustered(50, 6, 2)[0])
    centroids = unit(np.random.default_rng(0).normal(size=(12, 6))).reshape(3, 4, 6)
    ranking = np.argsort(-(X @ centroids.reshape(12, 6).T), axis=1)
    assert_array_equal(nearest_lists(X, centroids, 5), ranking[:, :5])


def test_all_lists_of_the_first_partition_hold_every_vector() -> None:
    lists = nearest_lists(np.eye(4, dtype=np.float32), np.zeros((3, 5, 4), np.float32), 15)
    assert_array_equal(lists, np.tile(np.arange(5), (4, 1)))
    assert lists.flags.c_contiguous


def built(stored: Stored, nlist: int, partitions: int) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF(stored.X.shape[1], nlist, partitions)
    return with_rows(index, stored.X, stored.labels, stored.ids)


def class_excluded_means(
    index: cfe.IndexEvidenceIVF, stored: Stored, label: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sum the members of each list of each partition with a known label other than ``label``, one by one."""
    sums = np.zeros((index.partitions * index.nlist, stored.X.shape[1]))
    counts = np.zeros(len(sums), int)
    order = np.argsort(stored.ids)
    lists = lists_of_rows(index)[:, index.members().rows]
    for partition in range(index.partitions):
        for v, j in zip(order, lists[partition], strict=True):
            if stored.labels[v] not in (-1, label):
                sums[partition * index.nlist + j] += unit(stored.X)[v]
                counts[partition * index.nlist + j] += 1
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 1e-5), counts


@given(
    stored_vectors(least=12, lowest_label=-1), st.integers(1, 6), st.integers(1, 3), st.booleans()
)
def test_routes_rank_lists_by_their_members_of_other_classes(
    stored: Stored, nlist: int, partitions: int, few: bool
) -> None:
    index = built(stored, nlist, partitions)
    lists = nlist * partitions
    for label in range(5):
        means, counts = class_excluded_means(index, stored, label)
        x = unit(np.random.default_rng(label).normal(size=(3 if few else 9, stored.X.shape[1])))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(routing, "SMALL_SHARE", 0.0)
            index._state = None  # worked out anew
            chosen = index.routes().lists(x, np.full(len(x), label, np.int32), max(1, lists - 1))
        scores = np.where(counts > 0, x @ means.T, -np.inf)
        for q in range(len(x)):
            if lists == 1:
                assert_array_equal(chosen[q], [0])
                continue
            found = chosen[q][chosen[q] >= 0]
            assert len(set(found.tolist())) == len(found) == min(lists - 1, (counts > 0).sum())
            assert (counts[found] > 0).all()
            assert_allclose(scores[q, found], np.sort(scores[q])[::-1][: len(found)], atol=1e-4)


def test_a_small_share_is_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    X, labels = clustered(400, 6, 2)
    labels[:3] = 7
    stored = Stored(X, labels, np.arange(400), X, labels, 1)
    assert 7 not in built(stored, 2, 1).routes().labels
    monkeypatch.setattr(routing, "SMALL_SHARE", 0.0)
    assert 7 in built(stored, 2, 1).routes().labels


def test_evidence_routing_finds_more_than_the_nearest_lists() -> None:
    X, labels = clustered(4000, 16, 3, seed=2)
    index = built(Stored(X, labels, np.arange(4000), X, labels, 1), 120, 1)
    few = np.arange(0, 4000, 10)  # too few to be routed together
    exact_D, exact_I = index.search_stored(few, 10, nprobe=120)
    recalls = {}
    for way in ("nearest", "evidence"):
        index.routing = way
        D, I = index.search_stored(few, 10, nprobe=6)
        recalls[way] = cfe.metrics.recall(I, exact_I, D, exact_D)
    assert recalls["evidence"] > recalls["nearest"]


def test_regions_find_nearly_the_lists_that_all_comparisons_find(tmp_path: Path) -> None:
    X, labels = clustered(6000, 10, 4)
    index = with_rows(cfe.IndexEvidenceIVF(10, 900), X, labels)
    queries, own = unit(X[:300]), labels[:300].astype(np.int32)
    expected = index.routes().lists(queries, own, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "WORTH_CLUSTERS", 500)
        index._state = None  # worked out anew
        cfe.write_index(index, tmp_path / "regions.index")
        found = index.routes().lists(queries, own, 8)
        assert len(index.routes().second_level.means) == 30
    shared = np.mean(
        [len(set(a) & set(b)) / 8 for a, b in zip(found.tolist(), expected.tolist(), strict=True)]
    )
    assert 0.9 < shared <= 1
    for flags in (0, faiss.IO_FLAG_MMAP):
        read = cfe.read_index(tmp_path / "regions.index", flags)
        assert_array_equal(read.routes().lists(queries, own, 8), found)
        D, I = read.search_evidence(X[:3], own[:3], 5, nprobe=900)
        assert_array_equal(I, index.search_evidence(X[:3], own[:3], 5, exact=True)[1])
        assert (D[:, 0] > 0).all()
    for few in (queries[:1], queries[:4]):
        answer = index.search_evidence(few, own[: len(few)], 5, nprobe=8)[1][:, 0] >= 0
        assert_array_equal(answer, True)


def test_every_list_is_in_one_cluster() -> None:
    means = unit(np.random.default_rng(0).normal(size=(routing.WORTH_CLUSTERS, 6)))
    second_level = SecondLevel.of(means)
    assert_array_equal(np.sort(second_level.lists), np.arange(routing.WORTH_CLUSTERS))
    assert len(second_level.starts) == len(second_level.means) + 1 == 46
    for r in range(45):
        members = second_level.lists[second_level.starts[r] : second_level.starts[r + 1]]
        assert_array_equal((means[members] @ second_level.means.T).argmax(axis=1), r)
    assert len(SecondLevel.of(means[:-1]).means) == 0
