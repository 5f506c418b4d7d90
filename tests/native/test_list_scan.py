from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from stored_rows import StoredRows, filter_of

from cfe_faiss.rows.metric import make_results


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_damaged_rows_are_not_found_or_come_first(value: float) -> None:
    X = np.full((30, 20), 0.1, np.float32)
    X[7, 18] = value
    stored = StoredRows(X, np.zeros(30, np.int32), d=20)
    D, I = make_results(1, 30)
    query = np.full((1, 20), 0.1, np.float32)
    stored.scan().scan(query, np.ones(1, np.int32), np.zeros((1, 1), np.int64), 1e-5, D, I)
    if np.isnan(value):
        assert_array_equal(I[0], [*range(7), *range(8, 30), -1])
    else:
        assert (I[0, 0], D[0, 0]) == (7, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((2, 3), np.float32)}, "d columns"),
        ({"labels": np.zeros(3, np.int32)}, "a label and a row of lists"),
        ({"lists": np.full((2, 1), 1)}, "no such list"),
        ({"rules": filter_of(np.ones(5, bool))}, "allowed must have length 6, got 5"),
        ({"I": np.zeros((2, 4), np.int64)}, "D and I"),
        ({"D": np.zeros((2, 0), np.float32), "I": np.zeros((2, 0), np.int64)}, "D and I"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    stored = StoredRows(np.zeros((6, 4), np.float32), np.zeros(6, np.int32), d=4)
    arguments = {
        "X": np.zeros((2, 4), np.float32),
        "labels": np.ones(2, np.int32),
        "lists": np.zeros((2, 1), np.int64),
        "margin": 0.0,
        "D": np.zeros((2, 3), np.float32),
        "I": np.zeros((2, 3), np.int64),
    }
    stored.scan().scan(**arguments)
    with pytest.raises(ValueError, match=message):
        stored.scan().scan(**arguments | change)
