import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from reference import assert_same_arrays, clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss._native import ReadWriteLock


def test_searches_go_on_beside_writers_in_a_loop() -> None:
    X, labels = clustered(4000, 8, 3)
    index = with_rows(cfe.IndexEvidenceIVF(8, 16), X, labels)
    stop = threading.Event()

    def write(seed: int) -> None:
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            index.relabel(rng.integers(0, 3, 400), rng.choice(4000, 400, replace=False))

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for thread in writers:
        thread.start()
    searches, end = 0, time.monotonic() + 1
    while time.monotonic() < end:
        index.search_evidence(X[:1], labels[:1], 5)
        searches += 1
    stop.set()
    for thread in writers:
        thread.join()
    assert searches > 250


def test_code_inside_of_reading_may_wait_for_other_threads() -> None:
    X, labels = clustered(400, 8, 3)
    index = with_rows(cfe.IndexEvidenceFlat(8), X, labels)
    changed = threading.Event()

    def change() -> None:
        index.relabel(labels[::-1])
        changed.set()

    snapshot = index.storage()
    with ThreadPoolExecutor(2) as pool:
        writer = pool.submit(change)
        assert changed.wait(20)
        assert pool.submit(index.search_evidence, X, labels, 3).result(20)[1].shape == (400, 3)
        writer.result(20)
        with pytest.raises(RuntimeError, match="has changed"):
            snapshot.rows(np.arange(3))


@pytest.mark.parametrize("kind", ["EvidenceFlat", "EvidenceIVF4,Flat", "EvidenceIVF4,SQ8"])
def test_arrays_of_a_snapshot_stay_as_they_are(kind: str) -> None:
    X, labels = clustered(1200, 8, 3)
    index = with_rows(cfe.index_factory(8, kind), X, labels)
    with index.reading() as snapshot:
        names = "labels", "row_ids", "starts", "by_label", "centroids"
        arrays = [
            *snapshot.rows(np.arange(1000)),
            snapshot.members.ids,
            *(getattr(snapshot, name) for name in names),
        ]
        before = [array.copy() for array in arrays]
        index.add_with_labels(-X, labels)  # no lock is held
        index.relabel(labels[::-1], np.arange(1200))
    index.remove_ids(np.arange(600))
    index.reset()
    assert_same_arrays(arrays, before)


def test_an_error_inside_opens_the_lock_again() -> None:
    lock = ReadWriteLock()
    with pytest.raises(ZeroDivisionError), lock.writing():
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), lock.reading():
        raise ZeroDivisionError
    with lock.writing():
        pass


def test_a_token_that_goes_leaves_the_lock() -> None:
    lock = ReadWriteLock()
    for hold in (lock.reading, lock.writing):
        token = hold()
        token.__enter__()
        with pytest.raises(RuntimeError, match="cannot be entered twice"):
            token.__enter__()
        del token
    with lock.writing():
        pass


def test_who_waits_can_be_interrupted() -> None:
    lock = ReadWriteLock()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock.writing():
            held.set()
            done.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(5)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for wait in (lock.reading, lock.writing):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt), wait():
                pytest.fail("nobody should get in")
    finally:
        signal.signal(signal.SIGALRM, before)
        done.set()
        holder.join()
    with lock.reading(), lock.reading():  # no writer waits any more
        pass


def test_a_thread_never_waits_for_itself() -> None:
    lock = ReadWriteLock()
    token, again = lock.writing(), "cannot be changed while the same thread reads or changes it"
    with lock.reading(), pytest.raises(RuntimeError, match=again):
        token.__enter__()
    with lock.writing():
        with pytest.raises(RuntimeError, match="cannot be read while the same thread changes it"):
            lock.reading().__enter__()
        with pytest.raises(RuntimeError, match=again):
            token.__enter__()
    with lock.writing():
        pass


def test_arguments_whose_conversion_uses_the_index() -> None:
    X, labels = clustered(60, 4, 2)
    index = with_rows(cfe.IndexEvidenceIDMap2(4), X, labels)

    class Labels:
        """Array-like object that reads the index during its conversion."""

        def __array__(self, dtype: object = None, copy: object = None) -> object:
            index.reconstruct(3)
            return labels

    with pytest.raises(RuntimeError, match="cannot be read while the same thread changes it"):
        index.relabel(Labels())  # type: ignore[arg-type]
    params = cfe.EvidenceParameters(labels=Labels())  # type: ignore[arg-type]
    assert index.search(X, 1, params=params)[1].shape == (60, 1)
