"""Tasks on a cluster of Ray with a shared file system: connection, checks, replicas."""

import logging
import os
import socket
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from operator import attrgetter
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar
from uuid import uuid4

import faiss

import cfe_faiss
from cfe_faiss.base.checks import Array, as_count, as_number
from cfe_faiss.base.extras import extra
from cfe_faiss.index.searching import EvidenceSearcher
from cfe_faiss.rows.metric import Metric
from cfe_faiss.scale.job_files import Finished
from cfe_faiss.scale.sharded import ShardedEvidenceIndex
from cfe_faiss.scale.tasks import Call, WorkerDiedError
from cfe_faiss.search.query import Certified, Effort, Query, Ranges, Results

_WIDE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_LOOPBACK = ("127.0.0.1:", "[::1]:")
_CONNECT = 10.0  # seconds for a connection to the head of a cluster
_ANSWER = 120.0  # seconds for a node to start a worker and to check a folder
_THREADS = 1 << 12  # that wait for tasks; they start when there are tasks
_CHECKS = 4  # checks of a node whose workers die


Nodes = list[dict[str, Any]]
"""Nodes, as Ray describes them."""
P = ParamSpec("P")
T = TypeVar("T")


class RayExecutor:
    """Runs tasks on a Ray cluster; a task takes as many cores as it has threads.

    Parameters
    ----------
    workers
        Largest number of tasks at once; None for one on each core of the cluster.
    address
        Address of the cluster; None for the one that this process is connected to, or else a new
        one on this machine.
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
        self._limit = workers
        self._folder = folder
        self._files = dict(files or {})
        self._checked: set[str] = set()
        # The stage retries tasks of dead workers: Ray would retry without end where memory is
        # short.
        self._perform = self._ray.remote(max_retries=0)(_perform)
        self._threads = ThreadPoolExecutor(_THREADS)
        self._running: set[Any] = set()
        try:
            _ = self.machines
        except BaseException:
            self.close()
            raise

    @property
    def machines(self) -> list[int]:
        """Number of cores of each living node; new nodes are checked first."""
        nodes = _living_nodes(self._ray)
        new = [node for node in nodes if node["NodeID"] not in self._checked]
        if new and self._folder is not None:
            check_nodes(self._ray, new, self._folder, self._files)
        self._checked |= {node["NodeID"] for node in new}
        cores = [int(node["Resources"].get("CPU", 0)) for node in nodes]
        return [number for number in cores if number] or [1]

    @property
    def workers(self) -> int:
        """Number of tasks that run at once on the living nodes."""
        cores = sum(self.machines)
        return cores if self._limit is None else min(self._limit, cores)

    def submit(self, call: Call, block: int, threads: int) -> "Future[Finished]":
        """Start ``call(block)`` on a node as soon as enough of its cores are free."""
        reference = self._perform.options(num_cpus=min(threads, max(self.machines))).remote(
            call, block
        )
        self._running.add(reference)
        return self._threads.submit(self._result, reference)

    def close(self) -> None:
        """Cancel running tasks, and end the cluster if this executor started it."""
        for reference in list(self._running):
            self._ray.cancel(reference, force=True)
        self._threads.shutdown(wait=False)
        if self._is_own:
            self._ray.shutdown()

    def _result(self, reference: Any) -> Finished:
        errors = self._ray.exceptions
        try:
            finished: Finished = self._ray.get(reference)
        except errors.RayTaskError as error:
            raise getattr(error, "cause", None) or error from None
        except errors.RayError as error:  # the worker died, its node, or for lack of memory
            raise WorkerDiedError(_first_line(error)) from error
        finally:
            self._running.discard(reference)
        return finished


def _perform(call: Call, block: int) -> Finished:
    return call(block)


# --- connection -----------------------------------------------------------------------------------


def connect(address: str | None, cores: int | None = None) -> tuple[Any, bool]:
    """Connect this process to a Ray cluster.

    Return the module ``ray``, and whether the connection is new.

    Parameters
    ----------
    address
        Address of the cluster; None for the one that this process is connected to, or else a new
        one on this machine.
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
            "address must be 'auto' or host:port, for a process on a machine of the cluster, got "
            f"{address!r}: from elsewhere, submit the process with `ray job submit`"
        )
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, "auto") and not _is_same(str(address), connected):
            raise ValueError(
                f"this process is connected to the Ray cluster at {connected}, got "
                f"address={address!r}"
            )
        return ray, False
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "include_dashboard": False,
    }
    if address is None:
        _start(ray, num_cpus=cores, **quiet)
        return ray, True
    _reach(address)
    try:
        ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConnectionError(
            f"no connection to the Ray cluster at {address}: {_reason(error)}"
        ) from error
    return ray, True


def _start(ray: Any, **settings: Any) -> None:
    """Start a cluster on the loopback interface: who reaches a port of Ray can run code.

    This is Ray's default on macOS and Windows. On Linux, Ray listens on every interface.
    """
    from ray._private import ray_constants

    is_wide = ray_constants.ENABLE_RAY_CLUSTER
    environment = os.environ.copy()
    ray_constants.ENABLE_RAY_CLUSTER = False
    os.environ[_WIDE] = "0"  # for the processes that Ray starts
    try:
        ray.init("local", **settings)
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = is_wide
        del os.environ[_WIDE]
        os.environ.update(environment)
    if not ray.get_runtime_context().gcs_address.startswith(_LOOPBACK):
        ray.shutdown()
        raise RuntimeError(
            f"Ray {ray.__version__} leaves the loopback interface: start a cluster by `ray start`"
        )


def _reach(address: str) -> None:
    """Raise ConnectionError unless the address takes connections.

    Ray itself would try for a quarter of an hour.
    """
    if address == "auto":
        # As Ray does: the variable, or the note of the last `ray start`.
        note = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
        address = os.environ.get("RAY_ADDRESS", "auto")
        if address in ("", "auto"):
            address = note.read_text().strip() if note.exists() else ""
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
    connected_host, _, connected_port = connected.rpartition(":")
    try:
        ip = socket.gethostbyname(host)
        return port == connected_port and (
            ip.startswith("127.") or ip == socket.gethostbyname(connected_host)
        )
    except OSError:
        return False


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _reason(error: BaseException) -> str:
    """Return the last line of the first error in a chain.

    The lines before it are Ray's traceback.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


# --- nodes ----------------------------------------------------------------------------------------


def _living_nodes(ray: Any) -> Nodes:
    return [node for node in ray.nodes() if node["Alive"]]


def check_nodes(ray: Any, nodes: Nodes, folder: Path, files: Mapping[str, int]) -> None:
    """Check that nodes have this version, see the folder and its files, and may write.

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
    mark = folder / f".nodes-{uuid4().hex}"
    mark.touch()
    try:
        with ThreadPoolExecutor(len(nodes)) as threads:
            problems = list(threads.map(lambda node: _problem_of(ray, node, mark, files), nodes))
    finally:
        mark.unlink()
    living = {node["NodeID"] for node in _living_nodes(ray)}
    for node, problem in zip(nodes, problems, strict=True):
        if problem and node["NodeID"] in living:
            host = f"{node['NodeManagerHostname']}, {node['NodeID'][:8]}"
            raise RuntimeError(
                f"the Ray node {node['NodeManagerAddress']} ({host}) cannot run the job: {problem}"
            )


def versions() -> dict[str, str]:
    """Return the versions on which results depend."""
    return {"cfe_faiss": cfe_faiss.__version__, "faiss": faiss.__version__}


def _problem_of(ray: Any, node: dict[str, Any], mark: Path, files: Mapping[str, int]) -> str | None:
    """Return why a node cannot run the job, or None; a worker that dies is replaced."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    check = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=on_node)(_problem)
    errors = ray.exceptions
    problem = None
    for _ in range(_CHECKS):
        reference = check.remote(str(mark), versions(), dict(files))
        try:
            problem = ray.get(reference, timeout=_ANSWER)
        except errors.GetTimeoutError:
            ray.cancel(reference, force=True)
            problem = f"it did not answer in {_ANSWER:.0f} s"
        except errors.RayTaskError as error:
            problem = _reason(error)
        except errors.WorkerCrashedError as error:
            problem = _first_line(error)
            continue
        except errors.RayError as error:
            problem = _first_line(error)
        break
    return problem


def _problem(mark: str, expected: dict[str, str], files: dict[str, int]) -> str | None:
    """Return why this node cannot run the job, or None; runs on the node."""
    for name, version in versions().items():
        if version != expected[name]:
            return f"it has {name} {version}, this machine has {expected[name]}"
    place = Path(mark)
    if not place.exists():
        return (
            f"it does not see the folder {place.parent}, which must be on a file system that all "
            f"nodes share"
        )
    for path, size in files.items():
        if not Path(path).exists() or Path(path).stat().st_size != size:
            return f"it does not see the file {path} with its {size} bytes"
    try:
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=place.name):
            return None
    except OSError as error:
        return f"it cannot write into {place.parent}: {error.strerror}"


# --- replicas -------------------------------------------------------------------------------------


class ServedEvidenceIndex(EvidenceSearcher):
    """A sharded index in several warm processes (*replicas*) of a Ray cluster.

    Calls go to the replicas in turn. If a replica exceeds the deadline, the call goes to the next
    one. Ray restarts a replica that dies, and repeats its calls. Each replica maps the whole index,
    so results equal a search of the index.

    Parameters
    ----------
    path
        Folder of the shards, which the replicas must see.
    replicas
        Number of processes.
    deadline
        Seconds per attempt.
    attempts
        Number of attempts before the call fails.
    address
        Address of the cluster; None for the one that this process is connected to, or else a new
        one on this machine.

    Notes
    -----
    Anybody who reaches a port of a Ray cluster can run code on its machines. A new cluster listens
    on the loopback interface only. A cluster that was started otherwise listens on every interface
    by default.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        replicas: int = 1,
        deadline: float = 60.0,
        attempts: int = 3,
        address: str | None = None,
    ) -> None:
        number = as_count("replicas", replicas)
        self._deadline = as_number("deadline", deadline, 1e-3, 1e6)
        self._attempts = as_count("attempts", attempts)
        index = ShardedEvidenceIndex.open(path)  # raises the errors of the files here
        self.d = index.d
        self._metric = index.metric
        self._ray, self._is_own = connect(address)
        actor: Any = self._ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Replica)
        self._replicas: list[Any] = [actor.remote(str(Path(path).resolve())) for _ in range(number)]
        self._turns = cycle(self._replicas)

    @property
    def metric(self) -> Metric:
        """How vectors are compared, as of the sharded index."""
        return self._metric

    def answer(self, query: Query, effort: Effort, progress: bool = False) -> Results:
        """Return the results of ``ShardedEvidenceIndex.answer``.

        TimeoutError if no process answers in time.
        """
        _refuse(query, progress)
        return self._ask(ShardedEvidenceIndex.answer, query, effort)

    def answer_range(self, query: Query) -> Ranges:
        """Return the results of ``ShardedEvidenceIndex.answer_range``."""
        _refuse(query)
        return self._ask(ShardedEvidenceIndex.answer_range, query)

    def answer_certified(self, query: Query, effort: Effort, progress: bool = False) -> Certified:
        """Return the results of ``ShardedEvidenceIndex.answer_certified``."""
        _refuse(query, progress)
        return self._ask(ShardedEvidenceIndex.answer_certified, query, effort)

    def recall_by_class(
        self, recall: float, k: int = 10, *, queries: int | None = None
    ) -> dict[Any, float]:
        """Return the results of ``ShardedEvidenceIndex.recall_by_class``."""
        return self._ask(ShardedEvidenceIndex.recall_by_class, recall, k, queries=queries)

    @property
    def label_names(self) -> Array:
        """Known labels of the stored vectors, as of the sharded index."""
        return self._ask(attrgetter("label_names"))

    def processes(self) -> list[int]:
        """Return the process id of each replica on its machine."""
        return [
            self._ray.get(replica.process.remote(), timeout=self._deadline)
            for replica in self._replicas
        ]

    def close(self) -> None:
        """End the replicas, and the cluster if this object started it."""
        for replica in self._replicas:
            self._ray.kill(replica)
        self._replicas = []
        if self._is_own:
            self._ray.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(
        self,
        method: Callable[Concatenate[ShardedEvidenceIndex, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if not self._replicas:
            raise RuntimeError("the index was closed")
        errors = self._ray.exceptions
        last: Exception | None = None
        for _ in range(self._attempts):
            reference = next(self._turns).ask.remote(method, args, kwargs)
            try:
                answer: T = self._ray.get(reference, timeout=self._deadline)
            except errors.RayTaskError as error:
                raise getattr(error, "cause", None) or error from None
            except errors.GetTimeoutError as error:
                self._ray.cancel(reference)
                last = error
            else:
                return answer
        name = method.__name__.strip("_")
        raise TimeoutError(
            f"no replica answered {name} in {self._attempts} times {self._deadline:g} s"
        ) from last


def _refuse(query: Query, progress: bool = False) -> None:
    if progress:
        raise ValueError(
            "progress must be False: the replicas of a served index report none, got True"
        )
    if isinstance(query.sel, faiss.IDSelector):
        raise TypeError(
            f"sel must be ids or a mask: FAISS's selectors stay in their process, got {query.sel!r}"
        )


class _Replica:
    """Process of a replica."""

    def __init__(self, path: str) -> None:
        self._index = ShardedEvidenceIndex.open(path)

    def process(self) -> int:
        return os.getpid()

    def ask(self, method: Callable[..., T], args: tuple[Any, ...], kwargs: dict[str, Any]) -> T:
        return method(self._index, *args, **kwargs)
