"""Ray clusters of several nodes on this machine, each node the processes of one ``ray start``."""

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

RAY = str(Path(sys.executable).with_name("ray"))
STARTED = 180.0  # seconds that a node has


# Ends a node when the process that started it has ended, also by a signal that no test can catch.
WATCH = """
import os, signal, subprocess, sys, time
parent, node = os.getppid(), subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: node.terminate())
while node.poll() is None:
    if os.getppid() != parent:
        node.terminate()
    time.sleep(0.5)
sys.exit(node.returncode)
"""


class Node:
    """The processes of a ``ray start``, which share a session, and end with the process that started them."""

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str],
        log: Path,
        before: tuple[str, ...] = (),
    ):
        command = [
            sys.executable,
            "-c",
            WATCH,
            *before,
            RAY,
            "start",
            "--num-cpus",
            "1",
            "--disable-usage-stats",
            "--block",
            *arguments,
        ]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        waited(
            lambda: b"Ray runtime started" in log.read_bytes() or self._process.poll() is not None,
            STARTED,
        )
        assert self._process.poll() is None, log.read_text()

    def processes(self, title: bytes = b"") -> list[int]:
        """Return its running processes, or only the ones whose title has these bytes."""
        return [pid for pid in in_session(self._process.pid) if title in command_of(pid)]

    def kill(self) -> None:
        """End all its processes at once, as a machine that goes down does."""
        while pids := self.processes():
            for pid in pids:
                signalled(pid, signal.SIGKILL)
            time.sleep(0.02)
        self._process.wait(60)

    def stop(self) -> None:
        """End it as Ctrl-C does; kill what does not end."""
        self._process.terminate()
        try:
            waited(lambda: not self.processes(), 20)
        except AssertionError:
            self.kill()
        self._process.wait(60)


class Cluster:
    """A head and further nodes, with their address and a secret token."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.nodes = folder, list[Node]()
        token = folder / "token"
        token.write_text(secrets.token_hex(32))
        self.environment = os.environ | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path))),
        }
        self.environment.pop("RAY_ADDRESS", None)
        self.address = f"127.0.0.1:{free_port()}"
        port = self.address.rpartition(":")[2]
        self.add(
            "--head", "--port", port, "--include-dashboard=false", "--temp-dir", str(folder / "ray")
        )

    def add(self, *arguments: str, before: tuple[str, ...] = (), **environment: str) -> Node:
        """Start a node; without arguments, one that joins the head."""
        log = self._folder / f"node-{len(self.nodes)}.log"
        joined = arguments or ("--address", self.address)
        memory = ("--object-store-memory", str(80 << 20))
        node = Node([*joined, *memory], self.environment | environment, log, before)
        self.nodes.append(node)
        return node

    def processes(self, title: bytes = b"") -> list[int]:
        return [pid for node in self.nodes for pid in node.processes(title)]

    def stop(self) -> None:
        for node in reversed(self.nodes):
            node.stop()


@contextmanager
def cluster(nodes: int) -> Iterator[Cluster]:
    """Yield a cluster with one core on each node, and see that no process is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="cfe-", dir="/tmp"))  # the paths of sockets must be short
    made = Cluster(folder)
    try:
        for _ in range(nodes - 1):
            made.add()
        yield made
    finally:
        made.stop()
        left = made.processes()
        shutil.rmtree(folder, ignore_errors=True)
    assert left == []


def free_port() -> int:
    """Return a free port, below the ports that Ray gives to workers; random, since other processes ask, too."""
    for port in random.SystemRandom().sample(range(6400, 9400), 100):
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def in_session(leader: int) -> list[int]:
    """Return the processes of a session that have not ended."""
    return [pid for pid, state, _, session in processes() if session == leader and state != "Z"]


def processes() -> Iterator[tuple[int, str, int, int]]:
    """Yield each process: its number, state, parent, and session."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        yield int(path.parent.name), state, int(parent), int(session)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def signalled(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def waited(condition: Callable[[], Any], seconds: float, every: float = 0.02) -> Any:
    """Return what a condition gives when it is first true; AssertionError after the given seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(every)
    raise AssertionError(f"nothing in {seconds:g} s")
