import faiss
import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_array_equal
from reference import Stored, assert_same_arrays, clustered, stored_vectors, unit, with_rows

import cfe_faiss as cfe
from cfe_faiss.rows.snapshot import lists_of


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


@pytest.mark.parametrize("codec", ["SQ8", "SQfp16", "PQ4,RFlat"])
def test_rows_of_other_codecs_follow_every_sort(codec: str) -> None:
    X, labels = clustered(500, 8, 3)
    index = with_rows(cfe.index_factory(8, f"EvidenceIVF6,{codec}"), X, labels)
    expected = unit(X) if codec.startswith("PQ") else index.sa_decode(index.sa_encode(unit(X)))
    codes = index.sa_encode(unit(X))
    for shift in (0, 1):
        index.relabel((labels + shift * np.arange(500)) % 4)
        storage = index.storage()
        ids = storage.ids()
        for rows in (np.arange(500), np.arange(500)[::-3]):
            assert_array_equal(storage.rows(rows)[0], expected[ids[rows]])
        stored = np.concatenate(
            [
                faiss.rev_swig_ptr(
                    index.invlists.get_codes(j), index.invlists.list_size(j) * index.code_size
                )
                for j in range(6)
                if index.invlists.list_size(j)
            ]
        ).reshape(500, -1)
        lists = codes.shape[1] - stored.shape[1]  # sa_encode prepends the list number
        assert_array_equal(stored, codes[ids][:, lists:])


def test_consecutive_rows_of_one_list_are_a_view() -> None:
    X, labels = clustered(100, 4, 2)
    index = with_rows(cfe.IndexEvidenceFlat(4), X, labels)
    with index.holding() as snapshot:
        view, _ = snapshot.rows(np.arange(10, 20))
        copy, _ = snapshot.rows(np.array([3, 5]))
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


@pytest.mark.parametrize("starts", [[0, 3, 3, 5, 9], [0, 0, 0, 1], [0, 2], [0, 0, 4, 4]])
def test_rows_are_in_the_last_list_that_starts_at_or_before_them(starts: list[int]) -> None:
    edges = np.array(starts, np.int64)
    expected = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    for rows in (
        np.arange(edges[-1]),
        np.random.default_rng(0).integers(0, edges[-1], 50),
        np.arange(0),
    ):
        assert_array_equal(lists_of(rows, edges), expected[rows])
