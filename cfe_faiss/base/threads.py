"""Running kernels and BLAS calls side by side on plain Python threads.

The kernels of this package and NumPy's BLAS release the GIL, so ordinary threads give the whole machine; unlike an
OpenMP runtime they may be started from any number of callers at once, and a keyboard interrupt ends them cleanly.
"""

import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import faiss
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from tqdm import tqdm

from cfe_faiss import _native

Task = TypeVar("Task")


# Two threads take about a millisecond to start and to stop: as long as one core takes for so many multiplications.
_WORTH_THREADS = 1 << 25
# The core's threads start in a tenth of the time that Python's take: they are worth it for less work.
_NATIVE = 10


class _NoTask:
    """What comes after the last task."""


_NO_TASK = _NoTask()
_lock = threading.Lock()
_callers = 0
_before: list[int] = []


def num_threads(work: float = math.inf) -> int:
    """Return how many threads to use for so many multiplications: FAISS's own setting, or 1 where it is not worth it.

    FAISS's setting is that of ``faiss.omp_set_num_threads``.
    """
    return int(faiss.omp_get_max_threads()) if work >= _WORTH_THREADS else 1


def num_native_threads(work: float) -> int:
    """Return how many threads of the core to use for so many multiplications, as :func:`num_threads`."""
    return num_threads(_NATIVE * work)


def use_threads(number: int) -> None:
    """Let the calling thread's FAISS calls, and BLAS in the whole process, use so many threads from now on."""
    faiss.omp_set_num_threads(number)
    for library in _blas().lib_controllers:
        library.set_num_threads(number)


@contextmanager
def faiss_threads(work: float) -> Iterator[None]:
    """Let the calling thread's FAISS calls use :func:`num_threads` of ``work``.

    Where one thread is enough this is much faster, too, on a machine that others use: between two parallel steps
    FAISS's OpenMP threads wait actively, and each step waits for the slowest.
    """
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(num_threads(work))
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@cache
def _blas() -> ThreadpoolController:
    # FAISS may bring a BLAS of its own, whose threads are FAISS's: setting them would change the caller's FAISS.
    libraries = ThreadpoolController().select(user_api="blas")
    own = [library.filepath for library in libraries.lib_controllers if "faiss" not in library.filepath]
    return libraries.select(filepath=own)


def _set_blas_threads(number: int | None) -> None:
    """Set the number of BLAS threads of the process, or with None what it was before."""
    libraries = _blas().lib_controllers
    numbers = [number] * len(libraries)
    if number is None:
        numbers[:] = _before
    _before[:] = [library.num_threads for library in libraries]

    def set_all() -> None:
        for library, threads in zip(libraries, numbers, strict=True):
            library.set_num_threads(threads)

    # threadpoolctl lets one living thread set the limit of a process. The thread that ends the limit may be another
    # one than began it, so each time it is a thread that lives no longer than that.
    thread = threading.Thread(target=set_all)
    thread.start()
    thread.join()


def _after_fork_in_child() -> None:
    """Forget what other threads of the parent held: they are no more, nor are the threads of FAISS's OpenMP."""
    global _lock, _callers
    _native.after_fork_in_child()
    faiss.omp_set_num_threads(1)  # with more, OpenMP would wait for the parent's threads
    _lock = threading.Lock()
    tqdm.set_lock(threading.RLock())
    if _callers:
        _callers = 0
        _set_blas_threads(None)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_native.before_fork,
        after_in_parent=_native.after_fork_in_parent,
        after_in_child=_after_fork_in_child,
    )


def product(X: NDArray[Any], Y: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return ``X @ Y``. A fork waits for it: during a product on several threads of OpenBLAS a fork would never end."""
    with _native.Unforked():
        return np.matmul(X, Y, out=out)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread while at least one caller is inside.

    The limit belongs to the process, so nested and concurrent callers share one: the first sets it, the last one out
    restores what was there before.
    """
    global _callers
    with _lock:
        if _callers == 0:
            _set_blas_threads(1)
        _callers += 1
    try:
        yield
    finally:
        with _lock:
            _callers -= 1
            if _callers == 0:
                _set_blas_threads(None)


def run(
    function: Callable[[Task], None],
    tasks: Sequence[Task],
    *,
    work: float = math.inf,
    progress: str | None = None,
    blas: bool = True,
) -> None:
    """Call ``function`` once for every task, on up to :func:`num_threads` threads, of which one is the caller's.

    Parameters
    ----------
    function
        Must release the GIL for most of its time and write only where no other task writes.
    tasks
        One argument each, taken in order. A single task runs in the calling thread: nothing is started.
    work
        About how many multiplications all tasks take together: little work runs in the calling thread, too.
    progress
        What a progress bar on standard error is called; None for no bar. The bar is quiet when it is not a terminal.
    blas
        Whether tasks call BLAS, which is then kept to one thread for each of them.

    Raises
    ------
    BaseException
        The first exception of a task, or a keyboard interrupt; tasks that have not started by then never do.
    """
    workers = min(num_threads(work), len(tasks))
    if workers <= 1 and progress is None:
        for task in tasks:
            function(task)
        return
    pending, taking, stop = iter(tasks), threading.Lock(), threading.Event()
    with tqdm(total=len(tasks), desc=progress, disable=True if progress is None else None, leave=False) as bar:

        def take_tasks() -> None:
            while not stop.is_set():
                with taking:
                    task = next(pending, _NO_TASK)
                if isinstance(task, _NoTask):
                    return
                try:
                    function(task)
                except BaseException:
                    stop.set()
                    raise
                with taking:
                    bar.update()

        if workers <= 1:
            take_tasks()
            return
        errors: list[BaseException] = []

        def take_tasks_in_thread() -> None:
            # FAISS's own thread setting is per calling thread: one each, as the threads already fill the machine.
            faiss.omp_set_num_threads(1)
            try:
                take_tasks()
            except BaseException as error:
                errors.append(error)

        others = [threading.Thread(target=take_tasks_in_thread, name="cfe") for _ in range(workers - 1)]
        with single_threaded_blas() if blas else nullcontext(), faiss_threads(0):
            try:
                for thread in others:
                    thread.start()
                take_tasks()
            finally:
                stop.set()
                for thread in others:
                    if thread.ident is not None:  # it was started
                        thread.join()
        if errors:
            raise errors[0]


@contextmanager
def native_progress(title: str | None, tasks: int) -> Iterator[Callable[[int], None] | None]:
    """Yield what a call of the core is handed as ``progress``: it moves a bar; None where there is no bar to be seen.

    The bar, on standard error, is called ``title``; None for no bar. It is quiet when it is not a terminal.
    """
    if title is None:
        yield None
        return
    with tqdm(total=tasks, desc=title, disable=None, leave=False) as bar:

        def report(done: int) -> None:
            bar.update(done - bar.n)

        yield None if bar.disable else report
