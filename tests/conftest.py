import gc
import os
import shutil

# Idle OpenMP threads should sleep, not spin: the tests search tiny indexes thousands of times on shared machines.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Threads of OpenBLAS wait for each other in a loop. The package's own threads take FAISS's setting, which stays.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Haystack reports its use to its makers, unless it is told not to before it is imported.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cfe_faiss.scale.job_files import Finished
    from cfe_faiss.scale.tasks import Call, LocalExecutor

# Imported modules are no garbage. With all of them in memory, a full collection takes a second.
gc.disable()
# Shared machines keep no deadline. Examples are the same in every run. `make slow` runs more of them.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=12)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=60)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


# What waits most, or takes longest in one piece.
FIRST = ("tests/scale/test_ray.py", "tests/scale/", "tests/benchmarks/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests, so that all workers end at the same time."""
    items.sort(
        key=lambda item: next(
            (i for i, part in enumerate(FIRST) if item.nodeid.startswith(part)), len(FIRST)
        )
    )


def pytest_collection_finish() -> None:
    """Collect garbage of the tests only, and not as often as by default: most tests leave none."""
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()


def pytest_sessionfinish() -> None:
    """Leave out imports also at the end, where pytest collects garbage several times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the folder of the real graphs, or skip: they are not part of the repository."""
    root = Path(os.environ.get("CFE_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (root / "nifty").is_dir():
        pytest.skip(
            f"the real graphs are not at {root}: set CFE_DATA to the folder that holds them"
        )
    return root


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start the Chromium of the distribution."""
    sync_api = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("no Chromium on this machine")
    # A sandbox needs another user than root.
    options = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=options)
        yield started
        started.close()


@pytest.fixture(scope="module")
def without_sync() -> Iterator[None]:
    """Leave files unsynced: tests that write hundreds of them would wait for the disk only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def pool() -> "Iterator[LocalExecutor]":
    """Worker processes for all jobs of a session: each process takes a second or two to start."""
    from cfe_faiss.scale.tasks import LocalExecutor

    running = LocalExecutor(2)
    yield running
    running.close()


@pytest.fixture(scope="session")
def shared_executor(pool: "LocalExecutor") -> type:
    """Return an executor class for jobs, in place of ``LocalExecutor``, whose workers are those of the session."""

    class Shared:
        def __init__(self, workers: int) -> None:
            self.workers = workers
            self.machines = [os.cpu_count() or 1]

        def submit(self, call: "Call", block: int, threads: int) -> "Future[Finished]":
            return pool.submit(call, block, threads)

        def close(self) -> None: ...

    return Shared


@pytest.fixture
def shared_workers(shared_executor: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs run their tasks in the workers of the session."""
    monkeypatch.setattr("cfe_faiss.scale.job.LocalExecutor", shared_executor)
