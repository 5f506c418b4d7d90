"""A few queries in one call; that it leads to what other ways find is tested with :mod:`cfe_faiss.search.searcher`."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import clustered, unit

import cfe_faiss as cfe
from cfe_faiss.coarse import class_centroids as routing
from cfe_faiss.coarse.nearby import in_panels_of_bytes
from cfe_faiss.search import batch
from cfe_faiss.search import single as few
from cfe_faiss.search.meet import HAS_BYTES

K, NPROBE = 7, 5


NLIST = 270  # enough for panels of bytes


def filled(d: int, monkeypatch: pytest.MonkeyPatch, many: int) -> tuple[Any, NDArray[np.float32], NDArray[np.int64]]:
    """Return an index, with regions if its lists are ``many``, and with turned panels if d allows it."""
    monkeypatch.setattr(routing, "MANY", many)
    monkeypatch.setattr(batch, "_WORTH_TURNING", 1)
    X, labels = clustered(6000, d, 4)
    index = cfe.IndexEvidenceIVF(d, NLIST)
    index.train(X)
    index.add_with_labels(X, labels)
    return index, X, labels


@pytest.mark.skipif(not HAS_BYTES, reason="no panels are kept where the processor does not multiply bytes")
@pytest.mark.parametrize("many", [NLIST, NLIST + 1])
@pytest.mark.parametrize("d", [9, 40, 160])
def test_lists_and_panels_lead_to_the_same_results(d: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    index, X, labels = filled(d, monkeypatch, many)
    lists = index._all_lists()
    assert (len(lists.routes.regions.means) > 0) == (many == NLIST)
    assert in_panels_of_bytes(d, NLIST) == (d > 9)
    places, _held = lists._places
    for q in range(0, 6000, 200):
        xq, own = unit(X[q : q + 3]), labels[q : q + 3].astype(np.int32)
        found = []
        every = np.empty(0, bool)
        margin = lists._slack
        for search, more in ((few.search_lists, (lists._scan, margin, every)), (few.search_panels, (margin,))):
            D, I = np.empty((3, K), np.float32), np.empty((3, K), np.int64)
            chosen = np.empty((3, NPROBE), np.int64)
            assert search(xq, own, places, *more, chosen, D, I)
            assert_array_equal(chosen, lists.routes.lists(xq, own, NPROBE))
            found.append((D, I))
        assert_array_equal(found[0][0], found[1][0])
        assert_array_equal(found[0][1], found[1][1])
        for one, scan in ((few.search_lists_of_one, (lists._scan,)), (few.search_panels_of_one, ())):
            D, I = np.empty((1, K), np.float32), np.empty((1, K), np.int64)
            assert one(2 * X[q : q + 1], int(labels[q]), NPROBE, places, *scan, lists._slack, D, I)
            assert_array_equal(I, found[0][1][:1])


@pytest.mark.parametrize(
    ("x", "label"),
    [([np.nan] * 9, 1), ([np.inf] + [0] * 8, 1), ([1] * 9, -1), ([1] * 9, 1 << 40), ([1] * 9, -2)],
)
def test_what_is_to_be_refused_is_not_searched(x: list[float], label: int, monkeypatch: pytest.MonkeyPatch) -> None:
    index, _, _ = filled(9, monkeypatch, NLIST + 1)
    lists = index._all_lists()
    places, _held = lists._places
    D, I = np.empty((1, K), np.float32), np.empty((1, K), np.int64)
    for one, scan in ((few.search_lists_of_one, (lists._scan,)), (few.search_panels_of_one, ())):
        if one is few.search_lists_of_one or HAS_BYTES:
            assert not one(np.array([x], np.float32), label, NPROBE, places, *scan, lists._slack, D, I)


def test_all_lists_are_those_of_the_first_partition_and_an_unknown_label_has_none() -> None:
    X, labels = clustered(200, 9, 2)
    index = cfe.IndexEvidenceIVF(9, 6, 2)
    index.train(X)
    index.add_with_labels(X, labels)
    lists = index._all_lists()
    places, _held = lists._places
    chosen = np.empty((2, 12), np.int64)
    D, I = np.empty((2, K), np.float32), np.empty((2, K), np.int64)
    own = np.array([labels[0], -1], np.int32)
    assert not few.search_lists(unit(X[:2]), own, places, lists._scan, lists._slack, np.empty(0, bool), chosen, D, I)
    assert_array_equal(chosen, [[*range(6), *[-1] * 6], [-1] * 12])
    assert (I[0] >= 0).all()
    assert_array_equal(I[1], -1)
