import io
import sys
import threading
import time
from itertools import count

import faiss
import numpy as np
import pytest
from reference import output_of
from threadpoolctl import ThreadpoolController

from cfe_faiss.base import threads


def libraries():
    return [
        one
        for one in ThreadpoolController().lib_controllers
        if one.user_api == "blas" and "faiss" not in one.filepath
    ]


def blas_threads():
    return {library.num_threads for library in libraries()}


def use_blas_threads(number):
    def use():
        for library in libraries():
            library.set_num_threads(number)

    # threadpoolctl accepts numbers from one living thread only
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert blas_threads() == {number}


@pytest.fixture(scope="module", autouse=True)
def two_threads():
    """Let BLAS have two threads here; in the other tests it has one."""
    (before,) = blas_threads()
    use_blas_threads(2)
    yield
    use_blas_threads(before)


def test_every_task_runs_once():
    done = np.zeros(1000, int)

    def task(i):
        done[i] += 1

    threads.run(task, range(1000))
    assert (done == 1).all()
    threads.run(task, [])


def test_the_first_error_comes_out_and_the_rest_does_not_start():
    started = []

    def task(i):
        started.append(i)
        if i == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        threads.run(task, range(100_000))
    assert len(started) < 100_000


def test_blas_has_one_thread_inside_and_what_it_had_outside():
    before = blas_threads()
    inside = []

    def caller():
        threads.run(lambda _: inside.append(blas_threads()), range(20))

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert inside == [{1}] * 80
    assert blas_threads() == before
    with pytest.raises(ZeroDivisionError), threads.single_threaded_blas():
        raise ZeroDivisionError
    assert blas_threads() == before


def test_an_interrupt_at_any_line_restores_the_threads_of_blas():
    before = blas_threads()
    limit = threads._Limit
    functions = (threads.single_threaded_blas.__wrapped__, threads._apply_limits)
    codes = {function.__code__ for function in (*functions, limit.start, limit.end)}

    def interrupt(number):
        """Use BLAS with an interrupt at a line; return whether there is such a line."""
        lines = count(1)

        def trace(frame, event, _):
            if frame.f_code not in codes:
                return None
            if event == "line" and next(lines) == number:
                raise KeyboardInterrupt
            return trace

        previous = sys.gettrace()
        sys.settrace(trace)
        try:
            with threads.single_threaded_blas():
                pass
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(previous)
        return False

    number = 1
    while interrupt(number):
        # after an interrupt, nothing waits for the thread that restores the number
        deadline = time.monotonic() + 60
        while blas_threads() != before:
            assert time.monotonic() < deadline
        number += 1
    assert number > 10


def test_the_number_of_threads_is_that_of_faiss():
    before = faiss.omp_get_max_threads()
    try:
        faiss.omp_set_num_threads(1)
        names, inside = set(), []

        def task(_):
            names.add(threading.current_thread().name)
            inside.append(blas_threads())

        threads.run(task, range(50))
        assert names == {threading.current_thread().name}
        assert inside == [{1}] * 50
    finally:
        faiss.omp_set_num_threads(before)
    assert threads.num_threads() == before


def test_one_thread_may_use_the_threads_of_blas_if_faiss_may_have_more():
    before = blas_threads()
    inside = []
    threads.run(lambda _: inside.append(blas_threads()), [0])
    threads.run(lambda _: inside.append(blas_threads()), range(2), work=1.0)
    assert inside == [before] * 3


def test_faiss_has_one_thread_for_little_work_and_what_it_had_afterwards():
    before = faiss.omp_get_max_threads()
    with threads.limit_faiss_threads(threads.num_threads(1000.0)):
        assert faiss.omp_get_max_threads() == 1
    with threads.limit_faiss_threads(threads.num_threads(1e12)):
        assert faiss.omp_get_max_threads() == before
    with pytest.raises(ZeroDivisionError), threads.limit_faiss_threads(1):
        raise ZeroDivisionError
    assert faiss.omp_get_max_threads() == before


def test_progress_is_quiet_when_it_is_not_a_terminal(capsys):
    threads.run(lambda _: None, range(50), progress="Working")
    assert capsys.readouterr() == ("", "")


def test_progress_on_a_terminal_is_the_number_of_steps_done(monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    with threads.native_progress("Working", 8) as report:
        for done in (2, 7):
            time.sleep(0.15)  # a bar is drawn anew after 0.1 seconds
            report(done)
    assert "7/8" in terminal.getvalue()


SETS_WHILE_IT_FORKS = """
import os, signal, threading, time
from types import SimpleNamespace
from cfe_faiss.base import threads

held = threading.Lock()  # as OpenBLAS has one


class Library:
    num_threads = 2

    def set_num_threads(self, number):
        with held:
            time.sleep(0.2)


threads._blas = lambda: SimpleNamespace(lib_controllers=[Library()])
other = threading.Thread(target=threads.single_threaded_blas()(lambda: None))
other.start()
while not held.locked():
    time.sleep(0.001)
child = os.fork()
if child == 0:
    signal.alarm(30)
    os._exit(0 if held.acquire(timeout=5) else 1)
assert os.waitpid(child, 0)[1] == 0
other.join()
"""


def test_a_fork_waits_until_the_threads_of_blas_are_set():
    output_of(SETS_WHILE_IT_FORKS, PYTHONWARNINGS="ignore::DeprecationWarning")
