"""Several processes that make a job in one folder at once: one is made, the others join it or are refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cfe_faiss.scale import Job

N, D = 400, 6
RNG = np.random.default_rng(0)
FEATURES, EDGES, LABELS = (
    RNG.normal(size=(N, D)),
    RNG.integers(0, N, (2, 900)),
    RNG.integers(0, 2, N),
)
ROUNDS = [12, pytest.param(100, marks=pytest.mark.slow)]

AT_ONCE = """
import json, os, sys, time
from pathlib import Path
import numpy as np
from cfe_faiss.scale import Job
rng = np.random.default_rng(0)
x, edges, labels = rng.normal(size=(400, 6)), rng.integers(0, 400, (2, 900)), rng.integers(0, 2, 400)
changes = json.loads(sys.argv[2])

def make(number, change, folder, start):
    os.read(start, 1)
    time.sleep(np.random.default_rng().uniform(0, 0.01))
    change = dict(change)
    given = {"features": x, "edges": edges, "labels": labels[: change.pop("labels", 400)]}
    if change.pop("other", False):
        given["features"] = 2 * x
    try:
        Job(folder, **given, **{"k": 5, "exact": True, "pairs": 3, "nlist": 4} | change)
        answer = "made"
    except Exception as error:
        answer = f"{type(error).__name__}: {error}"
    Path(f"{folder}.{number}").write_text(answer)

for round in range(int(sys.argv[3])):
    folder, (start, go), pids = Path(sys.argv[1]) / str(round), os.pipe(), []
    for number, change in enumerate(changes):
        pids.append(os.fork())
        if pids[-1] == 0:
            make(number, change, folder, start)
            os._exit(0)
    os.write(go, bytes(len(changes)))
    for pid in pids:
        os.waitpid(pid, 0)
    answers = [Path(f"{folder}.{number}").read_text() for number in range(len(changes))]
    print(json.dumps(answers), flush=True)
"""


def rounds_of(folder: Path, changes: list[dict[str, object]], count: int) -> list[list[str]]:
    """Return the answers of processes that each make a job with these changes, in each round."""
    command = [sys.executable, "-W", "ignore", "-c", AT_ONCE, folder, json.dumps(changes), count]
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=True, timeout=300
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("count", ROUNDS)
def test_jobs_that_are_refused_leave_the_inputs_of_another_one(tmp_path: Path, count: int) -> None:
    changes: list[dict[str, object]] = [{}, {"labels": 399}, {"k": -1}, {}]
    for number, answers in enumerate(rounds_of(tmp_path, changes, count)):
        assert (answers[0], answers[3]) == ("made", "made")
        assert answers[1].startswith("ValueError: labels must have shape")
        assert answers[2].startswith("ValueError: k must be")
        folder = tmp_path / str(number)
        named = {source.path for source in Job(folder)._inputs.values()}
        assert {str(path) for path in (folder / "inputs").iterdir()} == named


@pytest.mark.parametrize("count", ROUNDS)
def test_one_of_two_jobs_with_other_settings_is_made(tmp_path: Path, count: int) -> None:
    for number, answers in enumerate(
        rounds_of(tmp_path, [{"k": 5}, {"k": 7}, {"other": True}], count)
    ):
        assert sorted(answers)[2:] == ["made"]
        k = json.loads((tmp_path / str(number) / "job.json").read_text())["settings"]["k"]
        for given, answer in zip((5, 7, 5), answers, strict=True):
            other = f"k={k}, got {given}" if k != given else "features have another content"
            assert answer == "made" or other in answer


def test_a_job_that_another_one_has_replaced_does_not_run(tmp_path: Path) -> None:
    arrays = {"features": FEATURES, "edges": EDGES, "labels": LABELS}
    old = Job(tmp_path, **arrays, k=2)
    (tmp_path / "job.json").unlink()
    Job(tmp_path, **arrays, k=3)
    with pytest.raises(RuntimeError, match="holds another job now"):
        old.run(workers=1)


def test_files_that_appear_in_the_folder_meanwhile_stay(tmp_path: Path) -> None:
    class Features:
        """Features during whose conversion somebody puts a file beside them."""

        shape = FEATURES.shape

        def __getitem__(self, rows: slice) -> np.ndarray:
            (tmp_path / "inputs" / "mine.txt").write_text("mine")
            return FEATURES[rows]

    with pytest.raises(ValueError, match="labels must have shape"):
        Job(tmp_path, features=Features(), edges=EDGES, labels=LABELS[:-1])
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["mine.txt"]


KILLED = """
import os, signal, sys, time
import numpy as np
from cfe_faiss.scale import Job
x = np.random.default_rng(0).normal(size=(400, 6))

class Slow:
    shape = x.shape
    def __getitem__(self, rows):
        print("begun", flush=True)
        time.sleep(60)

Job(sys.argv[1], features=Slow(), edges=np.zeros((2, 0), int), labels=np.zeros(400, int))
"""


def test_a_construction_that_is_killed_leaves_no_lock(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.kill()
    Job(tmp_path, features=FEATURES, edges=EDGES, labels=LABELS, k=2)
    assert os.path.lexists(tmp_path / "job.json")
