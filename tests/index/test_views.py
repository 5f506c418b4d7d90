"""Arrays returned by an index are read-only or copies, and outlive the index and its changes."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from reference import assert_same_arrays, clustered, unit

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex

KINDS = [
    "EvidenceFlat",
    "EvidenceIVF4,Flat",
    "EvidenceIVF4x2,Flat",
    "EvidenceIVF4,SQ8",
    "EvidenceIVF4,PQ4,RFlat",
]
N, D = 300, 8
RAW, LABELS = clustered(N, D, 3)
X = unit(RAW)


def filled(kind: str) -> EvidenceIndex:
    index = cfe.index_factory(D, kind)
    if kind != "EvidenceFlat":
        index.train(X)
    index.add_with_labels(X, LABELS)
    return index


def handed_out(index: Any) -> list[Any]:
    """Return the arrays of an index that are views."""
    storage, members = index.storage(), index.members()
    arrays = [members.ids, members.rows, members.labels, members.places]
    arrays += [
        storage.starts,
        storage.labels,
        storage.row_ids,
        storage.by_label,
        *storage.class_counts,
    ]
    arrays += [storage.native.labels(), storage.native.starts(), *(storage.native.view(0, 3) or ())]
    if hasattr(index, "centroids"):
        routes = index.routes()
        arrays += [index.centroids(), *routes.arrays().values(), routes.filled, routes.class_filled]
        arrays += [storage.levels, *(index._table.references() or ()), index._table.vectors()]
    return arrays


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_are_read_only(kind: str) -> None:
    index = filled(kind)
    before = index.search_stored(k=3)
    for array in handed_out(index):
        with pytest.raises(ValueError, match=r"read-only|cannot set WRITEABLE"):
            array[:] = 0
    assert_same_arrays(index.search_stored(k=3), before)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_rows_may_be_written_to(kind: str) -> None:
    index = filled(kind)
    before = index.reconstruct_n(0, N)
    for rows in (np.arange(N), np.arange(5, 9), np.array([3, 1])):
        copied, ids = index.storage().rows(rows)
        assert_array_equal(copied, before[ids])
        copied[:], ids[:] = 0, 0
    assert_array_equal(index.reconstruct_n(0, N), before)


CHANGES = {
    "add": lambda index: index.add_with_labels(X, LABELS),
    "remove": lambda index: index.remove_ids([3]),
    "relabel": lambda index: index.relabel(np.zeros(N, np.int64)),
    "reset": lambda index: index.reset(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", CHANGES)
def test_storage_after_a_change(kind: str, change: str) -> None:
    index = filled(kind)
    storage, members = index.storage(), index.members()
    labels, ids = storage.labels, members.ids
    vectors, _ = storage.rows(members.rows)
    kept = [array.copy() for array in (labels, ids, vectors)]
    CHANGES[change](index)
    for call in (
        lambda: storage.rows(np.arange(3)),
        storage.ids,
        lambda: storage.row_ids,
        storage.first_not_unit,
    ):
        with pytest.raises(RuntimeError, match="the index has changed since"):
            call()
    assert_same_arrays((labels, ids, vectors), kept)
    assert len(index.storage().row_ids) == index.ntotal


AFTER = f"""
import runpy, sys
import numpy as np

sys.path[:0] = {sys.path!r}
here = runpy.run_path({__file__!r})
for kind in here["KINDS"]:
    index = here["filled"](kind)
    V = index.storage().rows(np.arange(here["N"]))[0]
    storage, arrays = index.storage(), [V, *here["handed_out"](index)[:-2]]
    kept = [array.copy() for array in arrays if array.size < 10**6]
    del index
    others = [np.ones(10**5) for _ in range(50)]
    assert len(storage.rows(np.arange(3))[0]) == 3
    for one, two in zip(arrays, kept):
        np.testing.assert_array_equal(one, two)
"""


def test_arrays_that_an_index_has_returned_outlive_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
