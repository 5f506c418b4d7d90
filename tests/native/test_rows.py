from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from stored_rows import StoredRows, rows_in

from cfe_faiss import _native
from cfe_faiss.rows import codecs

X = np.arange(24, dtype=np.float32).reshape(6, 4)
LABELS = np.array([-1, 0, 2, 0, 1, 1], np.int32)
IDS = np.array([50, 40, 30, 20, 10, 0])


@pytest.fixture
def stored() -> StoredRows:
    return StoredRows(X, LABELS, d=4, ids=IDS, sizes=np.array([0, 3, 0, 2, 1]))


def test_rows_are_gathered_in_any_order(stored: StoredRows) -> None:
    rows = np.array([5, 0, 0, 2, 3])
    found, ids = np.empty((5, 4), np.float32), np.empty(5, np.int64)
    stored.rows.gather(rows, found, ids)
    assert_array_equal(found, X[rows])
    assert_array_equal(ids, IDS[rows])
    all_ids = np.empty(6, np.int64)
    stored.rows.copy_ids(all_ids)
    assert_array_equal(all_ids, IDS)
    assert len(stored.rows) == 6


@pytest.mark.parametrize("row", [-1, 6, 2**40])
def test_there_is_no_such_row(stored: StoredRows, row: int) -> None:
    with pytest.raises(IndexError, match=f"there is no row {row}"):
        stored.rows.gather(np.array([0, row]), np.empty((2, 4), np.float32), np.empty(2, np.int64))


def test_a_view_is_of_rows_of_one_list(stored: StoredRows) -> None:
    view = stored.rows.view(3, 5)
    assert view is not None
    assert_array_equal(view[0], X[3:5])
    assert_array_equal(view[1], IDS[3:5])
    for first, stop in ((2, 4), (0, 0), (-1, 1), (5, 7), (3, 2)):
        assert stored.rows.view(first, stop) is None
    halves = StoredRows(
        X.astype(np.float16).view(np.uint8), LABELS[:1].repeat(6), d=4, codec=codecs.FP16
    )
    assert halves.rows.view(0, 2) is None


def test_rows_at_odd_addresses_are_copied() -> None:
    raw = np.zeros(4 * 40 + 1, np.uint8)
    raw[1:] = (np.arange(40, dtype=np.float32) / 1024).view(np.uint8)
    ids, one = np.arange(2), np.zeros(2, np.int32)
    rows, _ = rows_in([raw[1:].reshape(2, 80)], [ids], one, d=20)
    assert rows.view(0, 2) is None
    found, found_ids = np.empty((2, 20), np.float32), np.empty(2, np.int64)
    rows.gather(np.arange(2), found, found_ids)
    assert_array_equal(found.ravel(), np.arange(40) / 1024)
    query = np.ones((1, 20), np.float32)
    D, I = np.full((1, 2), -9, np.float32), np.full((1, 2), 9)
    scan = _native.ListScan(rows, np.empty(0, np.int32), np.zeros(1, np.int64))
    scan.scan(query, np.ones(1, np.int32), np.zeros((1, 1), np.int64), 0.0, D, I)
    assert_array_equal(np.sort(D[0]), found.sum(axis=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.array([1, 0, 0, 0, 0, 0], np.int32)}, "labels must ascend"),
        ({"labels": np.full(6, -2, np.int32)}, "at least -1"),
        ({"levels": np.zeros(3, np.float32)}, "levels must hold"),
        ({"codec": 7}, "codec must be"),
        ({"d": 0}, "d must be"),
        ({"d": 5}, "must have the size of their codec"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    fine = {"codes": [X.view(np.uint8)], "ids": [IDS], "labels": np.zeros(6, np.int32), "d": 4}
    rows_in(**fine)
    with pytest.raises(ValueError, match=message):
        rows_in(**(fine | change))
