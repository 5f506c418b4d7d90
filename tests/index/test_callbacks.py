"""Python selectors may read the index or raise: they run outside the lock and never inside FAISS."""

import faulthandler
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import faiss
import numpy as np
import pytest
from indexes import KINDS, LABELS, N, X, filled
from numpy.testing import assert_array_equal
from reference import output_of

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.search.conditions import calls_python

Call = Callable[[Any, Any], Any]


class OwnError(Exception):
    """Error raised by a selector in these tests."""


def of_faiss(index: Any, sel: Any) -> Any:
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(sel=sel, nprobe=4)
    return faiss.SearchParameters(sel=sel)


def evidence(sel: Any) -> cfe.EvidenceParameters:
    return cfe.EvidenceParameters(labels=0, sel=sel)


# Each call returns ids.
CALLS: dict[str, Call] = {
    "search_evidence": lambda index, sel: index.search_evidence(X[:3], LABELS[:3], 4, sel=sel)[1],
    "search_stored": lambda index, sel: index.search_stored([1, 2], 4, sel=sel)[1],
    "range_search_evidence": lambda index, sel: index.range_search_evidence(
        X[:3], LABELS[:3], 0.2, sel=sel
    )[2],
    "search, evidence": lambda index, sel: index.search(X[:3], 4, params=evidence(sel))[1],
    "search": lambda index, sel: index.search(X[:3], 4, params=of_faiss(index, sel))[1],
    "range_search, evidence": lambda index, sel: index.range_search(
        X[:3], 0.2, params=evidence(sel)
    )[2],
    "range_search": lambda index, sel: index.range_search(X[:3], 0.2, params=of_faiss(index, sel))[
        2
    ],
    "excluding": lambda index, sel: index.excluding(1).search(
        X[:3], 4, params=of_faiss(index, sel)
    )[1],
    "search_certified": lambda index, sel: index.search_certified([1, 2], 4, sel=sel)[1],
    "combined": lambda index, sel: index.search(
        X[:3],
        4,
        params=of_faiss(
            index, faiss.IDSelectorAnd(sel, faiss.IDSelectorNot(faiss.IDSelectorBatch([0])))
        ),
    )[1],
}


@contextmanager
def writers_waiting(index: EvidenceIndex) -> Iterator[None]:
    """Change the index repeatedly in another thread."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.005):
            index.relabel(LABELS)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def ended_if_it_hangs() -> Iterator[None]:
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def names(index: Any) -> list[str]:
    return [
        name for name in CALLS if name != "search_certified" or isinstance(index, faiss.IndexIVF)
    ]


@pytest.mark.usefixtures("ended_if_it_hangs")
@pytest.mark.parametrize("kind", KINDS)
def test_a_selector_that_reads_the_index_while_writers_wait(kind: str) -> None:
    index = filled(kind)
    positive = np.flatnonzero(index.reconstruct_n(0, N)[:, 0] > 0)

    def reads(i: int) -> bool:
        return bool(index.reconstruct(i)[0] > 0)

    with writers_waiting(index):
        for name in names(index):
            found = CALLS[name](index, faiss.PyCallbackIDSelector(reads))
            expected = CALLS[name](index, faiss.IDSelectorBatch(positive))
            wanted = np.sort(expected, axis=None)
            assert_array_equal(np.sort(found, axis=None), wanted, err_msg=name)
    assert index.remove_ids(faiss.PyCallbackIDSelector(reads)) == len(positive)
    assert_array_equal(index.members().ids, np.setdiff1d(np.arange(N), positive))


RAISES = f"""
import runpy, sys

sys.path[:0] = {sys.path!r}
here = runpy.run_path({__file__!r})

def raises(i):
    raise here["OwnError"](i)

for kind in here["KINDS"]:
    index = here["filled"](kind)
    for call in [*map(here["CALLS"].get, here["names"](index)), lambda index, sel: index.remove_ids(sel)]:
        try:
            call(index, here["faiss"].PyCallbackIDSelector(raises))
        except here["OwnError"]:
            continue
        raise AssertionError((kind, call))
    assert index.search_stored(k=1)[0].shape == (index.ntotal, 1)
"""


def test_a_selector_that_raises() -> None:
    output_of(RAISES)


def test_a_selector_that_changes_the_index_meanwhile() -> None:
    index = filled("EvidenceIVF4,Flat")

    def removes(i: int) -> bool:
        index.remove_ids([i] if i % 2 else [])
        return True

    found = index.search_evidence(X[:3], LABELS[:3], 4, sel=faiss.PyCallbackIDSelector(removes))[1]
    assert (found % 2 == 0).all()
    assert index.ntotal == N // 2


def test_which_selectors_call_python() -> None:
    python, native = faiss.PyCallbackIDSelector(lambda i: True), faiss.IDSelectorRange(0, 3)
    both = faiss.IDSelectorOr(native, python)
    assert calls_python(python)
    assert calls_python(both)
    assert calls_python(faiss.IDSelectorNot(both))
    assert not calls_python(faiss.IDSelectorXOr(native, faiss.IDSelectorNot(native)))
    # FAISS returns it without its Python type
    assert calls_python(faiss.SearchParameters(sel=native).sel)
    assert not calls_python([1, 2])


def test_parameters_keep_all_but_their_selector() -> None:
    index: Any = filled("EvidenceIVF4,Flat")
    some = faiss.SearchParametersIVF(
        sel=faiss.PyCallbackIDSelector(lambda i: i < 9), nprobe=3, max_codes=77
    )
    asked = index.without_callbacks(some)
    assert (type(asked), asked.nprobe, asked.max_codes) == (faiss.SearchParametersIVF, 3, 77)
    assert [asked.sel.is_member(i) for i in range(12)] == [True] * 9 + [False] * 3
    assert index.without_callbacks(None) is None
    native = faiss.SearchParametersIVF(sel=faiss.IDSelectorRange(0, 9))
    asked = index.without_callbacks(native)
    # FAISS 1.13 keeps no Python objects of the parameters, and a selector of unknown type counts as a callback.
    assert asked is native or not hasattr(native, "_sp_field_refs")
    assert [asked.sel.is_member(i) for i in range(12)] == [True] * 9 + [False] * 3
