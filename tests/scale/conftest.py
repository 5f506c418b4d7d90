"""Worker processes that the jobs of these tests share: each process needs a second or two to start."""

import os
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from cfe_faiss.scale import job
from cfe_faiss.scale.manifest import Finished
from cfe_faiss.scale.tasks import Call, LocalExecutor


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalExecutor]:
    running = LocalExecutor(2)
    yield running
    running.close()


@pytest.fixture
def shared_workers(pool: LocalExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs run their tasks in the workers of the session."""

    class Shared:
        def __init__(self, workers: int) -> None:
            self.workers = workers
            self.machines = [os.cpu_count() or 1]

        def submit(self, call: Call, block: int, threads: int) -> "Future[Finished]":
            return pool.submit(call, block, threads)

        def close(self) -> None: ...

    monkeypatch.setattr(job, "LocalExecutor", Shared)
