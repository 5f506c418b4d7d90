"""Vectors that are replaced in place. For every kind of index: :mod:`test_contract`."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexes import LABELS, D, N, X, empty, filled
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, unit, with_rows

import cfe_faiss as cfe

OTHER = clustered(N, D, 4, seed=1)[0]


def assert_same(one: Any, two: Any) -> None:
    known, other = one.members(), two.members()
    assert_same_arrays((known.ids, known.labels), (other.ids, other.labels))
    assert_array_equal(one.reconstruct_batch(known.ids), two.reconstruct_batch(known.ids))
    assert_same_arrays(one.search_stored(k=5, exact=True), two.search_stored(k=5, exact=True))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=12),
    st.sampled_from(["IDMap2,EvidenceFlat", "EvidenceIVF8,Flat", "EvidenceIVF8x2,Flat"]),
)
def test_replaced_rows_may_be_fewer_or_more(drawn: list[tuple[int, int]], kind: str) -> None:
    index, other = filled(kind), filled(kind)
    replaced = np.array(sorted({7 * i + first for i, (first, _) in enumerate(drawn)}), np.int64)
    staying = replaced[: sum(first for first, _ in drawn) % (len(replaced) + 1)]
    ids = np.append(staying, 5000 + np.arange(sum(second for _, second in drawn)))
    labels = (ids % 3).astype(np.int32)
    with index.changing() as transaction:
        transaction.replace(replaced, unit(OTHER[: len(ids)]), labels, ids)
    other.remove_ids(replaced)
    other.add_with_labels(unit(OTHER[: len(ids)]), labels, ids)
    assert_same(index, other)
    assert index.ntotal == N - len(replaced) + len(ids)


def test_halves_refuse_larger_vectors() -> None:
    index = with_rows(cfe.index_factory(2, "EvidenceIVF1,SQfp16", "l2"), np.eye(2), [0, 1])
    with pytest.raises(ValueError, match="vectors must have components up to 65504"):
        index.update_vectors([0], [[1e6, 0]])
    with pytest.raises(ValueError, match="vectors must have components up to 65504"):
        index.add_with_labels([[1e5, 0]], [1])
    assert_array_equal(index.reconstruct_n(0, 2), np.eye(2))


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


def test_the_next_default_id_follows_an_updated_largest_one() -> None:
    index = empty("EvidenceIVF8,Flat")
    index.add_with_labels(X[:3], LABELS[:3], [1, 4, 90])
    index.update_vectors([90], OTHER[:1])
    index.add_with_labels(OTHER[:1], [0])
    assert index.members().ids[-1] == 91
