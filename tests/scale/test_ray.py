"""Jobs and replicas on a real Ray cluster on this machine."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
import scale_calls
from numpy.testing import assert_array_equal
from ray_nodes import waited
from reference import assert_same_arrays, with_rows
from scale_calls import begun, run_stage

import cfe_faiss as cfe
from cfe_faiss.rows.metric import Metric
from cfe_faiss.rows.snapshot import UnknownIdError
from cfe_faiss.scale import Job, JobError, ShardedEvidenceIndex, write_shards
from cfe_faiss.scale import ray as scale_ray
from cfe_faiss.scale.job_files import Finished
from cfe_faiss.scale.ray import RayExecutor, ServedEvidenceIndex

ray = pytest.importorskip("ray", reason='ray is missing: pip install "cfe-faiss[ray]"')

pytestmark = [
    # Ray's own: processes and sockets that it leaves to the system when it ends.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]

N, D, K, LAYERS = 800, 8, 4, 1
RNG = np.random.default_rng(3)
FEATURES = RNG.normal(size=(N, D)).astype(np.float32)
EDGES = RNG.integers(0, N, (2, 2500))
LABELS = RNG.integers(0, 2, N)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, filter(None, sys.path))))
        scale_ray.connect(None, 2)
    yield
    ray.shutdown()


@pytest.fixture
def executor(cluster: None) -> Iterator[RayExecutor]:
    running = RayExecutor(None, None)
    yield running
    running.close()


def listening(processes: set[int]) -> set[str]:
    """Return the addresses, as the kernel writes them, at which some processes listen."""
    places = [
        *Path("/proc/net/tcp").read_text().splitlines()[1:],
        *Path("/proc/net/tcp6").read_text().splitlines()[1:],
    ]
    fields = [line.split() for line in places]
    addresses = {f"socket:[{field[9]}]": field[1] for field in fields if field[3] == "0A"}
    found = set()
    for process in processes:
        for path in Path(f"/proc/{process}/fd").glob("*"):
            with suppress(OSError):  # it was closed meanwhile
                found.add(addresses.get(str(path.readlink()), ""))
    return found - {""}


def descendants(process: int) -> set[int]:
    found, new = {process}, {process}
    while new:
        parents = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        new = {child for child, parent in parents.items() if parent in found} - found
        found |= new
    return found


@pytest.mark.skipif(
    not Path("/proc/net/tcp").exists(), reason="this system does not say who listens where"
)
def test_a_cluster_that_is_started_here_listens_on_the_loopback_interface_only(
    executor: RayExecutor,
) -> None:
    addresses = listening(descendants(os.getpid()))
    assert len(addresses) > 3
    hosts = {address.partition(":")[0] for address in addresses}
    expected = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert hosts <= expected


@pytest.mark.skipif(
    not Path("/proc/self/cmdline").exists(), reason="this system does not list processes"
)
def test_a_worker_that_dies_while_nodes_are_checked_is_replaced(
    cluster: None, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        """Kill the first process that checks its node."""
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            for process in descendants(os.getpid()):
                with suppress(OSError):
                    if b"_problem" in Path(f"/proc/{process}/cmdline").read_bytes():
                        os.kill(process, signal.SIGKILL)
                        killed.append(process)
                        break

    killer = threading.Thread(target=kill_one)
    killer.start()
    # Thousands of files, so that the check takes a moment.
    files = {str(tmp_path / f"{'x/../' * 200}{number}"): 0 for number in range(2000)}
    (tmp_path / "x").mkdir()
    for number in range(2000):
        (tmp_path / str(number)).touch()
    RayExecutor(None, None, tmp_path, files).close()
    killer.join()
    assert killed


def test_an_error_ends_the_job_with_its_cause(executor: RayExecutor, tmp_path: Path) -> None:
    done: list[Finished] = []
    message = r"stage failing, block 2: OSError: \[Errno 28\] No space"
    with pytest.raises(JobError, match=message) as caught:
        run_stage(executor, tmp_path, scale_calls.failing, range(1, 60), done)
    assert isinstance(caught.value.__cause__, OSError)
    assert begun(tmp_path, 59) == 0


def test_tasks_have_the_threads_of_their_cores(executor: RayExecutor, tmp_path: Path) -> None:
    assert executor.machines == [2]
    assert executor.workers == 2
    for threads in (1, 2, 99):  # a node with 99 cores may have left
        future = executor.submit(partial(scale_calls.double, folder=tmp_path), 7, threads)
        assert future.result(timeout=300).peak_bytes == 14


def test_addresses(cluster: None, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    for same in ("auto", address, f"127.0.0.1:{address.rpartition(':')[2]}"):
        assert scale_ray.connect(same)[1] is False
    message = rf"is connected to the Ray cluster at {address}, got address='10.0.0.1:6379'"
    with pytest.raises(ValueError, match=message):
        scale_ray.connect("10.0.0.1:6379")
    with pytest.raises(ValueError, match="address must be 'auto' or host:port"):
        scale_ray.connect("ray://127.0.0.1:10001")


def index(metric: Metric = "cosine") -> cfe.IndexEvidenceIVF:
    X = cfe.ks_vectors(FEATURES, EDGES, LAYERS) if metric == "cosine" else FEATURES
    return with_rows(cfe.IndexEvidenceIVF(D, 50, metric=metric), X, LABELS)


def test_a_job_on_a_cluster_has_the_results_of_one_index(cluster: None, tmp_path: Path) -> None:
    sizes = {"nlist": 50, "block_rows": 400, "shards": 2, "pairs": 0}
    of_nodes: dict[str, Any] = {"num_layers": LAYERS, "k": K, "recall": 0.9}
    job = Job(tmp_path, features=FEATURES, edges=EDGES, labels=LABELS, **of_nodes, **sizes)
    job.run("ray", workers=2)
    found = job.evidence().to_table().sort_by([("node", "ascending"), ("rank", "ascending")])
    expected = index().search_stored(k=K, recall=0.9)
    assert_same_arrays(
        (found["similarity"].to_numpy().reshape(N, K), found["evidence"].to_numpy().reshape(N, K)),
        expected,
    )


@pytest.mark.parametrize("killed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_replicas_answer_as_the_index_does_and_outlive_being_killed(
    cluster: None, tmp_path: Path, killed: int
) -> None:
    made = index()
    write_shards(made, tmp_path, 2)
    with ServedEvidenceIndex(tmp_path, replicas=2) as served:
        for _ in range(3):
            found = served.search_evidence(FEATURES[:1], LABELS[:1], K, nprobe=5)
            assert_same_arrays(found, made.search_evidence(FEATURES[:1], LABELS[:1], K, nprobe=5))
        for pid in served.processes()[:killed]:
            os.kill(pid, signal.SIGKILL)
        found = served.search_stored([5, 7], K, exact=True)[1]
        assert_array_equal(found, made.search_stored([5, 7], K, exact=True)[1])
        assert_same_arrays(
            (
                *served.range_search_evidence(FEATURES[:3], LABELS[:3], 0.9),
                *served.search_certified([5, 7], K, nprobe=5),
            ),
            (
                *made.range_search_evidence(FEATURES[:3], LABELS[:3], 0.9),
                *made.search_certified([5, 7], K, nprobe=5),
            ),
        )
        rules: dict[str, Any] = {"exclude": [[3], [9]], "neighbors": "any", "within": (-1, 0.99)}
        found = served.search_stored([5, 7], K, **rules)[1]
        assert_array_equal(found, made.search_stored([5, 7], K, **rules)[1])
        per_label = (one.search_per_label(FEATURES[:3], LABELS[:3], K)[1] for one in (served, made))
        assert_array_equal(*per_label)
        assert_array_equal(served.label_names, made.label_names)
        assert served.recall_by_class(0.9, K) == made.recall_by_class(0.9, K)
        with pytest.raises(ValueError, match="progress must be False"):
            served.search_stored([5], K, progress=True)
        with pytest.raises(ValueError, match="k must be at least 1"):
            served.search_stored([5], 0)
        found = served.search_stored([5], K, sel=range(99))[1]
        assert_array_equal(found, made.search_stored([5], K, sel=range(99))[1])
        with pytest.raises(TypeError, match="sel must be ids or a mask: FAISS's selectors stay"):
            served.range_search_evidence(
                FEATURES[:3], LABELS[:3], 0.9, sel=faiss.IDSelectorRange(0, 99)
            )
        message = f"ids must be in the index, got {N}, which is not"
        with pytest.raises(UnknownIdError, match=message):
            served.search_stored([N], K)
    with pytest.raises(RuntimeError, match="was closed"):
        served.search_stored([5])
    with pytest.raises(FileNotFoundError):
        ServedEvidenceIndex(tmp_path / "nothing")
    assert isinstance(ShardedEvidenceIndex.open(tmp_path), ShardedEvidenceIndex)


@pytest.mark.parametrize("metric", ["l2", pytest.param("ip", marks=pytest.mark.slow)])
def test_replicas_compare_by_the_metric_of_the_index(
    cluster: None, tmp_path: Path, metric: Metric
) -> None:
    made = index(metric)
    write_shards(made, tmp_path, 2)
    xq, labels = 2 * FEATURES[:3] + 1, LABELS[:3]
    threshold = float(made.search_evidence(xq, labels, 9, exact=True)[0][0, -1])
    calls: list[tuple[str, Any, dict[str, Any]]] = [
        ("search_evidence", (xq, labels, K), {"nprobe": 5}),
        ("search_evidence", (xq[:1], labels[:1], K), {"exact": True}),
        ("search_stored", ([5, 7], K), {"recall": 0.9}),
        ("search_stored", ([5, 7], K), {"within": (threshold / 2, threshold), "neighbors": "own"}),
        ("search_certified", ([5, 7], K), {"nprobe": 5}),
        ("range_search_evidence", (xq, labels, threshold), {}),
        ("search_per_label", (xq, labels, K), {}),
    ]
    with ServedEvidenceIndex(tmp_path) as served:
        assert (served.metric, served.d) == (metric, D)
        for name, arguments, how in calls:
            found, expected = (getattr(one, name)(*arguments, **how) for one in (served, made))
            assert_same_arrays(found, expected)


# --- killed workers: each new one takes seconds to start --------------------------------------------------------------


def test_the_task_of_a_killed_worker_is_done_again(executor: RayExecutor, tmp_path: Path) -> None:
    done: list[Finished] = []
    run_stage(executor, tmp_path, scale_calls.killed_once, range(6), done)
    assert sorted(one.block for one in done) == list(range(6))
    assert [begun(tmp_path, block) for block in range(6)] == [1, 2, 1, 1, 1, 1]


@pytest.mark.slow
def test_a_task_that_kills_every_worker_ends_the_job(executor: RayExecutor, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="block 1: its worker died 4 times: The worker died"):
        run_stage(executor, tmp_path, scale_calls.always_killed, [1], list[Finished]())
    assert begun(tmp_path, 1) == 4


def test_a_task_waits_for_a_free_core(executor: RayExecutor, tmp_path: Path) -> None:
    taken = ray.remote(num_cpus=2)(scale_calls.sleeping).remote(0, tmp_path)
    try:
        waited(lambda: (tmp_path / "pid").exists(), 300)
        future = executor.submit(partial(scale_calls.double, folder=tmp_path), 7, 1)
        with pytest.raises(TimeoutError):
            future.result(timeout=1)
        assert begun(tmp_path, 7) == 0
    finally:
        ray.cancel(taken, force=True)
    assert future.result(timeout=300).peak_bytes == 14
