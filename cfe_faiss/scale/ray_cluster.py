"""The Ray cluster that a process is connected to, and whether its nodes can do a job's work."""

import logging
import os
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import faiss

import cfe_faiss
from cfe_faiss.base.extras import extra

_WIDE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_LOOPBACK = ("127.0.0.1:", "[::1]:")
_REACHED = 10.0  # seconds that the head of a cluster has to take a connection
_ANSWERED = 120.0  # seconds that a node has to start a worker and to look at a folder


def connect(address: str | None, cores: int | None = None) -> tuple[Any, bool]:
    """Connect this process to a Ray cluster; return the module ``ray``, and whether the connection is a new one.

    Parameters
    ----------
    address
        Of the cluster; None for the one that this process is connected to, or else a new one on this machine.
    cores
        Of a new cluster; None for those of this machine.

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
    """Start a cluster that listens on the loopback interface only: whoever reaches a port of Ray can run code.

    Ray itself does so on macOS and Windows, unless a variable says otherwise; on Linux it listens on every interface.
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
        raise RuntimeError(
            f"Ray {ray.__version__} does not keep to the loopback interface: start a cluster by `ray start`"
        )


def nodes_of(ray: Any) -> list[dict[str, Any]]:
    """Return the nodes of the cluster that are alive, as Ray describes them."""
    return [node for node in ray.nodes() if node["Alive"]]


def check_nodes(ray: Any, nodes: list[dict[str, Any]], folder: Path, files: Mapping[str, int]) -> None:
    """See whether each of some nodes has this version of the package and the folder, and may write there.

    Parameters
    ----------
    ray
        The module, of a process that is connected.
    nodes
        As of :func:`nodes_of`.
    folder
        Of a job.
    files
        Paths that must be there, and their bytes.

    Raises
    ------
    RuntimeError
        If a node cannot do the work, which is named with the reason.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    mark = folder / f".nodes-{uuid4().hex}"
    check = ray.remote(num_cpus=0, max_retries=0)(_problem)
    mark.touch()
    try:
        asked = [
            (node, check.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)))
            for node in nodes
        ]
        for node, reference in [(node, task.remote(str(mark), versions(), dict(files))) for node, task in asked]:
            problem = _answer(ray, reference)
            if problem and node["NodeID"] in {other["NodeID"] for other in nodes_of(ray)}:
                name = f"{node['NodeManagerAddress']} ({node['NodeManagerHostname']}, {node['NodeID'][:8]})"
                raise RuntimeError(f"the Ray node {name} cannot run the job: {problem}")
    finally:
        mark.unlink()


def versions() -> dict[str, str]:
    """Return the versions on which results depend."""
    return {"cfe_faiss": cfe_faiss.__version__, "faiss": faiss.__version__}


def _answer(ray: Any, reference: Any) -> str | None:
    try:
        problem: str | None = ray.get(reference, timeout=_ANSWERED)
    except ray.exceptions.GetTimeoutError:
        ray.cancel(reference, force=True)
        return f"it did not answer in {_ANSWERED:.0f} s"
    except ray.exceptions.RayTaskError as error:
        return _reason(error)
    except ray.exceptions.RayError as error:  # its worker was killed
        return str(error).partition("\n")[0]
    return problem


def _problem(mark: str, wanted: dict[str, str], files: dict[str, int]) -> str | None:
    """Return why this node cannot do the work, or None; called there."""
    for name, version in versions().items():
        if version != wanted[name]:
            return f"it has {name} {version}, this machine has {wanted[name]}"
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


def _reach(address: str) -> None:
    """Raise ConnectionError unless something listens at the address: Ray itself would try for a quarter of an hour."""
    known = _address_of_auto() if address == "auto" else address
    host, _, port = (known or "").rpartition(":")
    if known is None:
        return  # Ray says at once that there is none
    if not host or not port.isdecimal():
        raise ValueError(f"address must be 'auto' or host:port, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"no Ray cluster is to be reached at {known}: {error}") from error


def _address_of_auto() -> str | None:
    """Return the address that Ray takes for "auto", or None if there is none."""
    named = os.environ.get("RAY_ADDRESS")
    if named and named != "auto":
        return named
    noted = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"  # of the last `ray start`
    return noted.read_text().strip() or None if noted.exists() else None


def _is_same(address: str, connected: str) -> bool:
    host, _, port = address.rpartition(":")
    own, _, own_port = connected.rpartition(":")
    try:
        found = socket.gethostbyname(host)
        return port == own_port and (found.startswith("127.") or found == socket.gethostbyname(own))
    except OSError:
        return False


def _reason(error: BaseException) -> str:
    """Return the last line of the first error of a chain: what Ray puts before it is a traceback."""
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    lines = [line.strip() for line in str(first).splitlines() if line.strip()]
    return lines[-1] if lines else type(first).__name__
