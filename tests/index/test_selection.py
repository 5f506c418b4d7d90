"""Selectors, masks and ids restrict every search of every kind of index."""

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import assert_same_arrays, clustered, unit

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.search.conditions import selected
from cfe_faiss.search.derived import Derived

KINDS = [
    "IDMap2,EvidenceFlat",
    "EvidenceIVF8,Flat",
    "EvidenceIVF8x2,Flat",
    "EvidenceIVF8,SQ8",
    "EvidenceIVF8,PQ4,RFlat",
]
N, D = 400, 8
RAW, LABELS = clustered(N, D, 3)
X = unit(RAW)
IDS = np.random.default_rng(3).permutation(10**6)[:N].astype(np.int64)
MASK = np.random.default_rng(4).random(N) < 0.2  # for the vectors in ascending order of their ids
CHOSEN = np.sort(IDS)[MASK]


def filled(kind: str, ids: NDArray[np.int64] = IDS) -> EvidenceIndex:
    index = cfe.index_factory(D, kind)
    if kind != "IDMap2,EvidenceFlat":
        index.train(X)
    index.add_with_labels(X[: len(ids)], LABELS[: len(ids)], ids)
    return index


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


# --- in every search --------------------------------------------------------------------------------------------------


def searches(index: EvidenceIndex, sel: Any) -> list[tuple[NDArray[Any], ...]]:
    """Return the exact results of all searches among the selected vectors."""
    exact: dict[str, Any] = {} if isinstance(index, cfe.IndexEvidenceIDMap2) else {"exact": True}
    params = cfe.EvidenceParameters(LABELS[:40], nprobe=16 if index.has_lists else None, sel=sel)
    found = [
        index.search(X[:40], 5, params=params),
        index.range_search(X[:40], 0.5, params=cfe.EvidenceParameters(LABELS[:40], sel=sel)),
        index.search_evidence(X[:40], LABELS[:40], 5, sel=sel, **exact),
        index.search_evidence(X[:1], LABELS[:1], 5, sel=sel, **exact),
        index.search_stored(IDS[:40], 5, sel=sel, **exact),
        index.search_stored(k=5, sel=sel, **exact),
        index.range_search_evidence(X[:40], LABELS[:40], 0.5, sel=sel),
    ]
    if not isinstance(index, cfe.IndexEvidenceIDMap2):
        found += [
            index.search_certified(k=5, nprobe=16, sel=sel),
            index.search_evidence(X[:40], LABELS[:40], 5, sel=sel, recall=1.0),
            index.search_evidence(X[:40], LABELS[:40], 5, sel=sel, recall=0.9),
        ]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_search_is_exact_among_selected_rows(kind: str) -> None:
    index, only = filled(kind), filled(kind)
    only.relabel(np.full(N - len(CHOSEN), -1), np.setdiff1d(IDS, CHOSEN))  # no longer evidence
    by_selector = searches(index, faiss.IDSelectorBatch(CHOSEN))
    for sel in (MASK, CHOSEN, CHOSEN[::-1].tolist(), set(CHOSEN.tolist())):
        for found, expected in zip(searches(index, sel), by_selector, strict=True):
            assert_same_arrays(found, expected)
    exact: dict[str, Any] = {} if kind == "IDMap2,EvidenceFlat" else {"exact": True}
    assert_same_arrays(by_selector[2], only.search_evidence(X[:40], LABELS[:40], 5, **exact))
    assert_same_arrays(by_selector[6], only.range_search_evidence(X[:40], LABELS[:40], 0.5))
    queries = np.searchsorted(np.sort(IDS), IDS[:40])
    assert_array_equal(by_selector[4][1], by_selector[5][1][queries])
    if kind not in ("IDMap2,EvidenceFlat", "EvidenceIVF8,SQ8"):  # these two search by stored rows
        assert_array_equal(by_selector[4][1], by_selector[2][1])
    assert_array_equal(by_selector[0][1], by_selector[2][1])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_selected_gives_padding(kind: str) -> None:
    index = filled(kind)
    for sel in ([], np.zeros(N, bool), np.array([10**7])):
        assert (index.search_stored(k=3, sel=sel)[1] == -1).all()
        assert (index.search_evidence(X[:1], LABELS[:1], 3, sel=sel)[1] == -1).all()
        assert len(index.range_search_evidence(X[:9], LABELS[:9], -1.0, sel=sel)[2]) == 0


@pytest.mark.parametrize("nprobe", [1, 2, 4])
def test_rows_are_complete_and_certificates_hold_under_a_mask(nprobe: int) -> None:
    index = filled("EvidenceIVF8,Flat")
    _, exact = index.search_stored(k=5, exact=True, sel=MASK)
    _, I, certified = index.search_certified(k=5, nprobe=nprobe, sel=MASK)
    assert (I >= 0).all()
    assert np.isin(I, CHOSEN).all()
    assert_array_equal(I[certified], exact[certified])
    few = CHOSEN[:3]
    _, I, certified = index.search_certified(k=5, nprobe=nprobe, sel=few)
    _, exact = index.search_stored(k=5, exact=True, sel=few)
    assert_array_equal(I, exact)
    assert certified.all()  # rows with all eligible vectors


def test_a_recall_is_reached_among_selected_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from cfe_faiss.search import recall

    monkeypatch.setattr(recall, "SAMPLE", 100)  # makes a measurement worthwhile for 400 queries
    index = filled("EvidenceIVF8,Flat")
    index.search_stored(k=5, recall=0.8)
    known = dict(Derived.of(index.storage()).calibrations)
    D, I = index.search_stored(k=5, recall=0.8, sel=MASK)
    # a calibration for one mask is not cached for all
    assert Derived.of(index.storage()).calibrations == known
    D_exact, I_exact = index.search_stored(k=5, exact=True, sel=MASK)
    assert cfe.metrics.recall(I, I_exact, D, D_exact) >= 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_masks_and_ids_select_removed_rows(kind: str) -> None:
    index = filled(kind)
    assert index.remove_ids(MASK) == MASK.sum()
    assert_array_equal(index.members().ids, np.setdiff1d(IDS, CHOSEN))
    left = index.members().ids
    assert index.remove_ids(set(left[:7].tolist())) == 7
    assert index.remove_ids(int(left[7])) == 1
    assert index.remove_ids(range(10**6, 10**6 + 5)) == 0
    assert_array_equal(index.members().ids, left[8:])
