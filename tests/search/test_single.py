"""Single-query search in one call of the core; see :mod:`cfe_faiss.index.answering`."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import (
    Stored,
    assert_same_arrays,
    clustered,
    evidence_of_units,
    stored_vectors,
    unit,
    with_rows,
)
from stored_rows import filter_of

import cfe_faiss as cfe
from cfe_faiss._native import ReadWriteLock, SingleSearch, has_bytes
from cfe_faiss.base.checks import as_unit_rows
from cfe_faiss.coarse import routes
from cfe_faiss.search import derived
from cfe_faiss.search.derived import Derived

K, NPROBE, NLIST = 7, 5, 270
EVERYTHING = np.empty(0, bool)


def searched(
    lists: Any, X: NDArray[np.float32], labels: Any, k: int, nprobe: int, **settings: Any
) -> Any:
    """Return D, I of unit queries, and check that nothing outside them is written."""
    D, I = np.full((len(X) + 2, k), 7, np.float32), np.full((len(X) + 2, k), 7)
    allowed, complete = settings.pop("allowed", EVERYTHING), settings.pop("complete", False)
    rules = filter_of(allowed)
    lists.searcher("other").search(
        X, labels.astype(np.int32), nprobe, complete, D[1:-1], I[1:-1], rules
    )
    assert_array_equal(D[[0, -1]], 7)
    assert_array_equal(I[[0, -1]], 7)
    return D[1:-1], I[1:-1]


def plain_search(
    lists: Any,
    X: NDArray[np.float32],
    labels: Any,
    k: int,
    chosen: NDArray[np.int64],
    allowed: NDArray[np.bool_],
) -> Any:
    """Rank the eligible rows of the chosen lists, (nq, nprobe), for each query."""
    storage = lists.snapshot
    vectors, ids = storage.rows(np.arange(storage.n))
    rows_of_lists = np.concatenate([np.arange(storage.n), storage.references])
    D, I = np.empty((len(X), k), np.float32), np.empty((len(X), k), np.int64)
    for q in range(len(X)):
        own = [
            rows_of_lists[storage.list_starts[j] : storage.list_starts[j + 1]]
            for j in chosen[q]
            if j >= 0
        ]
        rows = np.unique(np.concatenate([np.empty(0, np.int64), *own]))
        rows = rows[allowed[rows]] if len(allowed) else rows
        stored = Stored(
            vectors[rows], storage.labels[rows], ids[rows], X[q : q + 1], labels[q : q + 1], k
        )
        D[q : q + 1], I[q : q + 1] = evidence_of_units(stored)
    return D, I


def filled(
    X: Any, labels: Any, nlist: int, partitions: int = 1, ids: Any = None, codec: str = "Flat"
) -> Any:
    index = cfe.index_factory(X.shape[1], f"EvidenceIVF{nlist}x{partitions},{codec}")
    return with_rows(index, X, labels, ids)


class Search(NamedTuple):
    """Queries of an inverted file, and the rows that they may find."""

    index: Any
    X: NDArray[np.float32]
    labels: NDArray[np.int32]
    k: int
    nprobe: int
    allowed: NDArray[np.bool_]


@st.composite
def searches(draw: st.DrawFn, most: int) -> Search:
    """Draw a search with an nprobe of ``most`` at most."""
    stored: Stored = draw(stored_vectors(least=12, lowest_label=-1))
    codec = draw(st.sampled_from(["Flat", "SQfp16", "SQ8"]))
    index = filled(
        stored.X,
        stored.labels,
        draw(st.integers(1, 12)),
        draw(st.integers(1, 3)),
        stored.ids,
        codec,
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    allowed = rng.random(len(stored.X)) < 0.6 if draw(st.booleans()) else EVERYTHING
    nprobe = min(draw(st.integers(1, most)), index.storage().lists)
    return Search(
        index, unit(stored.xq), stored.labels_q.astype(np.int32), stored.k, nprobe, allowed
    )


@given(searches(40))
def test_results_are_exact_for_the_lists_that_are_ranked_first(search: Search) -> None:
    index, X, labels, k, nprobe, allowed = search
    lists = Derived.of(index.storage())
    found = searched(lists, X, labels, k, nprobe, allowed=allowed)
    expected = plain_search(
        lists, X, labels, k, lists.routes_for().lists(X, labels, nprobe), allowed
    )
    assert_same_arrays(found, expected)


@given(searches(3))
def test_a_row_is_completed_as_by_searches_of_four_times_as_many_lists(search: Search) -> None:
    index, X, labels, k, nprobe, allowed = search
    lists = Derived.of(index.storage())
    found = searched(lists, X, labels, k, nprobe, allowed=allowed, complete=True)
    wanted = np.minimum(lists.snapshot.eligible(labels, allowed if len(allowed) else None), k)
    assert_array_equal((found[1] >= 0).sum(axis=1), wanted)
    for q in range(len(X)):
        own, wide = slice(q, q + 1), nprobe
        while True:
            expected = searched(
                lists, X[own], labels[own], k, min(wide, lists.snapshot.lists), allowed=allowed
            )
            if (expected[1] >= 0).sum() >= wanted[q] or wide >= lists.snapshot.lists:
                break
            wide *= 4
        assert_same_arrays((found[0][own], found[1][own]), expected)


@pytest.mark.parametrize("many", [NLIST, NLIST + 1])
@pytest.mark.parametrize("d", [9, 16, 40, 160])
def test_an_unnormalised_query_is_searched_as_its_unit_vector(
    d: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "WORTH_CLUSTERS", many)
    X, labels = clustered(6000, d, 4)
    index = filled(X, labels, NLIST)
    lists = Derived.of(index.storage())
    assert (len(lists.routes_for().second_level.means) > 0) == (many == NLIST)
    units = as_unit_rows("X", X)
    for q in range(0, 6000, 200):
        expected = searched(lists, units[q : q + 1], labels[q : q + 1], K, NPROBE, complete=True)
        for x in (X[q : q + 1], units[q : q + 1]):
            found = SingleSearch(ReadWriteLock(), lists.searcher("other")).search(
                x, labels[q : q + 1], K, NPROBE, True, 6000
            )
            assert found is not None
            assert_same_arrays(found, expected)
        assert (expected[1] >= 0).all()


@pytest.mark.parametrize(
    ("x", "label"),
    [
        ([np.nan] * 9, 1),
        ([np.inf] + [0] * 8, 1),
        ([3e38] * 9, 1 << 31),
        ([1] * 9, -1),
        ([1] * 9, 1 << 40),
        ([1] * 9, -2),
        ([1] * 9, 2**31 - 1),
    ],
)
def test_what_is_to_be_refused_is_not_searched(x: list[float], label: int) -> None:
    X, labels = clustered(200, 9, 3)
    index = filled(X, labels, 6)
    lists = Derived.of(index.storage())
    single = SingleSearch(ReadWriteLock(), lists.searcher("other"))
    assert single.search(np.array([x], np.float32), np.array([label]), K, NPROBE, True, 200) is None


@pytest.mark.parametrize(("k", "alone"), [(1, "byte"), (K, "byte"), (130, "byte"), (700, "byte")])
@pytest.mark.parametrize(
    ("d", "rotated"), [(9, False), (33, False), (160, False), (160, True), (203, True)]
)
def test_rows_and_blocks_lead_to_the_same_results(
    d: int, rotated: bool, k: int, alone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "_WORTH_ROTATING", 1 if rotated else 1 << 60)
    monkeypatch.setattr(derived, "_LONGEST_TAIL", 1.0)
    X, labels = clustered(900, d, 4)
    X[100:140] = X[:40]  # ties
    labels[::50] = -1
    index = filled(X, labels, 40)
    lists = Derived.of(index.storage())
    lists.pin(derived.Choice("float", alone if has_bytes() else "float"))
    everything, units, own = np.ones(900, bool), unit(X[::9]), labels[::9]
    for nprobe in (1, 3, 40):
        for complete in (False, True):
            by_blocks = searched(lists, units, own, k, nprobe, complete=complete)
            by_rows = searched(lists, units, own, k, nprobe, complete=complete, allowed=everything)
            assert_same_arrays(by_blocks, by_rows)


@pytest.mark.parametrize("kind", ["EvidenceFlat", "EvidenceIVF2,Flat"])
def test_the_first_query_after_a_change_takes_labels_of_any_size(kind: str) -> None:
    X = np.eye(8, dtype=np.float32)
    index = cfe.index_factory(8, kind)
    if not index.is_trained:
        index.train(np.repeat(X, 40, axis=0))
    index.add_with_labels(X[:4], [2**40, 5, 0, 1])
    for _ in range(2):
        index.search_evidence(X[:1], np.array([5]), 4)
        index.add_with_labels(X[4:6], [5, 2], [4, 5])
        assert index.search_evidence(X[:1], np.array([5]), 6)[1].tolist() == [[0, 2, 3, 5, -1, -1]]
        index.remove_ids([4, 5])
