"""Vectors that are replaced in place, and the drift of the lists."""

from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, quick, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss.coarse import partitions

N, D = 400, 8
X, LABELS = clustered(N, D, 4)
OTHER = clustered(N, D, 4, seed=1)[0]
KINDS = {
    "flat": "IDMap2,EvidenceFlat",
    "ivf": "EvidenceIVF12,Flat",
    "ivf2": "EvidenceIVF12x2,Flat",
    "hnsw": "EvidenceIVF12_HNSW8,Flat",
    "fp16": "EvidenceIVF12,SQfp16",
    "sq8": "EvidenceIVF12,SQ8",
    "pq": "EvidenceIVF12,PQ4,RFlat",
}


METRICS = {
    "flat ip": ("flat", "ip"),
    "flat l2": ("flat", "l2"),
    "ivf ip": ("ivf", "ip"),
    "ivf l2": ("ivf", "l2"),
}
METRICS |= {kind: (kind, "cosine") for kind in KINDS}


def filled(kind: str) -> Any:
    kind, metric = METRICS[kind]
    index = quick(cfe.index_factory(D, KINDS[kind], metric))
    if kind != "flat":
        index.train(np.concatenate([X, OTHER]))
    index.add_with_labels(X, LABELS, 3 * np.arange(N) + 1)
    return index


def assert_same(one: Any, two: Any) -> None:
    known, other = one.members(), two.members()
    assert_array_equal(known.ids, other.ids)
    assert_array_equal(known.labels, other.labels)
    assert_array_equal(one.reconstruct_batch(known.ids), two.reconstruct_batch(known.ids))
    most = one.partitions * one.nlist if one.has_lists else None
    for search in (
        lambda index: index.search_stored(k=5, nprobe=most),
        lambda index: index.search_stored(known.ids[[2, -1, 9]], k=5, nprobe=most),
        lambda index: index.search_evidence(OTHER[:9, : one.d], LABELS[:9], 5, nprobe=most),
        lambda index: index.search_evidence(OTHER[:1, : one.d], LABELS[:1], 5, nprobe=most),
    ):
        assert_same_arrays(search(one), search(two))


def assert_keeps_promises(index: Any) -> None:
    """Check the recall that is asked for, and that certified rows are exact."""
    D, I = index.search_stored(k=5, nprobe=index.partitions * index.nlist)
    found = index.search_stored(k=5, recall=0.9)
    assert cfe.metrics.recall(found[1], I, found[0], D) >= 0.9
    nprobe = 3 if index.metric == "cosine" else 11  # some rows are 5 times as long as others
    found_D, found_I, certified = index.search_certified(k=5, nprobe=nprobe)
    assert_array_equal(found_D[certified], D[certified])
    assert_array_equal(found_I[certified], I[certified])
    assert certified.any()


# By default, each kind with two of six cases.
UPDATES = [
    pytest.param(kind, labels, count, marks=[pytest.mark.slow] if (i + j) % 3 else [])
    for i, kind in enumerate(METRICS)
    for j, (labels, count) in enumerate([(None, 1), (None, 60), (None, N), (2, 1), (2, 60), (2, N)])
]


@pytest.mark.parametrize(("kind", "labels", "count"), UPDATES)
def test_an_update_equals_a_removal_and_an_addition(
    kind: str, labels: int | None, count: int
) -> None:
    index, other = filled(kind), filled(kind)
    for one in (index, other):
        one.search_evidence(X[:1], LABELS[:1], 3)  # derived data is there, and carried over
    rows = np.random.default_rng(count).permutation(N)[:count]
    ids, new = 3 * rows + 1, LABELS[rows] if labels is None else np.full(count, labels)
    index.update_vectors(ids, 5 * OTHER[rows], None if labels is None else new)
    other.remove_ids(ids)
    other.add_with_labels(OTHER[rows] * 5, new, ids)
    assert_same(index, other)
    assert_same(cfe.clone_index(index), other)
    if kind in ("ivf", "fp16", "ivf ip", "ivf l2"):
        assert_keeps_promises(index)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=12),
    st.sampled_from(["flat", "ivf", "ivf2"]),
)
def test_replaced_rows_may_be_fewer_or_more(drawn: list[tuple[int, int]], kind: str) -> None:
    index, other = filled(kind), filled(kind)
    gone = (
        3 * np.array(sorted({7 * number + one for number, (one, _) in enumerate(drawn)}), np.int64)
        + 1
    )
    kept = gone[: sum(one for one, _ in drawn) % (len(gone) + 1)]
    ids = np.append(kept, 5000 + np.arange(sum(two for _, two in drawn)))
    labels = (ids % 3).astype(np.int32)
    with index.changing() as transaction:
        transaction.replace(gone, unit(OTHER[: len(ids)]), labels, ids)
    other.remove_ids(gone)
    other.add_with_labels(unit(OTHER[: len(ids)]), labels, ids)
    assert_same(index, other)
    assert index.ntotal == N - len(gone) + len(ids)


REFUSED: list[tuple[Any, Any, Any, type[Exception], str]] = [
    ([1, 2], OTHER[:2], None, ValueError, "ids must be in the index, got 2, which is not"),
    ([1, 4, 1], OTHER[:3], None, ValueError, "ids must be distinct, got 1 more than once"),
    ([1.5], OTHER[:1], None, TypeError, "ids must be integers"),
    ([1, 4], OTHER[:3], None, ValueError, r"x .*got \(3, 8\)"),
    ([1], OTHER[:1, :5], None, ValueError, r"x must have shape \(n, 8\)"),
    ([1], np.full((1, D), np.nan), None, ValueError, "x must be finite"),
    ([1], OTHER[:1], [0, 1], ValueError, r"labels must have shape \(1,\)"),
    ([1], OTHER[:1], [-2], ValueError, "labels must"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_update_changes_nothing(kind: str) -> None:
    index, other = filled(kind), filled(kind)
    for ids, x, labels, error, message in REFUSED:
        with pytest.raises(error, match=message):
            index.update_vectors(ids, x, labels)
        assert_same(index, other)


def test_halves_refuse_larger_vectors() -> None:
    index = with_rows(cfe.index_factory(2, "EvidenceIVF1,SQfp16", "l2"), np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="vectors must have components up to 65504"):
        index.update_vectors([0], [[1e6, 0]])
    assert_array_equal(index.reconstruct(0), [1, 0])


def test_labels_may_become_unknown_and_texts() -> None:
    index = with_rows(cfe.IndexEvidenceIDMap2(2), [[1, 0], [0, 1], [0.6, 0.8]], ["a", "b", "b"])
    index.update_vectors([2, 0], [[0, 1], [1, 0]], ["c", None])
    assert index.members().labels.tolist() == [None, "b", "c"]
    assert index.search_evidence([[0, 1]], ["a"], 3)[1].tolist() == [[1, 2, -1]]
    index.update_vectors([], np.empty((0, 2)))
    assert index.label_names.tolist() == ["b", "c"]


def test_vectors_behind_a_transform() -> None:
    index, other = (cfe.index_factory(D, "PCA4,EvidenceIVF5,Flat") for _ in range(2))
    for one in (index, other):
        one.train(X)
        one.add_with_labels(X, LABELS)
    index.update_vectors(np.arange(9), OTHER[:9])
    other.remove_ids(np.arange(9))
    # products of one batch have the same bits
    other.add_with_labels(OTHER[:9], LABELS[:9], np.arange(9))
    assert_same(index.evidence, other.evidence)


def test_a_mapped_index_refuses_updates(tmp_path: Any) -> None:
    cfe.write_index(filled("ivf"), tmp_path / "index")
    mapped = cfe.read_index(tmp_path / "index", faiss.IO_FLAG_MMAP)
    with pytest.raises(RuntimeError, match="mapped"):
        mapped.update_vectors([1], OTHER[:1])
    assert_same(mapped, filled("ivf"))


def test_the_next_default_id_follows_an_updated_largest_one() -> None:
    index = filled("ivf")
    index.update_vectors([3 * N - 2], OTHER[:1])
    index.add_with_labels(OTHER[:1], [0])
    assert index.members().ids[-1] == 3 * N - 1


# --- drift ------------------------------------------------------------------------------------------------------------


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
    assert index.drift() == 0


def test_drift_is_measured_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    index = filled("ivf")
    index.update_vectors(3 * np.arange(N) + 1, X + 1)
    exact = index.drift()
    monkeypatch.setattr(partitions, "SAMPLE", 250)
    assert index.drift() == index.drift() == pytest.approx(exact, abs=0.1)


def test_an_index_without_lists_has_no_drift() -> None:
    index = filled("flat")
    index.update_vectors([1], OTHER[:1])
    assert index.drift() == 0.0


@pytest.mark.parametrize("kind", ["ivf", "ivf2", "sq8", "pq"])
def test_drift_rises_with_the_share_of_other_vectors_and_training_ends_it(kind: str) -> None:
    index = with_rows(quick(cfe.index_factory(D, KINDS[kind])), X, LABELS)
    seen = [index.drift()]
    for count in (N // 4, N):
        index.update_vectors(np.arange(count), OTHER[:count])
        seen.append(index.drift())
    assert seen == sorted(seen)
    fresh = with_rows(quick(cfe.index_factory(D, KINDS[kind])), OTHER, LABELS)
    assert fresh.drift() < seen[-1] / 2
