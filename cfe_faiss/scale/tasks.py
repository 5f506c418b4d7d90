"""Tasks of a stage, and the processes of this machine that run them.

A task reads files and writes files. It may run twice: its files get their names only when they are
complete. When a worker dies, its task runs again. When a task raises an error, the stage ends after
the tasks that are running.
"""

import os
import pickle
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Protocol

from cfe_faiss.base.threads import use_threads
from cfe_faiss.scale.job_files import Finished, Task, WrittenFile

_ATTEMPTS = 4  # attempts of a task whose worker died
_POLL = 1.0  # seconds
# A task that takes this many times the median of its stage gets a second attempt...
_STRAGGLES = 5.0
_AT_LEAST = 30.0  # ... but not before this many seconds
_GIVEN_UP = 50.0  # after this many times that, the job fails
_LONGEST = 7 * 86400.0  # seconds for a task while no other task of the stage is finished

Run = Callable[[Task], None]
Call = Callable[[int], Finished]


@dataclass(frozen=True, slots=True)
class Stage:
    """Stage of a job.

    Attributes
    ----------
    name
        Name, and folder of the stage's files.
    blocks
        Number of tasks.
    run
        Runs one task.
    reads
        Stages whose files the tasks read.
    """

    name: str
    blocks: int
    run: Run
    reads: tuple[str, ...] = ()


class WorkerDiedError(Exception):
    """A worker process ended during a task."""


class JobError(RuntimeError):
    """A task failed for good. Finished tasks stay finished, and the job can be resumed."""


class Executor(Protocol):
    """Worker processes of this machine, or of a cluster."""

    @property
    def machines(self) -> list[int]:
        """Number of cores of each machine."""

    @property
    def workers(self) -> int:
        """Number of tasks that run at once."""

    def submit(self, call: Call, block: int, threads: int) -> "Future[Finished]":
        """Start ``call(block)``, which uses this many threads.

        The future raises :class:`WorkerDiedError` if the worker ends early.
        """

    def close(self) -> None:
        """End all workers, including busy ones."""


def share_of(executor: Executor, tasks: int) -> tuple[int, int]:
    """Return the threads of each task, and the number of tasks that share the memory of a machine.

    A task has as many threads as possible while all tasks, or all workers, run at once.
    """
    machines = executor.machines
    at_once = min(tasks, executor.workers)
    counts = range(max(machines), 1, -1)
    threads = next(
        (number for number in counts if sum(cores // number for cores in machines) >= at_once), 1
    )
    on_one = max(max(machines) // threads, -(-at_once // len(machines)))
    return threads, max(1, min(at_once, on_one))


# --- running a stage ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Attempt:
    block: int
    start: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class StageRun:
    """Pending, running and finished tasks of a stage, each ``call(block)`` with some threads.

    ``enter`` is called with each result, in the thread of :meth:`run`.
    """

    name: str
    call: Call
    pending: list[int]
    executor: Executor
    enter: Callable[[Finished], None]
    threads: int = 1
    running: dict["Future[Finished]", _Attempt] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)
    seconds: dict[int, float] = field(default_factory=dict)  # of finished blocks

    def run(self) -> None:
        """Run all tasks; JobError if one raised an error, or its worker died four times."""
        while self.pending or self._unfinished():
            while self.pending and self._has_idle_worker():
                self._start(self.pending.pop(0))
            for future in wait(self.running, timeout=_POLL, return_when=FIRST_COMPLETED).done:
                self._collect(future)
            self._check_times()

    def _unfinished(self) -> list[_Attempt]:
        """Return the running attempts of unfinished blocks."""
        return [attempt for attempt in self.running.values() if attempt.block not in self.seconds]

    def _has_idle_worker(self) -> bool:
        return len(self.running) < self.executor.workers

    def _start(self, block: int) -> None:
        self.running[self.executor.submit(self.call, block, self.threads)] = _Attempt(block)

    def _collect(self, future: "Future[Finished]") -> None:
        """Enter a finished task, or try it again after the death of its worker."""
        block = self.running.pop(future).block
        try:
            finished = future.result()
        except WorkerDiedError as error:
            self.deaths[block] += 1
            if self.deaths[block] >= _ATTEMPTS:
                raise self._error(block, f"its worker died {_ATTEMPTS} times: {error}") from error
            if block not in {*self.seconds, *(attempt.block for attempt in self.running.values())}:
                self.pending.insert(0, block)
        except Exception as error:
            with suppress(TimeoutError):  # a resumed job need not repeat the running tasks
                for other in as_completed(self.running, timeout=_AT_LEAST):
                    if other.exception() is None:
                        self._enter_once(other.result())
            raise self._error(block, f"{type(error).__name__}: {error}") from error
        else:
            self._enter_once(finished)

    def _enter_once(self, finished: Finished) -> None:
        if finished.block not in self.seconds:  # else a second attempt was faster
            self.seconds[finished.block] = finished.seconds
            self.enter(finished)

    def _check_times(self) -> None:
        """Start stragglers once more on idle workers, and raise JobError for tasks that hang."""
        time_now = time.monotonic()
        patience = float("inf")
        if self.seconds:
            patience = max(_AT_LEAST, _STRAGGLES * statistics.median(self.seconds.values()))
        limit = min(_LONGEST, _GIVEN_UP * patience)
        unfinished = self._unfinished()
        copies = Counter(attempt.block for attempt in unfinished)
        for attempt in unfinished:
            seconds = time_now - attempt.start
            if seconds > limit:
                raise self._error(attempt.block, f"nothing came back for {limit:.0f} s")
            if (
                seconds > patience
                and copies[attempt.block] == 1
                and not self.pending
                and self._has_idle_worker()
            ):
                self._start(attempt.block)

    def _error(self, block: int, reason: str) -> JobError:
        return JobError(f"stage {self.name}, block {block}: {reason}")


# --- workers of this machine ----------------------------------------------------------------------

# A worker does not run the calling script, which may lack a __main__ guard, or be a notebook or
# standard input.
_WORKER = (
    "import sys; sys.path[:] = sys.argv[3:]; from cfe_faiss.scale.tasks import serve; "
    "serve(*sys.argv[1:3])"
)


class _Worker:
    """Process that runs one call at a time."""

    def __init__(self) -> None:
        self.connection, other = Pipe()
        with other:
            command = [
                sys.executable,
                "-c",
                _WORKER,
                str(other.fileno()),
                str(os.getpid()),
                *sys.path,
            ]
            # In a new process group, no Ctrl-C of a terminal reaches it, even while it imports: its
            # parent ends it.
            self.process = subprocess.Popen(command, pass_fds=[other.fileno()], process_group=0)

    def perform(self, call: Call, block: int) -> Finished:
        try:
            self.connection.send((call, block))
            answer: Finished | Exception = self.connection.recv()
        except (EOFError, OSError):
            raise WorkerDiedError(_end_of(self.process.wait())) from None
        if isinstance(answer, Exception):
            raise answer
        return answer


class LocalExecutor:
    """Worker processes of this machine, which end with the process that started them.

    A killed worker costs no other worker's task. (In loky and in a ProcessPoolExecutor, it breaks
    the whole pool.)

    Parameters
    ----------
    workers
        Largest number of processes. They start when there are tasks for them.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.machines = [os.cpu_count() or 1]
        self._threads = ThreadPoolExecutor(workers)
        self._of_thread = threading.local()
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, call: Call, block: int, threads: int) -> "Future[Finished]":
        """Start ``call(block)`` in an idle process, or in a new one."""
        return self._threads.submit(lambda: self._worker().perform(call, block))

    def close(self) -> None:
        """End all workers, including busy ones."""
        with self._lock:
            self._closed = True
        for worker in self._workers:
            worker.process.kill()
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.process.wait()
            worker.connection.close()

    def _worker(self) -> _Worker:
        """Return the living worker of this thread."""
        worker: _Worker | None = getattr(self._of_thread, "worker", None)
        if worker is None or worker.process.poll() is not None:
            with self._lock:
                if self._closed:
                    raise WorkerDiedError("the executor was closed")
                worker = self._of_thread.worker = _Worker()
                self._workers.append(worker)
        return worker


def _end_of(code: int) -> str:
    """Return how a process ended, given its exit status as of subprocess."""
    if code >= 0:
        return f"it ended with exit status {code}"
    hint = (
        ", perhaps for lack of memory: pass a smaller memory= or fewer workers"
        if code == -signal.SIGKILL
        else ""
    )
    return f"it was ended by {signal.strsignal(-code)} (signal {-code}){hint}"


def serve(descriptor: str, parent: str) -> None:
    """Run calls from a connection until it is closed, or until the parent process ends.

    The main loop of a worker.
    """

    def end_with_parent() -> None:
        while os.getppid() == int(parent):
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    connection = Connection(int(descriptor))
    with suppress(EOFError, OSError):  # the parent has closed the connection, or has ended
        while True:
            message = connection.recv_bytes()
            try:
                call, block = pickle.loads(message)
                answer = call(block)
            except Exception as error:
                error.add_note(traceback.format_exc())
                answer = error
            connection.send(answer)


# --- one task, in a worker ------------------------------------------------------------------------


def perform(folder: str, stage: str, run: Run, memory: int, threads: int, block: int) -> Finished:
    """Run one task in a worker process; return its record for the manifest."""
    use_threads(threads)
    task = Task.of(Path(folder), memory, stage, block)
    start = time.monotonic()
    cpu_start = time.process_time()
    with suppress(OSError):  # restarts the measurement of the peak memory, if the system can
        Path("/proc/self/clear_refs").write_text("5")
    run(task)
    return Finished(
        stage,
        block,
        tuple(WrittenFile.of(task.folder, path) for path in task.written),
        seconds=time.monotonic() - start,
        cpu_seconds=time.process_time() - cpu_start,
        peak_bytes=_peak(),
    )


def _peak() -> int:
    """Return the peak memory of this process in bytes, including mapped pages in use."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    for line in lines:
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
