"""Changes of shards that are interrupted, killed, refused by the disk or made side by side: wholly or not at all."""

import itertools
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import raises_at
from numpy.testing import assert_array_equal
from sharded_indexes import FIRST, LABELS, X, assert_same, assert_tidy, results, started

import cfe_faiss as cfe
from cfe_faiss.scale import ShardedEvidenceIndex, write_shards

pytestmark = pytest.mark.usefixtures("without_sync")

N, MORE = len(FIRST), slice(100, 160)
CHANGES: dict[str, Callable[[Any], Any]] = {
    "add": lambda index: index.add_with_labels(X[MORE], LABELS[MORE]),
    "relabel": lambda index: index.relabel(np.arange(9) % 4, np.arange(9)),
    "remove": lambda index: index.remove_ids(np.arange(N - 9, N)),
    "update": lambda index: index.update_vectors(np.arange(9), X[MORE][:9], np.arange(9) % 4),
}


def seen(index: Any) -> list[Any]:
    """Return enough to tell an index from one that is not the same."""
    known = index.members()
    return [index.ntotal, known.ids, known.labels, *index.search_stored(k=3, nprobe=3)]


def same(one: list[Any], two: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def named(folder: Path) -> set[str]:
    return {"shards.json", *(shard["file"] for shard in json.loads((folder / "shards.json").read_text())["shards"])}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_survives(name: str, error: type[BaseException], folder: Path, where: str, step: int = 1) -> int:
    """Interrupt a change at each line of a part of the package; return how many lines it runs there."""
    change = CHANGES[name]
    index, _ = started(folder / "original")
    before = seen(index)
    change(index)
    after = seen(index)
    changed = True
    for line in itertools.count(1, step):
        if changed:
            shutil.copytree(folder / "original", place := folder / str(line))
            sharded = ShardedEvidenceIndex.open(place)
        interrupted = raises_at(line, error, partial(change, sharded), where)
        changed = not same(seen(sharded), before)
        assert same(seen(sharded), after if changed else before), line
        assert names(place) >= named(place), line
        if changed or names(place) != named(place):
            assert same(seen(ShardedEvidenceIndex.open(place)), after if changed else before), line
            sharded.relabel([3], [1])  # the lock is open, and what is left of the change goes
            assert_tidy(place, sharded)
            changed = True
        if not interrupted:
            return line
    raise AssertionError


# A file that was just opened, and not entered yet, is closed by nobody but the garbage collector.
unclosed = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")


@unclosed
@pytest.mark.parametrize(
    ("where", "step", "lines"), [("scale", 41, 250), ("files/new_file", 11, 20), ("files/regular", 7, 15)]
)
def test_adding_is_interrupted(where: str, step: int, lines: int, tmp_path: Path) -> None:
    assert assert_survives("add", KeyboardInterrupt, tmp_path, where, step) > lines


@unclosed
def test_an_update_of_vectors_is_interrupted(tmp_path: Path) -> None:
    assert assert_survives("update", KeyboardInterrupt, tmp_path, "scale", 43) > 250


@unclosed
@pytest.mark.slow
@pytest.mark.parametrize(("where", "lines"), [("scale", 250), ("files/new_file", 20), ("files/regular", 15)])
def test_adding_is_interrupted_at_any_line(where: str, lines: int, tmp_path: Path) -> None:
    assert assert_survives("add", KeyboardInterrupt, tmp_path, where) > lines


@unclosed
@pytest.mark.slow
@pytest.mark.parametrize("name", ["relabel", "remove", "update"])
def test_other_changes_are_interrupted_at_any_line(name: str, tmp_path: Path) -> None:
    assert assert_survives(name, KeyboardInterrupt, tmp_path, "scale") > 250


@unclosed
@pytest.mark.slow
def test_adding_runs_out_of_memory_anywhere_in_the_package(tmp_path: Path) -> None:
    assert assert_survives("add", MemoryError, tmp_path, "", step=37) > 10_000


# --- processes --------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from cfe_faiss.scale import ShardedEvidenceIndex, sharded, shards
from sharded_indexes import LABELS, X

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def blocks(moment):
    yield X[100:150], LABELS[100:150]
    if moment == "blocks":
        die()
    yield X[150:160], LABELS[150:160]

def write_second(index, path, write=shards.write_file, **how):
    write(index, path, **how) if not written else die()
    written.append(path)

def add(folder, moment):
    index = ShardedEvidenceIndex.open(folder)
    if moment == "shards":
        shards.write_file = write_second
    elif moment == "names":  # the first file has another name than it should
        os.replace = die
    elif moment == "before":
        os.replace = lambda old, new, replace=os.replace: die() if new.name == "shards.json" else replace(old, new)
    elif moment == "after":
        sharded.sync_folder = die
    index.add_blocks(blocks(moment))

written = []
for folder in map(Path, sys.argv[1:]):
    pid = os.fork()
    if pid == 0:
        add(folder, folder.name)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
TESTS = Path(__file__).parents[1]


def python(code: str, *arguments: Any, **how: Any) -> Any:
    """Start a process that runs code with the modules of the tests."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}, **how)


def test_killed_writers_leave_the_index_before_or_after_their_change(tmp_path: Path) -> None:
    folders = [tmp_path / moment for moment in ("blocks", "shards", "names", "before", "after")]
    indexes = [started(folder)[0] for folder in folders]
    files = names(folders[0])
    with python(KILLED, *folders) as process:
        assert process.communicate()[0].split() == [str(-signal.SIGKILL)] * len(folders)
    for folder, index in zip(folders, indexes, strict=True):
        assert (names(folder) == files) == (folder.name == "blocks"), folder
        opened = ShardedEvidenceIndex.open(folder)
        if folder.name != "after":
            assert_same(index, opened)
            opened.add_with_labels(X[MORE], LABELS[MORE])
        index.add_with_labels(X[MORE], LABELS[MORE])
        assert_same(index, opened)
        opened.relabel([3], [1])  # removes the files of the killed process
        assert_tidy(folder, opened)


FULL = """
import resource, sys
from cfe_faiss.scale import ShardedEvidenceIndex
from sharded_indexes import LABELS, X

most = resource.RLIM_INFINITY
for folder, count, limit in zip(sys.argv[1::3], map(int, sys.argv[2::3]), map(int, sys.argv[3::3])):
    index = ShardedEvidenceIndex.open(folder)
    for now in (limit, most):
        resource.setrlimit(resource.RLIMIT_FSIZE, (now, most))
        try:
            index.add_blocks([(X[:count], LABELS[:count])])
        except OSError:
            print("refused")
        print(index.ntotal)
"""


def test_a_full_disk_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    # The new vectors do not fit into a file; a shard does not.
    cases = [(tmp_path / "vectors", len(X), 12_000), (tmp_path / "shard", 30, 4_000)]
    pairs = [started(folder) for folder, *_ in cases]
    for one in itertools.chain(*pairs):
        one.add_with_labels(X[N:], LABELS[N:])
    before = [results(sharded) for _, sharded in pairs]
    with python(FULL, *itertools.chain(*cases)) as process:
        lines = process.communicate()[0].split()
    for (folder, count, _), (index, old), known in zip(cases, pairs, before, strict=True):
        assert [lines.pop(0) for _ in range(3)] == ["refused", f"{len(X)}", f"{len(X) + count}"]
        assert same(results(old), known)  # which has the old files mapped
        index.add_with_labels(X[:count], LABELS[:count])
        sharded = ShardedEvidenceIndex.open(folder)
        assert_same(index, sharded)
        assert_tidy(folder, sharded)


ADDING = """
import os, sys
from cfe_faiss.scale import ShardedEvidenceIndex
from sharded_indexes import LABELS, X

first = 220 if os.fork() else 200
sharded = ShardedEvidenceIndex.open(sys.argv[1])
for row in range(first, first + 4):
    sharded.add_with_labels(X[row : row + 1], LABELS[row : row + 1], [1000 + row])
if first == 220:
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_processes_and_threads_that_change_lose_nothing_of_each_other(tmp_path: Path) -> None:
    index, sharded = started(tmp_path)
    process = python(ADDING, tmp_path)  # and its child

    def add(first: int) -> None:
        for row in range(first, first + 4):
            sharded.add_with_labels(X[row : row + 1], LABELS[row : row + 1], [1000 + row])

    threads = [threading.Thread(target=add, args=(first,)) for first in (240, 260)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or process.poll() is None:
        opened = ShardedEvidenceIndex.open(tmp_path)  # of files that are replaced meanwhile
        assert opened.ntotal == len(opened.members().ids) >= N
        assert len(sharded.search_stored(k=2, nprobe=2)[0]) >= N
        time.sleep(0.03)  # a process takes a second to start
    with process:
        assert process.wait() == 0
    rows = np.concatenate([np.arange(first, first + 4) for first in (200, 220, 240, 260)])
    sharded.relabel([3], [1])  # opens the shards of the other processes
    assert_array_equal(np.setdiff1d(sharded.members().ids, np.arange(N)), 1000 + rows)
    assert_tidy(tmp_path, sharded)
    index.add_with_labels(X[rows], LABELS[rows], 1000 + rows)
    index.relabel([3], [1])
    assert_array_equal(index.search_stored(k=3, exact=True)[1], sharded.search_stored(k=3, exact=True)[1])


def test_open_shards_stay_readable_until_they_are_opened_again(tmp_path: Path) -> None:
    index, sharded = started(tmp_path)
    old, copy = ShardedEvidenceIndex.open(tmp_path), pickle.dumps(sharded)
    expected = results(old)
    for one in (index, sharded):
        one.add_with_labels(X, LABELS)
        one.relabel(np.zeros(len(X) + N, int), np.arange(len(X) + N))
    assert same(results(old), expected)
    assert_same(index, pickle.loads(copy))
    for one in (index, old):
        one.relabel(LABELS, np.arange(len(X)))
    assert_same(index, old)


READING = """
import sys
import numpy as np
from cfe_faiss.scale import ShardedEvidenceIndex

for _ in range(12):
    sharded = ShardedEvidenceIndex.open(sys.argv[1])
    labels = sharded.members().labels
    assert (labels == labels[0]).all(), labels
    D, I = sharded.search_stored(k=2, nprobe=2)
    assert (I < 0).all()
print("read")
"""


def test_readers_see_the_labels_before_or_after(tmp_path: Path) -> None:
    _, sharded = started(tmp_path)
    sharded.relabel(np.zeros(N, int))
    with python(READING, tmp_path) as process:
        label = 0
        while process.poll() is None:
            label = 1 - label
            sharded.relabel(np.full(N, label))
            time.sleep(0.005)
        assert process.stdout.read() == "read\n"
    assert label in (0, 1)


# --- memory -----------------------------------------------------------------------------------------------------------

MEASURED = """
import sys
from pathlib import Path
import numpy as np
from cfe_faiss.scale import ShardedEvidenceIndex

def peak():
    # What resource.getrusage tells would start from the memory of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

def blocks(count, rows, d):
    for seed in range(count):
        yield np.random.default_rng(seed).normal(size=(rows, d)).astype(np.float32), np.full(rows, seed % 5)

sharded = ShardedEvidenceIndex.open(sys.argv[1])
sharded.add_blocks(blocks(1, 1000, sharded.d))
before = peak()
sharded.add_blocks(blocks(16, 5000, sharded.d))
print(peak() - before, sharded.ntotal, max(shard.ntotal for shard in sharded.shards))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_of_adding_is_bounded(tmp_path: Path) -> None:
    """41 MB of vectors come in blocks of 2.6 MB to 8 shards."""
    d = 128
    index = cfe.IndexEvidenceIVF(d, 64)
    index.cp.niter = 2
    x = np.random.default_rng(0).normal(size=(2000, d))
    index.train(x)
    index.add_with_labels(x, np.zeros(2000, int))
    write_shards(index, tmp_path, 8)
    with python(MEASURED, tmp_path) as process:
        grown, ntotal, largest = map(int, process.communicate()[0].split())
    assert ntotal == 83_000
    assert grown < 3 * 4 * d * largest + 3 * 4 * d * 5000 + 64 * ntotal
