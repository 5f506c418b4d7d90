import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss.rows import ids_and_labels, snapshot


def test_members_are_in_ascending_order_with_their_rows_and_labels() -> None:
    X, labels = clustered(200, 4, 3)
    ids = np.random.default_rng(1).choice(10**12, 200, replace=False)
    index = with_rows(cfe.IndexEvidenceIDMap2(4), X, labels, ids)
    known = index.members()
    order = np.argsort(ids)
    assert_array_equal(known.ids, ids[order])
    assert_array_equal(known.labels, labels[order])
    assert_array_equal(index.storage().ids()[known.rows], known.ids)
    assert_array_equal(known.ids[known.places], index.storage().ids())
    with index.holding():
        for stored in (index.snapshot(), index.storage()):
            expected = known.rows[np.searchsorted(known.ids, ids[:7])]
            assert_array_equal(stored.find(ids[:7]), expected)
            message = f"nodes must be in the index, got {ids.max() + 1}"
            with pytest.raises(ValueError, match=message):
                stored.find([ids[0], ids.max() + 1], name="nodes")


@given(
    ids=st.one_of(
        st.integers(0, 40).flatmap(lambda n: st.permutations(range(n))),
        st.lists(st.integers(0, 60), unique=True, max_size=40),
        st.lists(st.integers(0, 2**62), unique=True, max_size=40),
        st.lists(st.integers(-5, 5), max_size=20),  # as in a damaged file
    )
)
def test_rows_by_id_sort_ids(ids: list[int]) -> None:
    as_array = np.array(ids, np.int64)
    assert_array_equal(snapshot.rows_by_id(as_array), np.argsort(as_array, kind="stable"))


def test_new_ids_go_on_where_the_index_ends() -> None:
    index = with_rows(cfe.IndexEvidenceIDMap2(2), np.eye(2), [0, 1])

    def new(ids: object, n: int) -> np.ndarray:
        return ids_and_labels.new_ids(index._table, index._faiss_lists(), ids, n)  # type: ignore[arg-type]

    assert_array_equal(new(None, 3), [2, 3, 4])
    assert_array_equal(new([9, 7, 8], 3), [9, 7, 8])
    with pytest.raises(TypeError, match="ids must be integers"):
        new([0.5, 1.5], 2)
    assert_array_equal(ids_and_labels.unknown_labels(2), [-1, -1])
