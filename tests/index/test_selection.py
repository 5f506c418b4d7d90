"""Selectors, masks, ids and targets restrict searches; in every search of every kind: :mod:`test_contract`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from indexes import IDS, N, filled
from numpy.testing import assert_array_equal
from reference import Stored, assert_same_arrays, evidence, stored_vectors, with_rows

import cfe_faiss as cfe
from cfe_faiss.search.conditions import selected
from cfe_faiss.search.derived import Derived

MASK = np.random.default_rng(4).random(N) < 0.2  # for the vectors in ascending order of their ids


def small(ids: list[int]) -> cfe.IndexEvidenceIDMap2:
    index = cfe.IndexEvidenceIDMap2(2)
    index.add_with_labels(np.ones((len(ids), 2)), np.zeros(len(ids), int), ids)
    return index


def chosen(sel: Any, ids: list[int]) -> set[int]:
    index = small(ids)
    state = index.storage()
    return set(state.row_ids[selected(sel, state)].tolist())


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (lambda: faiss.IDSelectorRange(10, 20), {10, 15}),
        (lambda: faiss.IDSelectorArray(np.array([5, 15, 99])), {5, 15}),
        (lambda: faiss.IDSelectorBatch([5, 20]), {5, 20}),
        (
            lambda: faiss.IDSelectorBitmap(np.packbits(np.arange(24) % 10 == 0, bitorder="little")),
            {10, 20},
        ),
        (lambda: faiss.IDSelectorNot(faiss.IDSelectorRange(0, 16)), {20, 2**40}),
        (lambda: faiss.IDSelectorAll(), {5, 10, 15, 20, 2**40}),
    ],
)
def test_selectors_of_any_kind_select_by_id(
    selector: Callable[[], Any], expected: set[int]
) -> None:
    assert chosen(selector(), [20, 5, 15, 2**40, 10]) == expected
    assert chosen(selector(), []) == set()


def test_a_callback_selects_ids_of_32_bits() -> None:
    even = faiss.PyCallbackIDSelector(lambda i: i % 2 == 0)
    assert chosen(even, [4, 7, 2**32 - 2]) == {4, 2**32 - 2}
    with pytest.raises(ValueError, match=r"takes .*got an index with 1099511627776"):
        chosen(even, [4, 2**40])


@pytest.mark.parametrize(
    ("sel", "expected"),
    [
        ([True, False, False, True], {3, 30}),  # in ascending order of ids
        (np.array([False, True, True, False]), {7, 20}),
        ([7, 99, 7, -1], {7}),
        (np.array([30, 3], np.int8), {3, 30}),
        (np.array([20, 2**63 + 20], np.uint64), {20}),
        ((7, 20), {7, 20}),
        ({7, 20, 8}, {7, 20}),
        (range(3, 21), {3, 7, 20}),
        (range(30, 0, -10), {20, 30}),
        (7, {7}),
        (np.int32(7), {7}),
        (list(range(3, 100)), {3, 7, 20, 30}),
        ([], set()),
        (set(), set()),
        (range(0), set()),
    ],
)
def test_masks_are_in_order_of_ids_and_numbers_are_ids(sel: Any, expected: set[int]) -> None:
    assert chosen(sel, [20, 7, 30, 3]) == expected


@pytest.mark.parametrize(
    ("sel", "error", "message"),
    [
        ([True, False], ValueError, r"sel must .*mask.*got \(2,\)"),
        (np.ones((4, 1), bool), ValueError, r"sel must have shape \(4,\) as a mask.*got \(4, 1\)"),
        (np.ones((2, 2), int), ValueError, r"sel must have shape \(m,\) as ids, got \(2, 2\)"),
        ([0.5], TypeError, "sel must be a faiss.IDSelector, a mask or ids, got list.*float64"),
        (["a"], TypeError, "sel must be a faiss.IDSelector, a mask or ids, got list"),
        ("3", TypeError, "sel must be a faiss.IDSelector, a mask or ids, got '3'"),
        (True, TypeError, "sel must be a faiss.IDSelector, a mask or ids, got True"),
        (None, TypeError, "sel must be a faiss.IDSelector, a mask or ids, got None"),
        ([2**70], TypeError, "sel must be a faiss.IDSelector, a mask or ids, got list"),
    ],
)
def test_anything_else_is_refused(sel: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        chosen(sel, [20, 7, 30, 3])
    index = small([20, 7, 30, 3])
    with pytest.raises(error, match=message.replace("sel must", "x must")):
        index.remove_ids(sel)
    assert index.ntotal == 4


@given(
    st.lists(st.integers(0, 200), unique=True, max_size=150),
    st.lists(st.integers(-5, 205), max_size=150),
)
def test_ids_and_masks_select_as_faiss_does(ids: list[int], wanted: list[int]) -> None:
    expected = chosen(faiss.IDSelectorBatch(np.array(wanted, np.int64)), ids)
    assert chosen(np.array(wanted, np.int64), ids) == expected == set(ids) & set(wanted)
    assert chosen(np.isin(np.sort(np.array(ids, np.int64)), wanted), ids) == expected


# --- effort -----------------------------------------------------------------------------------------------------------


def test_a_recall_is_reached_among_selected_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from cfe_faiss.search import recall

    monkeypatch.setattr(recall, "SAMPLE", 100)  # makes a measurement worthwhile for 400 queries
    index = filled("EvidenceIVF8,Flat", IDS)
    index.search_stored(k=5, recall=0.8)
    known = dict(Derived.of(index.storage()).calibrations)
    D, I = index.search_stored(k=5, recall=0.8, sel=MASK)
    # a calibration for one mask is not cached for all
    assert Derived.of(index.storage()).calibrations == known
    D_exact, I_exact = index.search_stored(k=5, exact=True, sel=MASK)
    assert cfe.metrics.recall(I, I_exact, D, D_exact) >= 0.8


# --- parameters of a search as FAISS has it ---------------------------------------------------------------------------


def both_kinds(stored: Stored) -> list[cfe.IndexEvidenceIDMap2 | cfe.IndexEvidenceIVF]:
    flat = cfe.IndexEvidenceIDMap2(stored.X.shape[1])
    ivf = cfe.IndexEvidenceIVF(stored.X.shape[1], 4, 2)
    return [with_rows(index, stored.X, stored.labels, stored.ids) for index in (flat, ivf)]


@given(
    stored_vectors(least=4, lowest_label=-1),
    st.booleans(),
    st.booleans(),
    st.floats(-1, 1, width=32),
)
def test_selectors_and_targets_combine_with_the_exclusion(
    stored: Stored, deny: bool, target: bool, threshold: float
) -> None:
    listed = faiss.IDSelectorBatch(stored.ids[::2])
    keep = np.arange(len(stored.ids)) % 2 == 0
    if deny:
        listed, keep = faiss.IDSelectorNot(listed), ~keep
    targets = [0, 2] if target else None
    labels = np.where(keep & (np.isin(stored.labels, [0, 2]) | (not target)), stored.labels, -1)
    expected_D, expected_I = evidence(stored._replace(labels=labels))
    all_D, all_I = evidence(stored._replace(labels=labels, k=len(stored.X)))
    reaches = (all_I >= 0) & (all_D > np.float32(threshold))  # as in FAISS
    for index in both_kinds(stored):
        params = cfe.EvidenceParameters(
            stored.labels_q, 8 if index.has_lists else None, listed, targets
        )
        expected = (expected_D, expected_I)
        assert_same_arrays(index.search(stored.xq, stored.k, params=params), expected)
        with pytest.raises(ValueError, match=r"params\.nprobe must be left out in a range search"):
            index.range_search(stored.xq, threshold, params=replace(params, nprobe=8))
        lims, _, I = index.range_search(stored.xq, threshold, params=replace(params, nprobe=None))
        assert_array_equal(np.diff(lims), reaches.sum(axis=1))
        assert_array_equal(I, all_I[reaches])


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"labels": [0, 1]}, ValueError, r"params.labels must have shape \(1,\).*got \(2,\)"),
        ({"labels": -1}, ValueError, "params.labels must lie in"),
        ({"labels": 0.5}, TypeError, "params.labels must be integers"),
        ({"labels": 0, "sel": "all"}, TypeError, "params.sel .*got 'all'"),
        ({"labels": 0, "targets": [-1]}, ValueError, "params.targets must lie in"),
    ],
)
def test_bad_parameters_are_named(
    params: dict[str, object], error: type[Exception], message: str
) -> None:
    index = with_rows(cfe.IndexEvidenceIDMap2(2), np.eye(2), [0, 1])
    with pytest.raises(error, match=message):
        index.search(np.eye(2)[:1], 1, params=cfe.EvidenceParameters(**params))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"D must be a float32 array of shape \(1, 1\)"):
        index.search(
            np.eye(2)[:1], 1, params=cfe.EvidenceParameters(0), D=np.empty((1, 2), np.float32)
        )
