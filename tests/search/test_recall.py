"""How many lists to probe: which stored vectors it is measured on, and what comes of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import cfe_faiss as cfe
from cfe_faiss.search.derived import Derived
from cfe_faiss.search import recall
from cfe_faiss.search.grouping import Groups, Queries, small_groups

Arrays = tuple[NDArray[np.float32], NDArray[np.int32]]


def made(X: NDArray[np.float32], labels: NDArray[np.int32], nlist: int) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF(X.shape[1], nlist)
    index.cp.niter = 3
    index.train(X)
    known = labels >= 0
    index.add_with_labels(X[known], labels[known], np.flatnonzero(known))
    index.add_with_ids(X[~known], np.flatnonzero(~known))
    return index


def points(seed: int, n: int, d: int, classes: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype(np.float32), rng.integers(-1, classes, n).astype(np.int32)


def groups_in(index: cfe.IndexEvidenceIVF, queries: Queries) -> set[frozenset[int]]:
    lists = Derived.of(index.storage())
    groups: Groups = small_groups(queries, lists.class_means)
    rows = queries.rows[groups.order]
    return {frozenset(rows[a:b].tolist()) for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)}


@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 900),
    nlist=st.integers(1, 20),
    classes=st.integers(1, 4),
    sample=st.integers(1, 1000),
)
def test_the_sample_is_of_groups_as_all_vectors_are_searched_in(
    seed: int, n: int, nlist: int, classes: int, sample: int
) -> None:
    X, labels = points(seed, n, 4, classes)
    index = made(X, labels, min(n, nlist))
    lists = Derived.of(index.storage())
    of_all = groups_in(index, Queries.of_rows(lists.snapshot, np.arange(n)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall, "SAMPLE", sample)
        searches = recall._groups(lists.snapshot, lists.class_means)
    found = [group for queries in searches for group in groups_in(index, queries)]
    assert len(found) == len(set(found))
    assert set(found) <= of_all
    known = int((labels >= 0).sum())
    size = sum(map(len, found))
    assert size < sample + 16
    if sample >= n:
        assert size == known


def test_long_lists_are_not_taken_as_a_whole() -> None:
    X, labels = points(0, 60_000, 4, 2)
    index = made(X, labels, 60)
    lists = Derived.of(index.storage())
    searches = recall._groups(lists.snapshot, lists.class_means)
    rows = np.concatenate([queries.rows for queries in searches])
    assert recall.SAMPLE <= len(rows) < recall.SAMPLE + 16
    assert len(np.unique(np.searchsorted(lists.snapshot.starts, rows, side="right"))) > 45


def test_recall_is_kept_where_lists_are_long_and_differ() -> None:
    rng = np.random.default_rng(1)
    n, nlist = 40_000, 40
    # In half of all places few lists hold what is near, in the other half many.
    centres = rng.normal(size=(nlist, 16))
    spread = np.where(np.arange(nlist) % 2, 0.05, 1.0)
    place = rng.integers(0, nlist, n)
    X = (centres[place] + spread[place, None] * rng.normal(size=(n, 16))).astype(np.float32)
    index = made(X, rng.integers(0, 2, n).astype(np.int32), nlist)
    D, I = index.search_members(k=10, recall=0.9)
    best_D, best_I = index.search_members(k=10, exact=True)
    assert 0.9 <= cfe.metrics.recall(I, best_I, D, best_D) < 0.95
