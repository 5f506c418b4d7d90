"""The most similar pairs of a sharded index in tasks equal the pairs of one index in memory, bit for bit."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import Stored, clustered, output_of, stored_vectors, with_rows

import cfe_faiss as cfe
from cfe_faiss.pairs import Pairs
from cfe_faiss.scale import Job, write_shards
from cfe_faiss.scale import stages as index_stages
from cfe_faiss.scale.job_files import Finished, Input, Manifest, Settings, Task
from cfe_faiss.scale.sharded import INDEX
from cfe_faiss.search import join, tiles

pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.usefixtures("without_sync")

K = 3  # evidence of a node that the files hold
COLUMNS = (("source", np.int64), ("target", np.int64), ("similarity", np.float32))


def index_of(stored: Stored) -> cfe.IndexEvidenceIVF:
    index = cfe.IndexEvidenceIVF(stored.X.shape[1], min(6, len(stored.X)))
    return with_rows(index, stored.X, stored.labels, stored.ids)


def task_in(
    folder: Path,
    index: cfe.IndexEvidenceIVF,
    shards: int,
    searched: int | None = None,
    **changed: Any,
) -> Task:
    """Return a folder with what the stages of pairs read: the shards and the evidence of all nodes, or of the first."""
    write_shards(index, folder / INDEX, shards)
    given = Settings(
        index.ntotal, index.d, 0, 0.5, False, K, None, index.nlist, shards, index.ntotal, 1000, None
    )
    task = Task(folder, replace(given, **changed), dict[str, Input](), 1, "evidence", 0)
    ids = np.sort(index.storage().row_ids)[:searched]
    D, I = index.search_stored(ids, k=task.settings.k, nprobe=1)
    for number, rows in enumerate(np.array_split(np.arange(len(ids)), shards)):
        replace(task, block=number).write_table(
            index_stages.evidence_table(ids[rows], D[rows], I[rows])
        )
    return task


def run(task: Task) -> dict[str, int]:
    """Run all tasks, and return the number of tasks of each stage."""
    stages = index_stages.pair_stages(task.settings)
    for stage in stages:
        for block in reversed(range(stage.blocks)):
            stage.run(replace(task, stage=stage.name, block=block))
    return {stage.name: stage.blocks for stage in stages}


def found_in(paths: list[Path]) -> Pairs:
    parts = [[column.to_numpy() for column in pq.read_table(path).columns] for path in paths]
    return Pairs(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def assert_equal(found: Pairs, expected: Pairs) -> None:
    assert_array_equal(found.source, expected.source)
    assert_array_equal(found.target, expected.target)
    assert_array_equal(found.similarity.view(np.int32), expected.similarity.view(np.int32))


def in_order(pairs: Pairs) -> Pairs:
    order = np.lexsort((pairs.target, pairs.source, -pairs.similarity))
    return Pairs(pairs.source[order], pairs.target[order], pairs.similarity[order])


@st.composite
def small_groups(draw: st.DrawFn) -> dict[str, int]:
    """Draw how small groups and blocks are, what a scored pair costs, and how many pairs a call finds."""
    return {
        "group": draw(st.integers(9, 70)),
        "block": draw(st.integers(2, 8)),
        "price": draw(st.sampled_from([0, 4000, 10**9])),
        "chunk": draw(st.sampled_from([5, 768])),
    }


def take_over(patch: pytest.MonkeyPatch, sizes: dict[str, int]) -> None:
    patch.setattr(index_stages, "GROUP_ROWS", sizes["group"])
    patch.setattr(join, "_BLOCK", sizes["block"])
    for price in ("_ROW_TEST", "_COARSE_PAIR", "_FINE_PAIR", "_SCORED_PAIR"):
        patch.setattr(join, price, sizes["price"])
    patch.setattr(tiles, "CHUNK", sizes["chunk"])
    patch.setattr(tiles, "TILE", sizes["chunk"] ** 2)


@given(
    stored_vectors(least=4, lowest_label=-1),
    small_groups(),
    st.sampled_from([1, 2, 5, 30, 5000]),
    st.floats(-1, 1, width=32),
    st.integers(1, 4),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_pairs_equal_one_index(
    tmp_path_factory: pytest.TempPathFactory,
    stored: Stored,
    sizes: dict[str, int],
    k: int,
    threshold: float,
    shards: int,
) -> None:
    index = index_of(stored)
    shards = min(shards, int(np.count_nonzero(np.diff(index.storage().starts))))
    with pytest.MonkeyPatch.context() as patch:
        take_over(patch, sizes)
        folder = tmp_path_factory.mktemp("pairs")
        tasks = run(task_in(folder, index, shards, pairs=k, threshold=threshold))
        groups = -(-index.ntotal // sizes["group"])
        assert tasks == {"groups": 1, "sketch": groups, "pairs": groups, "top": 1, "above": groups}
    assert_equal(found_in([folder / "top" / "000000.parquet"]), cfe.global_evidence(index, k))
    above = [*cfe.evidence_pairs(index, threshold)]
    expected = Pairs(
        *(
            np.concatenate([np.empty(0, t), *(getattr(part, name) for part in above)])
            for name, t in COLUMNS
        )
    )
    assert_equal(in_order(found_in(sorted((folder / "above").iterdir()))), in_order(expected))


def one_of(n: int, changed: Any = None) -> Stored:
    """Return vectors around a few centres, with repeats; labels may be given."""
    X, labels = clustered(n, 8, 3)
    X[n // 2 : n // 2 + 40] = X[0]
    return Stored(X, labels if changed is None else changed, np.arange(n) * 7, X, labels, 1)


FEW = [
    (np.zeros(200, np.int64), 5),  # one class
    (np.full(200, -1), 5),  # all unknown
    (np.where(np.arange(200) < 2, 1, 0), 10_000),  # 396 pairs
    (np.where(np.arange(200) < 140, -1, np.arange(200) % 2), 9),  # whole groups are unknown
    (np.arange(200) % 2, 700),  # equal pairs are cut at the k-th
    (np.arange(200), 50_000),  # every pair
]
# By default, each case with one price, and each price with two cases.
FEW_PAIRS = [
    pytest.param(labels, k, price, marks=[pytest.mark.slow] if (i + j) % 3 else [])
    for i, (labels, k) in enumerate(FEW)
    for j, price in enumerate([0, 4000, 10**9])
]


@pytest.mark.parametrize(("labels", "k", "price"), FEW_PAIRS)
def test_few_classes_ties_and_more_pairs_wanted_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, labels: NDArray[np.int64], k: int, price: int
) -> None:
    take_over(monkeypatch, {"group": 64, "block": 8, "price": price, "chunk": 32})
    index = index_of(one_of(200, labels))
    run(task_in(tmp_path, index, 2, pairs=k))
    assert_equal(found_in([tmp_path / "top" / "000000.parquet"]), cfe.global_evidence(index, k))


# --- jobs -------------------------------------------------------------------------------------------------------------

N, D, ROWS = 900, 10, 200
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(N, D)).astype(np.float32)
EDGES = RNG.integers(0, N, (2, 3000))
LABELS = RNG.integers(-1, 3, N)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, shared_executor: type) -> Path:
    folder = tmp_path_factory.mktemp("pairs") / "job"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cfe_faiss.scale.job.LocalExecutor", shared_executor)
        patch.setattr(index_stages, "GROUP_ROWS", ROWS)
        job = Job(
            folder, FEATURES, EDGES, LABELS, k=3, block_rows=400, shards=2, pairs=40, threshold=0.9
        )
        job.run(workers=1)
    return folder


@pytest.fixture
def job(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_workers: None
) -> Job:
    """Copy of a finished job."""
    monkeypatch.setattr(index_stages, "GROUP_ROWS", ROWS)
    return Job(shutil.copytree(finished, tmp_path / "job"))


@pytest.fixture(scope="module")
def expected() -> tuple[Pairs, Pairs]:
    X = cfe.ks_vectors(FEATURES, EDGES)
    index = with_rows(cfe.IndexEvidenceIDMap2(D), X, LABELS)
    return cfe.global_evidence(index, 40), in_order(next(cfe.evidence_pairs(index, 0.9)))


def assert_results(job: Job, expected: tuple[Pairs, Pairs]) -> None:
    assert_equal(job.top_pairs(), expected[0])
    above = job.pairs_above().to_table()
    assert_equal(in_order(Pairs(*(column.to_numpy() for column in above.columns))), expected[1])


def tasks_in(folder: Path) -> list[tuple[str, int]]:
    lines = (folder / "done.jsonl").read_text().splitlines()
    return [(entry["stage"], entry["block"]) for entry in map(json.loads, lines)]


def test_a_job_has_a_task_for_each_group(job: Job, expected: tuple[Pairs, Pairs]) -> None:
    assert_results(job, expected)
    assert len(job.top_pairs(7)) == 7
    stages = {stage.name: stage for stage in job.status()}
    assert list(stages)[-5:] == ["groups", "sketch", "pairs", "top", "above"]
    assert [stage.blocks for stage in stages.values()][-5:] == [1, 5, 5, 1, 5]
    assert [stage.bytes > 0 for stage in stages.values()][-5:] == [False, False, False, True, True]
    before = (job.directory / "done.jsonl").read_bytes()
    job.run()
    assert (job.directory / "done.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    "name", ["top/000000.parquet", "above/000003.parquet", "evidence/000001.parquet"]
)
def test_a_result_that_is_lost_is_made_again(
    job: Job, expected: tuple[Pairs, Pairs], name: str
) -> None:
    path = job.directory / name
    content = path.read_bytes()
    path.unlink()
    job.run(workers=1)
    assert path.read_bytes() == content
    assert len(tasks_in(job.directory)) == len(set(tasks_in(job.directory)))
    assert_results(job, expected)


ENDS = (
    ("sketch", None),
    ("pairs", "sketch/000002.coarse.npy"),
    ("above", "groups/000000.lists.npy"),
)
"""Stages in which a driver ends after two tasks, and a file of an earlier stage that is damaged then."""


class EndedError(Exception):
    """Ends a driver."""


def forget_pairs(folder: Path) -> None:
    """Remove what the stages of pairs have written."""
    stages, done = ("groups", "sketch", "pairs", "top", "above"), folder / "done.jsonl"
    lines = [
        line for line in done.read_text().splitlines() if json.loads(line)["stage"] not in stages
    ]
    done.write_text("\n".join(lines) + "\n")
    for name in stages:
        shutil.rmtree(folder / name)


def damage(folder: Path, name: str | None) -> None:
    if name is not None and (folder / name).exists():
        (folder / name).write_bytes(b"")


def assert_goes_on(job: Job, expected: tuple[Pairs, Pairs]) -> None:
    job.run(workers=2)
    tasks = tasks_in(job.directory)
    assert len(tasks) == len(set(tasks))
    assert_results(job, expected)


def test_a_job_that_ends_between_its_groups_goes_on(
    job: Job, expected: tuple[Pairs, Pairs], monkeypatch: pytest.MonkeyPatch
) -> None:
    enter = Manifest.enter
    forget_pairs(job.directory)
    for stage, damaged in ENDS:

        def enter_and_end(manifest: Manifest, finished: Finished, stage: str = stage) -> None:
            enter(manifest, finished)
            if len(manifest.of_stage(stage)) == 2:
                raise EndedError

        monkeypatch.setattr(Manifest, "enter", enter_and_end)
        with pytest.raises(EndedError):
            job.run(workers=2)
        damage(job.directory, damaged)
    monkeypatch.setattr(Manifest, "enter", enter)
    assert_goes_on(job, expected)


# --- memory -----------------------------------------------------------------------------------------------------------

MEMORY = """
import sys, threading, time
from dataclasses import replace
from pathlib import Path
import faiss, numpy as np
import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex
from cfe_faiss.scale import stages as index_stages
from cfe_faiss.scale.job_files import Settings, Task

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

def peak_of(function):
    before, peak, over = anonymous(), [0], threading.Event()
    def watch():
        while not over.wait(0.002):
            peak[0] = max(peak[0], anonymous())
    thread = threading.Thread(target=watch)
    thread.start()
    function()
    over.set()
    thread.join()
    return max(0, peak[0] - before)

faiss.omp_set_num_threads(1)
folder, n, d, shards = Path(sys.argv[1]), *map(int, sys.argv[2:])
settings = Settings(n, d, 0, 0.5, False, 3, None, 60, shards, n, 1000, 0.999)
index_stages.GROUP_ROWS = 1 << 14
index = ShardedEvidenceIndex.open(folder / "index")
index.search_stored([0], k=1, nprobe=1)  # what is loaded once is not counted
[*index_stages.pairs_in(folder / "evidence" / "000000.parquet", ("node", "evidence", "similarity"), lambda: 2.0)]
def task(stage, block):
    return Task(folder, settings, {}, 8 << 20, stage, block)

index_stages.open_index(task("groups", 0))
for stage in index_stages.pair_stages(settings):
    print(stage.name, max(peak_of(lambda: stage.run(task(stage.name, block))) for block in range(stage.blocks)))
one = peak_of(lambda: cfe.global_evidence(index, 1000))
print("one", one)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory as Linux does")
def test_tasks_take_memory_for_a_group_not_for_all(tmp_path: Path) -> None:
    n, d, shards = 300_000, 32, 3
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3000, d)).astype(np.float32)
    X = centres[rng.integers(0, 3000, n)] + 0.15 * rng.normal(size=(n, d)).astype(np.float32)
    labels = rng.integers(0, 5, n)
    index = cfe.IndexEvidenceIVF(d, 60)
    index.cp.niter = 2
    index.train(X[:6000])
    index.add_with_labels(X, labels)
    task_in(tmp_path, index, shards, searched=20_000)
    lines = output_of(MEMORY, tmp_path, n, d, shards).splitlines()
    peaks = {name: int(peak) for name, peak in map(str.split, lines)}
    all_at_once = peaks.pop("one")
    assert list(peaks) == ["groups", "sketch", "pairs", "top", "above"]
    assert max(peaks.values()) < all_at_once / 3
    assert_equal(found_in([tmp_path / "top" / "000000.parquet"]), cfe.global_evidence(index, 1000))
