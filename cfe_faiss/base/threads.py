"""Kernels and BLAS calls in parallel on plain Python threads, and values that are made once.

The kernels of this package and NumPy's BLAS release the GIL, so Python threads use the whole
machine. Several callers may start them at once, and a keyboard interrupt ends them cleanly; neither
holds for an OpenMP runtime.
"""

import copyreg
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property
from itertools import count
from typing import Any, Self, TypeVar, overload

import faiss
import numpy as np
from threadpoolctl import ThreadpoolController
from tqdm import tqdm

from cfe_faiss import _native
from cfe_faiss.base.checks import Array

T = TypeVar("T")


# Starting and stopping two Python threads takes about 1 ms: one core does this many multiplications
# in that time.
_WORTH_THREADS = 1 << 25
# The core's threads start ten times as fast as Python's, so they pay for a tenth of the work.
_NATIVE = 10
# Progress bars abbreviate longer counts (1.2M).
_LARGE = 1_000_000

# A copied or unpickled object has a new lock, which nobody holds.
copyreg.pickle(_native.ReadWriteLock, lambda lock: (type(lock), ()))

_lock = threading.Lock()
_limits: set[int] = set()  # ids of the limits of BLAS in force
_setter: threading.Thread | None = None  # the thread that set the number of BLAS threads last
_before: list[int] | None = None  # numbers of BLAS threads outside of all limits; None outside


def num_threads(work: float = math.inf) -> int:
    """Return the threads for ``work`` multiplications: 1 for few, else FAISS's setting.

    FAISS's setting is that of ``faiss.omp_set_num_threads``.
    """
    return int(faiss.omp_get_max_threads()) if work >= _WORTH_THREADS else 1


def num_native_threads(work: float) -> int:
    """Return the threads of the core for ``work`` multiplications, see :func:`num_threads`."""
    return num_threads(_NATIVE * work)


def use_threads(number: int) -> None:
    """Set the number of threads of FAISS for the calling thread, and of BLAS for the process."""
    faiss.omp_set_num_threads(number)
    for library in _blas().lib_controllers:
        library.set_num_threads(number)


@contextmanager
def limit_faiss_threads(number: int) -> Iterator[None]:
    """Set the number of threads of the calling thread's FAISS calls inside the block.

    For little work, one thread is much faster on a busy machine: FAISS's OpenMP threads wait
    actively between two parallel steps, and each step waits for the slowest thread.
    """
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(number)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


@cache
def _blas() -> ThreadpoolController:
    # FAISS may bring its own BLAS; a limit on that one would change the caller's FAISS.
    libraries = ThreadpoolController().select(user_api="blas")
    paths = [
        library.filepath for library in libraries.lib_controllers if "faiss" not in library.filepath
    ]
    return libraries.select(filepath=paths)


class _Limit:
    """Limit of BLAS to one thread.

    An interrupt may skip the end of a block, but then the object dies and ends it.
    """

    def start(self) -> None:
        _limits.add(id(self))
        _apply_limits()

    def end(self) -> None:
        _limits.discard(id(self))
        _apply_limits()

    def __del__(self) -> None:
        if id(self) in _limits or not _is_settled():
            self.end()


def _apply_limits() -> None:
    """Set the number of BLAS threads of the process that the limits in force ask for.

    A new thread sets it: no interrupt reaches that thread. Also, threadpoolctl accepts numbers from
    one living thread only.
    """
    if not _is_settled():
        thread = threading.Thread(target=_set_blas_threads)
        try:
            thread.start()
        except RuntimeError as error:  # Python's condition was interrupted while its lock was free
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise
        thread.join()


def _is_settled() -> bool:
    return bool(_limits) == (_before is not None)


def _set_blas_threads() -> None:
    global _before, _setter
    libraries = _blas().lib_controllers
    with _lock:
        if _setter is not None:
            _setter.join()
        _setter = threading.current_thread()
        while not _is_settled():
            # a child would inherit the locks of OpenBLAS and threadpoolctl in their state
            with _native.Unforked():
                numbers = [1] * len(libraries) if _before is None else _before
                _before = (
                    [library.num_threads for library in libraries] if _before is None else None
                )
                for library, number in zip(libraries, numbers, strict=True):
                    library.set_num_threads(number)


def _after_fork_in_child() -> None:
    """Drop the locks and limits of the parent's other threads: they do not exist in the child."""
    global _lock
    _native.after_fork_in_child()
    faiss.omp_set_num_threads(1)  # with more, OpenMP would wait for the parent's threads
    _lock = threading.Lock()
    tqdm.set_lock(threading.RLock())
    _limits.clear()
    _apply_limits()


os.register_at_fork(
    before=_native.before_fork,
    after_in_parent=_native.after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


def product(X: Array, Y: Array, out: Array | None = None) -> Array:
    """Return ``X @ Y`` and delay forks: after a fork in a parallel product it never returns."""
    # BLAS computes on lanes behind the end of an array, too, and their arbitrary contents would
    # cause warnings.
    with _native.Unforked(), np.errstate(invalid="ignore"):
        return np.matmul(X, Y, out=out)


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread while at least one caller is inside.

    The limit belongs to the process, so nested and concurrent callers share it: the first sets it,
    the last restores the previous number, even after an interrupt at any line.
    """
    limit = _Limit()
    try:
        limit.start()
        yield
    finally:
        limit.end()


def run(
    function: Callable[[T], None],
    tasks: Sequence[T],
    *,
    work: float = math.inf,
    progress: str | None = None,
    blas: bool = True,
) -> None:
    """Call ``function`` for every task, on up to :func:`num_threads` threads with this one.

    Parameters
    ----------
    function
        Must release the GIL for most of its time and write only where no other task writes.
    tasks
        One argument each, taken in order. A single task runs in the calling thread and starts no
        other.
    work
        Estimated multiplications of all tasks together. Little work runs in the calling thread.
    progress
        Title of a progress bar on standard error; None for no bar. The bar is hidden if that is not
        a terminal.
    blas
        Whether tasks call BLAS. It is then limited to one thread per task, unless the only thread
        runs them and FAISS's setting admits more.

    Raises
    ------
    BaseException
        The first exception of a task, or a keyboard interrupt. Tasks that have not started by then
        are dropped.
    """
    workers = min(num_threads(work), len(tasks))
    # BLAS ignores FAISS's setting. With one thread for FAISS, much work is worth the time to limit
    # BLAS, too.
    limits_blas = blas and (workers > 1 or (work >= _WORTH_THREADS and num_threads() == 1))
    limit = single_threaded_blas() if limits_blas else nullcontext()
    with native_progress(progress, len(tasks)) as report, limit:
        if workers <= 1:
            for done, task in enumerate(tasks, 1):
                function(task)
                if report is not None:
                    report(done)
            return
        pending = deque(tasks)
        lock = threading.Lock()
        finished = count(1)
        errors: list[BaseException] = []

        def take_tasks() -> None:
            # FAISS has one setting per thread, and these threads fill the machine
            faiss.omp_set_num_threads(1)
            try:
                while True:
                    with lock:
                        if not pending:
                            return
                        task = pending.popleft()
                    function(task)
                    if report is not None:
                        with lock:
                            report(next(finished))
            except BaseException as error:
                errors.append(error)
                pending.clear()

        others = [threading.Thread(target=take_tasks, name="cfe") for _ in range(workers - 1)]
        with limit_faiss_threads(1):
            try:
                for thread in others:
                    thread.start()
                take_tasks()
            finally:
                pending.clear()  # after an interrupt no further task starts
                for thread in others:
                    if thread.ident is not None:  # it was started
                        thread.join()
        if errors:
            raise errors[0]


@contextmanager
def native_progress(
    title: str | None, total: int, unit: str = "it"
) -> Iterator[Callable[[int], None] | None]:
    """Yield a callback that moves a progress bar to a number of steps done.

    None if no bar is visible.

    The bar is on standard error and called ``title``; None for no bar. It is hidden if that is not
    a terminal.
    """
    if title is None:
        yield None
        return
    with tqdm(
        total=total, desc=title, unit=unit, unit_scale=total > _LARGE, disable=None, leave=False
    ) as bar:

        def report(done: int) -> None:
            bar.update(done - bar.n)

        yield None if bar.disable else report


# --- values made at first use, once, also if several threads ask ----------------------------------


def once(values: dict[Any, Any], key: Any, make: Callable[[], T]) -> T:
    """Return ``values[key]``.

    The first caller makes it while others wait; after an error the next caller tries again.

    Each value has a separate lock, so one value may be made from another. A circle is a
    RuntimeError.
    """
    if key not in values:
        name = f"lock of {key!r}"
        with values.setdefault(name, _native.ReadWriteLock()).writing():
            if key not in values:
                values[key] = make()
        values.pop(name, None)
    value: T = values[key]
    return value


class derived(cached_property[T]):  # noqa: N801 - a decorator
    """``functools.cached_property`` with a lock, which that of Python 3.12 and later lacks."""

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        return once(vars(instance), str(self.attrname), lambda: self.func(instance))
