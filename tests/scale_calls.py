"""Calls that the workers of tests make. Workers import this module."""

import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from cfe_faiss.scale.job_files import Finished
from cfe_faiss.scale.tasks import StageRun


def run_stage(
    executor: Any, folder: Path, call: Callable[..., Finished], blocks: Iterable[int], done: Any
) -> None:
    """Run the stage of a call for each block, and append what is finished to a list."""
    StageRun(call.__name__, partial(call, folder=folder), [*blocks], executor, done.append).run()


def begun(folder: Path, block: int) -> int:
    """Return how often the task of a block has begun."""
    return len(list(folder.glob(f"{block}.*")))


def count(folder: Path, block: int) -> int:
    """Note that a task has begun, and return how often it has now."""
    marks = list(folder.glob(f"{block}.*"))
    (folder / f"{block}.{len(marks)}.{os.getpid()}").touch()
    return len(marks) + 1


def double(block: int, folder: Path) -> Finished:
    count(folder, block)
    return Finished("double", block, (), peak_bytes=2 * block)


def killed_once(block: int, folder: Path) -> Finished:
    if count(folder, block) == 1 and block == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Finished("killed", block, (), peak_bytes=2 * block)


def always_killed(block: int, folder: Path) -> Finished:
    count(folder, block)
    if block == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Finished("killed", block, ())


def failing(block: int, folder: Path) -> Finished:
    """Fail in block 2, before which no other block is finished, however long its worker takes to start."""
    count(folder, block)
    if block == 2:
        raise OSError(28, "No space left on device")
    while not list(folder.glob("2.*")):
        time.sleep(0.01)
    time.sleep(0.5)
    return Finished("failing", block, ())


def hanging_once(block: int, folder: Path) -> Finished:
    if count(folder, block) == 1 and block == 3:
        time.sleep(600)
    return Finished("hanging", block, (), peak_bytes=2 * block)


def sleeping(block: int, folder: Path) -> Finished:
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)
    return Finished("sleeping", block, ())
