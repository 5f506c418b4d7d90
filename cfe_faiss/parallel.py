"""Running kernels and BLAS calls side by side on plain Python threads.

The kernels of this package and NumPy's BLAS release the GIL, so ordinary threads give the whole machine; unlike an
OpenMP runtime they may be started from any number of callers at once, and a keyboard interrupt ends them cleanly.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import faiss
from threadpoolctl import ThreadpoolController
from tqdm import tqdm

Task = TypeVar("Task")

_lock = threading.Lock()
_callers = 0
_restore: list[Callable[[], None]] = []


def num_threads() -> int:
    """Return the number of threads in use: FAISS's own setting (``faiss.omp_set_num_threads``)."""
    return int(faiss.omp_get_max_threads())


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep BLAS to one thread while at least one caller is inside.

    The limit belongs to the process, so nested and concurrent callers share one: the first sets it, the last one out
    restores what was there before.
    """
    global _callers
    with _lock:
        if _callers == 0:
            _restore.append(_blas().limit(limits=1).restore_original_limits)
        _callers += 1
    try:
        yield
    finally:
        with _lock:
            _callers -= 1
            if _callers == 0:
                _restore.pop()()


def run(function: Callable[[Task], None], tasks: Sequence[Task], *, progress: str | None = None) -> None:
    """Call ``function`` once for every task, on up to :func:`num_threads` threads.

    Parameters
    ----------
    function
        Must release the GIL for most of its time and write only where no other task writes.
    tasks
        One argument each. A single task runs in the calling thread: nothing is started.
    progress
        What a progress bar on standard error is called; None for no bar. The bar is quiet when it is not a terminal.

    Raises
    ------
    BaseException
        The first exception of a task, or a keyboard interrupt; tasks that have not started by then never do.
    """
    workers = min(num_threads(), len(tasks))
    hidden = True if progress is None else None
    with single_threaded_blas(), tqdm(total=len(tasks), desc=progress, disable=hidden, leave=False) as bar:
        if workers <= 1:
            for task in tasks:
                function(task)
                bar.update()
            return
        # FAISS's own thread setting is per calling thread: one each, as the workers already fill the machine.
        with ThreadPoolExecutor(workers, initializer=faiss.omp_set_num_threads, initargs=(1,)) as pool:
            futures = [pool.submit(function, task) for task in tasks]
            try:
                for future in futures:
                    future.add_done_callback(lambda _: bar.update())
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
