"""Running the tasks of a stage on an executor, whatever happens to its workers.

A task is a call that reads files and writes files, and may be done twice: what it writes has its name only when it is
complete. A worker that dies costs the tasks that it was at, which are done again; a task that raises an error ends the
stage, after those that run beside it are finished.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Protocol

from cfe_faiss.scale.manifest import Finished

_ATTEMPTS = 4  # of a task whose worker died
_POLL = 1.0  # seconds
_STRAGGLES = 5.0  # times the median time of a stage's tasks, after which a task is started once more
_AT_LEAST = 30.0  # ... but not before so many seconds
_GIVEN_UP = 50.0  # times that time, after which nothing is waited for any more
_LONGEST = 7 * 86400.0  # seconds that a task is waited for where no other one has been finished
_QUEUED = 600.0  # seconds that a task waits for a free worker

Call = Callable[[int], Finished]


class WorkerDiedError(Exception):
    """A worker ended while it was at a task: killed, or with its machine."""


class JobError(RuntimeError):
    """A task failed for good; what was finished before stays so, and the job can be resumed."""


class Executor(Protocol):
    """What runs tasks: worker processes of this machine, or a cluster."""

    @property
    def machines(self) -> list[int]:
        """How many cores each machine has."""

    @property
    def workers(self) -> int:
        """How many tasks run at once."""

    def submit(self, call: Call, block: int, threads: int) -> "Future[Finished]":
        """Start ``call(block)``, which will use so many threads, and return a future.

        It is running when the task has begun, and raises :class:`WorkerDiedError` if its worker ended meanwhile.
        """

    def close(self) -> None:
        """End all workers, also those that are at a task."""


@dataclass(frozen=True, slots=True)
class Share:
    """What each task of a stage has for itself.

    Attributes
    ----------
    threads
        How many it uses.
    neighbors
        How many tasks share the memory of a machine, itself among them.
    """

    threads: int
    neighbors: int


def share_of(executor: Executor, tasks: int) -> Share:
    """Return what each of so many tasks has: as many threads as let all of them, or all workers, run at once."""
    machines, at_once = executor.machines, min(tasks, executor.workers)
    most = range(max(machines), 1, -1)
    threads = next((number for number in most if sum(cores // number for cores in machines) >= at_once), 1)
    on_one = max(max(machines) // threads, -(-at_once // len(machines)))
    return Share(threads, max(1, min(at_once, on_one)))


@dataclass(slots=True)
class _Running:
    block: int
    submitted: float
    begun: float | None = None
    copies: int = 1


@dataclass(slots=True)
class _Stage:
    """The tasks of a stage on their way."""

    name: str
    call: Call
    executor: Executor
    threads: int
    pending: list[int]
    running: dict["Future[Finished]", _Running] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    done: set[int] = field(default_factory=set)

    def start_some(self) -> None:
        while self.pending and len(self.running) < self.executor.workers:
            self._start(self.pending.pop(0))

    def start_stragglers_again(self) -> None:
        """Start tasks that take much longer than the others once more, where workers are idle."""
        for running in list(self.running.values()):
            if len(self.running) >= self.executor.workers or running.copies > 1 or self.pending:
                return
            if running.begun is not None and time.monotonic() - running.begun > self.patience():
                running.copies += 1
                self._start(running.block)

    def patience(self) -> float:
        return max(_AT_LEAST, _STRAGGLES * statistics.median(self.seconds)) if self.seconds else float("inf")

    def _start(self, block: int) -> None:
        self.running[self.executor.submit(self.call, block, self.threads)] = _Running(block, time.monotonic())

    def finished(self, future: "Future[Finished]") -> Finished | None:
        """Return what a future has brought, or None where its task is to be done again or was done by another."""
        running = self.running.pop(future)
        try:
            result = future.result(timeout=0)
        except WorkerDiedError as error:
            tries = self.attempts[running.block] = self.attempts.get(running.block, 0) + 1
            if tries >= _ATTEMPTS:
                raise JobError(
                    f"stage {self.name}, block {running.block}: its worker died {tries} times: {error}"
                ) from error
            if running.block not in self.done and all(r.block != running.block for r in self.running.values()):
                self.pending.insert(0, running.block)
            return None
        if running.block in self.done:
            return None
        self.done.add(running.block)
        self.seconds.append(result.seconds)
        return result

    def check_hanging(self) -> None:
        now, limit = time.monotonic(), min(_LONGEST, _GIVEN_UP * self.patience())
        for future, running in self.running.items():
            if running.begun is None and future.running():
                running.begun = now
            if running.begun is None and now - running.submitted > _QUEUED:
                raise JobError(f"stage {self.name}, block {running.block}: no worker was free for {_QUEUED:.0f} s")
            if running.begun is not None and now - running.begun > limit:
                raise JobError(f"stage {self.name}, block {running.block}: nothing came back for {limit:.0f} s")


def run_stage(
    name: str,
    call: Call,
    blocks: Iterable[int],
    executor: Executor,
    enter: Callable[[Finished], None],
    threads: int = 1,
) -> None:
    """Run ``call(block)`` for all blocks, and hand each result over to ``enter`` in this thread.

    Each call uses so many ``threads``.

    Raises
    ------
    JobError
        If a task raised an error, whose cause it is, or its worker died again and again.
    """
    stage = _Stage(name, call, executor, threads, list(blocks))
    while stage.pending or any(running.block not in stage.done for running in stage.running.values()):
        stage.start_some()
        ready, _ = wait(stage.running, timeout=_POLL, return_when=FIRST_COMPLETED)
        for future in ready:
            block = stage.running[future].block
            try:
                result = stage.finished(future)
            except JobError:
                raise
            except Exception as error:
                _enter_rest(stage, enter)
                raise JobError(f"stage {name}, block {block}: {type(error).__name__}: {error}") from error
            if result is not None:
                enter(result)
        stage.start_stragglers_again()
        stage.check_hanging()


def _enter_rest(stage: _Stage, enter: Callable[[Finished], None]) -> None:
    """Wait for what runs beside a task that failed, so that it need not be done again."""
    deadline = time.monotonic() + _AT_LEAST
    while stage.running and time.monotonic() < deadline:
        ready, _ = wait(stage.running, timeout=_POLL, return_when=FIRST_COMPLETED)
        for future in ready:
            block = stage.running.pop(future).block
            if future.exception(timeout=0) is None and block not in stage.done:
                stage.done.add(block)
                enter(future.result(timeout=0))
