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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import raises_at
from sharded_indexes import FIRST, LABELS, assert_same, assert_tidy, results, started

from cfe_faiss.scale import ShardedEvidenceIndex

pytestmark = pytest.mark.usefixtures("without_sync")

N = len(FIRST)
NEW_LABELS = np.arange(N) % 4


def relabel(index: Any) -> None:
    index.relabel(NEW_LABELS)


def seen(index: Any) -> list[Any]:
    """Return enough to tell an index from one that is not the same."""
    known = index.members()
    return [index.ntotal, known.ids, known.labels, *index.search_stored(k=3, nprobe=3)]


def same(one: list[Any], two: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def named(folder: Path) -> set[str]:
    return {
        "shards.json",
        *(shard["file"] for shard in json.loads((folder / "shards.json").read_text())["shards"]),
    }


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_survives(error: type[BaseException], folder: Path, where: str, step: int = 1) -> int:
    """Interrupt a relabelling at each line of a part of the package; return how many lines it runs there."""
    index, _ = started(folder / "original")
    before = seen(index)
    relabel(index)
    after = seen(index)
    changed = True
    for line in itertools.count(1, step):
        if changed:
            shutil.copytree(folder / "original", place := folder / str(line))
            sharded = ShardedEvidenceIndex.open(place)
        interrupted = raises_at(line, error, partial(relabel, sharded), where)
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
    ("where", "step", "lines"),
    [("scale", 41, 150), ("files/outputs", 11, 20), ("base/disk", 7, 15)],
)
def test_a_relabelling_is_interrupted(where: str, step: int, lines: int, tmp_path: Path) -> None:
    assert assert_survives(KeyboardInterrupt, tmp_path, where, step) > lines


@unclosed
@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "lines"), [("scale", 150), ("files/outputs", 20), ("base/disk", 15)]
)
def test_a_relabelling_is_interrupted_at_any_line(where: str, lines: int, tmp_path: Path) -> None:
    assert assert_survives(KeyboardInterrupt, tmp_path, where) > lines


@unclosed
@pytest.mark.slow
def test_a_relabelling_runs_out_of_memory_anywhere_in_the_package(tmp_path: Path) -> None:
    assert assert_survives(MemoryError, tmp_path, "", step=37) > 5_000


# --- processes --------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from cfe_faiss.scale import ShardedEvidenceIndex, sharded

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def write_second(*arguments, write=sharded.write_file, **options):
    write(*arguments, **options) if not written else die()
    written.append(arguments)

def relabel(folder, moment):
    index = ShardedEvidenceIndex.open(folder)
    if moment == "shards":
        sharded.write_file = write_second
    elif moment == "names":  # the first file has another name than it should
        os.replace = die
    elif moment == "before":
        replace = os.replace
        os.replace = lambda old, new: die() if os.fspath(new).endswith("shards.json") else replace(old, new)
    elif moment == "after":
        sharded.sync_folder = die
    index.relabel(np.arange(index.ntotal) % 4)

written = []
for folder in map(Path, sys.argv[1:]):
    pid = os.fork()
    if pid == 0:
        relabel(folder, folder.name)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
TESTS = Path(__file__).parents[1]


def python(code: str, *arguments: Any, **how: Any) -> Any:
    """Start a process that runs code with the modules of the tests."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}, **how
    )


def test_killed_writers_leave_the_index_before_or_after_their_change(tmp_path: Path) -> None:
    folders = [tmp_path / moment for moment in ("shards", "names", "before", "after")]
    indexes = [started(folder)[0] for folder in folders]
    files = names(folders[0])
    with python(KILLED, *folders) as process:
        assert process.communicate()[0].split() == [str(-signal.SIGKILL)] * len(folders)
    for folder, index in zip(folders, indexes, strict=True):
        assert names(folder) != files, folder
        opened = ShardedEvidenceIndex.open(folder)
        if folder.name != "after":
            assert_same(index, opened)
            relabel(opened)
        relabel(index)
        assert_same(index, opened)
        opened.relabel([3], [1])  # removes the files of the killed process
        assert_tidy(folder, opened)


FULL = """
import resource, sys
import numpy as np
from cfe_faiss.scale import ShardedEvidenceIndex

index = ShardedEvidenceIndex.open(sys.argv[1])
for limit in (1_000, resource.RLIM_INFINITY):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        index.relabel(np.arange(index.ntotal) % 4)
        print("relabelled")
    except OSError:
        print("refused")
"""


def test_a_full_disk_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    index, old = started(tmp_path)
    before = results(old)
    with python(FULL, tmp_path) as process:
        assert process.communicate()[0].split() == ["refused", "relabelled"]
    assert same(results(old), before)  # which has the old files mapped
    relabel(index)
    sharded = ShardedEvidenceIndex.open(tmp_path)
    assert_same(index, sharded)
    assert_tidy(tmp_path, sharded)


RELABELLING = """
import os, sys
from cfe_faiss.scale import ShardedEvidenceIndex

first = 10 if os.fork() else 0
sharded = ShardedEvidenceIndex.open(sys.argv[1])
for i in range(first, first + 4):
    sharded.relabel([50 + i], [i])
if first == 10:
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_processes_and_threads_that_relabel_lose_nothing_of_each_other(tmp_path: Path) -> None:
    index, sharded = started(tmp_path)
    process = python(RELABELLING, tmp_path)  # and its child

    def relabel_some(first: int) -> None:
        for i in range(first, first + 4):
            sharded.relabel([50 + i], [i])

    threads = [threading.Thread(target=relabel_some, args=(first,)) for first in (20, 30)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or process.poll() is None:
        opened = ShardedEvidenceIndex.open(tmp_path)  # of files that are replaced meanwhile
        assert opened.ntotal == len(opened.members().ids) == N
        assert len(sharded.search_stored(k=2, nprobe=2)[0]) == N
        time.sleep(0.03)  # a process takes a second to start
    with process:
        assert process.wait() == 0
    changed = np.concatenate([np.arange(first, first + 4) for first in (0, 10, 20, 30)])
    sharded.relabel([3], [5])  # opens the shards of the other processes
    assert_tidy(tmp_path, sharded)
    index.relabel(50 + changed, changed)
    index.relabel([3], [5])
    assert_same(index, sharded)


def test_open_shards_stay_readable_until_they_are_opened_again(tmp_path: Path) -> None:
    index, sharded = started(tmp_path)
    old, copy = ShardedEvidenceIndex.open(tmp_path), pickle.dumps(sharded)
    expected = results(old)
    for one in (index, sharded):
        one.relabel(np.zeros(N, int))
    assert same(results(old), expected)
    assert_same(index, pickle.loads(copy))
    for one in (index, old):
        one.relabel(LABELS[:20], np.arange(20))
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
