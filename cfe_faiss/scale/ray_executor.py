"""Tasks on a Ray cluster, whose machines share a file system."""

from concurrent.futures import Future
from typing import Any

from cfe_faiss.extras import extra
from cfe_faiss.scale.manifest import Finished
from cfe_faiss.scale.tasks import Call, WorkerDiedError


class RayExecutor:
    """Runs tasks on a Ray cluster, each on one of its cores.

    Parameters
    ----------
    workers
        Tasks at once; None for one on each core of the cluster.
    address
        Of the cluster; None for one that this process is connected to, or else a new one on this machine.
    """

    def __init__(self, workers: int | None, address: str | None) -> None:
        with extra("ray"):
            import ray
        self._ray: Any = ray
        self._is_own = not ray.is_initialized()
        if self._is_own:
            cores = workers if address is None else None
            ray.init(address=address, num_cpus=cores, include_dashboard=False, log_to_driver=False)
        machines = [int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]]
        self._workers = max(1, sum(machines) if workers is None else min(workers, sum(machines)))
        self._of_a_machine = max(1, min(self._workers, max(machines, default=1)))
        # A worker that dies is the caller's matter, who knows what is finished.
        self._perform = ray.remote(num_cpus=1, max_retries=0)(_perform)
        self._running: dict[Future[Finished], Any] = {}

    @property
    def workers(self) -> int:
        """How many tasks run at once."""
        return self._workers

    @property
    def workers_of_a_machine(self) -> int:
        """How many of them share the memory of a machine."""
        return self._of_a_machine

    def submit(self, call: Call, block: int) -> "Future[Finished]":
        """Start ``call(block)``."""
        reference = self._perform.remote(call, block)
        outer: Future[Finished] = Future()
        self._running[outer] = reference
        reference.future().add_done_callback(lambda done: self._pass_on(done, outer))
        return outer

    def close(self) -> None:
        """End tasks that still run, and the cluster, if it was started here."""
        for reference in list(self._running.values()):
            self._ray.cancel(reference, force=True)
        if self._is_own:
            self._ray.shutdown()

    def _pass_on(self, done: "Future[Finished]", outer: "Future[Finished]") -> None:
        self._running.pop(outer, None)
        errors = self._ray.exceptions
        error = done.exception()
        if error is None:
            outer.set_result(done.result())
        elif isinstance(error, errors.RayTaskError):
            outer.set_exception(getattr(error, "cause", None) or error)
        elif isinstance(error, errors.RayError):  # the worker, its machine, or the memory of it
            outer.set_exception(WorkerDiedError(str(error).partition("\n")[0]))
        else:
            outer.set_exception(error)


def _perform(call: Call, block: int) -> Finished:
    return call(block)
