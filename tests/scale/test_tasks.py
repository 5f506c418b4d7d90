"""Tasks on real worker processes, which are killed, hang and fail."""

import subprocess
import sys
import time
from concurrent.futures import Future
from pathlib import Path

import pytest
import scale_calls
from ray_nodes import waited
from scale_calls import begun, run_stage

from cfe_faiss.scale import tasks
from cfe_faiss.scale.job_files import Finished
from cfe_faiss.scale.tasks import Call, JobError, LocalExecutor, share_of


@pytest.fixture
def executor(pool: LocalExecutor) -> LocalExecutor:
    return pool


def test_each_task_is_done_once(executor: LocalExecutor, tmp_path: Path) -> None:
    done: list[Finished] = []
    run_stage(executor, tmp_path, scale_calls.double, range(9), done)
    assert sorted((one.block, one.peak_bytes) for one in done) == [(i, 2 * i) for i in range(9)]
    assert [begun(tmp_path, i) for i in range(9)] == [1] * 9


def test_the_task_of_a_killed_worker_is_done_again(executor: LocalExecutor, tmp_path: Path) -> None:
    done: list[Finished] = []
    run_stage(executor, tmp_path, scale_calls.killed_once, range(6), done)
    assert sorted(one.block for one in done) == list(range(6))
    assert [begun(tmp_path, i) for i in range(6)] == [1, 2, 1, 1, 1, 1]  # no other task is lost


@pytest.mark.parametrize("attempts", [2, pytest.param(tasks._ATTEMPTS, marks=pytest.mark.slow)])
def test_a_task_that_kills_every_worker_ends_the_job(
    attempts: int, executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tasks._ATTEMPTS == 4
    monkeypatch.setattr(tasks, "_ATTEMPTS", attempts)
    done: list[Finished] = []
    message = (
        rf"stage always_killed, block 1: its worker died {attempts} times: .*signal 9.*, perhaps"
    )
    with pytest.raises(JobError, match=message):
        run_stage(executor, tmp_path, scale_calls.always_killed, range(2), done)
    assert begun(tmp_path, 1) == attempts


def test_an_error_ends_the_job_with_its_cause_and_keeps_running_tasks(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    done: list[Finished] = []
    message = r"stage failing, block 2: OSError: \[Errno 28\] No space"
    with pytest.raises(JobError, match=message) as caught:
        run_stage(executor, tmp_path, scale_calls.failing, range(1, 60), done)
    assert isinstance(caught.value.__cause__, OSError)
    assert done[0].block == 1  # it was running
    assert begun(tmp_path, 59) == 0  # half a minute after the error


def test_a_straggler_is_started_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_AT_LEAST", 0.5)
    monkeypatch.setattr(tasks, "_POLL", 0.1)
    executor, done = LocalExecutor(2), list[Finished]()
    try:
        run_stage(executor, tmp_path, scale_calls.hanging_once, range(4), done)
    finally:
        start = time.monotonic()
        executor.close()
    assert time.monotonic() - start < 60  # of the ten minutes that the task takes
    assert sorted(one.block for one in done) == [0, 1, 2, 3]
    assert begun(tmp_path, 3) == 2


class Machines:
    """Executor of machines that do not exist."""

    def __init__(self, machines: list[int], workers: int) -> None:
        self.machines, self.workers = machines, workers

    def submit(self, call: Call, block: int, threads: int) -> "Future[Finished]":
        return Future()  # which nobody ever runs

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("machines", "workers", "tasks", "expected"),
    [
        ([8], 8, 100, (1, 8)),
        ([8], 8, 1, (8, 1)),
        ([8], 2, 100, (4, 2)),
        ([8], 3, 100, (2, 3)),
        ([2], 5, 5, (1, 5)),
        ([16, 16], 32, 1, (16, 1)),
        ([16, 16], 32, 4, (8, 2)),
        ([16, 4], 20, 2, (8, 2)),
        ([16, 4], 20, 20, (1, 16)),
        ([16, 16], 4, 100, (8, 2)),
    ],
)
def test_few_tasks_use_all_cores(
    machines: list[int], workers: int, tasks: int, expected: tuple[int, int]
) -> None:
    threads, neighbours = share_of(Machines(machines, workers), tasks)
    assert (threads, neighbours) == expected
    at_once = min(tasks, workers)
    if at_once <= sum(machines):
        assert sum(cores // threads for cores in machines) >= at_once


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path[:0] = {path!r}\n"
        "from functools import partial\n"
        "from pathlib import Path\n"
        "import scale_calls\n"
        "from cfe_faiss.scale.tasks import LocalExecutor, StageRun\n"
        "if __name__ == '__main__':\n"
        "    call = partial(scale_calls.sleeping, folder=Path({folder!r}))\n"
        "    StageRun('sleeping', call, [0], LocalExecutor(1), print).run()\n"
    )
    script, pid_file = tmp_path / "driver.py", tmp_path / "pid"
    script.write_text(code.format(path=[str(Path(__file__).parents[1])], folder=str(tmp_path)))
    driver = subprocess.Popen([sys.executable, script])
    try:
        waited(lambda: pid_file.exists() and pid_file.read_text(), 300)
    finally:
        driver.kill()
        driver.wait()
    waited(lambda: not Path(f"/proc/{pid_file.read_text()}").exists(), 120)
