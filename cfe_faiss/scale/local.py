"""Worker processes of this machine."""

import os
import sys
import threading
import time
from collections.abc import Collection
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType

from cfe_faiss.scale.manifest import Finished
from cfe_faiss.scale.tasks import Call, WorkerDiedError

_GRACE = 5.0  # seconds that a worker has to end
_STARTING = threading.Lock()


class _Process(SpawnProcess):
    """A process that does not run the script of the process that starts it: no task needs anything of it.

    A script without a ``__main__`` guard would start its job in each worker.
    """

    def start(self) -> None:
        """Start the process."""
        with _STARTING:
            script = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")  # has no file that the new process could run
            try:
                super().start()
            finally:
                sys.modules["__main__"] = script


class _Context(SpawnContext):
    Process = _Process


class LocalExecutor:
    """Runs tasks in processes of this machine, which end with the process that started them.

    Each process is a pool of its own, so that one that is killed costs no other's task.

    Parameters
    ----------
    workers
        How many processes, at most: they are started when there are tasks for them.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._idle: list[ProcessPoolExecutor] = []
        self._busy: set[ProcessPoolExecutor] = set()
        self._lock = threading.Lock()

    @property
    def machines(self) -> list[int]:
        """Cores of this machine."""
        return [os.cpu_count() or 1]

    @property
    def workers(self) -> int:
        """How many tasks run at once."""
        return self._workers

    def submit(self, call: Call, block: int, threads: int) -> "Future[Finished]":
        """Start ``call(block)`` in a process that is idle, or a new one."""
        inner, worker = self._started(call, block)
        outer: Future[Finished] = Future()
        outer.set_running_or_notify_cancel()
        inner.add_done_callback(lambda done: self._finished(worker, done, outer))
        return outer

    def close(self) -> None:
        """End all workers, also those that are at a task."""
        with self._lock:
            idle, busy = self._idle, self._busy
            self._idle, self._busy = [], set()
        _end(idle, at_once=False)
        _end(busy, at_once=True)

    def _started(self, call: Call, block: int) -> "tuple[Future[Finished], ProcessPoolExecutor]":
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                try:
                    inner = worker.submit(call, block)
                except BrokenProcessPool:  # it was killed while it was idle
                    worker.shutdown(wait=False)
                    continue
                self._busy.add(worker)
                return inner, worker
            worker = ProcessPoolExecutor(1, _Context(), initializer=_begin, initargs=(os.getpid(),))
            self._busy.add(worker)
            return worker.submit(call, block), worker

    def _finished(self, worker: ProcessPoolExecutor, done: "Future[Finished]", outer: "Future[Finished]") -> None:
        error = None if done.cancelled() else done.exception()
        died = done.cancelled() or isinstance(error, BrokenProcessPool)
        with self._lock:
            if worker in self._busy:
                self._busy.remove(worker)
                if not died:
                    self._idle.append(worker)
        if died:
            outer.set_exception(WorkerDiedError("its process was ended" if error is None else str(error)))
        elif error is not None:
            outer.set_exception(error)
        else:
            outer.set_result(done.result())


def _end(workers: Collection[ProcessPoolExecutor], *, at_once: bool) -> None:
    """End processes: at once, or as soon as they see that there is nothing to do, and in any case."""
    processes = [process for worker in workers for process in (worker._processes or {}).values()]
    for worker in workers:
        worker.shutdown(wait=False, cancel_futures=True)
    if at_once:
        for process in processes:
            process.terminate()
    deadline = time.monotonic() + _GRACE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join(_GRACE)


def _begin(parent: int) -> None:
    """Set up a worker: it ends when the process that started it does."""

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
