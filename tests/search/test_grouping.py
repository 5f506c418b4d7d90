from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import clustered, unit

import cfe_faiss as cfe
from cfe_faiss.base.checks import SEVERAL
from cfe_faiss.base.threads import num_threads
from cfe_faiss.coarse.routes import Routes, SecondLevel
from cfe_faiss.search import derived
from cfe_faiss.search.lists import Groups, Queries, group

seeds = st.integers(0, 2**32 - 1)


def borders_of(sizes: list[int]) -> NDArray[np.int64]:
    return np.append(0, np.cumsum(sizes)).astype(np.int64)


# --- groups of queries -----------------------------------------------------------------------------------------------


class QueriesOfLists:
    def __init__(self, X: Any, labels: Any, homes: Any, order: Any) -> None:
        self.X, self.labels, self._homes, self.order = X, labels, homes, order

    @property
    def in_order(self) -> Any:
        return np.arange(len(self)) if self.order is None else self.order

    def fetch(self, some: Any) -> Any:
        return self.X[some]

    def own_lists(self, some: Any) -> Any:
        return self._homes[some]

    def __len__(self) -> int:
        return len(self.labels)


def queries_of(
    labels: NDArray[np.int32], homes: NDArray[np.int64], order: NDArray[np.int64] | None = None
) -> Queries:
    X = np.arange(len(labels), dtype=np.float32)[:, None]
    return QueriesOfLists(X, labels, homes, order)


def routes_with(entries: NDArray[np.bool_]) -> Routes:
    """Return routes with the given centroids, (labels, lists) bool; their means do not matter."""
    labels = np.flatnonzero(entries.any(axis=1))
    _, lists = np.nonzero(entries)
    means, number = np.zeros((entries.shape[1], 1), np.float32), len(lists)
    return Routes(
        nlist=entries.shape[1],
        means=means,
        filled=np.ones(entries.shape[1], bool),
        labels=labels.astype(np.int32),
        starts=borders_of(entries[labels].sum(axis=1).tolist()),
        class_lists=lists.astype(np.int64),
        class_means=np.zeros((number, 1), np.float32),
        class_filled=np.ones(number, bool),
        second_level=SecondLevel.none(1),
    )


@given(
    st.integers(0, 80),
    st.integers(1, 6),
    st.integers(1, 5),
    st.sampled_from([0, 30_000, 2**20]),
    st.sampled_from(["none", "by list", "any"]),
    seeds,
)
def test_queries_of_a_list_are_one_group_that_have_its_entry_or_none(
    n: int, nlist: int, classes: int, lowest: int, known_order: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    entries = np.zeros((lowest + classes, nlist), bool)
    entries[lowest:] = rng.random((classes, nlist)) < 0.5
    labels = np.where(rng.random(n) < 0.1, -1, lowest + rng.integers(0, classes, n)).astype(
        np.int32
    )
    homes = rng.integers(0, nlist, n)
    order, of_list = np.arange(n), rng.permutation(n)
    if known_order != "none":
        order = (
            of_list[np.argsort(homes[of_list], kind="stable")]
            if known_order == "by list"
            else of_list
        )
    groups = group(
        queries_of(labels, homes, None if known_order == "none" else order), routes_with(entries)
    )
    places = np.argsort(order)
    assert_array_equal(np.sort(groups.order), np.flatnonzero(labels >= 0))
    routed_by = np.where(entries[labels, homes], labels, SEVERAL)
    seen = []
    for g in range(len(groups)):
        own = groups.order[groups.starts[g] : groups.starts[g + 1]]
        assert_array_equal(places[own], np.sort(places[own]))
        assert_array_equal(routed_by[own], groups.labels[g])
        assert len(set(homes[own].tolist())) == 1
        seen.append((homes[own[0]], groups.labels[g]))
    assert len(set(seen)) == len(seen)
    assert groups.labels.dtype == np.int32


# --- tasks ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([1, 2, 7, 300, 5000]), max_size=40))
def test_tasks_cover_all_groups_and_cut_none(sizes: list[int]) -> None:
    starts = borders_of(sizes)
    groups = Groups(
        np.random.default_rng(0).permutation(starts[-1]), starts, np.zeros(len(sizes), np.int32)
    )
    tasks = groups.tasks()
    groups_of_tasks = [g for task in tasks for g in range(task.start, task.stop)]
    assert groups_of_tasks == list(range(len(sizes)))
    for task in tasks:
        assert task.start < task.stop
        places, borders = groups.of_task(task)
        assert_array_equal(borders, starts[task.start : task.stop + 1] - starts[task.start])
        assert (places.start, places.stop) == (starts[task.start], starts[task.stop])
        assert borders[-1] < derived._MOST_QUERIES + max(sizes)


@pytest.mark.parametrize("share", [derived._FEWEST_QUERIES, 10_000])
def test_every_thread_gets_a_task_and_the_last_are_small(share: int) -> None:
    n = share * num_threads()
    starts = np.arange(n + 1)
    made = [
        task.stop - task.start
        for task in Groups(starts[:-1], starts, np.zeros(n, np.int32)).tasks()
    ]
    assert len(made) >= num_threads()
    assert made == sorted(made, reverse=True)
    assert made[0] <= derived._MOST_QUERIES
    assert made[-1] <= derived._FEWEST_QUERIES


# --- the two together -------------------------------------------------------------------------------------------------


def test_some_of_the_queries_are_queries() -> None:
    X, labels = clustered(90, 5, 3)
    index = cfe.IndexEvidenceIVF(5, 4)
    index.train(X)
    index.add_with_labels(X, labels)
    homes = np.repeat(np.arange(4), np.diff(index.storage().starts))[index.members().rows]
    for queries in (
        Queries(index.storage(), labels.astype(np.int32), X=unit(X)),
        Queries.of_rows(index.storage(), index.members().rows),
        Queries.of_rows(index.storage(), index.members().rows, order=index.members().places),
    ):
        some = np.array([80, 3, 3, 41])
        chosen = queries.subset(some)
        assert len(chosen) == 4
        assert_array_equal(chosen.labels, labels[some])
        for whole in (queries, chosen):
            every = np.arange(len(whole))
            assert_array_equal(np.sort(every if whole.order is None else whole.order), every)
        assert_array_equal(
            chosen.own_lists(np.array([3, 1, 0])), queries.own_lists(np.arange(90))[[41, 3, 80]]
        )
        assert_array_equal(queries.own_lists(np.arange(90)), homes)
        assert_array_equal(chosen.fetch(np.array([2, 0])), unit(X)[[3, 80]])
