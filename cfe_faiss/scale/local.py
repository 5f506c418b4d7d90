"""Worker processes of this machine."""

import multiprocessing
import os
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from cfe_faiss.scale.manifest import Finished
from cfe_faiss.scale.tasks import Call, WorkerDiedError

_GRACE = 5.0  # seconds that a worker has to end


class LocalExecutor:
    """Runs tasks in processes of this machine, which end with the process that started them.

    Parameters
    ----------
    workers
        How many processes.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = self._new_pool()
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
        """Start ``call(block)``, in a new set of processes if one of the present set has died."""
        with self._lock:
            try:
                inner = self._pool.submit(call, block)
            except BrokenProcessPool:
                self._end(self._pool)
                self._pool = self._new_pool()
                inner = self._pool.submit(call, block)
        outer: Future[Finished] = Future()
        outer.set_running_or_notify_cancel()
        inner.add_done_callback(lambda done: _pass_on(done, outer))
        return outer

    def close(self) -> None:
        """End all workers, also those that are at a task."""
        self._end(self._pool)

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self._workers, multiprocessing.get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
        )

    def _end(self, pool: ProcessPoolExecutor) -> None:
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + _GRACE
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join(_GRACE)


def _pass_on(done: "Future[Finished]", outer: "Future[Finished]") -> None:
    if done.cancelled():
        outer.set_exception(WorkerDiedError("the workers were ended"))
        return
    error = done.exception()
    if isinstance(error, BrokenProcessPool):
        outer.set_exception(WorkerDiedError(str(error)))
    elif error is not None:
        outer.set_exception(error)
    else:
        outer.set_result(done.result())


def _begin(parent: int) -> None:
    """Set up a worker: it ends when the process that started it does."""

    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
