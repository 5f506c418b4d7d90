"""Connection to a Ray cluster, checks of its nodes, and tasks on a cluster whose machines share a file system."""

import logging
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import faiss

import cfe_faiss
from cfe_faiss.base.extras import extra
from cfe_faiss.scale.manifest import Finished
from cfe_faiss.scale.tasks import Call, WorkerDiedError

_WIDE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_LOOPBACK = ("127.0.0.1:", "[::1]:")
_CONNECT = 10.0  # seconds for a connection to the head of a cluster
_ANSWER = 120.0  # seconds for a node to start a worker and to check a folder
_CHECKS = 3  # further checks of a node whose worker dies
_NODES = 1.0  # seconds between two queries of the nodes

Nodes = list[dict[str, Any]]
"""Nodes, as Ray describes them."""


class RayExecutor:
    """Runs tasks on a Ray cluster; a task takes as many cores as it has threads.

    Parameters
    ----------
    workers
        Largest number of tasks at once; None for one on each core of the cluster.
    address
        Address of the cluster; None for the one that this process is connected to, or else a new one on this machine.
    folder
        Folder of the job, which every node must see; None for no check of the nodes.
    files
        Paths that every node must see, and their sizes in bytes.

    Raises
    ------
    RuntimeError
        If a node cannot run the job; other errors as of :func:`connect`.
    """

    def __init__(
        self,
        workers: int | None,
        address: str | None,
        folder: Path | None = None,
        files: Mapping[str, int] | None = None,
    ) -> None:
        self._ray, self._is_own = connect(address, max(workers or 1, os.cpu_count() or 1))
        self._limit, self._folder, self._files = workers, folder, dict(files or {})
        self._machines: list[int] = []
        self._known_until = 0.0
        self._checked: set[str] = set()
        # The stage retries tasks of dead workers, since it knows what is finished.
        self._perform = self._ray.remote(max_retries=0, num_returns="streaming")(_perform)
        self._running: dict[Future[Finished], Any] = {}
        try:
            self._check(_nodes_of(self._ray))
        except BaseException:
            self.close()
            raise

    @property
    def machines(self) -> list[int]:
        """Number of cores of each living node; new nodes are checked first."""
        if time.monotonic() > self._known_until:
            nodes = _nodes_of(self._ray)
            self._check(nodes)
            self._machines = [cores for node in nodes if (cores := int(node["Resources"].get("CPU", 0)))] or [1]
            self._known_until = time.monotonic() + _NODES
        return self._machines

    @property
    def workers(self) -> int:
        """Number of tasks that run at once on the living nodes."""
        cores = sum(self.machines)
        return cores if self._limit is None else min(self._limit, cores)

    def submit(self, call: Call, block: int, threads: int) -> "Future[Finished]":
        """Start ``call(block)`` on a node with enough free cores; the future is running as soon as the task is."""
        generator = self._perform.options(num_cpus=min(threads, max(self.machines))).remote(call, block)
        outer: Future[Finished] = Future()
        self._running[outer] = generator
        threading.Thread(target=self._follow, args=(generator, outer), daemon=True).start()
        return outer

    def close(self) -> None:
        """Cancel running tasks, and end the cluster if this executor started it."""
        for generator in list(self._running.values()):
            self._ray.cancel(generator, force=True)
        if self._is_own:
            self._ray.shutdown()

    def _check(self, nodes: Nodes) -> None:
        new = [node for node in nodes if node["NodeID"] not in self._checked]
        if new and self._folder is not None:
            check_nodes(self._ray, new, self._folder, self._files)
            self._checked |= {node["NodeID"] for node in new}

    def _follow(self, generator: Any, outer: "Future[Finished]") -> None:
        errors = self._ray.exceptions
        try:
            self._ray.get(next(generator))
            outer.set_running_or_notify_cancel()
            outer.set_result(self._ray.get(next(generator)))
        except errors.RayTaskError as error:
            outer.set_exception(getattr(error, "cause", None) or error)
        except (errors.RayError, StopIteration) as error:  # the worker died, its node, or for lack of memory
            outer.set_exception(WorkerDiedError(str(error).partition("\n")[0]))
        except BaseException as error:
            outer.set_exception(error)
        finally:
            self._running.pop(outer, None)


def _perform(call: Call, block: int) -> Iterator[Finished | None]:
    """Report the start of a task, then its result."""
    yield None
    yield call(block)


# --- connection -------------------------------------------------------------------------------------------------------


def connect(address: str | None, cores: int | None = None) -> tuple[Any, bool]:
    """Connect this process to a Ray cluster; return the module ``ray``, and whether the connection is new.

    Parameters
    ----------
    address
        Address of the cluster; None for the one that this process is connected to, or else a new one on this machine.
    cores
        Cores of a new cluster; None for the cores of this machine.

    Raises
    ------
    ImportError
        If Ray is missing.
    ConnectionError
        If there is no such cluster, or it refuses the connection.
    ValueError
        If this process is connected to another cluster, or the address is one of Ray Client.
    """
    with extra("ray"):
        import ray
    if address is not None and "://" in address:
        raise ValueError(
            f"address must be 'auto' or host:port, for a process on a machine of the cluster, got {address!r}: "
            "from elsewhere, submit the process with `ray job submit`"
        )
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, "auto") and not _is_same(str(address), connected):
            raise ValueError(f"this process is connected to the Ray cluster at {connected}, got address={address!r}")
        return ray, False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
    if address is None:
        _start(ray, num_cpus=cores, **quiet)
        return ray, True
    _reach(address)
    try:
        ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConnectionError(f"no connection to the Ray cluster at {address}: {_reason(error)}") from error
    return ray, True


def _start(ray: Any, **settings: Any) -> None:
    """Start a cluster that listens on the loopback interface only, as anybody who reaches a port of Ray can run code.

    This is Ray's default on macOS and Windows. On Linux, Ray listens on every interface.
    """
    from ray._private import ray_constants

    kept, before = ray_constants.ENABLE_RAY_CLUSTER, os.environ.copy()
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[_WIDE] = "0"  # for the processes that Ray starts
    try:
        ray.init("local", **settings)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = kept
        del os.environ[_WIDE]
        os.environ.update(before)
    if not ray.get_runtime_context().gcs_address.startswith(_LOOPBACK):
        ray.shutdown()
        raise RuntimeError(f"Ray {ray.__version__} leaves the loopback interface: start a cluster by `ray start`")


def _reach(address: str) -> None:
    """Raise ConnectionError unless the address takes connections: Ray itself would try for a quarter of an hour."""
    if address == "auto":
        # As Ray does: the variable, or the note of the last `ray start`.
        note = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
        named = os.environ.get("RAY_ADDRESS", "auto")
        address = named if named not in ("", "auto") else note.read_text().strip() if note.exists() else ""
        if not address:
            return  # Ray reports at once that there is no cluster
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"address must be 'auto' or host:port, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"no Ray cluster is to be reached at {address}: {error}") from error


def _is_same(address: str, connected: str) -> bool:
    host, _, port = address.rpartition(":")
    own, _, own_port = connected.rpartition(":")
    try:
        found = socket.gethostbyname(host)
        return port == own_port and (found.startswith("127.") or found == socket.gethostbyname(own))
    except OSError:
        return False


def _reason(error: BaseException) -> str:
    """Return the last line of the first error in a chain; the lines before it are Ray's traceback."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


# --- nodes ------------------------------------------------------------------------------------------------------------


def _nodes_of(ray: Any) -> Nodes:
    return [node for node in ray.nodes() if node["Alive"]]


def check_nodes(ray: Any, nodes: Nodes, folder: Path, files: Mapping[str, int]) -> None:
    """Check that nodes have this version of the package, see the folder and the files, and may write to the folder.

    Parameters
    ----------
    ray
        The module, in a connected process.
    nodes
        Nodes to check.
    folder
        Folder of a job.
    files
        Paths that must exist, and their sizes in bytes.

    Raises
    ------
    RuntimeError
        If a node cannot run the job; names the node and the reason.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    mark = folder / f".nodes-{uuid4().hex}"
    check = ray.remote(num_cpus=0, max_retries=0)(_problem)  # Ray would retry without end where memory is short
    mark.touch()
    try:
        on_nodes = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
        tasks = [check.options(scheduling_strategy=on_node) for on_node in on_nodes]
        starts = [partial(task.remote, str(mark), versions(), dict(files)) for task in tasks]
        answers = [start() for start in starts]
        for node, start, answer in zip(nodes, starts, answers, strict=True):
            problem = _answer(ray, start, answer)
            if problem and node["NodeID"] in {other["NodeID"] for other in _nodes_of(ray)}:
                name = f"{node['NodeManagerAddress']} ({node['NodeManagerHostname']}, {node['NodeID'][:8]})"
                raise RuntimeError(f"the Ray node {name} cannot run the job: {problem}")
    finally:
        mark.unlink()


def versions() -> dict[str, str]:
    """Return the versions on which results depend."""
    return {"cfe_faiss": cfe_faiss.__version__, "faiss": faiss.__version__}


def _answer(ray: Any, start: Callable[[], Any], reference: Any, checks: int = _CHECKS) -> str | None:
    """Return why a node cannot run the job, or None; a worker that dies is replaced ``checks`` times."""
    try:
        problem: str | None = ray.get(reference, timeout=_ANSWER)
    except ray.exceptions.GetTimeoutError:
        ray.cancel(reference, force=True)
        return f"it did not answer in {_ANSWER:.0f} s"
    except ray.exceptions.RayTaskError as error:
        return _reason(error)
    except ray.exceptions.RayError as error:  # its worker was killed
        if isinstance(error, ray.exceptions.WorkerCrashedError) and checks > 0:
            return _answer(ray, start, start(), checks - 1)
        return str(error).partition("\n")[0]
    return problem


def _problem(mark: str, expected: dict[str, str], files: dict[str, int]) -> str | None:
    """Return why this node cannot run the job, or None; runs on the node."""
    for name, version in versions().items():
        if version != expected[name]:
            return f"it has {name} {version}, this machine has {expected[name]}"
    place = Path(mark)
    if not place.exists():
        return f"it does not see the folder {place.parent}, which must be on a file system that all nodes share"
    for path, size in files.items():
        if not Path(path).exists() or Path(path).stat().st_size != size:
            return f"it does not see the file {path} with its {size} bytes"
    try:
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=place.name):
            return None
    except OSError as error:
        return f"it cannot write into {place.parent}: {error.strerror}"
