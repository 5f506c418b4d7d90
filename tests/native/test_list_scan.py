from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from reference import PADDING, cosine
from stored_rows import StoredRows, filter_of

from cfe_faiss.rows import codecs
from cfe_faiss.rows.metric import make_results

EVERYTHING = np.empty(0, bool)


@given(
    st.integers(1, 60),
    st.integers(1, 40),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_the_best_of_given_lists(
    n: int, d: int, nlist: int, filtered: bool, referred: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 12))
    sizes = np.bincount(rng.integers(0, nlist, n), minlength=nlist)
    labels = np.concatenate([np.sort(rng.integers(-1, 3, size)) for size in sizes]).astype(np.int32)
    X, ids = (rng.integers(-4, 5, (n, d)) / 16).astype(np.float32), rng.permutation(1000)[:n]
    stored = StoredRows(X, labels, d=d, ids=ids, sizes=sizes)
    xq, labels_q = (
        (rng.integers(-4, 5, (5, d)) / 16).astype(np.float32),
        np.array([-1, 0, 1, 2, 9], np.int32),
    )
    allowed = rng.random(n) < 0.5 if filtered else EVERYTHING
    references = rng.permutation(n).astype(np.int32) if referred else np.empty(0, np.int32)
    reference_starts = np.array([0, n // 2, n] if referred else [0], np.int64)
    members = [np.arange(a, b) for a, b in zip(stored.starts[:-1], stored.starts[1:], strict=True)]
    members += [references[: n // 2], references[n // 2 :]] if referred else []
    lists = rng.integers(-1, len(members), (5, 3))
    lists = np.stack(
        [
            np.where(np.isin(np.arange(3), np.unique(row, return_index=True)[1]), row, -1)
            for row in lists
        ]
    )
    D, I = make_results(5, k)
    margin = codecs.screening_error(d) * max(1.0, float((np.abs(xq) @ np.abs(X).T).max()))
    stored.scan(references, reference_starts).scan(
        xq, labels_q, lists, margin, D, I, filter_of(allowed)
    )
    for q in range(5):
        rows = np.unique(
            np.concatenate([np.empty(0, int), *(members[j] for j in lists[q] if j >= 0)])
        )
        rows = rows[(labels[rows] != -1) & (labels[rows] != labels_q[q]) & (labels_q[q] != -1)]
        rows = rows[allowed[rows]] if filtered else rows
        scores = cosine(xq[q], X[rows])
        best = np.lexsort((ids[rows], -scores))[:k]
        assert_array_equal(I[q], np.append(ids[rows][best], np.full(k - len(best), -1)))
        assert_array_equal(
            D[q], np.append(scores[best], np.full(k - len(best), PADDING, np.float32))
        )


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


@pytest.mark.parametrize(
    ("references", "starts", "message"),
    [
        ([6], [0, 1], "must be rows"),
        ([-1], [0, 1], "must be rows"),
        ([0], [0], "run from"),
        ([0, 1], [0, 3, 2], "ascend"),
    ],
)
def test_references_that_do_not_fit_are_refused(
    references: list[int], starts: list[int], message: str
) -> None:
    stored = StoredRows(np.zeros((6, 4), np.float32), np.zeros(6, np.int32), d=4)
    with pytest.raises(ValueError, match=message):
        stored.scan(np.array(references, np.int32), np.array(starts))
