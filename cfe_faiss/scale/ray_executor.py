"""Tasks on a Ray cluster, whose machines share a file system."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from cfe_faiss.scale.manifest import Finished
from cfe_faiss.scale.ray_cluster import check_nodes, connect, nodes_of
from cfe_faiss.scale.tasks import Call, WorkerDiedError

_KNOWN = 1.0  # seconds for which the nodes of the cluster are taken as known


class RayExecutor:
    """Runs tasks on a Ray cluster, each with as many of its cores as it has threads.

    Parameters
    ----------
    workers
        Most tasks at once; None for one on each core of the cluster.
    address
        Of the cluster; None for one that this process is connected to, or else a new one on this machine.
    """

    def __init__(self, workers: int | None, address: str | None) -> None:
        self._ray, self._is_own = connect(address, max(workers or 1, os.cpu_count() or 1))
        self._limit = workers
        self._machines: list[int] = []
        self._known_until = 0.0
        self._to_see: tuple[Path, Mapping[str, int]] | None = None
        self._checked: set[str] = set()
        # A worker that dies is the caller's matter, who knows what is finished.
        self._perform = self._ray.remote(max_retries=0, num_returns="streaming")(_perform)
        self._running: dict[Future[Finished], Any] = {}

    @property
    def machines(self) -> list[int]:
        """Cores of each machine that is alive; one that has joined the cluster is looked at first, as in ``check``."""
        if time.monotonic() > self._known_until:
            nodes = nodes_of(self._ray)
            self._look_at(nodes)
            self._machines = [cores for node in nodes if (cores := int(node["Resources"].get("CPU", 0)))] or [1]
            self._known_until = time.monotonic() + _KNOWN
        return self._machines

    @property
    def workers(self) -> int:
        """How many tasks run at once, on the machines that are alive."""
        cores = sum(self.machines)
        return cores if self._limit is None else min(self._limit, cores)

    def check(self, folder: Path, files: Mapping[str, int]) -> None:
        """Raise RuntimeError if a node does not see the folder of a job, or files of these sizes, or cannot run it."""
        self._to_see = folder, files
        self._look_at(nodes_of(self._ray))

    def submit(self, call: Call, block: int, threads: int) -> "Future[Finished]":
        """Start ``call(block)`` where so many cores are free; the future is running when the task has begun."""
        generator = self._perform.options(num_cpus=min(threads, max(self.machines))).remote(call, block)
        outer: Future[Finished] = Future()
        self._running[outer] = generator
        threading.Thread(target=self._follow, args=(generator, outer), daemon=True).start()
        return outer

    def close(self) -> None:
        """End tasks that still run, and the cluster, if it was started here."""
        for generator in list(self._running.values()):
            self._ray.cancel(generator, force=True)
        if self._is_own:
            self._ray.shutdown()

    def _look_at(self, nodes: list[dict[str, Any]]) -> None:
        new = [node for node in nodes if node["NodeID"] not in self._checked]
        if new and self._to_see is not None:
            check_nodes(self._ray, new, *self._to_see)
            self._checked |= {node["NodeID"] for node in new}

    def _follow(self, generator: Any, outer: "Future[Finished]") -> None:
        errors = self._ray.exceptions
        try:
            self._ray.get(next(generator))
            outer.set_running_or_notify_cancel()
            outer.set_result(self._ray.get(next(generator)))
        except errors.RayTaskError as error:
            outer.set_exception(getattr(error, "cause", None) or error)
        except (errors.RayError, StopIteration) as error:  # the worker, its machine, or the memory of it
            outer.set_exception(WorkerDiedError(str(error).partition("\n")[0]))
        except BaseException as error:
            outer.set_exception(error)
        finally:
            self._running.pop(outer, None)


def _perform(call: Call, block: int) -> Iterator[Finished | None]:
    """Say that the task has begun, then do it."""
    yield None
    yield call(block)
