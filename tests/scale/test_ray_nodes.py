"""Jobs on a Ray cluster of two nodes, whose workers, nodes and drivers are killed."""

import json
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from ray_nodes import (
    Cluster,
    cluster,
    command_of,
    free_port,
    in_session,
    processes,
    signalled,
    waited,
)

from cfe_faiss.scale import Job

pytest.importorskip("ray", reason='ray is missing: pip install "cfe-faiss[ray]"')
pytestmark = pytest.mark.slow  # test_ray.py kills workers on one node in the default run

N, D = 20_000, 16
OPTIONS = {"k": 5, "recall": 0.9, "block_rows": 1000, "shards": 5, "pairs": 50, "nlist": 100}
RESULTS = ("vectors", "index", "evidence", "pairs")
TASK = b"ray::_perform"
ENDED = 300.0  # seconds that a job has


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Cluster]:
    with cluster(2) as made:
        yield made


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    rng, folder = np.random.default_rng(5), tmp_path_factory.mktemp("inputs")
    arrays = {
        "features": rng.normal(size=(N, D)).astype(np.float32),
        "edges": rng.integers(0, N, (2, 4 * N)),
        "labels": rng.integers(0, 3, N),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return {name: folder / f"{name}.npy" for name in arrays}


@pytest.fixture(scope="module")
def expected(inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("local")
    Job(folder, **inputs, **OPTIONS).run(workers=2)
    return results_in(folder)


def results_in(folder: Path) -> dict[str, bytes]:
    found = [
        path
        for name in RESULTS
        for path in (folder / name).iterdir()
        if not path.name.startswith(".")
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def scale_command(*arguments: object) -> list[str]:
    command = [sys.executable, "-m", "cfe_faiss", "scale", *map(str, arguments)]
    return [*command, "--executor", "ray"]


class Driver:
    """Process of a ``cfe-faiss scale``."""

    started: ClassVar[list["Driver"]] = []

    def __init__(self, cluster: Cluster, *arguments: object, token: Path | None = None) -> None:
        environment = dict(cluster.environment)
        if token is not None:
            token.write_text(secrets.token_hex(32))
            environment["RAY_AUTH_TOKEN_PATH"] = str(token)
        command = scale_command(*arguments)
        if "--address" not in arguments:
            command += ["--address", cluster.address]
        self.process = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.started.append(self)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)

    def ended(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=ENDED)
        return self.process.returncode, errors


@pytest.fixture(autouse=True)
def no_driver_is_left() -> Iterator[None]:
    yield
    for driver in Driver.started:
        if driver.process.stderr is not None and not driver.process.stderr.closed:
            driver.kill()
    Driver.started.clear()


def new_job(folder: Path, inputs: dict[str, Path], **other: object) -> list[object]:
    """Return the arguments of a ``run``."""
    options = {name: value for name, value in (OPTIONS | other).items() if name != "k"}
    named = {f"--{name.replace('_', '-')}": value for name, value in (inputs | options).items()}
    return ["run", folder, "-k", OPTIONS["k"], *[part for pair in named.items() for part in pair]]


def finished_in(folder: Path) -> list[dict]:
    done = folder / "done.jsonl"
    lines = done.read_bytes() if done.exists() else b""
    return [json.loads(line) for line in lines[: lines.rfind(b"\n") + 1].splitlines()]


def stages_in(folder: Path) -> list[str]:
    return [entry["stage"] for entry in finished_in(folder)]


def written(folder: Path) -> dict[str, int]:
    """Return the files of finished tasks that are there: a file that is written again is another one."""
    files = [folder / file["path"] for entry in finished_in(folder) for file in entry["files"]]
    return {str(path): path.stat().st_ino for path in files if path.exists()}


def assert_as_local(folder: Path, expected: dict[str, bytes], before: dict[str, int]) -> None:
    """Check that results equal a local run, and that no file of a task that was finished before was written again."""
    assert results_in(folder) == expected
    tasks = [(entry["stage"], entry["block"]) for entry in finished_in(folder)]
    assert len(tasks) == len(set(tasks))
    after = written(folder)
    found = {path: after[path] for path in before if path in after}
    assert found == {p: n for p, n in before.items() if p in after}


def killed_at(stage: str, folder: Path, cluster: Cluster) -> None:
    """Kill a worker that is at a task, after a stage has begun to be finished."""
    waited(lambda: stage in stages_in(folder), ENDED, 0.005)
    signalled(waited(lambda: cluster.processes(TASK), ENDED, 0.002)[0], signal.SIGKILL)


def assert_idle(cluster: Cluster) -> None:
    """No worker is at a task any more."""
    waited(lambda: not cluster.processes(TASK), 120)


def test_workers_a_node_and_the_driver_are_killed(
    two_nodes: Cluster, inputs: dict[str, Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    driver = Driver(two_nodes, *new_job(folder, inputs))
    killed_at("graph", folder, two_nodes)
    waited(lambda: "step-1" in stages_in(folder), ENDED)
    driver.kill()
    assert_idle(two_nodes)
    before = written(folder)

    driver = Driver(two_nodes, "resume", folder)
    waited(lambda: "assign" in stages_in(folder), ENDED)
    # of the twenty tasks of the stage it has one: both nodes are kept busy
    two_nodes.nodes[-1].kill()
    status, errors = driver.ended()
    assert status == 0, errors
    assert_as_local(folder, expected, before)
    assert_idle(two_nodes)
    assert in_session(driver.process.pid) == []
    two_nodes.add()


def test_a_worker_is_killed_in_every_stage(
    two_nodes: Cluster, inputs: dict[str, Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    driver, killed = Driver(two_nodes, *new_job(tmp_path, inputs)), set[str]()
    while driver.process.poll() is None:
        stage = (stages_in(tmp_path) or ["begin"])[-1]
        tasks = [] if stage in killed else two_nodes.processes(TASK)
        if tasks:
            killed.add(stage)
            signalled(tasks[0], signal.SIGKILL)
        time.sleep(0.005)
    status, errors = driver.ended()
    assert status == 0, errors
    assert len(killed) > 6
    assert_as_local(tmp_path, expected, {})


def test_a_driver_that_is_killed_takes_its_own_cluster_along(
    two_nodes: Cluster, inputs: dict[str, Path], tmp_path: Path
) -> None:
    folder, before = tmp_path / "job", {pid for pid, *_ in processes()}
    command = scale_command(*new_job(folder, inputs))
    with tempfile.TemporaryDirectory(prefix="cfe-", dir="/tmp") as place:
        own = two_nodes.environment | {"RAY_TMPDIR": place}
        driver = subprocess.Popen(command, env=own, start_new_session=True)
        try:
            waited(lambda: "graph" in stages_in(folder), ENDED)
        finally:
            driver.kill()
            driver.wait(60)
        name = place.encode()
        waited(
            lambda: (
                not [
                    pid for pid, *_ in processes() if pid not in before and name in command_of(pid)
                ]
            ),
            60,
        )
    # Ray's agents try for a minute to tell the head, which has gone, that they end.
    waited(lambda: in_session(driver.pid) == [], 180)


def test_a_node_that_is_short_of_memory_ends_its_workers(
    two_nodes: Cluster, inputs: dict[str, Path], tmp_path: Path
) -> None:
    command = scale_command(*new_job(tmp_path / "job", inputs))
    with tempfile.TemporaryDirectory(prefix="cfe-", dir="/tmp") as place:
        short = {
            "RAY_memory_usage_threshold": "0.001",
            "RAY_memory_monitor_refresh_ms": "50",
            "RAY_TMPDIR": place,
        }
        environment = two_nodes.environment | short
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=ENDED, check=False
        )
    assert done.returncode == 2
    assert re.search(r"(its worker died 4 times|cannot run the job): .*low on memory", done.stderr)
    Job(tmp_path / "job").run(workers=1)


def test_no_cluster_at_the_address(
    two_nodes: Cluster, inputs: dict[str, Path], tmp_path: Path
) -> None:
    status, errors = Driver(
        two_nodes, *new_job(tmp_path, inputs), "--address", f"127.0.0.1:{free_port()}"
    ).ended()
    assert status == 2
    (line,) = errors.splitlines()
    assert line.startswith("cfe-faiss: error: no Ray cluster is to be reached at 127.0.0.1:")
    assert finished_in(tmp_path) == []


def test_a_cluster_that_refuses_the_connection(
    two_nodes: Cluster, inputs: dict[str, Path], tmp_path: Path
) -> None:
    driver = Driver(two_nodes, *new_job(tmp_path, inputs), token=tmp_path / "token")
    status, errors = driver.ended()
    assert status == 2
    error = errors.splitlines()[-1]
    assert error.startswith(
        f"cfe-faiss: error: no connection to the Ray cluster at {two_nodes.address}: "
    )
    assert "InvalidAuthToken" in error
    assert finished_in(tmp_path) == []


def test_a_node_that_does_not_see_the_folder_is_named(
    two_nodes: Cluster, inputs: dict[str, Path], tmp_path: Path
) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    mount = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden))
    if (
        shutil.which("unshare") is None
        or subprocess.run([*mount, "true"], capture_output=True).returncode
    ):
        pytest.skip("no file system can be mounted for one process here")
    node = two_nodes.add(before=mount)
    try:
        status, errors = Driver(two_nodes, *new_job(hidden, inputs)).ended()
    finally:
        node.stop()
    assert status == 2
    assert "the Ray node" in errors
    assert f"it does not see the folder {hidden}" in errors
    assert finished_in(hidden) == []


def test_a_node_without_the_package_is_named(
    two_nodes: Cluster, inputs: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['cfe_faiss'] = None\n")
    path = f"{tmp_path}:{two_nodes.environment['PYTHONPATH']}"
    node = two_nodes.add(PYTHONPATH=path)
    try:
        status, errors = Driver(two_nodes, *new_job(tmp_path / "job", inputs)).ended()
    finally:
        node.stop()
    assert status == 2
    assert "cannot run the job:" in errors
    assert "cfe_faiss" in errors.partition("cannot run the job:")[2]
