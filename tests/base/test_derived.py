"""Derived values are made once, whichever threads ask for them first."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from reference import clustered

import cfe_faiss as cfe
from cfe_faiss.base.threads import derived, once


class Object:
    made = 0

    @derived
    def value(self):
        """Of anything."""
        Object.made += 1
        time.sleep(0.05)
        return Object.made

    @derived
    def double(self):
        return 2 * self.value


def at_once(call, threads=8):
    """Return the results of a call in several threads that begin together."""
    begin = threading.Barrier(threads)

    def wait_and_call():
        begin.wait(20)
        return call()

    with ThreadPoolExecutor(threads) as pool:
        return [each.result() for each in [pool.submit(wait_and_call) for _ in range(threads)]]


def test_threads_that_come_first_make_a_value_once():
    Object.made, one = 0, Object()
    assert at_once(lambda: one.double) == [2] * 8
    assert vars(one) == {"value": 1, "double": 2}  # and no lock
    assert Object().value == 2
    assert isinstance(Object.value, derived)
    assert Object.value.__doc__ == "Of anything."


def test_an_error_is_not_kept():
    values = {}
    with pytest.raises(ZeroDivisionError):
        once(values, "a", lambda: 1 // 0)
    assert once(values, "a", lambda: 5) == 5
    assert once(values, "a", lambda: 6) == 5
    assert values == {"a": 5}


def test_an_index_that_was_searched_is_freed_at_once():
    X, labels = clustered(500, 8, 3)
    gc.disable()  # a reference cycle would keep it
    try:
        for kind in ("EvidenceFlat", "EvidenceIVF8,Flat"):
            index = cfe.index_factory(8, kind)
            if kind != "EvidenceFlat":
                index.train(X)
            index.add_with_labels(X, labels)
            index.search_evidence(X[:1], labels[:1], 5)
            index.search_stored(k=2)
            freed = weakref.ref(index), weakref.ref(index._state)
            del index
            assert [one() for one in freed] == [None, None]
    finally:
        gc.enable()
    assert np.isfinite(X).all()
