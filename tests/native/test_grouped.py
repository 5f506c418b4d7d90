"""Grouped searches in one call, against the steps they are made of."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import clustered

import cfe_faiss as cfe
from cfe_faiss._native import has_bytes
from cfe_faiss.search import derived, lists
from cfe_faiss.search.derived import Derived
from cfe_faiss.search.lists import Groups, Queries

ELEMENTS = ["float", "byte"] if has_bytes() else ["float"]
K = 7


class Made:
    """An index with its rows as queries, and what searches them in groups."""

    def __init__(self, element: Any = "float", n: int = 900, partitions: int = 1) -> None:
        X, labels = clustered(n, 12, 3)
        labels[::50] = -1
        self.index = cfe.IndexEvidenceIVF(12, 15, partitions)
        self.index.train(X)
        self.index.add_with_labels(X, np.where(labels < 0, 0, labels))
        self.index.relabel(labels)
        self.lists = Derived.of(self.index.storage())
        self.storage, self.routes = self.lists.snapshot, self.index.routes()
        self.blocks = derived.blocks_of(self.storage, element)
        self.searcher = self.lists.searcher_in(self.blocks, self.routes.native)
        self.rows = np.random.default_rng(0).permutation(n)
        self.queries = Queries.of_rows(self.storage, self.rows)
        self.groups: Groups = lists.group(self.queries, self.routes)

    def empty(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        return np.full((len(self.rows), K), 7, np.float32), np.full(
            (len(self.rows), K), 7, np.int64
        )

    def search(self, nprobe: int, **changed: Any) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        D, I = self.empty()
        given = {
            "X": np.empty((0, 0), np.float32),
            "rows": self.rows,
            "labels": self.queries.labels,
            "order": self.groups.order,
            "starts": self.groups.starts,
            "group_labels": self.groups.labels,
            "tasks": np.array([0, *(task.stop for task in self.groups.tasks())]),
            "D": D,
            "I": I,
        }
        self.searcher.search_groups(**(given | {"nprobe": nprobe} | changed))
        return D, I


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("nprobe", [1, 4, 1000])
def test_one_call_gives_what_its_steps_give(element: str, partitions: int, nprobe: int) -> None:
    made = Made(element, partitions=partitions)
    groups, nearest = lists.routed(made.routes, made.queries, nprobe)
    X, labels = made.queries.fetch(groups.order), made.queries.labels[groups.order]
    D, I = made.empty()
    made.blocks.search(X, labels, groups.starts, nearest, groups.order, D, I)
    for found in (
        made.search(nprobe),
        made.search(nprobe, threads=3, tasks=np.arange(len(made.groups) + 1)),
        made.search(nprobe, X=made.queries.fetch(np.arange(900)), rows=made.rows[:0]),
    ):
        assert_array_equal(found[0], D)
        assert_array_equal(found[1], I)


def test_rows_of_queries_that_are_in_no_group_stay_unchanged() -> None:
    made = Made()
    D, I = made.search(3)
    assert (made.queries.labels == -1).any()
    assert_array_equal((D == 7).all(axis=1), made.queries.labels == -1)
    assert_array_equal((I == 7).all(axis=1), made.queries.labels == -1)


def test_progress_is_reported_and_an_error_of_it_ends_the_search() -> None:
    made, told = Made(), []
    # Progress is told a few times a second: runs of no group at all make the search long enough.
    tasks = np.append(np.zeros(5_000_000, np.int64), len(made.groups))

    def stop(done: int) -> None:
        told.append(done)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.search(3, tasks=tasks, progress=stop)
    assert len(told) == 1
    assert 1 <= told[0] < len(tasks)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"nprobe": 0}, "nprobe"),
        ({"labels": np.zeros(3, np.int32)}, "label"),
        ({"rows": np.full(900, 900)}, "rows must hold"),
        ({"rows": np.arange(900) - 1}, "rows must hold"),
        ({"rows": np.empty(0, np.int64)}, "X must have"),
        ({"X": np.zeros((900, 12), np.float32)}, "either X or rows"),
        ({"order": np.full(900, 900)}, "order must hold"),
        ({"starts": np.zeros(1, np.int64)}, "starts must"),
        ({"tasks": np.array([0, 1])}, "tasks must"),
        ({"tasks": np.empty(0, np.int64)}, "tasks must"),
        ({"D": np.empty((3, K), np.float32)}, "D and I"),
        ({"D": np.empty((900, 0), np.float32), "I": np.empty((900, 0), np.int64)}, "D and I"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Made().search(**({"nprobe": 3} | changed))


def test_blocks_of_other_lists_are_refused() -> None:
    made, other = Made(), Made(partitions=2)
    with pytest.raises(ValueError, match="same lists"):
        made.lists.searcher_in(other.blocks, made.routes.native)
