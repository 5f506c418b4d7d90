"""A job over a folder: the results of one index, although processes are killed and files are lost or damaged."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import assert_same_arrays, with_rows

import cfe_faiss as cfe
from cfe_faiss.graph import as_graph
from cfe_faiss.scale import Job, JobError, ShardedEvidenceIndex
from cfe_faiss.scale.job import as_bytes
from cfe_faiss.scale.job_files import Finished, Manifest

pytestmark = pytest.mark.usefixtures("shared_workers", "without_sync")

N, D, K = 1500, 10, 5
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(N, D)).astype(np.float32)
EDGES = RNG.integers(0, N, (2, 5000))
LABELS = RNG.integers(0, 3, N)
SETTINGS: dict[str, Any] = {
    "k": K,
    "recall": 0.9,
    "block_rows": 400,
    "shards": 3,
    "pairs": 30,
    "threshold": 0.9,
}


@pytest.fixture(scope="module")
def index() -> cfe.IndexEvidenceIVF:
    X = cfe.ks_vectors(FEATURES, EDGES)
    return with_rows(cfe.IndexEvidenceIVF(D, 4 * int(np.sqrt(N))), X, LABELS)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    for name, array in (("features", FEATURES), ("edges", EDGES), ("labels", LABELS)):
        np.save(folder / f"{name}.npy", array)
    return {name: folder / f"{name}.npy" for name in ("features", "edges", "labels")}


@pytest.fixture(scope="module")
def finished(
    inputs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, shared_executor: type
) -> Path:
    folder = tmp_path_factory.mktemp("job")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cfe_faiss.scale.job.LocalExecutor", shared_executor)
        Job(folder, **inputs, **SETTINGS).run(workers=2)
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    place = tmp_path / "job"
    shutil.copytree(finished, place)
    return place


def evidence_of(job: Job) -> tuple[NDArray[Any], NDArray[Any]]:
    table = job.evidence().to_table().sort_by([("node", "ascending"), ("rank", "ascending")])
    shape = (N, K)
    return table["similarity"].to_numpy().reshape(shape), table["evidence"].to_numpy().reshape(
        shape
    )


def assert_results(folder: Path, index: cfe.IndexEvidenceIVF, **how: Any) -> None:
    job = Job(folder)
    assert_array_equal(np.concatenate([*job.vectors()]), cfe.ks_vectors(FEATURES, EDGES))
    assert_same_arrays(evidence_of(job), index.search_stored(k=K, **(how or {"recall": 0.9})))
    pairs, expected_pairs = job.top_pairs(), cfe.global_evidence(index, 30)
    assert_array_equal(pairs.source, expected_pairs.source)
    assert_array_equal(pairs.similarity, expected_pairs.similarity)
    above = job.pairs_above().to_table()
    assert above.num_rows == sum(len(block) for block in cfe.evidence_pairs(index, 0.9))


def test_results_equal_one_index(finished: Path, index: cfe.IndexEvidenceIVF) -> None:
    assert_results(finished, index)
    opened = Job(finished).index()
    assert isinstance(opened, ShardedEvidenceIndex)
    expected = index.search_evidence(FEATURES[:9], LABELS[:9], 4, nprobe=8)
    assert_same_arrays(opened.search_evidence(FEATURES[:9], LABELS[:9], 4, nprobe=8), expected)


def test_the_index_of_a_job_is_opened_by_the_folder_of_the_job(
    finished: Path, index: cfe.IndexEvidenceIVF, inputs: dict[str, Path], tmp_path: Path
) -> None:
    opened = ShardedEvidenceIndex.open(finished)
    assert_same_arrays(opened.search_stored(k=K), index.search_stored(k=K))
    Job(tmp_path / "new", **inputs, **SETTINGS)
    with pytest.raises(FileNotFoundError, match=r"index/shards\.json"):  # it has none yet
        ShardedEvidenceIndex.open(tmp_path / "new")


SCRIPT = """
import sys
import time
import numpy as np
from cfe_faiss.scale import Job

print("started")
rng = np.random.default_rng(0)
job = Job(sys.argv[1], rng.normal(size=(50, 4)), rng.integers(0, 50, (2, 90)), rng.integers(0, 2, 50), k=2, pairs=0)
job.run(executor="local", workers=1)
print(job.evidence().count_rows())
"""


@pytest.mark.slow
def test_standard_input_runs_a_job(tmp_path: Path) -> None:
    command = [sys.executable, "-", tmp_path / "job"]
    done = subprocess.run(command, input=SCRIPT, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["started", "100"], "")


def test_the_status_of_a_job(finished: Path) -> None:
    stages = {stage.name: stage for stage in Job(finished).status()}
    assert list(stages)[:3] == ["sort", "graph", "step-0"]
    assert {stage.finished for stage in stages.values()} == {1, 3, 4}
    assert all(
        stage.finished == stage.blocks and stage.seconds_left == 0 for stage in stages.values()
    )
    assert stages["sort"].bytes == 0  # nothing reads it any more
    assert stages["vectors"].bytes > 4 * N * D
    assert all(stage.peak_bytes > 1 << 20 for stage in stages.values())
    assert repr(Job(finished)).endswith(f", n={N:,}, d={D}, k={K})")


def test_exact_and_directed_from_csr_and_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({f"x{i}": FEATURES[:, i] for i in range(D)}),
        tmp_path / "x.parquet",
        row_group_size=500,
    )
    graph = as_graph(EDGES, N, directed=True)
    job = Job(
        tmp_path / "job",
        features=tmp_path / "x.parquet",
        edges=(graph.indptr, graph.indices),
        labels=LABELS,
        exact=True,
        k=K,
        num_layers=2,
        block_rows=700,
        pairs=0,
        shards=2,
    )
    job.run(workers=1)
    X = cfe.ks_vectors(FEATURES, graph, 2)
    assert_array_equal(np.concatenate([*job.vectors()]), X)
    flat = with_rows(cfe.IndexEvidenceIDMap2(D), X, LABELS)
    assert_same_arrays(evidence_of(job), flat.search_stored(k=K))
    with pytest.raises(RuntimeError, match="has not finished the stage 'top'"):
        job.top_pairs()


@pytest.mark.parametrize("csr", [False, True])
def test_edges_with_weights(tmp_path: Path, csr: bool) -> None:
    weights = RNG.exponential(size=EDGES.shape[1])
    graph = as_graph(EDGES, N, edge_weight=weights)
    edges, of_edges = ((graph.indptr, graph.indices), graph.weights) if csr else (EDGES, weights)
    settings = {"k": 2, "block_rows": 700, "pairs": 0, "nlist": 5}
    job = Job(tmp_path, FEATURES, edges, LABELS, edge_weight=of_edges, **settings)
    job.run(workers=1)
    found = np.concatenate([*job.vectors()])
    assert_array_equal(found, cfe.ks_vectors(FEATURES, EDGES, edge_weight=weights))
    with pytest.raises(ValueError, match=r"holds a job with the inputs \['edge_weight', "):
        Job(tmp_path, FEATURES, edges, LABELS, **settings)
    with pytest.raises(ValueError, match="holds a job whose edge_weight have another content"):
        Job(tmp_path, FEATURES, edges, LABELS, edge_weight=2 * of_edges, **settings)
    with pytest.raises(ValueError, match=r"edge_weight must be numbers of shape \(\d+,\), .*got"):
        Job(tmp_path / "other", FEATURES, edges, LABELS, edge_weight=np.ones(3), **settings)


def test_threads_do_not_change_a_byte(
    inputs: dict[str, Path], finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    Job(tmp_path, **inputs, **SETTINGS).run(workers=1)
    for stage in ("vectors", "train", "index", "evidence", "pairs", "above"):
        for path in (finished / stage).iterdir():
            if path.is_file() and not path.name.startswith("."):
                assert (tmp_path / stage / path.name).read_bytes() == path.read_bytes(), path


def test_more_shards_than_lists_that_hold_vectors(tmp_path: Path) -> None:
    features, labels = np.ones((60, 4)), np.arange(60) % 2
    sizes = {"nlist": 3, "shards": 5, "num_layers": 0, "k": 2, "pairs": 7}
    job = Job(tmp_path, features, np.zeros((2, 0), int), labels, **sizes)
    job.run(workers=1)
    assert {
        stage.name: stage.blocks for stage in job.status() if stage.name in ("shard", "evidence")
    } == {"shard": 5, "evidence": 5}
    assert len(job.index().shards) <= 3
    assert job.index().ntotal == 60
    assert job.evidence().count_rows() == 120
    assert len(job.top_pairs()) == 7


def tasks_in(folder: Path) -> list[tuple[str, int]]:
    lines = (folder / "done.jsonl").read_text().splitlines()
    return [(entry["stage"], entry["block"]) for entry in map(json.loads, lines)]


def test_a_finished_job_does_nothing(copy: Path) -> None:
    before = (copy / "done.jsonl").read_bytes()
    Job(copy).run()
    assert (copy / "done.jsonl").read_bytes() == before


def changed(content: bytes) -> bytes:
    return bytes([*content[:-100], content[-100] ^ 1, *content[-99:]])


@pytest.mark.parametrize("hows", ["lost cut changed", "cut changed lost", "changed lost cut"])
def test_damaged_blocks_are_made_again(copy: Path, index: cfe.IndexEvidenceIVF, hows: str) -> None:
    paths = [
        copy / name
        for name in ("vectors/000001.X.npy", "index/shard-000001.index", "evidence/000002.parquet")
    ]
    contents = [path.read_bytes() for path in paths]
    for path, content, how in zip(paths, contents, hows.split(), strict=True):
        if how == "lost":
            path.unlink()
        else:
            path.write_bytes(content[:-1] if how == "cut" else changed(content))
    Job(copy).run(workers=2)
    assert [path.read_bytes() for path in paths] == contents
    assert len(tasks_in(copy)) == len(set(tasks_in(copy)))
    assert_results(copy, index)


def test_changes_of_its_index_are_not_undone(
    copy: Path, index: cfe.IndexEvidenceIVF, tmp_path: Path
) -> None:
    Job(copy).index().relabel([5, 5, 5], [0, 1, 2])
    (copy / "evidence" / "000001.parquet").unlink()
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with pytest.raises(RuntimeError, match=r"index was changed after the job had written it.*move"):
        Job(copy).run(workers=1)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    assert 5 in Job(copy).index().label_names
    (copy / "index").rename(tmp_path / "changed")
    Job(copy).run(workers=2)
    assert_results(copy, index)
    assert 5 in ShardedEvidenceIndex.open(tmp_path / "changed").label_names


def test_a_last_line_that_is_not_whole_is_done_again(
    copy: Path, index: cfe.IndexEvidenceIVF
) -> None:
    done = copy / "done.jsonl"
    whole = done.read_bytes()
    done.write_bytes(whole[:-20])
    Job(copy).run(workers=1)
    assert len(tasks_in(copy)) == whole.count(b"\n")
    assert_results(copy, index)


DRIVER = """
import sys
import time
from cfe_faiss.scale import Job

print("started", flush=True)
Job(sys.argv[1]).run(workers=2)
"""


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_a_job_whose_driver_and_workers_are_killed_goes_on(
    times: int, inputs: dict[str, Path], index: cfe.IndexEvidenceIVF, tmp_path: Path
) -> None:
    folder, script = tmp_path / "job", tmp_path / "driver.py"
    script.write_text(DRIVER)
    Job(folder, **inputs, **SETTINGS)
    done = folder / "done.jsonl"
    for _ in range(times):
        before = lines_in(done)
        driver = subprocess.Popen(
            [sys.executable, script, folder], stdout=subprocess.PIPE, text=True
        )
        while driver.poll() is None and lines_in(done) <= before + 2:
            time.sleep(0.01)
        driver.kill()
        # Workers, which hold the pipe, end with the driver. They have not run its script, which lacks a guard.
        assert driver.communicate(timeout=120)[0] == "started\n"
    Job(folder).run(workers=2)
    tasks = tasks_in(folder)
    assert len(tasks) == len(set(tasks))  # nothing that was finished ran twice
    assert_results(folder, index)


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_a_job_whose_workers_are_killed_in_some_stages(
    step: int,
    inputs: dict[str, Path],
    index: cfe.IndexEvidenceIVF,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker is killed when the first task of a stage is finished."""
    enter, seen, killed = Manifest.enter, list[str](), set[str]()

    def enter_and_kill(manifest: Manifest, finished: Finished) -> None:
        enter(manifest, finished)
        if finished.stage not in seen:
            seen.append(finished.stage)
            if len(seen) % step == 0:
                os.kill(children_of(os.getpid())[-1], signal.SIGKILL)
                killed.add(finished.stage)

    monkeypatch.setattr(Manifest, "enter", enter_and_kill)
    job = Job(tmp_path, **inputs, **SETTINGS)
    job.run(workers=2)
    assert len(killed) >= len(seen) // step
    assert_results(tmp_path, index)


def children_of(pid: int) -> list[int]:
    """Return the worker processes of a driver."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
            command = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == pid and b"serve" in command:
            found.append(int(status.parent.name))
    return found


def test_a_job_is_driven_by_one_process(copy: Path) -> None:
    with (
        Manifest.drive(copy),
        pytest.raises(RuntimeError, match=f"another process runs the job in {copy}"),
    ):
        Job(copy).run(workers=1)
    Job(copy).run(workers=1)


def test_a_full_disk_ends_the_job_with_its_cause(copy: Path, index: cfe.IndexEvidenceIVF) -> None:
    (copy / "evidence" / "000001.parquet").unlink()
    (copy / "evidence").chmod(0o500)
    blocked = copy / "evidence" / "000001.parquet"
    if os.access(
        copy / "evidence", os.W_OK
    ):  # who may do everything is stopped by a folder of the file's name
        blocked.mkdir()
    with pytest.raises(JobError, match=r"stage evidence, block 1: .*(Permission|directory)"):
        Job(copy).run(workers=1)
    (copy / "evidence").chmod(0o700)
    if blocked.is_dir():
        blocked.rmdir()
    Job(copy).run(workers=1)
    assert_results(copy, index)


def test_another_job_is_refused(copy: Path, inputs: dict[str, Path], tmp_path: Path) -> None:
    Job(copy, **inputs, **SETTINGS).run()
    with pytest.raises(ValueError, match=r"holds a job with k=5, got 6"):
        Job(copy, **inputs, **(SETTINGS | {"k": 6}))
    with pytest.raises(ValueError, match="holds a job whose labels have another content"):
        Job(copy, **(inputs | {"labels": 1 - (LABELS > 0)}), **SETTINGS)
    specification = json.loads((copy / "job.json").read_text())
    (copy / "job.json").write_text(json.dumps(specification | {"version": 9}))
    with pytest.raises(ValueError, match="has version 9, this cfe_faiss reads version 1"):
        Job(copy)
    with pytest.raises(FileNotFoundError):
        Job(tmp_path / "nothing")


def test_omitted_sizes_are_taken_from_the_job(copy: Path, inputs: dict[str, Path]) -> None:
    before = (copy / "job.json").read_bytes()
    chosen = {
        name: value for name, value in SETTINGS.items() if name not in ("shards", "block_rows")
    }
    assert Job(copy, **inputs, **chosen).status() == Job(copy).status()
    assert (copy / "job.json").read_bytes() == before
    for name in ("shards", "block_rows"):
        with pytest.raises(ValueError, match=f"holds a job with {name}={SETTINGS[name]}, got 7"):
            Job(copy, **inputs, **(chosen | {name: 7}))


def test_a_job_that_is_refused_leaves_the_files_of_the_other_one(tmp_path: Path) -> None:
    arrays = {"features": FEATURES, "edges": EDGES, "labels": LABELS}
    Job(tmp_path, **arrays, **SETTINGS)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for other in ({"features": 2 * FEATURES}, {"labels": LABELS[:-1]}, {"edges": EDGES[:, :9]}):
        with pytest.raises(ValueError, match=r"holds a job|labels must have shape"):
            Job(tmp_path, **(arrays | other), **SETTINGS)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    Job(tmp_path, **arrays, **SETTINGS)


def test_the_status_changes_no_file(copy: Path) -> None:
    done = copy / "done.jsonl"
    torn = done.read_bytes()[:-20]
    done.write_bytes(torn)
    assert (
        sum(
            stage.blocks - stage.finished
            for stage in Job(copy).status()
            if stage.blocks is not None
        )
        == 1
    )
    assert done.read_bytes() == torn


def test_changed_inputs_are_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    features = tmp_path / "x.npy"
    shutil.copy(inputs["features"], features)
    job = Job(tmp_path / "job", **(inputs | {"features": features}), **SETTINGS)
    os.utime(features, ns=(1, 1))  # another time, the same content
    changed = FEATURES.copy()
    changed[0, 0] += 1
    np.save(features, changed)
    with pytest.raises(ValueError, match="features must be what the job was made with:"):
        job.run()
    features.unlink()
    with pytest.raises(ValueError, match="is missing"):
        job.run()


def test_arguments_are_checked(tmp_path: Path) -> None:
    good: dict[str, Any] = {"features": FEATURES, "edges": EDGES, "labels": LABELS}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"features": None}, "got no features"),
        ({"features": FEATURES[0]}, "features must be numbers of shape"),
        ({"labels": LABELS[1:]}, "labels must have shape"),
        ({"labels": [True, 1, 0] * 500}, "labels must be .* got True"),
        ({"edges": EDGES.T}, r"edges must be integers of shape \(2, E\)"),
        ({"edges": (EDGES[0], EDGES[1])}, r"edges must be indptr, \(1501,\)"),
        ({"recall": 0.9, "exact": True}, "only one of recall and exact"),
        ({"recall": 2}, "recall must"),
        ({"k": 0}, "k must"),
        ({"features": tmp_path / "x.csv"}, "there is no file"),
    ]
    for number, (change, message) in enumerate(wrong):
        with pytest.raises((TypeError, ValueError, FileNotFoundError), match=message):
            Job(tmp_path / str(number), **(good | change))
    job = Job(tmp_path / "job", **good)
    with pytest.raises(ValueError, match="executor must be 'local' or 'ray', got 'dask'"):
        job.run("dask")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="address is that of a Ray cluster"):
        job.run(address="auto")
    with pytest.raises(ValueError, match="memory must be a number of bytes"):
        job.run(memory="much")


def test_numbers_of_bytes() -> None:
    expected = [100, 2048, 3 << 29, 7]
    assert [as_bytes("memory", value) for value in (100, "2KB", "1.5 gb", "7")] == expected


# --- files of others ------------------------------------------------------------------------------------------------


def finished_line(path: str) -> str:
    task = {
        "stage": "sort",
        "block": 0,
        "result": {},
        "seconds": 0.1,
        "cpu_seconds": 0.1,
        "peak_bytes": 1,
    }
    return json.dumps(task | {"files": [{"path": path, "size": 4, "crc32": 1}]}) + "\n"


@pytest.mark.parametrize(
    "name",
    ["../victim", "/{parent}/victim", "sort/../../victim", "thesis", "sort/link", "job.json"],
)
def test_a_line_that_leads_elsewhere_removes_no_file(name: str, copy: Path) -> None:
    victim, lines = copy.parent / "victim", (copy / "done.jsonl").read_text()
    for path in (victim, copy / "thesis"):
        path.write_text("mine")
    (copy / "sort" / "link").symlink_to(victim)
    for number in (1, lines.count("\n") + 1):
        line = finished_line(name.format(parent=copy.parent))
        (copy / "done.jsonl").write_text(line + lines if number == 1 else lines + line)
        for use in (
            lambda: Job(copy).run(workers=1),
            lambda: Job(copy).status(),
            lambda: Job(copy).evidence(),
        ):
            message = rf"^line {number} of .*/job/done\.jsonl must name "
            with pytest.raises(ValueError, match=message):
                use()
    assert (victim.read_text(), (copy / "thesis").read_text()) == ("mine", "mine")
    assert Manifest.exists(copy)


DAMAGED_LINES = (
    "{",
    "[]",
    "3",
    '{"stage": "sort"}',
    "[" * 10_000,
    "\N{SNOWMAN}",
    finished_line("sort/a").replace("4", '"4"'),
)


@pytest.mark.parametrize("line", DAMAGED_LINES, ids=range(len(DAMAGED_LINES)))
def test_a_damaged_line_is_named_with_the_remedy(line: str, copy: Path) -> None:
    first, *others = (copy / "done.jsonl").read_text().splitlines()
    (copy / "done.jsonl").write_text("\n".join([first, line.strip(), *others]) + "\n")
    with pytest.raises(ValueError, match=r"^line 2 of .*/done\.jsonl is damaged: .*\. Remove"):
        Job(copy).run(workers=1)
    (copy / "done.jsonl").write_text("\n".join([first, *others]) + "\n")
    Job(copy).run(workers=1)


@pytest.mark.parametrize("name", ["job.json", "done.jsonl"])
def test_a_pipe_in_place_of_a_file_is_refused(
    name: str, copy: Path, inputs: dict[str, Path]
) -> None:
    (copy / name).unlink()
    os.mkfifo(copy / name)
    uses = [
        lambda: Job(copy).run(),
        lambda: Job(copy).status(),
        lambda: Job(copy, **inputs, **SETTINGS).status(),
    ]
    for use in uses:
        message = rf"{name} must be a regular file|was not written by a job"
        with pytest.raises(ValueError, match=message):
            use()


@pytest.mark.parametrize("name", ["x.npy", "x.parquet"])
def test_a_pipe_in_place_of_an_input_is_refused(
    name: str, inputs: dict[str, Path], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match=f"{name} must be a regular file"):
        Job(tmp_path / "job", **(inputs | {"features": tmp_path / name}))


def test_links_in_a_job_are_not_followed(
    copy: Path, inputs: dict[str, Path], tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (copy / ".lock").unlink()
    (copy / ".lock").symlink_to(victim)
    with pytest.raises(OSError, match=r"\.lock"):
        Job(copy).run(workers=1)
    (copy / ".lock").unlink()
    (copy / "done.jsonl").unlink()
    (copy / "done.jsonl").symlink_to(victim)
    with pytest.raises(ValueError, match=r"must name no symbolic link, got 'done\.jsonl'"):
        Job(copy).run(workers=1)
    assert victim.read_text() == "mine"
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "inputs").symlink_to(copy)
    with pytest.raises(ValueError, match="must name no symbolic link, got 'inputs'"):
        Job(tmp_path / "new", **(inputs | {"features": FEATURES}))


def test_a_job_never_replaces_its_inputs(inputs: dict[str, Path], tmp_path: Path) -> None:
    features = tmp_path / "vectors" / "000000.X.npy"
    features.parent.mkdir()
    shutil.copy(inputs["features"], features)
    cases = (features, np.load(features, mmap_mode="r"), np.load(features, mmap_mode="r")[:, 1:])
    for one in cases:
        with pytest.raises(ValueError, match=r"000000\.X\.npy is an input, and the job would"):
            Job(tmp_path, **(inputs | {"features": one}), overwrite=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["000000.X.npy", "vectors"]
    beside = {name: shutil.copy(path, tmp_path) for name, path in inputs.items()}
    features.unlink()
    features.parent.rmdir()
    Job(tmp_path, **beside)
    Job(tmp_path, **beside)
