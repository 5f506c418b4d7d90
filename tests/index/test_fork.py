"""A forked child can search and change the index, even if threads of the parent were busy during the fork."""

import os

import pytest
from reference import output_of

from cfe_faiss.rows.faiss_functions import interrupt_lock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")

# Threads of the parent are busy, the main thread has used FAISS's OpenMP, and each child has 30 seconds.
FORKS = """
import os, signal, sys, threading, time, warnings
import faiss, numpy as np
import cfe_faiss as cfe

warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads, as here
kind, busy = sys.argv[1], sys.argv[2:]
rng = np.random.default_rng(0)
n, d = 900, 16
X, y = rng.normal(size=(n, d)).astype(np.float32), np.arange(n) % 3
faiss.omp_set_num_threads(2)


def filled():
    index = cfe.index_factory(d, kind)
    if not kind.endswith("EvidenceFlat"):
        index.train(X)
    index.add_with_labels(X, y)
    return index


index, others, stop = filled(), [filled() for _ in range(20 if "prepare" in busy else 0)], threading.Event()
index.search(X[:100], 5)


def search():
    if sys.version_info < (3, 11, 10):  # FAISS's threads call Python, which can hang a child: python/cpython#112275
        faiss.omp_set_num_threads(1)
    while not stop.is_set():
        index.search_evidence(X[:100], y[:100], 5)
        index.search_stored(k=3)
        index.search(X[:100], 5)


def write():
    while not stop.is_set():
        index.relabel((y + 1) % 3)
        index.remove_ids(np.arange(100))
        index.add_with_labels(X[:100], y[:100], np.arange(100))
        index.relabel(y)


def prepare():
    while others and not stop.is_set():
        others[-1].search_stored(k=3)
        others.pop()


def train():
    while not stop.is_set():
        fresh = cfe.index_factory(d, "EvidenceIVF40,Flat")
        fresh.train(X)


def check_child():
    ids = index.members().ids
    assert len(ids) in (n, n - 100)
    found = index.search_evidence(X[:20], y[:20], 5)[1]
    assert (found >= 0).all()
    index.search_stored(k=3)
    index.search(X[:100], 5)
    if others:
        others[-1].search_stored(k=3)
    index.add_with_labels(X[:10], y[:10], np.arange(n, n + 10))
    index.remove_ids(np.arange(200, 210))
    index.relabel(np.arange(index.ntotal) % 2)
    D, I = index.search_stored(k=2)
    labels = np.full(n + 10, -1)
    labels[index.members().ids] = index.members().labels
    assert (labels[I[:, 0]] == 1 - index.members().labels).all()
    thread = threading.Thread(target=lambda: (index.search_stored(k=2), index.relabel(np.arange(index.ntotal) % 3)))
    thread.start()
    thread.join()
    assert index.members().labels.max() == 2
    if not kind.endswith("EvidenceFlat"):
        filled()


def fork():
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            check_child()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


JOBS = {"search": [search, search], "write": [write, search], "prepare": [prepare, prepare], "train": [train]}
for name in busy:
    stop.clear()
    threads = [threading.Thread(target=job) for job in JOBS[name]]
    for thread in threads:
        thread.start()
    status = []
    for number in range(3):
        time.sleep(0.01 + 0.007 * number)
        status.append(fork())
    stop.set()
    for thread in threads:
        thread.join()
    index.search_stored(k=3)  # the parent goes on
    if any(status):
        sys.exit(f"{name}: children ended with {status}")
"""


@pytest.mark.parametrize(
    ("kind", "busy"),
    [
        ("IDMap2,EvidenceFlat", ["search"]),
        pytest.param("IDMap2,EvidenceFlat", ["write"], marks=pytest.mark.slow),
        ("EvidenceIVF20,Flat", ["prepare", "search", "write", "train"]),
        pytest.param("EvidenceIVF20x2,Flat", ["write"], marks=pytest.mark.slow),
    ],
)
def test_a_child_searches_and_changes(kind: str, busy: list[str]) -> None:
    # a fork must wait for products on several threads
    output_of(FORKS, kind, *busy, OPENBLAS_NUM_THREADS="2")


HELD = """
import ctypes, os, threading, time
import cfe_faiss
from cfe_faiss.rows.faiss_functions import interrupt_lock

lock, threads = ctypes.c_void_p(interrupt_lock()), ctypes.CDLL(None)
held = threading.Event()


def hold():
    threads.pthread_mutex_lock(lock)
    held.set()
    time.sleep(0.2)
    threads.pthread_mutex_unlock(lock)


holder = threading.Thread(target=hold)
holder.start()
held.wait()
child = os.fork()
if child == 0:
    os._exit(threads.pthread_mutex_trylock(lock))
status = os.waitpid(child, 0)[1]
holder.join()
assert threads.pthread_mutex_trylock(lock) == 0
assert status == 0, status
"""


@pytest.mark.skipif(not interrupt_lock(), reason="this FAISS hides its lock")
def test_a_child_finds_the_lock_of_faiss_open() -> None:
    output_of(HELD, PYTHONWARNINGS="ignore")


WITHIN = """
import os, signal, sys
import faiss, numpy as np
import cfe_faiss as cfe

index = cfe.IndexEvidenceIDMap2(2)
index.add_with_labels(np.eye(2, dtype=np.float32), [0, 1])


def forks(i):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        return True
    signal.alarm(30)
    index.relabel([1, 0])
    os._exit(0 if index.members().labels.tolist() == [1, 0] else 1)


assert index.search_evidence([[1, 0]], [0], 1, sel=faiss.PyCallbackIDSelector(forks))[1].tolist() == [[1]]
with index._lock.reading():  # as code that an interrupt calls
    forks(0)
index.relabel([1, 0])
"""


def test_a_fork_from_inside_a_search() -> None:
    output_of(WITHIN)
