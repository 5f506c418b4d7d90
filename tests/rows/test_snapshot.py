"""Rows of a snapshot: their order in lists, their addresses, ids and labels."""

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal
from reference import Stored, assert_same_arrays, clustered, stored_vectors, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss.rows import snapshot
from cfe_faiss.rows.snapshot import stable_order


def ivf(X: np.ndarray, labels: np.ndarray, ids: np.ndarray, nlist: int) -> cfe.IndexEvidenceIVF:
    return with_rows(cfe.IndexEvidenceIVF(X.shape[1], nlist), X, labels, ids)


@given(stored_vectors(least=8))
def test_rows_and_ids_are_at_their_addresses(stored: Stored) -> None:
    index = ivf(stored.X, stored.labels, stored.ids, 8)
    storage = index.storage()
    ids = storage.ids()
    assert_array_equal(np.sort(ids), np.sort(stored.ids))
    place = {i: r for r, i in enumerate(stored.ids.tolist())}
    original = np.array([place[i] for i in ids.tolist()])
    for rows in (np.arange(storage.n), np.arange(storage.n)[::-1], np.arange(1, storage.n, 3)):
        assert_same_arrays(storage.rows(rows), (unit(stored.X)[original[rows]], ids[rows]))
        assert_array_equal(storage.labels[rows], stored.labels[original[rows]])


def test_consecutive_rows_of_one_list_are_a_view() -> None:
    X, labels = clustered(100, 4, 2)
    index = with_rows(cfe.IndexEvidenceFlat(4), X, labels)
    with index.holding() as rows:
        view, _ = rows.rows(np.arange(10, 20))
        copy, _ = rows.rows(np.array([3, 5]))
    assert not view.flags.writeable
    stored = faiss.rev_swig_ptr(index.get_xb(), 100 * 4).reshape(100, 4)
    assert np.shares_memory(view, stored[10:20])
    assert copy.base is None


@given(stored_vectors(least=8, lowest_label=-1))
def test_by_label_and_eligible(stored: Stored) -> None:
    index = ivf(stored.X, np.maximum(stored.labels, 0), stored.ids, 5)
    index.relabel(stored.labels, stored.ids)
    storage = index.storage()
    rows = storage.by_label
    assert_array_equal(storage.labels[rows], np.sort(stored.labels[stored.labels >= 0]))
    queries = np.array([-1, 0, 1, 9], np.int32)
    known = stored.labels[stored.labels >= 0]
    expected = [0 if label < 0 else int((known != label).sum()) for label in queries]
    assert_array_equal(storage.eligible(queries), expected)


@given(
    hnp.arrays(
        np.int32, st.integers(0, 50), elements=st.sampled_from([-1, 0, 3, 65534, 65535, 2**31 - 2])
    )
)
def test_equal_keys_keep_their_order(keys: np.ndarray) -> None:
    assert_array_equal(stable_order(keys), np.argsort(keys, kind="stable"))


@pytest.mark.parametrize("codec", ["Flat", "SQ8", "SQfp16", "PQ4,RFlat"])
def test_lists_hold_what_stock_faiss_puts_there_sorted_by_label(codec: str) -> None:
    X, labels = clustered(700, 8, 4)
    rng = np.random.default_rng(0)
    ids, labels = rng.permutation(5000)[:700], rng.permutation(labels)
    index = cfe.index_factory(8, f"EvidenceIVF9,{codec}")
    index.train(X)
    stock = index.to_stock()
    stock.add_with_ids(unit(X), ids)
    for some in (slice(0, 1), slice(1, 300), slice(300, 300), slice(300, 303), slice(303, 700)):
        index.add_with_labels(X[some], labels[some], ids[some])
    by_id = dict(zip(ids.tolist(), labels.tolist(), strict=True))
    for j in range(9):
        lists = [one.invlists for one in (index, stock)]
        size = lists[1].list_size(j)
        assert lists[0].list_size(j) == size > 0
        found, expected = (faiss.rev_swig_ptr(one.get_ids(j), size) for one in lists)
        order = np.argsort([by_id[i] for i in expected.tolist()], kind="stable")
        assert_array_equal(found, expected[order])
        codes, expected_codes = (
            faiss.rev_swig_ptr(one.get_codes(j), size * index.code_size).reshape(size, -1)
            for one in lists
        )
        assert_array_equal(codes, expected_codes[order])
    assert index.ntotal == 700


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
